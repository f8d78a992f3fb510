//! Clock of the LSM, which never returns less than the newest stamp that the store holds.
//!
//! SlateDB stamps writes, SSTs and compactions, and fails if a stamp is lower than an earlier one.
//! The clock of the machine may have been ahead during an earlier write. Refusing to open the store
//! until that time has passed would be worse than stamps that are ahead: only the ages of files
//! depend on them. So the clock continues from the newest stamp.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use slatedb::manifest::Segment;
use slatedb::{VersionedCompactions, VersionedManifest};
use slatedb_common::clock::{SystemClock, SystemClockTicker};

/// Clock that runs ahead of the machine's by a fixed offset.
#[derive(Debug)]
pub(super) struct MonotonicClock {
    machine: Arc<dyn SystemClock>,
    ahead_ms: AtomicI64,
}

impl MonotonicClock {
    pub(super) fn new(machine: Arc<dyn SystemClock>) -> MonotonicClock {
        MonotonicClock { machine, ahead_ms: AtomicI64::new(0) }
    }

    /// Advances the clock to the newest stamp of the store, if that is later.
    pub(super) fn advance_to(&self, newest_ms: Option<i64>) {
        let Some(newest_ms) = newest_ms else { return };
        let ahead_ms = newest_ms.saturating_sub(self.machine.now().timestamp_millis());
        let before_ms = self.ahead_ms.fetch_max(ahead_ms, Ordering::Relaxed);
        if ahead_ms > before_ms {
            let behind = Duration::from_millis(ahead_ms.abs_diff(before_ms));
            tracing::warn!(
                ?behind,
                "the clock is behind the newest stamp of the store; file times continue from that stamp"
            );
        }
    }
}

