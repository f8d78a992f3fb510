//! Standbys that replace a writer under load: it is killed, hangs, is stopped, or is replaced on
//! command. Everything acknowledged is there afterwards, exactly once, and no query fails.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::nodes::{Contents, Processes, encoded, query, read};
use crate::readers::post;
use crate::{now_ms, wait_for};
use testkit::remote_write::Connection;
use testkit::s3::S3Server;
use testkit::{Server, get, temporary_directory};

const STANDBY: [&str; 4] = [
    "--mode=standby",
    "--storage.lease-duration=3s",
    "--reader.lag=400ms",
    "--web.enable-lifecycle",
];
/// Number of series; each write has a sample of all.
const SERIES: u32 = 4;
/// Number of acknowledged writes that count as progress.
const PROGRESS: u64 = 20;
/// Interval between attempts to send a refused write.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// End of a writer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Killed,
    Hanging,
    Stopped,
    Replaced,
}

/// Sender that repeats each write until it is acknowledged, at one server after the other.
struct Load {
    first_ms: i64,
    acknowledged: AtomicU64,
    is_done: AtomicBool,
}

impl Load {
    fn starting_at(first_ms: i64) -> Load {
        Load { first_ms, acknowledged: AtomicU64::new(0), is_done: AtomicBool::new(false) }
    }

    /// Sends until it is done. Returns the samples, all of them acknowledged, and the longest time
    /// between two acknowledgements.
    fn send(&self, addresses: &[&str]) -> (Contents, Duration) {
        let (mut sent, mut longest, mut last) = (Contents::new(), Duration::ZERO, Instant::now());
        let mut connections: Vec<Option<Connection>> = addresses.iter().map(|_| None).collect();
        let mut at = 0;
        while !self.is_done.load(Ordering::SeqCst) {
            let number = self.acknowledged.load(Ordering::SeqCst) as i64;
            let time_ms = self.first_ms + number;
            let sample =
                |series| (series, [(time_ms, (number * 10 + series as i64) as f64)].into());
            let write: Contents = (0..SERIES).map(sample).collect();
            let body = encoded(&write);
            while let Err(refusal) = send_once(addresses[at], &mut connections[at], &body) {
                connections[at] = None;
                assert!(!refusal.starts_with("refused for good"), "{refusal}");
                at = (at + 1) % addresses.len();
                std::thread::sleep(RETRY_INTERVAL);
            }
            longest = longest.max(last.elapsed());
            last = Instant::now();
            for (series, samples) in write {
                sent.entry(series).or_default().extend(samples);
            }
            self.acknowledged.fetch_add(1, Ordering::SeqCst);
        }
        (sent, longest)
    }

    /// Queries a server until it is done: no query fails, and samples do not disappear.
    fn ask(&self, address: &str) -> u64 {
        let (mut queries, mut seen) = (0, 0);
        while !self.is_done.load(Ordering::SeqCst) {
            let (status, text) = query(address);
            assert_eq!(status, 200, "{text}");
            let found = text.matches("[1").count();
            assert!(found >= seen, "{found} samples are visible after {seen}");
            seen = found;
            queries += 1;
        }
        queries
    }

    fn wait_for_progress(&self) {
        let target = self.acknowledged.load(Ordering::SeqCst) + PROGRESS;
        wait_for("progress", || self.acknowledged.load(Ordering::SeqCst) >= target);
    }
}

fn send_once(
    address: &str,
    connection: &mut Option<Connection>,
    body: &[u8],
) -> Result<(), String> {
    if connection.is_none() {
        *connection = Some(Connection::open(address).map_err(|error| error.to_string())?);
    }
    let connection = connection.as_mut().unwrap();
    match connection.write(body) {
        Ok((204, _)) => Ok(()),
        Ok((503, text)) => Err(text),
        Ok((status, text)) => Err(format!("refused for good with {status}: {text}")),
        Err(error) => Err(error.to_string()),
    }
}

fn accepts_writes(server: &Server) -> bool {
    get(&server.address, "/-/ready?for=writes").0 == 200
}

fn signal(server: &Server, name: &str) {
    let process = server.child.0.id().to_string();
    assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
}

/// Ends the writer while its standby stands by, and checks the way in which it ends.
fn end(mut writer: Server, standby: &Server, how: End) {
    match how {
        End::Killed => writer.child.0.kill().unwrap(),
        End::Hanging => signal(&writer, "-STOP"),
        End::Stopped => signal(&writer, "-TERM"),
        End::Replaced => {
            let (status, text) = post(standby, "/-/promote");
            assert_eq!(status, 200, "{text}");
            assert!(accepts_writes(standby), "at once");
        }
    }
    wait_for("writer", || accepts_writes(standby));
    if how == End::Hanging {
        // It finds its store taken over.
        signal(&writer, "-CONT");
    }
    let (status, log) = writer.wait();
    let expected = match how {
        End::Killed => None,
        End::Stopped => Some(0),
        End::Hanging | End::Replaced => Some(3),
    };
    assert_eq!(status.code(), expected, "{log}");
}

