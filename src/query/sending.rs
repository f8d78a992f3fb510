//! Responses that wait for their readers.
//!
//! A response holds no query slot while it is sent, so slow clients block no queries. Its memory
//! counts towards the memory of all queries, and it is listed among the active queries. It is
//! dropped after a timeout, when it is canceled, or when its client has too many or too large
//! responses: first the one that was not read from for the longest time. A client is a network, or
//! with tenants a tenant, because a proxy sends the requests of all. The same limit applies to
//! all clients together, so that running queries always have a part of the memory.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::body::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use json::pieces::Parts;
use model::{HeldMemory, MemoryPool};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::active::{ActiveQuery, Client, Listed};
use super::encoded_parts::EncodedParts;
use crate::tenancy::{Scope, TenantTable};

/// Maximum number of responses that are computed while they are sent, each on its own thread.
const COMPUTING_MAX: usize = 128;
/// Minimum size of a response that is freed on a blocking thread.
const LARGE_BYTES: u64 = 1 << 20;

/// Limits of responses that wait for their readers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendingLimits {
    /// Maximum number of responses of one client.
    pub(crate) per_client_max: usize,
    /// Maximum bytes of the responses of one client; a single one may be larger.
    pub(crate) bytes_per_client_max: u64,
    /// Maximum bytes of the responses of all clients; a single one may be larger.
    pub(crate) bytes_max: u64,
    /// Maximum time until a response is received.
    pub(crate) timeout: Duration,
}

/// All responses that wait for their readers.
pub(crate) struct Outbox {
    limits: SendingLimits,
    pool: Arc<MemoryPool>,
    tenants: Arc<TenantTable>,
    /// Slots of threads that encode parts, one per core.
    encoder_slots: Arc<Semaphore>,
    responses: Mutex<BTreeMap<u64, Arc<Outgoing>>>,
}

/// Reason to drop a response before it is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum DropReason {
    #[error("the query was canceled while its response was sent")]
    Canceled,
    #[error("response not received in time (--web.write-timeout)")]
    TimedOut,
    #[error("too many unread responses of this client (--query.max-sending-per-client)")]
    Crowded,
    #[error("unread responses hold most of the query memory (--query.max-memory-total)")]
    MemoryNeeded,
}

/// Rest of a body, in order.
pub(crate) type Content = BoxStream<'static, io::Result<Bytes>>;

/// Response that waits for its reader.
struct Outgoing {
    query: Arc<ActiveQuery>,
    clients: Vec<LimitedClient>,
    bytes: u64,
    is_computed: bool,
    body: Mutex<OutgoingBody>,
}

/// Client whose responses are limited together.
#[derive(Debug, PartialEq, Eq)]
enum LimitedClient {
    /// Tenant, whatever its address.
    Tenant(String),
    /// Network of a request without tenants.
    Network(IpAddr),
}

/// Returns the clients for which a response counts: each of its tenants, or its network.
fn limited_clients(client: &Client) -> Vec<LimitedClient> {
    match client.scope() {
        Some(Scope::Tenants(tenants)) => {
            tenants.names().iter().cloned().map(LimitedClient::Tenant).collect()
        }
        Some(Scope::Root) | None => {
            client.network().map(LimitedClient::Network).into_iter().collect()
        }
    }
}

struct OutgoingBody {
    content: Option<Content>,
    /// Released together with the content.
    held: Option<(Listed, Vec<HeldMemory>)>,
    dropped: Option<DropReason>,
    /// Time when the client last had room for more.
    read_at: Instant,
    /// Waker of the task that waits for more content.
    waker: Option<Waker>,
}

impl Outbox {
    /// Returns an empty outbox that charges a pool, and the memory of tenants.
    pub(crate) fn new(
        limits: SendingLimits,
        pool: Arc<MemoryPool>,
        tenants: Arc<TenantTable>,
    ) -> Outbox {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let encoder_slots = Arc::new(Semaphore::new(cores));
        Outbox { limits, pool, tenants, encoder_slots, responses: Mutex::default() }
    }

    /// Prepares a response of `bytes`.
    pub(crate) fn prepare(self: &Arc<Self>, listed: Listed, bytes: u64) -> Sending {
        let tenants = self.tenants.of(listed.query().client.scope());
        let mut memory = vec![self.pool.hold(bytes)];
        memory.extend(tenants.iter().map(|tenant| tenant.memory().hold(bytes)));
        Sending { outbox: Arc::clone(self), listed, bytes, memory, is_computed: true }
    }

    /// Prepares a response that is computed while it is sent; its memory is accounted elsewhere.
    pub(crate) fn prepare_computing(self: &Arc<Self>, listed: Listed, bytes: u64) -> Sending {
        listed.query().set_running();
        Sending { outbox: Arc::clone(self), listed, bytes, memory: Vec::new(), is_computed: false }
    }

    /// Lists a response, and drops others beyond the limits.
    fn admit(&self, admitted: &Arc<Outgoing>) {
        let mut responses = self.responses();
        responses.insert(admitted.query.id, Arc::clone(admitted));
        let mut dropped = Vec::new();
        while let Some((id, reason)) = self.dispensable(&responses, admitted) {
            dropped.extend(responses.remove(&id).map(|outgoing| (outgoing, reason)));
        }
        drop(responses);
        for (outgoing, reason) in dropped {
            outgoing.abort(reason);
        }
    }

