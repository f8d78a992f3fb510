//! Aggregations: series folded into groups.
//!
//! Series are asked for in the order of their groups, so that a group is a contiguous run of
//! rows. What can be merged (sum, avg, min, max, count, group, stddev, stdvar) accumulates rows
//! into partials and holds no more than the output and the tiles in flight ([`rows`]); what
//! needs all values of a group at once (quantile, topk, bottomk, limitk, limit_ratio,
//! count_values) looks at columns, some steps of all series at a time ([`columns`]).

mod columns;
mod group;
mod hash;
mod partial;
mod rows;
mod topk;

use crate::annotations::Cause;
use crate::error::QueryError;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, Operand, VectorOperator};
use crate::exec::rollup::invalid_quantile;
use crate::exec::scan::{all_series, drain};
use crate::functions::{go_max, go_min};
use crate::number_text::general;
use crate::parse::ast::{AggregateOp, Span};
use crate::plan::Aggregation;
use crate::window::Steps;

use columns::Pick;
use group::Groups;
use partial::Fold;

/// The least float that does not fit `i64` any more.
const INT_MAX: f64 = 9_223_372_036_854_774_784.0;
const INT_MIN: f64 = -9_223_372_036_854_775_808.0;

/// Evaluates an aggregation over all steps.
///
/// Errors: parameters that cannot be, what the operand gives, and the limits of the query.
/// Source: `rangeEvalAgg` of Prometheus.
pub fn aggregate(
    ctx: &Context,
    steps: Steps,
    aggregation: &Aggregation,
    input: &dyn VectorOperator,
    param: Option<Operand>,
) -> Result<Matrix, QueryError> {
    let at = aggregation.param.as_ref().map_or(Span::default(), |param| param.span);
    let cause = Cause { at, operands: Span::hull([at, aggregation.input.span]) };
    let fold = match aggregation.op {
        AggregateOp::Sum => Fold::Sum,
        AggregateOp::Avg => Fold::Avg,
        AggregateOp::Min => Fold::Min,
        AggregateOp::Max => Fold::Max,
        AggregateOp::Count => Fold::Count,
        AggregateOp::Group => Fold::Group,
        AggregateOp::Stddev => Fold::Stddev,
        AggregateOp::Stdvar => Fold::Stdvar,
        AggregateOp::Topk
        | AggregateOp::Bottomk
        | AggregateOp::Limitk
        | AggregateOp::LimitRatio
        | AggregateOp::Quantile
        | AggregateOp::CountValues => {
            let Some(pick) = pick(ctx, steps, aggregation, param, cause)? else {
                // Nothing is taken, but the operand may have something to say.
                drain(ctx, input, &all_series(input))?;
                return Matrix::new(ctx, Vec::new(), steps);
            };
            let groups = match &pick {
                Pick::CountValues { label, .. } => {
                    Groups::without_label(ctx, input.series(), aggregation, label)?
                }
                _ => Groups::new(ctx, input.series(), aggregation)?,
            };
            return columns::reduce(ctx, steps, input, &groups, &pick);
        }
    };
    let groups = Groups::new(ctx, input.series(), aggregation)?;
    rows::reduce(ctx, steps, input, &groups, fold)
}

/// What to take from each column, with its parameter checked; nothing where the parameter says
/// that nothing is taken.
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
    // One NaN makes both of them NaN, but for an infinity.
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

/// Source: `NewInvalidRatioWarning` of Prometheus.
fn invalid_ratio(found: f64, used: f64) -> String {
    format!(
        "ratio value should be between -1 and 1, got {}, capping to {}",
        general(found),
        general(used)
    )
}
