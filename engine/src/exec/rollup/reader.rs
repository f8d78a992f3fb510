//! Reader of ranges: reads samples, moves the ranges over them, and charges the memory held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Checkpoint, HistogramSample, Reservation, SampleBatch, WantedFact};

use crate::error::QueryError;
use crate::exec::operator::TileReader;
use crate::exec::rollup::buffer::{Buffer, Kernel, RowSteps};
use crate::exec::rollup::facts::KnownWindows;
use crate::exec::rollup::feed::{CursorFeed, Feed, GridRow};
use crate::exec::rollup::mixed::{FloatRoll, Mixed};
use crate::exec::rollup::{RollupOperator, Spare};
use crate::tile::Tile;

impl RollupOperator {
    /// Returns a reader of `series` with one kernel per series.
    pub(super) fn reader<'a, K: Kernel + 'a>(
        &'a self,
        series: &[u32],
        kernel: impl Fn() -> K,
    ) -> Box<dyn TileReader + 'a> {
        let spare = lock(&self.spare).pop();
        let Spare { buffers: idle, batch, facts, reservation } = spare.unwrap_or_default();
        let feed = Feed::new(
            &self.ctx,
            &self.origin,
            self.takes_histograms,
            series,
            self.ranges.step_ranges(self.seen),
            batch,
            facts,
        );
        let row = |series: &u32| {
            let (kernel, buffer) = (kernel(), Buffer::default());
            let wanted = kernel.wanted_fact().filter(|_| self.may_use_facts(&feed, *series));
            let kernel = Some(kernel);
            Row { series: *series, wanted, buffer, kernel, mixed: None, charged_bytes: 0 }
        };
        Box::new(RollupReader {
            operator: self,
            rows: series.iter().map(row).collect(),
            idle,
            feed,
            step: 0,
            reservation: reservation.unwrap_or_else(|| Reservation::empty(&self.ctx.budget)),
        })
    }
}

struct RollupReader<'a, K: Kernel> {
    operator: &'a RollupOperator,
    rows: Vec<Row<K>>,
    /// Unused buffers, for rows that have no samples yet.
    idle: Vec<Buffer>,
    feed: Feed<'a>,
    step: usize,
    /// Charge for the buffers and the other memory of rows.
    reservation: Reservation,
}

/// A series of a reader.
struct Row<K> {
    series: u32,
    /// Fact of windows to compute values from; `None` once samples are read.
    wanted: Option<WantedFact>,
    buffer: Buffer,
    /// Kernel; `None` after the last step.
    kernel: Option<K>,
    /// Set at the first histogram, or at the first start timestamp if the function uses these.
    mixed: Option<Box<Mixed>>,
    /// Memory charged in addition to the buffer.
    charged_bytes: u64,
}

/// Minimum samples of a row to charge its kernel memory in advance; for other rows, it is charged
/// afterwards.
const LARGE_ROW: usize = 1 << 14;

impl<K: Kernel> Drop for RollupReader<'_, K> {
    /// Keeps the buffers for another reader, with their charge.
    fn drop(&mut self) {
        let mut buffers = std::mem::take(&mut self.idle);
        for mut row in std::mem::take(&mut self.rows) {
            row.finish(&mut self.reservation);
            buffers.push(row.buffer.emptied());
        }
        buffers.retain(Buffer::has_room);
        let empty = Reservation::empty(&self.operator.ctx.budget);
        let (batch, facts) = self.feed.give_room();
        lock(&self.operator.spare).push(Spare {
            buffers,
            batch,
            facts,
            reservation: Some(std::mem::replace(&mut self.reservation, empty)),
        });
    }
}

