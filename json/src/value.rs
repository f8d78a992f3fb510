//! Value of a query.

use std::ops::Range;

use engine::plan::Explained;
use engine::result::{RawSeries, Row, SampleValue, StepStats};
use engine::{QueryOutput, Value};
use model::{Histogram, Labels};

use crate::cost::{QueryCost, push_cost, push_explained};
use crate::number::{
    push_integer, push_sample_value, push_scalar_value, push_timestamp, push_timestamp_short,
};
use crate::pieces::{Items, Parts, Pieces, enclosed, labels_text_bytes, parts_of};
use crate::points::Times;
use crate::text::{push_labels, push_text};

/// Maximum number of points in a piece; whole words of presence.
const PIECE_POINTS: usize = 512;
/// Maximum length of the text of most points.
const POINT_BYTES: usize = 36;
/// Length of the rest of a series.
const SERIES_BYTES: usize = 40;

/// Encodes the value of a query at once instead of streaming it.
pub fn encode_value(output: QueryOutput) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pieces = ValuePieces::new(output, None);
    while pieces.push_next(&mut out) {}
    out
}

/// Value with its type and, if requested, its cost.
pub struct ValuePieces {
    value: Value,
    cost: Option<QueryCost>,
    explained: Option<Explained>,
    step_stats: Option<StepStats>,
    /// Index of the next series; `None` at the start.
    series_index: Option<usize>,
    /// Index of its next point.
    point_index: usize,
    /// True once a point of it is written, so that a comma precedes the next one.
    has_points: bool,
    /// Times of a grid, from its first row on.
    times: Option<Times>,
}

impl ValuePieces {
    /// Returns the pieces of an answer, with its cost if given.
    pub fn new(output: QueryOutput, cost: Option<QueryCost>) -> ValuePieces {
        ValuePieces {
            value: output.value,
            cost,
            explained: output.explained,
            step_stats: output.step_stats,
            series_index: None,
            point_index: 0,
            has_points: false,
            times: None,
        }
    }

    fn push_head(&self, out: &mut Vec<u8>) {
        let (kind, bracket) = match &self.value {
            Value::Scalar { .. } => ("scalar", ""),
            Value::String { .. } => ("string", ""),
            Value::Vector { .. } => ("vector", "["),
            Value::Grid { .. } | Value::Samples(_) => ("matrix", "["),
        };
        out.extend_from_slice(b"{\"resultType\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"result\":");
        out.extend_from_slice(bracket.as_bytes());
    }

    fn push_tail(&self, out: &mut Vec<u8>) {
        if matches!(self.value, Value::Vector { .. } | Value::Grid { .. } | Value::Samples(_)) {
            out.push(b']');
        }
        if let Some(cost) = &self.cost {
            push_cost(out, cost, self.step_stats.as_ref());
        }
        if let Some(explained) = &self.explained {
            out.extend_from_slice(b",\"explain\":");
            push_explained(out, explained);
        }
        out.push(b'}');
    }
}

/// Samples of a vector.
struct VectorItems {
    samples: Vec<(Labels, SampleValue)>,
    time_ms: i64,
}

impl Items for VectorItems {
    fn count(&self) -> usize {
        self.samples.len()
    }

    /// A bucket of a histogram is about as long as a point.
    fn text_bytes(&self, index: usize) -> usize {
        let (labels, value) = &self.samples[index];
        let points = match value {
            SampleValue::Float(_) => 1,
            SampleValue::Histogram(histogram) => 1 + histogram.heap_bytes() / size_of::<f64>(),
        };
        SERIES_BYTES + labels_text_bytes(labels) + POINT_BYTES * points
    }

    fn encode(&self, index: usize, out: &mut Vec<u8>) {
        let (labels, value) = &self.samples[index];
        push_sample(out, index, labels, self.time_ms, value);
    }
}

/// Rows of a grid of floats.
struct GridItems {
    rows: Vec<Row>,
    times: Times,
}

