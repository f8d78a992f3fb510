//! Calls on small vectors, compared with naive twins that evaluate step by step.

use std::collections::BTreeMap;

use model::{Budget, BudgetLimits, Labels};
use proptest::prelude::*;

use super::call;
use crate::catalog::lookup;
use crate::error::QueryError;
use crate::exec::matrix::{Matrix, materialize};
use crate::exec::operator::{Context, Operand, SeriesMeta, VectorOperator};
use crate::parse::ast::{Call, Expr, ExprKind, Span};
use crate::steps::Steps;
use crate::tile::{TileShape, is_present, set_present};

type Series = (Vec<(&'static str, String)>, Vec<Option<f64>>);

const STEPS: Steps = Steps { start_ms: 1_000, step_ms: 1_000, count: 70 };

fn context(shape: (usize, usize), delayed: bool) -> Context {
    let shape = TileShape { series: shape.0, steps: shape.1 };
    Context::new(Budget::unlimited(), shape, delayed)
}

fn vector(ctx: &Context, steps: Steps, series: &[Series]) -> Operand {
    let metas = series
        .iter()
        .map(|(labels, _)| SeriesMeta {
            labels: Labels::from_pairs(labels.clone()),
            drop_name: false,
        })
        .collect();
    let mut matrix = Matrix::new(ctx, metas, steps).unwrap();
    for (index, (_, samples)) in series.iter().enumerate() {
        let (values, presence) = matrix.row_mut(index);
        for (step, sample) in samples.iter().enumerate().take(steps.count) {
            if let Some(value) = sample {
                values[step] = *value;
                set_present(presence, step);
            }
        }
    }
    Operand::Vector(Box::new(matrix))
}

fn run(ctx: &Context, steps: Steps, name: &str, args: Vec<Operand>) -> Result<Operand, QueryError> {
    let argument = |index: usize| Expr {
        kind: ExprKind::Number { value: 0.0, is_duration: false },
        span: Span { start: index as u32, end: index as u32 + 1 },
    };
    let function = lookup(name).unwrap();
    let shape = Call { function, args: (0..args.len()).map(argument).collect() };
    call(ctx, steps, &shape, args)
}

/// Returns the result of each step, keyed by printed labels.
fn answer(ctx: &Context, operand: Operand) -> Result<Vec<BTreeMap<String, f64>>, String> {
    let Operand::Vector(operator) = operand else { panic!("a vector was expected") };
    let matrix = materialize(ctx, &*operator).map_err(|error| error.to_string())?;
    let mut answer = vec![BTreeMap::new(); matrix.steps().count];
    for (index, meta) in matrix.series().iter().enumerate() {
        let (values, presence) = matrix.row(index);
        for (step, answer) in answer.iter_mut().enumerate() {
            if is_present(presence, step) {
                assert_eq!(answer.insert(meta.labels.to_string(), values[step]), None);
            }
        }
    }
    Ok(answer)
}

fn series(labels: &[(&'static str, &str)], samples: &[Option<f64>]) -> Series {
    (labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), samples.to_vec())
}

fn samples() -> impl Strategy<Value = Vec<Option<f64>>> {
    let runs = prop::collection::vec((any::<bool>(), 0usize..40, 0u8..5), 1..8);
    runs.prop_map(|runs| {
        let mut samples = Vec::new();
        for (is_present, len, value) in runs {
            samples.resize(samples.len() + len, is_present.then_some(f64::from(value)));
        }
        samples.resize(STEPS.count, None);
        samples
    })
}

fn text(value: &str) -> Operand {
    Operand::String(value.to_owned())
}

fn error(result: Result<Operand, QueryError>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

proptest! {
    #[test]
    fn scalar_and_absent_agree_with_counting(
        rows in prop::collection::vec(samples(), 0..5),
        shape in (1usize..4, 1usize..100),
    ) {
        let ctx = context(shape, true);
        let input: Vec<Series> = rows
            .iter()
            .enumerate()
            .map(|(index, row)| series(&[("i", &index.to_string())], row))
            .collect();
        let scalars = run(&ctx, STEPS, "scalar", vec![vector(&ctx, STEPS, &input)]).unwrap();
        let Operand::Scalar(scalars) = scalars else { panic!("a scalar was expected") };
        let absent = run(&ctx, STEPS, "absent", vec![vector(&ctx, STEPS, &input)]).unwrap();
        let absent = answer(&ctx, absent).unwrap();
        for step in 0..STEPS.count {
            let present: Vec<f64> = rows.iter().filter_map(|row| row[step]).collect();
            match present[..] {
                [only] => prop_assert_eq!(scalars[step], only),
                _ => prop_assert!(scalars[step].is_nan()),
            }
            prop_assert_eq!(absent[step].get("{}").copied(), present.is_empty().then_some(1.0));
        }
    }

    #[test]
    fn names_that_go_merge_series_or_refuse_a_step(
        rows in prop::collection::vec((0u8..3, 0u8..2, samples()), 0..6),
        shape in (1usize..4, 1usize..100),
    ) {
        let ctx = context(shape, false);
        let mut rows = rows;
        rows.sort_by_key(|(name, label, _)| (*name, *label));
        rows.dedup_by_key(|(name, label, _)| (*name, *label));
        let input: Vec<Series> = rows
            .iter()
            .map(|(name, label, row)| {
                series(&[("__name__", &name.to_string()), ("l", &label.to_string())], row)
            })
            .collect();
        let found = answer(
            &ctx,
            run(&ctx, STEPS, "abs", vec![vector(&ctx, STEPS, &input)]).unwrap(),
        );
        let mut expected = Ok(vec![BTreeMap::new(); STEPS.count]);
        for (_, label, row) in &rows {
            for (step, value) in row.iter().enumerate() {
                let labels = format!("{{l=\"{label}\"}}");
                if let (Some(value), Ok(steps)) = (value, &mut expected)
                    && steps[step].insert(labels, *value).is_some()
                {
                    expected = Err(
                        "vector cannot contain metrics with the same labelset".to_owned()
                    );
                }
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn quantiles_of_series_agree_with_quantiles_of_buckets(
        rows in prop::collection::vec((0u8..2, 0usize..5, samples()), 0..10),
        share in prop::sample::select(vec![0.0, 0.3, 0.5, 0.9, 1.0, 2.0, f64::NAN]),
        shape in (1usize..4, 1usize..100),
    ) {
        const BOUNDS: [&str; 5] = ["0.5", "1", "1.0", "+Inf", "x"];
        let ctx = context(shape, true);
        let mut rows = rows;
        rows.sort_by_key(|(label, bound, _)| (*label, *bound));
        rows.dedup_by_key(|(label, bound, _)| (*label, *bound));
        let input: Vec<Series> = rows
            .iter()
            .map(|(label, bound, row)| {
                series(&[("l", &label.to_string()), ("le", BOUNDS[*bound])], row)
            })
            .collect();
        let args = vec![
            Operand::Scalar(vec![share; STEPS.count]),
            vector(&ctx, STEPS, &input),
        ];
        let found =
            answer(&ctx, run(&ctx, STEPS, "histogram_quantile", args).unwrap()).unwrap();
        for (step, found) in found.iter().enumerate() {
            for label in 0..2 {
                let mut buckets: Vec<super::buckets::Bucket> = rows
                    .iter()
                    .filter(|(l, bound, _)| *l == label && *bound < 4)
                    .filter_map(|(_, bound, row)| {
                        let upper_bound = BOUNDS[*bound].parse().unwrap();
                        row[step].map(|count| super::buckets::Bucket { upper_bound, count })
                    })
                    .collect();
                let expected = (!buckets.is_empty())
                    .then(|| super::buckets::quantile(share, &mut buckets).0);
                let found = found.get(&format!("{{l=\"{label}\"}}")).copied();
                prop_assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits));
            }
        }
        let warnings = ctx.take_annotations();
        let is_bad = rows.iter().any(|(_, bound, row)| *bound == 4 && row.iter().any(Option::is_some));
        prop_assert_eq!(warnings.iter().any(|w| w.message.contains("bucket label")), is_bad);
    }
}

#[test]
fn mended_buckets_are_summed_up_in_one_info() {
    let ctx = context((2, 30), true);
    let falling = series(&[("__name__", "h"), ("le", "2")], &vec![Some(1.0); STEPS.count]);
    let input = [
        series(&[("__name__", "h"), ("le", "1")], &vec![Some(5.0); STEPS.count]),
        falling,
        series(&[("__name__", "h"), ("le", "+Inf")], &vec![Some(9.0); STEPS.count]),
    ];
    let quantiles = [0.5, 2.0, 0.9].map(|q| Operand::Scalar(vec![q; STEPS.count]));
    let mut args = vec![vector(&ctx, STEPS, &input), text("q")];
    args.extend(quantiles);
    let found = answer(&ctx, run(&ctx, STEPS, "histogram_quantiles", args).unwrap()).unwrap();
    assert_eq!(
        found[0].keys().collect::<Vec<_>>(),
        [
            "{__name__=\"h\", q=\"0.5\"}",
            "{__name__=\"h\", q=\"0.9\"}",
            "{__name__=\"h\", q=\"2.0\"}"
        ]
    );
    let (warnings, infos) = ctx.take_annotations().to_strings("abcdef", 0);
    assert_eq!(warnings, ["PromQL warning: quantile value should be between 0 and 1, got 2 (1:4)"]);
    assert_eq!(
        infos,
        ["PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see \
          https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile) \
          for metric name \"h\", from buckets 2 to 2, with a max diff of 4, over 70 samples \
          from 1970-01-01T00:00:01Z to 1970-01-01T00:01:10Z (1:1)"]
    );
}

#[test]
fn changing_quantiles_are_series_of_their_own() {
    let ctx = context((2, 30), true);
    let steps = Steps { count: 3, ..STEPS };
    let input = [
        series(&[("le", "1")], &[Some(1.0), Some(1.0), Some(1.0)]),
        series(&[("le", "+Inf")], &[Some(1.0), Some(1.0), Some(1.0)]),
    ];
    let args = vec![vector(&ctx, steps, &input), text("q"), Operand::Scalar(vec![0.5, 1.0, 0.5])];
    let found = answer(&ctx, run(&ctx, steps, "histogram_quantiles", args).unwrap()).unwrap();
    let expected = [("0.5", 0.5), ("1.0", 1.0), ("0.5", 0.5)]
        .map(|(q, value)| BTreeMap::from([(format!("{{q=\"{q}\"}}"), value)]));
    assert_eq!(found, expected);
}

#[test]
fn label_functions_refuse_what_prometheus_refuses() {
    let ctx = context((2, 30), true);
    let steps = Steps { count: 1, ..STEPS };
    let input = || {
        let rows = [series(&[("a", "1")], &[Some(1.0)]), series(&[("a", "2")], &[Some(2.0)])];
        vector(&ctx, steps, &rows)
    };
    let replace = |texts: [&str; 4]| {
        let mut args = vec![input()];
        args.extend(texts.iter().map(|t| text(t)));
        run(&ctx, steps, "label_replace", args)
    };
    assert_eq!(
        error(replace(["b", "$1", "a", "("])),
        "invalid regular expression in label_replace(): ("
    );
    assert_eq!(
        error(replace(["", "$1", "a", "x"])),
        "invalid destination label name in label_replace(): "
    );
    assert_eq!(
        answer(&ctx, replace(["a", "x", "a", ".*"]).unwrap()).unwrap_err(),
        "vector cannot contain metrics with the same labelset"
    );
    assert!(error(replace(["b", "$1", "a", &"x".repeat(40_000)])).contains("at most 32768 bytes"));
    assert!(error(replace(["b", "$1", "a", r"\pL{500}"])).contains("compiles to"));
    let long = "x".repeat(super::LABEL_VALUE_BYTES_MAX + 1);
    assert!(error(replace(["b", &long, "a", ".*"])).contains("the limit is 1048576"));
    let join = vec![input(), text("b"), text("-"), text("a"), text("")];
    assert_eq!(
        error(run(&ctx, steps, "label_join", join)),
        "invalid source label name in label_join(): "
    );
}

#[test]
fn made_labels_are_charged_to_the_query() {
    let limits = BudgetLimits { memory_bytes_max: 10_000, ..BudgetLimits::default() };
    let ctx = Context::new(Budget::new(limits), TileShape { series: 4, steps: 4 }, true);
    let steps = Steps { count: 1, ..STEPS };
    let rows: Vec<Series> =
        (0..20).map(|i| series(&[("i", &i.to_string())], &[Some(1.0)])).collect();
    let long = "x".repeat(1_000);
    let args = vec![vector(&ctx, steps, &rows), text("b"), text(&long), text("i"), text(".*")];
    assert!(error(run(&ctx, steps, "label_replace", args)).contains("query.max-memory"));
}

#[test]
fn sorting_puts_what_is_no_number_last() {
    let ctx = context((2, 30), true);
    let steps = Steps { count: 1, ..STEPS };
    let values = [Some(2.0), Some(f64::NAN), None, Some(-1.0), Some(f64::INFINITY)];
    let rows: Vec<Series> = values
        .iter()
        .enumerate()
        .map(|(i, value)| series(&[("i", &i.to_string())], &[*value]))
        .collect();
    for (name, expected) in [("sort", ["3", "0", "4", "1"]), ("sort_desc", ["4", "0", "3", "1"])] {
        let sorted = run(&ctx, steps, name, vec![vector(&ctx, steps, &rows)]).unwrap();
        let Operand::Vector(sorted) = sorted else { panic!("a vector was expected") };
        let order: Vec<&str> = sorted.series().iter().map(|meta| meta.labels.get("i")).collect();
        assert_eq!(order, expected, "{name}");
    }
}

#[test]
fn dates_without_argument_are_those_of_the_steps() {
    let ctx = context((2, 30), true);
    let steps = Steps { start_ms: -1_500, step_ms: 60_000, count: 2 };
    let minutes = answer(&ctx, run(&ctx, steps, "minute", Vec::new()).unwrap()).unwrap();
    assert_eq!(
        minutes,
        [("{}", 59.0), ("{}", 0.0)].map(|(l, v)| { BTreeMap::from([(l.to_owned(), v)]) })
    );
}

#[test]
fn functions_of_ranges_are_refused_here() {
    let ctx = context((2, 30), true);
    assert_eq!(
        error(run(&ctx, STEPS, "rate", Vec::new())),
        "function \"rate\" is not supported here"
    );
    assert_eq!(
        error(run(&ctx, STEPS, "abs", Vec::new())),
        "expected type instant vector in call to function \"abs\", got nothing"
    );
}
