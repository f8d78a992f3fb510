//! The prepass: one pass over the tokens that records positions.
//!
//! It does four things that promql-parser does not:
//! - It stops at the same error as Prometheus, with the same message. As with an LR parser,
//!   lexical and syntax errors are reported in the order of tokens, and type errors only if the
//!   whole query is well-formed.
//! - It limits length, nesting and size before any recursion.
//! - It extracts the parts that promql-parser reads differently or not at all, each in its own
//!   file: selectors with ranges and modifiers ([`selector`], [`range`], [`modifier`]), literals
//!   ([`operand`]), trim operators and unary plus (here).
//! - It records positions in the order of the text.
//!
//! The result is a text for promql-parser ([`Prepass::text`]), which builds the tree. `convert`
//! walks that tree in the order of the text and inserts the extracted parts and positions.

mod modifier;
mod operand;
mod range;
mod selector;

use std::fmt::Write as _;

pub(super) use modifier::BinaryModifiers;

use super::ast::{BinaryOp, DurationExpr, Expr, Span, Subquery, ValueType};
use super::check::{self, BinaryOperands};
use super::lexer::Lexer;
use super::token::{Token, TokenKind};
use super::{AGGREGATED_NODES_MAX, Fault, NESTING_MAX, NODES_MAX, ParseOptions, TREE_DEPTH_MAX};
use crate::catalog::Function;

/// The text for promql-parser, and the parts to insert afterwards.
#[derive(Debug, Default)]
pub(super) struct Prepass {
    /// The query as promql-parser reads it.
    pub text: String,
    /// Literals, selectors and range selectors.
    pub leaves: Vec<Expr>,
    /// Signs that are not part of a number.
    pub signs: Vec<Sign>,
    /// Binary operators.
    pub operators: Vec<BinaryOp>,
    /// Parentheses around expressions, in the order of their opening.
    pub parens: Vec<Span>,
    /// Calls, in the order of their names.
    pub calls: Vec<(&'static Function, Span)>,
    /// Aggregations, in the order of their names.
    pub aggregates: Vec<Span>,
    /// Subqueries, in the order of their closing brackets.
    pub subqueries: Vec<SubqueryMark>,
}

/// A unary operator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sign {
    /// True if it is a minus; promql-parser always gets a minus.
    pub is_minus: bool,
    /// Byte offset.
    pub start: usize,
}

/// A subquery without its inner expression.
#[derive(Debug)]
pub(super) struct SubqueryMark {
    /// Range.
    pub range: DurationExpr,
    /// Resolution.
    pub step: Option<DurationExpr>,
    /// Offset.
    pub offset: Option<DurationExpr>,
    /// Time of `@`.
    pub at: Option<super::ast::At>,
    /// Offset after its last byte.
    pub end: usize,
}

impl SubqueryMark {
    /// Returns the subquery of an inner expression.
    pub fn around(self, expr: Expr) -> Subquery {
        let SubqueryMark { range, step, offset, at, .. } = self;
        Subquery { expr: Box::new(expr), range, step, offset, at }
    }
}

/// Properties of the expression that was just read.
#[derive(Debug)]
pub(super) struct Node {
    pub shape: Shape,
    pub value_type: ValueType,
    pub start: usize,
    pub end: usize,
    /// Depth of its tree.
    pub depth: usize,
    /// Its first type error, in Prometheus' order of checks.
    pub complaint: Option<Box<Fault>>,
}

/// Kinds of expressions that modifiers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Number,
    /// A selector without a name before its braces.
    Selector,
    /// A selector that starts with a name.
    NamedSelector,
    Matrix,
    Subquery,
    Other,
}

/// Precedence of `^`, which is higher than that of a sign.
const POWER_PRECEDENCE: u8 = 6;

/// Reads a query.
pub(super) fn prepass(query: &str, options: ParseOptions) -> Result<Prepass, Fault> {
    let mut scanner = Scanner::new(query, options);
    if scanner.peek()?.kind == TokenKind::Eof {
        return Err(Fault { position: 0, message: "no expression found in input".to_owned() });
    }
    let node = scanner.expression(0)?;
    scanner.expect_end()?;
    match node.complaint {
        Some(fault) => Err(*fault),
        None => Ok(scanner.prepass),
    }
}

