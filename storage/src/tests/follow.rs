//! Readers next to a writer: once caught up they return its answers, and until then those from
//! before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{
    BatchExemplar, BatchMetadata, Budget, ExemplarQuery, KnownMetric, MetadataQuery, MetricKind,
    Source, TimeRange,
};
use slatedb::object_store::ObjectStore;

use super::harness::{self, Contents, batch, labels, open, open_with, options, read_all};
use super::outage::Absent;
use crate::lsm::{self, Location};
use crate::window::{PARTITION_MS, WINDOW_MS};
use crate::{ManualClock, Store, StoreError, StoreOptions};

/// A lag so long that the reader catches up only at the start or on request.
const LONG: Duration = Duration::from_secs(3600);
/// Maximum time to wait for an event.
const PATIENCE: Duration = Duration::from_secs(120);

/// Opens a reader that catches up on request.
pub(super) async fn reader(
    objects: &Arc<dyn ObjectStore>,
    options: StoreOptions,
) -> Result<Store, StoreError> {
    Store::open_reader_at(&Location::on(Arc::clone(objects)), options, LONG).await
}

/// Returns the contents of a reader after catching up.
async fn caught_up(reader: &Store) -> Contents {
    reader.catch_up().await.unwrap();
    read_all(reader).await.unwrap()
}

async fn seal(store: &Store) {
    store.seal_all().await.unwrap();
    crate::seal::write_out(store.core()).await.unwrap();
}

/// Waits, with a limit, until no compaction is due.
async fn wait_until_merged(store: &Store) {
    let started = Instant::now();
    while store.stats().uncompacted_segments > 0 {
        assert!(started.elapsed() < PATIENCE, "compaction does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns options without caches, so that each read comes from SSTs.
fn cold() -> StoreOptions {
    StoreOptions {
        cache_bytes_max: 0,
        index_cache_bytes_max: 0,
        columns_bytes_max: 0,
        full_compaction_after: Duration::ZERO,
        ..options()
    }
}

/// Deletes all SSTs that no manifest and no checkpoint names, however young.
async fn collect_garbage(objects: &Arc<dyn ObjectStore>) {
    lsm::collect_garbage(&Location::on(Arc::clone(objects))).await;
}

#[test]
fn readers_see_what_is_appended_sealed_and_deleted() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let [a, b] = ["a", "b"].map(|name| labels(&[("__name__", name)]));
        let first = reader(&objects, options()).await.unwrap();
        let second = reader(&objects, options()).await.unwrap();
        assert_eq!(caught_up(&first).await, vec![]);
        store.append(batch(&a, &[(1, 1.0), (2, 2.0)])).await.unwrap();
        store.append(batch(&b, &[(1, 1.0)])).await.unwrap();
        assert_eq!(caught_up(&first).await, read_all(&store).await.unwrap());
        store.seal_all().await.unwrap();
        store.append(batch(&a, &[(3, 3.0), (WINDOW_MS, 9.0)])).await.unwrap();
        // Late, in a sealed window, and with another value at a sealed time.
        store.append(batch(&b, &[(-5, 1.0), (1, 7.0)])).await.unwrap();
        assert_eq!(caught_up(&first).await, read_all(&store).await.unwrap());
        seal(&store).await;
        store.delete(vec![vec![model::Matcher::equal("__name__", "a")]], 2, 3).await.unwrap();
        store.append(batch(&a, &[(2, 8.0)])).await.unwrap();
        assert_eq!(caught_up(&first).await, read_all(&store).await.unwrap());
        store.clean_tombstones().await.unwrap();
        assert_eq!(caught_up(&first).await, read_all(&store).await.unwrap());
        // A reader that has seen none of it, at once.
        assert_eq!(caught_up(&second).await, read_all(&store).await.unwrap());
        assert_eq!(first.stats().head_series, 2);
        for reader in [&first, &second] {
            assert_eq!(reader.append(batch(&a, &[(9, 1.0)])).await, Err(StoreError::ReadOnly));
            reader.close().await.unwrap();
        }
        assert_eq!(lsm::checkpoint_count(&Location::on(Arc::clone(&objects))).await, 0);
    });
}

