//! Series that commits have created, by hour and metric.
//!
//! A series is created if the head does not have it: it is new, or returns after it was forgotten.
//! Series that a replay or a follower restores are not counted: the time of their creation is unknown.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cardinality::{Counted, Largest};

/// Number of hours that are kept, the current one included.
const HOURS: usize = 24;
const HOUR_MS: i64 = 3_600_000;
/// Maximum number of metrics that are counted separately, and of bytes of their names.
const METRICS_MAX: usize = 10_000;
const NAME_BYTES_MAX: usize = 256;

/// Counts of created series.
#[derive(Default)]
pub(crate) struct CreatedSeries(Mutex<CreatedState>);

#[derive(Default)]
struct CreatedState {
    since_ms: Option<i64>,
    all: HourCounts,
    metrics: BTreeMap<Box<str>, HourCounts>,
    /// Series of metrics that are not counted separately.
    others: HourCounts,
    /// Hour of the last search for metrics without counts.
    trimmed_hour: Option<i64>,
}

/// Series created in the last 24 hours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreatedStats {
    /// Time of the first commit of this process, in ms since the epoch; `None` before it.
    pub since_ms: Option<i64>,
    /// Start and count of each hour, in ascending order. The last hour is the current one.
    pub hours: Vec<(i64, u64)>,
    /// Metrics with the most created series, in descending order.
    pub metrics: Counted,
    /// Created series of metrics that are not counted separately.
    pub others: u64,
}

impl CreatedSeries {
    /// Counts the series of a commit by their metrics.
    pub(crate) fn note<'a>(&self, now_ms: i64, metrics: impl Iterator<Item = &'a str>) {
        let mut state = self.state();
        state.since_ms.get_or_insert(now_ms);
        let hour = now_ms.div_euclid(HOUR_MS);
        for metric in metrics {
            state.all.add(hour);
            state.of_metric(metric, hour).add(hour);
        }
    }

    /// Returns the counts of one metric, or of all, up to a time.
    pub(crate) fn stats(&self, now_ms: i64, metric: Option<&str>, limit: usize) -> CreatedStats {
        let state = self.state();
        let hour = now_ms.div_euclid(HOUR_MS);
        let none = HourCounts::default();
        let counts = match metric {
            None => &state.all,
            Some(metric) => state.metrics.get(metric).unwrap_or(&none),
        };
        let mut largest = Largest::new(limit);
        for (name, counts) in &state.metrics {
            let count = counts.sum(hour);
            if count > 0 {
                largest.offer(count, || name.to_string());
            }
        }
        let start_ms = |(hour, count): (i64, u64)| (hour.saturating_mul(HOUR_MS), count);
        CreatedStats {
            since_ms: state.since_ms,
            hours: counts.last(hour).map(start_ms).collect(),
            metrics: largest.into_sorted(),
            others: state.others.sum(hour),
        }
    }

    fn state(&self) -> MutexGuard<'_, CreatedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CreatedState {
    fn of_metric(&mut self, metric: &str, hour: i64) -> &mut HourCounts {
        let is_new = !self.metrics.contains_key(metric);
        if is_new && self.metrics.len() >= METRICS_MAX && self.trimmed_hour != Some(hour) {
            self.trimmed_hour = Some(hour);
            self.metrics.retain(|_, counts| counts.sum(hour) > 0);
        }
        if is_new && (self.metrics.len() >= METRICS_MAX || metric.len() > NAME_BYTES_MAX) {
            return &mut self.others;
        }
        self.metrics.entry(metric.into()).or_default()
    }
}

/// Counts of the last hours, each at its number modulo [`HOURS`].
#[derive(Default)]
struct HourCounts {
    newest: i64,
    counts: [u32; HOURS],
}

