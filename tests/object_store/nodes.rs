//! Writers to one store, in this process or as the real binary.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use model::{Batch, Budget, Labels, Matcher, SampleBatch, Selection, Source, TimeRange};
use serde_json::Value;
use storage::{SharedMemory, Store, StoreOptions};
use tokio::runtime::Runtime;

use crate::now_ms;
use testkit::emulators::Emulator;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use testkit::{Server, command, get, percent_encode, request};

/// Values by series and time.
pub type Contents = BTreeMap<u32, BTreeMap<i64, f64>>;

/// Prefix of the error of a write without a response.
pub const NO_ANSWER: &str = "no answer";
pub const METRIC: &str = "object_store_samples";

/// Mode of opening a store.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub retention_ms: Option<i64>,
    pub log_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { retention_ms: None, log_bytes_max: 1 << 30 }
    }
}

/// Location of a store.
pub trait Place {
    /// Opens it without another writer.
    fn open(&self, settings: &Settings) -> Box<dyn Node>;
    /// Opens it while another writer has it open; `None` if that is an error.
    fn take_over(&self) -> Option<Box<dyn Node>>;
}

/// A writer that has opened it.
pub trait Node {
    /// Writes samples; the error is what the sender hears.
    fn write(&mut self, samples: &Contents) -> Result<(), String>;
    /// Everything that is stored.
    fn read(&self) -> Contents;
    /// Deletes the samples of a series from one time to another.
    fn delete(&mut self, series: u32, start_ms: i64, end_ms: i64);
    /// Removes deleted samples from the SSTs.
    fn clean(&mut self);
    /// Copies the store.
    fn snapshot(&mut self) -> Box<dyn Place>;
    /// Runs background work, unless it runs in the background.
    fn maintain(&mut self);
    fn partitions(&self) -> u64;
    fn partitions_deleted(&self) -> u64;
    /// Ends it without closing the store.
    fn kill(self: Box<Self>);
    /// Waits until it has ended, as another writer has taken over its store.
    fn end_without_store(self: Box<Self>);
}

/// Stores in this process on shared memory.
#[derive(Default)]
pub struct InMemory {
    memory: SharedMemory,
}

impl Place for InMemory {
    fn open(&self, settings: &Settings) -> Box<dyn Node> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let options = StoreOptions {
            background: false,
            retention_ms: settings.retention_ms,
            retention_confirmation: Duration::ZERO,
            log_bytes_max: settings.log_bytes_max,
            ..StoreOptions::default()
        };
        let store = runtime.block_on(Store::open_in(&self.memory, options)).unwrap();
        Box::new(InProcess { runtime, store: Arc::new(store), memory: self.memory.clone() })
    }

    fn take_over(&self) -> Option<Box<dyn Node>> {
        Some(self.open(&Settings::default()))
    }
}

struct InProcess {
    runtime: Runtime,
    store: Arc<Store>,
    memory: SharedMemory,
}

impl InProcess {
    async fn read_all(&self) -> Contents {
        let matchers = vec![Matcher::equal("__name__", METRIC)];
        let (start_ms, end_ms) = (now_ms() - 864_000_000, now_ms());
        let selection = Selection {
            matchers,
            times: TimeRange::new(start_ms, end_ms),
            only_newest: false,
            windows: None,
        };
        let set = self.store.select(&selection, &Budget::unlimited()).await.unwrap();
        let mut contents = Contents::new();
        for index in 0..set.len() {
            let series = set.labels(index).get("series").parse().unwrap();
            let mut cursor = set.cursor(index);
            let mut batch = SampleBatch::new();
            loop {
                batch.clear();
                let advance = cursor.next_batch(end_ms, &mut batch).unwrap();
                let (timestamps, values) = batch.samples();
                for (timestamp_ms, value) in timestamps.iter().zip(values) {
                    let all: &mut BTreeMap<i64, f64> = contents.entry(series).or_default();
                    assert_eq!(all.insert(*timestamp_ms, *value), None, "doubled");
                }
                if advance != model::Advance::Full {
                    break;
                }
            }
        }
        contents
    }
}

