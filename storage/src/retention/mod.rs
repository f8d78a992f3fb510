//! Limits of the retention: time, size, and rules for some series.
//!
//! The setting may change while the store is open. Rules expire whole windows of two hours. If
//! several rules match a series, the rule with the shortest time applies.
//!
//! The value of [`keys::RULES`] has the expiry floor of each rule. Layout: "Retention rules" in
//! `docs/formats.md`.

mod reference;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use model::{Batch, HistogramSample, Labels, MatchOp, Matcher};

use crate::error::StoreError;
use crate::matchers::{push_matchers, take_matchers};
use crate::varint::{push_varint, take_count, take_varint, unzigzag, zigzag};
use crate::window::{TIME_MIN_MS, TimeBounds, Window};
use crate::{keys, value};

pub(crate) use reference::{ClockReading, Observed, ReferenceTime, RetentionTime};

/// Maximum number of rules.
pub const RETENTION_RULES_MAX: usize = 64;
const VERSION: u8 = 1;

/// Limits of the retention.
#[derive(Debug, Clone, Default)]
pub struct Retention {
    /// Maximum age of samples: older ones are rejected, and whole older days deleted. `None` sets
    /// no limit.
    pub time_ms: Option<i64>,
    /// Maximum age of samples before summaries replace them. Older samples are rejected. Whole older
    /// days are rewritten to summaries, where these have all needed facts. `None` keeps samples until
    /// the day is deleted.
    pub samples_ms: Option<i64>,
    /// Bytes of files from which the oldest days are deleted, except the newest day; `None` sets
    /// no limit.
    pub bytes: Option<u64>,
    /// Rules for some series.
    pub rules: Vec<RetentionRule>,
}

/// Shorter retention for the series that pass its matchers.
#[derive(Debug, Clone)]
pub struct RetentionRule {
    /// Matchers, all of which a series must pass.
    pub matchers: Vec<Matcher>,
    /// Time for which samples of these series are kept.
    pub time_ms: i64,
}

impl RetentionRule {
    /// Returns whether two rules are equal.
    fn is_same(&self, other: &RetentionRule) -> bool {
        self.time_ms == other.time_ms && are_same(&self.matchers, &other.matchers)
    }
}

/// Returns whether two lists of matchers are equal, including their order.
pub(crate) fn are_same(some: &[Matcher], others: &[Matcher]) -> bool {
    let text = |matcher: &Matcher| -> (MatchOp, String, String) {
        (matcher.op(), matcher.name().to_owned(), matcher.value().to_owned())
    };
    some.len() == others.len() && some.iter().zip(others).all(|(a, b)| text(a) == text(b))
}

/// A retention in force.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    pub(crate) time_ms: Option<i64>,
    pub(crate) samples_ms: Option<i64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) rules: Vec<Rule>,
}

/// A rule and its expiry floor.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) rule: RetentionRule,
    /// First time that has not expired. Shared with the equal rule of the previous setting.
    expired_before_ms: Arc<AtomicI64>,
}

impl Rule {
    /// Returns the time before which all samples of the rule are masked or deleted.
    pub(crate) fn expired_before_ms(&self) -> i64 {
        self.expired_before_ms.load(Ordering::Acquire)
    }

    /// Sets the time before which all samples of the rule are masked or deleted.
    pub(crate) fn set_expired_before(&self, time_ms: i64) {
        self.expired_before_ms.store(time_ms, Ordering::Release);
    }

    /// Returns the time before which samples have expired or are about to expire.
    ///
    /// It decreases only with the clock, so that current writes are accepted again after a clock
    /// that was ahead is set back. Samples that have expired until then stay masked by tombstones.
    pub(crate) fn floor_ms(&self, time: RetentionTime) -> i64 {
        let oldest_window_ms =
            |now_ms: i64| Window::of(now_ms.saturating_sub(self.rule.time_ms)).start_ms();
        let confirmed_ms = time.reference_ms.map_or(i64::MIN, oldest_window_ms);
        self.expired_before_ms().max(confirmed_ms).min(oldest_window_ms(time.now_ms))
    }
}

/// Limit of the retention that rejects a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct RetentionFloor {
    /// Earliest accepted time.
    pub floor_ms: i64,
    /// Setting that defines `floor_ms`.
    pub limit: RetentionLimit,
}

