//! CPU time, memory and files of processes, from `/proc` and the file system.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::kernel::cpu_time_of;

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Resident {
    /// Resident memory.
    pub now: u64,
    /// Peak of resident memory.
    pub peak: u64,
}

/// Returns the CPU time of a process and its descendants.
///
/// Errors: there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut time = cpu_time_of(pid)?;
    for child in descendants(pid) {
        // Processes that ended meanwhile do not count.
        time += cpu_time_of(child).unwrap_or_default();
    }
    Ok(time)
}

/// Returns the memory of a process and its descendants.
pub fn resident(pid: u32) -> Resident {
    let mut pids = descendants(pid);
    pids.push(pid);
    let mut sum = Resident::default();
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        sum.now += field_bytes(&status, "VmRSS:");
        sum.peak += field_bytes(&status, "VmHWM:");
    }
    sum
}

/// Returns a field of `/proc/PID/status`, which is in kB; 0 if missing.
fn field_bytes(status: &str, name: &str) -> u64 {
    let rest = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = rest.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns the children of a process and their descendants.
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

/// Returns the bytes of all files in a directory or, with a name, of those in folders of that name,
/// at any depth. Files that are deleted meanwhile do not count.
///
/// Errors: the directory cannot be read.
pub fn directory_bytes(path: &Path, folder: Option<&str>) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let found = match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let folder = folder.filter(|name| entry.file_name() != *name);
                directory_bytes(&entry.path(), folder)
            }
            Ok(metadata) if folder.is_none() => Ok(metadata.len()),
            Ok(_) => Ok(0),
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(field_bytes(status, "VmRSS:"), 1 << 20);
        assert_eq!(field_bytes(status, "VmHWM:"), 2 << 20);
        assert_eq!(field_bytes(status, "VmSwap:"), 0);
    }

    #[test]
    fn children_count_with_their_parent() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        let found = descendants(own).contains(&child.id());
        let memory = resident(own);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found);
        assert!(memory.now > 0 && memory.peak >= memory.now);
        assert!(!descendants(own).contains(&child.id()));
    }

    #[test]
    fn bytes_are_counted_through_all_levels() {
        let root = std::env::temp_dir().join(format!("bytes-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("one"), [0; 10]).unwrap();
        fs::write(root.join("a/b/two"), [0; 32]).unwrap();
        let found = [None, Some("b"), Some("c")].map(|folder| directory_bytes(&root, folder));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.map(Result::unwrap), [42, 32, 0]);
        assert!(directory_bytes(&root, None).is_err());
    }
}
