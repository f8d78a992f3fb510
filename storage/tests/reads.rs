//! Number of reads of the object store by queries with cold caches, which is the same on every
//! machine.
//!
//! Each test fills a store, waits for its compaction, and reopens it for every query.

use std::time::Duration;

use model::{
    Batch, Budget, BudgetError, BudgetLimits, BudgetResource, Labels, MatchOp, Matcher,
    ObjectStoreCost, Selection, Source, SourceError, TimeRange,
};
use storage::{Reader, SharedMemory, Store, StoreOptions};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const HOUR_MS: i64 = 60 * 60 * 1000;
const STEP_MS: i64 = 15_000;
/// Series of the other metrics.
const OTHERS_SERIES: usize = 5;
/// The other metrics.
const OTHERS: usize = 199;

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built")
        .block_on(test)
}

fn options() -> StoreOptions {
    StoreOptions {
        background: false,
        ahead_max_ms: None,
        full_compaction_after: Duration::ZERO,
        compaction_interval: Some(Duration::from_millis(20)),
        ..StoreOptions::default()
    }
}

/// A number that looks random and is always the same.
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 31
}

/// A counter's samples in a range of time; it grows by less than 100 a step.
fn counter(series: usize, start_ms: i64, end_ms: i64, step_ms: i64) -> Vec<(i64, f64)> {
    let mut value = 1000 * series as u64;
    (start_ms..end_ms)
        .step_by(step_ms as usize)
        .map(|time_ms| {
            value += scramble(value ^ time_ms as u64) % 100;
            (time_ms, value as f64)
        })
        .collect()
}

fn labels(metric: &str, pod: &str) -> Labels {
    let pairs = [("__name__", metric), ("job", "a job"), ("namespace", "production"), ("pod", pod)];
    Labels::from_pairs(pairs)
}

/// Adds the series of a metric over a window, some series a write.
async fn append(store: &Store, metric: &str, pods: &[String], times: (i64, i64), step_ms: i64) {
    for (number, pods) in pods.chunks(250).enumerate() {
        let mut batch = Batch::default();
        for (at, pod) in pods.iter().enumerate() {
            let samples = counter(number * 250 + at, times.0, times.1, step_ms);
            batch.push(&labels(metric, pod), &samples);
        }
        store.append(batch).await.expect("the store takes samples");
    }
}

fn pods(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("pod-{number:06}")).collect()
}

/// Fills days with one large metric among 199 smaller ones, and seals each window.
async fn fill(store: &Store, days: i64, series: usize) {
    let (pods, of_others) = (pods(series), pods(OTHERS_SERIES));
    for window in 0..days * 12 {
        let times = (window * 2 * HOUR_MS, (window + 1) * 2 * HOUR_MS);
        append(store, "wanted_total", &pods, times, STEP_MS).await;
        for other in 0..OTHERS {
            let metric = format!("other_{other:03}_total");
            append(store, &metric, &of_others, times, 20 * STEP_MS).await;
        }
        store.seal_all().await.expect("a window can be sealed");
    }
}

/// Waits for a condition that other tasks bring about, however slow they are.
async fn until(is_met: impl Fn() -> bool) {
    while !is_met() {
        tokio::task::yield_now().await;
    }
}

/// Closes a store after its compaction.
async fn settle(memory: &SharedMemory, store: Store) {
    store.close().await.expect("a store can be closed");
    let store = Store::open_in(memory, options()).await.expect("the store can be opened");
    until(|| store.stats().uncompacted_segments == 0).await;
    store.close().await.expect("a store can be closed");
}

/// Returns the reads of a selection with cold caches, and its number of series.
async fn cold(memory: &SharedMemory, selection: &Selection) -> (ObjectStoreCost, usize) {
    let (cost, found) = cold_within(memory, selection, BudgetLimits::default(), options()).await;
    (cost, found.expect("the selection can be loaded"))
}

