//! The threads that share the loops of queries.
//!
//! Each query is walked by a thread of its own, which does the tasks of its loops itself, one
//! after the other; helpers of a common pool take tasks of the same loop only as long as fewer
//! threads compute than may. So a query never waits for the tasks of another one: where many
//! run, each has one thread, and the operating system shares the cores among them.
//!
//! ```text
//! the walking thread, until no task is left:     a helper, until no task is left:
//!   call helpers while places are free             take the next task and do it
//!   take the next task and do it                   leave if more threads compute than may
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::QueryError;

/// The stack of a computing thread: expressions nest.
pub const STACK_BYTES: usize = 8 << 20;

/// The helpers of an engine, and how many threads compute.
#[derive(Debug)]
pub struct Crew {
    /// None where a query's own thread is all there is.
    helpers: Option<rayon::ThreadPool>,
    threads_max: usize,
    /// How many threads compute: those that walk queries, however many, and helpers.
    computing: AtomicUsize,
}

impl Crew {
    /// A crew in which so many threads compute, as long as no more queries run; 0 for one a
    /// core.
    pub fn new(threads: usize) -> Crew {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads_max = if threads == 0 { cores() } else { threads };
        let helpers = (threads_max > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads_max - 1)
                .stack_size(STACK_BYTES)
                .thread_name(|index| format!("helper-{index}"))
                .build()
                .ok()
        });
        Crew { helpers: helpers.flatten(), threads_max, computing: AtomicUsize::new(0) }
    }

    /// A crew without helpers.
    pub fn alone() -> Crew {
        Crew::new(1)
    }

    /// Counts the thread that walks a query, as long as the answer lives.
    pub fn walk(&self) -> Computing<'_> {
        self.computing.fetch_add(1, Ordering::Relaxed);
        Computing(self)
    }

    /// Does all tasks of a loop, on this thread and those that are free; gives the results in
    /// the order of the tasks.
    ///
    /// Errors: of those that `work` gives, that of the earliest task; later tasks are not begun
    /// then.
    /// Panics: where a task does.
    pub fn map<T, R: Send>(
        &self,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T) -> Result<R, QueryError> + Sync,
    ) -> Result<Vec<R>, QueryError> {
        match &self.helpers {
            Some(helpers) if tasks.len() > 1 => {
                let line = Line::new(tasks, work);
                helpers.in_place_scope(|scope| {
                    let line = &line;
                    loop {
                        while line.has_more()
                            && let Some(place) = self.free_place()
                        {
                            scope.spawn(move |_| while line.do_next() && !place.is_wanted() {});
                        }
                        if !line.do_next() {
                            break;
                        }
                    }
                });
                line.finish()
            }
            _ => tasks.map(work).collect(),
        }
    }

    /// Does all tasks of a loop that gives nothing.
    ///
    /// Errors: as for [`Crew::map`].
    pub fn for_each<T>(
        &self,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T) -> Result<(), QueryError> + Sync,
    ) -> Result<(), QueryError> {
        self.map(tasks, work).map(|_| ())
    }

    /// A place for one more computing thread.
    fn free_place(&self) -> Option<Computing<'_>> {
        let one_more = |count| (count < self.threads_max).then_some(count + 1);
        let taken =
            self.computing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok();
        taken.then(|| Computing(self))
    }
}

/// A thread that computes.
#[derive(Debug)]
pub struct Computing<'a>(&'a Crew);

impl Computing<'_> {
    /// Whether more threads compute than may.
    fn is_wanted(&self) -> bool {
        self.0.computing.load(Ordering::Relaxed) > self.0.threads_max
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.0.computing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The tasks of one loop that are left, and the results of those that are done.
struct Line<I, R, W> {
    left: Mutex<Left<I>>,
    done: Mutex<Vec<Option<R>>>,
    failed: Mutex<Option<(usize, QueryError)>>,
    work: W,
}

struct Left<I> {
    tasks: I,
    next_index: usize,
}

impl<T, R, I, W> Line<I, R, W>
where
    I: ExactSizeIterator<Item = T>,
    W: Fn(T) -> Result<R, QueryError>,
{
    fn new(tasks: I, work: W) -> Line<I, R, W> {
        let mut done = Vec::new();
        done.resize_with(tasks.len(), || None);
        Line {
            left: Mutex::new(Left { tasks, next_index: 0 }),
            done: Mutex::new(done),
            failed: Mutex::new(None),
            work,
        }
    }

    fn has_more(&self) -> bool {
        lock(&self.left).tasks.len() > 0
    }

    /// Does the next task; false where there is none, or one has failed.
    fn do_next(&self) -> bool {
        let (index, task) = {
            let mut left = lock(&self.left);
            if lock(&self.failed).is_some() {
                return false;
            }
            let Some(task) = left.tasks.next() else { return false };
            left.next_index += 1;
            (left.next_index - 1, task)
        };
        match (self.work)(task) {
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
            // A task is missing only where one has failed or panicked.
            None => Ok(into_inner(self.done).into_iter().flatten().collect()),
        }
    }
}

/// What is locked here stays whole where another thread panics: no task is done under a lock.
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
    fn results_stand_in_the_order_of_the_tasks() {
        for threads in 1..4 {
            let crew = Crew::new(threads);
            let _walk = crew.walk();
            let doubled = crew.map(0..1000, |task| Ok(2 * task)).unwrap();
            assert_eq!(doubled, (0..1000).map(|task| 2 * task).collect::<Vec<_>>());
            assert!(crew.map(0..0, |task: i32| Ok(task)).unwrap().is_empty());
            assert_eq!(crew.computing.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn the_earliest_failure_is_reported_whatever_the_threads() {
        for threads in 1..4 {
            let crew = Crew::new(threads);
            for _ in 0..100 {
                let failed = crew.for_each(0..50, |task| match task {
                    7.. => Err(QueryError::Execution(task.to_string())),
                    _ => Ok(()),
                });
                assert_eq!(failed.unwrap_err().to_string(), "7");
            }
        }
    }

    #[test]
    fn a_walk_waits_for_no_other() {
        let crew = Crew::new(2);
        let _first = crew.walk();
        let helper = crew.free_place().unwrap();
        assert!(crew.free_place().is_none() && !helper.is_wanted());
        let _second = crew.walk();
        assert!(helper.is_wanted());
        // The only helper is busy: the walking thread does all tasks.
        let walker = std::thread::current().id();
        let ids = crew.map(0..10, |_| Ok(std::thread::current().id())).unwrap();
        assert!(ids.iter().all(|id| *id == walker));
        drop(helper);
        assert!(crew.free_place().is_none());
    }
}
