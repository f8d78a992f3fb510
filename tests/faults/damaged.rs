//! Damaged objects of a store on a local disk, over HTTP: bits flipped, truncated, missing, or
//! replaced by another one. Either the server does not start and names the damaged object, or each
//! response is correct or an error that names it. No response is silently incomplete.
//!
//! `DAMAGE_SEED` sets which cases are tried, `DAMAGE_CASES` how many (0: all).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{now_ms, wait_for};
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Child, Server, binary, free_port, get, percent_encode, temporary_directory};

/// Cases of an ordinary run.
const CASES: usize = 24;
const DAY_MS: i64 = 86_400_000;
const DAYS: i64 = 3;
const SERIES: usize = 4;
const ARGS: [&str; 2] = ["--self-metrics=false", "--storage.log-size=1"];

/// Queries: paths, and the responses of an intact store.
type Questions = Vec<(String, Value)>;

fn metric(address: &str, name: &str) -> f64 {
    let (_, text) = get(address, "/metrics");
    let figure = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    figure.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
}

/// Writes a few samples of each day, with an exemplar each.
fn write(server: &Server, now_ms: i64, round: i64) {
    let mut connection = Connection::open(&server.address).unwrap();
    for day in 0..DAYS {
        let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
        for series in 0..SERIES {
            let labels =
                encode_labels([("__name__", "damaged_samples"), ("series", &series.to_string())]);
            let start_ms = now_ms - (DAYS - day) * DAY_MS + round * 60_000;
            let samples = (0..5).map(|n| (start_ms + n * 1000, (round * 10 + n) as f64));
            // Exemplars of a series have to be in order.
            let trace = encode_labels([("trace_id", &format!("{round}.{day}"))]);
            let exemplar = (trace, now_ms - DAY_MS + round * 60_000 + day, 1.0);
            encoder.push_with_exemplars(&labels, samples, [exemplar]);
        }
        encoder.compress(&mut body);
        let (status, text) = connection.write(&body).unwrap();
        assert_eq!(status, 204, "{text}");
    }
}

/// A store of several days with several sorted runs, with a replayed log and a later one; and all
/// queries to it.
fn whole_store(folder: &Path) -> Questions {
    let now_ms = now_ms() / 60_000 * 60_000;
    for round in 0..3 {
        let mut server = Server::start(folder, &ARGS);
        write(&server, now_ms, round);
        wait_for("seal", || metric(&server.address, "tessella_storage_seals_total") >= 1.0);
        let process = server.child.0.id().to_string();
        assert!(Command::new("kill").arg(process).status().unwrap().success());
        assert!(server.child.0.wait().unwrap().success());
    }
    for round in 3..5 {
        let server = Server::start(folder, &["--self-metrics=false"]);
        write(&server, now_ms, round);
    }
    let server = Server::start(folder, &["--self-metrics=false"]);
    let mut paths = vec!["/api/v1/metadata".to_owned()];
    let (start, end) = (now_ms / 1000 - (DAYS + 1) * 86_400, now_ms / 1000);
    let between = format!("start={start}&end={end}");
    let all = percent_encode("{__name__=~\"damaged.*\"}");
    paths.push(format!("/api/v1/query_exemplars?query={all}&{between}"));
    paths.push(format!("/api/v1/series?match[]={all}&{between}"));
    paths.push(format!("/api/v1/label/series/values?match[]={all}&{between}"));
    for series in 0..SERIES {
        for day in 0..DAYS {
            let text = format!("damaged_samples{{series=\"{series}\"}}[1d]");
            let time = now_ms / 1000 - (DAYS - day - 1) * 86_400 - 1;
            paths.push(format!("/api/v1/query?query={}&time={time}", percent_encode(&text)));
        }
    }
    paths.push(format!(
        "/api/v1/query?query={}",
        percent_encode("damaged_samples{series=~\"[12]\"}[9d]")
    ));
    let ask = |path: String| {
        let (status, text) = get(&server.address, &path);
        assert_eq!(status, 200, "{path}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        (path, answer["data"].clone())
    };
    let questions: Questions = paths.into_iter().map(ask).collect();
    assert_eq!(questions.iter().filter(|(_, data)| data["result"][0].is_null()).count(), 4);
    questions
}

/// All objects of a store.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.join("tessella")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found.into_iter().map(|path| path.strip_prefix(folder).unwrap().to_owned()).collect()
}

#[derive(Debug, Clone)]
enum Damage {
    Gone,
    Cut(usize),
    Flipped(usize),
    Swapped(PathBuf),
}

fn damages(folder: &Path) -> Vec<(PathBuf, Damage)> {
    let all = objects(folder);
    let mut cases = Vec::new();
    for object in &all {
        let len = fs::metadata(folder.join(object)).unwrap().len() as usize;
        let mut of_object = vec![Damage::Gone];
        let lens = BTreeSet::from([0, 1, len / 2, len.saturating_sub(1)]);
        of_object.extend(lens.into_iter().filter(|to| *to < len).map(Damage::Cut));
        let bits = (0..8).map(|n| len * n + n).filter(|bit| *bit < len * 8);
        of_object.extend(bits.map(Damage::Flipped));
        // The next object of the folder, and the first.
        let alike = |other: &&PathBuf| other.parent() == object.parent() && *other != object;
        let behind = all.iter().filter(alike).find(|other| *other > object);
        let others: BTreeSet<&PathBuf> = all.iter().find(alike).into_iter().chain(behind).collect();
        of_object.extend(others.into_iter().map(|other| Damage::Swapped(other.clone())));
        cases.extend(of_object.into_iter().map(|damage| (object.clone(), damage)));
    }
    cases
}

