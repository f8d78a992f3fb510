//! Packed label sets.
//!
//! A label set is one shared byte string, so that comparing, hashing, cloning and storing it are
//! single operations on bytes:
//!
//! ```text
//! ( name_len name_bytes value_len value_bytes )*      names strictly ascending
//! len: one byte below 0xff, else 0xff and three bytes, little endian
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Name of the label with the metric's name.
pub const METRIC_NAME: &str = "__name__";

/// Maximum length of a name or value in packed form, in bytes.
pub const LABEL_BYTES_MAX: usize = 0x00ff_ffff;

/// Label set: names sorted, unique and not empty; values not empty; all UTF-8.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[u8]>);

/// Reason why bytes are not a label set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelsError {
    /// A length runs past the end of the bytes.
    #[error("label set is cut short at byte {0}")]
    Truncated(usize),
    /// A name or value is not UTF-8.
    #[error("label at byte {0} is not valid UTF-8")]
    NotUtf8(usize),
    /// Names are not strictly ascending.
    #[error("label name {0:?} is out of order or repeated")]
    Unsorted(String),
    /// A name or a value is empty.
    #[error("label at byte {0} has an empty name or value")]
    Empty(usize),
    /// A name or a value is longer than the packed form holds.
    #[error("label name or value of {0} bytes is longer than {LABEL_BYTES_MAX}")]
    TooLong(usize),
}

impl Labels {
    /// Returns the empty label set.
    pub fn empty() -> Labels {
        Labels(Arc::from(&[][..]))
    }

    /// Returns the label set of pairs in any order. Pairs with an empty value are omitted; the last
    /// value of a repeated name is kept.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Labels {
        let mut builder = LabelsBuilder::default();
        for (name, value) in pairs {
            builder.set(name.as_ref(), value.as_ref());
        }
        builder.build()
    }

    /// Returns the label set of packed bytes.
    ///
    /// Errors: the bytes are not in canonical form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Labels, LabelsError> {
        check_packed(bytes)?;
        Ok(Labels(Arc::from(bytes)))
    }

    /// Returns the label set of bytes that are known to be canonical, because [`check_packed`] has
    /// checked or [`push_packed`] has written them. Other bytes give wrong labels, or a panic on use.
    pub fn from_checked_bytes(bytes: &[u8]) -> Labels {
        debug_assert!(check_packed(bytes).is_ok());
        Labels(Arc::from(bytes))
    }

    /// Returns whether both are clones of one label set, which share its memory.
    pub fn is_clone_of(&self, other: &Labels) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the packed bytes, which are equal exactly if the label sets are.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a label; empty if it is absent, as in PromQL.
    pub fn get(&self, name: &str) -> &str {
        for (candidate, value) in self.iter_bytes() {
            match candidate.cmp(name.as_bytes()) {
                Ordering::Less => {}
                Ordering::Equal => return text(value),
                Ordering::Greater => break,
            }
        }
        ""
    }

    /// Returns whether the set has a label of that name.
    pub fn has(&self, name: &str) -> bool {
        !self.get(name).is_empty()
    }

    /// Returns the metric's name; empty if there is none.
    pub fn metric_name(&self) -> &str {
        self.get(METRIC_NAME)
    }

    /// Iterates over the labels by name.
    pub fn iter(&self) -> LabelsIter<'_> {
        LabelsIter { rest: &self.0 }
    }

    /// Iterates over the labels as bytes, for callers that only copy or compare them.
    pub fn iter_bytes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            Some((take_bytes(&mut rest), take_bytes(&mut rest)))
        })
    }

    /// Iterates over the labels in packed form, each with its name.
    pub fn iter_packed(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let whole = rest;
            if whole.is_empty() {
                return None;
            }
            let name = take_bytes(&mut rest);
            take_bytes(&mut rest);
            Some((name, &whole[..whole.len() - rest.len()]))
        })
    }

    /// Returns the labels without the metric's name.
    pub fn without_metric_name(&self) -> Labels {
        if self.has(METRIC_NAME) { self.filtered(|name| name != METRIC_NAME) } else { self.clone() }
    }

    /// Returns the labels whose names pass.
    pub fn filtered(&self, mut keep: impl FnMut(&str) -> bool) -> Labels {
        let mut bytes = Vec::with_capacity(self.0.len());
        for (name, value) in self.iter() {
            if keep(name) {
                push_packed(&mut bytes, name.as_bytes(), value.as_bytes());
            }
        }
        Labels(Arc::from(bytes))
    }

    /// Returns these labels and those of `others`, which override labels of the same name.
    pub fn overridden_by(&self, others: &Labels) -> Labels {
        let mut bytes = Vec::with_capacity(self.0.len() + others.0.len());
        let mut others = others.iter_bytes().peekable();
        for (name, value) in self.iter_bytes() {
            while let Some((name, value)) = others.next_if(|(other, _)| *other < name) {
                push_packed(&mut bytes, name, value);
            }
            let value = others.next_if(|(other, _)| *other == name).map_or(value, |(_, v)| v);
            push_packed(&mut bytes, name, value);
        }
        for (name, value) in others {
            push_packed(&mut bytes, name, value);
        }
        Labels(Arc::from(bytes))
    }

    /// Returns a builder with these labels.
    pub fn to_builder(&self) -> LabelsBuilder {
        LabelsBuilder {
            pairs: self.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        }
    }
}

