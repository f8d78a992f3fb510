//! Native histograms in scripts.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ResetHint, Span};

use crate::compare::{EPSILON, almost_equal};

/// Schema of histograms with custom bounds.
pub(crate) const CUSTOM_BUCKETS_SCHEMA: i32 = -53;

/// Relation of a histogram to the previous sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CounterResetHint {
    /// Not known.
    #[default]
    Unknown,
    /// The counter was reset.
    Reset,
    /// The counter was not reset.
    NotReset,
    /// The histogram is a gauge.
    Gauge,
}

/// A native histogram with float counts.
///
/// Invariant: buckets are stored by index without empty ones; bucket `i` of a schema `s` from -4
/// to 8 ends at `2^(i * 2^-s)`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Histogram {
    /// Resolution; -53 for custom bounds.
    pub schema: i32,
    /// Number of observations.
    pub count: f64,
    /// Sum of the observations.
    pub sum: f64,
    /// Number of observations in the zero bucket.
    pub zero_count: f64,
    /// Upper bound of the absolute values in the zero bucket.
    pub zero_threshold: f64,
    /// Upper bounds of the buckets, without infinity, for the custom schema.
    pub custom_values: Vec<f64>,
    /// Buckets of positive observations.
    pub positive: BTreeMap<i32, f64>,
    /// Buckets of negative observations.
    pub negative: BTreeMap<i32, f64>,
    /// Relation to the previous sample.
    pub counter_reset_hint: CounterResetHint,
    /// True if the script contains the hint; otherwise it is not compared.
    pub is_hint_explicit: bool,
}

impl Histogram {
    /// Converts to a sample value.
    ///
    /// Errors: a schema that samples do not support.
    pub fn to_sample(&self) -> Result<model::Histogram, String> {
        let schema = i8::try_from(self.schema).map_err(|_| format!("schema {}", self.schema))?;
        let (positive_spans, positive_counts) = spans_of(&self.positive);
        let (negative_spans, negative_counts) = spans_of(&self.negative);
        Ok(model::Histogram {
            reset_hint: match self.counter_reset_hint {
                CounterResetHint::Unknown => ResetHint::Unknown,
                CounterResetHint::Reset => ResetHint::Reset,
                CounterResetHint::NotReset => ResetHint::NotReset,
                CounterResetHint::Gauge => ResetHint::Gauge,
            },
            schema,
            zero_threshold: self.zero_threshold,
            zero_count: self.zero_count,
            count: self.count,
            sum: self.sum,
            positive_spans,
            negative_spans,
            positive_counts,
            negative_counts,
            custom_bounds: Arc::from(&self.custom_values[..]),
        })
    }

    /// Returns whether a sample equals this histogram except for rounding; the hint is compared
    /// if it is explicit.
    ///
    /// Source: `compareNativeHistogram` of Prometheus' runner.
    pub(crate) fn is_almost(&self, found: &model::Histogram) -> bool {
        let almost = |a, b| almost_equal(a, b, EPSILON);
        let same_bounds = |a: &[f64], b: &[f64]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
        };
        let same_buckets = |expected: &BTreeMap<i32, f64>, found: &BTreeMap<i32, f64>| {
            expected.keys().eq(found.keys())
                && expected.values().zip(found.values()).all(|(a, b)| almost(*a, *b))
        };
        let expected_hint = self.counter_reset_hint as u8;
        self.schema == i32::from(found.schema)
            && almost(self.count, found.count)
            && almost(self.sum, found.sum)
            && same_bounds(&self.custom_values, &found.custom_bounds)
            && self.zero_threshold == found.zero_threshold
            && almost(self.zero_count, found.zero_count)
            && same_buckets(
                &self.positive,
                &buckets_of(&found.positive_spans, &found.positive_counts),
            )
            && same_buckets(
                &self.negative,
                &buckets_of(&found.negative_spans, &found.negative_counts),
            )
            && (!self.is_hint_explicit || expected_hint == found.reset_hint.number())
    }

    /// Returns this histogram plus `factor` times the increment, at the coarser schema.
    ///
    /// Errors: different zero buckets or custom bounds, and an increment whose schema is coarser
    /// than that of `self`.
    pub fn plus(&self, increment: &Histogram, factor: f64) -> Result<Histogram, String> {
        if self.schema > increment.schema {
            return Err(format!(
                "cannot merge from schema {} to {}",
                increment.schema, self.schema
            ));
        }
        if self.zero_threshold != increment.zero_threshold {
            return Err("the zero buckets of the two histograms differ in width".to_owned());
        }
        if self.custom_values != increment.custom_values {
            return Err("the custom bounds of the two histograms differ".to_owned());
        }
        let mut sum = self.clone();
        sum.count += factor * increment.count;
        sum.sum += factor * increment.sum;
        sum.zero_count += factor * increment.zero_count;
        let shift = increment.schema - self.schema;
        add_buckets(&mut sum.positive, &increment.positive, shift, factor);
        add_buckets(&mut sum.negative, &increment.negative, shift, factor);
        sum.is_hint_explicit = increment.is_hint_explicit;
        Ok(sum)
    }
}

