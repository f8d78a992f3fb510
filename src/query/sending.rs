//! Responses that wait for their readers.
//!
//! A response holds no query slot while it is sent, so a client that reads nothing keeps nobody from
//! asking. What it holds is memory, which counts towards that of all queries. It is listed among
//! the active queries, has to be received within a time, and is given up before that where somebody
//! cancels it, or where its client has too many or too large ones: then the one goes that has not
//! been read from for the longest time. The same applies to the responses of all clients together,
//! so that running queries always have a part of the memory.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::body::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use model::{HeldMemory, MemoryPool};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::active::{ActiveQuery, Listed};

/// Responses that may be computed while they are sent, each on a thread that waits with them.
const COMPUTING_MAX: usize = 128;
/// Bytes from which a response is freed on a thread that may take its time.
const LARGE_BYTES: u64 = 1 << 20;

/// Limits of responses that are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendingLimits {
    /// Responses of one client that may wait at once.
    pub(crate) per_client_max: usize,
    /// Bytes that the responses of one client may hold, but for a single one.
    pub(crate) bytes_per_client_max: u64,
    /// Bytes that the responses of all clients may hold, but for a single one.
    pub(crate) bytes_max: u64,
    /// Time within which a response has to be received.
    pub(crate) timeout: Duration,
}

/// All responses that wait for their readers.
pub(crate) struct Outbox {
    limits: SendingLimits,
    pool: Arc<MemoryPool>,
    responses: Mutex<BTreeMap<u64, Arc<Outgoing>>>,
}

/// Reason for which a response is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum GiveUp {
    #[error("the query was canceled while its response was sent")]
    Canceled,
    #[error("the response was not received within --web.write-timeout")]
    TimedOut,
    #[error("other responses of this client wait to be received (--query.max-sending-per-client)")]
    Crowded,
    #[error("responses that wait to be received hold most of --query.max-memory-total")]
    MemoryNeeded,
}

/// Body that is still to be sent, in order.
pub(crate) type Content = BoxStream<'static, io::Result<Bytes>>;

/// One response that waits.
struct Outgoing {
    query: Arc<ActiveQuery>,
    network: Option<IpAddr>,
    bytes: u64,
    is_computed: bool,
    body: Mutex<OutgoingBody>,
}

struct OutgoingBody {
    content: Option<Content>,
    /// Taken away together with the content.
    held: Option<(Listed, Option<HeldMemory>)>,
    given_up: Option<GiveUp>,
    /// Time when the client last had room for more.
    read_at: Instant,
    /// Waker of the task that waits for more content.
    waker: Option<Waker>,
}

impl Outbox {
    /// An empty outbox, which holds memory of a pool.
    pub(crate) fn new(limits: SendingLimits, pool: Arc<MemoryPool>) -> Outbox {
        Outbox { limits, pool, responses: Mutex::default() }
    }

    /// Prepares a response that holds so many bytes.
    pub(crate) fn prepare(self: &Arc<Self>, listed: Listed, bytes: u64) -> Sending {
        let memory = Some(self.pool.hold(bytes));
        Sending { outbox: Arc::clone(self), listed, bytes, memory, is_computed: true }
    }

    /// Prepares a response that is computed while it is sent; its memory is accounted elsewhere.
    pub(crate) fn prepare_computing(self: &Arc<Self>, listed: Listed, bytes: u64) -> Sending {
        listed.query().run();
        Sending { outbox: Arc::clone(self), listed, bytes, memory: None, is_computed: false }
    }

    /// Lists a response, and gives others up where the limits ask for it.
    fn admit(&self, admitted: &Arc<Outgoing>) {
        let mut responses = self.responses();
        responses.insert(admitted.query.id, Arc::clone(admitted));
        let mut given_up = Vec::new();
        while let Some((id, reason)) = self.dispensable(&responses, admitted) {
            given_up.extend(responses.remove(&id).map(|outgoing| (outgoing, reason)));
        }
        drop(responses);
        for (outgoing, reason) in given_up {
            outgoing.give_up(reason);
        }
    }

    /// The response that has to make room for one that was admitted, and the reason.
    fn dispensable(
        &self,
        responses: &BTreeMap<u64, Arc<Outgoing>>,
        admitted: &Outgoing,
    ) -> Option<(u64, GiveUp)> {
        let is_other = |other: &&Arc<Outgoing>| other.query.id != admitted.query.id;
        let of_client = || {
            let is_same = |other: &&Arc<Outgoing>| other.network == admitted.network;
            responses.values().filter(is_other).filter(is_same)
        };
        let (count, bytes) = of_client()
            .fold((1, admitted.bytes), |(count, bytes), other| (count + 1, bytes + other.bytes));
        let limits = &self.limits;
        let is_crowded = count > limits.per_client_max || bytes > limits.bytes_per_client_max;
        if admitted.network.is_some() && is_crowded && count > 1 {
            return Some((least_read(of_client())?, GiveUp::Crowded));
        }
        let computing = || responses.values().filter(is_other).filter(|other| !other.is_computed);
        if !admitted.is_computed && computing().count() >= COMPUTING_MAX {
            return Some((least_read(computing())?, GiveUp::Crowded));
        }
        if responses.values().map(|outgoing| outgoing.bytes).sum::<u64>() > limits.bytes_max {
            return Some((least_read(responses.values().filter(is_other))?, GiveUp::MemoryNeeded));
        }
        None
    }

