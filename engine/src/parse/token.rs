//! Tokens of the language, and their descriptions in error messages.

use super::ast::{AggregateOp, BinaryOp};
use super::names::{aggregate_op, binary_op};
use super::quote::{quoted, quoted_prefix};

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Eof,
    Comma,
    Colon,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    /// `=`
    Assign,
    /// `=~`
    EqualRegex,
    /// `!~`
    NotRegex,
    /// `@`
    At,
    Operator(BinaryOp),
    Aggregate(AggregateOp),
    Keyword(Keyword),
    Context(Context),
    /// A word without a colon and without another meaning.
    Identifier,
    /// A word with a colon.
    MetricIdentifier,
    Number,
    Duration,
    String,
}

/// Keywords of modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    Anchored,
    Bool,
    By,
    Fill,
    FillLeft,
    FillRight,
    GroupLeft,
    GroupRight,
    Ignoring,
    Offset,
    On,
    Smoothed,
    Without,
}

/// Functions of the query's times and of durations, also used in `@` and in ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    Start,
    End,
    Step,
    Range,
    MaxOf,
    MinOf,
}

/// A token of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    /// Kind of the token.
    pub kind: TokenKind,
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

impl TokenKind {
    /// Returns the kind of a word outside braces, regardless of case.
    pub fn of_word(word: &str) -> TokenKind {
        let lower = word.to_ascii_lowercase();
        if matches!(lower.as_str(), "inf" | "nan") {
            return TokenKind::Number;
        }
        if let Some(op) = binary_op(&lower) {
            return TokenKind::Operator(op);
        }
        if let Some(op) = aggregate_op(&lower) {
            return TokenKind::Aggregate(op);
        }
        if let Some(keyword) = Keyword::of_word(&lower) {
            return TokenKind::Keyword(keyword);
        }
        if let Some(context) = Context::of_word(&lower) {
            return TokenKind::Context(context);
        }
        if word.contains(':') { TokenKind::MetricIdentifier } else { TokenKind::Identifier }
    }

    /// Returns whether it can be a metric name.
    pub fn is_metric_name(self) -> bool {
        match self {
            TokenKind::Identifier
            | TokenKind::MetricIdentifier
            | TokenKind::Aggregate(_)
            | TokenKind::Context(_) => true,
            TokenKind::Operator(op) => op.is_set(),
            TokenKind::Keyword(keyword) => !matches!(
                keyword,
                Keyword::Bool
                    | Keyword::GroupLeft
                    | Keyword::GroupRight
                    | Keyword::Ignoring
                    | Keyword::On
            ),
            _ => false,
        }
    }

    /// Returns whether it can be a label name in a list of labels.
    pub fn is_label_name(self) -> bool {
        match self {
            TokenKind::Identifier
            | TokenKind::MetricIdentifier
            | TokenKind::Aggregate(_)
            | TokenKind::Context(_) => true,
            TokenKind::Operator(op) => op.is_set() || op == BinaryOp::Atan2,
            TokenKind::Keyword(keyword) => keyword != Keyword::Without,
            _ => false,
        }
    }

    /// Returns whether an expression can start with it.
    pub fn starts_expression(self) -> bool {
        self.is_metric_name()
            || matches!(
                self,
                TokenKind::Number
                    | TokenKind::Duration
                    | TokenKind::String
                    | TokenKind::LeftParen
                    | TokenKind::LeftBrace
                    | TokenKind::Operator(BinaryOp::Add | BinaryOp::Sub)
            )
    }
}

impl Keyword {
    fn of_word(lower: &str) -> Option<Keyword> {
        Some(match lower {
            "anchored" => Keyword::Anchored,
            "bool" => Keyword::Bool,
            "by" => Keyword::By,
            "fill" => Keyword::Fill,
            "fill_left" => Keyword::FillLeft,
            "fill_right" => Keyword::FillRight,
            "group_left" => Keyword::GroupLeft,
            "group_right" => Keyword::GroupRight,
            "ignoring" => Keyword::Ignoring,
            "offset" => Keyword::Offset,
            "on" => Keyword::On,
            "smoothed" => Keyword::Smoothed,
            "without" => Keyword::Without,
            _ => return None,
        })
    }

    /// Returns whether it is a keyword only before a parenthesis.
    pub fn is_fill(self) -> bool {
        matches!(self, Keyword::Fill | Keyword::FillLeft | Keyword::FillRight)
    }
}

impl Context {
    /// Returns the function of a lower-case word.
    pub fn of_word(lower: &str) -> Option<Context> {
        Some(match lower {
            "start" => Context::Start,
            "end" => Context::End,
            "step" => Context::Step,
            "range" => Context::Range,
            "max_of" => Context::MaxOf,
            "min_of" => Context::MinOf,
            _ => return None,
        })
    }

    /// Returns whether it can be part of a duration.
    pub fn is_in_durations(self) -> bool {
        !matches!(self, Context::Start | Context::End)
    }
}

impl Token {
    /// Returns the description for error messages.
    ///
    /// Source: `Item.desc` of Prometheus.
    pub fn describe(&self, query: &str) -> String {
        let text = &query[self.start..self.end];
        match self.kind {
            TokenKind::Eof => "end of input".to_owned(),
            TokenKind::Identifier => format!("identifier {}", quoted(text)),
            TokenKind::MetricIdentifier => format!("metric identifier {}", quoted(text)),
            TokenKind::Number => format!("number {}", quoted_prefix(text)),
            TokenKind::Duration => format!("duration {}", quoted_prefix(text)),
            TokenKind::String => format!("string {}", quoted_prefix(text)),
            TokenKind::Keyword(_) => format!("<{text}>"),
            TokenKind::Aggregate(_) => format!("<aggr:{text}>"),
            TokenKind::Operator(_)
            | TokenKind::EqualRegex
            | TokenKind::NotRegex
            | TokenKind::At => {
                format!("<op:{text}>")
            }
            _ => quoted(text),
        }
    }
}
