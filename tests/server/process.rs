//! The real binary: its exit codes, its log, its signals.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tessella::build_info::LONG_VERSION;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Child, Server, get, request, temporary_directory};

const HOUR_MS: i64 = 3_600_000;

fn tessella(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessella"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, standard output and standard error of a run that ends by itself.
fn outcome(args: &[&str]) -> (Option<i32>, String, String) {
    let output = tessella(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A running server whose log is read line by line.
struct Process {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    address: String,
    start_line: String,
}

impl Process {
    fn start(store: &Path, args: &[&str]) -> Process {
        let (child, mut log) = spawn(store, args);
        let start_line = line_with(&mut log, "address=");
        let address = start_line.split("address=").nth(1).unwrap();
        let address = address.split_whitespace().next().unwrap().to_owned();
        let mut process = Process { child, log, address, start_line };
        process.line_with("server is ready");
        process
    }

    fn line_with(&mut self, text: &str) -> String {
        line_with(&mut self.log, text)
    }

    fn signal(&self, name: &str) {
        let id = self.child.0.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits for the end, and returns the rest of the log.
    fn end(&mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.0.wait().unwrap(), rest)
    }

    fn get(&self, path: &str) -> (u16, String) {
        get(&self.address, path)
    }

    fn post(&self, path: &str) -> (u16, String) {
        let address = &self.address;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        request(address, &head, &[])
    }

    /// Queries until the response contains a text, as another task causes it.
    fn get_until(&self, path: &str, text: &str) -> String {
        for _ in 0..600 {
            let (_, body) = self.get(path);
            if body.contains(text) {
                return body;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{path} does not answer with {text}");
    }
}

/// Starts a server on a store, and returns its log.
fn spawn(store: &Path, args: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let url = format!("--storage.url={}", store.display());
    let mut child = tessella(&["--web.listen-address=127.0.0.1:0", &url])
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    (Child(child), log)
}

fn line_with(log: &mut impl BufRead, text: &str) -> String {
    let mut all = String::new();
    loop {
        let start = all.len();
        assert!(log.read_line(&mut all).unwrap() > 0, "the log ends without {text}:\n{all}");
        if all[start..].contains(text) {
            return all[start..].to_owned();
        }
    }
}

#[test]
fn wrong_flags_and_values_end_with_status_2() {
    let directory = temporary_directory("wrong-flags");
    let config = directory.path().join("tessella.yml");
    std::fs::write(&config, "global:\n  evaluation_interval: 1m\n  surprise: 1\n").unwrap();
    let config = format!("--config.file={}", config.display());
    let cases: &[(&[&str], &str)] = &[
        (&["--nope"], "unexpected argument '--nope'"),
        (&["--query.timeout=5"], "not a valid duration string: \"5\""),
        (&["--log.level=loud"], "possible values: debug, info, warn, error"),
        (&[&config], "tessella.yml:3:3: unknown field `surprise`"),
        (&["--rules.max-concurrent-evals=4"], "rules are not supported yet"),
        (&["--config.file=/nowhere/tessella.yml"], "cannot read the configuration file"),
        (&["--storage.url=ftp://host/x", "--web.listen-address=127.0.0.1:0"], "ftp://host/x"),
    ];
    for (args, message) in cases {
        let (code, _, log) = outcome(args);
        assert_eq!(code, Some(2), "{args:?}: {log}");
        assert!(log.contains(message), "{args:?}: {log}");
    }
}

#[test]
fn version_and_help_are_printed() {
    let version = format!("tessella {}\n", *LONG_VERSION);
    assert_eq!(outcome(&["--version"]), (Some(0), version, String::new()));
    let (code, help, _) = outcome(&["--help"]);
    assert_eq!(code, Some(0));
    for text in ["--web.listen-address <ADDRESS>", "[default: 127.0.0.1:9090]", "as a duration"] {
        assert!(help.contains(text), "{text} is not in\n{help}");
    }
}

#[test]
fn the_start_line_names_address_store_and_version() {
    let directory = temporary_directory("start-line");
    let store = directory.path().join("data");
    for (args, parts) in [
        (
            &["--self-metrics=false"][..],
            [format!("store={}", store.display()), "version=".to_owned(), "level=INFO".to_owned()],
        ),
        (
            &["--self-metrics=false", "--log.level=debug"][..],
            ["address=127.0.0.1:".to_owned(), "msg=".to_owned(), "time=".to_owned()],
        ),
    ] {
        let mut process = Process::start(&store, args);
        for part in parts {
            assert!(process.start_line.contains(&part), "{part}: {}", process.start_line);
        }
        assert_eq!(process.get("/-/ready"), (200, "Tessella is Ready.\n".to_owned()));
        process.signal("-TERM");
        assert!(process.end().0.success());
    }
}

#[test]
fn flags_of_prometheus_start_a_server() {
    let directory = temporary_directory("flags-of-prometheus");
    let path = format!("--storage.tsdb.path={}", directory.path().join("data").display());
    let args = [
        &*path,
        "--web.listen-address=127.0.0.1:0",
        "--storage.tsdb.retention.time=15d",
        "--web.enable-remote-write-receiver",
        "--web.console.templates=/etc/prometheus/consoles",
        "--web.route-prefix=/metrics",
        "--enable-feature=exemplar-storage,native-histograms",
        "--no-self-metrics",
    ];
    let server = Server::spawn(&mut tessella(&args));
    server.wait_until_ready_under("/metrics");
    let info = get(&server.address, "/metrics/api/v1/status/runtimeinfo").1;
    assert!(info.contains(r#""storageRetention":"15d""#), "{info}");
    assert!(directory.path().join("data").read_dir().unwrap().count() > 0);
}

#[test]
fn flags_without_effect_are_logged() {
    let directory = temporary_directory("flags-without-effect");
    let url = format!("--storage.url={}", directory.path().join("data").display());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("--web.listen-address={}", taken.local_addr().unwrap());
    let (_, _, log) =
        outcome(&[&url, &listen, "--storage.tsdb.no-lockfile", "--enable-feature=old-ui,nonsense"]);
    for part in [
        "level=INFO",
        "msg=\"flag of Prometheus has no effect\" flag=--storage.tsdb.no-lockfile reason=",
        "flag=\"--enable-feature=old-ui\" reason=",
        "msg=\"unknown feature\" flag=\"--enable-feature=nonsense\"",
    ] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
}

#[test]
fn a_taken_port_is_named_with_its_flag() {
    let directory = temporary_directory("taken-port");
    let url = format!("--storage.url={}", directory.path().join("data").display());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, log) = outcome(&[&url, &format!("--web.listen-address={address}")]);
    assert_eq!(code, Some(1), "{log}");
    for part in [&*address, "address is in use by another process", "--web.listen-address"] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
}

#[test]
fn the_log_in_json_has_the_keys_of_prometheus() {
    let (code, _, log) = outcome(&["--log.format=json", "--config.file=/nowhere/tessella.yml"]);
    assert_eq!(code, Some(2), "{log}");
    let line = log.lines().find(|line| line.contains("ERROR")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["level"], "ERROR");
    for key in ["time", "source", "msg", "error"] {
        assert!(line[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {line}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_limit_of_open_files_is_raised_to_the_hard_limit() {
    let directory = temporary_directory("open-files");
    let hard = Command::new("sh").args(["-c", "ulimit -Hn"]).output().unwrap().stdout;
    let hard = String::from_utf8(hard).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -Sn 64 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tessella")])
        .args(["--web.listen-address=127.0.0.1:0", "--no-self-metrics"])
        .arg(format!("--storage.url={}", directory.path().join("data").display()));
    let server = Server::spawn(&mut command);
    let limits = format!("/proc/{}/limits", server.child.0.id());
    let limits = std::fs::read_to_string(limits).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some(hard.trim()), "{line}");
}

#[test]
fn sigterm_flushes_and_the_next_start_has_it_all() {
    let directory = temporary_directory("sigterm");
    let store = directory.path().join("data");
    let query =
        "/api/v1/query?query=count(last_over_time(%7Bjob%3D%22tessella-self%22%7D%5B1h%5D))";
    let mut process = Process::start(&store, &[]);
    process.get_until("/api/v1/query?query=tessella_build_info", "\"version\"");
    process.signal("-TERM");
    let (status, log) = process.end();
    assert!(status.success(), "{log}");
    assert!(log.contains("server has stopped"), "{log}");
    let mut process = Process::start(&store, &["--self-metrics=false"]);
    let (status, body) = process.get(query);
    assert_eq!(status, 200, "{body}");
    assert!(!body.contains("\"result\":[]"), "{body}");
    process.signal("-INT");
    assert!(process.end().0.success());
}

#[test]
fn the_service_manager_is_told_when_the_server_is_ready_and_when_it_stops() {
    let directory = temporary_directory("service-manager");
    let path = directory.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let store = directory.path().join("data");
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let args = ["--self-metrics=false"];
    let mut server =
        Server::spawn(&mut testkit::command(store.to_str().unwrap(), &args, &variables));
    let received = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    assert_eq!(received(), "READY=1\n");
    assert_eq!(get(&server.address, "/-/ready").0, 200);
    let id = server.child.0.id().to_string();
    assert!(Command::new("kill").arg(&id).status().unwrap().success());
    assert_eq!(received(), "STOPPING=1\n");
    assert!(server.wait().0.success());
}

#[test]
fn a_second_sigterm_ends_the_process_at_once() {
    let directory = temporary_directory("second-sigterm");
    let args = ["--self-metrics=false", "--web.shutdown-timeout=1h", "--web.read-timeout=1h"];
    let mut process = Process::start(&directory.path().join("data"), &args);
    // A request that never ends keeps the server from stopping.
    let mut unfinished = TcpStream::connect(&process.address).unwrap();
    let head = "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\
                Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\n";
    unfinished.write_all(head.as_bytes()).unwrap();
    let mut go_on = String::new();
    BufReader::new(&unfinished).read_line(&mut go_on).unwrap();
    assert!(go_on.contains("100 Continue"), "{go_on}");
    process.signal("-TERM");
    process.line_with("server is stopping");
    process.signal("-TERM");
    let (status, log) = process.end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("exits at once after a second signal"), "{log}");
}

#[test]
fn queries_may_be_typed_as_they_are() {
    let directory = temporary_directory("typed");
    let process = Process::start(&directory.path().join("data"), &["--self-metrics=false"]);
    for query in ["count(up{a=\"b\"})>1", "\"<>^|\"", "label_replace(up,'a','$1','b','\\\\d')"] {
        let (status, body) = process.get(&format!("/api/v1/query?time=5&query={query}"));
        assert_eq!(status, 200, "{query}: {body}");
    }
}

#[test]
fn the_configuration_is_reloaded_and_a_faulty_one_refused() {
    let directory = temporary_directory("reload");
    let config = directory.path().join("tessella.yml");
    let write = |interval: &str| {
        std::fs::write(&config, format!("global:\n  evaluation_interval: {interval}\n")).unwrap();
    };
    write("30s");
    let flag = format!("--config.file={}", config.display());
    let args = ["--self-metrics=false", "--web.enable-lifecycle", &flag];
    let mut process = Process::start(&directory.path().join("data"), &args);
    let path = "/api/v1/status/config";
    assert!(process.get(path).1.contains("evaluation_interval: 30s"));
    write("2m");
    assert_eq!(process.post("/-/reload"), (200, String::new()));
    assert!(process.get(path).1.contains("evaluation_interval: 2m"));
    write("soon");
    let (status, message) = process.post("/-/reload");
    assert_eq!(status, 500);
    assert!(message.contains("tessella.yml:2:"), "{message}");
    assert!(process.get(path).1.contains("evaluation_interval: 2m"));
    write("3m");
    process.signal("-HUP");
    process.get_until(path, "evaluation_interval: 3m");
    assert_eq!(process.post("/-/quit"), (200, "Requesting termination... Goodbye!".to_owned()));
    assert!(process.end().0.success());
}

#[test]
fn rules_of_the_retention_are_reloaded() {
    let directory = temporary_directory("rules");
    let config = directory.path().join("tessella.yml");
    std::fs::write(&config, "storage:\n  retention:\n    time: 30d\n").unwrap();
    let flag = format!("--config.file={}", config.display());
    let at_once = "--storage.retention.confirmation=0s";
    let args = ["--web.enable-lifecycle", "--self-metrics=false", at_once, &flag];
    let mut process = Process::start(&directory.path().join("data"), &args);
    assert!(process.get("/api/v1/status/runtimeinfo").1.contains(r#""storageRetention":"30d""#));
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut encoder = RequestEncoder::default();
    for name in ["debug_x", "x"] {
        encoder.push(&encode_labels([("__name__", name)]), [(now_ms - 9 * HOUR_MS, 1.0)]);
    }
    encoder.push(&encode_labels([("__name__", "now")]), [(now_ms, 1.0)]);
    let mut body = Vec::new();
    encoder.compress(&mut body);
    let mut connection = Connection::open(&process.address).unwrap();
    assert_eq!(connection.write(&body).unwrap().0, 204);
    let names = "/api/v1/query?query=count+by+(__name__)(last_over_time({__name__=~\".%2B\"}[1d]))";
    let both = process.get(names).1;
    assert!(both.contains(r#""debug_x""#) && both.contains(r#""x""#), "{both}");
    let rules = |time: &str| {
        let rule = format!("    - match: '{{__name__=~\"debug_.*\"}}'\n      time: {time}\n");
        std::fs::write(&config, format!("storage:\n  retention:\n    rules:\n{rule}")).unwrap();
    };
    rules("6h");
    process.signal("-HUP");
    process.get_until(names, r#"[{"metric":{"__name__":"now"},"value":["#);
    assert!(process.get("/api/v1/status/config").1.contains("time: 6h"));
    // The error names the one that is refused.
    let (status, message) = connection.write(&body).unwrap();
    assert!(status == 400 && message.contains("debug_x"), "{status} {message}");
    let rule = "(rule {__name__=~\"debug_.*\"} with time 6h of storage.retention in";
    assert!(message.contains(rule), "{message}");
    rules("0s");
    let (status, message) = process.post("/-/reload");
    assert!(status == 500 && message.contains("tessella.yml:5:"), "{status} {message}");
    process.signal("-TERM");
    assert!(process.end().0.success());
    rules("3d");
    let (code, _, log) = outcome(&[&flag, "--storage.retention.time=2d"]);
    assert!(code == Some(2) && log.contains("longer than the 2d"), "{code:?} {log}");
}

#[test]
fn the_retention_that_applies_is_logged() {
    let directory = temporary_directory("retention-logged");
    let limits = ["--storage.retention.time=15d", "--storage.retention.size=1GB"];
    let cases: [(&str, &[&str], &[&str]); 2] = [
        ("none", &[], &["retention is unlimited", "growth_per_day=\"unknown", "disk_full=unknown"]),
        ("limits", &limits, &["retention is limited", "retention=\"15d or 1GiB\""]),
    ];
    for (name, args, expected) in cases {
        let (_child, mut log) = spawn(&directory.path().join(name), args);
        let line = line_with(&mut log, "retention is ");
        for part in expected {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}

#[test]
fn slow_queries_are_logged_with_their_reads() {
    let directory = temporary_directory("slow");
    let mut process = Process::start(directory.path(), &["--query.log-slower-than=1ms"]);
    // 300,000 inner steps take longer in any build.
    let query = "sum_over_time(vector(1)[300000s:1s])";
    let (status, answer) = process.get(&format!("/api/v1/query?query={query}&stats=true"));
    assert!(status == 200 && answer.contains(r#""storage":{"reads":0,"#), "{status} {answer}");
    let line = process.line_with("slow query");
    for part in [query, "object_store_reads=0", "cached_bytes=0", "samples=", "seconds="] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[test]
fn a_reader_waits_for_its_store_and_opens_none_itself() {
    let directory = temporary_directory("reader-waits");
    let store = directory.path().join("store");
    let url = format!("--storage.url={}", store.display());
    let args = ["--web.listen-address=127.0.0.1:0", "--mode=reader", "--reader.lag=200ms", &url];
    let mut reader = tessella(&args).stdout(Stdio::null()).spawn().unwrap();
    let mut log = BufReader::new(reader.stderr.take().unwrap());
    let _reader = Child(reader);
    let start_line = line_with(&mut log, "address=");
    let address = start_line.split("address=").nth(1).unwrap();
    let address = address.split_whitespace().next().unwrap().to_owned();
    let line = line_with(&mut log, "store does not exist yet");
    assert!(line.contains("folder"), "{line}");
    assert_eq!(get(&address, "/-/ready").0, 503);
    assert!(!store.exists());
    let _writer = Process::start(&store, &[]);
    line_with(&mut log, "server is ready");
    assert_eq!(get(&address, "/-/ready").0, 200);
}

/// The body of a write of one sample.
fn one_sample(name: &str, time_ms: i64) -> Vec<u8> {
    let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
    encoder.push(&encode_labels([("__name__", name)]), [(time_ms, 1.0)]);
    encoder.compress(&mut body);
    body
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

#[test]
fn a_second_writer_on_a_disk_is_an_error_and_the_first_continues() {
    let directory = temporary_directory("locked");
    let url = format!("--storage.url={}", directory.path().display());
    let first = Process::start(directory.path(), &["--self-metrics=false"]);
    let mut connection = Connection::open(&first.address).unwrap();
    assert_eq!(connection.write(&one_sample("x", now_ms())).unwrap().0, 204);
    for args in [&[][..], &["--take-over"]] {
        let all = [&["--web.listen-address=127.0.0.1:0", url.as_str()], args].concat();
        let (code, _, log) = outcome(&all);
        let owner = format!("process {} on host", first.child.0.id());
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains(&owner) && log.contains(&first.address), "{log}");
    }
    assert_eq!(connection.write(&one_sample("x", now_ms() + 1)).unwrap().0, 204);
    assert_eq!(first.get("/-/ready").0, 200);
    // Readers take no lock.
    let reader = Process::start(directory.path(), &["--mode=reader", "--reader.lag=200ms"]);
    reader.get_until("/api/v1/query?query=count(x)", "\"1\"");
    assert_eq!(outcome(&["verify", &url]).0, Some(0));
    drop(reader);
    // The lock ends with its process, even a killed one.
    drop(first);
    let mut third = Process::start(directory.path(), &["--self-metrics=false"]);
    third.signal("-TERM");
    assert!(third.end().0.success());
    let lock = directory.path().join("tessella/lock");
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(outcome(&["inspect", &url]).0, Some(0));
    assert!(!lock.exists());
}

#[test]
fn a_server_whose_store_is_gone_acknowledges_nothing_and_ends_with_status_3() {
    type Removal = fn(&Path);
    let removals: [(&str, Removal); 4] = [
        ("folder", |tree| std::fs::rename(tree, tree.with_file_name("elsewhere")).unwrap()),
        ("replaced", |tree| {
            std::fs::rename(tree, tree.with_file_name("elsewhere")).unwrap();
            std::fs::create_dir(tree).unwrap();
        }),
        ("manifest", |tree| std::fs::remove_dir_all(tree.join("manifest")).unwrap()),
        ("wal", |tree| std::fs::remove_dir_all(tree.join("wal")).unwrap()),
    ];
    for (name, remove) in removals {
        let directory = temporary_directory(&format!("gone-{name}"));
        let mut server = Process::start(directory.path(), &["--self-metrics=false"]);
        let mut connection = Connection::open(&server.address).unwrap();
        assert_eq!(connection.write(&one_sample("x", now_ms())).unwrap().0, 204);
        remove(&directory.path().join("tessella"));
        // The server may have noticed already and closed the connection.
        if let Ok((status, text)) = connection.write(&one_sample("x", now_ms() + 1)) {
            assert_eq!(status, 503, "{name}: {text}");
        }
        let (status, log) = server.end();
        assert_eq!(status.code(), Some(3), "{name}: {log}");
        let last = log.lines().last().unwrap_or("");
        assert!(last.contains("has lost its store and has stopped"), "{name}: {log}");
    }
}

#[test]
fn a_store_without_its_manifest_is_not_opened_as_an_empty_one() {
    let directory = temporary_directory("leftovers");
    let url = format!("--storage.url={}", directory.path().display());
    let server = Process::start(directory.path(), &["--self-metrics=false"]);
    let mut connection = Connection::open(&server.address).unwrap();
    assert_eq!(connection.write(&one_sample("x", now_ms())).unwrap().0, 204);
    drop(server);
    let tree = directory.path().join("tessella");
    let (manifest, aside) = (tree.join("manifest"), directory.path().join("aside"));
    std::fs::rename(&manifest, &aside).unwrap();
    for args in [&[][..], &["--mode=reader"]] {
        let all = [&["--web.listen-address=127.0.0.1:0", url.as_str()], args].concat();
        let (code, _, log) = outcome(&all);
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains(" in wal/ (0000"), "{log}");
        assert!(log.contains("--storage.discard-leftovers"), "{log}");
    }
    let (code, damages, _) = outcome(&["verify", &url]);
    assert!(code == Some(1) && damages.contains("damage in manifest/"), "{code:?} {damages}");
    // No sample is lost.
    std::fs::rename(&aside, &manifest).unwrap();
    let server = Process::start(directory.path(), &["--self-metrics=false"]);
    assert!(server.get("/api/v1/query?query=count(x)").1.contains("\"1\""));
    drop(server);
    std::fs::remove_dir_all(&manifest).unwrap();
    let args = ["--self-metrics=false", "--storage.discard-leftovers"];
    let server = Process::start(directory.path(), &args);
    assert!(server.get("/api/v1/query?query=x").1.contains("\"result\":[]"));
    let mut connection = Connection::open(&server.address).unwrap();
    assert_eq!(connection.write(&one_sample("y", now_ms())).unwrap().0, 204);
    drop(server);
    let server = Process::start(directory.path(), &["--self-metrics=false"]);
    assert!(server.get("/api/v1/query?query=count(y)").1.contains("\"1\""));
}

#[test]
fn data_of_prometheus_in_the_folder_are_named() {
    let directory = temporary_directory("prometheus-data");
    let folder = directory.path().join("data");
    std::fs::create_dir_all(folder.join("chunks_head")).unwrap();
    let server = Server::start(&folder, &[]);
    server.wait_for_log("data of Prometheus in the folder of the store are not read");
}
