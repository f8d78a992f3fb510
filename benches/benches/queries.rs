//! Queries over samples that are decoded already: what the engine costs from a query's text to
//! its answer, and what the answer's JSON does. See `benches/README.md`.
//!
//! The last column but one is a digest of the JSON: two builds that answer alike print the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use benches::data::{INTERVAL_MS, Random, START_MS};
use benches::kernel;
use benches::options::{FromCargo, count};
use clap::Parser;
use engine::{Engine, EngineOptions, QueryOptions, QueryOutput};
use futures::executor::block_on;
use model::cursor::SliceCursor;
use model::{
    BoxFuture, Budget, Cursor, Labels, MetadataQuery, Selection, SeriesSet, Source, SourceError,
};

const SAMPLES: usize = 1_024;
const STEP_COUNT: i64 = 512;

const RANGE: &[&str] = &[
    "sum by (path, status) (http_requests_total)",
    "avg by (path, status) (http_requests_total)",
    "min by (path, status) (http_requests_total)",
    "max by (path, status) (http_requests_total)",
    "count by (path, status) (http_requests_total)",
    "stddev by (path, status) (http_requests_total)",
    "quantile by (path, status) (0.9, http_requests_total)",
    "topk by (path, status) (5, http_requests_total)",
    "topk(10, http_requests_total)",
    "count_values by (path) (\"v\", round(memory_ratio * 10))",
    "sum by (path, status) (rate(http_requests_total[5m]))",
    "sum by (path, status) (increase(http_requests_total[1h]))",
    "avg by (zone) (avg_over_time(memory_ratio[10m]))",
    "avg by (zone) (stddev_over_time(memory_ratio[10m]))",
    "avg by (zone) (quantile_over_time(0.9, memory_ratio[10m]))",
    "max by (zone) (max_over_time(memory_ratio[1h]))",
    "histogram_quantile(0.9, sum by (le, path) (rate(http_request_seconds_bucket[5m])))",
    "http_requests_total{path=\"/v1/resource/3\"}",
    "rate(http_requests_total{path=\"/v1/resource/3\"}[5m])",
    "memory_ratio",
    "http_requests_total{path=\"/v1/resource/3\",status=\"200\",instance=\"host-000003:9100\"}",
    "sum by (path) (rate(http_requests_total{status=~\"5..\"}[5m])) / sum by (path) (rate(http_requests_total[5m]))",
    "memory_ratio / on (instance, zone) memory_limit",
    "max_over_time(sum by (path) (rate(http_requests_total{path=~\"/v1/resource/[12]\"}[5m]))[1h:1m])",
    "max_over_time(rate(http_requests_total{path=\"/v1/resource/3\",status=\"200\"}[5m])[1h:1m])",
];

const INSTANT: &[&str] =
    &["{__name__!=\"\"}", "sum by (path, status) (http_requests_total)", "http_requests_total"];

/// Times queries over samples that are decoded already.
#[derive(Parser)]
#[command(name = "queries")]
struct Args {
    /// The queries that contain a text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Times each is timed.
    #[arg(long, value_name = "N", default_value = "9", value_parser = count())]
    runs: usize,
    /// Threads that compute.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count())]
    threads: usize,
    /// Instances of each counter and gauge series.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count())]
    instances: usize,
    #[command(flatten)]
    from_cargo: FromCargo,
}

fn main() {
    let args = Args::parse();
    let source: Arc<dyn Source> = Arc::new(Decoded::generate(args.instances));
    let engine = Engine::new(EngineOptions { threads: args.threads, ..EngineOptions::default() });
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>9}  query",
        "CPU ms", "wall ms", "JSON ms", "JSON KiB", "digest"
    );
    let is_wanted = |query: &str| args.only.as_ref().is_none_or(|text| query.contains(text));
    let step_ms = 2 * INTERVAL_MS;
    let start_ms = START_MS + INTERVAL_MS;
    for query in RANGE.iter().filter(|query| is_wanted(query)) {
        report(&args, query, || {
            let options = QueryOptions::default();
            let end_ms = start_ms + (STEP_COUNT - 1) * step_ms;
            block_on(engine.range(Arc::clone(&source), query, start_ms, end_ms, step_ms, &options))
                .expect("the query is good")
        });
    }
    for query in INSTANT.iter().filter(|query| is_wanted(&format!("{query} at one time"))) {
        report(&args, &format!("{query} at one time"), || {
            let options = QueryOptions::default();
            let time_ms = START_MS + SAMPLES as i64 * INTERVAL_MS;
            block_on(engine.instant(Arc::clone(&source), query, time_ms, &options))
                .expect("the query is good")
        });
    }
}