/// Replaces the writer by a standby under load. Returns the standby and what was sent.
fn replace(place: &Processes, writer: Server, how: End, first_ms: i64) -> (Server, Contents) {
    let standby = place.start(&STANDBY);
    assert!(accepts_writes(&writer) && !accepts_writes(&standby));
    let load = Load::starting_at(first_ms);
    let addresses = [writer.address.clone(), standby.address.clone()];
    let addresses = [addresses[0].as_str(), addresses[1].as_str()];
    let (sent, gap, queries) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| load.send(&addresses));
        let asking = scope.spawn(|| load.ask(addresses[1]));
        load.wait_for_progress();
        end(writer, &standby, how);
        load.wait_for_progress();
        load.is_done.store(true, Ordering::SeqCst);
        let (sent, gap) = sending.join().unwrap();
        (sent, gap, asking.join().unwrap())
    });
    assert!(queries > 0);
    eprintln!("{how:?}: no write was acknowledged for {gap:?}");
    assert!(standby.log().contains("this standby has become the writer"), "with its head");
    (standby, sent)
}

/// Replaces writers in all ways that are given, and reads everything after each.
fn suite(place: &Processes, ends: &[End]) {
    let base_ms = now_ms() / 1000 * 1000 - 3_600_000;
    // The first one creates the store.
    let mut writer = place.start(&STANDBY);
    wait_for("writer", || accepts_writes(&writer));
    let mut all = Contents::new();
    for (round, how) in ends.iter().enumerate() {
        let (standby, sent) = replace(place, writer, *how, base_ms + round as i64 * 600_000);
        for (series, samples) in sent {
            all.entry(series).or_default().extend(samples);
        }
        assert_eq!(read(&standby.address), all, "{how:?}");
        writer = standby;
    }
    signal(&writer, "-TERM");
    assert!(writer.child.0.wait().unwrap().success());
    // From the log.
    assert_eq!(read(&place.start(&[]).address), all);
}

#[test]
fn a_standby_on_disk_replaces_a_writer_that_ends() {
    let folder = temporary_directory("standby");
    suite(&Processes::on_disk(folder.path()), &[End::Killed, End::Stopped]);
}

#[test]
fn a_standby_in_a_bucket_replaces_any_writer() {
    if let Some(server) = S3Server::versitygw("standby") {
        let ends = [End::Killed, End::Replaced, End::Stopped, End::Hanging];
        suite(&Processes::on_s3(&server), &ends);
    }
}

#[test]
fn one_of_two_standbys_becomes_the_writer_and_the_other_follows_it() {
    let Some(s3) = S3Server::versitygw("two-standbys") else { return };
    let place = Processes::on_s3(&s3);
    let mut writer = place.start(&STANDBY);
    wait_for("writer", || accepts_writes(&writer));
    let mut others = vec![place.start(&STANDBY), place.start(&STANDBY)];
    let base_ms = now_ms() / 1000 * 1000 - 3_600_000;
    let mut all = Contents::new();
    while !others.is_empty() {
        let number = others.len() as i64;
        let sample = |series| (series, [(base_ms + number, number as f64)].into());
        let write: Contents = (0..SERIES).map(sample).collect();
        let mut sender = Connection::open(&writer.address).unwrap();
        assert_eq!(sender.write(&encoded(&write)).unwrap().0, 204);
        for (series, samples) in write {
            all.entry(series).or_default().extend(samples);
        }
        writer.child.0.kill().unwrap();
        writer.child.0.wait().unwrap();
        wait_for("writer", || others.iter().any(accepts_writes));
        assert_eq!(others.iter().filter(|other| accepts_writes(other)).count(), 1);
        let next = others.iter().position(accepts_writes).unwrap();
        writer = others.remove(next);
        assert_eq!(read(&writer.address), all);
        for other in &others {
            wait_for("samples at the standby", || read(&other.address) == all);
        }
    }
}

#[test]
fn only_a_standby_is_promoted_and_never_from_a_working_writer_on_disk() {
    let folder = temporary_directory("no-promotion");
    let place = Processes::on_disk(folder.path());
    let writer = place.start(&["--web.enable-lifecycle"]);
    let (status, text) = post(&writer, "/-/promote");
    assert_eq!(status, 409, "{text}");
    let standby = place.start(&STANDBY);
    let (status, text) = post(&standby, "/-/promote");
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("the store is in use by another process"), "{text}");
    assert!(accepts_writes(&writer) && !accepts_writes(&standby));
    assert_eq!(get(&standby.address, "/-/ready").0, 200);
    assert_eq!(get(&standby.address, "/-/ready?for=reads").0, 400);
    assert_eq!(get(&standby.address, "/-/promote").0, 405);
    let closed = place.start(&["--mode=standby"]);
    assert_eq!(post(&closed, "/-/promote").0, 403, "the lifecycle API is off");
}