#[test]
fn sealed_windows_leave_the_head_of_a_reader() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let a = labels(&[("__name__", "a")]);
        let reader = reader(&objects, options()).await.unwrap();
        for window in 0..6 {
            store.append(batch(&a, &[(window * WINDOW_MS, 1.0)])).await.unwrap();
            caught_up(&reader).await;
            assert!(reader.stats().log_bytes > 0);
            store.seal_all().await.unwrap();
            assert_eq!(caught_up(&reader).await, read_all(&store).await.unwrap());
            let core = reader.core();
            let mut open = 0;
            core.head.for_each(|_, series| open += usize::from(!series.is_empty()));
            assert_eq!(open, 0, "window {window}");
            assert!(core.log.lock().await.open_windows().is_none());
        }
    });
}

#[test]
fn readers_continue_after_another_writer_takes_over() {
    harness::run(async {
        let objects = harness::memory();
        let a = labels(&[("__name__", "a")]);
        let before = open(&objects).await.unwrap();
        before.append(batch(&a, &[(1, 1.0)])).await.unwrap();
        let reader = reader(&objects, options()).await.unwrap();
        // The writer crashes, hangs, and is closed.
        for round in 2..6 {
            let store = open(&objects).await.unwrap();
            store.append(batch(&a, &[(round, 1.0)])).await.unwrap();
            assert_eq!(before.append(batch(&a, &[(99, 1.0)])).await, Err(StoreError::Fenced));
            assert_eq!(caught_up(&reader).await, read_all(&store).await.unwrap());
            if round % 2 == 0 {
                store.close().await.unwrap();
            }
            assert_eq!(caught_up(&reader).await[0].1.len() as i64, round);
        }
        assert_eq!(reader.stats().follow.unwrap().gaps, 0);
    });
}

