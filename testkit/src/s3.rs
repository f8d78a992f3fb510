//! S3 servers of others on loopback, for the duration of a test.
//!
//! `VERSITYGW_BINARY` and `MOTO_SERVER_BINARY` are their paths; `.ci/run` installs both.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{
    Child, TemporaryDirectory, free_port, request, spawn_listening, temporary_directory,
};

pub const ACCESS_KEY: &str = "loopback-key";
pub const SECRET_KEY: &str = "loopback-secret";
pub const BUCKET: &str = "metrics";

/// A server with an empty bucket.
pub struct S3Server {
    pub address: String,
    /// Folder with its objects as files.
    objects: Option<PathBuf>,
    _child: Child,
    _folder: TemporaryDirectory,
}

impl S3Server {
    /// Returns the flags and environment variables with which Tessella reaches the server.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the folder with the objects of the bucket as files, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.objects.as_deref()
    }

    /// Returns the environment variables with which Tessella reaches the server.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ]
    }

    /// Starts versitygw on a folder; `None`, with a message, if it is not installed.
    pub fn versitygw(name: &str) -> Option<S3Server> {
        let binary = named("VERSITYGW_BINARY")?;
        let folder = temporary_directory(&format!("versitygw-{name}"));
        let objects = folder.path().join(BUCKET);
        std::fs::create_dir(&objects).expect("the folder can be created");
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(binary);
        command
            .args(["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", &address, "--quiet"])
            .arg("posix")
            .arg(folder.path());
        Some(S3Server { objects: Some(objects), ..S3Server::start(command, address, folder) })
    }

    /// Starts the server of moto in memory; `None`, with a message, if it is not installed.
    pub fn moto(name: &str) -> Option<S3Server> {
        let binary = named("MOTO_SERVER_BINARY")?;
        let folder = temporary_directory(&format!("moto-{name}"));
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(binary);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).current_dir(folder.path());
        let server = S3Server::start(command, address, folder);
        let head = format!(
            "PUT /{BUCKET} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            server.address
        );
        let (status, text) = request(&server.address, &head, &[]);
        assert_eq!(status, 200, "{text}");
        Some(server)
    }

    fn start(mut command: Command, address: String, folder: TemporaryDirectory) -> S3Server {
        let child = spawn_listening(&mut command, &address);
        S3Server { address, objects: None, _child: child, _folder: folder }
    }
}

/// Returns the program in an environment variable; `None`, with a message, if it is not set.
pub fn named(variable: &str) -> Option<std::ffi::OsString> {
    let binary = std::env::var_os(variable);
    if binary.is_none() {
        eprintln!("SKIPPED: {variable} is not set, so there is no such server to test with");
    }
    binary
}
