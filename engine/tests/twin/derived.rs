//! Groups that earlier queries derived from the same series change no bit of an answer.

use std::sync::Arc;

use engine::EngineOptions;
use proptest::prelude::*;

use crate::data::{cases, data, source};
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
