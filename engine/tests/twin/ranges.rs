//! Functions of ranges and of subqueries, each window evaluated from scratch.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Labels;
use model::memory::MemorySource;
use proptest::prelude::*;

use crate::data::{
    Case, Grid, LOOKBACK_MS, Samples, cases, check_within, data_far_away, instant, source, unnamed,
    window,
};
use crate::naive::{self, Look, PHI, SECONDS_AHEAD, SMOOTHING_FACTOR, TREND_FACTOR, rolled};

const KEEPS_NAME: [&str; 2] = ["last_over_time", "first_over_time"];

/// Relative tolerance where the order of additions is free.
const ROUNDED: f64 = 1e-12;
/// Relative tolerance where sums stand in for Prometheus' loop; the comparison with Prometheus
/// asks for no more.
const FITTED: f64 = 1e-9;

/// Functions and how near they come. Sums of the values are exact in any order.
pub const FUNCTIONS: [(&str, f64); 26] = [
    ("rate", ROUNDED),
    ("increase", ROUNDED),
    ("delta", ROUNDED),
    ("irate", 0.0),
    ("idelta", 0.0),
    ("resets", 0.0),
    ("changes", 0.0),
    ("sum_over_time", 0.0),
    ("avg_over_time", ROUNDED),
    ("count_over_time", 0.0),
    ("present_over_time", 0.0),
    ("last_over_time", 0.0),
    ("first_over_time", 0.0),
    ("ts_of_last_over_time", 0.0),
    ("ts_of_first_over_time", 0.0),
    ("max_over_time", 0.0),
    ("min_over_time", 0.0),
    ("ts_of_max_over_time", 0.0),
    ("ts_of_min_over_time", 0.0),
    ("stdvar_over_time", FITTED),
    ("stddev_over_time", FITTED),
    ("quantile_over_time", 0.0),
    ("mad_over_time", 0.0),
    ("deriv", FITTED),
    ("predict_linear", FITTED),
    ("double_exponential_smoothing", 0.0),
];

/// A call of a function.
pub fn call(name: &str, range: &str) -> String {
    match name {
        "quantile_over_time" => format!("{name}({PHI}, {range})"),
        "predict_linear" => format!("{name}({range}, {SECONDS_AHEAD})"),
        "double_exponential_smoothing" => {
            format!("{name}({range}, {SMOOTHING_FACTOR}, {TREND_FACTOR})")
        }
        _ => format!("{name}({range})"),
    }
}

/// A case with its series.
struct Bench {
    case: Case,
    data: Vec<(Labels, Samples)>,
    source: Arc<MemorySource>,
}

/// Effect of `@` and `offset` on the times looked at.
#[derive(Debug, Clone, Copy)]
struct Shift {
    at_ms: Option<i64>,
    offset_ms: i64,
    text: &'static str,
}

impl Bench {
    fn new(case: &Case) -> Bench {
        Bench::of(case, data_far_away(case.seed, case.series_count))
    }

    fn of(case: &Case, data: Vec<(Labels, Samples)>) -> Bench {
        let source = source(&data);
        Bench { case: case.clone(), data, source }
    }

    /// All forms of `@` and `offset`.
    fn shifts(&self) -> [Shift; 6] {
        let case = &self.case;
        let (start_ms, end_ms) = (case.start_ms, case.time(case.count - 1));
        let shift = |at_ms, offset_ms, text| Shift { at_ms, offset_ms, text };
        [
            shift(None, 0, ""),
            shift(None, 7_300, " offset 7300ms"),
            shift(None, -4_200, " offset -4200ms"),
            shift(Some(61_500), 0, " @ 61.5"),
            shift(Some(start_ms), 3_000, " @ start() offset 3s"),
            shift(Some(end_ms), 0, " @ end()"),
        ]
    }

    /// Range of each step.
    fn looks(&self, shift: Shift) -> Vec<Look> {
        let look = |step| {
            let now_ms = self.case.time(step);
            let end_ms = shift.at_ms.unwrap_or(now_ms) - shift.offset_ms;
            Look { end_ms, range_ms: self.case.range_ms, now_ms }
        };
        (0..self.case.count).map(look).collect()
    }

    /// One value a series and window.
    fn grid(&self, looks: &[Look], value: impl Fn(&Samples, Look) -> Option<f64>) -> Grid {
        let row = |samples| looks.iter().map(|look| value(samples, *look)).collect();
        self.data.iter().map(|(labels, samples)| (labels.clone(), row(samples))).collect()
    }

