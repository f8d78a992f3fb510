//! The process under load: started, watched through `/proc`, ended by its id.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{self, Resident};

/// How long a start may take before the harness gives up.
const START_TIMEOUT: Duration = Duration::from_secs(900);

/// A running server.
pub struct Server {
    /// Host and port.
    pub address: String,
    child: Child,
}

impl Server {
    /// Starts the binary on a free port and returns once it is ready.
    ///
    /// Errors: it cannot be started, or does not become ready.
    pub fn start(binary: &Path, directory: &Path) -> io::Result<Server> {
        let mut child = Command::new(binary)
            .arg("--web.listen-address=127.0.0.1:0")
            .arg(format!("--storage.url={}", directory.display()))
            .arg("--self-metrics=false")
            .stderr(Stdio::piped())
            .spawn()?;
        let pipe = child.stderr.take().ok_or_else(|| io::Error::other("no pipe for the log"))?;
        let mut server = Server { address: String::new(), child };
        let mut log = BufReader::new(pipe);
        server.address = address_in(&mut log)?;
        // The pipe is drained for as long as the process lives, or it would block on its log.
        std::thread::spawn(move || io::copy(&mut log, &mut io::stderr()));
        server.wait_until_ready()
    }

    /// Starts a Prometheus that takes remote write on a free port, with the same features, and
    /// returns once it is ready.
    ///
    /// Errors: it cannot be started, or does not become ready.
    pub fn start_prometheus(binary: &Path, directory: &Path) -> io::Result<Server> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let config = directory.join("prometheus.yml");
        std::fs::write(&config, "")?;
        let child = Command::new(binary)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--web.enable-remote-write-receiver", "--web.enable-admin-api"])
            .arg("--enable-feature=promql-delayed-name-removal")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("log"))?)
            .spawn()?;
        Server { address, child }.wait_until_ready()
    }

    fn wait_until_ready(self) -> io::Result<Server> {
        let started = Instant::now();
        while !self.is_ready() {
            if started.elapsed() > START_TIMEOUT {
                return Err(io::Error::other("the server does not become ready"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(self)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn is_ready(&self) -> bool {
        self.get("/-/ready").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// A whole answer, head and all.
    fn get(&self, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// A metric without labels, as the server shows it.
    ///
    /// Errors: there is none.
    pub fn metric(&self, name: &str) -> io::Result<f64> {
        let text = self.get("/metrics")?;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
            .ok_or_else(|| io::Error::other(format!("the server shows no {name}")))
    }

    /// CPU time so far.
    ///
    /// Errors: the process is gone.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        process::cpu_time(self.child.id())
    }

    /// Resident memory.
    pub fn resident(&self) -> Resident {
        process::resident(self.child.id())
    }

    /// Asks it to end, as a service manager does, and waits until it has.
    ///
    /// Errors: it ends with a failure.
    pub fn stop(mut self) -> io::Result<()> {
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("it ended: {status}"))) }
    }

    /// `kill -9`.
    ///
    /// Errors: the process cannot be ended.
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the start line of the log: `address=127.0.0.1:1234`.
fn address_in(log: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    while log.read_line(&mut line)? > 0 {
        if let Some((_, rest)) = line.split_once("address=") {
            let address = rest.split_whitespace().next().unwrap_or_default();
            return Ok(address.trim_matches('"').to_owned());
        }
        line.clear();
    }
    Err(io::Error::other("the server ended before it named its address"))
}
