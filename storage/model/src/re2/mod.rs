//! Regular expressions in the syntax of RE2, as in Prometheus.
//!
//! The syntax of the `regex` crate is similar, but its `\d`, `\w`, `\s` and `\b` match Unicode, it
//! lacks `\Q…\E` and octal escapes, and it accepts set operations, verbose mode and other syntax that
//! RE2 refuses. So an expression is parsed here by Go's rules, refused with Go's messages, and
//! translated.
//!
//! Source: `regexp/syntax/parse.go` of Go, with the flags `Perl | DotNL`.

mod class;

use std::collections::HashSet;
use std::fmt::Write as _;

use regex::{Regex, RegexBuilder};

use crate::error::MatcherError;
use crate::labels::INVALID_BYTE_BASE;

/// Maximum length of a regular expression in bytes.
pub const PATTERN_BYTES_MAX: usize = 32 << 10;
/// Maximum memory of a compiled regular expression.
const PATTERN_COMPILED_BYTES_MAX: usize = 4 << 20;
/// Maximum nesting of groups.
const NESTING_MAX: usize = 200;
/// Maximum product of nested repetitions.
const REPEAT_MAX: u32 = 1_000;

/// Compiles an expression that must match a whole text; a dot matches a line feed.
///
/// Errors: the expression does not parse, or is too large.
/// Source: `NewFastRegexMatcher` of Prometheus parses the expression and then wraps it as
/// `^(?s:…)$`.
pub fn compile_anchored(source: &str) -> Result<Regex, MatcherError> {
    compile(source, &wrapped(&to_rust(source)?))
}

/// Compiles an expression that is wrapped before it is parsed: a `\Q` without `\E` then quotes the
/// closing parenthesis, and `a)(b` has two groups.
///
/// Errors: as for [`compile_anchored`].
/// Source: `evalLabelReplace` of Prometheus.
pub fn compile_wrapped(source: &str) -> Result<Regex, MatcherError> {
    check_length(source)?;
    compile(source, &translated(&wrapped(source))?)
}

fn wrapped(expression: &str) -> String {
    format!("^(?s:{expression})$")
}

/// Compiles the translation of an expression.
fn compile(source: &str, translation: &str) -> Result<Regex, MatcherError> {
    RegexBuilder::new(translation)
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

/// Translates an RE2 expression to the syntax of the `regex` crate.
///
/// Errors: RE2 refuses the expression (with Go's message), or it is too long.
pub fn to_rust(source: &str) -> Result<String, MatcherError> {
    check_length(source)?;
    translated(source)
}

fn check_length(source: &str) -> Result<(), MatcherError> {
    if source.len() > PATTERN_BYTES_MAX {
        return Err(MatcherError::TooLarge {
            bytes: source.len(),
            detail: format!("at most {PATTERN_BYTES_MAX} bytes"),
        });
    }
    Ok(())
}

fn translated(source: &str) -> Result<String, MatcherError> {
    let mut translator = Translator {
        source,
        position: 0,
        out: String::with_capacity(source.len()),
        levels: vec![Level::default()],
        names: HashSet::new(),
        repeated_at: None,
    };
    translator.run().map_err(MatcherError::Syntax)?;
    Ok(translator.out)
}

struct Translator<'a> {
    source: &'a str,
    position: usize,
    out: String,
    /// Open groups, the whole expression first.
    levels: Vec<Level>,
    /// Names of groups so far.
    names: HashSet<&'a str>,
    /// Start of the repetition that was read last, if nothing follows it yet.
    repeated_at: Option<usize>,
}

/// Open group.
#[derive(Default)]
struct Level {
    /// Item that a repetition would apply to.
    last: Option<Item>,
    /// Maximum weight of the items before the last.
    weight: u32,
}

#[derive(Clone, Copy)]
struct Item {
    /// End of the item in the output.
    end: usize,
    /// Product of the nested repetitions in the item.
    weight: u32,
}

