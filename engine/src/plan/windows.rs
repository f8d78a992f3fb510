//! Parts of a selection that the steps of a query need: facts of windows, newest samples, or windows.

use model::{Selection, WantedWindows, WindowPart};

use crate::catalog::{Function, FunctionId, RollupFunction};
use crate::parse::ast::RangeMode;
use crate::plan::{Lookup, LookupValue, RangeInput};

/// Returns the windows of a range function's samples, and whether it needs only facts of them.
pub(super) fn windows_of_range(function: &Function, input: &RangeInput) -> Option<WantedWindows> {
    let part = match function.id {
        FunctionId::Rollup(RollupFunction::Rate | RollupFunction::Increase) => {
            WindowPart::FactsWithIncrease
        }
        FunctionId::Rollup(
            RollupFunction::Delta
            | RollupFunction::Sum
            | RollupFunction::Avg
            | RollupFunction::Min
            | RollupFunction::Max
            | RollupFunction::Count
            | RollupFunction::Present
            | RollupFunction::Last
            | RollupFunction::First
            | RollupFunction::TimeOfLast
            | RollupFunction::TimeOfFirst,
        ) => WindowPart::Facts,
        _ => WindowPart::Samples,
    };
    let windows = input.times.windows(input.range_ms)?;
    (input.mode == RangeMode::Plain).then_some(WantedWindows { windows, part })
}

/// Returns the windows of a lookup, of which it needs the newest samples.
pub(super) fn windows_of_lookup(lookup: &Lookup) -> Option<WantedWindows> {
    let is_newest = matches!(lookup.value, LookupValue::Sample | LookupValue::Timestamp);
    let windows = lookup.times.windows(lookup.reach.back_ms)?;
    let is_moving = windows.count > 1 && lookup.reach.ahead_ms == 0;
    (is_newest && is_moving).then_some(WantedWindows { windows, part: WindowPart::Newest })
}

/// Makes selections of the same series and times equal, as equal ones are loaded once: with what all
/// of them need.
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
    let part = a.part.with(b.part);
    (a.windows == b.windows).then_some(WantedWindows { part, ..a })
}

#[cfg(test)]
mod tests {
    use model::WindowPart::{self, Facts, FactsWithIncrease, Newest, Samples};

    use crate::parse::{ParseOptions, parse};
    use crate::plan::{PlanOptions, plan};
    use crate::steps::Steps;

    /// Returns the needed part of the windows of each selection of a query.
    fn parts(query: &str) -> Vec<Option<WindowPart>> {
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
        plan.selections.iter().map(|s| s.windows.map(|windows| windows.part)).collect()
    }

    #[test]
    fn a_selection_has_what_all_functions_of_its_times_need() {
        let cases: [(&str, &[Option<WindowPart>]); 12] = [
            ("rate(x[1h])", &[Some(FactsWithIncrease)]),
            ("delta(x[1h])", &[Some(Facts)]),
            ("max_over_time(x[1h]) + increase(x[1h])", &[Some(FactsWithIncrease); 2]),
            ("x", &[Some(Newest)]),
            ("timestamp(x)", &[Some(Newest)]),
            ("x @ 5", &[None]),
            ("rate(x[1h] smoothed)", &[None]),
            ("stddev_over_time(x[1h])", &[Some(Samples)]),
            ("max_over_time(x[1h]) + sum_over_time(x[1h])", &[Some(Facts), Some(Facts)]),
            ("avg_over_time(x[1h]) / stddev_over_time(x[1h])", &[Some(Samples), Some(Samples)]),
            ("count_over_time(x[5m]) * x", &[Some(Samples), Some(Samples)]),
            ("rate(x[1h]) / rate(y[1h]) * rate(x[2h])", &[Some(FactsWithIncrease); 3]),
        ];
        for (query, expected) in cases {
            assert_eq!(parts(query), expected, "{query}");
        }
    }
}