/// Reads a selector without modifiers.
pub(super) fn selector(query: &str) -> Result<Vec<model::Matcher>, Fault> {
    let mut scanner = Scanner::new(query, ParseOptions::ALL);
    let matchers = scanner.lone_selector()?;
    scanner.expect_end()?;
    Ok(matchers)
}

pub(super) struct Scanner<'a> {
    query: &'a str,
    lexer: Lexer<'a>,
    peeked: Option<Token>,
    /// End of the last token taken.
    last_end: usize,
    options: ParseOptions,
    prepass: Prepass,
    /// Open aggregations; a syntax error inside one mentions it.
    open_aggregates: usize,
    /// Recursion depth.
    depth: usize,
    /// Nodes so far.
    node_count: usize,
    /// Nodes so far, each counted once per enclosing aggregation.
    aggregated_node_count: usize,
    /// Matchers so far.
    matcher_count: usize,
    /// Regular expressions so far.
    regex_count: usize,
}

impl<'a> Scanner<'a> {
    fn new(query: &'a str, options: ParseOptions) -> Scanner<'a> {
        Scanner {
            query,
            lexer: Lexer::new(query),
            peeked: None,
            last_end: 0,
            options,
            prepass: Prepass::default(),
            open_aggregates: 0,
            depth: 0,
            node_count: 0,
            aggregated_node_count: 0,
            matcher_count: 0,
            regex_count: 0,
        }
    }

    fn peek(&mut self) -> Result<Token, Fault> {
        match self.peeked {
            Some(token) => Ok(token),
            None => {
                let token = self.lexer.next_token()?;
                self.peeked = Some(token);
                Ok(token)
            }
        }
    }

    fn advance(&mut self) -> Result<Token, Fault> {
        let token = self.peek()?;
        self.peeked = None;
        self.last_end = token.end;
        Ok(token)
    }

    /// Takes the next token if it is of the given kind.
    fn accept(&mut self, kind: TokenKind) -> Result<Option<Token>, Fault> {
        if self.peek()?.kind == kind { self.advance().map(Some) } else { Ok(None) }
    }

    /// Takes the next token and requires the given kind.
    fn expect(&mut self, kind: TokenKind) -> Result<Token, Fault> {
        let token = self.advance()?;
        if token.kind == kind { Ok(token) } else { Err(self.unexpected(token)) }
    }

    fn expect_end(&mut self) -> Result<(), Fault> {
        self.expect(TokenKind::Eof).map(|_| ())
    }

    fn text(&self, token: Token) -> &'a str {
        &self.query[token.start..token.end]
    }

    /// Returns the error for an unexpected token without naming alternatives.
    fn unexpected(&self, token: Token) -> Fault {
        let context = if self.open_aggregates > 0 { " in aggregation" } else { "" };
        let what = token.describe(self.query);
        Fault { position: token.start, message: format!("unexpected {what}{context}") }
    }

    /// Returns the error for an unexpected token in a construct, with the expected alternatives.
    fn unexpected_in(&self, token: Token, context: &str, expected: &str) -> Fault {
        let what = token.describe(self.query);
        Fault {
            position: token.start,
            message: format!("unexpected {what} in {context}, expected {expected}"),
        }
    }

