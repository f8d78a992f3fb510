//! Modifiers of an operand (`offset`, `@`, `anchored`, `smoothed`), of an aggregation (`by`,
//! `without`) and of a binary operator (`bool`, `on`, `group_left`, `fill`, …).
//!
//! Operand modifiers are extracted: promql-parser lacks two of the four and computed offsets, and
//! restricts their order more than Prometheus. All other modifiers are passed on, with quoted
//! labels, because promql-parser does not accept all keywords as names.

use std::fmt::Write as _;

use super::super::Fault;
use super::super::ast::{
    At, BinaryOp, Cardinality, DurationExpr, DurationKind, ExprKind, RangeMode,
};
use super::super::literal;
use super::super::quote::quoted;
use super::super::token::{Context, Keyword, Token, TokenKind};
use super::{Node, Scanner, Shape};

/// The modifiers of a binary operator.
#[derive(Debug)]
pub(in crate::parse) struct BinaryModifiers {
    pub is_bool: bool,
    /// Labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    pub is_on: bool,
    pub cardinality: Cardinality,
    /// Labels of `group_left` or `group_right`.
    pub include: Vec<String>,
    fill_left: Option<f64>,
    fill_right: Option<f64>,
}

impl BinaryModifiers {
    /// Returns whether a side is filled.
    pub fn has_fill(&self) -> bool {
        self.fill_left.is_some() || self.fill_right.is_some()
    }
}

