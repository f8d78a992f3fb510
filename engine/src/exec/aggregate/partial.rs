//! Mergeable state of a group at consecutive steps.

use model::widest;

use crate::exec::numeric::compensated::{self, Sum};
use crate::tile::is_present;

/// Factor for the sum of a mean that would overflow; a power of two, so scaling is exact.
const SCALE: f64 = 1.0 / (1u128 << 64) as f64;

/// Minimum number of present values of 64 for which all are processed in vectors.
const MASKED_MIN: u32 = 16;

/// A mergeable aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
}

impl Fold {
    /// Returns whether the bits of a result depend on the order of series.
    pub(super) fn depends_on_order(self) -> bool {
        !matches!(self, Fold::Count | Fold::Group)
    }
}

/// State of one group at consecutive steps.
///
/// Shape: one cell per step in each array.
/// Invariant: a cell without values does not change another in a merge: its sum is −0, its minimum
/// or maximum is NaN, its count is 0.
#[derive(Debug, Clone)]
pub(super) struct Partial {
    fold: Fold,
    /// Sum, minimum, maximum, or sum of squared distances from the mean.
    value: Vec<f64>,
    /// Compensation of the sum, or (for stddev and stdvar) the mean.
    second: Vec<f64>,
    count: Vec<f64>,
    /// For `avg`, the factor by which the sum is scaled; empty while all factors are 1.
    scale: Vec<f64>,
    presence: Vec<u64>,
}

impl Partial {
    /// Returns a partial without values.
    pub(super) fn new(fold: Fold, steps: usize) -> Partial {
        Partial {
            fold,
            value: vec![neutral(fold); steps],
            second: vec![0.0; steps],
            count: vec![0.0; steps],
            scale: Vec::new(),
            presence: vec![0; steps.div_ceil(64)],
        }
    }

    /// Returns the maximum bytes of a partial.
    pub(super) fn bytes(steps: usize) -> u64 {
        (steps * 32 + steps.div_ceil(64) * 8) as u64
    }

    /// Removes all values and sets the number of steps.
    pub(super) fn reset(&mut self, steps: usize) {
        self.value.clear();
        self.value.resize(steps, neutral(self.fold));
        self.second.clear();
        self.second.resize(steps, 0.0);
        self.count.clear();
        self.count.resize(steps, 0.0);
        self.scale.clear();
        self.presence.clear();
        self.presence.resize(steps.div_ceil(64), 0);
    }

    /// Adds the row of one series.
    ///
    /// Shape: one value per step; presence bits after the last step are 0, and words after it ignored.
    #[inline]
    pub(super) fn update(&mut self, values: &[f64], presence: &[u64]) {
        let presence = &presence[..self.presence.len()];
        for (all, word) in self.presence.iter_mut().zip(presence) {
            *all |= word;
        }
        match self.fold {
            Fold::Group => {}
            Fold::Sum => self.each(values, presence, |v, s, _, x| {
                (*v, *s) = compensated::add(*v, *s, x);
            }),
            Fold::Min => self.each(values, presence, |v, _, _, x| {
                *v = if *v > x || v.is_nan() { x } else { *v };
            }),
            Fold::Max => self.each(values, presence, |v, _, _, x| {
                *v = if *v < x || v.is_nan() { x } else { *v };
            }),
            Fold::Count => self.each(values, presence, |_, _, n, _| *n += 1.0),
            // Welford's method.
            Fold::Stddev | Fold::Stdvar => self.each(values, presence, |v, mean, n, x| {
                *n += 1.0;
                let delta = x - *mean;
                *mean += delta / *n;
                *v += delta * (x - *mean);
            }),
            Fold::Avg => self.update_avg(values, presence),
        }
    }

