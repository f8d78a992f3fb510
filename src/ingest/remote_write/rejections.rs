//! Samples and exemplars that the store rejects, in the words of Prometheus.

use crate::flags::names::{ACTIVE_FLAG, ACTIVE_PER_METRIC_FLAG, HEAD_FLAG};
use model::{Batch, RejectReason};
use storage::{AppendOutcome, ExemplarOutcome, Overflow, Rejection, SampleKind};
use wire::rejects::series_text;
use wire::{Counts, Decoded, Rejects};

use crate::tenancy::TenantLabel;

use super::retention::floor_text;

/// Returns the counts acknowledged, duplicates included, and exemplars that Prometheus acknowledges
/// without keeping them.
pub(super) fn written(floats: usize, histograms: usize, outcome: &AppendOutcome) -> Counts {
    Counts {
        floats: (floats - outcome.rejected.of_kind(SampleKind::Float)) as u64,
        histograms: (histograms - outcome.rejected.of_kind(SampleKind::Histogram)) as u64,
        exemplars: (outcome.exemplars.accepted + outcome.exemplars.ignored) as u64,
    }
}

/// Numbers of entries of a request, those that the decoder has rejected included.
pub(super) struct ReceivedEntries {
    /// Floats and histograms.
    pub(super) samples: u64,
    /// Exemplars and metadata.
    pub(super) others: u64,
}

/// Counts the entries of a request.
pub(super) fn received(batch: &Batch, decoded: &Decoded) -> ReceivedEntries {
    let rejects = decoded.rejects.counts().fold(Counts::default(), |sum, (_, of)| sum + of);
    let dropped = decoded.exemplars_dropped + decoded.metadata_dropped;
    ReceivedEntries {
        samples: batch.sample_count() as u64 + rejects.floats + rejects.histograms,
        others: (batch.exemplars.len() + batch.metadata.len()) as u64 + rejects.exemplars + dropped,
    }
}

/// Adds the samples that the store rejected. Texts for a tenant do not name metrics of others.
pub(super) fn add_rejections(
    rejects: &mut Rejects,
    outcome: &AppendOutcome,
    now_ms: i64,
    tenant: Option<&TenantLabel>,
) {
    let counts_of = |kind, count| match kind {
        SampleKind::Float => Counts { floats: count, ..Counts::default() },
        SampleKind::Histogram => Counts { histograms: count, ..Counts::default() },
    };
    // The store lists the first rejections and counts the others.
    let mut unlisted = outcome.rejected;
    for rejection in &outcome.rejections {
        let Rejection { kind, reason, .. } = rejection;
        unlisted.remove(*reason, *kind);
        rejects.add(*reason, counts_of(*kind, 1), || rejection_text(rejection, now_ms, tenant));
    }
    for (reason, kind, count) in unlisted.iter() {
        rejects.add_unnamed(reason, counts_of(kind, count as u64));
    }
}

/// Adds the exemplars that came out of order. Responses of the first protocol omit them.
///
/// Source: `write` and `appendV2` in `storage/remote/write_handler.go` of Prometheus.
pub(super) fn add_late_exemplars(rejects: &mut Rejects, outcome: &ExemplarOutcome) {
    for labels in &outcome.out_of_order_series {
        let counts = Counts { exemplars: 1, ..Counts::default() };
        rejects.add(RejectReason::OutOfOrder, counts, || {
            let series = series_text(labels.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
            format!("out of order exemplar for series {series}")
        });
    }
    let unlisted = outcome.out_of_order - outcome.out_of_order_series.len();
    let counts = Counts { exemplars: unlisted as u64, ..Counts::default() };
    rejects.add_unnamed(RejectReason::OutOfOrder, counts);
}

fn rejection_text(rejection: &Rejection, now_ms: i64, tenant: Option<&TenantLabel>) -> String {
    let Rejection { labels, timestamp_ms, reason, overflow, floor, .. } = rejection;
    let series = series_text(labels.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
    let detail = match (reason, overflow) {
        (RejectReason::OutOfBounds, _) if *timestamp_ms > now_ms => {
            ": timestamp is too far in the future".to_owned()
        }
        (reason, Some(overflow)) => overflow_text(*reason, overflow, tenant),
        _ => floor.as_ref().map_or_else(String::new, |floor| floor_text(*timestamp_ms, floor)),
    };
    format!("{reason}{detail} for series {series}")
}

fn overflow_text(
    reason: RejectReason,
    overflow: &Overflow,
    tenant: Option<&TenantLabel>,
) -> String {
    let Overflow { metric, metric_series, found, limit } = overflow;
    let most = |of: &str| match tenant {
        Some(_) => ",".to_owned(),
        None => format!(", and metric {metric:?} has the most, {metric_series}{of},"),
    };
    match reason {
        RejectReason::ActiveSeriesOfMetric => format!(
            ": metric {metric:?} has {found}, the limit is {limit} (--{ACTIVE_PER_METRIC_FLAG})"
        ),
        RejectReason::ActiveSeriesOfTenant => format!(
            ": tenant {} has {found}, the limit is {limit} (active_series of tenants in the \
             configuration file)",
            tenant.map_or("", |label| &label.tenant)
        ),
        RejectReason::ActiveSeries => {
            format!(": there are {found}, the limit is {limit} (--{ACTIVE_FLAG}){}", most(""))
        }
        _ => format!(
            ": the head takes {found} bytes, near its limit of {limit} (--{HEAD_FLAG}){}",
            most(" of its series")
        ),
    }
}
