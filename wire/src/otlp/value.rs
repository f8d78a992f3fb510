//! Values of attributes as texts: nested values are JSON, bytes are base64.
//!
//! Source: `Value.AsString` of `pdata` of the OpenTelemetry Collector, which Prometheus uses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::number_text;

use super::message::{AnyValue, Attribute};

/// The text would exceed the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// Returns a value as text; empty if there is none.
///
/// Errors: a formatted text of more than `bytes_max`.
pub(super) fn text<'a>(value: &AnyValue<'a>, bytes_max: usize) -> Result<Cow<'a, str>, TooLong> {
    let text = match value {
        AnyValue::Empty => return Ok(Cow::Borrowed("")),
        AnyValue::Text(text) => return Ok(text.clone()),
        AnyValue::Bool(value) => value.to_string(),
        AnyValue::Integer(value) => value.to_string(),
        AnyValue::Double(value) => double_text(*value),
        AnyValue::Bytes(bytes) if bytes.len() > bytes_max => return Err(TooLong),
        AnyValue::Bytes(bytes) => STANDARD.encode(bytes),
        AnyValue::List(_) | AnyValue::Map(_) => {
            let mut out = JsonText { text: String::new(), bytes_max };
            match out.push(value) {
                Ok(()) => out.text,
                Err(Stop::TooLong) => return Err(TooLong),
                // As in Prometheus.
                Err(Stop::NotFinite) => String::new(),
            }
        }
    };
    if text.len() > bytes_max { Err(TooLong) } else { Ok(Cow::Owned(text)) }
}

fn double_text(value: f64) -> String {
    match value {
        v if v.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        v => number_text::json(v),
    }
}

/// Writer of JSON.
struct JsonText {
    text: String,
    bytes_max: usize,
}

/// Error of formatting a value.
enum Stop {
    TooLong,
    /// JSON has no infinities and no NaN.
    NotFinite,
}

impl JsonText {
    fn push(&mut self, value: &AnyValue<'_>) -> Result<(), Stop> {
        match value {
            AnyValue::Empty => self.text.push_str("null"),
            AnyValue::Text(text) => self.push_quoted(text)?,
            AnyValue::Bool(value) => _ = write!(self.text, "{value}"),
            AnyValue::Integer(value) => _ = write!(self.text, "{value}"),
            AnyValue::Double(value) if !value.is_finite() => return Err(Stop::NotFinite),
            AnyValue::Double(value) => self.text.push_str(&number_text::json(*value)),
            AnyValue::Bytes(bytes) if bytes.is_empty() => self.text.push_str("null"),
            AnyValue::Bytes(bytes) if bytes.len() > self.bytes_max => return Err(Stop::TooLong),
            AnyValue::Bytes(bytes) => self.push_quoted(&STANDARD.encode(bytes))?,
            AnyValue::List(values) => {
                self.text.push('[');
                for (index, value) in values.iter().enumerate() {
                    self.text.push_str(if index > 0 { "," } else { "" });
                    self.push(value)?;
                }
                self.text.push(']');
            }
            AnyValue::Map(values) => self.push_map(values)?,
        }
        self.check()
    }

    /// Adds an object with sorted keys; of a repeated key the last value wins.
    fn push_map(&mut self, values: &[Attribute<'_>]) -> Result<(), Stop> {
        let by_key: BTreeMap<&str, _> = values.iter().map(|a| (&*a.key, &a.value)).collect();
        self.text.push('{');
        for (index, (key, value)) in by_key.into_iter().enumerate() {
            self.text.push_str(if index > 0 { "," } else { "" });
            self.push_quoted(key)?;
            self.text.push(':');
            self.push(value)?;
        }
        self.text.push('}');
        Ok(())
    }

    fn push_quoted(&mut self, text: &str) -> Result<(), Stop> {
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\0'..' ' | '\u{2028}' | '\u{2029}' => {
                    _ = write!(self.text, "\\u{:04x}", c as u32);
                }
                c => self.text.push(c),
            }
            self.check()?;
        }
        self.text.push('"');
        Ok(())
    }

    fn check(&self) -> Result<(), Stop> {
        if self.text.len() > self.bytes_max { Err(Stop::TooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute<'a>(key: &'a str, value: AnyValue<'a>) -> Attribute<'a> {
        Attribute { key: key.into(), value }
    }

    #[test]
    fn values_are_formatted_as_by_the_collector() {
        let nested = AnyValue::Map(vec![
            attribute("b", AnyValue::List(vec![AnyValue::Integer(-1), AnyValue::Double(0.5)])),
            attribute("a", AnyValue::Text("<\"\n\u{1}ü\u{2028}>".into())),
            attribute("c", AnyValue::Empty),
            attribute("d", AnyValue::Bytes(Cow::Borrowed(&[1, 2]))),
            attribute("e", AnyValue::Bytes(Cow::Borrowed(&[]))),
            attribute("f", AnyValue::Map(vec![])),
            attribute("c", AnyValue::Bool(true)),
        ]);
        let cases = [
            (AnyValue::Empty, ""),
            (AnyValue::Text("a \"b\"".into()), "a \"b\""),
            (AnyValue::Bool(false), "false"),
            (AnyValue::Integer(i64::MIN), "-9223372036854775808"),
            (AnyValue::Double(1.0), "1"),
            (AnyValue::Double(-0.0), "-0"),
            (AnyValue::Double(1e20), "100000000000000000000"),
            (AnyValue::Double(1e21), "1e+21"),
            (AnyValue::Double(0.000001), "0.000001"),
            (AnyValue::Double(1.5e-7), "1.5e-7"),
            (AnyValue::Double(f64::NAN), "NaN"),
            (AnyValue::Double(f64::NEG_INFINITY), "-Infinity"),
            (AnyValue::Bytes(Cow::Borrowed(b"hello")), "aGVsbG8="),
            (AnyValue::Bytes(Cow::Borrowed(b"")), ""),
            (AnyValue::List(vec![]), "[]"),
            (AnyValue::List(vec![AnyValue::Double(f64::NAN)]), ""),
            (
                nested,
                "{\"a\":\"<\\\"\\n\\u0001ü\\u2028>\",\"b\":[-1,0.5],\"c\":true,\"d\":\"AQI=\",\
                 \"e\":null,\"f\":{}}",
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(text(&value, 1 << 20).as_deref(), Ok(expected), "{value:?}");
        }
    }

    #[test]
    fn texts_over_the_limit_are_errors() {
        let list =
            AnyValue::List((0..1000).map(|_| AnyValue::Text("\0".repeat(90).into())).collect());
        assert_eq!(text(&list, 4096), Err(TooLong));
        assert_eq!(text(&AnyValue::Bytes(Cow::Borrowed(&[0; 100])), 100), Err(TooLong));
        assert!(text(&AnyValue::List(vec![AnyValue::Integer(1)]), 3).is_ok());
    }
}
