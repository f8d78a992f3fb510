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
/// first is not awake yet. Threads without work end.
#[derive(Default)]
pub(crate) struct Workers(Arc<Mutex<WorkQueue>>);

#[derive(Default)]
struct WorkQueue {
    waiting: VecDeque<Work>,
    thread_count: usize,
}

impl Workers {
    /// Does some work outside the threads of the runtime.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SourceError> {
        type Outcome<T> = Result<T, Box<dyn Any + Send>>;
        let (sender, receiver) = oneshot::channel::<Outcome<T>>();
        self.add(Box::new(move || {
            // Without a receiver, the selection has ended.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        }));
        match receiver.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(SourceError::Unavailable("the runtime shuts down".to_owned())),
        }
    }

    fn add(&self, work: Work) {
        let threads_max = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut queue = lock(&self.0);
        queue.waiting.push_back(work);
        if queue.thread_count < threads_max.min(SHARES_MAX) {
            queue.thread_count += 1;
            let queue = Arc::clone(&self.0);
            spawn_blocking(move || {
                while let Some(work) = next(&queue) {
                    work();
                }
            });
        }
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn all_work_is_done_on_few_threads() {
        let workers = Workers::default();
        let running = Arc::new(AtomicUsize::new(0));
        let work = |number: usize| {
            let running = Arc::clone(&running);
            workers.run(move || {
                let count = running.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                (number, count)
            })
        };
        for (at, done) in join_all((0..200).map(work)).await.into_iter().enumerate() {
            let (number, count) = done.unwrap();
            assert_eq!(number, at);
            assert!(count <= SHARES_MAX);
        }
    }

    #[tokio::test]
    async fn a_panic_reaches_the_task_and_no_other_work() {
        let workers = Workers::default();
        let panics = AssertUnwindSafe(workers.run(|| panic!("as expected"))).catch_unwind();
        let (panicked, done) = futures::join!(panics, workers.run(|| 7));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"as expected"));
        assert_eq!(done.unwrap(), 7);
    }
}
