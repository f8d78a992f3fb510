//! Loaded series, kept for the next query with the same selection.
//!
//! A set is valid while nothing was written to its times or deleted from them since it was loaded,
//! which [`Changes`] knows. Sealing and compaction change no samples, so they leave it valid.
//!
//! Only sets without encoded samples are kept: the first query decodes them to columns, and the
//! second loads the columns. The column cache counts the bytes of a set and evicts it
//! ([`ColumnCache::hold`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use model::{DerivedValues, Labels, Selection, TimeRange};

use super::newest::NewestSeries;
use super::set::LoadedSeries;
use crate::changes::Changes;
use crate::lock::lock;
use crate::samples::columns::{ColumnCache, Evict, Eviction, HeldBytes};
use crate::sizes::Sizes;

/// Bytes that a set counts in addition to its series.
const SET_BYTES: usize = 512;
/// Inverse of the share of the column cache that all sets together may take, without their columns.
const CACHE_SHARE: usize = 2;
/// Maximum bytes of derived values per series: enough for a few groupings into few groups.
const DERIVED_BYTES: usize = 32;

/// Sets of earlier queries.
#[derive(Debug)]
pub(crate) struct KeptSets {
    /// Maximum number of sets; 0 keeps none.
    sets_max: usize,
    /// Minimum number of parts of a set without summaries: fewer are soon loaded.
    parts_min: usize,
    /// The least recently used first.
    sets: Mutex<VecDeque<Arc<KeptSet>>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Series of a selection.
#[derive(Debug, Clone)]
pub(crate) enum SharedSeries {
    Loaded(Arc<LoadedSeries>),
    Newest(Arc<NewestSeries>),
}

/// State of a set once it is kept.
pub(crate) type HeldOnce = OnceLock<HeldSet>;

/// Bytes that a kept set counts in the column cache, and the values that queries derived from its
/// labels.
#[derive(Debug)]
pub(crate) struct HeldSet {
    _bytes: HeldBytes,
    pub(crate) derived: DerivedValues,
}

#[derive(Debug)]
struct KeptSet {
    /// Without windows unless samples may be missing.
    selection: Selection,
    /// Number of the last write before the series were loaded.
    version: u64,
    /// `None` after an eviction.
    series: Mutex<Option<SharedSeries>>,
    bytes: usize,
    is_read: AtomicBool,
}

impl Evict for KeptSet {
    fn evict(&self) -> Eviction {
        if self.is_read.swap(false, Ordering::Relaxed) {
            return Eviction::WasRead;
        }
        let series = lock(&self.series).take();
        // Unlocked, as a set may be large.
        drop(series);
        Eviction::Done
    }
}

impl KeptSet {
    fn is_of(&self, selection: &Selection, times: TimeRange) -> bool {
        self.selection.times == times
            && self.selection.only_newest == selection.only_newest
            && (self.selection.windows.is_none() || self.selection.windows == selection.windows)
            && self.selection.matchers == selection.matchers
    }

    fn is_evicted(&self) -> bool {
        lock(&self.series).is_none()
    }

    fn is_valid(&self, changes: &Changes) -> bool {
        let TimeRange { start_ms, end_ms } = self.selection.times;
        changes.earliest_since(self.version) > end_ms
            && changes.expired_since(self.version) <= start_ms
    }
}

impl SharedSeries {
    /// Returns whether samples may be missing that the selection's windows do not need.
    fn is_partial(&self) -> bool {
        matches!(self, SharedSeries::Loaded(loaded) if loaded.is_partial)
    }

    /// Returns whether the series have at least `count` parts, of which each takes a lookup. Each
    /// series has one.
    fn has_parts(&self, count: usize) -> bool {
        match self {
            SharedSeries::Loaded(loaded) => {
                let series = &loaded.series;
                series.len() >= count
                    || series.iter().map(|(_, parts)| parts.part_count()).sum::<usize>() >= count
            }
            SharedSeries::Newest(newest) => newest.series.len() >= count,
        }
    }

