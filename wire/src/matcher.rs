//! Label matchers of requests for samples, not compiled yet.
//!
//! Source: `LabelMatcher` in `prompb/types.proto` of Prometheus; Thanos has the same message.

use model::MatchOp;

use crate::protobuf::{Reader, WireError};

/// A label matcher, not compiled yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelMatcher {
    /// Comparison.
    pub op: MatchOp,
    /// Name of the label.
    pub name: String,
    /// Value or regular expression.
    pub value: String,
}

/// Error of decoding a matcher. The client can fix each of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// The bytes are not a matcher.
    #[error("malformed matcher: {0}")]
    Malformed(#[from] WireError),
    /// A text is not UTF-8.
    #[error("a matcher is not UTF-8")]
    NotUtf8,
    /// There is no such comparison.
    #[error("invalid matcher type {0}")]
    Type(u64),
}

impl LabelMatcher {
    pub(crate) fn decode(mut reader: Reader<'_>) -> Result<LabelMatcher, MatcherError> {
        let (mut op, mut name, mut value) = (0, String::new(), String::new());
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field {
                1 => op = reader.integer(key)?,
                2 => name = text(reader.nested(key)?)?,
                3 => value = text(reader.nested(key)?)?,
                _ => reader.skip(key)?,
            }
        }
        let op = match op {
            0 => MatchOp::Equal,
            1 => MatchOp::NotEqual,
            2 => MatchOp::Regex,
            3 => MatchOp::NotRegex,
            other => return Err(MatcherError::Type(other)),
        };
        Ok(LabelMatcher { op, name, value })
    }
}

fn text(reader: Reader<'_>) -> Result<String, MatcherError> {
    reader.utf8().ok_or(MatcherError::NotUtf8)
}
