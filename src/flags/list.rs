//! The flags that are in force, as the API lists them.

use std::path::PathBuf;

use clap::ValueEnum;

use super::Args;
use crate::units::{format_bytes, format_duration};

impl Args {
    /// Every flag with its value, sorted by name, as `/api/v1/status/flags` lists them.
    pub fn flags(&self) -> Vec<(&'static str, String)> {
        let write = &self.remote_write;
        let path = |path: &Option<PathBuf>| {
            path.as_ref().map_or_else(String::new, |path| path.display().to_string())
        };
        let mut flags = vec![
            ("config.file", path(&self.config_file)),
            ("log.format", value_name(self.log_format)),
            ("log.level", value_name(self.log_level)),
            ("mode", value_name(self.mode)),
            ("otlp.native-delta-ingestion", self.otlp_native_delta.to_string()),
            ("query.delayed-name-removal", self.delayed_name_removal.to_string()),
            ("query.experimental", self.experimental.to_string()),
            ("query.lookback-delta", format_duration(self.lookback_delta)),
            ("query.log-slower-than", format_duration(self.query_logged_from)),
            ("query.max-concurrency", self.query_concurrency_max.to_string()),
            ("query.max-memory", format_bytes(self.query_memory_bytes_max)),
            ("query.max-memory-total", format_bytes(self.query_memory_total_bytes_max)),
            ("query.max-object-store-reads", self.query_object_store_reads_max.to_string()),
            ("query.max-queue", self.query_queue_max.to_string()),
            ("query.max-samples", self.query_samples_max.to_string()),
            ("query.max-sending-per-client", self.query_sending_per_client_max.to_string()),
            ("query.max-series", self.query_series_max.to_string()),
            ("query.max-steps", self.query_steps_max.to_string()),
            ("query.result-cache-size", format_bytes(self.query_results_bytes_max)),
            ("query.timeout", format_duration(self.query_timeout)),
            ("query.use-start-timestamps", self.use_start_timestamps.to_string()),
            ("reader.lag", format_duration(self.reader_lag)),
            ("remote-write.body-timeout", format_duration(write.body_timeout)),
            ("remote-write.max-active-series", write.active_series_max.to_string()),
            (
                "remote-write.max-active-series-per-metric",
                write.active_series_per_metric_max.to_string(),
            ),
            ("remote-write.max-body-size", format_bytes(write.body_bytes_max)),
            ("remote-write.max-decompressed-size", format_bytes(write.decompressed_bytes_max)),
            ("remote-write.max-inflight-size", format_bytes(write.inflight_bytes_max)),
            ("remote-write.max-label-name-length", write.label_name_bytes_max.to_string()),
            ("remote-write.max-label-value-length", write.label_value_bytes_max.to_string()),
            ("remote-write.max-labels-per-series", write.labels_per_series_max.to_string()),
            ("remote-write.max-samples-per-request", write.samples_max.to_string()),
            ("remote-write.max-series-per-request", write.series_max.to_string()),
            ("self-metrics", self.self_metrics.to_string()),
            ("storage.cache-size", format_bytes(self.cache_bytes_max)),
            ("storage.columns-cache-size", format_bytes(self.columns_bytes_max)),
            ("storage.commit-interval", format_duration(self.commit_interval)),
            ("storage.discard-leftovers", self.discard_leftovers.to_string()),
            ("storage.disk-cache.folder", path(&self.disk_cache_folder)),
            ("storage.disk-cache.size", format_bytes(self.disk_cache_bytes_max)),
            ("storage.exemplars.exemplars-limit", self.exemplars_max.to_string()),
            ("storage.head-size", format_bytes(self.head_bytes_max)),
            ("storage.index-cache-size", format_bytes(self.index_cache_bytes_max)),
            ("storage.log-size", format_bytes(self.log_bytes_max)),
            (
                "storage.out-of-order-window",
                self.out_of_order_window.map_or_else(String::new, format_duration),
            ),
            ("storage.read-timeout", format_duration(self.storage_read_timeout)),
            ("storage.remote.read-concurrent-limit", self.remote_read_concurrency_max.to_string()),
            (
                "storage.remote.read-max-bytes-in-frame",
                self.remote_read_frame_bytes_max.to_string(),
            ),
            ("storage.remote.read-sample-limit", self.remote_read_samples_max.to_string()),
            ("storage.retention.confirmation", format_duration(self.retention_confirmation)),
            ("storage.retention.size", self.retention_bytes.map_or_else(String::new, format_bytes)),
            ("storage.retention.time", self.retention.map_or_else(String::new, format_duration)),
            ("storage.warm-up-span", format_duration(self.warm_up_span)),
            ("storage.write-timeout", format_duration(self.storage_write_timeout)),
            ("storage.url", storage::without_credentials(&self.storage_url)),
            ("take-over", self.take_over.to_string()),
            ("web.config.file", path(&self.web_config_file)),
            ("web.cors.origin", self.cors_origin.source.clone()),
            ("web.enable-admin-api", self.enable_admin_api.to_string()),
            ("web.enable-lifecycle", self.enable_lifecycle.to_string()),
            ("web.enable-otlp-receiver", self.enable_otlp_receiver.to_string()),
            ("web.external-url", self.external_url.as_str().to_owned()),
            ("web.listen-address", self.listen_address.to_string()),
            ("web.max-connections", self.connections_max.to_string()),
            ("web.page-title", self.page_title.clone()),
            ("web.read-timeout", format_duration(self.read_timeout)),
            ("web.request-log", self.request_log.to_string()),
            ("web.route-prefix", format!("/{}", self.route_prefix().trim_start_matches('/'))),
            ("web.search.max-limit", self.search_limit_max.to_string()),
            ("web.shutdown-timeout", format_duration(self.shutdown_timeout)),
            ("web.write-stall-timeout", format_duration(self.write_stall_timeout)),
            ("web.write-timeout", format_duration(self.write_timeout)),
        ];
        flags.extend(self.object_store.flags());
        flags.sort_unstable();
        flags
    }
}

fn value_name(value: impl ValueEnum + Copy) -> String {
    value.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
}
