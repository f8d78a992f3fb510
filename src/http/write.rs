//! `/api/v1/write` and `/api/v1/otlp/v1/metrics`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use super::router::plain;
use crate::state::Shared;

/// Remote write. The layer around it answers as long as the store is not open.
pub(super) async fn remote_write(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match shared.store() {
        Some(store) => shared.remote_write.write(store, request).await,
        None => ApiError::overloaded("the store is not open yet").into_response(),
    }
}

/// Metrics of OpenTelemetry, where they are wanted.
pub(super) async fn otlp(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    if !shared.args.enable_otlp_receiver {
        // As Prometheus answers.
        let text = "otlp write receiver needs to be enabled with --web.enable-otlp-receiver\n";
        return plain(StatusCode::NOT_FOUND, text);
    }
    let settings = shared.config().otlp.settings(&shared.args);
    match shared.store() {
        Some(store) => shared.remote_write.write_otlp(store, settings, request).await,
        None => ApiError::overloaded("the store is not open yet").into_response(),
    }
}
