//! Quantiles and fractions of the cumulative buckets of a classic histogram.
//!
//! Source: `promql/quantile.go` of Prometheus.

/// Relative differences below this are rounding errors of floating-point sums.
const NOISE: f64 = 1e-12;

/// A bucket with the number of observations up to its bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bucket {
    pub(super) upper_bound: f64,
    pub(super) count: f64,
}

/// Record of the corrections that made counts ascend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Repair {
    pub(super) bound_min: f64,
    pub(super) bound_max: f64,
    pub(super) difference_max: f64,
}

/// Returns the quantile of the observations, interpolated within its bucket, and the correction of
/// counts. `buckets` must be sorted by bound and not empty; they are merged and corrected in place.
///
/// NaN if the last bound is not +Inf, or if there are fewer than two buckets or no observations.
pub(super) fn quantile(quantile: f64, buckets: &mut Vec<Bucket>) -> (f64, Option<Repair>) {
    if quantile.is_nan() {
        return (f64::NAN, None);
    }
    if quantile < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if quantile > 1.0 {
        return (f64::INFINITY, None);
    }
    if buckets.last().is_none_or(|bucket| bucket.upper_bound != f64::INFINITY) {
        return (f64::NAN, None);
    }
    merge_equal_bounds(buckets);
    let repair = make_ascending(buckets);
    let last = buckets.len() - 1;
    let observations = buckets[last].count;
    if last == 0 || observations == 0.0 {
        return (f64::NAN, repair);
    }
    let rank = quantile * observations;
    // Not `partition_point(count < rank)`: a NaN count must not count as reached.
    let reached = |bucket: &Bucket| bucket.count >= rank;
    let at = buckets[..last].partition_point(|bucket| !reached(bucket));
    let value = if at == last {
        buckets[last - 1].upper_bound
    } else if at == 0 && buckets[0].upper_bound <= 0.0 {
        buckets[0].upper_bound
    } else {
        let below = match at {
            0 => Bucket { upper_bound: 0.0, count: 0.0 },
            _ => buckets[at - 1],
        };
        let width = buckets[at].upper_bound - below.upper_bound;
        below.upper_bound + width * ((rank - below.count) / (buckets[at].count - below.count))
    };
    (value, repair)
}

/// Returns the fraction of the observations between `lower` and `upper`, interpolated within their
/// buckets. `buckets` must be sorted by bound and not empty; they are merged in place.
pub(super) fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if buckets.last().is_none_or(|bucket| bucket.upper_bound != f64::INFINITY) {
        return f64::NAN;
    }
    merge_equal_bounds(buckets);
    let count = buckets[buckets.len() - 1].count;
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let at_most = |rank: Option<f64>| match rank {
        Some(rank) if rank > count => count,
        Some(rank) => rank,
        None => count,
    };
    (at_most(rank_of(upper, buckets)) - at_most(rank_of(lower, buckets))) / count
}

/// Returns the number of observations below a value, or `None` if it is above all buckets.
fn rank_of(value: f64, buckets: &[Bucket]) -> Option<f64> {
    let mut rank = 0.0;
    let mut lower_bound = if buckets[0].upper_bound <= 0.0 { f64::NEG_INFINITY } else { 0.0 };
    for bucket in buckets {
        if lower_bound >= value {
            return Some(rank);
        }
        if bucket.upper_bound > value {
            // A bucket without a lower bound cannot be interpolated.
            if lower_bound == f64::NEG_INFINITY {
                return Some(bucket.count);
            }
            let width = bucket.upper_bound - lower_bound;
            return Some(rank + (bucket.count - rank) * (value - lower_bound) / width);
        }
        rank = bucket.count;
        lower_bound = bucket.upper_bound;
    }
    None
}

/// Merges buckets with the same bound by adding their counts.
fn merge_equal_bounds(buckets: &mut Vec<Bucket>) {
    buckets.dedup_by(|bucket, kept| {
        let is_same = bucket.upper_bound == kept.upper_bound;
        if is_same {
            kept.count += bucket.count;
        }
        is_same
    });
}

/// Makes counts ascend: smooths rounding errors silently, raises and reports other decreases.
fn make_ascending(buckets: &mut [Bucket]) -> Option<Repair> {
    let mut repair: Option<Repair> = None;
    let mut highest = buckets[0].count;
    for bucket in &mut buckets[1..] {
        let count = bucket.count;
        if count == highest {
            continue;
        }
        if is_almost_equal(highest, count) {
            bucket.count = highest;
        } else if count < highest {
            bucket.count = highest;
            let bound = bucket.upper_bound;
            let so_far = repair.unwrap_or(Repair {
                bound_min: f64::INFINITY,
                bound_max: f64::NEG_INFINITY,
                difference_max: 0.0,
            });
            repair = Some(Repair {
                bound_min: so_far.bound_min.min(bound),
                bound_max: so_far.bound_max.max(bound),
                difference_max: so_far.difference_max.max(highest - count),
            });
        } else {
            highest = count;
        }
    }
    repair
}

