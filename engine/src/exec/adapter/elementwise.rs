//! Operators that change each value independently, in place, tile by tile.
//!
//! Floats and native histograms have separate kernels, which process rows. If histograms are only
//! converted to floats, they are read in tiles of few rows, to limit the memory that they need.

use model::Checkpoint;

use crate::catalog::Names;
use crate::error::QueryError;
use crate::exec::adapter::unique::{Meeting, unique};
use crate::exec::matrix::gather::Gather;
use crate::exec::operator::{Context, Operand, SeriesMeta, TileReader, VectorOperator};
use crate::steps::Steps;
use crate::tile::{HistogramCell, Tile, copy_bits};

/// Function that changes one row of a tile, given the index of its first step, its values and its
/// presence. It may clear presence bits but never sets any. Values of absent cells are undefined.
pub type RowKernel = Box<dyn Fn(usize, &mut [f64], &mut [u64]) + Send + Sync>;

/// Function that changes the histograms of one row, given the index of its first step, its
/// histograms, and its values and presence after the row kernel. It may remove histograms or
/// replace them by values.
pub type HistogramKernel =
    Box<dyn Fn(usize, &mut [HistogramCell], &mut [f64], &mut [u64]) + Send + Sync>;

/// Treatment of native histograms.
pub enum HistogramRule {
    /// Histograms are removed.
    Drop,
    /// Histograms are converted to values; histograms that the kernel leaves are removed.
    Answer(HistogramKernel),
    /// Histograms are replaced by other histograms.
    Change(HistogramKernel),
}

/// Treatment of the metric name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// Kept.
    Keep,
    /// Dropped, now or at the end of the query.
    Drop,
    /// Dropped now, without the other labels that describe the metric; or at the end, with them.
    DropAlone,
}

impl From<Names> for Name {
    fn from(names: Names) -> Name {
        match names {
            Names::Kept | Names::None => Name::Keep,
            Names::Dropped => Name::Drop,
            Names::DroppedAlone => Name::DropAlone,
        }
    }
}

/// Returns a vector with `kernel` applied to every row, and `rule` to the histograms.
///
/// Errors: the limits of the query. Readers return an error if two series with the same resulting
/// labels are present at a step.
pub fn elementwise(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    name: Name,
    kernel: RowKernel,
    rule: HistogramRule,
) -> Result<Operand, QueryError> {
    elementwise_meeting(ctx, input, name, kernel, rule, Meeting::Refused)
}

/// Extends [`elementwise`] by `meeting`, the rule for a float and a histogram with the same
/// resulting labels.
///
/// Errors: as for [`elementwise`].
pub fn elementwise_meeting(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    name: Name,
    kernel: RowKernel,
    rule: HistogramRule,
    meeting: Meeting,
) -> Result<Operand, QueryError> {
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let mut series = Vec::with_capacity(input.series().len());
    for meta in input.series() {
        checkpoint.work(meta.labels.as_bytes().len())?;
        series.push(match name {
            Name::Keep => meta.clone(),
            Name::Drop => meta.dropping_name(ctx),
            Name::DropAlone => meta.dropping_name_alone(ctx),
        });
    }
    let is_mixed = input.has_histograms();
    let operator =
        Box::new(Elementwise { ctx: ctx.clone(), input, series, kernel, rule, meeting, is_mixed });
    let renames = name != Name::Keep && !ctx.delayed_name_removal;
    Ok(Operand::Vector(if renames { unique(ctx, operator, meeting)? } else { operator }))
}

/// Returns the floats of a vector.
///
/// Errors: as for [`elementwise`].
pub fn floats_alone(ctx: &Context, input: Box<dyn VectorOperator>) -> Result<Operand, QueryError> {
    if !input.has_histograms() {
        return Ok(Operand::Vector(input));
    }
    elementwise(ctx, input, Name::Keep, Box::new(|_, _, _| {}), HistogramRule::Drop)
}

struct Elementwise {
    ctx: Context,
    input: Box<dyn VectorOperator>,
    series: Vec<SeriesMeta>,
    kernel: RowKernel,
    rule: HistogramRule,
    meeting: Meeting,
    /// True if the input may have histograms.
    is_mixed: bool,
}

impl VectorOperator for Elementwise {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn has_effects(&self) -> bool {
        // A kernel of histograms may report annotations.
        self.is_mixed && !matches!(self.rule, HistogramRule::Drop) || self.input.has_effects()
    }

    fn has_histograms(&self) -> bool {
        self.is_mixed && matches!(self.rule, HistogramRule::Change(_))
    }

    fn become_answer(&mut self) {
        if self.meeting == Meeting::Merged {
            self.input.become_answer();
        }
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        if self.is_mixed && !self.has_histograms() {
            let rows = Gather::open(&self.ctx, &*self.input, series);
            return Box::new(AnsweringReader {
                elementwise: self,
                rows,
                row_count: series.len(),
                first_step: 0,
            });
        }
        let input = self.input.open(series);
        Box::new(ElementwiseReader { elementwise: self, input, first_step: 0 })
    }
}

impl Elementwise {
    fn apply(&self, first_step: usize, row: usize, tile: &mut Tile) {
        let (values, presence) = tile.row_mut(row);
        (self.kernel)(first_step, values, presence);
        if let HistogramRule::Answer(kernel) | HistogramRule::Change(kernel) = &self.rule
            && tile.has_histograms()
        {
            let (values, presence, histograms) = tile.mixed_row_mut(row);
            if histograms.iter().any(Option::is_some) {
                kernel(first_step, histograms, values, presence);
            }
        }
    }
}

/// Changes the tiles of the input in place.
struct ElementwiseReader<'a> {
    elementwise: &'a Elementwise,
    input: Box<dyn TileReader + 'a>,
    first_step: usize,
}

impl TileReader for ElementwiseReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.input.next_tile(step_count, tile)?;
        for row in 0..tile.series() {
            self.elementwise.apply(self.first_step, row, tile);
        }
        self.first_step += step_count;
        Ok(())
    }
}

/// Reader that converts input tiles of few rows, which may have histograms, to tiles of floats.
struct AnsweringReader<'a> {
    elementwise: &'a Elementwise,
    rows: Gather<'a>,
    row_count: usize,
    first_step: usize,
}

impl TileReader for AnsweringReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        tile.reset(self.row_count, step_count);
        let (elementwise, first_step) = (self.elementwise, self.first_step);
        self.rows.each_tile(step_count, |first_row, from| {
            for row in 0..from.series() {
                elementwise.apply(first_step, row, from);
                let (answers, present) = from.row(row);
                let (values, presence) = tile.row_mut(first_row + row);
                values.copy_from_slice(answers);
                copy_bits(presence, 0, present, step_count);
            }
            Ok(())
        })?;
        self.first_step += step_count;
        Ok(())
    }
}
