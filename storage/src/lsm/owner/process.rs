//! The process that owns a store, as it describes itself for others.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// Maximum duration of a lease.
pub const LEASE_DURATION_MAX: Duration = Duration::from_secs(3600);
/// Duration of a lease that does not state its own.
pub(super) const DURATION_DEFAULT: Duration = Duration::from_secs(60);

/// Process that writes to a store, as described by its lock or lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Owner {
    /// Random id of one opening of the store.
    pub(super) id: String,
    pub(super) pid: u32,
    pub(super) host: String,
    /// Address of its HTTP server, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<String>,
    /// Time of opening the store, in RFC 3339; for messages only.
    pub(super) started: String,
    /// Boot id of the machine and namespace of process ids, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) machine: Option<String>,
    /// Start time of the process in clock ticks since the boot. Tells it from a later process with
    /// its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) process_started: Option<u64>,
    pub(super) renewals: u64,
    /// Duration of its lease in ms; absent from locks, and from leases of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_ms: Option<u64>,
}

impl Owner {
    /// Returns the description of this process.
    pub(super) fn this(address: Option<String>) -> Owner {
        let pid = std::process::id();
        let random = || RandomState::new().hash_one(pid);
        Owner {
            id: format!("{:016x}{:016x}", random(), random()),
            pid,
            host: host(),
            address,
            started: Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true),
            machine: machine(),
            process_started: process_started(pid),
            renewals: 0,
            lease_ms: None,
        }
    }

    /// Returns the time after which its lease has expired, if it is not renewed.
    pub(super) fn lease_duration(&self) -> Duration {
        self.lease_ms.map_or(DURATION_DEFAULT, Duration::from_millis).min(LEASE_DURATION_MAX)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Strings and numbers always encode.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Owner> {
        serde_json::from_slice(bytes).ok()
    }

    /// Returns whether it was a process of this machine that has ended.
    pub(super) fn is_dead(&self, here: &Owner) -> bool {
        let is_here = self.machine.is_some() && self.machine == here.machine;
        // Processes of other users may be hidden, and look ended.
        let are_shown = || Path::new("/proc/1/stat").exists();
        is_here
            && self.host == here.host
            && self.process_started.is_some()
            && are_shown()
            && process_started(self.pid) != self.process_started
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { pid, host, started, .. } = self;
        write!(f, "process {pid} on host {host}")?;
        if let Some(address) = &self.address {
            write!(f, ", listening on {address}")?;
        }
        write!(f, ", since {started}")
    }
}

/// Describes the owner for messages.
pub(super) fn described(bytes: &[u8]) -> String {
    Owner::decode(bytes).map_or_else(|| "an unknown process".to_owned(), |owner| owner.to_string())
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok());
    name.map_or_else(|| "unknown".to_owned(), |name| name.trim().to_owned())
}

fn machine() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// Returns the start time of a process in clock ticks since the boot; `None` if it has ended.
pub(super) fn process_started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces and parentheses; the state follows it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A zombie has ended.
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok()).flatten()
}
