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

/// Where a peer is known to answer otherwise than Prometheus, and why.
const DIFFERENCES: &[(Program, &[&str], &str)] = &[(
    Program::VictoriaMetrics,
    &["sum of rate", "sum of increase", "raw rate", "ratio", "histogram_quantile", "subquery"],
    "rate and increase count from the last sample before the window and do not extrapolate to \
     its borders",
)];

/// Why a peer answers a query otherwise, if that is known.
pub fn known_difference(program: Option<Program>, query: &str) -> Option<&'static str> {
    DIFFERENCES
        .iter()
        .find(|(known, queries, _)| Some(*known) == program && queries.contains(&query))
        .map(|(_, _, reason)| *reason)
}
