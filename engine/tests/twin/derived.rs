//! Groups that earlier queries derived from the same series change no bit of an answer.

use std::sync::Arc;

use engine::{Engine, EngineOptions, QueryOptions};
use futures::executor::block_on;
use model::Labels;
use model::memory::MemorySource;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::data::{Case, cases, data, source};
use crate::gaps::answer_with;
use crate::wrapped::Wrapped;

const AGGREGATIONS: [&str; 13] = [
    "sum by (g) (X)",
    "sum (X)",
    "avg without (i) (X)",
    "count by (g) (X)",
    "count without (g) (X)",
    "group by (i) (X)",
    "max by (__name__) (X)",
    "stddev by (g) (X)",
    "quantile by (g) (0.4, X)",
    "topk by (g) (2, X)",
    "limitk without (i) (2, X)",
    "count_values by (g) (\"g\", X)",
    "count_values by (g) (\"v\", X)",
];

#[test]
fn a_grouping_of_an_earlier_query_reads_fewer_labels() {
    let case = cases().new_tree(&mut TestRunner::deterministic()).expect("any case").current();
    let case = Case { series_count: 20, ..case };
    let deriving = Arc::new(Wrapped::deriving(source(&data(case.seed, case.series_count))));
    for query in ["sum by (g) (m)", "count by (g) (m)", "quantile without (i) (0.5, m)"] {
        let before = deriving.labels_read();
        let first = answer_with(&EngineOptions::default(), &case, deriving.clone(), query);
        let after = deriving.labels_read();
        let second = answer_with(&EngineOptions::default(), &case, deriving.clone(), query);
        assert_eq!(first, second);
        // The counts of samples by step read labels in both.
        assert!(deriving.labels_read() - after < after - before, "{query}");
    }
}

#[test]
fn names_that_do_not_look_like_counters_are_reported_by_each_query() {
    let mut source = MemorySource::new();
    for name in ["a_total", "b_sum", "level"] {
        for time_ms in [0, 1000] {
            let labels = Labels::from_pairs([("__name__", name), ("of", name)]);
            source.append(&labels, time_ms, 1.0);
        }
    }
    let deriving = Arc::new(Wrapped::deriving(Arc::new(source)));
    let engine = Engine::new(EngineOptions::default());
    let options = QueryOptions::default();
    let infos_and_reads = |query: &str| {
        let before = deriving.labels_read();
        let asked = engine.range(deriving.clone(), query, 1000, 1000, 1, &options);
        let output = block_on(asked).expect("a valid query");
        let (_, infos) = output.annotations.to_strings(query, 0);
        (infos.len(), deriving.labels_read() - before)
    };
    let counters = [(); 2].map(|()| infos_and_reads("rate({of=~\"a.*|b.*\"}[5s])"));
    let one_gauge = [(); 2].map(|()| infos_and_reads("rate({of=~\"a.*|l.*\"}[5s])"));
    assert_eq!(counters.map(|(infos, _)| infos), [0, 0]);
    assert_eq!(one_gauge.map(|(infos, _)| infos), [1, 1]);
    let second_reads = |of: [(usize, usize); 2]| of[1].1;
    assert!(second_reads(counters) < second_reads(one_gauge), "names of counters are read once");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn groups_of_earlier_queries_change_no_answer(case in cases(), delayed_name_removal: bool) {
        let source = source(&data(case.seed, case.series_count));
        let deriving = Arc::new(Wrapped::deriving(source.clone()));
        let operands =
            ["m".to_owned(), format!("rate(m[{}ms])", case.range_ms), "timestamp(m)".to_owned()];
        // The second query of each finds what the first one derived.
        for _ in 0..2 {
            for (aggregation, operand) in
                AGGREGATIONS.iter().flat_map(|a| operands.iter().map(move |o| (a, o)))
            {
                let query = aggregation.replace('X', operand);
                let options = EngineOptions { delayed_name_removal, ..EngineOptions::default() };
                let (found, _) = answer_with(&options, &case, deriving.clone(), &query);
                let (expected, _) = answer_with(&options, &case, source.clone(), &query);
                prop_assert_eq!(found, expected, "{}", query);
            }
        }
    }
}
