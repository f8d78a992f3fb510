//! Value of a query.

use std::ops::Range;
use std::sync::Arc;

use engine::plan::Explained;
use engine::result::{RawSeries, Row, SampleValue, StepStats};
use engine::{QueryOutput, Value};
use model::{Histogram, Labels};

use crate::cost::{QueryCost, push_cost, push_explained};
use crate::number::{
    push_integer, push_sample_value, push_scalar_value, push_timestamp, push_timestamp_short,
};
use crate::pieces::{Part, Parts, Pieces};
use crate::points::Times;
use crate::text::{push_labels, push_text};

/// Maximum number of points in a piece; whole words of presence.
const PIECE_POINTS: usize = 512;
/// Points of a part that a thread encodes; a single row may have more.
const PART_POINTS: usize = 8192;
/// Bytes of packed labels that count as a point of a part.
const POINT_LABEL_BYTES: usize = 32;
/// Points that the rest of a sample's text counts as.
const SAMPLE_POINTS: usize = 2;
/// Bytes of such a part, about.
const PART_BYTES: usize = 256 << 10;

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

/// Returns the end of the part that begins with an item: as many items as have [`PART_POINTS`]
/// points together, and at least one unless there are no more.
fn part_end<T>(items: &[T], first: usize, points_of: impl Fn(&T) -> usize) -> usize {
    let mut points = 0;
    let fits = |item: &T| {
        points += points_of(item);
        points <= PART_POINTS
    };
    let items = &items[first..];
    let count = items.iter().map(fits).take_while(|fits| *fits).count();
    first + count.max(1).min(items.len())
}

/// Points of a row with its labels; steps without a point do not count.
fn row_points(row: &Row) -> usize {
    let present: usize = row.presence.iter().map(|word| word.count_ones() as usize).sum();
    present + row.labels.as_bytes().len() / POINT_LABEL_BYTES
}

/// Points of a sample with its labels. A bucket of a histogram is about as long as a point.
fn sample_points((labels, value): &(Labels, SampleValue)) -> usize {
    let points = match value {
        SampleValue::Float(_) => SAMPLE_POINTS,
        SampleValue::Histogram(histogram) => {
            SAMPLE_POINTS + histogram.heap_bytes() / size_of::<f64>()
        }
    };
    points + labels.as_bytes().len() / POINT_LABEL_BYTES
}

/// Returns the items of each part, from an item on.
fn part_ranges(
    mut first: usize,
    end_of: impl Fn(usize) -> usize,
) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        let range = first..end_of(first);
        first = range.end;
        (!range.is_empty()).then_some(range)
    })
}

/// Returns the parts of a vector from a sample on.
fn vector_parts(samples: Vec<(Labels, SampleValue)>, time_ms: i64, first: usize) -> Parts {
    let samples = Arc::new(samples);
    let of_ends = Arc::clone(&samples);
    let ranges = part_ranges(first, move |first| part_end(&of_ends, first, sample_points));
    Box::new(ranges.map(move |range| {
        let samples = Arc::clone(&samples);
        Box::new(move || {
            let mut out = Vec::with_capacity(PART_BYTES);
            for index in range {
                let (labels, value) = &samples[index];
                push_sample(&mut out, index, labels, time_ms, value);
            }
            out
        }) as Part
    }))
}

/// Rows of a grid that one thread encodes.
struct GridPart {
    grid: Arc<(Vec<Row>, Times)>,
    rows: Range<usize>,
    /// Next point of the first row.
    point_index: usize,
    has_points: bool,
}

/// Returns the parts of a grid from a point of a row on.
fn grid_parts(
    grid: Arc<(Vec<Row>, Times)>,
    start: usize,
    point_index: usize,
    has_points: bool,
) -> Parts {
    let of_ends = Arc::clone(&grid);
    let ranges = part_ranges(start, move |first| part_end(&of_ends.0, first, row_points));
    Box::new(ranges.map(move |rows| {
        let is_begun = rows.start == start;
        let part = GridPart {
            grid: Arc::clone(&grid),
            rows,
            point_index: if is_begun { point_index } else { 0 },
            has_points: is_begun && has_points,
        };
        Box::new(move || part.encode()) as Part
    }))
}

impl GridPart {
    fn encode(mut self) -> Vec<u8> {
        let (rows, times) = &*self.grid;
        let mut out = Vec::with_capacity(PART_BYTES);
        for series_index in self.rows {
            let row = &rows[series_index];
            let mut next = Some(std::mem::take(&mut self.point_index));
            while let Some(first) = next {
                next = push_row(&mut out, series_index, row, times, first, &mut self.has_points);
            }
        }
        out
    }
}

impl Pieces for ValuePieces {
    fn bytes(&self) -> u64 {
        self.value.bytes()
    }

