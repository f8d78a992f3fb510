//! A file system of few bytes, in a mount namespace of its own.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{Child, Server, TemporaryDirectory, command, temporary_directory};

pub struct SmallDisk {
    /// Keeps the namespace.
    holder: Child,
    directory: TemporaryDirectory,
}

impl SmallDisk {
    /// Creates an empty file system of some KiB; `None`, with a message, without permission.
    pub fn new(name: &str, kib: u64) -> Option<SmallDisk> {
        let directory = temporary_directory(&format!("small-disk-{name}"));
        let script = format!(
            "mount -t tmpfs -o size={kib}k tmpfs '{}' && echo mounted && exec sleep 3600",
            directory.path().display()
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", &script]).stdout(Stdio::piped());
        let Ok(mut child) = unshare.spawn() else {
            eprintln!("SKIPPED: there is no unshare, so there is no small disk to test with");
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.trim() != "mounted" {
            eprintln!("SKIPPED: a small disk to test with cannot be mounted");
            return None;
        }
        Some(SmallDisk { holder: Child(child), directory })
    }

    /// Path inside the namespace.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Path in this process.
    pub fn outside(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.holder.0.id());
        Path::new(&root).join(self.path().strip_prefix("/").unwrap())
    }

    fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.0.id()));
        command
    }

    /// Starts the binary inside the namespace, and waits until its log has the address.
    pub fn spawn(&self, url: &str, args: &[&str], variables: &[(&str, &str)]) -> Server {
        let binary = command(url, args, variables);
        let mut inside = self.inside();
        inside.arg(binary.get_program()).args(binary.get_args()).envs(variables.iter().copied());
        Server::spawn(&mut inside)
    }

    /// Sets its size in KiB.
    pub fn resize(&self, kib: u64) {
        let size = format!("remount,size={kib}k");
        let status = self.inside().args(["mount", "-o", &size]).arg(self.path()).status();
        assert!(status.unwrap().success());
    }

    /// Fills it.
    pub fn fill(&self) {
        let path = self.outside().join("filler");
        let mut filler = File::options().append(true).create(true).open(path).unwrap();
        for bytes in [1 << 16, 1 << 12, 1] {
            loop {
                match filler.write(&vec![0; bytes]) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Removes the content of `fill`.
    pub fn make_room(&self) {
        std::fs::remove_file(self.outside().join("filler")).unwrap();
    }
}