    #[track_caller]
    fn check(&self, query: &str, expected: Grid, keeps_name: bool, share: f64) {
        let expected = if keeps_name { expected } else { unnamed(expected) };
        check_within(self.case.run_on(&self.source, query), &expected, share, 0.0, query);
    }

    /// Compares functions over the same windows.
    #[track_caller]
    fn check_functions(
        &self,
        functions: &[(&str, f64)],
        range: &str,
        looks: &[Look],
        keeps_name: bool,
        samples_of: impl Fn(&Samples, Look) -> Samples,
    ) {
        let windows: Vec<(&Labels, Vec<Samples>)> = self
            .data
            .iter()
            .map(|(labels, s)| (labels, looks.iter().map(|look| samples_of(s, *look)).collect()))
            .collect();
        for (name, share) in functions {
            let row = |windows: &Vec<Samples>| {
                windows.iter().zip(looks).map(|(s, look)| rolled(name, s, *look)).collect()
            };
            let expected: BTreeMap<_, _> =
                windows.iter().map(|(labels, w)| ((*labels).clone(), row(w))).collect();
            let keeps_name = keeps_name && KEEPS_NAME.contains(name);
            self.check(&call(name, range), expected, keeps_name, *share);
        }
    }
}

/// The samples that a subquery makes of its inner expression.
fn subquery(
    samples: &Samples,
    look: Look,
    step_ms: i64,
    inner: &dyn Fn(&Samples, i64) -> Option<f64>,
) -> Samples {
    let first = (look.end_ms - look.range_ms).div_euclid(step_ms) + 1;
    (first..=look.end_ms.div_euclid(step_ms))
        .map(|index| index * step_ms)
        .filter_map(|at| Some((at, inner(samples, at)?)))
        .collect()
}

fn check_windows(bench: &Bench, form: usize) {
    let case = &bench.case;
    let shift = bench.shifts()[form];
    let range = format!("m[{}ms]{}", case.range_ms, shift.text);
    let looks = bench.looks(shift);
    bench.check_functions(&FUNCTIONS, &range, &looks, true, |samples, look| {
        window(samples, look.end_ms, look.range_ms)
    });
    let query = format!("absent_over_time({range})");
    let is_empty = |look: &Look| {
        bench.data.iter().all(|(_, s)| window(s, look.end_ms, look.range_ms).is_empty())
    };
    let row = looks.iter().map(|look| is_empty(look).then_some(1.0)).collect();
    let expected = Grid::from([(Labels::from_pairs([("", ""); 0]), row)]);
    bench.check(&query, expected, true, 0.0);
}

fn check_extended(bench: &Bench, form: usize) {
    let case = &bench.case;
    let shift = bench.shifts()[form];
    let looks = bench.looks(shift);
    let range_ms = case.range_ms;
    for name in ["rate", "increase", "delta", "resets", "changes"] {
        let query = format!("{name}(m[{range_ms}ms] anchored{})", shift.text);
        let expected =
            bench.grid(&looks, |s, look| naive::anchored(name, s, look.end_ms, range_ms));
        bench.check(&query, expected, false, ROUNDED);
    }
    for name in ["rate", "increase", "delta"] {
        let query = format!("{name}(m[{range_ms}ms] smoothed{})", shift.text);
        let expected =
            bench.grid(&looks, |s, look| naive::smoothed(name, s, look.end_ms, range_ms));
        bench.check(&query, expected, false, ROUNDED);
    }
    let query = format!("m smoothed{}", shift.text);
    let expected = bench.grid(&looks, |samples, look| {
        let s = window(samples, look.end_ms + LOOKBACK_MS, 2 * LOOKBACK_MS);
        let is_begun = s.first().is_some_and(|(at, _)| *at <= look.end_ms);
        is_begun.then(|| naive::value_at(&s, look.end_ms, false))
    });
    bench.check(&query, expected, true, ROUNDED);
}

