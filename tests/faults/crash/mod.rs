//! `kill -9` at seeded moments of a write load, on a local disk and in buckets: acknowledged
//! requests are stored exactly once, other requests as a whole or not at all, and nothing else is
//! stored. A second writer on the same store fences the first.
//!
//! `CRASH_SEED` sets the seed, which is the clock's in a long run, `CRASH_KILLS` how often a
//! process is killed on a local disk, and `CRASH_KILLS_S3` in each bucket.

mod everything;
mod floats;
mod leftovers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use everything::Everything;
use floats::Floats;
use serde_json::Value;
use testkit::emulators::Emulator;
use testkit::random::Random;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::s3::{BUCKET, S3Server};
use testkit::{Server, command, get, percent_encode, temporary_directory};

/// Kills of an ordinary run, on a disk and in each bucket.
const KILLS: u64 = 6;
const KILLS_S3: u64 = 3;
/// Number of kills for each store: each start is followed by a check of all of it.
const KILLS_PER_STORE: u64 = 25;
/// Maximum life of a server between two kills; in a long run some live longer, for compaction and
/// garbage collection.
const LIFE_MS_MAX: u64 = 2_000;
const LONG_LIFE_MS_MAX: u64 = 15_000;
/// Life of a server that is killed while it opens the store.
const START_MS_MAX: u64 = 400;
/// Timeout for an acknowledgement.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause of a sender before a retry.
const PAUSE: Duration = Duration::from_millis(20);

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Acknowledged,
    /// Sent, and perhaps stored.
    Unknown,
}

/// The requests of a sender so far, by number.
struct Book {
    fates: Vec<Fate>,
    random: Random,
}

impl Book {
    fn new(seed: u64) -> Book {
        Book { fates: Vec::new(), random: Random(seed) }
    }

    /// Returns the first request of a life, at random the last one without a response, or the one
    /// after it.
    fn first(&mut self) -> usize {
        let is_unknown = self.fates.last() == Some(&Fate::Unknown);
        self.fates.len() - usize::from(is_unknown && self.random.below(2) == 0)
    }

    /// A request is about to be sent.
    fn sent(&mut self, request: usize) {
        self.fates.resize(self.fates.len().max(request + 1), Fate::Unknown);
    }
}

/// A sender, which knows the samples that must be stored.
trait Sender: Send {
    /// Sends a request by its number; returns the status and the text of the response.
    fn send(&self, connection: &mut Connection, request: usize) -> std::io::Result<(u16, String)>;

    /// Sends until the server ends, and counts the acknowledged requests.
    fn run(&mut self, address: &str, acknowledged: &AtomicUsize) {
        let Ok(mut connection) = Connection::open(address) else {
            return;
        };
        let mut request = self.book_mut().first();
        loop {
            self.book_mut().sent(request);
            match self.send(&mut connection, request) {
                Ok((204, _)) => {
                    self.book_mut().fates[request] = Fate::Acknowledged;
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                // It may be stored or not, like a request without a response, and is sent again.
                Ok((503, _)) => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Ok((status, text)) => panic!("request {request}: {status} {text}"),
                Err(_) => return,
            }
            request += 1;
        }
    }

    /// Sends all that has been sent, to another server.
    fn send_again(&self, address: &str) {
        let mut connection = Connection::open(address).unwrap();
        for request in 0..self.book().fates.len() {
            let (status, text) = self.send(&mut connection, request).unwrap();
            assert_eq!(status, 204, "request {request}: {text}");
        }
    }

    /// Compares all stored samples with the book, and adds the outcome of requests without a
    /// response; returns the number of samples.
    fn check(&mut self, address: &str) -> usize;
    fn book(&self) -> &Book;
    fn book_mut(&mut self) -> &mut Book;
}

/// Location of stores.
enum Place {
    Disk,
    Bucket(S3Server),
    Emulator(Emulator),
}

/// A store at a location.
struct Site {
    url: String,
    /// Folder of its files, if they are on a disk.
    folder: Option<PathBuf>,
    /// Environment variables of its processes.
    variables: Vec<(&'static str, String)>,
    /// Size of the log: small, so that kills hit sealing, too, and smaller for slow stores.
    log_bytes: u32,
}

impl Place {
    /// A store with a name.
    fn site(&self, folder: &Path, name: &str) -> Site {
        match self {
            Place::Disk => {
                let folder = folder.join(name);
                let url = folder.display().to_string();
                Site { url, folder: Some(folder), variables: Vec::new(), log_bytes: 16 << 10 }
            }
            Place::Bucket(server) => {
                let url = format!("s3://{BUCKET}/store/{name}");
                let folder = server.folder().map(|folder| folder.join("store").join(name));
                Site { url, folder, variables: server.variables(), log_bytes: 1 << 10 }
            }
            Place::Emulator(emulator) => {
                let url = format!("{}/store/{name}", emulator.url);
                let variables = emulator.variables.clone();
                Site { url, folder: None, variables, log_bytes: 1 << 10 }
            }
        }
    }
}

impl Site {
    /// Returns the command that starts the binary on the store.
    fn command(&self) -> Command {
        let log = format!("--storage.log-size={}", self.log_bytes);
        // A small ring, so that exemplars make room.
        let ring = format!("--storage.exemplars.exemplars-limit={}", everything::RING);
        let variables = self.variables.iter().map(|(name, value)| (*name, value.as_str()));
        let variables: Vec<(&str, &str)> = variables.collect();
        command(&self.url, &["--self-metrics=false", &log, &ring], &variables)
    }

