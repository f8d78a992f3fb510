//! Stored form of matchers, in tombstones and retention rules.
//!
//! ```text
//! matchers │ ( op:1 │ length │ name │ length │ value ) × matchers
//! ```
//!
//! *Op*: 0 `=`, 1 `!=`, 2 `=~`, 3 `!~`. Everything without a width is a LEB128 varint.

use model::{MatchOp, Matcher};

use crate::varint::{push_varint, take_bytes, take_count};

const OPS: [MatchOp; 4] = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex];

/// Appends the matchers of one selector.
pub(crate) fn push_matchers(body: &mut Vec<u8>, matchers: &[Matcher]) {
    push_varint(body, matchers.len() as u64);
    for matcher in matchers {
        let op = OPS.iter().position(|op| *op == matcher.op());
        body.push(op.unwrap_or_default() as u8);
        for text in [matcher.name(), matcher.value()] {
            push_varint(body, text.len() as u64);
            body.extend_from_slice(text.as_bytes());
        }
    }
}

/// Takes the matchers of one selector.
pub(crate) fn take_matchers(rest: &mut &[u8]) -> Result<Vec<Matcher>, String> {
    (0..take_count(rest)?).map(|_| take_matcher(rest)).collect()
}

fn take_matcher(rest: &mut &[u8]) -> Result<Matcher, String> {
    let (op, tail) = rest.split_first().ok_or("cut short in a matcher")?;
    *rest = tail;
    let op = *OPS.get(usize::from(*op)).ok_or_else(|| format!("unknown operator {op}"))?;
    let name = take_text(rest)?;
    let value = take_text(rest)?;
    Matcher::new(op, name, value).map_err(|error| error.to_string())
}

fn take_text(rest: &mut &[u8]) -> Result<String, String> {
    String::from_utf8(take_bytes(rest)?.to_vec()).map_err(|_| "a text is not UTF-8".to_owned())
}