impl Default for Labels {
    fn default() -> Self {
        Labels::empty()
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    /// Label by label, name before value; a set that is a prefix of another comes first.
    ///
    /// Source: `labels.Compare` of Prometheus.
    fn cmp(&self, other: &Self) -> Ordering {
        // Shared sets need no comparison.
        if self.is_clone_of(other) {
            return Ordering::Equal;
        }
        // On bytes: UTF-8 sorts as its code points do, and sorting many sets is a hot path.
        let (mut rest, mut other) = (&self.0[..], &other.0[..]);
        while !rest.is_empty() && !other.is_empty() {
            match take_bytes(&mut rest).cmp(take_bytes(&mut other)) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        rest.len().cmp(&other.len())
    }
}

impl fmt::Display for Labels {
    /// Writes the label set as Prometheus does: `{__name__="up", job="a"}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (position, (name, value)) in self.iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            if is_legacy_label_name(name) {
                f.write_str(name)?;
            } else {
                write_quoted(f, name)?;
            }
            f.write_str("=")?;
            write_quoted(f, value)?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns whether a label name needs no quotes: `[a-zA-Z_][a-zA-Z0-9_]*`.
pub fn is_legacy_label_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    !bytes.is_empty()
        && !bytes[0].is_ascii_digit()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// Returns whether a text is a valid label name: UTF-8, and not empty.
pub fn is_valid_label_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| (c as u32) < INVALID_BYTE_BASE + 0x80)
}

/// Returns whether a metric name needs no quotes: `[a-zA-Z_:][a-zA-Z0-9_:]*`.
pub fn is_legacy_metric_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    !bytes.is_empty()
        && !bytes[0].is_ascii_digit()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b == b':')
}

/// Base of the characters for bytes that are not UTF-8: byte `b` becomes this plus `b`.
///
/// Strings of PromQL may have such bytes through escapes like `\xff`. Our strings are always UTF-8:
/// private-use characters represent these bytes, and are quoted as bytes.
pub const INVALID_BYTE_BASE: u32 = 0x10_ff00;

/// Returns a string in double quotes with the escapes of Go's `strconv.Quote`.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    // Writing to a string cannot fail.
    let _ = write_quoted(&mut out, text);
    out
}

/// Writes a string in double quotes with the escapes of Go's `strconv.Quote`.
pub fn write_quoted(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            ' '..='~' => out.write_char(c)?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            '\u{07}' => out.write_str("\\a")?,
            '\u{08}' => out.write_str("\\b")?,
            '\u{0b}' => out.write_str("\\v")?,
            '\u{0c}' => out.write_str("\\f")?,
            '\0'..='\u{7f}' => write!(out, "\\x{:02x}", c as u32)?,
            '\u{10ff80}'..='\u{10ffff}' => write!(out, "\\x{:02x}", c as u32 - INVALID_BYTE_BASE)?,
            c if is_printable(c) => out.write_char(c)?,
            c if (c as u32) < 0x10000 => write!(out, "\\u{:04x}", c as u32)?,
            c => write!(out, "\\U{:08x}", c as u32)?,
        }
    }
    out.write_char('"')
}

