//! Which files are merged when: as slatedb would by itself, but for segments of partitions
//! that have been deleted, whose files go whole, without being read.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use slatedb::compactor::{
    CompactionScheduler, CompactionSchedulerSupplier, CompactionSpec, CompactorStateView,
    SizeTieredCompactionSchedulerSupplier, SourceId,
};
use slatedb::config::CompactorOptions;

use crate::keys;

/// The partition before which every segment holds nothing that is wanted.
#[derive(Debug, Clone)]
pub(crate) struct DrainBefore(Arc<AtomicI64>);

impl DrainBefore {
    /// No partition at all.
    pub(crate) fn new() -> DrainBefore {
        DrainBefore(Arc::new(AtomicI64::new(i64::MIN)))
    }

    /// Lets go of the files of earlier partitions, now or later.
    pub(crate) fn set(&self, partition: i64) {
        self.0.fetch_max(partition, Ordering::Relaxed);
    }
}

impl CompactionSchedulerSupplier for DrainBefore {
    fn compaction_scheduler(
        &self,
        options: &CompactorOptions,
    ) -> Box<dyn CompactionScheduler + Send + Sync> {
        let merging = SizeTieredCompactionSchedulerSupplier::new().compaction_scheduler(options);
        Box::new(Scheduler { before: self.clone(), merging })
    }
}

struct Scheduler {
    before: DrainBefore,
    merging: Box<dyn CompactionScheduler + Send + Sync>,
}

impl CompactionScheduler for Scheduler {
    fn propose(&self, state: &CompactorStateView) -> Vec<CompactionSpec> {
        let before = self.before.0.load(Ordering::Relaxed);
        let is_active = |prefix: &[u8]| {
            state.compactions().is_some_and(|compactions| {
                compactions
                    .recent_compactions()
                    .any(|job| job.active() && job.spec().segment() == prefix)
            })
        };
        let mut proposed = Vec::new();
        for segment in state.manifest().segments() {
            let prefix = segment.prefix();
            let is_dead = keys::parse_partition(prefix).is_some_and(|number| number < before);
            let is_drained = segment.l0().is_empty() && segment.compacted().is_empty();
            if !is_dead || is_drained || is_active(prefix) {
                continue;
            }
            let newest = segment.l0().iter().map(|file| SourceId::SstView(file.id));
            let merged = segment.compacted().iter().map(|run| SourceId::SortedRun(run.id));
            proposed.push(CompactionSpec::drain_segment(
                prefix.clone(),
                newest.chain(merged).collect(),
            ));
        }
        let is_dead = |spec: &CompactionSpec| {
            keys::parse_partition(spec.segment()).is_some_and(|number| number < before)
        };
        proposed.extend(self.merging.propose(state).into_iter().filter(|spec| !is_dead(spec)));
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
