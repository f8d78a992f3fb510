//! Server under measurement: start, CPU time and memory, waiting until idle, restart.

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
/// A server is idle if it uses less than this fraction of a core …
const IDLE_CORES: f64 = 0.05;
/// … for this long.
const IDLE_TIME: Duration = Duration::from_secs(5);
/// Ours seals closed windows and deletes unused WAL files once a minute: its store is idle if it does
/// not change for longer than that.
const TESSELLA_IDLE_TIME: Duration = Duration::from_secs(70);
/// Pause after a flush, for rows that were in flight.
const FLUSH_PAUSE: Duration = Duration::from_secs(2);
/// Endpoint of Prometheus that writes all data to blocks.
const SNAPSHOT: &str = "/api/v1/admin/tsdb/snapshot";
/// Maximum time range in the head of Prometheus: one and a half blocks of two hours.
const PROMETHEUS_HEAD_MS: f64 = 3.0 * 3_600_000.0;

/// Configuration of Prometheus that accepts samples out of order.
const PROMETHEUS_CONFIG: &str = "storage:\n  tsdb:\n    out_of_order_time_window: 60d\n";

const TESSELLA_FLAGS: [&str; 3] = [
    "--remote-write.max-active-series-per-metric=1000000",
    "--self-metrics=false",
    "--log.level=warn",
];

const PROMETHEUS_FLAGS: [&str; 4] = [
    "--web.enable-remote-write-receiver",
    "--web.enable-admin-api",
    "--storage.tsdb.retention.time=100y",
    "--log.level=warn",
];

const VICTORIA_METRICS_FLAGS: [&str; 8] = [
    "-retentionPeriod=100y",
    "-search.latencyOffset=0s",
    "-search.disableCache",
    "-search.maxUniqueTimeseries=1000000",
    "-search.maxSeries=1000000",
    "-search.maxPointsSubqueryPerTimeseries=1000000",
    "-search.maxQueryDuration=5m",
    "-loggerLevel=WARN",
];

/// Program that can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// This project's server.
    Tessella,
    /// Prometheus with remote write.
    Prometheus,
    /// VictoriaMetrics, single node.
    VictoriaMetrics,
}

/// Server that the harness started; dropping it kills the process and deletes the directory.
pub struct Server {
    /// Name in tables.
    pub name: String,
    /// Program that runs.
    pub program: Program,
    address: String,
    child: Child,
    binary: PathBuf,
    directory: PathBuf,
    settings: NodeSettings,
}

/// Settings of one of several nodes.
#[derive(Debug, Clone, Default)]
pub struct NodeSettings {
    /// Flags in addition to those of the program.
    pub args: Vec<String>,
    /// Store of another node, for a reader; without it, a new one.
    pub store: Option<PathBuf>,
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
    /// Starts a program on a free port with an empty store in a new directory below `parent`, and
    /// waits until it is ready.
    ///
    /// Errors: it cannot be started, or does not become ready.
    pub fn start(name: &str, program: Program, binary: &Path, parent: &Path) -> io::Result<Server> {
        Server::start_node(name, program, binary, parent, NodeSettings::default())
    }