impl<K: Kernel> TileReader for RollupReader<'_, K> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        let RollupReader { operator, rows, idle, feed, step, reservation } = self;
        let budget = &operator.ctx.budget;
        budget.check()?;
        tile.reset(rows.len(), step_count);
        // Rows that read samples would have to hold those of all tiles that were skipped.
        if operator.is_unseen(*step, step_count) && rows.iter().all(|row| row.wanted.is_some()) {
            *step += step_count;
            return Ok(());
        }
        let until_ms = operator.ranges.until_ms(*step + step_count - 1);
        let is_last = *step + step_count >= operator.steps.count;
        let mut intake = match feed {
            Feed::Cursors(_) => Checkpoint::of_samples(budget),
            Feed::Grid(_) => Checkpoint::new(budget),
        };
        let mut checkpoint = Checkpoint::new(budget);
        // Number of steps whose values are computed.
        let mut rolled = 0_usize;
        if let Feed::Grid(grid) = feed {
            let at_once = grid.steps_at_once(operator.ranges.times.step_ms);
            loop {
                let end = rolled.saturating_add(at_once).min(step_count);
                let until_ms = operator.ranges.until_ms(*step + end - 1);
                grid.pull(until_ms, &mut intake, |row, samples| {
                    rows[row].take_grid(operator, samples, reservation)
                })?;
                if end == step_count {
                    break;
                }
                let steps = RowSteps { first: *step, done: rolled, end };
                for (index, row) in rows.iter_mut().enumerate() {
                    row.roll(operator, steps, tile, index, &mut checkpoint, reservation)?;
                }
                rolled = end;
            }
        }
        for index in 0..rows.len() {
            if let Feed::Cursors(feed) = feed {
                feed.prefetch(index + 1, rows[index + 1..].iter().map(|row| row.series));
            }
            let row = &mut rows[index];
            let mut done = rolled;
            if let Feed::Cursors(feed) = feed {
                done = row.put_known(operator, feed, *step, tile, index, &mut intake)?;
                checkpoint.work(done)?;
                if done == step_count {
                    if is_last {
                        feed.close(index);
                        row.finish(reservation);
                    }
                    continue;
                }
                if !row.buffer.has_room() {
                    row.buffer = idle.pop().unwrap_or_default();
                }
                feed.take(index, row.series, until_ms, is_last, &mut intake, |batch| {
                    row.take(operator, batch, reservation)
                })?;
                assert!(done == 0 || row.mixed.is_none(), "facts are of floats alone");
            }
            let steps = RowSteps { first: *step, done, end: step_count };
            row.roll(operator, steps, tile, index, &mut checkpoint, reservation)?;
            if is_last {
                // For the next row: sequential reads hold one row at a time.
                idle.push(std::mem::take(&mut row.buffer).emptied());
                row.finish(reservation);
            }
        }
        intake.settle()?;
        *step += step_count;
        Ok(())
    }
}

impl<K: Kernel> Row<K> {
    /// Writes the values of the first steps of a tile's row for which facts of their ranges are
    /// known, and returns their number. All later steps read samples.
    #[inline]
    fn put_known(
        &mut self,
        operator: &RollupOperator,
        feed: &mut CursorFeed<'_>,
        first_step: usize,
        tile: &mut Tile,
        index: usize,
        intake: &mut Checkpoint,
    ) -> Result<usize, QueryError> {
        let Row { series, wanted, kernel: Some(kernel), .. } = self else { return Ok(0) };
        let (values, presence) = tile.row_mut(index);
        let mut done = 0;
        while done < values.len()
            && let Some(fact) = *wanted
        {
            let windows = operator.ranges.windows(first_step + done, values.len() - done);
            let Some(windows) = windows else { break };
            let (filled, facts) = feed.facts(index, *series, windows, fact, intake)?;
            if filled.windows == 0 {
                *wanted = None;
                break;
            }
            let end = done + filled.windows;
            if let Some(known) = KnownWindows::new(filled, facts, windows) {
                let found = kernel.of_facts(&known, &mut values[done..end]);
                known.set_found(&found, done, presence);
            }
            done = end;
        }
        if done > 0 {
            operator.note.take(&operator.ctx, *series, first_step, presence);
        }
        Ok(done)
    }

    /// Adds the samples of a batch.
    #[inline]
    fn take(
        &mut self,
        operator: &RollupOperator,
        batch: &SampleBatch,
        reservation: &mut Reservation,
    ) -> Result<(), QueryError> {
        self.buffer.make_room(batch.len, reservation)?;
        if self.mixed.is_none() && !operator.mixing.concerns(batch) {
            self.buffer.extend_with(batch);
            return Ok(());
        }
        let Row { mixed, buffer, .. } = self;
        let mixed = mixed.get_or_insert_with(|| operator.mixed(buffer));
        mixed.take(&operator.mixing, batch, buffer);
        self.settle(reservation)
    }

