//! `POST /api/v1/write`: receives, decodes, appends, answers. OTLP comes the same way ([`otlp`]).
//!
//! Source: `exp/api/remote` of Prometheus' client library and `storage/remote/write_handler.go`
//! of Prometheus, for what is accepted and how it is answered. Overload is answered with 503,
//! because senders of Prometheus drop what is answered with 429 unless they are told otherwise.
//! That is right for series that there is no room for: the others of their request are stored,
//! and to hold all of a sender back for hours would lose those, too.

mod negotiate;
mod otlp;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use model::{Batch, RejectReason};
use storage::{AppendOutcome, ExemplarOutcome, Overflow, Rejection, SampleKind, Store, StoreError};
use tracing::{debug, error};
use wire::limits::{
    ACTIVE_FLAG, ACTIVE_PER_METRIC_FLAG, BODY_FLAG, BODY_TIMEOUT_FLAG, HEAD_FLAG, Limits,
};
use wire::rejects::series_text;
use wire::{
    Counts, DecodeError, Decoded, Decoder, InflightFull, Rejects, Version, decompress,
    decompressed_len,
};

use super::inflight::{Inflight, Reservation};
use super::metrics::{IngestMetrics, Protocol};
use super::rejection_log::RejectionLog;
use super::retention::floor_text;

/// Messages up to this size are decoded where they were received; it takes less than a
/// millisecond. Larger ones go to a thread that may block.
const DECODE_INLINE_BYTES_MAX: usize = 2 << 20;

/// What answers to the second protocol say.
///
/// Source: <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>, "Required `Written`
/// Response Headers".
const SAMPLES_WRITTEN: &str = "x-prometheus-remote-write-samples-written";
const HISTOGRAMS_WRITTEN: &str = "x-prometheus-remote-write-histograms-written";
const EXEMPLARS_WRITTEN: &str = "x-prometheus-remote-write-exemplars-written";

/// How many sets of buffers are kept for later requests, and how large each may be.
const BUFFERS_KEPT_MAX: usize = 16;
const BUFFER_BYTES_KEPT_MAX: usize = 4 << 20;

/// The least time between two log messages about requests that are turned away.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// After how many seconds a sender that is turned away may come back.
const RETRY_SECONDS: u32 = 1;
/// The same where there is no room for new series: there is some once windows are sealed.
const RETRY_SERIES_SECONDS: u32 = 30;

/// The receiver of remote write requests.
#[derive(Debug)]
pub struct RemoteWrite {
    limits: Limits,
    metrics: IngestMetrics,
    inflight: Arc<Inflight>,
    buffers: Mutex<Vec<Buffers>>,
    turned_away: Mutex<TurnedAway>,
    rejection_log: RejectionLog,
}

/// Requests that were answered with 503 since that was logged.
#[derive(Debug, Default)]
struct TurnedAway {
    requests: u64,
    logged_at: Option<Instant>,
}

/// Memory that outlives a request.
#[derive(Debug, Default)]
struct Buffers {
    body: Vec<u8>,
    message: Vec<u8>,
    decoder: Decoder,
}

/// A request once it is decoded, and what it holds.
struct Work {
    buffers: Buffers,
    reservation: Reservation,
    batch: Batch,
    decoded: Decoded,
}

