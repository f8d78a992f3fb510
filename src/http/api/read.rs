//! `/api/v1/read`: remote read, as plain samples or as streamed chunks.
//!
//! Source: `storage/remote/read_handler.go` of Prometheus, for requests and responses; errors are
//! plain texts. Two differences: invalid matchers are 400 instead of 500, and an error within a
//! stream closes the connection, where Prometheus appends the text to the frames.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use engine::parse::MATCHERS_MAX;
use formats::chunk::{ChunkEncoder, EncodedChunk, SampleRef};
use model::{
    Budget, MetadataQuery, SampleBatch, Selection, SeriesSet, Source, SourceError, TimeRange,
};
use wire::read::{
    ChunkRef, FrameEncoder, ReadLimits, ReadQuery, ReadRequest, ResponseType, ResultEncoder,
    SeriesEncoder,
};

use super::labels::in_time;
use crate::http::body::{whole, with_type};
use crate::http::error::ApiError;
use crate::http::params::{SELECTORS_MAX, compile_matchers};
use crate::http::router::external_source_of;
use crate::query::stream::{Parts, StreamFailure, each_sample, stream};
use crate::query::{Lookup, LookupRequest};
use crate::state::Shared;

/// Content type of plain samples.
pub(crate) const SAMPLES_TYPE: &str = "application/x-protobuf";
/// Content type of frames.
pub(crate) const STREAMED_TYPE: &str =
    "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";

/// Limits of a request.
const LIMITS: ReadLimits = ReadLimits {
    message_bytes_max: 10 << 20,
    queries_max: SELECTORS_MAX,
    matchers_max: MATCHERS_MAX,
};
/// Minimum bytes of frames that are sent at once.
const PART_BYTES: usize = 64 << 10;

/// Query with compiled matchers.
struct CompiledQuery {
    selection: Selection,
    /// True for a query of series labels without samples.
    is_labels_alone: bool,
}

/// `/api/v1/read`.
pub(crate) async fn remote_read(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match answer(&shared, request).await {
        Ok(response) => response,
        Err(error) => error.into_text(),
    }
}

async fn answer(shared: &Shared, request: Request) -> Result<Response, ApiError> {
    let client = request.extensions().get().cloned().unwrap_or_default();
    let asked = LookupRequest { text: request.uri().path().to_owned(), client };
    let body = axum::body::to_bytes(request.into_body(), LIMITS.message_bytes_max);
    let body = match tokio::time::timeout(shared.args.read_timeout, body).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => {
            return Err(ApiError::bad_data(format!("cannot read the request: {error}")));
        }
        Err(_) => return Err(ApiError::slow(shared.args.read_timeout)),
    };
    let decode = move || {
        let ReadRequest { queries, response } =
            ReadRequest::decode(&body, &LIMITS).map_err(|error| error.to_string())?;
        Ok::<_, String>((compile(queries)?, response))
    };
    let (queries, kind) =
        shared.queries.compute_blocking(decode).await?.map_err(ApiError::bad_data)?;
    let source = external_source_of(shared, &asked.client)?;
    let lookup = shared.queries.begin_read(asked).await?;
    match kind {
        ResponseType::Samples => {
            let limit = shared.args.remote_read_samples_max;
            samples(shared, source, queries, lookup, limit).await
        }
        ResponseType::StreamedXorChunks => {
            let frame_bytes_max = shared.args.remote_read_frame_bytes_max as usize;
            streamed(source, queries, lookup, frame_bytes_max).await
        }
    }
}

/// Compiles the matchers of all queries, which together have the limits of one PromQL query.
fn compile(queries: Vec<ReadQuery>) -> Result<Vec<CompiledQuery>, String> {
    let mut regex_count = 0;
    let mut compiled = Vec::with_capacity(queries.len());
    for query in queries {
        let matchers = compile_matchers(query.matchers, &mut regex_count)?;
        let (mut start_ms, mut end_ms) = (query.start_ms, query.end_ms);
        let mut is_labels_alone = false;
        if let Some(hints) = query.hints {
            is_labels_alone = hints.function == "series";
            // Hints without times are all zero.
            if (hints.start_ms, hints.end_ms) != (0, 0) {
                start_ms = start_ms.max(hints.start_ms);
                end_ms = end_ms.min(hints.end_ms);
            }
        }
        let selection = Selection {
            matchers,
            times: TimeRange::new(start_ms, end_ms),
            only_newest: false,
            windows: None,
        };
        compiled.push(CompiledQuery { selection, is_labels_alone });
    }
    Ok(compiled)
}

impl CompiledQuery {
    /// Returns whether the query has no matchers, or an end before its start.
    fn is_empty(&self) -> bool {
        self.selection.matchers.is_empty()
            || self.selection.times.end_ms < self.selection.times.start_ms
    }

    /// Selects series with samples, or labels alone.
    async fn find(
        &self,
        source: &Arc<dyn Source>,
        budget: &Budget,
    ) -> Result<ReadResult, SourceError> {
        if self.is_empty() {
            return Ok(ReadResult::Labels(Vec::new()));
        }
        let Selection { matchers, times, .. } = &self.selection;
        if self.is_labels_alone {
            let query =
                MetadataQuery { selectors: vec![matchers.clone()], times: *times, limit: 0 };
            return Ok(ReadResult::Labels(source.series(&query, budget).await?));
        }
        Ok(ReadResult::Series(source.select(&self.selection, budget).await?))
    }
}

/// Series of a query.
enum ReadResult {
    Series(Arc<dyn SeriesSet>),
    Labels(Vec<model::Labels>),
}

