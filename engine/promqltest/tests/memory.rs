//! Compares the bytes charged to a query with the bytes held, counted by an allocator.
//!
//! There is only one test, because the allocator counts for the whole process.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::fmt::Write as _;
use std::sync::Arc;

use benches::kernel::{CountingAllocator, account};
use engine::{Engine, EngineOptions, QueryError, QueryOptions, QueryOutput};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{
    Advance, BoxFuture, Budget, BudgetLimits, Cursor, Histogram, Labels, MetadataQuery,
    SampleBatch, Selection, SeriesSet, SmolStr, Source, SourceError, Span, StepRanges,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NOW_MS: i64 = 1_700_000_000_000;
const MINUTE_MS: i64 = 60_000;
/// Minimum peak; smaller ones are dominated by fixed costs.
const PEAK_MIN: u64 = 16 << 20;

/// A source that decodes histograms on each read, like the store.
struct Decoding(MemorySource);

impl Source for Decoding {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let set = self.0.select(selection, budget).await?;
            Ok(Arc::new(DecodingSet(set)) as Arc<dyn SeriesSet>)
        })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        self.0.series(query, budget)
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.0.label_names(query, budget)
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        self.0.label_values(name, query, budget)
    }
}

struct DecodingSet(Arc<dyn SeriesSet>);

impl SeriesSet for DecodingSet {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        self.0.labels(series_index)
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        Box::new(DecodingCursor(self.0.cursor(series_index)))
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.0.sample_count_estimate(series_index)
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.0.has_histograms(series_index)
    }

    fn encoded_bytes(&self) -> usize {
        self.0.encoded_bytes()
    }
}

struct DecodingCursor<'a>(Box<dyn Cursor + 'a>);

impl Cursor for DecodingCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        let first = batch.histograms.len();
        let advance = self.0.next_batch(until_ms, batch)?;
        for sample in &mut batch.histograms[first..] {
            sample.histogram = Arc::new((*sample.histogram).clone());
        }
        Ok(advance)
    }

    fn restrict_to(&mut self, ranges: StepRanges) {
        self.0.restrict_to(ranges);
    }
}

/// Returns a sample per minute for half an hour: 2,000 floats `m{i, side}` and as many `n{i, side}`
/// and `bucket{i, le}`, 16 floats `few{i}`, and `h{i}`: 400 native histograms of 160 buckets.
fn source() -> Arc<dyn Source> {
    let mut source = MemorySource::new();
    let histogram = Arc::new(Histogram {
        count: 160.0,
        sum: 160.0,
        positive_spans: vec![Span { offset: 0, length: 160 }],
        positive_counts: vec![1.0; 160],
        ..Histogram::default()
    });
    for minute in 0..30 {
        let time_ms = NOW_MS - (29 - minute) * MINUTE_MS;
        for i in 0..2000 {
            let (i, value) = (format!("{i:04}"), (i * 31 % 97 + minute) as f64);
            for name in ["m", "n"] {
                let labels = [("__name__", name), ("i", &i), ("side", "a")];
                source.append(&Labels::from_pairs(labels), time_ms, value);
            }
            let labels = [("__name__", "bucket"), ("i", &i[..3]), ("le", &i[3..])];
            source.append(&Labels::from_pairs(labels), time_ms, value);
        }
        for i in 0..16 {
            let labels = [("__name__", "few"), ("i", &*i.to_string())];
            source.append(&Labels::from_pairs(labels), time_ms, (i + minute) as f64);
        }
        for i in 0..400 {
            let labels = Labels::from_pairs([("__name__", "h"), ("i", &i.to_string())]);
            source.append_histogram(&labels, time_ms, Arc::clone(&histogram), 0);
        }
    }
    Arc::new(Decoding(source))
}

/// Evaluation times of a query.
#[derive(Clone, Copy)]
enum Asked {
    Instant,
    /// This number of steps of a second.
    Range(i64),
}

