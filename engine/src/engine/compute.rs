//! Threads for the parts of a query.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::channel::oneshot;

use crate::error::QueryError;
use crate::stack;

/// Runs a part of a query: on this thread, if it is small, or on a new thread with a stack of
/// `stack_bytes`.
///
/// Errors: those of `work`; [`QueryError::Execution`] if it panics or has no thread.
pub(super) async fn compute<T: Send + 'static>(
    is_small: bool,
    stack_bytes: usize,
    work: impl FnOnce() -> Result<T, QueryError> + Send + 'static,
) -> Result<T, QueryError> {
    if is_small {
        return guarded(work);
    }
    let (sender, receiver) = oneshot::channel();
    let work = move || {
        // Sending fails if the query was dropped.
        let _ = sender.send(guarded(work));
    };
    // Starting a thread takes about 15 µs, so none is kept.
    stack::start(stack_bytes, work).map_err(|error| {
        QueryError::Execution(format!("no thread can be started for the query: {error}"))
    })?;
    receiver.await.unwrap_or_else(|_| Err(QueryError::Execution("query was abandoned".to_owned())))
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
