//! Common form of the results of both sides, and their comparison.

use std::collections::{BTreeMap, BTreeSet};

use engine::result::SampleValue;
use engine::{QueryError, QueryOutput, Value};
use model::{Histogram, Labels};
use promqltest::almost_equal;
use serde_json::Value as Json;

/// Maximum difference of two values, relative to their sum.
const EPSILON: f64 = 1e-9;

/// Difference that is always allowed: the rounding error of numbers that cancel.
const DIFFERENCE_MIN: f64 = 1e-13;

/// Maximum annotations per kind that are printed; with more, the selection is random.
const ANNOTATIONS_MAX: usize = 10;

#[derive(Debug)]
pub enum Answer {
    Error(String),
    Value { value: Shape, annotations: Annotations },
}

#[derive(Debug)]
pub struct Annotations {
    warnings: BTreeSet<String>,
    infos: BTreeSet<String>,
}

#[derive(Debug)]
pub enum Shape {
    Scalar(i64, f64),
    String(String),
    Vector(i64, Vec<(Labels, Cell)>),
    Matrix(Vec<(Labels, Vec<(i64, Cell)>)>),
}

#[derive(Debug, Clone)]
pub enum Cell {
    Float(f64),
    Histogram(Native),
}

/// A histogram in the form of the HTTP API.
#[derive(Debug, Clone)]
pub struct Native {
    count: f64,
    sum: f64,
    buckets: Vec<Bucket>,
}

/// Inclusion of the bounds, lower bound, upper bound and count.
type Bucket = (u8, f64, f64, f64);

impl Answer {
    /// Converts a result of the engine.
    pub fn of_engine(query: &str, answer: Result<QueryOutput, QueryError>) -> Answer {
        let output = match answer {
            Ok(output) => output,
            Err(error) => return Answer::Error(error.to_string()),
        };
        let value = match output.value {
            Value::Scalar { time_ms, value } => Shape::Scalar(time_ms, value),
            Value::String { value, .. } => Shape::String(readable(&value)),
            Value::Vector { time_ms, samples } => {
                let samples = samples.into_iter();
                let cells = samples.map(|(l, value)| (readable_labels(&l), Cell::from(value)));
                Shape::Vector(time_ms, cells.collect())
            }
            Value::Grid { steps, rows } => Shape::Matrix(
                rows.iter()
                    .map(|row| {
                        let cells = (0..row.values.len())
                            .filter_map(|i| Some((steps.time(i), Cell::from(row.at(i)?))));
                        (readable_labels(&row.labels), cells.collect())
                    })
                    .collect(),
            ),
            Value::Samples(series) => Shape::Matrix(
                series
                    .into_iter()
                    .map(|s| {
                        let floats = s.values.into_iter().map(Cell::Float);
                        let histograms = s.histograms.iter().map(|(t, h)| (*t, Cell::from(&**h)));
                        let cells = s.timestamps.into_iter().zip(floats).chain(histograms);
                        (readable_labels(&s.labels), by_time(cells))
                    })
                    .collect(),
            ),
        };
        let (warnings, infos) = output.annotations.to_strings(query, ANNOTATIONS_MAX);
        let annotations = Annotations {
            warnings: warnings.into_iter().collect(),
            infos: infos.into_iter().collect(),
        };
        Answer::Value { value, annotations }
    }

