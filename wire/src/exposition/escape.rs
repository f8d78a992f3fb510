//! Escaping of names for readers without UTF-8 names.

use std::borrow::Cow;

use model::labels::is_legacy_metric_name;

/// Replacement for other characters than ASCII letters, digits, underscores and colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escaping {
    /// None.
    AllowUtf8,
    /// An underscore.
    Underscores,
    /// `_dot_` for a dot, two underscores for others and for underscores.
    Dots,
    /// The code point between underscores, with `U__` before the name.
    Values,
}

impl Escaping {
    /// Returns the escaping with this name in a header.
    pub fn from_name(name: &str) -> Option<Escaping> {
        let all = [Escaping::AllowUtf8, Escaping::Underscores, Escaping::Dots, Escaping::Values];
        all.into_iter().find(|escaping| escaping.name() == name)
    }

    /// Its name in a header.
    pub fn name(self) -> &'static str {
        match self {
            Escaping::AllowUtf8 => "allow-utf-8",
            Escaping::Underscores => "underscores",
            Escaping::Dots => "dots",
            Escaping::Values => "values",
        }
    }

    /// Escapes the name of a metric or label.
    pub(super) fn escape(self, name: &str) -> Cow<'_, str> {
        if self == Escaping::AllowUtf8 || is_legacy_metric_name(name) {
            return Cow::Borrowed(name);
        }
        let mut escaped = String::with_capacity(name.len() + 8);
        if self == Escaping::Values {
            escaped.push_str("U__");
        }
        for (at, character) in name.char_indices() {
            let is_plain = matches!(character, 'a'..='z' | 'A'..='Z' | '_' | ':')
                || character.is_ascii_digit() && at > 0;
            match (self, character) {
                (Escaping::Dots | Escaping::Values, '_') => escaped.push_str("__"),
                (Escaping::Dots, '.') => escaped.push_str("_dot_"),
                _ if is_plain => escaped.push(character),
                (Escaping::Underscores | Escaping::AllowUtf8, _) => escaped.push('_'),
                (Escaping::Dots, _) => escaped.push_str("__"),
                (Escaping::Values, _) => {
                    escaped.push_str(&format!("_{:x}_", u32::from(character)));
                }
            }
        }
        Cow::Owned(escaped)
    }
}
