//! Tile: values of several series at consecutive steps, small enough for the L2 cache.
//!
//! Native histograms are in a separate plane, which the first write of a histogram allocates. So
//! code for floats never tests for histograms.

use std::ops::Range;
use std::sync::Arc;

use model::Histogram;

/// Default series of a tile.
pub const TILE_SERIES: usize = 512;
/// Default steps of a tile: one presence word per row.
pub const TILE_STEPS: usize = 64;

/// Cell of the histogram plane: the native histogram of a series at a step, if any.
pub type HistogramCell = Option<Arc<Histogram>>;

/// Size of tiles; results do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TileShape {
    /// Rows.
    pub series: usize,
    /// Columns.
    pub steps: usize,
}

/// Minimum stripes of an operator with thousands of rows, so that threads can share the work.
const STRIPES_MIN: usize = 8;
/// Minimum rows of a stripe; for fewer rows, another thread does not pay off.
const STRIPE_ROWS_MIN: usize = 64;

/// Returns the number of rows that a thread processes at a time: a tile's, or fewer if `row_count`
/// is low.
pub fn stripe_rows(row_count: usize) -> usize {
    (row_count / STRIPES_MIN).clamp(STRIPE_ROWS_MIN, TILE_SERIES)
}

/// Work of a stripe for one thread, in values: less would not pay for waking the thread.
const STRIPE_WORK: usize = 1 << 15;
/// Work of a row in addition to its values.
const ROW_WORK: usize = 64;

/// Returns the number of rows that a thread processes at a time if each takes `row_work` values:
/// fewer heavy rows than [`stripe_rows`], and more light ones.
pub fn stripe_rows_by_work(row_count: usize, row_work: usize) -> usize {
    let by_work = STRIPE_WORK / row_work.saturating_add(ROW_WORK);
    by_work.max(row_count / STRIPES_MIN).clamp(1, TILE_SERIES)
}

/// Maximum steps of a tile that is read row by row.
const WIDE_STEPS: usize = 512;
/// Number of tiles whose cells a run of groups reads at once. If all steps fit, each series is read
/// once, and its cursor reuses the memory of the previous one.
const RUN_TILES: usize = 3;

impl TileShape {
    /// Returns a shape with as many cells but more steps and fewer series, for reads by row: each
    /// series has a fixed cost per tile.
    pub fn wide(self, step_count: usize) -> TileShape {
        let cells = self.series * self.steps;
        let steps = step_count.min(WIDE_STEPS).min(cells).max(self.steps);
        TileShape { series: (cells / steps).max(1), steps }
    }

    /// Returns a shape for up to `row_count` series, for reads by column. Fewer series allow more
    /// steps, in whole presence words.
    pub fn of_rows(self, row_count: usize, step_count: usize) -> TileShape {
        let cells = RUN_TILES * self.series * self.steps;
        let steps = (cells / row_count.max(1)).min(WIDE_STEPS) / 64 * 64;
        TileShape {
            series: self.series.min(row_count.max(1)),
            steps: steps.min(step_count).max(self.steps),
        }
    }
}

impl Default for TileShape {
    fn default() -> Self {
        TileShape { series: TILE_SERIES, steps: TILE_STEPS }
    }
}

/// Values of up to `shape.series` series at up to `shape.steps` consecutive steps.
///
/// Shape: values `[series][step]`, row-major, `stride` values per row; presence
/// `[series][word]`, 64 steps per word, lowest bit first; histograms like values, or empty.
/// Invariant: the value of an absent cell never changes a result; bits from `steps` on are 0; the
/// presence bit of a cell with a histogram is 0.
#[derive(Debug, Clone)]
pub struct Tile {
    series: usize,
    steps: usize,
    stride: usize,
    words: usize,
    values: Vec<f64>,
    presence: Vec<u64>,
    /// Empty if no histogram was written.
    histograms: Vec<HistogramCell>,
}

impl Tile {
    /// Returns an empty tile with capacity for `shape`.
    pub fn new(shape: TileShape) -> Tile {
        let words = shape.steps.div_ceil(64);
        Tile {
            series: shape.series,
            steps: shape.steps,
            stride: shape.steps,
            words,
            values: vec![0.0; shape.series * shape.steps],
            presence: vec![0; shape.series * words],
            histograms: Vec::new(),
        }
    }

    /// Sets the size in use, clears the presence and removes the histograms.
    ///
    /// Panics: the size exceeds the capacity.
    pub fn reset(&mut self, series: usize, steps: usize) {
        assert!(steps <= self.stride && series * self.stride <= self.values.len());
        self.series = series;
        self.steps = steps;
        self.presence[..series * self.words].fill(0);
        self.histograms.clear();
    }

    /// Returns the number of rows in use.
    #[inline]
    pub fn series(&self) -> usize {
        self.series
    }

    /// Returns the number of steps in use.
    #[inline]
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Returns the number of presence words per row.
    #[inline]
    pub fn words(&self) -> usize {
        self.words
    }

