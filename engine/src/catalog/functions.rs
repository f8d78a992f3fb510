//! The functions of PromQL: ids by family, and one row per function.
//!
//! A new function needs a variant and a row here and a body in `exec`; see CONTRIBUTING.md.
//!
//! Source: `promql/parser/functions.go` of Prometheus 3.14; rows are sorted by name.

use super::ValueType::{Matrix, Scalar, String, Vector};
use super::{Function, Histograms, Names, RangeModes};

/// Identity of a function, by the family that evaluates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionId {
    /// Maps each number independently.
    Math(MathFunction),
    /// Returns a part of a date or time.
    Date(DateFunction),
    /// Rounds or clamps each number.
    Bound(BoundFunction),
    /// Aggregates the samples of a range.
    Rollup(RollupFunction),
    /// Estimates from the buckets of classic or native histograms.
    Histogram(HistogramFunction),
    /// Returns one number per native histogram.
    NativeHistogram(NativeHistogramFunction),
    /// Writes a label.
    Label(LabelFunction),
    /// Sorts the series of an instant query.
    Sort(SortFunction),
    /// Returns a number that depends only on the times of the query.
    QueryTime(QueryTimeFunction),
    /// `absent`
    Absent,
    /// `info`
    Info,
    /// `max_of`
    MaxOf,
    /// `min_of`
    MinOf,
    /// `pi`
    Pi,
    /// `scalar`
    Scalar,
    /// `start_timestamp`
    StartTimestamp,
    /// `time`
    Time,
    /// `timestamp`
    Timestamp,
    /// `vector`
    Vector,
}

/// Functions that map each number independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MathFunction {
    /// `abs`
    Abs,
    /// `acos`
    Acos,
    /// `acosh`
    Acosh,
    /// `asin`
    Asin,
    /// `asinh`
    Asinh,
    /// `atan`
    Atan,
    /// `atanh`
    Atanh,
    /// `ceil`
    Ceil,
    /// `cos`
    Cos,
    /// `cosh`
    Cosh,
    /// `deg`
    Deg,
    /// `exp`
    Exp,
    /// `floor`
    Floor,
    /// `ln`
    Ln,
    /// `log10`
    Log10,
    /// `log2`
    Log2,
    /// `rad`
    Rad,
    /// `sgn`
    Sgn,
    /// `sin`
    Sin,
    /// `sinh`
    Sinh,
    /// `sqrt`
    Sqrt,
    /// `tan`
    Tan,
    /// `tanh`
    Tanh,
}

/// Functions of date and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateFunction {
    /// `day_of_month`
    DayOfMonth,
    /// `day_of_week`
    DayOfWeek,
    /// `day_of_year`
    DayOfYear,
    /// `days_in_month`
    DaysInMonth,
    /// `hour`
    Hour,
    /// `minute`
    Minute,
    /// `month`
    Month,
    /// `year`
    Year,
}

/// Functions that round or clamp each number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundFunction {
    /// `round`
    Round,
    /// `clamp`
    Clamp,
    /// `clamp_min`
    Min,
    /// `clamp_max`
    Max,
}

/// Functions over the samples of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollupFunction {
    /// `rate`
    Rate,
    /// `increase`
    Increase,
    /// `delta`
    Delta,
    /// `irate`
    Irate,
    /// `idelta`
    Idelta,
    /// `resets`
    Resets,
    /// `changes`
    Changes,
    /// `sum_over_time`
    Sum,
    /// `avg_over_time`
    Avg,
    /// `min_over_time`
    Min,
    /// `max_over_time`
    Max,
    /// `ts_of_min_over_time`
    TimeOfMin,
    /// `ts_of_max_over_time`
    TimeOfMax,
    /// `count_over_time`
    Count,
    /// `present_over_time`
    Present,
    /// `absent_over_time`
    Absent,
    /// `last_over_time`
    Last,
    /// `first_over_time`
    First,
    /// `ts_of_last_over_time`
    TimeOfLast,
    /// `ts_of_first_over_time`
    TimeOfFirst,
    /// `stddev_over_time`
    Stddev,
    /// `stdvar_over_time`
    Stdvar,
    /// `quantile_over_time`
    Quantile,
    /// `mad_over_time`
    Mad,
    /// `deriv`
    Deriv,
    /// `predict_linear`
    PredictLinear,
    /// `double_exponential_smoothing`
    DoubleExponentialSmoothing,
}

