//! Operator that repeats the value of one step at all steps.

use std::sync::Arc;

use crate::error::QueryError;
use crate::exec::matrix::{Matrix, into_matrix};
use crate::exec::operator::{Context, Operand, SeriesMeta, TileReader, VectorOperator};
use crate::steps::Steps;
use crate::tile::{Tile, is_present};

/// Repeats an operand that was evaluated at one step only, at all of `steps`.
pub fn broadcast(ctx: &Context, operand: Operand, steps: Steps) -> Result<Operand, QueryError> {
    Ok(match operand {
        Operand::Scalar(values) => {
            let value = values.first().copied().unwrap_or(f64::NAN);
            Operand::Scalar(vec![value; steps.count])
        }
        Operand::String(text) => Operand::String(text),
        Operand::Vector(operator) => {
            let once = into_matrix(ctx, operator)?;
            Operand::Vector(Box::new(Broadcast { once, steps }))
        }
    })
}

struct Broadcast {
    /// Values at the evaluated step.
    once: Matrix,
    steps: Steps,
}

impl VectorOperator for Broadcast {
    fn series(&self) -> &[SeriesMeta] {
        self.once.series()
    }

    fn steps(&self) -> Steps {
        self.steps
    }

    fn has_histograms(&self) -> bool {
        self.once.has_histograms()
    }

    fn has_effects(&self) -> bool {
        false
    }

    fn holds_histograms(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        Box::new(BroadcastReader { once: &self.once, series: series.to_vec() })
    }
}

struct BroadcastReader<'a> {
    once: &'a Matrix,
    series: Vec<u32>,
}

impl TileReader for BroadcastReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        tile.reset(self.series.len(), step_count);
        for (row, series) in self.series.iter().enumerate() {
            if let Some(Some(histogram)) = self.once.histograms(*series as usize).first() {
                tile.histograms_mut(row).fill(Some(Arc::clone(histogram)));
                continue;
            }
            let (value, is_there) = self.once.row(*series as usize);
            if !is_present(is_there, 0) {
                continue;
            }
            let (values, presence) = tile.row_mut(row);
            values.fill(value[0]);
            for (index, word) in presence.iter_mut().enumerate() {
                let left = step_count.saturating_sub(index * 64);
                *word = if left < 64 { (1 << left) - 1 } else { u64::MAX };
            }
        }
        Ok(())
    }
}