impl Items for GridItems {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn text_bytes(&self, index: usize) -> usize {
        let Row { labels, presence, .. } = &self.rows[index];
        let points: usize = presence.iter().map(|word| word.count_ones() as usize).sum();
        SERIES_BYTES + labels_text_bytes(labels) + POINT_BYTES * points
    }

    fn encode(&self, index: usize, out: &mut Vec<u8>) {
        let (mut next, mut has_points) = (Some(0), false);
        while let Some(first) = next {
            next = push_row(out, index, &self.rows[index], &self.times, first, &mut has_points);
        }
    }
}

impl Pieces for ValuePieces {
    fn bytes(&self) -> u64 {
        self.value.bytes()
    }

    /// Splits vectors and grids of floats. Grids with histograms are not split, because one row may
    /// exceed a part.
    fn into_parts(mut self) -> Result<Parts, Self> {
        assert!(self.series_index.is_none(), "pieces were written");
        let is_float_row = |row: &Row| row.histograms.is_empty();
        let parts = match &mut self.value {
            Value::Vector { time_ms, samples } => {
                let items = VectorItems { samples: std::mem::take(samples), time_ms: *time_ms };
                parts_of(items).map_err(|items| *samples = items.samples)
            }
            Value::Grid { steps, rows } if rows.iter().all(is_float_row) => {
                let times = Times::new(*steps);
                parts_of(GridItems { rows: std::mem::take(rows), times }).map_err(|items| {
                    *rows = items.rows;
                    self.times = Some(items.times);
                })
            }
            _ => Err(()),
        };
        let Ok(parts) = parts else { return Err(self) };
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        self.push_head(&mut head);
        self.push_tail(&mut tail);
        Ok(enclosed(head, parts, tail))
    }

    fn push_next(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(series_index) = self.series_index else {
            self.push_head(out);
            self.series_index = Some(0);
            return true;
        };
        // Next point of the series after this piece; `None` at the end of the series.
        let progress = match &self.value {
            Value::Scalar { time_ms, value } => {
                push_single(out, *time_ms, |out| push_scalar_value(out, *value));
                self.push_tail(out);
                return false;
            }
            Value::String { time_ms, value } => {
                push_single(out, *time_ms, |out| push_text(out, value));
                self.push_tail(out);
                return false;
            }
            Value::Vector { time_ms, samples } => {
                let Some((labels, value)) = samples.get(series_index) else {
                    self.push_tail(out);
                    return false;
                };
                push_sample(out, series_index, labels, *time_ms, value);
                None
            }
            Value::Grid { steps, rows } => {
                let Some(row) = rows.get(series_index) else {
                    self.push_tail(out);
                    return false;
                };
                let times = self.times.get_or_insert_with(|| Times::new(*steps));
                push_row(out, series_index, row, times, self.point_index, &mut self.has_points)
            }
            Value::Samples(series) => {
                let Some(series) = series.get(series_index) else {
                    self.push_tail(out);
                    return false;
                };
                push_raw(out, series_index, series, self.point_index, &mut self.has_points)
            }
        };
        match progress {
            Some(point_index) => self.point_index = point_index,
            None => {
                self.series_index = Some(series_index + 1);
                self.point_index = 0;
                self.has_points = false;
            }
        }
        true
    }
}

fn push_single(out: &mut Vec<u8>, time_ms: i64, push_value: impl Fn(&mut Vec<u8>)) {
    out.push(b'[');
    push_timestamp_short(out, time_ms);
    out.push(b',');
    push_value(out);
    out.push(b']');
}

fn push_metric(out: &mut Vec<u8>, series_index: usize, labels: &Labels) {
    if series_index > 0 {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"metric\":");
    push_labels(out, labels);
}

fn push_sample(
    out: &mut Vec<u8>,
    series_index: usize,
    labels: &Labels,
    time_ms: i64,
    value: &SampleValue,
) {
    push_metric(out, series_index, labels);
    match value {
        SampleValue::Float(value) => {
            out.extend_from_slice(b",\"value\":");
            push_point(out, time_ms, *value);
        }
        SampleValue::Histogram(histogram) => {
            out.extend_from_slice(b",\"histogram\":");
            push_histogram_point(out, time_ms, histogram);
        }
    }
    out.push(b'}');
}

