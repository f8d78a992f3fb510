//! A server under comparison: started or found, watched through `/proc`, brought to rest.

use std::fs;
use std::io::{self, Error};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::options::{Place, Program, Server};
use super::progress::Progress;
use crate::http::Client;
use crate::process::{self, Resident, build_server, directory_bytes};

/// How long a start may take.
const START_TIMEOUT: Duration = Duration::from_secs(120);
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
                    None => build_server()?,
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

    /// CPU time of the process and of those that it started; `None` without a process id.
    ///
    /// Errors: the process is gone.
    pub fn cpu_time(&self) -> io::Result<Option<Duration>> {
        self.pid.map(process::cpu_time).transpose()
    }

    /// Memory of the same processes; `None` without a process id.
    pub fn resident(&self) -> Option<Resident> {
        self.pid.map(process::resident)
    }

    /// Makes what was written visible to queries.
    ///
    /// Errors: the server refuses.
    pub fn flush(&self) -> io::Result<()> {
        if self.program == Some(Program::VictoriaMetrics) {
            // What is on its way to a part during the first flush is missed by it.
            for _ in 0..2 {
                self.client().text("/internal/force_flush")?;
                std::thread::sleep(FLUSH_PAUSE);
            }
        }
        Ok(())
    }

    /// Waits until the server has done what it does behind a load, or for `timeout`. Says
    /// whether it came to rest.
    ///
    /// Errors: the server is gone.
    pub fn settle(&self, timeout: Duration) -> io::Result<bool> {
        if timeout.is_zero() {
            return Ok(false);
        }
        if self.program == Some(Program::VictoriaMetrics) {
            self.client().text("/internal/force_merge")?;
        }
        let needed = match self.program {
            Some(Program::Tessella) => REST_TIME,
            _ => IDLE_TIME,
        };
        let progress = Progress::new(&format!("settle {}, at most", self.name), timeout.as_secs());
        let started = Instant::now();
        let (mut rest, mut bytes) = (Duration::ZERO, self.file_bytes()?);
        while rest < needed && started.elapsed() < timeout {
            let (cpu, since) = (self.cpu_time()?, Instant::now());
            std::thread::sleep(IDLE_TIME.min(timeout));
            progress.add(since.elapsed().as_secs());
            let cores = match (cpu, self.cpu_time()?) {
                (Some(a), Some(b)) => (b - a).as_secs_f64() / since.elapsed().as_secs_f64(),
                _ => 0.0,
            };
            let now = self.file_bytes()?;
            let is_at_rest = cores < IDLE_CORES && now == bytes && self.is_compacted()?;
            rest = if is_at_rest { rest + since.elapsed() } else { Duration::ZERO };
            bytes = now;
        }
        progress.finish();
        Ok(rest >= needed)
    }

    fn is_compacted(&self) -> io::Result<bool> {
        if self.program != Some(Program::Prometheus) {
            return Ok(true);
        }
        let from = self.metric("prometheus_tsdb_head_min_time")?;
        let to = self.metric("prometheus_tsdb_head_max_time")?;
        Ok(to - from <= PROMETHEUS_HEAD_MS)
    }

    /// Bytes of the store, without what only waits to be deleted and, of Prometheus, as if its
    /// head were a block; `None` without a directory.
    ///
    /// Errors: the directory cannot be read, or the server does not tell.
    pub fn disk_bytes(&self) -> io::Result<Option<u64>> {
        let Some(directory) = self.directory.as_deref() else { return Ok(None) };
        Ok(Some(match self.program {
            Some(Program::Prometheus) => self.snapshot_bytes(directory)?,
            Some(Program::Tessella) => self.file_bytes()?,
            _ => directory_bytes(directory)?,
        }))
    }

    /// Bytes of the files of ours that are in use, and of its log; 0 of any other server.
    fn file_bytes(&self) -> io::Result<u64> {
        let (Some(Program::Tessella), Some(directory)) = (self.program, &self.directory) else {
            return Ok(0);
        };
        let mut bytes = match self.metric("tessella_storage_file_bytes") {
            Ok(bytes) => bytes as u64,
            // Versions before this metric show no better.
            Err(_) => return directory_bytes(directory),
        };
        for log in log_directories(directory)? {
            bytes += directory_bytes(&log)?;
        }
        Ok(bytes)
    }

    /// Has Prometheus write all that it holds into blocks, and removes them.
    fn snapshot_bytes(&self, directory: &Path) -> io::Result<u64> {
        let mut client = self.client();
        let (status, body) = client.post(SNAPSHOT, "", &[])?;
        let answer: serde_json::Value = serde_json::from_slice(body)?;
        let Some(name) = answer["data"]["name"].as_str() else {
            return Err(Error::other(format!("no snapshot, status {status}: {answer}")));
        };
        let snapshot = directory.join("snapshots").join(name);
        let bytes = directory_bytes(&snapshot)?;
        fs::remove_dir_all(&snapshot)?;
        Ok(bytes)
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

/// The directories named `wal`, at any depth.
fn log_directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if entry.file_name() == "wal" {
            found.push(entry.path());
        } else {
            found.extend(log_directories(&entry.path())?);
        }
    }
    Ok(found)
}
