//! Conversion of histograms of OpenTelemetry to native histograms.
//!
//! An exponential histogram of scale s has the buckets of schema s; for a scale above 8, 2^(s−8)
//! buckets are merged into one. Bucket i is (base^i, base^(i+1)] in OpenTelemetry and
//! (base^(i−1), base^i] in Prometheus, so indexes increase by one. Explicit bounds become custom
//! buckets.
//!
//! Source: `histograms.go` of `storage/remote/otlptranslator` of Prometheus. If buckets are merged
//! after empty ones, Prometheus adds the count of the first one to the bucket before; here it goes
//! to the right bucket.

use std::sync::Arc;

use model::histogram::{CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX, WireCounts, WireHistogram};
use model::{ResetHint, STALE_NAN_BITS, Span, stale_nan};

use super::message::{Buckets, ExponentialPoint, HistogramPoint};

/// Range of the schemas of Prometheus.
const SCALE_MIN: i32 = -4;
const SCALE_MAX: i32 = 8;

/// Zero threshold in Prometheus, which ignores that of the sender.
const ZERO_THRESHOLD: f64 = 1e-128;

/// Maximum number of empty buckets within a span; more of them start another span.
const GAP_MAX: i64 = 2;

/// Converts an exponential histogram.
///
/// Errors: an invalid histogram, in the words of Prometheus.
pub(super) fn of_exponential(
    point: &ExponentialPoint<'_>,
    reset_hint: ResetHint,
) -> Result<WireHistogram, String> {
    let scale = point.scale;
    if scale < SCALE_MIN {
        return Err(format!(
            "cannot convert exponential to native histogram. Scale must be >= {SCALE_MIN}, was \
             {scale}"
        ));
    }
    let shift = (scale - scale.min(SCALE_MAX)).min(63);
    let [positive, negative] =
        [&point.positive, &point.negative].map(|side| exponential(side, shift));
    let ((positive_spans, positive_deltas), (negative_spans, negative_deltas)) =
        (positive?, negative?);
    let (count, sum) = count_and_sum(point.point.is_stale(), point.count, point.sum);
    Ok(WireHistogram {
        reset_hint,
        schema: scale.min(SCALE_MAX),
        zero_threshold: ZERO_THRESHOLD,
        sum,
        positive_spans,
        negative_spans,
        counts: WireCounts::Integer {
            count,
            zero_count: point.zero_count,
            positive_deltas,
            negative_deltas,
        },
        custom_bounds: Arc::default(),
    })
}

/// Converts a histogram with explicit bounds to one with custom buckets.
///
/// Errors: there are too many buckets.
pub(super) fn of_explicit(
    point: &HistogramPoint<'_>,
    reset_hint: ResetHint,
    shared_bounds: &mut Arc<[f64]>,
) -> Result<WireHistogram, String> {
    let counts = &point.bucket_counts;
    check_len(counts.len().max(point.explicit_bounds.len()))?;
    let buckets = counts.iter().enumerate().map(|(index, count)| (index as i64, *count));
    let (positive_spans, positive_deltas) = spans_and_deltas(buckets);
    let (count, sum) = count_and_sum(point.point.is_stale(), point.count, point.sum);
    let is_same = |bounds: &[f64]| {
        let bits = |bounds: &[f64]| bounds.iter().map(|b| b.to_bits()).collect::<Vec<_>>();
        bounds.len() == point.explicit_bounds.len() && bits(bounds) == bits(&point.explicit_bounds)
    };
    if !is_same(shared_bounds) {
        *shared_bounds = Arc::from(&point.explicit_bounds[..]);
    }
    Ok(WireHistogram {
        reset_hint,
        schema: i32::from(CUSTOM_BUCKETS_SCHEMA),
        zero_threshold: 0.0,
        sum,
        positive_spans,
        negative_spans: Vec::new(),
        counts: WireCounts::Integer {
            count,
            zero_count: 0,
            positive_deltas,
            negative_deltas: Vec::new(),
        },
        custom_bounds: Arc::clone(shared_bounds),
    })
}

/// Checks the number of buckets.
pub(super) fn check_len(buckets: usize) -> Result<(), String> {
    if buckets <= HISTOGRAM_BUCKETS_MAX {
        return Ok(());
    }
    Err(format!("histogram has more than {HISTOGRAM_BUCKETS_MAX} buckets"))
}

fn count_and_sum(is_stale: bool, count: u64, sum: Option<f64>) -> (u64, f64) {
    if is_stale { (STALE_NAN_BITS, stale_nan()) } else { (count, sum.unwrap_or(0.0)) }
}

/// Returns spans and deltas of buckets without gaps, after merging 2^`shift` of them into one.
fn exponential(side: &Buckets, shift: i32) -> Result<(Vec<Span>, Vec<i64>), String> {
    check_len(side.counts.len())?;
    let last = i64::from(side.offset) + side.counts.len() as i64;
    if i32::try_from(last).is_err() {
        return Err(format!("histogram has a bucket beyond the index {}", i32::MAX));
    }
    let mut merged: Vec<(i64, u64)> = Vec::new();
    for (position, count) in (i64::from(side.offset)..).zip(&side.counts) {
        let index = (position >> shift) + 1;
        match merged.last_mut() {
            Some((last, sum)) if *last == index => *sum = sum.wrapping_add(*count),
            _ => merged.push((index, *count)),
        }
    }
    Ok(spans_and_deltas(merged.into_iter()))
}

/// Returns spans and deltas of buckets, sorted by index; empty buckets are omitted outside of
/// spans.
fn spans_and_deltas(buckets: impl Iterator<Item = (i64, u64)>) -> (Vec<Span>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<Span>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut end, mut before) = (0, 0);
    for (index, count) in buckets.filter(|(_, count)| *count != 0) {
        let gap = index - end;
        match spans.last_mut() {
            Some(span) if gap <= GAP_MAX => {
                for _ in 0..gap {
                    span.length += 1;
                    deltas.push(0i64.wrapping_sub(std::mem::take(&mut before)));
                }
                span.length += 1;
            }
            // The caller has checked that indexes have 32 bits.
            _ => spans.push(Span { offset: gap as i32, length: 1 }),
        }
        let count = count as i64;
        deltas.push(count.wrapping_sub(before));
        (end, before) = (index + 1, count);
    }
    (spans, deltas)
}