#[test]
fn files_of_an_old_view_stay_while_it_is_read() {
    harness::run(async {
        let objects = harness::memory();
        let cold = cold();
        let store = open_with(&objects, cold.clone()).await.unwrap();
        let series: Vec<_> =
            (0..9).map(|n| labels(&[("__name__", "a"), ("n", n.to_string().as_str())])).collect();
        let append = async |from: i64| {
            for labels in &series {
                let samples: Vec<_> = (from..from + 50).map(|t| (t * 1000, t as f64)).collect();
                store.append(batch(labels, &samples)).await.unwrap();
            }
            seal(&store).await;
        };
        append(0).await;
        append(50).await;
        let reader = reader(&objects, cold).await.unwrap();
        let old = read_all(&reader).await.unwrap();
        append(100).await;
        store.delete(vec![vec![model::Matcher::equal("n", "3")]], 0, 40_000).await.unwrap();
        store.clean_tombstones().await.unwrap();
        append(150).await;
        wait_until_merged(&store).await;
        let before = lsm::file_count(&Location::on(Arc::clone(&objects))).await;
        collect_garbage(&objects).await;
        assert_eq!(read_all(&reader).await.unwrap(), old, "the previous view is whole");
        assert_eq!(caught_up(&reader).await, read_all(&store).await.unwrap());
        // The next attempt drops the old view; after compactions, the next but one.
        let started = Instant::now();
        loop {
            reader.catch_up().await.unwrap();
            collect_garbage(&objects).await;
            let after = lsm::file_count(&Location::on(Arc::clone(&objects))).await;
            if after < before {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{after} of {before} SSTs are left");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(read_all(&reader).await.unwrap(), read_all(&store).await.unwrap());
    });
}

#[test]
fn a_query_that_finds_files_gone_takes_others() {
    harness::run(async {
        let objects = harness::memory();
        let cold = cold();
        let store = open_with(&objects, cold.clone()).await.unwrap();
        let a = labels(&[("__name__", "a")]);
        for from in [0, 50] {
            let samples: Vec<_> = (from..from + 50).map(|t| (t * 1000, t as f64)).collect();
            store.append(batch(&a, &samples)).await.unwrap();
            seal(&store).await;
        }
        let reader = reader(&objects, cold).await.unwrap();
        // As after an outage that was longer than its checkpoint.
        let location = Location::on(Arc::clone(&objects));
        lsm::end_checkpoints(&location).await;
        store.append(batch(&a, &[(100_000, 1.0)])).await.unwrap();
        seal(&store).await;
        wait_until_merged(&store).await;
        lsm::delete_unlisted(&location).await;
        let (read, taken) = tokio::join!(
            read_all(&reader),
            tokio::time::timeout(PATIENCE, reader.catch_up_when_wanted())
        );
        taken.expect("an SST was missing").unwrap();
        assert_eq!(read.unwrap(), read_all(&store).await.unwrap());
        let query = MetadataQuery { selectors: vec![], times: TimeRange::new(0, 9), limit: 0 };
        assert_eq!(reader.series(&query, &Budget::unlimited()).await.unwrap(), vec![a]);
    });
}

#[test]
fn a_reader_held_up_for_long_continues_without_the_log() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let [a, b] = ["a", "b"].map(|name| labels(&[("__name__", name)]));
        store.append(batch(&a, &[(1, 1.0), (WINDOW_MS, 1.0)])).await.unwrap();
        let reader = reader(&objects, options()).await.unwrap();
        let version = reader.version().unwrap();
        store.append(batch(&a, &[(2, 2.0)])).await.unwrap();
        store.append(batch(&b, &[(5, 2.0)])).await.unwrap();
        seal(&store).await;
        store.append(batch(&b, &[(6, 2.0)])).await.unwrap();
        store.delete(vec![vec![model::Matcher::equal("__name__", "a")]], 1, 1).await.unwrap();
        store.append(batch(&b, &[(7, 2.0)])).await.unwrap();
        seal(&store).await;
        store.append(batch(&b, &[(2 * WINDOW_MS, 2.0)])).await.unwrap();
        lsm::end_checkpoints(&Location::on(Arc::clone(&objects))).await;
        collect_garbage(&objects).await;
        assert_eq!(caught_up(&reader).await, read_all(&store).await.unwrap());
        assert_eq!(reader.stats().follow.unwrap().gaps, 1);
        assert_eq!(reader.unchanged_since(version).end, i64::MIN, "anything may have changed");
        store.append(batch(&a, &[(3 * WINDOW_MS, 2.0)])).await.unwrap();
        assert_eq!(caught_up(&reader).await, read_all(&store).await.unwrap());
        assert_eq!(reader.stats().follow.unwrap().gaps, 1);
    });
}

#[test]
fn readers_hide_days_beyond_the_retention() {
    harness::run(async {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(PARTITION_MS / 2));
        let with_clock = StoreOptions { clock: Arc::clone(&clock) as _, ..options() };
        let kept = StoreOptions { retention_ms: Some(2 * PARTITION_MS), ..with_clock.clone() };
        let store = open_with(&objects, kept.clone()).await.unwrap();
        // One reader knows the retention, the other learns of the deletion.
        let knows = reader(&objects, kept).await.unwrap();
        let hears = reader(&objects, with_clock).await.unwrap();
        let a = labels(&[("__name__", "a")]);
        for day in 0..6 {
            clock.set(day * PARTITION_MS + PARTITION_MS / 2);
            store.append(batch(&a, &[(day * PARTITION_MS, day as f64)])).await.unwrap();
            if day % 2 == 0 {
                store.seal_all().await.unwrap();
            }
            store.maintain().await.unwrap();
            let expected = read_all(&store).await.unwrap();
            assert_eq!(caught_up(&knows).await, expected, "day {day}");
            assert_eq!(caught_up(&hears).await, expected, "day {day}");
        }
        assert_eq!(read_all(&hears).await.unwrap()[0].1.len(), 3);
    });
}

