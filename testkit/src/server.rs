//! The server as a process: start, readiness and log.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::process::{Child, get};

/// Timeout for a start, on a busy machine.
const START_MAX: Duration = Duration::from_secs(180);

/// A running server.
pub struct Server {
    pub address: String,
    pub child: Child,
    log: Arc<Mutex<String>>,
    log_reader: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the binary, or that of `TESSELLA_BINARY`, on a free port and waits until it is ready.
    pub fn start(store: &Path, args: &[&str]) -> Server {
        Server::start_on(&store.display().to_string(), args, &[])
    }

    /// Starts the binary on a store of any kind, with environment variables.
    pub fn start_on(url: &str, args: &[&str], variables: &[(&str, &str)]) -> Server {
        let server = Server::spawn(&mut command(url, args, variables));
        server.wait_until_ready();
        server
    }

    /// Starts a command that becomes the binary, and waits until its log has the address.
    pub fn spawn(command: &mut Command) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the server can be started");
        let mut log = BufReader::new(child.stderr.take().expect("the stream is piped"));
        let address = read_address(&mut log);
        let text = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&text);
        // The pipe is drained until the process ends, as it would block on a full pipe.
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                eprint!("{line}");
                written.lock().expect("no holder of the log panics").push_str(&line);
                line.clear();
            }
        });
        Server { address, child: Child(child), log: text, log_reader: Some(reader) }
    }

    /// Waits until the process ends; returns its status and its whole log.
    pub fn wait(&mut self) -> (ExitStatus, String) {
        let status = self.child.0.wait().expect("the server can be waited for");
        if let Some(reader) = self.log_reader.take() {
            reader.join().expect("the reader of the log does not panic");
        }
        (status, self.log())
    }

    pub fn wait_until_ready(&self) {
        self.wait_until_ready_under("");
    }

    /// Waits until a server with a prefix is ready.
    pub fn wait_until_ready_under(&self, prefix: &str) {
        let path = format!("{prefix}/-/ready");
        let started = Instant::now();
        while TcpStream::connect(&self.address).is_err() || get(&self.address, &path).0 != 200 {
            assert!(started.elapsed() < START_MAX, "not ready after {START_MAX:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the log contains a text.
    pub fn wait_for_log(&self, text: &str) {
        let started = Instant::now();
        while !self.log().contains(text) {
            assert!(started.elapsed() < START_MAX, "{text:?} is not in the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the log after the line with the address.
    pub fn log(&self) -> String {
        self.log.lock().expect("no holder of the log panics").clone()
    }
}

/// Returns the path of the binary, or that of `TESSELLA_BINARY`.
pub fn binary() -> OsString {
    let named = std::env::var_os("TESSELLA_BINARY");
    let built = || std::env::var_os("CARGO_BIN_EXE_tessella");
    named.or_else(built).expect("cargo names the binary to the tests of its package")
}

/// Returns the command for a start on a free port and a store of any kind, with environment
/// variables.
pub fn command(url: &str, args: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(binary());
    command
        .arg("--web.listen-address=127.0.0.1:0")
        .arg(format!("--storage.url={url}"))
        .args(args)
        .envs(variables.iter().copied());
    command
}

/// Returns the address in the start line of the log: `address=127.0.0.1:1234`.
fn read_address(log: &mut impl BufRead) -> String {
    let mut line = String::new();
    while log.read_line(&mut line).expect("the log is text") > 0 {
        eprint!("{line}");
        if let Some(at) = line.find("address=") {
            let rest = &line[at + "address=".len()..];
            return rest
                .split_whitespace()
                .next()
                .expect("the line has an address")
                .trim_matches('"')
                .to_owned();
        }
        line.clear();
    }
    panic!("the server ended before it named its address");
}
