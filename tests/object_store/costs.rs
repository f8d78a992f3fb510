//! Reads of the store by queries: reported in the response, and bounded.

use serde_json::Value;

use crate::caches::stop;
use crate::nodes::{METRIC, Processes, encoded, metric, query};
use crate::{DAY_MS, now_ms, samples, wait_for};
use testkit::remote_write::Connection;
use testkit::{get, percent_encode, temporary_directory};

#[test]
fn reads_of_a_query_are_reported_and_bounded() {
    let folder = temporary_directory("costs");
    let place = Processes::on_disk(folder.path());
    // The days are read one by one.
    let days = [1, 2].map(|day| samples(now_ms() / 1000 * 1000 - day * DAY_MS));
    let server = place.start(&["--storage.log-size=1"]);
    let mut sender = Connection::open(&server.address).unwrap();
    for (day, seals) in days.iter().rev().zip(1..) {
        assert_eq!(sender.write(&encoded(day)).unwrap().0, 204);
        wait_for("seal", || metric(&server.address, "tessella_storage_seals_total") >= seals);
    }
    stop(server);

    let server = place.start(&["--query.max-object-store-reads=1"]);
    let (status, text) = query(&server.address);
    assert_eq!(status, 422, "{text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(error["errorType"], "execution", "{text}");
    assert!(error["error"].as_str().unwrap().contains("--query.max-object-store-reads"), "{text}");
    stop(server);

    let server = place.start(&[]);
    let selector = percent_encode(&format!("{METRIC}[10d]"));
    let path = format!("/api/v1/query?stats=all&query={selector}");
    let cost = || {
        let (status, text) = get(&server.address, &path);
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let storage = &answer["data"]["stats"]["storage"];
        (storage["reads"].as_u64().unwrap(), storage["readBytes"].as_u64().unwrap())
    };
    let (reads, bytes) = cost();
    assert!((2..=10).contains(&reads) && bytes > 0, "{reads} reads of {bytes} bytes");
    assert_eq!(cost(), (0, 0), "the second time all is in memory");
    let sum = metric(&server.address, "tessella_engine_query_object_store_reads_sum");
    assert_eq!(sum, reads);
}