#[inline]
fn push_point(out: &mut Vec<u8>, time_ms: i64, value: f64) {
    out.push(b'[');
    push_timestamp(out, time_ms);
    out.push(b',');
    push_sample_value(out, value);
    out.push(b']');
}

/// Writes a time and a histogram: count, sum, and the buckets that are not empty, each with its
/// inclusive bounds (0: the upper one, 1: the lower one, 2: none, 3: both), the bounds and the count.
///
/// Source: `MarshalHistogram` of Prometheus.
fn push_histogram_point(out: &mut Vec<u8>, time_ms: i64, histogram: &Histogram) {
    out.push(b'[');
    push_timestamp(out, time_ms);
    out.extend_from_slice(b",{\"count\":");
    push_sample_value(out, histogram.count);
    out.extend_from_slice(b",\"sum\":");
    push_sample_value(out, histogram.sum);
    let mut has_buckets = false;
    for (rule, lower, upper, count) in histogram.populated_buckets() {
        let opening: &[u8] = if has_buckets { b",[" } else { b",\"buckets\":[[" };
        out.extend_from_slice(opening);
        has_buckets = true;
        push_integer(out, u64::from(rule));
        for number in [lower, upper, count] {
            out.push(b',');
            push_sample_value(out, number);
        }
        out.push(b']');
    }
    out.extend_from_slice(if has_buckets { b"]}]" } else { b"}]" });
}

/// Writes the next points of a row, first its floats, then its histograms. Returns the next cell,
/// with cells of histograms counted after those of floats, or `None` at the end of the row.
fn push_row(
    out: &mut Vec<u8>,
    series_index: usize,
    row: &Row,
    times: &Times,
    first: usize,
    has_points: &mut bool,
) -> Option<usize> {
    let count = row.values.len();
    let push = |out: &mut Vec<u8>, cells: Range<usize>, has_points: &mut bool| {
        if cells.start < count {
            return times.push_points(out, &row.values, &row.presence, cells, has_points);
        }
        for step_index in cells.start - count..cells.end - count {
            if let Some(histogram) = &row.histograms[step_index] {
                push_separator(out, has_points);
                push_histogram_point(out, times.time(step_index), histogram);
            }
        }
    };
    let has_floats = row.presence.iter().any(|word| *word != 0);
    let kinds = Kinds {
        floats: if has_floats { count } else { 0 },
        floats_end: count,
        histograms: if row.iter_histograms().next().is_some() { count } else { 0 },
    };
    push_points(out, series_index, &row.labels, kinds, first, has_points, push)
}

fn push_raw(
    out: &mut Vec<u8>,
    series_index: usize,
    series: &RawSeries,
    first: usize,
    has_points: &mut bool,
) -> Option<usize> {
    let count = series.timestamps.len();
    let push = |out: &mut Vec<u8>, cells: Range<usize>, has_points: &mut bool| {
        for index in cells {
            push_separator(out, has_points);
            match index.checked_sub(count) {
                None => push_point(out, series.timestamps[index], series.values[index]),
                Some(index) => {
                    let (time_ms, histogram) = &series.histograms[index];
                    push_histogram_point(out, *time_ms, histogram);
                }
            }
        }
    };
    let kinds = Kinds { floats: count, floats_end: count, histograms: series.histograms.len() };
    push_points(out, series_index, &series.labels, kinds, first, has_points, push)
}

/// Number of cells of a series: floats first, histograms from `floats_end` on.
#[derive(Clone, Copy)]
struct Kinds {
    floats: usize,
    floats_end: usize,
    histograms: usize,
}

