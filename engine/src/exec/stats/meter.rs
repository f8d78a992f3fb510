//! Cost of each node of a running query, for `explain`.
//!
//! On each thread, only the meter of the node that currently computes runs; a call from one node to
//! another switches meters. Queries without `explain` have no meters.
//!
//! ```text
//! thread:    sum ........|rate .....|load ..|rate ..|sum .....
//!                        pulls a tile       has it
//! ```

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use model::{
    Advance, Cursor, DerivedValues, FilledSteps, FilledWindows, Labels, LookupSteps, SampleBatch,
    SeriesSet, SourceError, StepRanges, WantedFact, WindowFacts, Windows,
};

use crate::error::QueryError;
use crate::exec::operator::{DerivedOfSeries, Operand, SeriesMeta, TileReader, VectorOperator};
use crate::plan::{Meter, Meters};
use crate::steps::Steps;
use crate::tile::Tile;

thread_local! {
    /// The meter that runs on this thread, and its start.
    static RUNNING: RefCell<Option<(Arc<Meter>, Instant)>> = const { RefCell::new(None) };
}

/// Runs a meter on this thread until the guard is dropped; then the previous meter continues.
pub struct MeterGuard(Option<Arc<Meter>>);

impl MeterGuard {
    /// Switches to a meter.
    pub fn start(meter: &Arc<Meter>) -> MeterGuard {
        MeterGuard(switch(Some(Arc::clone(meter))))
    }

    /// Returns the meter that runs on this thread.
    pub fn current() -> Option<Arc<Meter>> {
        RUNNING.with_borrow(|running| running.as_ref().map(|(meter, _)| Arc::clone(meter)))
    }
}

impl Drop for MeterGuard {
    fn drop(&mut self) {
        switch(self.0.take());
    }
}

/// Switches this thread to the meter `next`, or to none; returns the previous meter.
fn switch(next: Option<Arc<Meter>>) -> Option<Arc<Meter>> {
    let now = Instant::now();
    let last = RUNNING.replace(next.map(|meter| (meter, now)));
    last.map(|(meter, since)| {
        meter.add_time(now.saturating_duration_since(since));
        meter
    })
}

/// Wraps the sets of all selectors with their meters.
pub fn metered_sets(meters: &Meters, sets: Vec<Arc<dyn SeriesSet>>) -> Vec<Arc<dyn SeriesSet>> {
    let metered = |(selector, set): (usize, Arc<dyn SeriesSet>)| -> Arc<dyn SeriesSet> {
        let Some(meter) = meters.load(selector) else { return set };
        meter.set_series_count(set.len());
        Arc::new(MeteredSet { set, meter: Arc::clone(meter) })
    };
    sets.into_iter().enumerate().map(metered).collect()
}

/// Wraps an operand so that its meter runs while it computes.
pub fn metered(operand: Operand, meter: &Arc<Meter>) -> Operand {
    match operand {
        Operand::Vector(operator) => {
            meter.set_series_count(operator.series().len());
            Operand::Vector(Box::new(Metered { operator, meter: Arc::clone(meter) }))
        }
        operand @ (Operand::Scalar(_) | Operand::String(_)) => operand,
    }
}

struct Metered {
    operator: Box<dyn VectorOperator>,
    meter: Arc<Meter>,
}

impl VectorOperator for Metered {
    fn series(&self) -> &[SeriesMeta] {
        self.operator.series()
    }

    fn steps(&self) -> Steps {
        self.operator.steps()
    }

    fn has_histograms(&self) -> bool {
        self.operator.has_histograms()
    }

    fn has_effects(&self) -> bool {
        self.operator.has_effects()
    }

    fn is_sorted(&self) -> bool {
        self.operator.is_sorted()
    }

    fn holds_histograms(&self) -> bool {
        self.operator.holds_histograms()
    }