    fn start(&self) -> Server {
        let server = Server::spawn(&mut self.command());
        server.wait_until_ready();
        server
    }
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// A metric without labels, as the server shows it.
fn metric(address: &str, name: &str) -> f64 {
    let (_, text) = get(address, "/metrics");
    let figure = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    figure.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

/// The `data` of an answer of the API.
fn data(address: &str, path: &str, parameters: &[(&str, &str)]) -> Value {
    let encoded =
        parameters.iter().map(|(name, value)| format!("{name}={}", percent_encode(value)));
    let path = format!("/api/v1/{path}?{}", encoded.collect::<Vec<_>>().join("&"));
    let (status, text) = get(address, &path);
    assert_eq!(status, 200, "{path}: {text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    for of in ["warnings", "infos"] {
        assert!(answer[of].is_null(), "{path}: {}", answer[of]);
    }
    answer["data"].clone()
}

fn number_from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Kills processes on stores at a location, and checks all stored samples after each start.
fn kill_and_check(name: &str, place: &Place, kills: u64) {
    let default_seed = if kills > KILLS { now_ms() as u64 } else { 1 };
    let seed = number_from_environment("CRASH_SEED", default_seed);
    eprintln!("{name}: CRASH_SEED={seed} for {kills} kills");
    let directory = temporary_directory(&format!("crash-{name}"));
    let mut random = Random(seed);
    let (mut acknowledged, mut stored) = (0, 0);
    for (number, first) in (0..kills).step_by(KILLS_PER_STORE as usize).enumerate() {
        let [site, whole] =
            ["", "-whole"].map(|what| place.site(directory.path(), &format!("{number}{what}")));
        // A long run also checks that leftovers of crashes are deleted.
        let whole = (kills > KILLS_PER_STORE).then_some(&whole);
        let count = KILLS_PER_STORE.min(kills - first);
        let (more_acknowledged, more_stored) = one_store(&site, count, whole, &mut random);
        acknowledged += more_acknowledged;
        stored += more_stored;
        println!(
            "{name}: {} kills, {acknowledged} requests acknowledged, {stored} samples stored",
            first + count
        );
    }
    assert!(acknowledged >= kills as usize, "the load was too small");
}

/// Returns the number of acknowledged requests, and of samples at the end. `whole` is the location
/// of a store with the same samples that is not killed.
fn one_store(site: &Site, kills: u64, whole: Option<&Site>, random: &mut Random) -> (usize, usize) {
    let mut senders: Vec<Box<dyn Sender>> = Vec::new();
    for index in 0..floats::SENDER_COUNT {
        senders.push(Box::new(Floats::new(index, random.below(u64::MAX))));
    }
    senders.push(Box::new(Everything::new(random.below(u64::MAX))));

    for _ in 0..kills {
        if random.below(5) == 0 {
            let mut server = Server::spawn(&mut site.command());
            std::thread::sleep(Duration::from_millis(random.below(START_MS_MAX)));
            server.child.0.kill().unwrap();
            server.child.0.wait().unwrap();
        }
        let mut server = site.start();
        let address = server.address.clone();
        for sender in &mut senders {
            sender.check(&address);
        }
        let is_long = whole.is_some() && random.below(12) == 0;
        let life_ms = random.below(if is_long { LONG_LIFE_MS_MAX } else { LIFE_MS_MAX });
        let acknowledged = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for sender in &mut senders {
                scope.spawn(|| sender.run(&address, &acknowledged));
            }
            let started = Instant::now();
            while acknowledged.load(Ordering::Relaxed) == 0 && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(life_ms));
            server.child.0.kill().unwrap();
            server.child.0.wait().unwrap();
        });
    }