/// Functions of histogram buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistogramFunction {
    /// `histogram_quantile`
    Quantile,
    /// `histogram_quantiles`
    Quantiles,
    /// `histogram_fraction`
    Fraction,
}

/// Functions that return one number per native histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeHistogramFunction {
    /// `histogram_avg`
    Avg,
    /// `histogram_count`
    Count,
    /// `histogram_sum`
    Sum,
    /// `histogram_stddev`
    Stddev,
    /// `histogram_stdvar`
    Stdvar,
}

/// Functions that write a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelFunction {
    /// `label_replace`
    Replace,
    /// `label_join`
    Join,
}

/// Functions that sort series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortFunction {
    /// `sort`
    Value,
    /// `sort_desc`
    ValueDescending,
    /// `sort_by_label`
    Labels,
    /// `sort_by_label_desc`
    LabelsDescending,
}

/// Functions of the times of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryTimeFunction {
    /// `start`
    Start,
    /// `end`
    End,
    /// `range`
    Range,
    /// `step`
    Step,
}

/// All functions, sorted by name.
pub(super) static FUNCTIONS: &[Function] = &[
    math("abs", MathFunction::Abs, "absolute value"),
    vector("absent", FunctionId::Absent, "1 where there is no series")
        .names(Names::None)
        .histograms(Histograms::Counted)
        .cacheable(),
    rollup(
        "absent_over_time",
        RollupFunction::Absent,
        "1 where no series has a sample in the range",
    )
    .names(Names::None)
    .histograms(Histograms::Counted),
    math("acos", MathFunction::Acos, "arc cosine"),
    math("acosh", MathFunction::Acosh, "inverse hyperbolic cosine"),
    math("asin", MathFunction::Asin, "arc sine"),
    math("asinh", MathFunction::Asinh, "inverse hyperbolic sine"),
    math("atan", MathFunction::Atan, "arc tangent"),
    math("atanh", MathFunction::Atanh, "inverse hyperbolic tangent"),
    rollup("avg_over_time", RollupFunction::Avg, "average of the samples in the range")
        .histograms(Histograms::Kept),
    math("ceil", MathFunction::Ceil, "rounded up"),
    rollup("changes", RollupFunction::Changes, "number of changes of the value")
        .histograms(Histograms::Compared)
        .modes(RangeModes::Anchored),
    vector("clamp", FunctionId::Bound(BoundFunction::Clamp), "values kept between two bounds")
        .taking(&[Vector, Scalar, Scalar], "v, min, max")
        .cacheable(),
    vector("clamp_max", FunctionId::Bound(BoundFunction::Max), "values of at most max")
        .taking(&[Vector, Scalar], "v, max")
        .cacheable(),
    vector("clamp_min", FunctionId::Bound(BoundFunction::Min), "values of at least min")
        .taking(&[Vector, Scalar], "v, min")
        .cacheable(),
    math("cos", MathFunction::Cos, "cosine"),
    math("cosh", MathFunction::Cosh, "hyperbolic cosine"),
    rollup("count_over_time", RollupFunction::Count, "number of samples in the range")
        .histograms(Histograms::Counted),
    date("day_of_month", DateFunction::DayOfMonth, "1 to 31, in UTC"),
    date("day_of_week", DateFunction::DayOfWeek, "0 (Sunday) to 6, in UTC"),
    date("day_of_year", DateFunction::DayOfYear, "1 to 366, in UTC"),
    date("days_in_month", DateFunction::DaysInMonth, "28 to 31, in UTC"),
    math("deg", MathFunction::Deg, "radians to degrees"),
    rollup("delta", RollupFunction::Delta, "change of a gauge over the range")
        .histograms(Histograms::Kept)
        .modes(RangeModes::AnchoredOrSmoothed),
    rollup("deriv", RollupFunction::Deriv, "slope of a gauge, per second"),
    rollup(
        "double_exponential_smoothing",
        RollupFunction::DoubleExponentialSmoothing,
        "smoothed value of a gauge",
    )
    .taking(&[Matrix, Scalar, Scalar], "v[range], sf, tf")
    .experimental(),
    query_time("end", QueryTimeFunction::End, "end of the query, in seconds"),
    math("exp", MathFunction::Exp, "e to the power of v"),
    rollup("first_over_time", RollupFunction::First, "first sample in the range")
        .names(Names::Kept)
        .histograms(Histograms::Kept),
    math("floor", MathFunction::Floor, "rounded down"),
    vector(
        "histogram_avg",
        FunctionId::NativeHistogram(NativeHistogramFunction::Avg),
        "average of a native histogram",
    )
    .names(Names::DroppedAlone)
    .histograms(Histograms::Summarized),
    vector(
        "histogram_count",
        FunctionId::NativeHistogram(NativeHistogramFunction::Count),
        "number of observations of a native histogram",
    )
    .names(Names::DroppedAlone)
    .histograms(Histograms::Summarized),
    vector(
        "histogram_fraction",
        FunctionId::Histogram(HistogramFunction::Fraction),
        "fraction of observations between two bounds",
    )
    .taking(&[Scalar, Scalar, Vector], "lower, upper, v")
    .histograms(Histograms::Buckets),
    vector(
        "histogram_quantile",
        FunctionId::Histogram(HistogramFunction::Quantile),
        "quantile of a histogram, 0 to 1",
    )
    .taking(&[Scalar, Vector], "q, v")
    .histograms(Histograms::Buckets)
    .cacheable(),
    vector(
        "histogram_quantiles",
        FunctionId::Histogram(HistogramFunction::Quantiles),
        "several quantiles of a histogram",
    )
    .taking(&[Vector, String, Scalar, Scalar], "v, label, q, …")
    .variadic(9)
    .histograms(Histograms::Buckets)
    .experimental(),
    vector(
        "histogram_stddev",
        FunctionId::NativeHistogram(NativeHistogramFunction::Stddev),
        "standard deviation of a native histogram",
    )
    .names(Names::DroppedAlone)
    .histograms(Histograms::Answered),
    vector(
        "histogram_stdvar",
        FunctionId::NativeHistogram(NativeHistogramFunction::Stdvar),
        "variance of a native histogram",
    )
    .names(Names::DroppedAlone)
    .histograms(Histograms::Answered),
    vector(
        "histogram_sum",
        FunctionId::NativeHistogram(NativeHistogramFunction::Sum),
        "sum of the observations of a native histogram",
    )
    .names(Names::DroppedAlone)
    .histograms(Histograms::Summarized),
    date("hour", DateFunction::Hour, "0 to 23, in UTC"),
    rollup("idelta", RollupFunction::Idelta, "difference of the last two samples")
        .histograms(Histograms::Kept),
    rollup("increase", RollupFunction::Increase, "increase of a counter over the range")
        .histograms(Histograms::Kept)
        .modes(RangeModes::AnchoredOrSmoothed),
    vector("info", FunctionId::Info, "labels of info metrics added")
        .taking(&[Vector, Vector], "v, selector")
        .variadic(1)
        .names(Names::Kept)
        .histograms(Histograms::Kept)
        .experimental(),
    rollup("irate", RollupFunction::Irate, "rate of a counter from its last two samples")
        .histograms(Histograms::Kept),
    vector("label_join", FunctionId::Label(LabelFunction::Join), "label joined from other labels")
        .taking(&[Vector, String, String, String], "v, to, separator, from, …")
        .variadic(-1)
        .names(Names::Kept)
        .histograms(Histograms::Kept)
        .cacheable(),
    vector(
        "label_replace",
        FunctionId::Label(LabelFunction::Replace),
        "label set from a regex match",
    )
    .taking(&[Vector, String, String, String, String], "v, to, replacement, from, regex")
    .names(Names::Kept)
    .histograms(Histograms::Kept)
    .cacheable(),
    rollup("last_over_time", RollupFunction::Last, "last sample in the range")
        .names(Names::Kept)
        .histograms(Histograms::Kept),
    math("ln", MathFunction::Ln, "natural logarithm"),
    math("log10", MathFunction::Log10, "decimal logarithm"),
    math("log2", MathFunction::Log2, "binary logarithm"),
    rollup("mad_over_time", RollupFunction::Mad, "median absolute deviation in the range")
        .experimental(),
    scalar("max_of", FunctionId::MaxOf, "the larger of two numbers")
        .taking(&[Scalar, Scalar], "a, b")
        .cacheable()
        .experimental(),
    rollup("max_over_time", RollupFunction::Max, "largest sample in the range"),
    scalar("min_of", FunctionId::MinOf, "the smaller of two numbers")
        .taking(&[Scalar, Scalar], "a, b")
        .cacheable()
        .experimental(),
    rollup("min_over_time", RollupFunction::Min, "smallest sample in the range"),
    date("minute", DateFunction::Minute, "0 to 59, in UTC"),
    date("month", DateFunction::Month, "1 to 12, in UTC"),
    scalar("pi", FunctionId::Pi, "3.14159…").cacheable(),
    rollup(
        "predict_linear",
        RollupFunction::PredictLinear,
        "value of a gauge predicted by linear regression",
    )
    .taking(&[Matrix, Scalar], "v[range], seconds")
    .timed(),
    rollup(
        "present_over_time",
        RollupFunction::Present,
        "1 for each series with a sample in the range",
    )
    .histograms(Histograms::Counted),
    rollup("quantile_over_time", RollupFunction::Quantile, "quantile of the samples in the range")
        .taking(&[Scalar, Matrix], "q, v[range]"),
    math("rad", MathFunction::Rad, "degrees to radians"),
    query_time("range", QueryTimeFunction::Range, "length of the query, in seconds"),
    rollup("rate", RollupFunction::Rate, "increase of a counter per second")
        .histograms(Histograms::Kept)
        .modes(RangeModes::AnchoredOrSmoothed),
    rollup("resets", RollupFunction::Resets, "number of counter resets")
        .histograms(Histograms::Compared)
        .modes(RangeModes::Anchored),
    vector("round", FunctionId::Bound(BoundFunction::Round), "rounded to a multiple")
        .taking(&[Vector, Scalar], "v, to = 1")
        .variadic(1)
        .cacheable(),
    scalar("scalar", FunctionId::Scalar, "number of the only series")
        .taking(&[Vector], "v")
        .cacheable(),
    math("sgn", MathFunction::Sgn, "sign: -1, 0 or 1"),
    math("sin", MathFunction::Sin, "sine"),
    math("sinh", MathFunction::Sinh, "hyperbolic sine"),
    vector("sort", FunctionId::Sort(SortFunction::Value), "sorted by value, in instant queries")
        .names(Names::Kept),
    vector(
        "sort_by_label",
        FunctionId::Sort(SortFunction::Labels),
        "sorted by labels, in instant queries",
    )
    .taking(&[Vector, String], "v, label, …")
    .variadic(-1)
    .names(Names::Kept)
    .histograms(Histograms::Kept)
    .experimental(),
    vector(
        "sort_by_label_desc",
        FunctionId::Sort(SortFunction::LabelsDescending),
        "sorted by labels, last first",
    )
    .taking(&[Vector, String], "v, label, …")
    .variadic(-1)
    .names(Names::Kept)
    .histograms(Histograms::Kept)
    .experimental(),
    vector(
        "sort_desc",
        FunctionId::Sort(SortFunction::ValueDescending),
        "sorted by value, largest first",
    )
    .names(Names::Kept),
    math("sqrt", MathFunction::Sqrt, "square root"),
    query_time("start", QueryTimeFunction::Start, "start of the query, in seconds"),
    vector(
        "start_timestamp",
        FunctionId::StartTimestamp,
        "start timestamp of a counter, in seconds",
    )
    .experimental(),
    rollup("stddev_over_time", RollupFunction::Stddev, "standard deviation in the range"),
    rollup("stdvar_over_time", RollupFunction::Stdvar, "variance in the range"),
    query_time("step", QueryTimeFunction::Step, "step of the query, in seconds"),
    rollup("sum_over_time", RollupFunction::Sum, "sum of the samples in the range")
        .histograms(Histograms::Kept),
    math("tan", MathFunction::Tan, "tangent"),
    math("tanh", MathFunction::Tanh, "hyperbolic tangent"),
    scalar("time", FunctionId::Time, "time of each step, in seconds").timed().cacheable(),
    vector("timestamp", FunctionId::Timestamp, "time of the sample, in seconds")
        .histograms(Histograms::Counted)
        .timed()
        .cacheable(),
    rollup(
        "ts_of_first_over_time",
        RollupFunction::TimeOfFirst,
        "time of the first sample in the range",
    )
    .histograms(Histograms::Counted)
    .experimental(),
    rollup(
        "ts_of_last_over_time",
        RollupFunction::TimeOfLast,
        "time of the last sample in the range",
    )
    .histograms(Histograms::Counted)
    .experimental(),
    rollup(
        "ts_of_max_over_time",
        RollupFunction::TimeOfMax,
        "time of the largest sample in the range",
    )
    .experimental(),
    rollup(
        "ts_of_min_over_time",
        RollupFunction::TimeOfMin,
        "time of the smallest sample in the range",
    )
    .experimental(),
    vector("vector", FunctionId::Vector, "number as a series without labels")
        .taking(&[Scalar], "number")
        .names(Names::None)
        .cacheable(),
    date("year", DateFunction::Year, "year, in UTC"),
];