    /// Converts a response of the HTTP API.
    pub fn of_prometheus(answer: &Json) -> Answer {
        if answer["status"] != "success" {
            return Answer::Error(answer["error"].as_str().unwrap_or_default().to_owned());
        }
        let lines = |kind: &str| -> BTreeSet<String> {
            let lines = answer[kind].as_array().into_iter().flatten();
            lines.filter_map(|line| line.as_str().map(str::to_owned)).collect()
        };
        let annotations = Annotations { warnings: lines("warnings"), infos: lines("infos") };
        let result = &answer["data"]["result"];
        let series = || result.as_array().into_iter().flatten();
        let value = match answer["data"]["resultType"].as_str().unwrap_or_default() {
            "scalar" => {
                let (time_ms, value) = sample(result);
                Shape::Scalar(time_ms, value)
            }
            "string" => Shape::String(result[1].as_str().unwrap_or_default().to_owned()),
            "vector" => {
                let cell = |s: &Json| match s.get("histogram") {
                    Some(pair) => histogram_sample(pair),
                    None => float_sample(&s["value"]),
                };
                let samples: Vec<(Labels, (i64, Cell))> =
                    series().map(|s| (labels(&s["metric"]), cell(s))).collect();
                let time_ms = samples.first().map_or(0, |(_, (time_ms, _))| *time_ms);
                Shape::Vector(time_ms, samples.into_iter().map(|(l, s)| (l, s.1)).collect())
            }
            "matrix" => {
                let list = |s: &Json, key: &str| s[key].as_array().cloned().unwrap_or_default();
                let samples = |s: &Json| {
                    let (floats, histograms) = (list(s, "values"), list(s, "histograms"));
                    let floats = floats.iter().map(float_sample);
                    by_time(floats.chain(histograms.iter().map(histogram_sample)))
                };
                Shape::Matrix(series().map(|s| (labels(&s["metric"]), samples(s))).collect())
            }
            other => panic!("unknown result type {other:?} in {answer}"),
        };
        Answer::Value { value, annotations }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Answer::Error(_))
    }

    /// Returns whether there is neither an error nor a value.
    pub fn is_empty(&self) -> bool {
        match self {
            Answer::Value { value: Shape::Vector(_, samples), .. } => samples.is_empty(),
            Answer::Value { value: Shape::Matrix(series), .. } => series.is_empty(),
            _ => false,
        }
    }

    /// Returns whether the result contains histograms.
    pub fn has_histograms(&self) -> bool {
        let is_histogram = |cell: &Cell| matches!(cell, Cell::Histogram(_));
        match self {
            Answer::Value { value: Shape::Vector(_, samples), .. } => {
                samples.iter().any(|(_, cell)| is_histogram(cell))
            }
            Answer::Value { value: Shape::Matrix(series), .. } => {
                series.iter().flat_map(|s| &s.1).any(|(_, cell)| is_histogram(cell))
            }
            _ => false,
        }
    }

    /// Returns whether there are warnings or infos.
    pub fn is_annotated(&self) -> bool {
        match self {
            Answer::Error(_) => false,
            Answer::Value { annotations, .. } => {
                !annotations.warnings.is_empty() || !annotations.infos.is_empty()
            }
        }
    }

    /// Compares the engine's result with this one of Prometheus; an error describes the difference.
    pub fn check(&self, found: &Answer, is_ordered: bool) -> Result<(), String> {
        match (self, found) {
            // A panic in Prometheus, as for an extended range without samples: accept any result.
            (Answer::Error(expected), _) if expected.contains("error: runtime error: ") => Ok(()),
            (Answer::Error(expected), Answer::Error(found)) => {
                let (expected, found) = (comparable_error(expected), comparable_error(found));
                let are_both_met = is_met_on_the_way(&expected) && is_met_on_the_way(&found);
                if expected == found || are_both_met {
                    return Ok(());
                }
                Err(format!("expected the error {expected:?}, found {found:?}"))
            }
            (Answer::Error(expected), _) => {
                Err(format!("expected the error {expected:?}, found none"))
            }
            (_, Answer::Error(found)) => Err(format!("unexpected error {found:?}")),
            (
                Answer::Value { value: expected, annotations: expected_annotations },
                Answer::Value { value: found, annotations },
            ) => {
                expected.check(found, is_ordered)?;
                expected_annotations.check(annotations)
            }
        }
    }
}

/// Removes the prefix of the HTTP API from an error, and parts that depend on the order of a hash
/// map in Prometheus.
fn comparable_error(error: &str) -> String {
    let error = error.strip_prefix("invalid parameter \"query\": ").unwrap_or(error);
    let error = match error.split_once(" on the left hand-side of the operation: ") {
        Some((head, _)) => head,
        None => error.split_once(" hand-side of the operation: ").map_or(error, |(head, _)| head),
    };
    match error.split_once("for the match group {") {
        Some((head, _)) => head.to_owned(),
        None => error.to_owned(),
    }
}

/// Removes parts of a message in which Prometheus and the engine may differ.
///
/// The number of samples of an info is such a part: Prometheus adds the count of all previous
/// steps at each step, which doubles it.
fn comparable_annotation(line: &str) -> String {
    let mut line = match line.split_once(", over ") {
        Some((head, rest)) => {
            let tail = rest.split_once(" samples ").map_or(rest, |(_, tail)| tail);
            format!("{head}, over samples {tail}")
        }
        None => line.to_owned(),
    };
    // Only the last pair of a step is reported, and after an operator Prometheus visits series in
    // the order of a hash map.
    if let (Some((head, _)), Some(place)) =
        (line.split_once(" for binary operator "), line.rfind(" ("))
        && head.ends_with("incompatible sample types encountered")
    {
        return format!("{head}{}", &line[place..]);
    }
    // The position in Prometheus is that of the first argument, in its scripts that of the vector.
    if line.contains(" has NaN observations") {
        line.truncate(line.rfind(" (").unwrap_or(line.len()));
    }
    // Powers round differently, also in messages.
    if let Some((head, rest)) = line.split_once(", got ") {
        let (number, tail) = rest.split_at(rest.find([' ', ',']).unwrap_or(rest.len()));
        if let Ok(number) = number.parse::<f64>() {
            line = format!("{head}, got {number:.9e}{tail}");
        }
    }
    line
}

