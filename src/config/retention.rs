//! Section `storage.retention` of the configuration file.

use std::time::Duration;

use engine::parse::parse_selector;
use model::Matcher;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use storage::{RETENTION_RULES_MAX, Retention, RetentionRule, TOMBSTONE_BYTES_MAX};

use super::positive_duration;
use crate::flags::Args;
use crate::units::{format_bytes, format_duration, millis, parse_bytes, parse_duration};

/// Minimum time for which samples are kept before summaries replace them.
const SAMPLES_MIN: Duration = Duration::from_hours(24);

/// Section `retention`. A reload applies it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetentionConfig {
    #[serde(deserialize_with = "duration", alias = "summaries")]
    time: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    samples: Option<Duration>,
    #[serde(deserialize_with = "size")]
    size: Option<u64>,
    #[serde(deserialize_with = "rules")]
    rules: Vec<RuleConfig>,
}

/// Rule for some series.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    #[serde(rename = "match")]
    selector: Selector,
    #[serde(deserialize_with = "positive_duration")]
    time: Duration,
}

/// Selector with its text.
#[derive(Debug, Clone)]
struct Selector {
    text: String,
    matchers: Vec<Matcher>,
}

impl PartialEq for Selector {
    fn eq(&self, other: &Selector) -> bool {
        self.text == other.text
    }
}

impl Eq for Selector {}

impl RetentionConfig {
    /// Returns time and size of the retention of all samples; flags override the file.
    pub(crate) fn of_all(&self, args: &Args) -> (Option<Duration>, Option<u64>) {
        let time = args.retention.or(self.time).filter(|time| !time.is_zero());
        (time, args.retention_bytes.or(self.size).filter(|bytes| *bytes > 0))
    }

    /// Returns the time for which samples are kept, if summaries are kept for longer.
    pub(crate) fn of_samples(&self) -> Option<Duration> {
        self.samples.filter(|time| !time.is_zero())
    }

    /// Returns the limits of all data, as `15d or 10GB`; `None` without any.
    ///
    /// Source: `storageRetention` of `runtimeinfo` in Prometheus.
    pub(crate) fn limit(&self, args: &Args) -> Option<String> {
        let (time, size) = self.of_all(args);
        let (time, size) = (time.map(format_duration), size.map(format_bytes));
        let limits: Vec<String> = time.into_iter().chain(size).collect();
        (!limits.is_empty()).then(|| limits.join(" or "))
    }

    /// Number of rules that keep some series for a shorter time.
    pub(crate) fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Returns the retention with its rules.
    ///
    /// Errors: the time of a rule, or of samples, exceeds that of all data. Whole days are deleted, so
    /// it could not apply.
    pub(super) fn under(&self, args: &Args) -> Result<Retention, String> {
        let (time, bytes) = self.of_all(args);
        for rule in &self.rules {
            if let Some(time) = time.filter(|time| rule.time > *time) {
                return Err(format!(
                    "the rule of storage.retention for {} keeps samples for {}, longer than the {} \
                     that all are kept: a rule can only keep them for a shorter time",
                    rule.selector.text,
                    format_duration(rule.time),
                    format_duration(time),
                ));
            }
        }
        let samples = self.of_samples();
        if let Some(samples) = samples.filter(|samples| *samples < SAMPLES_MIN) {
            return Err(format!(
                "storage.retention.samples is {}, the minimum is {}: older samples are replaced \
                 permanently",
                format_duration(samples),
                format_duration(SAMPLES_MIN),
            ));
        }
        if let Some((samples, time)) = samples.zip(time).filter(|(samples, time)| samples > time) {
            return Err(format!(
                "storage.retention.samples is {}, longer than the {} that all data are kept: samples \
                 can only be kept for a shorter time than their summaries",
                format_duration(samples),
                format_duration(time),
            ));
        }
        let rule = |rule: &RuleConfig| RetentionRule {
            matchers: rule.selector.matchers.clone(),
            time_ms: millis(rule.time),
        };
        let rules = self.rules.iter().map(rule).collect();
        let (time_ms, samples_ms) = (time.map(millis), samples.map(millis));
        Ok(Retention { time_ms, samples_ms, bytes, rules })
    }

    /// Returns the section as YAML, empty if nothing is set.
    pub(super) fn to_yaml(&self) -> String {
        let mut out = String::new();
        if let Some(time) = self.time {
            out.push_str(&format!("    time: {}\n", format_duration(time)));
        }
        if let Some(samples) = self.samples {
            out.push_str(&format!("    samples: {}\n", format_duration(samples)));
        }
        if let Some(size) = self.size {
            out.push_str(&format!("    size: {}\n", format_bytes(size)));
        }
        if !self.rules.is_empty() {
            out.push_str("    rules:\n");
        }
        for rule in &self.rules {
            // In single quotes of YAML, only these are doubled.
            let text = rule.selector.text.replace('\'', "''");
            let time = format_duration(rule.time);
            out.push_str(&format!("    - match: '{text}'\n      time: {time}\n"));
        }
        if out.is_empty() { out } else { format!("  retention:\n{out}") }
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Selector, D::Error> {
        use de::Error;
        let text = String::deserialize(input)?;
        if text.len() > TOMBSTONE_BYTES_MAX / 2 {
            let limit = TOMBSTONE_BYTES_MAX / 2;
            return Err(D::Error::custom(format!("a selector has at most {limit} bytes")));
        }
        let matchers = parse_selector(&text).map_err(D::Error::custom)?;
        if matchers.iter().all(Matcher::matches_empty) {
            return Err(D::Error::custom(
                "a rule must have a matcher that the empty value does not pass; `time` next to the \
                 rules is for all series",
            ));
        }
        Ok(Selector { text, matchers })
    }
}

fn rules<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<RuleConfig>, D::Error> {
    let rules = Vec::deserialize(input)?;
    if rules.len() > RETENTION_RULES_MAX {
        let count = rules.len();
        return Err(de::Error::custom(format!(
            "there are {count} rules, the limit is {RETENTION_RULES_MAX}"
        )));
    }
    Ok(rules)
}

fn duration<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(input)?;
    parse_duration(&text).map(Some).map_err(de::Error::custom)
}

