//! The answer at a step does not depend on where the query begins or ends, nor on which
//! series have values at other steps only: to the last bit.
//!
//! Values are no multiples of anything: sums of them are rounded, so that every other order of
//! additions shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Value;
use model::memory::MemorySource;
use model::{Labels, is_stale};
use proptest::prelude::*;

use crate::data::{Case, Random, Samples, cases, data, source};
use crate::ranges::{FUNCTIONS, call};

/// Values that sums have to round.
fn roughen(samples: &mut Samples) {
    for (_, value) in samples.iter_mut().filter(|(_, value)| !is_stale(*value)) {
        *value = *value / 3.0 + 0.1;
    }
}

fn rough_source(seed: u64, series_count: usize) -> Arc<MemorySource> {
    let mut data = data(seed, series_count);
    data.iter_mut().for_each(|(_, samples)| roughen(samples));
    source(&data)
}

/// Many series, each of which lives for a while.
fn fleeting_source(seed: u64, series_count: usize, span_ms: i64) -> Arc<MemorySource> {
    let mut random = Random::new(seed);
    let mut source = MemorySource::new();
    for index in 0..series_count {
        let values = ["m".to_owned(), (index % 3).to_string(), format!("{index:04}")];
        let labels = Labels::from_pairs(["__name__", "g", "i"].into_iter().zip(values));
        let mut time_ms = random.next(span_ms as u64) as i64;
        let mut value = random.next(1 << 40) as f64 / 3.0;
        for _ in 0..1 + random.next(6) {
            source.append(&labels, time_ms, value);
            time_ms += 1 + random.next(15_000) as i64;
            value += random.next(1 << 30) as f64 / 7.0 - 2e7;
        }
    }
    Arc::new(source)
}

/// The bits of each step of each series; all NaN are one.
fn answer(
    case: &Case,
    source: &Arc<MemorySource>,
    query: &str,
) -> BTreeMap<Labels, Vec<Option<u64>>> {
    let Value::Grid { rows, .. } = case.run_on(source, query).value else { panic!("no grid") };
    let bits = |value: f64| if value.is_nan() { 0x7ff8 << 48 } else { value.to_bits() };
    rows.into_iter()
        .map(|row| {
            let cell = |step| row.is_present(step).then(|| bits(row.values[step]));
            (row.labels.clone(), (0..case.count).map(cell).collect())
        })
        .collect()
}

