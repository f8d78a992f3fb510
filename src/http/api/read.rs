//! `/api/v1/read`: remote read, as plain samples or as streamed chunks.
//!
//! Source: `storage/remote/read_handler.go` of Prometheus, for requests and responses; errors are
//! plain texts. Two differences: invalid matchers are 400 instead of 500, and an error within a
//! stream closes the connection, where Prometheus appends the text to the frames.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use engine::parse::{MATCHERS_MAX, REGEXES_MAX};
use formats::chunk::{ChunkEncoder, EncodedChunk, SampleRef};
use futures::{StreamExt, stream};
use model::{
    Advance, Budget, BudgetError, Matcher, MetadataQuery, SampleBatch, Selection, SeriesSet,
    Source, SourceError, TimeRange,
};
use tokio::sync::mpsc;
use wire::read::{
    ChunkRef, FrameEncoder, ReadLimits, ReadQuery, ReadRequest, ResponseType, ResultEncoder,
    SeriesEncoder,
};

use crate::http::error::ApiError;
use crate::http::json::body::{whole, with_type};
use crate::http::params::SELECTORS_MAX;
use crate::http::router::source_of;
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
/// Time for which a stream keeps its permits while its reader has no room for more.
const READER_GRACE: Duration = Duration::from_millis(200);
/// Maximum number of parts that wait to be sent.
const PARTS_MAX: usize = 2;

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
    let source = source_of(shared)?;
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
        let mut matchers = Vec::with_capacity(query.matchers.len());
        for matcher in query.matchers {
            let matcher = Matcher::new(matcher.op, matcher.name, matcher.value)
                .map_err(|error| error.to_string())?;
            regex_count += usize::from(matcher.is_compiled());
            if regex_count > REGEXES_MAX {
                return Err(format!(
                    "request has more than {REGEXES_MAX} regular expressions, which is the limit"
                ));
            }
            matchers.push(matcher);
        }
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
        let selection =
            Selection { matchers, times: TimeRange::new(start_ms, end_ms), only_newest: false };
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
        lookup: &Lookup,
    ) -> Result<ReadResult, ApiError> {
        if self.is_empty() {
            return Ok(ReadResult::Labels(Vec::new()));
        }
        let Selection { matchers, times, .. } = &self.selection;
        let finding = async {
            if self.is_labels_alone {
                let query =
                    MetadataQuery { selectors: vec![matchers.clone()], times: *times, limit: 0 };
                return Ok(ReadResult::Labels(source.series(&query, &lookup.budget).await?));
            }
            Ok(ReadResult::Series(source.select(&self.selection, &lookup.budget).await?))
        };
        match tokio::time::timeout(lookup.timeout, finding).await {
            Ok(found) => found.map_err(|error: SourceError| ApiError::from(error)),
            Err(_) => Err(ApiError::timed_out("series lookup")),
        }
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

/// Visits each sample of a series, floats and histograms in the order of time.
fn each_sample(
    series: &dyn SeriesSet,
    series_index: usize,
    end_ms: i64,
    budget: &Budget,
    batch: &mut SampleBatch,
    mut take: impl FnMut(i64, SampleRef<'_>) -> Result<(), ReadFailure>,
) -> Result<(), ReadFailure> {
    let mut cursor = series.cursor(series_index);
    loop {
        batch.clear();
        let advance = cursor.next_batch(end_ms, batch)?;
        budget.check()?;
        budget.charge_samples(batch.sample_count() as u64)?;
        let mut histograms = batch.histograms.iter().peekable();
        let (times, values) = batch.samples();
        for (time_ms, value) in times.iter().zip(values) {
            while let Some(sample) = histograms.next_if(|h| h.timestamp_ms < *time_ms) {
                take(sample.timestamp_ms, SampleRef::Histogram(&sample.histogram))?;
            }
            take(*time_ms, SampleRef::Float(*value))?;
        }
        for sample in histograms {
            take(sample.timestamp_ms, SampleRef::Histogram(&sample.histogram))?;
        }
        if advance != Advance::Full {
            return Ok(());
        }
    }
}

/// Reason for an incomplete response.
enum ReadFailure {
    Api(ApiError),
    /// The reader is gone.
    Left,
}

impl From<ApiError> for ReadFailure {
    fn from(error: ApiError) -> Self {
        ReadFailure::Api(error)
    }
}

impl From<SourceError> for ReadFailure {
    fn from(error: SourceError) -> Self {
        ReadFailure::Api(ApiError::from(error))
    }
}

impl From<BudgetError> for ReadFailure {
    fn from(error: BudgetError) -> Self {
        ReadFailure::from(SourceError::Budget(error))
    }
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
        let found = query.find(&source, &lookup).await?;
        let (budget, end_ms) = (lookup.budget.clone(), query.selection.times.end_ms);
        let encode = move || {
            encode_result(&mut encoder, &found, end_ms, samples_max, &budget).map(|()| encoder)
        };
        encoder = shared.queries.compute_blocking(encode).await?.map_err(ReadFailure::into_api)?;
    }
    let budget = lookup.budget.clone();
    let compress = move || {
        budget.charge_memory(snap::raw::max_compress_len(encoder.bytes()) as u64)?;
        encoder.compress().map_err(|error| ReadFailure::Api(ApiError::execution(error.to_string())))
    };
    let body = shared.queries.compute_blocking(compress).await?.map_err(ReadFailure::into_api)?;
    let mut response = with_type(whole(body, lookup), HeaderValue::from_static(SAMPLES_TYPE));
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    Ok(response)
}

impl ReadFailure {
    fn into_api(self) -> ApiError {
        match self {
            ReadFailure::Api(error) => error,
            ReadFailure::Left => ApiError::from(SourceError::Budget(BudgetError::Canceled)),
        }
    }
}

/// Appends the result of one query, and charges its bytes as it grows.
fn encode_result(
    encoder: &mut ResultEncoder,
    found: &ReadResult,
    end_ms: i64,
    samples_max: u64,
    budget: &Budget,
) -> Result<(), ReadFailure> {
    let mut series_encoder = SeriesEncoder::default();
    // Twice: for the result, and for its copy in the response.
    let charge = |bytes: usize| budget.charge_memory(2 * bytes as u64);
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
                        return Err(ReadFailure::Api(ApiError::bad_data(message)));
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

type ResponsePart = Result<Bytes, ApiError>;

/// Responds with frames, which are encoded while they are sent.
async fn streamed(
    source: Arc<dyn Source>,
    queries: Vec<CompiledQuery>,
    lookup: Lookup,
    frame_bytes_max: usize,
) -> Result<Response, ApiError> {
    let (sender, mut parts) = mpsc::channel::<ResponsePart>(PARTS_MAX);
    let sending_rest = lookup.sending();
    let error_sender = sender.clone();
    let sending = tokio::spawn(send_frames(source, queries, lookup, frame_bytes_max, sender));
    tokio::spawn(async move {
        // A panic must not look like the end of the stream.
        if let Err(error) = sending.await {
            let _ = error_sender.send(Err(ApiError::internal(error.to_string()))).await;
        }
    });
    let first = match parts.recv().await {
        Some(Ok(first)) => first,
        Some(Err(error)) => return Err(error),
        None => Bytes::new(),
    };
    let rest = stream::poll_fn(move |context| parts.poll_recv(context));
    let rest = rest.map(|part| part.map_err(|error| std::io::Error::other(format!("{error:?}"))));
    let body = sending_rest.start(Box::pin(stream::iter([Ok(first)]).chain(rest)));
    let response = Response::new(Body::from_stream(body));
    Ok(with_type(response, HeaderValue::from_static(STREAMED_TYPE)))
}

/// Selects and encodes one query after the other, until the reader is gone.
async fn send_frames(
    source: Arc<dyn Source>,
    queries: Vec<CompiledQuery>,
    mut lookup: Lookup,
    frame_bytes_max: usize,
    sender: mpsc::Sender<ResponsePart>,
) {
    for (query_index, query) in queries.into_iter().enumerate() {
        let found = tokio::select! {
            found = query.find(&source, &lookup) => found,
            () = sender.closed() => return,
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                // A reader that is gone needs no error.
                let _ = sender.send(Err(error)).await;
                return;
            }
        };
        let end_ms = query.selection.times.end_ms;
        let mut parts = Parts { sender: sender.clone(), lookup };
        let encode = move || {
            let frames = FrameEncoder::new(query_index, frame_bytes_max);
            match encode_frames(frames, &found, end_ms, &mut parts) {
                Ok(()) => return Some(parts.lookup),
                Err(ReadFailure::Api(error)) => {
                    let _ = parts.sender.blocking_send(Err(error));
                }
                Err(ReadFailure::Left) => {}
            }
            None
        };
        // A panic must not look like the end of the stream.
        match tokio::task::spawn_blocking(encode).await {
            Ok(Some(goes_on)) => lookup = goes_on,
            Ok(None) => return,
            Err(error) => {
                let _ = sender.send(Err(ApiError::internal(error.to_string()))).await;
                return;
            }
        }
    }
}

/// Sender of frames, part by part.
struct Parts {
    sender: mpsc::Sender<ResponsePart>,
    lookup: Lookup,
}

impl Parts {
    /// Sends a part. While the reader has no room for it, the permits are released.
    ///
    /// Errors: the reader is gone, or no slot was free in time.
    /// Panics: outside of a blocking thread.
    fn send(&mut self, part: Vec<u8>) -> Result<(), ReadFailure> {
        let lookup = &mut self.lookup;
        let sending = async {
            let room = tokio::time::timeout(READER_GRACE, self.sender.reserve()).await;
            let room = match room {
                Ok(room) => room,
                Err(_) => {
                    lookup.pause();
                    let room = self.sender.reserve().await;
                    tokio::select! {
                        resumed = lookup.resume() => resumed.map_err(ApiError::from)?,
                        () = self.sender.closed() => return Err(ReadFailure::Left),
                    }
                    room
                }
            };
            room.map_err(|_| ReadFailure::Left)?.send(Ok(Bytes::from(part)));
            Ok(())
        };
        tokio::runtime::Handle::current().block_on(sending)
    }
}

fn encode_frames(
    mut frames: FrameEncoder,
    found: &ReadResult,
    end_ms: i64,
    parts: &mut Parts,
) -> Result<(), ReadFailure> {
    let mut out = Vec::new();
    let budget = parts.lookup.budget.clone();
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
                    Ok(())
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
