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
use crate::StoreOptions;
use crate::lock::lock;
use crate::lsm::{Layer, Layered};
use crate::sizes::Sizes;
use crate::window::PARTITION_MS;

/// A metric whose labels are in the middle of the others: not next to something else that is read.
const WANTED: &str = "other_5_wanted";

/// Part of a file.
type Read = (Path, Range<u64>);

/// Reads that wait until all of them are pending.
#[derive(Debug)]
struct ReadGroup {
    /// Their numbers, from 0 on.
    numbers: Range<usize>,
    barrier: Arc<Barrier>,
}

/// Notes each read of a file.
#[derive(Debug)]
struct GroupedReads {
    objects: Arc<dyn ObjectStore>,
    reads: Mutex<Vec<Read>>,
    group: Mutex<Option<ReadGroup>>,
}

impl GroupedReads {
    /// Counts reads from 0 on, and holds some of them.
    fn hold(&self, numbers: Range<usize>) {
        lock(&self.reads).clear();
        let barrier = Arc::new(Barrier::new(numbers.len()));
        *lock(&self.group) = Some(ReadGroup { numbers, barrier });
    }
}

#[async_trait]
impl Layer for Arc<GroupedReads> {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        if let Some(GetRange::Bounded(range)) = &how.range {
            let number = {
                let mut reads = lock(&self.reads);
                reads.push((from.clone(), range.clone()));
                reads.len() - 1
            };
            let has_read = |group: &&ReadGroup| group.numbers.contains(&number);
            let barrier =
                lock(&self.group).as_ref().filter(has_read).map(|g| Arc::clone(&g.barrier));
            if let Some(barrier) = barrier {
                barrier.wait().await;
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

/// Adds a day of some series of a metric, a sample a minute.
fn push(batch: &mut Batch, metric: &str, series: u64) {
    for number in 0..series {
        let labels = labels(&[("__name__", metric), ("pod", &format!("pod-{number}"))]);
        let sample = |at: u64| (at as i64 * 60_000, (scramble(at * 100 + number) >> 11) as f64);
        batch.push(&labels, &(0..1440).map(sample).collect::<Vec<_>>());
    }
}

/// A compacted day whose reads can be held.
struct Day {
    reads: Arc<GroupedReads>,
    objects: Arc<dyn ObjectStore>,
    options: StoreOptions,
}

impl Day {
    async fn of(batch: Batch) -> Day {
        let grouped = Arc::new(GroupedReads {
            objects: harness::memory(),
            reads: Mutex::default(),
            group: Mutex::default(),
        });
        let objects: Arc<dyn ObjectStore> = Arc::new(Layered(Arc::clone(&grouped)));
        let options = StoreOptions {
            sizes: Sizes::default(),
            read_timeout: Duration::from_secs(300),
            ..harness::options()
        };
        harness::seal_in(&objects, &options, batch).await;
        let store = open_with(&objects, options.clone()).await.unwrap();
        while store.stats().uncompacted_segments > 0 {
            tokio::task::yield_now().await;
        }
        store.close().await.unwrap();
        Day {
            reads: grouped,
            objects,
            options: StoreOptions { compaction_interval: None, ..options },
        }
    }

    /// Selects from the newly opened store while some reads are held: if they wait for each other,
    /// none of them ends before the timeout. Returns the number of series, and all reads.
    async fn select(&self, matcher: Matcher, held: Range<usize>) -> (usize, Vec<Read>) {
        let store = open_with(&self.objects, self.options.clone()).await.unwrap();
        self.reads.hold(held);
        let selection = Selection {
            matchers: vec![matcher],
            times: TimeRange::new(0, PARTITION_MS - 1),
            only_newest: false,
            windows: None,
        };
        let set = store.select(&selection, &Budget::unlimited()).await.unwrap();
        let reads = lock(&self.reads.reads).clone();
        store.close().await.unwrap();
        (set.len(), reads)
    }
}

#[test]
fn labels_and_samples_of_a_known_metric_are_read_together() {
    harness::run(async {
        // Labels and samples are too large to be read with the end of the file.
        let mut batch = Batch::default();
        push(&mut batch, WANTED, 100);
        for number in 0..20_000 {
            let (name, pod) = (format!("other_{}", number % 100), scramble(number));
            let series = labels(&[("__name__", &name), ("pod", &format!("{pod:032x}"))]);
            batch.push(&series, &[(0, 1.0)]);
        }
        let day = Day::of(batch).await;
        let wanted = Matcher::equal("__name__", WANTED);
        let mut held = 0..0;
        for _ in 0..2 {
            let (found, reads) = day.select(wanted.clone(), held).await;
            assert_eq!(found, 100);
            let [_, ids @ .., a, b] = &reads[..] else { panic!("{reads:?}") };
            // Blocks are before run directories and postings, and labels between these.
            let (blocks, labels) = if a.1.start < b.1.start { (a, b) } else { (b, a) };
            let first = ids.iter().map(|(_, range)| range.start).min().unwrap();
            assert!(blocks.1.end <= first && first < labels.1.start, "{reads:?}");
            held = reads.len() - 2..reads.len();
        }
    });
}

#[test]
fn blocks_of_many_metrics_are_read_together() {
    harness::run(async {
        let mut batch = Batch::default();
        for metric in 0..40 {
            push(&mut batch, &format!("metric_{metric}"), 8);
        }
        let day = Day::of(batch).await;
        // The first read is that of the end of the file, which has the index. At most 32 others are in
        // flight.
        let (found, reads) = day.select(Matcher::equal("pod", "pod-0"), 1..25).await;
        assert_eq!(found, 40);
        assert!(reads.len() >= 25, "{reads:?}");
    });
}
