//! The metrics of ingest.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};

use super::rejects::{Reason, Rejects};

/// Upper bounds of the durations of a request's stages, in seconds.
const DURATION_BUCKETS: [f64; 11] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0];

/// What ingest counts, registered with the server's other metrics.
#[derive(Debug, Clone)]
pub struct IngestMetrics {
    /// Samples that were acknowledged.
    pub(super) samples: IntCounter,
    /// Samples that were held already.
    pub(super) duplicates: IntCounter,
    rejected: IntCounterVec,
    /// Exemplars passed over.
    pub(super) exemplars: IntCounter,
    /// Metadata entries passed over.
    pub(super) metadata: IntCounter,
    /// Bytes of requests as they were sent.
    pub(super) body_bytes: IntCounter,
    /// Bytes of requests once decompressed.
    pub(super) message_bytes: IntCounter,
    /// Bytes that all requests hold now.
    pub(super) inflight_bytes: IntGauge,
    pub(super) receive_seconds: Histogram,
    pub(super) decode_seconds: Histogram,
    pub(super) append_seconds: Histogram,
    /// Writes of the server's own metrics that failed.
    pub(super) self_metrics_failures: IntCounter,
}

impl IngestMetrics {
    /// Fresh metrics. Panics where the registry holds one of their names, which no input can
    /// bring about.
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
        let rejected = register(
            registry,
            IntCounterVec::new(
                Opts::new(
                    "tessella_remote_write_samples_rejected_total",
                    "Samples that were refused, by reason.",
                ),
                &["reason"],
            ),
        );
        for reason in Reason::ALL {
            rejected.with_label_values(&[reason.as_str()]);
        }
        IngestMetrics {
            samples: counter(
                "tessella_remote_write_samples_total",
                "Samples that were acknowledged.",
            ),
            duplicates: counter(
                "tessella_remote_write_samples_duplicate_total",
                "Acknowledged samples that were held already.",
            ),
            rejected,
            exemplars: counter(
                "tessella_remote_write_exemplars_dropped_total",
                "Exemplars that were dropped: they are not stored yet.",
            ),
            metadata: counter(
                "tessella_remote_write_metadata_dropped_total",
                "Metadata entries that were dropped: they are not stored yet.",
            ),
            body_bytes: counter(
                "tessella_remote_write_received_bytes_total",
                "Bytes of requests as they were sent.",
            ),
            message_bytes: counter(
                "tessella_remote_write_decompressed_bytes_total",
                "Bytes of requests once decompressed.",
            ),
            inflight_bytes: register(
                registry,
                IntGauge::new(
                    "tessella_remote_write_inflight_bytes",
                    "Bytes that requests hold now.",
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

    /// Counts what was refused.
    pub(super) fn count_rejects(&self, rejects: &Rejects) {
        for (reason, samples) in rejects.samples().filter(|(_, samples)| *samples > 0) {
            self.rejected.with_label_values(&[reason.as_str()]).inc_by(samples);
        }
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let metric = made.expect("the name and the labels are well-formed");
    registry.register(Box::new(metric.clone())).expect("each name is registered once");
    metric
}