/// Why a request is not acknowledged, or not wholly.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    /// Send what this server understands.
    #[error("{0}")]
    Unsupported(String),
    /// The connection broke, or the body's framing is wrong.
    #[error("cannot read the request: {0}")]
    Receive(#[source] axum::Error),
    #[error("request took longer than {0:?} to arrive (--{BODY_TIMEOUT_FLAG})")]
    Slow(Duration),
    #[error("request body exceeds the {0} bytes limit (--{BODY_FLAG})")]
    BodyTooLarge(usize),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Overloaded(#[from] InflightFull),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread that decodes has died: our fault.
    #[error("the request could not be decoded")]
    Internal,
    /// The rest has been stored.
    #[error("{}", .0.rejects.to_text())]
    Rejected(Box<Partial>),
}

/// What became of a request of which some was refused.
#[derive(Debug)]
struct Partial {
    rejects: Rejects,
    written: Counts,
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
            turned_away: Mutex::default(),
            rejection_log: RejectionLog::default(),
        }
    }

    /// Answers one request: 204 once all its samples are durable.
    ///
    /// Of a request with some bad series or samples the good ones are durable when the answer,
    /// 400, names the bad ones. Of the second protocol every answer to a request that could be
    /// decompressed says how much was written.
    pub async fn write(&self, store: &Store, request: Request<Body>) -> Response {
        let (head, body) = request.into_parts();
        let version = match negotiate::version(&head.headers) {
            Ok(version) => version,
            Err(text) => return self.unsupported(text),
        };
        let result = self.try_write(store, version, declared_bytes(&head.headers), body).await;
        let (mut response, written) = match result {
            Ok(written) => (StatusCode::NO_CONTENT.into_response(), Some(written)),
            Err(error) => {
                let written = error.written();
                self.log(&error);
                (error.into_response(), written)
            }
        };
        if let (Version::V2, Some(written)) = (version, written) {
            let headers = response.headers_mut();
            for (name, count) in [
                (SAMPLES_WRITTEN, written.floats),
                (HISTOGRAMS_WRITTEN, written.histograms),
                (EXEMPLARS_WRITTEN, written.exemplars),
            ] {
                headers.insert(name, HeaderValue::from(count));
            }
        }
        response
    }

    /// Answers a request in a format that is not understood.
    fn unsupported(&self, text: String) -> Response {
        let error = WriteError::Unsupported(text);
        self.log(&error);
        error.into_response()
    }

    /// Logs why a request failed, with a bound on the number of lines: failures come at the rate
    /// of an overload, or in each request of a sender.
    fn log(&self, error: &WriteError) {
        match error.status() {
            StatusCode::SERVICE_UNAVAILABLE => {
                let mut turned_away =
                    self.turned_away.lock().unwrap_or_else(PoisonError::into_inner);
                turned_away.requests += 1;
                if turned_away.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                    let requests = std::mem::take(&mut turned_away.requests);
                    turned_away.logged_at = Some(Instant::now());
                    error!(%error, requests, "Write requests are turned away.");
                }
            }
            status if status.is_server_error() => error!(%error, "Write request failed."),
            _ => self.log_rejection(error),
        }
    }

    fn log_rejection(&self, error: &WriteError) {
        debug!(%error, "write request rejected");
        let WriteError::Rejected(partial) = error else {
            self.rejection_log.record(error.rejected_as(), 0, &error.to_string());
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
    ) -> Result<Counts, WriteError> {
        let (buffers, reservation) = self.received(declared_bytes, body).await?;
        let started = Instant::now();
        let Work { buffers, reservation, batch, decoded } =
            self.decode(version, buffers, reservation).await?;
        self.keep_buffers(buffers);
        self.metrics.decode_seconds.observe(started.elapsed().as_secs_f64());
        self.append(store, Protocol::RemoteWrite(version), batch, decoded, reservation).await
    }

    /// A whole body, in buffers that are kept for later requests.
    async fn received(
        &self,
        declared_bytes: usize,
        body: Body,
    ) -> Result<(Buffers, Reservation), WriteError> {
        let mut reservation = Reservation::new(&self.inflight);
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

    /// Stores what a request holds, and tells what of it was not taken.
    async fn append(
        &self,
        store: &Store,
        protocol: Protocol,
        batch: Batch,
        mut decoded: Decoded,
        mut reservation: Reservation,
    ) -> Result<Counts, WriteError> {
        let started = Instant::now();
        reservation.set(batch_bytes(&batch));
        let (floats, histograms) = (batch.timestamps.len(), batch.histograms.len());
        let outcome = store.append(batch).await?;
        self.metrics.append_seconds.observe(started.elapsed().as_secs_f64());
        let written = written(floats, histograms, &outcome);
        self.metrics.count_written(protocol, written);
        self.metrics.duplicates.inc_by(outcome.duplicates as u64);
        self.metrics.count_beside(protocol, &outcome);
        add_rejections(&mut decoded.rejects, &outcome, super::now_ms());
        if protocol == Protocol::RemoteWrite(Version::V2) {
            add_late_exemplars(&mut decoded.rejects, &outcome.exemplars);
        }
        self.metrics.count_rejected(protocol, &decoded);
        let rejects = decoded.rejects;
        if rejects.is_empty() {
            Ok(written)
        } else {
            Err(WriteError::Rejected(Box::new(Partial { rejects, written })))
        }
    }

    /// Collects a body into an empty buffer, which grows with what arrives: a length that is
    /// only declared takes nothing from others.
    async fn receive(
        &self,
        body: Body,
        declared_bytes: usize,
        buffer: &mut Vec<u8>,
        reservation: &mut Reservation,
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
        mut reservation: Reservation,
    ) -> Result<Work, WriteError> {
        let message_bytes = decompressed_len(&buffers.body)?;
        // Once for the message and once for what it unfolds to; a length over the limit is
        // refused by that limit's own name below.
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
        let Buffers { body, message, decoder } = &buffers;
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
        mut reservation: Reservation,
    ) -> Result<Work, DecodeError> {
        let length = decompress(&self.body, limits, &mut self.message)?;
        let mut batch = Batch::default();
        let mut grant = |bytes| reservation.add(bytes);
        let message = &self.message;
        let decoded =
            self.decoder.decode(version, message, length, limits, &mut grant, &mut batch)?;
        Ok(Work { buffers: self, reservation, batch, decoded })
    }
}

/// The length that a request declares for its body; 0 where it does not.
fn declared_bytes(headers: &HeaderMap) -> usize {
    let declared = headers.get(header::CONTENT_LENGTH);
    declared.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}

fn batch_bytes(batch: &Batch) -> usize {
    let histograms = batch.histograms.iter().map(|sample| {
        size_of::<model::Histogram>()
            + sample.histogram.heap_bytes()
            + size_of_val(&*sample.histogram.custom_bounds)
    });
    let exemplars = batch.exemplars.iter().map(|exemplar| exemplar.labels.as_bytes().len());
    let metadata = batch.metadata.iter();
    batch.labels_arena.capacity()
        + batch.series.capacity() * size_of::<model::BatchSeries>()
        + batch.timestamps.capacity() * size_of::<i64>()
        + batch.values.capacity() * size_of::<f64>()
        + batch.starts.capacity() * size_of::<i64>()
        + batch.histograms.capacity() * size_of::<model::HistogramSample>()
        + histograms.sum::<usize>()
        + batch.exemplars.capacity() * size_of::<model::BatchExemplar>()
        + exemplars.sum::<usize>()
        + batch.metadata.capacity() * size_of::<model::BatchMetadata>()
        + metadata.map(|m| m.metric.len() + m.help.len() + m.unit.len()).sum::<usize>()
}

/// How much of what a batch held was acknowledged: what was held before included, and exemplars
/// that Prometheus acknowledges without keeping them.
fn written(floats: usize, histograms: usize, outcome: &AppendOutcome) -> Counts {
    Counts {
        floats: (floats - outcome.rejected.of_kind(SampleKind::Float)) as u64,
        histograms: (histograms - outcome.rejected.of_kind(SampleKind::Histogram)) as u64,
        exemplars: (outcome.exemplars.accepted + outcome.exemplars.ignored) as u64,
    }
}

/// Adds what the store refused, in the words of Prometheus.
fn add_rejections(rejects: &mut Rejects, outcome: &AppendOutcome, now_ms: i64) {
    let counts_of = |kind, count| match kind {
        SampleKind::Float => Counts { floats: count, ..Counts::default() },
        SampleKind::Histogram => Counts { histograms: count, ..Counts::default() },
    };
    // Only the first are listed; the others are counted.
    let mut unlisted = outcome.rejected;
    for rejection in &outcome.rejections {
        let Rejection { kind, reason, .. } = rejection;
        unlisted.remove(*reason, *kind);
        rejects.add(*reason, counts_of(*kind, 1), || rejection_text(rejection, now_ms));
    }
    for (reason, kind, count) in unlisted.iter() {
        rejects.add_unnamed(reason, counts_of(kind, count as u64));
    }
}

/// Adds the exemplars that came out of order. Senders of the first protocol are not told.
///
/// Source: `write` and `appendV2` in `storage/remote/write_handler.go` of Prometheus.
fn add_late_exemplars(rejects: &mut Rejects, outcome: &ExemplarOutcome) {
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

fn rejection_text(rejection: &Rejection, now_ms: i64) -> String {
    let Rejection { labels, timestamp_ms, reason, overflow, floor, .. } = rejection;
    let series = series_text(labels.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())));
    let detail = match (reason, overflow) {
        (RejectReason::OutOfBounds, _) if *timestamp_ms > now_ms => {
            ": timestamp is too far in the future".to_owned()
        }
        (reason, Some(overflow)) => overflow_text(*reason, overflow),
        _ => floor.as_ref().map_or_else(String::new, |floor| floor_text(*timestamp_ms, floor)),
    };
    format!("{reason}{detail} for series {series}")
}

