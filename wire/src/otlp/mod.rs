//! Metrics of OpenTelemetry (OTLP) to a [`Batch`](model::Batch).
//!
//! ```text
//! protobuf ─┐
//!           ├─> message ── translate ──> BatchBuilder ──> Batch
//! JSON ─────┘              names, labels, buckets
//! ```
//!
//! [`protobuf`] and [`json`] decode a request into the structs of [`message`], which [`translate`]
//! converts in one pass. The budget of the request bounds the memory of both.

mod exemplar;
mod histogram;
mod json;
mod labels;
mod message;
mod naming;
mod packed_labels;
mod point_labels;
mod protobuf;
mod resource;
#[cfg(test)]
mod tests;
mod translate;
mod value;

use crate::fields::{push_bytes, push_integer};
use std::collections::HashSet;

use model::Batch;

use crate::batch_builder::BatchBuilder;
use crate::decode_budget::DecodeBudget;
use crate::limits::Limits;
use crate::{DecodeError, Decoded, ReserveMemory, check_decompressed_len};

/// Encoding of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/x-protobuf`.
    Protobuf,
    /// `application/json`.
    Json,
}

/// Settings of the translation.
///
/// Source: the section `otlp` of the configuration of Prometheus, with its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `translation_strategy`: whether names end with units and types.
    pub add_suffixes: bool,
    /// `translation_strategy`: whether names keep all their characters.
    pub allow_utf8: bool,
    /// Attributes of the resource that become labels of each series.
    pub promoted: Promoted,
    /// `keep_identifying_resource_attributes`: whether `target_info` also has the attributes from
    /// which `job` and `instance` are made.
    pub keep_identifying: bool,
    /// `convert_histograms_to_nhcb`: whether histograms become native ones.
    pub to_custom_buckets: bool,
    /// `promote_scope_metadata`: whether the scope becomes labels of each series.
    pub promote_scope: bool,
    /// `label_name_underscore_sanitization`: whether `key` is put before a leading underscore.
    pub sanitize_leading_underscore: bool,
    /// `label_name_preserve_multiple_underscores`: whether runs of underscores stay.
    pub preserve_multiple_underscores: bool,
    /// Stores data points with delta temporality as they are.
    pub allow_delta: bool,
    /// Lookback in ns; half of it is the maximum distance between samples of `target_info`.
    pub lookback_ns: u64,
}

/// Attributes of a resource that become labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Promoted {
    /// `promote_resource_attributes`: these.
    Listed(HashSet<String>),
    /// `promote_all_resource_attributes`: all but `ignore_resource_attributes`.
    AllBut(HashSet<String>),
}

impl Default for Settings {
    /// Returns the defaults of Prometheus.
    fn default() -> Settings {
        Settings {
            add_suffixes: true,
            allow_utf8: false,
            promoted: Promoted::Listed(HashSet::new()),
            keep_identifying: false,
            to_custom_buckets: false,
            promote_scope: false,
            sanitize_leading_underscore: true,
            preserve_multiple_underscores: true,
            allow_delta: false,
            lookback_ns: 300_000_000_000,
        }
    }
}

/// Encodes an `ExportMetricsServiceResponse` with rejected data points and their reasons.
pub fn partial_success(rejected: u64, reasons: &str) -> Vec<u8> {
    let mut partial = Vec::new();
    push_integer(&mut partial, 1, rejected);
    push_bytes(&mut partial, 2, reasons.as_bytes());
    let mut message = Vec::new();
    push_bytes(&mut message, 1, &partial);
    message
}

/// Decodes a message into an empty batch.
///
/// Invalid data points are rejected and reported in the result.
///
/// Errors: the message is malformed or over a limit; the batch is then unusable.
pub fn decode(
    encoding: Encoding,
    bytes: &[u8],
    settings: &Settings,
    limits: &Limits,
    reserve: ReserveMemory<'_>,
    batch: &mut Batch,
) -> Result<Decoded, DecodeError> {
    check_decompressed_len(bytes.len(), limits)?;
    batch.clear();
    let mut budget = DecodeBudget::new(limits, bytes.len(), reserve);
    let resources = match encoding {
        Encoding::Protobuf => protobuf::decode(bytes, &mut budget)?,
        Encoding::Json => json::decode(bytes, &mut budget)?,
    };
    translate::translate(&resources, settings, BatchBuilder::new(limits, batch, budget))
}
