//! Costs of queries since the start of the server, by their text.
//!
//! ```text
//! query ends ──> [`TopQueries::note`] ──> text (truncated) and tenants ──> [`QueryUse`]
//! ```
//!
//! Queries that do not parse, and those whose client disconnects, are not counted. Users and
//! addresses are not kept.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use engine::When;
use engine::result::QueryStats;

use super::active::Client;
use super::scoped::{Fact, ScopedFacts};

/// Maximum number of texts.
const TEXTS_MAX: usize = 1_000;
/// Maximum bytes of a text; longer ones with the same start are counted together.
const TEXT_BYTES_MAX: usize = 4_096;
/// Time that is added to the age of an entry, so that a new one is not worth more than an old one
/// that is used regularly.
const AGE_SECONDS: f64 = 600.0;

/// Costs of queries by text.
#[derive(Debug)]
pub(crate) struct TopQueries {
    began: Instant,
    uses: Mutex<ScopedFacts<QueryUse>>,
}

/// Query that has ended.
pub(crate) struct EndedQuery<'a> {
    pub(crate) text: &'a str,
    pub(crate) when: When,
    pub(crate) client: &'a Client,
    /// Time from the request to the end, with that in the queue.
    pub(crate) elapsed: Duration,
    /// Costs; `None` if the query failed.
    pub(crate) stats: Option<&'a QueryStats>,
}

/// Costs of all evaluations of a query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueryUse {
    /// Number of evaluations.
    pub(crate) count: u64,
    /// Evaluations that failed.
    pub(crate) failures: u64,
    /// Total of the times from request to end.
    pub(crate) seconds: f64,
    /// Maximum of these times.
    pub(crate) seconds_max: f64,
    /// Samples decoded.
    pub(crate) samples: u64,
    /// Bytes of blocks and indexes of SSTs, from the object store or a cache.
    pub(crate) bytes: u64,
    /// Maximum peak memory.
    pub(crate) memory_bytes_peak: u64,
    /// Times of the last evaluation.
    pub(crate) when: When,
    /// End of the last evaluation by the system clock.
    pub(crate) last: SystemTime,
    /// First evaluation, in seconds since the start of the server.
    first_seconds: f64,
}

impl Fact for QueryUse {
    /// Uses per time, where a second of evaluation counts as one more use.
    fn worth(&self, now_seconds: f64) -> f64 {
        let age_seconds = (now_seconds - self.first_seconds).max(0.0) + AGE_SECONDS;
        (self.count as f64 + self.seconds) / age_seconds
    }
}

/// Order of listed queries, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopOrder {
    Seconds,
    Samples,
    Bytes,
    Count,
}

impl TopOrder {
    /// All orders, with their names in the API.
    pub(crate) const ALL: [(&'static str, TopOrder); 4] = [
        ("seconds", TopOrder::Seconds),
        ("samples", TopOrder::Samples),
        ("bytes", TopOrder::Bytes),
        ("count", TopOrder::Count),
    ];

    fn value(self, used: &QueryUse) -> f64 {
        match self {
            TopOrder::Seconds => used.seconds,
            TopOrder::Samples => used.samples as f64,
            TopOrder::Bytes => used.bytes as f64,
            TopOrder::Count => used.count as f64,
        }
    }
}

/// Listed query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopQuery {
    pub(crate) text: String,
    /// Tenants as in their header; empty without any.
    pub(crate) tenants: String,
    pub(crate) used: QueryUse,
}

impl Default for TopQueries {
    fn default() -> Self {
        TopQueries { began: Instant::now(), uses: Mutex::new(ScopedFacts::new(TEXTS_MAX)) }
    }
}

impl TopQueries {
    /// Counts a query.
    pub(crate) fn note(&self, query: &EndedQuery<'_>) {
        self.note_at(query, self.began.elapsed().as_secs_f64());
    }

