//! Alternatives to tiles: the same query over the same bytes. Only this harness uses them; the first
//! one is the oracle of the others.

use std::collections::HashMap;
use std::sync::Arc;

use benches::data::{GROUP_LABEL, START_MS};
use benches::source::decode_each;
use engine::steps::Steps;
use model::{Advance, Labels, SampleBatch, SeriesSet, is_stale};

/// Query over loaded series.
pub struct Ladder {
    pub set: Arc<dyn SeriesSet>,
    pub steps: Steps,
    pub lookback_ms: i64,
    /// Group of each series.
    pub group_of: Vec<u32>,
    pub group_count: usize,
    /// Values of the group label, sorted.
    names: Vec<String>,
}

/// Time at which the group of a series is found.
#[derive(Debug, Clone, Copy)]
pub enum Grouping {
    /// At each step, by hashing the labels of an instant vector.
    ByLabels,
    /// Once, before the first step.
    Known,
}

/// Result: `[group][step]`, NaN where absent.
pub type Sums = Vec<f64>;

impl Ladder {
    /// Numbers groups by their label's value.
    pub fn new(set: Arc<dyn SeriesSet>, steps: Steps, lookback_ms: i64) -> Ladder {
        let value_of = |index| set.labels(index).get(GROUP_LABEL).to_owned();
        let mut names: Vec<String> = (0..set.len()).map(value_of).collect();
        names.sort_unstable();
        names.dedup();
        let group_of = (0..set.len())
            .map(|index| names.partition_point(|name| *name < value_of(index)) as u32)
            .collect();
        Ladder { set, steps, lookback_ms, group_of, group_count: names.len(), names }
    }

    /// Only decodes, as the lower bound of all rungs over encoded bytes: with `advance_ms`, the bound of
    /// each call is so much later than that of the one before; otherwise calls have no bound.
    pub fn decode_only(&self, advance_ms: Option<i64>) -> f64 {
        let mut batch = SampleBatch::new();
        let mut last = 0.0;
        for index in 0..self.set.len() {
            let mut cursor = self.set.cursor(index);
            let mut until_ms = advance_ms.map_or(i64::MAX, |_| START_MS);
            loop {
                batch.clear();
                let advance = cursor.next_batch(until_ms, &mut batch).expect("bytes are good");
                last += batch.samples().1.last().copied().unwrap_or(0.0);
                if advance == Advance::End {
                    break;
                }
                until_ms = until_ms.saturating_add(advance_ms.unwrap_or(0));
            }
        }
        last
    }

    /// Evaluates `sum by (path) (m)` with a binary search for each series at each step.
    pub fn search_sum(&self, grouping: Grouping) -> Sums {
        self.each_step(grouping, |(timestamps, values), time_ms| {
            let end = timestamps.partition_point(|t| *t <= time_ms);
            let at = end.checked_sub(1)?;
            let is_seen = timestamps[at] > time_ms - self.lookback_ms && !is_stale(values[at]);
            is_seen.then(|| values[at])
        })
    }

    /// Evaluates `sum by (path) (rate(m[range]))` with two binary searches for each series at each
    /// step, and a pass over the samples between them.
    pub fn search_rate(&self, grouping: Grouping, range_ms: i64) -> Sums {
        self.each_step(grouping, |(timestamps, values), time_ms| {
            let start = timestamps.partition_point(|t| *t <= time_ms - range_ms);
            let end = timestamps.partition_point(|t| *t <= time_ms);
            rate(&timestamps[start..end], &values[start..end], time_ms - range_ms, time_ms)
        })
    }

    fn decode_all(&self) -> Vec<(Vec<i64>, Vec<f64>)> {
        let mut decoded = vec![(Vec::new(), Vec::new()); self.set.len()];
        decode_each(&*self.set, |index, batch| {
            decoded[index].0.extend_from_slice(batch.samples().0);
            decoded[index].1.extend_from_slice(batch.samples().1);
        });
        decoded
    }

    /// Decodes everything, then evaluates step by step.
    fn each_step(
        &self,
        grouping: Grouping,
        value_at: impl Fn(&(Vec<i64>, Vec<f64>), i64) -> Option<f64>,
    ) -> Sums {
        let decoded = self.decode_all();
        let mut sums = vec![f64::NAN; self.group_count * self.steps.count];
        for step in 0..self.steps.count {
            let time_ms = self.steps.time(step);
            let present = decoded.iter().enumerate();
            let present = present.filter_map(|(i, samples)| Some((i, value_at(samples, time_ms)?)));
            match grouping {
                Grouping::Known => present.for_each(|(index, value)| {
                    let group = self.group_of[index] as usize;
                    add(&mut sums[group * self.steps.count + step], value);
                }),
                Grouping::ByLabels => {
                    let vector: Vec<(&Labels, f64)> =
                        present.map(|(index, value)| (self.set.labels(index), value)).collect();
                    for (name, sum) in sum_by(GROUP_LABEL, &vector) {
                        let group = self.names.partition_point(|known| known.as_str() < name);
                        sums[group * self.steps.count + step] = sum;
                    }
                }
            }
        }
        sums
    }

