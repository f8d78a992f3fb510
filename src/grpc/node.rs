//! Parts that all methods share: readiness, the source with external labels, and matchers.

use std::sync::Arc;

use model::{Labels, Matcher, Source, TimeRange};
use wire::LabelMatcher;

use super::status::{Code, Status};
use crate::external_labels::with_external_labels;
use crate::http::error::ApiError;
use crate::http::params::compile_matchers;
use crate::http::router::source_of;
use crate::query::active::Client;
use crate::query::{Lookup, LookupRequest, QueryFailure};
use crate::state::{Readiness, Shared};

/// Checks that this node may answer.
///
/// Errors: it starts or stops, has lost its store, or lags behind its writer. All are retried at
/// another node of the shard.
pub(super) fn check_ready(shared: &Shared) -> Result<(), Status> {
    let unavailable = |message: String| Err(Status::new(Code::Unavailable, message));
    match shared.readiness() {
        Readiness::Starting => return unavailable("the store is not open yet".to_owned()),
        Readiness::Stopping => return unavailable("the server is stopping".to_owned()),
        // The store that is open meanwhile does not see later writes.
        Readiness::Reading => return unavailable("the store accepts no writes yet".to_owned()),
        Readiness::Ready => {}
    }
    let store = shared.store();
    if let Some(error) = store.as_ref().and_then(|store| store.lost()) {
        return unavailable(error.to_string());
    }
    match store.and_then(|store| store.behind()).filter(|behind| !behind.keeps_up()) {
        None => Ok(()),
        Some(behind) => {
            let seconds = behind.behind.as_secs();
            unavailable(format!("this reader is {seconds} s behind its store (--reader.lag)"))
        }
    }
}

/// Checks that a call names its tenants, if they are on. A root of Thanos adds no matchers of tenants
/// to the calls of some methods.
pub(super) fn check_tenants(shared: &Shared, client: &Client) -> Result<(), Status> {
    let tenants =
        shared.tenancy.as_ref().map(|tenancy| tenancy.tenants_of(client.scope()).map(drop));
    Ok(tenants.transpose().map(drop).map_err(ApiError::from)?)
}

/// Source of series with external labels.
pub(super) struct LabeledSource {
    pub(super) source: Arc<dyn Source>,
    pub(super) labels: Labels,
}

/// Returns the source of series with external labels, but those that name replicas.
pub(super) fn source(
    shared: &Shared,
    client: &Client,
    replica_labels: &[String],
) -> Result<LabeledSource, Status> {
    check_ready(shared)?;
    let is_kept = |name: &str| !replica_labels.iter().any(|replica| replica == name);
    let labels = shared.external_labels().filtered(is_kept);
    let source = with_external_labels(source_of(shared, client)?, labels.clone());
    Ok(LabeledSource { source, labels })
}

/// Returns the range of times of a request, in ms since the epoch.
pub(super) fn times(start_ms: i64, end_ms: i64) -> TimeRange {
    TimeRange::new(
        start_ms.max(crate::time::MIN.lookup_ms()),
        end_ms.min(crate::time::MAX.lookup_ms()),
    )
}

/// Compiles matchers.
///
/// Errors: too many, or an invalid regular expression.
pub(super) async fn compile(
    shared: &Shared,
    matchers: Vec<LabelMatcher>,
) -> Result<Vec<Matcher>, Status> {
    let compile = move || compile_matchers(matchers, &mut 0);
    let compiled = shared.queries.compute_blocking(compile).await?;
    compiled.map_err(|error| Status::new(Code::InvalidArgument, error))
}

/// Starts a lookup under the limits of a query.
pub(super) async fn begin(shared: &Shared, request: LookupRequest) -> Result<Lookup, Status> {
    Ok(shared.queries.begin_lookup(request).await.map_err(QueryFailure::Gate)?)
}