/// Setting of the retention.
#[derive(Debug, Clone, PartialEq)]
pub enum RetentionLimit {
    /// Retention of all samples, in ms.
    Time(i64),
    /// Retention of samples of which summaries are kept for longer, in ms.
    Samples(i64),
    /// Rule: its matchers as a selector, and its retention in ms.
    Rule(String, i64),
    /// The day has been deleted, by size or by an earlier, shorter setting.
    Deleted,
}

impl Keeping {
    /// Creates a retention that keeps the expiry floors of equal rules in `before`.
    pub(crate) fn new(retention: Retention, before: &Keeping) -> Keeping {
        let Retention { time_ms, samples_ms, bytes, rules } = retention;
        let rule = |rule: RetentionRule| {
            let same = before.rules.iter().find(|known| known.rule.is_same(&rule));
            let expired_before_ms = match same {
                Some(known) => Arc::clone(&known.expired_before_ms),
                None => Arc::new(AtomicI64::new(i64::MIN)),
            };
            Rule { rule, expired_before_ms }
        };
        Keeping { time_ms, samples_ms, bytes, rules: rules.into_iter().map(rule).collect() }
    }

    /// Returns the limits, without expiry floors.
    pub(crate) fn retention(&self) -> Retention {
        let rules = self.rules.iter().map(|rule| rule.rule.clone()).collect();
        let Keeping { time_ms, samples_ms, bytes, .. } = *self;
        Retention { time_ms, samples_ms, bytes, rules }
    }

    /// Returns whether the retention has any limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.time_ms.is_some()
            || self.samples_ms.is_some()
            || self.bytes.is_some()
            || !self.rules.is_empty()
    }

    /// Returns the earliest time within the retention of all series; `None` if there is no limit or
    /// no confirmed reference time.
    pub(crate) fn floor_ms(&self, time: RetentionTime) -> Option<i64> {
        Some(time.reference_ms?.saturating_sub(self.time_ms?))
    }

    /// Returns the earliest time of writes, and the limit that sets it; `None` as above.
    pub(crate) fn write_floor(&self, time: RetentionTime) -> Option<(i64, RetentionLimit)> {
        let limit = match (self.time_ms, self.samples_ms) {
            (Some(time_ms), Some(samples_ms)) if time_ms <= samples_ms => {
                (time_ms, RetentionLimit::Time(time_ms))
            }
            (_, Some(samples_ms)) => (samples_ms, RetentionLimit::Samples(samples_ms)),
            (time_ms, None) => (time_ms?, RetentionLimit::Time(time_ms?)),
        };
        Some((time.reference_ms?.saturating_sub(limit.0), limit.1))
    }

    /// Returns the earliest time whose samples are kept, if summaries replace earlier ones; `None`
    /// as above.
    pub(crate) fn samples_floor_ms(&self, time: RetentionTime) -> Option<i64> {
        Some(time.reference_ms?.saturating_sub(self.samples_ms?))
    }

    /// Returns the floors of the retention of all series and of each rule.
    pub(crate) fn floors(&self, time: RetentionTime) -> RetentionFloors<'_> {
        let of_rules: Vec<(&RetentionRule, i64)> =
            self.rules.iter().map(|rule| (&rule.rule, rule.floor_ms(time))).collect();
        let latest_ms = of_rules.iter().map(|(_, ms)| *ms).max().unwrap_or(i64::MIN);
        RetentionFloors { of_all: self.write_floor(time), of_rules, latest_ms }
    }

    /// Returns the value of [`keys::RULES`] with the floor of each rule; `None` if there are no
    /// rules.
    pub(crate) fn encode(&self, floor_ms: impl Fn(&Rule) -> i64) -> Option<Vec<u8>> {
        if self.rules.is_empty() {
            return None;
        }
        let mut body = vec![VERSION];
        push_varint(&mut body, self.rules.len() as u64);
        for rule in &self.rules {
            push_varint(&mut body, zigzag(rule.rule.time_ms));
            push_varint(&mut body, zigzag(floor_ms(rule)));
            push_matchers(&mut body, &rule.rule.matchers);
        }
        Some(value::encode(keys::RULES, &body))
    }

    /// Decodes the rules from a value of [`keys::RULES`]; other limits are not set.
    ///
    /// Errors: damaged bytes, and matchers that this version does not understand.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Keeping, StoreError> {
        let mut rest = value::decode(keys::RULES, bytes)?;
        let mut read = || {
            let rest = &mut rest;
            let (version, tail) = rest.split_first().ok_or("cut short")?;
            if *version != VERSION {
                return Err(format!("unknown version {version}"));
            }
            *rest = tail;
            let mut rules = Vec::new();
            for _ in 0..take_count(rest)? {
                let time_ms = unzigzag(take_varint(rest)?);
                let floor_ms = unzigzag(take_varint(rest)?);
                let rule = RetentionRule { matchers: take_matchers(rest)?, time_ms };
                let expired_before_ms = Arc::new(AtomicI64::new(floor_ms));
                rules.push(Rule { rule, expired_before_ms });
            }
            match rest.len() {
                0 => Ok(Keeping { rules, ..Keeping::default() }),
                len => Err(format!("{len} bytes follow the rules")),
            }
        };
        read().map_err(|detail| value::corrupt(keys::RULES, detail))
    }
}