/// Of a reset across the boundary of two halves of a range, the later sample enters later.
#[test]
fn resets_across_a_boundary_are_added_once() {
    let value = |at: i64| if at % 2 == 0 { 10.0 } else { 3.0 };
    let mut samples: Samples = (0..200).map(|at| (at * 500, value(at))).collect();
    samples.extend((0..200).map(|at| (160_000 + at * 500, value(at + 1) / 2.0)));
    let labels = Labels::from_pairs([("__name__", "m"), ("g", "0"), ("i", "00")]);
    let case = Case {
        seed: 0,
        series_count: 1,
        start_ms: 101_000,
        step_ms: 1_000,
        count: 150,
        range_ms: 100_000,
        shape: (1, 31),
        threads: 1,
    };
    let bench = Bench::of(&case, vec![(labels, samples)]);
    check_windows(&bench, 0);
    check_extended(&bench, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn functions_of_ranges_see_their_window(case in cases(), form in 0usize..6) {
        check_windows(&Bench::new(&case), form);
    }

    #[test]
    fn quantiles_may_change_from_step_to_step(case in cases()) {
        let bench = Bench::new(&case);
        let query = format!("quantile_over_time(time() / 60 % 1.25, m[{}ms])", case.range_ms);
        let looks = bench.looks(bench.shifts()[0]);
        let expected = bench.grid(&looks, |samples, look| {
            let phi = look.now_ms as f64 / 1000.0 / 60.0 % 1.25;
            let values: Vec<f64> =
                window(samples, look.end_ms, look.range_ms).iter().map(|(_, v)| *v).collect();
            match phi {
                _ if values.is_empty() => None,
                ..0.0 => Some(f64::NEG_INFINITY),
                phi if phi > 1.0 => Some(f64::INFINITY),
                phi => Some(naive::quantile(phi, values)),
            }
        });
        bench.check(&query, expected, false, 0.0);
    }

    #[test]
    fn extended_ranges_reach_for_their_neighbours(case in cases(), form in 0usize..6) {
        check_extended(&Bench::new(&case), form);
    }

    #[test]
    fn subqueries_are_windows_over_an_aligned_grid(case in cases(), step_ms in 500i64..5_000) {
        let bench = Bench::new(&case);
        let looks = bench.looks(bench.shifts()[0]);
        let range = format!("m[{}ms:{step_ms}ms]", case.range_ms);
        bench.check_functions(&FUNCTIONS, &range, &looks, true, |samples, look| {
            subquery(samples, look, step_ms, &instant)
        });
    }

    #[test]
    fn subqueries_have_many_steps_per_step(
        case in cases(),
        step_ms in 20i64..100,
        function in 0usize..FUNCTIONS.len(),
    ) {
        let bench = Bench::new(&case.with_few_ranges());
        let looks = bench.looks(bench.shifts()[0]);
        let range = format!("m[{}ms:{step_ms}ms]", bench.case.range_ms);
        bench.check_functions(&[FUNCTIONS[function]], &range, &looks, true, |samples, look| {
            subquery(samples, look, step_ms, &instant)
        });
    }

    #[test]
    fn subqueries_take_any_expression(
        case in cases(),
        form in 0usize..6,
        inner_form in 0usize..6,
        step_ms in prop_oneof![3 => 500i64..5_000, 1 => Just(60_000)],
        function in 0usize..FUNCTIONS.len(),
    ) {
        let bench = Bench::new(&case);
        let shift = bench.shifts()[form];
        let looks = bench.looks(shift);
        let rate = |s: &Samples, end_ms: i64, range_ms| {
            let look = Look { end_ms, range_ms, now_ms: end_ms };
            rolled("rate", &window(s, end_ms, range_ms), look)
        };
        let nested = |s: &Samples, end_ms: i64| {
            let look = Look { end_ms, range_ms: 9_000, now_ms: end_ms };
            rolled("max_over_time", &subquery(s, look, 2_000, &instant), look)
        };
        type Inner<'a> = (&'static str, Box<dyn Fn(&Samples, i64) -> Option<f64> + 'a>);
        let inner: [Inner<'_>; 6] = [
            ("m", Box::new(instant)),
            ("m offset 3s", Box::new(|s, at| instant(s, at - 3_000))),
            ("m @ 50", Box::new(|s, _| instant(s, 50_000))),
            ("rate(m[25s])", Box::new(move |s, at| rate(s, at, 25_000))),
            ("max_over_time(m[9s:2s])", Box::new(nested)),
            ("(m + 1)", Box::new(|s, at| instant(s, at).map(|value| value + 1.0))),
        ];
        let (text, inner) = &inner[inner_form];
        let step = if step_ms == 60_000 { String::new() } else { format!("{step_ms}ms") };
        let range = format!("{text}[{}ms:{step}]{}", case.range_ms, shift.text);
        // A rate is rounded before it is folded: what subtracts values, or asks whether they fall,
        // may be anywhere then.
        let (name, share) = FUNCTIONS[function];
        let is_near = inner_form != 3 || name == "avg_over_time";
        let functions = if is_near { vec![(name, share)] } else { vec![("max_over_time", ROUNDED)] };
        let keeps_name = inner_form < 3;
        bench.check_functions(&functions, &range, &looks, keeps_name, |samples, look| {
            subquery(samples, look, step_ms, inner)
        });
    }
}