impl HourCounts {
    fn add(&mut self, hour: i64) {
        let is_kept = |passed: i64| (0..HOURS as i64).contains(&passed);
        if is_kept(hour.saturating_sub(self.newest)) {
            (self.newest + 1..=hour).for_each(|hour| self.counts[slot(hour)] = 0);
            self.newest = hour;
        } else if !is_kept(self.newest.saturating_sub(hour)) {
            // A long pause, or the clock was set back.
            *self = HourCounts { newest: hour, counts: [0; HOURS] };
        }
        let count = &mut self.counts[slot(hour)];
        *count = count.saturating_add(1);
    }

    /// Returns hours up to `hour` with their counts.
    fn last(&self, hour: i64) -> impl Iterator<Item = (i64, u64)> {
        (0..HOURS as i64).rev().map(move |passed| {
            let hour = hour.saturating_sub(passed);
            let is_kept = (0..HOURS as i64).contains(&self.newest.saturating_sub(hour));
            (hour, if is_kept { u64::from(self.counts[slot(hour)]) } else { 0 })
        })
    }

    fn sum(&self, hour: i64) -> u64 {
        self.last(hour).map(|(_, count)| count).sum()
    }
}

fn slot(hour: i64) -> usize {
    hour.rem_euclid(HOURS as i64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counts of the hours that have any.
    fn hours(created: &CreatedSeries, now_hour: i64, metric: Option<&str>) -> Vec<(i64, u64)> {
        let hours = created.stats(now_hour * HOUR_MS, metric, 10).hours;
        assert_eq!(hours.len(), HOURS);
        assert_eq!(hours[HOURS - 1].0, now_hour * HOUR_MS);
        hours.into_iter().filter(|(_, n)| *n > 0).map(|(ms, n)| (ms / HOUR_MS, n)).collect()
    }

    #[test]
    fn the_last_24_hours_are_kept() {
        let created = CreatedSeries::default();
        assert_eq!(created.stats(0, None, 10).since_ms, None);
        let note = |hour: i64, metrics: &[&str]| {
            created.note(hour * HOUR_MS + 5, metrics.iter().copied());
        };
        note(100, &["a", "b", "a"]);
        note(101, &["b"]);
        note(123, &["a"]);
        assert_eq!(hours(&created, 123, None), [(100, 3), (101, 1), (123, 1)]);
        assert_eq!(hours(&created, 123, Some("a")), [(100, 2), (123, 1)]);
        assert_eq!(hours(&created, 124, Some("b")), [(101, 1)]);
        assert_eq!(hours(&created, 130, Some("c")), []);
        let stats = created.stats(124 * HOUR_MS, None, 10);
        assert_eq!(stats.since_ms, Some(100 * HOUR_MS + 5));
        assert_eq!(stats.metrics, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
        assert_eq!(created.stats(123 * HOUR_MS, None, 1).metrics, [("a".to_owned(), 3)]);
        // An hour late, then a clock that was set back for long.
        note(122, &["a"]);
        assert_eq!(hours(&created, 123, Some("a")), [(100, 2), (122, 1), (123, 1)]);
        note(7, &["a"]);
        assert_eq!(hours(&created, 7, None), [(7, 1)]);
        note(i64::MAX / HOUR_MS, &["a"]);
        assert_eq!(hours(&created, 8, Some("a")), []);
    }

    #[test]
    fn metrics_beyond_the_limit_are_counted_together() {
        let created = CreatedSeries::default();
        let names: Vec<String> = (0..METRICS_MAX + 3).map(|at| format!("m{at}")).collect();
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        created.note(0, names.iter().map(String::as_str).chain([long.as_str()]));
        let stats = created.stats(0, None, 2);
        assert_eq!((stats.others, stats.metrics.len()), (4, 2));
        assert_eq!(stats.hours[HOURS - 1].1, names.len() as u64 + 1);
        // Their slots are free a day later.
        created.note(HOURS as i64 * HOUR_MS, ["new"].into_iter());
        let stats = created.stats(HOURS as i64 * HOUR_MS, Some("new"), 2);
        assert_eq!((stats.others, stats.metrics), (0, vec![("new".to_owned(), 1)]));
    }
}
