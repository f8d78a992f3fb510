//! Which files are merged when: as slatedb would by itself, but for two kinds of segments.
//!
//! Those of deleted partitions and of log epochs that are sealed whole go with all their files,
//! which are not read for it. And the log is not merged: its keys ascend, so that its files do
//! not overlap, and it is read once, at a start, if at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use bytes::Bytes;
use slatedb::compactor::{
    CompactionScheduler, CompactionSchedulerSupplier, CompactionSpec, CompactorStateView,
    SizeTieredCompactionSchedulerSupplier, SourceId,
};
use slatedb::config::CompactorOptions;
use slatedb::manifest::Segment;

use crate::keys;

/// Files of one log epoch, from which they are merged all the same: there is a limit to how
/// many files a tree can have.
const LOG_FILES_MAX: usize = 256;

/// Which segments hold nothing that is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Dead(Arc<Bounds>);

#[derive(Debug)]
struct Bounds {
    partition: AtomicI64,
    epoch: AtomicU32,
}

impl Default for Dead {
    /// None.
    fn default() -> Self {
        Dead(Arc::new(Bounds { partition: AtomicI64::new(i64::MIN), epoch: AtomicU32::new(0) }))
    }
}

impl Dead {
    /// Adds the partitions before one.
    pub(crate) fn drop_partitions_before(&self, partition: i64) {
        self.0.partition.fetch_max(partition, Ordering::Relaxed);
    }

    /// Adds the log epochs before one.
    pub(crate) fn drop_log_before(&self, epoch: u32) {
        self.0.epoch.fetch_max(epoch, Ordering::Relaxed);
    }

    fn contains(&self, prefix: &[u8]) -> bool {
        let partition = self.0.partition.load(Ordering::Relaxed);
        let epoch = self.0.epoch.load(Ordering::Relaxed);
        keys::parse_partition(prefix).is_some_and(|number| number < partition)
            || keys::parse_log_epoch(prefix).is_some_and(|number| number < epoch)
    }
}

impl CompactionSchedulerSupplier for Dead {
    fn compaction_scheduler(
        &self,
        options: &CompactorOptions,
    ) -> Box<dyn CompactionScheduler + Send + Sync> {
        let merging = SizeTieredCompactionSchedulerSupplier::new().compaction_scheduler(options);
        Box::new(Scheduler { dead: self.clone(), merging })
    }
}

struct Scheduler {
    dead: Dead,
    merging: Box<dyn CompactionScheduler + Send + Sync>,
}

impl CompactionScheduler for Scheduler {
    fn propose(&self, state: &CompactorStateView) -> Vec<CompactionSpec> {
        let segments = state.manifest().segments();
        let mut proposed: Vec<CompactionSpec> = segments
            .iter()
            .filter(|segment| self.dead.contains(segment.prefix()))
            .filter(|segment| !segment.l0().is_empty() || !segment.compacted().is_empty())
            .filter(|segment| !is_active(state, segment.prefix()))
            .map(drain)
            .collect();
        let is_long_log = |prefix: &Bytes| {
            segments.iter().any(|s| s.prefix() == prefix && s.l0().len() > LOG_FILES_MAX)
        };
        let is_wanted = |spec: &CompactionSpec| {
            let prefix = spec.segment();
            let is_log = keys::parse_log_epoch(prefix).is_some();
            !self.dead.contains(prefix) && (!is_log || is_long_log(prefix))
        };
        proposed.extend(self.merging.propose(state).into_iter().filter(is_wanted));
        proposed
    }

    fn validate(
        &self,
        state: &CompactorStateView,
        spec: &CompactionSpec,
    ) -> Result<(), slatedb::Error> {
        self.merging.validate(state, spec)
    }
}

fn is_active(state: &CompactorStateView, prefix: &Bytes) -> bool {
    state.compactions().is_some_and(|compactions| {
        compactions.recent_compactions().any(|job| job.active() && job.spec().segment() == prefix)
    })
}

fn drain(segment: &Segment) -> CompactionSpec {
    let newest = segment.l0().iter().map(|file| SourceId::SstView(file.id));
    let merged = segment.compacted().iter().map(|run| SourceId::SortedRun(run.id));
    CompactionSpec::drain_segment(segment.prefix().clone(), newest.chain(merged).collect())
}
