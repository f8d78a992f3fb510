//! `count_values` over floats and histograms: one series for each value, by its text.

use std::sync::Arc;

use model::Histogram;

use super::rows::Rows;
use super::wave::{Sample, each_wave};
use crate::error::QueryError;
use crate::exec::aggregate::group::Groups;
use crate::exec::aggregate::outputs::{counted, value_text};
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, VectorOperator};
use crate::steps::Steps;

/// Counts the series of each group that have the same value. Without a label for the value, all
/// values are counted together.
///
/// Source: `aggregationCountValues` in `promql/engine.go` of Prometheus.
pub(in crate::exec::aggregate) fn reduce(
    ctx: &Context,
    steps: Steps,
    input: &dyn VectorOperator,
    groups: &Groups,
    label: Option<&str>,
) -> Result<Matrix, QueryError> {
    let mut rows: Rows<(usize, String)> = Rows::new(ctx, steps)?;
    each_wave(ctx, input, &groups.order, |wave| {
        for row in wave.rows.clone() {
            ctx.yield_if_due()?;
            let group = groups.group_of_row(row);
            // A histogram often repeats at consecutive steps.
            let mut last: Option<(&Arc<Histogram>, String)> = None;
            for step in 0..wave.width {
                let Some(sample) = wave.at(row, step) else { continue };
                let text = match (label, sample) {
                    (None, _) => String::new(),
                    (_, Sample::Float(value)) => value_text(value),
                    (_, Sample::Histogram(histogram)) => match &last {
                        Some((of, text)) if Arc::ptr_eq(of, histogram) => text.clone(),
                        _ => {
                            let text = histogram.to_string();
                            last = Some((histogram, text.clone()));
                            text
                        }
                    },
                };
                let bytes = text.len();
                rows.count((group, text), wave.first_step + step, bytes)?;
            }
        }
        Ok(())
    })?;
    rows.finish(ctx, |(group, text)| counted(&groups.metas[*group], label, text))
}
