//! Encoding of responses, each message on its own. A stream of series is encoded message by
//! message, so only one is in memory at a time.

use model::{Exemplar, Histogram, KnownMetric, Labels, SeriesExemplars, TimeRange};

use crate::fields::{push_bytes, push_double, push_integer};
use crate::read::{ChunkRef, SeriesEncoder};

/// Size from which a batch of series is sent, in bytes.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum time of a node, in ms: no upper bound.
const MAX_TIME_MS: u64 = i64::MAX as u64;

/// Collects encoded series until a message is full. Responses with samples and with chunks have the
/// same fields.
#[derive(Debug)]
struct Batches {
    /// Number of the field of a single series, for clients without batches.
    single_field: u32,
    series_max: usize,
    batch: Vec<u8>,
    series_count: usize,
}

/// Number of the field of a batch.
const BATCH_FIELD: u32 = 4;

impl Batches {
    fn new(single_field: u32, series_max: usize) -> Batches {
        Batches { single_field, series_max, batch: Vec::new(), series_count: 0 }
    }

    /// Adds a series. Returns a message if it is full.
    fn push(&mut self, series: &[u8]) -> Option<Vec<u8>> {
        if self.series_max <= 1 {
            let mut message = Vec::with_capacity(series.len() + 8);
            push_bytes(&mut message, self.single_field, series);
            return Some(message);
        }
        push_bytes(&mut self.batch, 1, series);
        self.series_count += 1;
        let is_full = self.series_count == self.series_max || self.batch.len() >= BATCH_BYTES;
        if is_full { self.finish() } else { None }
    }

    /// Returns the last message; `None` without further series.
    fn finish(&mut self) -> Option<Vec<u8>> {
        if self.series_count == 0 {
            return None;
        }
        let mut message = Vec::with_capacity(self.batch.len() + 8);
        push_bytes(&mut message, BATCH_FIELD, &self.batch);
        self.batch.clear();
        self.series_count = 0;
        Some(message)
    }
}

/// Encodes the `QueryResponse` messages of series with samples.
#[derive(Debug)]
pub struct QueryResponses {
    batches: Batches,
    series: SeriesEncoder,
    sample_count: usize,
}

impl QueryResponses {
    /// Creates an encoder of messages of up to `batch_series_max` series.
    pub fn new(batch_series_max: usize) -> QueryResponses {
        let batches = Batches::new(2, batch_series_max);
        QueryResponses { batches, series: SeriesEncoder::default(), sample_count: 0 }
    }

    /// Starts a series.
    pub fn begin(&mut self, labels: &Labels) {
        self.series.begin(labels);
        self.sample_count = 0;
    }

    /// Adds a float.
    pub fn push_float(&mut self, time_ms: i64, value: f64) {
        self.series.push_float(time_ms, value);
        self.sample_count += 1;
    }

    /// Adds a histogram, with counts as floats: Thanos rejects integers in ranges.
    pub fn push_histogram(&mut self, time_ms: i64, histogram: &Histogram) {
        self.series.push_float_histogram(time_ms, histogram);
        self.sample_count += 1;
    }

    /// Ends the series, which is omitted without samples. Returns a message if it is full.
    pub fn end(&mut self) -> Option<Vec<u8>> {
        if self.sample_count == 0 { None } else { self.batches.push(self.series.encoded()) }
    }

    /// Returns the last message of series, if there are further ones.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.batches.finish()
    }

    /// Returns the message with statistics.
    pub fn stats(sample_count: u64) -> Vec<u8> {
        let mut stats = Vec::new();
        push_integer(&mut stats, 1, sample_count);
        nested(3, &stats)
    }
}

/// Encodes the `SeriesResponse` messages of series with chunks.
#[derive(Debug)]
pub struct SeriesResponses {
    batches: Batches,
    series: Vec<u8>,
    chunk: Vec<u8>,
    part: Vec<u8>,
}

impl SeriesResponses {
    /// Creates an encoder of messages of up to `batch_series_max` series.
    pub fn new(batch_series_max: usize) -> SeriesResponses {
        SeriesResponses {
            batches: Batches::new(1, batch_series_max),
            series: Vec::new(),
            chunk: Vec::new(),
            part: Vec::new(),
        }
    }

    /// Starts a series.
    pub fn begin(&mut self, labels: &Labels) {
        self.series.clear();
        push_labels(&mut self.series, 1, labels, &mut self.part);
    }

    /// Adds a chunk, whose encoding has the number of Prometheus.
    pub fn push_chunk(&mut self, chunk: ChunkRef<'_>) {
        let (aggregate, raw) = (&mut self.chunk, &mut self.part);
        raw.clear();
        // Thanos counts encodings from 0.
        push_integer(raw, 1, u64::from(chunk.encoding.saturating_sub(1)));
        push_bytes(raw, 2, chunk.data);
        aggregate.clear();
        push_integer(aggregate, 1, chunk.min_ms as u64);
        push_integer(aggregate, 2, chunk.max_ms as u64);
        push_bytes(aggregate, 3, raw);
        push_bytes(&mut self.series, 2, aggregate);
    }

    /// Size of the series so far, in bytes.
    pub fn series_bytes(&self) -> usize {
        self.series.len()
    }

    /// Ends the series. Returns a message if it is full.
    pub fn end(&mut self) -> Option<Vec<u8>> {
        self.batches.push(&self.series)
    }

    /// Returns the last message, if there are further series.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.batches.finish()
    }
}

