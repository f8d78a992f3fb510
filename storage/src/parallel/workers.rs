//! Bounded number of threads for the blocking work of one selection.

use std::any::Any;
use std::collections::VecDeque;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use model::SourceError;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::shares::SHARES_MAX;
use crate::lock::lock;

type Work = Box<dyn FnOnce() + Send>;

/// Threads that do blocking work in the order in which it comes, at most one for each core.
///
/// A thread that has done some work takes the next at once, even if the task that waits for the
/// first is not awake yet. Threads without work end. Work whose task has ended is not done.
pub(crate) struct Workers {
    queue: Arc<Mutex<WorkQueue>>,
    threads_max: usize,
}

#[derive(Default)]
struct WorkQueue {
    waiting: VecDeque<Work>,
    thread_count: usize,
}

impl Workers {
    /// Creates a queue without threads.
    pub(crate) fn new() -> Workers {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Workers { queue: Arc::default(), threads_max: cores.min(SHARES_MAX) }
    }

    /// Does some work outside the threads of the runtime. Callers bound the work that waits.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SourceError> {
        type Outcome<T> = Result<T, Box<dyn Any + Send>>;
        let (sender, receiver) = oneshot::channel::<Outcome<T>>();
        self.add(Box::new(move || {
            if !sender.is_closed() {
                let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
            }
        }));
        match receiver.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(SourceError::Unavailable("work was dropped".to_owned())),
        }
    }

    fn add(&self, work: Work) {
        {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(work);
            if queue.thread_count == self.threads_max {
                return;
            }
            queue.thread_count += 1;
        }
        let queue = Arc::clone(&self.queue);
        spawn_blocking(move || {
            while let Some(work) = next(&queue) {
                work();
            }
        });
    }
}

/// Takes the next work. Without any, the thread no longer counts.
fn next(queue: &Mutex<WorkQueue>) -> Option<Work> {
    let mut queue = lock(queue);
    let work = queue.waiting.pop_front();
    if work.is_none() {
        queue.thread_count -= 1;
    }
    work
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt;
    use futures::future::join_all;

    use super::*;

    /// Work that waits until the lock of `gate` is free.
    fn behind<T>(gate: Arc<Mutex<()>>, work: impl FnOnce() -> T) -> impl FnOnce() -> T {
        move || {
            drop(lock(&gate));
            work()
        }
    }

    #[tokio::test]
    async fn work_waits_for_one_of_few_threads() {
        let (workers, gate) = (Workers::new(), Arc::default());
        let closed = lock(&gate);
        let mut all =
            join_all((0..200).map(|number| workers.run(behind(Arc::clone(&gate), move || number))));
        assert!((&mut all).now_or_never().is_none());
        {
            let queue = lock(&workers.queue);
            assert_eq!(queue.thread_count, workers.threads_max);
            assert!(queue.waiting.len() >= 200 - workers.threads_max);
        }
        drop(closed);
        for (at, done) in all.await.into_iter().enumerate() {
            assert_eq!(done.unwrap(), at);
        }
    }

    #[tokio::test]
    async fn work_of_a_dropped_task_is_not_done() {
        let (workers, gate) = (Workers::new(), Arc::default());
        let is_done = Arc::new(AtomicBool::new(false));
        let closed = lock(&gate);
        let mut first = join_all(
            (0..workers.threads_max).map(|_| workers.run(behind(Arc::clone(&gate), || ()))),
        );
        assert!((&mut first).now_or_never().is_none());
        let done = Arc::clone(&is_done);
        let dropped = workers.run(move || done.store(true, Ordering::SeqCst)).now_or_never();
        assert!(dropped.is_none());
        drop(closed);
        first.await;
        // The queue is in order.
        workers.run(|| ()).await.unwrap();
        assert!(!is_done.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_panic_reaches_the_task_and_no_other_work() {
        let workers = Workers::new();
        let panics = AssertUnwindSafe(workers.run(|| panic!("as expected"))).catch_unwind();
        let (panicked, done) = futures::join!(panics, workers.run(|| 7));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"as expected"));
        assert_eq!(done.unwrap(), 7);
    }
}
