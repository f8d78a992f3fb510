//! Threads for the parts of a query.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::channel::oneshot;

use crate::error::QueryError;
use crate::stack::{self, STACK_BYTES_MIN};

/// Threads that compute parts of queries.
///
/// Idle threads are kept. The one that became idle last is used first, because its memory is in the
/// CPU cache. A new thread might get the heap of the allocator that a worker of its query has, and
/// they would wait for each other.
#[derive(Debug)]
pub(super) struct ComputeThreads {
    idle: Arc<IdleThreads>,
}

/// Threads without work, each of which waits for it at a channel of its own.
#[derive(Debug)]
struct IdleThreads {
    /// Sender to each thread; the last one became idle last.
    senders: Mutex<Vec<SyncSender<Work>>>,
    count_max: usize,
}

/// Part of a query; returns the function that reports its result.
type Work = Box<dyn FnOnce() -> Report + Send>;
type Report = Box<dyn FnOnce()>;

impl ComputeThreads {
    /// Starts threads on demand, and keeps at most `idle_max` idle ones until it is dropped.
    pub(super) fn new(idle_max: usize) -> ComputeThreads {
        let idle = IdleThreads { senders: Mutex::default(), count_max: idle_max };
        ComputeThreads { idle: Arc::new(idle) }
    }

    /// Runs a part of a query: on this thread, if it is small, or on another one with a stack of
    /// `stack_bytes`.
    ///
    /// Errors: those of `work`; [`QueryError::Execution`] if it panics or has no thread.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        is_small: bool,
        stack_bytes: usize,
        work: impl FnOnce() -> Result<T, QueryError> + Send + 'static,
    ) -> Result<T, QueryError> {
        if is_small {
            return guarded(work);
        }
        let (sender, receiver) = oneshot::channel();
        let work: Work = Box::new(move || {
            // If the query was dropped, its result is freed now: later work must not wait for that.
            let result = Some(guarded(work)).filter(|_| !sender.is_canceled());
            Box::new(move || {
                if let Some(result) = result {
                    let _ = sender.send(result);
                }
            })
        });
        self.run(stack_bytes, work).map_err(|error| {
            QueryError::Execution(format!("no thread can be started for the query: {error}"))
        })?;
        receiver.await.map_err(|_| QueryError::Execution("query was abandoned".to_owned()))?
    }

    /// Runs work on an idle thread, or on a new one.
    fn run(&self, stack_bytes: usize, mut work: Work) -> io::Result<()> {
        if stack_bytes > STACK_BYTES_MIN {
            return stack::start(stack_bytes, move || work()()).map(drop);
        }
        while let Some(sender) = self.idle.take() {
            match sender.send(work) {
                Ok(()) => return Ok(()),
                // The thread ended: freeing an earlier result panicked.
                Err(SendError(unsent)) => work = unsent,
            }
        }
        let idle = Arc::downgrade(&self.idle);
        stack::start(STACK_BYTES_MIN, move || serve(work, &idle)).map(drop)
    }
}

impl IdleThreads {
    fn take(&self) -> Option<SyncSender<Work>> {
        self.senders().pop()
    }

    /// Adds an idle thread; returns the receiver of its work, or `None` if there are enough.
    fn add(&self) -> Option<Receiver<Work>> {
        let mut senders = self.senders();
        (senders.len() < self.count_max).then(|| {
            let (sender, receiver) = sync_channel(1);
            senders.push(sender);
            receiver
        })
    }

    /// Ignores poisoning: nothing panics under the lock.
    fn senders(&self) -> MutexGuard<'_, Vec<SyncSender<Work>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs work, then waits for more. Returns if enough threads are idle, or the engine was dropped.
fn serve(mut work: Work, idle: &Weak<IdleThreads>) {
    loop {
        let report = work();
        let receiver = idle.upgrade().and_then(|idle| idle.add());
        // Afterwards, so that the next query finds the thread.
        report();
        match receiver.map(|receiver| receiver.recv()) {
            Some(Ok(next)) => work = next,
            Some(Err(_)) | None => return,
        }
    }
}

/// Runs a part of a query; a panic fails only this query, not the process.
fn guarded<T>(work: impl FnOnce() -> Result<T, QueryError>) -> Result<T, QueryError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(QueryError::Execution(format!("unexpected error: {}", panic_text(&*panic))))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};

    use futures::executor::block_on;

    use super::*;

    fn thread_of(threads: &ComputeThreads, stack_bytes: usize) -> ThreadId {
        block_on(threads.compute(false, stack_bytes, || Ok(thread::current().id()))).unwrap()
    }

    #[test]
    fn a_thread_computes_one_query_after_the_other() {
        let threads = ComputeThreads::new(1);
        let first = thread_of(&threads, STACK_BYTES_MIN);
        let panics = || -> Result<(), QueryError> { panic!("no result") };
        let panicked = block_on(threads.compute(false, STACK_BYTES_MIN, panics));
        assert_eq!(panicked.unwrap_err().to_string(), "unexpected error: no result");
        assert_eq!(thread_of(&threads, STACK_BYTES_MIN), first);
        // Not one with a larger stack.
        assert_ne!(thread_of(&threads, 2 * STACK_BYTES_MIN), first);
        let caller = thread::current().id();
        let small = threads.compute(true, STACK_BYTES_MIN, || Ok(thread::current().id()));
        assert_eq!(block_on(small).unwrap(), caller);
    }

    #[test]
    fn queries_at_once_have_threads_of_their_own_and_as_many_as_allowed_wait() {
        let threads = Arc::new(ComputeThreads::new(2));
        let all = Arc::new(Barrier::new(4));
        let queries: Vec<_> = (0..4)
            .map(|_| {
                let (threads, all) = (Arc::clone(&threads), Arc::clone(&all));
                thread::spawn(move || {
                    let work = move || {
                        all.wait();
                        Ok(thread::current().id())
                    };
                    block_on(threads.compute(false, STACK_BYTES_MIN, work)).unwrap()
                })
            })
            .collect();
        let ids: HashSet<ThreadId> = queries.into_iter().map(|q| q.join().unwrap()).collect();
        assert_eq!(ids.len(), 4);
        assert_eq!(threads.idle.senders().len(), 2);
    }

    #[test]
    fn idle_threads_end_with_their_owner() {
        thread_local!(static AT_END: RefCell<Option<Sender<()>>> = const { RefCell::new(None) });
        let (sender, ended) = channel();
        let threads = ComputeThreads::new(1);
        let work = move || {
            AT_END.set(Some(sender));
            Ok(())
        };
        block_on(threads.compute(false, STACK_BYTES_MIN, work)).unwrap();
        drop(threads);
        // The end of the thread drops its sender.
        assert!(ended.recv().is_err());
    }
}