    fn derived(&self) -> Option<DerivedOfSeries<'_>> {
        self.operator.derived()
    }

    fn become_answer(&mut self) {
        self.operator.become_answer();
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        let _run = MeterGuard::start(&self.meter);
        Box::new(MeteredReader { reader: self.operator.open(series), meter: &self.meter })
    }
}

struct MeteredReader<'a> {
    reader: Box<dyn TileReader + 'a>,
    meter: &'a Arc<Meter>,
}

impl TileReader for MeteredReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        let _run = MeterGuard::start(self.meter);
        self.reader.next_tile(step_count, tile)
    }
}

/// Loaded series whose meter runs while they are decoded.
struct MeteredSet {
    set: Arc<dyn SeriesSet>,
    meter: Arc<Meter>,
}

impl SeriesSet for MeteredSet {
    fn len(&self) -> usize {
        self.set.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        self.set.labels(series_index)
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let _run = MeterGuard::start(&self.meter);
        Box::new(MeteredCursor { cursor: self.set.cursor(series_index), meter: &self.meter })
    }

    fn prefetch(&self, series_index: usize, ahead: usize) {
        self.set.prefetch(series_index, ahead);
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.set.sample_count_estimate(series_index)
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.set.has_histograms(series_index)
    }

    fn has_any_histograms(&self) -> bool {
        self.set.has_any_histograms()
    }

    fn derived(&self) -> Option<&DerivedValues> {
        self.set.derived()
    }

    fn encoded_bytes(&self) -> usize {
        self.set.encoded_bytes()
    }
}

struct MeteredCursor<'a> {
    cursor: Box<dyn Cursor + 'a>,
    meter: &'a Arc<Meter>,
}

impl Cursor for MeteredCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        let _run = MeterGuard::start(self.meter);
        let before = batch.sample_count();
        let advance = self.cursor.next_batch(until_ms, batch)?;
        let count = batch.sample_count() - before;
        self.meter.add_samples(count);
        Ok(advance)
    }

    fn restrict_to(&mut self, step_ranges: StepRanges) {
        self.cursor.restrict_to(step_ranges);
    }

    fn prefetch(&self, ahead: usize) {
        self.cursor.prefetch(ahead);
    }

    fn fill_steps(
        &mut self,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> Result<FilledSteps, SourceError> {
        let _run = MeterGuard::start(self.meter);
        let filled = self.cursor.fill_steps(steps, out)?;
        self.meter.add_samples(filled.samples);
        Ok(filled)
    }

    fn fill_windows(
        &mut self,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> Result<FilledWindows, SourceError> {
        let _run = MeterGuard::start(self.meter);
        let filled = self.cursor.fill_windows(windows, wanted, facts)?;
        self.meter.add_samples(filled.new_samples);
        self.meter.add_summarized(filled.summarized);
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn meter() -> Arc<Meter> {
        Arc::default()
    }

    #[test]
    fn time_goes_to_the_innermost_meter_alone() {
        let (outer, inner) = (meter(), meter());
        let started = Instant::now();
        let spin = |least: Duration| {
            let since = Instant::now();
            while since.elapsed() < least {}
        };
        {
            let _outer = MeterGuard::start(&outer);
            spin(Duration::from_millis(2));
            {
                let _inner = MeterGuard::start(&inner);
                spin(Duration::from_millis(5));
            }
            spin(Duration::from_millis(1));
        }
        let whole = started.elapsed();
        assert!(outer.busy() >= Duration::from_millis(3));
        assert!(inner.busy() >= Duration::from_millis(5));
        assert!(outer.busy() + inner.busy() <= whole, "no time is counted twice");
        assert!(MeterGuard::current().is_none());
    }

    #[test]
    fn a_meter_that_is_left_by_an_error_stops() {
        let meter = meter();
        let fail = || -> Result<(), ()> {
            let _run = MeterGuard::start(&meter);
            Err(())
        };
        assert!(fail().is_err());
        assert!(MeterGuard::current().is_none());
    }
}