/// Returns whether a character beyond ASCII is a letter, mark, number, punctuation or symbol.
fn is_printable(c: char) -> bool {
    // After another character, combining marks are not escaped, as in Go.
    let mut pair = String::from("a");
    pair.push(c);
    pair.escape_debug().nth(1) == Some(c)
}

/// Iterator over the labels of a set, as `(name, value)`.
#[derive(Clone)]
pub struct LabelsIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for LabelsIter<'a> {
    type Item = (&'a str, &'a str);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let name = take_text(&mut self.rest);
        let value = take_text(&mut self.rest);
        Some((name, value))
    }
}

/// Removes one length-prefixed text from the front of canonical bytes.
#[inline]
fn take_text<'a>(rest: &mut &'a [u8]) -> &'a str {
    text(take_bytes(rest))
}

#[inline]
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("labels are checked to be UTF-8 where they are made")
}

/// Removes one length-prefixed text without decoding it.
#[inline]
fn take_bytes<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let range = text_at(rest, 0);
    let text = &rest[range.clone()];
    *rest = &rest[range.end..];
    text
}

/// Returns the range of the text whose length is at `start`.
#[inline]
pub(crate) fn text_at(packed: &[u8], start: usize) -> Range<usize> {
    let (len, head) = match packed[start] {
        0xff => {
            let [low, middle, high] = [1, 2, 3].map(|at| usize::from(packed[start + at]));
            (low | middle << 8 | high << 16, 4)
        }
        short => (usize::from(short), 1),
    };
    start + head..start + head + len
}

/// Appends one label in packed form. The caller ensures ascending names and valid texts.
///
/// Panics: a name or value longer than [`LABEL_BYTES_MAX`].
#[inline]
pub fn push_packed(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    push_text(out, name);
    push_text(out, value);
}

#[inline]
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let len = text.len();
    assert!(len <= LABEL_BYTES_MAX, "a label of {len} bytes passed the limits");
    if len < 0xff {
        out.push(len as u8);
    } else {
        out.extend_from_slice(&[0xff, len as u8, (len >> 8) as u8, (len >> 16) as u8]);
    }
    out.extend_from_slice(text);
}

/// Checks that bytes are a canonical label set: complete, UTF-8, sorted, nothing empty.
pub fn check_packed(bytes: &[u8]) -> Result<(), LabelsError> {
    let mut position = 0;
    let mut previous: Option<&str> = None;
    while position < bytes.len() {
        let start = position;
        let name = read_text(bytes, &mut position)?;
        let value = read_text(bytes, &mut position)?;
        if name.is_empty() || value.is_empty() {
            return Err(LabelsError::Empty(start));
        }
        if previous.is_some_and(|p| p >= name) {
            return Err(LabelsError::Unsorted(name.to_owned()));
        }
        previous = Some(name);
    }
    Ok(())
}

fn read_text<'a>(bytes: &'a [u8], position: &mut usize) -> Result<&'a str, LabelsError> {
    let start = *position;
    let cut = || LabelsError::Truncated(start);
    let first = *bytes.get(start).ok_or_else(cut)?;
    let (len, head) = if first == 0xff {
        let wide = bytes.get(start + 1..start + 4).ok_or_else(cut)?;
        let len = usize::from(wide[0]) | usize::from(wide[1]) << 8 | usize::from(wide[2]) << 16;
        if len < 0xff {
            return Err(LabelsError::Truncated(start));
        }
        (len, 4)
    } else {
        (usize::from(first), 1)
    };
    let text = bytes.get(start + head..start + head + len).ok_or_else(cut)?;
    *position = start + head + len;
    std::str::from_utf8(text).map_err(|_| LabelsError::NotUtf8(start))
}

/// Builder of label sets, from labels in any order.
#[derive(Debug, Default, Clone)]
pub struct LabelsBuilder {
    /// Sorted by name, unique, no empty value.
    pairs: Vec<(String, String)>,
}

