//! `/api/v1/admin/tsdb/…`: deletion of series, cleanup of tombstones, snapshots.
//!
//! Source: `deleteSeries`, `cleanTombstones` and `snapshot` of Prometheus' API.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use json::pieces::Ready;
use storage::{Store, StoreError};

use model::Matcher;

use crate::http::body::success;
use crate::http::error::ApiError;
use crate::http::params::{Params, parse_bool};
use crate::http::router::store_of;
use crate::state::Shared;
use crate::tenancy::TenantLabel;
use crate::time::{MAX, MIN, Time, format_rfc3339};
use crate::units::quoted;

/// `delete_series`.
pub(crate) async fn delete_series(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let store = changeable_store(&shared)?;
    params.check()?;
    if !params.has("match[]") {
        return Err(ApiError::bad_data("no match[] parameter provided"));
    }
    let start_ms = exact_ms(&params, "start", MIN)?;
    let end_ms = exact_ms(&params, "end", MAX)?;
    let texts = params.selectors();
    let selectors = shared.queries.compute_blocking(move || texts.parse_any()).await?;
    let selectors = selectors.map_err(|error| ApiError::invalid_parameter("match[]", error))?;
    // As in Prometheus, `{}` selects nothing here.
    let mut selectors: Vec<_> =
        selectors.into_iter().filter(|matchers| !matchers.is_empty()).collect();
    if let Some(tenancy) = &shared.tenancy {
        let TenantLabel { name, tenant, .. } = tenancy.write_label(params.client().scope())?;
        let matcher = Matcher::equal(name, tenant);
        selectors.iter_mut().for_each(|matchers: &mut Vec<_>| matchers.push(matcher.clone()));
    }
    store.delete(selectors, start_ms, end_ms).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Parses a time that bounds a delete. In Prometheus, a time out of range wraps to another one, whose
/// samples are then deleted.
fn exact_ms(params: &Params, name: &str, default: Time) -> Result<i64, ApiError> {
    params.time_or(name, default)?.exact_ms().ok_or_else(|| {
        let text = quoted(params.text(name).unwrap_or_default());
        ApiError::invalid_parameter(name, format!("the time {text} is out of range"))
    })
}

/// `clean_tombstones`.
pub(crate) async fn clean_tombstones(
    State(shared): State<Arc<Shared>>,
) -> Result<Response, ApiError> {
    changeable_store(&shared)?.clean_tombstones().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `snapshot`.
pub(crate) async fn snapshot(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let store = changeable_store(&shared)?;
    let skips_head = match params.text("skip_head")? {
        "" => false,
        text => parse_bool(text).map_err(|error| {
            let message = format!("unable to parse boolean: {error}");
            ApiError::invalid_parameter("skip_head", message)
        })?,
    };
    // Comes from the hasher's seed: it cannot be guessed, and differs for requests of one second.
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

/// Returns the store, if the flags allow changes of it.
fn changeable_store(shared: &Shared) -> Result<Arc<Store>, ApiError> {
    if !shared.args.enable_admin_api {
        return Err(ApiError::disabled("admin APIs disabled"));
    }
    let store = store_of(shared)?;
    if store.is_writer() { Ok(store) } else { Err(StoreError::ReadOnly.into()) }
}
