//! `query_exemplars`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use json::number::{push_sample_value, push_timestamp};
use json::pieces::Pieces;
use json::text::push_labels;
use model::{Exemplar, ExemplarQuery, SeriesExemplars, TimeRange};

use crate::http::body;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::router::source_of;
use crate::state::Shared;
use crate::time::{MAX, MIN};

/// Maximum number of exemplars in a piece.
const PIECE_EXEMPLARS: usize = 64;

/// `/api/v1/query_exemplars`: exemplars of series that a selector of the query selects.
///
/// Grafana probes the endpoint with times in ms, which are valid times in the far future.
pub(crate) async fn query(
    State(shared): State<Arc<Shared>>,
    params: Params,
) -> Result<Response, ApiError> {
    let start = params.time_or("start", MIN)?;
    let end = params.time_or("end", MAX)?;
    if end < start {
        return Err(ApiError::bad_data("end timestamp must not be before start timestamp"));
    }
    let selectors =
        shared.queries.parse(params.query()?.to_owned(), shared.args.parse_options(), |tree| {
            let matchers = tree.selectors().into_iter().map(|selector| selector.matchers.clone());
            matchers.collect::<Vec<_>>()
        });
    let selectors = selectors.await?.map_err(|error| ApiError::bad_data(error.to_string()))?;
    if selectors.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let lookup = shared.queries.begin_lookup(params.request()).await?;
    let (source, budget) = (source_of(&shared, &params.client())?, lookup.budget.clone());
    let query =
        ExemplarQuery { selectors, times: TimeRange::new(start.lookup_ms(), end.lookup_ms()) };
    let answer =
        shared.queries.compute_blocking(move || source.exemplars(&query, &budget)).await??;
    let pieces = ExemplarPieces::new(answer.found);
    Ok(body::answer(pieces, lookup, &answer.warnings, &[]))
}

/// Series with their exemplars.
struct ExemplarPieces {
    series: Vec<SeriesExemplars>,
    /// Index of the next series.
    series_index: usize,
    /// Index of its next exemplar.
    exemplar_index: usize,
}

impl ExemplarPieces {
    fn new(series: Vec<SeriesExemplars>) -> ExemplarPieces {
        ExemplarPieces { series, series_index: 0, exemplar_index: 0 }
    }
}

impl Pieces for ExemplarPieces {
    fn bytes(&self) -> u64 {
        let of_exemplar =
            |exemplar: &Exemplar| size_of::<Exemplar>() + exemplar.labels.as_bytes().len();
        let of_series = |series: &SeriesExemplars| {
            let exemplars = series.exemplars.iter().map(of_exemplar).sum::<usize>();
            size_of::<SeriesExemplars>() + series.labels.as_bytes().len() + exemplars
        };
        self.series.iter().map(of_series).sum::<usize>() as u64
    }

    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        if self.series_index == 0 && self.exemplar_index == 0 {
            out.push(b'[');
        }
        let Some(series) = self.series.get(self.series_index) else {
            out.push(b']');
            return false;
        };
        if self.exemplar_index == 0 {
            if self.series_index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"seriesLabels\":");
            push_labels(out, &series.labels);
            out.extend_from_slice(b",\"exemplars\":[");
        }
        let end = (self.exemplar_index + PIECE_EXEMPLARS).min(series.exemplars.len());
        for index in self.exemplar_index..end {
            if index > 0 {
                out.push(b',');
            }
            push_exemplar(out, &series.exemplars[index]);
        }
        self.exemplar_index = end;
        if end == series.exemplars.len() {
            out.extend_from_slice(b"]}");
            self.series_index += 1;
            self.exemplar_index = 0;
        }
        true
    }
}

fn push_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar) {
    out.extend_from_slice(b"{\"labels\":");
    push_labels(out, &exemplar.labels);
    out.extend_from_slice(b",\"value\":");
    push_sample_value(out, exemplar.value);
    out.extend_from_slice(b",\"timestamp\":");
    push_timestamp(out, exemplar.timestamp_ms);
    out.push(b'}');
}
