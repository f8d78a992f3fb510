//! `POST /api/v1/otlp/v1/metrics`: as remote write, but for what is sent and how it is packed.
//!
//! Source: `DecodeOTLPWriteRequest` and `write_otlp_handler.go` in `storage/remote` of Prometheus.
//! What it does not understand it answers with 400; here that is 415, as for remote write. What it
//! cannot store is answered with 500, and all of the request is lost; here the rest is stored, and
//! the answer is 400. Senders drop what is answered with any of these.

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::Batch;
use storage::Store;
use wire::otlp::{self, Encoding, Settings};
use wire::{Counts, Decoded, Limits, gunzip};

use super::{Buffers, Protocol, RemoteWrite, Reservation, Work, WriteError, declared_bytes};

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// How a request is written and packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    encoding: Encoding,
    is_compressed: bool,
}

impl RemoteWrite {
    /// Answers one request of OTLP: 200 once all its samples are durable.
    ///
    /// Of a request with some bad metrics or data points the good ones are durable when the answer,
    /// 400, names the bad ones.
    pub async fn write_otlp(
        &self,
        store: &Store,
        settings: Settings,
        request: Request<Body>,
    ) -> Response {
        let (head, body) = request.into_parts();
        let form = match form(&head.headers) {
            Ok(form) => form,
            Err(text) => return self.unsupported(text),
        };
        let declared = declared_bytes(&head.headers);
        match self.try_write_otlp(store, form, settings, declared, body).await {
            Ok(_) => StatusCode::OK.into_response(),
            Err(error) => {
                self.log(&error);
                error.into_response()
            }
        }
    }

    async fn try_write_otlp(
        &self,
        store: &Store,
        form: Form,
        settings: Settings,
        declared_bytes: usize,
        body: Body,
    ) -> Result<Counts, WriteError> {
        let (buffers, reservation) = self.received(declared_bytes, body).await?;
        let started = std::time::Instant::now();
        let limits = self.limits.clone();
        // How much comes of it is known when it is unpacked.
        let decoding = tokio::task::spawn_blocking(move || {
            buffers.decode_otlp(form, &settings, &limits, reservation)
        });
        let (work, message_bytes) = decoding.await.map_err(|_| WriteError::Internal)??;
        let Work { buffers, reservation, batch, decoded } = work;
        self.keep_buffers(buffers);
        self.metrics.message_bytes.inc_by(message_bytes as u64);
        self.metrics.decode_seconds.observe(started.elapsed().as_secs_f64());
        self.append(store, Protocol::Otlp, batch, decoded, reservation).await
    }
}

impl Buffers {
    /// What the body holds, and how many bytes it is unpacked.
    fn decode_otlp(
        mut self,
        form: Form,
        settings: &Settings,
        limits: &Limits,
        mut reservation: Reservation,
    ) -> Result<(Work, usize), WriteError> {
        let mut batch = Batch::default();
        let mut grant = |bytes| reservation.add(bytes);
        let message = if form.is_compressed {
            gunzip(&self.body, limits, &mut grant, &mut self.message)?;
            &self.message
        } else {
            &self.body
        };
        let message_bytes = message.len();
        // What it unfolds to is granted as for a remote write request: once its length at first.
        grant(message_bytes)?;
        let decoded: Decoded =
            otlp::decode(form.encoding, message, settings, limits, &mut grant, &mut batch)?;
        Ok((Work { buffers: self, reservation, batch, decoded }, message_bytes))
    }
}

/// How a request is written, by its headers.
///
/// Errors: the words for the sender.
fn form(headers: &HeaderMap) -> Result<Form, String> {
    let text = |name| headers.get(name).map_or("", |value| value.to_str().unwrap_or("?"));
    let content_type = text(header::CONTENT_TYPE);
    let encoding = match content_type.split(';').next().unwrap_or_default().trim() {
        PROTOBUF => Encoding::Protobuf,
        JSON => Encoding::Json,
        _ => {
            return Err(format!(
                "unsupported content type: {content_type}, supported: [{JSON}, {PROTOBUF}]"
            ));
        }
    };
    match text(header::CONTENT_ENCODING) {
        "" => Ok(Form { encoding, is_compressed: false }),
        "gzip" => Ok(Form { encoding, is_compressed: true }),
        other => Err(format!(
            "unsupported compression: {other}. Only \"gzip\" or no compression supported"
        )),
    }
}