    fn note_at(&self, query: &EndedQuery<'_>, now_seconds: f64) {
        let text = &query.text[..query.text.floor_char_boundary(TEXT_BYTES_MAX)];
        let new = || QueryUse {
            count: 0,
            failures: 0,
            seconds: 0.0,
            seconds_max: 0.0,
            samples: 0,
            bytes: 0,
            memory_bytes_peak: 0,
            when: query.when,
            last: SystemTime::now(),
            first_seconds: now_seconds,
        };
        let scope = query.client.scope();
        self.uses().update(scope, text, now_seconds, new, |used| used.add(query));
    }

    /// Returns the queries that a client may see, at most `limit`, and the number of all of these.
    pub(crate) fn visible_to(
        &self,
        client: &Client,
        order: TopOrder,
        limit: usize,
    ) -> (Vec<TopQuery>, usize) {
        let uses = self.uses();
        let mut found: Vec<_> =
            uses.visible(|scope| Client::of_scope(scope).is_visible_to(client)).collect();
        let count = found.len();
        found.sort_by(|a, b| {
            let by_value = order.value(b.2).total_cmp(&order.value(a.2));
            by_value.then_with(|| a.1.cmp(b.1)).then_with(|| b.2.count.cmp(&a.2.count))
        });
        let listed = found.into_iter().take(limit).map(|(scope, text, used)| TopQuery {
            text: text.to_owned(),
            tenants: Client::of_scope(scope).tenants_text(),
            used: used.clone(),
        });
        (listed.collect(), count)
    }

    fn uses(&self) -> MutexGuard<'_, ScopedFacts<QueryUse>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueryUse {
    fn add(&mut self, query: &EndedQuery<'_>) {
        let seconds = query.elapsed.as_secs_f64();
        self.count += 1;
        self.seconds += seconds;
        self.seconds_max = self.seconds_max.max(seconds);
        self.when = query.when;
        self.last = SystemTime::now();
        match query.stats {
            None => self.failures += 1,
            Some(stats) => {
                let read = &stats.object_store;
                self.samples += stats.sample_count;
                self.bytes += read.read_bytes + read.cached_bytes;
                self.memory_bytes_peak = self.memory_bytes_peak.max(stats.memory_bytes_peak);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(top: &TopQueries, text: &str, seconds: f64, now_seconds: f64) {
        let client = Client::default();
        let stats = QueryStats { sample_count: 7, ..QueryStats::default() };
        let query = EndedQuery {
            text,
            when: When::Instant(0),
            client: &client,
            elapsed: Duration::from_secs_f64(seconds),
            stats: Some(&stats),
        };
        top.note_at(&query, now_seconds);
    }

    fn texts(top: &TopQueries) -> (Vec<String>, usize) {
        let (found, count) = top.visible_to(&Client::default(), TopOrder::Seconds, usize::MAX);
        (found.into_iter().map(|query| query.text).collect(), count)
    }

    #[test]
    fn frequent_and_slow_queries_survive_a_flood_of_others() {
        let top = TopQueries::default();
        note(&top, "slow", 60.0, 0.0);
        for minute in 0..200 {
            let now = f64::from(minute) * 60.0;
            note(&top, "frequent", 0.001, now);
            for other in 0..100 {
                note(&top, &format!("once_{minute}_{other}"), 0.001, now);
            }
        }
        let (found, count) = texts(&top);
        assert!(count <= TEXTS_MAX && count > TEXTS_MAX / 2, "{count}");
        assert_eq!(found[..2], ["slow", "frequent"]);
        let (found, _) = top.visible_to(&Client::default(), TopOrder::Count, 1);
        assert_eq!((found[0].used.count, found[0].used.samples), (200, 1400));
    }

    #[test]
    fn long_texts_are_truncated_between_characters() {
        let top = TopQueries::default();
        let text = "é".repeat(TEXT_BYTES_MAX);
        note(&top, &format!("a{text}"), 1.0, 0.0);
        note(&top, &format!("a{text}b"), 1.0, 0.0);
        let (found, _) = texts(&top);
        assert_eq!(found.len(), 1);
        assert!(found[0].len() == TEXT_BYTES_MAX - 1 && text.starts_with(&found[0][1..]));
    }
}
