//! The catalog of the language: each function of PromQL with its properties.
//!
//! It names no other part of the engine. The bodies of functions are in `exec`.

mod table;

use std::fmt;

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

/// A function's signature.
///
/// Source: `promql/parser/functions.go` of Prometheus.
#[derive(Debug, PartialEq)]
pub struct Signature {
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
}

/// The function of a name; names are case-sensitive.
pub fn lookup(name: &str) -> Option<&'static Signature> {
    let index = table::FUNCTIONS.binary_search_by(|f| f.name.cmp(name)).ok()?;
    Some(&table::FUNCTIONS[index])
}

/// All functions, sorted by name.
pub fn all() -> &'static [Signature] {
    table::FUNCTIONS
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
