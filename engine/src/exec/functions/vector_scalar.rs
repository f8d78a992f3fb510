//! Conversions between vectors and scalars: `scalar`, `vector`, `time`, `absent`, `timestamp`.

use std::sync::Mutex;

use model::{Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher, Reservation};

use crate::error::QueryError;
use crate::exec::adapter::elementwise::{HistogramRule, RowKernel};
use crate::exec::matrix::Matrix;
use crate::exec::matrix::scan::{all_series, scan};
use crate::exec::operator::{Context, Operand, SeriesMeta, VectorOperator};
use crate::parse::ast::{Expr, ExprKind};
use crate::steps::Steps;
use crate::tile::{copy_bits, is_present, mark_histograms};

/// `scalar`: the only float of a step, or NaN if there is not exactly one.
pub(super) fn scalar(ctx: &Context, input: &dyn VectorOperator) -> Result<Operand, QueryError> {
    #[derive(Clone, Copy)]
    enum Seen {
        Nothing,
        One(f64),
        Many,
    }
    let bytes = input.steps().count * size_of::<Seen>();
    let _reservation = Reservation::new(&ctx.budget, bytes as u64)?;
    let seen = Mutex::new(vec![Seen::Nothing; input.steps().count]);
    scan(ctx, input, &all_series(input), |_, first_step, tile| {
        let mut seen = seen.lock().expect("no visitor panics while it holds the values");
        for row in 0..tile.series() {
            let (values, presence) = tile.row(row);
            let seen = seen[first_step..].iter_mut().zip(values).enumerate();
            for (step, (seen, value)) in seen.filter(|(step, _)| is_present(presence, *step)) {
                let _ = step;
                *seen = match seen {
                    Seen::Nothing => Seen::One(*value),
                    Seen::One(_) | Seen::Many => Seen::Many,
                };
            }
        }
    })?;
    let seen = seen.into_inner().expect("no visitor panics while it holds the values");
    let value = |seen| if let Seen::One(value) = seen { value } else { f64::NAN };
    Ok(Operand::Scalar(seen.into_iter().map(value).collect()))
}

/// `vector`: one series without labels.
pub(super) fn vector(ctx: &Context, steps: Steps, scalars: &[f64]) -> Result<Operand, QueryError> {
    let _reservation = Reservation::new(&ctx.budget, (steps.count / 4) as u64)?;
    let mut presence = vec![0; steps.count.div_ceil(64)];
    copy_bits(&mut presence, 0, &vec![u64::MAX; steps.count.div_ceil(64)], steps.count);
    single(ctx, steps, Labels::empty(), scalars, &presence)
}

/// `time`: the time of each step, in seconds.
pub(super) fn time(steps: Steps) -> Vec<f64> {
    (0..steps.count).map(|step| steps.time(step) as f64 / 1000.0).collect()
}

/// `timestamp` of computed values, including histograms: the time of each step.
pub(super) fn timestamp(steps: Steps) -> (RowKernel, HistogramRule) {
    let kernel = move |first_step, values: &mut [f64]| {
        for (step, value) in values.iter_mut().enumerate() {
            *value = steps.time(first_step + step) as f64 / 1000.0;
        }
    };
    let rule = HistogramRule::Answer(Box::new(move |first_step, histograms, values, presence| {
        kernel(first_step, values);
        mark_histograms(presence, 0, histograms);
    }));
    (Box::new(move |first_step, values, _| kernel(first_step, values)), rule)
}

/// `absent`: one series with the value 1 at steps at which `input` has no value. [`absent_labels`]
/// returns its labels.
pub(crate) fn absent(
    ctx: &Context,
    input: &dyn VectorOperator,
    argument: &Expr,
) -> Result<Operand, QueryError> {
    let steps = input.steps();
    // Three rows of bits, and one row of values.
    let _reservation = Reservation::new(&ctx.budget, steps.count as u64 * 9)?;
    let anything = Mutex::new(vec![0; steps.count.div_ceil(64)]);
    scan(ctx, input, &all_series(input), |_, first_step, tile| {
        let mut anything = anything.lock().expect("no visitor panics while it holds the bits");
        for row in 0..tile.series() {
            copy_bits(&mut anything, first_step, tile.row(row).1, tile.steps());
            mark_histograms(&mut anything, first_step, tile.histograms(row));
        }
    })?;
    let anything = anything.into_inner().expect("no visitor panics while it holds the bits");
    let nothing: Vec<u64> = anything.iter().map(|word| !word).collect();
    let mut presence = vec![0; nothing.len()];
    copy_bits(&mut presence, 0, &nothing, steps.count);
    single(ctx, steps, absent_labels(argument), &vec![1.0; steps.count], &presence)
}

/// Returns the labels of `absent(…)` and `absent_over_time(…)`: the labels of the selector's
/// equality matchers, except those with another matcher after it.
///
/// As in Prometheus' TSDB, matchers that subtract series are moved to the end first. So `{a!="x",
/// a="b"}` determines no `a`, while `{a=~"b.*", a="b"}` does.
///
/// Source: `createLabelsForAbsentFunction` and `PostingsForMatchers` of Prometheus.
pub fn absent_labels(argument: &Expr) -> Labels {
    let matchers = match &argument.kind {
        ExprKind::Selector(selector) => &selector.matchers,
        ExprKind::Matrix(matrix) => &matrix.selector.matchers,
        ExprKind::Paren(inner) => return absent_labels(inner),
        _ => return Labels::empty(),
    };
    let must_be_set =
        |name: &str| matchers.iter().any(|other| other.name() == name && !other.matches_empty());
    let subtracts = |matcher: &&Matcher| {
        let is_negative = matches!(matcher.op(), MatchOp::NotEqual | MatchOp::NotRegex);
        !must_be_set(matcher.name()) || is_negative && matcher.matches_empty()
    };
    let (last, first): (Vec<&Matcher>, Vec<&Matcher>) = matchers.iter().partition(subtracts);
    let mut builder = LabelsBuilder::default();
    let mut seen: Vec<&str> = Vec::new();
    for matcher in first.into_iter().chain(last) {
        if matcher.name() == METRIC_NAME {
            continue;
        }
        if matcher.op() == MatchOp::Equal && !seen.contains(&matcher.name()) {
            builder.set(matcher.name(), matcher.value());
            seen.push(matcher.name());
        } else {
            builder.remove(matcher.name());
        }
    }
    builder.build()
}

/// Returns a vector of one series.
fn single(
    ctx: &Context,
    steps: Steps,
    labels: Labels,
    values: &[f64],
    presence: &[u64],
) -> Result<Operand, QueryError> {
    let mut matrix = Matrix::new(ctx, vec![SeriesMeta { labels, drop_name: false }], steps)?;
    let (to, present) = matrix.row_mut(0);
    to.copy_from_slice(values);
    present.copy_from_slice(presence);
    Ok(Operand::Vector(Box::new(matrix)))
}
