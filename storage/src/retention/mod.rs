//! Limits of the retention: time, size, and rules for some series.
//!
//! The setting may change while the store is open. Rules expire whole windows of two hours; where
//! several name a series, the one that keeps it for the shortest time counts.
//!
//! ```text
//! crc32c:4 LE of key and rest │ version:1 = 1 │ rules
//! ( zigzag(time) │ zigzag(first time that is kept)
//!   matchers │ ( op:1 │ length │ name │ length │ value ) × matchers ) × rules
//! ```
//!
//! That is the value of [`keys::RULES`]: up to when each rule has expired samples. Everything
//! without a width is a LEB128 varint, and a matcher is as in a tombstone.

mod reference;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use model::{Batch, HistogramSample, Labels, MatchOp, Matcher};

use crate::error::StoreError;
use crate::matchers::{push_matchers, take_matchers};
use crate::varint::{push_varint, take_count, take_varint, unzigzag, zigzag};
use crate::window::{TIME_MIN_MS, TimeBounds, WINDOW_MS, window_of};
use crate::{keys, value};

pub(crate) use reference::{ClockReading, Observed, ReferenceTime, RetentionTime};

/// Rules that there may be.
pub const RETENTION_RULES_MAX: usize = 64;
const VERSION: u8 = 1;

/// Limits of the retention.
#[derive(Debug, Clone, Default)]
pub struct Retention {
    /// Samples older than this are refused, and whole days of them deleted; `None` keeps
    /// everything.
    pub time_ms: Option<i64>,
    /// Bytes of files from which the oldest days are deleted, but for the newest one; `None` sets
    /// no bound.
    pub bytes: Option<u64>,
    /// Rules for some series.
    pub rules: Vec<RetentionRule>,
}

/// Keeps some series for a shorter time than the others.
#[derive(Debug, Clone)]
pub struct RetentionRule {
    /// Series that pass all of them are meant.
    pub matchers: Vec<Matcher>,
    /// Time for which their samples are kept.
    pub time_ms: i64,
}

impl RetentionRule {
    /// Returns whether it equals another rule.
    fn is_same(&self, other: &RetentionRule) -> bool {
        self.time_ms == other.time_ms && are_same(&self.matchers, &other.matchers)
    }
}

/// Returns whether matchers are the same, in the same order.
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
    pub(crate) bytes: Option<u64>,
    pub(crate) rules: Vec<Rule>,
}

/// A rule, and up to when it has expired samples.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) rule: RetentionRule,
    /// The first time that is kept. Shared with the same rule of the setting before.
    expired_before_ms: Arc<AtomicI64>,
}

impl Rule {
    /// Everything before this time has expired, and is masked or gone.
    pub(crate) fn expired_before_ms(&self) -> i64 {
        self.expired_before_ms.load(Ordering::Acquire)
    }

    /// Notes that everything before a time has expired.
    pub(crate) fn set_expired_before(&self, time_ms: i64) {
        self.expired_before_ms.store(time_ms, Ordering::Release);
    }

    /// Everything before this time has expired, or is about to.
    ///
    /// It goes back only with the clock, so that a clock that was ahead for a while does not have
    /// current writes refused afterwards. What has expired until then stays masked by tombstones.
    pub(crate) fn floor_ms(&self, time: RetentionTime) -> i64 {
        let oldest_window_ms = |now_ms: i64| {
            window_of(now_ms.saturating_sub(self.rule.time_ms)).saturating_mul(WINDOW_MS)
        };
        let confirmed_ms = time.reference_ms.map_or(i64::MIN, oldest_window_ms);
        self.expired_before_ms().max(confirmed_ms).min(oldest_window_ms(time.now_ms))
    }
}

/// The limit of the retention that a sample is older than.
#[derive(Debug, Clone, PartialEq)]
pub struct RetentionFloor {
    /// The earliest time that is accepted.
    pub floor_ms: i64,
    /// The setting that it comes from.
    pub limit: RetentionLimit,
}

