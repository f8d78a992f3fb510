//! The page for browsers: its modules by themselves, and the whole in a real Chromium on the real
//! binary.
//!
//! Node runs both. `CHROMIUM_BINARY` names the browser, `PLAYWRIGHT_CORE` the folder of the package
//! that controls it, `AXE_CORE` that of the accessibility checks; `.ci/run` installs them. Screenshots and figures are left in `target/ui`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, get, temporary_directory};

/// Number of series with which a graph must stay fluid.
const SERIES_COUNT: usize = 100;
const SAMPLES_PER_SERIES: i64 = 500;
const STEP_MS: i64 = 15_000;

/// Files of tests in the browser.
const BROWSER_TESTS: [&str; 8] = [
    "browser.mjs",
    "writing.mjs",
    "charts.mjs",
    "tree.mjs",
    "results.mjs",
    "status.mjs",
    "accessibility.mjs",
    "tasks.mjs",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/page")
}

/// Returns Node; `None`, with a message, if it is not installed.
fn node() -> Option<Command> {
    let version = Command::new("node").arg("--version").stdout(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        return Some(Command::new("node"));
    }
    eprintln!("SKIPPED: there is no node to run the page's tests with");
    None
}

#[test]
fn modules_pass_their_tests() {
    let Some(mut node) = node() else { return };
    let mut files: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".test.mjs"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let status = node.arg("--test").args(files).env("TZ", "Europe/Berlin").status().unwrap();
    assert!(status.success());
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(mut node) = node() else { return };
    for variable in ["CHROMIUM_BINARY", "PLAYWRIGHT_CORE"] {
        if std::env::var_os(variable).is_none() {
            eprintln!("SKIPPED: {variable} is not set, so there is no browser to test the page in");
            return;
        }
    }
    if std::env::var_os("AXE_CORE").is_none() {
        eprintln!("SKIPPED: AXE_CORE is not set, so accessibility is not checked");
    }
    let directory = temporary_directory("ui");
    // OTLP in JSON is how the tests write histograms and exemplars.
    let flags = ["--web.enable-otlp-receiver", "--web.enable-admin-api"];
    let server = Server::start(&directory.path().join("data"), &flags);
    let end_ms = write_load(&server.address);
    wait_for_own_metrics(&server.address);
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("ui");
    std::fs::create_dir_all(&output).unwrap();
    let status = node
        .args(["--test", "--test-concurrency=1"])
        .args(BROWSER_TESTS.map(|name| folder().join(name)))
        .env("SERVER", format!("http://{}", server.address))
        .env("LOAD_END_MS", end_ms.to_string())
        .env("OUTPUT", &output)
        .status()
        .unwrap();
    assert!(status.success());
}

/// The server writes them at once, but after its response.
fn wait_for_own_metrics(address: &str) {
    for _ in 0..600 {
        let (_, answer) = get(address, "/api/v1/query?query=process_resident_memory_bytes");
        if answer.contains("\"value\"") {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the server has not written its own metrics after 30 s");
}

/// Writes waves under the name `demo_load`, up to a full minute before now; the time of the last
/// sample comes back.
fn write_load(address: &str) -> i64 {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let end_ms = now_ms / 60_000 * 60_000;
    let mut connection = Connection::open(address).unwrap();
    let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
    for index in 0..SERIES_COUNT {
        let instance = format!("node-{index:03}");
        let zone = ["east", "north", "west"][index % 3];
        let labels = [("__name__", "demo_load"), ("instance", &instance), ("zone", zone)];
        let samples = (0..SAMPLES_PER_SERIES).map(|step| {
            let time_ms = end_ms - (SAMPLES_PER_SERIES - 1 - step) * STEP_MS;
            let phase = (step as f64 + 5.0 * index as f64) / 40.0;
            (time_ms, 50.0 + index as f64 / 4.0 + 20.0 * phase.sin())
        });
        encoder.push(&encode_labels(labels), samples);
    }
    encoder.compress(&mut body);
    let (status, text) = connection.write(&body).unwrap();
    assert_eq!(status, 204, "{text}");
    end_ms
}