    /// Returns the size in memory without columns; `None` if samples are encoded.
    fn bytes(&self) -> Option<usize> {
        let labels_bytes = |labels: &Labels| labels.as_bytes().len();
        Some(match self {
            SharedSeries::Loaded(loaded) => {
                let mut bytes = size_of_val(&loaded.series[..]);
                for (labels, parts) in &loaded.series {
                    bytes += labels_bytes(labels) + parts.decoded_bytes()?;
                }
                bytes
            }
            SharedSeries::Newest(newest) => {
                let labels = newest.series.iter().map(|(labels, _)| labels_bytes(labels));
                size_of_val(&newest.series[..]) + labels.sum::<usize>()
            }
        })
    }

    fn series_count(&self) -> usize {
        match self {
            SharedSeries::Loaded(loaded) => loaded.series.len(),
            SharedSeries::Newest(newest) => newest.series.len(),
        }
    }

    fn held(&self) -> &HeldOnce {
        match self {
            SharedSeries::Loaded(loaded) => &loaded.held,
            SharedSeries::Newest(newest) => &newest.held,
        }
    }
}

impl KeptSets {
    /// Creates an empty cache.
    pub(crate) fn new(sizes: &Sizes) -> KeptSets {
        KeptSets {
            sets_max: sizes.kept_sets_max,
            parts_min: sizes.kept_parts_min,
            sets: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Returns the series that an earlier query loaded for the visible `times` of the same
    /// selection, unless they have changed.
    pub(crate) fn find(
        &self,
        selection: &Selection,
        times: TimeRange,
        changes: &Changes,
    ) -> Option<SharedSeries> {
        let stale = {
            let mut sets = lock(&self.sets);
            let at = sets.iter().position(|set| set.is_of(selection, times))?;
            let set = sets.remove(at)?;
            if let Some(series) = lock(&set.series).clone().filter(|_| set.is_valid(changes)) {
                set.is_read.store(true, Ordering::Relaxed);
                sets.push_back(Arc::clone(&set));
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Some(series);
            }
            set
        };
        // Outside the lock, as a set may be large.
        drop(stale);
        None
    }

    /// Keeps series that were loaded after the write of number `version`, unless they are few. The
    /// times of the selection are visible ones.
    pub(crate) fn keep(
        &self,
        mut selection: Selection,
        version: u64,
        series: &SharedSeries,
        columns: &ColumnCache,
    ) {
        // Summaries are merged from many to few parts. A single window is rarely asked for again.
        let has_steps = selection.windows.is_some_and(|wanted| wanted.windows.count > 1);
        let is_worthwhile = series.is_partial() && has_steps || series.has_parts(self.parts_min);
        if self.sets_max == 0 || !is_worthwhile {
            return;
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let derived_bytes = DERIVED_BYTES * series.series_count();
        let bytes = series.bytes().map(|bytes| SET_BYTES + bytes + derived_bytes);
        let bytes_max = columns.bytes_max() / CACHE_SHARE;
        let Some(bytes) = bytes.filter(|bytes| *bytes <= bytes_max) else { return };
        let held =
            HeldSet { _bytes: columns.hold(bytes), derived: DerivedValues::new(derived_bytes) };
        if series.held().set(held).is_err() {
            return;
        }
        selection.windows = selection.windows.filter(|_| series.is_partial());
        let (series, is_read) = (Mutex::new(Some(series.clone())), AtomicBool::new(false));
        let set = Arc::new(KeptSet { selection, version, series, bytes, is_read });
        let evictable: Weak<KeptSet> = Arc::downgrade(&set);
        let mut removed;
        {
            let mut sets = lock(&self.sets);
            let left;
            (removed, left) = std::mem::take(&mut *sets)
                .into_iter()
                .partition::<VecDeque<_>, _>(|set| set.is_evicted());
            *sets = left;
            // Another query may have kept the same selection in the meantime.
            if let Some(at) =
                sets.iter().position(|other| other.is_of(&set.selection, set.selection.times))
            {
                removed.extend(sets.remove(at));
            }
            sets.push_back(set);
            // The cache alone may exceed its limit: an insertion checks few entries of its queue, and
            // a set may have megabytes.
            let mut held_bytes: usize = sets.iter().map(|set| set.bytes).sum();
            while sets.len() > self.sets_max || held_bytes > bytes_max {
                let Some(set) = sets.pop_front() else { break };
                held_bytes -= set.bytes;
                removed.push_back(set);
            }
        }
        drop(removed);
        columns.admit_held(evictable);
    }

    /// Returns the numbers of hits and misses.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}
