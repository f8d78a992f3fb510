//! Queries of third-party clients, by their own code, to the binary and to a Prometheus with the
//! same samples.

use std::process::{Command, Output};

use super::pair::{Pair, STEP_SECONDS};
use testkit::remote_write::{RequestEncoder, encode_labels};

const SCRAPES: i64 = 40;
const JOBS: [&str; 2] = ["api", "db"];

/// A gauge, counters with an exemplar a minute, and a classic histogram.
fn samples(end: i64) -> Vec<u8> {
    let start = start_of(end);
    let mut encoder = RequestEncoder::default();
    let time = |at: i64| (start + at * STEP_SECONDS) * 1000;
    let mut push = |labels: &[(&str, &str)], value: &dyn Fn(i64) -> f64, has_exemplars: bool| {
        let samples = (0..SCRAPES).map(|at| (time(at), value(at)));
        let exemplars = (0..SCRAPES).step_by(4).filter(|_| has_exemplars).map(|at| {
            (encode_labels([("trace_id", &*format!("t{at}"))]), time(at), at as f64 / 8.0)
        });
        encoder.push_with_exemplars(&encode_labels(labels.iter().copied()), samples, exemplars);
    };
    // Sorted by labels, as Prometheus responds in the order of arrival.
    for job in JOBS {
        for (place, bound) in ["+Inf", "0.1", "0.5", "1"].into_iter().enumerate() {
            let labels = [("__name__", "latency_seconds_bucket"), ("job", job), ("le", bound)];
            push(&labels, &|at| (at * [4, 1, 2, 3][place]) as f64, false);
        }
    }
    let kinds = [("200", "/a"), ("200", "/b"), ("404", "/a"), ("500", "/b")];
    for (place, (code, handler)) in kinds.into_iter().enumerate() {
        for job in JOBS {
            let labels = [
                ("__name__", "requests_total"),
                ("code", code),
                ("handler", handler),
                ("job", job),
            ];
            // A counter is reset twice.
            push(&labels, &|at| (at % 17 * (place as i64 + 2)) as f64, true);
        }
    }
    for job in JOBS {
        let is_up = |at| f64::from(u8::from(at % 7 != job.len() as i64));
        push(&[("__name__", "up"), ("instance", "a:1"), ("job", job)], &is_up, false);
    }
    let mut body = Vec::new();
    encoder.compress(&mut body);
    body
}

fn start_of(end: i64) -> i64 {
    end - (SCRAPES - 1) * STEP_SECONDS
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn promtool_reads_the_same() {
    let Some((pair, promtool)) =
        Pair::start("promtool", "PROMTOOL_BINARY", |end| vec![samples(end)])
    else {
        return;
    };
    let run = |address: &str, args: &[&str]| {
        let url = format!("http://{address}");
        let args = args.iter().map(|argument| argument.replace("{url}", &url));
        Command::new(&promtool).args(args).output().unwrap()
    };
    let start = format!("--start={}", start_of(pair.end));
    let (end, time) = (format!("--end={}", pair.end), format!("--time={}", pair.end));
    for check in ["healthy", "ready"] {
        let output = run(&pair.server.address, &["check", check, "--url={url}"]);
        assert!(output.status.success(), "{check}: {output:?}");
    }
    let cases: [&[&str]; 8] = [
        &["query", "instant", &time, "{url}", "up"],
        &["query", "instant", "--format=json", &time, "{url}", "rate(requests_total[1m])"],
        &["query", "instant", &time, "{url}", "rate(up"],
        &["query", "range", &start, &end, "--step=15s", "{url}", "sum by (job) (requests_total)"],
        &["query", "series", "--match=up", &start, &end, "{url}"],
        &["query", "labels", &start, &end, "{url}", "code"],
        &["query", "labels", "--match=up", &start, &end, "{url}", "job"],
        &[
            "query",
            "analyze",
            "--server={url}",
            "--type=histogram",
            "--match=latency_seconds_bucket",
        ],
    ];
    for case in cases {
        let [answer, expected] = [&pair.server.address, &pair.peer].map(|at| run(at, case));
        // It lists histograms in the random order of a Go map.
        let lines = |output| {
            let mut lines: Vec<String> = out(output).lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(lines(&answer), lines(&expected), "{case:?}\n{answer:?}\n{expected:?}");
        assert_eq!(answer.status, expected.status, "{case:?}");
        assert_eq!(out(&answer).is_empty(), case.contains(&"rate(up"), "{case:?}: {answer:?}");
    }
}
