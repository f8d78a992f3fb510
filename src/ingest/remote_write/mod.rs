//! Remote write: receives, decodes and appends a request. [`otlp`] does the same for OTLP.
//!
//! Formats and HTTP responses are in `http::write`.

mod batch_shape;
mod error;
mod otlp;
mod rejections;
mod retention;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use futures::StreamExt;
use model::Batch;
use storage::Store;
use tracing::{debug, error};
use wire::limits::Limits;
use wire::{Counts, DecodeError, Decoded, Decoder, Version, decompress, decompressed_len};

use super::inflight::{Inflight, InflightReservation};
use super::metrics::{IngestMetrics, Protocol};
use super::rejection_log::RejectionLog;
use crate::tenancy::{TenantLabel, label_batch};
use batch_shape::BatchShape;
use error::PartialWrite;
pub(crate) use error::{WriteError, WriteErrorKind};
pub(crate) use otlp::OtlpFormat;

/// Maximum size of a message that is decoded on the thread that received it, within about a
/// millisecond. Larger ones are decoded on a thread that may block.
const DECODE_INLINE_BYTES_MAX: usize = 2 << 20;

/// Maximum number of buffer sets that are kept for later requests.
const BUFFERS_KEPT_MAX: usize = 16;
/// Maximum capacity of a buffer that is kept.
const BUFFER_BYTES_KEPT_MAX: usize = 4 << 20;

/// Minimum time between two log messages about unavailability.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The receiver of remote write requests.
#[derive(Debug)]
pub struct RemoteWrite {
    limits: Limits,
    metrics: IngestMetrics,
    inflight: Arc<Inflight>,
    buffers: Mutex<Vec<Buffers>>,
    unavailable: Mutex<UnavailableLog>,
    rejection_log: RejectionLog,
}

/// Requests that the server could not accept since that was last logged.
#[derive(Debug, Default)]
struct UnavailableLog {
    requests: u64,
    logged_at: Option<Instant>,
}

/// Memory that outlives a request.
#[derive(Debug, Default)]
struct Buffers {
    body: Vec<u8>,
    message: Vec<u8>,
    decoder: Decoder,
    shape: BatchShape,
}

/// A decoded request with its buffers and reservation.
struct Work {
    buffers: Buffers,
    reservation: InflightReservation,
    batch: Batch,
    decoded: Decoded,
}

/// Decoded write, with the label of its tenant.
struct DecodedWrite {
    batch: Batch,
    decoded: Decoded,
    reservation: InflightReservation,
    label: Option<TenantLabel>,
}

impl RemoteWrite {
    /// A receiver with its limits.
    pub fn new(limits: Limits, metrics: IngestMetrics) -> RemoteWrite {
        let inflight = Inflight::new(limits.inflight_bytes_max, metrics.inflight_bytes.clone());
        RemoteWrite {
            limits,
            metrics,
            inflight: Arc::new(inflight),
            buffers: Mutex::default(),
            unavailable: Mutex::default(),
            rejection_log: RejectionLog::default(),
        }
    }

    /// Stores a request of `declared_bytes`, and returns once all its samples are durable.
    ///
    /// Errors: of a partial rejection, the valid samples are durable.
    pub(crate) async fn write(
        &self,
        store: &Store,
        version: Version,
        declared_bytes: usize,
        body: Body,
        label: Option<TenantLabel>,
    ) -> Result<Counts, WriteError> {
        let result = self.try_write(store, version, declared_bytes, body, label).await;
        result.inspect_err(|error| self.log(error))
    }

    /// Logs and returns the error of a request whose format is unknown.
    pub(crate) fn unsupported(&self, text: String) -> WriteError {
        let error = WriteError::Unsupported(text);
        self.log(&error);
        error
    }

