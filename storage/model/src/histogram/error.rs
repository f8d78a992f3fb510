//! Errors of histograms, with the messages of Prometheus.

use std::fmt;

use crate::number_text::general;

/// Part of a histogram that an error is about; as text, the prefix of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Whole histogram.
    Whole,
    /// Buckets above zero.
    Positive,
    /// Buckets below zero.
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

/// Error of a histogram or an operation on it. All but [`HistogramError::IncompatibleSchemas`] and
/// the three `Reduces…` mean that the histogram itself is malformed.
///
/// Source: `model/histogram/generic.go` of Prometheus, including texts, except
/// [`HistogramError::IndexOutOfRange`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HistogramError {
    /// One operand has custom buckets, the other does not.
    #[error(
        "cannot apply this operation on histograms with a mix of exponential and custom bucket \
         schemas"
    )]
    IncompatibleSchemas,
    /// The schema is not supported.
    #[error(
        "histogram has an invalid schema, which must be between -4 and 8 for exponential buckets, \
         or -53 for custom buckets, got schema {schema}"
    )]
    InvalidSchema {
        /// Schema.
        schema: i32,
    },
    /// The resolution of custom buckets was to be reduced.
    #[error("cannot reduce resolution when there are custom buckets")]
    ReducesCustomBuckets,
    /// The resolution was to be reduced to custom buckets.
    #[error("cannot reduce resolution to custom buckets schema")]
    ReducesToCustomBuckets,
    /// The resolution was to be reduced to one that is not coarser.
    #[error("cannot reduce resolution from schema {from} to {to}")]
    ReducesToFiner {
        /// Schema of the histogram.
        from: i8,
        /// Requested schema.
        to: i8,
    },
    /// A span begins before the previous one ends.
    #[error(
        "{side}span number {number} with offset {offset}: histogram has a span whose offset is \
         negative"
    )]
    NegativeOffset {
        /// Part of the histogram.
        side: Side,
        /// Number of the span, from 1.
        number: usize,
        /// Offset of the span.
        offset: i32,
    },
    /// The spans have more or fewer buckets than there are counts.
    #[error(
        "{side}spans need {needed} buckets, have {found} buckets: histogram spans specify \
         different number of buckets than provided"
    )]
    BucketsMismatch {
        /// Part of the histogram.
        side: Side,
        /// Buckets of all spans.
        needed: u64,
        /// Number of counts.
        found: usize,
    },
    /// The spans have more buckets than there are counts.
    #[error(
        "have {found} buckets but spans need more: histogram spans specify different number of \
         buckets than provided"
    )]
    BucketsMissing {
        /// Number of counts.
        found: usize,
    },
    /// A bucket is out of the range of floats. Prometheus keeps such buckets as long as their indices
    /// do not overflow; here gaps would overflow.
    #[error("{side}bucket index {index} is out of range")]
    IndexOutOfRange {
        /// Part of the histogram.
        side: Side,
        /// Index of the bucket.
        index: i64,
    },
    /// A bucket has a negative count.
    #[error(
        "{side}bucket number {number} has observation count of {count}: histogram has a bucket \
         whose observation count is negative"
    )]
    NegativeBucketCount {
        /// Part of the histogram.
        side: Side,
        /// Number of the bucket, from 1.
        number: usize,
        /// Count of the bucket.
        count: String,
    },
    /// The zero bucket has a negative count.
    #[error(
        "zero bucket has observation count of {}: histogram has a bucket whose observation count \
         is negative",
        general(*count)
    )]
    NegativeZeroCount {
        /// Count.
        count: f64,
    },
    /// The count of all observations is negative.
    #[error(
        "observation count is  {}: histogram's observation count is negative",
        general(*count)
    )]
    NegativeCount {
        /// Count.
        count: f64,
    },
    /// The buckets have more observations than the count.
    #[error(
        "{found} observations found in buckets, but the Count field is {count}: histogram's \
         observation count should be at least the number of observations found in the buckets"
    )]
    CountTooSmall {
        /// Observations in buckets.
        found: u64,
        /// Count of the histogram.
        count: u64,
    },
    /// The buckets have fewer or more observations than the count.
    #[error(
        "{found} observations found in buckets, but the Count field is {count}: histogram's \
         observation count should equal the number of observations found in the buckets (in \
         absence of NaN)"
    )]
    CountMismatch {
        /// Observations in buckets.
        found: u64,
        /// Count of the histogram.
        count: u64,
    },
    /// A custom bound is NaN.
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
        /// Bound.
        previous: f64,
        /// Next bound.
        current: f64,
    },
    /// The last custom bound is +Inf, which is implied.
    #[error(
        "custom buckets: last +Inf bound must not be explicitly defined: histogram custom bounds \
         must be finite"
    )]
    CustomBoundInfinite,
    /// The spans exceed the custom bounds.
    #[error(
        "custom buckets: only {bounds} custom bounds defined which is insufficient to cover total \
         span length of {length}: histogram custom bounds are too few"
    )]
    CustomBoundsTooFew {
        /// Number of bounds.
        bounds: usize,
        /// Number of buckets that the spans cover, including gaps.
        length: i64,
    },
    /// Custom buckets with a populated zero bucket.
    #[error("custom buckets: must have zero count of 0")]
    CustomZeroCount,
    /// Custom buckets with a zero bucket.
    #[error("custom buckets: must have zero threshold of 0")]
    CustomZeroThreshold,
    /// Custom buckets with spans below zero.
    #[error("custom buckets: must not have negative spans")]
    CustomNegativeSpans,
    /// Custom buckets with counts below zero.
    #[error("custom buckets: must not have negative buckets")]
    CustomNegativeBuckets,
    /// Custom bounds with exponential buckets.
    #[error("histogram with exponential schema must not have custom bounds")]
    ExponentialCustomBounds,
}

/// Formats a number like `%f`: six digits after the point.
///
/// Source: `fmt` of Go.
fn fixed(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { general(value) }
}
