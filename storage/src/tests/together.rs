//! Reads of the object store that do not wait for each other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use model::{Batch, Budget, Matcher, Selection, Source, TimeRange};
use slatedb::object_store::path::Path;
use slatedb::object_store::{GetOptions, GetResult, ObjectStore, Result};
use tokio::sync::Barrier;

use super::harness::{self, labels, open_with};
use crate::lock::lock;
use crate::lsm::{Layer, Layered};
use crate::sizes::Sizes;
use crate::window::PARTITION_MS;
use crate::{Store, StoreOptions};

/// A metric whose labels are in the middle of the others: not next to something else that is read.
const WANTED: &str = "other_5_wanted";

/// Notes each read, and holds chosen ones until two of them are pending.
#[derive(Debug)]
struct Held {
    objects: Arc<dyn ObjectStore>,
    reads: Mutex<Vec<String>>,
    chosen: Mutex<Vec<String>>,
    both: Barrier,
}

#[async_trait]
impl Layer for Arc<Held> {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        let read = format!("{from} {:?}", how.range);
        if from.as_ref().ends_with(".sst") {
            lock(&self.reads).push(read.clone());
        }
        if lock(&self.chosen).contains(&read) {
            self.both.wait().await;
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
        let objects = harness::memory();
        let held = Arc::new(Held {
            objects,
            reads: Default::default(),
            chosen: Default::default(),
            both: Barrier::new(2),
        });
        let objects: Arc<dyn ObjectStore> = Arc::new(Layered(Arc::clone(&held)));
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
        for round in 0..2 {
            let store = open_with(&objects, options.clone()).await.unwrap();
            lock(&held.reads).clear();
            let budget = Budget::unlimited();
            // If one read waits for the other, neither ends before the timeout.
            let set = store.select(&selection, &budget).await.unwrap();
            assert_eq!(set.len(), 100);
            if round == 0 {
                let reads = lock(&held.reads);
                // All others are needed to find these.
                *lock(&held.chosen) = reads[reads.len() - 2..].to_vec();
            }
            store.close().await.unwrap();
        }
    });
}
