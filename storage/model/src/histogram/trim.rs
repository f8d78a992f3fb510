//! Trimming of observations above or below a value: `</` and `>/` of PromQL.

use super::{Bucket, Histogram};

/// Side of the value that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Below,
    Above,
}

/// Totals of the kept observations.
#[derive(Default)]
struct TrimTotals {
    count: f64,
    sum: f64,
    trimmed: bool,
}

impl Histogram {
    /// Keeps the observations below a value, estimated if it is inside of a bucket.
    ///
    /// If any bucket changes, the count becomes that of all buckets, the sum an estimate from the
    /// middle of each, and the result is compacted.
    ///
    /// Source: `TrimBuckets` in `model/histogram/float_histogram.go` of Prometheus.
    pub fn trim_upper(&mut self, value: f64) {
        self.trim(value, Keep::Below);
    }

    /// Keeps the observations above a value; see [`Histogram::trim_upper`].
    pub fn trim_lower(&mut self, value: f64) {
        self.trim(value, Keep::Above);
    }

    fn trim(&mut self, value: f64, keep: Keep) {
        let linear = self.has_custom_buckets();
        let mut kept = TrimTotals::default();
        let positive = self.positive_buckets();
        let (positive, has_positive) = trim_side(positive, value, keep, true, linear, &mut kept);
        let negative = self.negative_buckets();
        let (negative, has_negative) = trim_side(negative, value, keep, false, linear, &mut kept);
        let zero = self.zero_bucket().filter(|bucket| bucket.count > 0.0);
        if let Some(mut bucket) = zero {
            match (has_negative, has_positive) {
                (true, false) => bucket.upper = 0.0,
                (false, true) => bucket.lower = 0.0,
                _ => {}
            }
            let (count, middle) = trim_zero_bucket(&bucket, value, keep);
            kept.trimmed |= count != self.zero_count;
            self.zero_count = count;
            kept.sum += middle * count;
            kept.count += count;
        }
        if kept.trimmed {
            self.positive_counts = positive;
            self.negative_counts = negative;
            self.count = kept.count;
            self.sum = kept.sum;
            self.compact(0);
        }
    }
}

/// Returns the kept counts of a side, and whether any bucket was populated before.
fn trim_side(
    buckets: impl Iterator<Item = Bucket>,
    value: f64,
    keep: Keep,
    positive: bool,
    linear: bool,
    kept: &mut TrimTotals,
) -> (Vec<f64>, bool) {
    let mut populated = false;
    let trim = |bucket: Bucket| {
        if bucket.count == 0.0 {
            return bucket.count;
        }
        populated = true;
        let (whole, part) = match keep {
            Keep::Below => (bucket.upper <= value, bucket.lower < value),
            Keep::Above => (bucket.lower >= value, bucket.upper > value),
        };
        let (count, middle) = if whole {
            (bucket.count, middle(bucket.lower, bucket.upper, positive, linear))
        } else if part {
            let (count, middle) = trim_bucket(&bucket, value, keep, positive, linear);
            kept.trimmed |= count != bucket.count;
            (count, middle)
        } else {
            kept.trimmed = true;
            return 0.0;
        };
        kept.count += count;
        kept.sum += middle * count;
        count
    };
    let counts = buckets.map(trim).collect();
    (counts, populated)
}

/// Returns the kept count of a bucket around a value, and the middle of the kept part.
///
/// Source: `computeBucketTrim` in `model/histogram/float_histogram.go` of Prometheus.
fn trim_bucket(
    bucket: &Bucket,
    value: f64,
    keep: Keep,
    positive: bool,
    linear: bool,
) -> (f64, f64) {
    if bucket.lower == f64::NEG_INFINITY || bucket.upper == f64::INFINITY {
        return trim_infinite_bucket(bucket, value, keep);
    }
    let below = if value <= bucket.lower {
        0.0
    } else if value >= bucket.upper {
        bucket.count
    } else {
        bucket.count * bucket.fraction_below(value, linear)
    };
    match keep {
        Keep::Below => (below, middle(bucket.lower, value, positive, linear)),
        Keep::Above => (bucket.count - below, middle(value, bucket.upper, positive, linear)),
    }
}

/// Trims a bucket with an infinite bound, whose distribution is unknown.
///
/// It is removed or kept as a whole, except that the first custom bucket is assumed to begin at zero
/// if it ends above.
///
/// Source: `handleInfinityBuckets` in `model/histogram/float_histogram.go` of Prometheus.
fn trim_infinite_bucket(bucket: &Bucket, value: f64, keep: Keep) -> (f64, f64) {
    let Bucket { lower, upper, count, .. } = *bucket;
    let finite_or_zero = |bound: f64| if bound.is_infinite() { 0.0 } else { bound };
    if lower != f64::NEG_INFINITY {
        return match keep {
            Keep::Above if value >= lower => (count, value),
            _ => (0.0, finite_or_zero(lower)),
        };
    }
    let ends = upper != f64::INFINITY;
    match keep {
        Keep::Below if value >= upper => (count, 0.0),
        Keep::Below if value > 0.0 && upper > 0.0 && ends => (count * value / upper, value / 2.0),
        Keep::Below if upper <= 0.0 => (count, value),
        Keep::Above if value <= lower => (count, 0.0),
        Keep::Above if value >= 0.0 && upper > value && ends => {
            (count * (1.0 - value / upper), (value + upper) / 2.0)
        }
        _ => (0.0, finite_or_zero(upper)),
    }
}

/// Returns the kept count of the zero bucket, and the middle of the kept part.
///
/// Source: `computeZeroBucketTrim` in `model/histogram/float_histogram.go` of Prometheus.
fn trim_zero_bucket(bucket: &Bucket, value: f64, keep: Keep) -> (f64, f64) {
    let Bucket { lower, upper, count, .. } = *bucket;
    let all = (count, (lower + upper) / 2.0);
    match keep {
        Keep::Below if value <= lower => (0.0, 0.0),
        Keep::Below if value >= upper => all,
        Keep::Below => (count * ((value - lower) / (upper - lower)), (lower + value) / 2.0),
        Keep::Above if value <= lower => all,
        Keep::Above if value >= upper => (0.0, 0.0),
        Keep::Above => (count * ((upper - value) / (upper - lower)), (value + upper) / 2.0),
    }
}

/// Returns the assumed mean of the observations between two bounds.
///
/// Source: `computeMidpoint` in `model/histogram/float_histogram.go` of Prometheus.
fn middle(lower: f64, upper: f64, positive: bool, linear: bool) -> f64 {
    match (lower.is_infinite(), upper.is_infinite()) {
        (true, true) => 0.0,
        (true, false) if upper > 0.0 => upper / 2.0,
        (true, false) => upper,
        (false, true) => lower,
        (false, false) if linear => (lower + upper) / 2.0,
        (false, false) => {
            let mean = (lower * upper).abs().sqrt();
            if positive { mean } else { -mean }
        }
    }
}
