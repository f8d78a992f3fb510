//! Active queries and lookups, which wait, run, or send their response: client, text, start and cost
//! so far.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use engine::When;
use model::BudgetView;
use tokio::sync::Notify;

use crate::tenancy::Scope;

/// Maximum number of characters that are kept of a query.
const TEXT_CHARS_MAX: usize = 4096;

/// Client that has sent a request: its address, if it has a connection, and its user, once known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    address: Option<SocketAddr>,
    user: Arc<OnceLock<Arc<str>>>,
    /// Closes the connection, if it carries one request at a time.
    close: Option<Arc<Notify>>,
    /// Series that its request may read, if tenants are on.
    scope: Option<Scope>,
}

impl Client {
    /// Returns the client at an address.
    pub(crate) fn at(address: SocketAddr) -> Client {
        Client { address: Some(address), ..Client::default() }
    }

    /// Adds a notification that closes the connection.
    pub(crate) fn closed_by(self, close: Arc<Notify>) -> Client {
        Client { close: Some(close), ..self }
    }

    /// Sets the series that a request may read.
    pub(crate) fn with_scope(self, scope: Scope) -> Client {
        Client { scope: Some(scope), ..self }
    }

    /// Returns a client of which only the scope is known.
    pub(crate) fn of_scope(scope: Option<&Scope>) -> Client {
        Client { scope: scope.cloned(), ..Client::default() }
    }

    /// Series that the request may read; `None` if it names no tenant.
    pub(crate) fn scope(&self) -> Option<&Scope> {
        self.scope.as_ref()
    }

    /// Returns the tenants of the request as text; empty without any.
    pub(crate) fn tenants_text(&self) -> String {
        match &self.scope {
            Some(Scope::Tenants(tenants)) => tenants.to_string(),
            Some(Scope::Root) | None => String::new(),
        }
    }

    /// Returns whether a request of another client may see and cancel a request of this one:
    /// without tenants always, with tenants if it names all of this one.
    pub(crate) fn is_visible_to(&self, other: &Client) -> bool {
        match (&self.scope, &other.scope) {
            (_, None | Some(Scope::Root)) => true,
            (Some(Scope::Tenants(own)), Some(Scope::Tenants(others))) => own.are_among(others),
            (None | Some(Scope::Root), Some(Scope::Tenants(_))) => false,
        }
    }

    /// Closes the connection, unless other requests share it.
    pub(crate) fn close(&self) {
        if let Some(close) = &self.close {
            close.notify_one();
        }
    }

    /// Network that limits per client apply to; `None` without an address.
    pub(crate) fn network(&self) -> Option<IpAddr> {
        self.address.map(network_of)
    }

    /// Sets the user in all clones.
    pub(crate) fn set_user(&self, name: &Arc<str>) {
        // The user is set once.
        let _ = self.user.set(Arc::clone(name));
    }

    /// Name of the user; empty while it is unknown, or without authentication.
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

/// Returns the address that identifies a client: for IPv6 the network of 64 bits, which one
/// subscriber owns.
pub(crate) fn network_of(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64))),
        ip => ip,
    }
}

/// All active queries. The gate, the outbox and the connections bound their number.
#[derive(Debug, Default)]
pub(crate) struct ActiveQueries {
    next_id: AtomicU64,
    queries: Mutex<BTreeMap<u64, Arc<ActiveQuery>>>,
}

/// Active query or lookup.
#[derive(Debug)]
pub(crate) struct ActiveQuery {
    /// Number since the start of the server.
    pub(crate) id: u64,
    /// Text of the query, truncated; path and selectors of a lookup.
    pub(crate) text: String,
    /// Evaluation time; `None` for a lookup.
    pub(crate) when: Option<When>,
    /// Client that sent it.
    pub(crate) client: Client,
    /// Start by the system clock.
    pub(crate) started: SystemTime,
    /// Start by the monotonic clock.
    pub(crate) began: Instant,
    /// Cost so far.
    pub(crate) view: BudgetView,
    state: AtomicU8,
    /// Bytes of the response, while it is sent.
    sending_bytes: AtomicU64,
    cancel: Notify,
}

/// Progress of an active query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum QueryState {
    /// Waits for a slot.
    Waiting = 0,
    /// Is evaluated, or tried.
    Running = 1,
    /// Sends its response.
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

/// Entry of the list, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    all: Arc<ActiveQueries>,
    query: Arc<ActiveQuery>,
}

impl ActiveQueries {
    /// Lists a query until the returned entry is dropped.
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

    /// Returns all queries that a client may see, the oldest first.
    pub(crate) fn visible_to(&self, client: &Client) -> Vec<Arc<ActiveQuery>> {
        let is_visible = |query: &&Arc<ActiveQuery>| query.client.is_visible_to(client);
        self.queries().values().filter(is_visible).cloned().collect()
    }

    /// Cancels a query for a client. Returns `false` for an id that it cannot see.
    pub(crate) fn cancel(&self, id: u64, client: &Client) -> bool {
        let query = self.queries().get(&id).cloned();
        let query = query.filter(|query| query.client.is_visible_to(client));
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
    /// Sets the state to running.
    pub(crate) fn set_running(&self) {
        self.state.store(QueryState::Running as u8, Ordering::Relaxed);
    }

    /// Sets the state to sending, with the bytes of the response.
    pub(crate) fn set_sending(&self, bytes: u64) {
        self.sending_bytes.store(bytes, Ordering::Relaxed);
        self.state.store(QueryState::Sending as u8, Ordering::Relaxed);
    }

    /// Current state.
    pub(crate) fn state(&self) -> QueryState {
        match self.state.load(Ordering::Relaxed) {
            0 => QueryState::Waiting,
            1 => QueryState::Running,
            _ => QueryState::Sending,
        }
    }

    /// Bytes of the response, while it is sent.
    pub(crate) fn sending_bytes(&self) -> u64 {
        self.sending_bytes.load(Ordering::Relaxed)
    }

    /// Completes once the query is canceled.
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
