//! Parts of a response, encoded on several threads ahead of its reader.
//!
//! A part is encoded on a blocking thread that has a slot. A body that is not polled must not hold a
//! slot, because its reader may have stopped. So it waits for a slot only while none of its parts is
//! encoded, when its reader has room for more; further slots are taken only if they are free.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream};
use json::pieces::Parts;
use model::MemoryPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::sending::counted;

/// Maximum number of parts of a response that are encoded, or wait to be sent.
const AHEAD_MAX: usize = 4;

/// Encoded parts in order, as many ahead as there are free slots.
pub(crate) struct EncodedParts {
    parts: Parts,
    slots: Arc<Semaphore>,
    /// Pool that encoded parts are charged to.
    pool: Arc<MemoryPool>,
    encoding: VecDeque<JoinHandle<Bytes>>,
    waiting: Option<BoxFuture<'static, OwnedSemaphorePermit>>,
}

impl EncodedParts {
    /// Returns the encoded parts; encoding takes a slot.
    pub(crate) fn new(parts: Parts, slots: Arc<Semaphore>, pool: Arc<MemoryPool>) -> EncodedParts {
        EncodedParts { parts, slots, pool, encoding: VecDeque::new(), waiting: None }
    }

    /// Begins to encode the next part. Returns `false` after the last one.
    fn begin(&mut self, permit: OwnedSemaphorePermit) -> bool {
        let Some(part) = self.parts.next() else { return false };
        let pool = Arc::clone(&self.pool);
        self.encoding.push_back(tokio::task::spawn_blocking(move || {
            let mut encoded = Vec::new();
            part(&mut encoded);
            // Its length is charged.
            encoded.shrink_to_fit();
            let encoded = counted(&pool, encoded);
            // Held until the end even if the response is gone.
            drop(permit);
            encoded
        }));
        true
    }
}

impl Stream for EncodedParts {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while this.waiting.is_none() && this.encoding.len() < AHEAD_MAX {
            let Ok(permit) = Arc::clone(&this.slots).try_acquire_owned() else { break };
            if !this.begin(permit) {
                break;
            }
        }
        if this.encoding.is_empty() {
            let slots = &this.slots;
            let waiting = this.waiting.get_or_insert_with(|| {
                let slots = Arc::clone(slots);
                async { slots.acquire_owned().await.expect("the semaphore is never closed") }
                    .boxed()
            });
            let permit = ready!(waiting.poll_unpin(context));
            this.waiting = None;
            if !this.begin(permit) {
                return Poll::Ready(None);
            }
        }
        let Some(encoding) = this.encoding.front_mut() else { return Poll::Ready(None) };
        let encoded = ready!(encoding.poll_unpin(context));
        this.encoding.pop_front();
        Poll::Ready(Some(encoded.map_err(io::Error::other)))
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use json::pieces::Part;

    use super::*;

    fn numbered(count: usize) -> Parts {
        Box::new((0..count).map(|number| {
            Box::new(move |out: &mut Vec<u8>| out.extend([number as u8; 10])) as Part
        }))
    }

    fn encoded(parts: Parts, slots: &Arc<Semaphore>) -> (Arc<MemoryPool>, EncodedParts) {
        let pool = Arc::new(MemoryPool::new(u64::MAX));
        let encoded = EncodedParts::new(parts, Arc::clone(slots), Arc::clone(&pool));
        (pool, encoded)
    }

    #[tokio::test]
    async fn parts_arrive_in_order_and_are_charged() {
        for slots in [1, 3] {
            let slots = Arc::new(Semaphore::new(slots));
            let (pool, mut encoded) = encoded(numbered(20), &slots);
            for number in 0..20 {
                let part = encoded.next().await.unwrap().unwrap();
                assert_eq!(part, vec![number; 10]);
                assert!((10..=10 * (1 + AHEAD_MAX as u64)).contains(&pool.bytes()));
            }
            assert!(encoded.next().await.is_none());
            assert_eq!(pool.bytes(), 0);
        }
    }

    #[tokio::test]
    async fn a_body_that_is_not_polled_holds_no_slot() {
        let slots = Arc::new(Semaphore::new(1));
        let (_, mut unread) = encoded(numbered(20), &slots);
        assert!(unread.next().await.is_some());
        // Another response is encoded to its end meanwhile.
        let (_, read) = encoded(numbered(20), &slots);
        assert_eq!(read.count().await, 20);
        assert_eq!(unread.count().await, 19);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_not_the_end() {
        let parts: [Part; 2] = [Box::new(|out| out.push(1)), Box::new(|_| panic!("no part"))];
        let slots = Arc::new(Semaphore::new(1));
        let (_, mut encoded) = encoded(Box::new(parts.into_iter()), &slots);
        assert!(encoded.next().await.unwrap().is_ok());
        assert!(encoded.next().await.unwrap().is_err());
        assert!(encoded.next().await.is_none());
        assert_eq!(slots.available_permits(), 1);
    }
}
