//! Range queries from the result cache are byte for byte those computed without it.

use std::sync::Arc;

use axum::Router;
use model::{Batch, Labels, Source};
use storage::{Store, StoreOptions};

use crate::http::tests::{ask, error, post_form, router, shared_with};

const QUERIES: [&str; 6] = [
    "sum+by+(g)+(m_total)",
    "rate(m_total[1m])",
    "histogram_quantile(0.7,sum+by+(le)+(label_replace(m_total,%22le%22,%22$1%22,%22i%22,%22(.*)%22)))",
    "avg_over_time(m_total[50s])",
    "topk(2,m_total)+or+vector(0)",
    "m_total%20offset%20-10s",
];

struct TestServer {
    router: Router,
    store: Arc<Store>,
}

impl TestServer {
    async fn new(args: &[&str]) -> TestServer {
        let shared = shared_with(args);
        let options = StoreOptions { background: false, ..StoreOptions::default() };
        let store = Arc::new(Store::open("memory:///", options).await.unwrap());
        shared.set_ready(Arc::clone(&store) as Arc<dyn Source>);
        let server = TestServer { router: router(shared), store };
        server.write(0..60).await;
        server
    }

    /// Writes samples of five series every 10 s.
    async fn write(&self, numbers: std::ops::Range<i64>) {
        let mut batch = Batch::default();
        for series in 0..5i64 {
            let value = |n: i64| (n * (series + 1) % 17) as f64 / 3.0;
            let samples: Vec<(i64, f64)> =
                numbers.clone().map(|n| (n * 10_000 + series, value(n))).collect();
            batch.push(&labels(series), &samples);
        }
        self.store.append(batch).await.unwrap();
    }

    async fn write_one(&self, series: i64, time_ms: i64, value: f64) {
        let mut batch = Batch::default();
        batch.push(&labels(series), &[(time_ms, value)]);
        assert_eq!(self.store.append(batch).await.unwrap().accepted, 1);
    }

    /// Queries a range, and compares the answer with one computed without the cache.
    async fn query(&self, query: &str, start: i64, end: i64) -> String {
        let path = path(query, start, end);
        let [found, expected] = [path.clone(), format!("{path}&nocache=1")];
        let found = ask(&self.router, "GET", &found).await;
        let expected = ask(&self.router, "GET", &expected).await;
        assert_eq!((found.status.as_u16(), &found.text), (200, &expected.text), "{path}");
        found.text
    }

    /// Hits, partial hits, misses and invalidations.
    async fn counts(&self) -> [u64; 4] {
        let text = ask(&self.router, "GET", "/metrics").await.text;
        ["hits", "partial_hits", "misses", "invalidations"].map(|name| {
            let name = format!("tessella_result_cache_{name}_total ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            line.unwrap_or_else(|| panic!("no {name}in {text}")).parse().unwrap()
        })
    }
}

fn labels(series: i64) -> Labels {
    let (g, i) = ((series % 2).to_string(), series.to_string());
    Labels::from_pairs([("__name__", "m_total"), ("g", &g), ("i", &i)])
}

fn path(query: &str, start: i64, end: i64) -> String {
    format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=10")
}

#[tokio::test]
async fn a_panel_that_moves_on_is_answered_as_if_computed_whole() {
    let server = TestServer::new(&[]).await;
    let query = QUERIES[0];
    let first = server.query(query, 100, 500).await;
    assert_eq!(server.counts().await, [0, 0, 1, 0]);
    assert_eq!(server.query(query, 100, 500).await, first);
    assert!(server.query(query, 200, 400).await.len() < first.len());
    assert_eq!(server.counts().await, [2, 0, 1, 0]);
    // New samples, and a later window.
    server.write(60..64).await;
    server.query(query, 140, 540).await;
    assert_eq!(server.counts().await, [2, 1, 1, 0]);
    // A late sample changes cached steps.
    server.write_one(3, 300_500, 1e9).await;
    assert_ne!(server.query(query, 100, 500).await, first);
    assert_eq!(server.counts().await, [2, 2, 1, 1]);
    // So does a new series in the past.
    server.write_one(8, 200_500, 1e8).await;
    assert!(server.query(query, 100, 500).await.contains("100000"));
    assert_eq!(server.counts().await, [2, 3, 1, 2]);
    server.store.close().await.unwrap();
}

#[tokio::test]
async fn many_panels_over_many_writes_are_answered_as_if_computed_whole() {
    let server = TestServer::new(&[]).await;
    for round in 0..40i64 {
        server.write(60 + round..61 + round).await;
        if round % 5 == 3 {
            let time_ms = (round * 7919 % 500) * 1_000 + 100 + round;
            server.write_one(round % 7, time_ms, round as f64 / 7.0).await;
        }
        if round % 9 == 4 {
            server.store.seal_all().await.unwrap();
        }
        let now = 600 + 10 * round;
        for (number, query) in QUERIES.iter().enumerate() {
            let span = [200, 400, 500][(round as usize + number) % 3];
            server.query(query, now - span, now - 10 * (round % 4)).await;
        }
    }
    let [hits, partial_hits, misses, invalidations] = server.counts().await;
    assert_eq!(hits + partial_hits + misses, 240, "{hits} {partial_hits} {misses}");
    assert!(partial_hits > 80 && hits > 50, "{hits} {partial_hits} {misses}");
    assert!(invalidations > 40, "{invalidations}");
    server.store.close().await.unwrap();
}

#[tokio::test]
async fn the_cache_is_passed_by_where_that_is_asked_for() {
    let server = TestServer::new(&[]).await;
    let path = path("m_total", 100, 500);
    let text = ask(&server.router, "GET", &path).await.text;
    let before = server.counts().await;
    assert_eq!(before, [0, 0, 1, 0]);
    for parameter in ["nocache=1", "nocache=true"] {
        assert_eq!(ask(&server.router, "GET", &format!("{path}&{parameter}")).await.text, text);
        let (url, form) = path.split_once('?').unwrap();
        assert_eq!(post_form(&server.router, url, &format!("{form}&{parameter}")).await.text, text);
    }
    // Statistics describe the whole work; a single step is not cached.
    for parameter in ["stats=all", "stats=true", "explain=true", "end=100"] {
        let path = match parameter {
            "end=100" => path.replace("end=500", parameter),
            _ => format!("{path}&{parameter}"),
        };
        assert_eq!(ask(&server.router, "GET", &path).await.status.as_u16(), 200, "{parameter}");
    }
    assert_eq!(server.counts().await, before);
    for parameter in ["nocache=0", "nocache=false", "nocache="] {
        assert_eq!(ask(&server.router, "GET", &format!("{path}&{parameter}")).await.text, text);
    }
    assert_eq!(server.counts().await, [3, 0, 1, 0]);
    let refused = ask(&server.router, "GET", &format!("{path}&nocache=2")).await;
    let message = r#"invalid parameter \"nocache\": neither \"true\" nor \"false\": \"2\""#;
    assert_eq!((refused.status.as_u16(), refused.text), (400, error("bad_data", message)));
    server.store.close().await.unwrap();
}

#[tokio::test]
async fn nothing_is_kept_where_the_cache_is_switched_off() {
    let server = TestServer::new(&["--query.result-cache-size=0"]).await;
    for _ in 0..2 {
        server.query("m_total", 100, 500).await;
    }
    let text = ask(&server.router, "GET", "/metrics").await.text;
    assert!(!text.contains("tessella_result_cache"), "{text}");
    server.store.close().await.unwrap();
}
