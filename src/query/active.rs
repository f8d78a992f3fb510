//! Active queries and lookups: those that wait, run, or send their response; who asked what, since
//! when, and what it has cost so far.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use engine::When;
use model::BudgetView;
use tokio::sync::Notify;

/// Characters of a query that are kept.
const TEXT_CHARS_MAX: usize = 4096;

/// Whoever has sent a request: the other end of its connection, where there is one, and who that
/// is, once it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    address: Option<SocketAddr>,
    user: Arc<OnceLock<Arc<str>>>,
    /// Closes the connection, where it carries one request at a time.
    close: Option<Arc<Notify>>,
}

impl Client {
    /// At an address.
    pub(crate) fn at(address: SocketAddr) -> Client {
        Client { address: Some(address), ..Client::default() }
    }

    /// Client of a connection that ends once `close` is notified.
    pub(crate) fn closed_by(self, close: Arc<Notify>) -> Client {
        Client { close: Some(close), ..self }
    }

    /// Closes the connection, unless other requests share it.
    pub(crate) fn close(&self) {
        if let Some(close) = &self.close {
            close.notify_one();
        }
    }

    /// Network that limits per client apply to; none without an address.
    pub(crate) fn network(&self) -> Option<IpAddr> {
        self.address.map(network_of)
    }

    /// Notes who it is, for all that know of this request.
    pub(crate) fn set_user(&self, name: &Arc<str>) {
        // It says so once.
        let _ = self.user.set(Arc::clone(name));
    }

    /// The name of the user; empty where nobody has to say it, or it is not known.
    pub(crate) fn user(&self) -> &str {
        self.user.get().map_or("", |name| name)
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            Some(address) => write!(f, "{address}"),
            None => Ok(()),
        }
    }
}

/// Returns the address that stands for a client: of IPv6 the network of 64 bits, which is what one
/// subscriber is given.
pub(crate) fn network_of(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
        ip => ip,
    }
}

/// All active queries. The gate, the outbox and the connections bound how many there are.
#[derive(Debug, Default)]
pub(crate) struct ActiveQueries {
    next_id: AtomicU64,
    queries: Mutex<BTreeMap<u64, Arc<ActiveQuery>>>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct ActiveQuery {
    /// Its number since the start of the server.
    pub(crate) id: u64,
    /// Its text, or the beginning of it; the path and selectors of a lookup.
    pub(crate) text: String,
    /// When it is evaluated; none for a lookup.
    pub(crate) when: Option<When>,
    /// Who asked.
    pub(crate) client: Client,
    /// Since when.
    pub(crate) started: SystemTime,
    /// The same by the clock that never jumps.
    pub(crate) began: Instant,
    /// What it has cost so far.
    pub(crate) view: BudgetView,
    state: AtomicU8,
    /// Bytes that its response holds while it is sent.
    sending_bytes: AtomicU64,
    cancel: Notify,
}

/// Progress of an active query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum QueryState {
    /// It waits for a slot.
    Waiting = 0,
    /// It is evaluated, if only as far as a trial goes.
    Running = 1,
    /// Its response waits for the reader.
    Sending = 2,
}

impl QueryState {
    /// Name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            QueryState::Waiting => "waiting",
            QueryState::Running => "running",
            QueryState::Sending => "sending",
        }
    }
}

/// Keeps a query listed.
#[derive(Debug)]
pub(crate) struct Listed {
    all: Arc<ActiveQueries>,
    query: Arc<ActiveQuery>,
}

impl ActiveQueries {
    /// Lists a query until what is returned is dropped.
    pub(crate) fn list(self: &Arc<Self>, text: &str, when: Option<When>, client: Client) -> Listed {
        let query = Arc::new(ActiveQuery {
            id: 1 + self.next_id.fetch_add(1, Ordering::Relaxed),
            text: text.chars().take(TEXT_CHARS_MAX).collect(),
            when,
            client,
            started: SystemTime::now(),
            began: Instant::now(),
            view: BudgetView::default(),
            state: AtomicU8::new(QueryState::Waiting as u8),
            sending_bytes: AtomicU64::new(0),
            cancel: Notify::new(),
        });
        self.queries().insert(query.id, Arc::clone(&query));
        Listed { all: Arc::clone(self), query }
    }

    /// All of them, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<ActiveQuery>> {
        self.queries().values().cloned().collect()
    }

    /// Ends a query; `false` where there is none of this number.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        let query = self.queries().get(&id).cloned();
        if let Some(query) = &query {
            query.cancel.notify_one();
        }
        query.is_some()
    }

    fn queries(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ActiveQuery>>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveQuery {
    /// Notes that it waits for no place.
    pub(crate) fn run(&self) {
        self.state.store(QueryState::Running as u8, Ordering::Relaxed);
    }

    /// Notes that its response waits for the reader, and holds so many bytes.
    pub(crate) fn send(&self, bytes: u64) {
        self.sending_bytes.store(bytes, Ordering::Relaxed);
        self.state.store(QueryState::Sending as u8, Ordering::Relaxed);
    }

    /// Progress so far.
    pub(crate) fn state(&self) -> QueryState {
        match self.state.load(Ordering::Relaxed) {
            0 => QueryState::Waiting,
            1 => QueryState::Running,
            _ => QueryState::Sending,
        }
    }

    /// Bytes that its response holds while it is sent.
    pub(crate) fn sending_bytes(&self) -> u64 {
        self.sending_bytes.load(Ordering::Relaxed)
    }

    /// Completes once somebody ends it.
    pub(crate) async fn canceled(&self) {
        self.cancel.notified().await;
    }
}

impl Listed {
    /// The query.
    pub(crate) fn query(&self) -> &Arc<ActiveQuery> {
        &self.query
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.queries().remove(&self.query.id);
    }
}