/// Returns whether an error depends on data: with several in one query, the order of evaluation
/// decides which is reported.
fn is_met_on_the_way(error: &str) -> bool {
    [
        "vector cannot contain metrics with the same labelset",
        "found duplicate series",
        "multiple matches for labels",
        "invalid smoothing factor",
        "invalid trend factor",
        "Parameter value is NaN",
        "Scalar value",
        "smoothed modifier can only be used with",
        "anchored modifier can only be used with",
    ]
    .iter()
    .any(|start| error.starts_with(start))
}

impl Annotations {
    fn check(&self, found: &Annotations) -> Result<(), String> {
        for (kind, expected, found) in
            [("warnings", &self.warnings, &found.warnings), ("infos", &self.infos, &found.infos)]
        {
            let comparable = |lines: &BTreeSet<String>| -> BTreeSet<String> {
                lines.iter().map(|line| comparable_annotation(line)).collect()
            };
            if comparable(expected) != comparable(found) && expected.len() <= ANNOTATIONS_MAX {
                return Err(format!("expected the {kind} {expected:#?}, found {found:#?}"));
            }
        }
        Ok(())
    }
}

impl Shape {
    fn check(&self, found: &Shape, is_ordered: bool) -> Result<(), String> {
        match (self, found) {
            (Shape::Scalar(time_ms, expected), Shape::Scalar(found_ms, found)) => {
                same_sample(&(*time_ms, Cell::Float(*expected)), &(*found_ms, Cell::Float(*found)))
            }
            (Shape::String(expected), Shape::String(found)) if expected == found => Ok(()),
            (Shape::Vector(time_ms, expected), Shape::Vector(found_ms, found)) => {
                if is_ordered {
                    same_order(expected, found)?;
                }
                if !expected.is_empty() && time_ms != found_ms {
                    return Err(format!("expected the time {time_ms}, found {found_ms}"));
                }
                let single = |samples: &[(Labels, Cell)]| {
                    samples
                        .iter()
                        .map(|(l, v)| (l.clone(), vec![(0, v.clone())]))
                        .collect::<Vec<_>>()
                };
                same_series(&single(expected), single(found))
            }
            (Shape::Matrix(expected), Shape::Matrix(found)) => {
                same_order(expected, found)?;
                same_series(expected, found.clone())
            }
            _ => Err(format!("expected {self:?}, found {found:?}")),
        }
    }
}

fn same_order<T>(expected: &[(Labels, T)], found: &[(Labels, T)]) -> Result<(), String> {
    if expected.iter().map(|s| &s.0).eq(found.iter().map(|s| &s.0)) {
        return Ok(());
    }
    let labels =
        |series: &[(Labels, T)]| series.iter().map(|s| s.0.to_string()).collect::<Vec<_>>();
    Err(format!("expected the series {:#?}, found {:#?}", labels(expected), labels(found)))
}

type Series = Vec<(Labels, Vec<(i64, Cell)>)>;

fn same_series(expected: &[(Labels, Vec<(i64, Cell)>)], found: Series) -> Result<(), String> {
    let count = found.len();
    let found: BTreeMap<Labels, Vec<(i64, Cell)>> = found.into_iter().collect();
    if found.len() != count {
        return Err("a series occurs more than once".to_owned());
    }
    for (labels, expected) in expected {
        let samples =
            found.get(labels).ok_or_else(|| format!("series {labels} is missing, {expected:?}"))?;
        if samples.len() != expected.len() {
            return Err(format!("{labels}: expected {expected:?}, found {samples:?}"));
        }
        for (expected, found) in expected.iter().zip(samples) {
            same_sample(expected, found).map_err(|error| format!("{labels}: {error}"))?;
        }
    }
    if let Some(extra) = found.iter().find(|(labels, _)| !expected.iter().any(|e| e.0 == **labels))
    {
        return Err(format!("unexpected series {extra:?}"));
    }
    Ok(())
}

fn same_sample(expected: &(i64, Cell), found: &(i64, Cell)) -> Result<(), String> {
    let is_same = match (&expected.1, &found.1) {
        (Cell::Float(expected), Cell::Float(found)) => is_close(*expected, *found, 1.0),
        (Cell::Histogram(expected), Cell::Histogram(found)) => expected.is_close(found),
        _ => false,
    };
    if expected.0 == found.0 && is_same {
        return Ok(());
    }
    Err(format!("expected (time, value) {expected:?}, found {found:?}"))
}