    /// Calls `change` with the cell and the value of each present value.
    #[inline(always)]
    fn each(
        &mut self,
        values: &[f64],
        presence: &[u64],
        change: impl Fn(&mut f64, &mut f64, &mut f64, f64),
    ) {
        let is_whole = |index: usize, word: u64| {
            let width = (values.len() - index * 64).min(64);
            word.count_ones() as usize == width
        };
        let mut index = 0;
        while index < presence.len() {
            let words = (index..).zip(&presence[index..]);
            let whole = words.take_while(|(index, word)| is_whole(*index, **word)).count();
            if whole > 0 {
                let range = index * 64..values.len().min((index + whole) * 64);
                let cells = self.value[range.clone()].iter_mut();
                let cells = cells.zip(&mut self.second[range.clone()]);
                let cells = cells.zip(&mut self.count[range.clone()]).zip(&values[range]);
                widest(
                    #[inline(always)]
                    || {
                        for (((value, second), count), x) in cells {
                            change(value, second, count, *x);
                        }
                    },
                );
                index += whole;
                continue;
            }
            self.each_of_word(index, values, presence[index], &change);
            index += 1;
        }
    }

    /// Calls `change` with the cell and the value of each present value of one word of the presence.
    #[inline(always)]
    fn each_of_word(
        &mut self,
        index: usize,
        values: &[f64],
        word: u64,
        change: &impl Fn(&mut f64, &mut f64, &mut f64, f64),
    ) {
        let range = index * 64..values.len().min(index * 64 + 64);
        if word.count_ones() < MASKED_MIN {
            let mut bits = word;
            while bits != 0 {
                let at = index * 64 + bits.trailing_zeros() as usize;
                let (value, second) = (&mut self.value[at], &mut self.second[at]);
                change(value, second, &mut self.count[at], values[at]);
                bits &= bits - 1;
            }
            return;
        }
        let cells = self.value[range.clone()].iter_mut().zip(&mut self.second[range.clone()]);
        let cells = cells.zip(&mut self.count[range.clone()]).zip(&values[range]);
        widest(
            #[inline(always)]
            || {
                // All cells are computed, and those of present values are replaced.
                for (at, (((value, second), count), x)) in cells.enumerate() {
                    let (mut new, mut new_second, mut new_count) = (*value, *second, *count);
                    change(&mut new, &mut new_second, &mut new_count, *x);
                    let is_present = word >> at & 1 == 1;
                    *value = if is_present { new } else { *value };
                    *second = if is_present { new_second } else { *second };
                    *count = if is_present { new_count } else { *count };
                }
            },
        );
    }

    /// Adds a row to the sums of `avg`. If a sum would overflow, Prometheus changes to a running
    /// mean. Here the sum is scaled down, which is as exact and still mergeable.
    fn update_avg(&mut self, values: &[f64], presence: &[u64]) {
        // Absent values may be too large, which costs time only. NaN does not overflow.
        let sums = self.value.iter().zip(values);
        let is_safe = self.scale.is_empty()
            && widest(
                #[inline(always)]
                || {
                    sums.fold(true, |is_safe, (sum, x)| {
                        is_safe & ((sum + x).abs() != f64::INFINITY)
                    })
                },
            );
        if is_safe {
            self.each(values, presence, |v, s, n, x| {
                *n += 1.0;
                (*v, *s) = compensated::add(*v, *s, x);
            });
            return;
        }
        for at in (0..values.len()).filter(|at| is_present(presence, *at)) {
            self.count[at] += 1.0;
            let cell = Sum { sum: self.value[at], compensation: self.second[at] };
            self.set_sum(at, cell, Sum::new(values[at]), 1.0);
        }
    }

