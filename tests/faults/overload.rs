//! The real binary under overload: a cardinality bomb, senders that never pause and heavy queries,
//! next to one normal sender and one client with small queries. Memory stays bounded, small
//! queries are answered, and acknowledged samples survive `kill -9`.
//!
//! Small by default. Variables: `OVERLOAD_SECONDS` (duration), `OVERLOAD_BOMB` (new series),
//! `OVERLOAD_SENDERS`, `OVERLOAD_HEAVY` (clients with heavy queries), `OVERLOAD_HEAD` (size of the
//! head and limit of a query in MiB, all queries may use twice as much; 0 leaves all limits at
//! their defaults), `OVERLOAD_OTHERS` (MiB the process may use in addition), `TESSELLA_BINARY`.
//! `benches/README.md` has a run of a release binary.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, get, percent_encode, temporary_directory};

/// New series in a request of the bomb.
const BOMB_SERIES: u64 = 2_000;
/// Series of each other sender.
const SERIES: u64 = 500;
/// Samples of each in a request.
const SAMPLES: i64 = 10;
const STEP_MS: i64 = 1_000;
/// Timeout until the load reaches a limit.
const LONGEST: Duration = Duration::from_secs(120);

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Returns the value of an instant query without labels; `None` without a result.
fn ask(address: &str, query: &str) -> Option<f64> {
    let (status, body) =
        get(address, &format!("/api/v1/query?nocache=1&query={}", percent_encode(query)));
    assert_eq!(status, 200, "{query}: {body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let value = body["data"]["result"].get(0)?["value"][1].as_str()?.parse();
    Some(value.unwrap())
}

fn metric(address: &str, name: &str) -> f64 {
    let (_, text) = get(address, "/metrics");
    let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// The most memory that the process has had, in MiB.
fn peak_mib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn series_over_a_limit_are_rejected_by_name_and_known_ones_are_stored() {
    let directory = temporary_directory("overload-limit");
    let args = ["--self-metrics=false", "--remote-write.max-active-series-per-metric=100"];
    let server = Server::start(directory.path(), &args);
    let now = now_ms() - 60_000;
    let mut connection = Connection::open(&server.address).unwrap();
    let mut send = |metrics: &[(&str, u64)], time_ms: i64| {
        let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
        for (metric, count) in metrics {
            for series in 0..*count {
                let labels = [("__name__", *metric), ("series", &series.to_string())];
                encoder.push(&encode_labels(labels), [(time_ms, 1.0)]);
            }
        }
        encoder.compress(&mut body);
        let (status, text) = connection.write(&body).unwrap();
        (status, text, connection.answer_head().to_owned())
    };
    assert_eq!(send(&[("known", 60)], now).0, 204);
    let (status, text, head) = send(&[("bomb", 150), ("known", 60)], now + 1_000);
    assert_eq!(status, 429, "{text}");
    assert!(head.contains("retry-after: 30\r\n"), "{head}");
    let expected = "too many active series of one metric: metric \"bomb\" has 100, the limit is \
                    100 (--remote-write.max-active-series-per-metric) for series {";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.trim_end().ends_with("and 40 more of this kind"), "{text}");
    assert_eq!(ask(&server.address, "count(bomb)"), Some(100.0));
    assert_eq!(ask(&server.address, "sum(count_over_time(known[5m]))"), Some(120.0));
    let refused = "tessella_storage_series_rejected_samples_total\
                   {limit=\"active_series_per_metric\",metric=\"bomb\"}";
    assert_eq!(metric(&server.address, refused), 50.0);
    assert_eq!(metric(&server.address, "tessella_storage_active_series"), 160.0);
}

/// Sent and acknowledged requests of a sender.
#[derive(Default)]
struct Account {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

impl Account {
    fn note(&self, status: u16, samples: u64) {
        self.sent.fetch_add(samples, Ordering::Relaxed);
        match status {
            204 => &self.acknowledged,
            429 | 503 => &self.refused,
            other => panic!("status {other}"),
        }
        .fetch_add(samples, Ordering::Relaxed);
    }

    fn figures(&self) -> [u64; 3] {
        [&self.sent, &self.acknowledged, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Sends scrapes of some series, and retries rejected ones, with a pause if it is polite.
fn send_scrapes(address: &str, sender: u64, pause: Duration, account: &Account, stop: &AtomicBool) {
    let labels: Vec<Vec<u8>> = (0..SERIES)
        .map(|series| {
            encode_labels([
                ("__name__", "load"),
                ("sender", &sender.to_string()),
                ("series", &format!("{series:04}")),
            ])
        })
        .collect();
    let mut connection = Connection::open(address).unwrap();
    let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
    let mut time_ms = now_ms() - 20 * 3_600_000;
    while !stop.load(Ordering::Relaxed) {
        encoder.clear();
        for labels in &labels {
            let samples = (0..SAMPLES).map(|at| (time_ms + at * STEP_MS, (time_ms % 997) as f64));
            encoder.push(labels, samples);
        }
        encoder.compress(&mut body);
        let (status, _) = connection.write(&body).unwrap();
        account.note(status, SERIES * SAMPLES as u64);
        if status == 204 {
            time_ms += SAMPLES * STEP_MS;
        }
        std::thread::sleep(pause);
    }
}

/// Sends new series and returns the numbers of acknowledged requests.
fn send_bomb(address: &str, series_max: u64, account: &Account, stop: &AtomicBool) -> Vec<u64> {
    let mut connection = Connection::open(address).unwrap();
    let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
    let mut acknowledged = Vec::new();
    for request in 0..series_max / BOMB_SERIES {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        encoder.clear();
        let time_ms = now_ms();
        for series in 0..BOMB_SERIES {
            let labels = encode_labels([
                ("__name__", "bomb"),
                ("instance", &format!("10.0.{}.{series}:9100", request % 250)),
                ("job", "kubernetes-pods"),
                ("request", &request.to_string()),
                ("trace", &format!("{:016x}", (request * BOMB_SERIES + series) * 0x9e37_79b9)),
            ]);
            encoder.push(&labels, [(time_ms, 1.0)]);
        }
        encoder.compress(&mut body);
        let (status, _) = connection.write(&body).unwrap();
        account.note(status, BOMB_SERIES);
        if status == 204 {
            acknowledged.push(request);
        }
    }
    acknowledged
}

/// Queries until it is stopped, and returns the sorted durations.
fn ask_on(address: &str, stop: &AtomicBool) -> Vec<Duration> {
    let mut taken = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        ask(address, "sum by (sender) (rate(load{sender=\"0\"}[5m]))");
        taken.push(started.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    taken.sort_unstable();
    taken
}

/// Heavy queries: many samples, many groups, long responses, small steps. Each may be stopped by
/// a limit.
fn heavy_queries() -> [String; 6] {
    let now = now_ms() / 1000;
    let range = |query: &str, from_s: i64, step_s: i64| {
        format!(
            "/api/v1/query_range?nocache=1&start={}&end={now}&step={step_s}&query={}",
            now - from_s,
            percent_encode(query)
        )
    };
    [
        range("sum by (sender, series) (rate(load[5m]))", 20 * 3600, 15),
        range("load", 20 * 3600, 60),
        range("count by (instance) (bomb)", 3600, 15),
        range("quantile_over_time(0.9, load[1h:1s])", 20 * 3600, 60),
        range("rate({__name__=~\"load|bomb\"}[100y])", 3600, 1),
        range("topk(10, sum by (trace) (bomb))", 600, 15),
    ]
}

/// Runs heavy queries until stopped; returns the number of results and of errors.
fn ask_heavy(address: &str, client: usize, stop: &AtomicBool) -> [u64; 2] {
    let mut counts = [0, 0];
    for turn in client.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let queries = heavy_queries();
        let (status, body) = get(address, &queries[turn % queries.len()]);
        match status {
            200 => counts[0] += 1,
            422 | 503 => counts[1] += 1,
            // A response that is being sent is dropped if others need its memory.
            0 if body == "not an HTTP answer" => counts[1] += 1,
            other => panic!("status {other}: {body}"),
        }
    }
    counts
}

#[test]
fn overload_keeps_memory_bounded_and_acknowledged_samples() {
    let seconds = variable("OVERLOAD_SECONDS", 5);
    let bomb_series = variable("OVERLOAD_BOMB", 200_000);
    let senders = variable("OVERLOAD_SENDERS", 8);
    let heavy_clients = variable("OVERLOAD_HEAVY", 2) as usize;
    let head_mib = variable("OVERLOAD_HEAD", 24);
    let directory = temporary_directory("overload");
    let limits = [
        format!("--storage.head-size={head_mib}MiB"),
        format!("--query.max-memory={head_mib}MiB"),
        format!("--query.max-memory-total={}MiB", 2 * head_mib),
    ];
    let mut args = vec!["--self-metrics=false"];
    if head_mib > 0 {
        args.extend(limits.iter().map(String::as_str));
    }
    let server = Server::start(directory.path(), &args);
    let peak_at_rest = peak_mib(&server);
    let address = server.address.as_str();
    let (stop, bomb) = (AtomicBool::new(false), Account::default());
    let accounts: Vec<Account> = (0..senders).map(|_| Account::default()).collect();
    let (requests, asked, heavy) = std::thread::scope(|scope| {
        let stop = &stop;
        for (sender, account) in accounts.iter().enumerate() {
            // The first sender is the normal one.
            let pause = Duration::from_millis(if sender == 0 { 200 } else { 0 });
            scope.spawn(move || send_scrapes(address, sender as u64, pause, account, stop));
        }
        let requests = scope.spawn(|| send_bomb(address, bomb_series, &bomb, stop));
        let asked = scope.spawn(|| ask_on(address, stop));
        let heavy: Vec<_> = (0..heavy_clients)
            .map(|client| scope.spawn(move || ask_heavy(address, client, stop)))
            .collect();
        // Runs until the load reaches a limit.
        let started = Instant::now();
        let is_overload =
            || bomb.figures()[2] > 0 && accounts[0].figures()[1] > 0 || started.elapsed() > LONGEST;
        while started.elapsed() < Duration::from_secs(seconds) || !is_overload() {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        let heavy = heavy.into_iter().map(|client| client.join().unwrap());
        let heavy = heavy.fold([0, 0], |sum, counts| [sum[0] + counts[0], sum[1] + counts[1]]);
        (requests.join().unwrap(), asked.join().unwrap(), heavy)
    });
    let peak = peak_mib(&server);
    let at = |share: f64| asked[((asked.len() - 1) as f64 * share) as usize];
    let [bomb_sent, _, bomb_refused] = bomb.figures();
    println!(
        "{seconds} s, {senders} senders: samples sent, acknowledged, refused {:?}; of the normal \
         sender {:?}; new series sent {bomb_sent}, in refused requests {bomb_refused}; {} \
         queries, p50 {:?}, p99 {:?}, longest {:?}; heavy queries answered and stopped {heavy:?}; peak of memory {peak} MiB, {peak_at_rest} MiB \
         at rest; {} seals, {} active series, head {:.1} MiB",
        accounts.iter().fold([0; 3], |sum: [u64; 3], account| {
            let figures = account.figures();
            std::array::from_fn(|at| sum[at] + figures[at])
        }),
        accounts[0].figures(),
        asked.len(),
        at(0.5),
        at(0.99),
        at(1.0),
        metric(address, "tessella_storage_seals_total"),
        metric(address, "tessella_storage_active_series"),
        metric(address, "tessella_storage_head_bytes") / 1048576.0,
    );
    assert!(bomb_refused > 0, "the load was no overload");
    assert!(accounts[0].figures()[1] > 0, "no request of the normal sender was acknowledged");
    // Requests, seals and caches take memory in addition to the limits.
    let others_mib = variable("OVERLOAD_OTHERS", 160);
    let budget_mib = if head_mib == 0 { 8192 } else { 3 * head_mib };
    assert!(peak < peak_at_rest + budget_mib + others_mib, "{peak} MiB");

    // The drop kills it with SIGKILL.
    drop(server);
    let server = Server::start(directory.path(), &args);
    for (sender, account) in accounts.iter().enumerate() {
        let query = format!("sum(count_over_time(load{{sender=\"{sender}\"}}[25h]))");
        let found = ask(&server.address, &query).unwrap_or(0.0) as u64;
        let [sent, acknowledged, _] = account.figures();
        assert!(
            (acknowledged..=sent).contains(&found),
            "{sender}: {found} of {acknowledged} acknowledged"
        );
    }
    for some in requests.chunks(50) {
        let numbers: Vec<String> = some.iter().map(u64::to_string).collect();
        let query =
            format!("count(last_over_time(bomb{{request=~\"{}\"}}[1h]))", numbers.join("|"));
        let expected = some.len() as u64 * BOMB_SERIES;
        assert_eq!(ask(&server.address, &query), Some(expected as f64), "{query}");
    }
}