async fn cold_within(
    memory: &SharedMemory,
    selection: &Selection,
    limits: BudgetLimits,
    options: StoreOptions,
) -> (ObjectStoreCost, Result<usize, SourceError>) {
    // No compaction meanwhile.
    let options = StoreOptions { compaction_interval: None, ..options };
    let cache_bytes_max = options.cache_bytes_max as u64;
    let store = Store::open_in(memory, options).await.expect("the store can be opened");
    let before = store.stats().object_store_reads;
    let budget = Budget::new(limits);
    let found = store.select(selection, &budget).await.map(|set| set.len());
    let query = Reader::ALL.iter().position(|reader| *reader == Reader::Query).expect("listed");
    // Every read is the query's. The last read ahead may end after the selection.
    until(|| {
        let (after, cost) = (store.stats().object_store_reads[query], budget.object_store_cost());
        (after.reads - before[query].reads, after.bytes - before[query].bytes)
            == (cost.reads, cost.read_bytes)
    })
    .await;
    let (cost, after) = (budget.object_store_cost(), store.stats().object_store_reads);
    let store_reads = |counts: &[storage::ReadCount]| {
        let of = Reader::ALL.iter().zip(counts).filter(|(reader, _)| **reader == Reader::Store);
        of.map(|(_, count)| count.reads).sum::<u64>()
    };
    assert_eq!(store_reads(&before), store_reads(&after), "each read belongs to a query");
    if found.is_ok() && cost.read_bytes * 4 < cache_bytes_max {
        let again = Budget::unlimited();
        store.select(selection, &again).await.expect("it can be loaded again");
        assert_eq!(again.object_store_cost().reads, 0, "what was read is kept");
    }
    store.close().await.expect("the store can be closed");
    (cost, found)
}

fn equal(name: &str, value: &str) -> Matcher {
    Matcher::equal(name, value)
}

fn selection(matchers: Vec<Matcher>, start_ms: i64, end_ms: i64) -> Selection {
    Selection {
        matchers,
        times: TimeRange::new(start_ms, end_ms),
        only_newest: false,
        windows: None,
    }
}

#[test]
fn one_metric_among_many_takes_few_reads() {
    run(async {
        let memory = SharedMemory::default();
        let store = Store::open_in(&memory, options()).await.expect("a store can be opened");
        fill(&store, 2, 1000).await;
        settle(&memory, store).await;
        let wanted = || vec![equal("__name__", "wanted_total")];
        let hour = selection(wanted(), 9 * HOUR_MS + 1, 10 * HOUR_MS - 1);
        let (of_hour, found) = cold(&memory, &hour).await;
        assert_eq!(found, 1000);
        let (of_day, found) = cold(&memory, &selection(wanted(), 0, DAY_MS - 1)).await;
        assert_eq!(found, 1000);
        let (of_days, _) = cold(&memory, &selection(wanted(), 0, 2 * DAY_MS - 1)).await;
        let one = || vec![equal("__name__", "wanted_total"), equal("pod", "pod-000500")];
        let (of_one, found) = cold(&memory, &selection(one(), 0, DAY_MS - 1)).await;
        assert_eq!(found, 1);
        println!("hour {of_hour:?}, day {of_day:?}, two days {of_days:?}, one {of_one:?}");
        // The end of the file, and the blocks.
        assert!(of_hour.reads <= 2, "{of_hour:?}");
        assert!(of_day.reads <= 2, "{of_day:?}");
        // The dictionary, too.
        assert!(of_days.reads <= 1 + 2 * 2, "{of_days:?}");
        // A block for each two hours, with those in between.
        assert!(of_one.reads <= of_day.reads, "{of_one:?}");
        assert!(of_one.read_bytes < of_day.read_bytes, "{of_one:?}");

        // The set holds the blocks of the metric.
        let store = Store::open_in(&memory, options()).await.expect("the store can be opened");
        let day = selection(wanted(), 0, DAY_MS - 1);
        let set = store.select(&day, &Budget::unlimited()).await.expect("it can be loaded");
        let block_bytes = set.encoded_bytes() as u64;
        println!("blocks {block_bytes}");
        assert!(of_day.read_bytes * 2 <= block_bytes * 3, "{of_day:?} for {block_bytes}");

        let limits = BudgetLimits { object_store_reads_max: 1, ..BudgetLimits::default() };
        let (cost, refused) = cold_within(&memory, &day, limits, options()).await;
        let Err(SourceError::Budget(BudgetError::Exceeded { resource, limit, reached })) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!((resource, limit), (BudgetResource::ObjectStoreReads, 1));
        assert!(reached > 1 && reached <= cost.reads && cost.reads <= 2, "{reached} {cost:?}");
    });
}