fn chunk_ref(chunk: &EncodedChunk) -> ChunkRef<'_> {
    let EncodedChunk { min_ms, max_ms, encoding, data } = chunk;
    ChunkRef { min_ms: *min_ms, max_ms: *max_ms, encoding: *encoding as u8, data }
}

/// Responds with one message.
async fn samples(
    shared: &Shared,
    source: Arc<dyn Source>,
    queries: Vec<CompiledQuery>,
    lookup: Lookup,
    samples_max: u64,
) -> Result<Response, ApiError> {
    let mut encoder = ResultEncoder::default();
    for query in queries {
        let found = in_time(&lookup, query.find(&source, &lookup.budget)).await?;
        let (budget, end_ms) = (lookup.budget.clone(), query.selection.times.end_ms);
        let encode = move || {
            encode_result(&mut encoder, &found, end_ms, samples_max, &budget).map(|()| encoder)
        };
        encoder = shared.queries.compute_blocking(encode).await??;
    }
    let budget = lookup.budget.clone();
    let compress = move || {
        let bytes = snap::raw::max_compress_len(encoder.bytes()) as u64;
        budget.charge_memory(bytes).map_err(SourceError::Budget)?;
        encoder.compress().map_err(|error| ApiError::execution(error.to_string()))
    };
    let body = shared.queries.compute_blocking(compress).await??;
    let mut response = with_type(whole(body, lookup), HeaderValue::from_static(SAMPLES_TYPE));
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    Ok(response)
}

/// Appends the result of one query, and charges its bytes as it grows.
fn encode_result(
    encoder: &mut ResultEncoder,
    found: &ReadResult,
    end_ms: i64,
    samples_max: u64,
    budget: &Budget,
) -> Result<(), ApiError> {
    let mut series_encoder = SeriesEncoder::default();
    // Twice: for the result, and for its copy in the response.
    let charge = |bytes: usize| budget.charge_memory(2 * bytes as u64).map_err(SourceError::Budget);
    match found {
        ReadResult::Labels(all) => {
            for labels in all {
                series_encoder.begin(labels);
                charge(series_encoder.bytes())?;
                encoder.push_series(&series_encoder);
            }
        }
        ReadResult::Series(set) => {
            let (mut count, mut batch) = (0_u64, SampleBatch::new());
            for index in 0..set.len() {
                series_encoder.begin(set.labels(index));
                let before = count;
                let mut charged = 0;
                each_sample(&**set, index, end_ms, budget, &mut batch, |time_ms, sample| {
                    count += 1;
                    if samples_max > 0 && count > samples_max {
                        let message = format!("exceeded sample limit ({samples_max})");
                        return Err(ApiError::bad_data(message));
                    }
                    match sample {
                        SampleRef::Float(value) => series_encoder.push_float(time_ms, value),
                        SampleRef::Histogram(histogram) => {
                            series_encoder.push_histogram(time_ms, histogram);
                        }
                    }
                    if series_encoder.bytes() - charged >= PART_BYTES {
                        charge(series_encoder.bytes() - charged)?;
                        charged = series_encoder.bytes();
                    }
                    Ok(())
                })?;
                if count > before {
                    charge(series_encoder.bytes() - charged)?;
                    encoder.push_series(&series_encoder);
                }
            }
        }
    }
    encoder.end_query();
    Ok(())
}

/// Responds with frames, which are encoded while they are sent.
async fn streamed(
    source: Arc<dyn Source>,
    queries: Vec<CompiledQuery>,
    lookup: Lookup,
    frame_bytes_max: usize,
) -> Result<Response, ApiError> {
    let body = stream(lookup, move |parts| {
        for (query_index, query) in queries.iter().enumerate() {
            let budget = parts.budget();
            let found = parts.wait(query.find(&source, &budget))?;
            let frames = FrameEncoder::new(query_index, frame_bytes_max);
            encode_frames(frames, &found, query.selection.times.end_ms, parts)?;
        }
        Ok(())
    });
    let response = Response::new(Body::from_stream(body.await?));
    Ok(with_type(response, HeaderValue::from_static(STREAMED_TYPE)))
}

fn encode_frames(
    mut frames: FrameEncoder,
    found: &ReadResult,
    end_ms: i64,
    parts: &mut Parts,
) -> Result<(), StreamFailure> {
    let mut out = Vec::new();
    let budget = parts.budget();
    let mut send = |out: &mut Vec<u8>| parts.send(std::mem::take(out));
    match found {
        ReadResult::Labels(all) => {
            for labels in all {
                frames.begin(labels);
                frames.push_labels_alone(&mut out);
                if out.len() >= PART_BYTES {
                    send(&mut out)?;
                }
            }
        }
        ReadResult::Series(set) => {
            let mut batch = SampleBatch::new();
            for index in 0..set.len() {
                frames.begin(set.labels(index));
                let mut chunks = ChunkEncoder::default();
                each_sample(&**set, index, end_ms, &budget, &mut batch, |time_ms, sample| {
                    if let Some(chunk) = chunks.push(time_ms, sample) {
                        frames.push(chunk_ref(&chunk), &mut out);
                        if out.len() >= PART_BYTES {
                            send(&mut out)?;
                        }
                    }
                    Ok::<(), StreamFailure>(())
                })?;
                if let Some(chunk) = chunks.finish() {
                    frames.push(chunk_ref(&chunk), &mut out);
                }
                frames.end(&mut out);
                if out.len() >= PART_BYTES {
                    send(&mut out)?;
                }
            }
        }
    }
    if out.is_empty() { Ok(()) } else { send(&mut out) }
}
