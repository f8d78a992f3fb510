//! Long loops of a selection, split across threads.
//!
//! Such a loop mostly waits for memory, a few cache lines per series, so two threads take half as
//! long. Short ones run on the calling thread, without a hand-over.

use std::ops::Range;
use std::sync::Arc;

use model::SourceError;

use crate::sizes::Sizes;

/// Maximum number of threads of one loop.
pub(crate) const SHARES_MAX: usize = 8;

/// Returns the number of threads for a loop over `series_count` series.
pub(crate) fn share_count(sizes: &Sizes, series_count: usize) -> usize {
    if series_count <= sizes.inline_series_max {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (series_count / sizes.share_series_min).min(cores).clamp(1, SHARES_MAX)
}

/// Runs work on ranges that make up `0..series_count`, and returns the results in order.
///
/// Errors: that of the first range which fails.
pub(crate) async fn in_shares<T, E>(
    sizes: &Sizes,
    series_count: usize,
    work: impl Fn(Range<usize>) -> Result<T, E> + Send + Sync + 'static,
) -> Result<Vec<T>, SourceError>
where
    T: Send + 'static,
    E: Into<SourceError> + Send + 'static,
{
    let shares = share_count(sizes, series_count);
    let bound = |share: usize| series_count * share / shares;
    let ranges = (0..shares).map(|share| bound(share)..bound(share + 1)).collect();
    on_each(sizes, series_count, ranges, work).await
}

/// Runs work on shares of `series_count` series in all, and returns the results in order.
///
/// Errors: that of the first share which fails.
pub(crate) async fn on_each<S, T, E>(
    sizes: &Sizes,
    series_count: usize,
    shares: Vec<S>,
    work: impl Fn(S) -> Result<T, E> + Send + Sync + 'static,
) -> Result<Vec<T>, SourceError>
where
    S: Send + 'static,
    T: Send + 'static,
    E: Into<SourceError> + Send + 'static,
{
    if series_count <= sizes.inline_series_max {
        return shares.into_iter().map(|share| work(share).map_err(Into::into)).collect();
    }
    let work = Arc::new(work);
    let begin = |share| {
        let work = Arc::clone(&work);
        tokio::task::spawn_blocking(move || work(share))
    };
    let begun: Vec<_> = shares.into_iter().map(begin).collect();
    let mut done = Vec::with_capacity(begun.len());
    for share in begun {
        done.push(joined(share).await?.map_err(Into::into)?);
    }
    Ok(done)
}

/// Runs blocking work outside the threads of the runtime.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SourceError> {
    joined(tokio::task::spawn_blocking(work)).await
}

async fn joined<T>(task: tokio::task::JoinHandle<T>) -> Result<T, SourceError> {
    match task.await {
        Ok(done) => Ok(done),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(SourceError::Unavailable(error.to_string())),
    }
}