/// Encodes a warning of a query (`field` 1), or of series, exemplars, metadata or statistics (2).
pub fn warning(field: u32, text: &str) -> Vec<u8> {
    nested(field, text.as_bytes())
}

/// Encodes an `InfoResponse` of a node that serves queries, series, exemplars, metadata and
/// statistics of all times, under its external labels.
pub fn info(external_labels: &Labels) -> Vec<u8> {
    let mut part = Vec::new();
    let mut label_set = Vec::new();
    push_labels(&mut label_set, 1, external_labels, &mut part);
    let mut tsdb = Vec::new();
    push_bytes(&mut tsdb, 1, &label_set);
    push_integer(&mut tsdb, 3, MAX_TIME_MS);
    let mut store = Vec::new();
    push_integer(&mut store, 2, MAX_TIME_MS);
    push_bytes(&mut store, 6, &tsdb);
    let mut exemplars = Vec::new();
    push_integer(&mut exemplars, 2, MAX_TIME_MS);
    let mut message = Vec::new();
    push_bytes(&mut message, 1, &label_set);
    push_bytes(&mut message, 2, b"query");
    push_bytes(&mut message, 3, &store);
    push_bytes(&mut message, 5, &[]);
    push_bytes(&mut message, 7, &exemplars);
    push_bytes(&mut message, 8, &[]);
    push_bytes(&mut message, 9, &[]);
    message
}

/// Encodes a `LabelNamesResponse` or a `LabelValuesResponse`.
pub fn label_list<T: AsRef<str>>(names: &[T]) -> Vec<u8> {
    let mut message = Vec::new();
    for name in names {
        push_bytes(&mut message, 1, name.as_ref().as_bytes());
    }
    message
}

/// Encodes an `ExemplarsResponse` of one series.
pub fn exemplars(series: &SeriesExemplars) -> Vec<u8> {
    let (mut data, mut part) = (Vec::new(), Vec::new());
    let mut label_set = Vec::new();
    push_labels(&mut label_set, 1, &series.labels, &mut part);
    push_bytes(&mut data, 1, &label_set);
    let mut encoded = Vec::new();
    for Exemplar { labels, timestamp_ms, value } in &series.exemplars {
        label_set.clear();
        push_labels(&mut label_set, 1, labels, &mut part);
        encoded.clear();
        push_bytes(&mut encoded, 1, &label_set);
        push_double(&mut encoded, 2, *value);
        push_integer(&mut encoded, 3, *timestamp_ms as u64);
        push_bytes(&mut data, 2, &encoded);
    }
    nested(1, &data)
}

/// Encodes a `MetricMetadataResponse`; of each metric, the latest entry comes first.
pub fn metric_metadata(metrics: &[KnownMetric]) -> Vec<u8> {
    let (mut map, mut pair) = (Vec::new(), Vec::new());
    let (mut entry, mut meta) = (Vec::new(), Vec::new());
    for known in metrics {
        entry.clear();
        for metadata in known.entries.iter().rev() {
            meta.clear();
            push_text(&mut meta, 1, metadata.kind.as_str());
            push_text(&mut meta, 2, &metadata.help);
            push_text(&mut meta, 3, &metadata.unit);
            push_bytes(&mut entry, 2, &meta);
        }
        pair.clear();
        push_text(&mut pair, 1, &known.metric);
        push_bytes(&mut pair, 2, &entry);
        push_bytes(&mut map, 1, &pair);
    }
    nested(1, &map)
}

/// Statistics of the head, and lists of names with their counts.
#[derive(Debug, Clone, Copy)]
pub struct BlockStatistics<'a> {
    /// Number of series.
    pub series: u64,
    /// Number of pairs of a label and a value.
    pub label_pairs: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Times of the samples; `None` without any.
    pub times: Option<TimeRange>,
    /// Series by metric, values by label, bytes by label, and series by label pair.
    pub lists: [&'a [(String, u64)]; 4],
}

/// Encodes a `TSDBStatisticsResponse` of one tenant.
pub fn statistics(tenant: &str, found: &BlockStatistics<'_>) -> Vec<u8> {
    let (mut entry, mut part) = (Vec::new(), Vec::new());
    push_integer(&mut part, 1, found.series);
    push_integer(&mut part, 2, found.label_pairs);
    push_integer(&mut part, 3, found.chunks);
    // Without samples, Prometheus shows the initial values of its comparisons.
    push_integer(&mut part, 4, found.times.map_or(i64::MAX, |times| times.start_ms) as u64);
    push_integer(&mut part, 5, found.times.map_or(i64::MIN, |times| times.end_ms) as u64);
    push_bytes(&mut entry, 1, &part);
    for (field, list) in (2..).zip(found.lists) {
        for (name, count) in list {
            part.clear();
            push_text(&mut part, 1, name);
            push_integer(&mut part, 2, *count);
            push_bytes(&mut entry, field, &part);
        }
    }
    let mut pair = Vec::new();
    push_text(&mut pair, 1, tenant);
    push_bytes(&mut pair, 2, &entry);
    nested(1, &nested(1, &pair))
}

/// Returns a message with one nested message or text.
fn nested(field: u32, content: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(content.len() + 8);
    push_bytes(&mut message, field, content);
    message
}

fn push_text(out: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        push_bytes(out, field, text.as_bytes());
    }
}

/// Adds labels as nested messages of a field.
fn push_labels(out: &mut Vec<u8>, field: u32, labels: &Labels, part: &mut Vec<u8>) {
    for (name, value) in labels.iter() {
        part.clear();
        push_text(part, 1, name);
        push_text(part, 2, value);
        push_bytes(out, field, part);
    }
}
