//! The threads that share the loops of queries.
//!
//! Each query is walked by a thread of its own, which does the tasks of its loops itself, one
//! after the other. Helpers of a common pool take tasks of the same loop only while there are
//! turns that nobody else wants ([`turn`](crate::exec::schedule::turn)). So a query never waits for the
//! tasks of another one to be done.
//!
//! ```text
//! the walking thread, until no task is left:     a helper, until no task is left:
//!   call helpers while turns are free              take the next task and do it
//!   take the next task and do it                   leave if another waits for a turn
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::Budget;

use crate::error::QueryError;
use crate::exec::schedule::turn::{Pace, Turns};
use crate::stack::STACK_BYTES_MAX;

/// The threads that help those that walk queries, and the turns that they all take.
#[derive(Debug)]
pub struct Crew {
    /// None where a query's own thread is all there is.
    helpers: Option<rayon::ThreadPool>,
    threads: usize,
    turns: Arc<Turns>,
}

impl Crew {
    /// A crew in which so many threads compute at a time, those of short queries aside; 0 for
    /// one a core.
    pub fn new(threads: usize) -> Crew {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores() } else { threads };
        let helpers = (threads > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads - 1)
                .stack_size(STACK_BYTES_MAX)
                .thread_name(|index| format!("helper-{index}"))
                .build()
                .ok()
        });
        Crew { helpers: helpers.flatten(), threads, turns: Arc::new(Turns::new(threads)) }
    }

    /// How many threads compute for one query at most.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The pace of a thread that begins to walk a query.
    pub fn walk(&self, budget: &Budget) -> Pace {
        Pace::new(&self.turns, budget)
    }

    /// Does all tasks of a loop, on the walking thread and those that are free; gives the
    /// results in the order of the tasks.
    ///
    /// Errors: of those that `work` gives, that of the earliest task; later tasks are not begun
    /// then.
    /// Panics: where a task does.
    pub fn map<T, R: Send>(
        &self,
        walk: &Pace,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T, &Pace) -> Result<R, QueryError> + Sync,
    ) -> Result<Vec<R>, QueryError> {
        let helpers = match &self.helpers {
            Some(helpers) if tasks.len() > 1 => helpers,
            _ => return tasks.map(|task| work(task, walk)).collect(),
        };
        walk.take()?;
        let line = TaskQueue::new(tasks, work);
        helpers.in_place_scope(|scope| {
            let line = &line;
            loop {
                while line.has_more() && self.turns.try_take() {
                    let pace = walk.with_turn();
                    scope.spawn(move |_| while line.do_next(&pace) && !self.turns.are_wanted() {});
                }
                if !line.do_next(walk) {
                    break;
                }
            }
        });
        line.finish()
    }

    /// Does all tasks of a loop that gives nothing.
    ///
    /// Errors: as for [`Crew::map`].
    pub fn for_each<T>(
        &self,
        walk: &Pace,
        tasks: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(T, &Pace) -> Result<(), QueryError> + Sync,
    ) -> Result<(), QueryError> {
        self.map(walk, tasks, work).map(|_| ())
    }
}

/// The tasks of one loop that are left, and the results of those that are done.
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
    W: Fn(T, &Pace) -> Result<R, QueryError>,
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

    /// Does the next task; false where there is none, or one has failed.
    fn do_next(&self, pace: &Pace) -> bool {
        let (index, task) = {
            let mut left = lock(&self.left);
            if lock(&self.failed).is_some() {
                return false;
            }
            let Some(task) = left.tasks.next() else { return false };
            left.next_index += 1;
            (left.next_index - 1, task)
        };
        match (self.work)(task, pace) {
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
            let walk = crew.walk(&Budget::unlimited());
            let doubled = crew.map(&walk, 0..1000, |task, _| Ok(2 * task)).unwrap();
            assert_eq!(doubled, (0..1000).map(|task| 2 * task).collect::<Vec<_>>());
            assert!(crew.map(&walk, 0..0, |task: i32, _| Ok(task)).unwrap().is_empty());
        }
    }

    #[test]
    fn the_earliest_failure_is_reported_whatever_the_threads() {
        for threads in 1..4 {
            let crew = Crew::new(threads);
            let walk = crew.walk(&Budget::unlimited());
            for _ in 0..100 {
                let failed = crew.for_each(&walk, 0..50, |task, _| match task {
                    7.. => Err(QueryError::Execution(task.to_string())),
                    _ => Ok(()),
                });
                assert_eq!(failed.unwrap_err().to_string(), "7");
            }
        }
    }

    #[test]
    fn a_walk_does_its_tasks_itself_where_no_turn_is_free() {
        let crew = Crew::new(2);
        assert!(crew.turns.try_take());
        let walk = crew.walk(&Budget::unlimited());
        let walker = std::thread::current().id();
        let ids = crew.map(&walk, 0..10, |_, _| Ok(std::thread::current().id())).unwrap();
        assert!(ids.iter().all(|id| *id == walker));
        assert!(!crew.turns.try_take() && walk.has_turn());
        walk.give_back();
        assert!(crew.turns.try_take());
    }

    #[test]
    fn a_query_waits_for_a_turn_no_longer_than_it_may_run() {
        let crew = Crew::new(2);
        assert!(crew.turns.try_take() && crew.turns.try_take());
        let budget = Budget::unlimited();
        let walk = crew.walk(&budget);
        // One task alone needs none.
        assert!(crew.for_each(&walk, 0..1, |_, _| Ok(())).is_ok());
        budget.cancel();
        let error = crew.for_each(&walk, 0..2, |_, _| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "query was canceled");
    }
}
