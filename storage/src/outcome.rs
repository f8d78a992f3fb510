//! What became of a write.

use std::fmt;

use model::Labels;

use crate::retention::RetentionFloor;

/// The most rejected samples that an outcome lists; the rest are only counted.
pub const REJECTIONS_MAX: usize = 32;

/// What became of a write whose acknowledgement is due: what is accepted is durable.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AppendOutcome {
    /// Samples that are durable now.
    pub accepted: usize,
    /// Samples that were held already, time and value alike: ignored.
    pub duplicates: usize,
    /// Samples that were refused.
    pub rejected: usize,
    /// The same by reason, in the order of [`RejectReason::ALL`], floats and histograms apart as in
    /// [`SampleKind::ALL`].
    pub rejected_by_reason: [[usize; SampleKind::ALL.len()]; RejectReason::ALL.len()],
    /// The first [`REJECTIONS_MAX`] of those that were refused, and the first of each reason.
    pub rejections: Vec<Rejection>,
    /// What became of the exemplars.
    pub exemplars: ExemplarOutcome,
    /// Metadata entries that are durable now, or have been before.
    pub metadata_accepted: usize,
    /// Metadata entries that are too long to be kept.
    pub metadata_dropped: usize,
}

/// What became of the exemplars of a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExemplarOutcome {
    /// Those that are durable now.
    pub accepted: usize,
    /// Those that Prometheus acknowledges and does not keep: it held them already, another of
    /// the same write has overtaken them, or exemplars are turned off.
    pub ignored: usize,
    /// Those that Prometheus drops without a word: of a series that has no sample in the head,
    /// or too far ahead of the clock.
    pub dropped: usize,
    /// Those that lie behind the newest of their series: "out of order exemplar".
    pub out_of_order: usize,
    /// The series of the first [`REJECTIONS_MAX`] of these.
    pub out_of_order_series: Vec<Labels>,
}

/// Exemplars by what became of them, as in [`ExemplarOutcome`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExemplarCounts {
    /// Durable now.
    pub accepted: usize,
    /// Acknowledged and not kept.
    pub ignored: usize,
    /// Dropped without a word.
    pub dropped: usize,
    /// Behind the newest of their series.
    pub out_of_order: usize,
}

impl ExemplarOutcome {
    /// How many of each.
    pub fn counts(&self) -> ExemplarCounts {
        ExemplarCounts {
            accepted: self.accepted,
            ignored: self.ignored,
            dropped: self.dropped,
            out_of_order: self.out_of_order,
        }
    }
}

impl std::iter::Sum for ExemplarCounts {
    fn sum<I: Iterator<Item = ExemplarCounts>>(all: I) -> ExemplarCounts {
        all.fold(ExemplarCounts::default(), |sum, counts| ExemplarCounts {
            accepted: sum.accepted + counts.accepted,
            ignored: sum.ignored + counts.ignored,
            dropped: sum.dropped + counts.dropped,
            out_of_order: sum.out_of_order + counts.out_of_order,
        })
    }
}

/// One refused sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// Its series.
    pub labels: Labels,
    /// Its time.
    pub timestamp_ms: i64,
    /// What its value is.
    pub kind: SampleKind,
    /// Why.
    pub reason: RejectReason,
    /// What was found, where the head has no room for the series.
    pub overflow: Option<Overflow>,
    /// The limit of the retention, where the sample is older than that.
    pub floor: Option<RetentionFloor>,
}

/// What was found when the head had no room for a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overflow {
    /// The metric of the series where the limit is one for each metric; else that which has the
    /// most active series.
    pub metric: String,
    /// Its active series.
    pub metric_series: usize,
    /// Active series, of the metric or of all, or bytes of the head.
    pub found: usize,
    /// The limit of that.
    pub limit: usize,
}

/// Samples that were refused because the head had no room for their series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSeries {
    /// The metric; empty for all those that are not told apart.
    pub metric: String,
    /// The limit.
    pub reason: RejectReason,
    /// How many samples.
    pub samples: u64,
}

