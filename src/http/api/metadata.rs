//! `metadata`: type, help and unit of metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use json::pieces::Pieces;
use json::text::push_text;
use model::KnownMetric;

use crate::http::body;
use crate::http::error::ApiError;
use crate::http::params::{Params, parse_integer};
use crate::http::router::source_of;
use crate::state::Shared;

/// `/api/v1/metadata`, sorted by metric name. The latest entry of a metric comes first, because
/// Grafana reads only the first.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    // 0 is a limit of metrics, but no limit of entries per metric.
    let metrics_max = limit(&params, "limit")?.unwrap_or(usize::MAX);
    let per_metric = limit(&params, "limit_per_metric")?.filter(|limit| *limit > 0);
    let entries_max = per_metric.unwrap_or(usize::MAX);
    let metric = params.bytes("metric").to_vec();
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let source = source_of(&shared, &params.client())?;
    let answer = shared
        .queries
        .compute_blocking(move || match std::str::from_utf8(&metric) {
            Ok("") => source.metadata(None, metrics_max),
            Ok(metric) => source.metadata(Some(metric), metrics_max),
            // No metric has such a name.
            Err(_) => model::Answer::default(),
        })
        .await?;
    let pieces = MetadataPieces { metrics: answer.found, next: 0, entries_max };
    Ok(body::answer(pieces, lookup, &answer.warnings, &[]))
}

/// Parses a limit; `None` if it is absent or negative.
fn limit(params: &Params, name: &str) -> Result<Option<usize>, ApiError> {
    let text = params.text(name)?;
    if text.is_empty() {
        return Ok(None);
    }
    let number =
        parse_integer(text).map_err(|_| ApiError::bad_data(format!("{name} must be a number")))?;
    Ok(usize::try_from(number).ok())
}

/// Metrics by name with their entries.
struct MetadataPieces {
    metrics: Vec<KnownMetric>,
    /// Index of the next metric.
    next: usize,
    /// Maximum number of entries per metric.
    entries_max: usize,
}

impl Pieces for MetadataPieces {
    /// The entries are shared with the store.
    fn bytes(&self) -> u64 {
        (self.metrics.len() * size_of::<KnownMetric>()) as u64
    }

    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        if self.next == 0 {
            out.push(b'{');
        }
        let Some(known) = self.metrics.get(self.next) else {
            out.push(b'}');
            return false;
        };
        if self.next > 0 {
            out.push(b',');
        }
        push_text(out, &known.metric);
        out.extend_from_slice(b":[");
        for (position, entry) in known.entries.iter().rev().take(self.entries_max).enumerate() {
            let opening: &[u8] = if position == 0 { b"{\"type\":" } else { b",{\"type\":" };
            out.extend_from_slice(opening);
            push_text(out, entry.kind.as_str());
            out.extend_from_slice(b",\"unit\":");
            push_text(out, &entry.unit);
            out.extend_from_slice(b",\"help\":");
            push_text(out, &entry.help);
            out.push(b'}');
        }
        out.push(b']');
        self.next += 1;
        true
    }
}