/// Compares the answer over all steps with the one over some of them.
#[track_caller]
fn check(case: &Case, source: &Arc<MemorySource>, query: &str, (from, count): (usize, usize)) {
    let from = from % case.count;
    let count = 1 + count % (case.count - from);
    let part = Case { start_ms: case.time(from), count, ..case.clone() };
    let found = answer(&part, source, query);
    let mut expected = answer(case, source, query);
    expected.values_mut().for_each(|row| *row = row[from..from + count].to_vec());
    expected.retain(|_, row| row.iter().any(Option::is_some));
    assert_eq!(found, expected, "{query} {part:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn functions_of_ranges_forget_where_they_began(
        case in cases(),
        part in any::<(usize, usize)>(),
        step_ms in 500i64..5_000,
    ) {
        let source = rough_source(case.seed, case.series_count);
        let range_ms = case.range_ms;
        for (name, _) in FUNCTIONS {
            check(&case, &source, &call(name, &format!("m[{range_ms}ms]")), part);
            check(&case, &source, &call(name, &format!("m[{range_ms}ms] offset -3s")), part);
            check(&case, &source, &call(name, &format!("m[{range_ms}ms:{step_ms}ms]")), part);
        }
        for name in ["rate", "increase", "delta", "resets", "changes"] {
            check(&case, &source, &format!("{name}(m[{range_ms}ms] anchored)"), part);
        }
        for name in ["rate", "increase", "delta"] {
            check(&case, &source, &format!("{name}(m[{range_ms}ms] smoothed)"), part);
        }
    }

    #[test]
    fn samples_at_even_distances_forget_where_they_began(
        case in cases(),
        part in any::<(usize, usize)>(),
        interval_ms in prop_oneof![Just(1_000i64), 500i64..20_000],
        steps_apart in 1i64..4,
    ) {
        let mut random = Random::new(case.seed);
        let mut source = MemorySource::new();
        for index in 0..case.series_count {
            let values = ["m".to_owned(), (index % 3).to_string(), format!("{index:02}")];
            let labels = Labels::from_pairs(["__name__", "g", "i"].into_iter().zip(values));
            let first = random.next(200);
            let (mut value, mut time_ms) = (0.1, first as i64 * interval_ms - 60_000);
            for _ in 0..random.next(400) {
                value = if random.chance(1) { 0.1 } else { value + random.next(1 << 20) as f64 / 3.0 };
                source.append(&labels, time_ms, value);
                time_ms += if random.chance(1) { 3 * interval_ms } else { interval_ms };
            }
        }
        let source = Arc::new(source);
        let case = Case { step_ms: interval_ms * steps_apart, ..case };
        let range_ms = case.range_ms / interval_ms * interval_ms + interval_ms;
        for (name, _) in FUNCTIONS {
            check(&case, &source, &call(name, &format!("m[{range_ms}ms]")), part);
        }
        check(&case, &source, &format!("sum by (g) (increase(m[{range_ms}ms]))"), part);
    }

    #[test]
    fn expressions_forget_where_they_began(case in cases(), part in any::<(usize, usize)>()) {
        let source = rough_source(case.seed, case.series_count);
        let range_ms = case.range_ms;
        for query in [
            "m smoothed".to_owned(),
            "sum(m)".to_owned(),
            "topk(2, m)".to_owned(),
            "bottomk by (g) (1, m)".to_owned(),
            "quantile by (g) (0.3, m)".to_owned(),
            "count_values('v', m)".to_owned(),
            "absent(m{i='03'})".to_owned(),
            "scalar(m{i='02'}) + m".to_owned(),
            "m > bool 7 and on (g) m{i='01'}".to_owned(),
            "sum by (g) (m) / on (g) count by (g) (m)".to_owned(),
            "m * on (g) group_left () sum by (g) (m)".to_owned(),
            concat!(
                "histogram_quantile(0.6, sum by (le) (label_replace(label_replace(",
                "m > 0, 'le', '$1', 'g', '(.*)'), 'le', '+Inf', 'g', '2')))"
            )
            .to_owned(),
            format!("sum(rate(m[{range_ms}ms]))"),
            format!("stddev by (g) (deriv(m[{range_ms}ms]))"),
            format!("sum_over_time(sum(m)[{range_ms}ms:1s])"),
            format!("m unless rate(m[{range_ms}ms]) > 0"),
        ] {
            check(&case, &source, &query, part);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn aggregations_see_the_series_of_a_step_alone(
        seed in any::<u64>(),
        series_count in 1usize..3_000,
        part in any::<(usize, usize)>(),
        shape in (prop_oneof![Just(512usize), 1usize..900], 1usize..140),
        threads in 1usize..4,
    ) {
        let (start_ms, step_ms, count, range_ms) = (0, 7_000, 60, 0);
        let source = fleeting_source(seed, series_count, step_ms * count as i64);
        let case = Case { seed, series_count, start_ms, step_ms, count, range_ms, shape, threads };
        for name in ["sum", "avg", "stddev", "stdvar", "min", "max", "count", "group"] {
            for grouped in ["", "by (g)", "by (i)", "without (i)"] {
                check(&case, &source, &format!("{name} {grouped} (m)"), part);
            }
        }
        for query in [
            "sum(sum by (g) (m))",
            "avg(sum by (i) (m * 1.1))",
            "topk(3, count_values('v', m))",
            "limitk(3, sum by (i) (m))",
            "quantile(0.7, m)",
        ] {
            check(&case, &source, query, part);
        }
    }
}
