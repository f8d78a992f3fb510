//! Regular expressions in the syntax of RE2, which Prometheus' are written in.
//!
//! The `regex` crate means nearly the same by the same text. Where it does not, the text is
//! translated: `\d`, `\s`, `\w` and `\b` know ASCII only; `[`, `&&`, `--` and `~~` are plain
//! within brackets; `{` that opens no count is plain; `\Q…\E` quotes; `\<` and `\>` are plain;
//! `\123` is octal. What only the crate knows (other flags, other escapes, repeated
//! repetitions, counts above 1,000) is refused.
//!
//! Source: the `regexp/syntax` package of Go.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

use crate::matcher::MatcherError;

/// The most bytes that a regular expression may have.
pub const PATTERN_BYTES_MAX: usize = 32 << 10;
/// The most memory that a compiled regular expression may take.
const PATTERN_COMPILED_BYTES_MAX: usize = 4 << 20;
/// The largest count in a repetition.
const REPEAT_MAX: u32 = 1_000;

/// The names that may stand in `[[:name:]]`.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// An expression that must match a whole text; a dot matches a line feed.
///
/// Errors: an expression that does not parse, or is too large.
/// Source: Prometheus wraps its expressions as `^(?s:…)$`.
pub fn compile_anchored(source: &str) -> Result<Regex, MatcherError> {
    let anchored = format!("^(?s:{})$", to_rust(source)?);
    RegexBuilder::new(&anchored)
        .size_limit(PATTERN_COMPILED_BYTES_MAX)
        .dfa_size_limit(PATTERN_COMPILED_BYTES_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => MatcherError::TooLarge {
                bytes: source.len(),
                detail: format!("it compiles to more than {limit} bytes"),
            },
            error => MatcherError::Syntax(error.to_string()),
        })
}

/// An RE2 expression in the syntax of the `regex` crate. Only what differs is looked at; the
/// crate finds the rest of what is wrong.
///
/// Errors: an expression that RE2 refuses and the crate might not, or that is too long.
pub fn to_rust(source: &str) -> Result<String, MatcherError> {
    if source.len() > PATTERN_BYTES_MAX {
        return Err(MatcherError::TooLarge {
            bytes: source.len(),
            detail: format!("at most {PATTERN_BYTES_MAX} bytes"),
        });
    }
    let mut translation =
        Translation { rest: source.chars().peekable(), out: String::new(), is_repeated: false };
    match translation.run() {
        Ok(()) => Ok(translation.out),
        Err(detail) => Err(MatcherError::Syntax(format!("{detail}: `{source}`"))),
    }
}

struct Translation<'s> {
    rest: Peekable<Chars<'s>>,
    out: String,
    /// Whether what was read last is a repetition.
    is_repeated: bool,
}

