//! Workaround: the budget of a query reaches SlateDB's tasks through a `tracing` dispatcher.
//!
//! `docs/slatedb.md` names the upstream change that makes this unnecessary. If SlateDB no longer
//! copies the dispatcher, every test in `storage/tests/reads.rs` fails: each compares the reads of
//! the query with those that the object store has seen.
//!
//! SlateDB fetches the blocks of a scan in separate tasks. Only the `tracing` dispatcher of the
//! caller reaches them. So the reads of a query run under a dispatcher of its own, which forwards
//! everything to the previous one. Object store requests ([`crate::lsm::objects::metered`]) and the
//! block cache find the budget by it:
//!
//! ```text
//! query ─ Lsm::for_query ─ slatedb ─ (task) ─ BlockCache ─ Metered ─ object store
//!            budget                              └──────────┴─ with_budget
//! ```
//!
//! Creating a dispatcher rebuilds the interest cache of every callsite, so idle dispatchers are
//! reused. A query that reads only from memory needs none.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use model::{Budget, BudgetError};
use tracing::instrument::WithSubscriber;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

/// Maximum number of idle dispatchers.
const IDLE_MAX: usize = 64;

/// Dispatchers that are not in use.
#[derive(Default, Clone)]
pub(super) struct IdleDispatchers(Arc<Mutex<Vec<Dispatch>>>);

/// Account of a query, and its dispatcher once it has read.
pub(super) struct Account {
    budget: Budget,
    idle: IdleDispatchers,
    dispatch: OnceLock<Dispatch>,
}

impl Account {
    /// Creates the account of a query.
    pub(super) fn new(budget: Budget, idle: &IdleDispatchers) -> Account {
        Account { budget, idle: idle.clone(), dispatch: OnceLock::new() }
    }

    /// Runs a read on this account.
    pub(super) async fn on<F: Future>(&self, read: F) -> F::Output {
        let dispatch = self.dispatch.get_or_init(|| self.idle.take(&self.budget)).clone();
        read.with_subscriber(dispatch).await
    }

    /// Returns an error if the budget of the query is exceeded.
    pub(super) fn check(&self) -> Result<(), BudgetError> {
        self.budget.check_object_store()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(dispatch) = self.dispatch.take() {
            self.idle.free_space(dispatch);
        }
    }
}

impl IdleDispatchers {
    fn take(&self, budget: &Budget) -> Dispatch {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let dispatch = kept.unwrap_or_else(|| Dispatch::new(Relay::new()));
        set_budget(&dispatch, Some(budget.clone()));
        dispatch
    }

    fn free_space(&self, dispatch: Dispatch) {
        set_budget(&dispatch, None);
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(dispatch);
        }
    }
}

fn set_budget(dispatch: &Dispatch, budget: Option<Budget>) {
    if let Some(relay) = dispatch.downcast_ref::<Relay>() {
        *relay.budget.write().unwrap_or_else(PoisonError::into_inner) = budget;
    }
}

/// Calls a function with the budget of the query that this task works for, if any.
pub(super) fn with_budget<T>(look: impl FnOnce(&Budget) -> T) -> Option<T> {
    // By its type, `get_default` may call the closure more than once.
    let mut look = Some(look);
    dispatcher::get_default(|dispatch| {
        let relay = dispatch.downcast_ref::<Relay>()?;
        let budget = relay.budget.read().unwrap_or_else(PoisonError::into_inner);
        Some(look.take()?(budget.as_ref()?))
    })
}

/// Forwards everything to the previous dispatcher, and holds a budget. It does not track the
/// current span; the previous one does.
struct Relay {
    next: Dispatch,
    budget: RwLock<Option<Budget>>,
}

impl Relay {
    fn new() -> Relay {
        Relay { next: dispatcher::get_default(Clone::clone), budget: RwLock::new(None) }
    }
}

impl Subscriber for Relay {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.next.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.next.enabled(metadata)
    }

    /// Bounded by the level of the previous dispatcher.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::current())
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.next.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.next.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.next.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        self.next.event(event);
    }

    fn enter(&self, span: &Id) {
        self.next.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.next.exit(span);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.next.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.next.try_close(id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;
    use crate::tests::harness;

    fn reads(budget: &Budget) -> u64 {
        budget.object_store_cost().reads
    }

    async fn read() {
        tokio::task::yield_now().await;
        with_budget(Budget::note_object_store_read);
    }

    #[test]
    fn tasks_that_take_the_dispatcher_along_count_for_their_query() {
        harness::run(async {
            let idle = IdleDispatchers::default();
            let (first, second) = (Budget::unlimited(), Budget::unlimited());
            let of_first = Account::new(first.clone(), &idle);
            let of_second = Account::new(second.clone(), &idle);
            read().await;
            let both = futures::future::join(
                of_first.on(async {
                    read().await;
                    tokio::spawn(read().with_current_subscriber()).await.unwrap();
                }),
                of_second.on(read()),
            );
            both.await;
            read().await;
            assert_eq!((reads(&first), reads(&second)), (2, 1));
        });
    }

    #[test]
    fn dispatchers_are_used_again_and_forget_their_query() {
        harness::run(async {
            let idle = IdleDispatchers::default();
            let count = || idle.0.lock().unwrap().len();
            let first = Budget::unlimited();
            let account = Account::new(first.clone(), &idle);
            let spawn = || tokio::spawn(read().with_current_subscriber());
            let late = account.on(std::future::ready(()).map(|()| spawn())).await;
            drop(account);
            assert_eq!(count(), 1);
            // A task that outlives its query may or may not count for it.
            late.await.unwrap();
            let counted = reads(&first);
            assert!(counted <= 1);
            let second = Budget::unlimited();
            let account = Account::new(second.clone(), &idle);
            account.on(read()).await;
            assert_eq!((count(), reads(&first), reads(&second)), (0, counted, 1));
            drop(account);
            let unused = Account::new(second, &idle);
            drop(unused);
            assert_eq!(count(), 1);
        });
    }

    /// Counts events.
    struct Events(Arc<AtomicUsize>);

    impl Subscriber for Events {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn log_events_are_forwarded() {
        harness::run(async {
            let seen = Arc::new(AtomicUsize::new(0));
            let log = Dispatch::new(Events(Arc::clone(&seen)));
            async {
                let account = Account::new(Budget::unlimited(), &IdleDispatchers::default());
                account.on(async { tracing::warn!("heard") }).await;
            }
            .with_subscriber(log)
            .await;
            assert_eq!(seen.load(Ordering::Relaxed), 1);
        });
    }
}
