//! Acknowledgements on a local disk come after the syncs of their samples: a library in the server
//! intercepts `fsync`, logs each call, and can block it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::load::Load;
use crate::wait_for;
use testkit::remote_write::Connection;
use testkit::{Server, TemporaryDirectory, get, temporary_directory};

const HOUR_MS: i64 = 3_600_000;
const WRITES: usize = 50;
/// Without a timeout of writes, as a sync can be blocked for long on a busy machine.
const ARGS: [&str; 2] = ["--self-metrics=false", "--storage.write-timeout=1h"];

/// A server whose syncs are logged and can be blocked.
struct Watched {
    server: Server,
    folder: TemporaryDirectory,
    log: PathBuf,
    hold: PathBuf,
}

impl Watched {
    /// Starts a server; `None`, with a message, without a C compiler.
    fn start(name: &str) -> Option<Watched> {
        let folder = temporary_directory(name);
        let [library, log, hold] = ["syncs.so", "log", "hold"].map(|name| folder.path().join(name));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/syncs.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        match compiler.status() {
            Ok(status) => assert!(status.success(), "{source} cannot be compiled"),
            Err(error) => {
                eprintln!("SKIPPED: cc cannot be run, so syncs cannot be watched: {error}");
                return None;
            }
        }
        let variables = [("LD_PRELOAD", &library), ("SYNC_LOG", &log), ("SYNC_HOLD", &hold)];
        let variables = variables.map(|(name, path)| (name, path.to_str().unwrap()));
        let store = folder.path().join("new").join("store");
        let server = Server::start_on(store.to_str().unwrap(), &ARGS, &variables);
        Some(Watched { server, folder, log, hold })
    }

    /// Returns the lines of the log after some bytes, and its length.
    fn lines_from(&self, bytes: usize) -> (Vec<String>, usize) {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let lines = text[bytes..].lines().map(str::to_owned).collect();
        (lines, text.len())
    }

    fn root(&self) -> PathBuf {
        std::fs::canonicalize(self.folder.path()).unwrap()
    }

    fn log_folder(&self) -> PathBuf {
        self.root().join("new/store/tessella/wal")
    }
}

/// Returns whether a line is about a file of the log, and whether about its folder.
fn is_of(line: &str, what: &str, folder: &Path) -> (bool, bool) {
    let path = line.strip_prefix(what).and_then(|rest| rest.strip_prefix(' ')).map(Path::new);
    let is_file = path.is_some_and(|path| path.parent() == Some(folder));
    (is_file, path == Some(folder))
}

#[test]
fn each_acknowledgement_has_its_own_syncs_of_file_and_folder() {
    let Some(watched) = Watched::start("syncs") else { return };
    let folder = watched.log_folder();
    // The entries of new folders are synced, too.
    let (lines, mut bytes) = watched.lines_from(0);
    for parent in [watched.root(), watched.root().join("new")] {
        let line = format!("end {}", parent.display());
        assert!(lines.contains(&line), "no {line:?} in {lines:#?}");
    }
    let mut load = Load::new(HOUR_MS);
    let mut connection = Connection::open(&watched.server.address).unwrap();
    for number in 0..WRITES {
        assert_eq!(load.send(&mut connection).status, 204);
        let (lines, now) = watched.lines_from(bytes);
        bytes = now;
        let ends: Vec<_> = lines.iter().map(|line| is_of(line, "end", &folder)).collect();
        let file = ends.iter().position(|(is_file, _)| *is_file);
        let synced = file.is_some_and(|at| ends[at..].iter().any(|(_, is_folder)| *is_folder));
        assert!(synced, "write {number} was acknowledged after {lines:#?}");
    }
}

#[test]
fn an_acknowledgement_waits_for_a_sync_that_is_held() {
    let Some(watched) = Watched::start("held-sync") else { return };
    let folder = watched.log_folder();
    let address = watched.server.address.clone();
    let (_, bytes) = watched.lines_from(0);
    std::fs::write(&watched.hold, "").unwrap();
    let sending = std::thread::spawn(move || {
        let mut connection = Connection::open(&address).unwrap();
        Load::new(HOUR_MS).send(&mut connection).status
    });
    let is_begun = || watched.lines_from(bytes).0.iter().any(|l| is_of(l, "begin", &folder).0);
    wait_for("sync of the log", is_begun);
    // Queries work, and do not return samples that are not synced.
    for _ in 0..10 {
        let (status, text) = get(&watched.server.address, "/api/v1/labels");
        assert!(status == 200 && text.contains(r#""data":[]"#), "{status} {text}");
        assert!(!sending.is_finished(), "acknowledged before its sync");
    }
    std::fs::remove_file(&watched.hold).unwrap();
    assert_eq!(sending.join().unwrap(), 204);
    let (_, text) = get(&watched.server.address, "/api/v1/labels");
    assert!(text.contains("__name__"), "{text}");
}
