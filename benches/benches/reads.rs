//! Cost of queries without caches: reads, bytes and time, on an object store in memory with delayed
//! reads. See `benches/README.md`.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use benches::kernel::cpu_time;
use benches::measure::table;
use benches::options::{ReportOptions, count};
use benches::report;
use benches::source::decode_each;
use clap::Parser;
use engine::{Engine, EngineOptions, QueryOptions};
use model::{
    Batch, BoxFuture, Budget, Labels, MatchOp, Matcher, MetadataQuery, Selection, SeriesSet,
    SmolStr, Source, SourceError, TimeRange,
};
use storage::{Reader, SharedMemory, Store, StoreOptions, StoreStats};
use tokio::runtime::Runtime;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The metric that queries want.
const WANTED: &str = "wanted_total";
/// Timeout of writes while the store is loaded, and of its full compaction.
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(7_200);

/// Panels of the dashboard, the metrics that they share, and the series of each.
const PANELS: usize = 20;
const PANEL_METRICS: usize = 10;
const PANEL_SERIES: usize = 2000;
const PANEL_HOURS: i64 = 6;
const PANEL_INTERVAL_MS: i64 = 15_000;
const PANEL_STEP_MS: i64 = MINUTE_MS;

/// Series of the dashboard over a year, and their scrape interval.
const YEAR_SERIES: &str = "20";
const YEAR_INTERVAL: &str = "15";
/// Steps of the dashboard over a year, and their distance.
const YEAR_STEPS: i64 = 512;
const YEAR_STEP_MS: i64 = 17 * HOUR_MS;

/// Measures reads of queries from an object store.
#[derive(Parser)]
#[command(name = "reads")]
struct Options {
    /// Number of days in the store.
    #[arg(default_value = "30", value_parser = count())]
    days: usize,
    /// Delay of each read in milliseconds.
    #[arg(default_value_t = 50)]
    delay_ms: u64,
    /// Number of metrics in the store.
    #[arg(long, default_value = "200", value_parser = count())]
    metrics: usize,
    /// Number of series of the metric that is queried.
    #[arg(long, default_value = "1000", value_parser = count())]
    series: usize,
    /// Number of series of each other metric.
    #[arg(long, default_value = "5", value_parser = count())]
    other_series: usize,
    /// Scrape interval of the metric that is queried, in seconds.
    #[arg(long, default_value = "15", value_parser = count())]
    interval: usize,
    /// Scrape interval of the other metrics, as a multiple of `--interval`.
    #[arg(long, default_value = "20", value_parser = count())]
    other_intervals: usize,
    /// Number of series of the dashboard over a year.
    #[arg(long, default_value = YEAR_SERIES, value_parser = count())]
    year_series: usize,
    /// Scrape interval of these series in seconds.
    #[arg(long, default_value = YEAR_INTERVAL, value_parser = count())]
    year_interval: usize,
    /// Only the dashboard over a year.
    #[arg(long)]
    year_only: bool,
    /// That dashboard only from summaries.
    #[arg(long)]
    summaries_only: bool,
    /// Size of the cache for decoded samples in that dashboard, in MiB.
    #[arg(long, default_value_t = 128)]
    year_columns_mib: usize,
    #[command(flatten)]
    report: ReportOptions,
}

impl Options {
    fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    fn interval_ms(&self) -> i64 {
        self.interval as i64 * 1000
    }

    fn other_interval_ms(&self) -> i64 {
        self.other_intervals as i64 * self.interval_ms()
    }

    fn end_ms(&self) -> i64 {
        self.days as i64 * DAY_MS - 1
    }
}

fn options() -> StoreOptions {
    StoreOptions {
        background: false,
        ahead_max_ms: None,
        full_compaction_after: Duration::ZERO,
        compaction_interval: Some(Duration::from_millis(200)),
        // A load is faster than the compaction of one core.
        write_timeout: WRITE_TIMEOUT,
        ..StoreOptions::default()
    }
}

fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 31
}

fn series(metric: &str, number: usize) -> Labels {
    let (pod, group) = (format!("pod-{number:06}"), format!("group-{:02}", number % 32));
    let pairs = [
        ("__name__", metric),
        ("group", &*group),
        ("job", "a job"),
        ("namespace", "production"),
        ("pod", &*pod),
    ];
    Labels::from_pairs(pairs)
}

