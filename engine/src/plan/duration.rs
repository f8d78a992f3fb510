//! Duration expressions, computed with the query's step and range.

use crate::error::QueryError;
use crate::parse::ast::{DurationExpr, DurationKind};
use crate::plan::PlanOptions;

/// The longest duration in seconds, in either direction: what Go's nanoseconds hold.
const DURATION_SECONDS_MAX: f64 = i64::MAX as f64 / 1e9;

/// The milliseconds of an `offset`: of either sign.
///
/// Errors: not a number, out of range, or a division by zero.
pub(super) fn offset_ms(expr: &DurationExpr, options: &PlanOptions) -> Result<i64, QueryError> {
    milliseconds(expr, options, true)
}

/// The milliseconds of a range or resolution: above 0.
///
/// Errors: as [`offset_ms`], and a duration of zero or below.
pub(super) fn range_ms(expr: &DurationExpr, options: &PlanOptions) -> Result<i64, QueryError> {
    milliseconds(expr, options, false)
}

/// Source: `calculateDuration` of Prometheus, for the bounds and texts.
fn milliseconds(
    expr: &DurationExpr,
    options: &PlanOptions,
    is_signed: bool,
) -> Result<i64, QueryError> {
    let seconds = seconds(expr, options)?;
    if !seconds.is_finite() {
        return refused(expr, "duration is NaN or infinite");
    }
    if seconds <= 0.0 && !is_signed {
        return refused(expr, "duration must be greater than 0");
    }
    if seconds.abs() > DURATION_SECONDS_MAX {
        return refused(expr, "duration is out of range");
    }
    Ok(match expr.kind {
        // A literal is exact to the nanosecond, a computed one is cut to the millisecond.
        DurationKind::Literal { .. } => (seconds * 1e9).round() as i64 / 1_000_000,
        _ => (seconds * 1000.0) as i64,
    })
}

fn seconds(expr: &DurationExpr, options: &PlanOptions) -> Result<f64, QueryError> {
    Ok(match &expr.kind {
        DurationKind::Literal { seconds, .. } => *seconds,
        DurationKind::Unary { is_minus, operand } => {
            let value = seconds(operand, options)?;
            if *is_minus { -value } else { value }
        }
        DurationKind::Binary { op, lhs, rhs } => {
            let (a, b) = (seconds(lhs, options)?, seconds(rhs, options)?);
            match op {
                '+' => a + b,
                '-' => a - b,
                '*' => a * b,
                '/' if b == 0.0 => return refused(expr, "division by zero"),
                '/' => a / b,
                '%' if b == 0.0 => return refused(expr, "modulo by zero"),
                '%' => a % b,
                '^' => a.powf(b),
                _ => return refused(expr, "unexpected duration expression operator"),
            }
        }
        DurationKind::Step if options.is_instant => 0.0,
        DurationKind::Step => options.steps.step_ms as f64 / 1000.0,
        DurationKind::Range => (options.end_ms - options.steps.start_ms) as f64 / 1000.0,
        DurationKind::MinOf(a, b) => go_min(seconds(a, options)?, seconds(b, options)?),
        DurationKind::MaxOf(a, b) => -go_min(-seconds(a, options)?, -seconds(b, options)?),
    })
}

/// The smaller number; not a number if either is not.
fn go_min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn refused<T>(expr: &DurationExpr, why: &str) -> Result<T, QueryError> {
    Err(QueryError::Parse(format!("{}:{}: {why}", expr.span.start, expr.span.end)))
}
