//! `kill -9` at seeded moments of a write load: no acknowledged sample is lost, none is doubled
//! or altered. And a second writer on the same store fences off the first.
//!
//! `CRASH_SEED` sets the seed, `CRASH_SECONDS` how long the load goes on (15 by default).

#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

#[path = "support/remote_write.rs"]
mod remote_write;
mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use remote_write::{Connection, RequestEncoder, encode_labels};
use serde_json::Value;
use support::{Server, get, percent_encode, temporary_directory};

const SENDER_COUNT: usize = 4;
const SERIES_PER_SENDER: usize = 20;
const SAMPLES_PER_SERIES: i64 = 5;
/// When each sender's first sample was taken, in hours before now, and how far its samples
/// are apart: open windows, closed ones, and partitions of days before.
const AGES_AND_STEPS: [(i64, i64); SENDER_COUNT] = [(1, 1), (26, 1_000), (5, 250), (40, 1_000)];
/// The life of a server between two kills.
const LIFE_MS_MAX: u64 = 2_000;

/// Small numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What became of the request with a number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Acknowledged,
    /// Sent, and perhaps stored.
    Unknown,
}

/// One sender with its own series, and its book of what it has sent.
struct Sender {
    index: usize,
    labels: Vec<Vec<u8>>,
    /// The time of the first sample of its first request.
    start_ms: i64,
    step_ms: i64,
    fates: Vec<Fate>,
    random: Random,
}

impl Sender {
    fn new(index: usize, now_ms: i64, seed: u64) -> Sender {
        let labels = (0..SERIES_PER_SENDER).map(|series| {
            encode_labels([
                ("__name__", "crash_samples"),
                ("sender", &format!("s{index}")),
                ("series", &format!("{series:03}")),
            ])
        });
        let (age_hours, step_ms) = AGES_AND_STEPS[index];
        Sender {
            index,
            labels: labels.collect(),
            start_ms: now_ms - age_hours * 3_600_000,
            step_ms,
            fates: Vec::new(),
            random: Random(seed),
        }
    }

    /// The time of a sample. Requests of the last sender go back in time in pairs.
    fn time_ms(&self, request: usize, sample: i64) -> i64 {
        let request = if self.index == SENDER_COUNT - 1 { request ^ 1 } else { request };
        self.start_ms + (request as i64 * SAMPLES_PER_SERIES + sample) * self.step_ms
    }

    /// A value that no other sample of its series has.
    fn value(&self, series: usize, time_ms: i64) -> f64 {
        let number = (time_ms - self.start_ms) / self.step_ms;
        (number * 1_000 + (self.index * SERIES_PER_SENDER + series) as i64) as f64 + 0.5
    }

    /// Sends until the server is gone. What stayed without an answer is sent again at the next
    /// life, or left as it is, by chance.
    fn run(&mut self, address: &str) {
        let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
        let Ok(mut connection) = Connection::open(address) else {
            return;
        };
        let mut request = self.fates.len();
        if self.fates.last() == Some(&Fate::Unknown) && self.random.below(2) == 0 {
            request -= 1;
        }
        loop {
            encoder.clear();
            for (series, labels) in self.labels.iter().enumerate() {
                let samples = (0..SAMPLES_PER_SERIES).map(|sample| {
                    let time_ms = self.time_ms(request, sample);
                    (time_ms, self.value(series, time_ms))
                });
                encoder.push(labels, samples);
            }
            encoder.compress(&mut body);
            self.fates.resize(self.fates.len().max(request + 1), Fate::Unknown);
            match connection.write(&body) {
                Ok((204, _)) => self.fates[request] = Fate::Acknowledged,
                Ok((status, text)) => panic!("sender {}: {status} {text}", self.index),
                Err(_) => return,
            }
            request += 1;
        }
    }

    /// Compares everything that is stored with the book; returns how much that was.
    fn check(&self, address: &str) -> usize {
        let stored = self.stored(address);
        for series in 0..SERIES_PER_SENDER {
            let empty = BTreeMap::new();
            let samples = stored.get(&format!("{series:03}")).unwrap_or(&empty);
            let mut found = 0;
            for (request, fate) in self.fates.iter().enumerate() {
                for sample in 0..SAMPLES_PER_SERIES {
                    let time_ms = self.time_ms(request, sample);
                    match samples.get(&time_ms) {
                        Some(value) => {
                            assert_eq!(*value, self.value(series, time_ms), "altered at {time_ms}");
                            found += 1;
                        }
                        None => assert_eq!(
                            *fate,
                            Fate::Unknown,
                            "sender {} series {series} lost the sample at {time_ms} of request \
                             {request} of {}",
                            self.index,
                            self.fates.len()
                        ),
                    }
                }
            }
            assert_eq!(found, samples.len(), "samples that nobody sent");
        }
        stored.values().map(BTreeMap::len).sum()
    }

