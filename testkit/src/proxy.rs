//! A proxy that simulates an outage, or balances connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Passes bytes on to a server, or drops every connection.
pub struct Proxy {
    pub address: String,
    is_dropping: Arc<AtomicBool>,
}

impl Proxy {
    pub fn start(server: &str) -> Proxy {
        Proxy::balance(&[server])
    }

    /// Passes connections on to servers in turn.
    pub fn balance(servers: &[&str]) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a local port is free");
        let address = listener.local_addr().expect("a bound socket has an address").to_string();
        let is_dropping = Arc::new(AtomicBool::new(false));
        let servers: Vec<String> = servers.iter().map(|server| (*server).to_owned()).collect();
        let dropping = Arc::clone(&is_dropping);
        std::thread::spawn(move || {
            for (client, server) in listener.incoming().flatten().zip(servers.iter().cycle()) {
                if dropping.load(Ordering::SeqCst) {
                    continue;
                }
                if let Ok(upstream) = TcpStream::connect(server) {
                    for (from, to) in [(&client, &upstream), (&upstream, &client)] {
                        let (from, to) = (
                            from.try_clone().expect("a socket can be cloned"),
                            to.try_clone().expect("a socket can be cloned"),
                        );
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
