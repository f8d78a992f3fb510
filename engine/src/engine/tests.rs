use futures::executor::block_on;
use model::memory::MemorySource;
use model::{BoxFuture, Histogram, Labels, MetadataQuery, Selection, SmolStr, SourceError};

use super::*;
use crate::result::{SampleValue, Value};

fn labels(text: &str) -> Labels {
    Labels::from_pairs(text.split(' ').map(|pair| pair.split_once('=').unwrap()))
}

/// Counters `http_total{job, instance}` that rise by 10, 20, 30, 40 every 10 s, for 1,000 s.
fn source() -> Arc<MemorySource> {
    let mut source = MemorySource::new();
    let series = ["job=a instance=0", "job=a instance=1", "job=b instance=0", "job=b instance=1"];
    for (index, series) in series.into_iter().enumerate() {
        let series = labels(&format!("__name__=http_total {series}"));
        for sample in 0..=100 {
            let value = (sample * 10 * (index as i64 + 1)) as f64;
            source.append(&series, sample * 10_000, value);
        }
    }
    Arc::new(source)
}

fn instant(query: &str, time_ms: i64) -> Result<QueryOutput, QueryError> {
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    block_on(engine.instant(source(), query, time_ms, &QueryOptions::default()))
}

/// Checks a vector, each entry as `labels value`, to nine digits after the point.
#[track_caller]
fn check(query: &str, time_ms: i64, expected: &[&str]) {
    let output = instant(query, time_ms).unwrap();
    let Value::Vector { samples, .. } = output.value else { panic!("{:?}", output.value) };
    let found: Vec<String> = samples
        .iter()
        .map(|(labels, value)| match value {
            SampleValue::Float(value) => format!("{labels} {}", (value * 1e9).round() / 1e9),
            SampleValue::Histogram(histogram) => format!("{labels} {histogram:?}"),
        })
        .collect();
    assert_eq!(found, expected, "{query}");
}