impl LabelsBuilder {
    /// Sets a label; an empty value removes it, as in PromQL.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        match self.pairs.binary_search_by(|(n, _)| n.as_str().cmp(name)) {
            Ok(at) if value.is_empty() => {
                self.pairs.remove(at);
            }
            Ok(at) => value.clone_into(&mut self.pairs[at].1),
            Err(_) if value.is_empty() => {}
            Err(at) => self.pairs.insert(at, (name.to_owned(), value.to_owned())),
        }
        self
    }

    /// Removes a label.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.set(name, "")
    }

    /// Returns the value of a label; empty if absent.
    pub fn get(&self, name: &str) -> &str {
        self.pairs
            .binary_search_by(|(n, _)| n.as_str().cmp(name))
            .map_or("", |at| &self.pairs[at].1)
    }

    /// Returns the packed label set.
    pub fn build(&self) -> Labels {
        let mut bytes = Vec::new();
        for (name, value) in &self.pairs {
            push_packed(&mut bytes, name.as_bytes(), value.as_bytes());
        }
        Labels(Arc::from(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pairs_are_sorted_and_empty_values_omitted() {
        let labels = Labels::from_pairs([("job", "a"), ("__name__", "up"), ("x", "")]);
        assert_eq!(labels.to_string(), r#"{__name__="up", job="a"}"#);
        assert_eq!(labels.metric_name(), "up");
        assert_eq!(labels.get("absent"), "");
        assert_eq!(labels.without_metric_name().to_string(), r#"{job="a"}"#);
    }

    #[test]
    fn other_labels_are_added_in_order_and_override() {
        let labels = Labels::from_pairs([("b", "1"), ("d", "2")]);
        for (others, expected) in [
            (vec![], r#"{b="1", d="2"}"#),
            (vec![("a", "x"), ("c", "y"), ("e", "z")], r#"{a="x", b="1", c="y", d="2", e="z"}"#),
            (vec![("b", "x"), ("d", "y")], r#"{b="x", d="y"}"#),
        ] {
            assert_eq!(labels.overridden_by(&Labels::from_pairs(others)).to_string(), expected);
        }
    }

    #[test]
    fn names_outside_the_legacy_set_are_quoted() {
        let labels = Labels::from_pairs([("a.b", "c\"d\n")]);
        assert_eq!(labels.to_string(), r#"{"a.b"="c\"d\n"}"#);
    }

    #[test]
    fn quoting_escapes_what_go_escapes() {
        let cases = [
            ("é☺\u{301}", "\"é☺\u{301}\""),
            ("\u{ad}\u{200b}\u{2028}\u{a0}", r#""\u00ad\u200b\u2028\u00a0""#),
            ("\u{1}\u{7f}\u{85}", r#""\x01\x7f\u0085""#),
            ("\u{e000}\u{f0000}", r#""\ue000\U000f0000""#),
            ("a\u{10ffc5}z", r#""a\xc5z""#),
        ];
        for (text, expected) in cases {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn names_are_any_text_but_bytes() {
        assert!(is_valid_label_name("a b.é😀"));
        assert!(!is_valid_label_name(""));
        assert!(!is_valid_label_name("a\u{10ffc5}z"));
    }

    #[test]
    fn long_values_survive_packing() {
        let long = "v".repeat(70_000);
        let labels = Labels::from_pairs([("a", long.as_str()), ("b", "x")]);
        assert_eq!(labels.get("a"), long);
        assert_eq!(labels.get("b"), "x");
        assert_eq!(Labels::from_bytes(labels.as_bytes()), Ok(labels));
    }

    proptest! {
        #[test]
        fn any_bytes_are_labels_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(labels) = Labels::from_bytes(&bytes) {
                let again = Labels::from_pairs(labels.iter());
                prop_assert_eq!(again.as_bytes(), &bytes[..]);
                let texts = labels.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
                prop_assert!(labels.iter_bytes().eq(texts));
            }
        }

        #[test]
        fn order_is_that_of_the_pairs(
            a in proptest::collection::btree_map("[a-c]{1,2}", "[a-c]{1,2}", 0..4),
            b in proptest::collection::btree_map("[a-c]{1,2}", "[a-c]{1,2}", 0..4),
        ) {
            let order = a.iter().cmp(b.iter());
            prop_assert_eq!(Labels::from_pairs(&a).cmp(&Labels::from_pairs(&b)), order);
        }
    }
}
