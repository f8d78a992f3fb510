//! Worker pool: threads that share the loops of queries.
//!
//! Each query has its own thread, which runs the tasks of its loops one after the other. Workers of
//! a shared pool run tasks of the same loop only while slots are free
//! ([`fair`](crate::exec::schedule::fair)). So a query never waits for tasks of another query.
//!
//! ```text
//! query thread, until no task is left:       worker, until no task is left:
//!   start workers while slots are free         run the next task
//!   run the next task                          stop if another thread waits for a slot
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::Budget;

use crate::error::QueryError;
use crate::exec::schedule::fair::{FairScheduler, QueryThread};
use crate::exec::schedule::kernel::Core;
use crate::stack::STACK_BYTES_MAX;

/// Threads that help query threads, and the scheduler that they share.
#[derive(Debug)]
pub struct WorkerPool {
    /// `None` if queries only use their own threads.
    workers: Option<rayon::ThreadPool>,
    threads: usize,
    scheduler: Arc<FairScheduler>,
}

impl WorkerPool {
    /// Creates a pool in which `threads` threads compute at a time, not counting the threads of
    /// short queries; 0 means one per core.
    pub fn new(threads: usize) -> WorkerPool {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores() } else { threads };
        let workers = (threads > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads - 1)
                .stack_size(STACK_BYTES_MAX)
                .thread_name(|index| format!("worker-{index}"))
                .build()
                .ok()
        });
        WorkerPool {
            workers: workers.flatten(),
            threads,
            scheduler: Arc::new(FairScheduler::new(threads)),
        }
    }

    /// Returns the maximum number of threads that compute for one query.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Creates the state of the calling thread for a new query.
    pub fn query_thread(&self, budget: &Budget) -> QueryThread {
        QueryThread::new(&self.scheduler, budget)
    }

    /// Runs all tasks of a loop on the query thread and on free workers; returns the results in
    /// the order of the tasks.
    ///
    /// Errors: the error of the earliest task that failed; later tasks are not started.
    /// Panics: if a task panics.
    pub fn map<T, R: Send>(
        &self,
        thread: &QueryThread,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T, &QueryThread) -> Result<R, QueryError> + Sync,
    ) -> Result<Vec<R>, QueryError> {
        let workers = match &self.workers {
            Some(workers) if tasks.len() > 1 => workers,
            _ => return tasks.map(|task| work(task, thread)).collect(),
        };
        thread.acquire()?;
        let queue = TaskQueue::new(tasks, work);
        workers.in_place_scope(|scope| {
            let queue = &queue;
            loop {
                while queue.has_more() && self.scheduler.try_acquire() {
                    let (worker, core) = (thread.for_worker(), Core::current());
                    scope.spawn(move |_| {
                        core.leave();
                        while queue.run_next(&worker) && !self.scheduler.is_contended() {}
                    });
                    // The worker may have been woken on this core, where it would wait for this
                    // thread. While this thread yields, it leaves.
                    std::thread::yield_now();
                }
                if !queue.run_next(thread) {
                    break;
                }
            }
        });
        queue.finish()
    }

    /// Runs all tasks of a loop without results.
    ///
    /// Errors: as for [`WorkerPool::map`].
    pub fn for_each<T>(
        &self,
        thread: &QueryThread,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T, &QueryThread) -> Result<(), QueryError> + Sync,
    ) -> Result<(), QueryError> {
        self.map(thread, tasks, work).map(|_| ())
    }
}

/// Tasks of one loop that have not started, and the results of those that have finished.
struct TaskQueue<I, R, W> {
    left: Mutex<Left<I>>,
    done: Mutex<Vec<Option<R>>>,
    failed: Mutex<Option<(usize, QueryError)>>,
    work: W,
}

struct Left<I> {
    tasks: I,
    next_index: usize,
}

impl<T, R, I, W> TaskQueue<I, R, W>
where
    I: ExactSizeIterator<Item = T>,
    W: Fn(T, &QueryThread) -> Result<R, QueryError>,
{
    fn new(tasks: I, work: W) -> TaskQueue<I, R, W> {
        let mut done = Vec::new();
        done.resize_with(tasks.len(), || None);
        TaskQueue {
            left: Mutex::new(Left { tasks, next_index: 0 }),
            done: Mutex::new(done),
            failed: Mutex::new(None),
            work,
        }
    }

    fn has_more(&self) -> bool {
        lock(&self.left).tasks.len() > 0
    }

    /// Runs the next task; returns false if there is none, or one has failed.
    fn run_next(&self, thread: &QueryThread) -> bool {
        let (index, task) = {
            let mut left = lock(&self.left);
            if lock(&self.failed).is_some() {
                return false;
            }
            let Some(task) = left.tasks.next() else { return false };
            left.next_index += 1;
            (left.next_index - 1, task)
        };
        match (self.work)(task, thread) {
            Ok(result) => {
                lock(&self.done)[index] = Some(result);
                true
            }
            Err(error) => {
                let mut failed = lock(&self.failed);
                if failed.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
                    *failed = Some((index, error));
                }
                false
            }
        }
    }

    fn finish(self) -> Result<Vec<R>, QueryError> {
        match into_inner(self.failed) {
            Some((_, error)) => Err(error),
            // A result is missing only if a task failed or panicked.
            None => Ok(into_inner(self.done).into_iter().flatten().collect()),
        }
    }
}

/// Ignores poisoning: no task runs under a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_tasks() {
        for threads in 1..4 {
            let pool = WorkerPool::new(threads);
            let thread = pool.query_thread(&Budget::unlimited());
            let doubled = pool.map(&thread, 0..1000, |task, _| Ok(2 * task)).unwrap();
            assert_eq!(doubled, (0..1000).map(|task| 2 * task).collect::<Vec<_>>());
            assert!(pool.map(&thread, 0..0, |task: i32, _| Ok(task)).unwrap().is_empty());
        }
    }

    #[test]
    fn the_earliest_failure_is_reported_whatever_the_threads() {
        for threads in 1..4 {
            let pool = WorkerPool::new(threads);
            let thread = pool.query_thread(&Budget::unlimited());
            for _ in 0..100 {
                let failed = pool.for_each(&thread, 0..50, |task, _| match task {
                    7.. => Err(QueryError::Execution(task.to_string())),
                    _ => Ok(()),
                });
                assert_eq!(failed.unwrap_err().to_string(), "7");
            }
        }
    }

    #[test]
    fn a_query_runs_its_tasks_itself_if_no_slot_is_free() {
        let pool = WorkerPool::new(2);
        assert!(pool.scheduler.try_acquire());
        let thread = pool.query_thread(&Budget::unlimited());
        let own_id = std::thread::current().id();
        let ids = pool.map(&thread, 0..10, |_, _| Ok(std::thread::current().id())).unwrap();
        assert!(ids.iter().all(|id| *id == own_id));
        assert!(!pool.scheduler.try_acquire() && thread.has_slot());
        thread.release();
        assert!(pool.scheduler.try_acquire());
    }

    #[test]
    fn waiting_for_a_slot_ends_with_the_query() {
        let pool = WorkerPool::new(2);
        assert!(pool.scheduler.try_acquire() && pool.scheduler.try_acquire());
        let budget = Budget::unlimited();
        let thread = pool.query_thread(&budget);
        // A single task needs no slot.
        assert!(pool.for_each(&thread, 0..1, |_, _| Ok(())).is_ok());
        budget.cancel();
        let error = pool.for_each(&thread, 0..2, |_, _| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "query was canceled");
    }
}
