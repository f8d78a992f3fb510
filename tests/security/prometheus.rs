//! A real Prometheus, with the same web configuration file or as a sender.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::client::Client;
use crate::{Fixture, PATIENCE, TLS, hash, wait_for};
use testkit::{Child, free_port};

fn binary() -> Option<String> {
    let binary = std::env::var("PROMETHEUS_BINARY").ok();
    if binary.is_none() {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
    }
    binary
}

fn spawn(binary: &str, folder: &Path, address: &str, config: &str, args: &[String]) -> Child {
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(binary);
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--web.listen-address={address}"))
        .args(args)
        .stderr(Stdio::null());
    Child(command.spawn().unwrap())
}

/// Compared parts of a response: status, text, and headers of the file or of Go's server.
fn seen(client: &Client, address: &str, method: &str, path: &str) -> String {
    match client.ask(address, method, path, "") {
        Err(_) => "no answer".to_owned(),
        Ok(answer) => {
            let names = [
                "www-authenticate",
                "x-content-type-options",
                "x-frame-options",
                "x-xss-protection",
                "strict-transport-security",
                "content-security-policy",
            ];
            let headers = names.map(|name| answer.header(name).join(", "));
            let kind = answer.header("content-type").join(", ");
            // Both work with their own name.
            let body = if answer.status == 200 { "" } else { &answer.body };
            format!("{} {headers:?} {kind:?} {body:?}", answer.status)
        }
    }
}

#[test]
fn a_prometheus_with_the_same_file_answers_alike() {
    let Some(binary) = binary() else { return };
    let fixture = Fixture::new("same-file");
    let headers = "http_server_config:\n  headers:\n    X-Frame-Options: deny\n    \
                   X-Content-Type-Options: nosniff\n    X-XSS-Protection: '1'\n    \
                   Strict-Transport-Security: max-age=5\n    \
                   Content-Security-Policy: default-src 'self'\n";
    let users = format!("basic_auth_users:\n  alice: {}\n", hash("right"));
    let client_ca = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n";
    let configs = [
        String::new(),
        headers.to_owned(),
        format!("{users}{headers}"),
        format!("{TLS}{users}{headers}"),
        format!("{TLS}{client_ca}{users}"),
        format!("{TLS}  min_version: TLS13\nhttp_server_config: {{http2: false}}\n"),
        "rate_limit: {interval: 1h, burst: 3}\n".to_owned() + headers,
    ];
    let plain = Client::plain();
    let tls = fixture.client();
    let agent = fixture.authority.client("agent");
    let known = crate::client::tls(&fixture.authority, Some(&agent), rustls::ALL_VERSIONS);
    let old = crate::client::tls(&fixture.authority, None, &[&rustls::version::TLS12]);
    let with = |tls| Client { tls: Some(tls), ..plain.clone() };
    let clients = [
        plain.clone(),
        plain.user("alice", "right"),
        plain.user("alice", "wrong"),
        plain.user("bob", "right"),
        plain.with("Authorization: Bearer right"),
        tls.clone(),
        tls.user("alice", "right"),
        tls.user("alice", "wrong"),
        with(known).user("alice", "right"),
        with(old),
    ];
    for (at, config) in configs.iter().enumerate() {
        let path = fixture.write_config(config);
        let server = crate::Server::start(&fixture.path().join(format!("ours-{at}")), &path, &[]);
        let address = format!("127.0.0.1:{}", free_port());
        let args = [
            format!("--web.config.file={}", path.display()),
            format!(
                "--storage.tsdb.path={}",
                fixture.path().join(format!("theirs-{at}")).display()
            ),
        ];
        let _peer = spawn(&binary, fixture.path(), &address, "", &args);
        // A connection does not count as a request.
        wait_for("Prometheus", || std::net::TcpStream::connect(&address).is_ok());
        for client in &clients {
            for (method, path) in
                [("GET", "/-/healthy"), ("GET", "/nowhere"), ("POST", "/-/reload")]
            {
                let ours = seen(client, &server.address, method, path);
                let theirs = seen(client, &address, method, path);
                assert_eq!(ours, theirs, "{config}{method} {path}");
            }
        }
    }
}

#[test]
fn an_agent_sends_by_tls_with_a_password_and_a_certificate() {
    let Some(binary) = binary() else { return };
    let fixture = Fixture::new("agent");
    fixture.authority.client("agent").write(fixture.path(), "agent");
    std::fs::write(fixture.path().join("password"), "right").unwrap();
    let config = format!(
        "{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n  \
         client_allowed_sans: [agent.example]\nbasic_auth_users:\n  agent: {}\n  reader: {}\n\
         tessella: {{read_only: [reader]}}\n",
        hash("right"),
        hash("right")
    );
    let server = fixture.start(&config, &[]);
    let address = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: self\n  static_configs: \
         [{{targets: ['{address}']}}]\nremote_write:\n- url: https://{}/api/v1/write\n  \
         basic_auth: {{username: agent, password_file: password}}\n  tls_config: {{ca_file: \
         ca.crt, cert_file: agent.crt, key_file: agent.key}}\n",
        server.address
    );
    let folder = fixture.path().join("agent-data").display().to_string();
    let args = ["--agent".to_owned(), format!("--storage.agent.path={folder}")];
    let _agent = spawn(&binary, fixture.path(), &address, &config, &args);
    let identity = fixture.authority.client("agent");
    let tls = crate::client::tls(&fixture.authority, Some(&identity), rustls::ALL_VERSIONS);
    let reader = Client { tls: Some(tls), ..Client::plain() }.user("reader", "right");
    let started = std::time::Instant::now();
    loop {
        let answer = reader.get(&server.address, "/api/v1/query?query=up{job=\"self\"}");
        assert_eq!(answer.status, 200, "{}", answer.body);
        if answer.body.contains("\"1\"]") {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{}", answer.body);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
