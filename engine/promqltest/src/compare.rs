//! Comparison of a result with the expectation of a script.

use std::collections::BTreeSet;

use engine::Value;
use engine::result::SampleValue;
use model::{Labels, is_stale};

use crate::script::{Eval, Evaluation, Expected, ExpectedSeries};
use crate::series::SeriesValue;

/// Maximum difference between a value and the expected one, relative to the sum of both.
pub(crate) const EPSILON: f64 = 1e-6;

/// Returns whether two values are equal except for rounding. NaN equals NaN; the staleness marker
/// equals only itself.
///
/// Source: `util/almost` of Prometheus.
pub fn almost_equal(a: f64, b: f64, epsilon: f64) -> bool {
    if is_stale(a) || is_stale(b) {
        return is_stale(a) && is_stale(b);
    }
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let sum = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < epsilon * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < epsilon
}

/// Checks a value against the expectation of an eval; an error describes the difference.
pub(crate) fn check_value(eval: &Eval, value: &Value) -> Result<(), String> {
    let expected = &eval.expected;
    match value {
        Value::Scalar { value, .. } => check_scalar(expected, *value),
        Value::String { value, .. } if *value == expected.string => Ok(()),
        Value::String { value, .. } => {
            Err(format!("expected string {:?}, found {value:?}", expected.string))
        }
        _ if expected.scalar.is_some() => {
            Err(format!("expected a scalar, found {}", kind_of(value)))
        }
        Value::Vector { samples, .. } => check_vector(eval, samples),
        Value::Grid { steps, rows } => {
            let series = rows.iter().map(|row| {
                let samples = (0..steps.count).filter_map(|i| Some((steps.time(i), row.at(i)?)));
                (&row.labels, samples.collect())
            });
            check_matrix(eval, &series.collect::<Vec<_>>())
        }
        Value::Samples(series) => {
            let series = series.iter().map(|s| {
                let floats = s.timestamps.iter().zip(&s.values).map(|(t, v)| (*t, (*v).into()));
                let histograms =
                    s.histograms.iter().map(|(t, h)| (*t, SampleValue::Histogram(h.clone())));
                let mut samples: Vec<(i64, SampleValue)> = floats.chain(histograms).collect();
                samples.sort_by_key(|(time_ms, _)| *time_ms);
                (&s.labels, samples)
            });
            check_matrix(eval, &series.collect::<Vec<_>>())
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Scalar { .. } => "a scalar",
        Value::String { .. } => "a string",
        Value::Vector { .. } => "an instant vector",
        Value::Grid { .. } | Value::Samples(_) => "a range vector",
    }
}

fn check_scalar(expected: &Expected, found: f64) -> Result<(), String> {
    match expected.scalar {
        Some(expected) if almost_equal(expected, found, EPSILON) => Ok(()),
        Some(expected) => Err(format!("expected scalar {expected}, found {found}")),
        None => Err(format!("expected a vector, found scalar {found}")),
    }
}

fn check_vector(eval: &Eval, samples: &[(Labels, SampleValue)]) -> Result<(), String> {
    for (position, (labels, value)) in samples.iter().enumerate() {
        let expected = expected_series(eval, labels, || format!("{value:?}"))?;
        if eval.expectations.is_ordered && expected.position != position + 1 {
            let place = expected.position;
            return Err(format!(
                "expected {labels} at position {place}, found it at {}",
                position + 1
            ));
        }
        // As in Prometheus, an omitted value means 0 here.
        let expected = match expected.values.first() {
            Some(SeriesValue::Omitted) | None => &SeriesValue::Float(0.0),
            Some(expected) => expected,
        };
        if !is_almost(expected, value) {
            return Err(format!("expected {expected:?} for {labels}, found {value:?}"));
        }
    }
    check_all_found(eval, samples.iter().map(|(labels, _)| labels))
}

fn is_almost(expected: &SeriesValue, found: &SampleValue) -> bool {
    match (expected, found) {
        (SeriesValue::Float(expected), SampleValue::Float(found)) => {
            almost_equal(*expected, *found, EPSILON)
        }
        (SeriesValue::Histogram(expected), SampleValue::Histogram(found)) => {
            expected.is_almost(found)
        }
        _ => false,
    }
}

type TimedSeries<'a> = (&'a Labels, Vec<(i64, SampleValue)>);

