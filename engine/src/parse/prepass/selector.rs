//! Selectors. They are extracted because promql-parser compiles regular expressions by different
//! rules, reads `or` in braces as an operator, and does not support arbitrary bytes in names.

use model::{METRIC_NAME, MatchOp, Matcher};

use super::super::ast::{BinaryOp, Expr, ExprKind, RangeMode, Span, ValueType, VectorSelector};
use super::super::token::{Token, TokenKind};
use super::super::{Fault, MATCHERS_MAX, REGEXES_MAX, check, literal};
use super::{Node, Scanner, Shape};

impl Scanner<'_> {
    /// Reads a selector that starts with a metric name.
    pub(super) fn named_selector(&mut self, name: Token) -> Result<Node, Fault> {
        match self.accept(TokenKind::LeftBrace)? {
            Some(brace) => self.vector_selector(Some(name), brace),
            None => Ok(self.push_selector(Some(name), Vec::new(), name.start, name.end)),
        }
    }

    /// Reads a selector after its opening brace.
    pub(super) fn vector_selector(
        &mut self,
        name: Option<Token>,
        brace: Token,
    ) -> Result<Node, Fault> {
        let (matchers, end) = self.matchers()?;
        let start = name.unwrap_or(brace).start;
        Ok(self.push_selector(name, matchers, start, end))
    }

    /// Reads a selector and nothing else, for the metadata endpoints.
    pub(super) fn lone_selector(&mut self) -> Result<Vec<Matcher>, Fault> {
        let token = self.advance()?;
        match token.kind {
            TokenKind::LeftBrace => {
                self.vector_selector(None, token)?;
            }
            kind if kind.is_metric_name() => {
                self.named_selector(token)?;
            }
            _ => return Err(self.unexpected(token)),
        }
        match self.prepass.leaves.pop().map(|leaf| leaf.kind) {
            Some(ExprKind::Selector(selector)) => Ok(selector.matchers),
            _ => Ok(Vec::new()),
        }
    }

    fn push_selector(
        &mut self,
        name: Option<Token>,
        mut matchers: Vec<Matcher>,
        start: usize,
        end: usize,
    ) -> Node {
        let name = name.map(|token| self.text(token).to_owned());
        let shape = if name.is_some() { Shape::NamedSelector } else { Shape::Selector };
        let complaint = check::selector(name.as_deref(), &matchers, start);
        if let Some(name) = &name {
            matchers.push(Matcher::equal(METRIC_NAME, name.as_str()));
        }
        self.prepass.text.push('v');
        let kind = ExprKind::Selector(VectorSelector {
            name,
            matchers,
            offset: None,
            at: None,
            mode: RangeMode::Plain,
        });
        let span = Span { start: start as u32, end: end as u32 };
        self.prepass.leaves.push(Expr { kind, span });
        let value_type = ValueType::Vector;
        Node { shape, value_type, start, end, depth: 1, complaint }
    }

    /// Reads matchers up to the closing brace; returns them and the end.
    fn matchers(&mut self) -> Result<(Vec<Matcher>, usize), Fault> {
        let mut matchers = Vec::new();
        loop {
            let token = self.advance()?;
            match token.kind {
                TokenKind::RightBrace => return Ok((matchers, token.end)),
                TokenKind::Identifier => matchers.push(self.matcher(token)?),
                TokenKind::String => matchers.push(self.quoted_matcher(token)?),
                _ => {
                    let expected = "identifier or \"}\"";
                    return Err(self.unexpected_in(token, "label matching", expected));
                }
            }
            let token = self.advance()?;
            match token.kind {
                TokenKind::RightBrace => return Ok((matchers, token.end)),
                TokenKind::Comma => {}
                _ => return Err(self.unexpected_in(token, "label matching", "\",\" or \"}\"")),
            }
        }
    }

    fn matcher(&mut self, label: Token) -> Result<Matcher, Fault> {
        let name = self.text(label).to_owned();
        let token = self.advance()?;
        match match_op(token.kind) {
            Some(op) => self.matcher_value(label, name, op),
            None => {
                let expected = "label matching operator";
                Err(self.unexpected_in(token, "label matching", expected))
            }
        }
    }

    /// Reads a quoted label name with operator and value, or a quoted metric name.
    fn quoted_matcher(&mut self, label: Token) -> Result<Matcher, Fault> {
        let name = literal::unquote(self.text(label));
        match match_op(self.peek()?.kind) {
            Some(op) => {
                self.advance()?;
                self.matcher_value(label, name, op)
            }
            None => {
                let matcher = Matcher::equal(METRIC_NAME, name);
                self.count_matcher(label, &matcher)?;
                Ok(matcher)
            }
        }
    }

    fn matcher_value(&mut self, label: Token, name: String, op: MatchOp) -> Result<Matcher, Fault> {
        let token = self.advance()?;
        if token.kind != TokenKind::String {
            return Err(self.unexpected_in(token, "label matching", "string"));
        }
        let value = literal::unquote(self.text(token));
        let matcher = Matcher::new(op, name, value)
            .map_err(|error| Fault { position: label.start, message: error.to_string() })?;
        self.count_matcher(label, &matcher)?;
        Ok(matcher)
    }

    fn count_matcher(&mut self, label: Token, matcher: &Matcher) -> Result<(), Fault> {
        self.matcher_count += 1;
        self.regex_count += usize::from(matcher.is_compiled());
        let message = if self.matcher_count > MATCHERS_MAX {
            format!("query has more than {MATCHERS_MAX} matchers, which is the limit")
        } else if self.regex_count > REGEXES_MAX {
            format!("query has more than {REGEXES_MAX} regular expressions, which is the limit")
        } else {
            return Ok(());
        };
        Err(Fault { position: label.start, message })
    }
}

fn match_op(kind: TokenKind) -> Option<MatchOp> {
    match kind {
        TokenKind::Assign => Some(MatchOp::Equal),
        TokenKind::Operator(BinaryOp::Ne) => Some(MatchOp::NotEqual),
        TokenKind::EqualRegex => Some(MatchOp::Regex),
        TokenKind::NotRegex => Some(MatchOp::NotRegex),
        _ => None,
    }
}
