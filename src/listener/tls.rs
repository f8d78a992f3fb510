//! TLS handshake with a timeout.

use std::io::{self, Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::slow_client::StallGuard;

/// Response to a client that uses HTTP instead of TLS.
///
/// Source: `Server` of Go's `net/http`.
const NOT_ENCRYPTED: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Accepts an encrypted stream.
///
/// Errors: the handshake fails, takes too long, or the client uses HTTP without TLS.
pub(super) async fn accept(
    mut stream: StallGuard<TcpStream>,
    config: Arc<ServerConfig>,
    timeout: Duration,
) -> io::Result<TlsStream<StallGuard<TcpStream>>> {
    let handshake = async {
        let mut first = [0];
        stream.get_ref().peek(&mut first).await?;
        if first[0].is_ascii_uppercase() {
            // Unread bytes would reset the connection before the client reads the response.
            let _ = stream.get_ref().try_read(&mut [0; 4096]);
            stream.write_all(NOT_ENCRYPTED).await?;
            stream.shutdown().await?;
            return Err(Error::new(ErrorKind::InvalidData, "the client speaks HTTP, not TLS"));
        }
        TlsAcceptor::from(config).accept(stream).await
    };
    match tokio::time::timeout(timeout, handshake).await {
        Ok(accepted) => accepted,
        Err(_) => Err(Error::new(ErrorKind::TimedOut, "the handshake takes too long")),
    }
}
