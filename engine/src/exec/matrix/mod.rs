//! Materialized series: all values of a node at all steps.

pub mod found_rows;
pub mod gather;
pub mod scan;

use std::ops::Range;
use std::sync::Arc;

use model::{Histogram, Labels, Reservation};

use crate::error::QueryError;
use crate::exec::matrix::scan::each_tile;
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::steps::Steps;
use crate::tile::{
    HistogramCell, Tile, copy_bits, histogram_bytes_behind, set_absent, stripe_rows,
};

/// Minimum bytes of a label set that every matrix charges for.
const LARGE_LABELS_BYTES: usize = 4 << 10;

/// Values of an operator's series at all steps.
///
/// Shape: values `[series][step]`, row-major; presence `[series][word]`, 64 steps per word, lowest
/// bit first; histograms `[series][step]`, or empty.
/// Invariant: an absent cell's value is never read; bits from the step count on are 0; the presence
/// bit of a cell with a histogram is 0; the bytes are charged to the query's budget while the
/// matrix exists.
#[derive(Debug)]
pub struct Matrix {
    series: Vec<SeriesMeta>,
    steps: Steps,
    words: usize,
    values: Vec<f64>,
    presence: Vec<u64>,
    /// Histogram cells; empty if the matrix does not support histograms.
    histograms: Vec<HistogramCell>,
    reservation: Reservation,
    /// Charges for the histograms, and for large label sets.
    reservations: Vec<Reservation>,
}

impl Matrix {
    /// Returns a matrix without values.
    ///
    /// Errors: the memory limit of the query; then nothing is allocated.
    pub fn new(ctx: &Context, series: Vec<SeriesMeta>, steps: Steps) -> Result<Matrix, QueryError> {
        let large = Reservation::new(&ctx.budget, all_large_bytes(&series))?;
        let mut matrix = Matrix::sharing_labels(ctx, series, steps)?;
        matrix.reservations.push(large);
        Ok(matrix)
    }

    /// Returns a matrix without values that does not charge for its labels.
    fn sharing_labels(
        ctx: &Context,
        series: Vec<SeriesMeta>,
        steps: Steps,
    ) -> Result<Matrix, QueryError> {
        let words = steps.count.div_ceil(64);
        let row_bytes = (steps.count as u64).saturating_add(words as u64).saturating_mul(8);
        let meta_bytes = size_of::<SeriesMeta>() as u64;
        let bytes = (series.len() as u64).saturating_mul(row_bytes.saturating_add(meta_bytes));
        let reservation = Reservation::new(&ctx.budget, bytes)?;
        Ok(Matrix {
            words,
            values: vec![0.0; series.len() * steps.count],
            presence: vec![0; series.len() * words],
            series,
            steps,
            histograms: Vec::new(),
            reservation,
            reservations: Vec::new(),
        })
    }

    /// Returns a matrix without values that supports histograms.
    ///
    /// Errors: as for [`Matrix::new`].
    pub fn with_histograms(
        ctx: &Context,
        series: Vec<SeriesMeta>,
        steps: Steps,
    ) -> Result<Matrix, QueryError> {
        let mut matrix = Matrix::new(ctx, series, steps)?;
        matrix.add_plane()?;
        Ok(matrix)
    }

    fn add_plane(&mut self) -> Result<(), QueryError> {
        let cells = self.values.len();
        self.reservation.grow((cells as u64).saturating_mul(size_of::<HistogramCell>() as u64))?;
        self.histograms = vec![None; cells];
        Ok(())
    }

    /// Returns the histograms of a series, one per step; empty if the matrix does not support them.
    #[inline]
    pub fn histograms(&self, series_index: usize) -> &[HistogramCell] {
        if self.histograms.is_empty() {
            return &[];
        }
        let at = series_index * self.steps.count;
        &self.histograms[at..at + self.steps.count]
    }