/// Returns whether two numbers are equal except for rounding, given the size of added terms.
fn is_close(expected: f64, found: f64, size: f64) -> bool {
    (expected - found).abs() < DIFFERENCE_MIN * size || almost_equal(expected, found, EPSILON)
}

impl Native {
    /// Returns whether all is equal except for rounding. Bounds must be identical, and buckets of
    /// only one side at most the rounding error of numbers that cancel.
    fn is_close(&self, found: &Native) -> bool {
        let size = 1f64.max(self.count.abs());
        let (mut left, mut right) =
            (self.buckets.iter().peekable(), found.buckets.iter().peekable());
        let mut are_buckets_close = true;
        loop {
            let first = match (left.peek(), right.peek()) {
                (Some(left), Some(right)) => left.1.min(right.1),
                (Some(only), None) | (None, Some(only)) => only.1,
                (None, None) => break,
            };
            let expected = left.next_if(|bucket| bucket.1 == first);
            let found = right.next_if(|bucket| bucket.1 == first);
            let count = |bucket: Option<&Bucket>| bucket.map_or(0.0, |bucket| bucket.3);
            let has_same_bounds = match (expected, found) {
                (Some(expected), Some(found)) => (expected.0, expected.2) == (found.0, found.2),
                _ => true,
            };
            // An empty bucket times infinity; the listed buckets depend on the chunk.
            let is_product = |bucket: Option<&Bucket>| bucket.is_none_or(|b| b.3.is_nan());
            let are_products = is_product(expected) && is_product(found);
            are_buckets_close &=
                has_same_bounds && (are_products || is_close(count(expected), count(found), size));
        }
        are_buckets_close
            && is_close(self.count, found.count, 1.0)
            && is_close(self.sum, found.sum, size)
    }
}

impl From<SampleValue> for Cell {
    fn from(value: SampleValue) -> Cell {
        match value {
            SampleValue::Float(value) => Cell::Float(value),
            SampleValue::Histogram(histogram) => Cell::from(&*histogram),
        }
    }
}

impl From<&Histogram> for Cell {
    fn from(histogram: &Histogram) -> Cell {
        let buckets = histogram.populated_buckets().collect();
        Cell::Histogram(Native { count: histogram.count, sum: histogram.sum, buckets })
    }
}

fn by_time(cells: impl Iterator<Item = (i64, Cell)>) -> Vec<(i64, Cell)> {
    let mut cells: Vec<(i64, Cell)> = cells.collect();
    cells.sort_by_key(|(time_ms, _)| *time_ms);
    cells
}

/// Replaces the characters that stand for invalid UTF-8 like JSON does.
fn readable(text: &str) -> String {
    text.replace(|c| ('\u{10ff80}'..='\u{10ffff}').contains(&c), "\u{fffd}")
}

fn readable_labels(labels: &Labels) -> Labels {
    let pairs: Vec<(&str, String)> =
        labels.iter().map(|(name, value)| (name, readable(value))).collect();
    Labels::from_pairs(pairs.iter().map(|(name, value)| (*name, value.as_str())))
}

fn labels(metric: &Json) -> Labels {
    let pairs = metric.as_object().into_iter().flatten();
    Labels::from_pairs(pairs.map(|(name, value)| (name, value.as_str().unwrap_or_default())))
}

fn sample(pair: &Json) -> (i64, f64) {
    (time_ms(pair), number(&pair[1]))
}

fn float_sample(pair: &Json) -> (i64, Cell) {
    (time_ms(pair), Cell::Float(number(&pair[1])))
}

fn histogram_sample(pair: &Json) -> (i64, Cell) {
    let histogram = &pair[1];
    let bucket = |bucket: &Json| {
        let rule = bucket[0].as_u64().unwrap() as u8;
        (rule, number(&bucket[1]), number(&bucket[2]), number(&bucket[3]))
    };
    let buckets = histogram["buckets"].as_array().into_iter().flatten().map(bucket).collect();
    let (count, sum) = (number(&histogram["count"]), number(&histogram["sum"]));
    (time_ms(pair), Cell::Histogram(Native { count, sum, buckets }))
}

fn time_ms(pair: &Json) -> i64 {
    (pair[0].as_f64().unwrap() * 1000.0).round() as i64
}

fn number(text: &Json) -> f64 {
    text.as_str().unwrap().parse().unwrap()
}
