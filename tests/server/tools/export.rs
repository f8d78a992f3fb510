//! `tessella export`, and the way back.

use std::fmt::Write as _;

use super::{ask, tool};
use testkit::{Server, temporary_directory};

/// Text that is as an export writes it: families by name, and series by labels.
fn text(series: i64, samples: i64) -> String {
    let mut text = String::new();
    text.push_str("# TYPE latency_seconds histogram\n# UNIT latency_seconds seconds\n");
    text.push_str("# HELP latency_seconds How \\\"long\\\".\n");
    for (name, label) in [("bucket", "{le=\"+Inf\"}"), ("count", ""), ("sum", "")] {
        for sample in 0..samples {
            let exemplar = if name == "bucket" && sample == 8 {
                " # {trace_id=\"x\"} 0.25 1600011999.5"
            } else {
                ""
            };
            let at = 1_600_000_000 + 1500 * sample;
            let _ = writeln!(text, "latency_seconds_{name}{label} {sample} {at}{exemplar}");
        }
    }
    text.push_str(
        "# TYPE \"odd.name\" unknown\n{\"odd.name\",\"a b\"=\"\\\\ \\\"\\n\"} -0.125 1.5\n",
    );
    text.push_str("# TYPE requests counter\n");
    for number in 0..series {
        for sample in 0..samples {
            let at = format!("{}.{:03}", 1_600_000_000 + 1500 * sample, number % 9 + 1);
            let _ = writeln!(text, "requests_total{{n=\"{number:04}\"}} {} {at}", sample * number);
        }
    }
    text.push_str("# EOF\n");
    text
}

#[test]
fn exported_text_equals_the_import_and_can_be_imported() {
    let directory = temporary_directory("export-round");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let text = text(600, 40);
    std::fs::write(path("in.om"), &text).unwrap();
    assert_eq!(tool("import", &first, &[&path("in.om")]).status, Some(0));
    let args = ["--match={__name__=~\".+\"}", "--match=requests_total"];
    let ran = tool("export", &first, &args);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout == text,
        "{} bytes, {} expected: {}",
        ran.stdout.len(),
        text.len(),
        ran.stderr
    );
    assert!(
        ran.stderr.contains("exported 24121 samples of 604 series, 1 exemplars"),
        "{}",
        ran.stderr
    );
    // With so little memory, each pass exports a few series or a part of one.
    let output = format!("--output={}", path("out.om"));
    let ran = tool("export", &first, &[args[0], &output, "--max-memory=4KiB"]);
    assert!(ran.status == Some(0) && ran.stdout.is_empty(), "{ran:?}");
    assert!(std::fs::read_to_string(path("out.om")).unwrap() == text);
    let ran = tool("export", &first, &[args[0], "--max-memory=1B"]);
    assert!(ran.status == Some(1) && ran.stderr.contains("--max-memory"), "{ran:?}");
    assert_eq!(tool("import", &second, &[&path("out.om")]).status, Some(0));
    let again = tool("export", &second, &args);
    assert!(again.stdout == text);
    let part = tool(
        "export",
        &second,
        &["--match=latency_seconds_sum", "--start=1600001500", "--end=1600003000"],
    );
    assert_eq!(
        part.stdout,
        "# TYPE latency_seconds histogram\n# UNIT latency_seconds seconds\n\
         # HELP latency_seconds How \\\"long\\\".\nlatency_seconds_sum 1 1600001500\n\
         latency_seconds_sum 2 1600003000\n# EOF\n"
    );
    let server = Server::start(&second, &["--self-metrics=false"]);
    let found = ask(&server, "requests_total{n=\"0599\"}", 1_600_058_501, 1_600_058_501, 1);
    assert_eq!(found[0]["values"][0][1], (39 * 599).to_string());
    // While a server has the store open.
    let during = tool("export", &second, &args);
    assert!(during.status == Some(0) && during.stdout == text, "{}", during.stderr);
    let found = ask(&server, "count(requests_total)", 1_600_058_501, 1_600_058_501, 1);
    assert_eq!(found[0]["values"][0][1], "600");
}

#[test]
fn samples_that_text_cannot_express_are_rejected_or_counted() {
    let directory = temporary_directory("export-limits");
    let store = directory.path().join("store");
    let ran = tool("export", &store, &["--match=x"]);
    assert!(ran.status == Some(1) && ran.stderr.contains("no store here"), "{ran:?}");
    assert!(!store.exists());
    for (args, stderr) in [
        (&["--match={"][..], "invalid value"),
        (&["--match={a=\"\"}"][..], "at least one non-empty matcher"),
        (&["--match=x", "--start=yesterday"][..], "cannot parse"),
        (&[][..], "--match"),
    ] {
        let ran = tool("export", &store, args);
        assert!(ran.status == Some(2) && ran.stderr.contains(stderr), "{ran:?}");
    }
}