    /// Samples by series and time. Asserts that no time occurs twice.
    fn stored(&self, address: &str) -> BTreeMap<String, BTreeMap<i64, f64>> {
        let query = format!("crash_samples{{sender=\"s{}\"}}[2d]", self.index);
        let (status, text) =
            get(address, &format!("/api/v1/query?query={}", percent_encode(&query)));
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let result = answer["data"]["result"].as_array().unwrap();
        let mut stored = BTreeMap::new();
        for series in result {
            let mut samples = BTreeMap::new();
            for pair in series["values"].as_array().unwrap() {
                let time_ms = (pair[0].as_f64().unwrap() * 1_000.0).round() as i64;
                let value = pair[1].as_str().unwrap().parse().unwrap();
                assert_eq!(samples.insert(time_ms, value), None, "doubled at {time_ms}");
            }
            let name = series["metric"]["series"].as_str().unwrap().to_owned();
            assert!(stored.insert(name, samples).is_none(), "one series twice");
        }
        stored
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

fn number_from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn acknowledged_samples_survive_kills() {
    let seed = number_from_environment("CRASH_SEED", now_ms() as u64);
    let load = Duration::from_secs(number_from_environment("CRASH_SECONDS", 15));
    eprintln!("CRASH_SEED={seed}");
    let directory = temporary_directory("crash");
    // A small log, so that kills hit sealing too.
    let args = ["--self-metrics=false", "--storage.log-size=64KiB"];
    let mut random = Random(seed);
    let mut senders: Vec<Sender> = (0..SENDER_COUNT)
        .map(|index| Sender::new(index, now_ms(), seed ^ (index as u64 + 1)))
        .collect();

    let started = Instant::now();
    let mut kills = 0;
    while started.elapsed() < load || kills < 3 {
        let mut server = Server::start(directory.path(), &args);
        let address = server.address.clone();
        std::thread::scope(|scope| {
            for sender in &mut senders {
                scope.spawn(|| sender.run(&address));
            }
            std::thread::sleep(Duration::from_millis(random.below(LIFE_MS_MAX)));
            server.child.0.kill().unwrap();
            server.child.0.wait().unwrap();
        });
        kills += 1;
    }

    let server = Server::start(directory.path(), &args);
    let acknowledged: usize = senders
        .iter()
        .map(|sender| sender.fates.iter().filter(|fate| **fate == Fate::Acknowledged).count())
        .sum();
    let stored: usize = senders.iter().map(|sender| sender.check(&server.address)).sum();
    eprintln!("{kills} kills, {acknowledged} requests acknowledged, {stored} samples stored");
    assert!(acknowledged > kills, "the load was too small to tell anything");
    let partitions = metric(&server.address, "tessella_storage_partitions");
    assert!(partitions >= 1.0, "nothing was sealed between the kills");
    // Nothing that is read twice differs, and nothing was repaired by reading.
    let again: usize = senders.iter().map(|sender| sender.check(&server.address)).sum();
    assert_eq!(stored, again);
}

fn one_sample(time_ms: i64, value: f64) -> Vec<u8> {
    let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
    encoder.push(&encode_labels([("__name__", "fence_samples")]), [(time_ms, value)]);
    encoder.compress(&mut body);
    body
}

#[test]
fn a_second_writer_fences_off_the_first() {
    let directory = temporary_directory("fence");
    let args = ["--self-metrics=false"];
    let first = Server::start(directory.path(), &args);
    let time_ms = now_ms() - 60_000;
    let mut to_first = Connection::open(&first.address).unwrap();
    assert_eq!(to_first.write(&one_sample(time_ms, 1.0)).unwrap().0, 204);

    let second = Server::start(directory.path(), &args);
    let (status, text) = to_first.write(&one_sample(time_ms + 1, 2.0)).unwrap();
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("another process has taken over this store"), "{text}");

    let mut to_second = Connection::open(&second.address).unwrap();
    assert_eq!(to_second.write(&one_sample(time_ms + 2, 3.0)).unwrap().0, 204);
    let query = percent_encode("fence_samples[1h]");
    let (_, text) = get(&second.address, &format!("/api/v1/query?query={query}"));
    let answer: Value = serde_json::from_str(&text).unwrap();
    let values = answer["data"]["result"][0]["values"].as_array().unwrap().iter();
    let values: Vec<&str> = values.map(|pair| pair[1].as_str().unwrap()).collect();
    // The sample that was refused may have been stored just before the fence fell; it was not.
    assert_eq!(values, ["1", "3"]);
}
