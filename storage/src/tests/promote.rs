//! Standbys: readers that become the writer with the head that they have.

use std::cell::Cell;
use std::sync::Arc;

use model::{
    BatchExemplar, BatchMetadata, Budget, ExemplarQuery, Matcher, MetricKind, Source, TimeRange,
};
use slatedb::object_store::ObjectStore;
use tokio::sync::watch;

use super::follow::reader;
use super::harness::{self, Contents, batch, labels, open, open_with, options, read_all};
use super::outage::Absent;
use crate::lsm::{self, Location};
use crate::window::{PARTITION_MS, WINDOW_MS};
use crate::{ManualClock, Retention, Store, StoreError, StoreOptions};

/// Promotes a standby, whose head must be usable.
async fn promote(standby: &Store, objects: &Arc<dyn ObjectStore>) {
    let promoted = promote_in_any_way(standby, objects).await.unwrap();
    assert!(promoted.is_none(), "its head is used");
    assert!(standby.is_writer() && standby.behind().is_none());
    assert_eq!(standby.write_refusal(), None);
    // As after a replay.
    let mut active = 0;
    standby.core().head.for_each(|_, series| {
        assert_eq!(series.is_active, !series.is_empty());
        active += usize::from(series.is_active);
    });
    assert_eq!(standby.stats().active_series, active);
}

async fn promote_in_any_way(
    standby: &Store,
    objects: &Arc<dyn ObjectStore>,
) -> Result<Option<Store>, StoreError> {
    let location = Location::on(Arc::clone(objects));
    let (_command, mut commanded) = watch::channel(false);
    let claim = Store::claim_at(location, &options(), &mut commanded).await?;
    standby.promote(claim).await
}

/// Returns the contents of the store as a start finds them.
async fn reopened(objects: &Arc<dyn ObjectStore>, options: StoreOptions) -> Contents {
    let store = open_with(objects, options).await.unwrap();
    let contents = read_all(&store).await.unwrap();
    store.close().await.unwrap();
    contents
}

#[test]
fn a_standby_continues_where_a_closed_or_working_writer_was() {
    harness::run(async {
        for is_closed in [true, false] {
            let objects = harness::memory();
            let first = open(&objects).await.unwrap();
            let [a, b] = ["a", "b"].map(|name| labels(&[("__name__", name)]));
            first.append(batch(&a, &[(1, 1.0), (2, 2.0)])).await.unwrap();
            let standby = reader(&objects, options()).await.unwrap();
            assert_eq!(standby.append(batch(&a, &[(3, 1.0)])).await, Err(StoreError::ReadOnly));
            // It has not seen these.
            first.append(batch(&b, &[(1, 1.0)])).await.unwrap();
            first.seal_all().await.unwrap();
            first.append(batch(&a, &[(3, 3.0), (WINDOW_MS, 9.0)])).await.unwrap();
            first.delete(vec![vec![Matcher::equal("__name__", "a")]], 2, 2).await.unwrap();
            first.append(batch(&a, &[(4, 4.0)])).await.unwrap();
            let expected = read_all(&first).await.unwrap();
            if is_closed {
                first.close().await.unwrap();
            }
            promote(&standby, &objects).await;
            assert_eq!(read_all(&standby).await.unwrap(), expected);
            let refused = first.append(batch(&a, &[(99, 1.0)])).await;
            assert!(refused.is_err_and(|error| error.ends_writes()));
            // Duplicates of the head and of sealed samples, and new ones.
            standby.append(batch(&a, &[(3, 3.0), (4, 4.0), (5, 5.0)])).await.unwrap();
            standby.append(batch(&b, &[(2, 2.0)])).await.unwrap();
            standby.maintain().await.unwrap();
            standby.seal_all().await.unwrap();
            standby.append(batch(&b, &[(3, 2.0)])).await.unwrap();
            standby.clean_tombstones().await.unwrap();
            let expected = read_all(&standby).await.unwrap();
            assert_eq!(expected[0].1.len() + expected[1].1.len(), 5 + 3);
            standby.close().await.unwrap();
            assert_eq!(reopened(&objects, options()).await, expected);
            assert_eq!(lsm::checkpoint_count(&Location::on(Arc::clone(&objects))).await, 0);
        }
    });
}

#[test]
fn of_two_standbys_one_follows_the_other() {
    harness::run(async {
        let objects = harness::memory();
        let a = labels(&[("__name__", "a")]);
        let mut writer = open(&objects).await.unwrap();
        let mut standby = reader(&objects, options()).await.unwrap();
        for round in 0..6 {
            writer.append(batch(&a, &[(2 * round, 1.0)])).await.unwrap();
            if round % 2 == 0 {
                writer.seal_all().await.unwrap();
            }
            if round % 3 == 0 {
                standby.catch_up().await.unwrap();
            }
            promote(&standby, &objects).await;
            standby.append(batch(&a, &[(2 * round + 1, 1.0)])).await.unwrap();
            let lost = writer.append(batch(&a, &[(99, 1.0)])).await;
            assert_eq!(lost, Err(StoreError::Fenced));
            let expected = read_all(&standby).await.unwrap();
            assert_eq!(expected[0].1.len() as i64, 2 * round + 2);
            let next = reader(&objects, options()).await.unwrap();
            assert_eq!(read_all(&next).await.unwrap(), expected);
            writer = std::mem::replace(&mut standby, next);
        }
    });
}

