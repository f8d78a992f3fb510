//! Metrics of ingest.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};
use storage::AppendOutcome;

use model::RejectReason;
use wire::{Counts, Decoded, Version};

/// Protocol of a write request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Remote write.
    RemoteWrite(Version),
    /// OTLP.
    Otlp,
}

/// Bucket bounds for durations of the stages of a request, in seconds.
const DURATION_BUCKETS: [f64; 11] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0];

/// Metrics of ingest.
#[derive(Debug, Clone)]
pub struct IngestMetrics {
    /// Samples that were stored already.
    pub(super) duplicates: IntCounter,
    v1: VersionMetrics,
    v2: VersionMetrics,
    otlp: VersionMetrics,
    /// Samples of series with invalid labels, under the name of Prometheus.
    invalid_labels: IntCounter,
    /// Bytes of requests as sent.
    pub(super) body_bytes: IntCounter,
    /// Bytes of decompressed requests.
    pub(super) message_bytes: IntCounter,
    /// Bytes of requests in progress.
    pub(super) inflight_bytes: IntGauge,
    pub(super) receive_seconds: Histogram,
    pub(super) decode_seconds: Histogram,
    pub(super) append_seconds: Histogram,
    /// Writes of the server's own metrics that failed.
    pub(super) self_metrics_failures: IntCounter,
}

/// Metrics per protocol.
#[derive(Debug, Clone)]
struct VersionMetrics {
    /// Acknowledged samples: floats, histograms.
    samples: [IntCounter; 2],
    /// Rejected samples by reason: floats, histograms.
    samples_rejected: [[IntCounter; 2]; RejectReason::ALL.len()],
    exemplars: IntCounter,
    exemplars_dropped: IntCounter,
    exemplars_rejected: IntCounter,
    metadata: IntCounter,
    metadata_rejected: IntCounter,
}

/// Values of the label `type`, as in Prometheus' own metrics.
const TYPES: [&str; 2] = ["float", "histogram"];

impl IngestMetrics {
    /// Registers the metrics.
    ///
    /// Panics: the registry has a metric of the same name.
    pub fn new(registry: &Registry) -> IngestMetrics {
        let stages = register(
            registry,
            HistogramVec::new(
                HistogramOpts::new(
                    "tessella_remote_write_duration_seconds",
                    "Time that remote write requests spent in each stage.",
                )
                .buckets(DURATION_BUCKETS.to_vec()),
                &["stage"],
            ),
        );
        let counter = |name: &str, help: &str| register(registry, IntCounter::new(name, help));
        let vectors = Vectors::new(registry);
        IngestMetrics {
            duplicates: counter(
                "tessella_remote_write_samples_duplicate_total",
                "Acknowledged samples that were stored already.",
            ),
            v1: vectors.of("1"),
            v2: vectors.of("2"),
            otlp: vectors.of("otlp"),
            invalid_labels: counter(
                "prometheus_api_remote_write_invalid_labels_samples_total",
                "The total number of received remote write samples and histogram samples which \
                 were rejected due to invalid labels.",
            ),
            body_bytes: counter(
                "tessella_remote_write_received_bytes_total",
                "Bytes of requests as sent.",
            ),
            message_bytes: counter(
                "tessella_remote_write_decompressed_bytes_total",
                "Bytes of decompressed requests.",
            ),
            inflight_bytes: register(
                registry,
                IntGauge::new(
                    "tessella_remote_write_inflight_bytes",
                    "Bytes of requests in progress.",
                ),
            ),
            receive_seconds: stages.with_label_values(&["receive"]),
            decode_seconds: stages.with_label_values(&["decode"]),
            append_seconds: stages.with_label_values(&["append"]),
            self_metrics_failures: counter(
                "tessella_self_metrics_failures_total",
                "Writes of the server's own metrics that failed.",
            ),
        }
    }

    fn of(&self, protocol: Protocol) -> &VersionMetrics {
        match protocol {
            Protocol::RemoteWrite(Version::V1) => &self.v1,
            Protocol::RemoteWrite(Version::V2) => &self.v2,
            Protocol::Otlp => &self.otlp,
        }
    }