    /// Writes a histogram and removes the float of the cell. A histogram that is also in the
    /// previous cell is charged once.
    ///
    /// Errors: the memory limit of the query.
    /// Panics: the matrix does not support histograms.
    pub fn set_histogram(
        &mut self,
        series_index: usize,
        step_index: usize,
        histogram: Arc<Histogram>,
    ) -> Result<(), QueryError> {
        let at = series_index * self.steps.count + step_index;
        let before = if step_index > 0 { self.histograms[at - 1].as_ref() } else { None };
        if before.is_none_or(|before| !Arc::ptr_eq(before, &histogram)) {
            self.reservation.grow((size_of::<Histogram>() + histogram.heap_bytes()) as u64)?;
        }
        let word = series_index * self.words;
        set_absent(&mut self.presence[word..word + self.words], step_index);
        self.histograms[at] = Some(histogram);
        Ok(())
    }

    /// Returns the values and presence words of a series.
    #[inline]
    pub fn row(&self, series_index: usize) -> (&[f64], &[u64]) {
        let at = series_index * self.steps.count;
        let word = series_index * self.words;
        (&self.values[at..at + self.steps.count], &self.presence[word..word + self.words])
    }

    /// Returns the mutable values and presence words of a series.
    #[inline]
    pub fn row_mut(&mut self, series_index: usize) -> (&mut [f64], &mut [u64]) {
        let at = series_index * self.steps.count;
        let word = series_index * self.words;
        (&mut self.values[at..at + self.steps.count], &mut self.presence[word..word + self.words])
    }

    /// Returns whether any step of a series has a value or a histogram.
    pub fn has_any(&self, series_index: usize) -> bool {
        self.row(series_index).1.iter().any(|word| *word != 0)
            || self.histograms(series_index).iter().any(Option::is_some)
    }

    /// Returns the series, for changes of labels.
    pub fn series_mut(&mut self) -> &mut [SeriesMeta] {
        &mut self.series
    }

    /// Divides the matrix into runs of `rows` rows, for writes by several threads. Returns the
    /// index of the first row, the values and the presence words of each run.
    pub fn row_runs_mut(
        &mut self,
        rows: usize,
    ) -> impl ExactSizeIterator<Item = (usize, &mut [f64], &mut [u64])> {
        let values = self.values.chunks_mut(rows * self.steps.count);
        let presence = self.presence.chunks_mut(rows * self.words);
        values.zip(presence).enumerate().map(move |(run, (v, p))| (run * rows, v, p))
    }

    /// Returns the mutable values and presence words of disjoint, ascending runs of rows, for
    /// writes by several threads.
    pub fn runs_mut(&mut self, runs: &[Range<usize>]) -> Vec<(&mut [f64], &mut [u64])> {
        let (count, words) = (self.steps.count, self.words);
        let mut values = &mut self.values[..];
        let mut presence = &mut self.presence[..];
        let mut at = 0;
        let mut parts = Vec::with_capacity(runs.len());
        for run in runs {
            let rows = run.end - run.start;
            let (part_values, rest) = values.split_at_mut((run.start - at + rows) * count);
            values = rest;
            let (part_presence, rest) = presence.split_at_mut((run.start - at + rows) * words);
            presence = rest;
            let skipped = run.start - at;
            parts
                .push((&mut part_values[skipped * count..], &mut part_presence[skipped * words..]));
            at = run.end;
        }
        parts
    }