#[test]
fn long_ranges_are_read_in_pieces() {
    run(async {
        let memory = SharedMemory::default();
        let store = Store::open_in(&memory, options()).await.expect("a store can be opened");
        // Blocks of some 7 MB.
        fill(&store, 1, 1300).await;
        settle(&memory, store).await;
        let wanted = selection(vec![equal("__name__", "wanted_total")], 0, DAY_MS - 1);
        let (cost, found) = cold(&memory, &wanted).await;
        println!("{cost:?}");
        assert_eq!(found, 1300);
        // The end of the file, and two pieces.
        assert_eq!(cost.reads, 3, "{cost:?}");
    });
}

#[test]
fn a_series_takes_no_more_reads_than_its_metric() {
    const METRICS: [(&str, usize); 3] = [("a_total", 100), ("b_total", 200), ("c_total", 1300)];
    run(async {
        let memory = SharedMemory::default();
        let store = Store::open_in(&memory, options()).await.expect("a store can be opened");
        for window in 0..12 {
            let times = (window * 2 * HOUR_MS, (window + 1) * 2 * HOUR_MS);
            for (metric, count) in METRICS {
                append(&store, metric, &pods(count), times, STEP_MS).await;
            }
            store.seal_all().await.expect("a window can be sealed");
        }
        settle(&memory, store).await;
        // The second one is too small for the end of a file, and for the blocks between those of a
        // series.
        for cache_bytes_max in [options().cache_bytes_max, 2 << 20] {
            let small = || StoreOptions { cache_bytes_max, ..options() };
            for (metric, count) in METRICS {
                let metric = equal("__name__", metric);
                let one = equal("pod", &format!("pod-{:06}", count * 5 / 8));
                let all = selection(vec![metric.clone()], 0, DAY_MS - 1);
                let one = selection(vec![metric, one], 0, DAY_MS - 1);
                let limits = BudgetLimits::default;
                let (of_all, found) = cold_within(&memory, &all, limits(), small()).await;
                assert_eq!(found.expect("the metric can be loaded"), count);
                let (of_one, found) = cold_within(&memory, &one, limits(), small()).await;
                assert_eq!(found.expect("the series can be loaded"), 1);
                println!("{cache_bytes_max}, {count} series: {of_all:?}, one {of_one:?}");
                // Without the end of the file, scans at the same time may share a request or not. If
                // each block was a request, there were seven more.
                let more = if cache_bytes_max > 2 << 20 { 0 } else { 2 };
                assert!(of_one.reads <= of_all.reads + more, "{of_one:?} {of_all:?}");
            }
        }
        // Another series finds most of its blocks among those between.
        let options = StoreOptions { compaction_interval: None, ..options() };
        let store = Store::open_in(&memory, options).await.expect("the store can be opened");
        let mut costs = Vec::new();
        for pod in ["pod-000800", "pod-000300"] {
            let one = vec![equal("__name__", "c_total"), equal("pod", pod)];
            let budget = Budget::unlimited();
            let one = selection(one, 0, DAY_MS - 1);
            store.select(&one, &budget).await.expect("the series can be loaded");
            costs.push(budget.object_store_cost());
        }
        println!("{costs:?}");
        // The first one of each piece is missing.
        assert!(costs[1].reads <= 2 && costs[1].read_bytes < 1 << 20, "{costs:?}");
        store.close().await.expect("the store can be closed");
    });
}

