//! OTLP metrics: received and stored like remote write, in their own encodings.

use axum::body::Body;
use storage::Store;
use wire::otlp::{self, Encoding, Settings};
use wire::{Counts, Decoded, Limits, gunzip};

use super::{Buffers, DecodedWrite, InflightReservation, Protocol, RemoteWrite, Work, WriteError};
use crate::tenancy::TenantLabel;

/// Format of an OTLP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtlpFormat {
    pub(crate) encoding: Encoding,
    pub(crate) is_compressed: bool,
}

impl RemoteWrite {
    /// Stores an OTLP request of `declared_bytes`, and returns once all its samples are durable.
    ///
    /// Errors: of a partial rejection, the valid data points are durable.
    pub(crate) async fn write_otlp(
        &self,
        store: &Store,
        format: OtlpFormat,
        settings: Settings,
        declared_bytes: usize,
        body: Body,
        label: Option<TenantLabel>,
    ) -> Result<Counts, WriteError> {
        let writing = self.try_write_otlp(store, format, settings, declared_bytes, body, label);
        let result = writing.await;
        result.inspect_err(|error| self.log(error))
    }

    async fn try_write_otlp(
        &self,
        store: &Store,
        format: OtlpFormat,
        settings: Settings,
        declared_bytes: usize,
        body: Body,
        label: Option<TenantLabel>,
    ) -> Result<Counts, WriteError> {
        let (buffers, reservation) = self.received(declared_bytes, body).await?;
        let started = std::time::Instant::now();
        let limits = self.limits.clone();
        // The decoded size is known only after decompression, so this may take long.
        let decoding = tokio::task::spawn_blocking(move || {
            buffers.decode_otlp(format, &settings, &limits, reservation)
        });
        let (work, message_bytes) = decoding.await.map_err(|_| WriteError::Internal)??;
        let Work { buffers, reservation, batch, decoded } = work;
        self.keep_buffers(buffers);
        self.metrics.message_bytes.inc_by(message_bytes as u64);
        self.metrics.decode_seconds.observe(started.elapsed().as_secs_f64());
        let write = DecodedWrite { batch, decoded, reservation, label };
        self.append(store, Protocol::Otlp, write).await
    }
}

impl Buffers {
    /// Decodes the body. Returns the decompressed bytes, too.
    fn decode_otlp(
        mut self,
        format: OtlpFormat,
        settings: &Settings,
        limits: &Limits,
        mut reservation: InflightReservation,
    ) -> Result<(Work, usize), WriteError> {
        let mut grant = |bytes| reservation.add(bytes);
        let message = if format.is_compressed {
            gunzip(&self.body, limits, &mut grant, &mut self.message)?;
            &self.message
        } else {
            &self.body
        };
        let message_bytes = message.len();
        // As for remote write, the decoded form is granted the length of the message first.
        grant(message_bytes)?;
        let mut batch = self.allocate_batch(message_bytes, &mut reservation);
        let mut grant = |bytes| reservation.add(bytes);
        let decoded: Decoded =
            otlp::decode(format.encoding, message, settings, limits, &mut grant, &mut batch)?;
        self.shape.note(&batch, message_bytes);
        Ok((Work { buffers: self, reservation, batch, decoded }, message_bytes))
    }
}
