//! TCP relay between a root and a node, which counts the bytes that reach the root.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of the buffer of a direction.
const BUFFER_BYTES: usize = 64 << 10;

/// Relay to one node; its threads end with the process.
pub struct Relay {
    /// Address that the root connects to.
    pub address: String,
    bytes: Arc<AtomicU64>,
}

impl Relay {
    /// Starts a relay to an address.
    pub fn start(target: String) -> io::Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let bytes = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&bytes);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that fails is one that the root repeats.
                let _ = connect(client, &target, &counter);
            }
        });
        Ok(Relay { address, bytes })
    }

    /// Returns the bytes that the node has sent so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

fn connect(client: TcpStream, target: &str, counter: &Arc<AtomicU64>) -> io::Result<()> {
    let node = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    node.set_nodelay(true)?;
    let (to_node, to_client) = (node.try_clone()?, client.try_clone()?);
    let counter = Arc::clone(counter);
    std::thread::spawn(move || copy(client, to_node, &AtomicU64::new(0)));
    std::thread::spawn(move || copy(node, to_client, &counter));
    Ok(())
}

/// Copies until one side ends.
fn copy(mut from: TcpStream, mut to: TcpStream, counter: &AtomicU64) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other side may be gone.
    let _ = to.shutdown(Shutdown::Write);
}
