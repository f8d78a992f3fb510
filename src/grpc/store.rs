//! `thanos.Store`: series with chunks, label names and label values.
//!
//! Source: `pkg/store/storepb/rpc.proto` of Thanos 0.42; errors as in `pkg/store/prometheus.go`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use formats::chunk::{ChunkEncoder, EncodedChunk};
use model::{Labels, MetadataQuery, SampleBatch, Selection, SeriesSet, Source};
use wire::read::ChunkRef;
use wire::thanos::{LabelsRequest, SeriesRequest, SeriesResponses, label_list};

use super::call::{Call, framed, respond_with, streamed};
use super::node::{self, LabeledSource};
use super::status::{Code, Status};
use crate::http::api::labels::in_time;
use crate::query::LookupRequest;
use crate::query::active::Client;
use crate::query::stream::{Parts, StreamFailure, each_sample, stream};
use crate::state::Shared;

/// Size from which a series is sent in parts, in bytes.
const SERIES_BYTES: usize = 256 << 10;

/// `thanos.Store/Series`.
pub(super) async fn series(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let request = SeriesRequest::decode(&call.message)?;
    if request.matchers.is_empty() {
        return Err(Status::new(Code::InvalidArgument, "no matchers specified"));
    }
    let LabeledSource { source, .. } =
        node::source(&shared, &call.client, &request.replica_labels)?;
    let matchers = node::compile(&shared, request.matchers.clone()).await?;
    let text = format!("thanos.Store/Series?match[]={}", selector_text(&matchers));
    let lookup = node::begin(&shared, LookupRequest { text, client: call.client }).await?;
    let times = node::times(request.min_ms, request.max_ms);
    let produce = move |parts: &mut Parts| {
        let responses = SeriesResponses::new(request.batch_series_max);
        let budget = parts.budget();
        if request.skip_chunks {
            let query = MetadataQuery { selectors: vec![matchers], times, limit: request.limit };
            let found = parts.wait(source.series(&query, &budget))?;
            return send_labels(&found, responses, parts);
        }
        let selection = Selection { matchers, times, only_newest: false, windows: None };
        let found = parts.wait(source.select(&selection, &budget))?;
        send_chunks(&*found, times.end_ms, request.limit, responses, parts)
    };
    Ok(streamed(stream(lookup, produce).await?))
}

fn send_labels(
    found: &[Labels],
    mut responses: SeriesResponses,
    parts: &mut Parts,
) -> Result<(), StreamFailure> {
    for labels in found {
        responses.begin(labels);
        if let Some(message) = responses.end() {
            parts.send(framed(&message))?;
        }
    }
    match responses.finish() {
        Some(message) => parts.send(framed(&message)),
        None => Ok(()),
    }
}

/// Sends the series that have samples.
fn send_chunks(
    set: &dyn SeriesSet,
    end_ms: i64,
    limit: usize,
    mut responses: SeriesResponses,
    parts: &mut Parts,
) -> Result<(), StreamFailure> {
    let budget = parts.budget();
    let (mut batch, mut series_count) = (SampleBatch::new(), 0);
    for index in 0..set.len() {
        let mut chunks = ChunkEncoder::default();
        let mut has_chunks = false;
        let mut push = |chunk: EncodedChunk| {
            if !has_chunks {
                responses.begin(set.labels(index));
            } else if responses.series_bytes() >= SERIES_BYTES {
                // Roots join parts of a series.
                if let Some(message) = responses.end() {
                    parts.send(framed(&message))?;
                }
                responses.begin(set.labels(index));
            }
            has_chunks = true;
            let EncodedChunk { min_ms, max_ms, encoding, data } = &chunk;
            let encoding = *encoding as u8;
            responses.push_chunk(ChunkRef { min_ms: *min_ms, max_ms: *max_ms, encoding, data });
            Ok::<(), StreamFailure>(())
        };
        each_sample(set, index, end_ms, &budget, &mut batch, |time_ms, sample| {
            chunks.push(time_ms, sample).map_or(Ok(()), &mut push)
        })?;
        chunks.finish().map_or(Ok(()), &mut push)?;
        if !has_chunks {
            continue;
        }
        if let Some(message) = responses.end() {
            parts.send(framed(&message))?;
        }
        series_count += 1;
        if series_count == limit {
            break;
        }
    }
    match responses.finish() {
        Some(message) => parts.send(framed(&message)),
        None => Ok(()),
    }
}

fn selector_text(matchers: &[model::Matcher]) -> String {
    let matchers: Vec<String> = matchers.iter().map(ToString::to_string).collect();
    format!("{{{}}}", matchers.join(","))
}

/// `thanos.Store/LabelNames`.
pub(super) async fn label_names(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let request = LabelsRequest::decode_names(&call.message)?;
    let (source, query) = label_query(&shared, &call.client, &request).await?;
    let text = "thanos.Store/LabelNames".to_owned();
    let lookup = node::begin(&shared, LookupRequest { text, client: call.client }).await?;
    let names = in_time(&lookup, source.label_names(&query, &lookup.budget)).await?;
    Ok(respond_with(lookup, label_list(&names)))
}

/// `thanos.Store/LabelValues`.
pub(super) async fn label_values(
    State(shared): State<Arc<Shared>>,
    call: Call,
) -> Result<Response, Status> {
    let request = LabelsRequest::decode_values(&call.message)?;
    if request.label.is_empty() {
        return Err(Status::new(Code::InvalidArgument, "label name parameter cannot be empty"));
    }
    let (source, query) = label_query(&shared, &call.client, &request).await?;
    let text = format!("thanos.Store/LabelValues?label={}", request.label);
    let lookup = node::begin(&shared, LookupRequest { text, client: call.client }).await?;
    let finding = source.label_values(&request.label, &query, &lookup.budget);
    let values = in_time(&lookup, finding).await?;
    Ok(respond_with(lookup, label_list(&values)))
}

async fn label_query(
    shared: &Shared,
    client: &Client,
    request: &LabelsRequest,
) -> Result<(Arc<dyn Source>, MetadataQuery), Status> {
    let LabeledSource { source, .. } = node::source(shared, client, &request.replica_labels)?;
    let matchers = node::compile(shared, request.matchers.clone()).await?;
    let selectors = if matchers.is_empty() { Vec::new() } else { vec![matchers] };
    let times = node::times(request.start_ms, request.end_ms);
    Ok((source, MetadataQuery { selectors, times, limit: request.limit }))
}