/// Writes the next cells of a series, first floats, then histograms, each kind under its name if it
/// is present.
fn push_points(
    out: &mut Vec<u8>,
    series_index: usize,
    labels: &Labels,
    kinds: Kinds,
    first: usize,
    has_points: &mut bool,
    push: impl Fn(&mut Vec<u8>, Range<usize>, &mut bool),
) -> Option<usize> {
    if first == 0 {
        push_metric(out, series_index, labels);
    }
    let (start, end, name): (usize, usize, &[u8]) = if first < kinds.floats {
        (0, kinds.floats, b",\"values\":")
    } else {
        let start = kinds.floats_end;
        (start, start + kinds.histograms, b",\"histograms\":")
    };
    let from = first.max(start);
    if from < end {
        if from == start {
            out.extend_from_slice(name);
            *has_points = false;
        }
        let to = (from + PIECE_POINTS).min(end);
        push(out, from..to, has_points);
        if to < end {
            return Some(to);
        }
        out.push(b']');
        if start < kinds.floats_end && kinds.histograms > 0 {
            return Some(kinds.floats_end);
        }
    }
    out.push(b'}');
    None
}

/// Writes the comma before a point, or the bracket before the first one.
#[inline]
fn push_separator(out: &mut Vec<u8>, has_points: &mut bool) {
    out.push(if std::mem::replace(has_points, true) { b',' } else { b'[' });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pieces::Part;
    use engine::Annotations;
    use engine::result::QueryStats;
    use engine::steps::Steps;
    use model::{ObjectStoreCost, Span};

    fn output(value: Value) -> QueryOutput {
        QueryOutput {
            value,
            annotations: Annotations::default(),
            stats: QueryStats::default(),
            explained: None,
            step_stats: None,
        }
    }

    fn json(value: Value, cost: Option<QueryCost>) -> String {
        let mut pieces = ValuePieces::new(output(value), cost);
        let mut whole = Vec::new();
        // A new buffer per piece, as if each piece filled a chunk.
        loop {
            let mut piece = Vec::new();
            let is_more = pieces.push_next(&mut piece);
            whole.append(&mut piece);
            if !is_more {
                return String::from_utf8(whole).unwrap();
            }
        }
    }

    fn up() -> Labels {
        Labels::from_pairs([("__name__", "up"), ("job", "<a>")])
    }

    fn row(presence: u64, values: &[f64]) -> Row {
        let (values, presence) = (values.to_vec(), vec![presence]);
        Row { labels: up(), values, presence, histograms: Vec::new() }
    }

    #[test]
    fn each_type_has_its_shape() {
        let steps = Steps::range(1000, 4500, 1500).unwrap();
        let metric = r#"{"metric":{"__name__":"up","job":"<a>"},"#;
        let cases = [
            (
                Value::Scalar { time_ms: 5100, value: 1e-10 },
                r#"{"resultType":"scalar","result":[5.1,"0.0000000001"]}"#.to_owned(),
            ),
            (
                Value::String { time_ms: 5100, value: "<".to_owned() },
                r#"{"resultType":"string","result":[5.1,"\u003c"]}"#.to_owned(),
            ),
            (
                Value::Vector { time_ms: 5100, samples: vec![] },
                r#"{"resultType":"vector","result":[]}"#.to_owned(),
            ),
            (
                Value::Vector {
                    time_ms: 5100,
                    samples: vec![(up(), 1e-10.into()), (Labels::empty(), 2.0.into())],
                },
                format!(
                    r#"{{"resultType":"vector","result":[{metric}"value":[5.100,"1e-10"]}},{{"metric":{{}},"value":[5.100,"2"]}}]}}"#
                ),
            ),
            (
                Value::Grid { steps, rows: vec![] },
                r#"{"resultType":"matrix","result":[]}"#.to_owned(),
            ),
            (
                Value::Grid {
                    steps,
                    rows: vec![row(0b101, &[1.0, 9.0, 3.0]), row(0b010, &[0.0, f64::NAN, 0.0])],
                },
                format!(
                    r#"{{"resultType":"matrix","result":[{metric}"values":[[1,"1"],[4,"3"]]}},{metric}"values":[[2.500,"NaN"]]}}]}}"#
                ),
            ),
            (
                Value::Samples(vec![RawSeries {
                    labels: up(),
                    timestamps: vec![1, 2],
                    values: vec![0.5, f64::INFINITY],
                    histograms: Vec::new(),
                }]),
                format!(
                    r#"{{"resultType":"matrix","result":[{metric}"values":[[0.001,"0.5"],[0.002,"+Inf"]]}}]}}"#
                ),
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(json(value, None), expected);
        }
    }

    #[test]
    fn long_rows_are_whole_across_pieces() {
        let count = 3 * PIECE_POINTS + 7;
        let steps = Steps { start_ms: 0, step_ms: 1000, count };
        // Nothing is present around the end of the first piece.
        let mut presence = vec![u64::MAX; count.div_ceil(64)];
        presence[7..10].fill(0);
        let mut row = Row {
            labels: Labels::empty(),
            values: (0..count).map(|i| i as f64).collect(),
            presence,
            histograms: Vec::new(),
        };
        let floats: Vec<_> =
            row.iter().map(|(i, v)| serde_json::json!([i, v.to_string()])).collect();
        let text = json(Value::Grid { steps, rows: vec![row.clone()] }, None);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["result"][0]["values"], serde_json::Value::from(floats.clone()));
        assert!(read["result"][0].get("histograms").is_none());

        row.histograms = vec![None; count];
        for i in (448..count).filter(|i| i / 64 < 10) {
            let histogram = Histogram { count: i as f64, ..Histogram::default() };
            row.histograms[i] = Some(Arc::new(histogram));
        }
        let histograms: Vec<_> = row
            .iter_histograms()
            .map(|(i, _)| serde_json::json!([i, {"count": i.to_string(), "sum": "0"}]))
            .collect();
        assert_eq!(histograms.len(), 3 * 64);
        let text = json(Value::Grid { steps, rows: vec![row.clone()] }, None);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["result"][0]["values"], serde_json::Value::from(floats));
        assert_eq!(read["result"][0]["histograms"], serde_json::Value::from(histograms.clone()));

        row.presence.fill(0);
        let text = json(Value::Grid { steps, rows: vec![row] }, None);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(read["result"][0].get("values").is_none());
        assert_eq!(read["result"][0]["histograms"], serde_json::Value::from(histograms));
    }

    /// Asserts that a value has several parts, which are its text in any order of encoding.
    fn check_parts(value: Value) {
        let expected = encode_value(output(value.clone()));
        let Ok(parts) = ValuePieces::new(output(value), None).into_parts() else {
            panic!("it has parts")
        };
        let parts: Vec<Part> = parts.collect();
        assert!(parts.len() > 1);
        let mut encoded = vec![Vec::new(); parts.len()];
        for (part, out) in parts.into_iter().zip(&mut encoded).rev() {
            part(out);
        }
        assert!(encoded.concat() == expected);
    }

    /// Asserts that a value has no parts, and is not changed by the attempt.
    fn check_no_parts(value: Value) {
        let expected = json(value.clone(), None);
        let Err(mut pieces) = ValuePieces::new(output(value), None).into_parts() else {
            panic!("it has parts")
        };
        let mut text = Vec::new();
        while pieces.push_next(&mut text) {}
        assert!(text == expected.as_bytes());
    }

    #[test]
    fn parts_of_a_grid_are_its_text() {
        let count = 3 * PIECE_POINTS + 7;
        let steps = Steps { start_ms: 0, step_ms: 1000, count };
        let row_of = |number: usize| {
            let mut presence = vec![u64::MAX; count.div_ceil(64)];
            // The first word of every other row has no points.
            presence[0] = if number.is_multiple_of(2) { 0 } else { u64::MAX };
            let values = (0..count).map(|i| (i * number) as f64).collect();
            Row { labels: up(), values, presence, histograms: Vec::new() }
        };
        let mut rows: Vec<Row> = (0..12).map(row_of).collect();
        check_parts(Value::Grid { steps, rows: rows.clone() });
        check_no_parts(Value::Grid { steps, rows: rows[..2].to_vec() });
        let labels = Labels::from_pairs([("a", "x".repeat(200 << 10))]);
        let of_long_labels = vec![Row { labels, ..row(1, &[2.0]) }; 3];
        check_parts(Value::Grid { steps: Steps { count: 1, ..steps }, rows: of_long_labels });
        rows[1].histograms = vec![None; count];
        check_no_parts(Value::Grid { steps, rows });
    }

    #[test]
    fn parts_of_a_vector_are_its_text() {
        let spans = vec![Span { offset: 0, length: 400 }];
        let histogram = Arc::new(Histogram {
            positive_spans: spans,
            positive_counts: vec![3.0; 400],
            ..Histogram::default()
        });
        let sample = |number: usize| match number % 5 {
            0 => (up(), SampleValue::from(Arc::clone(&histogram))),
            _ => (up(), SampleValue::from(number as f64)),
        };
        let samples: Vec<_> = (0..299).map(sample).collect();
        check_no_parts(Value::Vector { time_ms: 7, samples: samples[..9].to_vec() });
        check_parts(Value::Vector { time_ms: 7, samples });
        check_no_parts(Value::Vector { time_ms: 7, samples: vec![] });
        check_no_parts(Value::Scalar { time_ms: 7, value: 1.0 });
    }

    #[test]
    fn histograms_show_the_buckets_that_are_not_empty() {
        let histogram = Arc::new(Histogram {
            zero_threshold: 0.25,
            zero_count: 3.0,
            count: 21.5,
            sum: -34593.34,
            positive_spans: vec![Span { offset: 0, length: 3 }],
            positive_counts: vec![12.0, 0.0, 2.5],
            negative_spans: vec![Span { offset: 1, length: 1 }],
            negative_counts: vec![4.0],
            ..Histogram::default()
        });
        let shown = concat!(
            r#"{"count":"21.5","sum":"-34593.34","buckets":[[1,"-2","-1","4"],"#,
            r#"[3,"-0.25","0.25","3"],[0,"0.5","1","12"],[0,"2","4","2.5"]]}"#
        );
        let metric = r#"{"metric":{"__name__":"up","job":"<a>"},"#;
        let samples = vec![(up(), SampleValue::Histogram(Arc::clone(&histogram)))];
        assert_eq!(
            json(Value::Vector { time_ms: 5100, samples }, None),
            format!(
                r#"{{"resultType":"vector","result":[{metric}"histogram":[5.100,{shown}]}}]}}"#
            )
        );
        let series = RawSeries {
            labels: up(),
            timestamps: vec![1000],
            values: vec![7.0],
            histograms: vec![(2000, Arc::clone(&histogram)), (3000, histogram)],
        };
        assert_eq!(
            json(Value::Samples(vec![series]), None),
            format!(
                r#"{{"resultType":"matrix","result":[{metric}"values":[[1,"7"]],"histograms":[[2,{shown}],[3,{shown}]]}}]}}"#
            )
        );
    }

    #[test]
    fn cost_bears_the_names_of_prometheus() {
        let stats = QueryStats {
            sample_count: 7,
            memory_bytes_peak: 64,
            object_store: ObjectStoreCost { reads: 3, read_bytes: 4096, cached_bytes: 5 },
            prepare_seconds: 0.5,
            load_seconds: 0.25,
            execute_seconds: 0.125,
            ..QueryStats::default()
        };
        let text = json(
            Value::Scalar { time_ms: 0, value: 1.0 },
            Some(QueryCost { stats, queue_seconds: 1.0, is_per_step: false }),
        );
        assert_eq!(
            text,
            concat!(
                r#"{"resultType":"scalar","result":[0,"1"],"stats":{"timings":{"#,
                r#""evalTotalTime":0.375,"resultSortTime":0,"queryPreparationTime":0.5,"#,
                r#""innerEvalTime":0.125,"execQueueTime":1,"execTotalTime":1.875},"#,
                r#""samples":{"totalQueryableSamples":7,"samplesRead":7,"peakSamples":4},"#,
                r#""storage":{"reads":3,"readBytes":4096,"cachedBytes":5}}}"#
            )
        );
    }
}
