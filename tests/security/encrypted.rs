//! Connections by TLS, and the certificates of both sides.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::certificates::Authority;
use crate::client::{Client, tls};
use crate::{Fixture, Server, TLS, command, wait_for};

const READY: &str = "/-/ready";

#[test]
fn versions_suites_and_curves_are_those_of_the_file() {
    let fixture = Fixture::new("versions");
    let of =
        |versions| Client { tls: Some(tls(&fixture.authority, None, versions)), ..Client::plain() };
    let (old, new) = (of(&[&rustls::version::TLS12]), of(&[&rustls::version::TLS13]));
    let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    let cases = [
        ("", Some("TLSv1_2"), Some("TLSv1_3")),
        ("  min_version: TLS13\n", None, Some("TLSv1_3")),
        ("  max_version: TLS12\n", Some("TLSv1_2"), None),
        (
            &format!("  cipher_suites: [{suite}]\n"),
            Some(&*format!("TLSv1_2 {suite}")),
            Some("TLSv1_3"),
        ),
        ("  curve_preferences: [CurveP384]\n", Some("secp384r1"), Some("secp384r1")),
    ];
    for (lines, with_old, with_new) in cases {
        let server = fixture.start(&format!("{TLS}{lines}"), &[]);
        for (client, expected) in [(&old, with_old), (&new, with_new)] {
            match (client.ask(&server.address, "GET", READY, ""), expected) {
                (Ok(answer), Some(expected)) => {
                    assert_eq!(answer.status, 200, "{lines}");
                    assert!(answer.agreed.contains(expected), "{lines} {}", answer.agreed);
                }
                (Err(_), None) => {}
                (answer, expected) => panic!("{lines}: {answer:?}, not {expected:?}"),
            }
        }
    }
}

#[test]
fn http_to_a_tls_port_is_an_error_in_words() {
    let fixture = Fixture::new("plain");
    let server = fixture.start(TLS, &[]);
    assert!(server.log().contains("tls=true"), "{}", server.log());
    let answer = Client::plain().get(&server.address, READY);
    let found = (answer.status, answer.body.as_str());
    assert_eq!(found, (400, "Client sent an HTTP request to an HTTPS server.\n"));
    // The client does not trust another authority.
    let other = Client::trusting(&Authority::new("others"));
    assert!(other.ask(&server.address, "GET", READY, "").is_err());
    assert_eq!(fixture.client().get(&server.address, READY).status, 200);
}

#[test]
fn certificates_of_clients_are_asked_for_as_the_file_says() {
    let fixture = Fixture::new("clients");
    let others = Authority::new("others");
    // No certificate, a valid one, one of another authority, and one with other names.
    let (good, foreign, unnamed) = (
        fixture.authority.client("agent"),
        others.client("agent"),
        fixture.authority.client("bob"),
    );
    let shown = [None, Some(&good), Some(&foreign), Some(&unnamed)];
    let ca = "  client_ca_file: ca.crt\n";
    let san = |name: &str| format!("{ca}  client_allowed_sans: [other.example, '{name}']\n");
    let verified = "RequireAndVerifyClientCert";
    let cases = [
        ("NoClientCert", String::new(), [true; 4]),
        ("RequestClientCert", ca.to_owned(), [true; 4]),
        ("RequireAnyClientCert", String::new(), [false, true, true, true]),
        ("RequireClientCert", String::new(), [false, true, true, true]),
        ("VerifyClientCertIfGiven", ca.to_owned(), [true, true, false, true]),
        (verified, ca.to_owned(), [false, true, false, true]),
        (verified, san("agent.example"), [false, true, false, false]),
        (verified, san("agent@mail.example"), [false, true, false, false]),
        (verified, san("spiffe://example/agent"), [false, true, false, false]),
        (verified, san("192.0.2.7"), [false, true, false, true]),
        (verified, san("2001:db8::7"), [false, true, false, true]),
        (verified, san("*.example"), [false; 4]),
        ("VerifyClientCertIfGiven", san("bob.example"), [false, false, false, true]),
    ];
    for (kind, lines, expected) in cases {
        let config = format!("{TLS}  client_auth_type: {kind}\n{lines}");
        let server = fixture.start(&config, &[]);
        for version in rustls::ALL_VERSIONS {
            let let_in = shown.map(|identity| {
                let tls = tls(&fixture.authority, identity, &[version]);
                let client = Client { tls: Some(tls), ..Client::plain() };
                client.ask(&server.address, "GET", READY, "").is_ok_and(|a| a.status == 200)
            });
            assert_eq!(let_in, expected, "{kind} {lines} {version:?}");
        }
    }
}

