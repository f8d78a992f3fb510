//! Query results of servers, and their comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Error};

use serde::Deserialize;

type Labels = BTreeMap<String, String>;

/// Points of a series by time in ms: a value, or the numbers of a native histogram.
type Points = BTreeMap<i64, Vec<f64>>;

/// Kind of a result, which decides how two of them are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Series with values at steps, or at one time.
    Values,
    /// Series of which only the values are compared: of equal ones any may be ranked.
    Ranked,
    /// Unordered list.
    List,
}

/// Result, in an order that does not depend on the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Points by series.
    Values(BTreeMap<Labels, Points>),
    /// Values by time in ms, sorted.
    Ranked(Points),
    /// Elements of a list.
    List(BTreeSet<String>),
}

/// Comparison of two results.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Compared {
    /// Values or list elements of the first.
    pub values: usize,
    /// Values that only one of the two has.
    pub missing: usize,
    /// Values that differ by more than the tolerance.
    pub differing: usize,
    /// Largest relative difference.
    pub worst: f64,
    /// Values that differ in any bit, within the tolerance or not.
    pub other_bits: usize,
}

impl Compared {
    /// Returns whether the results are equal.
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
    #[serde(default)]
    histograms: Vec<(f64, Histogram)>,
    histogram: Option<(f64, Histogram)>,
}

#[derive(Deserialize)]
struct Histogram {
    count: String,
    sum: String,
    /// Rule of the bounds, lower and upper bound, count.
    #[serde(default)]
    buckets: Vec<(u8, String, String, String)>,
}

impl Histogram {
    fn numbers(&self) -> io::Result<Vec<f64>> {
        let mut numbers = vec![number(&self.count)?, number(&self.sum)?];
        for (bounds, lower, upper, count) in &self.buckets {
            numbers.push(f64::from(*bounds));
            numbers.extend([number(lower)?, number(upper)?, number(count)?]);
        }
        Ok(numbers)
    }
}

fn number(text: &str) -> io::Result<f64> {
    text.parse().map_err(|_| Error::other(format!("{text} is not a number")))
}

impl Answer {
    /// Parses the body of a response.
    ///
    /// Errors: it is not of this shape.
    pub fn read(shape: Shape, body: &[u8]) -> io::Result<Answer> {
        if shape == Shape::List {
            let list: Body<Vec<serde_json::Value>> = serde_json::from_slice(body)?;
            return Ok(Answer::List(list.data.iter().map(ToString::to_string).collect()));
        }
        let body: Body<Data> = serde_json::from_slice(body)?;
        let mut series = BTreeMap::new();
        for found in body.data.result {
            let mut points = Points::new();
            let mut push = |time_s: f64, numbers| {
                points.insert((time_s * 1e3).round() as i64, numbers);
            };
            for (time_s, text) in found.values.into_iter().chain(found.value) {
                push(time_s, vec![number(&text)?]);
            }
            for (time_s, histogram) in found.histograms.into_iter().chain(found.histogram) {
                push(time_s, histogram.numbers()?);
            }
            series.insert(found.metric, points);
        }
        if shape == Shape::Values {
            return Ok(Answer::Values(series));
        }
        let mut ranked = Points::new();
        for (time, values) in series.into_values().flatten() {
            ranked.entry(time).or_default().extend(values);
        }
        ranked.values_mut().for_each(|values| values.sort_by(f64::total_cmp));
        Ok(Answer::Ranked(ranked))
    }

    /// Returns the first value.
    pub fn first_value(&self) -> Option<f64> {
        match self {
            Answer::Values(series) => {
                series.values().flat_map(|s| s.values()).flatten().copied().next()
            }
            Answer::Ranked(_) | Answer::List(_) => None,
        }
    }