/// Returns whether two counts differ only by rounding; NaN equals NaN.
///
/// Source: `util/almost` of Prometheus.
fn is_almost_equal(a: f64, b: f64) -> bool {
    if model::is_stale(a) || model::is_stale(b) {
        return model::is_stale(a) && model::is_stale(b);
    }
    if a.is_nan() && b.is_nan() || a == b {
        return true;
    }
    let sum = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < NOISE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < NOISE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn buckets(pairs: &[(f64, f64)]) -> Vec<Bucket> {
        pairs
            .iter()
            .map(|(upper_bound, count)| Bucket { upper_bound: *upper_bound, count: *count })
            .collect()
    }

    const INF: f64 = f64::INFINITY;

    #[test]
    fn quantiles_lie_where_the_rank_falls() {
        type Case = (f64, &'static [(f64, f64)], f64);
        let cases: &[Case] = &[
            (0.5, &[(1.0, 2.0), (2.0, 4.0), (INF, 4.0)], 1.0),
            (0.75, &[(1.0, 2.0), (2.0, 4.0), (INF, 4.0)], 1.5),
            (1.0, &[(1.0, 2.0), (INF, 4.0)], 1.0),
            (0.5, &[(-1.0, 4.0), (INF, 4.0)], -1.0),
            (0.0, &[(1.0, 0.0), (2.0, 4.0), (INF, 4.0)], f64::NAN),
            (-0.1, &[(INF, 1.0)], f64::NEG_INFINITY),
            (1.1, &[(INF, 1.0)], INF),
            (0.5, &[(INF, 1.0)], f64::NAN),
            (0.5, &[(1.0, 1.0)], f64::NAN),
            (0.5, &[(1.0, 0.0), (INF, 0.0)], f64::NAN),
            (f64::NAN, &[(1.0, 1.0), (INF, 1.0)], f64::NAN),
            (0.5, &[(1.0, 1.0), (1.0, 1.0), (INF, 4.0)], 1.0),
        ];
        for (q, input, expected) in cases {
            let (value, repair) = quantile(*q, &mut buckets(input));
            assert!(value == *expected || (value.is_nan() && expected.is_nan()), "{q} {input:?}");
            assert_eq!(repair, None);
        }
    }

    #[test]
    fn decreasing_counts_are_filled_up_and_reported() {
        let mut input = buckets(&[(1.0, 5.0), (2.0, 3.0), (4.0, 4.0), (INF, 8.0)]);
        let (_, repair) = quantile(0.5, &mut input);
        let repair = repair.unwrap();
        assert_eq!((repair.bound_min, repair.bound_max, repair.difference_max), (2.0, 4.0, 2.0));
        let mut noisy = buckets(&[(1.0, 1.0), (2.0, 1.0 - 1e-15), (INF, 2.0)]);
        assert_eq!(quantile(0.9, &mut noisy).1, None);
    }

    #[test]
    fn fractions_count_what_lies_between() {
        let input = [(-1.0, 1.0), (1.0, 3.0), (2.0, 5.0), (INF, 10.0)];
        let cases = [
            (-1.0, 1.0, 0.2),
            (f64::NEG_INFINITY, INF, 1.0),
            (1.0, 1.5, 0.1),
            (0.0, 0.0, 0.0),
            (3.0, INF, 0.5),
            (f64::NEG_INFINITY, -5.0, 0.1),
        ];
        for (lower, upper, expected) in cases {
            assert_eq!(fraction(lower, upper, &mut buckets(&input)), expected, "{lower} {upper}");
        }
        assert!(fraction(f64::NAN, 1.0, &mut buckets(&input)).is_nan());
        assert!(fraction(0.0, 1.0, &mut buckets(&[(1.0, 1.0)])).is_nan());
    }

    proptest! {
        #[test]
        fn quantiles_ascend_and_stay_within_the_bounds(
            counts in prop::collection::vec(0u8..20, 2..8),
            a in 0.0..=1.0f64,
            b in 0.0..=1.0f64,
        ) {
            let mut total = 0.0;
            let mut input: Vec<Bucket> = counts.iter().enumerate().map(|(bound, count)| {
                total += f64::from(*count);
                Bucket { upper_bound: bound as f64 + 1.0, count: total }
            }).collect();
            let last = input.len() - 1;
            input[last].upper_bound = INF;
            prop_assume!(total > 0.0);
            let (low, high) = (a.min(b), a.max(b));
            let (low, _) = quantile(low, &mut input.clone());
            let (high, _) = quantile(high, &mut input.clone());
            if !low.is_nan() && !high.is_nan() {
                prop_assert!(low <= high + 1e-9 && low >= 0.0 && high <= last as f64);
            }
        }
    }
}
