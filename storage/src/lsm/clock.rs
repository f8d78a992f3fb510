//! The clock of the tree, which must not be behind the newest of what the tree holds.
//!
//! The tree stamps writes, files and merges, and ends where a stamp is lower than one before. While a process lives
//! its clock never goes back; the machine's may have been ahead for a while when it wrote last. A
//! store that did not open until that time has come would be worse than stamps that are ahead, as
//! nothing but the age of files depends on them: so the clock goes on from the newest write.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use slatedb::manifest::Segment;
use slatedb::{VersionedCompactions, VersionedManifest};
use slatedb_common::clock::{SystemClock, SystemClockTicker};

/// A clock that is set forward by so much.
#[derive(Debug)]
pub(super) struct TreeClock {
    machine: Arc<dyn SystemClock>,
    ahead_ms: AtomicI64,
}

impl TreeClock {
    pub(super) fn new(machine: Arc<dyn SystemClock>) -> TreeClock {
        TreeClock { machine, ahead_ms: AtomicI64::new(0) }
    }

    /// Sets it forward to a time, unless it is later already. Returns by how much.
    pub(super) fn go_on_from(&self, time_ms: i64) -> Duration {
        let ahead_ms = time_ms.saturating_sub(self.machine.now().timestamp_millis());
        let before_ms = self.ahead_ms.fetch_max(ahead_ms, Ordering::Relaxed);
        Duration::from_millis(ahead_ms.saturating_sub(before_ms).max(0).unsigned_abs())
    }
}

impl SystemClock for TreeClock {
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

/// The newest stamp of the tree, if an error says that the clock is behind it: slatedb tells it in
/// the text alone.
pub(super) fn newest_write_ms(error: &slatedb::Error) -> Option<i64> {
    let text = error.to_string();
    let (_, rest) = text.split_once("invalid clock tick")?;
    let (_, rest) = rest.split_once("last_tick=`")?;
    rest.split_once('`')?.0.parse().ok()
}

/// When the newest file of a tree was made.
pub(super) fn newest_file_ms(manifest: &VersionedManifest) -> Option<i64> {
    let files = manifest.all_sst_views().map(|view| view.sst.id.value());
    // Of what has been merged, the mark is the number of its place, which is later than its own.
    let merged = manifest.segments().iter().filter_map(Segment::last_compacted_l0_sst_view_id);
    let made = files.chain(merged).map(|id| id.timestamp_ms());
    made.max().map(u64::cast_signed)
}

/// When the newest merge was begun.
pub(super) fn newest_merge_ms(merges: &VersionedCompactions) -> Option<i64> {
    let begun = merges.recent_compactions().map(|merge| merge.id().timestamp_ms());
    begun.max().map(u64::cast_signed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::{Location, Simulated};
    use crate::tests::harness::{self, batch, labels, read_all};
    use crate::{Store, StoreError};

    const HOUR_MS: i64 = 3_600_000;

    #[derive(Debug)]
    struct Off(slatedb_common::clock::DefaultSystemClock, i64);

    impl SystemClock for Off {
        fn now(&self) -> DateTime<Utc> {
            self.0.now() + TimeDelta::milliseconds(self.1)
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

    async fn open(
        objects: &Arc<dyn slatedb::object_store::ObjectStore>,
        off_ms: i64,
    ) -> Result<Store, StoreError> {
        let mut location = Location::on(Arc::clone(objects));
        let clock = Off(slatedb_common::clock::DefaultSystemClock::new(), off_ms);
        let poll_interval = Duration::from_secs(1);
        let simulated = Simulated { clock: Arc::new(clock), seed: 1, poll_interval };
        location.simulated = Some(simulated);
        Store::open_at(&location, harness::options()).await
    }

    #[test]
    fn a_store_opens_and_takes_writes_after_the_clock_was_set_back() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime can be built");
        runtime.block_on(async {
            let objects = harness::memory();
            let series = labels(&[("a", "b")]);
            // Stamps of writes alone, then of files and merges, too.
            for (number, off_ms) in [10 * HOUR_MS, 3 * HOUR_MS, 0, -HOUR_MS].into_iter().enumerate()
            {
                let store = open(&objects, off_ms).await.unwrap();
                let sample = [(number as i64, 1.0)];
                store.append(batch(&series, &sample)).await.unwrap();
                if number > 0 {
                    store.seal_all().await.unwrap();
                    crate::seal::write_out(store.core()).await.unwrap();
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    store.close().await.unwrap();
                }
            }
            let store = open(&objects, 0).await.unwrap();
            assert_eq!(read_all(&store).await.unwrap()[0].1.len(), 4);
        });
    }
}