fn check_matrix(eval: &Eval, series: &[TimedSeries<'_>]) -> Result<(), String> {
    if eval.expectations.is_ordered {
        return Err("expected an ordered result, found a range vector".to_owned());
    }
    check_sorted(series.iter().map(|(labels, _)| *labels))?;
    for (labels, found) in series {
        let expected = expected_series(eval, labels, || format!("{found:?}"))?;
        let expected = expected_samples(eval, expected)?;
        if expected.len() != found.len() {
            return Err(format!("expected {expected:?} for {labels}, found {found:?}"));
        }
        for (expected, found) in expected.iter().zip(found) {
            if expected.0 != found.0 || !is_almost(&expected.1, &found.1) {
                return Err(format!(
                    "expected (time, value) {expected:?} for {labels}, found {found:?}"
                ));
            }
        }
    }
    check_all_found(eval, series.iter().map(|(labels, _)| *labels))
}

/// Checks that the series of a range vector are sorted by labels, without duplicates.
pub(crate) fn check_sorted<'a>(labels: impl Iterator<Item = &'a Labels>) -> Result<(), String> {
    let mut previous: Option<&Labels> = None;
    for labels in labels {
        if let Some(previous) = previous.filter(|previous| *previous >= labels) {
            return Err(format!("series are not sorted: {previous} comes before {labels}"));
        }
        previous = Some(labels);
    }
    Ok(())
}

fn expected_series<'a>(
    eval: &'a Eval,
    labels: &Labels,
    found: impl FnOnce() -> String,
) -> Result<&'a ExpectedSeries, String> {
    let series = eval.expected.series.get(labels);
    series.ok_or_else(|| format!("unexpected series {labels} with {}", found()))
}

/// Returns the timestamps and values that a line describes.
fn expected_samples(
    eval: &Eval,
    series: &ExpectedSeries,
) -> Result<Vec<(i64, SeriesValue)>, String> {
    let (start_ms, end_ms, step_ms) = match (eval.expected.raw_times, eval.evaluation) {
        (Some(times), _) => times,
        (None, Evaluation::Range { start_ms, end_ms, step_ms }) => (start_ms, end_ms, step_ms),
        (None, Evaluation::Instant { time_ms }) => (time_ms, time_ms, 0),
    };
    let mut samples = Vec::with_capacity(series.values.len());
    for (position, value) in series.values.iter().enumerate() {
        let time_ms = start_ms + position as i64 * step_ms;
        if time_ms > end_ms {
            let count = series.values.len();
            return Err(format!("{count} values are expected, more than there are steps"));
        }
        if !matches!(value, SeriesValue::Omitted) {
            samples.push((time_ms, value.clone()));
        }
    }
    Ok(samples)
}

