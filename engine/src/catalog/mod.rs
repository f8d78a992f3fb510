//! The catalog of the language: each function of PromQL with its properties, and other words.
//!
//! It names no other part of the engine. The bodies of functions are in `exec`.

mod functions;
mod words;

use std::fmt;

pub use functions::{
    BoundFunction, DateFunction, FunctionId, HistogramFunction, LabelFunction, MathFunction,
    NativeHistogramFunction, QueryTimeFunction, RollupFunction, SortFunction,
};
pub use words::{AGGREGATIONS, KEYWORDS, Word};

/// What an expression evaluates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// One number a step.
    Scalar,
    /// A text.
    String,
    /// One value a series and step.
    Vector,
    /// Samples over a range, a series and step.
    Matrix,
}

impl fmt::Display for ValueType {
    /// As Prometheus' error messages name the types.
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
    /// Identity, by which its body is found.
    pub id: FunctionId,
    /// The name.
    pub name: &'static str,
    /// The types of the arguments; the last one repeats where the function is variadic.
    pub args: &'static [ValueType],
    /// 0: exactly `args`. n > 0: at least all but the last of `args`, and n more at most.
    /// -1: at least all but the last of `args`, and any number more.
    pub variadic: i32,
    /// What it returns.
    pub returns: ValueType,
    /// Whether Prometheus has it behind a flag.
    pub is_experimental: bool,
    /// Effect on the names of metrics.
    pub names: Names,
    /// Treatment of native histograms.
    pub histograms: Histograms,
    /// Modifiers of the range that it takes.
    pub modes: RangeModes,
    /// Whether its value depends on the evaluation time even where its arguments do not.
    ///
    /// Source: `AtModifierUnsafeFunctions` of Prometheus.
    pub is_timed: bool,
    /// Whether the result cache may keep its values: a value at a step follows from the arguments
    /// at the step, or from the samples of their range, and there is nothing to warn of.
    pub is_cacheable: bool,
    /// The parameters as the page shows them.
    pub parameters: &'static str,
    /// What it returns, in a few words for the page.
    pub summary: &'static str,
}

/// Parts of a row.
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

/// Effect of a function on the names of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// The series keep their names.
    Kept,
    /// The names are removed, at once or at the end of the query, and with them the other labels
    /// that describe a metric.
    Dropped,
    /// The names are removed; at once without the other labels that describe a metric.
    DroppedAlone,
    /// The result is a scalar, or a series that is made anew.
    None,
}

/// Treatment of native histograms by a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Histograms {
    /// The result does not have them; also where the function takes no series.
    Dropped,
    /// The result has histograms for them.
    Kept,
    /// They are compared with each other; the result is a number.
    Compared,
    /// They count as samples, whatever is in them; the result is a number.
    Counted,
    /// The result is a number made of their counts and sums; buckets are not needed for it.
    Summarized,
    /// The result is a number made of the whole histogram.
    Answered,
    /// The result is a number made of their buckets, which are needed whatever is done with it.
    Buckets,
}

/// Modifiers of a range selector that a function takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeModes {
    /// None.
    Plain,
    /// `anchored`
    Anchored,
    /// `anchored` and `smoothed`
    AnchoredOrSmoothed,
}

/// The function of a name; names are case-sensitive.
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
