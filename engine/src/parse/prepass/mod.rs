//! The lexical pass: one walk over the tokens that knows positions.
//!
//! It does four things that promql-parser cannot be asked for:
//! - It stops at the first place where Prometheus stops, with the same message. The order of
//!   complaints is that of an LR parser: lexical and syntactic ones as the tokens come,
//!   types only when all of the query is well-formed.
//! - It bounds length, nesting and size before anything recurses.
//! - It lifts out what the crate reads differently or not at all, each in its own file:
//!   selectors with their ranges and modifiers ([`selector`], [`range`], [`modifier`]),
//!   literals ([`operand`]), trim operators and unary plus (here).
//! - It notes where everything stands, in the order of the text.
//!
//! What remains is a text in the crate's language ([`Prepass::text`]), from which the crate
//! builds the tree; `convert` walks that tree in the order of the text, and takes what was lifted
//! and noted from the lists one after another.

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

/// What the crate is to parse, and what is put back afterwards.
#[derive(Debug, Default)]
pub(super) struct Prepass {
    /// The query in the crate's language.
    pub text: String,
    /// Literals, selectors and range selectors, complete.
    pub leaves: Vec<Expr>,
    /// Signs that are not part of a number.
    pub signs: Vec<Sign>,
    /// Binary operators.
    pub operators: Vec<BinaryOp>,
    /// Parentheses around expressions, in the order of the opening ones.
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
    /// Whether it is a minus; the crate is given a minus for either.
    pub is_minus: bool,
    /// Where it stands.
    pub start: usize,
}

/// A subquery without its inner expression.
#[derive(Debug)]
pub(super) struct SubqueryMark {
    /// Its range.
    pub range: DurationExpr,
    /// Its resolution.
    pub step: Option<DurationExpr>,
    /// Its offset.
    pub offset: Option<DurationExpr>,
    /// Its time.
    pub at: Option<super::ast::At>,
    /// Where it ends.
    pub end: usize,
}

impl SubqueryMark {
    /// The subquery around an inner expression.
    pub fn around(self, expr: Expr) -> Subquery {
        let SubqueryMark { range, step, offset, at, .. } = self;
        Subquery { expr: Box::new(expr), range, step, offset, at }
    }
}

/// What the walk knows of the expression that it has just read.
#[derive(Debug)]
pub(super) struct Node {
    pub shape: Shape,
    pub value_type: ValueType,
    pub start: usize,
    pub end: usize,
    /// How deep the tree is that stands here.
    pub depth: usize,
    /// The first complaint about types in it, in the order in which Prometheus checks.
    pub complaint: Option<Box<Fault>>,
}

/// The kinds of expressions that modifiers tell apart.
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

/// How strongly `^` binds; a unary sign binds less.
const POWER_PRECEDENCE: u8 = 6;

/// Reads a whole query.
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
    /// Where the token that was taken last ends.
    last_end: usize,
    options: ParseOptions,
    prepass: Prepass,
    /// Aggregations that are still open; a syntax error inside one is put down to it.
    open_aggregates: usize,
    /// Levels of recursion.
    depth: usize,
    /// Nodes so far.
    node_count: usize,
    /// Nodes so far, each counted once for every aggregation around it.
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

    /// Takes the next token if it is of a kind.
    fn accept(&mut self, kind: TokenKind) -> Result<Option<Token>, Fault> {
        if self.peek()?.kind == kind { self.advance().map(Some) } else { Ok(None) }
    }

    /// Takes the next token, which has to be of a kind.
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

    /// The complaint about a token where nothing says what was expected.
    fn unexpected(&self, token: Token) -> Fault {
        let context = if self.open_aggregates > 0 { " in aggregation" } else { "" };
        let what = token.describe(self.query);
        Fault { position: token.start, message: format!("unexpected {what}{context}") }
    }

    /// The complaint about a token inside a construct that says what it expected.
    fn unexpected_in(&self, token: Token, context: &str, expected: &str) -> Fault {
        let what = token.describe(self.query);
        Fault {
            position: token.start,
            message: format!("unexpected {what} in {context}, expected {expected}"),
        }
    }

    /// Counts a level of recursion; the caller calls `leave` unless it fails.
    fn enter(&mut self, position: usize) -> Result<(), Fault> {
        self.depth += 1;
        check_nesting(self.depth, position)
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Counts a node of the tree.
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

    /// Reads an expression whose operators bind at least so strongly.
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
                // `bool`, so that scalars may stand on both sides.
                BinaryOp::TrimUpper => "< bool",
                BinaryOp::TrimLower => "> bool",
                op => op.as_str(),
            };
            let _ = write!(self.prepass.text, " {given} ");
            let modifiers = self.binary_modifiers()?;
            self.enter(token.start)?;
            // All but `^` group from the left.
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

    /// Reads signs and what they stand before.
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

/// How strongly an operator binds.
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