#[test]
fn a_standby_held_up_for_long_is_promoted_with_its_head() {
    harness::run(async {
        let objects = harness::memory();
        let a = labels(&[("__name__", "a")]);
        let first = open(&objects).await.unwrap();
        first.append(batch(&a, &[(1, 1.0), (WINDOW_MS, 1.0)])).await.unwrap();
        let standby = reader(&objects, options()).await.unwrap();
        for round in 0..3 {
            first.append(batch(&a, &[(2 + round, 2.0)])).await.unwrap();
            first.seal_all().await.unwrap();
            crate::seal::write_out(first.core()).await.unwrap();
        }
        first.append(batch(&a, &[(2 * WINDOW_MS, 2.0)])).await.unwrap();
        // The rows since its last step are gone from the WAL.
        let location = Location::on(Arc::clone(&objects));
        lsm::end_checkpoints(&location).await;
        lsm::collect_garbage(&location).await;
        let expected = read_all(&first).await.unwrap();
        promote(&standby, &objects).await;
        assert_eq!(read_all(&standby).await.unwrap(), expected);
        standby.close().await.unwrap();
        assert_eq!(reopened(&objects, options()).await, expected);
    });
}

#[test]
fn a_standby_without_a_usable_head_replays_the_log() {
    harness::run(async {
        let objects = harness::memory();
        let a = labels(&[("__name__", "a")]);
        let first = open(&objects).await.unwrap();
        first.append(batch(&a, &[(1, 1.0)])).await.unwrap();
        let standby = reader(&objects, options()).await.unwrap();
        let version = standby.version().unwrap();
        first.append(batch(&a, &[(2, 2.0)])).await.unwrap();
        let expected = read_all(&first).await.unwrap();
        // As if it had applied records that the log does not have.
        for info in standby.core().log.lock().await.epochs.values_mut() {
            info.record_count += 9;
        }
        // A reload of the configuration since the start.
        standby.set_retention(Retention { bytes: Some(1 << 50), ..Retention::default() });
        let writer = promote_in_any_way(&standby, &objects).await.unwrap().unwrap();
        assert_eq!(writer.core().keeping().retention().bytes, Some(1 << 50));
        assert_eq!(read_all(&writer).await.unwrap(), expected);
        assert_eq!(writer.unchanged_since(version).end, i64::MIN, "anything may have changed");
        assert!(writer.is_writer() && !standby.is_writer());
        writer.append(batch(&a, &[(3, 3.0)])).await.unwrap();
        let selection = standby.core().selections.begin();
        let mut closing = Box::pin(standby.close_after_reads());
        tokio::select! {
            biased;
            _ = &mut closing => panic!("a selection still reads it"),
            () = tokio::task::yield_now() => {}
        }
        drop(selection);
        closing.await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(reopened(&objects, options()).await[0].1.len(), 3);
    });
}

/// Closes a standby during its promotion, and checks what is left. Returns false if the promotion
/// was faster.
async fn close_during_promotion(has_usable_head: bool) -> bool {
    let objects = harness::memory();
    let a = labels(&[("__name__", "a")]);
    let first = open(&objects).await.unwrap();
    first.append(batch(&a, &[(1, 1.0)])).await.unwrap();
    let standby = reader(&objects, options()).await.unwrap();
    if !has_usable_head {
        for info in standby.core().log.lock().await.epochs.values_mut() {
            info.record_count += 9;
        }
    }
    let has_ended = Cell::new(false);
    let promoting = async {
        let promoted = promote_in_any_way(&standby, &objects).await;
        has_ended.set(true);
        promoted
    };
    // The close waits for the promotion, or prevents it.
    let (promoted, closed) = tokio::join!(promoting, async {
        while !standby.is_followed() && !has_ended.get() {
            tokio::task::yield_now().await;
        }
        let is_in_time = standby.is_followed();
        standby.close().await.map(|()| is_in_time)
    });
    if !closed.unwrap() {
        return false;
    }
    assert!(!matches!(promoted, Ok(Some(_))), "nothing would close it");
    assert!(standby.append(batch(&a, &[(2, 2.0)])).await.is_err());
    let left = Store::open_once_at(&Location::on(Arc::clone(&objects)), options()).await;
    let owner = left.unwrap().core().lsm.get(crate::keys::OWNER).await.unwrap();
    assert_eq!(owner, None);
    true
}