    /// Enters a level of recursion; unless it fails, the caller calls `leave` afterwards.
    fn enter(&mut self, position: usize) -> Result<(), Fault> {
        self.depth += 1;
        check_nesting(self.depth, position)
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Counts a node.
    fn count_node(&mut self, position: usize) -> Result<(), Fault> {
        self.node_count += 1;
        self.aggregated_node_count += self.open_aggregates;
        let message = if self.node_count > NODES_MAX {
            format!("query has more than {NODES_MAX} parts, which is the limit")
        } else if self.aggregated_node_count > AGGREGATED_NODES_MAX {
            format!(
                "query has more than {AGGREGATED_NODES_MAX} parts within aggregations, which is the limit"
            )
        } else {
            return Ok(());
        };
        Err(Fault { position, message })
    }

    /// Reads an expression of operators with at least the given precedence.
    fn expression(&mut self, precedence_min: u8) -> Result<Node, Fault> {
        let mut lhs = self.signed()?;
        loop {
            let TokenKind::Operator(op) = self.peek()?.kind else { return Ok(lhs) };
            let precedence = precedence(op);
            if precedence < precedence_min {
                return Ok(lhs);
            }
            let token = self.advance()?;
            self.count_node(token.start)?;
            self.prepass.operators.push(op);
            let given = match op {
                // `bool` allows scalars on both sides.
                BinaryOp::TrimUpper => "< bool",
                BinaryOp::TrimLower => "> bool",
                op => op.as_str(),
            };
            let _ = write!(self.prepass.text, " {given} ");
            let modifiers = self.binary_modifiers()?;
            self.enter(token.start)?;
            // All operators except `^` are left-associative.
            let rhs = self.expression(precedence + u8::from(precedence < POWER_PRECEDENCE))?;
            self.leave();
            if modifiers.has_fill() && !self.options.fill_modifiers {
                let message = "binop fill modifiers are experimental and not enabled".to_owned();
                return Err(Fault { position: lhs.start, message });
            }
            check_tree_depth(lhs.depth.max(rhs.depth) + 1, lhs.start)?;
            lhs = check::binary(self.query, BinaryOperands { op, lhs, rhs, modifiers });
        }
    }

    /// Reads signs and their operand.
    fn signed(&mut self) -> Result<Node, Fault> {
        let text_len = self.prepass.text.len();
        let first_sign = self.prepass.signs.len();
        while let TokenKind::Operator(op @ (BinaryOp::Add | BinaryOp::Sub)) = self.peek()?.kind {
            let token = self.advance()?;
            let sign = Sign { is_minus: op == BinaryOp::Sub, start: token.start };
            self.count_node(token.start)?;
            self.prepass.signs.push(sign);
            self.prepass.text.push('-');
            check_nesting(self.depth + self.prepass.signs.len() - first_sign, token.start)?;
        }
        if self.prepass.signs.len() == first_sign {
            return self.operand();
        }
        let count = self.prepass.signs.len() - first_sign;
        let signs_end = self.prepass.signs.len();
        self.depth += count;
        let operand = self.expression(POWER_PRECEDENCE)?;
        self.depth -= count;
        if operand.shape == Shape::Number {
            let signs: Vec<Sign> = self.prepass.signs.drain(first_sign..signs_end).collect();
            self.prepass.text.truncate(text_len);
            return Ok(self.fold_signs(&signs, operand));
        }
        check_tree_depth(operand.depth + count, operand.start)?;
        let mut node = operand;
        for index in (first_sign..signs_end).rev() {
            node = check::unary(self.prepass.signs[index], node);
        }
        Ok(node)
    }
}

fn check_nesting(depth: usize, position: usize) -> Result<(), Fault> {
    if depth > NESTING_MAX {
        let message = format!("expression is nested more than {NESTING_MAX} levels deep");
        return Err(Fault { position, message });
    }
    Ok(())
}

fn check_tree_depth(depth: usize, position: usize) -> Result<(), Fault> {
    if depth > TREE_DEPTH_MAX {
        let message = format!("expression is a tree of more than {TREE_DEPTH_MAX} levels deep");
        return Err(Fault { position, message });
    }
    Ok(())
}

/// Returns the precedence of an operator.
fn precedence(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Or => 1,
        BinaryOp::And | BinaryOp::Unless => 2,
        op if op.is_comparison() => 3,
        BinaryOp::TrimUpper | BinaryOp::TrimLower => 3,
        BinaryOp::Add | BinaryOp::Sub => 4,
        BinaryOp::Pow => POWER_PRECEDENCE,
        _ => 5,
    }
}
