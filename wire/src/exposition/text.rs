//! The text format.

use std::borrow::Cow;

use model::labels::is_legacy_metric_name;
use model::number_text::general;

use super::{ExposedValue, Kind, classic_buckets};

/// Begins a family.
pub(super) fn push_type(out: &mut Vec<u8>, name: &str, kind: Kind) {
    out.extend_from_slice(b"# TYPE ");
    push_name(out, name);
    out.extend_from_slice(match kind {
        Kind::Untyped => b" untyped\n",
        Kind::Histogram | Kind::GaugeHistogram => b" histogram\n",
    });
}

/// Adds a sample: a line, or the lines of a classic histogram.
pub(super) fn push_metric(
    out: &mut Vec<u8>,
    name: &str,
    labels: &[(Cow<'_, str>, &str)],
    time_ms: i64,
    value: &ExposedValue,
) {
    let mut push = |suffix: &str, bound: Option<f64>, value: f64| {
        let name = Cow::from(format!("{name}{suffix}"));
        push_line(out, &name, labels, bound, time_ms, value);
    };
    match value {
        ExposedValue::Float(value) => push("", None, *value),
        ExposedValue::Histogram(histogram) => {
            let mut has_last = false;
            for (bound, count) in classic_buckets(histogram) {
                push("_bucket", Some(bound), count);
                has_last |= bound == f64::INFINITY;
            }
            if !has_last {
                push("_bucket", Some(f64::INFINITY), histogram.count);
            }
            push("_sum", None, histogram.sum);
            push("_count", None, histogram.count);
        }
    }
}

fn push_line(
    out: &mut Vec<u8>,
    name: &str,
    labels: &[(Cow<'_, str>, &str)],
    bound: Option<f64>,
    time_ms: i64,
    value: f64,
) {
    let mut separator = b'{';
    if !is_legacy_metric_name(name) {
        out.push(separator);
        separator = b',';
    }
    push_name(out, name);
    let mut push_label = |name: &str, value: &str| {
        out.push(separator);
        push_name(out, name);
        out.extend_from_slice(b"=\"");
        push_escaped(out, value);
        out.push(b'"');
        separator = b',';
    };
    for (name, value) in labels {
        push_label(name, value);
    }
    if let Some(bound) = bound {
        push_label("le", &number(bound));
    }
    // There is at least the label `instance`.
    out.extend_from_slice(b"} ");
    out.extend_from_slice(number(value).as_bytes());
    out.extend_from_slice(format!(" {time_ms}\n").as_bytes());
}

fn number(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { general(value) }
}

fn push_name(out: &mut Vec<u8>, name: &str) {
    if is_legacy_metric_name(name) {
        out.extend_from_slice(name.as_bytes());
        return;
    }
    out.push(b'"');
    push_escaped(out, name);
    out.push(b'"');
}

fn push_escaped(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' => out.extend_from_slice(b"\\\""),
            byte => out.push(byte),
        }
    }
}