    /// Reads every series of an operator, including histograms, in parallel by stripe of series.
    fn fill_mixed(
        &mut self,
        ctx: &Context,
        operator: &dyn VectorOperator,
    ) -> Result<(), QueryError> {
        let (steps, words) = (self.steps, self.words);
        let shape = ctx.tile_shape_of(operator);
        let cells = shape.series * steps.count;
        let values = self.values.chunks_mut(cells);
        let presence = self.presence.chunks_mut(shape.series * words);
        let stripes = values.zip(presence).zip(self.histograms.chunks_mut(cells)).enumerate();
        let reservations =
            ctx.map(stripes, |(stripe, ((values, presence), histograms)), thread| {
                let rows = values.len() / steps.count;
                let first = stripe * shape.series;
                let series: Vec<u32> = (first as u32..(first + rows) as u32).collect();
                let mut reservation = Reservation::new(&ctx.budget, 0)?;
                each_tile(ctx, thread, operator, &series, shape, |step, width, tile| {
                    for row in 0..rows {
                        let (from, present) = tile.row(row);
                        let at = row * steps.count + step;
                        values[at..at + width].copy_from_slice(&from[..width]);
                        copy_bits(
                            &mut presence[row * words..(row + 1) * words],
                            step,
                            present,
                            width,
                        );
                        let from = tile.histograms(row);
                        let last = if step > 0 { histograms[at - 1].as_ref() } else { None };
                        reservation.grow(histogram_bytes_behind(last, from))?;
                        if !from.is_empty() {
                            histograms[at..at + width].clone_from_slice(from);
                        }
                    }
                    Ok(())
                })?;
                Ok(reservation)
            })?;
        self.reservations.extend(reservations);
        Ok(())
    }

    /// Reads the floats of every series of an operator, in parallel by stripe of series.
    fn fill(&mut self, ctx: &Context, operator: &dyn VectorOperator) -> Result<(), QueryError> {
        let steps = self.steps;
        let words = self.words;
        let shape = ctx.tile_shape_for(steps);
        let height = shape.series.min(stripe_rows(self.values.len() / steps.count.max(1)));
        ctx.for_each(self.row_runs_mut(height), |(first, values, presence), thread| {
            let rows = values.len() / steps.count;
            let series: Vec<u32> = (first as u32..(first + rows) as u32).collect();
            each_tile(ctx, thread, operator, &series, shape, |step, width, tile| {
                for row in 0..rows {
                    let (from, present) = tile.row(row);
                    let at = row * steps.count + step;
                    values[at..at + width].copy_from_slice(&from[..width]);
                    copy_bits(&mut presence[row * words..(row + 1) * words], step, present, width);
                }
                Ok(())
            })
        })
    }
}

/// Returns the bytes of the large label sets of `series`.
fn all_large_bytes(series: &[SeriesMeta]) -> u64 {
    series.iter().map(|meta| large_bytes(&meta.labels)).sum()
}

/// Returns the bytes of a large label set; 0 if it is not large. Only the query itself creates such
/// label sets, and the matrix may outlive the operator that charged for it. Other label sets are
/// charged on load.
fn large_bytes(labels: &Labels) -> u64 {
    let bytes = labels.as_bytes().len();
    if bytes > LARGE_LABELS_BYTES { bytes as u64 } else { 0 }
}

/// Materializes an operator like [`materialize`], and drops it. The operator charges for large
/// label sets until it is dropped, then the matrix does.
///
/// Errors: as for [`materialize`].
pub fn into_matrix(ctx: &Context, operator: Box<dyn VectorOperator>) -> Result<Matrix, QueryError> {
    let mut matrix = filled(ctx, &*operator, Matrix::sharing_labels)?;
    drop(operator);
    matrix.reservation.grow(all_large_bytes(&matrix.series))?;
    Ok(matrix)
}

/// Evaluates an operator for all its series and steps, in parallel by stripe of series.
///
/// Errors: errors of the operator's readers, and the limits of the query.
pub fn materialize(ctx: &Context, operator: &dyn VectorOperator) -> Result<Matrix, QueryError> {
    filled(ctx, operator, Matrix::new)
}

fn filled(
    ctx: &Context,
    operator: &dyn VectorOperator,
    new: impl Fn(&Context, Vec<SeriesMeta>, Steps) -> Result<Matrix, QueryError>,
) -> Result<Matrix, QueryError> {
    let mut matrix = new(ctx, operator.series().to_vec(), operator.steps())?;
    if operator.has_histograms() {
        matrix.add_plane()?;
        matrix.fill_mixed(ctx, operator)?;
    } else {
        matrix.fill(ctx, operator)?;
    }
    Ok(matrix)
}