impl Node for InProcess {
    fn write(&mut self, samples: &Contents) -> Result<(), String> {
        let mut batch = Batch::default();
        for (series, samples) in samples {
            let number = series.to_string();
            let labels = Labels::from_pairs([("__name__", METRIC), ("series", number.as_str())]);
            let samples: Vec<(i64, f64)> = samples.iter().map(|(t, v)| (*t, *v)).collect();
            batch.push(&labels, &samples);
        }
        let outcome = self.runtime.block_on(self.store.append(batch)).map_err(|e| e.to_string())?;
        match outcome.rejections.first() {
            None => Ok(()),
            Some(rejection) => Err(rejection.reason.to_string()),
        }
    }

    fn read(&self) -> Contents {
        self.runtime.block_on(self.read_all())
    }

    fn delete(&mut self, series: u32, start_ms: i64, end_ms: i64) {
        let matchers =
            vec![Matcher::equal("__name__", METRIC), Matcher::equal("series", series.to_string())];
        self.runtime.block_on(self.store.delete(vec![matchers], start_ms, end_ms)).unwrap();
    }

    fn clean(&mut self) {
        self.runtime.block_on(self.store.clean_tombstones()).unwrap();
    }

    fn snapshot(&mut self) -> Box<dyn Place> {
        self.runtime.block_on(self.store.snapshot("copy", true)).unwrap();
        Box::new(InMemory { memory: self.memory.snapshot("copy") })
    }

    fn maintain(&mut self) {
        self.runtime.block_on(self.store.maintain()).unwrap();
    }

    fn partitions(&self) -> u64 {
        self.store.stats().partitions as u64
    }

    fn partitions_deleted(&self) -> u64 {
        self.store.stats().partitions_deleted
    }

    fn kill(self: Box<Self>) {
        // Dropping does not close the store; its tasks end with the runtime.
        self.runtime.shutdown_background();
    }

    fn end_without_store(self: Box<Self>) {
        let error = self.runtime.block_on(self.store.wait_until_lost());
        assert_eq!(error, storage::StoreError::Fenced);
        self.kill();
    }
}

/// The binary, restarted each time.
#[derive(Clone)]
pub struct Processes {
    url: String,
    args: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Processes {
    pub fn on_disk(folder: &Path) -> Processes {
        let url = folder.display().to_string();
        Processes { url, args: Vec::new(), variables: Vec::new() }
    }

    pub fn on_s3(server: &S3Server) -> Processes {
        Processes {
            url: format!("s3://{BUCKET}/some/prefix"),
            args: s3_args(&server.endpoint()),
            variables: s3_variables().map(|(name, value)| (name, value.to_owned())).to_vec(),
        }
    }

    pub fn on_emulator(emulator: &Emulator) -> Processes {
        let url = format!("{}/some/prefix", emulator.url);
        Processes { url, args: Vec::new(), variables: emulator.variables.clone() }
    }

    /// Creates a location in a bucket, without the flags that name its server.
    pub fn on_bucket() -> Processes {
        let url = format!("s3://{BUCKET}/some/prefix");
        Processes { url, args: Vec::new(), variables: Vec::new() }
    }

    /// Replaces the flags that name the server.
    pub fn with_args(mut self, args: &[&str]) -> Processes {
        self.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self
    }

    /// Starts the binary with further flags.
    pub fn start(&self, args: &[&str]) -> Server {
        let server = Server::spawn(&mut self.command(args));
        server.wait_until_ready();
        server
    }

    /// Returns the command that starts the binary with further flags.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut all: Vec<&str> = self.args.iter().map(String::as_str).collect();
        all.push("--self-metrics=false");
        all.extend(args);
        let variables = self.variables.iter().map(|(name, value)| (*name, value.as_str()));
        command(&self.url, &all, &variables.collect::<Vec<_>>())
    }
}

/// The flags that name an S3 server on loopback.
pub fn s3_args(endpoint: &str) -> Vec<String> {
    vec![format!("--storage.s3.endpoint={endpoint}"), "--storage.s3.allow-http".to_owned()]
}

/// The credentials, as variables.
pub fn s3_variables() -> [(&'static str, &'static str); 2] {
    [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)]
}

impl Place for Processes {
    fn open(&self, settings: &Settings) -> Box<dyn Node> {
        let log = format!("--storage.log-size={}", settings.log_bytes_max);
        let hours = settings.retention_ms.unwrap_or(0) / 3_600_000;
        let retention = format!("--storage.retention.time={hours}h");
        let at_once = "--storage.retention.confirmation=0s";
        let server = self.start(&[&log, &retention, at_once, "--web.enable-admin-api"]);
        let connection = Connection::open(&server.address).unwrap();
        Box::new(Process { place: self.clone(), server, connection })
    }

