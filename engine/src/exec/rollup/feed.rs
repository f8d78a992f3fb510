//! Sources of a reader's samples: cursors, or the tiles of a subquery.

use std::sync::Arc;

use model::{
    Advance, Checkpoint, FilledWindows, Histogram, Reservation, SampleBatch, SeriesSet, StepRanges,
    WantedFact, WindowFacts, Windows,
};

use crate::error::QueryError;
use crate::exec::operator::{Context, TileReader};
use crate::exec::rollup::Origin;
use crate::exec::selector::series_cursor::{ROWS_AHEAD, SeriesCursor, WantedSeries};
use crate::steps::Steps;
use crate::tile::{HistogramCell, Tile, TileShape};

/// Maximum number of inner tiles that are pulled before the ranges move over them, and values that
/// are not needed are dropped. The values of a row then stay in the CPU cache.
const TILES_AT_ONCE: usize = 64;

/// Source of a reader's samples.
pub(super) enum Feed<'a> {
    /// One cursor per row.
    Cursors(CursorFeed<'a>),
    /// Tiles of a subquery.
    Grid(GridFeed<'a>),
}

/// Cursors over loaded series.
///
/// Each cursor is opened when its row is first read. Sequential reads have only one open cursor at
/// a time.
pub(super) struct CursorFeed<'a> {
    set: &'a dyn SeriesSet,
    /// True if any series may have histograms.
    has_histograms: bool,
    step_ranges: Option<StepRanges>,
    cursors: Vec<SeriesCursor<'a>>,
    /// Buffers for reuse, allocated when needed.
    batch: Option<Box<SampleBatch>>,
    facts: Option<Box<WindowFacts>>,
}

/// Tiles of a subquery's inner expression.
pub(super) struct GridFeed<'a> {
    ctx: &'a Context,
    reader: Box<dyn TileReader + 'a>,
    steps: Steps,
    width: usize,
    /// Ranges that the outer steps read, if there are gaps between them.
    ranges: Option<StepRanges>,
    row_count: usize,
    next_step: usize,
    tile: Option<(Tile, Reservation)>,
}

/// Values of one row of a subquery's inner expression at the steps of a tile.
pub(super) struct GridRow<'a> {
    steps: Steps,
    first_step: usize,
    values: &'a [f64],
    presence: &'a [u64],
    histograms: &'a [HistogramCell],
}

impl<'a> GridRow<'a> {
    /// Number of floats.
    pub(super) fn float_count(&self) -> usize {
        self.presence.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Calls `push` with the time of the first value, the distance of the times, and the values of
    /// each run of floats within a word of presence, ascending.
    pub(super) fn each_float_run(&self, mut push: impl FnMut(i64, i64, &[f64])) {
        for (word_index, word) in self.presence.iter().enumerate() {
            let (mut bits, mut at) = (*word, word_index * 64);
            while bits != 0 {
                let absent = bits.trailing_zeros();
                bits >>= absent;
                let count = bits.trailing_ones();
                bits = bits.checked_shr(count).unwrap_or(0);
                at += absent as usize;
                let end = at + count as usize;
                let start_ms = self.steps.time(self.first_step + at);
                push(start_ms, self.steps.step_ms, &self.values[at..end]);
                at = end;
            }
        }
    }

    /// Returns timestamps and histograms, ascending.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (i64, &'a Arc<Histogram>)> {
        let cells = self.histograms.iter().enumerate();
        cells.filter_map(move |(index, cell)| {
            Some((self.steps.time(self.first_step + index), cell.as_ref()?))
        })
    }
}

impl<'a> Feed<'a> {
    /// Creates a feed of the samples of `series`; samples outside `step_ranges` may be missing.
    /// `batch` and `facts` are buffers for reuse.
    pub(super) fn new(
        ctx: &'a Context,
        origin: &'a Origin,
        has_histograms: bool,
        series: &[u32],
        step_ranges: Option<StepRanges>,
        batch: Option<Box<SampleBatch>>,
        facts: Option<Box<WindowFacts>>,
    ) -> Feed<'a> {
        match origin {
            Origin::Set(set) => Feed::Cursors(CursorFeed {
                set: &**set,
                has_histograms,
                step_ranges,
                cursors: series.iter().map(|_| SeriesCursor::Before).collect(),
                batch,
                facts,
            }),
            Origin::Operator(operator) => Feed::Grid(GridFeed {
                ctx,
                reader: operator.open(series),
                steps: operator.steps(),
                width: ctx.tile_shape_for(operator.steps()).steps,
                ranges: step_ranges,
                row_count: series.len(),
                next_step: 0,
                tile: None,
            }),
        }
    }
}

impl Feed<'_> {
    /// Takes the buffers for another feed.
    pub(super) fn give_room(&mut self) -> (Option<Box<SampleBatch>>, Option<Box<WindowFacts>>) {
        match self {
            Feed::Cursors(feed) => (feed.batch.take(), feed.facts.take()),
            Feed::Grid(_) => (None, None),
        }
    }
}

