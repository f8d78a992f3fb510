//! Sums and means of many histograms, with what their roundings lose.

use std::sync::Arc;

use super::accumulator::Accumulator;
use super::bounds::exponential_bound;
use super::cell::{Cell, Summed};
use super::layer::Layer;
use super::{Combined, Histogram, HistogramError, Span};

/// A sum of histograms that keeps what each rounding lost, until the end.
///
/// Source: `KahanAdd` in `model/histogram/float_histogram.go` of Prometheus, as `sum` and
/// `sum_over_time` use it.
#[derive(Debug, Clone)]
pub struct HistogramSum {
    accumulator: Accumulator<Summed>,
    /// A histogram alone is its own sum, unchanged.
    alone: bool,
}

impl HistogramSum {
    /// The sum of one histogram.
    pub fn new(first: Histogram) -> HistogramSum {
        let cells = |counts: Vec<f64>| counts.into_iter().map(Summed::new).collect();
        let accumulator = Accumulator {
            reset_hint: first.reset_hint,
            schema: first.schema,
            zero_threshold: first.zero_threshold,
            zero: Summed::new(first.zero_count),
            count: Summed::new(first.count),
            sum: Summed::new(first.sum),
            positive: Layer { spans: first.positive_spans, cells: cells(first.positive_counts) },
            negative: Layer { spans: first.negative_spans, cells: cells(first.negative_counts) },
            custom_bounds: first.custom_bounds,
        };
        HistogramSum { accumulator, alone: true }
    }

    /// Turns into the sum of one histogram. What has been allocated serves again.
    pub fn restart(&mut self, first: &Histogram) {
        self.alone = true;
        let accumulator = &mut self.accumulator;
        accumulator.reset_hint = first.reset_hint;
        accumulator.schema = first.schema;
        accumulator.zero_threshold = first.zero_threshold;
        accumulator.zero = Summed::new(first.zero_count);
        accumulator.count = Summed::new(first.count);
        accumulator.sum = Summed::new(first.sum);
        for (layer, positive) in
            [(&mut accumulator.positive, true), (&mut accumulator.negative, false)]
        {
            let (spans, counts) = first.layer(positive);
            layer.spans.clear();
            layer.spans.extend_from_slice(spans);
            layer.cells.clear();
            layer.cells.extend(counts.iter().copied().map(Summed::new));
        }
        if !Arc::ptr_eq(&accumulator.custom_bounds, &first.custom_bounds) {
            accumulator.custom_bounds = Arc::clone(&first.custom_bounds);
        }
    }

    /// Bytes on the heap that belong to this sum.
    pub fn heap_bytes(&self) -> usize {
        let layers = [&self.accumulator.positive, &self.accumulator.negative];
        let bytes = layers.map(|layer| {
            size_of::<Span>() * layer.spans.capacity()
                + size_of::<Summed>() * layer.cells.capacity()
        });
        bytes.into_iter().sum()
    }

    /// Adds a histogram; see [`Histogram::add`].
    ///
    /// The collision is that of this addition alone. `sum` and `avg` warn where any two of their
    /// operands collide, which their hints tell.
    ///
    /// Errors: one has custom buckets, the other does not; nothing is changed then.
    pub fn add(&mut self, other: &Histogram) -> Result<Combined, HistogramError> {
        let combined = self.accumulator.combine(other, false)?;
        self.alone = false;
        Ok(combined)
    }

    /// Whether a count, the sum or a custom bound is infinite; see [`Histogram::has_overflow`].
    pub fn has_overflow(&self) -> bool {
        let accumulator = &self.accumulator;
        let numbers = [accumulator.zero, accumulator.count, accumulator.sum];
        let cells = accumulator.positive.cells.iter().chain(&accumulator.negative.cells);
        numbers.iter().chain(cells).any(|cell| cell.value.is_infinite())
            || accumulator.custom_bounds.iter().any(|bound| bound.is_infinite())
    }

    /// The sum, not compacted.
    pub fn finish(&self) -> Histogram {
        let alone = self.alone;
        let accumulator = &self.accumulator;
        let number = |cell: Summed| if alone { cell.value } else { cell.value + cell.lost };
        // Buckets that end inside of the zero bucket do not get back what they lost.
        let settles = |index: i64| {
            accumulator.has_custom_buckets()
                || exponential_bound(index, accumulator.schema) > accumulator.zero_threshold
        };
        let counts = |layer: &Layer<Summed>| {
            let mut settled = false;
            let count = |(index, cell): (i64, Summed)| {
                settled = settled || settles(index);
                if settled { number(cell) } else { cell.value }
            };
            layer.iter().map(count).collect()
        };
        Histogram {
            reset_hint: accumulator.reset_hint,
            schema: accumulator.schema,
            zero_threshold: accumulator.zero_threshold,
            zero_count: number(accumulator.zero),
            count: number(accumulator.count),
            sum: number(accumulator.sum),
            positive_counts: counts(&accumulator.positive),
            negative_counts: counts(&accumulator.negative),
            positive_spans: accumulator.positive.spans.clone(),
            negative_spans: accumulator.negative.spans.clone(),
            custom_bounds: Arc::clone(&accumulator.custom_bounds),
        }
    }