#[test]
fn a_new_certificate_counts_from_the_next_connection_on() {
    let fixture = Fixture::new("renewed");
    let server = fixture.start(TLS, &["--web.enable-lifecycle"]);
    let client = fixture.client();
    let shown = || client.get(&server.address, READY).certificate.unwrap();
    assert_eq!(shown(), fixture.server.der().0);

    let renewed = fixture.authority.server();
    renewed.write(fixture.path(), "server");
    assert_eq!(shown(), renewed.der().0);

    // A key of another certificate: the last pair stays, and the reload is an error.
    let (third, fourth) = (fixture.authority.server(), fixture.authority.server());
    third.write(fixture.path(), "server");
    std::fs::write(fixture.path().join("server.key"), &fourth.key).unwrap();
    assert_eq!(shown(), renewed.der().0);
    let message = "tls_server_config.key_file: the key is not that of the certificate";
    server.wait_for_log(message);
    let reload = || client.ask(&server.address, "POST", "/-/reload", "").unwrap();
    let answer = reload();
    assert!(answer.status == 500 && answer.body.contains(message), "{answer:?}");
    let count = || server.log().matches(message).count();
    wait_for("the second message", || count() >= 2);
    assert_eq!(count(), 2, "{}", server.log());
    fourth.write(fixture.path(), "server");
    assert_eq!(shown(), fourth.der().0);
    assert_eq!(reload().status, 200);

    // An invalid file, and a file without TLS, which a reload does not turn off.
    for (text, message) in [("tls_server_config: {cert_file: 1", "web.yml:"), ("", "by a restart")]
    {
        fixture.write_config(text);
        let answer = reload();
        assert!(answer.status == 500 && answer.body.contains(message), "{answer:?}");
        assert_eq!(shown(), fourth.der().0);
    }
    fixture.write_config(&format!("{TLS}  max_version: TLS12\n"));
    server.signal("-HUP");
    wait_for("the older version", || client.get(&server.address, READY).agreed.contains("TLSv1_2"));
}

#[test]
fn a_start_ends_with_status_2_where_the_file_has_a_fault() {
    let fixture = Fixture::new("faults");
    for (config, message) in [
        ("tls_server_config:\n  cert_file: server.crt\n", "web.yml:2:3: tls_server_config: key or"),
        ("basic_auth_users: {a: b}\n", "web.yml:1:23: basic_auth_users.a: not a bcrypt hash"),
    ] {
        let path = fixture.write_config(config);
        let mut command = command(&fixture.path().join("data"), &path);
        let output = command.stdout(Stdio::null()).output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{log}");
        assert!(log.contains(message), "{log}");
    }
    let nowhere = fixture.path().join("nowhere.yml");
    let output = command(&fixture.path().join("data"), &nowhere).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn connections_that_do_nothing_do_not_hold_up_the_end() {
    let fixture = Fixture::new("stops");
    let mut server: Server = fixture.start(TLS, &["--web.shutdown-timeout=1h"]);
    assert_eq!(fixture.client().get(&server.address, READY).status, 200);
    let mut half = TcpStream::connect(&server.address).unwrap();
    half.write_all(&[0x16, 3, 1]).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(fixture.client().tls.unwrap(), name).unwrap();
    let stream = TcpStream::connect(&server.address).unwrap();
    let mut idle = StreamOwned::new(connection, stream);
    idle.write_all(b"GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut begin = [0; 12];
    idle.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    server.signal("-TERM");
    assert!(server.child.0.wait().unwrap().success());
}