    /// Compares with another result of the same query. Values may differ by `tolerance`, relative to
    /// the larger one.
    pub fn compare(&self, other: &Answer, tolerance: f64) -> Compared {
        let mut compared = Compared::default();
        match (self, other) {
            (Answer::Values(a), Answer::Values(b)) => {
                let none = Points::new();
                for (labels, points) in a {
                    compared.points(points, b.get(labels).unwrap_or(&none), tolerance);
                }
                let only_b = b.iter().filter(|(labels, _)| !a.contains_key(*labels));
                only_b.for_each(|(_, points)| compared.points(&none, points, tolerance));
            }
            (Answer::Ranked(a), Answer::Ranked(b)) => compared.points(a, b, tolerance),
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
    fn points(&mut self, a: &Points, b: &Points, tolerance: f64) {
        for (time, a) in a {
            let b = b.get(time).map_or(&[][..], |b| b);
            self.values += a.len();
            self.missing += a.len().abs_diff(b.len());
            a.iter().zip(b).for_each(|(a, b)| self.value(*a, *b, tolerance));
        }
        let only_b = b.iter().filter(|(time, _)| !a.contains_key(time));
        self.missing += only_b.map(|(_, b)| b.len()).sum::<usize>();
    }

    fn value(&mut self, a: f64, b: f64, tolerance: f64) {
        if a == b || a.is_nan() && b.is_nan() {
            return;
        }
        self.other_bits += 1;
        let relative = (a - b).abs() / a.abs().max(b.abs());
        // NaN and a number, or infinities, have no distance.
        if !relative.is_finite() {
            self.differing += 1;
            return;
        }
        self.worst = self.worst.max(relative);
        self.differing += usize::from(relative > tolerance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares, with a millionth as tolerance.
    fn compare(a: &Answer, b: &Answer) -> Compared {
        a.compare(b, 1e-6)
    }

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
        let compared = compare(&values(&format!("{A},{B}")), &values(&format!("{B},{A}")));
        assert_eq!(compared, Compared { values: 4, ..Compared::default() });
        assert!(compared.is_equal());
    }

    #[test]
    fn what_one_side_lacks_is_missing() {
        let both = values(&format!("{A},{B}"));
        assert_eq!(compare(&both, &values(A)).missing, 2);
        assert_eq!(compare(&values(A), &both).missing, 2);
        let shorter = values(r#"{"metric":{"a":"1"},"values":[[1,"1"]]}"#);
        assert_eq!(compare(&values(A), &shorter).missing, 1);
        assert_eq!(compare(&shorter, &values(A)).missing, 1);
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
            let compared = compare(&one(a), &one(b));
            assert_eq!(compared.is_equal(), is_equal, "{a} and {b}: {compared:?}");
            assert_eq!(compared.missing, 0);
        }
        assert_eq!(compare(&one("4"), &one("3")).worst, 0.25);
        assert_eq!(one("4").first_value(), Some(4.0));
    }

    #[test]
    fn histograms_are_compared_number_by_number() {
        let one = |sum: &str, buckets: &str| {
            let point = format!(r#"{{"count":"9","sum":"{sum}","buckets":[{buckets}]}}"#);
            values(&format!(r#"{{"metric":{{}},"histograms":[[1,{point}]]}}"#))
        };
        let two = r#"[0,"1","2","4"],[0,"2","4","5"]"#;
        let compared = compare(&one("7", two), &one("7.0000001", two));
        assert_eq!((compared.values, compared.other_bits, compared.is_equal()), (10, 1, true));
        assert_eq!(compare(&one("7", two), &one("8", two)).differing, 1);
        assert_eq!(compare(&one("7", two), &one("7", r#"[0,"1","2","4"]"#)).missing, 4);
    }

    #[test]
    fn of_equal_ranks_any_series_may_win() {
        let won = |name: &str| {
            ranked(&format!(r#"{{"metric":{{"a":"{name}"}},"values":[[1,"7"],[2,"8"]]}}"#))
        };
        assert!(compare(&won("x"), &won("y")).is_equal());
        let fewer = ranked(r#"{"metric":{"a":"x"},"values":[[1,"7"]]}"#);
        assert_eq!(compare(&won("x"), &fewer).missing, 1);
    }

    #[test]
    fn lists_are_sets() {
        let list = |text: &str| {
            Answer::read(Shape::List, format!(r#"{{"data":[{text}]}}"#).as_bytes()).unwrap()
        };
        assert!(compare(&list(r#""a","b""#), &list(r#""b","a""#)).is_equal());
        assert!(compare(&list(r#"{"x":"1","y":"2"}"#), &list(r#"{"y":"2","x":"1"}"#)).is_equal());
        assert_eq!(compare(&list(r#""a","b""#), &list(r#""b","c""#)).missing, 2);
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
}
