//! `limitk` and `limit_ratio` over floats and histograms: a selection of unchanged series.

use super::rows::Rows;
use super::wave::{Wave, each_wave};
use model::Reservation;

use crate::error::QueryError;
use crate::exec::aggregate::columns::is_sampled;
use crate::exec::aggregate::group::Groups;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, VectorOperator};
use crate::steps::Steps;

/// Selects, at each step, the first `k[step]` series of each group that have a value.
///
/// Source: `aggregationK` in `promql/engine.go` of Prometheus.
pub(in crate::exec::aggregate) fn limitk(
    ctx: &Context,
    steps: Steps,
    input: &dyn VectorOperator,
    groups: &Groups,
    k: &[usize],
) -> Result<Matrix, QueryError> {
    let mut rows = Rows::new(ctx, steps)?;
    let _reservation = Reservation::new(&ctx.budget, (steps.count * size_of::<usize>()) as u64)?;
    // Number of series selected in the current group, by step.
    let mut taken = vec![0; steps.count];
    each_wave(ctx, input, &groups.order, |wave| {
        let taken = &mut taken[wave.first_step..][..wave.width];
        for row in wave.rows.clone() {
            ctx.yield_if_due()?;
            if groups.rows(groups.group_of_row(row)).start == row {
                taken.fill(0);
            }
            for (step, taken) in taken.iter_mut().enumerate() {
                let at = wave.first_step + step;
                if *taken < k[at]
                    && let Some(sample) = wave.at(row, step)
                {
                    *taken += 1;
                    rows.put(row, at, sample)?;
                }
            }
        }
        Ok(())
    })?;
    finish(ctx, input, groups, rows)
}

/// Selects, at each step, the series that `ratio[step]` keeps.
///
/// Source: `aggregationK` in `promql/engine.go` of Prometheus.
pub(in crate::exec::aggregate) fn limit_ratio(
    ctx: &Context,
    steps: Steps,
    input: &dyn VectorOperator,
    groups: &Groups,
    ratio: &[f64],
) -> Result<Matrix, QueryError> {
    let mut rows = Rows::new(ctx, steps)?;
    each_wave(ctx, input, &groups.order, |wave: &Wave<'_>| {
        for row in wave.rows.clone() {
            ctx.yield_if_due()?;
            let labels = &input.series()[groups.order[row] as usize].labels;
            for step in 0..wave.width {
                let at = wave.first_step + step;
                if let Some(sample) = wave.at(row, step)
                    && is_sampled(ratio[at].clamp(-1.0, 1.0), labels)
                {
                    rows.put(row, at, sample)?;
                }
            }
        }
        Ok(())
    })?;
    finish(ctx, input, groups, rows)
}

fn finish(
    ctx: &Context,
    input: &dyn VectorOperator,
    groups: &Groups,
    rows: Rows<usize>,
) -> Result<Matrix, QueryError> {
    rows.finish(ctx, |row| input.series()[groups.order[*row] as usize].clone())
}