    /// Adds the values of a subquery at the steps of one tile.
    fn take_grid(
        &mut self,
        operator: &RollupOperator,
        samples: &GridRow<'_>,
        reservation: &mut Reservation,
    ) -> Result<(), QueryError> {
        self.buffer.make_room(samples.float_count(), reservation)?;
        samples.each_float_run(|start_ms, step_ms, values| {
            self.buffer.extend_evenly(start_ms, step_ms, values);
        });
        for (timestamp_ms, histogram) in samples.histograms() {
            let mixed = self.mixed.get_or_insert_with(|| operator.mixed(&self.buffer));
            let histogram = Arc::clone(histogram);
            mixed.push(&operator.mixing, HistogramSample { timestamp_ms, start_ms: 0, histogram });
        }
        if self.mixed.is_some() { self.settle(reservation) } else { Ok(()) }
    }

    /// Charges the maximum memory of a large row's kernel.
    #[inline]
    fn charge_kernel(&mut self, reservation: &mut Reservation) -> Result<(), QueryError> {
        if K::SAMPLE_BYTES == 0 || self.buffer.len() < LARGE_ROW {
            return Ok(());
        }
        let bytes = K::SAMPLE_BYTES * self.buffer.len() as u64;
        let more = bytes.saturating_sub(self.charged_bytes);
        self.charged_bytes += more;
        Ok(reservation.grow(more)?)
    }

    /// Charges exactly the memory held in addition to the buffer.
    #[inline]
    fn settle(&mut self, reservation: &mut Reservation) -> Result<(), QueryError> {
        let kernel_bytes = self.kernel.as_ref().map_or(0, Kernel::bytes);
        let bytes = kernel_bytes + self.mixed.as_ref().map_or(0, |mixed| mixed.bytes());
        let before = std::mem::replace(&mut self.charged_bytes, bytes);
        if bytes < before {
            reservation.shrink(before - bytes);
        }
        if bytes > before { Ok(reservation.grow(bytes - before)?) } else { Ok(()) }
    }

    /// Frees kernel and histograms after the last step.
    fn finish(&mut self, reservation: &mut Reservation) {
        self.kernel = None;
        self.mixed = None;
        reservation.shrink(std::mem::take(&mut self.charged_bytes));
    }

    /// Writes the values of a tile's row that are not done, up to the end of `steps`, reports the
    /// annotations, and drops samples that no later range needs.
    ///
    /// Errors: the limits of the query, and those of the function's parameters.
    #[inline]
    fn roll(
        &mut self,
        operator: &RollupOperator,
        steps: RowSteps,
        tile: &mut Tile,
        index: usize,
        checkpoint: &mut Checkpoint,
        reservation: &mut Reservation,
    ) -> Result<(), QueryError> {
        self.charge_kernel(reservation)?;
        let Row { series, buffer, kernel, mixed, .. } = self;
        let Some(kernel) = kernel else { return Ok(()) };
        let ranges = &operator.ranges;
        checkpoint.work(steps.end - steps.done)?;
        match mixed {
            None => {
                let (values, presence) = tile.row_mut(index);
                buffer.roll(kernel, ranges, steps, values, presence, checkpoint)?;
            }
            Some(mixed) => {
                mixed.roll(FloatRoll { buffer, kernel }, ranges, steps, tile, index, checkpoint)?;
                let name = operator.origin.metric_name(*series);
                mixed.report(&operator.ctx, &operator.mixing, name);
            }
        }
        if let Some(message) = kernel.error() {
            return Err(QueryError::Execution(message));
        }
        operator.note.take(&operator.ctx, *series, steps.first, tile.row(index).1);
        let dropped = buffer.compact();
        if let Some(mixed) = mixed {
            mixed.compact(dropped);
        }
        self.settle(reservation)
    }
}

impl RollupOperator {
    /// Returns whether facts of windows are all that floats of a series are read for.
    fn may_use_facts(&self, feed: &Feed<'_>, series: u32) -> bool {
        let Feed::Cursors(feed) = feed else { return false };
        !self.ctx.uses_start_timestamps
            && self.ranges.windows(0, 1).is_some()
            && !feed.has_histograms(series)
    }

    fn mixed(&self, buffer: &Buffer) -> Box<Mixed> {
        Box::new(Mixed::new(&self.mixing, &self.kernel, &self.ranges, buffer))
    }
}
/// Locks the buffers. A poisoned mutex still has valid data: no code of a query runs while it is
/// locked.
fn lock(spare: &Mutex<Vec<Spare>>) -> MutexGuard<'_, Vec<Spare>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}
