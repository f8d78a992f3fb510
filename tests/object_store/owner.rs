//! Two servers that want to write to one store in a bucket.

use crate::caches::stop;
use crate::nodes::{Processes, encoded};
use crate::{now_ms, samples, wait_for};
use testkit::remote_write::Connection;
use testkit::s3::S3Server;
use testkit::{Server, get};

/// Starts a server that finds the store owned by another one.
fn start_waiting(place: &Processes, owner: &Server) -> Server {
    let waiting = Server::spawn(&mut place.command(&[]));
    let named = format!("process {} on host", owner.child.0.id());
    wait_for("word of the owner", || waiting.log().contains(&named));
    let log = waiting.log();
    assert!(log.contains("--take-over") && log.contains(&owner.address), "{log}");
    assert_eq!(get(&waiting.address, "/-/ready").0, 503);
    waiting
}

#[test]
fn a_second_server_waits_until_the_first_has_ended() {
    let Some(s3) = S3Server::versitygw("owner") else { return };
    let place = Processes::on_s3(&s3);
    let mut first = place.start(&[]);
    let second = start_waiting(&place, &first);
    let mut sender = Connection::open(&first.address).unwrap();
    assert_eq!(sender.write(&encoded(&samples(now_ms() - 60_000))).unwrap().0, 204);
    assert_eq!(get(&first.address, "/-/ready").0, 200);
    // A server does not wait for a killed process of its machine.
    first.child.0.kill().unwrap();
    first.child.0.wait().unwrap();
    second.wait_until_ready();
    // A server that stops releases the store.
    let third = start_waiting(&place, &second);
    stop(second);
    third.wait_until_ready();
    stop(third);
}
