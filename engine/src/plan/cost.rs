//! Memory of a plan's scalars, which is known before anything is loaded.

use crate::parse::ast::ValueType;
use crate::plan::{Node, NodeKind, RangeInput, RangeOrigin};

/// Returns the maximum bytes of scalars that the evaluation of a node holds at once.
///
/// Operators charge for their own tiles and matrices. Scalars, one number per step, are plain
/// vectors, so the plan charges for them.
pub(super) fn scalar_bytes_peak(node: &Node) -> u64 {
    scalars(node).peak
}

/// Bytes of scalars.
#[derive(Clone, Copy, Default)]
struct Scalars {
    /// Maximum bytes during the evaluation of the node.
    peak: u64,
    /// Bytes held by the result.
    held: u64,
}

impl Scalars {
    /// Adds an evaluation during which `self` is still held.
    fn then(self, next: Scalars) -> Scalars {
        Scalars {
            peak: self.peak.max(self.held.saturating_add(next.peak)),
            held: self.held.saturating_add(next.held),
        }
    }

    /// Replaces the result by one more scalar, computed while the inputs are held.
    fn into_scalar(self, bytes: u64) -> Scalars {
        Scalars { peak: self.peak.max(self.held.saturating_add(bytes)), held: bytes }
    }

    /// Replaces the result by one that holds no scalar.
    fn released(self) -> Scalars {
        Scalars { held: 0, ..self }
    }
}

fn scalars(node: &Node) -> Scalars {
    let all = |nodes: &[Node]| nodes.iter().map(scalars).fold(Scalars::default(), Scalars::then);
    let below = match &node.kind {
        NodeKind::Number(_) | NodeKind::String(_) | NodeKind::Lookup(_) => Scalars::default(),
        NodeKind::Range(input) => range(input),
        NodeKind::Rollup(rollup) => all(&rollup.args).then(range(&rollup.input)),
        NodeKind::Call { args, .. } => all(args),
        NodeKind::Negate(operand) => scalars(operand),
        NodeKind::Binary { lhs, rhs, .. } => scalars(lhs).then(scalars(rhs)),
        NodeKind::Aggregate(aggregation) => {
            let param = aggregation.param.as_ref().map_or(Scalars::default(), |p| scalars(p));
            param.then(scalars(&aggregation.input)).released()
        }
        NodeKind::Invariant(inner) => scalars(inner).released(),
    };
    if node.value_type == ValueType::Scalar {
        below.into_scalar((node.steps.count as u64).saturating_mul(8))
    } else {
        below
    }
}

fn range(input: &RangeInput) -> Scalars {
    match &input.origin {
        RangeOrigin::Subquery(Some(inner)) => scalars(inner),
        RangeOrigin::Selector(_) | RangeOrigin::Subquery(None) => Scalars::default(),
    }
}
