//! The queries that wait or run: who asked what, since when, and what it has cost so far.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use model::BudgetView;
use tokio::sync::Notify;

use crate::query::When;

/// Characters of a query that are kept.
const TEXT_CHARS_MAX: usize = 4096;

/// Whoever has sent a request: the other end of its connection, where there is one, and who that
/// is, once it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    address: Option<SocketAddr>,
    user: Arc<OnceLock<Arc<str>>>,
}

impl Client {
    /// At an address.
    pub(crate) fn at(address: SocketAddr) -> Client {
        Client { address: Some(address), user: Arc::default() }
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

/// All queries that wait or run. The gate and the connections bound how many there are.
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
    /// Its text, or the beginning of it.
    pub(crate) text: String,
    /// When it is evaluated.
    pub(crate) when: When,
    /// Who asked.
    pub(crate) client: Client,
    /// Since when.
    pub(crate) started: SystemTime,
    /// The same by the clock that never jumps.
    pub(crate) began: Instant,
    /// What it has cost so far.
    pub(crate) view: BudgetView,
    is_running: AtomicBool,
    cancel: Notify,
}

/// Keeps a query listed.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    all: &'a ActiveQueries,
    query: Arc<ActiveQuery>,
}

impl ActiveQueries {
    /// Lists a query until what is returned is dropped.
    pub(crate) fn list(&self, text: &str, when: When, client: Client) -> Listed<'_> {
        let query = Arc::new(ActiveQuery {
            id: 1 + self.next_id.fetch_add(1, Ordering::Relaxed),
            text: text.chars().take(TEXT_CHARS_MAX).collect(),
            when,
            client,
            started: SystemTime::now(),
            began: Instant::now(),
            view: BudgetView::default(),
            is_running: AtomicBool::new(false),
            cancel: Notify::new(),
        });
        self.queries().insert(query.id, Arc::clone(&query));
        Listed { all: self, query }
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
        self.is_running.store(true, Ordering::Relaxed);
    }

    /// Whether it has been evaluated, if only as far as a trial goes.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// Completes once somebody ends it.
    pub(crate) async fn canceled(&self) {
        self.cancel.notified().await;
    }
}

impl Listed<'_> {
    /// The query.
    pub(crate) fn query(&self) -> &Arc<ActiveQuery> {
        &self.query
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.all.queries().remove(&self.query.id);
    }
}
