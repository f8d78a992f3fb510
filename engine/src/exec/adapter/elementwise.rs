//! Operators that change each value of a series on its own, in place, tile by tile.
//!
//! Floats and native histograms go through kernels of their own, row by row. Where only floats
//! come of histograms, these are read in low tiles of their own, so that few are held at once.

use model::Checkpoint;

use crate::catalog::Names;
use crate::error::QueryError;
use crate::exec::adapter::unique::{Meeting, unique};
use crate::exec::matrix::gather::Gather;
use crate::exec::operator::{Context, Operand, SeriesMeta, TileReader, VectorOperator};
use crate::steps::Steps;
use crate::tile::{HistogramCell, Tile, copy_bits};

/// Changes one row of a tile: gets the index of the row's first step, its values and its
/// presence. It may take presence away and never adds any; it sees the values of absent
/// cells, which are undefined.
pub type RowKernel = Box<dyn Fn(usize, &mut [f64], &mut [u64]) + Send + Sync>;

/// Changes the histograms of one row: gets the index of the row's first step, the histograms,
/// and the values and presence that the row's kernel has left. It may take histograms away, or
/// write a value in the place of one.
pub type HistogramKernel =
    Box<dyn Fn(usize, &mut [HistogramCell], &mut [f64], &mut [u64]) + Send + Sync>;

/// Treatment of native histograms.
pub enum HistogramRule {
    /// Left out.
    Drop,
    /// Converted to values or to nothing; the kernel's remaining histograms are dropped.
    Answer(HistogramKernel),
    /// Changed to other histograms.
    Change(HistogramKernel),
}

/// Treatment of the metric name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// Kept.
    Keep,
    /// Dropped, now or at the end of the query.
    Drop,
    /// Dropped; now without the other labels that describe the metric, or at the end with them.
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

/// Passes every row through a kernel, and histograms through another.
///
/// Errors: the limits of the query; two series end up with the same labels and are both present
/// at a step, which the readers refuse.
pub fn elementwise(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    name: Name,
    kernel: RowKernel,
    rule: HistogramRule,
) -> Result<Operand, QueryError> {
    elementwise_meeting(ctx, input, name, kernel, rule, Meeting::Refused)
}

/// Extends [`elementwise`] by a rule for floats and histograms that end up with the same
/// labels.
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
        // A kernel of histograms may have something to say about them.
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

/// Makes a tile of floats out of low tiles that may have histograms.
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
