//! Server under measurement: started, watched through `/proc`, brought to rest.

use std::fs;
use std::io::{self, Error};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::process::{self, Resident, directory_bytes};
use crate::http::Client;

/// Timeout of a start.
const START_TIMEOUT: Duration = Duration::from_secs(900);
/// A server is at rest when it uses less than this part of a core …
const IDLE_CORES: f64 = 0.05;
/// … for this long.
const IDLE_TIME: Duration = Duration::from_secs(5);
/// Ours looks for closed windows once a minute, and for files of the log without use as well: its
/// store is at rest when it is the same after more than that.
const REST_TIME: Duration = Duration::from_secs(70);
/// How long what a flush missed may take.
const FLUSH_PAUSE: Duration = Duration::from_secs(2);
/// Has Prometheus write all that it holds into blocks.
const SNAPSHOT: &str = "/api/v1/admin/tsdb/snapshot";
/// Prometheus keeps up to one and a half blocks of two hours in its head.
const PROMETHEUS_HEAD_MS: f64 = 3.0 * 3_600_000.0;

/// Samples may come in any order within this time of the newest.
const PROMETHEUS_CONFIG: &str = "storage:\n  tsdb:\n    out_of_order_time_window: 60d\n";

const PROMETHEUS_FLAGS: [&str; 4] = [
    "--web.enable-remote-write-receiver",
    "--web.enable-admin-api",
    "--storage.tsdb.retention.time=100y",
    "--log.level=warn",
];

const VICTORIA_METRICS_FLAGS: [&str; 7] = [
    "-retentionPeriod=100y",
    "-search.latencyOffset=0s",
    "-search.disableCache",
    "-search.maxUniqueTimeseries=1000000",
    "-search.maxSeries=1000000",
    "-search.maxQueryDuration=5m",
    "-loggerLevel=WARN",
];

/// Program that can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// This project's server.
    Tessella,
    /// Prometheus, taking remote write.
    Prometheus,
    /// VictoriaMetrics, single node.
    VictoriaMetrics,
}

/// Server that this harness started; its process and its directory end with it.
pub struct Server {
    /// Name in tables.
    pub name: String,
    /// Program that runs.
    pub program: Program,
    address: String,
    child: Child,
    binary: PathBuf,
    directory: PathBuf,
}

/// Cost of a piece of work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the server.
    pub cpu: Duration,
}

