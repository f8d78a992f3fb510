//! Sums and means of many histograms, with what their roundings lose.

use super::accumulator::Accumulator;
use super::bounds::exponential_bound;
use super::cell::{Cell, Summed};
use super::layer::Layer;
use super::{Combined, Histogram, HistogramError};

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
    pub fn finish(self) -> Histogram {
        let alone = self.alone;
        let accumulator = self.accumulator;
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
            positive_spans: accumulator.positive.spans,
            negative_spans: accumulator.negative.spans,
            custom_bounds: accumulator.custom_bounds,
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
        let own = [accumulator.zero, accumulator.count, accumulator.sum];
        let own = own.iter().chain(&accumulator.positive.cells).chain(&accumulator.negative.cells);
        let others = [other.zero_count, other.count, other.sum];
        let others = others.iter().chain(&other.positive_counts).chain(&other.negative_counts);
        let total: f64 = own.map(|cell| cell.value.abs()).sum::<f64>()
            + others.map(|count| count.abs()).sum::<f64>();
        let bounds = accumulator.custom_bounds.iter().chain(other.custom_bounds.iter());
        total < f64::MAX / 4.0 && bounds.into_iter().all(|bound| bound.is_finite())
    }
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

    /// The mean, not compacted.
    pub fn finish(mut self) -> Histogram {
        if !self.moves {
            let count = self.count;
            self.sum.map(|number| number / count);
        }
        self.sum.finish()
    }
}
