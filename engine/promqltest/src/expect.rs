//! Expectations of an eval in addition to its value: failure, annotations, order.

use std::sync::LazyLock;

use regex::Regex;

/// Expected failure, annotations and order.
#[derive(Debug, Default)]
pub struct Expectations {
    /// True if series must be in the order of their lines.
    pub is_ordered: bool,
    /// Expected failure with a matching message.
    pub failure: Option<Pattern>,
    /// True if the old command `eval_fail` is used, whose message may be on a separate line.
    is_failure_command: bool,
    warnings: Expected,
    infos: Expected,
}

/// Expected annotations of one kind.
#[derive(Debug, Default)]
struct Expected {
    /// Any annotation, from an old command.
    is_any: bool,
    /// No annotation.
    is_none: bool,
    /// Each pattern must match an annotation, and each annotation a pattern.
    patterns: Vec<Pattern>,
}

/// Pattern of messages.
#[derive(Debug)]
pub enum Pattern {
    /// Matches every message.
    Any,
    /// Matches this message.
    Message(String),
    /// Matches messages in which the regular expression occurs.
    Regex(Regex),
}

static EXPECT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^expect\s+(ordered|fail|warn|no_warn|info|no_info)(?:\s+(regex|msg):(.+))?$")
        .expect("the pattern is a constant that a test compiles")
});

impl Expectations {
    /// Returns the expectations of `eval_fail`, `eval_warn`, `eval_info` or `eval_ordered`.
    pub(crate) fn of_command(modifier: &str) -> Expectations {
        let mut expectations = Expectations::default();
        match modifier {
            "ordered" => expectations.is_ordered = true,
            "warn" => expectations.warnings.is_any = true,
            "info" => expectations.infos.is_any = true,
            "fail" => {
                expectations.is_failure_command = true;
                expectations.failure = Some(Pattern::Any);
            }
            _ => {}
        }
        expectations
    }

    /// Parses the old lines with the message of `eval_fail`; returns false for other lines.
    pub(crate) fn accept_deprecated(&mut self, line: &str) -> Result<bool, String> {
        if !self.is_failure_command {
            return Ok(false);
        }
        self.failure = Some(if let Some(message) = line.strip_prefix("expected_fail_message") {
            Pattern::Message(message.trim().to_owned())
        } else if let Some(regex) = line.strip_prefix("expected_fail_regexp") {
            Pattern::regex(regex)?
        } else {
            return Ok(false);
        });
        Ok(true)
    }

    /// Parses a line `expect …`.
    pub(crate) fn accept(&mut self, line: &str) -> Result<(), String> {
        let captures = EXPECT.captures(line).ok_or_else(|| {
            format!(
                "invalid expect statement {line:?}, must be `expect <type> <match_type>: <string>`"
            )
        })?;
        let text = captures.get(3).map_or("", |text| text.as_str());
        let pattern = match captures.get(2).map(|kind| kind.as_str()) {
            Some("regex") => Pattern::regex(text)?,
            Some(_) => Pattern::Message(text.trim().to_owned()),
            None => Pattern::Any,
        };
        match &captures[1] {
            "ordered" => self.is_ordered = true,
            "warn" => self.warnings.patterns.push(pattern),
            "info" => self.infos.patterns.push(pattern),
            "no_warn" => self.warnings.is_none = true,
            "no_info" => self.infos.is_none = true,
            _ if self.failure.is_some() && !self.is_failure_command => {
                return Err("multiple expect fail lines are not allowed".to_owned());
            }
            _ => self.failure = Some(pattern),
        }
        for (kind, expected) in [("warn", &self.warnings), ("info", &self.infos)] {
            if expected.is_none && !expected.patterns.is_empty() {
                return Err(format!("{kind} and no_{kind} cannot be used together"));
            }
        }
        Ok(())
    }

    /// Checks the annotations of a result; an error describes the difference.
    pub(crate) fn check_annotations(
        &self,
        warnings: &[String],
        infos: &[String],
    ) -> Result<(), String> {
        self.warnings.check("warning", warnings)?;
        self.infos.check("info", infos)
    }
}