/// Writes the counters of a metric in a time range, 250 per write, at multiples of an interval.
async fn append(store: &Store, metric: &str, count: usize, times: (i64, i64), interval_ms: i64) {
    let first_ms = (times.0 + interval_ms - 1) / interval_ms * interval_ms;
    if first_ms >= times.1 {
        return;
    }
    for start in (0..count).step_by(250) {
        let mut batch = Batch::default();
        for number in start..count.min(start + 250) {
            let mut value = times.0 as u64 / 100 + number as u64;
            let samples: Vec<(i64, f64)> = (first_ms..times.1)
                .step_by(interval_ms as usize)
                .map(|time_ms| {
                    value += scramble(value ^ time_ms as u64) % 100;
                    (time_ms, value as f64)
                })
                .collect();
            batch.push(&series(metric, number), &samples);
        }
        store.append(batch).await.expect("the store takes samples");
    }
}

/// Fills days with one large metric among smaller ones.
async fn fill(memory: &SharedMemory, of: &Options) {
    let store = Store::open_in(memory, options()).await.expect("a store can be opened");
    for window in 0..of.days as i64 * 12 {
        let times = (window * 2 * HOUR_MS, (window + 1) * 2 * HOUR_MS);
        append(&store, WANTED, of.series, times, of.interval_ms()).await;
        for other in 1..of.metrics {
            let metric = format!("other_{other:03}_total");
            append(&store, &metric, of.other_series, times, of.other_interval_ms()).await;
        }
        store.seal_all().await.expect("a window can be sealed");
    }
    settle(memory, store).await;
}