impl<'a> CursorFeed<'a> {
    fn wanted(&self, series: u32) -> WantedSeries<'a> {
        // The reset hint of a histogram refers to the previous one.
        let step_ranges = self.step_ranges.filter(|_| !self.has_histograms(series));
        WantedSeries { set: self.set, series, step_ranges }
    }

    /// Returns whether a series may have histograms.
    pub(super) fn has_histograms(&self, series: u32) -> bool {
        self.has_histograms && self.set.has_histograms(series as usize)
    }

    /// Returns facts of the first of some windows of a row, as many as are known at once.
    #[inline]
    pub(super) fn facts(
        &mut self,
        row: usize,
        series: u32,
        windows: Windows,
        wanted: WantedFact,
        intake: &mut Checkpoint,
    ) -> Result<(FilledWindows, &WindowFacts), QueryError> {
        let of = self.wanted(series);
        let facts = self.facts.get_or_insert_with(WindowFacts::new);
        let filled = self.cursors[row].fill_windows(of, windows, wanted, facts)?;
        intake.work(filled.new_samples)?;
        Ok((filled, facts))
    }

    /// Closes the cursor of a row: no more samples are needed.
    #[inline]
    pub(super) fn close(&mut self, row: usize) {
        self.cursors[row].close();
    }

    /// Prefetches the next samples of some rows from `first_row` on, the next ones to be read.
    #[inline]
    pub(super) fn prefetch(&self, first_row: usize, series: impl Iterator<Item = u32>) {
        let rows = self.cursors[first_row..].iter().zip(series).take(ROWS_AHEAD);
        for (ahead, (cursor, series)) in rows.enumerate() {
            cursor.prefetch(self.set, series, ahead);
        }
    }

    /// Calls `push` with the samples of a row up to `until_ms`, in batches. If `is_last`, closes
    /// the row's cursor afterwards.
    #[inline]
    pub(super) fn take(
        &mut self,
        row: usize,
        series: u32,
        until_ms: i64,
        is_last: bool,
        intake: &mut Checkpoint,
        mut push: impl FnMut(&SampleBatch) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let wanted = self.wanted(series);
        let CursorFeed { cursors, batch, .. } = self;
        let batch = batch.get_or_insert_with(SampleBatch::new);
        loop {
            batch.clear();
            let advance = cursors[row].next_batch(wanted, until_ms, batch)?;
            intake.work(batch.sample_count())?;
            push(batch)?;
            if advance != Advance::Full {
                break;
            }
        }
        if is_last {
            cursors[row].close();
        }
        Ok(())
    }
}

impl GridFeed<'_> {
    /// Returns the number of outer steps, `step_ms` apart, that need about [`TILES_AT_ONCE`] inner
    /// tiles.
    pub(super) fn steps_at_once(&self, step_ms: i64) -> usize {
        let inner_count = (step_ms / self.steps.step_ms).max(1);
        let pulled_count = TILES_AT_ONCE * self.width;
        (pulled_count / usize::try_from(inner_count).unwrap_or(usize::MAX)).max(1)
    }

    /// Returns the width of the next tile. In a gap longer than a tile, it is such that a later tile
    /// begins with the first step of the next range.
    fn next_width(&self) -> usize {
        let width = self.width.min(self.steps.count - self.next_step);
        let Some(ranges) = self.ranges else { return width };
        let time_ms = self.steps.time(self.next_step);
        let (after_ms, _) = ranges.from(time_ms);
        let gap = after_ms.saturating_sub(time_ms).div_euclid(self.steps.step_ms) + 1;
        match usize::try_from(gap) {
            Ok(gap) if gap > width => (gap - 1) % width + 1,
            _ => width,
        }
    }

    /// Calls `push` with the values of each row up to `until_ms`, and possibly with later values.
    pub(super) fn pull(
        &mut self,
        until_ms: i64,
        intake: &mut Checkpoint,
        mut push: impl FnMut(usize, &GridRow<'_>) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let steps = self.steps;
        while self.next_step < steps.count && steps.time(self.next_step) <= until_ms {
            let width = self.next_width();
            let (tile, _reservation) = match &mut self.tile {
                Some(tile) => tile,
                None => {
                    let shape = TileShape { series: self.row_count, steps: self.width };
                    let reservation = Reservation::new(&self.ctx.budget, Tile::bytes(shape))?;
                    self.tile.insert((Tile::new(shape), reservation))
                }
            };
            self.reader.next_tile(width, tile)?;
            let _histograms = Reservation::new(&self.ctx.budget, tile.histogram_bytes())?;
            for row in 0..self.row_count {
                let (values, presence) = tile.row(row);
                let histograms = tile.histograms(row);
                let first_step = self.next_step;
                let samples = GridRow { steps, first_step, values, presence, histograms };
                intake.work(samples.float_count() + histograms.iter().flatten().count())?;
                push(row, &samples)?;
            }
            // The rows hold the histograms now.
            tile.drop_histograms();
            self.next_step += width;
        }
        Ok(())
    }
}

/// Returns the heap bytes of a histogram.
pub(super) fn histogram_bytes(histogram: &Histogram) -> u64 {
    (size_of::<Histogram>() + histogram.heap_bytes()) as u64
}
