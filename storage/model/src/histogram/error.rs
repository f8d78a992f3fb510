//! Why a histogram is refused, in the words of Prometheus.

use std::fmt;

use crate::number_text::general;

/// The part of a histogram that an error is about; as text, what the message begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// No part in particular.
    Whole,
    /// The buckets above zero.
    Positive,
    /// The buckets below zero.
    Negative,
    /// Custom buckets.
    Custom,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Whole => "",
            Side::Positive => "positive side: ",
            Side::Negative => "negative side: ",
            Side::Custom => "custom buckets: ",
        })
    }
}

/// Why a histogram is refused. All but [`HistogramError::IncompatibleSchemas`] and those that
/// begin with "cannot reduce" say that the histogram itself is malformed.
///
/// Source: `model/histogram/generic.go` of Prometheus, texts included, but for
/// [`HistogramError::IndexOutOfRange`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HistogramError {
    /// One operand has custom buckets, the other does not.
    #[error(
        "cannot apply this operation on histograms with a mix of exponential and custom bucket \
         schemas"
    )]
    IncompatibleSchemas,
    /// A schema that is not kept.
    #[error(
        "histogram has an invalid schema, which must be between -4 and 8 for exponential buckets, \
         or -53 for custom buckets, got schema {schema}"
    )]
    InvalidSchema {
        /// The schema.
        schema: i32,
    },
    /// A resolution was to be reduced that custom buckets do not have.
    #[error("cannot reduce resolution when there are custom buckets")]
    ReducesCustomBuckets,
    /// A resolution was to be reduced to custom buckets.
    #[error("cannot reduce resolution to custom buckets schema")]
    ReducesToCustomBuckets,
    /// A resolution was to be reduced to one that is not coarser.
    #[error("cannot reduce resolution from schema {from} to {to}")]
    ReducesToFiner {
        /// The schema that there is.
        from: i8,
        /// The schema that was asked for.
        to: i8,
    },
    /// A span begins before the one before it ends.
    #[error(
        "{side}span number {number} with offset {offset}: histogram has a span whose offset is \
         negative"
    )]
    NegativeOffset {
        /// Where.
        side: Side,
        /// Which span, from 1.
        number: usize,
        /// Its offset.
        offset: i32,
    },
    /// The spans have more or fewer buckets than there are counts.
    #[error(
        "{side}spans need {needed} buckets, have {found} buckets: histogram spans specify \
         different number of buckets than provided"
    )]
    BucketsMismatch {
        /// Where.
        side: Side,
        /// The buckets of all spans.
        needed: u64,
        /// The counts.
        found: usize,
    },
    /// The spans have more buckets than there are counts.
    #[error(
        "have {found} buckets but spans need more: histogram spans specify different number of \
         buckets than provided"
    )]
    BucketsMissing {
        /// The counts.
        found: usize,
    },
    /// A bucket is so far from 1 that no number falls into it. Prometheus keeps such buckets as
    /// long as their indices do not overflow; here they would make gaps overflow.
    #[error("{side}bucket index {index} is out of range")]
    IndexOutOfRange {
        /// Where.
        side: Side,
        /// The index.
        index: i64,
    },
    /// A bucket has a negative count.
    #[error(
        "{side}bucket number {number} has observation count of {count}: histogram has a bucket \
         whose observation count is negative"
    )]
    NegativeBucketCount {
        /// Where.
        side: Side,
        /// Which bucket, from 1.
        number: usize,
        /// Its count.
        count: String,
    },
    /// The zero bucket has a negative count.
    #[error(
        "zero bucket has observation count of {}: histogram has a bucket whose observation count \
         is negative",
        general(*count)
    )]
    NegativeZeroCount {
        /// The count.
        count: f64,
    },
    /// The count of all observations is negative.
    #[error(
        "observation count is  {}: histogram's observation count is negative",
        general(*count)
    )]
    NegativeCount {
        /// The count.
        count: f64,
    },
    /// The buckets hold more than all observations.
    #[error(
        "{found} observations found in buckets, but the Count field is {count}: histogram's \
         observation count should be at least the number of observations found in the buckets"
    )]
    CountTooSmall {
        /// Observations in buckets.
        found: u64,
        /// Observations as counted.
        count: u64,
    },
    /// The buckets do not hold all observations.
    #[error(
        "{found} observations found in buckets, but the Count field is {count}: histogram's \
         observation count should equal the number of observations found in the buckets (in \
         absence of NaN)"
    )]
    CountMismatch {
        /// Observations in buckets.
        found: u64,
        /// Observations as counted.
        count: u64,
    },
    /// A custom bound is no number.
    #[error("custom buckets: histogram custom bounds must not be NaN")]
    CustomBoundNaN,
    /// Custom bounds do not ascend.
    #[error(
        "custom buckets: previous bound is {} and current is {}: histogram custom bounds must be \
         in strictly increasing order",
        fixed(*previous),
        fixed(*current)
    )]
    CustomBoundsUnordered {
        /// A bound.
        previous: f64,
        /// The one after it.
        current: f64,
    },
    /// The last custom bound is the one that goes without saying.
    #[error(
        "custom buckets: last +Inf bound must not be explicitly defined: histogram custom bounds \
         must be finite"
    )]
    CustomBoundInfinite,
    /// The spans reach beyond the custom bounds.
    #[error(
        "custom buckets: only {bounds} custom bounds defined which is insufficient to cover total \
         span length of {length}: histogram custom bounds are too few"
    )]
    CustomBoundsTooFew {
        /// How many bounds there are.
        bounds: usize,
        /// How many buckets the spans cover, gaps included.
        length: i64,
    },
    /// Custom buckets beside a populated zero bucket.
    #[error("custom buckets: must have zero count of 0")]
    CustomZeroCount,
    /// Custom buckets beside a zero bucket.
    #[error("custom buckets: must have zero threshold of 0")]
    CustomZeroThreshold,
    /// Custom buckets beside spans below zero.
    #[error("custom buckets: must not have negative spans")]
    CustomNegativeSpans,
    /// Custom buckets beside counts below zero.
    #[error("custom buckets: must not have negative buckets")]
    CustomNegativeBuckets,
    /// Custom bounds beside exponential buckets.
    #[error("histogram with exponential schema must not have custom bounds")]
    ExponentialCustomBounds,
}

/// A number like `%f`: six digits after the point.
///
/// Source: `fmt` of Go.
fn fixed(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { general(value) }
}
