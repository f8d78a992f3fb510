//! Which files are merged when: as slatedb would by itself, but for three kinds of segments.
//!
//! Those to which nothing has been added for a while, as to a day that has passed, are merged into
//! one run: a query reads each run by itself, its index first. Those of deleted partitions and of log
//! epochs that are sealed whole go with all their files, which are not read for it. And the log is not
//! merged: its keys ascend, so that its files do not overlap, and it is read once, at a start, if at
//! all. Partitions of which much has been deleted are merged whole, so that their files give the space
//! back.
//!
//! What is not merged must not count against what may be merged at once: slatedb would merge segments
//! of many files first, which log epochs are, and a memtable is not written out while another segment
//! has too many files that overlap, so that all writes would wait for a merge that never comes.

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
use slatedb::manifest::{Segment, SortedRun};

use crate::keys;
use crate::lsm::clock::{self, MonotonicClock};

/// Files of one log epoch, from which they are merged all the same: there is a limit to how
/// many files a tree can have.
const LOG_FILES_MAX: usize = 256;
/// Merges under way from which no segment is merged whole: there is time for that.
const FULL_COMPACTIONS_MAX: usize = 2;

/// Which segments hold nothing that is wanted, or much that is not.
#[derive(Debug, Clone)]
pub(crate) struct CompactionRequests(Arc<RequestState>);

#[derive(Debug)]
struct RequestState {
    partition: AtomicI64,
    epoch: AtomicU32,
    /// Partitions that are to be merged whole.
    full_compactions: Mutex<BTreeMap<i64, FullCompaction>>,
}

/// A partition that is to be merged whole.
#[derive(Debug)]
struct FullCompaction {
    /// The first manifest that has everything that has been deleted.
    manifest_id: u64,
    /// What is being merged, once that has begun.
    sources: Vec<SourceId>,
}

impl Default for CompactionRequests {
    /// None.
    fn default() -> Self {
        CompactionRequests(Arc::new(RequestState {
            partition: AtomicI64::new(i64::MIN),
            epoch: AtomicU32::new(0),
            full_compactions: Mutex::default(),
        }))
    }
}

impl CompactionRequests {
    /// Adds the partitions before one.
    pub(crate) fn drop_partitions_before(&self, partition: i64) {
        self.0.partition.fetch_max(partition, Ordering::Relaxed);
    }

    /// Takes the partitions from one on away again: they may be written to.
    pub(crate) fn keep_partitions_from(&self, partition: i64) {
        self.0.partition.fetch_min(partition, Ordering::Relaxed);
    }

    /// Adds the log epochs before one.
    pub(crate) fn drop_log_before(&self, epoch: u32) {
        self.0.epoch.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Merges a partition whole, as it is in a manifest or a later one.
    pub(crate) fn compact_partition(&self, partition: i64, manifest_id: u64) {
        let compaction = FullCompaction { manifest_id, sources: Vec::new() };
        self.pending().insert(partition, compaction);
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<i64, FullCompaction>> {
        self.0.full_compactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a segment holds nothing that is wanted.
    pub(crate) fn is_dropped(&self, prefix: &[u8]) -> bool {
        let partition = self.0.partition.load(Ordering::Relaxed);
        let epoch = self.0.epoch.load(Ordering::Relaxed);
        keys::parse_partition(prefix).is_some_and(|number| number < partition)
            || keys::parse_log_epoch(prefix).is_some_and(|number| number < epoch)
    }
}

/// What decides which files are merged.
pub(in crate::lsm) struct SegmentSchedulerSupplier {
    requests: CompactionRequests,
    full_compaction_after: Duration,
    clock: Arc<MonotonicClock>,
}

impl SegmentSchedulerSupplier {
    /// A segment is settled once nothing has been added to it for so long.
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
        // It proposes all there is, of which as many are taken as may be merged at once.
        let all = CompactorOptions { max_concurrent_compactions: usize::MAX, ..options.clone() };
        Box::new(SegmentScheduler {
            requests: self.requests.clone(),
            full_compaction_after: self.full_compaction_after,
            clock: Arc::clone(&self.clock),
            compactions_max: options.max_concurrent_compactions,
            size_tiered: SizeTieredCompactionSchedulerSupplier::new().compaction_scheduler(&all),
        })
    }
}

struct SegmentScheduler {
    requests: CompactionRequests,
    full_compaction_after: Duration,
    clock: Arc<MonotonicClock>,
    /// How many merges may be under way at once, of those that slatedb proposes.
    compactions_max: usize,
    size_tiered: Box<dyn CompactionScheduler + Send + Sync>,
}

impl SegmentScheduler {
    /// Merges of all files of settled segments. `proposed` are those that have been proposed.
    fn full_compactions(
        &self,
        state: &CompactorStateView,
        proposed: &[CompactionSpec],
    ) -> Vec<CompactionSpec> {
        let segments = state.manifest().segments();
        let free = FULL_COMPACTIONS_MAX.saturating_sub(active(state).count());
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
            .take(free)
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
        // The last list of an earlier process may arrive after the opening has looked at it. Its
        // compactions go on here, with stamps that must not be lower.
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
        let free = self.compactions_max.saturating_sub(active(state).count());
        proposed.extend(self.size_tiered.propose(state).into_iter().filter(is_wanted).take(free));
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
            // Runs keep their numbers, so it does not show that they have been merged.
            !is_only_runs
        });
        let full = self.full_compactions(state, &proposed);
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

/// Merges under way.
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

/// All that a segment consists of, the newest first.
fn sources(segment: &Segment) -> Vec<SourceId> {
    let newest = segment.l0().iter().map(|file| SourceId::SstView(file.id));
    let merged = segment.compacted().iter().map(|run| SourceId::SortedRun(run.id));
    newest.chain(merged).collect()
}

/// A number that no run of any segment has or is about to get.
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

    /// More than merges there may be at once.
    const EPOCHS: u32 = 6;
    const PATIENCE: Duration = Duration::from_secs(120);

    #[test]
    fn log_epochs_do_not_keep_other_segments_from_being_merged() {
        harness::run(async {
            let location = Location::on(harness::memory());
            let options = StoreOptions {
                compaction_interval: Some(Duration::from_secs(86_400)),
                full_compaction_after: Duration::from_secs(100 * 365 * 86_400),
                ..harness::options()
            };
            let day = keys::partition(20_000);
            let files_of = |lsm: &Lsm, prefix: &[u8]| {
                let manifest = lsm.manifest();
                let segment = manifest.segments().iter().find(|s| s.prefix() == prefix);
                segment.map_or(0, |segment| segment.l0().len())
            };
            let lsm = Lsm::open(&location, &options).await.unwrap();
            for file in 0..8 {
                let mut set = WriteSet::default();
                for epoch in 1..=EPOCHS {
                    set.put(keys::log(epoch, file), vec![1]);
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
