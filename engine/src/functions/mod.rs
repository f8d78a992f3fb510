//! The functions of PromQL: the table of their signatures, and the bodies of those that act on
//! instant vectors and scalars. Functions of ranges live in `exec::rollup`.

mod buckets;
mod call;
mod classic_histogram;
mod date;
mod exp2;
mod info;
mod label;
mod math;
mod native_answers;
mod native_quantile;
mod natural_order;
mod sort;
mod table;
mod vector_scalar;

use crate::parse::ast::ValueType;

pub use call::{call, check_texts};
pub(crate) use date::rfc3339;
pub use info::InfoSelector;
pub use label::{LABEL_VALUE_BYTES_MAX, LABEL_VALUES_BYTES_MAX};
pub(crate) use math::{atan2, go_max, go_min};
pub(crate) use vector_scalar::absent;
pub use vector_scalar::absent_labels;

#[cfg(test)]
mod call_tests;

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
