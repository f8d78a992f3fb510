//! Connections: how many there may be, how long they may be silent, and how they end.

mod patient;
mod targets;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, warn};

use self::patient::PatientWrites;
use self::targets::EscapedTargets;

/// How long to wait before accepting again after the system refused, as it does where no file
/// descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long a client may accept nothing of an answer before its connection is closed.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// What holds for all connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// How many may be open at once; more wait to be accepted.
    pub(crate) connections_max: usize,
    /// How long a client may take to send the head of a request, or keep a connection idle.
    pub(crate) read_timeout: Duration,
    /// How long requests may still take once the end is asked for.
    pub(crate) shutdown_timeout: Duration,
}

/// Serves until `stop` completes, then lets what is being answered come to its end.
/// `false` where that took longer than allowed and was cut off.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) -> bool {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
    let service = TowerToHyperService::new(router);
    let mut connections = tokio::task::JoinSet::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &places) => accepted,
            // Those that have ended need not be kept.
            Some(_) = connections.join_next() => continue,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "Connection cannot be accepted.");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let stream = EscapedTargets::new(PatientWrites::new(stream, WRITE_PATIENCE));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.read_timeout)
            .serve_connection(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "Connection ended early.");
            }
            drop(place);
        });
    }
    drop(listener);
    let is_done = tokio::time::timeout(limits.shutdown_timeout, graceful.shutdown()).await.is_ok();
    connections.abort_all();
    while connections.join_next().await.is_some() {}
    is_done
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    // Answers are written whole: waiting for more to send only delays them. Where a client has
    // left already this fails, and so does what follows.
    let _ = stream.set_nodelay(true);
    Ok((stream, place))
}
