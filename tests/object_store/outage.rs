//! An outage of an object store, simulated by a proxy that drops connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::nodes::{Contents, Processes, encoded, metric, read, s3_args};
use crate::{now_ms, samples, wait_for};
use testkit::remote_write::Connection;
use testkit::s3::S3Server;

/// Passes bytes on to a server, or drops every connection.
pub struct Proxy {
    pub address: String,
    is_dropping: Arc<AtomicBool>,
}

impl Proxy {
    pub fn start(server: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_dropping = Arc::new(AtomicBool::new(false));
        let (server, dropping) = (server.to_owned(), Arc::clone(&is_dropping));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if dropping.load(Ordering::SeqCst) {
                    continue;
                }
                if let Ok(upstream) = TcpStream::connect(&server) {
                    for (from, to) in [(&client, &upstream), (&upstream, &client)] {
                        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                        let dropping = Arc::clone(&dropping);
                        std::thread::spawn(move || pass(from, to, &dropping));
                    }
                }
            }
        });
        Proxy { address, is_dropping }
    }

    pub fn drop_all(&self, is_dropping: bool) {
        self.is_dropping.store(is_dropping, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, dropping: &AtomicBool) {
    let mut bytes = [0; 16384];
    while let Ok(len) = from.read(&mut bytes) {
        if len == 0 || dropping.load(Ordering::SeqCst) || to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    // Either connection may be closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

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
