//! JSON, read in place: objects, lists, texts and numbers. The fields are defined in
//! [`otlp`](super::otlp).
//!
//! As in the JSON of protobuf, numbers may be in quotes, and `null` is an empty value. Texts
//! without escapes are borrowed.
//!
//! Source: RFC 8259; <https://protobuf.dev/programming-guides/json/>.

use std::borrow::Cow;

use model::number_text::parse_float;

/// Maximum depth of nested objects and lists.
const DEPTH_MAX: usize = 512;

/// Error of decoding JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is truncated.
    #[error("the text ends inside a value")]
    Truncated,
    /// Something else was expected.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A number that its field cannot hold.
    #[error("not a number that fits: {0}")]
    Number(&'static str),
    /// An escape that does not exist, or half of a pair of surrogates.
    #[error("invalid escape")]
    Escape,
    /// A control character, or bytes that are not UTF-8.
    #[error("invalid character in a string")]
    Character,
    /// A text in another encoding than its field has.
    #[error("not {0}")]
    Encoding(&'static str),
    /// Nested too deeply.
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
    /// Something follows the value.
    #[error("something follows the value")]
    Trailing,
}

/// An error and its offset in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonFault {
    pub(super) position: usize,
    pub(super) error: JsonError,
}

/// A forward reader of one text.
#[derive(Debug)]
pub(super) struct JsonReader<'a> {
    bytes: &'a [u8],
    position: usize,
    depth: usize,
}

