//! Label matchers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use regex::Regex;

use crate::error::MatcherError;
use crate::labels::{is_legacy_label_name, write_quoted};
use crate::re2;
pub use crate::re2::PATTERN_BYTES_MAX;

/// Operator of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

impl MatchOp {
    /// Returns the operator in PromQL syntax.
    pub fn as_str(self) -> &'static str {
        match self {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        }
    }
}

/// Condition on one label; an absent label has the empty value.
#[derive(Clone)]
pub struct Matcher {
    name: String,
    op: MatchOp,
    value: String,
    pattern: Option<Arc<Pattern>>,
}

/// Simplest form of a regular expression.
enum Pattern {
    /// Alternation of plain strings, sorted.
    Literals(Vec<String>),
    /// Any string with this prefix.
    Prefix(String),
    /// Any string.
    Anything,
    /// Any string but the empty one.
    NotEmpty,
    /// Any other expression, anchored on both sides.
    Compiled(Regex),
}

impl Matcher {
    /// Returns a matcher. Regular expressions are anchored on both sides, and a dot matches a line feed.
    ///
    /// Errors: the expression does not parse, or is too large.
    /// Source: `FastRegexMatcher` of Prometheus wraps as `^(?s:…)$`.
    pub fn new(
        op: MatchOp,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<Matcher, MatcherError> {
        let value = value.into();
        let pattern = match op {
            MatchOp::Regex | MatchOp::NotRegex => Some(Arc::new(Pattern::new(&value)?)),
            MatchOp::Equal | MatchOp::NotEqual => None,
        };
        Ok(Matcher { name: name.into(), op, value, pattern })
    }

    /// Returns the matcher `name="value"`.
    pub fn equal(name: impl Into<String>, value: impl Into<String>) -> Matcher {
        Matcher { name: name.into(), op: MatchOp::Equal, value: value.into(), pattern: None }
    }

    /// Returns the label's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the operator.
    pub fn op(&self) -> MatchOp {
        self.op
    }

    /// Returns the value or the expression, as given.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns whether a label's value passes; an absent label's value is empty.
    pub fn matches(&self, value: &str) -> bool {
        match self.op {
            MatchOp::Equal => value == self.value,
            MatchOp::NotEqual => value != self.value,
            MatchOp::Regex => self.pattern_matches(value),
            MatchOp::NotRegex => !self.pattern_matches(value),
        }
    }

    /// Returns whether series without the label pass.
    pub fn matches_empty(&self) -> bool {
        self.matches("")
    }

    /// Returns whether every value passes.
    pub fn matches_everything(&self) -> bool {
        match (self.op, self.pattern.as_deref()) {
            (MatchOp::Regex, Some(Pattern::Anything)) => true,
            (MatchOp::NotRegex, Some(Pattern::Literals(literals))) => literals.is_empty(),
            _ => false,
        }
    }

    /// Returns whether the value is a compiled regular expression.
    pub fn is_compiled(&self) -> bool {
        matches!(self.pattern.as_deref(), Some(Pattern::Compiled(_)))
    }

    /// Returns the only values that can pass, sorted, if the matcher lists them.
    pub fn literal_values(&self) -> Option<Vec<&str>> {
        match (self.op, self.pattern.as_deref()) {
            (MatchOp::Equal, _) => Some(vec![&self.value]),
            (MatchOp::Regex, Some(Pattern::Literals(literals))) => {
                Some(literals.iter().map(String::as_str).collect())
            }
            _ => None,
        }
    }

    /// Returns a prefix of all passing values; empty if none is known.
    pub fn literal_prefix(&self) -> &str {
        match (self.op, self.pattern.as_deref()) {
            (MatchOp::Equal, _) => &self.value,
            (MatchOp::Regex, Some(Pattern::Prefix(prefix))) => prefix,
            _ => "",
        }
    }

    /// Returns the only values that can fail, sorted, if the matcher lists them.
    pub fn refused_values(&self) -> Option<Vec<&str>> {
        match (self.op, self.pattern.as_deref()) {
            (MatchOp::NotEqual, _) => Some(vec![&self.value]),
            (MatchOp::NotRegex, Some(Pattern::Literals(literals))) => {
                Some(literals.iter().map(String::as_str).collect())
            }
            _ => None,
        }
    }

    /// Returns a prefix of all failing values; empty if none is known.
    pub fn refused_prefix(&self) -> &str {
        match (self.op, self.pattern.as_deref()) {
            (MatchOp::NotEqual, _) => &self.value,
            (MatchOp::NotRegex, Some(Pattern::Prefix(prefix))) => prefix,
            _ => "",
        }
    }

    fn pattern_matches(&self, value: &str) -> bool {
        match self.pattern.as_deref() {
            Some(Pattern::Literals(literals)) => {
                literals.binary_search_by(|l| l.as_str().cmp(value)).is_ok()
            }
            Some(Pattern::Prefix(prefix)) => value.starts_with(prefix.as_str()),
            Some(Pattern::Anything) => true,
            Some(Pattern::NotEmpty) => !value.is_empty(),
            Some(Pattern::Compiled(regex)) => regex.is_match(value),
            None => false,
        }
    }
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        self.op == other.op && self.name == other.name && self.value == other.value
    }
}

