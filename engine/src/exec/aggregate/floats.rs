//! Input of aggregations that support only floats: histograms are removed, or counted as values.

use model::Reservation;

use crate::annotations::Cause;
use crate::error::QueryError;
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::parse::ast::AggregateOp;
use crate::steps::Steps;
use crate::tile::{Tile, set_present};

/// Treatment of histograms.
pub(super) enum Seen {
    /// Replaces each histogram by an arbitrary number.
    AsNumbers,
    /// Removes histograms and reports an info.
    Not {
        /// The aggregation.
        op: AggregateOp,
        /// Position of the info.
        cause: Cause,
        /// By step: true if `op` uses its values; empty if all are true.
        looks: Vec<bool>,
    },
}

/// An operator without its histograms.
pub(super) struct Floats<'a> {
    pub(super) ctx: &'a Context,
    pub(super) input: &'a dyn VectorOperator,
    pub(super) seen: Seen,
}

impl VectorOperator for Floats<'_> {
    fn series(&self) -> &[SeriesMeta] {
        self.input.series()
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn has_histograms(&self) -> bool {
        false
    }

    fn has_effects(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        Box::new(FloatsReader { floats: self, input: self.input.open(series), first_step: 0 })
    }
}

struct FloatsReader<'a> {
    floats: &'a Floats<'a>,
    input: Box<dyn TileReader + 'a>,
    first_step: usize,
}

impl TileReader for FloatsReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.input.next_tile(step_count, tile)?;
        let first_step = self.first_step;
        self.first_step += step_count;
        if !tile.has_histograms() {
            return Ok(());
        }
        let _reservation = Reservation::new(&self.floats.ctx.budget, tile.histogram_bytes())?;
        match &self.floats.seen {
            Seen::AsNumbers => number(tile),
            Seen::Not { op, cause, looks } => {
                let looks = looks.get(first_step..).unwrap_or_default();
                if has_seen(tile, looks) {
                    let message = format!("ignored histogram in {} aggregation", op.as_str());
                    self.floats.ctx.info(message, *cause);
                }
            }
        }
        tile.drop_histograms();
        Ok(())
    }
}

/// Replaces every histogram by a number.
fn number(tile: &mut Tile) {
    for row in 0..tile.series() {
        for step in 0..tile.steps() {
            if tile.histograms(row)[step].is_some() {
                let (values, presence) = tile.row_mut(row);
                values[step] = 0.0;
                set_present(presence, step);
            }
        }
    }
}

/// Returns whether there is a histogram at a step that uses values; empty `looks` means all steps.
fn has_seen(tile: &Tile, looks: &[bool]) -> bool {
    let is_seen = |step: usize| looks.get(step).copied().unwrap_or(true);
    (0..tile.series()).any(|row| {
        let cells = tile.histograms(row).iter().enumerate();
        cells.into_iter().any(|(step, cell)| cell.is_some() && is_seen(step))
    })
}
