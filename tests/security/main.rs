//! The binary with a web configuration file: TLS, certificates of clients, users, tokens, and their
//! rights. If `PROMETHEUS_BINARY` is set, a Prometheus with the same file gets the same requests,
//! and another one sends by TLS with a password.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod certificates;
mod client;
mod encrypted;
mod grpc;
mod healthcheck;
mod http2;
mod prometheus;
mod slow;
mod users;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use certificates::{Authority, Identity};
use client::Client;
use testkit::{Child, TemporaryDirectory, temporary_directory};

/// Timeout for a condition.
const PATIENCE: Duration = Duration::from_secs(300);

/// The section that names the certificate of [`Fixture`].
const TLS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";

/// A folder with the files of a server, and a certificate authority.
struct Fixture {
    folder: TemporaryDirectory,
    authority: Authority,
    server: Identity,
}

impl Fixture {
    fn new(name: &str) -> Fixture {
        let folder = temporary_directory(&format!("security-{name}"));
        let authority = Authority::new("tests");
        let server = authority.server();
        server.write(folder.path(), "server");
        std::fs::write(folder.path().join("ca.crt"), authority.pem()).unwrap();
        Fixture { folder, authority, server }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write_config(&self, text: &str) -> PathBuf {
        let path = self.path().join("web.yml");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn start(&self, config: &str, args: &[&str]) -> Server {
        Server::start(&self.path().join("data"), &self.write_config(config), args)
    }

    fn client(&self) -> Client {
        Client::trusting(&self.authority)
    }
}

/// The real binary, and all that it has logged.
struct Server {
    address: String,
    child: Child,
    log: Arc<Mutex<String>>,
}

fn command(store: &Path, config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessella"));
    command
        .args(["--web.listen-address=127.0.0.1:0", "--self-metrics=false"])
        .arg(format!("--storage.url={}", store.display()))
        .arg(format!("--web.config.file={}", config.display()));
    command
}

impl Server {
    fn start(store: &Path, config: &Path, args: &[&str]) -> Server {
        let mut child = command(store, config).args(args).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut log = written.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut server = Server { address: String::new(), child: Child(child), log };
        server.wait_for_log("server is ready");
        let log = server.log();
        let address = log.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
        server.address = address.to_owned();
        server
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn wait_for_log(&self, text: &str) {
        wait_for(text, || self.log().contains(text));
    }

    fn signal(&self, name: &str) {
        let id = self.child.0.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }
}

/// Waits for a condition.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what} is waited for in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A hash of a password that is quick to check.
fn hash(password: &str) -> String {
    bcrypt::hash(password, 4).unwrap()
}
