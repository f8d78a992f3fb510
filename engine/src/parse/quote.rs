//! Quoting of strings and characters in messages, as in Go.

pub(super) use model::labels::quoted;

/// Quotes a string; cuts a string of more than ten bytes to ten characters and an ellipsis.
///
/// Source: `Item.String` of Prometheus.
pub(super) fn quoted_prefix(text: &str) -> String {
    if text.len() <= 10 {
        return quoted(text);
    }
    let end = text.char_indices().nth(10).map_or(text.len(), |(at, _)| at);
    format!("{}...", quoted(&text[..end]))
}

/// Quotes a character in single quotes; the end of input is the replacement character.
pub(super) fn quoted_char(c: Option<char>) -> String {
    let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
    match c {
        '\'' => "'\\''".to_owned(),
        '"' => "'\"'".to_owned(),
        c => {
            let quoted = quoted(c.encode_utf8(&mut [0; 4]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

/// Formats a character as code point and character: `U+0063 'c'`.
pub(super) fn code_point(c: char) -> String {
    let quoted = quoted_char(Some(c));
    if quoted.starts_with("'\\") && !matches!(c, '\'' | '\\') {
        // Go omits a character that cannot be printed.
        format!("U+{:04X}", c as u32)
    } else {
        format!("U+{:04X} '{c}'", c as u32)
    }
}