#[test]
fn panels_that_load_at_the_same_time_share_their_reads() {
    let memory = SharedMemory::default();
    let times = (9 * HOUR_MS, 15 * HOUR_MS - 1);
    let wanted = selection(vec![equal("__name__", "wanted_total")], times.0, times.1);
    let of_one = run(async {
        let store = Store::open_in(&memory, options()).await.expect("a store can be opened");
        fill(&store, 1, 300).await;
        settle(&memory, store).await;
        cold(&memory, &wanted).await.0
    });
    // The clock advances once all panels wait for a request.
    let mut paused = tokio::runtime::Builder::new_current_thread();
    paused.enable_all().start_paused(true);
    paused.build().expect("a runtime can be built").block_on(async {
        let slow = memory.delayed(Duration::from_millis(50));
        let options = StoreOptions { compaction_interval: None, ..options() };
        let store = Store::open_in(&slow, options).await.expect("the store can be opened");
        let budgets: Vec<Budget> = (0..20).map(|_| Budget::unlimited()).collect();
        let panels = budgets.iter().map(|budget| store.select(&wanted, budget));
        for set in futures::future::join_all(panels).await {
            assert_eq!(set.expect("it can be loaded").len(), 300);
        }
        let reads: u64 = budgets.iter().map(|budget| budget.object_store_cost().reads).sum();
        println!("one {of_one:?}, 20 panels {reads}");
        assert_eq!(reads, of_one.reads);
        store.close().await.expect("the store can be closed");
    });
}

#[test]
fn days_without_a_needle_are_not_read() {
    const DAYS: i64 = 90;
    run(async {
        let memory = SharedMemory::default();
        let store = Store::open_in(&memory, options()).await.expect("a store can be opened");
        for day in 0..DAYS {
            let times = (day * DAY_MS, day * DAY_MS + 4 * STEP_MS);
            let mut pods: Vec<String> = (0..20)
                .map(|number| format!("pod-{}", scramble((day * 20 + number) as u64)))
                .collect();
            if day == 17 || day == 71 {
                pods.push("needle".to_owned());
            }
            append(&store, "requests_total", &pods, times, STEP_MS).await;
            store.seal_all().await.expect("a day can be sealed");
        }
        settle(&memory, store).await;
        let times = (0, DAYS * DAY_MS - 1);
        let absent = selection(vec![equal("pod", "nowhere")], times.0, times.1);
        let (discarding, found) = cold(&memory, &absent).await;
        assert_eq!(found, 0);
        let needle = selection(vec![equal("pod", "needle")], times.0, times.1);
        let (cost, found) = cold(&memory, &needle).await;
        println!("discarding {discarding:?}, needle {cost:?}");
        assert_eq!(found, 1);
        // All reads of a small file are one.
        assert!(discarding.reads <= 1, "{discarding:?}");
        assert!(cost.reads <= 1 + 2, "{cost:?}");

        // All of the label's values lie in one range of the dictionary, and most days hold none
        // that matches.
        let regex = Matcher::new(MatchOp::Regex, "pod", ".*eedl.*").expect("it is well-formed");
        let (cost, found) = cold(&memory, &selection(vec![regex], times.0, times.1)).await;
        println!("regex {cost:?}");
        assert_eq!(found, 1);
        assert!(cost.reads <= 1 + 2, "{cost:?}");
    });
}

#[test]
fn a_regex_over_many_values_scans_the_dictionary_once() {
    const DAYS: i64 = 4;
    const VALUES_A_DAY: usize = 25_000;
    run(async {
        let memory = SharedMemory::default();
        let store = Store::open_in(&memory, options()).await.expect("a store can be opened");
        for day in 0..DAYS {
            let pods: Vec<String> = (0..VALUES_A_DAY)
                .map(|number| format!("pod-{day}-{:016x}", scramble(number as u64)))
                .collect();
            let times = (day * DAY_MS, day * DAY_MS + STEP_MS);
            append(&store, "requests_total", &pods, times, STEP_MS).await;
            store.seal_all().await.expect("a day can be sealed");
        }
        settle(&memory, store).await;
        let wanted = format!(".*-2-{:016x}|.*nowhere", scramble(7));
        let matchers = vec![
            equal("__name__", "requests_total"),
            Matcher::new(MatchOp::Regex, "pod", wanted).expect("it is well-formed"),
        ];
        let (cost, found) = cold(&memory, &selection(matchers, 0, DAYS * DAY_MS - 1)).await;
        println!("regex over many {cost:?}");
        assert_eq!(found, 1);
        // Its dictionary is 100,000 keys of some 50 bytes. One day is looked at further.
        assert!(cost.reads <= 8, "{cost:?}");
        assert!(cost.read_bytes <= 6 << 20, "{cost:?}");
    });
}
