//! Encodes and compresses long responses on blocking threads, a chunk at a time and few at once, so
//! that small responses and requests do not wait.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_ENCODING;
use axum::response::Response;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use hyper::body::{Body as _, Frame, SizeHint};
use model::MemoryPool;
use tokio::sync::Semaphore;

use crate::query::sending::{IsLong, counted};

/// Slots of encoding threads, and the pool that their output is charged to.
#[derive(Debug, Clone)]
pub(crate) struct Encoders {
    slots: Arc<Semaphore>,
    pool: Arc<MemoryPool>,
}

impl Encoders {
    /// Returns one slot per core but one.
    pub(crate) fn new(pool: Arc<MemoryPool>) -> Encoders {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Encoders { slots: Arc::new(Semaphore::new((cores - 1).max(1))), pool }
    }

    /// Moves the encoding of a long response to these threads, unless its polls neither encode nor
    /// compress.
    pub(crate) fn encode(&self, response: Response) -> Response {
        let is_compressed = response.headers().contains_key(CONTENT_ENCODING);
        match response.extensions().get::<IsLong>() {
            None => return response,
            Some(IsLong::EncodedAhead) if !is_compressed => return response,
            Some(_) => {}
        }
        let waker = Arc::default();
        let encoders = self.clone();
        response.map(|body| Body::new(OffloadedBody { encoders, stage: Stage::Idle(body), waker }))
    }
}

/// Body that is polled on another thread.
struct OffloadedBody {
    encoders: Encoders,
    stage: Stage,
    waker: Arc<Relay>,
}

type Polled = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

enum Stage {
    Idle(Body),
    Polling(BoxFuture<'static, Result<(Body, Polled), tokio::task::JoinError>>),
    Ended,
}

/// Wakes the last poller of the body, and records that it did.
#[derive(Default)]
struct Relay {
    waker: AtomicWaker,
    has_woken: AtomicBool,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.has_woken.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl OffloadedBody {
    /// Polls the body once on another thread.
    fn poll_elsewhere(
        &self,
        mut body: Body,
    ) -> BoxFuture<'static, Result<(Body, Polled), tokio::task::JoinError>> {
        self.waker.has_woken.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self.waker));
        let slots = Arc::clone(&self.encoders.slots);
        Box::pin(async move {
            let permit = slots.acquire_owned().await.expect("the semaphore is never closed");
            let encoding = tokio::task::spawn_blocking(move || {
                let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker));
                drop(permit);
                (body, polled)
            });
            encoding.await
        })
    }
}

impl hyper::body::Body for OffloadedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        this.waker.waker.register(context.waker());
        loop {
            match std::mem::replace(&mut this.stage, Stage::Ended) {
                Stage::Ended => return Poll::Ready(None),
                Stage::Idle(body) => this.stage = Stage::Polling(this.poll_elsewhere(body)),
                Stage::Polling(mut polling) => {
                    let Poll::Ready(returned) = polling.as_mut().poll(context) else {
                        this.stage = Stage::Polling(polling);
                        return Poll::Pending;
                    };
                    let (body, polled) = match returned {
                        Ok(returned) => returned,
                        Err(error) => return Poll::Ready(Some(Err(axum::Error::new(error)))),
                    };
                    this.stage = Stage::Idle(body);
                    match polled {
                        Poll::Ready(Some(Ok(frame))) => {
                            let pool = &this.encoders.pool;
                            let frame = frame.map_data(|bytes| counted(pool, bytes));
                            return Poll::Ready(Some(Ok(frame)));
                        }
                        Poll::Ready(end) => {
                            this.stage = Stage::Ended;
                            return Poll::Ready(end);
                        }
                        // The event may have come before the thread returned.
                        Poll::Pending if this.waker.has_woken.load(Ordering::Acquire) => {}
                        Poll::Pending => return Poll::Pending,
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.stage {
            Stage::Idle(body) => body.size_hint(),
            Stage::Polling(_) | Stage::Ended => SizeHint::default(),
        }
    }
}