    fn take_over(&self) -> Option<Box<dyn Node>> {
        if !self.url.contains("://") {
            return None;
        }
        let server = self.start(&["--take-over", "--web.enable-admin-api"]);
        let connection = Connection::open(&server.address).unwrap();
        Some(Box::new(Process { place: self.clone(), server, connection }))
    }
}

/// One process.
pub struct Process {
    place: Processes,
    pub server: Server,
    pub connection: Connection,
}

impl Process {
    /// Asks for something that the store is to do: the status and the text.
    fn ask(&self, path: &str) -> (u16, String) {
        let address = &self.server.address;
        let head = format!(
            "POST /api/v1/admin/tsdb/{path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        request(address, &head, &[])
    }
}

/// The body of a remote write request.
pub fn encoded(samples: &Contents) -> Vec<u8> {
    let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
    for (series, samples) in samples {
        let number = series.to_string();
        let labels = encode_labels([("__name__", METRIC), ("series", number.as_str())]);
        encoder.push(&labels, samples.iter().map(|(t, v)| (*t, *v)));
    }
    encoder.compress(&mut body);
    body
}

/// Asks a server for all that it has of the test's metric: the status and the text.
pub fn query(address: &str) -> (u16, String) {
    let query = percent_encode(&format!("{METRIC}[10d]"));
    get(address, &format!("/api/v1/query?query={query}"))
}

/// Everything that a server has of the test's metric.
pub fn read(address: &str) -> Contents {
    let (status, text) = query(address);
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let mut contents = Contents::new();
    for series in answer["data"]["result"].as_array().unwrap() {
        let number = series["metric"]["series"].as_str().unwrap().parse().unwrap();
        let all = contents.entry(number).or_default();
        for pair in series["values"].as_array().unwrap() {
            let time_ms = (pair[0].as_f64().unwrap() * 1000.0).round() as i64;
            let value = pair[1].as_str().unwrap().parse().unwrap();
            assert_eq!(all.insert(time_ms, value), None, "doubled");
        }
    }
    contents
}

/// A metric without labels, as the server shows it.
pub fn metric(address: &str, name: &str) -> u64 {
    let (_, text) = get(address, "/metrics");
    let figure = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    figure.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse::<f64>().unwrap() as u64
}

impl Node for Process {
    fn write(&mut self, samples: &Contents) -> Result<(), String> {
        match self.connection.write(&encoded(samples)) {
            Ok((204, _)) => Ok(()),
            Ok((_, text)) => Err(text),
            Err(error) => Err(format!("{NO_ANSWER}: {error}")),
        }
    }

    fn read(&self) -> Contents {
        read(&self.server.address)
    }

    fn delete(&mut self, series: u32, start_ms: i64, end_ms: i64) {
        let selector = percent_encode(&format!("{METRIC}{{series=\"{series}\"}}"));
        let seconds = |time_ms: i64| time_ms as f64 / 1000.0;
        let (start, end) = (seconds(start_ms), seconds(end_ms));
        let path = format!("delete_series?match[]={selector}&start={start}&end={end}");
        let (status, text) = self.ask(&path);
        assert_eq!(status, 204, "{text}");
    }

    fn clean(&mut self) {
        let (status, text) = self.ask("clean_tombstones");
        assert_eq!(status, 204, "{text}");
    }

    fn snapshot(&mut self) -> Box<dyn Place> {
        let (status, text) = self.ask("snapshot");
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let name = answer["data"]["name"].as_str().unwrap();
        let url = format!("{}/snapshots/{name}", self.place.url);
        Box::new(Processes { url, ..self.place.clone() })
    }

    fn maintain(&mut self) {
        // The process maintains its store in the background.
    }

    fn partitions(&self) -> u64 {
        metric(&self.server.address, "tessella_storage_partitions")
    }

    fn partitions_deleted(&self) -> u64 {
        metric(&self.server.address, "tessella_storage_partitions_deleted_total")
    }

    fn kill(mut self: Box<Self>) {
        self.server.child.0.kill().unwrap();
        self.server.child.0.wait().unwrap();
    }

    fn end_without_store(mut self: Box<Self>) {
        let (status, log) = self.server.wait();
        assert_eq!(status.code(), Some(3), "{log}");
    }
}
