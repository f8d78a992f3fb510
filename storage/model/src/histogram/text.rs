//! Text formats of histograms.

use std::fmt;

use super::{Bucket, Histogram, ResetHint, Span};
use crate::number_text::general;

/// Maximum gap that [`Histogram::test_expression`] writes as empty buckets.
const GAP_MAX: usize = 1 << 16;

/// Writes the histogram like `{count:3, sum:4.5, [-0.5,0.5]:1, (1,2]:2}`, with all populated buckets.
///
/// Source: `String` in `model/histogram/float_histogram.go` of Prometheus.
impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{count:{}, sum:{}", general(self.count), general(self.sum))?;
        let populated = |bucket: &Bucket| bucket.count != 0.0;
        let buckets = (self.negative_buckets_reversed())
            .chain(self.zero_bucket())
            .chain(self.positive_buckets());
        for bucket in buckets.filter(populated) {
            write!(f, ", {bucket}")?;
        }
        f.write_str("}")
    }
}

impl Histogram {
    /// Formats the histogram like `{{schema:1 count:3 sum:4.5 buckets:[1 0 2]}}`, for scripts of PromQL
    /// tests.
    ///
    /// Gaps become empty buckets. A histogram with a gap of more than 65,536 buckets, which no script
    /// has, is formatted by [`fmt::Display`].
    ///
    /// Source: `TestExpression` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn test_expression(&self) -> String {
        let mut histogram = self.clone();
        histogram.compact(GAP_MAX);
        if histogram.positive_spans.len() > 1 || histogram.negative_spans.len() > 1 {
            return self.to_string();
        }
        let mut parts = Vec::new();
        if histogram.schema != 0 {
            parts.push(format!("schema:{}", histogram.schema));
        }
        for (name, number) in [
            ("count", histogram.count),
            ("sum", histogram.sum),
            ("z_bucket", histogram.zero_count),
            ("z_bucket_w", histogram.zero_threshold),
        ] {
            if number != 0.0 {
                parts.push(format!("{name}:{}", general(number)));
            }
        }
        if histogram.has_custom_buckets() {
            parts.push(format!("custom_values:{}", list(&histogram.custom_bounds)));
        }
        parts.extend(match histogram.reset_hint {
            ResetHint::Unknown => None,
            ResetHint::Reset => Some("counter_reset_hint:reset".to_owned()),
            ResetHint::NotReset => Some("counter_reset_hint:not_reset".to_owned()),
            ResetHint::Gauge => Some("counter_reset_hint:gauge".to_owned()),
        });
        push_side(&mut parts, "", &histogram.positive_spans, &histogram.positive_counts);
        push_side(&mut parts, "n_", &histogram.negative_spans, &histogram.negative_counts);
        format!("{{{{{}}}}}", parts.join(" "))
    }
}

fn push_side(parts: &mut Vec<String>, prefix: &str, spans: &[Span], counts: &[f64]) {
    if let Some(offset) = spans.first().map(|span| span.offset).filter(|offset| *offset != 0) {
        parts.push(format!("{prefix}offset:{offset}"));
    }
    if !counts.is_empty() {
        parts.push(format!("{prefix}buckets:{}", list(counts)));
    }
}

fn list(numbers: &[f64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|number| general(*number)).collect();
    format!("[{}]", numbers.join(" "))
}
