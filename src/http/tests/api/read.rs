//! Remote read.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use model::{
    BoxFuture, Budget, Labels, MetadataQuery, Selection, SeriesSet, SmolStr, Source, SourceError,
};
use tower::ServiceExt as _;

use crate::http::router::router;
use crate::http::tests::{ask, ready, shared_with, source};
use crate::query::LookupRequest;

use testkit::remote_read::{self, Hints, Query, body, query, read_frames, read_samples};

/// Query for series by name.
fn named(name: &str) -> Query {
    query(0, 100_000, &[(0, "__name__", name)])
}

async fn post(router: &Router, body: Vec<u8>) -> (u16, HeaderMap, Vec<u8>) {
    let request = Request::post("/api/v1/read").body(Body::from(body)).unwrap();
    let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    (head.status.as_u16(), head.headers, body.to_vec())
}

/// Name, job and samples of each series of each result.
async fn samples(router: &Router, queries: &[Query]) -> Vec<Vec<(String, Vec<(i64, f64)>)>> {
    let (status, headers, body) = post(router, body(queries, &[])).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    assert_eq!(headers["content-type"], "application/x-protobuf");
    assert_eq!(headers["content-encoding"], "snappy");
    let series = |series: remote_read::Series| {
        let labels: Vec<_> = series.labels.iter().map(|l| &l.value[..]).collect();
        (labels.join(" "), series.samples.iter().map(|s| (s.time, s.value)).collect())
    };
    let results = read_samples(&body).results.into_iter();
    results.map(|result| result.series.into_iter().map(series).collect()).collect()
}

