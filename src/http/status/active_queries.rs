//! `status/active_queries`: list and cancellation of active queries.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use json::number::push_number;
use json::pieces::Ready;
use json::text::push_text;

use super::top_queries::push_when;
use crate::http::body::success;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::query::active::ActiveQuery;
use crate::state::Shared;
use crate::time::format_rfc3339;

/// Prefix of the path of a query.
const PREFIX: &str = "/api/v1/status/active_queries/";

/// `/api/v1/status/active_queries`: the oldest first.
pub(crate) async fn list(State(shared): State<Arc<Shared>>, params: Params) -> Response {
    let mut json = vec![b'['];
    for (position, query) in shared.queries.active().visible_to(&params.client()).iter().enumerate()
    {
        if position > 0 {
            json.push(b',');
        }
        push_query(&mut json, query);
    }
    json.push(b']');
    success(Ready(json), &[], &[])
}

fn push_query(json: &mut Vec<u8>, query: &ActiveQuery) {
    let id = query.id;
    json.extend_from_slice(format!("{{\"id\":\"{id}\",\"query\":").as_bytes());
    push_text(json, &query.text);
    if let Some(when) = query.when {
        push_when(json, when);
    }
    json.extend_from_slice(b",\"startTime\":");
    push_text(json, &format_rfc3339(query.started));
    json.extend_from_slice(b",\"ageSeconds\":");
    push_number(json, query.began.elapsed().as_secs_f64());
    let state = query.state().name();
    json.extend_from_slice(format!(",\"state\":\"{state}\",\"client\":").as_bytes());
    push_text(json, &query.client.to_string());
    json.extend_from_slice(b",\"user\":");
    push_text(json, query.client.user());
    let cost = query.view.cost();
    let counts = [
        ("series", cost.series),
        ("samples", cost.samples),
        ("memoryBytes", cost.memory_bytes + query.sending_bytes()),
        ("memoryBytesPeak", cost.memory_bytes_peak),
        ("objectStoreReads", cost.object_store.reads),
        ("objectStoreReadBytes", cost.object_store.read_bytes),
        ("cachedBytes", cost.object_store.cached_bytes),
    ];
    for (position, (name, count)) in counts.into_iter().enumerate() {
        let before = if position == 0 { ",\"cost\":{" } else { "," };
        json.extend_from_slice(format!("{before}\"{name}\":{count}").as_bytes());
    }
    json.extend_from_slice(b"}}");
}

/// `DELETE` of a query, or `POST` to its `cancel`: its client gets the error that it was canceled.
/// Needs the admin API, as it affects other clients.
pub(crate) async fn cancel(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    params: Params,
) -> Result<Response, ApiError> {
    if !shared.args.enable_admin_api {
        return Err(ApiError::disabled("admin APIs disabled"));
    }
    let id = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let id = id.strip_suffix("/cancel").unwrap_or(id);
    if id.parse().is_ok_and(|id| shared.queries.active().cancel(id, &params.client())) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(ApiError::not_found(format!("no active query has the id {id:?}")))
}
