//! Evaluation of duration expressions, given the query's step and range.

use super::ast::{DurationExpr, DurationKind};
use crate::error::QueryError;

/// Maximum seconds of Prometheus' duration, an `i64` of nanoseconds.
const SECONDS_MAX: f64 = (1u64 << 63) as f64 / 1e9;

impl DurationExpr {
    /// Returns the duration in ms.
    ///
    /// Units: `step_ms` is the query's step (0 for an instant query), `range_ms` its end minus
    /// its start.
    /// Errors: a computed duration that divides by zero, is not finite, is out of range, or
    /// is not positive where `may_be_negative` is false.
    /// Source: `durationVisitor` of Prometheus' engine. A literal is rounded to nanoseconds, then
    /// truncated to ms; a computed duration is truncated to ms.
    pub fn evaluate(
        &self,
        step_ms: i64,
        range_ms: i64,
        may_be_negative: bool,
    ) -> Result<i64, QueryError> {
        let seconds = self.seconds(step_ms as f64 / 1e3, range_ms as f64 / 1e3)?;
        if !seconds.is_finite() {
            return Err(self.error("duration is NaN or infinite"));
        }
        if let DurationKind::Literal { seconds, .. } = self.kind {
            return Ok(literal_ms(seconds));
        }
        if seconds <= 0.0 && !may_be_negative {
            return Err(self.error("duration must be greater than 0"));
        }
        if is_out_of_range(seconds) {
            return Err(self.error("duration is out of range"));
        }
        Ok((seconds * 1000.0) as i64)
    }

    fn seconds(&self, step: f64, range: f64) -> Result<f64, QueryError> {
        Ok(match &self.kind {
            DurationKind::Literal { seconds, .. } => *seconds,
            DurationKind::Unary { is_minus, operand } => {
                let value = operand.seconds(step, range)?;
                if *is_minus { -value } else { value }
            }
            DurationKind::Binary { op, lhs, rhs } => {
                let (lhs, rhs) = (lhs.seconds(step, range)?, rhs.seconds(step, range)?);
                match op {
                    '+' => lhs + rhs,
                    '-' => lhs - rhs,
                    '*' => lhs * rhs,
                    '/' if rhs == 0.0 => return Err(self.error("division by zero")),
                    '/' => lhs / rhs,
                    '%' if rhs == 0.0 => return Err(self.error("modulo by zero")),
                    '%' => lhs % rhs,
                    _ => lhs.powf(rhs),
                }
            }
            DurationKind::Step => step,
            DurationKind::Range => range,
            DurationKind::MinOf(a, b) => go_min(a.seconds(step, range)?, b.seconds(step, range)?),
            DurationKind::MaxOf(a, b) => {
                -go_min(-a.seconds(step, range)?, -b.seconds(step, range)?)
            }
        })
    }

    /// Formats an error like Prometheus, with byte offsets instead of line and column.
    fn error(&self, message: &str) -> QueryError {
        QueryError::Parse(format!("{}:{}: {message}", self.span.start, self.span.end))
    }
}

/// Returns the minimum; negative infinity wins over NaN, and NaN over other numbers.
fn go_min(a: f64, b: f64) -> f64 {
    if a == f64::NEG_INFINITY || b == f64::NEG_INFINITY {
        f64::NEG_INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.min(b)
    }
}

/// Converts seconds to whole ms: rounds to nanoseconds, then truncates.
pub(super) fn literal_ms(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64 / 1_000_000
}

/// Returns whether seconds overflow Prometheus' duration. False for NaN, which evaluation rejects;
/// Prometheus reads a plain NaN as 292 years.
pub(super) fn is_out_of_range(seconds: f64) -> bool {
    seconds.abs() > SECONDS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::ast::Span;

    fn literal(seconds: f64) -> DurationExpr {
        let kind = DurationKind::Literal { seconds, is_duration: false };
        DurationExpr { kind, span: Span { start: 3, end: 7 }, is_wrapped: false }
    }

    fn binary(op: char, lhs: f64, rhs: f64) -> DurationExpr {
        let (lhs, rhs) = (Box::new(literal(lhs)), Box::new(literal(rhs)));
        let kind = DurationKind::Binary { op, lhs, rhs };
        DurationExpr { kind, span: Span { start: 3, end: 7 }, is_wrapped: false }
    }

    #[test]
    fn computed_durations_are_cut_and_literals_rounded() {
        assert_eq!(literal(1.9999).evaluate(0, 0, true).unwrap(), 1999);
        assert_eq!(literal(0.001).evaluate(0, 0, true).unwrap(), 1);
        assert_eq!(binary('*', 2.0, 0.5).evaluate(0, 0, false).unwrap(), 1000);
        assert_eq!(binary('%', -7.0, 4.0).evaluate(0, 0, true).unwrap(), -3000);
        assert_eq!(binary('^', 2.0, 3.0).evaluate(0, 0, true).unwrap(), 8000);
    }

    #[test]
    fn errors_name_bytes() {
        let check = |duration: DurationExpr, message: &str| {
            assert_eq!(duration.evaluate(0, 0, false).unwrap_err().to_string(), message);
        };
        check(binary('-', 1.0, 1.0), "3:7: duration must be greater than 0");
        check(binary('/', 1.0, 0.0), "3:7: division by zero");
        check(binary('%', 1.0, 0.0), "3:7: modulo by zero");
        check(binary('*', 1e200, 1e200), "3:7: duration is NaN or infinite");
        check(binary('*', 1e6, 1e6), "3:7: duration is out of range");
    }
}