    fn responses(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Outgoing>>> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the id of the response that has waited longest for its reader.
fn least_read<'a>(responses: impl Iterator<Item = &'a Arc<Outgoing>>) -> Option<u64> {
    responses.min_by_key(|outgoing| outgoing.read_at()).map(|outgoing| outgoing.query.id)
}

impl Outgoing {
    fn body(&self) -> MutexGuard<'_, OutgoingBody> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_at(&self) -> Instant {
        self.body().read_at
    }

    /// Frees what the response holds; the client is told by the end of its connection.
    fn give_up(&self, reason: GiveUp) {
        let mut body = self.body();
        if body.held.is_none() {
            return;
        }
        body.given_up = Some(reason);
        let waker = body.waker.take();
        self.free(body);
        let client = self.query.client.to_string();
        tracing::debug!(query = self.query.text, client, %reason, "response given up");
        self.query.client.close();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn free(&self, mut body: MutexGuard<'_, OutgoingBody>) {
        let freed = (body.content.take(), body.held.take());
        drop(body);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.bytes >= LARGE_BYTES => {
                runtime.spawn_blocking(move || drop(freed));
            }
            _ => drop(freed),
        }
    }
}

/// Work whose answer is sent: a query or a lookup.
pub(crate) trait Answered {
    /// Ends it; the answer holds so many bytes while it is sent.
    fn into_sending(self, bytes: u64) -> Sending;
}

impl Answered for Sending {
    fn into_sending(self, _: u64) -> Sending {
        self
    }
}

/// Mark of a response that is encoded while it is sent, and given up where it is not received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IsLong;

/// Charges bytes to the query memory until they are sent.
pub(crate) fn counted(pool: &Arc<MemoryPool>, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
    let _memory = pool.hold(bytes.as_ref().len() as u64);
    Bytes::from_owner(Counted { bytes, _memory })
}

struct Counted<B> {
    bytes: B,
    _memory: HeldMemory,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Counted<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// A response that is about to be sent. Dropped, it holds nothing any more.
pub(crate) struct Sending {
    outbox: Arc<Outbox>,
    listed: Listed,
    bytes: u64,
    memory: Option<HeldMemory>,
    is_computed: bool,
}

impl Sending {
    /// Sends a body that fits into what a connection buffers: nobody has to wait for its reader.
    pub(crate) fn finish(self, body: Vec<u8>) -> Bytes {
        counted(&self.outbox.pool, body)
    }

    /// Starts to send a body that does not fit into what a connection buffers.
    ///
    /// Panics: outside of a tokio runtime.
    pub(crate) fn start(self, content: Content) -> SentBody {
        let Sending { outbox, listed, bytes, memory, is_computed } = self;
        let query = Arc::clone(listed.query());
        query.send(if is_computed { bytes } else { 0 });
        let network = query.client.network();
        let body = OutgoingBody {
            content: Some(content),
            held: Some((listed, memory)),
            given_up: None,
            read_at: Instant::now(),
            waker: None,
        };
        let outgoing = Outgoing { query, network, bytes, is_computed, body: Mutex::new(body) };
        let outgoing = Arc::new(outgoing);
        outbox.admit(&outgoing);
        let (watched, timeout) = (Arc::clone(&outgoing), outbox.limits.timeout);
        let watch = tokio::spawn(async move {
            let reason = tokio::select! {
                () = watched.query.canceled() => GiveUp::Canceled,
                () = tokio::time::sleep(timeout) => GiveUp::TimedOut,
            };
            watched.give_up(reason);
        });
        SentBody { outbox, outgoing, watch: watch.abort_handle() }
    }
}

/// Body of a response, until it is sent or given up.
pub(crate) struct SentBody {
    outbox: Arc<Outbox>,
    outgoing: Arc<Outgoing>,
    watch: AbortHandle,
}

impl Stream for SentBody {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut body = self.outgoing.body();
        if let Some(reason) = body.given_up {
            return Poll::Ready(Some(Err(io::Error::other(reason))));
        }
        body.read_at = Instant::now();
        body.waker = Some(context.waker().clone());
        let Some(content) = &mut body.content else { return Poll::Ready(None) };
        let next = ready!(content.poll_next_unpin(context));
        if next.is_none() {
            self.outgoing.free(body);
        }
        Poll::Ready(next)
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        self.watch.abort();
        self.outbox.responses().remove(&self.outgoing.query.id);
        self.outgoing.free(self.outgoing.body());
    }
}
