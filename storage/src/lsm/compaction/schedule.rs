//! Compaction schedule: size-tiered as in SlateDB, with three exceptions.
//!
//! - Idle segments, such as a day that has passed, are compacted into one sorted run: a query reads
//!   each run, and its index, separately. Partitions from which much was deleted are compacted
//!   fully, too, to free space.
//! - Segments of deleted partitions and of sealed log epochs are dropped without reading their
//!   SSTs.
//! - Segments of the log are compacted only when they have very many SSTs: their keys ascend, so
//!   their SSTs do not overlap, and at most one start reads them.
//!
//! The limit of concurrent compactions is applied after log segments are removed. SlateDB prefers
//! segments with many SSTs, so it would propose only log epochs. SSTs of other segments would pile
//! up until SlateDB flushes no memtable, and all writes would wait.
//!
//! Small compactions do not count in this limit, and have one of their own. A proposal, its
//! claim and its completion each wait for a poll, and polls are seconds apart. So after an import of
//! a year, the limit decides how long the compaction of its days takes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use slatedb::VersionedCompactions;
use slatedb::compactor::{
    Compaction, CompactionScheduler, CompactionSchedulerSupplier, CompactionSpec,
    CompactorStateView, SizeTieredCompactionSchedulerSupplier, SourceId,
};
use slatedb::config::CompactorOptions;
use slatedb::manifest::{Segment, SortedRun, SsTableView};

use crate::epoch::Epoch;
use crate::keys;
use crate::lsm::clock::{self, MonotonicClock};
use crate::window::PartitionId;

/// Number of SSTs of a log epoch from which it is compacted: the number of SSTs of a store is
/// limited.
const LOG_FILES_MAX: usize = 256;
/// Maximum number of active compactions that are not small.
const LARGE_MAX: usize = 4;
/// Number of those from which no full compaction is scheduled: these are not urgent.
const LARGE_FULL_MAX: usize = 2;
/// Bytes that a small compaction reads at most.
const SMALL_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of active small compactions.
const SMALL_MAX: usize = 16;
/// Maximum number of active compactions.
pub(in crate::lsm) const ACTIVE_MAX: usize = LARGE_MAX + SMALL_MAX;

/// Segments to drop, and partitions to compact fully.
#[derive(Debug, Clone)]
pub(crate) struct CompactionRequests(Arc<RequestState>);

#[derive(Debug)]
struct RequestState {
    partition: AtomicI64,
    epoch: AtomicU32,
    /// Partitions to compact fully.
    full_compactions: Mutex<BTreeMap<PartitionId, FullCompaction>>,
}

/// Requested full compaction of a partition.
#[derive(Debug)]
struct FullCompaction {
    /// First manifest with all deletions.
    manifest_id: u64,
    /// Inputs of the compaction, once it has been scheduled.
    sources: Vec<SourceId>,
}

impl Default for CompactionRequests {
    /// Creates requests for nothing.
    fn default() -> Self {
        CompactionRequests(Arc::new(RequestState {
            partition: AtomicI64::new(i64::MIN),
            epoch: AtomicU32::new(0),
            full_compactions: Mutex::default(),
        }))
    }
}

impl CompactionRequests {
    /// Requests that partitions before one are dropped.
    pub(crate) fn drop_partitions_before(&self, partition: PartitionId) {
        self.0.partition.fetch_max(partition.number(), Ordering::Relaxed);
    }

    /// Withdraws the request for partitions from one on, as they may be written to.
    pub(crate) fn keep_partitions_from(&self, partition: PartitionId) {
        self.0.partition.fetch_min(partition.number(), Ordering::Relaxed);
    }

    /// Requests that log epochs before one are dropped.
    pub(crate) fn drop_log_before(&self, epoch: Epoch) {
        self.0.epoch.fetch_max(epoch.number(), Ordering::Relaxed);
    }

