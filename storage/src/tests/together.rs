//! Reads of the object store that do not wait for each other.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use model::{Batch, Budget, Matcher, Selection, Source, TimeRange};
use slatedb::object_store::path::Path;
use slatedb::object_store::{GetOptions, GetRange, GetResult, ObjectStore, Result};
use tokio::sync::Barrier;

use super::harness::{self, labels, open_with};
use crate::lock::lock;
use crate::lsm::{Layer, Layered};
use crate::sizes::Sizes;
use crate::window::PARTITION_MS;
use crate::{Store, StoreOptions};

/// A metric whose labels are in the middle of the others: not next to something else that is read.
const WANTED: &str = "other_5_wanted";

/// Part of a file.
type Read = (Path, Range<u64>);

/// Notes each read of a file. Chosen ones wait until two of them are pending.
#[derive(Debug)]
struct PairedReads {
    objects: Arc<dyn ObjectStore>,
    reads: Mutex<Vec<Read>>,
    chosen: Mutex<Vec<Read>>,
    pair: Barrier,
}

#[async_trait]
impl Layer for Arc<PairedReads> {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        if let Some(GetRange::Bounded(range)) = &how.range {
            let read = (from.clone(), range.clone());
            let is_chosen = lock(&self.chosen).contains(&read);
            lock(&self.reads).push(read);
            if is_chosen {
                self.pair.wait().await;
            }
        }
        self.objects.get_opts(from, how).await
    }
}

/// Returns a number that compression does not shorten.
fn scramble(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// Adds a day whose labels and samples are too large to be read with the end of a file.
async fn fill(store: &Store) {
    let mut batch = Batch::default();
    for number in 0..100 {
        let series = labels(&[("__name__", WANTED), ("pod", &format!("pod-{number}"))]);
        let sample = |at: u64| (at as i64 * 60_000, (scramble(at * 100 + number) >> 11) as f64);
        batch.push(&series, &(0..1440).map(sample).collect::<Vec<_>>());
    }
    for number in 0..20_000 {
        let (name, pod) = (format!("other_{}", number % 100), scramble(number));
        let series = labels(&[("__name__", &name), ("pod", &format!("{pod:032x}"))]);
        batch.push(&series, &[(0, 1.0)]);
    }
    store.append(batch).await.unwrap();
    store.seal_all().await.unwrap();
}

#[test]
fn labels_and_samples_of_a_known_metric_are_read_together() {
    harness::run(async {
        let paired = Arc::new(PairedReads {
            objects: harness::memory(),
            reads: Mutex::default(),
            chosen: Mutex::default(),
            pair: Barrier::new(2),
        });
        let objects: Arc<dyn ObjectStore> = Arc::new(Layered(Arc::clone(&paired)));
        let options = StoreOptions {
            sizes: Sizes::default(),
            read_timeout: Duration::from_secs(300),
            ..harness::options()
        };
        let store = open_with(&objects, options.clone()).await.unwrap();
        fill(&store).await;
        store.close().await.unwrap();
        let store = open_with(&objects, options.clone()).await.unwrap();
        while store.stats().uncompacted_segments > 0 {
            tokio::task::yield_now().await;
        }
        store.close().await.unwrap();

        let options = StoreOptions { compaction_interval: None, ..options };
        let selection = Selection {
            matchers: vec![Matcher::equal("__name__", WANTED)],
            times: TimeRange::new(0, PARTITION_MS - 1),
            only_newest: false,
            windows: None,
        };
        let mut chosen = Vec::new();
        for _ in 0..2 {
            let store = open_with(&objects, options.clone()).await.unwrap();
            lock(&paired.reads).clear();
            *lock(&paired.chosen) = chosen.clone();
            let budget = Budget::unlimited();
            // If one read waits for the other, neither ends before the timeout.
            let set = store.select(&selection, &budget).await.unwrap();
            assert_eq!(set.len(), 100);
            let reads = lock(&paired.reads).clone();
            let [_, ids @ .., a, b] = &reads[..] else { panic!("{reads:?}") };
            // Blocks are before run directories and postings, and labels between these.
            let (blocks, labels) = if a.1.start < b.1.start { (a, b) } else { (b, a) };
            let first = ids.iter().map(|(_, range)| range.start).min().unwrap();
            assert!(blocks.1.end <= first && first < labels.1.start, "{reads:?}");
            chosen = vec![blocks.clone(), labels.clone()];
            store.close().await.unwrap();
        }
        assert_eq!(*lock(&paired.chosen), chosen);
    });
}