    /// Sets cell `at` to `cell` plus `other`, already scaled by `other_scale`.
    fn set_sum(&mut self, at: usize, cell: Sum, other: Sum, other_scale: f64) {
        let scale = self.scale.get(at).copied().unwrap_or(1.0);
        let scaled =
            |sum: Sum, by: f64| Sum { sum: sum.sum * by, compensation: sum.compensation * by };
        let common = scale.min(other_scale);
        let mut result = scaled(cell, common / scale).merged(scaled(other, common / other_scale));
        let are_finite = cell.sum.is_finite() && other.sum.is_finite();
        if common != scale || (result.sum.is_infinite() && are_finite) {
            self.scale.resize(self.value.len(), 1.0);
            self.scale[at] = SCALE;
            result = scaled(cell, SCALE / scale).merged(scaled(other, SCALE / other_scale));
        }
        self.value[at] = result.sum;
        self.second[at] = result.compensation;
    }

    /// Adds a partial of the same steps.
    pub(super) fn merge(&mut self, other: &Partial) {
        match self.fold {
            Fold::Group => {}
            // Cells without values are neutral.
            Fold::Count => self.merge_counts(other),
            Fold::Sum => self.merge_sums(other),
            Fold::Avg if self.is_summed_safely(other) => {
                self.merge_sums(other);
                self.merge_counts(other);
            }
            Fold::Avg | Fold::Min | Fold::Max | Fold::Stddev | Fold::Stdvar => {
                for at in (0..other.value.len()).filter(|at| is_present(&other.presence, *at)) {
                    self.merge_at(at, other);
                }
            }
        }
        for (all, word) in self.presence.iter_mut().zip(&other.presence) {
            *all |= word;
        }
    }

    fn merge_counts(&mut self, other: &Partial) {
        let cells = self.count.iter_mut().zip(&other.count);
        widest(
            #[inline(always)]
            || cells.for_each(|(count, more)| *count += more),
        );
    }

    fn merge_sums(&mut self, other: &Partial) {
        let cells = self.value.iter_mut().zip(&mut self.second);
        for ((value, second), (sum, compensation)) in
            cells.zip(other.value.iter().zip(&other.second))
        {
            let merged = Sum { sum: *value, compensation: *second }
                .merged(Sum { sum: *sum, compensation: *compensation });
            (*value, *second) = (merged.sum, merged.compensation);
        }
    }

    /// Returns whether the sums of `avg` can be added without scaling.
    fn is_summed_safely(&self, other: &Partial) -> bool {
        let is_small = |(a, b): (&f64, &f64)| (a + b).abs() <= f64::MAX;
        self.scale.is_empty()
            && other.scale.is_empty()
            && self.value.iter().zip(&other.value).all(is_small)
    }

    /// Merges the cell `at` of `other`, which has values.
    fn merge_at(&mut self, at: usize, other: &Partial) {
        let (value, second, count) = (other.value[at], other.second[at], other.count[at]);
        let cell = Sum { sum: self.value[at], compensation: self.second[at] };
        match self.fold {
            Fold::Group | Fold::Count | Fold::Sum => {}
            Fold::Avg => {
                let sum = Sum { sum: value, compensation: second };
                self.set_sum(at, cell, sum, other.scale.get(at).copied().unwrap_or(1.0));
            }
            Fold::Min if cell.sum > value || cell.sum.is_nan() => self.value[at] = value,
            Fold::Max if cell.sum < value || cell.sum.is_nan() => self.value[at] = value,
            Fold::Min | Fold::Max => {}
            Fold::Stddev | Fold::Stdvar => {
                // Chan's method: merges two means and sums of squares.
                let total = self.count[at] + count;
                let delta = second - self.second[at];
                let share = count / total;
                // This order cannot overflow if there is only one value in total.
                self.value[at] += value + delta * (delta * (self.count[at] * share));
                self.second[at] += delta * share;
            }
        }
        self.count[at] += count;
    }

    /// Writes the result of each step; results of steps without values are meaningless.
    pub(super) fn finish(&self, out: &mut [f64]) {
        for (at, out) in out.iter_mut().enumerate().take(self.value.len()) {
            let (value, second, count) = (self.value[at], self.second[at], self.count[at]);
            *out = match self.fold {
                Fold::Sum => value + second,
                Fold::Min | Fold::Max => value,
                Fold::Count => count,
                Fold::Group => 1.0,
                Fold::Stdvar => value / count,
                Fold::Stddev => (value / count).sqrt(),
                Fold::Avg => {
                    let mean = value / count + second / count;
                    mean / self.scale.get(at).copied().unwrap_or(1.0)
                }
            };
        }
    }

