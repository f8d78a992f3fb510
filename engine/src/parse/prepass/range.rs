//! Ranges, resolutions and offsets. They are extracted because promql-parser supports only literals
//! and loses fractions of a millisecond and the notation of durations.

use super::super::Fault;
use super::super::ast::{
    BinaryOp, DurationExpr, DurationKind, ExprKind, MatrixSelector, Span, ValueType,
};
use super::super::check;
use super::super::duration::is_out_of_range;
use super::super::token::{Context, Token, TokenKind};
use super::{Node, Scanner, Shape, SubqueryMark};

/// Construct and expected alternatives, for an error message.
type Expected = (&'static str, &'static str);

const IN_OFFSET: Expected = ("offset", "number, duration, step(), or range()");
const IN_RANGE: Expected = ("subquery or range selector", "number, duration, step(), or range()");
const AFTER_RANGE: Expected = ("subquery or range", "\":\" or \"]\"");
const IN_STEP: Expected = ("subquery selector", "number, duration, step(), range(), or \"]\"");
const AFTER_STEP: Expected = ("subquery selector", "\"]\"");

/// Precedence of `^` in a duration, which is higher than that of a sign.
const POWER_PRECEDENCE: u8 = 3;

impl Scanner<'_> {
    /// Reads `[…]` after an expression.
    pub(super) fn bracket(&mut self, node: Node) -> Result<Node, Fault> {
        let open = self.advance()?;
        let range = self.positive_duration(IN_RANGE)?;
        let token = self.advance()?;
        match token.kind {
            TokenKind::RightBracket => self.matrix(node, open, token, range),
            TokenKind::Colon => {
                let step = if self.peek()?.kind == TokenKind::RightBracket {
                    None
                } else {
                    Some(self.positive_duration(IN_STEP)?)
                };
                let close = self.advance()?;
                if close.kind != TokenKind::RightBracket {
                    return Err(self.unexpected_in(close, AFTER_STEP.0, AFTER_STEP.1));
                }
                self.subquery(node, close, range, step)
            }
            _ => Err(self.unexpected_in(token, AFTER_RANGE.0, AFTER_RANGE.1)),
        }
    }

    fn matrix(
        &mut self,
        node: Node,
        open: Token,
        close: Token,
        range: DurationExpr,
    ) -> Result<Node, Fault> {
        let fault =
            |message: &str| Err(Fault { position: open.start, message: message.to_owned() });
        let leaf = self.prepass.leaves.last_mut();
        let (Shape::Selector | Shape::NamedSelector, Some(leaf)) = (node.shape, leaf) else {
            return fault("ranges only allowed for vector selectors");
        };
        let ExprKind::Selector(selector) = &mut leaf.kind else {
            return fault("ranges only allowed for vector selectors");
        };
        // Like Prometheus, accepts computed offsets and `@ start()`.
        if selector
            .offset
            .as_ref()
            .is_some_and(|offset| matches!(offset.kind, DurationKind::Literal { .. }))
        {
            return fault("no offset modifiers allowed before range");
        }
        if matches!(selector.at, Some(super::super::ast::At::Time(_))) {
            return fault("no @ modifiers allowed before range");
        }
        let selector_span = leaf.span;
        leaf.span.end = close.end as u32;
        let kind = std::mem::replace(&mut leaf.kind, ExprKind::String(String::new()));
        if let ExprKind::Selector(selector) = kind {
            leaf.kind = ExprKind::Matrix(MatrixSelector { selector, selector_span, range });
        }
        self.prepass.text.push_str("[1s]");
        let (shape, value_type) = (Shape::Matrix, ValueType::Matrix);
        Ok(Node { shape, value_type, end: close.end, ..node })
    }

    fn subquery(
        &mut self,
        node: Node,
        close: Token,
        range: DurationExpr,
        step: Option<DurationExpr>,
    ) -> Result<Node, Fault> {
        let end = close.end;
        self.prepass.subqueries.push(SubqueryMark { range, step, offset: None, at: None, end });
        self.prepass.text.push_str("[1s:]");
        super::check_tree_depth(node.depth + 1, node.start)?;
        Ok(check::subquery(node, end))
    }

    fn positive_duration(&mut self, expected: Expected) -> Result<DurationExpr, Fault> {
        let duration = self.duration(0, expected)?;
        // As in an LR parser, an error in the next token has priority.
        self.peek()?;
        if let DurationKind::Literal { seconds, .. } = duration.kind
            && seconds <= 0.0
        {
            let message = "duration must be greater than 0".to_owned();
            return Err(Fault { position: duration.span.start as usize, message });
        }
        Ok(duration)
    }

    /// Reads the duration after `offset`.
    ///
    /// Operators after it belong to the enclosing expression, unless it starts with a parenthesis
    /// or two signs.
    /// Source: the rule `offset_duration_expr` of Prometheus.
    pub(super) fn offset_duration(&mut self) -> Result<DurationExpr, Fault> {
        let sign = self.peek()?;
        let TokenKind::Operator(op @ (BinaryOp::Add | BinaryOp::Sub)) = sign.kind else {
            return if sign.kind == TokenKind::LeftParen {
                self.duration(0, IN_OFFSET)
            } else {
                self.duration_primary(IN_OFFSET)
            };
        };
        self.advance()?;
        let next = self.peek()?;
        match next.kind {
            TokenKind::Operator(BinaryOp::Add | BinaryOp::Sub) => {
                let operand = self.duration(POWER_PRECEDENCE, IN_OFFSET)?;
                let first = self.signed_duration(sign, operand)?;
                self.duration_operators(first, 0, IN_OFFSET)
            }
            TokenKind::Number | TokenKind::Duration => {
                self.advance()?;
                let operand = self.literal_duration(next)?;
                self.signed_duration(sign, operand)
            }
            TokenKind::LeftParen => {
                self.advance()?;
                let mut operand = self.duration(0, IN_OFFSET)?;
                self.expect_in(TokenKind::RightParen, IN_OFFSET)?;
                wrap(&mut operand);
                self.signed_duration(sign, operand)
            }
            // Before a function, even a plus is kept.
            _ => {
                let operand = self.duration_function(IN_OFFSET)?;
                let span = Span { start: sign.start as u32, end: operand.span.end };
                let is_minus = op == BinaryOp::Sub;
                let kind = DurationKind::Unary { is_minus, operand: Box::new(operand) };
                let duration = DurationExpr { kind, span, is_wrapped: false };
                self.require_expressions(&duration)?;
                Ok(duration)
            }
        }
    }

    /// Reads a duration of operators with at least the given precedence.
    fn duration(&mut self, precedence_min: u8, expected: Expected) -> Result<DurationExpr, Fault> {
        let token = self.peek()?;
        self.enter(token.start)?;
        let first = match token.kind {
            TokenKind::Operator(BinaryOp::Add | BinaryOp::Sub) => {
                self.advance()?;
                let operand = self.duration(POWER_PRECEDENCE, expected)?;
                self.signed_duration(token, operand)?
            }
            _ => self.duration_primary(expected)?,
        };
        let duration = self.duration_operators(first, precedence_min, expected)?;
        self.leave();
        Ok(duration)
    }

    fn duration_operators(
        &mut self,
        first: DurationExpr,
        precedence_min: u8,
        expected: Expected,
    ) -> Result<DurationExpr, Fault> {
        let mut lhs = first;
        let mut levels = 0;
        loop {
            let token = self.peek()?;
            let TokenKind::Operator(op) = token.kind else { return Ok(lhs) };
            let Some((precedence, symbol)) = duration_operator(op) else { return Ok(lhs) };
            if precedence < precedence_min {
                return Ok(lhs);
            }
            self.advance()?;
            self.count_node(token.start)?;
            levels += 1;
            super::check_nesting(self.depth + levels, token.start)?;
            let next_min = precedence + u8::from(precedence < POWER_PRECEDENCE);
            let rhs = self.duration(next_min, expected)?;
            self.require_expressions(&lhs)?;
            if let DurationKind::Literal { seconds: 0.0, .. } = rhs.kind
                && matches!(op, BinaryOp::Div | BinaryOp::Mod)
            {
                let what = if op == BinaryOp::Div { "division" } else { "modulo" };
                let message = format!("{what} by zero");
                return Err(Fault { position: token.start, message });
            }
            let span = Span { start: lhs.span.start, end: rhs.span.end };
            let (lhs_box, rhs) = (Box::new(lhs), Box::new(rhs));
            let kind = DurationKind::Binary { op: symbol, lhs: lhs_box, rhs };
            lhs = DurationExpr { kind, span, is_wrapped: false };
        }
    }

    /// Reads a literal, a function or parentheses.
    fn duration_primary(&mut self, expected: Expected) -> Result<DurationExpr, Fault> {
        let token = self.peek()?;
        self.count_node(token.start)?;
        match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                self.advance()?;
                let duration = self.literal_duration(token)?;
                check_range(&duration, token)?;
                Ok(duration)
            }
            TokenKind::LeftParen => {
                self.advance()?;
                let mut inner = self.duration(0, expected)?;
                self.expect_in(TokenKind::RightParen, expected)?;
                self.require_expressions(&inner)?;
                wrap(&mut inner);
                Ok(inner)
            }
            _ => {
                let duration = self.duration_function(expected)?;
                self.require_expressions(&duration)?;
                Ok(duration)
            }
        }
    }

    fn literal_duration(&self, token: Token) -> Result<DurationExpr, Fault> {
        let (seconds, is_duration) = self.number_value(token)?;
        let kind = DurationKind::Literal { seconds, is_duration };
        let span = Span { start: token.start as u32, end: token.end as u32 };
        Ok(DurationExpr { kind, span, is_wrapped: false })
    }

    fn duration_function(&mut self, expected: Expected) -> Result<DurationExpr, Fault> {
        let token = self.advance()?;
        let context = match token.kind {
            TokenKind::Context(context) if context.is_in_durations() => context,
            _ => return Err(self.unexpected_in(token, expected.0, expected.1)),
        };
        self.expect_in(TokenKind::LeftParen, expected)?;
        if matches!(context, Context::Step | Context::Range) {
            let close = self.expect_in(TokenKind::RightParen, expected)?;
            let is_step = context == Context::Step;
            let kind = if is_step { DurationKind::Step } else { DurationKind::Range };
            let span = Span { start: token.start as u32, end: close.end as u32 };
            return Ok(DurationExpr { kind, span, is_wrapped: false });
        }
        let a = Box::new(self.duration(0, expected)?);
        self.expect_in(TokenKind::Comma, expected)?;
        let b = Box::new(self.duration(0, expected)?);
        self.expect_in(TokenKind::RightParen, expected)?;
        // As in Prometheus, the span excludes the name and the parentheses.
        let span = Span { start: a.span.start, end: b.span.end };
        let is_min = context == Context::MinOf;
        let kind = if is_min { DurationKind::MinOf(a, b) } else { DurationKind::MaxOf(a, b) };
        Ok(DurationExpr { kind, span, is_wrapped: false })
    }

    fn expect_in(&mut self, kind: TokenKind, expected: Expected) -> Result<Token, Fault> {
        let token = self.advance()?;
        if token.kind == kind {
            Ok(token)
        } else {
            Err(self.unexpected_in(token, expected.0, expected.1))
        }
    }

    /// Applies a sign to a duration: inside a literal, otherwise around it; a plus is dropped.
    fn signed_duration(
        &self,
        sign: Token,
        mut operand: DurationExpr,
    ) -> Result<DurationExpr, Fault> {
        let is_minus = sign.kind == TokenKind::Operator(BinaryOp::Sub);
        if let DurationKind::Literal { seconds, .. } = &mut operand.kind {
            if is_minus {
                *seconds = -*seconds;
            }
            check_range(&operand, sign)?;
            operand.span.start = sign.start as u32;
            return Ok(operand);
        }
        if !is_minus {
            return Ok(operand);
        }
        let span = Span { start: sign.start as u32, end: operand.span.end };
        let kind = DurationKind::Unary { is_minus: true, operand: Box::new(operand) };
        Ok(DurationExpr { kind, span, is_wrapped: false })
    }

    fn require_expressions(&self, duration: &DurationExpr) -> Result<(), Fault> {
        if self.options.duration_expressions {
            return Ok(());
        }
        let message = "experimental duration expression is not enabled".to_owned();
        Err(Fault { position: duration.span.start as usize, message })
    }
}

/// Records parentheses around a duration, except around a literal.
fn wrap(duration: &mut DurationExpr) {
    duration.is_wrapped = !matches!(duration.kind, DurationKind::Literal { .. });
}

fn check_range(duration: &DurationExpr, token: Token) -> Result<(), Fault> {
    match duration.kind {
        DurationKind::Literal { seconds, .. } if is_out_of_range(seconds) => {
            let message = "duration out of range".to_owned();
            Err(Fault { position: token.start, message })
        }
        _ => Ok(()),
    }
}

/// Returns precedence and symbol of an operator in a duration.
fn duration_operator(op: BinaryOp) -> Option<(u8, char)> {
    Some(match op {
        BinaryOp::Add => (1, '+'),
        BinaryOp::Sub => (1, '-'),
        BinaryOp::Mul => (2, '*'),
        BinaryOp::Div => (2, '/'),
        BinaryOp::Mod => (2, '%'),
        BinaryOp::Pow => (POWER_PRECEDENCE, '^'),
        _ => return None,
    })
}
