//! Quantiles, fractions and variances of a native histogram.
//!
//! Source: `promql/quantile.go` and `promql/functions.go` of Prometheus.

use model::Histogram;
use model::histogram::{Bucket, log2};

use crate::exec::numeric::compensated::Sum;

use super::exp2::exp2;

/// Effect of NaN observations, which are in no bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NanEffect {
    /// The quantile is among the NaN observations, so it is NaN.
    Result,
    /// NaN observations count as larger than all others.
    Skew,
    /// NaN observations are part of no fraction.
    Excluded,
}

/// Returns the quantile `share` of the observations, interpolated within its bucket: linearly in
/// custom buckets and in the zero bucket, logarithmically in others.
///
/// NaN if there are no observations, or if `share` is NaN.
pub(super) fn quantile(share: f64, histogram: &Histogram) -> (f64, Option<NanEffect>) {
    if share < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if share > 1.0 {
        return (f64::INFINITY, None);
    }
    if histogram.count == 0.0 || share.is_nan() {
        return (f64::NAN, None);
    }
    // NaN observations are missing at the upper end, so ranks are then counted from below.
    let ascends = histogram.sum.is_nan() || share < 0.5;
    let mut ascending = histogram.all_buckets();
    let rank = if ascends { share * histogram.count } else { (1.0 - share) * histogram.count };
    let (mut bucket, mut count) = if ascends {
        bucket_of_rank(&mut ascending, rank)
    } else {
        bucket_of_rank(&mut histogram.all_buckets_reversed(), rank)
    };
    let is_custom = histogram.has_custom_buckets();
    if is_custom {
        if bucket.lower == f64::NEG_INFINITY {
            if bucket.upper <= 0.0 {
                return (bucket.upper, None);
            }
            bucket.lower = 0.0;
        } else if bucket.upper == f64::INFINITY {
            return (bucket.lower, None);
        }
    } else if bucket.lower < 0.0 && bucket.upper > 0.0 {
        bucket = one_sided(histogram, bucket);
    }
    // Rounding may have made `count` larger than the count of the histogram.
    count = if count > histogram.count { histogram.count } else { count };
    if count < rank {
        return if histogram.sum.is_nan() {
            (f64::NAN, Some(NanEffect::Result))
        } else {
            (bucket.upper, None)
        };
    }
    let rank = if ascends { rank - (count - bucket.count) } else { count - rank };
    let mut effect = None;
    if histogram.sum.is_nan() {
        // As in Prometheus, the last bucket is then interpolated.
        for further in ascending {
            count += further.count;
            bucket = further;
        }
        effect = (count < histogram.count).then_some(NanEffect::Skew);
    }
    (interpolated(&bucket, rank / bucket.count, is_custom), effect)
}

/// Returns the bucket of a rank and the number of observations up to its end; the last bucket if
/// none reaches the rank.
fn bucket_of_rank(buckets: &mut impl Iterator<Item = Bucket>, rank: f64) -> (Bucket, f64) {
    let mut last = Bucket {
        lower: 0.0,
        upper: 0.0,
        lower_inclusive: false,
        upper_inclusive: false,
        count: 0.0,
    };
    let mut count = 0.0;
    for bucket in buckets {
        last = bucket;
        if last.count == 0.0 {
            continue;
        }
        count += last.count;
        if count >= rank {
            break;
        }
    }
    (last, count)
}

/// Cuts the zero bucket at zero if the histogram has buckets on one side only.
fn one_sided(histogram: &Histogram, bucket: Bucket) -> Bucket {
    let has_negative = !histogram.negative_counts.is_empty();
    let has_positive = !histogram.positive_counts.is_empty();
    match (has_negative, has_positive) {
        (false, true) => Bucket { lower: 0.0, ..bucket },
        (true, false) => Bucket { upper: 0.0, ..bucket },
        _ => bucket,
    }
}

/// Returns the value at the fraction `part` of a bucket.
fn interpolated(bucket: &Bucket, part: f64, is_custom: bool) -> f64 {
    if is_custom || bucket.lower <= 0.0 && bucket.upper >= 0.0 {
        return bucket.lower + (bucket.upper - bucket.lower) * part;
    }
    let (lower, upper) = (log2(bucket.lower.abs()), log2(bucket.upper.abs()));
    if bucket.lower > 0.0 {
        exp2(lower + (upper - lower) * part)
    } else {
        -exp2(upper + (lower - upper) * (1.0 - part))
    }
}

