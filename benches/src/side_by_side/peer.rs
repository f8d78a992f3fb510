//! A server under comparison: started or found, watched through `/proc`, brought to rest.

use std::fs;
use std::io::{self, Error};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::options::{Place, Program, Server};
use crate::http::Client;
use crate::kernel::cpu_time_of;

/// How long a start may take.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// A server is at rest when it uses less than this part of a core …
const IDLE_CORES: f64 = 0.05;
/// … for this long.
const IDLE_TIME: Duration = Duration::from_secs(5);
/// Prometheus keeps up to one and a half blocks of two hours in its head.
const PROMETHEUS_HEAD_MS: f64 = 3.0 * 3_600_000.0;

/// A server that answers.
pub struct Peer {
    /// What tables call it.
    pub name: String,
    /// What it turned out to be; `None` is any other that speaks the same protocols.
    pub program: Option<Program>,
    /// Host and port.
    pub address: String,
    pid: Option<u32>,
    directory: Option<PathBuf>,
    child: Option<Child>,
    /// Removed with the child.
    temporary: Option<PathBuf>,
}

/// Memory of a process.
#[derive(Debug, Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub struct Resident {
    /// Bytes in memory.
    pub now: u64,
    /// The most so far.
    pub peak: u64,
}

impl Peer {
    /// Starts a server, or looks whether it is there, and returns once it is ready.
    ///
    /// Errors: it cannot be started, or does not become ready.
    pub fn open(server: &Server, directory: &Path) -> io::Result<Peer> {
        let mut peer = match &server.place {
            Place::Address { address, pid, directory } => Peer {
                name: server.name.clone(),
                program: None,
                address: address.clone(),
                pid: *pid,
                directory: directory.clone(),
                child: None,
                temporary: None,
            },
            Place::Start(program, binary) => {
                let binary = match binary {
                    Some(binary) => binary.clone(),
                    None => build()?,
                };
                let name = format!("side-by-side-{}-{}", server.name, std::process::id());
                Peer::start(&server.name, *program, &binary, &directory.join(name))?
            }
        };
        peer.wait_until_ready()?;
        let metrics = peer.client().text("/metrics")?;
        let signs = [
            ("tessella_build_info", Program::Tessella),
            ("prometheus_tsdb_head_series", Program::Prometheus),
            ("vm_app_version", Program::VictoriaMetrics),
        ];
        peer.program = signs.iter().find(|(sign, _)| metrics.contains(sign)).map(|(_, p)| *p);
        Ok(peer)
    }

    fn start(name: &str, program: Program, binary: &Path, store: &Path) -> io::Result<Peer> {
        fs::create_dir_all(store)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let data = store.join("data");
        let mut command = Command::new(binary);
        match program {
            Program::Tessella => command
                .arg(format!("--web.listen-address={address}"))
                .arg(format!("--storage.url={}", data.display()))
                .args(["--self-metrics=false", "--log.level=warn"]),
            Program::Prometheus => {
                let config = store.join("prometheus.yml");
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
        let log = fs::File::create(store.join("log"))?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(Peer {
            name: name.to_owned(),
            program: Some(program),
            address,
            pid: Some(child.id()),
            directory: Some(data),
            child: Some(child),
            temporary: Some(store.to_owned()),
        })
    }

    /// A connection to it.
    pub fn client(&self) -> Client {
        Client::new(&self.address)
    }

    /// A path with what this server wants beside it.
    pub fn path(&self, path: &str) -> String {
        match self.program {
            // No cache of results, and no moving of the steps that goes with it.
            Some(Program::VictoriaMetrics) => format!("{path}&nocache=1"),
            _ => path.to_owned(),
        }
    }

    /// CPU time of the process and of those that it started; `None` without a process id.
    ///
    /// Errors: the process is gone.
    pub fn cpu_time(&self) -> io::Result<Option<Duration>> {
        let Some(pid) = self.pid else { return Ok(None) };
        let mut time = cpu_time_of(pid)?;
        for child in descendants(pid) {
            // One that is gone meanwhile does not count.
            time += cpu_time_of(child).unwrap_or_default();
        }
        Ok(Some(time))
    }

    /// Memory of the same processes; `None` without a process id.
    pub fn resident(&self) -> Option<Resident> {
        let mut pids = descendants(self.pid?);
        pids.extend(self.pid);
        let mut sum = Resident::default();
        for pid in pids {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
                kib.unwrap_or(0) * 1024
            };
            sum.now += field("VmRSS:");
            sum.peak += field("VmHWM:");
        }
        Some(sum)
    }

    /// Makes what was written visible to queries.
    ///
    /// Errors: the server refuses.
    pub fn flush(&self) -> io::Result<()> {
        if self.program == Some(Program::VictoriaMetrics) {
            self.client().text("/internal/force_flush")?;
        }
        Ok(())
    }

    /// Waits until the server has done what it does behind a load, or for `timeout`. Says
    /// whether it came to rest.
    ///
    /// Errors: the server is gone.
    pub fn settle(&self, timeout: Duration) -> io::Result<bool> {
        let started = Instant::now();
        if timeout.is_zero() {
            return Ok(false);
        }
        // Ours looks for closed windows once a minute.
        let least = match self.program {
            Some(Program::Tessella) => Duration::from_secs(65),
            _ => IDLE_TIME,
        };
        let mut before = (Instant::now(), self.cpu_time()?);
        loop {
            std::thread::sleep(IDLE_TIME.min(timeout));
            let now = (Instant::now(), self.cpu_time()?);
            let cores = match (before.1, now.1) {
                (Some(a), Some(b)) => (b - a).as_secs_f64() / (now.0 - before.0).as_secs_f64(),
                _ => 0.0,
            };
            let elapsed = started.elapsed();
            if cores < IDLE_CORES && elapsed >= least && self.is_compacted()? {
                return Ok(true);
            }
            if elapsed >= timeout {
                return Ok(false);
            }
            before = now;
        }
    }

    fn is_compacted(&self) -> io::Result<bool> {
        if self.program != Some(Program::Prometheus) {
            return Ok(true);
        }
        let from = self.metric("prometheus_tsdb_head_min_time")?;
        let to = self.metric("prometheus_tsdb_head_max_time")?;
        Ok(to - from <= PROMETHEUS_HEAD_MS)
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

    /// Bytes of its store; `None` without a directory.
    ///
    /// Errors: the directory cannot be read.
    pub fn disk_bytes(&self) -> io::Result<Option<u64>> {
        self.directory.as_deref().map(directory_bytes).transpose()
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let started = Instant::now();
        loop {
            // VictoriaMetrics has the second.
            for path in ["/-/ready", "/health"] {
                if matches!(self.client().get(path), Ok((200, _))) {
                    return Ok(());
                }
            }
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                return Err(Error::other(format!("{} ended: {status}", self.name)));
            }
            if started.elapsed() > START_TIMEOUT {
                return Err(Error::other(format!("{} does not become ready", self.name)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(directory) = &self.temporary {
            // What is left is named after this process and can be removed by hand.
            let _ = fs::remove_dir_all(directory);
        }
    }
}

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

/// Builds the release binary and returns its path.
fn build() -> io::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--package", "tessella"])
        .current_dir(&root)
        .status()?;
    if !status.success() {
        return Err(Error::other("the release binary cannot be built"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("release/tessella"))
}

/// Processes that a process started, and those that they started.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return found };
    for task in tasks.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            found.push(child);
            found.extend(descendants(child));
        }
    }
    found
}

/// The length of all files. One that is deleted meanwhile does not count.
fn directory_bytes(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let found = match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(error),
        };
        match found {
            Ok(found) => bytes += found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