impl SystemClock for MonotonicClock {
    fn now(&self) -> DateTime<Utc> {
        let ahead = TimeDelta::milliseconds(self.ahead_ms.load(Ordering::Relaxed));
        let now = self.machine.now();
        now.checked_add_signed(ahead).unwrap_or(now)
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.machine.sleep(duration)
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}

/// Returns the newest stamp of the store, if the error is that the clock is behind it. Only the
/// text of SlateDB's error has it.
pub(super) fn newest_write_ms(error: &slatedb::Error) -> Option<i64> {
    let text = error.to_string();
    let (_, rest) = text.split_once("invalid clock tick")?;
    let (_, rest) = rest.split_once("last_tick=`")?;
    rest.split_once('`')?.0.parse().ok()
}

/// Returns the time at which the newest SST was created.
pub(super) fn newest_sst_ms(manifest: &VersionedManifest) -> Option<i64> {
    let files = manifest.all_sst_views().map(|view| view.sst.id.value());
    // The view id of the last compacted SST is later than the id of the SST.
    let compacted = manifest.segments().iter().filter_map(Segment::last_compacted_l0_sst_view_id);
    let made = files.chain(compacted).map(|id| id.timestamp_ms());
    made.max().map(u64::cast_signed)
}

/// Returns the newest stamp of the compactions: the start of one, or the last heartbeat of its
/// worker.
///
/// While the clock is behind a heartbeat, the compaction counts as running, even if the worker's
/// process has ended. Then no process finishes it, and its files are never deleted.
pub(super) fn newest_compaction_ms(compactions: &VersionedCompactions) -> Option<i64> {
    let stamps = compactions.recent_compactions().flat_map(|compaction| {
        let heartbeat = compaction.worker().map(|worker| worker.last_heartbeat_ms);
        heartbeat.into_iter().chain([compaction.id().timestamp_ms()])
    });
    stamps.max().map(u64::cast_signed)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use async_trait::async_trait;
    use slatedb::admin::Admin;
    use slatedb::object_store::path::Path;
    use slatedb::object_store::{ObjectStore, PutOptions, PutPayload, PutResult, Result as Put};
    use slatedb_common::clock::DefaultSystemClock;

    use super::*;
    use crate::lsm::{Layer, Layered, Location, Lsm, Simulated, WriteSet};
    use crate::sizes::Sizes;
    use crate::tests::harness::{self, batch, labels, read_all};
    use crate::{Store, StoreOptions, keys};

    const HOUR_MS: i64 = 3_600_000;
    const COMPACTION_INTERVAL: Duration = Duration::from_secs(60);

    /// Clock with a fixed error.
    #[derive(Debug)]
    struct Off(DefaultSystemClock, Arc<AtomicI64>);

    impl SystemClock for Off {
        fn now(&self) -> DateTime<Utc> {
            self.0.now() + TimeDelta::milliseconds(self.1.load(Ordering::Relaxed))
        }

        fn sleep<'a>(
            &'a self,
            duration: Duration,
        ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
            self.0.sleep(duration)
        }

        fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
            SystemClockTicker::new(self, duration)
        }
    }

    fn location(objects: &Arc<dyn ObjectStore>, off_ms: &Arc<AtomicI64>) -> Location {
        let mut location = Location::on(Arc::clone(objects));
        let clock = Off(DefaultSystemClock::new(), Arc::clone(off_ms));
        location.simulated = Some(Simulated { clock: Arc::new(clock), seed: 1 });
        location
    }

    fn options() -> StoreOptions {
        let manifest_poll_interval = Duration::from_secs(1);
        let sizes = Sizes { manifest_poll_interval, ..Sizes::small() };
        StoreOptions { sizes, ..harness::options() }
    }

    /// Runs a process: all its tasks end with it.
    fn live(life: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime can be built");
        runtime.block_on(life);
    }

    #[test]
    fn a_store_opens_and_takes_writes_after_the_clock_was_set_back() {
        live(async {
            let objects = harness::memory();
            let open = async |off_ms: i64| {
                let location = location(&objects, &Arc::new(AtomicI64::new(off_ms)));
                Store::open_at(&location, options()).await
            };
            let series = labels(&[("a", "b")]);
            // First writes only, then SSTs and compactions, too.
            for (number, off_ms) in [10 * HOUR_MS, 3 * HOUR_MS, 0, -HOUR_MS].into_iter().enumerate()
            {
                let store = open(off_ms).await.unwrap();
                let sample = [(number as i64, 1.0)];
                store.append(batch(&series, &sample)).await.unwrap();
                if number > 0 {
                    store.seal_all().await.unwrap();
                    crate::seal::write_out(store.core()).await.unwrap();
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    store.close().await.unwrap();
                }
            }
            let store = open(0).await.unwrap();
            assert_eq!(read_all(&store).await.unwrap()[0].1.len(), 4);
        });
    }

    /// Object store that drops some writes of compaction lists.
    #[derive(Debug)]
    struct Held {
        objects: Arc<dyn ObjectStore>,
        /// Number of compaction lists that are still written.
        lists_left: AtomicI64,
        /// First compaction list that has not been written.
        late: Mutex<Option<(Path, PutPayload, PutOptions)>>,
        /// Set if the late list arrives before the next manifest.
        is_due: AtomicBool,
        has_outputs: AtomicBool,
    }

    impl Held {
        fn new() -> Arc<Layered<Held>> {
            Arc::new(Layered(Held {
                objects: harness::memory(),
                lists_left: AtomicI64::new(i64::MAX),
                late: Mutex::default(),
                is_due: AtomicBool::new(false),
                has_outputs: AtomicBool::new(true),
            }))
        }
    }

    #[async_trait]
    impl Layer for Held {
        fn below(&self) -> &dyn ObjectStore {
            &*self.objects
        }

        async fn put_opts(&self, to: &Path, bytes: PutPayload, how: PutOptions) -> Put<PutResult> {
            let is_in = |folder: &str| to.parts().any(|part| part.as_ref() == folder);
            if is_in("compactions") && self.lists_left.fetch_sub(1, Ordering::SeqCst) <= 0 {
                self.late.lock().unwrap().get_or_insert((to.clone(), bytes, how));
                return std::future::pending().await;
            }
            if is_in("compacted") && !self.has_outputs.load(Ordering::SeqCst) {
                return std::future::pending().await;
            }
            if is_in("manifest") && self.is_due.load(Ordering::SeqCst) {
                let late = self.late.lock().unwrap().take();
                if let Some((to, bytes, how)) = late {
                    self.objects.put_opts(&to, bytes, how).await?;
                }
            }
            self.objects.put_opts(to, bytes, how).await
        }
    }

    async fn open(objects: &Arc<dyn ObjectStore>, off_ms: &Arc<AtomicI64>) -> Lsm {
        let options = StoreOptions { compaction_interval: Some(COMPACTION_INTERVAL), ..options() };
        Lsm::open(&location(objects, off_ms), &options).await.unwrap()
    }

    /// Writes as many SSTs of one segment as a compaction takes.
    async fn write_files(lsm: &Lsm) {
        for value in 0..8 {
            let mut set = WriteSet::default();
            let day = crate::window::PartitionId::new(20_000);
            set.put([&keys::partition(day)[..], b"b"].concat(), vec![value]);
            lsm.commit(set).await.unwrap();
            lsm.flush_to_files().await.unwrap();
        }
    }

    /// Returns the statuses of unfinished compactions.
    async fn active(objects: &Arc<dyn ObjectStore>) -> Vec<String> {
        let path = Location::on(Arc::clone(objects)).path;
        let admin = Admin::builder(path, Arc::clone(objects)).build();
        let list = admin.read_compactions(None).await.unwrap().unwrap();
        let active = list.recent_compactions().filter(|compaction| compaction.active());
        active.map(|compaction| format!("{:?}", compaction.status())).collect()
    }

    #[test]
    fn a_compaction_claimed_by_a_clock_that_was_ahead_is_claimed_again() {
        let held = Held::new();
        let objects: Arc<dyn ObjectStore> = Arc::clone(&held) as _;
        live(async {
            let lsm = open(&objects, &Arc::default()).await;
            write_files(&lsm).await;
            held.lists_left.store(1, Ordering::SeqCst);
            tokio::time::sleep(2 * COMPACTION_INTERVAL).await;
            assert_eq!(active(&objects).await, ["Submitted"]);
        });
        held.lists_left.store(i64::MAX, Ordering::SeqCst);
        held.has_outputs.store(false, Ordering::SeqCst);
        live(async {
            let _lsm = open(&objects, &Arc::new(AtomicI64::new(10 * HOUR_MS))).await;
            tokio::time::sleep(2 * COMPACTION_INTERVAL).await;
            assert_eq!(active(&objects).await, ["Running"]);
        });
        held.has_outputs.store(true, Ordering::SeqCst);
        live(async {
            let lsm = open(&objects, &Arc::default()).await;
            tokio::time::sleep(10 * COMPACTION_INTERVAL).await;
            assert_eq!(active(&objects).await, [""; 0]);
            write_files(&lsm).await;
        });
    }

    #[test]
    fn a_compaction_of_a_clock_that_was_ahead_may_arrive_during_an_opening() {
        let held = Held::new();
        let objects: Arc<dyn ObjectStore> = Arc::clone(&held) as _;
        live(async {
            let off_ms = Arc::default();
            let lsm = open(&objects, &off_ms).await;
            write_files(&lsm).await;
            off_ms.store(10 * HOUR_MS, Ordering::Relaxed);
            held.lists_left.store(0, Ordering::SeqCst);
            tokio::time::sleep(2 * COMPACTION_INTERVAL).await;
            assert!(held.late.lock().unwrap().is_some());
        });
        held.lists_left.store(i64::MAX, Ordering::SeqCst);
        held.is_due.store(true, Ordering::SeqCst);
        live(async {
            let lsm = open(&objects, &Arc::default()).await;
            assert!(held.late.lock().unwrap().is_none());
            tokio::time::sleep(2 * COMPACTION_INTERVAL).await;
            assert_eq!(active(&objects).await, [""; 0]);
            write_files(&lsm).await;
        });
    }
}
