//! Literals, calls, aggregations, parentheses.

use std::fmt::Write as _;

use super::super::ast::{AggregateOp, Expr, ExprKind, Span, ValueType};
use super::super::token::{Token, TokenKind};
use super::super::{Fault, check, literal};
use super::{Node, Scanner, Shape, Sign};
use crate::catalog;

impl Scanner<'_> {
    /// Reads an operand with its modifiers.
    pub(super) fn operand(&mut self) -> Result<Node, Fault> {
        let token = self.advance()?;
        self.count_node(token.start)?;
        let node = match token.kind {
            TokenKind::Number | TokenKind::Duration => self.number(token)?,
            TokenKind::String => self.string(token),
            TokenKind::LeftParen => self.paren(token)?,
            TokenKind::LeftBrace => self.vector_selector(None, token)?,
            TokenKind::Aggregate(op) if self.is_aggregation()? => self.aggregation(op, token)?,
            TokenKind::Identifier | TokenKind::Context(_)
                if self.peek()?.kind == TokenKind::LeftParen =>
            {
                self.call(token)?
            }
            kind if kind.is_metric_name() => self.named_selector(token)?,
            _ => return Err(self.unexpected(token)),
        };
        self.modified(node)
    }

    fn leaf(&mut self, shape: Shape, value_type: ValueType, kind: ExprKind, token: Token) -> Node {
        let span = Span { start: token.start as u32, end: token.end as u32 };
        self.prepass.leaves.push(Expr { kind, span });
        let (start, end) = (token.start, token.end);
        Node { shape, value_type, start, end, depth: 1, complaint: None }
    }

    fn number(&mut self, token: Token) -> Result<Node, Fault> {
        let (value, is_duration) = self.number_value(token)?;
        self.push_number(value);
        let kind = ExprKind::Number { value, is_duration };
        Ok(self.leaf(Shape::Number, ValueType::Scalar, kind, token))
    }

    /// Returns the value of a number or a duration in seconds, and whether it is a duration.
    pub(super) fn number_value(&self, token: Token) -> Result<(f64, bool), Fault> {
        let text = self.text(token);
        let is_duration = token.kind == TokenKind::Duration;
        let value = if is_duration {
            literal::duration(text)
        } else {
            literal::number(text).map_err(|error| format!("error parsing number: {error}"))
        };
        let value = value.map_err(|message| Fault { position: token.start, message })?;
        Ok((value, is_duration))
    }

    /// Writes a number for promql-parser such that it reads the same value.
    fn push_number(&mut self, value: f64) {
        let sign = if value.is_sign_negative() && !value.is_nan() { "-" } else { "" };
        let _ = write!(self.prepass.text, "{sign}{}", value.abs());
    }

    /// Makes signs part of the number after them.
    pub(super) fn fold_signs(&mut self, signs: &[Sign], operand: Node) -> Node {
        let start = signs.first().map_or(operand.start, |sign| sign.start);
        let is_negative = signs.iter().filter(|sign| sign.is_minus).count() % 2 == 1;
        let mut folded = 0.0;
        if let Some(leaf) = self.prepass.leaves.last_mut()
            && let ExprKind::Number { value, .. } = &mut leaf.kind
        {
            if is_negative {
                *value = -*value;
            }
            leaf.span.start = start as u32;
            folded = *value;
        }
        self.push_number(folded);
        Node { start, ..operand }
    }

    fn string(&mut self, token: Token) -> Node {
        let value = literal::unquote(self.text(token));
        // promql-parser reads escapes differently, so it gets an empty string.
        self.prepass.text.push_str("\"\"");
        self.leaf(Shape::Other, ValueType::String, ExprKind::String(value), token)
    }

    fn paren(&mut self, open: Token) -> Result<Node, Fault> {
        let index = self.prepass.parens.len();
        self.prepass.parens.push(Span::default());
        self.prepass.text.push('(');
        self.enter(open.start)?;
        let inner = self.expression(0)?;
        self.leave();
        let close = self.expect(TokenKind::RightParen)?;
        self.prepass.text.push(')');
        let (start, end) = (open.start, close.end);
        self.prepass.parens[index] = Span { start: start as u32, end: end as u32 };
        super::check_tree_depth(inner.depth + 1, start)?;
        Ok(Node { shape: Shape::Other, start, end, depth: inner.depth + 1, ..inner })
    }

    fn call(&mut self, name: Token) -> Result<Node, Fault> {
        let index = self.prepass.calls.len();
        let text = self.text(name);
        let found = catalog::lookup(text);
        if let Some(function) = found {
            self.prepass.calls.push((function, Span::default()));
        }
        self.prepass.text.push_str(text);
        let (args, close) = self.arguments()?;
        let fault = |message| Fault { position: name.start, message };
        let Some(function) = found else {
            let text = super::super::quote::quoted(text);
            return Err(fault(format!("unknown function with name {text}")));
        };
        if function.is_experimental && !self.options.experimental_functions {
            return Err(fault(format!("function {text:?} is not enabled")));
        }
        let (start, end) = (name.start, close.end);
        self.prepass.calls[index].1 = Span { start: start as u32, end: end as u32 };
        let depth = 1 + args.iter().map(|arg| arg.depth).max().unwrap_or_default();
        super::check_tree_depth(depth, start)?;
        let complaint = check::call(function, start, args);
        let value_type = function.returns;
        Ok(Node { shape: Shape::Other, value_type, start, end, depth, complaint })
    }

    /// Reads `(…)` with comma-separated expressions.
    fn arguments(&mut self) -> Result<(Vec<Node>, Token), Fault> {
        let open = self.expect(TokenKind::LeftParen)?;
        self.prepass.text.push('(');
        let mut args = Vec::new();
        self.enter(open.start)?;
        if self.peek()?.kind != TokenKind::RightParen {
            args.push(self.expression(0)?);
            while let Some(comma) = self.accept(TokenKind::Comma)? {
                if !self.peek()?.kind.starts_expression() {
                    let message = "trailing commas not allowed in function call args".to_owned();
                    return Err(Fault { position: comma.start, message });
                }
                self.prepass.text.push_str(", ");
                args.push(self.expression(0)?);
            }
        }
        let close = self.expect(TokenKind::RightParen)?;
        self.leave();
        self.prepass.text.push(')');
        Ok((args, close))
    }

    /// Returns whether the aggregation name that was just read is not a metric name.
    fn is_aggregation(&mut self) -> Result<bool, Fault> {
        Ok(self.peek()?.kind == TokenKind::LeftParen || self.is_grouping()?)
    }

    fn aggregation(&mut self, op: AggregateOp, name: Token) -> Result<Node, Fault> {
        let index = self.prepass.aggregates.len();
        self.prepass.aggregates.push(Span::default());
        self.open_aggregates += 1;
        self.prepass.text.push_str(op.as_str());
        let mut end = if self.is_grouping()? { Some(self.grouping()?) } else { None };
        let is_prefixed = end.is_some();
        let (args, close) = self.arguments()?;
        if !is_prefixed && self.is_grouping()? {
            end = Some(self.grouping()?);
        }
        self.open_aggregates -= 1;
        let start = name.start;
        let end = end.unwrap_or_default().max(close.end);
        self.prepass.aggregates[index] = Span { start: start as u32, end: end as u32 };
        let fault = |message| Err(Fault { position: start, message });
        if args.is_empty() {
            return fault("no arguments for aggregate expression provided".to_owned());
        }
        let is_experimental = matches!(op, AggregateOp::Limitk | AggregateOp::LimitRatio);
        if is_experimental && !self.options.experimental_functions {
            return fault(format!(
                "{}() is experimental and must be enabled with \
                 --enable-feature=promql-experimental-functions",
                op.as_str()
            ));
        }
        let expected = if has_parameter(op) { 2 } else { 1 };
        if args.len() != expected {
            return fault(format!(
                "wrong number of arguments for aggregate expression provided, \
                 expected {expected}, got {}",
                args.len()
            ));
        }
        let depth = 1 + args.iter().map(|arg| arg.depth).max().unwrap_or_default();
        super::check_tree_depth(depth, start)?;
        let complaint = check::aggregate(op, args);
        let value_type = ValueType::Vector;
        Ok(Node { shape: Shape::Other, value_type, start, end, depth, complaint })
    }
}

/// Returns whether an aggregation takes a parameter before its operand.
pub(super) fn has_parameter(op: AggregateOp) -> bool {
    matches!(
        op,
        AggregateOp::Topk
            | AggregateOp::Bottomk
            | AggregateOp::Quantile
            | AggregateOp::CountValues
            | AggregateOp::Limitk
            | AggregateOp::LimitRatio
    )
}
