//! Processes of a test, and HTTP requests to them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A process that is killed and reaped on drop.
pub struct Child(pub std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is removed on drop.
pub struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn temporary_directory(name: &str) -> TemporaryDirectory {
    let path = std::env::temp_dir().join(format!("tessella-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the folder can be created");
    TemporaryDirectory(path)
}

/// Starts a server and waits until it listens.
pub fn spawn_listening(command: &mut Command, address: &str) -> Child {
    let child = Child(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program can be started"),
    );
    for _ in 0..1200 {
        if TcpStream::connect(address).is_ok() {
            return child;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the server does not listen after 60 s");
}

/// Returns a free port that only this process hands out, and only once. It is below the ports that
/// systems choose for port 0 and for outgoing connections (from 32768 on Linux), so that none of
/// those takes it before the server listens.
pub fn free_port() -> u16 {
    const PORTS: Range<u32> = 15_000..32_000;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97);
    for _ in PORTS {
        let offset = first.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
        let port = (PORTS.start + offset % PORTS.len() as u32) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// Returns status and body of a GET request; (0, error) without a response.
pub fn get(address: &str, path: &str) -> (u16, String) {
    request(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"),
        &[],
    )
}

/// Returns status and body of a GET request, as bytes.
pub fn get_bytes(address: &str, path: &str) -> (u16, Vec<u8>) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    try_request(address, &head, &[]).unwrap_or_else(|error| (0, error.to_string().into_bytes()))
}

/// Sends the head and the body of a request, and reads the whole response.
pub fn request(address: &str, head: &str, body: &[u8]) -> (u16, String) {
    match try_request(address, head, body) {
        Ok((status, body)) => (status, String::from_utf8_lossy(&body).into_owned()),
        Err(error) => (0, error.to_string()),
    }
}

fn try_request(address: &str, head: &str, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    // In one write: a server may reject the head and close, and a body that arrives then resets the
    // connection before the response is read.
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidData, "not an HTTP answer");
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(invalid)?;
    let head = String::from_utf8_lossy(&answer[..split]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(invalid)?;
    let body = &answer[split + 4..];
    let body = if head.contains("transfer-encoding: chunked") {
        unchunk(body).ok_or_else(invalid)?
    } else {
        body.to_vec()
    };
    Ok((status, body))
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = rest.windows(2).position(|w| w == b"\r\n")?;
        let line = std::str::from_utf8(&rest[..line_end]).ok()?;
        let len = usize::from_str_radix(line.trim(), 16).ok()?;
        if len == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(line_end + 2..line_end + 2 + len)?);
        rest = rest.get(line_end + 2 + len + 2..)?;
    }
}

/// Escapes a value of a query string.
pub fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