impl Eq for Matcher {}

impl Hash for Matcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.op, self.name.as_str(), self.value.as_str()).hash(state);
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Matcher {
    /// Writes the matcher in PromQL syntax: `job=~"a|b"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_legacy_label_name(&self.name) {
            f.write_str(&self.name)?;
        } else {
            write_quoted(f, &self.name)?;
        }
        f.write_str(self.op.as_str())?;
        write_quoted(f, &self.value)
    }
}

impl Pattern {
    fn new(source: &str) -> Result<Pattern, MatcherError> {
        if let Some(pattern) = Pattern::without_regex(source) {
            return Ok(pattern);
        }
        Ok(Pattern::Compiled(re2::compile_anchored(source)?))
    }

    /// Recognizes frequent forms in dashboards: `a|b|c`, `a.*`, `.*`, `.+`.
    fn without_regex(source: &str) -> Option<Pattern> {
        let is_plain = |text: &str| !text.contains(is_meta);
        match source {
            ".*" => return Some(Pattern::Anything),
            ".+" => return Some(Pattern::NotEmpty),
            _ => {}
        }
        if let Some(prefix) = source.strip_suffix(".*")
            && is_plain(prefix)
        {
            return Some(Pattern::Prefix(prefix.to_owned()));
        }
        let inner =
            source.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(source);
        if inner.split('|').all(is_plain) {
            let mut literals: Vec<String> = inner.split('|').map(str::to_owned).collect();
            literals.sort_unstable();
            literals.dedup();
            return Some(Pattern::Literals(literals));
        }
        None
    }
}

fn is_meta(c: char) -> bool {
    matches!(c, '\\' | '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn regex(value: &str) -> Matcher {
        Matcher::new(MatchOp::Regex, "l", value).unwrap()
    }

    #[test]
    fn expressions_are_anchored_and_dots_match_line_feeds() {
        assert!(regex("a.c").matches("a\nc"));
        assert!(!regex("b").matches("abc"));
        assert!(!regex("a|b").matches("ab"));
        assert!(regex("(?i)abc").matches("ABC"));
        assert!(!regex("^a").matches("ab"));
        assert!(regex("").matches(""));
        assert!(!regex("").matches("a"));
    }

    #[test]
    fn wrapping_does_not_complete_a_broken_expression() {
        assert!(Matcher::new(MatchOp::Regex, "l", "a)(b").is_err());
        assert!(Matcher::new(MatchOp::Regex, "l", "[").is_err());
        assert!(Matcher::new(MatchOp::NotRegex, "l", "*").is_err());
    }

    #[test]
    fn large_expressions_are_refused() {
        let long = "a.".repeat(PATTERN_BYTES_MAX / 2 + 1);
        assert!(matches!(
            Matcher::new(MatchOp::Regex, "l", long),
            Err(MatcherError::TooLarge { .. })
        ));
        assert!(matches!(
            Matcher::new(MatchOp::Regex, "l", r"\pL{500}"),
            Err(MatcherError::TooLarge { .. })
        ));
    }

    #[test]
    fn literals_are_named() {
        assert_eq!(regex("b|a").literal_values(), Some(vec!["a", "b"]));
        assert_eq!(regex("(b|a)").literal_values(), Some(vec!["a", "b"]));
        assert_eq!(regex("a.*").literal_prefix(), "a");
        assert_eq!(regex("a.b").literal_values(), None);
        let not = |value| Matcher::new(MatchOp::NotRegex, "l", value).unwrap();
        assert_eq!(not("b|a").refused_values(), Some(vec!["a", "b"]));
        assert_eq!(not("a.*").refused_prefix(), "a");
        assert_eq!((not("a.b").refused_values(), not("a.b").refused_prefix()), (None, ""));
    }

    proptest! {
        #[test]
        fn shortcuts_agree_with_the_expression(
            source in "(\\(?[ab]{0,2}(\\|[ab]{0,2}){0,2}\\)?)|([ab]{0,2}(\\.\\*|\\.\\+))",
            value in "[ab\n]{0,3}",
        ) {
            if let Ok(matcher) = Matcher::new(MatchOp::Regex, "l", source.as_str()) {
                let plain = Regex::new(&format!("^(?s:{source})$")).unwrap();
                prop_assert_eq!(matcher.matches(&value), plain.is_match(&value), "{}", source);
            }
        }
    }
}
