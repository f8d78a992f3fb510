//! An outage of an object store, simulated by a proxy that drops connections.

use std::time::{Duration, Instant};

use crate::nodes::{Contents, Processes, encoded, metric, read, s3_args};
use crate::{now_ms, samples, wait_for};
use testkit::proxy::Proxy;
use testkit::remote_write::Connection;
use testkit::s3::S3Server;

#[test]
fn a_server_outlasts_an_object_store_that_fails_for_a_while() {
    let Some(s3) = S3Server::versitygw("outage") else { return };
    let proxy = Proxy::start(&s3.address);
    let place = Processes::on_s3(&s3);
    let endpoint = s3_args(&format!("http://{}", proxy.address));
    let endpoint: Vec<&str> = endpoint.iter().map(String::as_str).collect();
    let place = place.with_args(&endpoint);
    let server = place.start(&["--storage.write-timeout=5s"]);
    let mut sender = Connection::open(&server.address).unwrap();
    let now = now_ms() / 1000 * 1000;
    let (before, during) = (samples(now - 60_000), samples(now - 40_000));
    assert_eq!(sender.write(&encoded(&before)).unwrap().0, 204);

    proxy.drop_all(true);
    for round in 0..3 {
        let started = Instant::now();
        let (status, text) = sender.write(&encoded(&during)).unwrap();
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("the object store has not taken a write within"), "{text}");
        assert!(sender.answer_head().contains("retry-after:"), "{}", sender.answer_head());
        assert!(started.elapsed() < Duration::from_secs(30), "round {round}");
        // Samples are not visible before they are durable.
        assert_eq!(read(&server.address), before);
    }
    assert!(metric(&server.address, "tessella_storage_writes_stalled_total") >= 3);

    proxy.drop_all(false);
    wait_for("write that is taken", || sender.write(&encoded(&during)).unwrap().0 == 204);
    let mut all: Contents = before;
    for (series, samples) in &during {
        all.get_mut(series).unwrap().extend(samples);
    }
    assert_eq!(read(&server.address), all, "nothing is lost, nothing is doubled");
    drop(server);
    let server = place.start(&[]);
    assert_eq!(read(&server.address), all, "after a kill");
}