    /// Requests a full compaction of a partition as of a manifest.
    pub(crate) fn compact_partition(&self, partition: PartitionId, manifest_id: u64) {
        let compaction = FullCompaction { manifest_id, sources: Vec::new() };
        self.pending().insert(partition, compaction);
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<PartitionId, FullCompaction>> {
        self.0.full_compactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a segment is to be dropped.
    pub(crate) fn is_dropped(&self, prefix: &[u8]) -> bool {
        let partition = PartitionId::new(self.0.partition.load(Ordering::Relaxed));
        let epoch = Epoch::new(self.0.epoch.load(Ordering::Relaxed));
        keys::parse_partition(prefix).is_some_and(|number| number < partition)
            || keys::parse_log_epoch(prefix).is_some_and(|number| number < epoch)
    }
}

/// Supplier of the compaction scheduler.
pub(in crate::lsm) struct SegmentSchedulerSupplier {
    requests: CompactionRequests,
    full_compaction_after: Duration,
    clock: Arc<MonotonicClock>,
}

impl SegmentSchedulerSupplier {
    /// Creates the supplier. Segments without new SSTs for `full_compaction_after` are compacted
    /// fully.
    pub(in crate::lsm) fn new(
        requests: &CompactionRequests,
        full_compaction_after: Duration,
        clock: &Arc<MonotonicClock>,
    ) -> SegmentSchedulerSupplier {
        SegmentSchedulerSupplier {
            requests: requests.clone(),
            full_compaction_after,
            clock: Arc::clone(clock),
        }
    }
}

impl CompactionSchedulerSupplier for SegmentSchedulerSupplier {
    fn compaction_scheduler(
        &self,
        options: &CompactorOptions,
    ) -> Box<dyn CompactionScheduler + Send + Sync> {
        // It proposes all compactions; `propose` limits their number.
        let all = CompactorOptions { max_concurrent_compactions: usize::MAX, ..options.clone() };
        Box::new(SegmentScheduler {
            requests: self.requests.clone(),
            full_compaction_after: self.full_compaction_after,
            clock: Arc::clone(&self.clock),
            size_tiered: SizeTieredCompactionSchedulerSupplier::new().compaction_scheduler(&all),
        })
    }
}

struct SegmentScheduler {
    requests: CompactionRequests,
    full_compaction_after: Duration,
    clock: Arc<MonotonicClock>,
    size_tiered: Box<dyn CompactionScheduler + Send + Sync>,
}

impl SegmentScheduler {
    /// Returns full compactions of idle segments. `proposed` are the compactions proposed so far.
    fn full_compactions(
        &self,
        state: &CompactorStateView,
        proposed: &[CompactionSpec],
        running: &mut Running,
    ) -> Vec<CompactionSpec> {
        let segments = state.manifest().segments();
        let idle_before = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .saturating_sub(self.full_compaction_after)
            .as_millis();
        let is_idle = |segment: &&Segment| {
            let runs = segment.compacted().iter().flat_map(SortedRun::sst_views);
            let newest = segment.l0().iter().chain(runs).map(|f| f.sst.id.value().timestamp_ms());
            newest.max().is_some_and(|newest_ms| u128::from(newest_ms) <= idle_before)
        };
        let runs = segments.iter().flat_map(Segment::compacted).map(|run| run.id);
        let jobs = active(state).filter_map(|job| job.spec().destination());
        let others = proposed.iter().filter_map(CompactionSpec::destination);
        let mut next_run = runs.chain(jobs).chain(others).max().map_or(0, |id| id + 1);
        segments
            .iter()
            .filter(|segment| segment.l0().len() + segment.compacted().len() > 1)
            .filter(|segment| keys::parse_log_epoch(segment.prefix()).is_none())
            .filter(|segment| !self.requests.is_dropped(segment.prefix()))
            .filter(is_idle)
            .filter(|segment| !is_active(state, segment.prefix()))
            .filter(|segment| !proposed.iter().any(|spec| spec.segment() == segment.prefix()))
            .filter(|segment| {
                running.admits(segment_bytes(segment, &sources(segment)), LARGE_FULL_MAX)
            })
            .map(|segment| {
                let into = segment.compacted().iter().map(|run| run.id).min().unwrap_or(next_run);
                next_run = next_run.max(into + 1);
                CompactionSpec::for_segment(segment.prefix().clone(), sources(segment), into)
            })
            .collect()
    }
}

impl CompactionScheduler for SegmentScheduler {
    fn propose(&self, state: &CompactorStateView) -> Vec<CompactionSpec> {
        // The last compaction list of an earlier process may arrive after this one has opened the
        // LSM. Its compactions continue here, and need stamps that are not lower.
        self.clock.advance_to(state.compactions().and_then(clock::newest_compaction_ms));
        let segments = state.manifest().segments();
        let mut proposed: Vec<CompactionSpec> = segments
            .iter()
            .filter(|segment| self.requests.is_dropped(segment.prefix()))
            .filter(|segment| !segment.l0().is_empty() || !segment.compacted().is_empty())
            .filter(|segment| !is_active(state, segment.prefix()))
            .map(drop_segment)
            .collect();
        let is_long_log = |prefix: &Bytes| {
            segments.iter().any(|s| s.prefix() == prefix && s.l0().len() > LOG_FILES_MAX)
        };
        let mut full_compactions = self.requests.pending();
        let is_wanted = |spec: &CompactionSpec| {
            let prefix = spec.segment();
            let is_log = keys::parse_log_epoch(prefix).is_some();
            let is_requested =
                keys::parse_partition(prefix).is_some_and(|p| full_compactions.contains_key(&p));
            !self.requests.is_dropped(prefix) && (!is_log || is_long_log(prefix)) && !is_requested
        };
        let mut running = Running::of(state);
        let is_admitted = |spec: &CompactionSpec| running.admits(bytes_of(state, spec), LARGE_MAX);
        let size_tiered = self.size_tiered.propose(state).into_iter();
        proposed.extend(size_tiered.filter(is_wanted).filter(is_admitted));
        full_compactions.retain(|partition, compaction| {
            let prefix = keys::partition(*partition);
            let segment = segments.iter().find(|segment| *segment.prefix() == prefix);
            let Some(segment) = segment.filter(|_| !self.requests.is_dropped(&prefix)) else {
                return state.manifest().id() < compaction.manifest_id;
            };
            if state.manifest().id() < compaction.manifest_id || is_active(state, segment.prefix())
            {
                return true;
            }
            let sources = sources(segment);
            let is_left =
                |source| matches!(source, &SourceId::SstView(_)) && sources.contains(source);
            let is_done = !compaction.sources.is_empty() && !compaction.sources.iter().any(is_left);
            if is_done || sources.is_empty() {
                return false;
            }
            let lowest = segment.compacted().iter().map(|run| run.id).min();
            let into = lowest.unwrap_or_else(|| unused_run(state, &proposed));
            compaction.sources.clone_from(&sources);
            let is_only_runs = sources.iter().all(|s| matches!(s, SourceId::SortedRun(_)));
            proposed.push(CompactionSpec::for_segment(segment.prefix().clone(), sources, into));
            // A sorted run keeps its id, so the completion of this compaction cannot be observed.
            !is_only_runs
        });
        let full = self.full_compactions(state, &proposed, &mut running);
        proposed.extend(full);
        proposed
    }

    fn validate(
        &self,
        state: &CompactorStateView,
        spec: &CompactionSpec,
    ) -> Result<(), slatedb::Error> {
        self.size_tiered.validate(state, spec)
    }
}

/// Number of active compactions, and of those that are about to be proposed.
#[derive(Debug, Default)]
struct Running {
    small: usize,
    large: usize,
}

impl Running {
    fn of(state: &CompactorStateView) -> Running {
        let mut running = Running::default();
        for job in active(state) {
            running.admits(bytes_of(state, job.spec()), usize::MAX);
        }
        running
    }

    /// Returns whether one more compaction may run, given the bytes that it reads, and counts it then.
    fn admits(&mut self, bytes: u64, large_max: usize) -> bool {
        let (running, max) = match bytes <= SMALL_BYTES_MAX {
            true => (&mut self.small, SMALL_MAX),
            false => (&mut self.large, large_max),
        };
        let is_admitted = *running < max;
        *running += usize::from(is_admitted);
        is_admitted
    }
}

/// Returns the bytes that a compaction reads.
fn bytes_of(state: &CompactorStateView, spec: &CompactionSpec) -> u64 {
    let segment = state.manifest().segments().iter().find(|s| s.prefix() == spec.segment());
    segment.map_or(0, |segment| segment_bytes(segment, spec.sources()))
}

/// Returns the bytes of some SSTs and sorted runs of a segment.
fn segment_bytes(segment: &Segment, sources: &[SourceId]) -> u64 {
    let files = segment.l0().iter().filter(|f| sources.contains(&SourceId::SstView(f.id)));
    let runs = segment.compacted().iter().filter(|r| sources.contains(&SourceId::SortedRun(r.id)));
    files.map(SsTableView::estimate_size).chain(runs.map(SortedRun::estimate_size)).sum()
}

/// Returns the active compactions.
fn active(state: &CompactorStateView) -> impl Iterator<Item = &Compaction> {
    let jobs = state.compactions().into_iter();
    jobs.flat_map(VersionedCompactions::recent_compactions).filter(|job| job.active())
}

fn is_active(state: &CompactorStateView, prefix: &Bytes) -> bool {
    active(state).any(|job| job.spec().segment() == prefix)
}

fn drop_segment(segment: &Segment) -> CompactionSpec {
    CompactionSpec::drain_segment(segment.prefix().clone(), sources(segment))
}

/// Returns all SSTs and sorted runs of a segment, the newest first.
fn sources(segment: &Segment) -> Vec<SourceId> {
    let newest = segment.l0().iter().map(|file| SourceId::SstView(file.id));
    let runs = segment.compacted().iter().map(|run| SourceId::SortedRun(run.id));
    newest.chain(runs).collect()
}

/// Returns an id that no sorted run has, or is about to get.
fn unused_run(state: &CompactorStateView, proposed: &[CompactionSpec]) -> u32 {
    let manifest = state.manifest();
    let of_segments = manifest.segments().iter().flat_map(Segment::compacted);
    let runs = manifest.compacted().iter().chain(of_segments).map(|run| run.id);
    let jobs = state.compactions().into_iter().flat_map(VersionedCompactions::recent_compactions);
    let merging = jobs.filter_map(|job| job.spec().destination());
    let proposed = proposed.iter().filter_map(CompactionSpec::destination);
    runs.chain(merging).chain(proposed).max().map_or(0, |id| id + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::StoreOptions;
    use crate::lsm::{Location, Lsm, WriteSet};
    use crate::tests::harness;

    /// More than the maximum of concurrent compactions that are not small.
    const EPOCHS: u32 = 6;
    const PATIENCE: Duration = Duration::from_secs(120);

    #[test]
    fn small_compactions_do_not_count_as_others() {
        let mut running = Running::default();
        let admitted = |running: &mut Running, bytes, large_max| {
            (0..100).filter(|_| running.admits(bytes, large_max)).count()
        };
        assert_eq!(admitted(&mut running, SMALL_BYTES_MAX + 1, LARGE_FULL_MAX), LARGE_FULL_MAX);
        assert_eq!(admitted(&mut running, SMALL_BYTES_MAX, LARGE_FULL_MAX), SMALL_MAX);
        let urgent = LARGE_MAX - LARGE_FULL_MAX;
        assert_eq!(admitted(&mut running, SMALL_BYTES_MAX + 1, LARGE_MAX), urgent);
    }

    #[test]
    fn log_epochs_do_not_keep_other_segments_from_being_merged() {
        harness::run(async {
            let location = Location::on(harness::memory());
            let options = StoreOptions {
                compaction_interval: Some(Duration::from_secs(86_400)),
                full_compaction_after: Duration::from_secs(100 * 365 * 86_400),
                ..harness::options()
            };
            let day = keys::partition(PartitionId::new(20_000));
            let files_of = |lsm: &Lsm, prefix: &[u8]| {
                let manifest = lsm.manifest();
                let segment = manifest.segments().iter().find(|s| s.prefix() == prefix);
                segment.map_or(0, |segment| segment.l0().len())
            };
            let lsm = Lsm::open(&location, &options).await.unwrap();
            for file in 0..8 {
                let mut set = WriteSet::default();
                for epoch in 1..=EPOCHS {
                    set.put(keys::log(Epoch::new(epoch), file), vec![1]);
                }
                if file < 6 {
                    set.put([&day[..], b"b"].concat(), vec![1]);
                }
                lsm.commit(set).await.unwrap();
                lsm.flush_to_files().await.unwrap();
            }
            assert_eq!(files_of(&lsm, &day), 6);
            lsm.close().await.unwrap();
            let options = StoreOptions {
                compaction_interval: harness::options().compaction_interval,
                ..options
            };
            let lsm = Lsm::open(&location, &options).await.unwrap();
            let started = Instant::now();
            while files_of(&lsm, &day) > 3 {
                assert!(started.elapsed() < PATIENCE, "{} files are left", files_of(&lsm, &day));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            lsm.close().await.unwrap();
        });
    }
}