    let server = site.start();
    let stored: usize = senders.iter_mut().map(|sender| sender.check(&server.address)).sum();
    let partitions = metric(&server.address, "tessella_storage_partitions");
    assert!(kills < KILLS || partitions >= 1.0, "nothing was sealed between the kills");
    // A second read returns the same.
    let again: usize = senders.iter_mut().map(|sender| sender.check(&server.address)).sum();
    assert_eq!(stored, again);
    drop(server);
    if let Some(whole) = whole {
        leftovers::check(site, whole, &senders);
    }
    let fates = senders.iter().flat_map(|sender| &sender.book().fates);
    (fates.filter(|fate| **fate == Fate::Acknowledged).count(), stored)
}

#[test]
fn acknowledged_requests_on_a_disk_survive_kills() {
    kill_and_check("disk", &Place::Disk, number_from_environment("CRASH_KILLS", KILLS));
}

#[test]
fn acknowledged_requests_on_versitygw_survive_kills() {
    let kills = number_from_environment("CRASH_KILLS_S3", KILLS_S3);
    if let Some(server) = S3Server::versitygw("crash") {
        kill_and_check("versitygw", &Place::Bucket(server), kills);
    }
}

#[test]
fn acknowledged_requests_on_moto_survive_kills() {
    let kills = number_from_environment("CRASH_KILLS_S3", KILLS_S3);
    if let Some(server) = S3Server::moto("crash") {
        kill_and_check("moto", &Place::Bucket(server), kills);
    }
}

#[test]
fn acknowledged_requests_on_azurite_survive_kills() {
    let kills = number_from_environment("CRASH_KILLS_S3", KILLS_S3);
    if let Some(emulator) = Emulator::azurite("crash") {
        kill_and_check("azurite", &Place::Emulator(emulator), kills);
    }
}

#[test]
fn acknowledged_requests_on_fake_gcs_server_survive_kills() {
    let kills = number_from_environment("CRASH_KILLS_S3", KILLS_S3);
    if let Some(emulator) = Emulator::fake_gcs("crash") {
        kill_and_check("fake-gcs-server", &Place::Emulator(emulator), kills);
    }
}

fn one_sample(time_ms: i64, value: f64) -> Vec<u8> {
    let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
    encoder.push(&encode_labels([("__name__", "fence_samples")]), [(time_ms, value)]);
    encoder.compress(&mut body);
    body
}

#[test]
fn a_writer_that_takes_over_fences_off_the_first() {
    let Some(bucket) = S3Server::versitygw("fence") else { return };
    let url = format!("s3://{BUCKET}/fence");
    let variables = bucket.variables();
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut first = Server::start_on(&url, &["--self-metrics=false"], &variables);
    let time_ms = now_ms() - 60_000;
    let mut to_first = Connection::open(&first.address).unwrap();
    assert_eq!(to_first.write(&one_sample(time_ms, 1.0)).unwrap().0, 204);

    let args = ["--self-metrics=false", "--take-over"];
    let second = Server::start_on(&url, &args, &variables);
    // The process may have ended already.
    if let Ok((status, text)) = to_first.write(&one_sample(time_ms + 1, 2.0)) {
        assert_eq!(status, 503, "{text}");
    }
    let (ended, log) = first.wait();
    assert_eq!(ended.code(), Some(3), "{log}");
    let last = log.lines().last().unwrap_or("");
    assert!(last.contains("has lost its store and has stopped"), "{log}");

    let mut to_second = Connection::open(&second.address).unwrap();
    assert_eq!(to_second.write(&one_sample(time_ms + 2, 3.0)).unwrap().0, 204);
    let answer = data(&second.address, "query", &[("query", "fence_samples[1h]")]);
    let values = answer["result"][0]["values"].as_array().unwrap().iter();
    let values: Vec<&str> = values.map(|pair| pair[1].as_str().unwrap()).collect();
    // The refused sample must not be stored.
    assert_eq!(values, ["1", "3"]);
}
