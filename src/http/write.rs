//! `/api/v1/write`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use super::error::ApiError;
use crate::server::Shared;

/// Remote write. The layer around it answers as long as the store is not open.
pub(super) async fn remote_write(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match shared.store() {
        Some(store) => shared.remote_write.write(store, request).await,
        None => ApiError::overloaded("the store is not open yet").into_response(),
    }
}
