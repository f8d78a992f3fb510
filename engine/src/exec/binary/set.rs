//! `and`, `unless`, `or`: filter one side by the match groups of the other side.

use std::sync::Mutex;

use model::Reservation;

use crate::error::QueryError;
use crate::exec::adapter::unique::{Meeting, settle_names, unique};
use crate::exec::matrix::gather::Gather;
use crate::exec::matrix::materialize;
use crate::exec::matrix::scan::{all_series, drain, scan, word_at};
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::parse::ast::BinaryOp;
use crate::steps::Steps;
use crate::tile::{Tile, copy_bits, is_present, mark_histograms};

use super::matching::Groups;

/// Evaluates a set operator. The filtered side streams. For the other side, memory holds only one
/// bit per match group and step.
///
/// Errors: errors of the operands, and the limits of the query.
/// Source: `VectorAnd`, `VectorOr`, `VectorUnless` of Prometheus.
pub(super) fn evaluate(
    ctx: &Context,
    op: BinaryOp,
    groups: &Groups,
    lhs: Box<dyn VectorOperator>,
    rhs: Box<dyn VectorOperator>,
) -> Result<Box<dyn VectorOperator>, QueryError> {
    if op == BinaryOp::Or {
        let lhs = materialize(ctx, &*lhs)?;
        let decides = GroupPresence::of(ctx, groups.count, &lhs, &groups.lhs, &groups.rhs)?;
        let rhs = Masked::new(rhs, &groups.rhs, decides, false);
        return union(ctx, Box::new(lhs), Box::new(rhs));
    }
    let decides = GroupPresence::of(ctx, groups.count, &*rhs, &groups.rhs, &groups.lhs)?;
    Ok(Box::new(Masked::new(lhs, &groups.lhs, decides, op == BinaryOp::And)))
}

/// Presence of match groups on one side, by step.
///
/// Shape: bits `[group][step]`, a row of words per group.
struct GroupPresence {
    words: usize,
    bits: Vec<u64>,
    _reservation: Reservation,
}

impl GroupPresence {
    /// Reads the series of one side whose match groups are in `asked`, the groups of the other
    /// side.
    fn of(
        ctx: &Context,
        count: usize,
        operator: &dyn VectorOperator,
        groups: &[u32],
        asked: &[u32],
    ) -> Result<GroupPresence, QueryError> {
        let words = operator.steps().count.div_ceil(64);
        let bytes = (count as u64).saturating_mul(words as u64 * 8);
        let reservation = Reservation::new(&ctx.budget, bytes)?;
        let bits = Mutex::new(vec![0; count * words]);
        let mut is_asked = vec![false; count];
        asked.iter().for_each(|group| is_asked[*group as usize] = true);
        let (wanted, rest): (Vec<u32>, Vec<u32>) =
            all_series(operator).iter().partition(|i| is_asked[groups[**i as usize] as usize]);
        drain(ctx, operator, &rest)?;
        scan(ctx, operator, &wanted, |series, first_step, tile| {
            let mut bits = bits.lock().expect("no visitor panics while it holds the bits");
            for (row, index) in series.iter().enumerate() {
                let at = groups[*index as usize] as usize * words;
                let present = tile.row(row).1;
                copy_bits(&mut bits[at..at + words], first_step, present, tile.steps());
                mark_histograms(&mut bits[at..at + words], first_step, tile.histograms(row));
            }
        })?;
        let bits = bits.into_inner().expect("no visitor panics while it holds the bits");
        Ok(GroupPresence { words, bits, _reservation: reservation })
    }

    fn row(&self, group: u32) -> &[u64] {
        let at = group as usize * self.words;
        &self.bits[at..at + self.words]
    }
}

/// A side that is filtered by step: a series has a value only while its match group is present (or
/// absent) on the other side.
struct Masked {
    input: Box<dyn VectorOperator>,
    groups: Vec<u32>,
    decides: GroupPresence,
    passes_present: bool,
}

impl Masked {
    fn new(
        input: Box<dyn VectorOperator>,
        groups: &[u32],
        decides: GroupPresence,
        passes_present: bool,
    ) -> Masked {
        Masked { input, groups: groups.to_vec(), decides, passes_present }
    }
}