fn report(args: &Args, name: &str, run: impl Fn() -> QueryOutput) {
    let (mut cpu, mut wall, mut json) = (Vec::new(), Vec::new(), Vec::new());
    let mut digest = 0u64;
    let mut bytes = 0;
    for _ in 0..args.runs {
        let (cpu_start, wall_start) = (kernel::cpu_time(), Instant::now());
        let output = run();
        cpu.push((kernel::cpu_time() - cpu_start).as_secs_f64() * 1e3);
        wall.push(wall_start.elapsed().as_secs_f64() * 1e3);
        let start = kernel::cpu_time();
        let text = tessella::encode_value(output);
        json.push((kernel::cpu_time() - start).as_secs_f64() * 1e3);
        bytes = text.len();
        digest = text.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    println!(
        "{:9.3} {:9.3} {:9.3} {:9} {:9x}  {name}",
        median(&mut cpu),
        median(&mut wall),
        median(&mut json),
        bytes / 1024,
        digest & 0xffff_ffff,
    );
}

struct Series {
    labels: Labels,
    timestamps: Vec<i64>,
    values: Vec<f64>,
}

/// Decoded series, and what was selected of them before.
struct Decoded {
    series: Arc<Vec<Series>>,
    selected: Mutex<HashMap<String, Arc<Vec<u32>>>>,
}

impl Decoded {
    fn generate(instances: usize) -> Decoded {
        let mut series = Vec::new();
        let mut add = |labels: Labels, is_counter: bool| {
            let mut random = Random::new(series.len() as u64);
            let phase_ms = random.below(INTERVAL_MS as u64) as i64;
            let mut value = random.below(100_000) as f64;
            let (mut timestamps, mut values) = (Vec::new(), Vec::new());
            for index in 0..SAMPLES as i64 {
                let jitter_ms =
                    if random.below(10) == 0 { random.below(21) as i64 - 10 } else { 0 };
                timestamps.push(START_MS + index * INTERVAL_MS + phase_ms / 2 + 10 + jitter_ms);
                values.push(if is_counter { value } else { random.unit() });
                value = if random.below(500) == 0 { 0.0 } else { value + random.below(100) as f64 };
            }
            series.push(Series { labels, timestamps, values });
        };
        for index in 0..5_000 * instances {
            add(
                Labels::from_pairs([
                    ("__name__", "http_requests_total"),
                    ("instance", &format!("host-{index:06}:9100")),
                    ("job", "api"),
                    ("path", &format!("/v1/resource/{}", index % 8)),
                    ("status", ["200", "404", "500", "503"][index / 8 % 4]),
                ]),
                true,
            );
        }
        for name in ["memory_ratio", "memory_limit"] {
            for index in 0..1_200 * instances {
                add(
                    Labels::from_pairs([
                        ("__name__", name),
                        ("instance", &format!("host-{index:06}:9100")),
                        ("job", "node"),
                        ("path", &format!("/v1/resource/{}", index % 8)),
                        ("zone", &format!("zone-{}", index % 5)),
                    ]),
                    false,
                );
            }
        }
        let bounds =
            ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
        for index in 0..100 * instances {
            for bound in bounds {
                add(
                    Labels::from_pairs([
                        ("__name__", "http_request_seconds_bucket"),
                        ("instance", &format!("host-{index:06}:9100")),
                        ("job", "api"),
                        ("le", bound),
                        ("path", &format!("/v1/resource/{}", index % 8)),
                    ]),
                    true,
                );
            }
        }
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        Decoded { series: Arc::new(series), selected: Mutex::default() }
    }
}

impl Source for Decoded {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        let mut selected = self.selected.lock().expect("nothing panics under the lock");
        let places = selected.entry(format!("{:?}", selection.matchers)).or_insert_with(|| {
            let passes = |labels: &Labels| {
                selection.matchers.iter().all(|m| m.matches(labels.get(m.name())))
            };
            let places = (0..).zip(self.series.iter()).filter(|(_, series)| passes(&series.labels));
            Arc::new(places.map(|(index, _)| index).collect())
        });
        let set = Set {
            series: Arc::clone(&self.series),
            places: Arc::clone(places),
            start_ms: selection.times.start_ms,
            end_ms: selection.times.end_ms,
        };
        Box::pin(async move { Ok(Arc::new(set) as Arc<dyn SeriesSet>) })
    }

    fn series<'a>(
        &'a self,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn label_names<'a>(
        &'a self,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<String>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn label_values<'a>(
        &'a self,
        _name: &'a str,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<String>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

struct Set {
    series: Arc<Vec<Series>>,
    places: Arc<Vec<u32>>,
    start_ms: i64,
    end_ms: i64,
}

impl SeriesSet for Set {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.series[self.places[series_index] as usize].labels
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let series = &self.series[self.places[series_index] as usize];
        let first = series.timestamps.partition_point(|time| *time < self.start_ms);
        let end = series.timestamps.partition_point(|time| *time <= self.end_ms);
        Box::new(SliceCursor::new(&series.timestamps[first..end], &series.values[first..end]))
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.series[self.places[series_index] as usize].timestamps.len()
    }

    fn has_histograms(&self, _series_index: usize) -> bool {
        false
    }

    fn encoded_bytes(&self) -> usize {
        0
    }
}