    /// Splits vectors and grids of floats. Grids with histograms are not split, because one row may
    /// exceed a part.
    fn into_parts(mut self) -> Result<Parts, Self> {
        let Some(start) = self.series_index else { return Err(self) };
        let is_float_row = |row: &Row| row.histograms.is_empty();
        let parts = match &mut self.value {
            Value::Vector { time_ms, samples } => {
                vector_parts(std::mem::take(samples), *time_ms, start)
            }
            Value::Grid { steps, rows } if rows.iter().all(is_float_row) => {
                let times = self.times.take().unwrap_or_else(|| Times::new(*steps));
                let grid = Arc::new((std::mem::take(rows), times));
                grid_parts(grid, start, self.point_index, self.has_points)
            }
            _ => return Err(self),
        };
        let tail: Part = Box::new(move || {
            let mut out = Vec::new();
            self.push_tail(&mut out);
            out
        });
        Ok(Box::new(parts.chain([tail])))
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
    use super::*;
    use engine::Annotations;
    use engine::result::QueryStats;
    use engine::steps::Steps;
    use model::{ObjectStoreCost, Span};

    fn json(value: Value, cost: Option<QueryCost>) -> String {
        let output = QueryOutput {
            value,
            annotations: Annotations::default(),
            stats: QueryStats::default(),
            explained: None,
            step_stats: None,
        };
        let mut pieces = ValuePieces::new(output, cost);
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

    /// Asserts that the pieces from each one on are the same as parts, in any order of encoding.
    /// Returns their number.
    fn check_parts(value: &dyn Fn() -> Value) -> usize {
        let output = || QueryOutput {
            value: value(),
            annotations: Annotations::default(),
            stats: QueryStats::default(),
            explained: None,
            step_stats: None,
        };
        let expected = encode_value(output());
        let mut pieces_before = 1;
        loop {
            let mut pieces = ValuePieces::new(output(), None);
            let mut text = Vec::new();
            if !(0..pieces_before).all(|_| pieces.push_next(&mut text)) {
                return pieces_before;
            }
            let Ok(parts) = pieces.into_parts() else { panic!("it has parts") };
            let parts: Vec<Part> = parts.collect();
            // The last one is the tail.
            assert!(parts.len() > 2 || pieces_before > 1, "it has several parts");
            let mut encoded: Vec<Vec<u8>> = parts.into_iter().rev().map(|part| part()).collect();
            encoded.reverse();
            text.extend(encoded.concat());
            assert!(text == expected, "after {pieces_before} pieces");
            pieces_before += 1;
        }
    }

    #[test]
    fn parts_of_a_grid_are_its_pieces_in_any_order_of_encoding() {
        let count = 3 * PIECE_POINTS + 7;
        let steps = Steps { start_ms: 0, step_ms: 1000, count };
        let row_of = |number: usize| {
            let mut presence = vec![u64::MAX; count.div_ceil(64)];
            // The first word of every other row has no points.
            presence[0] = if number.is_multiple_of(2) { 0 } else { u64::MAX };
            let values = (0..count).map(|i| (i * number) as f64).collect();
            Row { labels: up(), values, presence, histograms: Vec::new() }
        };
        let mut rows: Vec<Row> = (0..3 * PART_POINTS / count).map(row_of).collect();
        let pieces_count = check_parts(&|| Value::Grid { steps, rows: rows.clone() });
        assert!(pieces_count > rows.len());
        rows[1].histograms = vec![None; count];
        let output = QueryOutput {
            value: Value::Grid { steps, rows },
            annotations: Annotations::default(),
            stats: QueryStats::default(),
            explained: None,
            step_stats: None,
        };
        let mut pieces = ValuePieces::new(output, None);
        assert!(pieces.push_next(&mut Vec::new()));
        assert!(pieces.into_parts().is_err());
    }

    #[test]
    fn parts_of_a_vector_are_its_pieces_in_any_order_of_encoding() {
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
        let pieces_count = check_parts(&|| Value::Vector { time_ms: 7, samples: samples.clone() });
        assert_eq!(pieces_count, samples.len() + 2);
    }

    #[test]
    fn parts_have_as_many_rows_as_have_their_points() {
        let row = |points: usize| {
            let mut presence = vec![0; 11_000_usize.div_ceil(64)];
            (0..points).for_each(|at| presence[at / 64] |= 1 << (at % 64));
            Row { labels: up(), values: vec![0.0; 11_000], presence, histograms: Vec::new() }
        };
        let ends = |rows: &[Row]| {
            let next = |first: &usize| {
                let end = part_end(rows, *first, row_points);
                (end > *first).then_some(end)
            };
            std::iter::successors(next(&0), next).collect::<Vec<_>>()
        };
        assert!(ends(&[]).is_empty());
        // Sparse rows are together, full ones alone.
        assert_eq!(ends(&vec![row(1); 100]), [100]);
        assert_eq!(ends(&[row(11_000), row(11_000)]), [1, 2]);
        assert_eq!(ends(&[row(0), row(11_000), row(5000), row(3000), row(3000)]), [1, 2, 4, 5]);
        // Labels have bytes, too.
        let long =
            Labels::from_pairs([("a", "x".repeat(POINT_LABEL_BYTES * (PART_POINTS / 2 + 1)))]);
        let rows = vec![Row { labels: long, ..row(0) }; 3];
        assert_eq!(ends(&rows), [1, 2, 3]);
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