#[tokio::test]
async fn each_query_of_a_request_has_its_result() {
    let router = ready(&[]);
    let one = |name: &str, time| (name.to_owned(), vec![(time, 1.0)]);
    let ups = vec![one("up a", 1000), one("up b", 1000)];
    let late = query(0, 100_000, &[(2, "a.b", "x|y"), (1, "__name__", "")]);
    let cases = [
        (named("up"), ups.clone()),
        (named("none"), vec![]),
        (late, vec![one("late x", 50_000)]),
        (query(1001, 100_000, &[(0, "__name__", "up")]), vec![]),
        (query(5, 4, &[(0, "__name__", "up")]), vec![]),
        // An empty request.
        (query(0, 100_000, &[]), vec![]),
        (query(1000, 1000, &[(3, "job", "b|a<b"), (0, "__name__", "up")]), vec![one("up a", 1000)]),
    ];
    let (queries, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(samples(&router, &queries).await, expected);
    assert_eq!(samples(&router, &[]).await, Vec::<Vec<_>>::new());
}

#[tokio::test]
async fn hints_narrow_what_is_read() {
    let router = ready(&[]);
    let hinted = |function: &str, start, end| {
        let function = function.to_owned();
        Query { hints: Some(Hints { function, start, end }), ..named("up") }
    };
    let count = async |query: Query| {
        let results = samples(&router, &[query]).await;
        (results[0].len(), results[0].iter().map(|(_, samples)| samples.len()).sum::<usize>())
    };
    assert_eq!(count(hinted("rate", 1000, 2000)).await, (2, 2));
    assert_eq!(count(hinted("rate", 1001, 2000)).await, (0, 0));
    // Hints without times.
    assert_eq!(count(hinted("rate", 0, 0)).await, (2, 2));
    assert_eq!(count(hinted("series", 0, 2000)).await, (2, 0));
    let body = body(&[hinted("series", 0, 2000)], &[1]);
    let frames = read_frames(&post(&router, body).await.2);
    assert_eq!(frames.len(), 2);
    assert!(frames.iter().all(|frame| frame.series[0].chunks.is_empty()));
}

#[tokio::test]
async fn frames_are_streamed_where_the_client_takes_them_first() {
    let router = ready(&[]);
    let (status, headers, bytes) =
        post(&router, body(&[named("up"), named("none"), named("late")], &[1, 0])).await;
    assert_eq!(status, 200);
    assert_eq!(
        headers["content-type"],
        "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
    );
    assert!(!headers.contains_key("content-encoding"));
    let frames = read_frames(&bytes);
    let of: Vec<_> =
        frames.iter().map(|f| (f.query_index, &f.series[0].labels[1].value[..])).collect();
    assert_eq!(
        of,
        [(0, "a"), (0, "b"), (2, "late")].map(|(i, v)| (i, if i == 2 { "x" } else { v }))
    );
    for frame in &frames {
        let [chunk] = &frame.series[0].chunks[..] else { panic!("one chunk") };
        assert_eq!((chunk.encoding, &chunk.data[..2]), (1, &[0, 1][..]));
        assert_eq!(chunk.min, chunk.max);
    }
    // A client that prefers samples gets these; unknown formats are rejected.
    let (_, headers, _) = post(&router, body(&[named("up")], &[0, 1])).await;
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let (status, headers, text) = post(&router, body(&[named("up")], &[9])).await;
    assert_eq!(
        (status, &headers["content-type"]),
        (400, &"text/plain; charset=utf-8".parse().unwrap())
    );
    assert!(String::from_utf8(text).unwrap().starts_with("none of the response types [9]"));
}

#[tokio::test]
async fn answers_are_compressed_once() {
    let router = ready(&[]);
    for (accepted, encoding) in [(0, Some("snappy")), (1, None)] {
        let request = Request::post("/api/v1/read")
            .header("accept-encoding", "gzip, zstd")
            .body(Body::from(body(&vec![named("up"); 100], &[accepted])))
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let found = response.headers().get("content-encoding").map(|v| v.to_str().unwrap());
        assert_eq!(found, encoding);
    }
}

#[tokio::test]
async fn requests_that_cannot_be_answered_are_refused_in_words() {
    let router = ready(&[]);
    let regex = query(0, 1, &[(2, "a", "(")]);
    let many = vec![query(0, 1, &[(2, "a", "x.*y")]); 65];
    let cases = [
        (b"no snappy".to_vec(), "cannot decompress the request"),
        (body(&[regex], &[]), "error parsing regexp"),
        (body(&[query(0, 1, &[(4, "a", "b")])], &[]), "invalid matcher type 4"),
        (body(&many, &[]), "request has more than 64 regular expressions, which is the limit"),
        (
            body(&vec![Query::default(); 1001], &[]),
            "read request has 1001 queries, the limit is 1000",
        ),
    ];
    for (body, message) in cases {
        let (status, headers, text) = post(&router, body).await;
        let text = String::from_utf8(text).unwrap();
        assert_eq!(status, 400, "{text}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert!(text.starts_with(message) && text.ends_with('\n'), "{text}");
    }
    let refused = ask(&router, "GET", "/api/v1/read").await;
    assert_eq!(
        (refused.status.as_u16(), &refused.headers["allow"]),
        (405, &"OPTIONS, POST".parse().unwrap())
    );
}

#[tokio::test]
async fn limits_of_reads_and_of_queries_hold() {
    let cases: &[(&[&str], i32, u16, &str)] = &[
        (&["--storage.remote.read-sample-limit=1"], 0, 400, "exceeded sample limit (1)\n"),
        (&["--storage.remote.read-sample-limit=2"], 0, 200, ""),
        (&["--storage.remote.read-sample-limit=0"], 0, 200, ""),
        (&["--storage.remote.read-sample-limit=1"], 1, 200, ""),
        (
            &["--query.max-samples=1"],
            1,
            422,
            "query needs 2 samples, the limit is 1 (--query.max-samples)\n",
        ),
    ];
    for (args, accepted, status, message) in cases {
        let (found, _, text) = post(&ready(args), body(&[named("up")], &[*accepted])).await;
        assert_eq!(found, *status, "{args:?}");
        if *status != 200 {
            assert_eq!(String::from_utf8(text).unwrap(), *message);
        }
    }
    let (status, _, text) =
        post(&ready(&["--query.max-memory=200"]), body(&vec![named("up"); 9], &[0])).await;
    let text = String::from_utf8(text).unwrap();
    assert_eq!(status, 422, "{text}");
    assert!(text.ends_with("bytes of memory, the limit is 200 (--query.max-memory)\n"), "{text}");
}

/// Source that panics at each selection.
struct PanickingSource;

impl Source for PanickingSource {
    fn select<'a>(
        &'a self,
        _: &'a Selection,
        _: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        panic!("a defect")
    }

    fn series<'a>(
        &'a self,
        _: &'a MetadataQuery,
        _: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        unreachable!("no test selects series")
    }

    fn label_names<'a>(
        &'a self,
        _: &'a MetadataQuery,
        _: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        unreachable!("no test requests names")
    }

    fn label_values<'a>(
        &'a self,
        _: &'a str,
        _: &'a MetadataQuery,
        _: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        unreachable!("no test requests values")
    }
}

#[tokio::test]
async fn a_defect_behind_frames_is_not_taken_for_their_end() {
    let shared = shared_with(&[]);
    shared.set_ready(Arc::new(PanickingSource));
    let router = router(Arc::clone(&shared));
    let (status, _, body) = post(&router, body(&[named("up")], &[1])).await;
    assert_eq!(status, 500, "{}", String::from_utf8_lossy(&body));
}

#[tokio::test]
async fn reads_take_a_permit_of_queries_and_of_reads() {
    for (args, is_query) in [
        (&["--query.max-concurrency=1"][..], true),
        (&["--storage.remote.read-concurrent-limit=1"], false),
    ] {
        let shared = shared_with(args);
        shared.set_ready(source());
        let router = router(Arc::clone(&shared));
        let gate = shared.queries.gate();
        let held = if is_query {
            shared.queries.begin_lookup(LookupRequest::default()).await.unwrap()
        } else {
            shared.queries.begin_read(LookupRequest::default()).await.unwrap()
        };
        let mut waiting = Box::pin(post(&router, body(&[named("up")], &[1])));
        while gate.waiting() + shared.queries.reads_waiting() == 0 {
            assert!(futures::poll!(&mut waiting).is_pending());
            tokio::task::yield_now().await;
        }
        drop(held);
        assert_eq!(waiting.await.0, 200);
        // The task of the response ends later.
        while gate.running() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
