//! `tessella import` of OpenMetrics text.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::json;

use super::{Ran, ask, command, tool};
use testkit::{Child, Server, get, percent_encode, temporary_directory};

const TEXT: &str = "\
# TYPE requests counter
# HELP requests What was asked.
requests_total{code=\"200\"} 1 1600000000 # {trace_id=\"abc\"} 0.5
requests_total{code=\"200\"} 2.5 1600000060.5
requests_total{code=\"500\"} NaN 1600000000
# TYPE \"some.gauge\" gauge
{\"some.gauge\",\"a.b\"=\"x\\\"y\"} -1e-3 1600000000
# EOF
";

#[test]
fn a_text_is_imported_with_metadata_and_exemplars() {
    let directory = temporary_directory("import-text");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.om"));
    std::fs::write(&file, TEXT).unwrap();
    let ran = tool("import", &store, &[&file.display().to_string()]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("imported 4 samples, 1 exemplars"), "{ran:?}");

    let server = Server::start(&store, &["--self-metrics=false"]);
    let found = ask(&server, "requests_total{code=\"200\"}", 1_600_000_000, 1_600_000_061, 61);
    assert_eq!(found[0]["values"], json!([[1_600_000_000, "1"], [1_600_000_061, "2.5"]]));
    let found = ask(&server, "{\"some.gauge\"}", 1_600_000_000, 1_600_000_000, 1);
    assert_eq!(found[0]["metric"], json!({"__name__": "some.gauge", "a.b": "x\"y"}));
    assert_eq!(found[0]["values"], json!([[1_600_000_000, "-0.001"]]));
    let found = ask(&server, "requests_total{code=\"500\"}", 1_600_000_000, 1_600_000_000, 1);
    assert_eq!(found[0]["values"], json!([[1_600_000_000, "NaN"]]));
    let (_, body) = get(&server.address, "/api/v1/metadata?metric=requests");
    assert!(body.contains("What was asked.") && body.contains("counter"), "{body}");
    let exemplars = "/api/v1/query_exemplars?query=requests_total&start=1599999999&end=1600000001";
    let (_, body) = get(&server.address, exemplars);
    assert!(body.contains("\"trace_id\":\"abc\""), "{body}");
}

#[test]
fn explain_counts_the_windows_that_summaries_answer() {
    let directory = temporary_directory("import-summaries");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.om"));
    // Eight hours, every 15 s.
    let start = 1_599_998_400;
    let mut text = String::from("# TYPE m gauge\n");
    for at in 1..8 * 240_i64 {
        let value = (at.pow(3) * 7_919) % 1_000_003;
        text.push_str(&format!("m {value} {}\n", start + at * 15));
    }
    std::fs::write(&file, text + "# EOF\n").unwrap();
    let ran = tool("import", &store, &[&file.display().to_string()]);
    assert_eq!(ran.status, Some(0), "{ran:?}");

    let server = Server::start(&store, &["--self-metrics=false"]);
    let (first, last) = (start + 3600, start + 8 * 3600);
    // Windows of whole hours; windows that begin and end inside of hours; a function of samples.
    let cases = [
        ("max_over_time(m[1h])", json!([8, 8])),
        ("max_over_time(m[1h] offset 10m)", json!([8, 0])),
        ("stddev_over_time(m[1h])", json!([null, null])),
    ];
    for (query, expected) in cases {
        let path = format!(
            "/api/v1/query_range?query={}&start={first}&end={last}&step=3600&explain=true",
            percent_encode(query)
        );
        let (_, body) = get(&server.address, &path);
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        let mut node = &answer["data"]["explain"];
        while node["node"] != "load" {
            node = &node["children"][0];
            assert!(!node.is_null(), "{body}");
        }
        assert_eq!(json!([node["windows"], node["windowsSummarized"]]), expected, "{query}");
    }
}

#[test]
fn an_import_is_repeated_only_if_the_file_has_changed() {
    let directory = temporary_directory("import-again");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.om"));
    let path = file.display().to_string();
    std::fs::write(&file, TEXT).unwrap();
    assert_eq!(tool("import", &store, &[&path]).status, Some(0));
    let ran = tool("import", &store, &[&path]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(
        ran.stderr.contains("imported already") && ran.stdout.contains("imported 0 "),
        "{ran:?}"
    );
    // It is imported again, completely.
    let ran = tool("import", &store, &["--again", &path]);
    assert!(ran.status == Some(0) && !ran.stderr.contains("already"), "{ran:?}");
    assert!(ran.stdout.contains("; 4 samples were stored already"), "{ran:?}");
    std::fs::write(&file, TEXT.replace("# EOF", "more 7 1600000000\n# EOF")).unwrap();
    let ran = tool("import", &store, &[&path]);
    assert!(ran.status == Some(0) && !ran.stderr.contains("already"), "{ran:?}");
    let server = Server::start(&store, &["--self-metrics=false"]);
    let found =
        ask(&server, "count_over_time(requests_total[1h])", 1_600_000_100, 1_600_000_100, 1);
    assert_eq!(found[0]["values"][0][1], "2", "{found}");
    let found = ask(&server, "more", 1_600_000_000, 1_600_000_000, 1);
    assert_eq!(found[0]["values"][0][1], "7");
}

#[test]
fn samples_that_are_imported_twice_are_counted_as_held() {
    let directory = temporary_directory("import-twice");
    let store = directory.path().join("store");
    let [first, second] = ["a.om", "b.om"].map(|name| directory.path().join(name));
    let mut text = String::new();
    for series in 0..20 {
        for at in 0..50 {
            let time = 1_600_000_000 + at * 60;
            text.push_str(&format!("m{{z=\"{series}\",empty=\"\",a=\"x\"}} {at} {time}\n"));
        }
    }
    std::fs::write(&first, format!("{text}# EOF\n")).unwrap();
    // The same samples in a file of another name, with two new ones.
    std::fs::write(
        &second,
        format!("{text}m{{z=\"0\",a=\"x\"}} 1 1600009000\nn 1 1600000000\n# EOF\n"),
    )
    .unwrap();
    let import = |args: &[&str]| {
        let ran = tool("import", &store, args);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        ran.stdout
    };
    let [first, second] = [first, second].map(|path| path.display().to_string());
    let counts = |imported: usize, held: usize| {
        (format!("imported {imported} samples,"), format!("; {held} samples were stored already"))
    };
    for (args, (imported, held)) in [
        (vec![first.as_str()], counts(1000, 0)),
        (vec![&first], counts(0, 1000)),
        (vec!["--again", &first], counts(0, 1000)),
        (vec![&second], counts(2, 1000)),
    ] {
        let out = import(&args);
        assert!(out.contains(&imported) && out.contains(&held), "{args:?}: {out}");
    }
    let server = Server::start(&store, &["--self-metrics=false"]);
    let query = "sum(count_over_time(m{a=\"x\",empty=\"\"}[1d]))";
    let found = ask(&server, query, 1_600_009_000, 1_600_009_000, 1);
    assert_eq!(found[0]["values"][0][1], "1001", "{found}");
}

#[test]
fn a_label_of_the_command_line_is_set_on_every_series() {
    let directory = temporary_directory("import-label");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.om"));
    let path = file.display().to_string();
    std::fs::write(&file, TEXT).unwrap();
    let labels = ["--label", "cluster=eu=1", "--label=a.b="];
    let ran = tool("import", &store, &[&labels[..], &[&path]].concat());
    assert!(ran.status == Some(0) && ran.stdout.contains("imported 4 samples"), "{ran:?}");
    // Other labels make other series.
    let ran = tool("import", &store, &["--label=cluster=us", &path]);
    assert!(ran.status == Some(0) && ran.stdout.contains("imported 4 samples"), "{ran:?}");
    for wrong in [&["--label=cluster"][..], &["--label=a=1", "--label=a=2"]] {
        let ran = tool("import", &store, &[wrong, &[&path]].concat());
        assert_eq!(ran.status, Some(2), "{ran:?}");
    }
    let server = Server::start(&store, &["--self-metrics=false"]);
    let found = ask(&server, "{\"some.gauge\",cluster=\"eu=1\"}", 1_600_000_000, 1_600_000_000, 1);
    assert_eq!(found[0]["metric"], json!({"__name__": "some.gauge", "cluster": "eu=1"}));
    let found =
        ask(&server, "count by (cluster, code) (requests_total)", 1_600_000_000, 1_600_000_000, 1);
    let metrics: Vec<_> =
        found.as_array().unwrap().iter().map(|series| series["metric"].clone()).collect();
    assert_eq!(metrics.len(), 4, "{metrics:?}");
    for (cluster, code) in [("eu=1", "200"), ("eu=1", "500"), ("us", "200"), ("us", "500")] {
        assert!(metrics.contains(&json!({"cluster": cluster, "code": code})), "{metrics:?}");
    }
}

#[test]
fn wrong_arguments_create_no_store() {
    let directory = temporary_directory("import-typo");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.txt"));
    let [good, bad] = ["a.om", "a.txt"].map(|name| directory.path().join(name));
    std::fs::write(&good, TEXT).unwrap();
    std::fs::write(&bad, "root:x:0:0:root:/root:/bin/bash\n").unwrap();
    let [good, bad] = [good, bad].map(|path| path.display().to_string());
    let missing = format!("{}.om", file.display());
    for args in [
        &[&good, &bad][..],
        &[&good, &missing],
        &[&good, &"--agian".to_owned()],
        &[&good, &"--label=a".to_owned()],
        &[&good, &directory.path().display().to_string()],
    ] {
        let args: Vec<&str> = args.iter().map(|argument| argument.as_str()).collect();
        let ran = tool("import", &store, &args);
        assert!(matches!(ran.status, Some(1 | 2)), "{ran:?}");
        assert!(!store.exists(), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_text_from_a_pipe_is_imported_from_its_beginning() {
    let directory = temporary_directory("import-pipe");
    let store = directory.path().join("store");
    let mut command = command("import", &store, &["/dev/stdin"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(TEXT.as_bytes()).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("imported 4 samples"), "{ran:?}");
}

#[test]
fn faults_are_named_with_file_and_line_or_offset() {
    let directory = temporary_directory("import-faults");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.om"));
    let path = file.display().to_string();
    for (text, line, detail) in [
        ("a 1 1\nb 1\n# EOF\n", 2, "no timestamp"),
        ("a 1 1\n", 2, "does not end with # EOF"),
        ("a{b=\"\\\"} 1 1\n# EOF\n", 1, "closing quote"),
    ] {
        std::fs::write(&file, text).unwrap();
        let ran = tool("import", &store, &[&path]);
        assert_eq!(ran.status, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(&format!("error: {path}:{line}: ")), "{ran:?}");
        assert!(ran.stderr.contains(detail), "{ran:?}");
    }
    let ran = tool("import", &store, &["/nonexistent"]);
    assert!(ran.status == Some(1) && ran.stderr.contains("/nonexistent: No such file"), "{ran:?}");
    let ran = tool("import", &store, &[&directory.path().display().to_string()]);
    assert!(ran.status == Some(2) && ran.stderr.contains("holds no blocks"), "{ran:?}");
    std::fs::create_dir(directory.path().join("wal")).unwrap();
    let ran = tool("import", &store, &[&directory.path().display().to_string()]);
    assert!(ran.status == Some(2) && ran.stderr.contains("a snapshot of Prometheus"), "{ran:?}");
    let block = directory.path().join("01BX5ZZKBKACTAV9WEVGEMMVRZ");
    std::fs::create_dir_all(block.join("chunks")).unwrap();
    let meta =
        "{\"ulid\":\"01BX5ZZKBKACTAV9WEVGEMMVRZ\",\"minTime\":0,\"maxTime\":1,\"version\":1}";
    std::fs::write(block.join("meta.json"), meta).unwrap();
    std::fs::write(block.join("index"), [0xba, 0xaa, 0xd7, 0x00, 2, 0, 0]).unwrap();
    let ran = tool("import", &store, &[&directory.path().display().to_string()]);
    assert!(ran.status == Some(1) && ran.stderr.contains("index: at byte 0: "), "{ran:?}");
}

#[test]
fn a_store_that_a_server_writes_to_is_left_to_it() {
    let directory = temporary_directory("import-owned");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.om"));
    std::fs::write(&file, TEXT).unwrap();
    let server = Server::start(&store, &["--self-metrics=false", "--web.enable-admin-api"]);
    let ran = tool("import", &store, &[&file.display().to_string()]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let owner = format!("process {} on host", server.child.0.id());
    let address = format!("listening on {}", server.address);
    assert!(ran.stderr.contains(&owner) && ran.stderr.contains(&address), "{ran:?}");
    let path = file.display().to_string();
    let ran = tool("import", &store, &["--take-over", &path]);
    assert!(ran.status == Some(1) && ran.stderr.contains("stop that one first"), "{ran:?}");
    // The server can still write.
    let delete = "/api/v1/admin/tsdb/delete_series?match[]=x";
    let head = format!(
        "POST {delete} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let (status, body) = testkit::request(&server.address, &head, &[]);
    assert_eq!(status, 204, "{body}");
    // After the kill, the store is unlocked.
    drop(server);
    assert_eq!(tool("import", &store, &[&path]).status, Some(0));
}

#[test]
fn a_killed_import_resumes() {
    const SERIES: i64 = 40;
    const SAMPLES: i64 = 16_000;
    let directory = temporary_directory("import-killed");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.om"));
    let mut out = std::io::BufWriter::new(std::fs::File::create(&file).unwrap());
    for series in 0..SERIES {
        for sample in 0..SAMPLES {
            let at = 1_600_000_000 + sample;
            writeln!(out, "m{{series=\"{series}\"}} {} {at}", series + sample).unwrap();
        }
    }
    out.write_all(b"# EOF\n").unwrap();
    drop(out);
    let path = file.display().to_string();
    let mut killed = 0;
    let ran = loop {
        let mut command = command("import", &store, &["--log.level=info", &path]);
        let mut child =
            Child(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let mut log = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let has_come_far = log.any(|line| line.unwrap().contains("import progress") && killed < 2);
        if !has_come_far {
            assert!(child.0.wait().unwrap().success());
            break tool("import", &store, &[&path]);
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        killed += 1;
    };
    assert_eq!(killed, 2, "the import ended before it could be killed twice");
    let total = format!("imported already, {} samples", SERIES * SAMPLES);
    assert!(ran.stderr.contains(&total), "{ran:?}");
    let server = Server::start(&store, &["--self-metrics=false"]);
    let end = 1_600_000_000 + SAMPLES;
    let found = ask(&server, "count_over_time(m[1d])", end, end, 1);
    let found = found.as_array().unwrap();
    assert_eq!(found.len() as i64, SERIES);
    for series in found {
        assert_eq!(series["values"][0][1], SAMPLES.to_string(), "{series}");
    }
    let found = ask(&server, "sum(sum_over_time(m[1d]))", end, end, 1);
    let sum = (0..SERIES).map(|s| s * SAMPLES + SAMPLES * (SAMPLES - 1) / 2).sum::<i64>();
    assert_eq!(found[0]["values"][0][1], sum.to_string());
}

#[test]
fn json_lines_of_victoria_metrics_are_imported() {
    let directory = temporary_directory("import-json-lines");
    let (store, file) = (directory.path().join("store"), directory.path().join("a.jsonl"));
    let path = file.display().to_string();
    let line = |name: &str, values: &str, timestamps: &str| {
        format!(
            "{{\"metric\":{{\"__name__\":\"{name}\",\"a\":\"b\"}},\"values\":[{values}],\"timestamps\":[{timestamps}]}}\n"
        )
    };
    // A series may have several lines.
    let good = line("m", "1,2.5", "1600000000000,1600000060500")
        + &line("other", "null", "1600000000000")
        + &line("m", "-3", "1600000120000");
    // An error names the line, and leaves no new store if it is the first one.
    std::fs::write(&file, line("m", "1", "x")).unwrap();
    let ran = tool("import", &store, &[&path]);
    assert!(ran.status == Some(1) && ran.stderr.contains("a.jsonl:1: \"x\" is not"), "{ran:?}");
    assert!(!store.exists());
    std::fs::write(&file, format!("{good}{}", line("m", "1", "x"))).unwrap();
    let ran = tool("import", &store, &[&path]);
    assert!(ran.status == Some(1) && ran.stderr.contains("a.jsonl:4: \"x\" is not"), "{ran:?}");

    std::fs::write(&file, &good).unwrap();
    let ran = tool("import", &store, &["--label=a=", &path]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("imported 4 samples"), "{ran:?}");
    let ran = tool("import", &store, &["--label=a=", &path]);
    assert!(ran.status == Some(0) && ran.stderr.contains("imported already"), "{ran:?}");
    // A file that has grown is read again; samples that are stored are not written twice.
    std::fs::write(&file, good + &line("m", "4", "1600000180000")).unwrap();
    let ran = tool("import", &store, &["--label=a=", &path]);
    assert!(ran.status == Some(0) && ran.stdout.contains("; 4 samples were stored"), "{ran:?}");

    let server = Server::start(&store, &["--self-metrics=false"]);
    let found = ask(&server, "m", 1_600_000_000, 1_600_000_180, 60);
    let values = json!([
        [1_600_000_000, "1"],
        [1_600_000_060, "1"],
        [1_600_000_120, "-3"],
        [1_600_000_180, "4"]
    ]);
    assert_eq!(found[0]["values"], values);
    assert_eq!(found[0]["metric"], json!({"__name__": "m"}));
    assert_eq!(ask(&server, "other", 1_600_000_000, 1_600_000_000, 1), json!([]));
}
