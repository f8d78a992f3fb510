//! `/api/v1/admin/tsdb/…`: deleting series, cleaning up behind that, snapshots.
//!
//! Source: `deleteSeries`, `cleanTombstones` and `snapshot` of Prometheus' API.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use storage::{Store, StoreError};

use model::TimeRange;

use super::error::ApiError;
use super::json::body::{Ready, success};
use super::labels;
use super::params::{Params, parse_bool};
use crate::flags::Mode;
use crate::state::Shared;
use crate::time::format_rfc3339;

/// `delete_series`.
pub(super) async fn delete_series(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let store = store_of(&shared)?;
    params.check()?;
    if !params.has("match[]") {
        return Err(ApiError::bad_data("no match[] parameter provided"));
    }
    let TimeRange { start_ms, end_ms } = labels::times(&params)?;
    let texts = params.selectors();
    let selectors = shared.queries.compute_apart(move || texts.parse_any()).await?;
    let selectors = selectors.map_err(|error| ApiError::invalid_parameter("match[]", error))?;
    // As in Prometheus, `{}` selects nothing here.
    let selectors = selectors.into_iter().filter(|matchers| !matchers.is_empty()).collect();
    store.delete(selectors, start_ms, end_ms).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `clean_tombstones`.
pub(super) async fn clean_tombstones(
    State(shared): State<Arc<Shared>>,
) -> Result<Response, ApiError> {
    store_of(&shared)?.clean_tombstones().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `snapshot`.
pub(super) async fn snapshot(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let store = store_of(&shared)?;
    let skips_head = match params.text("skip_head")? {
        "" => false,
        text => parse_bool(text).map_err(|error| {
            let message = format!("unable to parse boolean: {error}");
            ApiError::invalid_parameter("skip_head", message)
        })?,
    };
    // Taken from the hasher's seed: nobody guesses at it, and two requests of one second differ.
    let random = std::hash::BuildHasher::hash_one(
        &std::collections::hash_map::RandomState::new(),
        std::process::id(),
    );
    let second = &format_rfc3339(SystemTime::now())[..19].replace(['-', ':'], "");
    let name = format!("{second}Z-{:016x}", random >> 1);
    store
        .snapshot(&name, !skips_head)
        .await
        .map_err(|error| ApiError::from(error).about("create snapshot"))?;
    Ok(success(Ready(format!("{{\"name\":\"{name}\"}}").into_bytes()), &[], &[]))
}

/// The store, if the flag lets it be changed.
fn store_of(shared: &Shared) -> Result<&Arc<Store>, ApiError> {
    if !shared.args.enable_admin_api {
        return Err(ApiError::disabled("admin APIs disabled"));
    }
    let store = opened(shared)?;
    if shared.args.mode == Mode::Reader { Err(StoreError::ReadOnly.into()) } else { Ok(store) }
}

/// The store.
///
/// Errors: it is not open; the layer below answers such requests before a handler.
pub(super) fn opened(shared: &Shared) -> Result<&Arc<Store>, ApiError> {
    shared.store().ok_or_else(|| ApiError::overloaded("the store is not open yet"))
}

/// Whatever fails in Prometheus' store is its fault (500, `internal`), and so it is here. But a
/// request that asks for too much is malformed, and where the object store does not answer for a
/// while, which Prometheus has none of, the same request may succeed in a moment: 503, as Prometheus
/// answers while its store is not ready.
///
/// Source: `deleteSeries`, `snapshot`, `cleanTombstones` and `setUnavailStatusOnTSDBNotReady` in
/// `web/api/v1/api.go`.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match error {
            StoreError::LimitExceeded(_) | StoreError::Budget(_) => {
                ApiError::bad_data(error.to_string())
            }
            StoreError::Overloaded { .. }
            | StoreError::HeadFull { .. }
            | StoreError::Unavailable(_)
            | StoreError::Stalled { .. } => ApiError::overloaded(error.to_string()),
            StoreError::ReadOnly => ApiError::forbidden(error.to_string()),
            StoreError::Uncleaned(_)
            | StoreError::Fenced
            | StoreError::InUse(_)
            | StoreError::Lost(_)
            | StoreError::Leftovers(_)
            | StoreError::Overtaken
            | StoreError::Closed
            | StoreError::NoStore(_)
            | StoreError::InvalidUrl { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Remote { .. }
            | StoreError::InvalidSetting { .. }
            | StoreError::Corrupt { .. } => ApiError::internal(error.to_string()),
        }
    }
}
