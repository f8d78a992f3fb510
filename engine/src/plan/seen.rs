//! Steps of a subquery that its ranges see, if there are gaps between the ranges.

use model::Windows;

use crate::parse::ast::RangeMode;
use crate::plan::{LookupValue, Node, NodeKind, RangeOrigin};
use crate::steps::{LookTimes, Steps};

/// Marks the selector or range function of a subquery's inner expression with the ranges of the
/// subquery, also below aggregations. Other operators, which may have errors and annotations at
/// steps that no range sees, stay as they are with all below them.
pub(super) fn mark_seen(inner: &mut Node, ranges: LookTimes, range_ms: i64) {
    if let Some(seen) = ranges.windows(range_ms)
        && seen.count > 1
        && seen.step_ms > seen.span_ms
    {
        mark(inner, seen);
    }
}

fn mark(node: &mut Node, seen: Windows) {
    let steps = node.steps;
    match &mut node.kind {
        NodeKind::Aggregate(aggregation) if aggregation.param.is_none() => {
            mark(&mut aggregation.input, seen);
        }
        NodeKind::Lookup(lookup) if lookup.value == LookupValue::Sample => {
            lookup.seen = moved(seen, steps, lookup.times);
        }
        NodeKind::Rollup(rollup)
            if rollup.input.mode == RangeMode::Plain
                && matches!(rollup.input.origin, RangeOrigin::Selector(_)) =>
        {
            rollup.input.seen = moved(seen, steps, rollup.input.times);
        }
        _ => {}
    }
}

/// Moves windows of steps to the times that the steps look at; `None` if all look at one time.
fn moved(seen: Windows, steps: Steps, times: LookTimes) -> Option<Windows> {
    let offset_ms = steps.start_ms.saturating_sub(times.first_ms);
    let first_end_ms = seen.first_end_ms.saturating_sub(offset_ms);
    (times.step_ms == steps.step_ms).then_some(Windows { first_end_ms, ..seen })
}
