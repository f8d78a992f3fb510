//! Users and tokens, their rights, and no secrets in responses.

use crate::client::{Answer, Client};
use crate::{Fixture, TLS, hash};

const TOKEN: &str = "a-token-of-more-than-16";
const OTHER_TOKEN: &str = "another-token-of-more-than-16";
const PASSWORD: &str = "correct horse: battery";
const READER_PASSWORD: &str = "read, don't write";

fn sha256(token: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Two users and two tokens, one of each for reading alone.
fn users(fixture: &Fixture) -> String {
    std::fs::write(fixture.path().join("token"), format!("{TOKEN}\n")).unwrap();
    format!(
        "basic_auth_users:\n  alice: {}\n  grafana: {}\ntessella:\n  bearer_tokens:\n    \
         robot: {{file: token}}\n    board: {{sha256: {}}}\n  read_only: [grafana, board]\n",
        hash(PASSWORD),
        hash(READER_PASSWORD),
        sha256(OTHER_TOKEN)
    )
}

fn status_and_schemes(answer: &Answer) -> (u16, Vec<&str>) {
    (answer.status, answer.header("www-authenticate"))
}

#[test]
fn only_users_and_bearer_tokens_are_admitted() {
    let fixture = Fixture::new("users");
    let server = fixture.start(&users(&fixture), &[]);
    let client = Client::plain();
    let long = "x".repeat(100_000);
    let refused = [
        client.clone(),
        client.user("alice", "wrong"),
        client.user("alice", ""),
        client.user("Alice", PASSWORD),
        client.user("nobody", PASSWORD),
        client.user("", ""),
        client.user("alice", READER_PASSWORD),
        client.user("robot", TOKEN),
        client.user(&long, &long),
        client.with("Authorization: Bearer wrong"),
        client.with("Authorization: Bearer"),
        client.with(&format!("Authorization: Bearer {}", sha256(OTHER_TOKEN))),
        client.with("Authorization: Basic !!!"),
        client.with("Authorization: Basic YWxpY2U="),
        client.with(&format!("Authorization: Digest {TOKEN}")),
    ];
    for client in &refused {
        // All requests need a password, including unknown paths and wrong methods.
        for path in ["/-/healthy", "/-/ready", "/metrics", "/", "/nowhere", "/api/v1/write"] {
            // The second request finds the wrong password in the cache.
            for _ in 0..2 {
                let answer = client.get(&server.address, path);
                let expected = (401, vec!["Basic", "Bearer"]);
                assert_eq!(status_and_schemes(&answer), expected, "{path}");
                assert_eq!(answer.body, "Unauthorized\n");
            }
        }
    }
    let let_in = [
        client.user("alice", PASSWORD),
        client.user("grafana", READER_PASSWORD),
        client.with(&format!("Authorization: Bearer {TOKEN}")),
        client.with(&format!("authorization: bearer {OTHER_TOKEN}")),
    ];
    for client in let_in.iter().chain(&let_in) {
        assert_eq!(client.get(&server.address, "/-/healthy").status, 200);
        assert_eq!(client.get(&server.address, "/nowhere").status, 404);
    }
    let metrics = let_in[0].get(&server.address, "/metrics").body;
    let count = refused.len() * 12;
    let line = format!("tessella_http_requests_refused_total{{reason=\"credentials\"}} {count}\n");
    assert!(metrics.contains(&line), "{metrics}");
}

#[test]
fn changes_of_users_and_tokens_count_at_once() {
    let fixture = Fixture::new("changes");
    let server = fixture.start(&users(&fixture), &[]);
    let client = Client::plain();
    let status = |client: &Client| client.get(&server.address, "/-/ready").status;
    let (alice, robot) =
        (client.user("alice", PASSWORD), client.with(&format!("Authorization: Bearer {TOKEN}")));
    assert_eq!((status(&alice), status(&robot)), (200, 200));
    std::fs::write(fixture.path().join("token"), OTHER_TOKEN).unwrap();
    assert_eq!((status(&alice), status(&robot)), (200, 401));
    fixture.write_config(&format!("basic_auth_users:\n  alice: {}\n", hash("another")));
    assert_eq!((status(&alice), status(&client.user("alice", "another"))), (401, 200));
    let schemes = client.get(&server.address, "/");
    assert_eq!(schemes.header("www-authenticate"), ["Basic"]);
    // After an error, the previous file stays in force.
    fixture.write_config("basic_auth_users: {alice: x}\n");
    assert_eq!((status(&alice), status(&client.user("alice", "another"))), (401, 200));
    server.wait_for_log("not a bcrypt hash");
    std::fs::remove_file(fixture.path().join("web.yml")).unwrap();
    assert_eq!(status(&client), 401);
    // A file that is being written may be read while it is empty, which rejects all users.
    fixture.write_config("");
    assert_eq!((status(&client), status(&client.user("alice", "another"))), (401, 200));
    server.wait_for_log("the last user or token can only be removed by a restart");
    fixture.write_config(&users(&fixture));
    assert_eq!((status(&client), status(&alice)), (401, 200));
}

#[test]
fn read_only_users_change_nothing() {
    let fixture = Fixture::new("read-only");
    let args = ["--web.enable-admin-api", "--web.enable-lifecycle", "--web.request-log"];
    let server = fixture.start(&users(&fixture), &args);
    let client = Client::plain();
    let readers = [
        ("grafana", client.user("grafana", READER_PASSWORD)),
        ("board", client.with(&format!("Authorization: Bearer {OTHER_TOKEN}"))),
    ];
    let changes = [
        ("POST", "/api/v1/write"),
        ("POST", "/api/v1/otlp/v1/metrics"),
        ("POST", "/api/v1/admin/tsdb/delete_series?match[]=up"),
        ("PUT", "/api/v1/admin/tsdb/delete_series?match[]=up"),
        ("POST", "/api/v1/admin/tsdb/clean_tombstones"),
        ("PUT", "/api/v1/admin/tsdb/clean_tombstones"),
        ("POST", "/api/v1/admin/tsdb/snapshot"),
        ("PUT", "/api/v1/admin/tsdb/snapshot"),
        ("POST", "/-/reload"),
        ("PUT", "/-/reload"),
        ("POST", "/-/promote"),
        ("POST", "/-/quit"),
        ("PUT", "/-/quit"),
        ("DELETE", "/api/v1/status/active_queries/1"),
        ("POST", "/api/v1/status/active_queries/1/cancel"),
        // These change nothing, but are expensive.
        ("GET", "/debug/pprof/heap"),
        ("POST", "/debug/pprof/heap"),
    ];
    let reads = [
        ("GET", "/api/v1/query?query=1"),
        ("POST", "/api/v1/query"),
        ("POST", "/api/v1/query_range"),
        ("POST", "/api/v1/query_exemplars"),
        ("POST", "/api/v1/format_query"),
        ("POST", "/api/v1/parse_query"),
        ("POST", "/api/v1/labels"),
        ("POST", "/api/v1/series"),
        ("POST", "/api/v1/search/metric_names"),
        ("POST", "/api/v1/search/label_names"),
        ("POST", "/api/v1/search/label_values"),
        ("GET", "/api/v1/label/job/values"),
        ("GET", "/api/v1/status/active_queries"),
        ("GET", "/federate?match[]=up"),
        ("GET", "/metrics"),
        ("GET", "/"),
        ("GET", "/-/ready"),
        ("OPTIONS", "/api/v1/write"),
    ];
    let form = "query=up&start=1&end=2&step=1&match[]=up&label=job&limit=1";
    let status = |client: &Client, (method, path): (&str, &str)| {
        client.ask(&server.address, method, path, form).unwrap().status
    };
    for (name, reader) in &readers {
        for (method, path) in changes {
            let answer = reader.ask(&server.address, method, path, form).unwrap();
            assert_eq!(answer.status, 403, "{method} {path}");
            assert_eq!(answer.body, format!("the user \"{name}\" is read-only\n"));
        }
        for read in reads {
            assert!((200..300).contains(&status(reader, read)), "{read:?}");
        }
        // A read request is allowed, though its empty body is invalid.
        assert!(![401, 403].contains(&status(reader, ("POST", "/api/v1/read"))));
        assert_eq!(status(reader, ("GET", "/api/v1/write")), 405);
        assert_eq!(status(reader, ("POST", "/nowhere")), 404);
        assert_eq!(status(reader, ("POST", "/api/v1/nowhere")), 404);
    }
    server.wait_for_log("user=grafana");
    // Rejected requests have no effect, and all work for an administrator; quit comes last.
    let writer = client.user("alice", PASSWORD);
    let end = ("POST", "/-/quit");
    for change in changes.into_iter().filter(|(_, path)| *path != end.1).chain([end]) {
        assert!(![401, 403].contains(&status(&writer, change)), "{change:?}");
    }
    server.wait_for_log("server has stopped");
    assert!(server.log().contains("user=alice"), "{}", server.log());
}

#[test]
fn secrets_are_nowhere() {
    let fixture = Fixture::new("secrets");
    let config = format!("{TLS}{}", users(&fixture));
    let args = [
        "--log.level=debug",
        "--web.request-log",
        "--web.enable-lifecycle",
        "--web.enable-admin-api",
        "--query.log-slower-than=1ms",
    ];
    let server = fixture.start(&config, &args);
    let client = fixture.client();
    let alice = client.user("alice", PASSWORD);
    let wrong = client.user("alice", "wrong-but-secret");
    let bearer = client.with(&format!("Authorization: Bearer {TOKEN}"));
    let mut output = String::new();
    let paths = [
        "/api/v1/status/config",
        "/api/v1/status/flags",
        "/api/v1/status/runtimeinfo",
        "/api/v1/status/storage",
        "/api/v1/status/active_queries",
        "/api/v1/status/self_metrics",
        "/api/v1/query?query=sum_over_time(vector(1)[300000s:1s])",
        "/metrics",
        "/-/ready",
        "/nowhere",
    ];
    for path in paths {
        for client in [&alice, &wrong, &bearer] {
            let answer = client.get(&server.address, path);
            output.push_str(&format!("{:?}{}\n", answer.headers, answer.body));
        }
    }
    assert!(output.contains("web.yml") && output.contains("web.config.file"), "{output}");
    // Errors of each kind, with secrets in wrong places.
    let key = fixture.server.key.lines().nth(1).unwrap();
    let hash_of = hash("another secret");
    for fault in [
        format!("basic_auth_users: \"alice:{hash_of}\"\n"),
        format!("basic_auth_users: [\"{hash_of}\"]\n"),
        format!("basic_auth_users:\n  alice: {{x: \"{hash_of}\"}}\n"),
        format!("basic_auth_users:\n  alice: x{hash_of}\n"),
        format!("basic_auth_users:\n  alice: {hash_of}\n  alice: {hash_of}\n"),
        format!("basic_auth_users:\n  alice: '{hash_of}\n"),
        format!("\"{hash_of}\"\n"),
        format!("tessella: \"{TOKEN}\"\n"),
        format!("tessella: {{bearer_tokens: {{a: \"{TOKEN}\"}}}}\n"),
        format!("tessella: {{bearer_tokens: {{a: {{sha256: \"{TOKEN}\"}}}}}}\n"),
        format!("tessella: {{bearer_tokens: {{a: {{sha256: [\"{TOKEN}\"]}}}}}}\n"),
        format!("tls_server_config:\n  cert_file: server.crt\n  key: \"{key}\"\n"),
        format!("tls_server_config:\n  cert_file: server.crt\n  key: [\"{key}\"]\n"),
        format!("tls_server_config: \"{key}\"\n"),
    ] {
        fixture.write_config(&fault);
        let answer = alice.ask(&server.address, "POST", "/-/reload", "").unwrap();
        assert_eq!(answer.status, 500, "{fault}");
        assert!(answer.body.contains("web.yml:"), "{fault}: {}", answer.body);
        output.push_str(&answer.body);
    }
    fixture.write_config(&config);
    assert_eq!(alice.ask(&server.address, "POST", "/-/reload", "").unwrap().status, 200);
    output.push_str(&server.log());
    assert!(output.contains("user=alice") && output.contains("user=robot"), "{output}");
    assert!(output.contains("slow query"), "{output}");
    use base64::Engine as _;
    let pair = |password: &str| {
        let pair = format!("alice:{password}");
        base64::engine::general_purpose::STANDARD.encode(pair)
    };
    let secrets = [
        PASSWORD,
        READER_PASSWORD,
        "wrong-but-secret",
        TOKEN,
        OTHER_TOKEN,
        &pair(PASSWORD),
        &pair("wrong-but-secret"),
        &sha256(OTHER_TOKEN),
        key,
        &hash_of[29..],
        "$2b$",
    ];
    for secret in secrets {
        let at = output.find(secret);
        assert!(at.is_none(), "{secret} is in {:?}", output.get(at.unwrap().saturating_sub(200)..));
    }
}
