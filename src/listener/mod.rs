//! Connections: maximum number, TLS, timeouts and shutdown.

mod connections;
mod host;
mod http2;
mod receiving;
mod slow_client;
mod targets;
mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Response;
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tracing::{debug, warn};

use self::connections::{Answering, Connections, Tracked};
use self::receiving::Receiving;
use self::slow_client::{StallAllowance, StallGuard};
use self::targets::EscapedTargets;
use crate::query::active::Client;
use crate::web_config::ActiveWebConfig;

/// Pause after a failed accept, for instance without a free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Minimum bytes per second of a response that a client has to receive; the response stays in memory
/// until it is sent.
const WRITE_BYTES_PER_SECOND_MIN: u32 = 16 << 10;
/// Maximum time for a handshake, and for the head of a request, unless --web.read-timeout is less.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits of all connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Maximum number of open connections; one more closes another, if one can be closed.
    pub(crate) connections_max: usize,
    /// Timeout for idle connections, and upper bound of the timeout for request heads.
    pub(crate) read_timeout: Duration,
    /// Maximum time in which a client may receive less than [`WRITE_BYTES_PER_SECOND_MIN`] of a
    /// response.
    pub(crate) write_stall_timeout: Duration,
    /// Maximum time of running requests after the shutdown starts.
    pub(crate) shutdown_timeout: Duration,
}

/// Protocols of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, and HTTP/2 for clients that negotiate it.
    Web,
    /// HTTP/2, without TLS by prior knowledge.
    Grpc,
}

/// State shared by all connections.
struct Serving {
    protocol: Protocol,
    service: TowerToHyperService<Router>,
    web: Arc<ActiveWebConfig>,
    limits: ConnectionLimits,
    /// Permits for request heads of HTTP/2, in KiB.
    heads: Arc<Semaphore>,
    /// Slots for requests of HTTP/2: as many as connections, so that the limit of connections bounds
    /// requests of both protocols.
    request_slots: Arc<Semaphore>,
}

/// Open connection.
struct Connection {
    serving: Arc<Serving>,
    address: SocketAddr,
    tracked: Tracked,
    stopping: Stopping,
    /// Whether the client has a certificate that was verified against authorities.
    is_verified: bool,
}

/// Marker in the HTTP extensions of a gRPC request: the client has a verified certificate, which
/// stands for a user, because clients of gRPC may have no means to send passwords.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VerifiedClient;

/// Marker in the HTTP extensions of a response in HTTP/2: its connection accepts no more requests.
/// Running requests are answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastResponse;

/// Pending response of the router.
type Routed = <TowerToHyperService<Router> as Service<Request<Receiving>>>::Future;

/// Signal that the server is stopping.
#[derive(Clone)]
struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Completes once the server is stopping.
    async fn asked(&mut self) {
        // A dropped sender stops, too.
        let _ = self.0.wait_for(|is_asked| *is_asked).await;
    }
}

/// Serves until `stop` completes, then waits for running requests. Returns `false` if these were
/// aborted after the timeout.
pub(crate) async fn serve(
    listener: TcpListener,
    protocol: Protocol,
    router: Router,
    web: Arc<ActiveWebConfig>,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()>,
) -> bool {
    let slots_max = limits.connections_max.min(Semaphore::MAX_PERMITS);
    let all = Connections::new(limits.connections_max, limits.head_timeout());
    let serving = Arc::new(Serving {
        protocol,
        service: TowerToHyperService::new(router),
        web,
        limits,
        heads: Arc::new(Semaphore::new(http2::HEADS_KIB_MAX)),
        request_slots: Arc::new(Semaphore::new(slots_max)),
    });
    let (ask_to_stop, stopping) = watch::channel(false);
    let mut connections = tokio::task::JoinSet::new();
    tokio::pin!(stop);
    let sweeping = tokio::spawn({
        let all = Arc::clone(&all);
        async move { all.sweep_forever().await }
    });
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
            // Removes connections that have ended.
            Some(_) = connections.join_next() => continue,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let tracked = tokio::select! {
            () = &mut stop => break,
            tracked = all.admit(address) => tracked,
        };
        // Responses are written whole, so waiting for more data only delays them. If the client is
        // gone, this fails, and so do later calls.
        let _ = stream.set_nodelay(true);
        let stopping = Stopping(stopping.clone());
        let serving = Arc::clone(&serving);
        let connection = Connection { serving, address, tracked, stopping, is_verified: false };
        connections.spawn(async move {
            if let Err(error) = connection.serve(stream).await {
                debug!(error, "connection ended early");
            }
        });
    }
    sweeping.abort();
    drop(listener);
    ask_to_stop.send_replace(true);
    let ends = async { while connections.join_next().await.is_some() {} };
    let is_done = tokio::time::timeout(limits.shutdown_timeout, ends).await.is_ok();
    connections.abort_all();
    while connections.join_next().await.is_some() {}
    is_done
}