    /// Returns a response to drop for one that was admitted, with the reason.
    fn dispensable(
        &self,
        responses: &BTreeMap<u64, Arc<Outgoing>>,
        admitted: &Outgoing,
    ) -> Option<(u64, DropReason)> {
        let is_other = |other: &&Arc<Outgoing>| other.query.id != admitted.query.id;
        let limits = &self.limits;
        for client in &admitted.clients {
            let of_client = || {
                let is_same = |other: &&Arc<Outgoing>| other.clients.contains(client);
                responses.values().filter(is_other).filter(is_same)
            };
            let (count, bytes) = of_client().fold((1, admitted.bytes), |(count, bytes), other| {
                (count + 1, bytes + other.bytes)
            });
            let is_crowded = count > limits.per_client_max || bytes > limits.bytes_per_client_max;
            if is_crowded && count > 1 {
                return Some((least_read(of_client())?, DropReason::Crowded));
            }
        }
        let computing = || responses.values().filter(is_other).filter(|other| !other.is_computed);
        if !admitted.is_computed && computing().count() >= COMPUTING_MAX {
            return Some((least_read(computing())?, DropReason::Crowded));
        }
        if responses.values().map(|outgoing| outgoing.bytes).sum::<u64>() > limits.bytes_max {
            return Some((
                least_read(responses.values().filter(is_other))?,
                DropReason::MemoryNeeded,
            ));
        }
        None
    }

    fn responses(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Outgoing>>> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the id of the response that was not read from for the longest time.
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

    /// Frees the response, and closes its connection.
    fn abort(&self, reason: DropReason) {
        let mut body = self.body();
        if body.held.is_none() {
            return;
        }
        body.dropped = Some(reason);
        let waker = body.waker.take();
        self.free(body);
        let client = self.query.client.to_string();
        tracing::debug!(query = self.query.text, client, %reason, "response dropped");
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

/// Work that ends with a response: a query or a lookup.
pub(crate) trait Answered {
    /// Ends the work; its response holds `bytes` while it is sent.
    fn into_sending(self, bytes: u64) -> Sending;
}

impl Answered for Sending {
    fn into_sending(self, _: u64) -> Sending {
        self
    }
}

/// Marker in the HTTP extensions of a response whose body is encoded while it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IsLong {
    /// A poll of the body encodes the next chunk.
    EncodedByPolls,
    /// Other threads encode, and a poll takes the next encoded part.
    EncodedAhead,
}

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

/// Response that is about to be sent; dropping it releases its memory.
pub(crate) struct Sending {
    outbox: Arc<Outbox>,
    listed: Listed,
    bytes: u64,
    memory: Vec<HeldMemory>,
    is_computed: bool,
}

impl Sending {
    /// Sends a body that fits into the buffer of a connection, so its reader is not waited for.
    pub(crate) fn finish(self, body: Vec<u8>) -> Bytes {
        counted(&self.outbox.pool, body)
    }

    /// Starts to send a body whose parts are encoded on several threads, ahead of its reader.
    ///
    /// Panics: outside of a tokio runtime.
    pub(crate) fn start_parts(self, parts: Parts) -> SentBody {
        let (slots, pool) = (Arc::clone(&self.outbox.encoder_slots), Arc::clone(&self.outbox.pool));
        self.start(Box::pin(EncodedParts::new(parts, slots, pool)))
    }

    /// Starts to send a body that does not fit into the buffer of a connection.
    ///
    /// Panics: outside of a tokio runtime.
    pub(crate) fn start(self, content: Content) -> SentBody {
        let Sending { outbox, listed, bytes, memory, is_computed } = self;
        let query = Arc::clone(listed.query());
        query.set_sending(if is_computed { bytes } else { 0 });
        let clients = limited_clients(&query.client);
        let body = OutgoingBody {
            content: Some(content),
            held: Some((listed, memory)),
            dropped: None,
            read_at: Instant::now(),
            waker: None,
        };
        let outgoing = Outgoing { query, clients, bytes, is_computed, body: Mutex::new(body) };
        let outgoing = Arc::new(outgoing);
        outbox.admit(&outgoing);
        let (watched, timeout) = (Arc::clone(&outgoing), outbox.limits.timeout);
        let watch = tokio::spawn(async move {
            let reason = tokio::select! {
                () = watched.query.canceled() => DropReason::Canceled,
                () = tokio::time::sleep(timeout) => DropReason::TimedOut,
            };
            watched.abort(reason);
        });
        SentBody { outbox, outgoing, watch: watch.abort_handle() }
    }
}

/// Body of a response, until it is sent or dropped.
pub(crate) struct SentBody {
    outbox: Arc<Outbox>,
    outgoing: Arc<Outgoing>,
    watch: AbortHandle,
}

impl Stream for SentBody {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut body = self.outgoing.body();
        if let Some(reason) = body.dropped {
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
