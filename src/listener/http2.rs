//! HTTP/2: requests share a connection, so limits of connections in HTTP/1.1 apply to requests here:
//! their number, and the minimum rate of a client. A connection without requests is idle, and is
//! closed like an idle one of HTTP/1.1.
//!
//! A response is sent in small pieces, each when the client has room for it. While no piece is
//! requested, the server waits for the client.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode};
use hyper::Request;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::connections::Answering;
use super::slow_client::StallAllowance;
use super::{Connection, LastResponse, Protocol};
use crate::query::active::Client;
use crate::query::sending::IsLong;

/// Maximum number of concurrent requests of a connection.
const STREAMS_MAX: u32 = 100;
/// Maximum number of concurrent calls of a connection of gRPC.
const CALLS_MAX: u32 = 1_000;
/// Maximum size of a request head, in bytes, as for HTTP/1.1.
const HEAD_BYTES_MAX: u32 = 400 << 10;
/// Overhead of a header field, in addition to its bytes.
const FIELD_BYTES: usize = 32;
/// Maximum size of the heads of all running requests, in KiB; further requests are rejected.
pub(super) const HEADS_KIB_MAX: usize = 64 << 10;
/// Maximum size of the heads of all running requests of one connection, in KiB.
const OWN_HEADS_KIB_MAX: usize = 4 << 10;
/// Maximum bytes of a response that wait for the client in the connection.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Maximum size of a piece of a response, in bytes.
const PIECE_BYTES_MAX: usize = 16 << 10;
/// Maximum size of a response that needs no permit while it is unread, in bytes, such as that of an
/// unauthenticated client.
const SMALL_BYTES_MAX: u64 = 1 << 10;
/// Maximum number of unread responses of a connection, except small and long ones; beyond it, its
/// requests wait.
const UNREAD_MAX: usize = 32;
/// Maximum interval of checks for slow clients and idle connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Age at which a connection of gRPC ends. Its client connects again, perhaps to another node of the
/// same name.
const CALLS_AGE: Duration = Duration::from_secs(300);
/// Maximum seconds added to the age, so that connections do not all end at one time.
const CALLS_AGE_SPREAD: u16 = 60;

