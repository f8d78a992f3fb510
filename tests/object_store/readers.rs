//! Readers next to a writer, each of them the binary.

use std::time::{Duration, Instant};

use crate::nodes::{Contents, Processes, encoded, metric, read};
use crate::{merged, now_ms, samples, wait_for};
use testkit::emulators::Emulator;
use testkit::proxy::Proxy;
use testkit::remote_write::Connection;
use testkit::s3::S3Server;
use testkit::{Server, get, request, temporary_directory};

const READER: [&str; 2] = ["--mode=reader", "--reader.lag=400ms"];

fn write(server: &Server, samples: &Contents) {
    let mut sender = Connection::open(&server.address).unwrap();
    let (status, text) = sender.write(&encoded(samples)).unwrap();
    assert_eq!(status, 204, "{text}");
}

pub fn post(server: &Server, path: &str) -> (u16, String) {
    let address = &server.address;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    request(address, &head, &[])
}

/// Waits until every reader has what it should, and never more than that.
fn wait_for_readers(readers: &[Server], what: &str, expected: &Contents) {
    for reader in readers {
        wait_for(what, || read(&reader.address) == *expected);
    }
}

/// Ends a server as a crash does.
fn kill(mut server: Server) {
    server.child.0.kill().unwrap();
    server.child.0.wait().unwrap();
}

fn suite(place: &Processes) {
    let now = now_ms() / 1000 * 1000;
    let writer = place.start(&["--web.enable-admin-api"]);
    let first = samples(now - 60_000);
    write(&writer, &first);
    let mut readers = vec![place.start(&READER)];
    assert_eq!(read(&readers[0].address), first, "a reader is ready once it has caught up");
    let admin = [READER[0], READER[1], "--web.enable-admin-api"];
    readers.push(place.start(&admin));
    let second = samples(now - 50_000);
    write(&writer, &second);
    let mut all = merged(&[&first, &second]);
    wait_for_readers(&readers, "new samples", &all);

    // A reader refuses all writes; senders of remote write retry.
    let mut sender = Connection::open(&readers[0].address).unwrap();
    let (status, text) = sender.write(&encoded(&second)).unwrap();
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("this process only reads the store"), "{text}");
    assert!(sender.answer_head().contains("retry-after:"), "{}", sender.answer_head());
    for path in ["delete_series?match[]=up", "clean_tombstones", "snapshot"] {
        let (status, text) = post(&readers[1], &format!("/api/v1/admin/tsdb/{path}"));
        assert_eq!(status, 403, "{text}");
        assert!(text.contains("this process only reads the store"), "{text}");
    }

    // A writer crashes, and the next one seals all samples.
    kill(writer);
    let writer = place.start(&["--storage.log-size=1", "--web.enable-admin-api"]);
    let third = samples(now - 40_000);
    write(&writer, &third);
    all = merged(&[&all, &third]);
    wait_for("partition", || metric(&writer.address, "tessella_storage_partitions") >= 1);
    wait_for_readers(&readers, "samples of the next writer", &all);
    for reader in &readers {
        wait_for("sealed day", || metric(&reader.address, "tessella_storage_partitions") >= 1);
        assert_eq!(read(&reader.address), all, "sealed");
    }
    let matcher = "match[]=object_store_samples{series=\"1\"}".replace('"', "%22");
    let matcher = matcher.replace('{', "%7B").replace('}', "%7D").replace('=', "%3D");
    let matcher = matcher.replacen("%3D", "=", 1);
    let (status, text) = post(&writer, &format!("/api/v1/admin/tsdb/delete_series?{matcher}"));
    assert_eq!(status, 204, "{text}");
    all.remove(&1);
    wait_for_readers(&readers, "delete", &all);
    assert_eq!(post(&writer, "/api/v1/admin/tsdb/clean_tombstones").0, 204);
    let fourth = samples(now - 30_000);
    write(&writer, &fourth);
    all = merged(&[&all, &fourth]);
    wait_for_readers(&readers, "samples after a delete", &all);
    assert_eq!(metric(&readers[0].address, "tessella_reader_failures_total"), 0);
    assert_eq!(metric(&readers[0].address, "tessella_storage_log_records_total"), 0);
    assert!(metric(&readers[0].address, "tessella_reader_steps_total") > 0);
    let (_, metrics) = get(&readers[0].address, "/metrics");
    assert!(metrics.contains("tessella_reader_lag_seconds "), "{metrics}");
    assert!(!get(&writer.address, "/metrics").1.contains("tessella_reader_"));

    // Readers work without a writer.
    kill(writer);
    let reader = place.start(&READER);
    assert_eq!(read(&reader.address), all);
    assert_eq!(read(&readers[1].address), all);
}

#[test]
fn readers_follow_a_writer_on_disk() {
    let folder = temporary_directory("readers");
    suite(&Processes::on_disk(folder.path()));
}

#[test]
fn readers_follow_a_writer_on_versitygw() {
    if let Some(server) = S3Server::versitygw("readers") {
        suite(&Processes::on_s3(&server));
    }
}

#[test]
fn readers_follow_a_writer_on_moto() {
    if let Some(server) = S3Server::moto("readers") {
        suite(&Processes::on_s3(&server));
    }
}

#[test]
fn readers_follow_a_writer_on_azurite() {
    if let Some(emulator) = Emulator::azurite("readers") {
        suite(&Processes::on_emulator(&emulator));
    }
}

#[test]
fn readers_follow_a_writer_on_fake_gcs_server() {
    if let Some(emulator) = Emulator::fake_gcs("readers") {
        suite(&Processes::on_emulator(&emulator));
    }
}

#[test]
fn a_reader_outlasts_an_object_store_that_fails_for_a_while() {
    let Some(s3) = S3Server::versitygw("reader-outage") else { return };
    let place = Processes::on_s3(&s3);
    let writer = place.start(&[]);
    let now = now_ms() / 1000 * 1000;
    let (before, during) = (samples(now - 60_000), samples(now - 40_000));
    write(&writer, &before);
    let proxy = Proxy::start(&s3.address);
    let endpoint = crate::nodes::s3_args(&format!("http://{}", proxy.address));
    let endpoint: Vec<&str> = endpoint.iter().map(String::as_str).collect();
    let reader = Processes::on_s3(&s3).with_args(&endpoint).start(&READER);
    assert_eq!(read(&reader.address), before);

    proxy.drop_all(true);
    write(&writer, &during);
    wait_for("word of it", || get(&reader.address, "/-/ready").0 == 503);
    let (_, text) = get(&reader.address, "/-/ready");
    assert!(text.contains("behind its store"), "{text}");
    let started = Instant::now();
    assert_eq!(read(&reader.address), before, "from memory");
    assert!(started.elapsed() < Duration::from_secs(20));

    proxy.drop_all(false);
    let all = merged(&[&before, &during]);
    wait_for("samples from meanwhile", || read(&reader.address) == all);
    wait_for("readiness", || get(&reader.address, "/-/ready").0 == 200);
}