    /// Returns the values and presence of a row.
    #[inline]
    pub fn row(&self, series_index: usize) -> (&[f64], &[u64]) {
        let at = series_index * self.stride;
        let word = series_index * self.words;
        (&self.values[at..at + self.steps], &self.presence[word..word + self.words])
    }

    /// Returns the mutable values and presence of a row.
    #[inline]
    pub fn row_mut(&mut self, series_index: usize) -> (&mut [f64], &mut [u64]) {
        let at = series_index * self.stride;
        let word = series_index * self.words;
        (&mut self.values[at..at + self.steps], &mut self.presence[word..word + self.words])
    }

    /// Returns whether there may be histograms: the plane exists.
    #[inline]
    pub fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    /// Returns the histogram cells of a row, one per step; empty if the tile has no plane.
    #[inline]
    pub fn histograms(&self, series_index: usize) -> &[HistogramCell] {
        if self.histograms.is_empty() {
            return &[];
        }
        let at = series_index * self.stride;
        &self.histograms[at..at + self.steps]
    }

    /// Writes a histogram and removes the float of the cell. The first histogram allocates the
    /// plane: eight bytes per cell.
    pub fn set_histogram(
        &mut self,
        series_index: usize,
        step_index: usize,
        histogram: Arc<Histogram>,
    ) {
        let word = series_index * self.words;
        set_absent(&mut self.presence[word..word + self.words], step_index);
        let row = self.histograms_mut(series_index);
        row[step_index] = Some(histogram);
    }

    /// Returns the mutable histogram cells of a row, and allocates the plane if needed. A cell
    /// that gets a histogram must have no float.
    pub fn histograms_mut(&mut self, series_index: usize) -> &mut [HistogramCell] {
        if self.histograms.is_empty() {
            self.histograms.resize(self.series * self.stride, None);
        }
        let at = series_index * self.stride;
        &mut self.histograms[at..at + self.steps]
    }

    /// Returns the mutable values, presence and histograms of a row; see [`Tile::histograms_mut`].
    pub fn mixed_row_mut(
        &mut self,
        series_index: usize,
    ) -> (&mut [f64], &mut [u64], &mut [HistogramCell]) {
        if self.histograms.is_empty() {
            self.histograms.resize(self.series * self.stride, None);
        }
        let at = series_index * self.stride;
        let word = series_index * self.words;
        (
            &mut self.values[at..at + self.steps],
            &mut self.presence[word..word + self.words],
            &mut self.histograms[at..at + self.steps],
        )
    }

    /// Removes all histograms.
    pub fn drop_histograms(&mut self) {
        self.histograms.clear();
    }

    /// Returns the bytes of the plane and its histograms; a histogram in adjacent cells of a row
    /// counts once.
    pub fn histogram_bytes(&self) -> u64 {
        if self.histograms.is_empty() {
            return 0;
        }
        let rows = (0..self.series).map(|row| histogram_bytes(self.histograms(row)));
        self.plane_bytes() + rows.sum::<u64>()
    }

    /// Returns the bytes of the histogram plane without its histograms.
    pub fn plane_bytes(&self) -> u64 {
        (self.histograms.capacity() * size_of::<HistogramCell>()) as u64
    }

    /// Returns the bytes of a tile without histograms.
    pub fn bytes(shape: TileShape) -> u64 {
        (shape.series * (shape.steps * 8 + shape.steps.div_ceil(64) * 8)) as u64
    }
}

/// Returns the bytes of a row's histograms; a histogram in adjacent cells counts once.
pub fn histogram_bytes(row: &[HistogramCell]) -> u64 {
    histogram_bytes_behind(None, row)
}

/// Returns the bytes of the histograms in `row`; the previous cell has `last`, which is already
/// counted.
pub fn histogram_bytes_behind<'a>(
    mut last: Option<&'a Arc<Histogram>>,
    row: &'a [HistogramCell],
) -> u64 {
    let mut bytes = 0;
    for histogram in row.iter().flatten() {
        if last.is_none_or(|last| !Arc::ptr_eq(last, histogram)) {
            bytes += (size_of::<Histogram>() + histogram.heap_bytes()) as u64;
        }
        last = Some(histogram);
    }
    bytes
}

/// Sets the bits of the cells in `from` that have a histogram, from bit `to_start` on.
pub fn mark_histograms(to: &mut [u64], to_start: usize, from: &[HistogramCell]) {
    for (step, _) in from.iter().enumerate().filter(|(_, cell)| cell.is_some()) {
        set_present(to, to_start + step);
    }
}

/// Returns whether a step's bit is set.
#[inline]
pub fn is_present(presence: &[u64], step_index: usize) -> bool {
    presence[step_index / 64] >> (step_index % 64) & 1 == 1
}

/// Sets a step's bit.
#[inline]
pub fn set_present(presence: &mut [u64], step_index: usize) {
    presence[step_index / 64] |= 1 << (step_index % 64);
}

