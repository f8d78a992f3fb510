//! Gives up clients that do not take what they asked for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream that fails once the other side has accepted no byte for a while, though some wait
/// to be written: what they are taken from stays in memory until then.
pub(super) struct PatientWrites<S> {
    stream: S,
    patience: Duration,
    /// Runs while bytes wait to be accepted.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> PatientWrites<S> {
    pub(super) fn new(stream: S, patience: Duration) -> PatientWrites<S> {
        PatientWrites { stream, patience, end: None }
    }

    /// The outcome of an attempt to write, or the end of patience.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.end = None;
            return outcome;
        }
        let patience = self.patience;
        let end = self.end.get_or_insert_with(|| Box::pin(sleep(patience)));
        end.as_mut().poll(context).map(|()| {
            let message = format!("the client has accepted nothing for {patience:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PatientWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PatientWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush; the clock of a write that waits must not start anew.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_accepts_nothing_is_given_up() {
        let (ours, _theirs) = duplex(10);
        let mut ours = PatientWrites::new(ours, PATIENCE);
        let error = ours.write_all(&[0; 11]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "the client has accepted nothing for 60s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_accepts_a_little_at_a_time_is_waited_for() {
        let (ours, mut theirs) = duplex(10);
        let mut ours = PatientWrites::new(ours, PATIENCE);
        let reading = async {
            let mut buffer = [0; 10];
            for _ in 0..10 {
                sleep(PATIENCE * 9 / 10).await;
                theirs.read_exact(&mut buffer).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[0; 100]), reading);
        written.unwrap();
    }
}
