//! `status/cardinality`: series of a day by metric and label, with the day before.
//! `status/created_series`: series created in each of the last 24 hours.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use json::pieces::Ready;
use json::text::push_text;
use storage::{CardinalityQuery, CountChange, CreatedStats, DayCardinality, PairChange};

use super::store::{limit, push_counted};
use crate::http::api::labels::{in_time, selectors};
use crate::http::body::success;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::router::{store_of, tenant_matchers};
use crate::query::metric_use::MetricUse;
use crate::state::Shared;
use crate::time::{Time, format_rfc3339};
use crate::units::quoted;

/// `/api/v1/status/cardinality`: `match[]`, `label`, `day` and `limit`. Not in Prometheus; the lists
/// have the form of `status/tsdb`.
pub(crate) async fn of_day(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    params.check()?;
    let limit = limit(params.text("limit")?)?;
    let time_ms = day(params.text("day")?)?;
    let label = Some(params.text("label")?).filter(|label| !label.is_empty()).map(str::to_owned);
    let selectors = selectors(&shared, &params).await?.map_err(ApiError::bad_data)?;
    let mut matchers = match <[_; 1]>::try_from(selectors) {
        Ok([matchers]) => matchers,
        Err(none) if none.is_empty() => Vec::new(),
        Err(several) => {
            let message = format!("{} selectors, the limit is 1", several.len());
            return Err(ApiError::invalid_parameter("match[]", message));
        }
    };
    let store = store_of(&shared)?;
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let client = params.client();
    matchers.extend(tenant_matchers(&shared, &client)?);
    let query = CardinalityQuery { time_ms, matchers, label, limit };
    let found = in_time(&lookup, store.day_cardinality(&query, &lookup.budget)).await?;
    let metrics = found.series_by_metric.iter().map(|change| change.name.as_str());
    let uses = shared.metric_uses.visible_to(&client, metrics);
    Ok(success(Ready(day_json(&found, &uses, query.label.is_some())), &[], &[]))
}

/// `/api/v1/status/created_series`: `metric` and `limit`. Not in Prometheus.
pub(crate) async fn created_series(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    params.check()?;
    let limit = limit(params.text("limit")?)?;
    let metric = Some(params.text("metric")?).filter(|metric| !metric.is_empty());
    let found = store_of(&shared)?.created_series(metric, limit);
    Ok(success(Ready(created_json(&found)), &[], &[]))
}

fn created_json(found: &CreatedStats) -> Vec<u8> {
    let since = found.since_ms.map_or_else(|| "null".to_owned(), |ms| ms.to_string());
    let mut json = format!("{{\"since\":{since},\"hours\":[").into_bytes();
    for (position, (start_ms, count)) in found.hours.iter().enumerate() {
        let comma = if position > 0 { "," } else { "" };
        json.extend_from_slice(
            format!("{comma}{{\"start\":{start_ms},\"value\":{count}}}").as_bytes(),
        );
    }
    json.extend_from_slice(b"],\"metrics\":");
    push_counted(&mut json, &found.metrics);
    json.extend_from_slice(format!(",\"others\":{}}}", found.others).as_bytes());
    json
}

/// Returns a time of a day in UTC, by default of today.
fn day(text: &str) -> Result<i64, ApiError> {
    if text.is_empty() {
        return Ok(Time::now().lookup_ms());
    }
    let is_date = text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let time = is_date.then(|| Time::parse(&format!("{text}T00:00:00Z")).ok()).flatten();
    time.map(Time::lookup_ms).ok_or_else(|| {
        let message = format!("{} is no day: write YYYY-MM-DD", quoted(text));
        ApiError::invalid_parameter("day", message)
    })
}

fn day_json(found: &DayCardinality, uses: &[Option<MetricUse>], has_label: bool) -> Vec<u8> {
    let mut json = format!(
        "{{\"start\":{},\"end\":{},\"series\":{},\"seriesBefore\":{},\"labelPairs\":{}",
        found.start_ms, found.end_ms, found.series, found.series_before, found.label_pairs
    )
    .into_bytes();
    let mut uses = uses.iter().copied();
    let mut push_use = |json: &mut Vec<u8>| push_metric_use(json, uses.next().flatten());
    push_list(&mut json, "seriesCountByMetricName", &found.series_by_metric, &mut push_use);
    for (name, list, is_listed) in [
        ("seriesCountByLabelName", &found.series_by_label, true),
        ("labelValueCountByLabelName", &found.values_by_label, true),
        ("seriesCountByFocusLabelValue", &found.series_by_value, has_label),
    ] {
        if is_listed {
            push_list(&mut json, name, list, &mut |_| {});
        }
    }
    json.extend_from_slice(b",\"seriesCountByLabelValuePair\":[");
    for (position, pair) in found.series_by_pair.iter().enumerate() {
        let PairChange { label, value, count, before } = pair;
        let opening: &[u8] = if position == 0 { b"{\"name\":" } else { b",{\"name\":" };
        json.extend_from_slice(opening);
        push_text(&mut json, &format!("{label}={value}"));
        json.extend_from_slice(b",\"label\":");
        push_text(&mut json, label);
        json.extend_from_slice(format!(",\"value\":{count},\"before\":{before}}}").as_bytes());
    }
    json.extend_from_slice(b"]}");
    json
}

fn push_list(
    json: &mut Vec<u8>,
    name: &str,
    list: &[CountChange],
    push_more: &mut dyn FnMut(&mut Vec<u8>),
) {
    json.extend_from_slice(format!(",\"{name}\":[").as_bytes());
    for (position, CountChange { name, count, before }) in list.iter().enumerate() {
        let opening: &[u8] = if position == 0 { b"{\"name\":" } else { b",{\"name\":" };
        json.extend_from_slice(opening);
        push_text(json, name);
        json.extend_from_slice(format!(",\"value\":{count},\"before\":{before}").as_bytes());
        push_more(json);
        json.push(b'}');
    }
    json.push(b']');
}

fn push_metric_use(json: &mut Vec<u8>, used: Option<MetricUse>) {
    let Some(used) = used else {
        json.extend_from_slice(b",\"queries\":0,\"lastQueryTime\":null");
        return;
    };
    json.extend_from_slice(format!(",\"queries\":{},\"lastQueryTime\":", used.count).as_bytes());
    push_text(json, &format_rfc3339(used.last));
}
