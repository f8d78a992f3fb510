//! Connections: how many there may be, how they are encrypted, how long they may be silent, and how
//! they end.

mod http2;
mod patient;
mod targets;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tracing::{debug, warn};

use self::patient::{Patience, PatientWrites};
use self::targets::EscapedTargets;
use crate::active::Client;
use crate::web_config::WebInForce;

/// How long to wait before accepting again after the system refused, as it does where no file
/// descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long a client may take less of an answer than so many bytes a second before its connection is
/// closed: the answer stays in memory, and holds a place, until it is sent.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);
const WRITE_BYTES_PER_SECOND_MIN: u32 = 16 << 10;

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

/// What all connections share.
struct Serving {
    service: TowerToHyperService<Router>,
    web: Arc<WebInForce>,
    limits: ConnectionLimits,
    /// Places of requests that share their connection with others: as many as there may be
    /// connections, so that these bound the requests at once, however they come.
    request_places: Arc<Semaphore>,
}

/// One of them.
struct Connection {
    serving: Arc<Serving>,
    address: SocketAddr,
    stopping: Stopping,
}

/// The answer of the router while it is made.
type Answering = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

/// Tells when what is being answered is the last.
#[derive(Clone)]
struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Completes once the end is asked for.
    async fn asked(&mut self) {
        // Whoever could ask has gone: that is the end as well.
        let _ = self.0.wait_for(|is_asked| *is_asked).await;
    }
}

/// Serves until `stop` completes, then lets what is being answered come to its end.
/// `false` where that took longer than allowed and was cut off.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    web: Arc<WebInForce>,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) -> bool {
    let places_max = limits.connections_max.min(Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(places_max));
    let serving = Arc::new(Serving {
        service: TowerToHyperService::new(router),
        web,
        limits,
        request_places: Arc::new(Semaphore::new(places_max)),
    });
    let (ask_to_stop, stopping) = watch::channel(false);
    let mut connections = tokio::task::JoinSet::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &places) => accepted,
            // Those that have ended need not be kept.
            Some(_) = connections.join_next() => continue,
        };
        let (stream, address, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "Connection cannot be accepted.");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let stopping = Stopping(stopping.clone());
        let connection = Connection { serving: Arc::clone(&serving), address, stopping };
        connections.spawn(async move {
            if let Err(error) = connection.serve(stream).await {
                debug!(error, "Connection ended early.");
            }
            drop(place);
        });
    }
    drop(listener);
    ask_to_stop.send_replace(true);
    let ends = async { while connections.join_next().await.is_some() {} };
    let is_done = tokio::time::timeout(limits.shutdown_timeout, ends).await.is_ok();
    connections.abort_all();
    while connections.join_next().await.is_some() {}
    is_done
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, address) = listener.accept().await?;
    // Answers are written whole: waiting for more to send only delays them. Where a client has
    // left already this fails, and so does what follows.
    let _ = stream.set_nodelay(true);
    Ok((stream, address, place))
}

impl Connection {
    /// Serves until either side has had enough.
    async fn serve(mut self, stream: TcpStream) -> Result<(), String> {
        let tls = self.serving.web.config().and_then(|config| config.tls.clone());
        let patience = Patience::new(WRITE_PATIENCE, WRITE_BYTES_PER_SECOND_MIN);
        let Some(tls) = tls else {
            return self.serve_http1(PatientWrites::new(stream, patience)).await;
        };
        let accepting = tls::accept(stream, patience, tls, self.serving.limits.read_timeout);
        let stream = tokio::select! {
            accepted = accepting => accepted.map_err(|error| error.to_string())?,
            () = self.stopping.asked() => return Ok(()),
        };
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => http2::serve(self, stream).await,
            _ => self.serve_http1(stream).await,
        }
    }

    async fn serve_http1<S>(self, stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let close = Arc::new(Notify::new());
        let client = || Client::at(self.address).closed_by(Arc::clone(&close));
        let service = service_fn(|request| self.answer(request, client()));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.serving.limits.read_timeout)
            .serve_connection(TokioIo::new(EscapedTargets::new(stream)), service);
        let mut connection = std::pin::pin!(connection);
        let mut stopping = self.stopping.clone();
        let ending = async {
            tokio::select! {
                ended = &mut connection => ended,
                () = stopping.asked() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        tokio::select! {
            ended = ending => ended.map_err(|error| error.to_string()),
            () = close.notified() => Err("its response was given up".to_owned()),
        }
    }

    /// The answer to a request of this connection.
    fn answer(&self, mut request: Request<Incoming>, client: Client) -> Answering {
        request.extensions_mut().insert(client);
        self.serving.service.call(request)
    }
}