fn check_all_found<'a>(eval: &Eval, found: impl Iterator<Item = &'a Labels>) -> Result<(), String> {
    let found: BTreeSet<&Labels> = found.collect();
    match eval.expected.series.keys().find(|labels| !found.contains(labels)) {
        Some(missing) => Err(format!("expected series {missing}, found none")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;
    use engine::result::RawSeries;
    use model::stale_nan;

    #[test]
    fn values_are_compared_relative_to_their_size() {
        assert!(almost_equal(1.0, 1.000_001, EPSILON));
        assert!(!almost_equal(1.0, 1.000_01, EPSILON));
        assert!(!almost_equal(0.0, 1e-300, EPSILON));
        assert!(almost_equal(f64::MAX, f64::MAX, EPSILON));
        assert!(almost_equal(f64::NAN, -f64::NAN, EPSILON));
        assert!(!almost_equal(f64::NAN, stale_nan(), EPSILON));
        assert!(almost_equal(stale_nan(), stale_nan(), EPSILON));
        assert!(!almost_equal(f64::INFINITY, f64::NEG_INFINITY, EPSILON));
        assert!(!almost_equal(f64::INFINITY, 1.0, EPSILON));
    }

    fn check(eval: &str, value: &Value) -> Result<(), String> {
        let script = Script::parse(eval).unwrap();
        check_value(script.evals().next().unwrap(), value)
    }

    fn series(name: &str) -> Labels {
        Labels::from_pairs([("a", name)])
    }

    #[test]
    fn vectors_have_the_expected_series_in_the_expected_order() {
        let vector = |samples: &[(&str, f64)]| Value::Vector {
            time_ms: 0,
            samples: samples.iter().map(|(name, value)| (series(name), (*value).into())).collect(),
        };
        let eval = "eval instant at 0 x\n  {a=\"1\"} 1\n  {a=\"2\"} 2\n";
        assert!(check(eval, &vector(&[("2", 2.0), ("1", 1.0)])).is_ok());
        assert!(check(eval, &vector(&[("1", 1.0)])).is_err());
        assert!(check(eval, &vector(&[("1", 1.0), ("2", 3.0)])).is_err());
        assert!(check(eval, &vector(&[("1", 1.0), ("2", 2.0), ("3", 3.0)])).is_err());
        let ordered = "eval instant at 0 x\n  expect ordered\n  {a=\"1\"} 1\n  {a=\"2\"} 2\n";
        assert!(check(ordered, &vector(&[("1", 1.0), ("2", 2.0)])).is_ok());
        assert!(check(ordered, &vector(&[("2", 2.0), ("1", 1.0)])).is_err());
        assert!(check("eval instant at 0 x\n  1\n", &vector(&[("1", 1.0)])).is_err());
        assert!(check("eval instant at 0 x\n", &vector(&[])).is_ok());
    }

    #[test]
    fn range_vectors_have_the_expected_times() {
        let raw = |names: &[&str], timestamps: &[i64]| {
            let series = names.iter().map(|name| RawSeries {
                labels: series(name),
                timestamps: timestamps.to_vec(),
                values: vec![5.0; timestamps.len()],
                histograms: Vec::new(),
            });
            Value::Samples(series.collect())
        };
        let eval = "eval instant at 0 x[1m]\n  expect range vector from 10s to 30s step 10s\n  \
                    {a=\"1\"} 5 _ 5\n";
        assert!(check(eval, &raw(&["1"], &[10_000, 30_000])).is_ok());
        assert!(check(eval, &raw(&["1"], &[10_000, 20_000])).is_err());
        assert!(check(eval, &raw(&["1"], &[10_000])).is_err());
        assert!(check(eval, &raw(&["2"], &[10_000, 30_000])).is_err());
        assert!(check(eval, &raw(&[], &[])).is_err());
        let two = "eval range from 0 to 1m step 1m x\n  {a=\"1\"} 5x1\n  {a=\"2\"} 5x1\n";
        assert!(check(two, &raw(&["1", "2"], &[0, 60_000])).is_ok());
        assert!(check(two, &raw(&["2", "1"], &[0, 60_000])).is_err());
        assert!(
            check("eval range from 0 to 1m step 1m x\n {a=\"1\"} 5x2\n", &raw(&["1"], &[0]))
                .is_err()
        );
    }

    #[test]
    fn scalars_and_strings_are_compared() {
        let scalar = Value::Scalar { time_ms: 0, value: 2.0 };
        assert!(check("eval instant at 0 x\n  2\n", &scalar).is_ok());
        assert!(check("eval instant at 0 x\n  3\n", &scalar).is_err());
        assert!(check("eval instant at 0 x\n  {} 2\n", &scalar).is_err());
        let string = Value::String { time_ms: 0, value: "a".to_owned() };
        assert!(check("eval instant at 0 x\n  expect string \"a\"\n", &string).is_ok());
        assert!(check("eval instant at 0 x\n  expect string \"b\"\n", &string).is_err());
    }
}
