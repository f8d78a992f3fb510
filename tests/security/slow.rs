//! Slow connections: their limits hold with and without TLS.

use std::io::Write as _;
use std::net::TcpStream;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::{Fixture, PATIENCE, TLS, hash, wait_for};

// An idle connection has an hour; a handshake and a head do not.
const ARGS: [&str; 2] = ["--web.read-timeout=1h", "--web.max-connections=4"];

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn is_closed(stream: &mut impl std::io::Read) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        // The timeout of this read means that the connection is open.
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn handshakes_and_idle_connections_time_out_and_make_room() {
    let fixture = Fixture::new("slow");
    let server = fixture.start(TLS, &ARGS);
    // No bytes; half of a hello; only a hello; half of a head, encrypted. There is room for
    // no more, so one of them ends for the next one.
    let mut silent = connect(&server.address);
    let mut half = connect(&server.address);
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap();
    let tls = fixture.client().tls.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(tls, name).unwrap();
    let mut greeted = connect(&server.address);
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    greeted.write_all(&hello).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(fixture.client().tls.unwrap(), name).unwrap();
    let mut encrypted = StreamOwned::new(connection, connect(&server.address));
    encrypted.write_all(b"GET /-/ready HTTP/1.1\r\nHost: x\r\nX-Never-").unwrap();

    assert_eq!(fixture.client().get(&server.address, "/-/ready").status, 200);
    assert!(is_closed(&mut silent) && is_closed(&mut half) && is_closed(&mut greeted));
    assert!(is_closed(&mut encrypted));
}

#[test]
fn half_open_handshakes_block_no_new_clients() {
    let fixture = Fixture::new("half-open");
    let server = fixture.start(TLS, &["--web.max-connections=4"]);
    let _half_open: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = connect(&server.address);
            // The server may have closed it to make room.
            let _ = stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0]);
            stream
        })
        .collect();
    assert_eq!(fixture.client().get(&server.address, "/-/ready").status, 200);
}

#[test]
fn heads_are_bounded_by_tls_as_without() {
    let fixture = Fixture::new("heads");
    let long = format!("X: {}", "a".repeat(1 << 20));
    for config in [TLS, "http_server_config: {http2: false}\n"] {
        let server = fixture.start(config, &[]);
        let mut client = fixture.client();
        if config != TLS {
            client.tls = None;
        }
        let answer = client.with(&long).ask(&server.address, "GET", "/-/ready", "");
        assert!(answer.as_ref().map_or(true, |answer| answer.status == 431), "{answer:?}");
        assert_eq!(client.get(&server.address, "/-/ready").status, 200);
    }
}

#[test]
fn password_attempts_do_not_delay_known_users() {
    let fixture = Fixture::new("flood");
    // A hash that is slow in this build, and one that was checked before.
    let config = format!(
        "basic_auth_users:\n  slow: {}\n  alice: {}\n",
        hash("x").replacen("$04$", "$14$", 1),
        hash("right")
    );
    let server = fixture.start(&config, &["--web.max-connections=400"]);
    let client = crate::client::Client::plain();
    let alice = client.user("alice", "right");
    assert_eq!(alice.get(&server.address, "/-/ready").status, 200);
    let flood: Vec<TcpStream> = (0..150)
        .map(|at| {
            use base64::Engine as _;
            let pair = base64::engine::general_purpose::STANDARD.encode(format!("slow:{at}"));
            let head = format!("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {pair}\r\n\r\n");
            let mut stream = connect(&server.address);
            stream.write_all(head.as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    // One is checked and a hundred wait; the others are rejected.
    let mut status_line = [0; 12];
    wait_for("those for whom there is no room", || {
        flood.iter().filter(|stream| stream.peek(&mut status_line).is_ok()).count() >= 49
    });
    assert_eq!(&status_line, b"HTTP/1.1 503");
    for _ in 0..20 {
        assert_eq!(alice.get(&server.address, "/api/v1/query?query=1").status, 200);
    }
}
