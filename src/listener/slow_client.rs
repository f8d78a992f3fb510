//! Timeout for clients that receive responses too slowly.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::connections::Tracked;

/// Remaining time in which a client may receive less than the minimum rate.
///
/// It decreases while bytes wait for the client, and increases with received bytes, by their time at
/// the minimum rate.
#[derive(Debug)]
pub(super) struct StallAllowance {
    max: Duration,
    bytes_per_second_min: u32,
    left: Duration,
    /// Time since when bytes wait.
    waiting_since: Option<Instant>,
}

impl StallAllowance {
    pub(super) fn new(max: Duration, bytes_per_second_min: u32) -> StallAllowance {
        StallAllowance { max, bytes_per_second_min, left: max, waiting_since: None }
    }

    /// Starts to wait, unless it does already. Returns the remaining time.
    pub(super) fn wait(&mut self) -> Duration {
        self.waiting_since.get_or_insert_with(Instant::now);
        self.left()
    }

    /// Ends the wait, with the bytes received.
    pub(super) fn take(&mut self, bytes: usize) {
        self.left = self.left();
        self.waiting_since = None;
        let added = bytes as f64 / f64::from(self.bytes_per_second_min);
        self.left = (self.left + Duration::from_secs_f64(added)).min(self.max);
    }

    /// Remaining time.
    pub(super) fn left(&self) -> Duration {
        let waited = self.waiting_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.left.saturating_sub(waited)
    }

    /// Returns the error of a client without remaining time.
    pub(super) fn error(&self) -> io::Error {
        let (rate, max) = (self.bytes_per_second_min, self.max);
        let message = format!(
            "the client takes less than {rate} bytes a second for {max:?} \
             (--web.write-stall-timeout)"
        );
        io::Error::new(io::ErrorKind::TimedOut, message)
    }
}

/// Stream that fails if the client accepts too little for too long, because pending bytes stay in
/// memory until then.
pub(super) struct StallGuard<S> {
    stream: S,
    allowance: StallAllowance,
    /// End of the allowance, while bytes wait.
    end: Option<Pin<Box<Sleep>>>,
    /// Observer of received bytes and waiting writes.
    tracked: Option<Tracked>,
}

impl<S> StallGuard<S> {
    pub(super) fn new(stream: S, allowance: StallAllowance) -> StallGuard<S> {
        StallGuard { stream, allowance, end: None, tracked: None }
    }

    /// Adds an observer of received bytes and waiting writes.
    pub(super) fn tracked_by(self, tracked: Tracked) -> StallGuard<S> {
        StallGuard { tracked: Some(tracked), ..self }
    }

    /// Inner stream.
    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns the outcome of a write, or the error at the end of the allowance.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
        bytes_of: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Some(tracked) = &self.tracked {
            tracked.note_write(outcome.is_pending());
        }
        if let Poll::Ready(accepted) = &outcome {
            self.end = None;
            self.allowance.take(accepted.as_ref().map_or(0, bytes_of));
            return outcome;
        }
        let left = self.allowance.wait();
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(left)));
        end.as_mut().poll(context).map(|()| Err(self.allowance.error()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(tracked) = &self.tracked
            && buffer.filled().len() > filled
        {
            tracked.note_read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, outcome, |bytes| *bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush, and the time of a waiting write must not restart.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, outcome, |()| 0)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, outcome, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const ALLOWANCE: Duration = Duration::from_secs(60);

    /// Writes to a client that reads 10 bytes after each pause. Returns the result and its time.
    async fn write(bytes: usize, pause: Duration) -> (io::Result<()>, Duration) {
        let (ours, mut theirs) = duplex(10);
        let mut ours = StallGuard::new(ours, StallAllowance::new(ALLOWANCE, 10));
        let started = Instant::now();
        tokio::select! {
            written = async { ours.write_all(&vec![0; bytes]).await } => {
                (written, started.elapsed())
            }
            () = async {
                let mut buffer = [0; 10];
                loop {
                    sleep(pause).await;
                    theirs.read_exact(&mut buffer).await.unwrap();
                }
            } => unreachable!(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_accepts_nothing_is_given_up() {
        let (written, elapsed) = write(11, Duration::from_secs(1_000)).await;
        let error = written.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let expected = "the client takes less than 10 bytes a second for 60s \
                        (--web.write-stall-timeout)";
        assert_eq!(error.to_string(), expected);
        assert_eq!(elapsed.as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_to_the_rate_is_waited_for() {
        let (written, elapsed) = write(3_000, Duration::from_millis(900)).await;
        written.unwrap();
        assert!(elapsed > 4 * ALLOWANCE, "{elapsed:?}");
        // Slower, but for less time than the allowance.
        let (written, elapsed) = write(50, Duration::from_secs(9)).await;
        written.unwrap();
        assert_eq!(elapsed.as_secs(), 36);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_accepts_a_little_at_a_time_is_given_up() {
        let (written, elapsed) = write(3_000, Duration::from_secs(9)).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Nine seconds add one.
        assert!((60..80).contains(&elapsed.as_secs()), "{elapsed:?}");
    }
}
