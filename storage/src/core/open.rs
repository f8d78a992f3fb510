//! Rebuilding the state in memory from an open LSM.

use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, RwLock};

use tokio::sync::Notify;

use super::Core;
use super::active_lsm::ActiveLsm;
use super::counters::CoreCounters;
use super::seal_state::{SealState, deleting_before};
use crate::delete::Tombstones;
use crate::error::StoreError;
use crate::exemplar::ExemplarRing;
use crate::head::{Head, HeadLimits};
use crate::index::cache::IndexCache;
use crate::index::lists::KeptLists;
use crate::loaded::kept::KeptSets;
use crate::log::counters::LogCounters;
use crate::log::queue::Queue;
use crate::log::replay::{Replay, replay};
use crate::lsm::{Lsm, ReadTracker};
use crate::meta::Meta;
use crate::metadata::Metadata;
use crate::options::StoreOptions;
use crate::retention::{Keeping, ReferenceTime, Rule};
use crate::samples::columns::ColumnCache;

/// Divisor of the size of the index cache: the maximum size of all lists of texts, and of all lists
/// of label sets.
const LISTS_SHARE: usize = 16;

impl Core {
    /// Rebuilds the state in memory from an open LSM.
    pub(crate) async fn open(
        lsm: Lsm,
        mut meta: Meta,
        options: StoreOptions,
    ) -> Result<(Arc<Core>, Replay, Meta), StoreError> {
        let exemplar_ring = ExemplarRing::open(&lsm, options.exemplars_max).await?;
        let metadata = Metadata::open(&lsm).await?;
        let head =
            Head::new(HeadLimits::new(&options), options.tenant_label.clone(), &options.sizes);
        let head = Arc::new(head);
        let tombstones = Tombstones::new(std::mem::take(&mut meta.tombstones));
        let (log, replay) =
            replay(&lsm, &head, &meta, &tombstones, options.sizes.replayed_bytes).await?;
        tracing::info!(
            epoch = log.epoch.number(),
            series = head.series_count(),
            log_bytes = log.bytes(),
            "replayed the log"
        );
        let deleting = deleting_before(&meta, &log);
        let sealing = tokio::sync::Mutex::new(SealState::new(&meta, deleting));
        meta.kept_from = deleting;
        if let Some(first_kept) = deleting {
            head.changes.note_deleted_before(first_kept.start_ms());
        }
        let stored = std::mem::take(&mut meta.rules);
        let lists_max = options.index_cache_bytes_max / LISTS_SHARE;
        let index_max = options.index_cache_bytes_max - 2 * lists_max;
        let index = IndexCache::new(index_max, options.sizes);
        for (partition, deleted) in &meta.deleted_ids {
            index.set_deleted(*partition, deleted.clone());
        }
        let queue = Queue::new(log.failure().clone());
        if lsm.is_read_only() {
            queue.refuse(&StoreError::ReadOnly);
        }
        let log_counters = LogCounters::default();
        log_counters.note_log(log.bytes(), log.newest_ms);
        let core = Arc::new(Core {
            lsm: ActiveLsm::new(lsm),
            head,
            exemplar_ring,
            metadata,
            columns: Arc::new(ColumnCache::new(options.columns_bytes_max)),
            kept_sets: KeptSets::new(&options.sizes),
            kept_texts: KeptLists::new(lists_max),
            kept_series: KeptLists::new(lists_max),
            log: tokio::sync::Mutex::new(log),
            selections: ReadTracker::default(),
            tombstones,
            log_counters,
            counters: CoreCounters::default(),
            sealing,
            cleaning: tokio::sync::Mutex::new(()),
            partitions: RwLock::new(meta.partitions.clone()),
            index,
            is_closing: AtomicBool::new(false),
            clean_from_ms: AtomicI64::new(i64::MIN),
            summarize_from_ms: AtomicI64::new(i64::MIN),
            summarized_before_ms: AtomicI64::new(meta.summarized_before_ms()),
            queue,
            idle: Notify::new(),
            maintenance_wanted: Notify::new(),
            has_retention: Notify::new(),
            keeping: RwLock::new(Arc::new(Keeping::new(options.retention(), &stored))),
            reference: ReferenceTime::new(options.retention_confirmation),
            stored_rules: Mutex::new(stored.encode(Rule::expired_before_ms)),
            options,
        });
        Ok((core, replay, meta))
    }
}
