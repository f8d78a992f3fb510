//! Matching of the series of two vectors: match groups, and the labels of results.

use hashbrown::HashMap;
use model::labels::{METRIC_NAME, push_packed};
use model::{Checkpoint, Labels, Reservation};

use crate::error::QueryError;
use crate::exec::operator::{Context, SeriesMeta, is_schema_label};
use crate::parse::ast::{BinaryOp, Cardinality, Matching};

/// Bytes of a series: its group, and its position in a list of the group.
const SERIES_BYTES: usize = 4 * size_of::<u32>();
/// Bytes of a group without its labels: its entries in tables that may be half full.
const GROUP_BYTES: usize = 2 * size_of::<(Vec<u8>, u32)>() + 2 * size_of::<Vec<u32>>() + 8;

/// Labels of `on` or `ignoring` for lookup.
pub(super) struct Listed<'a> {
    /// Label names, sorted.
    names: Vec<&'a str>,
    is_on: bool,
}

impl<'a> Listed<'a> {
    /// Returns the labels of a matching.
    pub(super) fn new(matching: &'a Matching) -> Listed<'a> {
        let mut names: Vec<&str> = matching.labels.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        Listed { names, is_on: matching.is_on }
    }

    fn contains(&self, name: &str) -> bool {
        self.names.binary_search(&name).is_ok()
    }

    /// Returns whether a label is part of the match group's labels.
    fn is_matched(&self, name: &str) -> bool {
        let is_listed = self.contains(name);
        if self.is_on { is_listed } else { !is_listed && name != METRIC_NAME }
    }

    /// Returns the labels of a series' match group.
    pub(super) fn group_labels(&self, labels: &Labels) -> Labels {
        labels.filtered(|name| self.is_matched(name))
    }
}

/// Match groups of the series of two vectors.
pub(super) struct Groups {
    /// Number of groups.
    pub(super) count: usize,
    /// Group of each series of the left side.
    pub(super) lhs: Vec<u32>,
    /// Group of each series of the right side.
    pub(super) rhs: Vec<u32>,
    _reservation: Reservation,
}

impl Groups {
    /// Groups the series of both sides. Groups are numbered in the order of their first occurrence,
    /// left side first.
    ///
    /// Errors: the limits of the query.
    pub(super) fn new(
        ctx: &Context,
        listed: &Listed<'_>,
        lhs: &[SeriesMeta],
        rhs: &[SeriesMeta],
    ) -> Result<Groups, QueryError> {
        let bytes = (lhs.len() + rhs.len()) * SERIES_BYTES;
        let mut reservation = Reservation::new(&ctx.budget, bytes as u64)?;
        let mut checkpoint = Checkpoint::new(&ctx.budget);
        let mut seen: HashMap<Vec<u8>, u32, foldhash::fast::RandomState> = HashMap::default();
        let mut signature = Vec::new();
        let mut group_of = |meta: &SeriesMeta| -> Result<u32, QueryError> {
            checkpoint.work(meta.labels.as_bytes().len())?;
            signature.clear();
            for (name, value) in meta.labels.iter() {
                if listed.is_matched(name) {
                    push_packed(&mut signature, name.as_bytes(), value.as_bytes());
                }
            }
            if let Some(group) = seen.get(&signature) {
                return Ok(*group);
            }
            reservation.grow((GROUP_BYTES + signature.len()) as u64)?;
            let group = seen.len() as u32;
            seen.insert(signature.clone(), group);
            Ok(group)
        };
        let lhs = lhs.iter().map(&mut group_of).collect::<Result<_, _>>()?;
        let rhs = rhs.iter().map(&mut group_of).collect::<Result<_, _>>()?;
        Ok(Groups { count: seen.len(), lhs, rhs, _reservation: reservation })
    }
}

/// Returns whether the metric name does not describe the operator's result.
pub(super) fn changes_schema(op: BinaryOp) -> bool {
    use BinaryOp::{Add, Atan2, Div, Mod, Mul, Pow, Sub};
    matches!(op, Add | Sub | Mul | Div | Mod | Pow | Atan2)
}

/// Returns the result labels of a pair of series: `many` of the many side, `one` of the one side
/// (for one-to-one: left and right).
///
/// Source: `resultMetric` of Prometheus.
pub(super) fn result_labels(
    op: BinaryOp,
    matching: &Matching,
    listed: &Listed<'_>,
    drops_name: bool,
    many: &Labels,
    one: &Labels,
) -> Labels {
    let drops_schema = drops_name || changes_schema(op);
    let is_one_to_one = matching.cardinality == Cardinality::OneToOne;
    let kept = many.filtered(|name| {
        !(drops_schema && is_schema_label(name))
            && (!is_one_to_one || listed.contains(name) == matching.is_on)
    });
    if matching.include.is_empty() {
        return kept;
    }
    let mut builder = kept.to_builder();
    for name in &matching.include {
        builder.set(name, one.get(name));
    }
    builder.build()
}