impl Pattern {
    fn regex(text: &str) -> Result<Pattern, String> {
        let text = text.trim();
        Regex::new(text).map(Pattern::Regex).map_err(|_| format!("invalid regex {text:?}"))
    }

    /// Returns whether a message matches.
    pub fn fits(&self, message: &str) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Message(expected) => expected == message,
            Pattern::Regex(regex) => regex.is_match(message),
        }
    }

    /// Returns the pattern as written in the script.
    pub fn as_str(&self) -> &str {
        match self {
            Pattern::Any => "",
            Pattern::Message(expected) => expected,
            Pattern::Regex(regex) => regex.as_str(),
        }
    }
}

impl Expected {
    fn check(&self, kind: &str, found: &[String]) -> Result<(), String> {
        if self.is_any && found.is_empty() {
            return Err(format!("expected a {kind}, found none"));
        }
        if self.is_none && !found.is_empty() {
            return Err(format!("expected no {kind}, found {found:?}"));
        }
        for pattern in &self.patterns {
            if !found.iter().any(|message| pattern.fits(message)) {
                return Err(format!("expected {kind} {:?}, found {found:?}", pattern.as_str()));
            }
        }
        let stray = found.iter().find(|message| !self.patterns.iter().any(|p| p.fits(message)));
        match stray {
            Some(stray) if !self.patterns.is_empty() => Err(format!("unexpected {kind} {stray:?}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expectations(lines: &[&str]) -> Result<Expectations, String> {
        let mut expectations = Expectations::default();
        lines.iter().try_for_each(|line| expectations.accept(line))?;
        Ok(expectations)
    }

    fn check(lines: &[&str], warnings: &[&str], infos: &[&str]) -> Result<(), String> {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        expectations(lines)?.check_annotations(&owned(warnings), &owned(infos))
    }

    #[test]
    fn every_expected_annotation_and_no_other_one_is_there() {
        assert!(check(&[], &["a"], &["b"]).is_ok());
        assert!(check(&["expect warn"], &["a"], &["b"]).is_ok());
        assert!(check(&["expect warn"], &[], &["b"]).is_err());
        assert!(check(&["expect no_warn"], &["a"], &[]).is_err());
        assert!(check(&["expect no_warn", "expect no_info"], &[], &["b"]).is_err());
        assert!(check(&["expect warn msg: a", "expect warn msg: b"], &["a"], &[]).is_err());
        assert!(check(&["expect warn msg: a"], &["a", "b"], &[]).is_err());
        assert!(check(&["expect info regex: ^a", "expect info msg: b"], &[], &["aa", "b"]).is_ok());
    }

    #[test]
    fn contradictions_and_unknown_forms_are_refused() {
        for wrong in [
            &["expect warn", "expect no_warn"][..],
            &["expect no_info", "expect info"],
            &["expect fail", "expect fail msg: a"],
            &["expect fail regex: ("],
            &["expect fail like: a"],
            &["expect"],
        ] {
            assert!(expectations(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn older_commands_say_how_they_fail() {
        let mut old = Expectations::of_command("fail");
        assert!(!old.accept_deprecated("a 1").unwrap());
        assert!(old.failure.as_ref().unwrap().fits("anything"));
        assert!(old.accept_deprecated("expected_fail_regexp  b+ ").unwrap());
        assert!(old.failure.as_ref().unwrap().fits("abbc"));
        assert!(old.accept_deprecated("expected_fail_message abc").unwrap());
        assert!(!old.failure.as_ref().unwrap().fits("abcd"));
        assert!(!Expectations::default().accept_deprecated("expected_fail_message a").unwrap());
        assert!(Expectations::of_command("warn").check_annotations(&[], &[]).is_err());
        assert!(Expectations::of_command("info").check_annotations(&[], &[]).is_err());
        assert!(Expectations::of_command("ordered").is_ordered);
    }
}
