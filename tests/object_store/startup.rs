//! Errors of an object store at the start: soon, in one sentence, without secrets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::nodes::{Processes, s3_args, s3_variables};
use testkit::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use testkit::{free_port, get, temporary_directory};

/// Timeout for a failing start.
const START_MAX: Duration = Duration::from_secs(30);

/// Starts the binary and waits until it has given up.
fn start(url: &str, endpoint: &str, variables: &[(&str, &str)]) -> (Output, String) {
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_tessella"))
        .args(["--web.listen-address=127.0.0.1:0", &format!("--storage.url={url}")])
        .args(s3_args(endpoint))
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(started.elapsed() < START_MAX, "the start has taken {:?}", started.elapsed());
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, log)
}

fn check(url: &str, endpoint: &str, variables: &[(&str, &str)], problem: &str, advice: &str) {
    let (output, log) = start(url, endpoint, variables);
    assert_eq!(output.status.code(), Some(1), "{log}");
    let line = log.lines().find(|line| line.contains("cannot open store")).unwrap_or("");
    let line = line.replace("\\\"", "\"");
    assert!(
        line.contains(problem) && line.contains(advice),
        "no {problem:?}, {advice:?} in\n{log}"
    );
    for (_, value) in variables.iter().filter(|(name, _)| name.contains("SECRET")) {
        assert!(!log.contains(value), "a secret in\n{log}");
    }
}

/// A server with one response to all requests, for the duration of the test.
fn same_answer(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || stream.and_then(|stream| serve(stream, answer)));
        }
    });
    endpoint
}

fn serve(mut stream: TcpStream, answer: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|l| l.trim().parse().ok()).unwrap_or(0);
            if request.len() >= end + 4 + length {
                break;
            }
        }
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            len => request.extend_from_slice(&bytes[..len]),
        }
    }
    stream.write_all(answer.as_bytes())
}

#[test]
fn a_server_that_is_none_or_lacks_conditional_writes_is_named() {
    let url = format!("s3://{BUCKET}/x");
    let closed = format!("http://127.0.0.1:{}", free_port());
    check(&url, &closed, &s3_variables(), "cannot be reached", "check --storage.s3.endpoint");
    let page = same_answer(
        "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 5\r\nConnection: close\r\n\r\n<html",
    );
    check(&url, &page, &s3_variables(), "does not answer as an S3 server does", "endpoint");
    let lacking = same_answer(
        "HTTP/1.1 501 Not Implemented\r\nContent-Length: 70\r\nConnection: close\r\n\r\n\
         <Error><Code>NotImplemented</Code><Message>A header…</Message></Error>",
    );
    check(&url, &lacking, &s3_variables(), "does not implement writing", "conditional writes");
    let ignoring = same_answer(
        "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    check(&url, &ignoring, &s3_variables(), "If-None-Match", "conditional writes");
}

#[test]
fn errors_distinguish_wrong_buckets_and_wrong_keys() {
    let Some(server) = S3Server::versitygw("startup") else { return };
    let endpoint = server.endpoint();
    let url = format!("s3://{BUCKET}/x");
    let with = |key, secret| [("AWS_ACCESS_KEY_ID", key), ("AWS_SECRET_ACCESS_KEY", secret)];
    let other = "s3://no-such-bucket/x";
    check(
        other,
        &endpoint,
        &s3_variables(),
        "has no bucket \"no-such-bucket\"",
        "create the bucket",
    );
    let unknown = with("someone", SECRET_KEY);
    check(&url, &endpoint, &unknown, "does not know the access key", "AWS_ACCESS_KEY_ID");
    let wrong = with(ACCESS_KEY, "not-the-secret");
    check(&url, &endpoint, &wrong, "rejects the secret key", "AWS_SECRET_ACCESS_KEY");
}

#[test]
fn credentials_of_the_file_are_used_and_not_shown() {
    let Some(server) = S3Server::versitygw("credentials") else { return };
    let folder = temporary_directory("credentials");
    let file = folder.path().join("tessella.yml");
    let text = format!(
        "storage:\n  s3:\n    endpoint: {}\n    allow_http: true\n    access_key_id: {ACCESS_KEY}\n    \
         secret_access_key: {SECRET_KEY}\n",
        server.endpoint()
    );
    std::fs::write(&file, text).unwrap();
    let place = Processes::on_bucket();
    let server = place.start(&[&format!("--config.file={}", file.display())]);
    for path in ["/api/v1/status/config", "/api/v1/status/flags", "/metrics"] {
        let (status, text) = get(&server.address, path);
        assert_eq!(status, 200, "{text}");
        assert!(!text.contains(SECRET_KEY), "{path}: {text}");
        assert!(
            !path.ends_with("config") || text.contains(r"secret_access_key: \u003csecret\u003e"),
            "{text}"
        );
    }
}