    /// Returns the presence of values by step.
    pub(super) fn presence(&self) -> &[u64] {
        &self.presence
    }

    /// Copies `part` to the steps from `from_step` on, which have no values yet.
    pub(super) fn place(&mut self, from_step: usize, part: &Partial) {
        let range = from_step..from_step + part.value.len();
        self.value[range.clone()].copy_from_slice(&part.value);
        self.second[range.clone()].copy_from_slice(&part.second);
        self.count[range.clone()].copy_from_slice(&part.count);
        if !part.scale.is_empty() {
            self.scale.resize(self.value.len(), 1.0);
            self.scale[range].copy_from_slice(&part.scale);
        }
        let width = part.value.len();
        crate::tile::copy_bits(&mut self.presence, from_step, &part.presence, width);
    }
}

fn neutral(fold: Fold) -> f64 {
    match fold {
        Fold::Sum | Fold::Avg => -0.0,
        Fold::Min | Fold::Max => f64::NAN,
        Fold::Count | Fold::Group | Fold::Stddev | Fold::Stdvar => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use model::stale_nan;
    use proptest::prelude::*;

    use super::*;
    use crate::tile::set_present;

    const FOLDS: [Fold; 8] = [
        Fold::Sum,
        Fold::Avg,
        Fold::Min,
        Fold::Max,
        Fold::Count,
        Fold::Group,
        Fold::Stddev,
        Fold::Stdvar,
    ];

    /// Generates rows of one width. Numbers are quarters, whose sums are exact in any order.
    fn rows() -> impl Strategy<Value = Vec<Vec<Option<f64>>>> {
        let odd = [f64::NAN, stale_nan(), f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0];
        let number = prop_oneof![
            12 => (-400i32..400).prop_map(|n| f64::from(n) / 4.0),
            1 => prop::sample::select(odd.to_vec()),
        ];
        let width = prop_oneof![Just(1usize), 62usize..67, 126usize..131, 1usize..140];
        let percent = prop_oneof![Just(0), Just(100), Just(50), Just(95)];
        (width, 0usize..9, percent).prop_flat_map(move |(width, count, percent)| {
            let cell = (0..100, number.clone())
                .prop_map(move |(draw, number)| (draw < percent).then_some(number));
            prop::collection::vec(prop::collection::vec(cell, width), count)
        })
    }

    fn fold_rows(fold: Fold, rows: &[Vec<Option<f64>>], width: usize) -> Partial {
        let mut partial = Partial::new(fold, 1);
        partial.reset(width);
        for row in rows {
            // The value of an absent cell is never read, so it is arbitrary.
            let values: Vec<f64> = row.iter().map(|cell| cell.unwrap_or(1e300)).collect();
            let mut presence = vec![0; width.div_ceil(64)];
            for (step, _) in row.iter().enumerate().filter(|(_, cell)| cell.is_some()) {
                set_present(&mut presence, step);
            }
            partial.update(&values, &presence);
        }
        partial
    }

    /// Aggregates one column, one value at a time.
    fn naive(fold: Fold, values: &[f64]) -> Option<f64> {
        let first = *values.first()?;
        let count = values.len() as f64;
        let sum: f64 = values.iter().sum();
        let mut deviation = (0.0, 0.0);
        for (index, value) in values.iter().enumerate() {
            let delta = value - deviation.0;
            deviation.0 += delta / (index + 1) as f64;
            deviation.1 += delta * (value - deviation.0);
        }
        Some(match fold {
            // The compensation, 0 here, makes a negative zero positive.
            Fold::Sum => sum + 0.0,
            Fold::Avg => sum / count + 0.0,
            Fold::Min => {
                values.iter().fold(first, |min, v| if min > *v || min.is_nan() { *v } else { min })
            }
            Fold::Max => {
                values.iter().fold(first, |max, v| if max < *v || max.is_nan() { *v } else { max })
            }
            Fold::Count => count,
            Fold::Group => 1.0,
            Fold::Stdvar => deviation.1 / count,
            Fold::Stddev => (deviation.1 / count).sqrt(),
        })
    }

    fn check(
        fold: Fold,
        rows: &[Vec<Option<f64>>],
        partial: &Partial,
        width: usize,
        is_merged: bool,
    ) {
        let mut found = vec![f64::NAN; width];
        partial.finish(&mut found);
        for step in 0..width {
            let column: Vec<f64> = rows.iter().filter_map(|row| row[step]).collect();
            let expected = naive(fold, &column);
            assert_eq!(is_present(partial.presence(), step), expected.is_some(), "{fold:?} {step}");
            let Some(expected) = expected else { continue };
            // Deviations are merged by another formula.
            let is_close =
                is_merged && (found[step] - expected).abs() <= 1e-9 * (1.0 + expected.abs());
            let is_same = found[step].to_bits() == expected.to_bits()
                || (found[step].is_nan() && expected.is_nan());
            assert!(
                is_same || is_close,
                "{fold:?}: {} is not {expected} of {column:?}",
                found[step]
            );
        }
    }

    proptest! {
        #[test]
        fn rows_fold_as_columns_one_by_one(rows in rows()) {
            let width = rows.first().map_or(1, Vec::len);
            for fold in FOLDS {
                check(fold, &rows, &fold_rows(fold, &rows, width), width, false);
            }
        }

        #[test]
        fn parts_merge_to_the_whole(rows in rows(), cut in 0usize..9, before in 0usize..70) {
            let width = rows.first().map_or(1, Vec::len);
            let (upper, lower) = rows.split_at(cut.min(rows.len()));
            for fold in FOLDS {
                let mut merged = fold_rows(fold, upper, width);
                merged.merge(&fold_rows(fold, lower, width));
                check(fold, &rows, &merged, width, true);
                // The same rows, placed in a partial with more steps.
                let mut wide = Partial::new(fold, before + width + 1);
                wide.place(before, &merged);
                let mut found = vec![f64::NAN; before + width + 1];
                wide.finish(&mut found);
                let mut expected = vec![f64::NAN; width];
                merged.finish(&mut expected);
                for (step, found) in found.iter().enumerate() {
                    let at = step.checked_sub(before).filter(|at| *at < width);
                    let is_there = at.is_some_and(|at| is_present(merged.presence(), at));
                    prop_assert_eq!(is_present(wide.presence(), step), is_there);
                    if let Some(at) = at.filter(|_| is_there) {
                        prop_assert_eq!(found.to_bits(), expected[at].to_bits());
                    }
                }
            }
        }

        #[test]
        fn means_of_the_largest_numbers_do_not_overflow(
            shares in prop::collection::vec(-4i32..5, 1..30),
            cut in 0usize..30,
        ) {
            let rows: Vec<Vec<Option<f64>>> =
                shares.iter().map(|n| vec![Some(f64::MAX / 4.0 * f64::from(*n))]).collect();
            let (upper, lower) = rows.split_at(cut.min(rows.len()));
            let mut merged = fold_rows(Fold::Avg, upper, 1);
            merged.merge(&fold_rows(Fold::Avg, lower, 1));
            let mean = f64::from(shares.iter().sum::<i32>()) / shares.len() as f64;
            for partial in [merged, fold_rows(Fold::Avg, &rows, 1)] {
                let mut found = [f64::NAN];
                partial.finish(&mut found);
                prop_assert!((found[0] / f64::MAX * 4.0 - mean).abs() < 1e-9, "{} {mean}", found[0]);
            }
        }
    }
}