/// A setting of the retention.
#[derive(Debug, Clone, PartialEq)]
pub enum RetentionLimit {
    /// The time that all samples are kept, in ms.
    Time(i64),
    /// A rule: its matchers as a selector, and the time that it keeps samples, in ms.
    Rule(String, i64),
    /// The day has been deleted, by size or by a setting that was shorter.
    Deleted,
}

impl Keeping {
    /// A retention that takes over from another one what its rules have expired.
    pub(crate) fn new(retention: Retention, before: &Keeping) -> Keeping {
        let Retention { time_ms, bytes, rules } = retention;
        let rule = |rule: RetentionRule| {
            let same = before.rules.iter().find(|known| known.rule.is_same(&rule));
            let expired_before_ms = match same {
                Some(known) => Arc::clone(&known.expired_before_ms),
                None => Arc::new(AtomicI64::new(i64::MIN)),
            };
            Rule { rule, expired_before_ms }
        };
        Keeping { time_ms, bytes, rules: rules.into_iter().map(rule).collect() }
    }

    /// Returns whether anything is ever deleted.
    pub(crate) fn is_limited(&self) -> bool {
        self.time_ms.is_some() || self.bytes.is_some() || !self.rules.is_empty()
    }

    /// The earliest time that is kept of all series; `None` if that is not limited, or not confirmed.
    pub(crate) fn floor_ms(&self, time: RetentionTime) -> Option<i64> {
        Some(time.reference_ms?.saturating_sub(self.time_ms?))
    }

    /// The first times that rules keep of series that pass some matchers.
    pub(crate) fn floors(&self, time: RetentionTime) -> RetentionFloors<'_> {
        let of_rules: Vec<(&RetentionRule, i64)> =
            self.rules.iter().map(|rule| (&rule.rule, rule.floor_ms(time))).collect();
        let latest_ms = of_rules.iter().map(|(_, ms)| *ms).max().unwrap_or(i64::MIN);
        let floor_ms = self.floor_ms(time);
        RetentionFloors { floor_ms, time_ms: self.time_ms, of_rules, latest_ms }
    }

    /// The value of [`keys::RULES`], with borders of some rules in place of what has expired; none
    /// where there are no rules.
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

    /// The rules that a value tells of, and nothing else.
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

/// First times that the retention keeps, by rule, as of one time.
#[derive(Debug)]
pub(crate) struct RetentionFloors<'a> {
    /// Earliest time that is kept of all series.
    floor_ms: Option<i64>,
    /// Retention of all series.
    time_ms: Option<i64>,
    of_rules: Vec<(&'a RetentionRule, i64)>,
    /// No rule expires this time or later ones.
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
        // Most samples are newer than all that rules have expired.
        if !floats.iter().any(has_expired)
            && !histograms.iter().any(|sample| has_expired(&sample.timestamp_ms))
        {
            return bounds;
        }
        let min_ms = bounds.min_ms.max(self.min_ms(&batch.labels(series_index)));
        TimeBounds { min_ms, ..bounds }
    }

    /// The first time that is kept of a series.
    fn min_ms(&self, labels: &Labels) -> i64 {
        self.of_series(labels).map_or(i64::MIN, |(_, floor_ms)| floor_ms)
    }

    /// The rule that keeps a series for the shortest time, and the first time that it keeps.
    fn of_series(&self, labels: &Labels) -> Option<(&RetentionRule, i64)> {
        let passes =
            |rule: &RetentionRule| rule.matchers.iter().all(|m| m.matches(labels.get(m.name())));
        let of_series = self.of_rules.iter().filter(|(rule, _)| passes(rule)).copied();
        of_series.max_by_key(|(_, floor_ms)| *floor_ms)
    }

    /// The limit that a sample of a series is older than, where nothing before `min_ms` is accepted
    /// of any series; `None` if it is not older than any.
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
        match self.floor_ms.zip(self.time_ms) {
            Some((floor_ms, time_ms)) if is_before(floor_ms) => {
                Some(RetentionFloor { floor_ms, limit: RetentionLimit::Time(time_ms) })
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
            // Behind a good checksum too.
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