fn overflow_text(reason: RejectReason, overflow: &Overflow) -> String {
    let Overflow { metric, metric_series, found, limit } = overflow;
    let most = format!("metric {metric:?} has the most, {metric_series}");
    match reason {
        RejectReason::ActiveSeriesOfMetric => format!(
            ": metric {metric:?} has {found}, the limit is {limit} (--{ACTIVE_PER_METRIC_FLAG})"
        ),
        RejectReason::ActiveSeries => {
            format!(": there are {found}, the limit is {limit} (--{ACTIVE_FLAG}), and {most},")
        }
        _ => format!(
            ": the head takes {found} bytes, near its limit of {limit} (--{HEAD_FLAG}), and \
             {most} of its series,"
        ),
    }
}

impl WriteError {
    /// How much was written, where the request came as far as the decoder.
    fn written(&self) -> Option<Counts> {
        match self {
            WriteError::Rejected(partial) => Some(partial.written),
            WriteError::Decode(DecodeError::Snappy(_))
            | WriteError::Unsupported(_)
            | WriteError::Receive(_)
            | WriteError::Slow(_)
            | WriteError::BodyTooLarge(_)
            | WriteError::Overloaded(_) => None,
            WriteError::Decode(_) | WriteError::Store(_) | WriteError::Internal => {
                Some(Counts::default())
            }
        }
    }

