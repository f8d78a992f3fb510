//! Results as text: labels in order, values as bits, warnings and infos.

use std::sync::Arc;

use engine::result::SampleValue;
use engine::{QueryError, QueryOutput, Value};
use model::{Histogram, Labels, ResetHint};

/// Formats a complete result: labels in order, values as bits, warnings and infos.
pub fn show(query: &str, answer: Result<QueryOutput, QueryError>) -> String {
    let output = match answer {
        Ok(output) => output,
        Err(error) => return format!("error: {error}"),
    };
    let mut lines = Vec::new();
    let mut line = |labels: &Labels, samples: &mut dyn Iterator<Item = (i64, SampleValue)>| {
        let samples: Vec<String> = samples
            .map(|(time_ms, value)| match value {
                SampleValue::Float(value) => format!("{time_ms} {value:?} {:x}", bits(value)),
                SampleValue::Histogram(histogram) => {
                    format!("{time_ms} {:?}", promised(&histogram))
                }
            })
            .collect();
        lines.push(format!("{labels}: {}", samples.join(", ")));
    };
    match &output.value {
        Value::String { time_ms, value } => return format!("{time_ms} {value}"),
        Value::Scalar { time_ms, value } => {
            line(&Labels::default(), &mut std::iter::once((*time_ms, SampleValue::Float(*value))));
        }
        Value::Vector { time_ms, samples } => {
            for (labels, value) in samples {
                line(labels, &mut std::iter::once((*time_ms, value.clone())));
            }
        }
        Value::Samples(series) => {
            for series in series {
                let floats = series.values.iter().copied().map(SampleValue::Float);
                let histograms = series
                    .histograms
                    .iter()
                    .map(|(time_ms, h)| (*time_ms, SampleValue::Histogram(Arc::clone(h))));
                let floats = series.timestamps.iter().copied().zip(floats);
                line(&series.labels, &mut floats.chain(histograms));
            }
        }
        Value::Grid { rows, .. } => {
            for row in rows {
                let mut cells = (0..row.values.len()).filter_map(|i| Some((i as i64, row.at(i)?)));
                line(&row.labels, &mut cells);
            }
        }
    }
    let (warnings, infos) = output.annotations.to_strings(query, 0);
    lines.into_iter().chain(warnings).chain(infos).collect::<Vec<_>>().join("\n")
}

/// Removes the hint that a counter was not reset, which is optional: without it, a query compares
/// the counts with the same result.
fn promised(histogram: &Histogram) -> Histogram {
    let reset_hint = match histogram.reset_hint {
        ResetHint::NotReset => ResetHint::Unknown,
        hint => hint,
    };
    Histogram { reset_hint, ..histogram.clone() }
}

/// Returns the bits of a number; all NaN are equal.
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}
