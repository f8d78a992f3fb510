//! Search of names.

use std::sync::Arc;

use model::Labels;
use model::memory::MemorySource;

use crate::http::router::router;
use crate::http::tests::{Router, ask, error, post_form, ready, shared_with};
use crate::time::Time;

/// Router over current series, and one of two hours ago.
fn with_recent(args: &[&str]) -> Router {
    let now_ms = Time::now().lookup_ms();
    let mut source = MemorySource::new();
    for (name, job) in [("up", "a"), ("up", "B<"), ("upper", "b"), ("down", "c"), ("group", "d")] {
        let labels = Labels::from_pairs([("__name__", name), ("job", job)]);
        source.append(&labels, now_ms - 1000, 1.0);
    }
    let labels = Labels::from_pairs([("__name__", "old_up"), ("zone", "x")]);
    source.append(&labels, now_ms - 7_200_000, 1.0);
    let shared = shared_with(args);
    shared.set_ready(Arc::new(source));
    router(shared)
}

#[tokio::test]
async fn names_come_in_batches_and_a_last_line_tells_of_more() {
    let router = with_recent(&[]);
    let batch = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| format!(r#"{{"name":"{name}"}}"#)).collect();
        format!("{{\"results\":[{}]}}\n", names.join(","))
    };
    let end = |has_more: bool| format!("{{\"status\":\"success\",\"has_more\":{has_more}}}\n");
    let start = "start=1970-01-01T00:00:00Z&";
    let cases = [
        ("metric_names?".to_owned(), batch(&["down", "group", "up", "upper"]) + &end(false)),
        ("metric_names?limit=2".to_owned(), batch(&["down", "group"]) + &end(true)),
        (
            "metric_names?limit=3&batch_size=2".to_owned(),
            batch(&["down", "group"]) + &batch(&["up"]) + &end(true),
        ),
        (
            "metric_names?limit=4&batch_size=4".to_owned(),
            batch(&["down", "group", "up", "upper"]) + &end(false),
        ),
        (
            "metric_names?sort_by=alpha&sort_dir=dsc&limit=2".to_owned(),
            batch(&["upper", "up"]) + &end(true),
        ),
        (
            format!("metric_names?{start}search[]=up&sort_by=score&limit=9"),
            batch(&["up", "upper", "group", "old_up"]) + &end(false),
        ),
        ("metric_names?search[]=up".to_owned(), batch(&["group", "up", "upper"]) + &end(false)),
        ("metric_names?search[]=UP".to_owned(), batch(&[]) + &end(false)),
        (
            "metric_names?search[]=UP&case_sensitive=0&limit=1".to_owned(),
            batch(&["group"]) + &end(true),
        ),
        (
            "metric_names?search[]=uper&fuzz_alg=jarowinkler&fuzz_threshold=90".to_owned(),
            batch(&["upper"]) + &end(false),
        ),
        ("metric_names?search[]=uper&fuzz_alg=jarowinkler".to_owned(), batch(&[]) + &end(false)),
        (
            "metric_names?match[]={job=~\"a|c\"}&search[]=up".to_owned(),
            batch(&["up"]) + &end(false),
        ),
        ("metric_names?start=1&end=2".to_owned(), batch(&[]) + &end(false)),
        ("label_names?".to_owned(), batch(&["__name__", "job"]) + &end(false)),
        (format!("label_names?{start}search[]=o"), batch(&["job", "zone"]) + &end(false)),
        (
            "label_values?label=job&search[]=b&case_sensitive=false&include_score=true".to_owned(),
            "{\"results\":[{\"value\":\"B\\u003c\",\"score\":1},{\"value\":\"b\",\"score\":1}]}\n"
                .to_owned()
                + &end(false),
        ),
        (
            "label_values?label=job&match[]=up&match[]=down&limit=2".to_owned(),
            "{\"results\":[{\"value\":\"B\\u003c\"},{\"value\":\"a\"}]}\n".to_owned() + &end(true),
        ),
    ];
    for (query, expected) in cases {
        let (endpoint, form) = query.split_once('?').unwrap();
        let path = format!("/api/v1/search/{endpoint}");
        let escaped =
            form.replace('{', "%7B").replace('}', "%7D").replace('"', "%22").replace('|', "%7C");
        let answer = ask(&router, "GET", &format!("{path}?{escaped}")).await;
        assert_eq!((answer.status.as_u16(), &answer.text), (200, &expected), "{query}");
        assert_eq!(answer.headers["content-type"], "application/x-ndjson; charset=utf-8");
        assert_eq!(post_form(&router, &path, &escaped).await.text, expected);
    }
}

#[tokio::test]
async fn wrong_searches_are_refused_as_prometheus_does() {
    let router = ready(&[]);
    let many = "search[]=a&".repeat(33);
    let long = format!("search[]={}", "a".repeat(4097));
    let cases = [
        ("start=x", "invalid time value for 'start': cannot parse \\\"x\\\" to a valid timestamp"),
        ("start=2&end=1", "end timestamp must not be before start timestamp"),
        ("match[]=%7B%7D", "match[] must contain at least one non-empty matcher"),
        (&many, "too many search[] terms: got 33, maximum is 32"),
        (&long, "search[] term has 4097 bytes, the limit is 4096"),
        ("fuzz_threshold=101", "invalid fuzz_threshold \\\"101\\\": must be 0-100"),
        ("fuzz_alg=x", "unsupported fuzz_alg \\\"x\\\": must be one of [subsequence jarowinkler]"),
        ("case_sensitive=x", "invalid case_sensitive \\\"x\\\": must be boolean"),
        ("include_score=2", "invalid include_score \\\"2\\\": must be boolean"),
        ("sort_dir=asc", "sort_dir is only valid when sort_by is set"),
        ("sort_by=score&sort_dir=asc", "sort_dir is not supported for sort_by=score"),
        (
            "sort_by=alpha&sort_dir=x",
            "invalid sort_dir \\\"x\\\": must be \\\"asc\\\" or \\\"dsc\\\"",
        ),
        ("sort_by=score", "sort_by=score requires search[] to be set"),
        (
            "sort_by=x",
            "invalid sort_by \\\"x\\\" for label_values: must be \\\"alpha\\\" or \\\"score\\\"",
        ),
        ("limit=0", "invalid limit \\\"0\\\": must be a positive integer"),
        (
            "limit=10001",
            "limit 10001 exceeds the configured maximum (10000, see --web.search.max-limit)",
        ),
        ("batch_size=-1", "invalid batch_size \\\"-1\\\": must be a positive integer"),
        ("search[]=a", "missing required parameter \\\"label\\\""),
        ("a=%zz", "error parsing form values: invalid URL escape \\\"%zz\\\""),
    ];
    for (query, message) in cases {
        let answer = ask(&router, "GET", &format!("/api/v1/search/label_values?{query}")).await;
        assert_eq!((answer.status.as_u16(), answer.text), (400, error("bad_data", message)));
    }
    for (args, allowed) in [("--web.search.max-limit=0", 200), ("--web.search.max-limit=5", 400)] {
        let answer = ask(&ready(&[args]), "GET", "/api/v1/search/label_names?limit=100000").await;
        assert_eq!(answer.status.as_u16(), allowed);
    }
    let few = with_recent(&["--web.search.max-limit=3"]);
    let answer = ask(&few, "GET", "/api/v1/search/metric_names").await;
    assert!(answer.text.ends_with("\"has_more\":true}\n"), "{}", answer.text);
    let refused = ask(&router, "HEAD", "/api/v1/search/metric_names").await;
    assert_eq!(refused.headers["allow"], "GET, OPTIONS, POST");
}
