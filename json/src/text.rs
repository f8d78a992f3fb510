//! JSON strings.

use model::Labels;

/// Writes a text in quotes like Prometheus' writer of label sets: only quotes, backslashes and
/// control characters are escaped.
#[inline]
fn push_label_text(out: &mut Vec<u8>, text: &[u8]) {
    let is_special = |byte| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    push_escaped(out, text, plain_prefix(text, []), is_special);
}

/// Returns a number of leading bytes that need no escape: all if none does, otherwise rounded down to
/// eights. `special` are characters that need one in addition to quotes, backslashes and control
/// characters.
#[inline]
fn plain_prefix<const N: usize>(text: &[u8], special: [u8; N]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    // Sets the high bit of bytes that may need an escape: zero after the comparison, below a space,
    // or not ASCII, and of some bytes above these.
    let equal = |word: u64, byte: u8| (word ^ (LOW * u64::from(byte))).wrapping_sub(LOW);
    let is_plain = |eight: &[u8]| {
        let eight: [u8; 8] = eight.try_into().expect("it has eight bytes");
        let word = u64::from_le_bytes(eight);
        let control = word.wrapping_sub(LOW * u64::from(b' '));
        let always = equal(word, b'"') | equal(word, b'\\') | control | word;
        special.iter().fold(always, |care, byte| care | equal(word, *byte)) & HIGH == 0
    };
    let prefix = 8 * text.chunks_exact(8).take_while(|eight| is_plain(eight)).count();
    match text.last_chunk::<8>() {
        Some(last) if text.len() - prefix < 8 && is_plain(last) => text.len(),
        _ => prefix,
    }
}

/// Writes a text in quotes like Go's standard library: `<`, `>`, `&` and the two line separators of
/// Unicode are escaped, too.
#[inline]
pub fn push_text(out: &mut Vec<u8>, text: &str) {
    // 0xe2 starts U+2028 and U+2029; other characters that it starts stay unchanged.
    let text = text.as_bytes();
    push_escaped(out, text, plain_prefix(text, [b'<', b'>', b'&']), |byte| {
        matches!(byte, b'"' | b'\\' | 0..=0x1f | b'<' | b'>' | b'&' | 0xe2)
    });
}

/// Writes a list of texts.
pub fn push_texts<T: AsRef<str>>(out: &mut Vec<u8>, texts: &[T]) {
    out.push(b'[');
    for (position, text) in texts.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        push_text(out, text.as_ref());
    }
    out.push(b']');
}

/// Writes a label set as an object.
pub fn push_labels(out: &mut Vec<u8>, labels: &Labels) {
    out.push(b'{');
    for (position, (name, value)) in labels.iter_bytes().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        push_label_text(out, name);
        out.push(b':');
        push_label_text(out, value);
    }
    out.push(b'}');
}

/// Writes a text in quotes, of which `plain` leading bytes need no escape. A byte that is not UTF-8
/// becomes the replacement character, as in Go's library; Prometheus' writer of label sets copies
/// the byte, which is not valid JSON.
fn push_escaped(out: &mut Vec<u8>, bytes: &[u8], plain: usize, is_special: impl Fn(u8) -> bool) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut copied = 0;
    for (at, byte) in bytes.iter().enumerate().skip(plain) {
        if *byte == 0xf4 {
            // Placeholders for bytes that are not UTF-8, U+10FF80 to U+10FFFF.
            if let Some([0xf4, 0x8f, 0xbe | 0xbf, _]) = bytes.get(at..at + 4) {
                out.extend_from_slice(&bytes[copied..at]);
                out.extend_from_slice(b"\\ufffd");
                copied = at + 4;
            }
            continue;
        }
        if !is_special(*byte) {
            continue;
        }
        let separator = match bytes.get(at..at + 3) {
            Some([0xe2, 0x80, 0xa8]) => Some(b'8'),
            Some([0xe2, 0x80, 0xa9]) => Some(b'9'),
            _ => None,
        };
        if *byte == 0xe2 && separator.is_none() {
            continue;
        }
        out.extend_from_slice(&bytes[copied..at]);
        copied = at + 1;
        match *byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0xe2 => {
                out.extend_from_slice(b"\\u202");
                out.extend(separator);
                copied = at + 3;
            }
            control => {
                let digits = [HEX[usize::from(control >> 4)], HEX[usize::from(control & 15)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(push: impl Fn(&mut Vec<u8>, &str), text: &str) -> String {
        let mut out = Vec::new();
        push(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_escaped_as_go_does() {
        let text = "<a>&\"\\\n\r\t\u{1}\u{7f}\u{2028}\u{2029}\u{201c}é";
        assert_eq!(
            written(push_text, text),
            "\"\\u003ca\\u003e\\u0026\\\"\\\\\\n\\r\\t\\u0001\u{7f}\\u2028\\u2029\u{201c}é\""
        );
        assert_eq!(
            written(|out, text| push_label_text(out, text.as_bytes()), text),
            "\"<a>&\\\"\\\\\\n\\r\\t\\u0001\u{7f}\u{2028}\u{2029}\u{201c}é\""
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        let invalid_byte =
            |byte: u32| char::from_u32(model::labels::INVALID_BYTE_BASE + byte).unwrap();
        let text: String =
            ['a', invalid_byte(0x80), '\u{10ff7f}', invalid_byte(0xff), '<'].iter().collect();
        assert_eq!(
            written(|out, text| push_label_text(out, text.as_bytes()), &text),
            "\"a\\ufffd\u{10ff7f}\\ufffd<\""
        );
        assert_eq!(written(push_text, &text), "\"a\\ufffd\u{10ff7f}\\ufffd\\u003c\"");
    }

    #[test]
    fn labels_are_an_object_in_order() {
        let mut out = Vec::new();
        push_labels(&mut out, &Labels::from_pairs([("b", "x"), ("__name__", "up")]));
        assert_eq!(out, br#"{"__name__":"up","b":"x"}"#);
        out.clear();
        push_labels(&mut out, &Labels::empty());
        assert_eq!(out, b"{}");
    }

    proptest! {
        #[test]
        fn any_text_reads_back(text in "\\PC{0,20}|[\\x00-\\x7f\u{2020}-\u{2030}]{0,20}|[a-z]{0,20}[ \"\\\\!#\\x1f\\x7f][a-z]{0,9}") {
            let push_label: fn(&mut Vec<u8>, &str) = |out, text| push_label_text(out, text.as_bytes());
            for push in [push_text, push_label] {
                let read: String = serde_json::from_str(&written(push, &text)).unwrap();
                prop_assert_eq!(&read, &text);
            }
        }

        #[test]
        fn the_plain_prefix_needs_no_escape(text in "[a-z]{0,17}[\"\\\\<>&\\x1f\u{2028}é]?[a-z]{0,9}") {
            let plain = plain_prefix(text.as_bytes(), [b'<', b'>', b'&']);
            let is_plain = |byte: &u8| byte.is_ascii_lowercase();
            prop_assert!(text.as_bytes()[..plain].iter().all(is_plain), "{text} {plain}");
            let is_known = text.len() < 8 || !text.bytes().all(|byte| is_plain(&byte));
            prop_assert!(is_known || plain == text.len(), "{text} {plain}");
        }
    }
}