fn ask(
    (query, asked): (&str, Asked),
    source: &Arc<dyn Source>,
    memory_bytes_max: u64,
) -> (Result<QueryOutput, QueryError>, u64) {
    // With several threads, the sum of their peaks is random.
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    let limits = BudgetLimits { memory_bytes_max, ..BudgetLimits::default() };
    let options = QueryOptions { limits, ..QueryOptions::default() };
    let source = Arc::clone(source);
    let (output, memory) = account(|| match asked {
        Asked::Instant => block_on(engine.instant(source, query, NOW_MS, &options)),
        Asked::Range(steps) => {
            let start_ms = NOW_MS - steps * 1000;
            block_on(engine.range(source, query, start_ms, NOW_MS, 1000, &options))
        }
    });
    (output, memory.peak_of_work() as u64)
}

/// Returns whether two figures differ by at most a tenth.
fn agree(charged: u64, held: u64) -> bool {
    charged.abs_diff(held) * 10 <= held
}

#[test]
fn charged_and_held_bytes_agree() {
    use Asked::{Instant, Range};
    let text = "x".repeat(3_500);
    let large = "x".repeat(10_000);
    let large = format!("label_replace(m, \"text\", \"{large}\", \"\", \"\")");
    let relabeled =
        format!("label_replace({{__name__=~\"m|n|bucket\"}}, \"text\", \"{text}\", \"\", \"\")");
    let cases: &[(&str, Asked)] = &[
        ("quantile_over_time(0.5, few[10m:10ms])", Instant),
        ("quantile_over_time(0.5, few[10m:10ms])", Range(20)),
        ("mad_over_time(few[10m:10ms])", Instant),
        ("sum_over_time(few[10m:10ms])", Instant),
        ("sum_over_time(few[10m:10ms])", Range(20)),
        ("stddev_over_time(few[10m:10ms])", Instant),
        ("max_over_time(few[10m:10ms])", Instant),
        ("rate(few[10m:10ms])", Instant),
        ("rate(h[1m:100ms])", Instant),
        ("sum_over_time(m[10m:1s])", Instant),
        ("few[10m:10ms]", Instant),
        (&relabeled, Instant),
        (&large, Instant),
        ("m * on (i) group_left n", Range(1000)),
        ("m and on (i) n", Range(1000)),
        ("m or on (i) n", Range(1000)),
        ("m == on (i) n", Range(1000)),
        ("topk(2000, m)", Range(1000)),
        ("bottomk by (side) (1999, m)", Range(1000)),
        ("count_values by (i) (\"v\", m)", Range(100)),
        ("sort(m)", Range(1000)),
        ("m", Range(1000)),
        ("rate(m[100y])", Range(1000)),
        ("sum by (i) (m)", Range(1000)),
        (
            "histogram_quantile(0.5, {__name__=~\"bucket\"} or on (i) {__name__=\"bucket\", le=~\"[0-5]\"})",
            Range(1000),
        ),
        ("h", Range(1700)),
        ("h * 2", Range(100)),
        ("rate(h[5m])", Range(500)),
        ("sum by (i) (h)", Range(100)),
        ("sum(h)", Range(200)),
        ("h + h", Range(100)),
        ("{__name__=~\"h|m\"}[30m]", Instant),
        ("histogram_quantile(0.9, rate(h[5m]))", Range(200)),
    ];
    let source = source();
    let mut table = String::new();
    let mut is_right = true;
    for (query, asked) in cases {
        let shown: String = query.chars().take(50).collect();
        let (output, held) = ask((query, *asked), &source, u64::MAX);
        let charged = output.unwrap_or_else(|error| panic!("{shown}: {error}"));
        let charged = charged.stats.memory_bytes_peak;
        let matters = charged.max(held) >= PEAK_MIN;
        let limit = charged / 2;
        let (limited, held_limited) = ask((query, *asked), &source, limit);
        let is_refused = limited.is_err_and(|e| e.to_string().contains("(--query.max-memory)"));
        let is_kept = held_limited * 10 <= limit * 11;
        let is_fine = !matters || agree(charged, held) && is_refused && is_kept;
        is_right &= is_fine;
        let _ = writeln!(
            table,
            "{} {shown}: charged {charged}, held {held}; limit {limit}, held {held_limited}",
            if is_fine { "     " } else { "WRONG" }
        );
    }
    assert!(is_right, "\n{table}");
}