fn size<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(input)?;
    parse_bytes(&text).map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::Config;
    use super::*;

    const TEXT: &str = "storage:\n  retention:\n    time: 30d\n    size: 10GB\n    rules:\n    - \
                        match: '{__name__=~\"debug_.*\",a!=\"it''s\"}'\n      time: 3d\n";

    const SAMPLES: &str = "storage:\n  retention:\n    summaries: 2y\n    samples: 30d\n";

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse("tessella.yml", text).map_err(|error| error.to_string())
    }

    fn retention(text: &str, args: &[&str]) -> Result<Retention, String> {
        let args = ["tessella", "--config.file=tessella.yml"].iter().chain(args);
        let args = Args::try_parse_from(args).unwrap();
        parse(text)?.retention(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_count_more_than_the_file() {
        let day_ms = 24 * 3_600_000;
        let of_all = |text: &str, args: &[&str]| {
            let Retention { time_ms, bytes, rules, .. } = retention(text, args).unwrap();
            (time_ms.map(|ms| ms / day_ms), bytes.map(|bytes| bytes >> 30), rules.len())
        };
        assert_eq!(of_all("", &[]), (None, None, 0));
        assert_eq!(of_all(TEXT, &[]), (Some(30), Some(10), 1));
        assert_eq!(of_all(TEXT, &["--storage.retention.time=9d"]), (Some(9), Some(10), 1));
        let none = ["--storage.retention.time=0s", "--storage.retention.size=0"];
        assert_eq!(of_all(TEXT, &none), (None, None, 1));
        let rule = &retention(TEXT, &[]).unwrap().rules[0];
        let shown: Vec<String> = rule.matchers.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["__name__=~\"debug_.*\"", "a!=\"it's\""]);
        assert_eq!(rule.time_ms, 3 * day_ms);
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for text in [TEXT, SAMPLES] {
            let config = parse(text).unwrap();
            assert_eq!(parse(&config.to_yaml()), Ok(config));
        }
    }

    #[test]
    fn samples_are_kept_no_longer_than_summaries() {
        let day_ms = 24 * 3_600_000;
        let found = retention(SAMPLES, &[]).unwrap();
        assert_eq!((found.time_ms, found.samples_ms), (Some(730 * day_ms), Some(30 * day_ms)));
        let alone = retention("storage: {retention: {samples: 30d}}", &[]).unwrap();
        assert_eq!((alone.time_ms, alone.samples_ms), (None, Some(30 * day_ms)));
        let error = retention(SAMPLES, &["--storage.retention.time=20d"]).unwrap_err();
        assert!(error.contains("samples is 30d, longer than the 20d"), "{error}");
        let error = retention("storage: {retention: {samples: 23h}}", &[]).unwrap_err();
        assert!(error.contains("samples is 23h, the minimum is 1d"), "{error}");
    }

    #[test]
    fn a_rule_never_keeps_longer_than_the_store() {
        let error = retention(TEXT, &["--storage.retention.time=2d"]).unwrap_err();
        assert!(error.starts_with("tessella.yml: the rule of storage.retention"), "{error}");
        assert!(error.contains("for 3d, longer than the 2d"), "{error}");
        assert!(retention(TEXT, &["--storage.retention.time=3d"]).is_ok());
    }

    #[test]
    fn faults_are_named_with_their_line() {
        let rule = |text: &str| format!("storage:\n  retention:\n    rules:\n    - {text}\n");
        let many = "    - {match: a, time: 1d}\n".repeat(65);
        let cases = [
            (rule("match: '{}'\n      time: 1d"), ":4:", "a matcher that the empty value"),
            (rule("match: '{a=~\".*\"}'\n      time: 1d"), ":4:", "a matcher that the empty value"),
            (rule("match: '{a=\"'\n      time: 1d"), ":4:", "parse error"),
            (rule("match: up\n      time: 0s"), ":5:", "above 0"),
            (rule("match: up"), ":4:", "time"),
            (rule("match: up\n      time: 1d\n      size: 3"), ":6:", "unknown field `size`"),
            (format!("storage:\n  retention:\n    rules:\n{many}"), ":4:", "65 rules"),
            ("storage:\n  retention:\n    time: 5".to_owned(), ":3:", "not a valid duration"),
            ("storage:\n  retention:\n    size: lots".to_owned(), ":3:", "not a valid size"),
        ];
        for (text, line, message) in cases {
            let error = parse(&text).unwrap_err();
            assert!(error.starts_with(&format!("tessella.yml{line}")), "{error}");
            assert!(error.contains(message), "{error}");
        }
    }
}
