use super::*;
use crate::error::QueryError;
use crate::parse::{ParseOptions, parse};

fn options(steps: Steps) -> PlanOptions {
    PlanOptions {
        steps,
        end_ms: steps.end_ms(),
        is_instant: steps.count == 1,
        lookback_ms: 300_000,
        subquery_step_ms: 60_000,
        steps_max: 1_000_000,
        needs_samples: false,
    }
}

fn planned(query: &str, options: &PlanOptions) -> Result<Plan, QueryError> {
    plan(&parse(query, &ParseOptions::ALL)?, options)
}

/// Checks the plan of a range query that starts at 1,000,000 ms and has 11 steps of a minute.
#[track_caller]
fn check(query: &str, expected: &str) {
    let steps = Steps { start_ms: 1_000_000, step_ms: 60_000, count: 11 };
    let text = planned(query, &options(steps)).unwrap().to_string();
    assert_eq!(text.trim(), expected.trim());
}

#[test]
fn aggregated_rate_loads_the_range_before_the_first_step() {
    check(
        "sum by (job) (rate(http_total{code=~\"5..\"}[5m]))",
        r#"
query over 11 steps of 60000 ms from 1000000 to 1600000
  aggregate sum by (job)
    rollup rate
      select ranges of 300000 ms from 1000000 to 1600000
        load #0 {code=~"5..", __name__="http_total"} from 700001 to 1600000
"#,
    );
}

#[test]
fn pinned_parts_are_evaluated_once() {
    check(
        "a offset 1m + on () group_left sum(b @ end())",
        r#"
query over 11 steps of 60000 ms from 1000000 to 1600000
  binary +
    select newest samples from 940000 to 1540000, back 300000 ms
      load #0 {__name__="a"} from 640001 to 1540000
    once
      aggregate sum
        select newest samples at 1600000, back 300000 ms
          load #1 {__name__="b"} from 1300001 to 1600000
"#,
    );
}

#[test]
fn subqueries_run_over_the_union_of_their_aligned_steps() {
    check(
        "max_over_time(deriv(a[2m])[10m:3m] offset 1m)",
        r#"
query over 11 steps of 60000 ms from 1000000 to 1600000
  rollup max_over_time
    subquery ranges of 600000 ms from 940000 to 1540000, over 7 steps of 180000 ms from 360000 to 1440000
      rollup deriv
        select ranges of 120000 ms from 360000 to 1440000
          load #0 {__name__="a"} from 240001 to 1440000
"#,
    );
}

#[test]
fn a_timestamp_of_a_selector_reads_the_samples_time() {
    check(
        "timestamp((a)) - time()",
        r#"
query over 11 steps of 60000 ms from 1000000 to 1600000
  binary -
    select times of the newest samples from 1000000 to 1600000, back 300000 ms
      load #0 {__name__="a"} from 700001 to 1600000
    call time
"#,
    );
}

#[test]
fn steps_are_counted_before_anything_is_loaded() {
    let steps = Steps::instant(0);
    let refused = |query: &str| planned(query, &options(steps)).unwrap_err().to_string();
    assert_eq!(
        refused("max_over_time(m[10y:1ms])"),
        "query needs 315360000000 steps, the limit is 1000000 (--query.max-steps)"
    );
    let many = Steps { start_ms: 0, step_ms: 1, count: 2_000_000 };
    assert!(planned("1", &options(many)).is_err());
}

#[test]
fn range_queries_refuse_what_has_no_value_a_step() {
    let steps = Steps { start_ms: 0, step_ms: 1000, count: 2 };
    assert_eq!(
        planned("m[5m]", &options(steps)).unwrap_err().to_string(),
        "invalid expression type \"range vector\" for range query, must be Scalar or instant Vector"
    );
    assert!(planned("\"text\"", &options(steps)).is_err());
    assert!(planned("m[5m]", &options(Steps::instant(0))).is_ok());
}