impl VectorOperator for Masked {
    fn series(&self) -> &[SeriesMeta] {
        self.input.series()
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn has_effects(&self) -> bool {
        self.input.has_effects()
    }

    fn has_histograms(&self) -> bool {
        self.input.has_histograms()
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        let groups = series.iter().map(|index| self.groups[*index as usize]).collect();
        Box::new(MaskedReader { masked: self, input: self.input.open(series), groups, step: 0 })
    }
}

struct MaskedReader<'a> {
    masked: &'a Masked,
    input: Box<dyn TileReader + 'a>,
    groups: Vec<u32>,
    step: usize,
}

impl TileReader for MaskedReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.input.next_tile(step_count, tile)?;
        for (row, group) in self.groups.iter().enumerate() {
            let decides = self.masked.decides.row(*group);
            let (_, presence) = tile.row_mut(row);
            for (index, word) in presence.iter_mut().enumerate() {
                let mask = word_at(decides, self.step + index * 64);
                *word &= if self.masked.passes_present { mask } else { !mask };
            }
            if !tile.has_histograms() {
                continue;
            }
            for (step, cell) in tile.histograms_mut(row).iter_mut().enumerate() {
                if is_present(decides, self.step + step) != self.masked.passes_present {
                    *cell = None;
                }
            }
        }
        self.step += step_count;
        Ok(())
    }
}

/// Returns an operator with all series of `first`, then all of `second`.
fn union(
    ctx: &Context,
    first: Box<dyn VectorOperator>,
    second: Box<dyn VectorOperator>,
) -> Result<Box<dyn VectorOperator>, QueryError> {
    let series = first.series().iter().chain(second.series()).cloned().collect();
    let union = Union { ctx: ctx.clone(), series, first, second };
    if union.steps().count == 1 {
        return Ok(Box::new(union));
    }
    match settle_names(ctx, &union)? {
        Some(settled) => unique(ctx, Box::new(settled), Meeting::Refused),
        None => unique(ctx, Box::new(union), Meeting::Refused),
    }
}

struct Union {
    ctx: Context,
    series: Vec<SeriesMeta>,
    first: Box<dyn VectorOperator>,
    second: Box<dyn VectorOperator>,
}

impl VectorOperator for Union {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.first.steps()
    }

    fn has_histograms(&self) -> bool {
        self.first.has_histograms() || self.second.has_histograms()
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        let boundary = self.first.series().len() as u32;
        if series.iter().all(|index| *index < boundary) {
            return self.first.open(series);
        }
        let beyond = |indices: &[u32]| -> Vec<u32> {
            indices.iter().filter(|i| **i >= boundary).map(|i| i - boundary).collect()
        };
        if series.iter().all(|index| *index >= boundary) {
            return self.second.open(&beyond(series));
        }
        let first: Vec<u32> = series.iter().copied().filter(|index| *index < boundary).collect();
        Box::new(UnionReader {
            is_first: series.iter().map(|index| *index < boundary).collect(),
            first: Gather::open(&self.ctx, &*self.first, &first),
            second: Gather::open(&self.ctx, &*self.second, &beyond(series)),
        })
    }
}

struct UnionReader<'a> {
    /// For each row, whether it comes from the first operator.
    is_first: Vec<bool>,
    first: Gather<'a>,
    second: Gather<'a>,
}

impl TileReader for UnionReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.first.next(step_count)?;
        self.second.next(step_count)?;
        tile.reset(self.is_first.len(), step_count);
        let (mut first, mut second) = (0, 0);
        for (row, is_first) in self.is_first.iter().enumerate() {
            let (gather, next) =
                if *is_first { (&self.first, &mut first) } else { (&self.second, &mut second) };
            let (from, present) = gather.row(*next);
            let (values, presence) = tile.row_mut(row);
            values.copy_from_slice(&from[..step_count]);
            copy_bits(presence, 0, present, step_count);
            let histograms = gather.histograms(*next);
            if !histograms.is_empty() {
                tile.histograms_mut(row).clone_from_slice(histograms);
            }
            *next += 1;
        }
        Ok(())
    }
}
