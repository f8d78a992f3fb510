//! Whether two servers gave the same answer, and where it is known that they do not.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Error};

use serde::Deserialize;

use super::options::Program;
use super::queries::Shape;

/// How far values may be apart, relative to the larger one.
pub const TOLERANCE: f64 = 1e-6;

type Labels = BTreeMap<String, String>;

/// An answer, in an order that does not depend on the server's.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Values by series and by time in ms.
    Values(BTreeMap<Labels, BTreeMap<i64, f64>>),
    /// Values by time in ms, sorted.
    Ranked(BTreeMap<i64, Vec<f64>>),
    /// What is in a list.
    List(BTreeSet<String>),
}

/// How two answers compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Compared {
    /// Values, or members of a list, of the first.
    pub values: usize,
    /// Those that only one of the two has.
    pub missing: usize,
    /// Those that differ by more than the tolerance.
    pub differing: usize,
    /// The largest relative difference.
    pub worst: f64,
}

impl Compared {
    /// Whether the answers are the same.
    pub fn is_equal(&self) -> bool {
        self.missing == 0 && self.differing == 0
    }
}

#[derive(Deserialize)]
struct Body<T> {
    data: T,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: Labels,
    #[serde(default)]
    values: Vec<(f64, String)>,
    value: Option<(f64, String)>,
}

impl Answer {
    /// Reads the body of an answer.
    ///
    /// Errors: it is not of this shape.
    pub fn read(shape: Shape, body: &[u8]) -> io::Result<Answer> {
        if shape == Shape::List {
            let list: Body<Vec<serde_json::Value>> = serde_json::from_slice(body)?;
            return Ok(Answer::List(list.data.iter().map(ToString::to_string).collect()));
        }
        let body: Body<Data> = serde_json::from_slice(body)?;
        let mut series = BTreeMap::new();
        for Series { metric, values, value } in body.data.result {
            let mut points = BTreeMap::new();
            for (time_s, text) in values.into_iter().chain(value) {
                let value =
                    text.parse().map_err(|_| Error::other(format!("{text} is not a number")))?;
                points.insert((time_s * 1e3).round() as i64, value);
            }
            series.insert(metric, points);
        }
        if shape == Shape::Values {
            return Ok(Answer::Values(series));
        }
        let mut ranked = BTreeMap::<i64, Vec<f64>>::new();
        for (time, value) in series.into_values().flatten() {
            ranked.entry(time).or_default().push(value);
        }
        ranked.values_mut().for_each(|values| values.sort_by(f64::total_cmp));
        Ok(Answer::Ranked(ranked))
    }

    /// The value of an answer that has only one.
    pub fn first_value(&self) -> Option<f64> {
        match self {
            Answer::Values(series) => series.values().flat_map(|s| s.values()).copied().next(),
            Answer::Ranked(_) | Answer::List(_) => None,
        }
    }

    /// Compares with another answer to the same question.
    pub fn compare(&self, other: &Answer) -> Compared {
        let mut compared = Compared::default();
        match (self, other) {
            (Answer::Values(a), Answer::Values(b)) => {
                let none = BTreeMap::new();
                for (labels, points) in a {
                    compared.points(points, b.get(labels).unwrap_or(&none));
                }
                let only_b = b.iter().filter(|(labels, _)| !a.contains_key(*labels));
                compared.missing += only_b.map(|(_, points)| points.len()).sum::<usize>();
            }
            (Answer::Ranked(a), Answer::Ranked(b)) => {
                let times: BTreeSet<&i64> = a.keys().chain(b.keys()).collect();
                for time in times {
                    let [a, b] = [a, b].map(|ranked| ranked.get(time).map_or(&[][..], |v| v));
                    compared.values += a.len();
                    compared.missing += a.len().abs_diff(b.len());
                    a.iter().zip(b).for_each(|(a, b)| compared.value(*a, *b));
                }
            }
            (Answer::List(a), Answer::List(b)) => {
                compared.values = a.len();
                compared.missing = a.symmetric_difference(b).count();
            }
            _ => compared.missing = 1,
        }
        compared
    }
}

impl Compared {
    fn points(&mut self, a: &BTreeMap<i64, f64>, b: &BTreeMap<i64, f64>) {
        self.values += a.len();
        self.missing += b.keys().filter(|time| !a.contains_key(time)).count();
        for (time, value) in a {
            match b.get(time) {
                Some(other) => self.value(*value, *other),
                None => self.missing += 1,
            }
        }
    }

    fn value(&mut self, a: f64, b: f64) {
        if a == b || a.is_nan() && b.is_nan() {
            return;
        }
        let relative = (a - b).abs() / a.abs().max(b.abs());
        // Neither a NaN against a number nor infinities have a distance.
        if !relative.is_finite() {
            self.differing += 1;
            return;
        }
        self.worst = self.worst.max(relative);
        self.differing += usize::from(relative > TOLERANCE);
    }
}