    /// Logs an error, with a bound on the number of lines: errors come at the rate of an overload,
    /// or in each request of a sender.
    fn log(&self, error: &WriteError) {
        match error.kind() {
            WriteErrorKind::Unavailable => {
                let mut log = self.unavailable.lock().unwrap_or_else(PoisonError::into_inner);
                log.requests += 1;
                if log.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                    let requests = std::mem::take(&mut log.requests);
                    log.logged_at = Some(Instant::now());
                    error!(%error, requests, "write requests cannot be accepted");
                }
            }
            WriteErrorKind::Internal => error!(%error, "write request failed"),
            _ => self.log_rejection(error),
        }
    }

    fn log_rejection(&self, error: &WriteError) {
        debug!(%error, "write request rejected");
        let WriteError::Rejected(partial) = error else {
            self.rejection_log.record(error.reason(), 0, &error.to_string());
            return;
        };
        let rejects = &partial.rejects;
        for (reason, example) in
            rejects.examples().filter(|(reason, _)| !reason.is_for_want_of_room())
        {
            let counts = rejects.counts_of(reason);
            self.rejection_log.record(reason.as_str(), counts.floats + counts.histograms, example);
        }
    }

    async fn try_write(
        &self,
        store: &Store,
        version: Version,
        declared_bytes: usize,
        body: Body,
        label: Option<TenantLabel>,
    ) -> Result<Counts, WriteError> {
        let (buffers, reservation) = self.received(declared_bytes, body).await?;
        let started = Instant::now();
        let Work { buffers, reservation, batch, decoded } =
            self.decode(version, buffers, reservation).await?;
        self.keep_buffers(buffers);
        self.metrics.decode_seconds.observe(started.elapsed().as_secs_f64());
        let write = DecodedWrite { batch, decoded, reservation, label };
        self.append(store, Protocol::RemoteWrite(version), write).await
    }

    /// Receives a whole body into buffers that are kept for later requests.
    async fn received(
        &self,
        declared_bytes: usize,
        body: Body,
    ) -> Result<(Buffers, InflightReservation), WriteError> {
        let mut reservation = InflightReservation::new(&self.inflight);
        let mut buffers = self.take_buffers();
        let started = Instant::now();
        let receiving = self.receive(body, declared_bytes, &mut buffers.body, &mut reservation);
        tokio::time::timeout(self.limits.body_timeout, receiving)
            .await
            .map_err(|_| WriteError::Slow(self.limits.body_timeout))??;
        self.metrics.receive_seconds.observe(started.elapsed().as_secs_f64());
        self.metrics.body_bytes.inc_by(buffers.body.len() as u64);
        Ok((buffers, reservation))
    }

    /// Appends a decoded request to the store.
    ///
    /// Errors: rejected samples included.
    async fn append(
        &self,
        store: &Store,
        protocol: Protocol,
        write: DecodedWrite,
    ) -> Result<Counts, WriteError> {
        let DecodedWrite { mut batch, mut decoded, mut reservation, label } = write;
        let started = Instant::now();
        if let Some(label) = &label {
            let received = rejections::received(&batch, &decoded);
            label.usage.receive(received.samples, received.others, started)?;
            // The labels are copied.
            reservation.add(batch.labels_arena.len())?;
            if !label_batch(&mut batch, &label.name, &label.tenant) {
                return Err(WriteError::LabelsTooLarge);
            }
        }
        reservation.set(batch.memory_bytes());
        let (floats, histograms) = (batch.timestamps.len(), batch.histograms.len());
        let outcome = store.append_reserved(batch, Box::new(reservation)).await?;
        self.metrics.append_seconds.observe(started.elapsed().as_secs_f64());
        let written = rejections::written(floats, histograms, &outcome);
        self.metrics.count_written(protocol, written);
        self.metrics.duplicates.inc_by(outcome.duplicates as u64);
        self.metrics.count_exemplars_and_metadata(protocol, &outcome);
        rejections::add_rejections(&mut decoded.rejects, &outcome, super::now_ms(), label.as_ref());
        if protocol == Protocol::RemoteWrite(Version::V2) {
            rejections::add_late_exemplars(&mut decoded.rejects, &outcome.exemplars);
        }
        self.metrics.count_rejected(protocol, &decoded);
        let rejects = decoded.rejects;
        if let Some(label) = &label {
            for (reason, counts) in rejects.counts() {
                label.usage.count_rejected(reason, counts.floats + counts.histograms);
            }
        }
        if rejects.is_empty() {
            Ok(written)
        } else {
            Err(WriteError::Rejected(Box::new(PartialWrite { rejects, written })))
        }
    }

    /// Collects a body into an empty buffer. The buffer grows with the bytes received, so a length
    /// that is only declared reserves nothing.
    async fn receive(
        &self,
        body: Body,
        declared_bytes: usize,
        buffer: &mut Vec<u8>,
        reservation: &mut InflightReservation,
    ) -> Result<(), WriteError> {
        let limit = self.limits.body_bytes_max;
        if declared_bytes > limit {
            return Err(WriteError::BodyTooLarge(limit));
        }
        buffer.clear();
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(WriteError::Receive)?;
            let bytes = buffer.len() + chunk.len();
            if bytes > limit {
                return Err(WriteError::BodyTooLarge(limit));
            }
            reservation.add(chunk.len())?;
            if bytes > buffer.capacity() {
                let capacity = (2 * bytes).min(declared_bytes.max(bytes));
                buffer.reserve_exact(capacity - buffer.len());
            }
            buffer.extend_from_slice(&chunk);
        }
        Ok(())
    }

    async fn decode(
        &self,
        version: Version,
        buffers: Buffers,
        mut reservation: InflightReservation,
    ) -> Result<Work, WriteError> {
        let message_bytes = decompressed_len(&buffers.body)?;
        // Once for the message and once for its decoded form. `decompress` rejects a length over
        // the limit.
        if message_bytes <= self.limits.decompressed_bytes_max {
            reservation.add(2 * message_bytes)?;
        }
        self.metrics.message_bytes.inc_by(message_bytes as u64);
        if message_bytes <= DECODE_INLINE_BYTES_MAX {
            return Ok(buffers.decode(version, &self.limits, reservation)?);
        }
        let limits = self.limits.clone();
        let decoding =
            tokio::task::spawn_blocking(move || buffers.decode(version, &limits, reservation));
        Ok(decoding.await.map_err(|_| WriteError::Internal)??)
    }

    fn take_buffers(&self) -> Buffers {
        let mut kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        kept.pop().unwrap_or_default()
    }

    fn keep_buffers(&self, buffers: Buffers) {
        let Buffers { body, message, decoder, shape: _ } = &buffers;
        let bytes = [body.capacity(), message.capacity(), decoder.heap_bytes()];
        if bytes.into_iter().any(|bytes| bytes > BUFFER_BYTES_KEPT_MAX) {
            return;
        }
        let mut kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < BUFFERS_KEPT_MAX {
            kept.push(buffers);
        }
    }
}

impl Buffers {
    fn decode(
        mut self,
        version: Version,
        limits: &Limits,
        mut reservation: InflightReservation,
    ) -> Result<Work, DecodeError> {
        let length = decompress(&self.body, limits, &mut self.message)?;
        let mut batch = self.allocate_batch(length, &mut reservation);
        let mut grant = |bytes| reservation.add(bytes);
        let message = &self.message;
        let decoded =
            self.decoder.decode(version, message, length, limits, &mut grant, &mut batch)?;
        self.shape.note(&batch, length);
        Ok(Work { buffers: self, reservation, batch, decoded })
    }

    /// Returns an empty batch for a message, whose length is reserved for it: with room for a batch
    /// like the previous one, if all of it can be reserved.
    fn allocate_batch(&self, message_bytes: usize, reservation: &mut InflightReservation) -> Batch {
        let Some(room) = self.shape.room(message_bytes) else { return Batch::default() };
        match reservation.add(room.bytes().saturating_sub(message_bytes)) {
            Ok(()) => room.allocate(),
            Err(_) => Batch::default(),
        }
    }
}