    fn map(&mut self, map: impl Fn(f64) -> f64) {
        let accumulator = &mut self.accumulator;
        let numbers = [&mut accumulator.zero, &mut accumulator.count, &mut accumulator.sum];
        let layers = [&mut accumulator.positive, &mut accumulator.negative];
        let cells = layers.into_iter().flat_map(|layer| &mut layer.cells);
        for cell in numbers.into_iter().chain(cells) {
            *cell = Summed { value: map(cell.value), lost: map(cell.lost) };
        }
    }

    /// Whether adding a histogram cannot give an infinite number: all that there is adds up to
    /// far less.
    fn has_room_for(&self, other: &Histogram) -> bool {
        let accumulator = &self.accumulator;
        let own = [accumulator.zero, accumulator.count, accumulator.sum].map(|cell| cell.value);
        let others = [other.zero_count, other.count, other.sum];
        let cells = |layer: &Layer<Summed>| magnitude(&layer.cells, |cell| cell.value);
        let counts = |counts: &[f64]| magnitude(counts, |count| *count);
        let total = magnitude(&own, |number| *number)
            + magnitude(&others, |number| *number)
            + cells(&accumulator.positive)
            + cells(&accumulator.negative)
            + counts(&other.positive_counts)
            + counts(&other.negative_counts);
        let bounds = accumulator.custom_bounds.iter().chain(other.custom_bounds.iter());
        total < f64::MAX / 4.0 && bounds.into_iter().all(|bound| bound.is_finite())
    }
}

/// About the sum of the absolute values, or NaN where one is. In lanes, so that additions do not
/// wait for each other.
fn magnitude<T>(numbers: &[T], number: impl Fn(&T) -> f64) -> f64 {
    let mut lanes = [0.0; 8];
    let (parts, rest) = numbers.as_chunks::<8>();
    for part in parts {
        for (lane, item) in lanes.iter_mut().zip(part) {
            *lane += number(item).abs();
        }
    }
    let rest: f64 = rest.iter().map(|item| number(item).abs()).sum();
    lanes.iter().sum::<f64>() + rest
}

/// A mean of histograms: their sum divided by their number, or, once the sum would overflow, a
/// mean that is moved by each histogram.
///
/// Source: `avg` in `promql/engine.go` and `avg_over_time` in `promql/functions.go` of Prometheus.
#[derive(Debug, Clone)]
pub struct HistogramMean {
    sum: HistogramSum,
    count: f64,
    /// Whether `sum` is the mean already.
    moves: bool,
}

impl HistogramMean {
    /// The mean of one histogram.
    pub fn new(first: Histogram) -> HistogramMean {
        HistogramMean { sum: HistogramSum::new(first), count: 1.0, moves: false }
    }

    /// Turns into the mean of one histogram; see [`HistogramSum::restart`].
    pub fn restart(&mut self, first: &Histogram) {
        self.sum.restart(first);
        self.count = 1.0;
        self.moves = false;
    }

    /// Bytes on the heap that belong to this mean.
    pub fn heap_bytes(&self) -> usize {
        self.sum.heap_bytes()
    }

    /// Takes a histogram in; see [`HistogramSum::add`].
    ///
    /// Errors: one has custom buckets, the other does not; the mean is of no use then.
    pub fn add(&mut self, other: &Histogram) -> Result<Combined, HistogramError> {
        self.count += 1.0;
        let count = self.count;
        if !self.moves {
            if self.sum.has_room_for(other) {
                return self.sum.add(other);
            }
            let mut sum = self.sum.clone();
            let combined = sum.add(other)?;
            if !sum.has_overflow() {
                self.sum = sum;
                return Ok(combined);
            }
            self.moves = true;
            self.sum.map(|number| number / (count - 1.0));
        }
        let weight = (count - 1.0) / count;
        self.sum.map(|number| number * weight);
        let mut part = other.clone();
        part.div(count);
        self.sum.add(&part)
    }

    /// The mean, not compacted. Nothing can be added to it any more, but it can be restarted.
    pub fn finish(&mut self) -> Histogram {
        if !self.moves {
            let count = self.count;
            self.sum.map(|number| number / count);
            self.moves = true;
        }
        self.sum.finish()
    }
}
