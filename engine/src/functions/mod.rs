//! The table of functions: names, argument types, return types, stability.

use crate::parse::ast::ValueType;

/// A function's signature.
///
/// Source: `promql/parser/functions.go` of Prometheus.
#[derive(Debug, PartialEq)]
pub struct Signature {
    /// The name.
    pub name: &'static str,
    /// The types of the arguments; the last one repeats where the function is variadic.
    pub args: &'static [ValueType],
    /// 0: exactly `args`; n > 0: up to n of the last may be left out or repeated as
    /// Prometheus counts them; -1: any number of the last one.
    pub variadic: i32,
    /// What it returns.
    pub returns: ValueType,
    /// Whether Prometheus has it behind a flag.
    pub is_experimental: bool,
}
