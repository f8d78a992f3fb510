//! Hostile clients against the real binary, over HTTP: each case has the expected status,
//! takes a bounded amount of memory, blocks no other client, and changes no stored samples.
//!
//! Unit tests cover the decoders; these tests cover all between the socket and the decoders.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testkit::protobuf::{field, varint};
use testkit::random::Random;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, get, temporary_directory};

/// The most that any one request may add to the memory of the process.
pub const GROWTH_BYTES_MAX: u64 = 256 << 20;
/// Maximum latency of other requests meanwhile, on a busy machine.
const OTHERS_MAX: Duration = Duration::from_secs(20);
/// Timeout for a case, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

const V1: &str = "application/x-protobuf";
const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
const MIB: usize = 1 << 20;

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn sample(timestamp_ms: i64) -> Vec<u8> {
    let value = [&[0x09][..], &1.0_f64.to_le_bytes()].concat();
    field(2, &[&value[..], &[0x10], &varint(timestamp_ms as u64)].concat())
}

/// Name and value.
type Label<'a> = (&'a [u8], &'a [u8]);

/// A request of one series with labels as they are, of the first protocol.
fn series_of(labels: &[Label<'_>], timestamp_ms: i64) -> Vec<u8> {
    let labels = labels
        .iter()
        .flat_map(|(name, value)| field(1, &[field(1, name), field(2, value)].concat()));
    let series: Vec<u8> = labels.chain(sample(timestamp_ms)).collect();
    field(1, &series)
}

fn snappy(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

/// A remote write request with a body as it is.
fn write_request(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n\
         Content-Encoding: snappy\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn post(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn request(method: &str, target: &str, headers: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n")
        .into_bytes()
}

/// A request and its valid statuses; 0 is a connection that is closed without a response.
struct Case {
    name: String,
    bytes: Vec<u8>,
    statuses: &'static [u16],
}

fn case(name: &str, bytes: Vec<u8>, statuses: &'static [u16]) -> Case {
    Case { name: name.to_owned(), bytes, statuses }
}

/// Invalid bodies of remote write, and some that decompress to far more than their size.
fn remote_write_bodies() -> Vec<Case> {
    let now = now_ms();
    let good = series_of(&[(b"__name__", b"hostile")], now);
    let of = |name: &str, message: &[u8], statuses| {
        case(name, write_request(V1, &snappy(message)), statuses)
    };
    let literal = |declared: u64| [&varint(declared)[..], b"\x00a"].concat();
    // Copies of 64 bytes of one literal: 3 bytes decompress to 64.
    let bomb = |unpacked: usize| {
        let mut body = [&varint(unpacked as u64)[..], b"\x00\n"].concat();
        for _ in 0..unpacked / 64 {
            body.extend([0xfe, 1, 0]);
        }
        body
    };
    let empty_series: Vec<u8> = [0x0a, 0].repeat(16 * MIB);
    let mut overlong = vec![0x0a];
    overlong.extend([0xff; 11]);
    let mut many_labels = Vec::new();
    for at in 0..1_000_000_u32 {
        many_labels.extend(field(1, &[field(1, &at.to_be_bytes()), field(2, b"x")].concat()));
    }
    vec![
        case("snappy says 4 GiB", write_request(V1, &literal(u64::from(u32::MAX))), &[400, 413]),
        case("snappy says 2^60", write_request(V1, &literal(1 << 60)), &[400, 413]),
        case("snappy says 31 MiB of 1", write_request(V1, &literal(31 << 20)), &[400]),
        case("snappy of 256 MiB", write_request(V1, &bomb(256 * MIB)), &[413]),
        case("snappy of 31 MiB of rubbish", write_request(V1, &bomb(31 * MIB)), &[400]),
        case("no snappy", write_request(V1, &[0xff; 4096]), &[400]),
        case("empty body", write_request(V1, &[]), &[400]),
        case("body over the limit", write_request(V1, &vec![0; 33 * MIB]), &[413]),
        of("32 MiB of empty series", &empty_series, &[400, 413]),
        of("overlong varint", &overlong, &[400]),
        of("length beyond the end", &[0x0a, 0xff, 0xff, 0xff, 0x7f, 1], &[400]),
        of("group fields", &[0x0b, 0x0b, 0x0c], &[400]),
        of("cut short", &good[..good.len() - 3], &[400]),
        of("a million labels", &field(1, &[many_labels, sample(now)].concat()), &[400]),
        of("a million samples of two bytes", &field(1, &[0x12, 0].repeat(8 * MIB)), &[413]),
    ]
}

/// Labels that no series may have, and times that none may.
fn labels_and_times() -> Vec<Case> {
    let now = now_ms();
    let long = vec![b'x'; 4 * MIB];
    let metric: Label<'_> = (b"__name__", b"hostile");
    let labels: [(&str, Vec<Label<'_>>); 10] = [
        ("no labels", vec![]),
        ("no metric name", vec![(b"a", b"b")]),
        ("empty metric name", vec![(b"__name__", b"")]),
        ("empty label name", vec![(b"", b"b"), metric]),
        ("duplicate label", vec![metric, (b"a", b"1"), (b"a", b"2")]),
        ("duplicate metric name", vec![metric, metric]),
        ("label name is not UTF-8", vec![metric, (b"\xff\xfe", b"1")]),
        ("label value is not UTF-8", vec![metric, (b"a", b"\xc3\x28")]),
        ("label name of 4 MiB", vec![metric, (&long, b"1")]),
        ("label value of 4 MiB", vec![metric, (b"a", &long)]),
    ];
    let mut cases: Vec<Case> = labels
        .into_iter()
        .map(|(name, labels)| {
            case(name, write_request(V1, &snappy(&series_of(&labels, now))), &[400])
        })
        .collect();
    for time_ms in [i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1] {
        let body = snappy(&series_of(&[metric], time_ms));
        cases.push(case(&format!("sample at {time_ms}"), write_request(V1, &body), &[400]));
    }
    cases
}

/// The second protocol: a million references to one symbol of 1 MiB, and references into nowhere.
fn symbols() -> Vec<Case> {
    let now = now_ms();
    let sample = {
        let value = [&[0x09][..], &1.0_f64.to_le_bytes()].concat();
        field(2, &[&value[..], &[0x10], &varint(now as u64)].concat())
    };
    let of = |name: &str, symbols: &[&[u8]], references: &[u8], series_count: usize| {
        let symbols: Vec<u8> = symbols.iter().flat_map(|symbol| field(4, symbol)).collect();
        let series = field(5, &[field(1, references), sample.clone()].concat());
        let message = [symbols, series.repeat(series_count)].concat();
        case(name, write_request(V2, &snappy(&message)), &[400, 413])
    };
    let large = vec![b'x'; MIB];
    let name: &[u8] = b"__name__";
    vec![
        of("a million references to 1 MiB", &[b"", &large], &[1].repeat(1_000_000), 1),
        of("1 MiB in each of 10,000 series", &[b"", name, &large], &[1, 2], 10_000),
        of("reference to nothing", &[b"", name], &[1, 9], 1),
        of("reference of 10 bytes", &[b"", name], &[0xff; 10], 1),
        of("odd references", &[b"", name, b"a"], &[1, 2, 1], 1),
    ]
}

/// Heads, lines and framing that are none.
fn framing() -> Vec<Case> {
    let long = "a".repeat(4 * MIB);
    let chunked = |body: &str| {
        format!(
            "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Type: {V1}\r\n\
             Content-Encoding: snappy\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        )
        .into_bytes()
    };
    let many = (0..10_000).map(|at| format!("X-{at}: y\r\n")).collect::<String>();
    vec![
        case("request line of 4 MiB", request("GET", &format!("/{long}"), ""), &[0, 400, 414, 431]),
        case("method of 4 MiB", request(&long, "/", ""), &[0, 400, 414, 431]),
        case("header of 4 MiB", request("GET", "/-/healthy", &format!("X: {long}\r\n")), &[0, 431]),
        case("10,000 headers", request("GET", "/-/healthy", &many), &[0, 431]),
        case("header without an end", request("GET", "/-/healthy", "X\r\n"), &[0, 400]),
        case(
            "length that is none",
            request("POST", "/api/v1/write", "Content-Length: -1\r\n"),
            &[0, 400],
        ),
        case(
            "two lengths",
            request("POST", "/api/v1/write", "Content-Length: 1\r\nContent-Length: 2\r\n"),
            &[0, 400],
        ),
        case("chunk size that is none", chunked("zz\r\nabc\r\n"), &[0, 400]),
        case("chunk size of 2^64", chunked("10000000000000000\r\nabc\r\n"), &[0, 400]),
        case("chunk without its end", chunked("3\r\nabcdef\r\n0\r\n\r\n"), &[0, 400]),
        case(
            "chunk extension of 4 MiB",
            chunked(&format!("1;{long}\r\na\r\n0\r\n\r\n")),
            &[0, 400],
        ),
        case("no host", b"GET /-/healthy HTTP/1.1\r\nConnection: close\r\n\r\n".to_vec(), &[400]),
        case("no host in HTTP/1.0", b"GET /-/healthy HTTP/1.0\r\n\r\n".to_vec(), &[200]),
        case("two hosts", request("GET", "/-/healthy", "Host: x\r\n"), &[400]),
        case("host that is none", b"GET / HTTP/1.0\r\nHost: a/b\r\n\r\n".to_vec(), &[400]),
        case("another protocol", b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec(), &[0, 400]),
        case("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), &[0, 400]),
    ]
}

/// Query strings and forms.
fn queries() -> Vec<Case> {
    const FORM: &str = "application/x-www-form-urlencoded";
    let of = |name: &str, query: &str, statuses| {
        case(name, request("GET", &format!("/api/v1/query?{query}"), ""), statuses)
    };
    let form = |name: &str, path: &str, body: &[u8], statuses| {
        case(name, post(path, FORM, body), statuses)
    };
    let nested = format!("query={}1{}", "(".repeat(30_000), ")".repeat(30_000));
    let row = format!("query={}", vec!["vector(1)"; 5500].join("%2b"));
    let parameters = "a=b&".repeat(1_000_000);
    let escapes = format!("query={}", "%".repeat(9 * MIB));
    let selectors = "match[]=up&".repeat(500_000);
    let regex = format!("query={{a=~\"{}\"}}", "(a|b)*".repeat(100_000));
    let multipart = "--b\r\nContent-Disposition: form-data; name=\"query\"\r\n\r\nup\r\n--b--\r\n";
    vec![
        of("no query", "", &[400]),
        of("bad escape", "query=%zz", &[400]),
        of("not UTF-8", "query=%ff%fe", &[400]),
        of("NUL", "query=up%00", &[400]),
        of("time beyond everything", "query=up&time=1e400", &[400]),
        of("timeout below zero", "query=up&timeout=-1s", &[200, 400]),
        form("nesting of 30,000", "/api/v1/query", nested.as_bytes(), &[400, 422]),
        form("operators in a row", "/api/v1/query", row.as_bytes(), &[200]),
        form("… to format", "/api/v1/format_query", row.as_bytes(), &[422]),
        form("… to parse", "/api/v1/parse_query", row.as_bytes(), &[200]),
        form("… to explain", "/api/v1/query", format!("{row}&explain=true").as_bytes(), &[422]),
        form("a million parameters", "/api/v1/query", parameters.as_bytes(), &[400]),
        form("9 MiB of bad escapes", "/api/v1/query", escapes.as_bytes(), &[400]),
        form("form over the limit", "/api/v1/query", &vec![b'a'; 11 * MIB], &[400, 413]),
        form("half a million selectors", "/api/v1/series", selectors.as_bytes(), &[400]),
        form("regular expression of 600 kB", "/api/v1/query", regex.as_bytes(), &[400, 422]),
        form(
            "steps without end",
            "/api/v1/query_range",
            b"query=up&start=0&end=9e9&step=0.001",
            &[400],
        ),
        form(
            "a year of every sample",
            "/api/v1/query",
            b"query=sum(count_over_time({__name__=~\".%2b\"}[100y]))",
            &[200, 422],
        ),
        case(
            "multipart form",
            post("/api/v1/query", "multipart/form-data; boundary=b", multipart.as_bytes()),
            &[200, 400],
        ),
    ]
}

/// Random bytes at every endpoint, by all methods.
fn noise() -> Vec<Case> {
    const METHODS: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"];
    const PATHS: [&str; 19] = [
        "/",
        "/metrics",
        "/-/healthy",
        "/-/ready",
        "/-/reload",
        "/-/quit",
        "/api/v1/write",
        "/api/v1/query",
        "/api/v1/query_range",
        "/api/v1/query_exemplars",
        "/api/v1/format_query",
        "/api/v1/parse_query",
        "/api/v1/labels",
        "/api/v1/label/%ff/values",
        "/api/v1/series",
        "/api/v1/metadata",
        "/api/v1/status/flags",
        "/api/v1/admin/tsdb/delete_series",
        "/nowhere/../../etc/passwd",
    ];
    let mut random = Random(7);
    let mut cases = Vec::new();
    for path in PATHS {
        for method in METHODS {
            let query: String =
                random.bytes(40).iter().map(|byte| format!("%{byte:02x}")).collect();
            let body = random.bytes(2_000);
            let head = format!(
                "{method} {path}?query={query}&match[]={query}&start={query} HTTP/1.1\r\nHost: x\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n",
                body.len()
            );
            let bytes = [head.as_bytes(), &body].concat();
            // Pages have no parameters; the disabled admin API responds with 500, as in Prometheus.
            let statuses: &[u16] = &[0, 200, 204, 400, 403, 404, 405, 415, 422, 500];
            let statuses = if path.contains("/admin/") { statuses } else { &statuses[..9] };
            cases.push(case(&format!("noise: {method} {path}"), bytes, statuses));
        }
    }
    for at in 0..20 {
        cases.push(case(&format!("noise {at}"), random.bytes(10_000), &[0, 400]));
    }
    cases
}

/// Sends bytes and returns the status of the response; 0 without a response.
///
/// With `is_end_told`, the client closes its side, as the server may wait for more. For complete
/// requests, the server would treat that as a client that has left.
fn send(address: &str, bytes: &[u8], is_end_told: bool) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reading = stream.try_clone().unwrap();
    let mut answer = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The server may have answered and closed before it has taken all.
            let _ = stream.write_all(bytes);
            if is_end_told {
                let _ = stream.shutdown(Shutdown::Write);
            }
        });
        let mut buffer = [0; 4096];
        loop {
            match reading.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => answer.extend_from_slice(&buffer[..count]),
                Err(error) => {
                    assert_ne!(error.kind(), ErrorKind::WouldBlock, "no answer and no end");
                    break;
                }
            }
        }
    });
    let head = String::from_utf8_lossy(&answer);
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// A field of `/proc/PID/status` in bytes.
pub fn memory(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Resets the peak of memory, and returns the current size.
pub fn begin_peak(server: &Server) -> u64 {
    std::fs::write(format!("/proc/{}/clear_refs", server.child.0.id()), "5").unwrap();
    memory(server, "VmRSS")
}

/// Queries known series until it is stopped, and returns the longest latency.
fn others(address: &str, expected: &str, stop: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        check_known(address, expected);
        longest = longest.max(started.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    longest
}

fn check_known(address: &str, expected: &str) {
    let (status, body) = get(address, "/api/v1/query?nocache=1&query=sum(known)");
    assert!(status == 200 && body.contains(expected), "{status} {body}");
}

fn with_known(args: &[&str], name: &str, test: impl FnOnce(&Server, &str)) {
    let directory = temporary_directory(name);
    let args = [&["--self-metrics=false", "--web.max-connections=1000"], args].concat();
    let server = Server::start(directory.path(), &args);
    let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
    for series in 0..100 {
        let labels = [("__name__", "known"), ("series", &series.to_string())];
        encoder.push(&encode_labels(labels), [(now_ms(), f64::from(series))]);
    }
    encoder.compress(&mut body);
    assert_eq!(Connection::open(&server.address).unwrap().write(&body).unwrap().0, 204);
    test(&server, "\"4950\"");
}

#[test]
fn hostile_requests_are_rejected_without_harm_to_others() {
    with_known(&[], "hostile", |server, expected| {
        let address = server.address.as_str();
        let stop = AtomicBool::new(false);
        let mut wrong = Vec::new();
        let mut most = (0, String::new());
        let longest = std::thread::scope(|scope| {
            let asking = scope.spawn(|| others(address, expected, &stop));
            for cases in [remote_write_bodies, labels_and_times, symbols, framing, queries, noise] {
                for Case { name, bytes, statuses } in cases() {
                    let before = begin_peak(server);
                    let started = Instant::now();
                    let status = send(address, &bytes, statuses.contains(&0));
                    let elapsed = started.elapsed();
                    let growth = memory(server, "VmHWM").saturating_sub(before);
                    if !name.starts_with("noise") {
                        println!("{name}: {status}, {} KiB, {elapsed:?}", growth >> 10);
                    }
                    if !statuses.contains(&status) || growth > GROWTH_BYTES_MAX {
                        wrong.push(format!("{name}: {status}, {} MiB", growth >> 20));
                    }
                    if growth > most.0 {
                        most = (growth, name);
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            asking.join().unwrap()
        });
        println!(
            "most memory: {} KiB by {}; others waited {longest:?} at most",
            most.0 >> 10,
            most.1
        );
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(longest < OTHERS_MAX, "others waited {longest:?}");
        check_known(address, expected);
        let (_, found) = get(address, "/api/v1/series?match[]=hostile");
        assert!(found.contains("\"data\":[]"), "something hostile was stored: {found}");
    });
}

/// Waits until some responses are being sent, and returns their ids.
fn wait_for_sending(address: &str, count: usize) -> Vec<String> {
    let started = Instant::now();
    loop {
        let (status, body) = get(address, "/api/v1/status/active_queries");
        assert_eq!(status, 200, "{body}");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let listed = body["data"].as_array().unwrap();
        let is_sending = |query: &&serde_json::Value| query["state"] == "sending";
        let ids: Vec<_> = listed
            .iter()
            .filter(is_sending)
            .map(|query| query["id"].as_str().unwrap().to_owned())
            .collect();
        if ids.len() == count {
            return ids;
        }
        assert!(started.elapsed() < PATIENCE, "{count} are not sent: {body}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn clients_that_read_nothing_block_no_queries() {
    // More than all permits, including those for short queries.
    const READERS: usize = 15;
    // Only the DELETE request ends a response, even on a slow machine.
    let args = [
        "--query.max-concurrency=2",
        "--web.enable-admin-api",
        "--web.write-stall-timeout=1h",
        "--web.write-timeout=1h",
    ];
    with_known(&args, "hostile-readers", |server, expected| {
        let address = server.address.as_str();
        let end = now_ms() / 1000;
        let query = format!(
            "GET /api/v1/query_range?nocache=1&query=last_over_time(known[1d])&start={end}&end={}\
             &step=1 HTTP/1.1\r\nHost: x\r\n\r\n",
            end + 5_000
        );
        let mut readers: Vec<TcpStream> = (0..READERS)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(query.as_bytes()).unwrap();
                stream
            })
            .collect();
        let ids = wait_for_sending(address, READERS);
        check_known(address, expected);
        let (status, body) = get(address, "/api/v1/label/series/values");
        assert_eq!(status, 200, "{body}");

        // The first id belongs to one of the readers.
        let head = format!(
            "DELETE /api/v1/status/active_queries/{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            ids[0]
        );
        assert_eq!(send(address, head.as_bytes(), false), 204);
        wait_for_sending(address, READERS - 1);
        // Each reader reads to the end of its response or of its connection.
        let mut ends = readers.iter_mut().map(|reader| {
            reader.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut answer, mut buffer) = (Vec::new(), [0; 1 << 16]);
            while !answer.ends_with(b"\r\n0\r\n\r\n") {
                match reader.read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(count) => answer.extend_from_slice(&buffer[..count]),
                    Err(error) => {
                        assert_ne!(error.kind(), ErrorKind::WouldBlock, "neither");
                        return false;
                    }
                }
            }
            true
        });
        assert_eq!(ends.by_ref().filter(|is_whole| !is_whole).count(), 1);
    });
}

#[test]
fn connections_without_a_request_block_no_new_clients() {
    let directory = temporary_directory("hostile-silent");
    let args = ["--self-metrics=false", "--web.max-connections=8", "--web.read-timeout=1h"];
    let server = Server::start(directory.path(), &args);
    let silent: Vec<TcpStream> = (0..40)
        .map(|at| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            let head: &[u8] =
                if at % 2 == 0 { b"" } else { b"GET /-/ready HTTP/1.1\r\nHost: x\r\nX-Never-" };
            // The server may have closed it to make room.
            let _ = stream.write_all(head);
            stream
        })
        .collect();
    assert_eq!(get(&server.address, "/-/ready").0, 200);
    for mut stream in silent {
        // The timeout of an hour does not apply to it.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "it stays open");
        }
    }
}

#[test]
fn unfinished_bodies_block_no_new_clients() {
    let directory = temporary_directory("hostile-bodies");
    let args = [
        "--self-metrics=false",
        "--web.max-connections=8",
        "--web.read-timeout=1h",
        "--remote-write.body-timeout=1h",
    ];
    let server = Server::start(directory.path(), &args);
    let _unfinished: Vec<TcpStream> = (0..40)
        .map(|at| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            let (path, kind) = match at % 2 {
                0 => ("query", "application/x-www-form-urlencoded"),
                _ => ("write", "application/x-protobuf"),
            };
            let request = format!(
                "POST /api/v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n\
                 Content-Encoding: snappy\r\nContent-Length: 300\r\n\r\nquery="
            );
            // The server may have closed it to make room.
            let _ = stream.write_all(request.as_bytes());
            stream
        })
        .collect();
    assert_eq!(get(&server.address, "/-/ready").0, 200);
}

#[test]
fn trickling_and_idle_connections_time_out_and_block_no_clients() {
    let args = ["--remote-write.body-timeout=3s", "--web.read-timeout=10s"];
    with_known(&args, "hostile-slow", |server, expected| {
        let address = server.address.as_str();
        let before = begin_peak(server);
        let idle: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(address).unwrap()).collect();
        let heads = [
            "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 16777216\r\n\
             Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\r\n",
            "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n",
            "GET /api/v1/query HTTP/1.1\r\nHost: x\r\nX-Never-Ends: ",
        ];
        let mut trickling: Vec<TcpStream> = (0..60)
            .map(|at| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(heads[at % heads.len()].as_bytes()).unwrap();
                stream
            })
            .collect();
        let started = Instant::now();
        let mut longest = Duration::ZERO;
        // A byte at a time, until the server has closed all connections.
        while !trickling.is_empty() {
            assert!(started.elapsed() < PATIENCE, "{} go on", trickling.len());
            trickling.retain_mut(|stream| stream.write_all(b"x").is_ok());
            let asked = Instant::now();
            check_known(address, expected);
            longest = longest.max(asked.elapsed());
            std::thread::sleep(Duration::from_millis(50));
        }
        let growth = memory(server, "VmHWM").saturating_sub(before);
        println!(
            "ended after {:?}; others waited {longest:?} at most; {} KiB",
            started.elapsed(),
            growth >> 10
        );
        assert!(longest < OTHERS_MAX, "others waited {longest:?}");
        assert!(growth < GROWTH_BYTES_MAX, "{} MiB", growth >> 20);
        for mut stream in idle {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // The server closes it, possibly after a response.
            let _ = stream.read_to_end(&mut Vec::new()).unwrap();
        }
    });
}
