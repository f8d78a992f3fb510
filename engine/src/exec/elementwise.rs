//! Operators that change each value of a series on its own, in place, tile by tile.

use crate::error::QueryError;
use crate::exec::operator::{Context, Operand, SeriesMeta, TileReader, VectorOperator};
use crate::exec::unique::unique;
use crate::exec::watch::Watch;
use crate::tile::Tile;
use crate::window::Steps;

/// Changes one row of a tile: gets the index of the row's first step, its values and its
/// presence. It may take presence away and never adds any; it sees the values of absent
/// cells, which are whatever they are.
pub type RowKernel = Box<dyn Fn(usize, &mut [f64], &mut [u64]) + Send + Sync>;

/// What becomes of the metric's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// It stays as it is.
    Keep,
    /// It goes, now or at the end of the query.
    Drop,
}

/// The same series with every row passed through a kernel.
///
/// Errors: the limits of the query; two series come to bear the same labels and are both present
/// at a step, which the readers refuse.
pub fn elementwise(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    name: Name,
    kernel: RowKernel,
) -> Result<Operand, QueryError> {
    let mut watch = Watch::new(&ctx.budget);
    let mut series = Vec::with_capacity(input.series().len());
    for meta in input.series() {
        watch.work(meta.labels.as_bytes().len())?;
        series.push(match name {
            Name::Keep => meta.clone(),
            Name::Drop => meta.dropping_name(ctx),
        });
    }
    let operator = Box::new(Elementwise { input, series, kernel });
    let renames = name == Name::Drop && !ctx.delayed_name_removal;
    Ok(Operand::Vector(if renames { unique(ctx, operator)? } else { operator }))
}

struct Elementwise {
    input: Box<dyn VectorOperator>,
    series: Vec<SeriesMeta>,
    kernel: RowKernel,
}

impl VectorOperator for Elementwise {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn has_effects(&self) -> bool {
        self.input.has_effects()
    }

    fn has_histograms(&self) -> bool {
        false
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        Box::new(ElementwiseReader {
            input: self.input.open(series),
            kernel: &self.kernel,
            first_step: 0,
        })
    }
}

struct ElementwiseReader<'a> {
    input: Box<dyn TileReader + 'a>,
    kernel: &'a RowKernel,
    first_step: usize,
}

impl TileReader for ElementwiseReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.input.next_tile(step_count, tile)?;
        tile.drop_histograms();
        for row in 0..tile.series() {
            let (values, presence) = tile.row_mut(row);
            (self.kernel)(self.first_step, values, presence);
        }
        self.first_step += step_count;
        Ok(())
    }
}