/// Converts buckets to spans.
fn spans_of(buckets: &BTreeMap<i32, f64>) -> (Vec<Span>, Vec<f64>) {
    let mut spans: Vec<Span> = Vec::new();
    let mut next = 0;
    for index in buckets.keys() {
        match spans.last_mut() {
            Some(span) if *index == next => span.length += 1,
            _ => spans.push(Span { offset: index - next, length: 1 }),
        }
        next = index + 1;
    }
    (spans, buckets.values().copied().collect())
}

/// Returns the non-empty buckets of a side by index.
fn buckets_of(spans: &[Span], counts: &[f64]) -> BTreeMap<i32, f64> {
    let mut indices = Vec::with_capacity(counts.len());
    let mut next = 0;
    for span in spans {
        next += span.offset;
        let end = next + span.length as i32;
        indices.extend(next..end);
        next = end;
    }
    indices.into_iter().zip(counts.iter().copied()).filter(|(_, count)| *count != 0.0).collect()
}

fn add_buckets(into: &mut BTreeMap<i32, f64>, from: &BTreeMap<i32, f64>, shift: i32, factor: f64) {
    for (index, count) in from {
        let index = if shift == 0 { *index } else { ((index - 1) >> shift.min(31)) + 1 };
        *into.entry(index).or_default() += factor * count;
    }
    into.retain(|_, count| *count != 0.0);
}

/// Returns the buckets of a literal: consecutive ones from an offset.
pub(crate) fn buckets_from(offset: i32, counts: &[f64]) -> BTreeMap<i32, f64> {
    (offset..).zip(counts).filter(|(_, c)| **c != 0.0).map(|(i, c)| (i, *c)).collect()
}

/// The samples of one classic histogram at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Classic {
    /// Upper bounds and cumulative counts, in insertion order.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

impl Classic {
    /// Sets the cumulative count of the bucket that ends at `bound`; the first count wins.
    pub(crate) fn set_bucket(&mut self, bound: f64, count: f64) {
        if !self.buckets.iter().any(|(b, _)| *b == bound) {
            self.buckets.push((bound, count));
        }
    }

    /// Sets the number of observations.
    pub(crate) fn set_count(&mut self, count: f64) {
        self.count = Some(count);
    }

    /// Sets the sum of the observations.
    pub(crate) fn set_sum(&mut self, sum: f64) {
        self.sum = sum;
    }

    /// Converts to a native histogram with custom bounds.
    ///
    /// Errors: negative or falling counts, and a total count that differs from the last bucket.
    /// Source: `util/convertnhcb` of Prometheus.
    pub(crate) fn to_custom(&self) -> Result<Histogram, String> {
        let mut buckets = self.buckets.clone();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let highest = buckets.last().map_or(0.0, |(_, count)| *count);
        let count = self.count.unwrap_or(highest);
        if buckets.last().is_none_or(|(bound, _)| *bound != f64::INFINITY) {
            buckets.push((f64::INFINITY, count));
        }
        let mut counts = Vec::with_capacity(buckets.len());
        let mut below = 0.0;
        for (bound, cumulative) in &buckets {
            if *cumulative < below {
                return Err(format!(
                    "count is not cumulative: {cumulative} < {below} at le={bound}"
                ));
            }
            counts.push(cumulative - below);
            below = *cumulative;
        }
        if count != below {
            return Err(format!("count mismatch: count={count} != le=+Inf count={below}"));
        }
        Ok(Histogram {
            schema: CUSTOM_BUCKETS_SCHEMA,
            count,
            sum: self.sum,
            custom_values: buckets.iter().map(|b| b.0).filter(|b| b.is_finite()).collect(),
            positive: buckets_from(0, &counts),
            ..Histogram::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_two_schemas_is_at_the_coarser_one() {
        let base =
            Histogram { schema: -1, positive: buckets_from(1, &[1.0]), ..Default::default() };
        let increment =
            Histogram { schema: 0, positive: buckets_from(1, &[2.0, 2.0]), ..Default::default() };
        let sum = base.plus(&increment, 1.0).unwrap();
        assert_eq!(sum.positive, BTreeMap::from([(1, 5.0)]));
        assert!(increment.plus(&base, 1.0).is_err());
    }

    #[test]
    fn classic_buckets_become_differences_between_custom_bounds() {
        let mut classic = Classic::default();
        classic.set_bucket(f64::INFINITY, 7.0);
        classic.set_bucket(1.0, 2.0);
        classic.set_bucket(5.0, 2.0);
        classic.set_sum(9.0);
        let histogram = classic.to_custom().unwrap();
        assert_eq!(histogram.count, 7.0);
        assert_eq!(histogram.custom_values, [1.0, 5.0]);
        assert_eq!(histogram.positive, BTreeMap::from([(0, 2.0), (2, 5.0)]));
        classic.set_count(8.0);
        assert!(classic.to_custom().is_err());
    }
}
