//! Cardinality of the same series in Prometheus and in the binary.

use std::time::Duration;

use serde_json::Value;

use super::{spawn_prometheus, wait_for};
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{Server, free_port, get};

#[test]
fn cardinality_is_that_of_a_prometheus_that_was_sent_the_same() {
    let Ok(binary) = std::env::var("PROMETHEUS_BINARY") else {
        println!("SKIPPED: PROMETHEUS_BINARY is not set, nothing to compare with");
        return;
    };
    let directory = testkit::temporary_directory("cardinality-against-prometheus");
    let server = Server::start(&directory.path().join("tessella"), &["--self-metrics=false"]);
    let peer = format!("127.0.0.1:{}", free_port());
    let args = ["--web.enable-remote-write-receiver"];
    let prometheus = spawn_prometheus(&binary, directory.path(), &peer, "", &args);
    wait_for(Duration::from_secs(60), || get(&peer, "/-/ready").0 == 200);

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now_ms = now.as_millis() as i64 - 60_000;
    let mut request = RequestEncoder::default();
    for series in 0..90_i64 {
        // Counts are unique, as the order of equal counts is undefined.
        let metric = ["requests_total", "latency_ß", "up"][(series % 10).min(2) as usize % 3];
        let mut labels = vec![("__name__".to_owned(), metric.to_owned())];
        labels.push(("instance".to_owned(), format!("host-{series}")));
        if series % 3 == 0 {
            labels.push(("zone".to_owned(), "<east>".to_owned()));
        }
        request.push(&encode_labels(labels), [(now_ms + series, 1.0), (now_ms + 10_000, 2.0)]);
    }
    let mut body = Vec::new();
    request.compress(&mut body);
    for address in [&peer, &server.address] {
        assert_eq!(Connection::open(address).unwrap().write(&body).unwrap().0, 204);
    }
    let asked = |address: &str, path: &str| -> Value {
        let (status, text) = get(address, path);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    for limit in ["", "?limit=2", "?limit=1000"] {
        let path = format!("/api/v1/status/tsdb{limit}");
        let mut answers = [&peer, &server.address].map(|address| asked(address, &path));
        for answer in &mut answers {
            // Neither the order of equal counts nor which of them are omitted is compared.
            for list in ["seriesCountByLabelValuePair", "seriesCountByMetricName"] {
                let list = answer["data"][list].as_array_mut().unwrap();
                let least = list.last().unwrap()["value"].clone();
                list.retain(|entry| limit == "?limit=1000" || entry["value"] != least);
                list.sort_by_key(|entry| entry["name"].as_str().unwrap().to_owned());
            }
        }
        let [expected, found] = answers;
        assert_eq!(found, expected, "{path}");
    }
    for limit in ["0", "-1", "x", "10001"] {
        let path = format!("/api/v1/status/tsdb?limit={limit}");
        assert_eq!(get(&server.address, &path), get(&peer, &path), "{limit}");
    }
    drop(prometheus);
}