impl<'a> Translator<'a> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(c) = self.peek() {
            let repeated_at = self.repeated_at.take();
            match c {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => {
                    self.take();
                    self.out.push('|');
                    let level = self.level();
                    level.weight = level.weight.max(level.last.take().map_or(0, |i| i.weight));
                }
                '^' | '$' | '.' => {
                    self.take();
                    self.out.push(c);
                    self.item(0);
                }
                '[' => self.class()?,
                '*' | '+' | '?' => {
                    let start = self.position;
                    self.take();
                    self.repeat(start, repeated_at, c.to_string(), None)?;
                }
                '{' => self.braces(repeated_at)?,
                '\\' => self.backslash()?,
                _ => {
                    let c = self.text_char(c)?;
                    self.literal(c);
                }
            }
        }
        if self.levels.len() > 1 {
            return Err(error("missing closing )", self.source));
        }
        Ok(())
    }

    fn rest(&self) -> &'a str {
        &self.source[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.position += c.len_utf8();
        Some(c)
    }

    fn accept(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.position += text.len();
        }
        found
    }

    fn error_from(&self, code: &str, start: usize) -> String {
        error(code, &self.source[start..self.position])
    }

    /// Consumes a peeked character, unless it represents a byte that is not UTF-8.
    fn text_char(&mut self, c: char) -> Result<u32, String> {
        if c as u32 >= INVALID_BYTE_BASE + 0x80 {
            return Err(error("invalid UTF-8", self.rest()));
        }
        self.take();
        Ok(c as u32)
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the whole expression is always open")
    }

    /// Notes that the text written last can be repeated.
    fn item(&mut self, weight: u32) {
        let end = self.out.len();
        let level = self.level();
        level.weight = level.weight.max(level.last.map_or(0, |item| item.weight));
        level.last = Some(Item { end, weight });
    }

    fn literal(&mut self, code: u32) {
        match char::from_u32(code) {
            Some(c) => push_char(&mut self.out, c),
            // No text has a surrogate.
            None => self.out.push_str("[a&&b]"),
        }
        self.item(0);
    }

    fn open(&mut self) -> Result<(), String> {
        let start = self.position;
        if !self.rest().starts_with("(?") {
            self.take();
            self.out.push('(');
            return self.push_level(start);
        }
        let is_named = self.rest().starts_with("(?P<") && self.rest().len() > 4
            || self.rest().starts_with("(?<") && self.rest().len() > 3;
        if !is_named {
            return self.flags();
        }
        let Some(length) = self.rest().find('>') else {
            return Err(error("invalid named capture", self.rest()));
        };
        let head = &self.rest()[..=length];
        let name = &head[head.find('<').map_or(0, |at| at + 1)..length];
        let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(error("invalid named capture", head));
        }
        self.position += head.len();
        // The crate accepts a name only once, and none that starts with a digit.
        if name.starts_with(|c: char| c.is_ascii_digit()) || !self.names.insert(name) {
            self.out.push('(');
        } else {
            let _ = write!(self.out, "(?P<{name}>");
        }
        self.push_level(start)
    }

    fn push_level(&mut self, start: usize) -> Result<(), String> {
        if self.levels.len() > NESTING_MAX {
            return Err(error("expression nests too deeply", &self.source[start..]));
        }
        self.levels.push(Level::default());
        Ok(())
    }

    /// Reads flags: `(?i)`, `(?i:`, `(?-s:`, ….
    fn flags(&mut self) -> Result<(), String> {
        let start = self.position;
        self.position += 2;
        let (mut is_negated, mut got_flag) = (false, false);
        while let Some(c) = self.take() {
            match c {
                'i' | 'm' | 's' | 'U' => got_flag = true,
                '-' if !is_negated => {
                    is_negated = true;
                    got_flag = false;
                }
                ':' | ')' if !is_negated || got_flag => {
                    let text = without_repeats(&self.source[start..self.position]);
                    // Empty flags change nothing; the crate refuses them.
                    if text != "(?)" {
                        self.out.push_str(&text);
                    }
                    return if c == ':' { self.push_level(start) } else { Ok(()) };
                }
                _ => return Err(self.error_from("invalid or unsupported Perl syntax", start)),
            }
        }
        // Go's message has the whole rest here.
        Err(self.error_from("invalid or unsupported Perl syntax", start))
    }

    fn close(&mut self) -> Result<(), String> {
        if self.levels.len() < 2 {
            return Err(error("unexpected )", self.source));
        }
        self.take();
        let closed = self.levels.pop().unwrap_or_default();
        self.out.push(')');
        self.item(closed.weight.max(closed.last.map_or(0, |item| item.weight)));
        Ok(())
    }

    /// Repeats the last item; `counts` are those of `{min,max}`.
    fn repeat(
        &mut self,
        start: usize,
        repeated_at: Option<usize>,
        mut operator: String,
        counts: Option<(u32, Option<u32>)>,
    ) -> Result<(), String> {
        if self.accept("?") {
            operator.push('?');
        }
        if let Some(first) = repeated_at {
            return Err(self.error_from("invalid nested repetition operator", first));
        }
        let missing = self.error_from("missing argument to repetition operator", start);
        let invalid = self.error_from("invalid repeat count", start);
        self.repeated_at = Some(start);
        let Some(item) = &mut self.level().last else { return Err(missing) };
        if let Some((min, max)) = counts {
            item.weight = match max.unwrap_or(min) {
                0 if max.is_some() => 0,
                0 => item.weight,
                count => count.max(item.weight.saturating_mul(count)),
            };
            if (min >= 2 || max.is_some_and(|max| max >= 2)) && item.weight > REPEAT_MAX {
                return Err(invalid);
            }
        }
        let end = item.end;
        item.end += operator.len();
        // There may be flags between the item and its repetition.
        self.out.insert_str(end, &operator);
        Ok(())
    }

    /// Reads `{2}`, `{2,}`, `{2,3}`, or a literal brace.
    fn braces(&mut self, repeated_at: Option<usize>) -> Result<(), String> {
        let start = self.position;
        let Some(counts) = Counts::read(self.rest()) else {
            self.take();
            self.literal('{' as u32);
            return Ok(());
        };
        self.position += counts.length;
        let is_valid = |min: &u32| *min <= REPEAT_MAX && !counts.is_invalid(*min);
        let Some(min) = counts.min.filter(is_valid) else {
            return Err(self.error_from("invalid repeat count", start));
        };
        let operator = match counts.max {
            Some(max) => format!("{{{min},{max}}}"),
            None => format!("{{{min},}}"),
        };
        self.repeat(start, repeated_at, operator, Some((min, counts.max)))
    }
}

