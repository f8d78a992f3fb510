//! `sum` and `avg` over floats and histograms.

use std::ops::Range;

use model::labels::quoted;
use model::{Histogram, Reservation};

use super::partial::{Answer, Notes, Partial, Total};
use super::wave::{Wave, each_wave};
use crate::annotations::Cause;
use crate::error::QueryError;
use crate::exec::aggregate::group::Groups;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, VectorOperator};
use crate::exec::schedule::fair::QueryThread;
use crate::steps::Steps;
use crate::tile::set_present;

/// Computes the sum or mean of each group. `cause` is the operand, for annotations.
///
/// Source: `aggregation` in `promql/engine.go` of Prometheus.
pub(in crate::exec::aggregate) fn reduce(
    ctx: &Context,
    steps: Steps,
    input: &dyn VectorOperator,
    groups: &Groups,
    total: Total,
    cause: Cause,
) -> Result<Matrix, QueryError> {
    let mut output = Matrix::with_histograms(ctx, groups.metas.clone(), steps)?;
    let _reservation = Reservation::new(&ctx.budget, (steps.count * size_of::<Partial>()) as u64)?;
    let mut open = vec![Partial::new(total); steps.count];
    let mut open_charge = Reservation::new(&ctx.budget, 0)?;
    let mut notes = Notes::default();
    let adder = Adder { ctx, input, groups, total };
    each_wave(ctx, input, &groups.order, |wave| {
        let open = &mut open[wave.first_step..][..wave.width];
        let held = heap_bytes(open);
        let part = wave.width.div_ceil(ctx.threads());
        let parts = open.chunks_mut(part).enumerate();
        let done =
            ctx.map(parts, |(index, open), thread| adder.fold(thread, wave, index * part, open))?;
        open_charge.grow(heap_bytes(open).saturating_sub(held))?;
        for mut done in done {
            notes.merge(done.notes);
            for (group, step, answer) in done.answers {
                // The matrix charges for the histogram now.
                done.reservation.shrink(bytes_of(&answer));
                put(&mut output, group, step, answer)?;
            }
        }
        Ok(())
    })?;
    tell(ctx, &notes, cause);
    Ok(output)
}

fn heap_bytes(partials: &[Partial]) -> u64 {
    partials.iter().map(|partial| partial.heap_bytes() as u64).sum()
}

fn put(output: &mut Matrix, group: usize, step: usize, answer: Answer) -> Result<(), QueryError> {
    match answer {
        Answer::Float(value) => {
            let (values, presence) = output.row_mut(group);
            values[step] = value;
            set_present(presence, step);
            Ok(())
        }
        Answer::Histogram(histogram) => output.set_histogram(group, step, histogram),
    }
}

/// Results of the groups that end in a wave, at the steps that one call processed.
struct Done {
    /// Group, step and result.
    answers: Vec<(usize, usize, Answer)>,
    /// Charge for the histograms in `answers`.
    reservation: Reservation,
    notes: Notes,
}

/// Returns the heap bytes of a result.
fn bytes_of(answer: &Answer) -> u64 {
    match answer {
        Answer::Float(_) => 0,
        Answer::Histogram(histogram) => (size_of::<Histogram>() + histogram.heap_bytes()) as u64,
    }
}

struct Adder<'a> {
    ctx: &'a Context,
    input: &'a dyn VectorOperator,
    groups: &'a Groups,
    total: Total,
}

impl Adder<'_> {
    /// Processes the rows of a wave at the steps from `first_step` on, one step per partial in
    /// `open`. On entry, `open` holds the states of the group that began in an earlier wave; on
    /// return, the states of the group that continues in the next wave.
    fn fold(
        &self,
        thread: &QueryThread,
        wave: &Wave<'_>,
        first_step: usize,
        open: &mut [Partial],
    ) -> Result<Done, QueryError> {
        let reservation = Reservation::empty(&self.ctx.budget);
        let mut done = Done { answers: Vec::new(), reservation, notes: Notes::default() };
        let mut inner = Partial::new(self.total);
        let first = self.groups.group_of_row(wave.rows.start);
        let last = self.groups.group_of_row(wave.rows.end - 1);
        for (index, open) in open.iter_mut().enumerate() {
            thread.yield_if_due()?;
            let step = first_step + index;
            for group in first..=last {
                let rows = self.groups.rows(group);
                let begins = rows.start >= wave.rows.start;
                let ends = rows.end <= wave.rows.end;
                let partial = if begins && ends { &mut inner } else { &mut *open };
                if begins {
                    partial.clear();
                }
                let here = rows.start.max(wave.rows.start)..rows.end.min(wave.rows.end);
                self.add(wave, step, here, partial, &mut done.notes);
                if ends && let Some(answer) = partial.finish(&mut done.notes) {
                    done.reservation.grow(bytes_of(&answer))?;
                    done.answers.push((group, wave.first_step + step, answer));
                }
            }
        }
        Ok(done)
    }

    fn add(
        &self,
        wave: &Wave<'_>,
        step: usize,
        rows: Range<usize>,
        partial: &mut Partial,
        notes: &mut Notes,
    ) {
        for row in rows {
            if let Some(sample) = wave.at(row, step) {
                partial.update(sample, notes, || {
                    let series = self.groups.order[row] as usize;
                    self.input.series()[series].labels.metric_name()
                });
            }
        }
    }
}

/// Reports the annotations.
///
/// Source: `handleAggregationError` and the annotations of `aggregation` in `promql/engine.go` of
/// Prometheus.
fn tell(ctx: &Context, notes: &Notes, cause: Cause) {
    if notes.is_mixed {
        ctx.warn("encountered a mix of histograms and floats for aggregation", cause);
    }
    if notes.has_collision {
        ctx.warn("conflicting counter resets during histogram aggregation", cause);
    }
    if notes.has_other_bounds {
        ctx.info("mismatched custom buckets were reconciled during aggregation", cause);
    }
    for metric in &notes.incompatible {
        let what =
            "vector contains a mix of histograms with exponential and custom buckets schemas";
        ctx.warn(format!("{what} for metric name {}", quoted(metric)), cause);
    }
}
