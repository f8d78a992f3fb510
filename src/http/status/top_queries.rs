//! `status/top_queries`: queries with the highest costs since the start of the server.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use engine::When;
use json::number::{push_number, push_timestamp};
use json::pieces::Ready;
use json::text::push_text;

use crate::http::body::success;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::query::top::{TopOrder, TopQuery};
use crate::state::Shared;
use crate::time::format_rfc3339;
use crate::units::quoted;

/// Default number of queries.
const LIMIT: usize = 20;

/// `/api/v1/status/top_queries`: `sort` and `limit`; 0 lists all.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let order = order(params.text("sort")?)?;
    let limit = match params.limit()? {
        0 if params.has("limit") => usize::MAX,
        0 => LIMIT,
        limit => limit,
    };
    let (queries, count) = shared.queries.top().visible_to(&params.client(), order, limit);
    let mut json = b"{\"since\":".to_vec();
    push_text(&mut json, &format_rfc3339(shared.started));
    json.extend_from_slice(format!(",\"count\":{count},\"queries\":[").as_bytes());
    for (position, query) in queries.iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        push_query(&mut json, query, shared.tenancy.is_some());
    }
    json.extend_from_slice(b"]}");
    Ok(success(Ready(json), &[], &[]))
}

fn order(text: &str) -> Result<TopOrder, ApiError> {
    if text.is_empty() {
        return Ok(TopOrder::Seconds);
    }
    let found = TopOrder::ALL.into_iter().find(|(name, _)| *name == text);
    found.map(|(_, order)| order).ok_or_else(|| {
        let names = TopOrder::ALL.map(|(name, _)| name).join(", ");
        let message = format!("{} is none of {names}", quoted(text));
        ApiError::invalid_parameter("sort", message)
    })
}

fn push_query(json: &mut Vec<u8>, query: &TopQuery, has_tenants: bool) {
    let TopQuery { text, tenants, used } = query;
    json.extend_from_slice(b"{\"query\":");
    push_text(json, text);
    if has_tenants {
        json.extend_from_slice(b",\"tenants\":");
        push_text(json, tenants);
    }
    for (name, count) in [
        ("count", used.count),
        ("failures", used.failures),
        ("samples", used.samples),
        ("bytes", used.bytes),
        ("memoryBytesPeak", used.memory_bytes_peak),
    ] {
        json.extend_from_slice(format!(",\"{name}\":{count}").as_bytes());
    }
    for (name, seconds) in [("seconds", used.seconds), ("secondsMax", used.seconds_max)] {
        json.extend_from_slice(format!(",\"{name}\":").as_bytes());
        push_number(json, seconds);
    }
    json.extend_from_slice(b",\"lastTime\":");
    push_text(json, &format_rfc3339(used.last));
    push_when(json, used.when);
    json.push(b'}');
}

/// Writes the times of an evaluation, in seconds.
pub(super) fn push_when(json: &mut Vec<u8>, when: When) {
    let times = match when {
        When::Instant(time_ms) => vec![("time", time_ms)],
        When::Range { start_ms, end_ms, step_ms } => {
            vec![("start", start_ms), ("end", end_ms), ("step", step_ms)]
        }
    };
    for (name, ms) in times {
        json.extend_from_slice(format!(",\"{name}\":").as_bytes());
        push_timestamp(json, ms);
    }
}