/// Closes a store once it is compacted.
async fn settle(memory: &SharedMemory, store: Store) {
    store.close().await.expect("a store can be closed");
    let store = Store::open_in(memory, options()).await.expect("the store can be opened");
    let started = Instant::now();
    while store.stats().uncompacted_segments > 0 {
        assert!(started.elapsed() < SETTLE_TIMEOUT, "the store is compacted");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    store.close().await.expect("a store can be closed");
}

/// Opens the store without anything in its caches.
async fn reopen(memory: &SharedMemory) -> Store {
    let options = StoreOptions { compaction_interval: None, ..options() };
    Store::open_in(memory, options).await.expect("the store can be opened")
}

/// Measures a query on an open store.
async fn measure(store: &Store, name: &str, selection: &Selection, candidates: u64) -> Vec<String> {
    let budget = Budget::unlimited();
    let started = Instant::now();
    let set = store.select(selection, &budget).await.expect("it can be loaded");
    let loaded = started.elapsed().as_secs_f64();
    let mut samples = 0;
    decode_each(&*set, |_, batch| samples += batch.len);
    let total = started.elapsed().as_secs_f64();
    let cost = budget.object_store_cost();
    let million = 1e6;
    vec![
        name.to_owned(),
        cost.reads.to_string(),
        format!("{:.2}", cost.read_bytes as f64 / million),
        format!("{:.2}", samples as f64 / million),
        format!("{loaded:.3}"),
        format!("{total:.3}"),
        format!("{:.0}", candidates as f64 / million / loaded),
        format!("{:.0}", candidates as f64 / million / total),
    ]
}

/// Query of the table.
struct Row {
    name: &'static str,
    matchers: Vec<Matcher>,
    times: (i64, i64),
    candidates: u64,
}

impl Row {
    fn selection(&self) -> Selection {
        let times = TimeRange::new(self.times.0, self.times.1);
        Selection { matchers: self.matchers.clone(), times, only_newest: false, windows: None }
    }
}

/// Returns the pod in the middle of the metric, and the one after it.
fn needles(of: &Options) -> [String; 2] {
    [of.series / 2, (of.series / 2 + 1) % of.series].map(|number| format!("pod-{number:06}"))
}

fn one_series(pod: &str) -> Vec<Matcher> {
    vec![Matcher::equal("__name__", WANTED), Matcher::equal("pod", pod)]
}

fn rows(of: &Options) -> Vec<Row> {
    let [pod, _] = needles(of);
    let regex = format!(".*{}", &pod["pod-".len()..]);
    let regex = Matcher::new(MatchOp::Regex, "pod", regex).expect("it is well-formed");
    let day = of.series as u64 * (DAY_MS / of.interval_ms()) as u64;
    let metric_days = day * of.days as u64;
    let of_others = ((of.metrics - 1) * of.other_series) as u64
        * (of.end_ms() / of.other_interval_ms() + 1) as u64;
    let all = metric_days + of_others;
    let metric = || vec![Matcher::equal("__name__", WANTED)];
    let whole = (0, of.end_ms());
    let row = |name, matchers, times, candidates| Row { name, matchers, times, candidates };
    vec![
        row("an hour", metric(), (9 * HOUR_MS, 10 * HOUR_MS - 1), day / 24),
        row("a day", metric(), (0, DAY_MS - 1), day),
        row("all days", metric(), whole, metric_days),
        row("one series, a day", one_series(&pod), (0, DAY_MS - 1), day),
        row("one series, all days", one_series(&pod), whole, metric_days),
        row("a regex, all days", vec![regex], whole, all),
        row("an absent pair, all days", vec![Matcher::equal("trace", "nowhere")], whole, all),
    ]
}

/// Measures queries, each on a newly opened store, and then one series with the index in memory.
async fn queries(of: &Options) -> String {
    let memory = SharedMemory::default();
    fill(&memory, of).await;
    let slow = memory.delayed(of.delay());
    let mut lines = Vec::new();
    for row in rows(of) {
        let store = reopen(&slow).await;
        lines.push(measure(&store, row.name, &row.selection(), row.candidates).await);
        store.close().await.expect("the store can be closed");
    }
    let store = reopen(&slow).await;
    let needle = rows(of).remove(4);
    let [_, other] = needles(of);
    let first = Row { matchers: one_series(&other), ..needle };
    measure(&store, "", &first.selection(), 0).await;
    let needle = rows(of).remove(4);
    for name in ["one series, the index in memory", "one series, all in memory"] {
        lines.push(measure(&store, name, &needle.selection(), needle.candidates).await);
    }
    store.close().await.expect("the store can be closed");
    let head = [
        "query",
        "reads",
        "MB read",
        "M samples",
        "s to load",
        "s to decode all, one core",
        "M candidates/s loading",
        "… in all",
    ];
    table(&head, &lines)
}

/// Measures the first dashboard after a start: all panels at once, on empty caches.
async fn dashboard(of: &Options) -> String {
    let memory = SharedMemory::default();
    let store = Store::open_in(&memory, options()).await.expect("a store can be opened");
    for window in 0..=PANEL_HOURS / 2 {
        let times = (window * 2 * HOUR_MS, (window + 1) * 2 * HOUR_MS);
        for metric in 0..PANEL_METRICS {
            let metric = format!("panel_{metric:02}_total");
            append(&store, &metric, PANEL_SERIES, times, PANEL_INTERVAL_MS).await;
        }
        store.seal_all().await.expect("a window can be sealed");
    }
    settle(&memory, store).await;
    let store = Arc::new(reopen(&memory.delayed(of.delay())).await);
    let engine = Arc::new(Engine::new(EngineOptions::default()));
    let mut lines = Vec::new();
    for name in ["the first one", "again"] {
        let reads_before = store.stats().object_store_reads;
        let (cpu, started) = (cpu_time(), Instant::now());
        let panels: Vec<_> = (0..PANELS)
            .map(|panel| {
                let (engine, source) = (Arc::clone(&engine), Arc::clone(&store) as Arc<dyn Source>);
                tokio::spawn(async move {
                    let query = format!(
                        "sum by (group) (rate(panel_{:02}_total[5m]))",
                        panel % PANEL_METRICS
                    );
                    let end_ms = (PANEL_HOURS + 1) * HOUR_MS;
                    let (start_ms, options) =
                        (end_ms - PANEL_HOURS * HOUR_MS, QueryOptions::default());
                    engine.range(source, &query, start_ms, end_ms, PANEL_STEP_MS, &options).await
                })
            })
            .collect();
        for panel in panels {
            panel.await.expect("no panic").expect("the query is good");
        }
        let (wall, cpu) = (started.elapsed().as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
        let after = store.stats().object_store_reads;
        let query = Reader::ALL.iter().position(|r| *r == Reader::Query).expect("listed");
        let (before, after) = (reads_before[query], after[query]);
        lines.push(vec![
            name.to_owned(),
            (after.reads - before.reads).to_string(),
            format!("{:.2}", (after.bytes - before.bytes) as f64 / 1e6),
            format!("{wall:.3}"),
            format!("{cpu:.3}"),
        ]);
    }
    store.close().await.expect("the store can be closed");
    table(&["dashboard", "reads", "MB read", "s", "CPU s"], &lines)
}

/// The store without summaries: every selection needs samples.
struct OfSamples(Arc<Store>);

impl Source for OfSamples {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        let selection = Selection { windows: None, ..selection.clone() };
        Box::pin(async move { self.0.select(&selection, budget).await })
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

/// Measures a dashboard over a year, from summaries of hours and from samples.
async fn year(of: &Options) -> String {
    let memory = SharedMemory::default();
    let store = Store::open_in(&memory, options()).await.expect("a store can be opened");
    let interval_ms = of.year_interval as i64 * 1000;
    let end_ms = YEAR_STEPS * YEAR_STEP_MS;
    for start_ms in (0..end_ms).step_by(2 * HOUR_MS as usize) {
        let times = (start_ms, start_ms + 2 * HOUR_MS);
        append(&store, WANTED, of.year_series, times, interval_ms).await;
        store.seal_all().await.expect("a window can be sealed");
    }
    settle(&memory, store).await;
    let engine = Engine::new(EngineOptions::default());
    let range_s = YEAR_STEP_MS / 1000 + of.year_interval as i64;
    let mut lines = Vec::new();
    for function in ["rate", "max_over_time"] {
        for is_summarized in [true, false] {
            if of.summaries_only && !is_summarized {
                continue;
            }
            let columns_bytes_max = of.year_columns_mib << 20;
            let options =
                StoreOptions { compaction_interval: None, columns_bytes_max, ..options() };
            let delayed = memory.delayed(of.delay());
            let store = Store::open_in(&delayed, options).await.expect("the store can be opened");
            let store = Arc::new(store);
            let source: Arc<dyn Source> =
                if is_summarized { store.clone() } else { Arc::new(OfSamples(store.clone())) };
            for run in ["first", "again", "again"] {
                let query = format!("sum by (group) ({function}({WANTED}[{range_s}s]))");
                let before = store.stats();
                let (cpu, started) = (cpu_time(), Instant::now());
                let options = QueryOptions::default();
                let source = Arc::clone(&source);
                let answer = engine
                    .range(source, &query, YEAR_STEP_MS, end_ms, YEAR_STEP_MS, &options)
                    .await
                    .expect("the query is good");
                let (wall, cpu) =
                    (started.elapsed().as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
                black_box(answer);
                let after = store.stats();
                let query = Reader::ALL.iter().position(|r| *r == Reader::Query).expect("listed");
                let reads = |stats: &StoreStats| stats.object_store_reads[query];
                let from = if is_summarized { "summaries" } else { "samples" };
                lines.push(vec![
                    format!("{function}, {from}, {run}"),
                    (reads(&after).reads - reads(&before).reads).to_string(),
                    format!("{:.2}", (reads(&after).bytes - reads(&before).bytes) as f64 / 1e6),
                    (after.summarized_blocks - before.summarized_blocks).to_string(),
                    format!("{wall:.3}"),
                    format!("{cpu:.3}"),
                ]);
            }
            drop(source);
            let store = Arc::into_inner(store).expect("no query runs");
            store.close().await.expect("the store can be closed");
        }
    }
    table(&["query", "reads", "MB read", "blocks by summaries", "s", "CPU s"], &lines)
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run("Reads of an object store", "reads", options.report.is_record, |report| {
        let runtime = Runtime::new()?;
        report.push(&format!(
            "A dashboard over a year: {} series each {} s, {YEAR_STEPS} steps of {} hours, windows \
             longer by a scrape interval. The first query of a group on a newly opened store.\n\n{}",
            options.year_series,
            options.year_interval,
            YEAR_STEP_MS / HOUR_MS,
            runtime.block_on(year(&options)),
        ));
        if options.year_only {
            return Ok(());
        }
        report.push(&format!(
            "{} days, {} metrics, of which one has {} series each {} s, and the others {} each {} \
             s; {} ms a request. Each query, except for the last two, on a newly opened store.\n\n{}",
            options.days,
            options.metrics,
            options.series,
            options.interval,
            options.other_series,
            options.other_interval_ms() / 1000,
            options.delay_ms,
            runtime.block_on(queries(&options)),
        ));
        report.push(&format!(
            "{PANELS} panels at once, on {PANEL_METRICS} metrics of {PANEL_SERIES} series each \
             {} s: sums of rates over {PANEL_HOURS} hours. The first one on a newly opened \
             store.\n\n{}",
            PANEL_INTERVAL_MS / 1000,
            runtime.block_on(dashboard(&options)),
        ));
        Ok(())
    })
}
