//! `tessella healthcheck` against servers that are ready, are not, and are none.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use super::Ran;
use testkit::{Server, command, free_port, temporary_directory};

fn check(address: &str, status: i32, stderr: &str) {
    check_with(address, &[], status, stderr);
}

fn check_with(address: &str, args: &[&str], status: i32, stderr: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessella"));
    command.args(["healthcheck", "--web.listen-address", address]).args(args);
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.status, Some(status), "{ran:?}");
    assert!(ran.stderr.contains(stderr) && ran.stderr.is_empty() == stderr.is_empty(), "{ran:?}");
}

#[test]
fn a_ready_server_is_well() {
    let directory = temporary_directory("healthcheck");
    let server = Server::start(directory.path(), &["--self-metrics=false"]);
    check(&server.address, 0, "");
}

#[test]
fn a_server_with_a_prefix_is_asked_under_it() {
    let directory = temporary_directory("healthcheck-prefix");
    let url = directory.path().display().to_string();
    let args = ["--self-metrics=false", "--web.external-url=http://example.com/metrics"];
    let server = Server::spawn(&mut command(&url, &args, &[]));
    server.wait_until_ready_under("/metrics");
    check_with(&server.address, &["--web.route-prefix=/metrics"], 0, "");
    check(&server.address, 1, "is not ready: \"HTTP/1.0 404 Not Found\"");
}

#[test]
fn a_server_that_is_not_ready_or_not_there_is_not() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers = std::thread::spawn(move || {
        for answer in ["HTTP/1.1 503 Service Unavailable\r\n\r\n", "nonsense", ""] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut bytes = [0; 1024];
                let count = stream.read(&mut bytes).unwrap();
                assert!(count > 0, "{request:?}");
                request.extend_from_slice(&bytes[..count]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    check(&address, 1, "is not ready: \"HTTP/1.1 503 Service Unavailable\"");
    check(&address, 1, "is not ready: \"nonsense\"");
    check(&address, 1, "is not ready: \"\"");
    answers.join().unwrap();
    check(&format!("127.0.0.1:{}", free_port()), 1, "does not answer");
    check("nowhere", 2, "is not an address and port");
}