impl Server {
    /// Starts a program on a free port and an empty store, in a directory of its own below
    /// `parent`, and returns once it is ready.
    ///
    /// Errors: it cannot be started, or does not become ready.
    pub fn start(name: &str, program: Program, binary: &Path, parent: &Path) -> io::Result<Server> {
        let directory = parent.join(format!("tessella-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let (address, child) = spawn(program, binary, &directory)?;
        let (name, binary) = (name.to_owned(), binary.to_owned());
        let mut server = Server { name, program, address, child, binary, directory };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts the program again on its store, and returns what it cost until it was ready.
    ///
    /// Errors: as those of [`Self::start`].
    pub fn restart(&mut self) -> io::Result<Cost> {
        let begin = Instant::now();
        (self.address, self.child) = spawn(self.program, &self.binary, &self.directory)?;
        self.wait_until_ready()?;
        Ok(Cost { wall: begin.elapsed(), cpu: self.cpu_time()? })
    }

    /// Ends the process by `kill -9`.
    ///
    /// Errors: it cannot be ended.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Asks the process to end, as a service manager does, and returns how long it took.
    ///
    /// Errors: it ends with a failure.
    pub fn stop(&mut self) -> io::Result<Duration> {
        let begin = Instant::now();
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        match self.child.wait()? {
            status if status.success() => Ok(begin.elapsed()),
            status => Err(Error::other(format!("{} ended: {status}", self.name))),
        }
    }

    /// Returns a client without a connection yet.
    pub fn client(&self) -> Client {
        Client::new(&self.address)
    }

    /// Does some work and returns what it cost.
    ///
    /// Errors: those of the work, or the process is gone.
    pub fn measure<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Cost)> {
        let (cpu, begin) = (self.cpu_time()?, Instant::now());
        let done = work()?;
        let wall = begin.elapsed();
        Ok((done, Cost { wall, cpu: self.cpu_time()? - cpu }))
    }

    /// CPU time of the process and of those that it started.
    fn cpu_time(&self) -> io::Result<Duration> {
        process::cpu_time(self.child.id())
    }

    /// Memory of the same processes.
    pub fn resident(&self) -> Resident {
        process::resident(self.child.id())
    }

    /// Makes what was written visible to queries.
    ///
    /// Errors: the server refuses.
    pub fn flush(&self) -> io::Result<()> {
        if self.program == Program::VictoriaMetrics {
            // What is on its way to a part during the first flush is missed by it.
            for _ in 0..2 {
                self.client().text("/internal/force_flush")?;
                std::thread::sleep(FLUSH_PAUSE);
            }
        }
        Ok(())
    }

    /// Waits until the server has done what it does after a load, or for `timeout`. Returns
    /// whether it came to rest.
    ///
    /// Errors: the server is gone.
    pub fn settle(&self, timeout: Duration) -> io::Result<bool> {
        if timeout.is_zero() {
            return Ok(false);
        }
        eprintln!("settle {}, at most {} s", self.name, timeout.as_secs());
        if self.program == Program::VictoriaMetrics {
            self.client().text("/internal/force_merge")?;
        }
        let needed = match self.program {
            Program::Tessella => REST_TIME,
            _ => IDLE_TIME,
        };
        let begin = Instant::now();
        let (mut rest, mut bytes) = (Duration::ZERO, self.file_bytes()?);
        while rest < needed && begin.elapsed() < timeout {
            let pause = || {
                std::thread::sleep(IDLE_TIME.min(timeout));
                Ok(())
            };
            let ((), Cost { wall, cpu }) = self.measure(pause)?;
            let cores = cpu.as_secs_f64() / wall.as_secs_f64();
            let now = self.file_bytes()?;
            let is_at_rest = cores < IDLE_CORES && now == bytes && self.is_compacted()?;
            rest = if is_at_rest { rest + wall } else { Duration::ZERO };
            bytes = now;
        }
        Ok(rest >= needed)
    }

    fn is_compacted(&self) -> io::Result<bool> {
        if self.program != Program::Prometheus {
            return Ok(true);
        }
        let from = self.metric("prometheus_tsdb_head_min_time")?;
        let to = self.metric("prometheus_tsdb_head_max_time")?;
        Ok(to - from <= PROMETHEUS_HEAD_MS)
    }

    /// Bytes of all files of the store.
    ///
    /// Errors: the directory cannot be read.
    pub fn directory_bytes(&self) -> io::Result<u64> {
        directory_bytes(&self.data(), None)
    }

    /// Bytes of the store, without files that only wait to be deleted and, of Prometheus, as if
    /// its head were a block.
    ///
    /// Errors: the directory cannot be read, or the server does not answer.
    pub fn disk_bytes(&self) -> io::Result<u64> {
        match self.program {
            Program::Prometheus => self.snapshot_bytes(None),
            Program::Tessella => self.file_bytes(),
            Program::VictoriaMetrics => self.directory_bytes(),
        }
    }

    /// Bytes of the files of ours that are in use, and of its log; 0 of any other server.
    fn file_bytes(&self) -> io::Result<u64> {
        if self.program != Program::Tessella {
            return Ok(0);
        }
        let bytes = self.metric("tessella_storage_file_bytes")?;
        Ok(bytes as u64 + directory_bytes(&self.data(), Some("wal"))?)
    }

    /// Has Prometheus write all that it holds into blocks, and returns their bytes, or those of
    /// one of their folders.
    ///
    /// Errors: it writes none, or they cannot be read.
    pub fn snapshot_bytes(&self, folder: Option<&str>) -> io::Result<u64> {
        let mut client = self.client();
        let (status, body) = client.post(SNAPSHOT, "", &[])?;
        let answer: serde_json::Value = serde_json::from_slice(body)?;
        let Some(name) = answer["data"]["name"].as_str() else {
            return Err(Error::other(format!("no snapshot, status {status}: {answer}")));
        };
        let snapshot = self.data().join("snapshots").join(name);
        let bytes = directory_bytes(&snapshot, folder)?;
        fs::remove_dir_all(&snapshot)?;
        Ok(bytes)
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// A metric without labels, as the server shows it.
    ///
    /// Errors: there is none.
    pub fn metric(&self, name: &str) -> io::Result<f64> {
        let text = self.client().text("/metrics")?;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
            .ok_or_else(|| Error::other(format!("{} shows no {name}", self.name)))
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        let path = match self.program {
            Program::Tessella | Program::Prometheus => "/-/ready",
            Program::VictoriaMetrics => "/health",
        };
        loop {
            if matches!(self.client().get(path), Ok((200, _))) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                return Err(Error::other(format!("{} ended: {status}\n{log}", self.name)));
            }
            if begin.elapsed() > START_TIMEOUT {
                return Err(Error::other(format!("{} does not become ready", self.name)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What is left is named after this process and can be removed by hand.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Starts a program on a free port and the store `data` of a directory, with its output in the
/// file `log`; returns the address and the process.
fn spawn(program: Program, binary: &Path, directory: &Path) -> io::Result<(String, Child)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let data = directory.join("data");
    let mut command = Command::new(binary);
    match program {
        Program::Tessella => command
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--storage.url={}", data.display()))
            .args(["--self-metrics=false", "--log.level=warn"]),
        Program::Prometheus => {
            let config = directory.join("prometheus.yml");
            fs::write(&config, PROMETHEUS_CONFIG)?;
            command
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", data.display()))
                .arg(format!("--web.listen-address={address}"))
                .args(PROMETHEUS_FLAGS)
        }
        Program::VictoriaMetrics => command
            .arg(format!("-storageDataPath={}", data.display()))
            .arg(format!("-httpListenAddr={address}"))
            .args(VICTORIA_METRICS_FLAGS),
    };
    let log = fs::File::create(directory.join("log"))?;
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
    Ok((address, child))
}
