//! Range functions that need only facts of windows, not their samples.

use model::{Selection, WantedWindows};

use crate::catalog::{Function, FunctionId, RollupFunction};
use crate::parse::ast::RangeMode;
use crate::plan::RangeInput;

/// Returns the windows of a range if a function needs only facts of them.
pub(super) fn wanted_windows(function: &Function, input: &RangeInput) -> Option<WantedWindows> {
    let FunctionId::Rollup(function) = function.id else { return None };
    let needs_sum = match function {
        RollupFunction::Sum | RollupFunction::Avg => true,
        RollupFunction::Rate
        | RollupFunction::Increase
        | RollupFunction::Delta
        | RollupFunction::Min
        | RollupFunction::Max
        | RollupFunction::Count
        | RollupFunction::Present
        | RollupFunction::Last
        | RollupFunction::First
        | RollupFunction::TimeOfLast
        | RollupFunction::TimeOfFirst => false,
        _ => return None,
    };
    let windows = input.times.windows(input.range_ms)?;
    (input.mode == RangeMode::Plain).then_some(WantedWindows { windows, needs_sum })
}

/// Makes selections of the same series and times equal, as equal ones are loaded once: if one needs
/// samples, all load samples.
pub(super) fn unite(selections: &mut [Selection]) {
    for index in 1..selections.len() {
        let (earlier, rest) = selections.split_at_mut(index);
        if let Some(first) = earlier.iter_mut().find(|first| is_alike(first, &rest[0])) {
            first.windows = united(first.windows, rest[0].windows);
        }
    }
    for index in 1..selections.len() {
        let (earlier, rest) = selections.split_at_mut(index);
        if let Some(first) = earlier.iter().find(|first| is_alike(first, &rest[0])) {
            rest[0].windows = first.windows;
        }
    }
}

fn is_alike(a: &Selection, b: &Selection) -> bool {
    a.times == b.times && a.only_newest == b.only_newest && a.matchers == b.matchers
}

fn united(a: Option<WantedWindows>, b: Option<WantedWindows>) -> Option<WantedWindows> {
    let (a, b) = (a?, b?);
    (a.windows == b.windows).then_some(WantedWindows { needs_sum: a.needs_sum || b.needs_sum, ..a })
}

#[cfg(test)]
mod tests {
    use crate::parse::{ParseOptions, parse};
    use crate::plan::{PlanOptions, plan};
    use crate::steps::Steps;

    /// Returns for each selection of a query whether windows, with a sum, are enough.
    fn windows(query: &str) -> Vec<Option<bool>> {
        let steps = Steps { start_ms: 7_200_000, step_ms: 3_600_000, count: 5 };
        let options = PlanOptions {
            steps,
            end_ms: steps.end_ms(),
            is_instant: false,
            lookback_ms: 300_000,
            subquery_step_ms: 60_000,
            steps_max: 1_000,
            needs_samples: false,
        };
        let expr = parse(query, &ParseOptions::default()).unwrap();
        let plan = plan(&expr, &options).unwrap();
        plan.selections.iter().map(|s| s.windows.map(|windows| windows.needs_sum)).collect()
    }

    #[test]
    fn windows_are_enough_unless_a_selection_of_the_same_times_needs_samples() {
        let cases: [(&str, &[Option<bool>]); 7] = [
            ("rate(x[1h])", &[Some(false)]),
            ("avg_over_time(x[1h])", &[Some(true)]),
            ("x", &[None]),
            ("stddev_over_time(x[1h])", &[None]),
            ("max_over_time(x[1h]) + sum_over_time(x[1h])", &[Some(true), Some(true)]),
            ("avg_over_time(x[1h]) / stddev_over_time(x[1h])", &[None, None]),
            ("rate(x[1h]) / rate(y[1h]) * rate(x[2h])", &[Some(false); 3]),
        ];
        for (query, expected) in cases {
            assert_eq!(windows(query), expected, "{query}");
        }
    }
}
