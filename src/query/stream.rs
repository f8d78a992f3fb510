//! Responses that are computed while they are sent, part by part, on a blocking thread.

use std::io;
use std::time::Duration;

use axum::body::Bytes;
use engine::QueryError;
use formats::chunk::SampleRef;
use futures::{StreamExt, stream};
use model::{Advance, Budget, BudgetError, SampleBatch, SeriesSet, SourceError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::gate::GateError;
use super::sending::SentBody;
use super::{Lookup, QueryFailure};

/// Time for which a stream keeps its permits while its reader has no room for more.
const READER_GRACE: Duration = Duration::from_millis(200);
/// Maximum number of parts that wait to be sent.
const PARTS_MAX: usize = 2;

type Part = Result<Bytes, QueryFailure>;

/// Reason for an incomplete stream.
#[derive(Debug)]
pub(crate) enum StreamFailure {
    Query(QueryFailure),
    /// The reader is gone.
    Left,
}

impl From<QueryFailure> for StreamFailure {
    fn from(failure: QueryFailure) -> Self {
        StreamFailure::Query(failure)
    }
}

impl From<SourceError> for StreamFailure {
    fn from(error: SourceError) -> Self {
        StreamFailure::Query(QueryFailure::Engine(QueryError::Source(error)))
    }
}

impl From<BudgetError> for StreamFailure {
    fn from(error: BudgetError) -> Self {
        StreamFailure::from(SourceError::Budget(error))
    }
}

impl From<GateError> for StreamFailure {
    fn from(error: GateError) -> Self {
        StreamFailure::Query(QueryFailure::Gate(error))
    }
}

/// Sender of a stream, on its blocking thread.
pub(crate) struct Parts {
    sender: mpsc::Sender<Part>,
    lookup: Lookup,
}

/// Starts a stream and waits for its first part, so that an error before it is the response.
pub(crate) async fn stream(
    lookup: Lookup,
    produce: impl FnOnce(&mut Parts) -> Result<(), StreamFailure> + Send + 'static,
) -> Result<SentBody, QueryFailure> {
    let (sender, mut parts) = mpsc::channel::<Part>(PARTS_MAX);
    let sending = lookup.sending();
    let error_sender = sender.clone();
    let producing = tokio::task::spawn_blocking(move || {
        let mut parts = Parts { sender, lookup };
        if let Err(StreamFailure::Query(failure)) = produce(&mut parts) {
            // A reader that is gone needs no error.
            let _ = parts.sender.blocking_send(Err(failure));
        }
    });
    tokio::spawn(async move {
        // A panic must not look like the end of the stream.
        if let Err(error) = producing.await {
            let failure = QueryFailure::Panicked(error.to_string());
            let _ = error_sender.send(Err(failure)).await;
        }
    });
    let first = match parts.recv().await {
        Some(Ok(first)) => Some(Ok(first)),
        Some(Err(failure)) => return Err(failure),
        None => None,
    };
    let rest = stream::poll_fn(move |context| parts.poll_recv(context));
    let rest = rest.map(|part| part.map_err(io::Error::other));
    Ok(sending.start(Box::pin(stream::iter(first).chain(rest))))
}

impl Parts {
    /// Limits and costs.
    pub(crate) fn budget(&self) -> Budget {
        self.lookup.budget.clone()
    }

    /// Waits for a future within the timeout of the lookup.
    ///
    /// Errors: the reader is gone, or the lookup takes too long.
    pub(crate) fn wait<T>(
        &self,
        finding: impl Future<Output = Result<T, SourceError>>,
    ) -> Result<T, StreamFailure> {
        Handle::current().block_on(async {
            tokio::select! {
                found = tokio::time::timeout(self.lookup.timeout, finding) => match found {
                    Ok(found) => Ok(found?),
                    Err(_) => Err(StreamFailure::Query(QueryFailure::TimedOut)),
                },
                () = self.sender.closed() => Err(StreamFailure::Left),
            }
        })
    }

    /// Sends a part. While the reader has no room for it, the permits are released.
    ///
    /// Errors: the reader is gone, or no slot was free in time.
    pub(crate) fn send(&mut self, part: Vec<u8>) -> Result<(), StreamFailure> {
        let lookup = &mut self.lookup;
        let sending = async {
            let room = tokio::time::timeout(READER_GRACE, self.sender.reserve()).await;
            let room = match room {
                Ok(room) => room,
                Err(_) => {
                    lookup.pause();
                    let room = self.sender.reserve().await;
                    tokio::select! {
                        resumed = lookup.resume() => resumed?,
                        () = self.sender.closed() => return Err(StreamFailure::Left),
                    }
                    room
                }
            };
            room.map_err(|_| StreamFailure::Left)?.send(Ok(Bytes::from(part)));
            Ok(())
        };
        Handle::current().block_on(sending)
    }
}

/// Visits each sample of a series, floats and histograms in the order of time.
pub(crate) fn each_sample<E: From<SourceError>>(
    series: &dyn SeriesSet,
    series_index: usize,
    end_ms: i64,
    budget: &Budget,
    batch: &mut SampleBatch,
    mut take: impl FnMut(i64, SampleRef<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut cursor = series.cursor(series_index);
    loop {
        batch.clear();
        let advance = cursor.next_batch(end_ms, batch)?;
        budget.check().map_err(SourceError::Budget)?;
        budget.charge_samples(batch.sample_count() as u64).map_err(SourceError::Budget)?;
        let mut histograms = batch.histograms.iter().peekable();
        let (times, values) = batch.samples();
        for (time_ms, value) in times.iter().zip(values) {
            while let Some(sample) = histograms.next_if(|h| h.timestamp_ms < *time_ms) {
                take(sample.timestamp_ms, SampleRef::Histogram(&sample.histogram))?;
            }
            take(*time_ms, SampleRef::Float(*value))?;
        }
        for sample in histograms {
            take(sample.timestamp_ms, SampleRef::Histogram(&sample.histogram))?;
        }
        if advance != Advance::Full {
            return Ok(());
        }
    }
}
