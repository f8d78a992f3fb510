//! The agent of the set-up in containers, with addresses of the test: metadata, exemplars and native
//! histograms arrive.

use std::io::{Read, Write};
use std::net::TcpListener;

use testkit::{Child, Server, TemporaryDirectory, free_port, get, temporary_directory};

use super::{file, program, query, start, wait_until};

const CONFIG: &str = "compose/prometheus.yml";
const SCRAPED: &str = "# HELP asked Questions.\n# TYPE asked counter\n\
    asked_total{a=\"b\"} 17 # {trace_id=\"1f\"} 1\n# EOF\n";

/// Starts a target with an exemplar, which ends with the process; returns its address.
fn start_target() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{SCRAPED}",
                SCRAPED.len()
            );
            // A client that ends a scrape early does not matter.
            let _ = stream.read(&mut request).and_then(|_| stream.write_all(answer.as_bytes()));
        }
    });
    address
}

/// The server, and the agent that sends to it.
struct Pair {
    server: Server,
    _agent: Child,
    _directory: TemporaryDirectory,
}

impl Pair {
    /// Starts both; `change` edits the configuration of the agent.
    fn start(name: &str, flags: &[&str], change: impl Fn(String) -> String) -> Option<Pair> {
        let prometheus = program("PROMETHEUS_BINARY")?;
        let directory = temporary_directory(name);
        let server = Server::start(&directory.path().join("data"), &["--self-metrics=false"]);
        let agent = format!("127.0.0.1:{}", free_port());
        let config = std::fs::read_to_string(file(CONFIG)).unwrap();
        let config = config
            .replace("tessella:9090", &server.address)
            .replace("node_exporter:9100", &start_target())
            .replace("localhost:9090", &agent)
            .replace("scrape_interval: 15s", "scrape_interval: 1s")
            // Only the interval differs from the default, a minute.
            + "    metadata_config: {send_interval: 1s}\n";
        let path = directory.path().join("prometheus.yml");
        std::fs::write(&path, change(config)).unwrap();
        let mut arguments = vec![
            "--agent".to_owned(),
            format!("--config.file={}", path.display()),
            format!("--storage.agent.path={}", directory.path().join("agent").display()),
            format!("--web.listen-address={agent}"),
        ];
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let log = directory.path().join("agent.log");
        let agent = start(&prometheus, &arguments, &log, &agent, "/-/ready");
        Some(Pair { server, _agent: agent, _directory: directory })
    }

    fn has(&self, path: &str, text: &str) -> bool {
        get(&self.server.address, path).1.contains(text)
    }

    /// Waits until samples, an exemplar and a native histogram are there.
    fn wait_for_all_but_metadata(&self) {
        let exemplars = "/api/v1/query_exemplars?query=asked_total&start=0&end=99999999999";
        wait_until("exemplars arrive", || self.has(exemplars, "\"trace_id\":\"1f\""));
        let names = "/api/v1/query?query=histogram_count(prometheus_http_request_duration_seconds)";
        wait_until("native histograms arrive", || self.has(names, "\"metric\":{"));
        wait_until("targets are scraped", || {
            let now = super::now_seconds();
            query(&self.server.address, "sum(up)", now)[0]["value"][1] == "3"
        });
    }
}

#[test]
fn metadata_exemplars_and_native_histograms_arrive() {
    let Some(pair) = Pair::start("agent", &[], |config| config) else { return };
    pair.wait_for_all_but_metadata();
    let described = "{\"type\":\"counter\",\"unit\":\"\",\"help\":\"Questions.\"}";
    wait_until("metadata arrive", || pair.has("/api/v1/metadata?metric=asked", described));
}

/// The reason for remote write 1.0 in the configuration. If this fails, 2.0 is the better choice.
#[test]
fn remote_write_2_of_prometheus_has_no_metadata() {
    let with_2 = |config: String| {
        config.replace(
            "    send_exemplars:",
            "    protobuf_message: io.prometheus.write.v2.Request\n    send_exemplars:",
        )
    };
    let flags = ["--enable-feature=metadata-wal-records"];
    let Some(pair) = Pair::start("agent-2", &flags, with_2) else { return };
    pair.wait_for_all_but_metadata();
    // They would be in the same requests.
    let (_, metrics) = get(&pair.server.address, "/metrics");
    let samples = "tessella_remote_write_samples_total{type=\"float\",version=\"1\"} 0\n";
    assert!(metrics.contains(samples), "{metrics}");
    let metadata = "tessella_remote_write_metadata_total{version=\"2\"} 0\n";
    assert!(metrics.contains(metadata), "{metrics}");
}
