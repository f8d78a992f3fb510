//! Standbys that replace a writer under load: it is killed, hangs, is stopped, or is replaced on
//! command. Everything acknowledged is there afterwards, exactly once, and no query fails.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::nodes::{Contents, METRIC, Processes, encoded, query, read};
use crate::readers::post;
use crate::{now_ms, wait_for};
use testkit::remote_write::Connection;
use testkit::s3::S3Server;
use testkit::{Server, binary, free_port, get, temporary_directory};

/// The lease is longer than a writer may stall on a busy machine.
const STANDBY: [&str; 4] = [
    "--mode=standby",
    "--storage.lease-duration=10s",
    "--reader.lag=400ms",
    "--web.enable-lifecycle",
];
/// Number of series; each write has a sample of all.
const SERIES: u32 = 4;
/// Series in the head of a measured failover; `STANDBY_SERIES` sets another number.
const HEAD_SERIES: u32 = 2_000;
/// Number of series in a request that fills the head.
const SERIES_PER_WRITE: u32 = 1_000;
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
                |series| (series, [(time_ms, (number * 10 + i64::from(series)) as f64)].into());
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

    /// Queries two servers until it is done: the second one if the first one does not answer. No
    /// query fails at both.
    fn ask_both(&self, addresses: &[&str; 2]) -> u64 {
        let mut queries = 0;
        while !self.is_done.load(Ordering::SeqCst) {
            let [first, second] = match queries % 2 {
                0 => *addresses,
                _ => [addresses[1], addresses[0]],
            };
            let answers = [first, second].map(|address| answer_of(address).is_ok());
            assert!(answers.contains(&true), "no server answers queries");
            queries += 1;
        }
        queries
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

/// Queries a server, which may be away.
fn answer_of(address: &str) -> Result<(), String> {
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    let path = format!("/api/v1/query?query=count({METRIC})");
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let sent = stream.write_all(head.as_bytes());
    let read = sent.and_then(|()| stream.read_to_string(&mut answer));
    read.map_err(|error| error.to_string())?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
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
    assert!(get(&standby.address, "/metrics").1.contains("\ntessella_reader_lag_seconds "));
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
    assert!(get(&standby.address, "/metrics").1.contains("\ntessella_reader_lag_seconds 0\n"));
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
    assert_eq!((status, text.as_str()), (200, "This server is the writer.\n"));
    let reader = place.start(&["--mode=reader", "--web.enable-lifecycle"]);
    let (status, text) = post(&reader, "/-/promote");
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

/// Starts a standby from a binary at an address that the next version of it uses, too.
fn start_version(place: &Processes, binary: &OsString, address: &str) -> Server {
    let listen = format!("--web.listen-address={address}");
    let standby = place.command(&STANDBY);
    let mut command = Command::new(binary);
    // Without the address that the test kit chooses.
    command.args(standby.get_args().skip(1)).arg(listen);
    command.envs(standby.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let server = Server::spawn(&mut command);
    server.wait_until_ready();
    server
}

fn stop(mut server: Server) {
    signal(&server, "-TERM");
    assert!(server.child.0.wait().unwrap().success());
}

#[test]
fn a_rolling_upgrade_fails_no_write_and_no_query() {
    let Some(s3) = S3Server::versitygw("rolling-upgrade") else { return };
    let place = Processes::on_s3(&s3);
    let folder = temporary_directory("rolling-upgrade");
    let (old, new) = (binary(), folder.path().join("tessella").into_os_string());
    std::fs::copy(&old, &new).unwrap();
    let [first, second] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let mut writer = start_version(&place, &old, &first);
    wait_for("writer", || accepts_writes(&writer));
    let standby = start_version(&place, &old, &second);
    let load = Load::starting_at(now_ms() / 1000 * 1000 - 3_600_000);
    let addresses = [first.as_str(), second.as_str()];
    let (sent, gap, queries, upgraded) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| load.send(&addresses));
        let asking = scope.spawn(|| load.ask_both(&addresses));
        load.wait_for_progress();
        // The standby first, then the writer.
        stop(standby);
        let upgraded = start_version(&place, &new, &second);
        load.wait_for_progress();
        let (status, text) = post(&upgraded, "/-/promote");
        assert_eq!(status, 200, "{text}");
        let (status, log) = writer.wait();
        assert_eq!(status.code(), Some(3), "{log}");
        let other = start_version(&place, &new, &first);
        assert!(accepts_writes(&upgraded) && !accepts_writes(&other));
        load.wait_for_progress();
        load.is_done.store(true, Ordering::SeqCst);
        let (sent, gap) = sending.join().unwrap();
        (sent, gap, asking.join().unwrap(), [upgraded, other])
    });
    assert!(queries > 0);
    eprintln!("upgrade: no write was acknowledged for {gap:?}");
    assert_eq!(read(&upgraded[0].address), sent);
    let [upgraded, other] = upgraded;
    wait_for("samples at the standby", || read(&other.address) == sent);
    stop(upgraded);
    wait_for("writer", || accepts_writes(&other));
    assert_eq!(read(&other.address), sent);
}

