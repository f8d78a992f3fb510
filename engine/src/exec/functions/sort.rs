//! `sort`, `sort_desc`, `sort_by_label`, `sort_by_label_desc`.

use std::cmp::Ordering;

use model::checkpoint::sort_by;
use model::{Checkpoint, Reservation};

use crate::error::QueryError;
use crate::exec::adapter::elementwise::floats_alone;
use crate::exec::adapter::rearranged::Rearranged;
use crate::exec::matrix::{Matrix, materialize};
use crate::exec::operator::{Context, Operand, VectorOperator};
use crate::tile::is_present;

use super::natural_order;

/// Direction of sorting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Ascending,
    Descending,
}

/// Sorts series by their floats in an instant query; NaN is last in either direction, histograms
/// are removed. A range query is always sorted by labels, and the plan warns of it.
pub(super) fn by_value(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    direction: Direction,
) -> Result<Operand, QueryError> {
    if is_over_range(&*input) {
        return floats_alone(ctx, input);
    }
    let matrix = materialize(ctx, &*input)?;
    let value = |index: u32| matrix.row(index as usize).0[0];
    let _reservation = charge_orders(ctx, &matrix)?;
    let floats = (0..matrix.series().len() as u32).filter(|index| has_float(&matrix, *index));
    let (numbers, mut not_numbers): (Vec<u32>, Vec<u32>) =
        floats.partition(|index| !value(*index).is_nan());
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let mut order = sort_by(
        numbers,
        &mut checkpoint,
        |_| 1,
        |a, b| {
            let ascending = value(*a).partial_cmp(&value(*b)).unwrap_or(Ordering::Equal);
            if direction == Direction::Ascending { ascending } else { ascending.reverse() }
        },
    )?;
    // Go's insertion sort moves each NaN before the previous ones.
    not_numbers.reverse();
    order.append(&mut not_numbers);
    Ok(Operand::Vector(Box::new(Rearranged::ordered(Box::new(matrix), order))))
}

/// Sorts series by the given labels in natural order, then by all labels.
pub(super) fn by_label(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    names: &[String],
    direction: Direction,
) -> Result<Operand, QueryError> {
    if is_over_range(&*input) {
        return Ok(Operand::Vector(input));
    }
    let matrix = materialize(ctx, &*input)?;
    let _reservation = charge_orders(ctx, &matrix)?;
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    // Natural order reads every byte of a label, possibly of several labels.
    let weight = |index: &u32| matrix.series()[*index as usize].labels.as_bytes().len();
    let series = 0..matrix.series().len() as u32;
    let present: Vec<u32> = series.filter(|index| matrix.has_any(*index as usize)).collect();
    let order = sort_by(present, &mut checkpoint, weight, |a, b| {
        let a = &matrix.series()[*a as usize].labels;
        let b = &matrix.series()[*b as usize].labels;
        let differing = names.iter().map(|n| (a.get(n), b.get(n))).find(|(a, b)| a != b);
        let ascending = match differing {
            Some((a, b)) if natural_order::precedes(a, b) => Ordering::Less,
            Some(_) => Ordering::Greater,
            None => a.cmp(b),
        };
        if direction == Direction::Ascending { ascending } else { ascending.reverse() }
    })?;
    Ok(Operand::Vector(Box::new(Rearranged::ordered(Box::new(matrix), order))))
}

/// Charges for the lists of series indices during sorting.
fn charge_orders(ctx: &Context, matrix: &Matrix) -> Result<Reservation, QueryError> {
    let bytes = matrix.series().len() * 4 * size_of::<u32>();
    Ok(Reservation::new(&ctx.budget, bytes as u64)?)
}

/// Returns whether this is a range query, whose series are always sorted by labels.
fn is_over_range(input: &dyn VectorOperator) -> bool {
    input.steps().count > 1
}

/// Returns whether a series has a float at the only step.
fn has_float(matrix: &Matrix, index: u32) -> bool {
    is_present(matrix.row(index as usize).1, 0)
}
