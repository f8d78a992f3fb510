//! Sums and means of many histograms, with compensated rounding.

use std::sync::Arc;

use super::accumulator::Accumulator;
use super::bounds::exponential_bound;
use super::cell::{Cell, Summed};
use super::layer::Layer;
use super::{Combined, Histogram, HistogramError, Span};

/// Sum of histograms that keeps the rounding errors until the end.
///
/// Source: `KahanAdd` in `model/histogram/float_histogram.go` of Prometheus, as `sum` and
/// `sum_over_time` use it.
#[derive(Debug, Clone)]
pub struct HistogramSum {
    accumulator: Accumulator<Summed>,
    /// True if the sum is of one histogram, which is not changed.
    alone: bool,
}

impl HistogramSum {
    /// Returns the sum of one histogram.
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

    /// Resets to the sum of one histogram, and keeps the allocations.
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

    /// Returns the heap memory of this sum.
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
    /// The collision is that of this addition only. `sum` and `avg` warn if any two of their operands
    /// collide, which they find by hints.
    ///
    /// Errors: only one of the two has custom buckets; the sum is not changed.
    pub fn add(&mut self, other: &Histogram) -> Result<Combined, HistogramError> {
        let combined = self.accumulator.combine(other, false)?;
        self.alone = false;
        Ok(combined)
    }

    /// Returns whether a count, the sum or a custom bound is infinite; see [`Histogram::has_overflow`].
    pub fn has_overflow(&self) -> bool {
        let accumulator = &self.accumulator;
        let numbers = [accumulator.zero, accumulator.count, accumulator.sum];
        let cells = accumulator.positive.cells.iter().chain(&accumulator.negative.cells);
        numbers.iter().chain(cells).any(|cell| cell.value.is_infinite())
            || accumulator.custom_bounds.iter().any(|bound| bound.is_infinite())
    }

    /// Returns the sum, not compacted.
    pub fn finish(&self) -> Histogram {
        let alone = self.alone;
        let accumulator = &self.accumulator;
        let number = |cell: Summed| if alone { cell.value } else { cell.value + cell.lost };
        // Buckets that end inside of the zero bucket are not corrected by their errors.
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

    /// Returns whether adding a histogram cannot overflow, because the sum of all magnitudes is far
    /// below the maximum.
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

/// Returns the approximate sum of absolute values, or NaN if one is. Adds in lanes, so that additions
/// do not wait for each other.
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

/// Mean of histograms: their sum divided by their number or, once the sum would overflow, an
/// incremental mean.
///
/// Source: `avg` in `promql/engine.go` and `avg_over_time` in `promql/functions.go` of Prometheus.
#[derive(Debug, Clone)]
pub struct HistogramMean {
    sum: HistogramSum,
    count: f64,
    /// True if `sum` is an incremental mean.
    is_incremental: bool,
}

impl HistogramMean {
    /// Returns the mean of one histogram.
    pub fn new(first: Histogram) -> HistogramMean {
        HistogramMean { sum: HistogramSum::new(first), count: 1.0, is_incremental: false }
    }

    /// Resets to the mean of one histogram; see [`HistogramSum::restart`].
    pub fn restart(&mut self, first: &Histogram) {
        self.sum.restart(first);
        self.count = 1.0;
        self.is_incremental = false;
    }

    /// Returns the heap memory of this mean.
    pub fn heap_bytes(&self) -> usize {
        self.sum.heap_bytes()
    }

    /// Adds a histogram; see [`HistogramSum::add`].
    ///
    /// Errors: only one of the two has custom buckets; the mean is invalid afterwards.
    pub fn add(&mut self, other: &Histogram) -> Result<Combined, HistogramError> {
        self.count += 1.0;
        let count = self.count;
        if !self.is_incremental {
            if self.sum.has_room_for(other) {
                return self.sum.add(other);
            }
            let mut sum = self.sum.clone();
            let combined = sum.add(other)?;
            if !sum.has_overflow() {
                self.sum = sum;
                return Ok(combined);
            }
            self.is_incremental = true;
            self.sum.map(|number| number / (count - 1.0));
        }
        let weight = (count - 1.0) / count;
        self.sum.map(|number| number * weight);
        let mut part = other.clone();
        part.div(count);
        self.sum.add(&part)
    }

    /// Returns the mean, not compacted. Afterwards it can only be restarted.
    pub fn finish(&mut self) -> Histogram {
        if !self.is_incremental {
            let count = self.count;
            self.sum.map(|number| number / count);
            self.is_incremental = true;
        }
        self.sum.finish()
    }
}
