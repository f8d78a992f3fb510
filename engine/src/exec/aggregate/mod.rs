//! Aggregations, which reduce series to groups.
//!
//! Series are read in the order of their groups, so that a group is a contiguous run of rows.
//! Mergeable aggregations (sum, avg, min, max, count, group, stddev, stdvar) accumulate rows into
//! partials and hold only the output and the current tiles ([`rows`]). Aggregations that need all
//! values of a group at once (quantile, topk, bottomk, limitk, limit_ratio, count_values) read
//! columns ([`columns`]). If there may be native histograms, [`mixed`] evaluates the aggregations
//! that support them; all other aggregations get only floats ([`floats`]).

mod block;
mod columns;
mod floats;
mod group;
mod leaves;
mod mixed;
mod outputs;
mod partial;
mod rows;
mod sieve;
mod topk;

use crate::annotations::Cause;
use crate::error::QueryError;
use crate::exec::functions::{go_max, go_min};
use crate::exec::matrix::Matrix;
use crate::exec::matrix::scan::{all_series, drain};
use crate::exec::operator::{Context, Operand, VectorOperator};
use crate::exec::rollup::invalid_quantile;
use crate::number_text::general;
use crate::parse::ast::{AggregateOp, Span};
use crate::plan::Aggregation;
use crate::steps::Steps;

use columns::Pick;
use floats::{Floats, Seen};
use group::{GroupOrder, Groups};
use mixed::Total;
use partial::Fold;

/// Smallest float that exceeds the range of `i64`.
const INT_MAX: f64 = 9_223_372_036_854_774_784.0;
const INT_MIN: f64 = -9_223_372_036_854_775_808.0;

/// Evaluates an aggregation at all steps. `span` is its position in the query.
///
/// Errors: invalid parameters, errors of the operand, and the limits of the query.
/// Source: `rangeEvalAgg` of Prometheus.
pub fn aggregate(
    ctx: &Context,
    steps: Steps,
    aggregation: &Aggregation,
    span: Span,
    input: &dyn VectorOperator,
    param: Option<Operand>,
) -> Result<Matrix, QueryError> {
    let at = aggregation.param.as_ref().map_or(Span::default(), |param| param.span);
    let operands = Span::hull([at, aggregation.input.span]);
    let how = match aggregation.op {
        AggregateOp::Sum => How::Fold(Fold::Sum),
        AggregateOp::Avg => How::Fold(Fold::Avg),
        AggregateOp::Min => How::Fold(Fold::Min),
        AggregateOp::Max => How::Fold(Fold::Max),
        AggregateOp::Count => How::Fold(Fold::Count),
        AggregateOp::Group => How::Fold(Fold::Group),
        AggregateOp::Stddev => How::Fold(Fold::Stddev),
        AggregateOp::Stdvar => How::Fold(Fold::Stdvar),
        AggregateOp::Topk
        | AggregateOp::Bottomk
        | AggregateOp::Limitk
        | AggregateOp::LimitRatio
        | AggregateOp::Quantile
        | AggregateOp::CountValues => {
            match pick(ctx, steps, aggregation, param, Cause { at, operands })? {
                Some(pick) => How::Pick(pick),
                None => {
                    // The result is empty, but the operand may have annotations.
                    drain(ctx, input, &all_series(input))?;
                    return Matrix::new(ctx, Vec::new(), steps);
                }
            }
        }
    };
    let (group_order, ignored) = match &how {
        How::Pick(Pick::CountValues { label, .. }) => (GroupOrder::ByLabels, Some(label.as_str())),
        How::Fold(fold) if !fold.depends_on_order() => (GroupOrder::Any, None),
        _ => (GroupOrder::ByLabels, None),
    };
    let groups = Groups::of(ctx, input, aggregation, group_order, ignored)?;
    if input.has_histograms() {
        let mixed = Mixed { ctx, steps, op: aggregation.op, input, groups: &groups };
        let whole = Cause { at: span, operands };
        return mixed.aggregate(&how, whole, Cause { at: aggregation.input.span, operands });
    }
    let shape = ctx.tile_shape_for(steps);
    match &how {
        How::Fold(fold) => rows::reduce(ctx, steps, shape, input, &groups, *fold),
        How::Pick(pick) => columns::reduce(ctx, steps, shape, input, &groups, pick),
    }
}

/// Evaluation method of an aggregation.
enum How {
    Fold(Fold),
    Pick(Pick),
}

/// An aggregation of an operand that may contain histograms.
struct Mixed<'a> {
    ctx: &'a Context,
    steps: Steps,
    op: AggregateOp,
    input: &'a dyn VectorOperator,
    groups: &'a Groups,
}