/// Serves until either side closes, or the client is idle or too slow.
pub(super) async fn serve<S>(connection: Connection, stream: S) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connection.tracked.end_handshake();
    let connection = Arc::new(connection);
    let streams = Arc::new(Streams::new());
    let calls_max = match connection.serving.protocol {
        Protocol::Web => STREAMS_MAX,
        Protocol::Grpc => CALLS_MAX,
    };
    let serving = {
        let (connection, streams) = (Arc::clone(&connection), Arc::clone(&streams));
        let service = service_fn(move |request| {
            answer(Arc::clone(&connection), Arc::clone(&streams), request)
        });
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(calls_max)
            .max_header_list_size(HEAD_BYTES_MAX)
            .max_send_buf_size(SEND_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
    };
    let mut serving = std::pin::pin!(serving);
    let mut ending = std::pin::pin!(wait_for_end(&connection, &streams));
    let read_timeout = connection.serving.limits.read_timeout;
    let stall_timeout = connection.serving.limits.write_stall_timeout;
    let mut checks = tokio::time::interval(CHECK_INTERVAL.min(read_timeout).min(stall_timeout));
    let (mut is_stopping, mut is_closing) = (false, false);
    loop {
        tokio::select! {
            ended = &mut serving => return ended.map_err(|error| error.to_string()),
            () = &mut ending, if !is_stopping => {
                is_stopping = true;
                serving.as_mut().graceful_shutdown();
            }
            _ = checks.tick() => {
                streams.check()?;
                if streams.idle_time().is_some_and(|time| time >= read_timeout) {
                    if std::mem::replace(&mut is_closing, true) {
                        return Err("the client is idle and does not close".to_owned());
                    }
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Waits until the connection shall accept no more requests.
async fn wait_for_end(connection: &Connection, streams: &Streams) {
    let age = match connection.serving.protocol {
        Protocol::Web => Duration::MAX,
        Protocol::Grpc => {
            CALLS_AGE + Duration::from_secs((connection.address.port() % CALLS_AGE_SPREAD).into())
        }
    };
    let mut stopping = connection.stopping.clone();
    tokio::select! {
        () = stopping.asked() => {}
        () = streams.last_response.notified() => {}
        () = tokio::time::sleep(age) => {}
    }
}

async fn answer(
    connection: Arc<Connection>,
    streams: Arc<Streams>,
    request: Request<Incoming>,
) -> Result<Response<Pieces>, Infallible> {
    let slots = Arc::clone(&connection.serving.request_slots);
    let unread = Arc::clone(&streams.unread);
    let heads = Arc::clone(&streams.heads);
    let allowance = connection.serving.limits.write_allowance();
    let stream = Stream::begin(Arc::clone(&streams), connection.tracked.begin_request(), allowance);
    let kib = head_kib(&request);
    let own = heads.try_acquire_many_owned(kib);
    let all = Arc::clone(&connection.serving.heads).try_acquire_many_owned(kib);
    let (Ok(_own), Ok(_all)) = (own, all) else {
        let body = Body::from("too many large heads of requests wait\n");
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let pieces =
            |body| Pieces { body, rest: Bytes::new(), piece_bytes: 0, stream, _unread: None };
        return Ok(response.map(pieces));
    };
    // Responses of gRPC are long, or small: the root of a cluster sends all calls over a connection.
    let unread = match connection.serving.protocol {
        Protocol::Web => Some(unread.acquire_owned().await.expect("the semaphore is never closed")),
        Protocol::Grpc => None,
    };
    let permit = slots.acquire_owned().await.expect("the semaphore is never closed");
    let client = Client::at(connection.address);
    let response = connection.answer(request, client).await?;
    drop(permit);
    if response.extensions().get::<LastResponse>().is_some() {
        streams.last_response.notify_one();
    }
    let is_long = response.extensions().get::<IsLong>().is_some();
    Ok(response.map(|body| {
        let is_small = Body::size_hint(&body).upper().is_some_and(|most| most <= SMALL_BYTES_MAX);
        let unread = unread.filter(|_| !is_small && !is_long);
        Pieces { body, rest: Bytes::new(), piece_bytes: 0, stream, _unread: unread }
    }))
}

/// Returns the size of a request head, in KiB.
fn head_kib(request: &Request<Incoming>) -> u32 {
    let headers = request.headers().iter();
    let fields = headers.map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    1 + u32::try_from((target + fields.sum::<usize>()) >> 10).unwrap_or(u32::MAX - 1)
}

/// Running requests of a connection.
struct Streams {
    open: Mutex<Open>,
    /// Permits for unread responses.
    unread: Arc<Semaphore>,
    /// Permits for heads of running requests, in KiB.
    heads: Arc<Semaphore>,
    /// Notified of a [`LastResponse`].
    last_response: Notify,
}

struct Open {
    next_id: u64,
    allowances: HashMap<u64, StallAllowance>,
    /// End of the last request.
    idle_since: Instant,
}

impl Streams {
    fn new() -> Streams {
        let allowances = HashMap::new();
        let open = Open { next_id: 0, allowances, idle_since: Instant::now() };
        Streams {
            open: Mutex::new(open),
            unread: Arc::new(Semaphore::new(UNREAD_MAX)),
            heads: Arc::new(Semaphore::new(OWN_HEADS_KIB_MAX)),
            last_response: Notify::new(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the last request, without running ones.
    fn idle_time(&self) -> Option<Duration> {
        let open = self.open();
        open.allowances.is_empty().then(|| open.idle_since.elapsed())
    }

    /// Errors: the client receives a response too slowly.
    fn check(&self) -> Result<(), String> {
        match self.open().allowances.values().find(|allowance| allowance.left().is_zero()) {
            Some(allowance) => Err(allowance.error().to_string()),
            None => Ok(()),
        }
    }
}

/// Running request, until it is dropped.
struct Stream {
    id: u64,
    all: Arc<Streams>,
    _answering: Answering,
}

impl Stream {
    fn begin(all: Arc<Streams>, answering: Answering, allowance: StallAllowance) -> Stream {
        let mut open = all.open();
        let id = open.next_id;
        open.next_id += 1;
        open.allowances.insert(id, allowance);
        drop(open);
        Stream { id, all, _answering: answering }
    }

    fn with_allowance(&self, change: impl FnOnce(&mut StallAllowance)) {
        if let Some(allowance) = self.all.open().allowances.get_mut(&self.id) {
            change(allowance);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut open = self.all.open();
        open.allowances.remove(&self.id);
        open.idle_since = Instant::now();
    }
}

/// Body in pieces, each requested when the client has room for it.
struct Pieces {
    body: Body,
    /// Bytes of the body that are not sent yet.
    rest: Bytes,
    /// Size of the last piece.
    piece_bytes: usize,
    stream: Stream,
    /// Held until the response is sent, unless it is small, or long and limited by the outbox.
    _unread: Option<OwnedSemaphorePermit>,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let taken = std::mem::take(&mut this.piece_bytes);
        this.stream.with_allowance(|allowance| allowance.take(taken));
        while this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES_MAX));
        this.piece_bytes = piece.len();
        this.stream.with_allowance(|allowance| {
            allowance.wait();
        });
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use axum::{Extension, Router};
    use hyper::client::conn::http2 as client;
    use hyper_util::service::TowerToHyperService;
    use tokio::io::DuplexStream;
    use tokio::sync::watch;
    use tokio::task::JoinHandle;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::listener::connections::Connections;
    use crate::listener::{ConnectionLimits, HEAD_TIMEOUT, Serving, Stopping};

    const READ_TIMEOUT: Duration = Duration::from_secs(300);

    /// Connection after a handshake of some duration.
    struct Opened {
        served: JoinHandle<Result<(), String>>,
        sender: client::SendRequest<Body>,
        client: JoinHandle<hyper::Result<()>>,
        _ask_to_stop: watch::Sender<bool>,
    }

    impl Opened {
        async fn after(handshake_time: Duration) -> Opened {
            Opened::with(Protocol::Web, handshake_time).await
        }

        async fn with(protocol: Protocol, handshake_time: Duration) -> Opened {
            let limits = ConnectionLimits {
                connections_max: 1,
                read_timeout: READ_TIMEOUT,
                write_stall_timeout: Duration::from_secs(60),
                shutdown_timeout: Duration::ZERO,
            };
            let last = || async { (Extension(LastResponse), "an answer") };
            let router =
                Router::new().route("/", get(|| async { "an answer" })).route("/last", get(last));
            let serving = Serving {
                protocol,
                service: TowerToHyperService::new(router),
                web: Arc::default(),
                limits,
                heads: Arc::new(Semaphore::new(HEADS_KIB_MAX)),
                request_slots: Arc::new(Semaphore::new(1)),
            };
            let all = Connections::new(1, limits.head_timeout());
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            let tracked = all.admit(address).await;
            tokio::spawn(async move { all.sweep_forever().await });
            advance(handshake_time).await;
            let (ask_to_stop, stopping) = watch::channel(false);
            let (stopping, close) = (Stopping(stopping), Arc::clone(tracked.close()));
            let serving = Arc::new(serving);
            let connection = Connection { serving, address, tracked, stopping, is_verified: false };
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let served = tokio::spawn(async move {
                tokio::select! {
                    ended = serve::<DuplexStream>(connection, ours) => ended,
                    () = close.notified() => Err("no head came".to_owned()),
                }
            });
            let opened = client::handshake(TokioExecutor::new(), TokioIo::new(theirs)).await;
            let (sender, connection) = opened.unwrap();
            let client = tokio::spawn(connection);
            Opened { served, sender, client, _ask_to_stop: ask_to_stop }
        }

        async fn ask(&mut self) -> StatusCode {
            self.ask_for("/").await
        }

        async fn ask_for(&mut self, path: &str) -> StatusCode {
            let uri = format!("https://localhost{path}");
            let request = Request::get(uri).body(Body::empty()).unwrap();
            self.sender.send_request(request).await.unwrap().status()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed_and_one_with_requests_is_not() {
        let mut opened = Opened::after(Duration::ZERO).await;
        for _ in 0..5 {
            assert_eq!(opened.ask().await, StatusCode::OK);
            sleep(READ_TIMEOUT * 2 / 3).await;
        }
        assert!(!opened.served.is_finished());
        let last = Instant::now();
        // Both sides end; their results depend on which closes first.
        let _ = (&mut opened.served).await.unwrap();
        let _ = (&mut opened.client).await.unwrap();
        let rest = READ_TIMEOUT / 3;
        let elapsed = last.elapsed();
        assert!(elapsed >= rest && elapsed <= rest + 2 * CHECK_INTERVAL, "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_connection_of_grpc_ends_and_one_of_the_page_stays() {
        let ends = async |protocol| {
            let mut opened = Opened::with(protocol, Duration::ZERO).await;
            let opened_at = Instant::now();
            while opened_at.elapsed() < CALLS_AGE * 3 && !opened.client.is_finished() {
                assert_eq!(opened.ask().await, StatusCode::OK);
                sleep(CALLS_AGE / 10).await;
            }
            opened.client.is_finished()
        };
        assert!(ends(Protocol::Grpc).await);
        assert!(!ends(Protocol::Web).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_after_a_last_response() {
        let mut opened = Opened::with(Protocol::Grpc, Duration::ZERO).await;
        assert_eq!(opened.ask().await, StatusCode::OK);
        let asked_at = Instant::now();
        assert_eq!(opened.ask_for("/last").await, StatusCode::OK);
        let _ = (&mut opened.served).await.unwrap();
        let _ = (&mut opened.client).await.unwrap();
        assert!(asked_at.elapsed() < CHECK_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn handshake_and_first_request_have_their_time_each() {
        let most = HEAD_TIMEOUT * 4 / 5;
        let mut opened = Opened::after(most).await;
        sleep(most).await;
        assert_eq!(opened.ask().await, StatusCode::OK);
        let mut silent = Opened::after(most).await;
        assert_eq!((&mut silent.served).await.unwrap(), Err("no head came".to_owned()));
    }
}