/// Sets the bits of a range of steps.
#[inline]
pub fn set_all_present(presence: &mut [u64], steps: Range<usize>) {
    let mut step = steps.start;
    while step < steps.end {
        let count = (64 - step % 64).min(steps.end - step);
        presence[step / 64] |= u64::MAX >> (64 - count) << (step % 64);
        step += count;
    }
}

/// Clears a step's bit.
#[inline]
pub fn set_absent(presence: &mut [u64], step_index: usize) {
    presence[step_index / 64] &= !(1 << (step_index % 64));
}

/// Copies the first `len` bits of `from` to `to` from bit `to_start` on; those bits must be 0.
pub fn copy_bits(to: &mut [u64], to_start: usize, from: &[u64], len: usize) {
    let shift = to_start % 64;
    for (index, word) in from.iter().enumerate().take(len.div_ceil(64)) {
        let left = len - index * 64;
        let bits = if left < 64 { word & ((1 << left) - 1) } else { *word };
        let at = to_start / 64 + index;
        to[at] |= bits << shift;
        if shift > 0 && at + 1 < to.len() {
            to[at + 1] |= bits >> (64 - shift);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(bits: &[bool]) -> Vec<u64> {
        let mut words = vec![0; bits.len().div_ceil(64)];
        for (index, _) in bits.iter().enumerate().filter(|(_, bit)| **bit) {
            set_present(&mut words, index);
        }
        words
    }

    /// Bits that are random, all set or all clear.
    fn bits() -> impl Strategy<Value = Vec<bool>> {
        let lengths = prop_oneof![0usize..4, 62usize..67, 126usize..131, 0usize..200];
        let share = prop_oneof![Just(0.0), Just(1.0), Just(0.5)];
        (lengths, share)
            .prop_flat_map(|(len, share)| prop::collection::vec(prop::bool::weighted(share), len))
    }

    #[test]
    fn stripes_have_few_heavy_rows_and_many_light_ones() {
        let rows = |row_count, row_work| stripe_rows_by_work(row_count, row_work);
        // A subquery with many inner steps, a range query, an instant query.
        assert_eq!([rows(6, 30_000), rows(600, 512), rows(600, 1)], [1, 75, 504]);
        assert_eq!([rows(0, 0), rows(1 << 20, usize::MAX), rows(1 << 20, 1)], [512; 3]);
    }

    proptest! {
        #[test]
        fn bits_are_copied_one_by_one(from in bits(), start in 0usize..150, spare in 0usize..70) {
            // Bits after the copied ones are set and must not be copied.
            let mut source = words(&from);
            source.push(u64::MAX);
            if let Some(word) = source.get_mut(from.len() / 64).filter(|_| from.len() % 64 > 0) {
                *word |= u64::MAX << (from.len() % 64);
            }
            let mut to = vec![0; (start + from.len() + spare).div_ceil(64)];
            copy_bits(&mut to, start, &source, from.len());
            for index in 0..to.len() * 64 {
                let expected = index.checked_sub(start).and_then(|at| from.get(at).copied());
                prop_assert_eq!(is_present(&to, index), expected.unwrap_or(false), "{}", index);
            }
        }

        #[test]
        fn presence_is_one_bit_a_step(bits in bits(), cleared in 0usize..200) {
            let mut presence = words(&bits);
            if cleared < bits.len() {
                set_absent(&mut presence, cleared);
            }
            for (index, bit) in bits.iter().enumerate() {
                prop_assert_eq!(is_present(&presence, index), *bit && index != cleared);
            }
        }
    }

    #[test]
    fn a_tile_of_few_rows_holds_more_steps() {
        let shape = TileShape::default();
        let cells = RUN_TILES * TILE_SERIES * TILE_STEPS;
        let check = |rows, step_count, expected: (usize, usize)| {
            let found = shape.of_rows(rows, step_count);
            assert_eq!((found.series, found.steps), expected, "{rows} rows, {step_count} steps");
            assert!(found.series * found.steps <= cells);
        };
        check(TILE_SERIES, 1000, (TILE_SERIES, 192));
        check(TILE_SERIES + 1, 1000, (TILE_SERIES, 128));
        check(TILE_SERIES / 2, 1000, (TILE_SERIES / 2, 384));
        check(157, 1000, (157, 512));
        check(157, 100, (157, 100));
        check(1, 1000, (1, 512));
        check(0, 1000, (1, 512));
    }

    #[test]
    fn a_reset_tile_is_empty() {
        let mut tile = Tile::new(TileShape { series: 3, steps: 70 });
        for row in 0..3 {
            tile.row_mut(row).1.fill(u64::MAX);
        }
        tile.reset(2, 65);
        assert_eq!((tile.series(), tile.steps(), tile.words()), (2, 65, 2));
        for row in 0..2 {
            let (values, presence) = tile.row(row);
            assert_eq!((values.len(), presence), (65, &[0, 0][..]));
        }
    }
}
