//! Queries against a twin that evaluates each step from decoded samples, one value at a time.
//!
//! Data are random: gaps, resets, staleness markers, NaN, infinities, series that fill several
//! batches. Values are multiples of 1/64 below 2^20, so that sums are exact in any order.

mod data;
mod derived;
mod facts;
mod gaps;
mod mixed;
mod naive;
mod ranges;
mod seen;
mod subranges;
mod wrapped;

use std::collections::BTreeMap;

use engine::Value;
use model::Labels;
use proptest::prelude::*;

use data::{Grid, Samples, cases, check, data, instant};
use naive::{extreme, finite_sum, nan_first, quantile, variance};

/// Series with their values at one step.
type Members<'a> = Vec<(&'a Labels, f64)>;

/// The series of each group with a value at a step, in the order of their labels.
fn groups(grid: &Grid, step: usize) -> BTreeMap<String, Members<'_>> {
    let mut groups: BTreeMap<String, Members<'_>> = BTreeMap::new();
    for (labels, row) in grid {
        if let Some(value) = row[step] {
            groups.entry(labels.get("g").to_owned()).or_default().push((labels, value));
        }
    }
    groups
}

fn folded(name: &str, values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let samples: Samples = values.iter().map(|value| (0, *value)).collect();
    match name {
        "sum" => finite_sum(values.iter().copied()),
        "avg" => finite_sum(values.iter().copied()) / count,
        "count" => count,
        "group" => 1.0,
        "max" => extreme(&samples, true).0,
        "min" => extreme(&samples, false).0,
        "stdvar" => variance(values),
        "quantile" => quantile(0.4, values.to_vec()),
        name => panic!("{name}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn selectors_see_the_newest_sample(case in cases(), offset_ms in -5_000i64..5_000) {
        let data = data(case.seed, case.series_count);
        let query = format!("m offset {offset_ms}ms");
        let expected = case.grid(&data, |samples, time_ms| instant(samples, time_ms - offset_ms));
        check(case.run(&data, &query), &expected, 0.0, &query);
    }

    #[test]
    fn aggregations_fold_the_values_of_a_step(case in cases()) {
        let data = data(case.seed, case.series_count);
        let grid = case.grid(&data, instant);
        for name in ["sum", "avg", "count", "group", "max", "min", "stdvar", "quantile"] {
            let param = if name == "quantile" { "0.4, " } else { "" };
            let query = format!("{name} by (g) ({param}m)");
            let mut expected = Grid::new();
            for step in 0..case.count {
                for (group, members) in groups(&grid, step) {
                    let values: Vec<f64> = members.iter().map(|(_, value)| *value).collect();
                    let labels = Labels::from_pairs([("g", group)]);
                    let row = expected.entry(labels).or_insert_with(|| vec![None; case.count]);
                    row[step] = Some(folded(name, &values));
                }
            }
            let scale = if name == "stdvar" { 1e13 } else { 0.0 };
            check(case.run(&data, &query), &expected, scale, &query);
        }
    }

    #[test]
    fn picks_take_series_of_a_step(case in cases(), k in 1usize..4) {
        let data = data(case.seed, case.series_count);
        let grid = case.grid(&data, instant);
        let picked = |pick: &dyn Fn(Members<'_>) -> Vec<Labels>| {
            let mut expected = Grid::new();
            for step in 0..case.count {
                for (_, members) in groups(&grid, step) {
                    let values: BTreeMap<Labels, f64> =
                        members.iter().map(|(labels, value)| ((*labels).clone(), *value)).collect();
                    for labels in pick(members) {
                        let value = values[&labels];
                        expected.entry(labels).or_insert_with(|| vec![None; case.count])[step] =
                            Some(value);
                    }
                }
            }
            expected
        };
        let query = format!("limitk by (g) ({k}, m)");
        let expected = picked(&|members| {
            members.iter().take(k).map(|(labels, _)| (*labels).clone()).collect()
        });
        check(case.run(&data, &query), &expected, 0.0, &query);
        // Which of several equal values is taken is not defined: compare the values alone.
        for (name, sign) in [("topk", -1.0), ("bottomk", 1.0)] {
            let query = format!("{name} by (g) ({k}, m)");
            let Value::Grid { rows, .. } = case.run(&data, &query).value else { panic!("no grid") };
            for step in 0..case.count {
                for (group, members) in groups(&grid, step) {
                    let mut values: Vec<f64> = members.iter().map(|(_, v)| *v * sign).collect();
                    nan_first(&mut values);
                    let nan_count = values.iter().filter(|value| value.is_nan()).count();
                    values.rotate_left(nan_count);
                    values.truncate(k);
                    let mut found: Vec<f64> = rows
                        .iter()
                        .filter(|row| row.labels.get("g") == group && row.is_present(step))
                        .map(|row| row.values[step] * sign)
                        .collect();
                    nan_first(&mut found);
                    let nan_count = found.iter().filter(|value| value.is_nan()).count();
                    found.rotate_left(nan_count);
                    prop_assert_eq!(format!("{found:?}"), format!("{values:?}"), "{} {}", query, step);
                }
            }
        }
    }

    #[test]
    fn counted_values_add_up(case in cases()) {
        let data = data(case.seed, case.series_count);
        let grid = case.grid(&data, instant);
        let mut expected = Grid::new();
        for step in 0..case.count {
            for (group, members) in groups(&grid, step) {
                for (_, value) in members {
                    let text = match value {
                        f64::INFINITY => "+Inf".to_owned(),
                        f64::NEG_INFINITY => "-Inf".to_owned(),
                        value => value.to_string(),
                    };
                    let labels = Labels::from_pairs([("g", group.as_str()), ("v", &text)]);
                    let row = expected.entry(labels).or_insert_with(|| vec![None; case.count]);
                    *row[step].get_or_insert(0.0) += 1.0;
                }
            }
        }
        let query = "count_values by (g) ('v', m)";
        check(case.run(&data, query), &expected, 0.0, query);
    }
}