/// Returns the fraction of the observations between `lower` and `upper`, interpolated as in
/// [`quantile`].
///
/// NaN if there are no observations, or if a value is NaN.
pub(super) fn fraction(lower: f64, upper: f64, histogram: &Histogram) -> (f64, Option<NanEffect>) {
    if histogram.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return (f64::NAN, None);
    }
    if lower >= upper {
        return (0.0, None);
    }
    let is_custom = histogram.has_custom_buckets();
    let (mut count, mut rank) = (0.0, 0.0);
    let mut ranks = [None, None];
    let mut buckets = histogram.all_buckets();
    for mut bucket in buckets.by_ref() {
        count += bucket.count;
        let is_zero_bucket = bucket.lower <= 0.0 && bucket.upper >= 0.0;
        if is_zero_bucket {
            bucket = one_sided(histogram, bucket);
        }
        for (found, value) in ranks.iter_mut().zip([lower, upper]) {
            if found.is_none() {
                *found = rank_within(&bucket, rank, value, is_custom || is_zero_bucket);
            }
        }
        if ranks.iter().all(Option::is_some) {
            break;
        }
        rank += bucket.count;
    }
    let mut effect = None;
    if histogram.sum.is_nan() {
        buckets.for_each(|bucket| count += bucket.count);
        effect = (count < histogram.count).then_some(NanEffect::Excluded);
    } else {
        count = histogram.count;
    }
    let [below, up_to] = ranks.map(|rank| match rank {
        Some(rank) if rank > count => count,
        Some(rank) => rank,
        None => count,
    });
    ((up_to - below) / histogram.count, effect)
}

/// Returns the number of observations below `value`, or `None` if `value` is above the bucket.
/// `rank` is the number of observations below the bucket.
fn rank_within(bucket: &Bucket, rank: f64, value: f64, linear: bool) -> Option<f64> {
    if bucket.lower >= value {
        return Some(rank);
    }
    if bucket.upper <= value {
        return None;
    }
    // A bucket without a lower bound cannot be interpolated.
    if linear && bucket.lower == f64::NEG_INFINITY {
        return Some(bucket.count);
    }
    Some(rank + bucket.count * bucket.fraction_below(value, linear))
}

