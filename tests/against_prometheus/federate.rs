//! Federation of the same series by Prometheus and by the binary.

use std::time::Duration;

use super::{spawn_prometheus, wait_for};
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, free_port, get, percent_encode, request};

#[test]
fn federation_is_that_of_a_prometheus_that_was_sent_the_same() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let directory = testkit::temporary_directory("federation-against-prometheus");
    let server = Server::start(&directory.path().join("tessella"), &["--self-metrics=false"]);
    let peer = format!("127.0.0.1:{}", free_port());
    let args = ["--web.enable-remote-write-receiver"];
    let prometheus = spawn_prometheus(&binary, directory.path(), &peer, "{}\n", &args);
    wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let start = now.as_millis() as i64 - 60_000;
    let values =
        [0.0, -0.0, 1.0, 1e6, 123_456.75, 1e-7, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let mut encoder = RequestEncoder::default();
    for (at, value) in values.into_iter().enumerate() {
        let number = at.to_string();
        let labels = [("__name__", "plain"), ("instance", "i"), ("number", &*number)];
        let own =
            if at % 2 == 0 { encode_labels(labels) } else { encode_labels([labels[0], labels[2]]) };
        encoder.push(&own, [(start, 7.0), (start + 1000 + at as i64, value)]);
    }
    let odd = [("__name__", "with.dots and spaces"), ("läbel", "\"\\\n"), ("x", "1")];
    encoder.push(&encode_labels(odd), [(start, 1.0)]);
    let gone = encode_labels([("__name__", "gone"), ("x", "1")]);
    encoder.push(&gone, [(start, 1.0), (start + 1, f64::from_bits(0x7ff0_0000_0000_0002))]);
    let mut body = Vec::new();
    encoder.compress(&mut body);
    for address in [&peer, &server.address] {
        assert_eq!(Connection::open(address).unwrap().write(&body).unwrap().0, 204);
    }

    let selectors = [
        "plain",
        "{__name__=~\".+\"}",
        "plain{number=~\"[0-3]\"}|plain{number=\"2\"}",
        "{x=\"1\"}",
        "none",
        "{}",
        "plain{",
        "",
    ];
    let proto_of = |encoding: &str| {
        let family = "io.prometheus.client.MetricFamily";
        format!("application/vnd.google.protobuf;proto={family};encoding={encoding}")
    };
    let proto = proto_of("delimited");
    let accepted = [
        String::new(),
        "*/*".to_owned(),
        "text/plain;escaping=allow-utf-8".to_owned(),
        "text/plain;escaping=dots".to_owned(),
        "text/plain;escaping=values".to_owned(),
        proto.clone(),
        format!("{proto};escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.2"),
        format!("{proto};q=0.1,text/plain;version=0.0.4;q=0.2"),
        "application/openmetrics-text".to_owned(),
        proto_of("text"),
        proto_of("compact-text"),
        format!("{};escaping=dots;q=0.9,text/plain;q=0.2", proto_of("text")),
        proto_of("other"),
    ];
    let mut compared = 0;
    for selector in selectors {
        let pairs: Vec<_> =
            selector.split('|').map(|s| format!("match[]={}", percent_encode(s))).collect();
        for accept in &accepted {
            let ask = |address: &str| {
                let path = format!("/federate?{}", pairs.join("&"));
                request(
                    address,
                    &format!(
                        "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\
                         Connection: close\r\n\r\n"
                    ),
                    &[],
                )
            };
            let (expected, found) = (ask(&peer), ask(&server.address));
            compared += expected.1.len();
            if accept.contains("text;") || accept.ends_with("text") {
                // Prometheus adds spaces at random.
                assert_eq!(single_spaced(&expected.1), single_spaced(&found.1), "{accept}");
                assert_eq!(expected.0, found.0, "{selector} as {accept}");
                continue;
            }
            assert_eq!(expected, found, "{selector} as {accept}");
        }
    }
    assert!(compared > 5000, "{compared} bytes were compared");
    drop(prometheus);
}

/// The text with one space for each run of spaces within a line.
fn single_spaced(text: &str) -> String {
    let words =
        |line: &str| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    text.split('\n').map(words).collect::<Vec<_>>().join("\n")
}
