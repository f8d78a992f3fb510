//! Caches of a store over a network: on disk, and warm after a start.

use std::process::Command;

use crate::nodes::{Processes, encoded, metric, read, s3_args};
use crate::{DAY_MS, now_ms, samples, wait_for};
use testkit::proxy::Proxy;
use testkit::remote_write::Connection;
use testkit::s3::S3Server;
use testkit::{Server, temporary_directory};

/// Stops a server as an operator does, so that all is in SSTs.
pub fn stop(mut server: Server) {
    let process = server.child.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    assert!(server.child.0.wait().unwrap().success());
}

#[test]
fn sealed_days_are_read_from_disk_or_ahead_of_queries() {
    let Some(s3) = S3Server::versitygw("caches") else { return };
    let proxy = Proxy::start(&s3.address);
    let endpoint = s3_args(&format!("http://{}", proxy.address));
    let endpoint: Vec<&str> = endpoint.iter().map(String::as_str).collect();
    let place = Processes::on_s3(&s3).with_args(&endpoint);
    let disk = temporary_directory("disk-cache");
    let folder = format!("--storage.disk-cache.folder={}", disk.path().display());
    let all = samples(now_ms() / 1000 * 1000 - DAY_MS);

    let server = place.start(&["--storage.log-size=1"]);
    let mut sender = Connection::open(&server.address).unwrap();
    assert_eq!(sender.write(&encoded(&all)).unwrap().0, 204);
    wait_for("seal", || metric(&server.address, "tessella_storage_seals_total") >= 1);
    stop(server);

    // The first query fills the disk cache; without a memory cache, the next process reads from it.
    let server = place.start(&[&folder]);
    assert_eq!(read(&server.address), all);
    assert!(metric(&server.address, "tessella_storage_disk_cache_misses_total") > 0);
    wait_for("part on disk", || metric(&server.address, "tessella_storage_disk_cache_bytes") > 0);
    stop(server);
    let server = place.start(&[&folder]);
    assert_eq!(read(&server.address), all);
    assert!(metric(&server.address, "tessella_storage_disk_cache_hits_total") > 0);
    stop(server);

    // With reading ahead into memory, the first query needs no object store.
    let server = place.start(&["--storage.warm-up-span=2d", "--storage.read-timeout=1s"]);
    wait_for("warm cache", || metric(&server.address, "tessella_storage_warmed_bytes_total") > 0);
    wait_for("index", || metric(&server.address, "tessella_storage_index_cache_bytes") > 0);
    proxy.drop_all(true);
    assert_eq!(read(&server.address), all);
    assert!(metric(&server.address, "tessella_storage_block_cache_hits_total") > 0);
    proxy.drop_all(false);
    stop(server);

    // A process with cold caches cannot answer.
    let server = place.start(&["--storage.read-timeout=1s"]);
    proxy.drop_all(true);
    let (status, text) = crate::nodes::query(&server.address);
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("the object store has not answered a read for 1 s"), "{text}");
    proxy.drop_all(false);
    wait_for("answer", || crate::nodes::query(&server.address).0 == 200);
    assert_eq!(read(&server.address), all);
}