impl Scanner<'_> {
    /// Reads the modifiers and brackets after an operand.
    pub(super) fn modified(&mut self, mut node: Node) -> Result<Node, Fault> {
        loop {
            match self.peek()?.kind {
                TokenKind::LeftBracket => node = self.bracket(node)?,
                TokenKind::Keyword(Keyword::Offset) => self.offset(&mut node)?,
                TokenKind::Keyword(Keyword::Anchored) => {
                    self.mode(RangeMode::Anchored, &node)?;
                }
                TokenKind::Keyword(Keyword::Smoothed) => {
                    self.mode(RangeMode::Smoothed, &node)?;
                }
                TokenKind::At => self.at(&mut node)?,
                _ => return Ok(node),
            }
        }
    }

    fn offset(&mut self, node: &mut Node) -> Result<(), Fault> {
        self.advance()?;
        let offset = self.offset_duration()?;
        let end = self.last_end;
        let fault = |message: &str| Fault { position: node.start, message: message.to_owned() };
        let Some((slot, _)) = self.times(node.shape) else {
            return Err(fault(
                "offset modifier must be preceded by an instant vector selector or \
                 range vector selector or a subquery",
            ));
        };
        if slot.is_some() {
            return Err(fault("offset may not be set multiple times"));
        }
        // An offset of 0 equals no offset.
        let is_zero = matches!(offset.kind, DurationKind::Literal { seconds, .. }
            if (seconds * 1e9).round() == 0.0);
        if !is_zero {
            *slot = Some(offset);
        }
        self.extend(node, end);
        Ok(())
    }

    fn at(&mut self, node: &mut Node) -> Result<(), Fault> {
        self.advance()?;
        let token = self.advance()?;
        let (at, end) = match token.kind {
            TokenKind::Context(context @ (Context::Start | Context::End)) => {
                self.expect_in_at(TokenKind::LeftParen)?;
                let close = self.expect_in_at(TokenKind::RightParen)?;
                (if context == Context::Start { At::Start } else { At::End }, close.end)
            }
            TokenKind::Number | TokenKind::Duration => {
                let (seconds, _) = self.number_value(token)?;
                (At::Time(at_time(seconds, node.start)?), token.end)
            }
            TokenKind::Operator(op @ (BinaryOp::Add | BinaryOp::Sub)) => {
                let number = self.advance()?;
                if !matches!(number.kind, TokenKind::Number | TokenKind::Duration) {
                    return Err(self.unexpected_in(number, "@", "timestamp"));
                }
                let (seconds, _) = self.number_value(number)?;
                let seconds = if op == BinaryOp::Sub { -seconds } else { seconds };
                (At::Time(at_time(seconds, node.start)?), number.end)
            }
            _ => return Err(self.unexpected_in(token, "@", "timestamp")),
        };
        let fault = |message: &str| Fault { position: node.start, message: message.to_owned() };
        let Some((_, slot)) = self.times(node.shape) else {
            return Err(fault(
                "@ modifier must be preceded by an instant vector selector or \
                 range vector selector or a subquery",
            ));
        };
        if slot.is_some() {
            return Err(fault("@ <timestamp> may not be set multiple times"));
        }
        *slot = Some(at);
        self.extend(node, end);
        Ok(())
    }

    fn expect_in_at(&mut self, kind: TokenKind) -> Result<Token, Fault> {
        let token = self.advance()?;
        if token.kind == kind {
            Ok(token)
        } else {
            Err(self.unexpected_in(token, "@", "timestamp"))
        }
    }

    /// Returns the offset and time of the operand that was just read.
    fn times(&mut self, shape: Shape) -> Option<(&mut Option<DurationExpr>, &mut Option<At>)> {
        match shape {
            Shape::Selector | Shape::NamedSelector | Shape::Matrix => {
                match &mut self.prepass.leaves.last_mut()?.kind {
                    ExprKind::Selector(selector) => Some((&mut selector.offset, &mut selector.at)),
                    ExprKind::Matrix(matrix) => {
                        Some((&mut matrix.selector.offset, &mut matrix.selector.at))
                    }
                    _ => None,
                }
            }
            Shape::Subquery => {
                let subquery = self.prepass.subqueries.last_mut()?;
                Some((&mut subquery.offset, &mut subquery.at))
            }
            Shape::Number | Shape::Other => None,
        }
    }

    /// Extends the span of the operand that was just read to the end of its modifier.
    fn extend(&mut self, node: &mut Node, end: usize) {
        node.end = end;
        if node.shape == Shape::Subquery {
            if let Some(subquery) = self.prepass.subqueries.last_mut() {
                subquery.end = end;
            }
        } else if let Some(leaf) = self.prepass.leaves.last_mut() {
            leaf.span.end = end as u32;
        }
    }

    /// Sets `anchored` or `smoothed`; they are not part of the selector's span.
    fn mode(&mut self, mode: RangeMode, node: &Node) -> Result<(), Fault> {
        self.advance()?;
        let word = if mode == RangeMode::Anchored { "anchored" } else { "smoothed" };
        let fault = |message: String| Err(Fault { position: node.start, message });
        if !self.options.extended_range_selectors {
            return fault(format!("{word} modifier is experimental and not enabled"));
        }
        let leaf = self.prepass.leaves.last_mut().map(|leaf| &mut leaf.kind);
        let selector = match (node.shape, leaf) {
            (Shape::Selector | Shape::NamedSelector, Some(ExprKind::Selector(selector))) => {
                selector
            }
            (Shape::Matrix, Some(ExprKind::Matrix(matrix))) => &mut matrix.selector,
            (Shape::Subquery, _) => {
                return fault(format!("{word} modifier is not supported for subqueries"));
            }
            _ => return fault(format!("{word} modifier not implemented")),
        };
        if selector.mode != RangeMode::Plain && selector.mode != mode {
            let message = "anchored and smoothed modifiers cannot be used together";
            return fault(message.to_owned());
        }
        selector.mode = mode;
        Ok(())
    }

    /// Returns whether `by` or `without` is next.
    pub(super) fn is_grouping(&mut self) -> Result<bool, Fault> {
        let kind = self.peek()?.kind;
        Ok(matches!(kind, TokenKind::Keyword(Keyword::By | Keyword::Without)))
    }

    /// Reads `by (…)` or `without (…)`, passes it on, and returns its end.
    pub(super) fn grouping(&mut self) -> Result<usize, Fault> {
        let token = self.advance()?;
        let is_by = token.kind == TokenKind::Keyword(Keyword::By);
        self.prepass.text.push_str(if is_by { " by " } else { " without " });
        let (labels, end) = self.labels()?;
        self.push_labels(&labels);
        Ok(end)
    }

    /// Reads `(a, b, …)` and returns the labels and the end.
    fn labels(&mut self) -> Result<(Vec<String>, usize), Fault> {
        let token = self.advance()?;
        if token.kind != TokenKind::LeftParen {
            return Err(self.unexpected_in(token, "grouping opts", "\"(\""));
        }
        let mut labels = Vec::new();
        loop {
            let token = self.advance()?;
            match token.kind {
                TokenKind::RightParen => return Ok((labels, token.end)),
                TokenKind::String => labels.push(self.quoted_label(token)?),
                kind if kind.is_label_name() => labels.push(self.text(token).to_owned()),
                _ => return Err(self.unexpected_in(token, "grouping opts", "label")),
            }
            self.count_node(token.start)?;
            let token = self.advance()?;
            match token.kind {
                TokenKind::RightParen => return Ok((labels, token.end)),
                TokenKind::Comma => {}
                _ => return Err(self.unexpected_in(token, "grouping opts", "\",\" or \")\"")),
            }
        }
    }

    fn quoted_label(&self, token: Token) -> Result<String, Fault> {
        let label = literal::unquote(self.text(token));
        if !model::labels::is_valid_label_name(&label) {
            let message = format!("invalid label name for grouping: {}", quoted(&label));
            return Err(Fault { position: token.start, message });
        }
        Ok(label)
    }

    /// Writes a list of quoted labels for promql-parser.
    fn push_labels(&mut self, labels: &[String]) {
        self.prepass.text.push('(');
        for (position, label) in labels.iter().enumerate() {
            let comma = if position > 0 { ", " } else { "" };
            let escaped = label.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(self.prepass.text, "{comma}\"{escaped}\"");
        }
        self.prepass.text.push_str(") ");
    }

    /// Reads the modifiers after a binary operator and passes them on.
    pub(super) fn binary_modifiers(&mut self) -> Result<BinaryModifiers, Fault> {
        let mut modifiers = BinaryModifiers {
            is_bool: false,
            labels: Vec::new(),
            is_on: false,
            cardinality: Cardinality::OneToOne,
            include: Vec::new(),
            fill_left: None,
            fill_right: None,
        };
        if self.accept(TokenKind::Keyword(Keyword::Bool))?.is_some() {
            modifiers.is_bool = true;
            self.prepass.text.push_str("bool ");
        }
        let next = self.peek()?.kind;
        if let TokenKind::Keyword(keyword @ (Keyword::On | Keyword::Ignoring)) = next {
            self.advance()?;
            modifiers.is_on = keyword == Keyword::On;
            modifiers.labels = self.labels()?.0;
            self.prepass.text.push_str(if modifiers.is_on { "on " } else { "ignoring " });
            self.push_labels(&modifiers.labels);
            self.group(&mut modifiers)?;
        }
        self.fill(&mut modifiers)?;
        Ok(modifiers)
    }

    /// Reads the labels of `group_left` or `group_right`.
    fn group(&mut self, modifiers: &mut BinaryModifiers) -> Result<(), Fault> {
        let (cardinality, word) = match self.peek()?.kind {
            TokenKind::Keyword(Keyword::GroupLeft) => (Cardinality::ManyToOne, "group_left "),
            TokenKind::Keyword(Keyword::GroupRight) => (Cardinality::OneToMany, "group_right "),
            _ => return Ok(()),
        };
        self.advance()?;
        modifiers.cardinality = cardinality;
        // The list may be omitted only before an operand or `fill`.
        let next = self.peek()?.kind;
        if next == TokenKind::LeftParen || !next.starts_expression() {
            modifiers.include = self.labels()?.0;
        }
        self.prepass.text.push_str(word);
        self.push_labels(&modifiers.include);
        Ok(())
    }

    /// Reads `fill (…)`, or `fill_left (…)` and `fill_right (…)` in either order.
    fn fill(&mut self, modifiers: &mut BinaryModifiers) -> Result<(), Fault> {
        let TokenKind::Keyword(first) = self.peek()?.kind else { return Ok(()) };
        if !first.is_fill() {
            return Ok(());
        }
        self.advance()?;
        let value = Some(self.fill_value(first)?);
        let other = match first {
            Keyword::FillLeft => {
                modifiers.fill_left = value;
                Keyword::FillRight
            }
            Keyword::FillRight => {
                modifiers.fill_right = value;
                Keyword::FillLeft
            }
            _ => {
                modifiers.fill_left = value;
                modifiers.fill_right = value;
                return Ok(());
            }
        };
        if self.accept(TokenKind::Keyword(other))?.is_some() {
            let value = Some(self.fill_value(other)?);
            if other == Keyword::FillLeft {
                modifiers.fill_left = value;
            } else {
                modifiers.fill_right = value;
            }
        }
        Ok(())
    }

    fn fill_value(&mut self, keyword: Keyword) -> Result<f64, Fault> {
        self.expect(TokenKind::LeftParen)?;
        let mut token = self.advance()?;
        let mut is_negative = false;
        if let TokenKind::Operator(op @ (BinaryOp::Add | BinaryOp::Sub)) = token.kind {
            is_negative = op == BinaryOp::Sub;
            token = self.advance()?;
        }
        if !matches!(token.kind, TokenKind::Number | TokenKind::Duration) {
            return Err(self.unexpected(token));
        }
        let (value, _) = self.number_value(token)?;
        let value = if is_negative { -value } else { value };
        self.expect(TokenKind::RightParen)?;
        let word = match keyword {
            Keyword::FillLeft => "fill_left",
            Keyword::FillRight => "fill_right",
            _ => "fill",
        };
        let sign = if is_negative { "-" } else { "" };
        let _ = write!(self.prepass.text, "{word} ({sign}{}) ", value.abs());
        Ok(value)
    }
}

/// Converts the time of `@ …` to ms.
///
/// Source: `setTimestamp` of Prometheus.
fn at_time(seconds: f64, position: usize) -> Result<i64, Fault> {
    if !seconds.is_finite() || seconds.abs() >= i64::MAX as f64 {
        let shown = if seconds.is_nan() {
            "NaN".to_owned()
        } else if seconds.is_infinite() {
            format!("{}Inf", if seconds > 0.0 { '+' } else { '-' })
        } else {
            format!("{seconds:.6}")
        };
        let message = format!("timestamp out of bounds for @ modifier: {shown}");
        return Err(Fault { position, message });
    }
    Ok((seconds * 1000.0).round() as i64)
}