    /// Starts a program with settings of its own.
    ///
    /// Errors: as those of [`Self::start`].
    pub fn start_node(
        name: &str,
        program: Program,
        binary: &Path,
        parent: &Path,
        settings: NodeSettings,
    ) -> io::Result<Server> {
        let directory = parent.join(format!("tessella-bench-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let (address, child) = spawn(program, binary, &directory, &settings)?;
        let (name, binary) = (name.to_owned(), binary.to_owned());
        let mut server = Server { name, program, address, child, binary, directory, settings };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts the program again on its store, and returns the cost until it is ready.
    ///
    /// Errors: as those of [`Self::start`].
    pub fn restart(&mut self) -> io::Result<Cost> {
        let begin = Instant::now();
        (self.address, self.child) =
            spawn(self.program, &self.binary, &self.directory, &self.settings)?;
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

    /// Sends SIGTERM, waits for the end of the process, and returns the duration.
    ///
    /// Errors: the exit status is a failure.
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

    /// Runs an operation and returns its cost.
    ///
    /// Errors: those of the operation, or the process is gone.
    pub fn measure<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Cost)> {
        let (cpu, begin) = (self.cpu_time()?, Instant::now());
        let done = work()?;
        let wall = begin.elapsed();
        Ok((done, Cost { wall, cpu: self.cpu_time()? - cpu }))
    }

    /// Returns the CPU time of the process and its descendants.
    ///
    /// Errors: the process is gone.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        process::cpu_time(self.child.id())
    }

    /// Returns the memory of the process and its descendants.
    pub fn resident(&self) -> Resident {
        process::resident(self.child.id())
    }

    /// Makes written samples visible to queries.
    ///
    /// Errors: the server refuses.
    pub fn flush(&self) -> io::Result<()> {
        if self.program == Program::VictoriaMetrics {
            // The first flush misses rows in flight.
            for _ in 0..2 {
                self.client().text("/internal/force_flush")?;
                std::thread::sleep(FLUSH_PAUSE);
            }
        }
        Ok(())
    }

    /// Waits until the server is idle after a load, at most `timeout`. Returns whether it is.
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
            Program::Tessella => TESSELLA_IDLE_TIME,
            _ => IDLE_TIME,
        };
        let begin = Instant::now();
        let (mut idle, mut bytes) = (Duration::ZERO, self.file_bytes()?);
        while idle < needed && begin.elapsed() < timeout {
            let pause = || {
                std::thread::sleep(IDLE_TIME.min(timeout));
                Ok(())
            };
            let ((), Cost { wall, cpu }) = self.measure(pause)?;
            let cores = cpu.as_secs_f64() / wall.as_secs_f64();
            let now = self.file_bytes()?;
            let is_idle = cores < IDLE_CORES && now == bytes && self.is_compacted()?;
            idle = if is_idle { idle + wall } else { Duration::ZERO };
            bytes = now;
        }
        Ok(idle >= needed)
    }

    fn is_compacted(&self) -> io::Result<bool> {
        if self.program != Program::Prometheus {
            return Ok(true);
        }
        let from = self.metric("prometheus_tsdb_head_min_time")?;
        let to = self.metric("prometheus_tsdb_head_max_time")?;
        Ok(to - from <= PROMETHEUS_HEAD_MS)
    }

    /// Returns the bytes of all files of the store.
    ///
    /// Errors: the directory cannot be read.
    pub fn directory_bytes(&self) -> io::Result<u64> {
        directory_bytes(&self.data(), None)
    }

    /// Returns the bytes of the store, without files that await deletion; of Prometheus with the head
    /// written to a block.
    ///
    /// Errors: the directory cannot be read, or the server does not answer.
    pub fn disk_bytes(&self) -> io::Result<u64> {
        match self.program {
            Program::Prometheus => self.snapshot_bytes(None),
            Program::Tessella => self.file_bytes(),
            Program::VictoriaMetrics => self.directory_bytes(),
        }
    }

    /// Returns the bytes of used SSTs and the WAL of Tessella; 0 for other programs.
    fn file_bytes(&self) -> io::Result<u64> {
        if self.program != Program::Tessella {
            return Ok(0);
        }
        let bytes = self.metric("tessella_storage_file_bytes")?;
        Ok(bytes as u64 + directory_bytes(&self.data(), Some("wal"))?)
    }

    /// Makes Prometheus write all data to blocks, and returns their bytes, or those of one of their
    /// folders.
    ///
    /// Errors: the snapshot fails, or cannot be read.
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

    /// Returns the path of the store.
    pub fn data(&self) -> PathBuf {
        data(&self.directory, &self.settings)
    }

    /// Returns the value of a metric without labels.
    ///
    /// Errors: the metric is missing.
    pub fn metric(&self, name: &str) -> io::Result<f64> {
        let text = self.client().text("/metrics")?;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
            .ok_or_else(|| Error::other(format!("{} has no metric {name}", self.name)))
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
                return Err(Error::other(format!(
                    "{} is not ready within {START_TIMEOUT:?}",
                    self.name
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Remaining files have the process id in their path and can be removed manually.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn data(directory: &Path, settings: &NodeSettings) -> PathBuf {
    settings.store.clone().unwrap_or_else(|| directory.join("data"))
}

/// Starts a program on a free port with the store `data` in a directory and its output in the file
/// `log`; returns address and process.
fn spawn(
    program: Program,
    binary: &Path,
    directory: &Path,
    settings: &NodeSettings,
) -> io::Result<(String, Child)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let data = data(directory, settings);
    let mut command = Command::new(binary);
    command.args(&settings.args);
    match program {
        Program::Tessella => command
            .arg(format!("--web.listen-address={address}"))
            .arg(format!("--storage.url={}", data.display()))
            .args(TESSELLA_FLAGS),
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
