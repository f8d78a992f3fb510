//! Which series of two vectors meet: match groups, and the labels of what they give.

use hashbrown::HashMap;
use model::Labels;
use model::labels::{METRIC_NAME, push_packed};

use crate::exec::operator::{SeriesMeta, is_schema_label};
use crate::parse::ast::{BinaryOp, Cardinality, Matching};

/// The match group of every series of two vectors.
pub(super) struct Groups {
    /// How many groups there are.
    pub(super) count: usize,
    /// The group of each series of the left side.
    pub(super) lhs: Vec<u32>,
    /// The group of each series of the right side.
    pub(super) rhs: Vec<u32>,
}

impl Groups {
    /// Sorts the series of both sides into match groups, numbered in the order of their
    /// first appearance, left side first.
    pub(super) fn new(matching: &Matching, lhs: &[SeriesMeta], rhs: &[SeriesMeta]) -> Groups {
        let mut seen: HashMap<Vec<u8>, u32, foldhash::fast::RandomState> = HashMap::default();
        let mut signature = Vec::new();
        let mut assign = |series: &[SeriesMeta]| -> Vec<u32> {
            series
                .iter()
                .map(|meta| {
                    signature.clear();
                    for (name, value) in meta.labels.iter() {
                        if is_matched(matching, name) {
                            push_packed(&mut signature, name.as_bytes(), value.as_bytes());
                        }
                    }
                    if let Some(group) = seen.get(&signature) {
                        return *group;
                    }
                    let group = seen.len() as u32;
                    seen.insert(signature.clone(), group);
                    group
                })
                .collect()
        };
        let lhs = assign(lhs);
        let rhs = assign(rhs);
        Groups { count: seen.len(), lhs, rhs }
    }
}

/// Whether a label is part of the match group's labels.
fn is_matched(matching: &Matching, name: &str) -> bool {
    let is_listed = matching.labels.iter().any(|label| label == name);
    if matching.is_on { is_listed } else { !is_listed && name != METRIC_NAME }
}

/// The labels of the match group that a series belongs to.
pub(super) fn group_labels(matching: &Matching, labels: &Labels) -> Labels {
    labels.filtered(|name| is_matched(matching, name))
}

/// Whether an operator gives something else than its operand, so that the metric's name
/// no longer fits.
pub(super) fn changes_schema(op: BinaryOp) -> bool {
    use BinaryOp::{Add, Atan2, Div, Mod, Mul, Pow, Sub};
    matches!(op, Add | Sub | Mul | Div | Mod | Pow | Atan2)
}

/// The labels of the result for a series of the many side and one of the one side
/// (left and right where both are one).
///
/// Source: `resultMetric` of Prometheus.
pub(super) fn result_labels(
    op: BinaryOp,
    matching: &Matching,
    drops_name: bool,
    many: &Labels,
    one: &Labels,
) -> Labels {
    let drops_schema = drops_name || changes_schema(op);
    let is_listed = |name: &str| matching.labels.iter().any(|label| label == name);
    let is_one_to_one = matching.cardinality == Cardinality::OneToOne;
    let kept = many.filtered(|name| {
        !(drops_schema && is_schema_label(name))
            && (!is_one_to_one || is_listed(name) == matching.is_on)
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