impl Translation<'_> {
    fn run(&mut self) -> Result<(), &'static str> {
        while let Some(c) = self.rest.next() {
            let was_repeated = std::mem::replace(&mut self.is_repeated, false);
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '*' | '+' | '?' => {
                    self.out.push(c);
                    self.repetition(was_repeated)?;
                }
                '{' => self.count(was_repeated)?,
                c => self.out.push(c),
            }
        }
        Ok(())
    }

    /// Reads what may follow a repetition.
    fn repetition(&mut self, was_repeated: bool) -> Result<(), &'static str> {
        if was_repeated {
            return Err("invalid nested repetition operator");
        }
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
        self.is_repeated = true;
        Ok(())
    }

    /// Reads what follows an opening brace: a count, or else the brace is plain.
    fn count(&mut self, was_repeated: bool) -> Result<(), &'static str> {
        let mut ahead = self.rest.clone();
        let Some(text) = count_text(&mut ahead) else {
            self.out.push_str("\\{");
            return Ok(());
        };
        let mut bounds = text.split(',').filter(|bound| !bound.is_empty());
        let mut bound = || bounds.next().map_or(Ok(None), |text| text.parse::<u32>().map(Some));
        match (bound(), bound()) {
            (Ok(Some(min)), Ok(max))
                if min <= REPEAT_MAX
                    && max.unwrap_or(min) <= REPEAT_MAX
                    && max.unwrap_or(min) >= min => {}
            _ => return Err("invalid repeat count"),
        }
        self.rest = ahead;
        self.out.push('{');
        self.out.push_str(&text);
        self.out.push('}');
        self.repetition(was_repeated)
    }

    /// Reads what follows an opening parenthesis, up to the group's content.
    fn group(&mut self) -> Result<(), &'static str> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        if matches!(self.rest.peek(), Some('P' | '<')) {
            return Ok(());
        }
        for c in self.rest.by_ref() {
            match c {
                'i' | 'm' | 's' | 'U' | '-' => self.out.push(c),
                ':' | ')' => {
                    self.out.push(c);
                    return Ok(());
                }
                _ => return Err("invalid or unsupported Perl syntax"),
            }
        }
        Err("missing argument to repetition operator")
    }

    /// Reads what follows a backslash outside of brackets.
    fn escape(&mut self) -> Result<(), &'static str> {
        let Some(c) = self.rest.peek().copied() else {
            return Err("trailing backslash at end of expression");
        };
        if let Some((is_negated, members)) = perl_class(c) {
            self.rest.next();
            self.out.push_str(if is_negated { "[^" } else { "[" });
            self.out.push_str(members);
            self.out.push(']');
            return Ok(());
        }
        match c {
            'b' => self.out.push_str("(?-u:\\b)"),
            'B' | 'A' | 'z' => self.out.extend(['\\', c]),
            'Q' => {
                self.rest.next();
                self.quoted();
                return Ok(());
            }
            'p' | 'P' => return self.unicode_class(),
            _ => {
                let c = self.escaped_char()?;
                self.plain(c);
                return Ok(());
            }
        }
        self.rest.next();
        Ok(())
    }

    /// Reads plain text up to `\E` or the end.
    fn quoted(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.plain(c);
        }
    }

    /// Reads `p{Greek}`, `pL`, `p{^Greek}`.
    fn unicode_class(&mut self) -> Result<(), &'static str> {
        let invalid = "invalid character class range";
        let mut is_negated = self.rest.next() == Some('P');
        let mut name = String::new();
        match self.rest.next().ok_or(invalid)? {
            '{' => loop {
                match self.rest.next().ok_or(invalid)? {
                    '}' => break,
                    '^' if name.is_empty() => is_negated = !is_negated,
                    c => name.push(c),
                }
            },
            c => name.push(c),
        }
        self.out.push_str(if is_negated { "\\P{" } else { "\\p{" });
        self.out.push_str(&name);
        self.out.push('}');
        Ok(())
    }

    /// Reads a class from after its opening bracket.
    fn class(&mut self) -> Result<(), &'static str> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let c = self.rest.peek().copied().ok_or("missing closing ]")?;
            if c == ']' && !is_first {
                self.rest.next();
                self.out.push(']');
                return Ok(());
            }
            is_first = false;
            if c == '[' && self.named_class()? {
                continue;
            }
            if c == '\\' && self.class_in_class()? {
                continue;
            }
            let low = self.class_char()?;
            let mut ahead = self.rest.clone();
            if ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']') {
                self.rest = ahead;
                let high = self.class_char()?;
                if high < low {
                    return Err("invalid character class range");
                }
                self.plain(low);
                self.out.push('-');
                self.plain(high);
            } else {
                self.plain(low);
            }
        }
    }

    /// Reads `[:alpha:]` within brackets, if it stands there.
    fn named_class(&mut self) -> Result<bool, &'static str> {
        let mut ahead = self.rest.clone();
        ahead.next();
        if ahead.next() != Some(':') {
            return Ok(false);
        }
        let mut name = String::new();
        loop {
            match ahead.next() {
                Some(':') if ahead.peek() == Some(&']') => break,
                Some(c) => name.push(c),
                None => return Ok(false),
            }
        }
        ahead.next();
        if !NAMED_CLASSES.contains(&name.trim_start_matches('^')) {
            return Err("invalid character class range");
        }
        self.rest = ahead;
        self.out.push_str("[:");
        self.out.push_str(&name);
        self.out.push_str(":]");
        Ok(true)
    }

    /// Reads a class by a backslash within brackets, if it stands there.
    fn class_in_class(&mut self) -> Result<bool, &'static str> {
        let mut ahead = self.rest.clone();
        ahead.next();
        let c = ahead.peek().copied().unwrap_or('\0');
        if let Some((is_negated, members)) = perl_class(c) {
            ahead.next();
            self.rest = ahead;
            self.out.push_str(if is_negated { "[^" } else { "[" });
            self.out.push_str(members);
            self.out.push(']');
            return Ok(true);
        }
        if matches!(c, 'p' | 'P') {
            self.rest = ahead;
            self.unicode_class()?;
            return Ok(true);
        }
        Ok(false)
    }

    fn class_char(&mut self) -> Result<char, &'static str> {
        match self.rest.next() {
            None => Err("missing closing ]"),
            Some('\\') => self.escaped_char(),
            Some(c) => Ok(c),
        }
    }

    /// Reads the one character that an escape stands for, from after the backslash.
    fn escaped_char(&mut self) -> Result<char, &'static str> {
        let invalid = "invalid escape sequence";
        let c = self.rest.next().ok_or("trailing backslash at end of expression")?;
        match c {
            'a' => Ok('\u{07}'),
            'f' => Ok('\u{0c}'),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            'v' => Ok('\u{0b}'),
            'x' => self.hexadecimal().ok_or(invalid),
            '0'..='7' => {
                let next_is_octal = matches!(self.rest.peek(), Some('0'..='7'));
                if c != '0' && !next_is_octal {
                    return Err(invalid);
                }
                let mut code = c.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let Some(digit) = self.rest.next_if(|c| c.is_digit(8)) else { break };
                    code = code * 8 + digit.to_digit(8).unwrap_or(0);
                }
                char::from_u32(code).ok_or(invalid)
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(c),
            _ => Err(invalid),
        }
    }

    /// Reads `41` or `{10FFFF}`.
    fn hexadecimal(&mut self) -> Option<char> {
        let mut code = 0_u32;
        if self.rest.next_if_eq(&'{').is_none() {
            for _ in 0..2 {
                code = code * 16 + self.rest.next()?.to_digit(16)?;
            }
            return char::from_u32(code);
        }
        let mut digits = 0;
        loop {
            match self.rest.next()? {
                '}' => return char::from_u32(code).filter(|_| digits > 0),
                c => code = code.checked_mul(16)?.checked_add(c.to_digit(16)?)?,
            }
            digits += 1;
        }
    }

    /// Writes a character that stands for itself, within brackets and outside.
    fn plain(&mut self, c: char) {
        if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
            self.out.push('\\');
        }
        self.out.push(c);
    }
}