    /// Why a whole request is rejected, as the log names it.
    fn rejected_as(&self) -> &'static str {
        match self {
            WriteError::Unsupported(_) => "unsupported_format",
            WriteError::Receive(_) => "incomplete_request",
            WriteError::BodyTooLarge(_) | WriteError::Decode(DecodeError::TooLarge { .. }) => {
                "request_too_large"
            }
            _ => "malformed_request",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            WriteError::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            WriteError::Rejected(partial) if partial.rejects.is_for_want_of_room() => {
                StatusCode::TOO_MANY_REQUESTS
            }
            WriteError::Receive(_) | WriteError::Rejected(_) => StatusCode::BAD_REQUEST,
            WriteError::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            WriteError::Decode(DecodeError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            WriteError::Decode(DecodeError::InflightFull(_)) => StatusCode::SERVICE_UNAVAILABLE,
            WriteError::Decode(_) => StatusCode::BAD_REQUEST,
            // Senders drop what is answered with 408, and send again after 503.
            WriteError::Slow(_) | WriteError::Overloaded(_) => StatusCode::SERVICE_UNAVAILABLE,
            WriteError::Store(error) => match error {
                StoreError::Overloaded { .. }
                | StoreError::HeadFull { .. }
                | StoreError::Stalled { .. }
                | StoreError::Unavailable(_)
                | StoreError::ReadOnly
                | StoreError::Fenced
                | StoreError::InUse(_)
                | StoreError::Lost(_)
                | StoreError::Overtaken
                | StoreError::Closed => StatusCode::SERVICE_UNAVAILABLE,
                StoreError::Corrupt { .. }
                | StoreError::Budget(_)
                | StoreError::InvalidUrl { .. }
                | StoreError::InvalidSetting { .. }
                | StoreError::Remote { .. }
                | StoreError::NewerFormat { .. }
                | StoreError::NoStore(_)
                | StoreError::Leftovers(_)
                | StoreError::LimitExceeded(_)
                | StoreError::Uncleaned(_) => StatusCode::INTERNAL_SERVER_ERROR,
            },
            WriteError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for WriteError {
    /// In the form of `http.Error` of Go, as Prometheus answers here.
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, format!("{self}\n")).into_response();
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let retry_seconds = match status {
            StatusCode::SERVICE_UNAVAILABLE => Some(RETRY_SECONDS),
            StatusCode::TOO_MANY_REQUESTS => Some(RETRY_SERIES_SECONDS),
            _ => None,
        };
        if let Some(seconds) = retry_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