/// Returns the mean squared distance from the mean, where each observation counts as the middle of
/// its bucket.
pub(super) fn variance(histogram: &Histogram) -> f64 {
    let mean = histogram.sum / histogram.count;
    let is_custom = histogram.has_custom_buckets();
    let mut sum = Sum::default();
    for bucket in histogram.all_buckets().filter(|bucket| bucket.count != 0.0) {
        let middle = if is_custom {
            (bucket.upper + bucket.lower) / 2.0
        } else if bucket.lower <= 0.0 && bucket.upper >= 0.0 {
            0.0
        } else {
            (bucket.upper * bucket.lower).sqrt().copysign(bucket.upper)
        };
        let distance = middle - mean;
        sum = sum.plus(bucket.count * distance * distance);
    }
    sum.total() / histogram.count
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::Span;
    use model::histogram::CUSTOM_BUCKETS_SCHEMA;

    use super::*;

    /// Returns buckets (0.5,1], (1,2], (2,4] of 1, 2, 4 observations, optionally mirrored below
    /// zero.
    fn exponential(zero_count: f64, has_negative: bool) -> Histogram {
        let spans = vec![Span { offset: 0, length: 3 }];
        let counts = vec![1.0, 2.0, 4.0];
        let mut histogram = Histogram {
            zero_threshold: 0.1,
            zero_count,
            count: 7.0 + zero_count,
            sum: 12.0,
            positive_spans: spans.clone(),
            positive_counts: counts.clone(),
            ..Histogram::default()
        };
        if has_negative {
            histogram.negative_spans = spans;
            histogram.negative_counts = counts;
            histogram.count += 7.0;
        }
        histogram
    }

    fn custom(bounds: &[f64], counts: &[f64]) -> Histogram {
        Histogram {
            schema: CUSTOM_BUCKETS_SCHEMA,
            count: counts.iter().sum(),
            sum: 1.0,
            positive_spans: vec![Span { offset: 0, length: counts.len() as u32 }],
            positive_counts: counts.to_vec(),
            custom_bounds: Arc::from(bounds),
            ..Histogram::default()
        }
    }

    #[test]
    fn quantiles_are_interpolated_in_their_bucket() {
        let half = 2f64.sqrt();
        let cases = [
            (exponential(0.0, false), 1.0, 4.0),
            (exponential(0.0, false), 0.0, 0.5),
            (exponential(0.0, false), 2.0 / 7.0, half),
            (exponential(0.0, false), 5.0 / 7.0, 2.0 * half),
            // In the zero bucket: from 0 with only positive buckets, from -0.1 with both.
            (exponential(7.0, false), 0.25, 0.05),
            (exponential(6.0, true), 0.5, 0.0),
            (exponential(0.0, true), 0.0, -4.0),
            (custom(&[1.0, 3.0], &[1.0, 2.0, 1.0]), 0.5, 2.0),
            (custom(&[1.0, 3.0], &[1.0, 2.0, 1.0]), 0.125, 0.5),
            (custom(&[1.0, 3.0], &[1.0, 2.0, 1.0]), 0.99, 3.0),
            (custom(&[-1.0, 3.0], &[1.0, 2.0, 1.0]), 0.1, -1.0),
            (exponential(0.0, false), -0.1, f64::NEG_INFINITY),
            (exponential(0.0, false), 1.1, f64::INFINITY),
        ];
        for (histogram, share, expected) in cases {
            let (value, effect) = quantile(share, &histogram);
            assert!(
                value == expected || (value - expected).abs() < 1e-12,
                "{share} of {histogram}: {value}"
            );
            assert_eq!(effect, None);
        }
        assert!(quantile(0.5, &Histogram::default()).0.is_nan());
        assert!(quantile(f64::NAN, &exponential(0.0, false)).0.is_nan());
    }

    #[test]
    fn observations_of_nan_are_told() {
        let mut histogram = exponential(0.0, false);
        (histogram.count, histogram.sum) = (14.0, f64::NAN);
        assert_eq!(quantile(0.1, &histogram).1, Some(NanEffect::Skew));
        assert_eq!(quantile(0.9, &histogram).1, Some(NanEffect::Result));
        assert!(quantile(0.9, &histogram).0.is_nan());
        let (value, effect) = fraction(f64::NEG_INFINITY, f64::INFINITY, &histogram);
        assert_eq!((value, effect), (0.5, Some(NanEffect::Excluded)));
    }

    #[test]
    fn fractions_count_what_lies_between() {
        let inf = f64::INFINITY;
        let cases = [
            (exponential(0.0, false), -inf, inf, 1.0),
            (exponential(0.0, false), 1.0, 2.0, 2.0 / 7.0),
            (exponential(0.0, false), 2f64.sqrt(), 2.0, 1.0 / 7.0),
            (exponential(7.0, false), 0.05, inf, 10.5 / 14.0),
            (exponential(0.0, true), -inf, 0.0, 0.5),
            (custom(&[1.0, 3.0], &[1.0, 2.0, 1.0]), 0.5, 2.0, 0.375),
            (custom(&[1.0, 3.0], &[1.0, 2.0, 1.0]), 5.0, inf, 0.25),
            (exponential(0.0, false), 2.0, 1.0, 0.0),
        ];
        for (histogram, lower, upper, expected) in cases {
            let (value, effect) = fraction(lower, upper, &histogram);
            assert!((value - expected).abs() < 1e-12, "{lower} {upper} of {histogram}: {value}");
            assert_eq!(effect, None);
        }
        assert!(fraction(f64::NAN, 1.0, &exponential(0.0, false)).0.is_nan());
        assert!(fraction(0.0, 1.0, &Histogram::default()).0.is_nan());
    }

    #[test]
    fn a_fraction_undoes_a_quantile() {
        for histogram in [exponential(3.0, true), exponential(3.0, false), exponential(0.0, true)] {
            for percent in 1..100 {
                let share = f64::from(percent) / 100.0;
                let (value, _) = quantile(share, &histogram);
                let (below, _) = fraction(f64::NEG_INFINITY, value, &histogram);
                assert!((below - share).abs() < 1e-9, "{share} of {histogram}: {value}, {below}");
            }
        }
    }

    #[test]
    fn a_variance_is_that_of_the_middles() {
        let histogram = custom(&[0.0, 2.0, 4.0], &[0.0, 2.0, 2.0]);
        // The mean is 0.25, the middles are 1 and 3.
        assert_eq!(variance(&histogram), (2.0 * 0.75 * 0.75 + 2.0 * 2.75 * 2.75) / 4.0);
        assert!(variance(&Histogram::default()).is_nan());
    }
}
