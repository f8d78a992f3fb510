//! JSON strings.

use model::Labels;

/// Writes a text in quotes as Prometheus' writer of label sets does: only quotes, backslashes
/// and control characters are escaped.
pub(crate) fn push_label_text(out: &mut Vec<u8>, text: &str) {
    push_escaped(out, text, |byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
}

/// Writes a text in quotes as Go's standard library does: `<`, `>`, `&` and the two line
/// separators of Unicode are escaped as well.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    // 0xe2 begins U+2028 and U+2029; what else it begins passes unchanged.
    push_escaped(out, text, |byte| {
        matches!(byte, b'"' | b'\\' | 0..=0x1f | b'<' | b'>' | b'&' | 0xe2)
    });
}

/// Writes a list of texts.
pub(crate) fn push_texts<T: AsRef<str>>(out: &mut Vec<u8>, texts: &[T]) {
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
pub(crate) fn push_labels(out: &mut Vec<u8>, labels: &Labels) {
    out.push(b'{');
    for (position, (name, value)) in labels.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        push_label_text(out, name);
        out.push(b':');
        push_label_text(out, value);
    }
    out.push(b'}');
}

/// Writes a text in quotes. A byte that is not UTF-8 is written as what replaces such: Go's
/// library does so too, and the writer of label sets, which writes the byte, gives no JSON.
fn push_escaped(out: &mut Vec<u8>, text: &str, is_special: impl Fn(u8) -> bool) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut copied = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == 0xf4 {
            // The stand-ins for bytes that are not UTF-8, U+10FF80 to U+10FFFF.
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
            written(push_label_text, text),
            "\"<a>&\\\"\\\\\\n\\r\\t\\u0001\u{7f}\u{2028}\u{2029}\u{201c}é\""
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        let stand_in = |byte: u32| char::from_u32(model::labels::INVALID_BYTE_BASE + byte).unwrap();
        let text: String =
            ['a', stand_in(0x80), '\u{10ff7f}', stand_in(0xff), '<'].iter().collect();
        assert_eq!(written(push_label_text, &text), "\"a\\ufffd\u{10ff7f}\\ufffd<\"");
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
        fn any_text_reads_back(text in "\\PC{0,20}|[\\x00-\\x7f\u{2020}-\u{2030}]{0,20}") {
            for push in [push_text as fn(&mut Vec<u8>, &str), push_label_text] {
                let read: String = serde_json::from_str(&written(push, &text)).unwrap();
                prop_assert_eq!(&read, &text);
            }
        }
    }
}