impl Mixed<'_> {
    /// Evaluates the aggregation. Annotations refer to the aggregation (`whole`) or to its
    /// `operand`.
    fn aggregate(&self, how: &How, whole: Cause, operand: Cause) -> Result<Matrix, QueryError> {
        let Mixed { ctx, steps, input, groups, .. } = *self;
        let k_of = |k: &f64| columns::at_most(*k, groups);
        match how {
            How::Fold(Fold::Sum) => {
                mixed::sum::reduce(ctx, steps, input, groups, Total::Sum, operand)
            }
            How::Fold(Fold::Avg) => {
                mixed::sum::reduce(ctx, steps, input, groups, Total::Mean, operand)
            }
            How::Fold(fold) => {
                let floats = match fold {
                    Fold::Count | Fold::Group => Floats { ctx, input, seen: Seen::AsNumbers },
                    _ => self.without_histograms(operand, Vec::new()),
                };
                rows::reduce(ctx, steps, ctx.tile_shape_of(input), &floats, groups, *fold)
            }
            How::Pick(Pick::Limitk(k)) => {
                let k: Vec<usize> = k.iter().map(k_of).collect();
                mixed::limit::limitk(ctx, steps, input, groups, &k)
            }
            How::Pick(Pick::LimitRatio(ratio)) => {
                mixed::limit::limit_ratio(ctx, steps, input, groups, ratio)
            }
            How::Pick(Pick::CountValues { label, is_dropped }) => {
                let label = (!is_dropped).then_some(label.as_str());
                mixed::count_values::reduce(ctx, steps, input, groups, label)
            }
            How::Pick(pick) => {
                let floats = match pick {
                    Pick::Topk { k, .. } => {
                        self.without_histograms(whole, k.iter().map(|k| k_of(k) > 0).collect())
                    }
                    _ => self.without_histograms(operand, Vec::new()),
                };
                columns::reduce(ctx, steps, ctx.tile_shape_of(input), &floats, groups, pick)
            }
        }
    }

    /// Returns the operand without its histograms; see [`Seen::Not`].
    fn without_histograms(&self, cause: Cause, looks: Vec<bool>) -> Floats<'_> {
        let seen = Seen::Not { op: self.op, cause, looks };
        Floats { ctx: self.ctx, input: self.input, seen }
    }
}

/// Checks the parameter and returns the values to take from each column. `None` means that the
/// result is empty.
fn pick(
    ctx: &Context,
    steps: Steps,
    aggregation: &Aggregation,
    param: Option<Operand>,
    cause: Cause,
) -> Result<Option<Pick>, QueryError> {
    let values = match param {
        Some(Operand::Scalar(values)) => values,
        Some(Operand::String(label)) => {
            let is_dropped = aggregation.is_without && aggregation.grouping.contains(&label);
            return Ok(Some(Pick::CountValues { label, is_dropped }));
        }
        Some(Operand::Vector(_)) | None => vec![0.0; steps.count],
    };
    let has_nan = values.iter().any(|value| value.is_nan());
    // A NaN makes both NaN, unless there is an infinity.
    let max = values.iter().copied().fold(f64::MIN, go_max);
    let min = values.iter().copied().fold(f64::MAX, go_min);
    let refused = |text: String| Err(QueryError::Execution(text));
    match aggregation.op {
        AggregateOp::Quantile => {
            if has_nan {
                ctx.warn(invalid_quantile(f64::NAN), cause);
            }
            if max > 1.0 {
                ctx.warn(invalid_quantile(max), cause);
            }
            if min < 0.0 {
                ctx.warn(invalid_quantile(min), cause);
            }
            Ok(Some(Pick::Quantile(values)))
        }
        AggregateOp::LimitRatio => {
            if !has_nan && max == 0.0 && min == 0.0 {
                return Ok(None);
            }
            if has_nan {
                return refused("Ratio value is NaN".to_owned());
            }
            if max > 1.0 {
                ctx.warn(invalid_ratio(max, 1.0), cause);
            }
            if min < -1.0 {
                ctx.warn(invalid_ratio(min, -1.0), cause);
            }
            Ok(Some(Pick::LimitRatio(values)))
        }
        _ => {
            if !has_nan && max < 1.0 {
                return Ok(None);
            }
            if has_nan {
                return refused("Parameter value is NaN".to_owned());
            }
            if min <= INT_MIN {
                return refused(format!("Scalar value {} underflows int64", general(min)));
            }
            if max >= INT_MAX {
                return refused(format!("Scalar value {} overflows int64", general(max)));
            }
            Ok(Some(match aggregation.op {
                AggregateOp::Topk => Pick::Topk { k: values, is_top: true },
                AggregateOp::Bottomk => Pick::Topk { k: values, is_top: false },
                _ => Pick::Limitk(values),
            }))
        }
    }
}

/// Returns the warning of an invalid ratio.
///
/// Source: `NewInvalidRatioWarning` of Prometheus.
fn invalid_ratio(found: f64, used: f64) -> String {
    format!(
        "ratio value should be between -1 and 1, got {}, capping to {}",
        general(found),
        general(used)
    )
}
