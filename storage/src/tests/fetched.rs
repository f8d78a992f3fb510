//! Bytes of requests, which a query holds no longer than it reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use model::{Batch, Budget, MatchOp, Matcher, Selection, Source, TimeRange};
use slatedb::object_store::path::Path;
use slatedb::object_store::{GetOptions, GetResult, GetResultPayload, ObjectStore, Result};

use super::harness::{self, labels, open_with};
use crate::StoreOptions;
use crate::lsm::{Layer, Layered};
use crate::sizes::Sizes;
use crate::window::PARTITION_MS;

/// Object store that counts the bytes of its responses which are in memory.
#[derive(Debug)]
struct Counted {
    objects: Arc<dyn ObjectStore>,
    held: Arc<AtomicUsize>,
}

struct Response {
    bytes: Bytes,
    held: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Response {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[async_trait]
impl Layer for Counted {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        let result = self.objects.get_opts(from, options).await?;
        let (meta, range) = (result.meta.clone(), result.range.clone());
        let (attributes, extensions) = (result.attributes.clone(), result.extensions.clone());
        let response = Response { bytes: result.bytes().await?, held: Arc::clone(&self.held) };
        self.held.fetch_add(response.bytes.len(), Ordering::Relaxed);
        let payload = stream::once(async move { Ok(Bytes::from_owner(response)) }).boxed();
        let payload = GetResultPayload::Stream(payload);
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }
}

#[test]
fn loaded_series_do_not_hold_the_bytes_of_requests() {
    harness::run(async {
        let held = Arc::new(AtomicUsize::new(0));
        let counted = Counted { objects: harness::memory(), held: Arc::clone(&held) };
        let objects: Arc<dyn ObjectStore> = Arc::new(Layered(counted));
        let options = StoreOptions {
            sizes: Sizes::default(),
            // Caches keep nothing.
            cache_bytes_max: 0,
            ..harness::options()
        };
        let store = open_with(&objects, options.clone()).await.unwrap();
        let mut batch = Batch::default();
        for number in 0..500_u64 {
            let pod = format!("pod-{number}");
            let sample = |at: i64| (at * 60_000, (at as f64 * (number + 3) as f64).sin());
            let samples: Vec<_> = (0..1440).map(sample).collect();
            batch.push(&labels(&[("__name__", "up"), ("pod", &pod)]), &samples);
        }
        store.append(batch).await.unwrap();
        store.seal_all().await.unwrap();
        store.close().await.unwrap();

        // All blocks are wanted, or one of eight.
        for (pods, count) in [(".*", 500), ("pod-300", 1)] {
            let store = open_with(&objects, options.clone()).await.unwrap();
            let selection = Selection {
                matchers: vec![
                    Matcher::equal("__name__", "up"),
                    Matcher::new(MatchOp::Regex, "pod", pods).unwrap(),
                ],
                times: TimeRange::new(0, PARTITION_MS - 1),
                only_newest: false,
                windows: None,
            };
            let set = store.select(&selection, &Budget::unlimited()).await.unwrap();
            assert_eq!(set.len(), count);
            // Reads ahead may end later.
            let released = async {
                while held.load(Ordering::Relaxed) > 0 {
                    tokio::task::yield_now().await;
                }
            };
            let released = tokio::time::timeout(Duration::from_secs(60), released).await;
            assert!(released.is_ok(), "{} bytes are held", held.load(Ordering::Relaxed));
            assert!(set.encoded_bytes() > 0);
            store.close().await.unwrap();
        }
    });
}