impl ConnectionLimits {
    /// Maximum time for the head of a request.
    fn head_timeout(&self) -> Duration {
        HEAD_TIMEOUT.min(self.read_timeout)
    }

    /// Returns the allowance of a client that receives a response.
    fn write_allowance(&self) -> StallAllowance {
        StallAllowance::new(self.write_stall_timeout, WRITE_BYTES_PER_SECOND_MIN)
    }
}

impl Connection {
    /// Serves until either side closes, or another connection needs the slot.
    async fn serve(self, stream: TcpStream) -> Result<(), String> {
        let tracked = self.tracked.clone();
        tokio::select! {
            ended = self.serve_open(stream) => ended,
            () = tracked.close().notified() => Err("the server has closed it".to_owned()),
        }
    }

    async fn serve_open(mut self, stream: TcpStream) -> Result<(), String> {
        let web = self.serving.web.config();
        let tls = web.as_ref().and_then(|config| config.tls.as_ref());
        let allowance = self.serving.limits.write_allowance();
        let stream = StallGuard::new(stream, allowance).tracked_by(self.tracked.clone());
        let is_grpc = self.serving.protocol == Protocol::Grpc;
        let Some(tls) = tls else {
            return match is_grpc {
                true => http2::serve(self, stream).await,
                false => self.serve_http1(stream).await,
            };
        };
        let config = Arc::clone(if is_grpc { &tls.grpc } else { &tls.web });
        let accepting = tls::accept(stream, config, self.serving.limits.head_timeout());
        let stream = tokio::select! {
            accepted = accepting => accepted.map_err(|error| error.to_string())?,
            () = self.stopping.asked() => return Ok(()),
        };
        let has_certificate = stream.get_ref().1.peer_certificates().is_some();
        self.is_verified = has_certificate && tls.verifies_clients;
        match stream.get_ref().1.alpn_protocol() {
            _ if is_grpc => http2::serve(self, stream).await,
            Some(b"h2") => http2::serve(self, stream).await,
            _ => self.serve_http1(stream).await,
        }
    }

    async fn serve_http1<S>(self, stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.tracked.end_handshake();
        self.tracked.expect_heads();
        let service = service_fn(|request| self.answer_http1(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.serving.limits.read_timeout)
            .serve_connection(TokioIo::new(EscapedTargets::new(stream)), service);
        let mut connection = std::pin::pin!(connection);
        let mut stopping = self.stopping.clone();
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = stopping.asked() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended.map_err(|error| error.to_string())
    }

    async fn answer_http1(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Answered>, Infallible> {
        let answering = self.tracked.begin_request();
        let response = match host::refusal(&request) {
            Some(refusal) => refusal,
            None => {
                let client = Client::at(self.address).closed_by(Arc::clone(self.tracked.close()));
                self.answer(request, client).await?
            }
        };
        Ok(response.map(|body| Answered { body, _answering: answering }))
    }

    /// Routes a request of this connection.
    fn answer(&self, mut request: Request<Incoming>, client: Client) -> Routed {
        request.extensions_mut().insert(client);
        if self.is_verified && self.serving.protocol == Protocol::Grpc {
            request.extensions_mut().insert(VerifiedClient);
        }
        let tracked = self.tracked.clone();
        self.serving.service.call(request.map(|body| Receiving::new(body, tracked)))
    }
}

/// Body of a response, during which its connection is busy.
struct Answered {
    body: Body,
    _answering: Answering,
}

impl hyper::body::Body for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
