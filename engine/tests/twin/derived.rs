//! Groups that earlier queries derived from the same series change no bit of an answer.

use std::sync::Arc;

use proptest::prelude::*;

use crate::data::{cases, data, source};
use crate::gaps::answer;
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
    fn groups_of_earlier_queries_change_no_answer(case in cases()) {
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
                let (found, _) = answer(&case, deriving.clone(), &query);
                let (expected, _) = answer(&case, source.clone(), &query);
                prop_assert_eq!(found, expected, "{}", query);
            }
        }
    }
}