/// Reads `3}`, `3,}` or `3,5}`; gives what stands before the brace.
fn count_text(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut text = String::new();
    loop {
        match rest.next()? {
            '}' if !text.is_empty() => return Some(text),
            ',' if !text.is_empty() && !text.contains(',') => text.push(','),
            c if c.is_ascii_digit() => text.push(c),
            _ => return None,
        }
    }
}

/// The members of `\d` and its like, and whether they are those left out.
fn perl_class(c: char) -> Option<(bool, &'static str)> {
    let members = match c.to_ascii_lowercase() {
        'd' => "0-9",
        's' => "\\t\\n\\f\\r ",
        'w' => "0-9A-Za-z_",
        _ => return None,
    };
    Some((c.is_ascii_uppercase(), members))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_match(pattern: &str, text: &str) -> bool {
        compile_anchored(pattern)
            .unwrap_or_else(|error| panic!("{pattern}: {error}"))
            .is_match(text)
    }

    #[test]
    fn what_the_crate_reads_otherwise_is_translated() {
        let matching = [
            (r"\d+", "12"),
            (r"[\d.]+", "1.2"),
            (r"\Qa.b*\E+", "a.b**"),
            (r"[[a]+", "[a"),
            (r"[a&&b]+", "a&b"),
            (r"[!--]+", "!,-"),
            (r"[--/]+", "-./"),
            (r"[a~~]", "~"),
            (r"[]a]+", "]a"),
            (r"[^]a]", "b"),
            (r"{a}", "{a}"),
            (r"a{,2}", "a{,2}"),
            (r"a{2}b{1,2}c{1,}", "aabbcc"),
            (r"\<a\>", "<a>"),
            (r"\101\x42\x{43}", "ABC"),
            (r"[[:alpha:]\-\]]+", "a-]"),
            (r"\p{^Greek}\pL", "aα"),
            (r"(?i:abc)(?P<n>d)", "ABCd"),
            (r"a.*?b", "a\nb"),
            (r"\/\_\-\:\%", "/_-:%"),
            (r"\ba\b", "a"),
        ];
        for (pattern, text) in matching {
            assert!(is_match(pattern, text), "{pattern} {text}");
        }
        let differing =
            [(r"\d", "٣"), (r"\w", "é"), (r"\s", "\u{a0}"), (r"\Qa.b\E", "axb"), (r"[\D]", "1")];
        for (pattern, text) in differing {
            assert!(!is_match(pattern, text), "{pattern} {text}");
        }
        assert!(is_match(r"\D\W\S", "٣é\u{a0}"));
    }

    #[test]
    fn what_only_the_crate_knows_is_refused() {
        for pattern in [
            "a**",
            "a+*",
            "a{2}{3}",
            "a{1001}",
            "a{3,2}",
            "(?x)a",
            "(?u:a)",
            r"\h",
            r"\u0041",
            r"\1",
            r"\C",
            r"\é",
            "[a",
            "[z-a]",
            r"[\b]",
            "a\\",
            "(?",
            r"\x{}",
            r"\x{110000}",
            "[[:nope:]]",
            r"\pé",
            "(a",
            "*",
        ] {
            assert!(compile_anchored(pattern).is_err(), "{pattern} should not compile");
        }
        assert!(to_rust(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
    }

    proptest! {
        #[test]
        fn anything_typed_ends(pattern in r"([a-c]|[\[\](){}*+?|^$.\\,:&~<>-]|[0-9]|[QEdDwWsSbBpPx]){0,30}") {
            if let Ok(regex) = compile_anchored(&pattern) {
                regex.is_match("ab-1");
            }
        }

        #[test]
        fn quoted_text_is_plain(text in any::<String>()) {
            prop_assume!(!text.contains("\\E") && !text.ends_with('\\') && text.len() < 100);
            let pattern = format!("\\Q{text}\\E");
            prop_assert!(is_match(&pattern, &text));
        }
    }
}
