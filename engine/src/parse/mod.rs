//! Parsing: query text to a checked syntax tree. Only this module depends on promql-parser.
//!
//! ```text
//! text ── lexer ──▶ tokens ── prepass ──▶ text for the crate ── promql-parser ──▶ its tree
//!                               │                                                  │
//!                               └── leaves, positions ──────────▶ convert ◀────────┘
//!                                                                    │
//!                                                                    ▼
//!                                                                ast::Expr
//! ```
//!
//! [`prepass`] reports every error, with Prometheus' message and position; promql-parser gets only
//! well-formed, well-typed, bounded text.

pub mod ast;
mod check;
mod convert;
mod duration;
mod grammar;
mod json;
mod lexer;
mod literal;
mod names;
mod prepass;
mod print;
mod quote;

#[cfg(test)]
mod tests;
mod token;

pub use json::to_json;
pub use print::format;

use ast::Expr;
use model::Matcher;

use crate::error::QueryError;
use crate::span::row_and_column;

/// Maximum bytes of a query.
pub const QUERY_BYTES_MAX: usize = 1 << 20;
/// Maximum nesting of parentheses, calls, signs and right-associative operators.
pub const NESTING_MAX: usize = 128;
/// Maximum depth of the tree, which also counts chained operators: `a or b or c`.
pub const TREE_DEPTH_MAX: usize = 8192;
/// Maximum operands, operators and labels in lists.
pub const NODES_MAX: usize = 20_000;
/// Maximum matchers.
pub const MATCHERS_MAX: usize = 20_000;
/// Maximum regular expressions that do not reduce to plain alternatives.
pub const REGEXES_MAX: usize = 64;
/// Maximum nodes inside aggregations, counted once per enclosing aggregation: promql-parser copies
/// the operand of each aggregation.
pub const AGGREGATED_NODES_MAX: usize = 500_000;

/// Maximum bytes of a plain query; see [`is_plain`].
const PLAIN_BYTES_MAX: usize = 512;
const PLAIN_NESTING_MAX: usize = 20;

/// Enabled experimental parts of the language.
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
    /// All experimental parts.
    pub const ALL: ParseOptions = ParseOptions {
        experimental_functions: true,
        duration_expressions: true,
        extended_range_selectors: true,
        fill_modifiers: true,
    };
    /// Default of Prometheus 3.14 without feature flags: only duration expressions.
    pub const STABLE: ParseOptions = ParseOptions {
        experimental_functions: false,
        duration_expressions: true,
        extended_range_selectors: false,
        fill_modifiers: false,
    };
}

impl Default for ParseOptions {
    fn default() -> Self {
        ParseOptions::ALL
    }
}

/// An error with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    /// Byte offset in the query.
    position: usize,
    /// Error message.
    message: String,
}

impl Fault {
    /// Adds line and column.
    fn into_error(self, query: &str) -> QueryError {
        let message = self.message;
        QueryError::Parse(if query.is_empty() {
            format!("unknown position: parse error: {message}")
        } else {
            let (row, column) = row_and_column(query, self.position);
            format!("{row}:{column}: parse error: {message}")
        })
    }
}

/// Parses and checks a query.
///
/// Errors: [`QueryError::Parse`] with line, column and message of Prometheus, also if a limit above
/// is exceeded.
pub fn parse(query: &str, options: &ParseOptions) -> Result<Expr, QueryError> {
    check_length(query)?;
    let prepass = prepass::prepass(query, *options).map_err(|fault| fault.into_error(query))?;
    let refused = |what: &str| {
        let message = format!("promql-parser rejects the expression: {what}");
        Fault { position: 0, message }.into_error(query)
    };
    let tree = grammar::parse(&prepass.text).map_err(|message| refused(&message))?;
    convert::convert(&tree, prepass).map_err(|mismatch| refused(mismatch.0))
}

/// Parses a selector without modifiers, as in `match[]`. The matcher for the name before the
/// braces comes last.
///
/// Errors: [`QueryError::Parse`]. A selector that matches everything is allowed here
/// (see [`require_condition`]).
/// Source: `ParseMetricSelector` of Prometheus.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    check_length(text)?;
    prepass::selector(text).map_err(|fault| fault.into_error(text))
}

/// Rejects a selector that matches everything, for the metadata endpoints.
///
/// Source: `parseMatchersParam` of Prometheus.
pub fn require_condition(matchers: &[Matcher]) -> Result<(), QueryError> {
    if matchers.iter().all(Matcher::matches_empty) {
        let message = "match[] must contain at least one non-empty matcher";
        return Err(QueryError::Parse(message.to_owned()));
    }
    Ok(())
}

/// Returns whether parsing and planning are quick and need little stack: the text is short, nests
/// little, and has no regular expression, which may take long to compile.
pub fn is_plain(text: &str) -> bool {
    let nests = |byte: &u8| b"([{+-*/%^<>=!@ \t\r\n#".contains(byte);
    text.len() <= PLAIN_BYTES_MAX
        && text.bytes().filter(nests).count() <= PLAIN_NESTING_MAX
        && !text.contains('~')
        && !text.contains("label_replace")
}

fn check_length(query: &str) -> Result<(), QueryError> {
    let bytes = query.len();
    if bytes > QUERY_BYTES_MAX {
        let message =
            format!("query of {bytes} bytes is longer than the limit of {QUERY_BYTES_MAX} bytes");
        return Err(Fault { position: 0, message }.into_error(query));
    }
    Ok(())
}
