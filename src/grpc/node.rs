//! Parts that all methods share: readiness, the source with external labels, and matchers.

use std::sync::Arc;

use engine::parse::{MATCHERS_MAX, REGEXES_MAX};
use model::{Matcher, Source, TimeRange};
use wire::LabelMatcher;

use super::status::{Code, Status};
use crate::external_labels::with_external_labels;
use crate::http::router::source_of;
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
        Readiness::Reading | Readiness::Ready => {}
    }
    let store = shared.store();
    if let Some(error) = store.and_then(|store| store.lost()) {
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

/// Returns the source of series with external labels, but those that name replicas.
pub(super) fn source(
    shared: &Shared,
    replica_labels: &[String],
) -> Result<Arc<dyn Source>, Status> {
    check_ready(shared)?;
    let source = source_of(shared)?;
    Ok(with_external_labels(source, &shared.external_labels(), replica_labels))
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
    let compile = move || {
        if matchers.len() > MATCHERS_MAX {
            return Err(format!(
                "request has more than {MATCHERS_MAX} matchers, which is the limit"
            ));
        }
        let mut compiled = Vec::with_capacity(matchers.len());
        for LabelMatcher { op, name, value } in matchers {
            compiled.push(Matcher::new(op, name, value).map_err(|error| error.to_string())?);
        }
        if compiled.iter().filter(|matcher| matcher.is_compiled()).count() > REGEXES_MAX {
            return Err(format!(
                "request has more than {REGEXES_MAX} regular expressions, which is the limit"
            ));
        }
        Ok(compiled)
    };
    let compiled = shared.queries.compute_blocking(compile).await?;
    compiled.map_err(|error| Status::new(Code::InvalidArgument, error))
}

/// Starts a lookup under the limits of a query.
pub(super) async fn begin(shared: &Shared, request: LookupRequest) -> Result<Lookup, Status> {
    Ok(shared.queries.begin_lookup(request).await.map_err(QueryFailure::Gate)?)
}