    /// Fills a row of steps for each series by a stateful cursor, then sums the rows step by step, with
    /// a stride of a row.
    pub fn cursor_sum(&self) -> Sums {
        let rows = self.fill_rows(0..self.set.len());
        let mut sums = vec![f64::NAN; self.group_count * self.steps.count];
        for step in 0..self.steps.count {
            for (series, group) in self.group_of.iter().enumerate() {
                if rows.is_present(series, step) {
                    let value = rows.values[series * rows.stride + step];
                    add(&mut sums[*group as usize * self.steps.count + step], value);
                }
            }
        }
        sums
    }

    /// Fills rows sorted by group, and transposes them in blocks, so that a group is contiguous in a
    /// column.
    pub fn column_sum(&self) -> Sums {
        let mut order: Vec<usize> = (0..self.set.len()).collect();
        order.sort_by_key(|index| self.group_of[*index]);
        let rows = self.fill_rows(order.iter().copied());
        let columns = Columns::transpose(&rows, self.set.len(), self.steps.count);
        let mut sums = vec![f64::NAN; self.group_count * self.steps.count];
        let mut start = 0;
        for run in order.chunk_by(|a, b| self.group_of[*a] == self.group_of[*b]) {
            let end = start + run.len();
            let group = self.group_of[run[0]] as usize;
            for step in 0..self.steps.count {
                let is_present = (start..end).any(|row| rows.is_present(row, step));
                if is_present {
                    let column = &columns.values[step * columns.stride..];
                    sums[group * self.steps.count + step] = column[start..end].iter().sum();
                }
            }
            start = end;
        }
        sums
    }

    /// Returns all series at all steps; absent cells are 0.
    fn fill_rows(&self, order: impl ExactSizeIterator<Item = usize>) -> Rows {
        let words = self.steps.count.div_ceil(64);
        let mut rows = Rows {
            values: vec![0.0; order.len() * self.steps.count],
            presence: vec![0; order.len() * words],
            stride: self.steps.count,
            words,
        };
        let mut batch = SampleBatch::new();
        for (row, index) in order.enumerate() {
            let mut cursor = self.set.cursor(index);
            let mut newest = None;
            for step in 0..self.steps.count {
                let time_ms = self.steps.time(step);
                batch.clear();
                cursor.next_batch(time_ms, &mut batch).expect("bytes are good");
                if let Some(last) = batch.len.checked_sub(1) {
                    newest = Some((batch.timestamps[last], batch.values[last]));
                }
                let seen = newest.filter(|(t, v)| *t > time_ms - self.lookback_ms && !is_stale(*v));
                if let Some((_, value)) = seen {
                    rows.values[row * rows.stride + step] = value;
                    rows.presence[row * words + step / 64] |= 1 << (step % 64);
                }
            }
        }
        rows
    }
}

struct Rows {
    values: Vec<f64>,
    presence: Vec<u64>,
    stride: usize,
    words: usize,
}

impl Rows {
    fn is_present(&self, row: usize, step: usize) -> bool {
        self.presence[row * self.words + step / 64] >> (step % 64) & 1 == 1
    }
}

struct Columns {
    values: Vec<f64>,
    stride: usize,
}

impl Columns {
    /// Transposes blocks of 8 × 8 values: eight cache lines read, eight written. The stride is odd in
    /// cache lines, so that the columns of a block are in different cache sets.
    fn transpose(rows: &Rows, row_count: usize, step_count: usize) -> Columns {
        let stride = (row_count.div_ceil(8) | 1) * 8;
        let mut values = vec![0.0; stride * step_count];
        for row_block in (0..row_count).step_by(8) {
            for step_block in (0..step_count).step_by(8) {
                for row in row_block..(row_block + 8).min(row_count) {
                    for step in step_block..(step_block + 8).min(step_count) {
                        values[step * stride + row] = rows.values[row * rows.stride + step];
                    }
                }
            }
        }
        Columns { values, stride }
    }
}

/// Sums an instant vector by group.
fn sum_by<'a>(name: &str, vector: &[(&'a Labels, f64)]) -> HashMap<&'a str, f64> {
    let mut sums = HashMap::new();
    for (labels, value) in vector {
        add(sums.entry(labels.get(name)).or_insert(f64::NAN), *value);
    }
    sums
}

fn add(sum: &mut f64, value: f64) {
    *sum = if sum.is_nan() { value } else { *sum + value };
}

/// Returns the rate of a counter over a range.
///
/// Source: `extrapolatedRate` of Prometheus.
fn rate(timestamps: &[i64], values: &[f64], start_ms: i64, end_ms: i64) -> Option<f64> {
    let (first, last) = (0, timestamps.len().checked_sub(1).filter(|last| *last > 0)?);
    let mut increase = values[last] - values[first];
    for pair in values.windows(2) {
        if pair[1] < pair[0] {
            increase += pair[0];
        }
    }
    let seconds = |from: i64, to: i64| (to - from) as f64 / 1000.0;
    let sampled = seconds(timestamps[first], timestamps[last]);
    let average = sampled / last as f64;
    let mut to_start = seconds(start_ms, timestamps[first]);
    let mut to_end = seconds(timestamps[last], end_ms);
    if to_start >= average * 1.1 {
        to_start = average / 2.0;
    }
    if increase > 0.0 && values[first] >= 0.0 {
        to_start = to_start.min(sampled * (values[first] / increase));
    }
    if to_end >= average * 1.1 {
        to_end = average / 2.0;
    }
    Some(increase * ((sampled + to_start + to_end) / sampled) / seconds(start_ms, end_ms))
}
