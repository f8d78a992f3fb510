//! From query text to a checked syntax tree. The only module that names promql-parser.
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
//! [`prepass`] finds every mistake, with Prometheus' message and place; the crate sees
//! well-formed, well-typed, bounded text only.

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

/// The most bytes that a query may have.
pub const QUERY_BYTES_MAX: usize = 1 << 20;
/// The most levels of parentheses, calls, signs and operators that group from the right.
pub const NESTING_MAX: usize = 128;
/// The most levels that a tree may have, which also counts operators in a row: `a or b or c`.
pub const TREE_DEPTH_MAX: usize = 8192;
/// The most operands, operators and labels in lists that a query may have.
pub const NODES_MAX: usize = 20_000;
/// The most matchers that a query may have.
pub const MATCHERS_MAX: usize = 20_000;
/// The most regular expressions that a query may have, not counting plain alternatives.
pub const REGEXES_MAX: usize = 64;
/// The most parts that a query may have inside of aggregations, each counted once for every
/// aggregation around it: promql-parser copies the operand of each aggregation.
pub const AGGREGATED_NODES_MAX: usize = 500_000;

/// A text of so many bytes, and so many characters that may nest it, can be plain.
const PLAIN_BYTES_MAX: usize = 512;
const PLAIN_NESTING_MAX: usize = 20;

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
    /// What Prometheus 3.14 understands without flags: duration expressions, but no other
    /// experiment.
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

/// A mistake and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    /// The byte of the query.
    position: usize,
    /// What is wrong.
    message: String,
}

impl Fault {
    /// The error with line and column.
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

/// The checked syntax tree of a query.
///
/// Errors: [`QueryError::Parse`] with line and column and the words of Prometheus; also a query
/// that is beyond one of the limits above.
pub fn parse(query: &str, options: &ParseOptions) -> Result<Expr, QueryError> {
    check_length(query)?;
    let prepass = prepass::prepass(query, *options).map_err(|fault| fault.into_error(query))?;
    let refused = |what: &str| {
        let message = format!("the grammar does not take this expression: {what}");
        Fault { position: 0, message }.into_error(query)
    };
    let tree = grammar::parse(&prepass.text).map_err(|message| refused(&message))?;
    convert::convert(&tree, prepass).map_err(|mismatch| refused(mismatch.0))
}

/// The matchers of a selector without modifiers, as `match[]` takes it. The one on the
/// name before the braces comes last.
///
/// Errors: [`QueryError::Parse`]; a selector that matches everything is none
/// (see [`require_condition`]).
/// Source: `ParseMetricSelector` of Prometheus.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    check_length(text)?;
    prepass::selector(text).map_err(|fault| fault.into_error(text))
}

/// Refuses a selector of the metadata endpoints that would select everything.
///
/// Source: `parseMatchersParam` of Prometheus.
pub fn require_condition(matchers: &[Matcher]) -> Result<(), QueryError> {
    if matchers.iter().all(Matcher::matches_empty) {
        let message = "match[] must contain at least one non-empty matcher";
        return Err(QueryError::Parse(message.to_owned()));
    }
    Ok(())
}

/// Whether a text is read and planned at once, with little stack: it is short and hardly nested,
/// and holds no regular expression, which may take long to compile.
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