impl<'a> JsonReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> JsonReader<'a> {
        JsonReader { bytes, position: 0, depth: 0 }
    }

    /// Returns an error at the current position.
    #[cold]
    pub(super) fn fault(&self, error: JsonError) -> JsonFault {
        JsonFault { position: self.position, error }
    }

    /// Checks that nothing follows.
    pub(super) fn finish(&mut self) -> Result<(), JsonFault> {
        self.skip_space();
        if self.position < self.bytes.len() {
            return Err(self.fault(JsonError::Trailing));
        }
        Ok(())
    }

    /// Reads an object: passes each name to `field`, which reads or skips the value.
    pub(super) fn object<E: From<JsonFault>>(
        &mut self,
        mut field: impl FnMut(&mut JsonReader<'a>, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.is_null()? {
            return Ok(());
        }
        self.expect(b'{', "an object")?;
        self.descend()?;
        if !self.is_next(b'}')? {
            loop {
                if !self.is_text()? {
                    return Err(self.fault(JsonError::Expected("a string")).into());
                }
                let name = self.text()?;
                self.expect(b':', "a colon")?;
                field(self, &name)?;
                if !self.has_more(b'}', "a comma or the end of an object")? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a list; `item` reads or skips each item.
    pub(super) fn list<E: From<JsonFault>>(
        &mut self,
        mut item: impl FnMut(&mut JsonReader<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.is_null()? {
            return Ok(());
        }
        self.expect(b'[', "a list")?;
        self.descend()?;
        if !self.is_next(b']')? {
            loop {
                item(self)?;
                if !self.has_more(b']', "a comma or the end of a list")? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn descend(&mut self) -> Result<(), JsonFault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.fault(JsonError::TooDeep(DEPTH_MAX)));
        }
        Ok(())
    }

    fn has_more(&mut self, end: u8, expected: &'static str) -> Result<bool, JsonFault> {
        if self.is_next(end)? {
            return Ok(false);
        }
        self.expect(b',', expected)?;
        Ok(true)
    }

    /// Reads a text.
    pub(super) fn text(&mut self) -> Result<Cow<'a, str>, JsonFault> {
        if self.is_null()? {
            return Ok(Cow::Borrowed(""));
        }
        self.expect(b'"', "a string")?;
        let start = self.position;
        let rest = &self.bytes[start..];
        let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
        let Some(plain) = plain else {
            self.position = self.bytes.len();
            return Err(self.fault(JsonError::Truncated));
        };
        self.position += plain;
        let text = self.utf8(start)?;
        if rest[plain] == b'"' {
            self.position += 1;
            return Ok(Cow::Borrowed(text));
        }
        self.text_with_escapes(text.to_owned()).map(Cow::Owned)
    }

    /// Reads the rest of a text, which starts with an escape.
    fn text_with_escapes(&mut self, mut text: String) -> Result<String, JsonFault> {
        loop {
            let start = self.position;
            match self.byte()? {
                b'"' => return Ok(text),
                b'\\' => text.push(self.escape()?),
                0..0x20 => {
                    self.position = start;
                    return Err(self.fault(JsonError::Character));
                }
                _ => {
                    let rest = &self.bytes[self.position..];
                    let plain = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20));
                    self.position += plain.unwrap_or(rest.len());
                    text.push_str(self.utf8(start)?);
                }
            }
        }
    }

    fn utf8(&self, start: usize) -> Result<&'a str, JsonFault> {
        let text = std::str::from_utf8(&self.bytes[start..self.position]);
        text.map_err(|error| JsonFault {
            position: start + error.valid_up_to(),
            error: JsonError::Character,
        })
    }

    fn escape(&mut self) -> Result<char, JsonFault> {
        Ok(match self.byte()? {
            c @ (b'"' | b'\\' | b'/') => char::from(c),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hex4()?;
                let code = match high {
                    0xd800..0xdc00 if self.bytes[self.position..].starts_with(b"\\u") => {
                        self.position += 2;
                        match self.hex4()? {
                            low @ 0xdc00..0xe000 => {
                                0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                            }
                            _ => return Err(self.fault(JsonError::Escape)),
                        }
                    }
                    code => code,
                };
                char::from_u32(code).ok_or_else(|| self.fault(JsonError::Escape))?
            }
            _ => return Err(self.fault(JsonError::Escape)),
        })
    }

    fn hex4(&mut self) -> Result<u32, JsonFault> {
        let digits = self.bytes[self.position..].first_chunk::<4>();
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| self.fault(JsonError::Escape))?;
        self.position += 4;
        Ok(number)
    }

    /// Reads a whole number, in quotes or not.
    pub(super) fn integer<T: std::str::FromStr>(
        &mut self,
        expected: &'static str,
    ) -> Result<T, JsonFault> {
        let start = self.position;
        let text = self.number()?;
        match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => Err(JsonFault { position: start, error: JsonError::Number(expected) }),
        }
    }

    /// Reads a number, in quotes or not; in quotes it may be "NaN", "Infinity" or "-Infinity".
    pub(super) fn double(&mut self) -> Result<f64, JsonFault> {
        let start = self.position;
        let text = self.number()?;
        parse_float(&text)
            .ok_or(JsonFault { position: start, error: JsonError::Number("a 64-bit float") })
    }

    /// Reads the text of a number.
    fn number(&mut self) -> Result<Cow<'a, str>, JsonFault> {
        if self.peek()? == b'"' {
            return self.text();
        }
        let start = self.position;
        let is_part = |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
        let rest = &self.bytes[start..];
        let len = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        if !rest[..len].first().is_some_and(|b| b.is_ascii_digit() || *b == b'-') {
            return Err(self.fault(JsonError::Expected("a number")));
        }
        self.position += len;
        self.utf8(start).map(Cow::Borrowed)
    }

    /// Reads `true` or `false`.
    pub(super) fn boolean(&mut self) -> Result<bool, JsonFault> {
        let is_true = match self.peek()? {
            b't' => self.word("true")?,
            b'f' => !self.word("false")?,
            _ => return Err(self.fault(JsonError::Expected("true or false"))),
        };
        Ok(is_true)
    }

    /// Returns whether the next value is a text.
    pub(super) fn is_text(&mut self) -> Result<bool, JsonFault> {
        Ok(self.peek()? == b'"')
    }

    /// Skips a value.
    pub(super) fn skip(&mut self) -> Result<(), JsonFault> {
        match self.peek()? {
            b'{' => self.object(|reader, _| reader.skip()),
            b'[' => self.list(JsonReader::skip),
            b'"' => self.text().map(drop),
            b't' | b'f' => self.boolean().map(drop),
            b'n' => self.word("null").map(drop),
            _ => self.double().map(drop),
        }
    }

    fn is_null(&mut self) -> Result<bool, JsonFault> {
        if self.peek()? != b'n' {
            return Ok(false);
        }
        self.word("null")
    }

    fn word(&mut self, word: &'static str) -> Result<bool, JsonFault> {
        if !self.bytes[self.position..].starts_with(word.as_bytes()) {
            return Err(self.fault(JsonError::Expected(word)));
        }
        self.position += word.len();
        Ok(true)
    }

    fn skip_space(&mut self) {
        let rest = &self.bytes[self.position..];
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.position += rest.iter().position(|byte| !is_space(byte)).unwrap_or(rest.len());
    }

    /// Returns the next byte that is not a space.
    fn peek(&mut self) -> Result<u8, JsonFault> {
        self.skip_space();
        let next = self.bytes.get(self.position).copied();
        next.ok_or_else(|| self.fault(JsonError::Truncated))
    }

    fn is_next(&mut self, byte: u8) -> Result<bool, JsonFault> {
        let is_next = self.peek()? == byte;
        self.position += usize::from(is_next);
        Ok(is_next)
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), JsonFault> {
        if self.is_next(byte)? {
            return Ok(());
        }
        Err(self.fault(JsonError::Expected(expected)))
    }

    fn byte(&mut self) -> Result<u8, JsonFault> {
        let next = self.bytes.get(self.position).copied();
        let next = next.ok_or_else(|| self.fault(JsonError::Truncated))?;
        self.position += 1;
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Reads any value as the twin represents it.
    fn tree(reader: &mut JsonReader<'_>) -> Result<Value, JsonFault> {
        Ok(match reader.peek()? {
            b'{' => {
                let mut fields = serde_json::Map::new();
                reader.object(|reader, name| {
                    fields.insert(name.to_owned(), tree(reader)?);
                    Ok::<_, JsonFault>(())
                })?;
                Value::Object(fields)
            }
            b'[' => {
                let mut items = Vec::new();
                reader.list(|reader| {
                    items.push(tree(reader)?);
                    Ok::<_, JsonFault>(())
                })?;
                Value::Array(items)
            }
            b'"' => Value::String(reader.text()?.into_owned()),
            b't' | b'f' => Value::Bool(reader.boolean()?),
            b'n' => {
                reader.word("null")?;
                Value::Null
            }
            _ => serde_json::json!(reader.double()?),
        })
    }

    fn read(text: &[u8]) -> Result<Value, JsonFault> {
        let mut reader = JsonReader::new(text);
        let tree = tree(&mut reader)?;
        reader.finish()?;
        Ok(tree)
    }

    fn skipped(text: &[u8]) -> Result<(), JsonFault> {
        let mut reader = JsonReader::new(text);
        reader.skip()?;
        reader.finish()
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_equal_those_of_serde(value in values(), is_pretty: bool) {
            let text = match is_pretty {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            prop_assert_eq!(read(text.as_bytes()), Ok(value));
            prop_assert_eq!(skipped(text.as_bytes()), Ok(()));
        }

        #[test]
        fn reader_accepts_the_same_texts_as_serde(value in values(), at: prop::sample::Index, byte: u8) {
            let mut text = value.to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            let theirs: Result<Value, _> = serde_json::from_slice(&text);
            prop_assert_eq!(read(&text).is_ok(), skipped(&text).is_ok());
            // Go accepts more forms of numbers.
            match theirs.is_ok() {
                true => prop_assert_eq!(skipped(&text), Ok(())),
                false if text.iter().any(u8::is_ascii_digit) => {}
                false => prop_assert!(skipped(&text).is_err()),
            }
        }
    }

    #[test]
    fn numbers_may_be_in_quotes() {
        let integer = |text: &str| JsonReader::new(text.as_bytes()).integer::<i64>("one").ok();
        let double = |text: &str| JsonReader::new(text.as_bytes()).double().ok();
        assert_eq!(integer("\"-9223372036854775808\""), Some(i64::MIN));
        assert_eq!(integer(" 12 "), Some(12));
        for text in ["1.5", "\"1.5\"", "1e3", "\"\"", "\" 1\"", "true", "9223372036854775808"] {
            assert_eq!(integer(text), None, "{text}");
        }
        assert_eq!(double("\"Infinity\""), Some(f64::INFINITY));
        assert_eq!(double("\"-Infinity\""), Some(f64::NEG_INFINITY));
        assert!(double("\"NaN\"").unwrap().is_nan());
        assert_eq!(double("-1.5E+3"), Some(-1500.0));
        for text in ["NaN", "null", "\"x\"", "1e999", ".5", "-"] {
            assert_eq!(double(text), None, "{text}");
        }
    }
}
