//! Every function of PromQL by name.
//!
//! Source: `promql/parser/functions.go` of Prometheus 3.14; the order here is that of the names.

use super::Signature;
use super::ValueType::{self, Matrix, Scalar, String, Vector};

/// All functions, sorted by name.
pub(super) static FUNCTIONS: &[Signature] = &[
    fixed("abs", &[Vector], Vector),
    fixed("absent", &[Vector], Vector),
    fixed("absent_over_time", &[Matrix], Vector),
    fixed("acos", &[Vector], Vector),
    fixed("acosh", &[Vector], Vector),
    fixed("asin", &[Vector], Vector),
    fixed("asinh", &[Vector], Vector),
    fixed("atan", &[Vector], Vector),
    fixed("atanh", &[Vector], Vector),
    fixed("avg_over_time", &[Matrix], Vector),
    fixed("ceil", &[Vector], Vector),
    fixed("changes", &[Matrix], Vector),
    fixed("clamp", &[Vector, Scalar, Scalar], Vector),
    fixed("clamp_max", &[Vector, Scalar], Vector),
    fixed("clamp_min", &[Vector, Scalar], Vector),
    fixed("cos", &[Vector], Vector),
    fixed("cosh", &[Vector], Vector),
    fixed("count_over_time", &[Matrix], Vector),
    fixed("day_of_month", &[Vector], Vector).variadic(1),
    fixed("day_of_week", &[Vector], Vector).variadic(1),
    fixed("day_of_year", &[Vector], Vector).variadic(1),
    fixed("days_in_month", &[Vector], Vector).variadic(1),
    fixed("deg", &[Vector], Vector),
    fixed("delta", &[Matrix], Vector),
    fixed("deriv", &[Matrix], Vector),
    experimental("double_exponential_smoothing", &[Matrix, Scalar, Scalar], Vector),
    experimental("end", &[], Scalar),
    fixed("exp", &[Vector], Vector),
    fixed("first_over_time", &[Matrix], Vector),
    fixed("floor", &[Vector], Vector),
    fixed("histogram_avg", &[Vector], Vector),
    fixed("histogram_count", &[Vector], Vector),
    fixed("histogram_fraction", &[Scalar, Scalar, Vector], Vector),
    fixed("histogram_quantile", &[Scalar, Vector], Vector),
    experimental("histogram_quantiles", &[Vector, String, Scalar, Scalar], Vector).variadic(9),
    fixed("histogram_stddev", &[Vector], Vector),
    fixed("histogram_stdvar", &[Vector], Vector),
    fixed("histogram_sum", &[Vector], Vector),
    fixed("hour", &[Vector], Vector).variadic(1),
    fixed("idelta", &[Matrix], Vector),
    fixed("increase", &[Matrix], Vector),
    experimental("info", &[Vector, Vector], Vector).variadic(1),
    fixed("irate", &[Matrix], Vector),
    fixed("label_join", &[Vector, String, String, String], Vector).variadic(-1),
    fixed("label_replace", &[Vector, String, String, String, String], Vector),
    fixed("last_over_time", &[Matrix], Vector),
    fixed("ln", &[Vector], Vector),
    fixed("log10", &[Vector], Vector),
    fixed("log2", &[Vector], Vector),
    experimental("mad_over_time", &[Matrix], Vector),
    experimental("max_of", &[Scalar, Scalar], Scalar),
    fixed("max_over_time", &[Matrix], Vector),
    experimental("min_of", &[Scalar, Scalar], Scalar),
    fixed("min_over_time", &[Matrix], Vector),
    fixed("minute", &[Vector], Vector).variadic(1),
    fixed("month", &[Vector], Vector).variadic(1),
    fixed("pi", &[], Scalar),
    fixed("predict_linear", &[Matrix, Scalar], Vector),
    fixed("present_over_time", &[Matrix], Vector),
    fixed("quantile_over_time", &[Scalar, Matrix], Vector),
    fixed("rad", &[Vector], Vector),
    experimental("range", &[], Scalar),
    fixed("rate", &[Matrix], Vector),
    fixed("resets", &[Matrix], Vector),
    fixed("round", &[Vector, Scalar], Vector).variadic(1),
    fixed("scalar", &[Vector], Scalar),
    fixed("sgn", &[Vector], Vector),
    fixed("sin", &[Vector], Vector),
    fixed("sinh", &[Vector], Vector),
    fixed("sort", &[Vector], Vector),
    experimental("sort_by_label", &[Vector, String], Vector).variadic(-1),
    experimental("sort_by_label_desc", &[Vector, String], Vector).variadic(-1),
    fixed("sort_desc", &[Vector], Vector),
    fixed("sqrt", &[Vector], Vector),
    experimental("start", &[], Scalar),
    experimental("start_timestamp", &[Vector], Vector),
    fixed("stddev_over_time", &[Matrix], Vector),
    fixed("stdvar_over_time", &[Matrix], Vector),
    experimental("step", &[], Scalar),
    fixed("sum_over_time", &[Matrix], Vector),
    fixed("tan", &[Vector], Vector),
    fixed("tanh", &[Vector], Vector),
    fixed("time", &[], Scalar),
    fixed("timestamp", &[Vector], Vector),
    experimental("ts_of_first_over_time", &[Matrix], Vector),
    experimental("ts_of_last_over_time", &[Matrix], Vector),
    experimental("ts_of_max_over_time", &[Matrix], Vector),
    experimental("ts_of_min_over_time", &[Matrix], Vector),
    fixed("vector", &[Scalar], Vector),
    fixed("year", &[Vector], Vector).variadic(1),
];

/// A stable function with exactly these arguments.
const fn fixed(name: &'static str, args: &'static [ValueType], returns: ValueType) -> Signature {
    Signature { name, args, variadic: 0, returns, is_experimental: false }
}

/// An experimental function with exactly these arguments.
const fn experimental(
    name: &'static str,
    args: &'static [ValueType],
    returns: ValueType,
) -> Signature {
    Signature { name, args, variadic: 0, returns, is_experimental: true }
}

impl Signature {
    const fn variadic(self, variadic: i32) -> Signature {
        Signature { variadic, ..self }
    }
}