/// Floors of the retention, by rule, at one time.
#[derive(Debug)]
pub(crate) struct RetentionFloors<'a> {
    /// Earliest time within the retention of all series, and its limit.
    of_all: Option<(i64, RetentionLimit)>,
    of_rules: Vec<(&'a RetentionRule, i64)>,
    /// Latest floor of all rules.
    latest_ms: i64,
}

impl RetentionFloors<'_> {
    /// Returns the bounds of one series of a batch: rules may keep it for a shorter time.
    pub(crate) fn bounds_of(
        &self,
        bounds: TimeBounds,
        batch: &Batch,
        series_index: usize,
        histograms: &[HistogramSample],
    ) -> TimeBounds {
        let has_expired = |time_ms: &i64| *time_ms < self.latest_ms;
        let floats = &batch.timestamps[batch.samples(series_index)];
        // Most samples are newer than the floors of all rules.
        if !floats.iter().any(has_expired)
            && !histograms.iter().any(|sample| has_expired(&sample.timestamp_ms))
        {
            return bounds;
        }
        let min_ms = bounds.min_ms.max(self.min_ms(&batch.labels(series_index)));
        TimeBounds { min_ms, ..bounds }
    }

    /// Returns the floor of a series by rules.
    fn min_ms(&self, labels: &Labels) -> i64 {
        self.of_series(labels).map_or(i64::MIN, |(_, floor_ms)| floor_ms)
    }

    /// Returns the rule with the latest floor for a series, and this floor.
    fn of_series(&self, labels: &Labels) -> Option<(&RetentionRule, i64)> {
        let passes =
            |rule: &RetentionRule| rule.matchers.iter().all(|m| m.matches(labels.get(m.name())));
        let of_series = self.of_rules.iter().filter(|(rule, _)| passes(rule)).copied();
        of_series.max_by_key(|(_, floor_ms)| *floor_ms)
    }

    /// Returns the limit that rejects a sample of a series, if all samples before `min_ms` are
    /// rejected; `None` if no limit does.
    pub(crate) fn floor_of(
        &self,
        labels: &Labels,
        timestamp_ms: i64,
        min_ms: i64,
    ) -> Option<RetentionFloor> {
        let is_before = |floor_ms: i64| timestamp_ms < floor_ms;
        if let Some((rule, floor_ms)) = self.of_series(labels)
            && is_before(floor_ms)
        {
            let matchers: Vec<String> = rule.matchers.iter().map(Matcher::to_string).collect();
            let selector = format!("{{{}}}", matchers.join(","));
            let limit = RetentionLimit::Rule(selector, rule.time_ms);
            return Some(RetentionFloor { floor_ms, limit });
        }
        match &self.of_all {
            Some((floor_ms, limit)) if is_before(*floor_ms) => {
                Some(RetentionFloor { floor_ms: *floor_ms, limit: limit.clone() })
            }
            _ if is_before(min_ms) && min_ms > TIME_MIN_MS => {
                Some(RetentionFloor { floor_ms: min_ms, limit: RetentionLimit::Deleted })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::WINDOW_MS;

    fn keeping() -> Keeping {
        let regex = Matcher::new(MatchOp::Regex, "__name__", "debug_.*").unwrap();
        let rules = vec![
            RetentionRule { matchers: vec![regex], time_ms: 3 },
            RetentionRule { matchers: vec![Matcher::equal("a", "é")], time_ms: 7 * WINDOW_MS },
        ];
        Keeping::new(Retention { rules, ..Retention::default() }, &Keeping::default())
    }

    #[test]
    fn what_rules_have_expired_is_read_as_it_was_written() {
        let keeping = keeping();
        keeping.rules[1].set_expired_before(-5);
        let bytes = keeping.encode(Rule::expired_before_ms).unwrap();
        let read = Keeping::decode(&bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{keeping:?}"));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Keeping::decode(&damaged).is_err());
            // Also with a valid checksum.
            let cut = value::encode(keys::RULES, bytes.get(4..at).unwrap_or_default());
            assert!(Keeping::decode(&cut).is_err());
        }
        assert_eq!(Keeping::default().encode(Rule::expired_before_ms), None);
    }

    #[test]
    fn a_changed_rule_begins_anew_and_the_same_one_goes_on() {
        let before = keeping();
        before.rules.iter().for_each(|rule| rule.set_expired_before(WINDOW_MS));
        let mut rules: Vec<RetentionRule> = before.rules.iter().map(|r| r.rule.clone()).collect();
        rules[0].time_ms += 1;
        let after = Keeping::new(Retention { rules, ..Retention::default() }, &before);
        assert_eq!(after.rules[0].expired_before_ms(), i64::MIN);
        before.rules[1].set_expired_before(2 * WINDOW_MS);
        assert_eq!(after.rules[1].expired_before_ms(), 2 * WINDOW_MS, "shared");
    }

    #[test]
    fn floors_are_window_starts_and_the_shortest_rule_counts() {
        let keeping = keeping();
        let now_ms = 10 * WINDOW_MS + 5;
        let time = RetentionTime { now_ms, reference_ms: Some(now_ms) };
        let floors = keeping.floors(time);
        assert_eq!(floors.latest_ms, 10 * WINDOW_MS);
        let min_ms =
            |pairs: &[(&str, &str)]| floors.min_ms(&Labels::from_pairs(pairs.iter().copied()));
        assert_eq!(min_ms(&[("__name__", "debug_x")]), 10 * WINDOW_MS);
        assert_eq!(min_ms(&[("__name__", "debug_x"), ("a", "é")]), 10 * WINDOW_MS);
        assert_eq!(min_ms(&[("__name__", "x"), ("a", "é")]), 3 * WINDOW_MS);
        assert_eq!(min_ms(&[("__name__", "x")]), i64::MIN);
        keeping.rules[1].set_expired_before(12 * WINDOW_MS);
        assert_eq!(keeping.rules[1].floor_ms(time), 3 * WINDOW_MS, "the clock was set back");
        keeping.rules[1].set_expired_before(2 * WINDOW_MS);
        let unconfirmed = RetentionTime { reference_ms: None, ..time };
        assert_eq!(keeping.rules[1].floor_ms(unconfirmed), 2 * WINDOW_MS, "as it was");
        assert_eq!(keeping.rules[0].floor_ms(unconfirmed), i64::MIN);
    }

    #[test]
    fn the_limit_that_a_sample_is_older_than_is_named() {
        let keeping = Keeping { time_ms: Some(9 * WINDOW_MS), ..keeping() };
        let now_ms = 20 * WINDOW_MS;
        let floors = keeping.floors(RetentionTime { now_ms, reference_ms: Some(now_ms) });
        let series = Labels::from_pairs([("__name__", "debug_x"), ("a", "é")]);
        let other = Labels::from_pairs([("a", "é")]);
        let rule = RetentionLimit::Rule("{__name__=~\"debug_.*\"}".to_owned(), 3);
        let found = floors.floor_of(&series, 5, 0).unwrap();
        assert_eq!(found, RetentionFloor { floor_ms: 19 * WINDOW_MS, limit: rule });
        let found = floors.floor_of(&other, 12 * WINDOW_MS, 0).unwrap();
        let rule = RetentionLimit::Rule("{a=\"é\"}".to_owned(), 7 * WINDOW_MS);
        assert_eq!(found, RetentionFloor { floor_ms: 13 * WINDOW_MS, limit: rule });
        let all = |timestamp_ms, min_ms| floors.floor_of(&Labels::default(), timestamp_ms, min_ms);
        let time = RetentionLimit::Time(9 * WINDOW_MS);
        let expected = RetentionFloor { floor_ms: 11 * WINDOW_MS, limit: time };
        assert_eq!(all(5, 12 * WINDOW_MS), Some(expected));
        let deleted = RetentionLimit::Deleted;
        let expected = RetentionFloor { floor_ms: 12 * WINDOW_MS, limit: deleted };
        assert_eq!(all(11 * WINDOW_MS, 12 * WINDOW_MS), Some(expected));
        assert_eq!(all(12 * WINDOW_MS, 12 * WINDOW_MS), None);
    }
}