/// Returns a function of an instant vector; the result cache does not keep it by default.
const fn vector(name: &'static str, id: FunctionId, summary: &'static str) -> Function {
    Function {
        id,
        name,
        args: &[Vector],
        variadic: 0,
        returns: Vector,
        is_experimental: false,
        names: Names::Dropped,
        histograms: Histograms::Dropped,
        modes: RangeModes::Plain,
        is_timed: false,
        is_cacheable: false,
        parameters: "v",
        summary,
    }
}

const fn math(name: &'static str, id: MathFunction, summary: &'static str) -> Function {
    vector(name, FunctionId::Math(id), summary).cacheable()
}

const fn date(name: &'static str, id: DateFunction, summary: &'static str) -> Function {
    vector(name, FunctionId::Date(id), summary)
        .taking(&[Vector], "v = time()")
        .variadic(1)
        .timed()
        .cacheable()
}

const fn rollup(name: &'static str, id: RollupFunction, summary: &'static str) -> Function {
    vector(name, FunctionId::Rollup(id), summary).taking(&[Matrix], "v[range]").cacheable()
}

const fn scalar(name: &'static str, id: FunctionId, summary: &'static str) -> Function {
    Function { returns: Scalar, names: Names::None, ..vector(name, id, summary) }.taking(&[], "")
}

const fn query_time(name: &'static str, id: QueryTimeFunction, summary: &'static str) -> Function {
    scalar(name, FunctionId::QueryTime(id), summary).experimental()
}
