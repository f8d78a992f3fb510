//! What the tests of the real binary share: starting it, asking it, and ending it by its
//! process id.

#![allow(dead_code, missing_docs, reason = "each test binary uses a part, and the names say it")]
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

mod process;
pub mod random;
pub mod s3;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub use process::*;

/// The real binary, serving.
pub struct Server {
    pub address: String,
    pub child: Child,
}

impl Server {
    /// Starts the binary, or that which `TESSELLA_BINARY` names, on a free port and waits until it
    /// is ready.
    pub fn start(store: &Path, args: &[&str]) -> Server {
        Server::start_on(&store.display().to_string(), args, &[])
    }

    /// The same on a store of any kind, with variables in its environment.
    pub fn start_on(url: &str, args: &[&str], variables: &[(&str, &str)]) -> Server {
        let server = Server::spawn(&mut command(url, args, variables));
        server.wait_until_ready();
        server
    }

    /// Starts a command that becomes the binary, and waits until it has named its address.
    pub fn spawn(command: &mut Command) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let address = read_address(&mut log);
        // The pipe is drained for as long as the process lives, or it would block on its log.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::stderr()));
        Server { address, child: Child(child) }
    }

    pub fn wait_until_ready(&self) {
        for _ in 0..600 {
            if TcpStream::connect(&self.address).is_ok() && get(&self.address, "/-/ready").0 == 200
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("not ready after 30 s");
    }
}

/// The binary, or that which `TESSELLA_BINARY` names.
pub fn binary() -> OsString {
    let named = std::env::var_os("TESSELLA_BINARY");
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_tessella").into())
}

/// What starts the binary on a free port and a store of any kind, with variables in its environment.
pub fn command(url: &str, args: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(binary());
    command
        .arg("--web.listen-address=127.0.0.1:0")
        .arg(format!("--storage.url={url}"))
        .args(args)
        .envs(variables.iter().copied());
    command
}

/// The address in the start line of the log: `address=127.0.0.1:1234`.
fn read_address(log: &mut impl BufRead) -> String {
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        eprint!("{line}");
        if let Some(at) = line.find("address=") {
            let rest = &line[at + "address=".len()..];
            return rest.split_whitespace().next().unwrap().trim_matches('"').to_owned();
        }
        line.clear();
    }
    panic!("the server ended before it named its address");
}