#[test]
fn a_standby_that_is_closed_during_its_promotion_writes_nothing_afterwards() {
    harness::run(async {
        for has_usable_head in [true, false] {
            while !close_during_promotion(has_usable_head).await {}
        }
    });
}

#[test]
fn a_standby_that_cannot_become_the_writer_follows_on() {
    harness::run(async {
        let objects = harness::memory();
        let a = labels(&[("__name__", "a")]);
        let first = open(&objects).await.unwrap();
        first.append(batch(&a, &[(1, 1.0)])).await.unwrap();
        let absent = Absent::on(&objects);
        let over: Arc<dyn ObjectStore> = Arc::new(absent.clone());
        let quick =
            StoreOptions { read_timeout: std::time::Duration::from_millis(200), ..options() };
        let standby = reader(&over, quick).await.unwrap();
        absent.set(true);
        let failed = promote_in_any_way(&standby, &over).await.map(drop);
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
        assert!(!standby.is_writer());
        absent.set(false);
        first.append(batch(&a, &[(2, 2.0)])).await.unwrap();
        standby.catch_up().await.unwrap();
        assert_eq!(read_all(&standby).await.unwrap(), read_all(&first).await.unwrap());
        promote(&standby, &over).await;
        standby.append(batch(&a, &[(3, 3.0)])).await.unwrap();
        // A closed store gives up its claim.
        standby.close().await.unwrap();
        assert_eq!(reopened(&objects, options()).await[0].1.len(), 3);
    });
}

#[test]
fn a_standby_does_not_take_over_a_store_of_a_later_format() {
    harness::run(async {
        let objects = harness::memory();
        let first = open(&objects).await.unwrap();
        let standby = reader(&objects, options()).await.unwrap();
        let mut set = lsm::WriteSet::default();
        let later = crate::value::encode_u32(crate::keys::FORMAT, crate::meta::FORMAT + 1);
        set.put(crate::keys::FORMAT.to_vec(), later);
        first.core().lsm.commit(set).await.unwrap();
        let refused = promote_in_any_way(&standby, &objects).await.map(drop);
        assert!(matches!(refused, Err(StoreError::NewerFormat { .. })), "{refused:?}");
        assert!(!standby.is_writer());
        assert_eq!(standby.unpromotable(), refused.err());
        let a = labels(&[("__name__", "a")]);
        first.append(batch(&a, &[(1, 1.0)])).await.unwrap();
    });
}

#[test]
fn retention_exemplars_and_metadata_continue() {
    harness::run(async {
        let objects = harness::memory();
        let clock = Arc::new(ManualClock::new(PARTITION_MS / 2));
        let kept = StoreOptions {
            retention_ms: Some(2 * PARTITION_MS),
            exemplars_max: 3,
            clock: Arc::clone(&clock) as _,
            ..options()
        };
        let a = labels(&[("__name__", "a")]);
        let write = |at_ms: i64| {
            let mut write = batch(&a, &[(at_ms, 1.0)]);
            write.exemplars.push(BatchExemplar {
                series_index: 0,
                labels: labels(&[("trace", at_ms.to_string().as_str())]),
                timestamp_ms: at_ms,
                value: 1.0,
            });
            write.metadata.push(BatchMetadata {
                metric: format!("m{}", at_ms % 2),
                kind: MetricKind::Counter,
                help: format!("help {at_ms}"),
                unit: String::new(),
            });
            write
        };
        let mut writer = open_with(&objects, kept.clone()).await.unwrap();
        let query = ExemplarQuery { selectors: vec![vec![]], times: TimeRange::ALL };
        for day in 0..7 {
            let standby = reader(&objects, kept.clone()).await.unwrap();
            let at_ms = day * PARTITION_MS + PARTITION_MS / 2 + day;
            clock.set(at_ms);
            writer.append(write(at_ms)).await.unwrap();
            if day % 2 == 0 {
                writer.seal_all().await.unwrap();
            }
            let expected = read_all(&writer).await.unwrap();
            let exemplars =
                |store: &Store| store.exemplars(&query, &Budget::unlimited()).unwrap().found;
            let (traces, metadata) = (exemplars(&writer), writer.metadata(None, 9).found);
            promote(&standby, &objects).await;
            assert_eq!(read_all(&standby).await.unwrap(), expected, "day {day}");
            assert_eq!(exemplars(&standby), traces, "day {day}");
            assert_eq!(standby.metadata(None, 9).found, metadata, "day {day}");
            standby.maintain().await.unwrap();
            writer = standby;
        }
        let all = read_all(&writer).await.unwrap();
        assert_eq!(all[0].1.len(), 3, "days beyond the retention are deleted");
        assert_eq!(writer.days().len(), 3, "and their indexes");
        writer.close().await.unwrap();
        assert_eq!(reopened(&objects, kept).await, all);
    });
}