/// Fills the head of a writer.
fn fill(writer: &Server, series: u32, time_ms: i64) {
    let mut sender = Connection::open(&writer.address).unwrap();
    for first in (0..series).step_by(SERIES_PER_WRITE as usize) {
        let numbers = first..(first + SERIES_PER_WRITE).min(series);
        let of = |number: u32| (1_000 + number, (0..4).map(|n| (time_ms + n * 15_000, 1.0)));
        let write: Contents = numbers.map(|n| (of(n).0, of(n).1.collect())).collect();
        assert_eq!(sender.write(&encoded(&write)).unwrap().0, 204);
    }
}

/// Prints the time without acknowledgements for each end, with a standby, and with a second writer
/// that waits and starts cold.
#[test]
fn every_failover_keeps_a_filled_head() {
    let Some(s3) = S3Server::versitygw("write-gap") else { return };
    let place = Processes::on_s3(&s3);
    let series = std::env::var("STANDBY_SERIES").ok().and_then(|text| text.parse().ok());
    let series = series.unwrap_or(HEAD_SERIES);
    let base_ms = now_ms() / 1000 * 1000 - 3_600_000;
    let mut writer = place.start(&STANDBY);
    wait_for("writer", || accepts_writes(&writer));
    fill(&writer, series, base_ms);
    let waiting = ["--storage.lease-duration=10s", "--web.enable-lifecycle"];
    let ends = [
        (true, End::Stopped),
        (true, End::Killed),
        (true, End::Replaced),
        (false, End::Stopped),
        (false, End::Killed),
    ];
    for (round, (is_warm, how)) in ends.into_iter().enumerate() {
        let next = match is_warm {
            true => place.start(&STANDBY),
            false => Server::spawn(&mut place.command(&waiting)),
        };
        let load = Load::starting_at(base_ms + (round as i64 + 1) * 100_000);
        let addresses = [writer.address.clone(), next.address.clone()];
        let addresses = [addresses[0].as_str(), addresses[1].as_str()];
        let gap = std::thread::scope(|scope| {
            let sending = scope.spawn(|| load.send(&addresses));
            load.wait_for_progress();
            end(writer, &next, how);
            load.wait_for_progress();
            load.is_done.store(true, Ordering::SeqCst);
            sending.join().unwrap().1
        });
        let kind = if is_warm { "standby" } else { "cold start" };
        eprintln!("{series} series, {how:?}, {kind}: no write was acknowledged for {gap:?}");
        let at = base_ms / 1000 + 45;
        let count = format!("/api/v1/query?query=count({METRIC}%20%40%20{at})");
        let (_, text) = get(&next.address, &count);
        assert!(text.contains(&format!("\"{series}\"]")), "{text}");
        writer = next;
    }
}
