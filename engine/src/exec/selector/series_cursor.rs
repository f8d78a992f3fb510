//! Cursor of one loaded series, open only while it is read.
//!
//! A reader has hundreds of series, and if all steps fit in one tile it reads them one by one.
//! Opened one at a time, each cursor reuses the memory of the previous one, cached by the thread.
//! If all were open at once, threads would wait for each other in the allocator.

use model::{
    Advance, Cursor, FilledSteps, FilledWindows, LookupSteps, SampleBatch, SeriesSet, SourceError,
    StepRanges, WantedFact, WindowFacts, Windows,
};

/// Number of rows to prefetch ahead.
pub(in crate::exec) const ROWS_AHEAD: usize = 3;

/// State of reading a series.
pub(in crate::exec) enum SeriesCursor<'a> {
    /// Nothing has been read.
    Before,
    /// There may be more samples.
    At(Box<dyn Cursor + 'a>),
    /// There are no more samples, or no more are needed.
    Behind,
}

/// A series to read.
#[derive(Clone, Copy)]
pub(in crate::exec) struct WantedSeries<'a> {
    pub(in crate::exec) set: &'a dyn SeriesSet,
    pub(in crate::exec) series: u32,
    /// Ranges to read; other samples may be missing.
    pub(in crate::exec) step_ranges: Option<StepRanges>,
}

impl<'a> SeriesCursor<'a> {
    /// Appends samples up to `until_ms` to `batch`. `wanted` must be the same in each call.
    ///
    /// Errors: errors of the cursor.
    #[inline]
    pub(in crate::exec) fn next_batch(
        &mut self,
        wanted: WantedSeries<'a>,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        let Some(cursor) = self.open(wanted) else { return Ok(Advance::End) };
        let advance = cursor.next_batch(until_ms, batch)?;
        if advance == Advance::End {
            *self = SeriesCursor::Behind;
        }
        Ok(advance)
    }

    /// Writes the newest values of the first steps; see [`Cursor::fill_steps`].
    ///
    /// Errors: errors of the cursor.
    #[inline]
    pub(in crate::exec) fn fill_steps(
        &mut self,
        wanted: WantedSeries<'a>,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> Result<FilledSteps, SourceError> {
        match self.open(wanted) {
            Some(cursor) => cursor.fill_steps(steps, out),
            None => Ok(FilledSteps::default()),
        }
    }

    /// Writes facts of the first windows; see [`Cursor::fill_windows`].
    ///
    /// Errors: errors of the cursor.
    #[inline]
    pub(in crate::exec) fn fill_windows(
        &mut self,
        series: WantedSeries<'a>,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> Result<FilledWindows, SourceError> {
        match self.open(series) {
            Some(cursor) => cursor.fill_windows(windows, wanted, facts),
            None => Ok(FilledWindows::default()),
        }
    }

    /// Prefetches the next samples of a series, for a read of the n-th row after the current one.
    #[inline]
    pub(in crate::exec) fn prefetch(&self, set: &dyn SeriesSet, series: u32, ahead: usize) {
        match self {
            SeriesCursor::Before => set.prefetch(series as usize, ahead),
            SeriesCursor::At(cursor) => cursor.prefetch(ahead),
            SeriesCursor::Behind => {}
        }
    }

    /// Returns the cursor, which is opened by the first call; `None` if no more is read.
    #[inline]
    fn open(&mut self, wanted: WantedSeries<'a>) -> Option<&mut Box<dyn Cursor + 'a>> {
        if let SeriesCursor::Before = self {
            let mut cursor = wanted.set.cursor(wanted.series as usize);
            if let Some(step_ranges) = wanted.step_ranges {
                cursor.restrict_to(step_ranges);
            }
            *self = SeriesCursor::At(cursor);
        }
        match self {
            SeriesCursor::At(cursor) => Some(cursor),
            SeriesCursor::Before | SeriesCursor::Behind => None,
        }
    }

    /// Drops the cursor: no more samples are needed.
    #[inline]
    pub(in crate::exec) fn close(&mut self) {
        *self = SeriesCursor::Behind;
    }
}