fn error(code: &str, part: &str) -> String {
    format!("{code}: `{part}`")
}

/// Counts of `{min}`, `{min,}` or `{min,max}`.
struct Counts {
    /// Minimum; `None` if it is too large.
    min: Option<u32>,
    /// Maximum; `None` if there is none.
    max: Option<u32>,
    /// Length in bytes.
    length: usize,
}

impl Counts {
    fn read(text: &str) -> Option<Counts> {
        let (mut min, rest) = count(text.strip_prefix('{')?)?;
        let (max, rest) = match rest.strip_prefix(',') {
            None => (min, rest),
            Some(rest) if rest.starts_with('}') => (None, rest),
            Some(rest) => {
                let (max, rest) = count(rest)?;
                // As in Go, a maximum that is too large invalidates the minimum.
                min = min.filter(|_| max.is_some());
                (max, rest)
            }
        };
        let rest = rest.strip_prefix('}')?;
        Some(Counts { min, max, length: text.len() - rest.len() })
    }

    fn is_invalid(&self, min: u32) -> bool {
        self.max.is_some_and(|max| max > REPEAT_MAX || min > max)
    }
}

/// Reads a number without leading zeros; `None` inside if it is too large.
fn count(text: &str) -> Option<(Option<u32>, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 1 && text.starts_with('0') {
        return None;
    }
    Some((text[..digits].parse().ok(), &text[digits..]))
}

fn push_char(out: &mut String, c: char) {
    if c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii() {
        out.push(c);
    } else {
        let _ = write!(out, "\\x{:02X}", c as u32);
    }
}

/// Returns flags without duplicates, which the crate refuses; a flag that is both set and unset is
/// unset.
fn without_repeats(text: &str) -> String {
    let end = text.len() - 1;
    let (set, unset) = text[2..end].split_once('-').unwrap_or((&text[2..end], ""));
    let once = |flags: &str, skip: &str| -> String {
        "imsU".chars().filter(|flag| flags.contains(*flag) && !skip.contains(*flag)).collect()
    };
    let dash = if unset.is_empty() { "" } else { "-" };
    format!("(?{}{dash}{}{}", once(set, unset), once(unset, ""), &text[end..])
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
    fn syntax_that_differs_from_the_crate_is_translated() {
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

    #[test]
    fn refusals_read_as_those_of_go() {
        let cases = [
            ("a)", "unexpected ): `a)`"),
            ("(a", "missing closing ): `(a`"),
            ("x[a", "missing closing ]: `[a`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a|*b", "missing argument to repetition operator: `*`"),
            ("(?i)+?", "missing argument to repetition operator: `+?`"),
            ("a{1001}b", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("(a{100}){11}b", "invalid repeat count: `{11}`"),
            ("a(?x)", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?P<a-b>c)", "invalid named capture: `(?P<a-b>`"),
            ("(?P<a", "invalid named capture: `(?P<a`"),
            (r"a\qb", r"invalid escape sequence: `\q`"),
            (r"\xg1", r"invalid escape sequence: `\xg1`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        ];
        for (pattern, expected) in cases {
            let message = compile_anchored(pattern).unwrap_err().to_string();
            assert_eq!(message, format!("error parsing regexp: {expected}"), "{pattern}");
        }
    }

    #[test]
    fn flags_names_and_halves_of_pairs_are_no_obstacle() {
        for (pattern, text) in [
            ("(?ii)A(?s-i)*", "aa"),
            ("(?P<n>a)(?P<n>b)(?<1>c)", "abc"),
            (r"[\x{D800}-\x{FFFF}]", "\u{e000}"),
            (r"\x{D800}|a", "a"),
            (r"(?i:k)", "\u{212a}"),
            (r"a\Q.", "a."),
        ] {
            assert!(is_match(pattern, text), "{pattern} {text}");
        }
        assert!(!is_match(r"[\x{D800}]", "a"));
    }

    #[test]
    fn wrapping_comes_before_parsing_where_prometheus_does_so() {
        for (pattern, text) in [("a(b)", "ab"), ("a)(b", "ab"), (r"\Qa.\E", "a."), ("a|b", "b")] {
            let regex = compile_wrapped(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert!(regex.is_match(text), "{pattern} {text}");
            assert!(!regex.is_match(&format!("x{text}")), "{pattern} is anchored");
        }
        for pattern in [r"\Qa", "a)", "(a", "[a", "a\\", "*"] {
            assert!(compile_wrapped(pattern).is_err(), "{pattern} should not compile");
        }
        assert!(compile_wrapped(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
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