/// What the value of a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SampleKind {
    /// A float.
    Float,
    /// A native histogram.
    Histogram,
}

impl SampleKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [SampleKind; 2] = [SampleKind::Float, SampleKind::Histogram];
}

/// Why a sample was refused. Prints as Prometheus words it.
///
/// Source: `ErrOutOfBounds` and its neighbours in `storage/interface.go` of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// Older than the retention, or too far ahead of the clock.
    OutOfBounds,
    /// Behind the newest sample of its series, while late samples are not taken.
    OutOfOrder,
    /// Further behind than the out-of-order window.
    TooOld,
    /// Another value for a time that is held already.
    DuplicateSample,
    /// A label's name or value is longer than a key of the index can be.
    LabelTooLong,
    /// A histogram whose spans do not add up to its buckets, or that has too many of them
    /// ([`HISTOGRAM_BUCKETS_MAX`](crate::chunk::histogram::HISTOGRAM_BUCKETS_MAX)).
    InvalidHistogram,
    /// As many series are active as may be.
    ActiveSeries,
    /// As many series of the metric are active as may be.
    ActiveSeriesOfMetric,
    /// The head has no room for new series.
    HeadSize,
}

impl RejectReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [RejectReason; 9] = [
        RejectReason::OutOfBounds,
        RejectReason::OutOfOrder,
        RejectReason::TooOld,
        RejectReason::DuplicateSample,
        RejectReason::LabelTooLong,
        RejectReason::InvalidHistogram,
        RejectReason::ActiveSeries,
        RejectReason::ActiveSeriesOfMetric,
        RejectReason::HeadSize,
    ];
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::OutOfBounds => "out of bounds",
            RejectReason::OutOfOrder => "out of order sample",
            RejectReason::TooOld => "too old sample",
            RejectReason::DuplicateSample => "duplicate sample for timestamp",
            RejectReason::LabelTooLong => "label name or value too long",
            RejectReason::InvalidHistogram => "histogram with invalid or too many buckets",
            RejectReason::ActiveSeries => "too many active series",
            RejectReason::ActiveSeriesOfMetric => "too many active series of one metric",
            RejectReason::HeadSize => "no memory for new series",
        })
    }
}

impl AppendOutcome {
    /// Notes a refused sample.
    pub(crate) fn reject(
        &mut self,
        labels: impl FnOnce() -> Labels,
        timestamp_ms: i64,
        kind: SampleKind,
        reason: RejectReason,
    ) {
        self.count_rejected(kind, reason);
        if self.is_listed(reason) {
            let (labels, overflow, floor) = (labels(), None, None);
            let rejection = Rejection { labels, timestamp_ms, kind, reason, overflow, floor };
            self.rejections.push(rejection);
        }
    }

    /// Notes a refused sample of a series for which the head has no room.
    pub(crate) fn reject_series(
        &mut self,
        labels: &Labels,
        timestamp_ms: i64,
        kind: SampleKind,
        reason: RejectReason,
        overflow: &Overflow,
    ) {
        self.count_rejected(kind, reason);
        if self.is_listed(reason) {
            let (labels, overflow) = (labels.clone(), Some(overflow.clone()));
            let rejection = Rejection { labels, timestamp_ms, kind, reason, overflow, floor: None };
            self.rejections.push(rejection);
        }
    }

    /// Returns whether a refusal that has been counted is listed: the first ones, and the first of
    /// each reason.
    fn is_listed(&self, reason: RejectReason) -> bool {
        let of_reason: usize = self.rejected_by_reason[reason as usize].iter().sum();
        of_reason == 1 || self.rejections.len() < REJECTIONS_MAX
    }

    fn count_rejected(&mut self, kind: SampleKind, reason: RejectReason) {
        self.rejected += 1;
        self.rejected_by_reason[reason as usize][kind as usize] += 1;
    }
}
