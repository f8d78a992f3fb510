//! Long responses are encoded and compressed on threads of their own, a chunk at a time and few at
//! once, so that nothing else waits for it: neither small responses nor reading requests.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use hyper::body::{Body as _, Frame, SizeHint};
use model::MemoryPool;
use tokio::sync::Semaphore;

use crate::query::sending::{IsLong, counted};

/// Threads that encode, and the memory that holds what they have encoded.
#[derive(Debug, Clone)]
pub(super) struct Encoders {
    places: Arc<Semaphore>,
    pool: Arc<MemoryPool>,
}

impl Encoders {
    /// Leaves a core to others, where there are several.
    pub(super) fn new(pool: Arc<MemoryPool>) -> Encoders {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Encoders { places: Arc::new(Semaphore::new((cores - 1).max(1))), pool }
    }

    /// Moves the encoding of a response to these threads, if it is a long one.
    pub(super) fn encode(&self, response: Response) -> Response {
        if response.extensions().get::<IsLong>().is_none() {
            return response;
        }
        let waker = Arc::default();
        let encoders = self.clone();
        response.map(|body| Body::new(Apart { encoders, stage: Stage::Here(body), waker }))
    }
}

/// Body that is polled on another thread.
struct Apart {
    encoders: Encoders,
    stage: Stage,
    waker: Arc<Relay>,
}

type Polled = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

enum Stage {
    Here(Body),
    Away(BoxFuture<'static, Result<(Body, Polled), tokio::task::JoinError>>),
    Ended,
}

/// Wakes whoever polls the body last, and notes that it did.
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

impl Apart {
    /// Polls the body once on another thread.
    fn send_away(
        &self,
        mut body: Body,
    ) -> BoxFuture<'static, Result<(Body, Polled), tokio::task::JoinError>> {
        self.waker.has_woken.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self.waker));
        let places = Arc::clone(&self.encoders.places);
        Box::pin(async move {
            let place = places.acquire_owned().await.expect("the semaphore is never closed");
            let encoding = tokio::task::spawn_blocking(move || {
                let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker));
                drop(place);
                (body, polled)
            });
            encoding.await
        })
    }
}

impl hyper::body::Body for Apart {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        this.waker.waker.register(context.waker());
        loop {
            match std::mem::replace(&mut this.stage, Stage::Ended) {
                Stage::Ended => return Poll::Ready(None),
                Stage::Here(body) => this.stage = Stage::Away(this.send_away(body)),
                Stage::Away(mut away) => {
                    let Poll::Ready(returned) = away.as_mut().poll(context) else {
                        this.stage = Stage::Away(away);
                        return Poll::Pending;
                    };
                    let (body, polled) = match returned {
                        Ok(returned) => returned,
                        Err(error) => return Poll::Ready(Some(Err(axum::Error::new(error)))),
                    };
                    this.stage = Stage::Here(body);
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
                        // What it waits for may have come before this was known here.
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
            Stage::Here(body) => body.size_hint(),
            Stage::Away(_) | Stage::Ended => SizeHint::default(),
        }
    }
}
