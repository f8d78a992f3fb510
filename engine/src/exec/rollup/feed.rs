//! Where the rows of a reader take their samples from: cursors, or the tiles of a subquery.

use std::sync::Arc;

use model::{Advance, Cursor, Histogram, HistogramSample, SampleBatch, Windows};

use crate::error::QueryError;
use crate::exec::charge::Charge;
use crate::exec::operator::{Context, TileReader};
use crate::exec::rollup::Origin;
use crate::exec::watch::Intake;
use crate::tile::{Tile, TileShape};
use crate::window::Steps;

/// Hands over the samples up to a bound, a batch at a time.
#[inline]
pub(super) fn take(
    cursor: &mut Option<Box<dyn Cursor + '_>>,
    until_ms: i64,
    batch: &mut SampleBatch,
    intake: &mut Intake,
    mut push: impl FnMut(&SampleBatch),
) -> Result<(), QueryError> {
    while let Some(open) = cursor {
        batch.clear();
        let advance = open.next_batch(until_ms, batch)?;
        intake.add(batch.sample_count())?;
        if !batch.histograms.is_empty() {
            let bytes = |sample: &HistogramSample| histogram_bytes(&sample.histogram);
            intake.hold(batch.histograms.iter().map(bytes).sum())?;
        }
        push(batch);
        match advance {
            Advance::Full => {}
            Advance::Reached => break,
            Advance::End => *cursor = None,
        }
    }
    Ok(())
}

/// Where the rows of a reader take their samples from.
pub(super) enum Feed<'a> {
    /// One cursor a row; none where it has ended.
    Cursors { cursors: Vec<Option<Box<dyn Cursor + 'a>>>, batch: Box<SampleBatch> },
    /// Tiles of a subquery.
    Grid(GridFeed<'a>),
}

/// Tiles of a subquery's inner expression.
pub(super) struct GridFeed<'a> {
    ctx: &'a Context,
    reader: Box<dyn TileReader + 'a>,
    steps: Steps,
    width: usize,
    row_count: usize,
    next_step: usize,
    tile: Option<(Tile, Charge)>,
}

/// A value of a subquery's inner expression.
pub(super) enum GridSample<'a> {
    Float(i64, f64),
    Histogram(i64, &'a Arc<Histogram>),
}

impl<'a> Feed<'a> {
    /// The samples of some series; those of loaded ones that no window sees may be left out.
    pub(super) fn new(
        ctx: &'a Context,
        origin: &'a Origin,
        series: &[u32],
        windows: Option<Windows>,
    ) -> Feed<'a> {
        match origin {
            Origin::Set(set) => {
                let open = |index: &u32| {
                    let mut cursor = set.cursor(*index as usize);
                    // What a histogram says of its counter refers to the one before it.
                    let windows = windows.filter(|_| !set.has_histograms(*index as usize));
                    if let Some(windows) = windows {
                        cursor.look_through(windows);
                    }
                    Some(cursor)
                };
                Feed::Cursors {
                    cursors: series.iter().map(open).collect(),
                    batch: SampleBatch::new(),
                }
            }
            Origin::Operator(operator) => Feed::Grid(GridFeed {
                ctx,
                reader: operator.open(series),
                steps: operator.steps(),
                width: ctx.tile_shape_for(operator.steps()).steps,
                row_count: series.len(),
                next_step: 0,
                tile: None,
            }),
        }
    }
}

impl GridFeed<'_> {
    /// Hands over all values up to a bound, row by row, floats and histograms each in the order
    /// of time. Some beyond the bound may be among them.
    pub(super) fn pull(
        &mut self,
        until_ms: i64,
        intake: &mut Intake,
        mut push: impl FnMut(usize, GridSample<'_>),
    ) -> Result<(), QueryError> {
        while self.next_step < self.steps.count && self.steps.time(self.next_step) <= until_ms {
            let (tile, _charge) = match &mut self.tile {
                Some(tile) => tile,
                None => {
                    let shape = TileShape { series: self.row_count, steps: self.width };
                    let charge = Charge::new(&self.ctx.budget, Tile::bytes(shape))?;
                    self.tile.insert((Tile::new(shape), charge))
                }
            };
            let width = self.width.min(self.steps.count - self.next_step);
            self.reader.next_tile(width, tile)?;
            intake.hold(tile.histogram_bytes())?;
            for row in 0..self.row_count {
                let (values, presence) = tile.row(row);
                intake.add(presence.iter().map(|word| word.count_ones() as usize).sum())?;
                for (word_index, word) in presence.iter().enumerate() {
                    let mut bits = *word;
                    while bits != 0 {
                        let index = word_index * 64 + bits.trailing_zeros() as usize;
                        let time_ms = self.steps.time(self.next_step + index);
                        push(row, GridSample::Float(time_ms, values[index]));
                        bits &= bits - 1;
                    }
                }
                for (index, cell) in tile.histograms(row).iter().enumerate() {
                    if let Some(histogram) = cell {
                        intake.add(1)?;
                        let time_ms = self.steps.time(self.next_step + index);
                        push(row, GridSample::Histogram(time_ms, histogram));
                    }
                }
            }
            self.next_step += width;
        }
        Ok(())
    }
}

/// What a histogram takes on the heap.
pub(super) fn histogram_bytes(histogram: &Histogram) -> u64 {
    (size_of::<Histogram>() + histogram.heap_bytes()) as u64
}