    /// Counts acknowledged samples and exemplars.
    pub(super) fn count_written(&self, protocol: Protocol, written: Counts) {
        let [floats, histograms] = &self.of(protocol).samples;
        floats.inc_by(written.floats);
        histograms.inc_by(written.histograms);
        self.of(protocol).exemplars.inc_by(written.exemplars);
    }

    /// Counts outcomes of exemplars and metadata.
    pub(super) fn count_exemplars_and_metadata(&self, protocol: Protocol, outcome: &AppendOutcome) {
        let metrics = self.of(protocol);
        metrics.exemplars_dropped.inc_by(outcome.exemplars.dropped as u64);
        metrics.metadata.inc_by(outcome.metadata_accepted as u64);
        metrics.metadata_rejected.inc_by(outcome.metadata_dropped as u64);
        // For the second protocol, `count_rejected` counts them.
        if protocol != Protocol::RemoteWrite(Version::V2) {
            metrics.exemplars_rejected.inc_by(outcome.exemplars.out_of_order as u64);
        }
    }

    /// Counts rejected and ignored entries.
    pub(super) fn count_rejected(&self, protocol: Protocol, decoded: &Decoded) {
        let metrics = self.of(protocol);
        for (reason, counts) in decoded.rejects.counts() {
            let [floats, histograms] = &metrics.samples_rejected[reason as usize];
            floats.inc_by(counts.floats);
            histograms.inc_by(counts.histograms);
            metrics.exemplars_rejected.inc_by(counts.exemplars);
            if matches!(
                reason,
                RejectReason::InvalidLabels
                    | RejectReason::DuplicateLabel
                    | RejectReason::Reference
            ) {
                self.invalid_labels.inc_by(counts.floats + counts.histograms);
            }
        }
        metrics.exemplars_rejected.inc_by(decoded.exemplars_dropped);
        metrics.metadata_rejected.inc_by(decoded.metadata_dropped);
    }
}

/// Metrics with a label for the protocol.
struct Vectors {
    samples: IntCounterVec,
    samples_rejected: IntCounterVec,
    exemplars: IntCounterVec,
    exemplars_dropped: IntCounterVec,
    exemplars_rejected: IntCounterVec,
    metadata: IntCounterVec,
    metadata_rejected: IntCounterVec,
}

impl Vectors {
    fn new(registry: &Registry) -> Vectors {
        let vector = |name: &str, labels: &[&str], help: &str| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        Vectors {
            samples: vector(
                "tessella_remote_write_samples_total",
                &["version", "type"],
                "Acknowledged samples.",
            ),
            samples_rejected: vector(
                "tessella_remote_write_samples_rejected_total",
                &["version", "type", "reason"],
                "Rejected samples, by reason.",
            ),
            exemplars: vector(
                "tessella_remote_write_exemplars_total",
                &["version"],
                "Acknowledged exemplars.",
            ),
            exemplars_dropped: vector(
                "tessella_remote_write_exemplars_dropped_total",
                &["version"],
                "Dropped exemplars: of unknown series, or too far in the future.",
            ),
            exemplars_rejected: vector(
                "tessella_remote_write_exemplars_rejected_total",
                &["version"],
                "Rejected or ignored exemplars.",
            ),
            metadata: vector(
                "tessella_remote_write_metadata_total",
                &["version"],
                "Acknowledged metadata entries.",
            ),
            metadata_rejected: vector(
                "tessella_remote_write_metadata_rejected_total",
                &["version"],
                "Metadata entries that were ignored, or too long.",
            ),
        }
    }

    fn of(&self, version: &str) -> VersionMetrics {
        VersionMetrics {
            samples: TYPES.map(|kind| self.samples.with_label_values(&[version, kind])),
            samples_rejected: RejectReason::ALL.map(|reason| {
                let reason = reason.as_str();
                TYPES.map(|kind| self.samples_rejected.with_label_values(&[version, kind, reason]))
            }),
            exemplars: self.exemplars.with_label_values(&[version]),
            exemplars_dropped: self.exemplars_dropped.with_label_values(&[version]),
            exemplars_rejected: self.exemplars_rejected.with_label_values(&[version]),
            metadata: self.metadata.with_label_values(&[version]),
            metadata_rejected: self.metadata_rejected.with_label_values(&[version]),
        }
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let metric = made.expect("the name and the labels are well-formed");
    registry.register(Box::new(metric.clone())).expect("each name is registered once");
    metric
}
