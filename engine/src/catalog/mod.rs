//! The catalog of the language: functions of PromQL with their properties, and other words.
//!
//! Depends on no other part of the engine. The bodies of functions are in `exec`.

mod functions;
mod words;

use std::fmt;

pub use functions::{
    BoundFunction, DateFunction, FunctionId, HistogramFunction, LabelFunction, MathFunction,
    NativeHistogramFunction, QueryTimeFunction, RollupFunction, SortFunction,
};
pub use words::{AGGREGATIONS, KEYWORDS, Word};

/// Type of an expression's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// One number per step.
    Scalar,
    /// A string.
    String,
    /// One value per series and step.
    Vector,
    /// The samples of a range, per series and step.
    Matrix,
}

impl fmt::Display for ValueType {
    /// Writes the name that Prometheus uses in error messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::Scalar => "scalar",
            ValueType::String => "string",
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
        })
    }
}

/// A function with its properties.
///
/// Source: `promql/parser/functions.go` of Prometheus for the signature.
#[derive(Debug, PartialEq)]
pub struct Function {
    /// Identity, which selects the body.
    pub id: FunctionId,
    /// Name in PromQL.
    pub name: &'static str,
    /// Argument types; the last one repeats if the function is variadic.
    pub args: &'static [ValueType],
    /// 0: exactly `args`. n > 0: `args` without the last one, and at most n further arguments. -1:
    /// `args` without the last one, and any number of further arguments.
    pub variadic: i32,
    /// Type of the result.
    pub returns: ValueType,
    /// True if Prometheus requires a feature flag for it.
    pub is_experimental: bool,
    /// Effect on metric names.
    pub names: Names,
    /// Treatment of native histograms.
    pub histograms: Histograms,
    /// Range modifiers that it accepts.
    pub modes: RangeModes,
    /// True if the value depends on the evaluation time even for constant arguments.
    ///
    /// Source: `AtModifierUnsafeFunctions` of Prometheus.
    pub is_timed: bool,
    /// True if the result cache may keep its values. Required: each value depends only on the
    /// arguments at its step, or the samples of its range, and never causes annotations.
    pub is_cacheable: bool,
    /// Parameters as the page shows them.
    pub parameters: &'static str,
    /// Result in a few words for the page.
    pub summary: &'static str,
}

/// Builders for the rows of the table.
impl Function {
    const fn taking(self, args: &'static [ValueType], parameters: &'static str) -> Function {
        Function { args, parameters, ..self }
    }

    const fn variadic(self, variadic: i32) -> Function {
        Function { variadic, ..self }
    }

    const fn names(self, names: Names) -> Function {
        Function { names, ..self }
    }

    const fn histograms(self, histograms: Histograms) -> Function {
        Function { histograms, ..self }
    }

    const fn modes(self, modes: RangeModes) -> Function {
        Function { modes, ..self }
    }

    const fn timed(self) -> Function {
        Function { is_timed: true, ..self }
    }

    const fn cacheable(self) -> Function {
        Function { is_cacheable: true, ..self }
    }

    const fn experimental(self) -> Function {
        Function { is_experimental: true, ..self }
    }
}

/// Effect of a function on metric names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// The series keep their names.
    Kept,
    /// Removes names, types and units of metrics, at once or at the end of the query.
    Dropped,
    /// Removes the names; types and units stay if the names are removed at once.
    DroppedAlone,
    /// The result is a scalar, or a new series.
    None,
}

/// Treatment of native histograms by a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Histograms {
    /// Histograms are removed from the result; also for functions that take no series.
    Dropped,
    /// The result has histograms for them.
    Kept,
    /// Histograms are compared with each other; the result is a number.
    Compared,
    /// Histograms are counted as samples regardless of content; the result is a number.
    Counted,
    /// The result is a number computed from counts and sums, without buckets.
    Summarized,
    /// The result is a number computed from the whole histogram.
    Answered,
    /// The result is a number computed from buckets, which are therefore always needed.
    Buckets,
}

/// Modifiers of a range selector that a function accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeModes {
    /// No modifiers.
    Plain,
    /// `anchored`
    Anchored,
    /// `anchored` and `smoothed`
    AnchoredOrSmoothed,
}

/// Returns the function with this name; names are case-sensitive.
pub fn lookup(name: &str) -> Option<&'static Function> {
    let index = functions::FUNCTIONS.binary_search_by(|f| f.name.cmp(name)).ok()?;
    Some(&functions::FUNCTIONS[index])
}

/// All functions, sorted by name.
pub fn all() -> &'static [Function] {
    functions::FUNCTIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(all().is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(all().len(), 90);
        for function in all() {
            assert_eq!(lookup(function.name), Some(function));
        }
        assert_eq!(lookup("Rate"), None);
        assert_eq!(lookup(""), None);
    }

    #[test]
    fn only_variadic_functions_may_leave_out_an_argument() {
        let round = lookup("round").unwrap();
        assert_eq!((round.args.len(), round.variadic), (2, 1));
        assert!(all().iter().all(|f| f.variadic == 0 || !f.args.is_empty()));
    }
}