fn apply(folder: &Path, object: &Path, damage: &Damage) {
    let path = folder.join(object);
    let mut bytes = fs::read(&path).unwrap();
    match damage {
        Damage::Gone => return fs::remove_file(path).unwrap(),
        Damage::Cut(len) => bytes.truncate(*len),
        Damage::Flipped(bit) => bytes[bit / 8] ^= 1 << (bit % 8),
        Damage::Swapped(other) => {
            let other = folder.join(other);
            let others = fs::read(&other).unwrap();
            fs::write(other, bytes).unwrap();
            bytes = others;
        }
    }
    fs::write(path, bytes).unwrap();
}

fn copy(from: &Path, to: &Path) {
    for object in objects(from) {
        let path = to.join(&object);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(from.join(object), path).unwrap();
    }
}

/// Returns whether an error names the damaged object or key.
fn says_where(text: &str, object: &Path, damage: &Damage) -> bool {
    let stem = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut names = vec![stem(object)];
    if let Damage::Swapped(other) = damage {
        names.push(stem(other));
    }
    let of_object = names.iter().any(|name| text.contains(name));
    let folder = object.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let of_folder = text.contains(&format!("below {folder}/"))
        || text.contains(&format!("files of {folder}/"))
        || text.contains("below manifest/ or compactions/");
    let of_key = text.contains("log record ")
        || (text.contains("damaged data at ")
            && !text.contains("damaged data at the object store"));
    let of_log = text.contains("damaged data at the write-ahead log: ");
    of_object || of_folder || of_key || of_log
}

/// Starts a server on a damaged store; returns its behavior, or its failure.
fn outcome(
    folder: &Path,
    questions: &Questions,
    (object, damage): &(PathBuf, Damage),
) -> Result<&'static str, String> {
    let address = format!("127.0.0.1:{}", free_port());
    let listen = format!("--web.listen-address={address}");
    let mut command = Command::new(binary());
    command.args(["--self-metrics=false", &listen]);
    command.arg(format!("--storage.url={}", folder.display()));
    let log = folder.join("log");
    command.stderr(Stdio::from(fs::File::create(&log).unwrap()));
    let mut server = Child(command.spawn().unwrap());
    let started = Instant::now();
    let ended = loop {
        if let Some(status) = server.0.try_wait().unwrap() {
            break Some(status);
        }
        if get(&address, "/-/ready").0 == 200 {
            break None;
        }
        if started.elapsed() > Duration::from_secs(180) {
            return Err("it neither starts nor ends".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = || {
        let mut text = String::new();
        fs::File::open(&log).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    if let Some(status) = ended {
        let said = said();
        let is_clear = !status.success()
            && said.contains("cannot open store")
            && says_where(&said, object, damage);
        return if is_clear { Ok("closed") } else { Err(format!("it ends: {status}\n{said}")) };
    }
    let mut errors = 0;
    for (path, expected) in questions {
        let (status, text) = get(&address, path);
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        match status {
            200 if answer["data"] == *expected => {}
            200 if !answer["warnings"].is_null() => errors += 1,
            500 if answer["errorType"] == "internal" && says_where(&text, object, damage) => {
                errors += 1;
            }
            _ => return Err(format!("{path}: {status} {text}\nexpected {expected}")),
        }
    }
    if said().contains("panicked") {
        return Err(format!("a panic\n{}", said()));
    }
    Ok(if errors == 0 { "right" } else { "errors" })
}

fn number_from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn damaged_objects_are_errors_and_not_gaps() {
    let seed = number_from_environment("DAMAGE_SEED", 1) as usize;
    let directory = temporary_directory("damaged");
    let whole = directory.path().join("whole");
    let questions = whole_store(&whole);
    let mut cases = damages(&whole);
    let count = match number_from_environment("DAMAGE_CASES", CASES as u64) as usize {
        0 => cases.len(),
        count => count.min(cases.len()),
    };
    eprintln!("DAMAGE_SEED={seed} for {count} of {} cases", cases.len());
    // The step is a prime that does not divide their number, so no case is chosen twice.
    let step = 7_919 % cases.len();
    cases =
        (0..count).map(|n| cases[(seed % cases.len() + n * step) % cases.len()].clone()).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new((BTreeMap::new(), Vec::new())));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let folder = directory.path().join(format!("damaged-{thread}"));
            let (next, found, cases, whole, questions) =
                (&next, &found, &cases, &whole, &questions);
            scope.spawn(move || {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = fs::remove_dir_all(&folder);
                    copy(whole, &folder);
                    apply(&folder, &case.0, &case.1);
                    let outcome = outcome(&folder, questions, case);
                    let mut found = found.lock().unwrap();
                    match outcome {
                        Ok(outcome) => *found.0.entry(outcome).or_insert(0) += 1,
                        Err(wrong) => found.1.push(format!("{case:?}: {wrong}")),
                    }
                }
            });
        }
    });
    let (outcomes, wrong) = found.into_inner().unwrap();
    println!("{outcomes:?}");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n\n"));
}