#[test]
fn aggregated_rates_lose_their_names() {
    check("sum by (job) (rate(http_total[5m]))", 1_000_000, &[r#"{job="a"} 3"#, r#"{job="b"} 7"#]);
    check(
        "rate(http_total{job='a', instance='1'}[1m])",
        500_000,
        &[r#"{instance="1", job="a"} 2"#],
    );
}

#[test]
fn best_come_first() {
    check(
        "topk(2, http_total)",
        100_000,
        &[
            r#"{__name__="http_total", instance="1", job="b"} 400"#,
            r#"{__name__="http_total", instance="0", job="b"} 300"#,
        ],
    );
    check(
        "bottomk by (job) (1, http_total)",
        100_000,
        &[
            r#"{__name__="http_total", instance="0", job="a"} 100"#,
            r#"{__name__="http_total", instance="0", job="b"} 300"#,
        ],
    );
}

#[test]
fn a_grid_is_sorted_and_pinned_parts_fill_it() {
    let engine = Engine::new(EngineOptions { threads: 2, ..EngineOptions::default() });
    let query = "sum by (job) (http_total @ 100) + on (job) max by (job) (http_total)";
    let output =
        block_on(engine.range(source(), query, 0, 95_000, 10_000, &QueryOptions::default()));
    let output = output.unwrap();
    let Value::Grid { steps, rows } = output.value else { panic!("{:?}", output.value) };
    assert_eq!(steps.count, 10);
    let found: Vec<(String, f64)> =
        rows.iter().map(|row| (row.labels.to_string(), row.values[9])).collect();
    assert_eq!(found, [(r#"{job="a"}"#.to_owned(), 480.0), (r#"{job="b"}"#.to_owned(), 1060.0)]);
    assert!(rows.iter().all(|row| row.iter().count() == 10));
    assert!(output.stats.sample_count > 0 && output.stats.series_count > 0);
}

#[test]
fn a_range_selector_answers_with_its_samples() {
    let output = instant("http_total{job='a', instance='0'}[20s] offset 5s", 100_000).unwrap();
    let Value::Samples(series) = output.value else { panic!("{:?}", output.value) };
    assert_eq!(series.len(), 1);
    assert_eq!(series[0].timestamps, [80_000, 90_000]);
    let output = instant("(-http_total{job='a', instance='0'})[25s:10s]", 100_000).unwrap();
    let Value::Samples(series) = output.value else { panic!("{:?}", output.value) };
    assert_eq!(series[0].labels.to_string(), r#"{instance="0", job="a"}"#);
    assert_eq!(series[0].values, [-80.0, -90.0, -100.0]);
}

#[test]
fn equal_label_sets_are_refused_once_names_are_gone() {
    let error = instant("sum by (__name__, job) (rate({job='a'}[5m])) or -http_total", 100_000);
    assert!(error.is_ok());
    let error = instant("-label_replace(http_total, 'instance', '0', '', '')", 100_000);
    assert_eq!(
        error.unwrap_err().to_string(),
        "vector cannot contain metrics with the same labelset"
    );
}

#[test]
fn limits_stop_a_query_and_name_the_figure() {
    let engine = Engine::new(EngineOptions::default());
    let limits = BudgetLimits { samples_max: 100, ..BudgetLimits::default() };
    let options = QueryOptions { limits, ..QueryOptions::default() };
    let error = block_on(engine.instant(source(), "rate(http_total[1h])", 1_000_000, &options));
    let text = error.unwrap_err().to_string();
    assert!(text.ends_with("samples, the limit is 100 (--query.max-samples)"), "{text}");
}

/// A source whose selections never come back, and that keeps the budgets it has seen.
#[derive(Default)]
struct Silent(std::sync::Mutex<Vec<Budget>>);

impl Source for Silent {
    fn select<'a>(
        &'a self,
        _selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        self.0.lock().unwrap().push(budget.clone());
        Box::pin(std::future::pending())
    }

    fn series<'a>(
        &'a self,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        Box::pin(std::future::pending())
    }

    fn label_names<'a>(
        &'a self,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(std::future::pending())
    }

    fn label_values<'a>(
        &'a self,
        _name: &'a str,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn dropping_the_future_cancels_the_query() {
    use futures::FutureExt as _;
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    let source = Arc::new(Silent::default());
    let options = QueryOptions::default();
    let mut future = Box::pin(engine.instant(source.clone(), "up", 0, &options));
    // Planning happens on another thread; loading begins once that is done.
    while source.0.lock().unwrap().is_empty() {
        assert!((&mut future).now_or_never().is_none());
        std::thread::yield_now();
    }
    let budget = source.0.lock().unwrap()[0].clone();
    assert!(budget.check().is_ok());
    drop(future);
    assert!(budget.check().is_err());
}

#[test]
fn explain_shows_the_plan() {
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    let text = block_on(engine.explain("up", Steps::instant(1_000_000), &QueryOptions::default()))
        .unwrap();
    let expected = "query over 1 step at 1000000
  select newest samples at 1000000, back 300000 ms
    load #0 {__name__=\"up\"} from 700001 to 1000000
";
    assert_eq!(text, expected);
}

/// Kinds of nodes, and how many series each of them gives.
type NodeSeries = &'static [(&'static str, Option<u64>)];

/// All nodes of an explained plan.
fn nodes(explained: &Explained) -> Vec<&Explained> {
    let below = explained.children.iter().flat_map(nodes);
    std::iter::once(explained).chain(below).collect()
}

#[test]
fn what_nodes_cost_is_measured_where_it_is_asked_for() {
    let cases: &[(&str, NodeSeries, u64)] = &[
        (
            "sum by (job) (rate(http_total[5m]))",
            &[
                ("query", None),
                ("aggregate", Some(2)),
                ("rollup", Some(4)),
                ("select", None),
                ("load", Some(4)),
            ],
            404,
        ),
        (
            "max_over_time(http_total[5m:10s]) + 1",
            &[
                ("query", None),
                ("binary", Some(4)),
                ("rollup", Some(4)),
                ("subquery", None),
                ("select", Some(4)),
                ("load", Some(4)),
                ("number", None),
            ],
            404,
        ),
        (
            "topk(1, http_total) or http_total",
            &[
                ("query", None),
                ("binary", Some(4)),
                ("aggregate", Some(2)),
                ("number", None),
                ("select", Some(4)),
                ("load", Some(4)),
                ("select", Some(4)),
                ("load", Some(4)),
            ],
            808,
        ),
    ];
    for threads in [1, 3] {
        let engine = Engine::new(EngineOptions { threads, ..EngineOptions::default() });
        let ask = |query: &str, explain: bool| {
            let options = QueryOptions { explain, ..QueryOptions::default() };
            block_on(engine.range(source(), query, 0, 1_000_000, 10_000, &options)).unwrap()
        };
        for (query, expected, decoded) in cases {
            let started = Instant::now();
            let output = ask(query, true);
            let elapsed = started.elapsed();
            let explained = output.explained.unwrap();
            let found: Vec<_> =
                nodes(&explained).iter().map(|n| (n.node, n.cost.and_then(|c| c.series))).collect();
            assert_eq!(found, *expected, "{query}");
            let loads = nodes(&explained)
                .iter()
                .filter_map(|n| n.load.as_ref()?.figures)
                .collect::<Vec<_>>();
            assert_eq!(loads.iter().map(|load| load.decoded).sum::<u64>(), *decoded, "{query}");
            assert_eq!(output.stats.sample_count, *decoded, "{query}");
            let own: Vec<_> = nodes(&explained).iter().filter_map(|n| Some(n.cost?.own)).collect();
            assert_eq!(explained.whole(), own.iter().sum(), "{query}");
            // No time is counted twice, so threads bound it.
            assert!(explained.whole() <= elapsed * (threads as u32 + 1), "{query}");
            assert!(own.iter().filter(|own| !own.is_zero()).count() >= 4, "{query}: {own:?}");

            let plain = ask(query, false);
            assert!(plain.explained.is_none());
            assert_eq!(format!("{:?}", plain.value), format!("{:?}", output.value), "{query}");
        }
    }
}

#[test]
fn selectors_that_ask_for_the_same_are_loaded_once_when_explained_too() {
    let engine = Engine::new(EngineOptions::default());
    let options = QueryOptions { explain: true, ..QueryOptions::default() };
    let output =
        block_on(engine.instant(source(), "http_total + http_total", 1000, &options)).unwrap();
    assert_eq!(output.stats.series_count, 4);
    let explained = output.explained.unwrap();
    let elapsed: Vec<_> = nodes(&explained)
        .iter()
        .filter_map(|n| Some(n.load.as_ref()?.figures?.cost.elapsed))
        .collect();
    assert_eq!(elapsed.len(), 2);
    assert!(!elapsed[0].is_zero() && elapsed[1].is_zero(), "{elapsed:?}");
}

/// Floats `f{l="1"}` and native histograms `h{l="1"}` at 0, 1 and 2 min.
fn floats_and_histograms() -> Arc<MemorySource> {
    let mut source = MemorySource::new();
    let one = model::Span { offset: 0, length: 1 };
    let histogram = Arc::new(Histogram {
        count: 1.0,
        sum: 1.0,
        positive_spans: vec![one],
        positive_counts: vec![1.0],
        ..Histogram::default()
    });
    for minute in 0..3 {
        source.append(&labels("__name__=f l=1"), minute * 60_000, minute as f64);
        let (series, histogram) = (labels("__name__=h l=1"), Arc::clone(&histogram));
        source.append_histogram(&series, minute * 60_000, histogram, 0);
    }
    Arc::new(source)
}

#[test]
fn floats_and_histograms_of_one_label_set_are_one_series_with_both() {
    let both = r#"{__name__=~"f|h"}"#;
    for delayed_name_removal in [true, false] {
        let options =
            EngineOptions { delayed_name_removal, threads: 1, ..EngineOptions::default() };
        let engine = Engine::new(options);
        let ask = |query: &str, is_instant: bool| {
            let (source, options) = (floats_and_histograms(), QueryOptions::default());
            let answer = match is_instant {
                true => block_on(engine.instant(source, query, 120_000, &options)),
                false => block_on(engine.range(source, query, 0, 120_000, 60_000, &options)),
            };
            answer.map(|output| output.value).map_err(|error| error.to_string())
        };
        let relabeled = format!(r#"label_replace({both}, "__name__", "z", "", "")"#);
        for query in [format!("-{both}"), relabeled.clone(), format!("-{relabeled}")] {
            let Ok(Value::Grid { rows, .. }) = ask(&query, false) else { panic!("{query}") };
            let [row] = &rows[..] else { panic!("{query}: {} rows", rows.len()) };
            assert_eq!((row.iter().count(), row.iter_histograms().count()), (3, 3), "{query}");
            let Ok(Value::Vector { samples, .. }) = ask(&query, true) else { panic!("{query}") };
            assert!(matches!(&samples[..], [(_, SampleValue::Histogram(_))]), "{query}");
        }
        let Ok(Value::Samples(series)) = ask(&format!("(-{both})[90s:1m]"), true) else {
            panic!("no samples")
        };
        let [series] = &series[..] else { panic!("{} series", series.len()) };
        assert_eq!((series.timestamps.len(), series.histograms.len()), (2, 2));
        // An operator above the unary minus sees one of the two, and so does one that has names
        // removed at once.
        let same = Err("vector cannot contain metrics with the same labelset".to_owned());
        for query in [format!("{both} * 2"), format!("sum_over_time({both}[5m])")] {
            for is_instant in [true, false] {
                let found = ask(&query, is_instant).map(|_| ());
                let expected = if delayed_name_removal { Ok(()) } else { same.clone() };
                assert_eq!(found, expected, "{query}");
            }
        }
    }
}