/// Where a peer is known to answer otherwise than this project's server, and why.
const DIFFERENCES: &[(Program, &[&str], &str)] = &[
    (
        Program::VictoriaMetrics,
        &["sum of rate", "sum of increase", "raw rate", "ratio", "histogram_quantile", "subquery"],
        "rate and increase count from the last sample before the window and do not extrapolate \
         to its borders",
    ),
    (
        Program::Prometheus,
        &["label values, many", "series"],
        "lookups find what is in any block of two hours that the range touches; ours what is in \
         any such day",
    ),
];

/// Why a peer answers a query otherwise, if that is known.
pub fn known_difference(program: Option<Program>, query: &str) -> Option<&'static str> {
    DIFFERENCES
        .iter()
        .find(|(known, queries, _)| Some(*known) == program && queries.contains(&query))
        .map(|(_, _, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(result: &str) -> Answer {
        let body = format!(r#"{{"status":"success","data":{{"result":[{result}]}}}}"#);
        Answer::read(Shape::Values, body.as_bytes()).unwrap()
    }

    fn ranked(result: &str) -> Answer {
        let body = format!(r#"{{"data":{{"result":[{result}]}}}}"#);
        Answer::read(Shape::Ranked, body.as_bytes()).unwrap()
    }

    const A: &str = r#"{"metric":{"a":"1"},"values":[[1,"1"],[2.5,"NaN"]]}"#;
    const B: &str = r#"{"metric":{"b":"1"},"values":[[1,"+Inf"],[2.5,"-3e5"]]}"#;

    #[test]
    fn the_order_of_series_does_not_matter() {
        let compared = values(&format!("{A},{B}")).compare(&values(&format!("{B},{A}")));
        assert_eq!(compared, Compared { values: 4, ..Compared::default() });
        assert!(compared.is_equal());
    }

    #[test]
    fn what_one_side_lacks_is_missing() {
        let both = values(&format!("{A},{B}"));
        assert_eq!(both.compare(&values(A)).missing, 2);
        assert_eq!(values(A).compare(&both).missing, 2);
        let shorter = values(r#"{"metric":{"a":"1"},"values":[[1,"1"]]}"#);
        assert_eq!(values(A).compare(&shorter).missing, 1);
        assert_eq!(shorter.compare(&values(A)).missing, 1);
    }

    #[test]
    fn values_may_be_a_millionth_apart() {
        let one = |text: &str| values(&format!(r#"{{"metric":{{}},"value":[1,"{text}"]}}"#));
        for (a, b, is_equal) in [
            ("1000000", "1000000.9", true),
            ("1000000", "1000001.1", false),
            ("-1e-9", "-1.0000009e-9", true),
            ("0", "1e-300", false),
            ("NaN", "NaN", true),
            ("NaN", "1", false),
            ("+Inf", "+Inf", true),
            ("+Inf", "-Inf", false),
            ("+Inf", "1e308", false),
        ] {
            let compared = one(a).compare(&one(b));
            assert_eq!(compared.is_equal(), is_equal, "{a} and {b}: {compared:?}");
            assert_eq!(compared.missing, 0);
        }
        assert_eq!(one("4").compare(&one("3")).worst, 0.25);
        assert_eq!(one("4").first_value(), Some(4.0));
    }

    #[test]
    fn of_equal_ranks_any_series_may_win() {
        let won = |name: &str| {
            ranked(&format!(r#"{{"metric":{{"a":"{name}"}},"values":[[1,"7"],[2,"8"]]}}"#))
        };
        assert!(won("x").compare(&won("y")).is_equal());
        let fewer = ranked(r#"{"metric":{"a":"x"},"values":[[1,"7"]]}"#);
        assert_eq!(won("x").compare(&fewer).missing, 1);
    }

    #[test]
    fn lists_are_sets() {
        let list = |text: &str| {
            Answer::read(Shape::List, format!(r#"{{"data":[{text}]}}"#).as_bytes()).unwrap()
        };
        assert!(list(r#""a","b""#).compare(&list(r#""b","a""#)).is_equal());
        assert!(list(r#"{"x":"1","y":"2"}"#).compare(&list(r#"{"y":"2","x":"1"}"#)).is_equal());
        assert_eq!(list(r#""a","b""#).compare(&list(r#""b","c""#)).missing, 2);
    }

    #[test]
    fn other_shapes_are_errors() {
        for (shape, body) in [
            (Shape::List, r#"{"data":{"result":[]}}"#),
            (Shape::Values, r#"{"data":["a"]}"#),
            (Shape::Values, r#"{"status":"error"}"#),
            (Shape::Values, r#"{"data":{"result":[{"metric":{},"value":[1,"x"]}]}}"#),
        ] {
            Answer::read(shape, body.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn differences_are_known_of_queries_that_there_are() {
        let queries = super::super::queries::queries(&super::super::dataset::DATASETS[0], 0);
        for name in DIFFERENCES.iter().flat_map(|(_, queries, _)| *queries) {
            assert!(queries.iter().any(|query| query.name == *name), "{name}");
        }
        assert!(known_difference(Some(Program::VictoriaMetrics), "raw rate").is_some());
        assert!(known_difference(Some(Program::Prometheus), "raw rate").is_none());
        assert!(known_difference(Some(Program::VictoriaMetrics), "raw").is_none());
    }
}
