//! `thanos.Exemplars`, `thanos.Metadata` and `thanos.Status`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use model::ExemplarQuery;
use wire::thanos::{
    BlockStatistics, ExemplarsRequest, MetadataRequest, StatisticsRequest, exemplars,
    metric_metadata, statistics, warning,
};

use super::call::{Call, respond};
use super::node::{self, LabeledSource};
use super::status::{Code, Status};
use crate::http::error::ApiError;
use crate::http::router::{store_of, tenant_matchers};
use crate::query::LookupRequest;
use crate::query::active::Client;
use crate::query::sending::Answered;
use crate::state::Shared;

/// Field of a warning in the responses.
const WARNING_FIELD: u32 = 2;
/// Maximum number of metrics of a message.
const METRICS_PER_MESSAGE: usize = 500;
/// Default number of entries of each list of statistics.
const ENTRIES: usize = 10;
/// Maximum number of entries of each list of statistics.
const ENTRIES_MAX: usize = 10_000;
/// Tenant of statistics, where tenants are not in use, as in Thanos.
const TENANT: &str = "default-tenant";

/// Returns the name of a client's tenants.
fn tenant_name(client: &Client) -> String {
    match client.tenants_text() {
        text if text.is_empty() => TENANT.to_owned(),
        text => text,
    }
}

/// `thanos.Exemplars/Exemplars`: exemplars of series that a selector of the query selects.
pub(super) async fn list_exemplars(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let request = ExemplarsRequest::decode(&call.message)?;
    node::check_tenants(&shared, &call.client)?;
    let LabeledSource { source, .. } = node::source(&shared, &call.client, &[])?;
    let listed = format!("thanos.Exemplars/Exemplars?query={}", request.text);
    let selectors = shared.queries.parse(request.text, shared.args.parse_options(), |tree| {
        let matchers = tree.selectors().into_iter().map(|selector| selector.matchers.clone());
        matchers.collect::<Vec<_>>()
    });
    let selectors =
        selectors.await?.map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))?;
    let lookup = node::begin(&shared, LookupRequest { text: listed, client: call.client }).await?;
    let budget = lookup.budget.clone();
    let times = node::times(request.start_ms, request.end_ms);
    let query = ExemplarQuery { selectors, times };
    let finding = move || source.exemplars(&query, &budget);
    let answer = shared.queries.compute_blocking(finding).await?.map_err(ApiError::from)?;
    let held = answer.found.iter().map(|series| size_of_val(&series.exemplars[..]));
    let bytes = held.sum::<usize>() as u64;
    let warnings = answer.warnings.into_iter().map(|text| warning(WARNING_FIELD, &text));
    let messages = answer.found.into_iter().map(|series| exemplars(&series)).chain(warnings);
    Ok(respond(lookup.into_sending(bytes), messages))
}

/// `thanos.Metadata/MetricMetadata`.
pub(super) async fn list_metadata(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let MetadataRequest { metric, limit } = MetadataRequest::decode(&call.message)?;
    node::check_tenants(&shared, &call.client)?;
    let LabeledSource { source, .. } = node::source(&shared, &call.client, &[])?;
    let text = format!("thanos.Metadata/MetricMetadata?metric={metric}");
    let lookup = node::begin(&shared, LookupRequest { text, client: call.client }).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let finding = move || match metric.as_str() {
        "" => source.metadata(None, limit),
        metric => source.metadata(Some(metric), limit),
    };
    let answer = shared.queries.compute_blocking(finding).await?;
    let warnings = answer.warnings.into_iter().map(|text| warning(WARNING_FIELD, &text));
    let found = answer.found;
    let bytes = size_of_val(&found[..]) as u64;
    let mut next = 0;
    let messages = std::iter::from_fn(move || {
        let rest = found.get(next..).filter(|rest| !rest.is_empty())?;
        let part = &rest[..rest.len().min(METRICS_PER_MESSAGE)];
        next += part.len();
        Some(metric_metadata(part))
    });
    Ok(respond(lookup.into_sending(bytes), messages.chain(warnings)))
}

/// `thanos.Status/TSDBStatistics`: metrics, labels and values of the head with the most
/// series.
pub(super) async fn tsdb_statistics(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let limit = match StatisticsRequest::decode(&call.message)?.limit {
        0 => ENTRIES,
        limit => usize::try_from(limit).unwrap_or(ENTRIES).min(ENTRIES_MAX),
    };
    node::check_ready(&shared)?;
    let matchers = tenant_matchers(&shared, &call.client)?;
    let tenant = tenant_name(&call.client);
    let store = store_of(&shared)?;
    let text = "thanos.Status/TSDBStatistics".to_owned();
    let lookup = node::begin(&shared, LookupRequest { text, client: call.client }).await?;
    let budget = lookup.budget.clone();
    let counting = move || store.cardinality(&matchers, limit, &budget);
    let found = shared.queries.compute_blocking(counting).await?;
    let found = found.map_err(|error| ApiError::from(model::SourceError::from(error)))?;
    let message = statistics(
        &tenant,
        &BlockStatistics {
            series: found.series,
            label_pairs: found.label_pairs,
            chunks: found.chunks,
            times: found.times_ms,
            lists: [
                &found.series_by_metric,
                &found.values_by_label,
                &found.bytes_by_label,
                &found.series_by_pair,
            ],
        },
    );
    let bytes = message.len() as u64;
    Ok(respond(lookup.into_sending(bytes), std::iter::once(message)))
}