impl VectorOperator for Matrix {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.steps
    }

    fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn holds_histograms(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        Box::new(MatrixReader { matrix: self, series: series.to_vec(), step: 0 })
    }
}

struct MatrixReader<'a> {
    matrix: &'a Matrix,
    series: Vec<u32>,
    step: usize,
}

impl TileReader for MatrixReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        tile.reset(self.series.len(), step_count);
        for (row, series) in self.series.iter().enumerate() {
            let (values, presence) = self.matrix.row(*series as usize);
            let (to, present) = tile.row_mut(row);
            to.copy_from_slice(&values[self.step..self.step + step_count]);
            copy_bits_out(present, presence, self.step, step_count);
            let histograms = self.matrix.histograms(*series as usize);
            if !histograms.is_empty() {
                let from = &histograms[self.step..self.step + step_count];
                tile.histograms_mut(row).clone_from_slice(from);
            }
        }
        self.step += step_count;
        Ok(())
    }
}

/// Copies `len` bits of `from`, from bit `from_start` on, to the start of `to`, which is all 0.
fn copy_bits_out(to: &mut [u64], from: &[u64], from_start: usize, len: usize) {
    let shift = from_start % 64;
    for (index, word) in to.iter_mut().enumerate().take(len.div_ceil(64)) {
        let at = from_start / 64 + index;
        let mut bits = from[at] >> shift;
        if shift > 0 && at + 1 < from.len() {
            bits |= from[at + 1] << (64 - shift);
        }
        let left = len - index * 64;
        *word = if left < 64 { bits & ((1 << left) - 1) } else { bits };
    }
}

#[cfg(test)]
mod tests {
    use model::{Budget, BudgetLimits};
    use proptest::prelude::*;

    use super::*;
    use crate::tile::{TileShape, is_present, set_present};

    fn context(shape: TileShape) -> Context {
        Context::new(Budget::unlimited(), shape, true)
    }

    fn metas(count: usize) -> Vec<SeriesMeta> {
        (0..count)
            .map(|i| SeriesMeta {
                labels: Labels::from_pairs([("i", i.to_string())]),
                drop_name: false,
            })
            .collect()
    }

    proptest! {
        #[test]
        fn materializing_a_matrix_copies_it(
            series in 0usize..9,
            count in 1usize..200,
            shape in (1usize..5, 1usize..140),
            seed in any::<u64>(),
        ) {
            let steps = Steps { start_ms: 0, step_ms: 10, count };
            let ctx = context(TileShape { series: shape.0, steps: shape.1 });
            let mut matrix = Matrix::new(&ctx, metas(series), steps).unwrap();
            let mut state = seed | 1;
            for row in 0..series {
                let (values, presence) = matrix.row_mut(row);
                for (step, value) in values.iter_mut().enumerate() {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    if state >> 63 == 1 {
                        *value = (state >> 40) as f64;
                        set_present(presence, step);
                    }
                }
            }
            let copy = materialize(&ctx, &matrix).unwrap();
            prop_assert_eq!(copy.series(), matrix.series());
            for row in 0..series {
                prop_assert_eq!(copy.row(row).1, matrix.row(row).1);
                for step in 0..count {
                    if is_present(matrix.row(row).1, step) {
                        prop_assert_eq!(copy.row(row).0[step], matrix.row(row).0[step]);
                    }
                }
            }
        }
    }

    #[test]
    fn memory_is_charged_before_it_is_allocated_and_given_back() {
        let limits = BudgetLimits { memory_bytes_max: 1 << 20, ..BudgetLimits::default() };
        let ctx = Context::new(Budget::new(limits), TileShape::default(), true);
        let huge = Steps { start_ms: 0, step_ms: 1, count: 1 << 40 };
        assert!(Matrix::new(&ctx, metas(4), huge).is_err());
        for _ in 0..3 {
            let small = Steps { start_ms: 0, step_ms: 1, count: 1 << 16 };
            assert!(Matrix::new(&ctx, metas(1), small).is_ok());
        }
    }
}
