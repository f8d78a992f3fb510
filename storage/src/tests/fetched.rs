//! Bytes of requests: a query holds them no longer than it reads, and fetches damaged ones again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use model::{Batch, Budget, MatchOp, Matcher, Selection, Source, TimeRange};
use slatedb::object_store::path::Path;
use slatedb::object_store::{GetOptions, GetResult, GetResultPayload, ObjectStore, Result};

use super::harness::{self, labels, open_with};
use crate::lsm::{Layer, Layered};
use crate::sizes::Sizes;
use crate::window::PARTITION_MS;
use crate::{Store, StoreOptions};

/// Length of a response that has blocks of many series.
const LONG: usize = 1 << 20;

/// Object store that counts the bytes of its responses which are in memory.
#[derive(Debug)]
struct Counted {
    objects: Arc<dyn ObjectStore>,
    held: Arc<AtomicUsize>,
    /// Whether the next long response is damaged.
    is_damaging: AtomicBool,
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
impl Layer for Arc<Counted> {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        let result = self.objects.get_opts(from, options).await?;
        let (meta, range) = (result.meta.clone(), result.range.clone());
        let (attributes, extensions) = (result.attributes.clone(), result.extensions.clone());
        let mut bytes = result.bytes().await?;
        if bytes.len() > LONG && self.is_damaging.swap(false, Ordering::Relaxed) {
            bytes = bytes.iter().map(|byte| byte ^ 1).collect();
        }
        let response = Response { bytes, held: Arc::clone(&self.held) };
        self.held.fetch_add(response.bytes.len(), Ordering::Relaxed);
        let payload = stream::once(async move { Ok(Bytes::from_owner(response)) }).boxed();
        let payload = GetResultPayload::Stream(payload);
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }
}

/// A store of a day of 500 series of one metric.
struct Day {
    counted: Arc<Counted>,
    objects: Arc<dyn ObjectStore>,
    options: StoreOptions,
}

impl Day {
    async fn new(cache_bytes_max: usize) -> Day {
        let (held, is_damaging) = (Arc::default(), AtomicBool::new(false));
        let counted = Arc::new(Counted { objects: harness::memory(), held, is_damaging });
        let objects: Arc<dyn ObjectStore> = Arc::new(Layered(Arc::clone(&counted)));
        let options =
            StoreOptions { sizes: Sizes::default(), cache_bytes_max, ..harness::options() };
        let mut batch = Batch::default();
        for number in 0..500_u64 {
            let pod = format!("pod-{number}");
            let sample = |at: i64| (at * 60_000, (at as f64 * (number + 3) as f64).sin());
            let samples: Vec<_> = (0..1440).map(sample).collect();
            batch.push(&labels(&[("__name__", "up"), ("pod", &pod)]), &samples);
        }
        harness::seal_in(&objects, &options, batch).await;
        Day { counted, objects, options }
    }

    /// Opens the store with empty caches.
    async fn open(&self) -> Store {
        open_with(&self.objects, self.options.clone()).await.unwrap()
    }
}

fn selection(pods: &str) -> Selection {
    let pods = Matcher::new(MatchOp::Regex, "pod", pods).unwrap();
    Selection {
        matchers: vec![Matcher::equal("__name__", "up"), pods],
        times: TimeRange::new(0, PARTITION_MS - 1),
        only_newest: false,
        windows: None,
    }
}

#[test]
fn loaded_series_do_not_hold_the_bytes_of_requests() {
    harness::run(async {
        // Caches keep nothing.
        let day = Day::new(0).await;
        // All blocks are wanted, or one of eight.
        for (pods, count) in [(".*", 500), ("pod-300", 1)] {
            let store = day.open().await;
            let set = store.select(&selection(pods), &Budget::unlimited()).await.unwrap();
            assert_eq!(set.len(), count);
            let held = &day.counted.held;
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

#[test]
fn blocks_that_arrive_damaged_are_fetched_again() {
    harness::run(async {
        // The end of the file is not kept, and the index is.
        let day = Day::new(2 << 20).await;
        for pods in [".*", "pod-300"] {
            let mut read = Vec::new();
            for is_damaging in [false, true] {
                let store = day.open().await;
                day.counted.is_damaging.store(is_damaging, Ordering::Relaxed);
                read.push(harness::read_selection(&store, &selection(pods)).await.unwrap());
                assert!(!day.counted.is_damaging.load(Ordering::Relaxed), "nothing was damaged");
                store.close().await.unwrap();
            }
            assert_eq!(read[0], read[1]);
        }
    });
}
