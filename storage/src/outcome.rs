//! Outcome of a write.

use model::{Labels, RejectReason};

use crate::retention::RetentionFloor;

/// Maximum number of rejected samples in an outcome; the rest is only counted.
pub const REJECTIONS_MAX: usize = 32;

/// Outcome of an acknowledged write: accepted samples are durable.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AppendOutcome {
    /// Samples that are durable now.
    pub accepted: usize,
    /// Samples ignored because time and value are already stored.
    pub duplicates: usize,
    /// Samples that were refused.
    pub rejected: RejectCounts,
    /// The first [`REJECTIONS_MAX`] refused samples, and the first of each reason.
    pub rejections: Vec<Rejection>,
    /// Outcome of the exemplars.
    pub exemplars: ExemplarOutcome,
    /// Metadata entries that are durable now, or were before.
    pub metadata_accepted: usize,
    /// Metadata entries that are too long to be kept.
    pub metadata_dropped: usize,
}

/// Counts of refused samples by reason and kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RejectCounts([[usize; SampleKind::ALL.len()]; RejectReason::ALL.len()]);

impl RejectCounts {
    /// Returns the samples of one kind that were refused for one reason.
    pub fn of(&self, reason: RejectReason, kind: SampleKind) -> usize {
        self.0[reason as usize][kind as usize]
    }

    /// Returns the samples of one kind.
    pub fn of_kind(&self, kind: SampleKind) -> usize {
        self.0.iter().map(|of_reason| of_reason[kind as usize]).sum()
    }

    /// Returns all samples.
    pub fn total(&self) -> usize {
        self.0.iter().flatten().sum()
    }

    /// Returns the counts that are not 0.
    pub fn iter(&self) -> impl Iterator<Item = (RejectReason, SampleKind, usize)> {
        let of_reason = |reason| SampleKind::ALL.map(|kind| (reason, kind, self.of(reason, kind)));
        RejectReason::ALL.into_iter().flat_map(of_reason).filter(|(_, _, count)| *count > 0)
    }

    /// Subtracts one sample.
    ///
    /// Panics: none is counted.
    pub fn remove(&mut self, reason: RejectReason, kind: SampleKind) {
        self.0[reason as usize][kind as usize] -= 1;
    }

    fn add(&mut self, reason: RejectReason, kind: SampleKind) {
        self.0[reason as usize][kind as usize] += 1;
    }

    fn of_reason(&self, reason: RejectReason) -> usize {
        self.0[reason as usize].iter().sum()
    }
}

/// Outcome of the exemplars of a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExemplarOutcome {
    /// Exemplars that are durable now.
    pub accepted: usize,
    /// Exemplars that Prometheus acknowledges and does not keep: a duplicate, overtaken by another
    /// of the same write, or exemplars are turned off.
    pub ignored: usize,
    /// Exemplars that Prometheus drops silently: without a sample of their series in the head, or
    /// too far ahead of the clock.
    pub dropped: usize,
    /// Exemplars older than the newest of their series: "out of order exemplar".
    pub out_of_order: usize,
    /// The series of the first [`REJECTIONS_MAX`] out-of-order exemplars.
    pub out_of_order_series: Vec<Labels>,
}

/// Counts of exemplars by outcome, as in [`ExemplarOutcome`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExemplarCounts {
    /// Durable now.
    pub accepted: usize,
    /// Acknowledged and not kept.
    pub ignored: usize,
    /// Dropped silently.
    pub dropped: usize,
    /// Older than the newest of their series.
    pub out_of_order: usize,
}

impl ExemplarOutcome {
    /// Returns the counts.
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
    /// Type of its value.
    pub kind: SampleKind,
    /// Reason for the refusal.
    pub reason: RejectReason,
    /// Exceeded limit, if the head has no room for the series.
    pub overflow: Option<Overflow>,
    /// Retention limit, if the sample is older than that.
    pub floor: Option<RetentionFloor>,
}

/// Limit that the head exceeded when it refused a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overflow {
    /// The metric of the series for a limit per metric; else the metric with the most active
    /// series.
    pub metric: String,
    /// Active series of the metric.
    pub metric_series: usize,
    /// Active series, of the metric or of all, or bytes of the head.
    pub found: usize,
    /// The exceeded limit.
    pub limit: usize,
}

/// Samples that were refused because the head had no room for their series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSeries {
    /// The metric; empty for all metrics that are counted together.
    pub metric: String,
    /// The limit.
    pub reason: RejectReason,
    /// Number of samples.
    pub samples: u64,
}

/// Type of a sample's value.
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

impl AppendOutcome {
    /// Adds a refused sample.
    pub(crate) fn reject(
        &mut self,
        labels: impl FnOnce() -> Labels,
        timestamp_ms: i64,
        kind: SampleKind,
        reason: RejectReason,
    ) {
        self.rejected.add(reason, kind);
        if self.is_listed(reason) {
            let (labels, overflow, floor) = (labels(), None, None);
            let rejection = Rejection { labels, timestamp_ms, kind, reason, overflow, floor };
            self.rejections.push(rejection);
        }
    }

    /// Adds a refused sample of a series for which the head has no room.
    pub(crate) fn reject_series(
        &mut self,
        labels: &Labels,
        timestamp_ms: i64,
        kind: SampleKind,
        reason: RejectReason,
        overflow: &Overflow,
    ) {
        self.rejected.add(reason, kind);
        if self.is_listed(reason) {
            let (labels, overflow) = (labels.clone(), Some(overflow.clone()));
            let rejection = Rejection { labels, timestamp_ms, kind, reason, overflow, floor: None };
            self.rejections.push(rejection);
        }
    }

    /// Returns whether a refusal that has been counted is listed: the first ones, and the first of
    /// each reason.
    fn is_listed(&self, reason: RejectReason) -> bool {
        self.rejected.of_reason(reason) == 1 || self.rejections.len() < REJECTIONS_MAX
    }
}