#[test]
fn exemplars_and_metadata_are_followed() {
    harness::run(async {
        let objects = harness::memory();
        let small = StoreOptions { exemplars_max: 3, ..options() };
        let store = open_with(&objects, small.clone()).await.unwrap();
        let reader = reader(&objects, small).await.unwrap();
        let a = labels(&[("__name__", "a")]);
        for round in 0..5 {
            let mut write = batch(&a, &[(round, 1.0)]);
            write.exemplars.push(BatchExemplar {
                series_index: 0,
                labels: labels(&[("trace", round.to_string().as_str())]),
                timestamp_ms: round,
                value: 1.0,
            });
            write.metadata.push(BatchMetadata {
                metric: format!("m{}", round % 2),
                kind: MetricKind::Counter,
                help: format!("help {round}"),
                unit: String::new(),
            });
            store.append(write).await.unwrap();
            if round == 3 {
                store.seal_all().await.unwrap();
            }
            reader.catch_up().await.unwrap();
            let query = ExemplarQuery { selectors: vec![vec![]], times: TimeRange::new(0, 99) };
            let budget = Budget::unlimited();
            let exemplars = |store: &Store| store.exemplars(&query, &budget).unwrap().found;
            assert_eq!(exemplars(&reader), exemplars(&store), "round {round}");
            assert!(!exemplars(&reader).is_empty());
            let metadata = |store: &Store| -> Vec<KnownMetric> { store.metadata(None, 9).found };
            assert_eq!(metadata(&reader), metadata(&store), "round {round}");
            assert!(!metadata(&reader).is_empty());
        }
    });
}

#[test]
fn a_reader_answers_from_memory_while_the_object_store_is_away() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let a = labels(&[("__name__", "a")]);
        store.append(batch(&a, &[(1, 1.0)])).await.unwrap();
        let absent = Absent::on(&objects);
        let over: Arc<dyn ObjectStore> = Arc::new(absent.clone());
        let reader = reader(&over, options()).await.unwrap();
        let old = read_all(&reader).await.unwrap();
        absent.set(true);
        store.append(batch(&a, &[(2, 1.0)])).await.unwrap();
        let before = reader.behind().unwrap();
        assert!(matches!(reader.catch_up().await, Err(StoreError::Unavailable(_))));
        assert_eq!(read_all(&reader).await.unwrap(), old);
        let behind = reader.behind().unwrap();
        assert!(behind.error.is_some() && behind.behind >= before.behind);
        assert_eq!(reader.stats().follow.unwrap().failures, 1);
        absent.set(false);
        assert_eq!(caught_up(&reader).await, read_all(&store).await.unwrap());
        assert!(reader.behind().unwrap().error.is_none());
    });
}

#[test]
fn a_later_format_is_refused_at_the_start_and_on_the_way() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let on_the_way = reader(&objects, options()).await.unwrap();
        let mut set = lsm::WriteSet::default();
        let later = crate::value::encode_u32(crate::keys::FORMAT, crate::meta::FORMAT + 1);
        set.put(crate::keys::FORMAT.to_vec(), later);
        store.core().lsm.commit(set).await.unwrap();
        let is_refused =
            |result: Result<(), StoreError>| matches!(result, Err(StoreError::NewerFormat { .. }));
        assert!(is_refused(on_the_way.catch_up().await));
        assert!(is_refused(reader(&objects, options()).await.map(drop)));
    });
}

#[test]
fn a_reader_follows_by_itself() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let location = Location::on(Arc::clone(&objects));
        let lag = Duration::from_millis(200);
        let by_itself = StoreOptions { background: true, ..options() };
        let reader = Store::open_reader_at(&location, by_itself, lag).await.unwrap();
        let a = labels(&[("__name__", "a")]);
        for count in 1..4 {
            store.append(batch(&a, &[(count, 1.0)])).await.unwrap();
            let acknowledged = Instant::now();
            while read_all(&reader).await.unwrap() != read_all(&store).await.unwrap() {
                assert!(acknowledged.elapsed() < PATIENCE, "sample {count} is not seen");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        reader.close().await.unwrap();
    });
}
