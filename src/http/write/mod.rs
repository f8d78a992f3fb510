//! `/api/v1/write` and `/api/v1/otlp/v1/metrics`.
//!
//! Source: `exp/api/remote` of Prometheus' client library, and `write_handler.go` and
//! `write_otlp_handler.go` in `storage/remote` of Prometheus. For OTLP, two statuses differ: an unknown
//! format is 415, and rejected samples are 400 after the rest is stored; Prometheus responds with 400,
//! and with 500 after it drops the whole request.

mod format;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use storage::Store;
use wire::otlp::Settings;
use wire::{Counts, Version};

use super::error::ApiError;
use super::router::{plain, store_of};
use crate::ingest::{RemoteWrite, WriteError};
use crate::query::active::Client;
use crate::state::Shared;
use crate::tenancy::TenantLabel;

/// Headers of responses to the second protocol.
///
/// Source: <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>, "Required `Written`
/// Response Headers".
const SAMPLES_WRITTEN: &str = "x-prometheus-remote-write-samples-written";
const HISTOGRAMS_WRITTEN: &str = "x-prometheus-remote-write-histograms-written";
const EXEMPLARS_WRITTEN: &str = "x-prometheus-remote-write-exemplars-written";

/// Remote write.
pub(super) async fn remote_write(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match store_of(&shared) {
        Ok(store) => match label_of(&shared, &request) {
            Ok(label) => write(&shared.remote_write, &store, request, label).await,
            Err(error) => error.into_text(),
        },
        Err(error) => error.into_text(),
    }
}

/// OTLP metrics, if they are enabled.
pub(super) async fn otlp(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    if !shared.args.enable_otlp_receiver {
        // As in Prometheus.
        let text = "otlp write receiver needs to be enabled with --web.enable-otlp-receiver\n";
        return plain(StatusCode::NOT_FOUND, text);
    }
    let settings = shared.config().otlp.settings(&shared.args);
    match store_of(&shared) {
        Ok(store) => match label_of(&shared, &request) {
            Ok(label) => write_otlp(&shared.remote_write, &store, settings, request, label).await,
            Err(error) => error.into_text(),
        },
        Err(error) => error.into_text(),
    }
}

/// Returns the label of the tenant of a write, if tenants are on.
///
/// Errors: the request names several.
fn label_of(shared: &Shared, request: &Request) -> Result<Option<TenantLabel>, ApiError> {
    let client: Client = request.extensions().get().cloned().unwrap_or_default();
    let label = shared.tenancy.as_ref().map(|tenancy| tenancy.write_label(client.scope()));
    Ok(label.transpose()?)
}

/// Responds with 204 once all samples are durable, or with 400 if some are rejected.
///
/// Responses of the second protocol hold the counts written, once the request is decompressed.
async fn write(
    receiver: &RemoteWrite,
    store: &Store,
    request: Request,
    label: Option<TenantLabel>,
) -> Response {
    let (head, body) = request.into_parts();
    let version = match format::version(&head.headers) {
        Ok(version) => version,
        Err(text) => return error_response(&receiver.unsupported(text)),
    };
    let result = receiver.write(store, version, declared_bytes(&head.headers), body, label).await;
    let (mut response, written) = match result {
        Ok(written) => (StatusCode::NO_CONTENT.into_response(), Some(written)),
        Err(error) => (error_response(&error), error.written()),
    };
    if let (Version::V2, Some(written)) = (version, written) {
        add_counts(response.headers_mut(), written);
    }
    response
}

/// Responds with 200 once all samples are durable, or with 400 if some are rejected.
async fn write_otlp(
    receiver: &RemoteWrite,
    store: &Store,
    settings: Settings,
    request: Request,
    label: Option<TenantLabel>,
) -> Response {
    let (head, body) = request.into_parts();
    let format = match format::otlp_format(&head.headers) {
        Ok(format) => format,
        Err(text) => return error_response(&receiver.unsupported(text)),
    };
    let declared = declared_bytes(&head.headers);
    match receiver.write_otlp(store, format, settings, declared, body, label).await {
        Ok(_) => StatusCode::OK.into_response(),
        Err(error) => error_response(&error),
    }
}

/// Returns an error in the form of `http.Error` of Go, as Prometheus does here.
fn error_response(error: &WriteError) -> Response {
    ApiError::from(error).into_text()
}

fn add_counts(headers: &mut HeaderMap, written: Counts) {
    for (name, count) in [
        (SAMPLES_WRITTEN, written.floats),
        (HISTOGRAMS_WRITTEN, written.histograms),
        (EXEMPLARS_WRITTEN, written.exemplars),
    ] {
        headers.insert(name, HeaderValue::from(count));
    }
}

/// Returns the declared length of the body, or 0 without one.
fn declared_bytes(headers: &HeaderMap) -> usize {
    let declared = headers.get(header::CONTENT_LENGTH);
    declared.and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}
