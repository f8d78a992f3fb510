//! Series that are open for appends, in memory and in shards.
//!
//! Samples are durable in the log before they are added here. One task at a time changes the
//! head, in the order of the log ([`crate::log`]); any number of tasks read it.

mod active;
pub(crate) mod cardinality;
pub(crate) mod created;
mod drop;
mod forget;
mod late;
mod order;
mod pack;
pub(crate) mod series;
mod slots;
mod tenants;
#[cfg(test)]
mod tests;
mod window;

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use model::{BudgetError, Checkpoint, Labels, Matcher, RejectReason, prefetch};
use smol_str::SmolStr;

use crate::changes::Changes;
use crate::epoch::Epoch;
use crate::index::{KnownLabels, LabelIndex, is_restricted};
use crate::outcome::{Overflow, RefusedSeries};
use crate::samples::scratch::Scratch;
use crate::sizes::Sizes;
use crate::window::Window;
use active::Active;
pub(crate) use active::HeadLimits;
use created::CreatedSeries;
use order::HeadOrder;
use pack::pack;
use series::HeadSeries;
use slots::SlotPlace;
pub(crate) use slots::{Fetch, SlotShare, SlotVisit};
pub use tenants::TenantSeriesLimits;

/// Shards of the series and of the table of labels; a power of two.
const SHARD_COUNT: usize = 64;

/// Work of visiting the series of a label value, in bytes touched.
const LOOK_WORK: usize = 64;

/// Matching series are sorted by comparison if they are at most one in `ORDER_SHARE` series.
const ORDER_SHARE: usize = 8;

/// The open series.
pub(crate) struct Head {
    /// Series by slot, at the entry of [`SlotPlace`].
    shards: Vec<Mutex<Vec<Option<Box<HeadSeries>>>>>,
    /// Slots by labels, sharded by hash.
    slots: Vec<RwLock<HashTable<SlotEntry>>>,
    hasher: RandomState,
    index: RwLock<LabelIndex>,
    vacant: Mutex<Vacant>,
    order: HeadOrder,
    /// Maximum number of matching series that are always sorted by comparison.
    compared_series_max: usize,
    /// The first and the last window with open samples.
    open_windows: Mutex<Option<(Window, Window)>>,
    /// Number of removals of series; a slot found before a removal may have another series.
    generation: AtomicU64,
    /// Counts of active series.
    active: Active,
    /// Series created by commits.
    pub(crate) created: CreatedSeries,
    /// Approximate bytes in memory, without the index.
    series_bytes: AtomicUsize,
    /// Approximate bytes of the index in memory.
    index_bytes: AtomicUsize,
    limits: HeadLimits,
    /// Times that have changed, by version.
    pub(crate) changes: Changes,
}

struct SlotEntry {
    labels: Labels,
    slot: u32,
}

/// Free slots.
#[derive(Default)]
struct Vacant {
    freed: Vec<u32>,
    next: u32,
    /// Series created so far.
    created: u64,
}

/// Series that pass the matchers of a selection.
pub(crate) struct Matching {
    generation: u64,
    slots: Vec<u32>,
    is_ordered: bool,
}

impl Matching {
    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

impl KnownLabels for Head {
    /// Returns the labels of a series in the head, shared with it.
    fn labels_of(&self, labels: &[u8]) -> Option<Labels> {
        self.find_entry(labels, |entry| entry.labels.clone())
    }
}

impl Head {
    /// Creates a head without series.
    pub(crate) fn new(limits: HeadLimits, tenant_label: Option<String>, sizes: &Sizes) -> Head {
        Head {
            shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(),
            slots: (0..SHARD_COUNT).map(|_| RwLock::default()).collect(),
            hasher: RandomState::default(),
            index: RwLock::default(),
            vacant: Mutex::default(),
            order: HeadOrder::new(sizes.halved_series_min),
            compared_series_max: sizes.compared_series_max,
            open_windows: Mutex::default(),
            generation: AtomicU64::new(0),
            active: Active::new(tenant_label),
            created: CreatedSeries::default(),
            series_bytes: AtomicUsize::new(0),
            index_bytes: AtomicUsize::new(0),
            limits,
            changes: Changes::default(),
        }
    }

    /// Returns the slot of the series with the packed labels.
    #[inline]
    pub(crate) fn find(&self, labels: &[u8]) -> Option<u32> {
        self.find_entry(labels, |entry| entry.slot)
    }

    #[inline]
    fn find_entry<T>(&self, labels: &[u8], take: impl FnOnce(&SlotEntry) -> T) -> Option<T> {
        let hash = self.hasher.hash_one(labels);
        let table = self.table(hash).read().unwrap_or_else(PoisonError::into_inner);
        table.find(hash, |entry| entry.labels.as_bytes() == labels).map(take)
    }

    /// Adds a new series and returns its slot. Selections find it after [`Head::file`].
    pub(crate) fn create(&self, series: HeadSeries) -> u32 {
        let labels = series.labels.clone();
        self.note_grown(series.bytes());
        let slot = {
            let mut vacant = self.vacant.lock().unwrap_or_else(PoisonError::into_inner);
            vacant.created += 1;
            vacant.freed.pop().unwrap_or_else(|| {
                vacant.next += 1;
                vacant.next - 1
            })
        };
        {
            let mut shard = self.shard(slot);
            let SlotPlace { entry, .. } = SlotPlace::of(slot);
            if shard.0.len() <= entry {
                shard.0.resize_with(entry + 1, || None);
            }
            shard.0[entry] = Some(Box::new(series));
        }
        let hash = self.hasher.hash_one(labels.as_bytes());
        let mut table = self.table(hash).write().unwrap_or_else(PoisonError::into_inner);
        table.insert_unique(hash, SlotEntry { labels, slot }, |entry| {
            self.hasher.hash_one(entry.labels.as_bytes())
        });
        slot
    }

    /// Adds new series to the index, so that selections find them.
    pub(crate) fn file(&self, series: impl IntoIterator<Item = (u32, Labels)>) {
        let series: Vec<(u32, Labels)> = series.into_iter().collect();
        self.order.note(&series);
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        for (slot, labels) in series {
            index.insert(slot, &labels);
        }
        self.index_bytes.store(index.bytes(), Ordering::Relaxed);
    }

    /// Removes empty series whose newest sample has been deleted. Otherwise, their label names and
    /// values would be listed until they are idle. The caller blocks commits.
    pub(crate) fn forget_deleted(&self) {
        self.forget(|series| series.newest_ms == i64::MIN);
    }

    fn forget_one(&self, slot: u32, labels: &Labels) {
        self.index.write().unwrap_or_else(PoisonError::into_inner).remove(slot, labels);
        let hash = self.hasher.hash_one(labels.as_bytes());
        let mut table = self.table(hash).write().unwrap_or_else(PoisonError::into_inner);
        if let Ok(entry) = table.find_entry(hash, |entry| entry.slot == slot) {
            entry.remove();
        }
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner).freed.push(slot);
    }

    /// Returns the series that pass the matchers. Blocks the filing of new series; visits do not.
    ///
    /// Errors: the query exceeds its budget.
    pub(crate) fn matching(
        &self,
        matchers: &[Matcher],
        watch: &mut Checkpoint,
    ) -> Result<Matching, BudgetError> {
        let generation = self.generation();
        let slots = self.index_read().select(matchers, watch)?;
        Ok(Matching { generation, slots: slots.into_iter().collect(), is_ordered: false })
    }

    /// Sorts matching series by labels, unless there are few of them.
    pub(crate) fn ordered(&self, matching: Matching) -> Matching {
        let Matching { generation, mut slots, mut is_ordered } = matching;
        if slots.len() > self.compared_series_max && slots.len() * ORDER_SHARE > self.series_count()
        {
            slots = sort_like(&self.ordered_slots(generation), &slots);
            is_ordered = true;
        }
        Matching { generation, slots, is_ordered }
    }

    /// Returns the slots of all series that were filed, in the order of their labels.
    fn ordered_slots(&self, generation: u64) -> Arc<[u32]> {
        self.order.slots(generation, || {
            let mut all = Vec::with_capacity(self.series_count());
            self.for_each(|slot, series| all.push((series.labels.clone(), slot)));
            all
        })
    }

    /// Sorts the series by labels, so that no selection has to, if there are many or if a selection has
    /// sorted them before.
    pub(crate) fn keep_order(&self) {
        if self.order.is_wanted(self.series_count()) {
            self.ordered_slots(self.generation());
        }
    }

    /// Returns whether visits are in the order of the labels.
    pub(crate) fn is_ordered(&self, matching: &Matching) -> bool {
        matching.is_ordered && self.generation() == matching.generation
    }

    /// Prefetches the series at `positions`, their labels, windows and tails.
    ///
    /// Each pass follows the pointers that the previous pass has prefetched, for all series at
    /// once. A visit alone would wait for one cache line after another.
    pub(crate) fn fetch(&self, matching: &Matching, positions: Range<usize>) {
        self.each(matching, positions.clone(), prefetch);
        self.each(matching, positions.clone(), HeadSeries::fetch_windows);
        self.each(matching, positions, HeadSeries::fetch_tails);
    }

    /// Prefetches the columns of the series at `positions`, after [`Head::fetch`].
    pub(crate) fn fetch_columns(&self, matching: &Matching, positions: Range<usize>) {
        self.each(matching, positions, HeadSeries::fetch_columns);
    }

    fn each(
        &self,
        matching: &Matching,
        positions: Range<usize>,
        mut call: impl FnMut(&HeadSeries),
    ) {
        for slot in &matching.slots[positions] {
            if let Some(series) = self.shard(*slot).series(*slot) {
                call(series);
            }
        }
    }

    /// Calls `visit` with the matching series at `positions`.
    pub(crate) fn visit(
        &self,
        matching: &Matching,
        positions: Range<usize>,
        matchers: &[Matcher],
        mut visit: impl FnMut(&HeadSeries),
    ) {
        for slot in &matching.slots[positions] {
            let mut shard = self.shard(*slot);
            let Some(series) = shard.series(*slot) else { continue };
            let is_same = self.generation() == matching.generation
                || matchers.iter().all(|m| m.matches(series.labels.get(m.name())));
            if is_same {
                visit(series);
            }
        }
    }

    /// Returns at most `limit` label names of matching series, sorted. Empty series count, too.
    ///
    /// Errors: the query exceeds its budget.
    pub(crate) fn label_names(
        &self,
        matchers: &[Matcher],
        limit: usize,
        watch: &mut Checkpoint,
    ) -> Result<Vec<SmolStr>, BudgetError> {
        let index = self.index_read();
        if !is_restricted(matchers) {
            return Ok(index.names().take(limit).map(SmolStr::new).collect());
        }
        let ids = index.select(matchers, watch)?;
        let mut names = Vec::new();
        if ids.is_empty() {
            return Ok(names);
        }
        for name in index.names() {
            for (_, of_value) in index.values(name) {
                watch.work(LOOK_WORK)?;
                if of_value.intersects(&ids) {
                    names.push(SmolStr::new(name));
                    break;
                }
            }
            if names.len() == limit {
                break;
            }
        }
        Ok(names)
    }

    /// Returns the values of a label among matching series, as [`Head::label_names`].
    ///
    /// Errors: the query exceeds its budget.
    pub(crate) fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        limit: usize,
        watch: &mut Checkpoint,
    ) -> Result<Vec<SmolStr>, BudgetError> {
        let index = self.index_read();
        let mut values = Vec::new();
        if !is_restricted(matchers) {
            for (value, _) in index.values(name).take(limit) {
                watch.work(LOOK_WORK)?;
                values.push(value.clone());
            }
            return Ok(values);
        }
        let ids = index.select(matchers, watch)?;
        if ids.len() < index.value_count(name) as u64 {
            for slot in ids {
                watch.work(LOOK_WORK)?;
                let mut shard = self.shard(slot);
                let value = shard.series(slot).map_or("", |series| series.labels.get(name));
                if !value.is_empty() {
                    values.push(SmolStr::new(value));
                }
            }
            values.sort_unstable();
            values.dedup();
            values.truncate(limit);
            return Ok(values);
        }
        for (value, of_value) in index.values(name) {
            watch.work(LOOK_WORK)?;
            if of_value.intersects(&ids) {
                values.push(value.clone());
                if values.len() == limit {
                    break;
                }
            }
        }
        Ok(values)
    }

    /// Extends the range of open windows by a first and a last window.
    pub(crate) fn note_open(&self, windows: Option<(Window, Window)>) {
        let Some((first, last)) = windows else { return };
        let mut open = self.open_windows.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, to) = open.unwrap_or((first, last));
        *open = Some((from.min(first), to.max(last)));
    }

    /// Sets the range of open windows. The caller blocks commits.
    pub(crate) fn set_open(&self, windows: Option<(Window, Window)>) {
        *self.open_windows.lock().unwrap_or_else(PoisonError::into_inner) = windows;
    }

    /// Returns whether a time range overlaps no open window.
    pub(crate) fn is_beside(&self, start_ms: i64, end_ms: i64) -> bool {
        let open = *self.open_windows.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_none_or(|(first, last)| Window::of(end_ms) < first || Window::of(start_ms) > last)
    }

    /// Calls `visit` with every series, and locks one shard at a time.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(u32, &mut HeadSeries)) {
        for shard_index in 0..SHARD_COUNT {
            let mut shard = self.lock_shard(shard_index);
            for (entry, slot) in shard.0.iter_mut().enumerate() {
                if let Some(series) = slot {
                    visit(SlotPlace { shard: shard_index, entry }.slot(), series);
                }
            }
        }
    }

    /// Returns the number of slots, including vacant ones.
    pub(crate) fn slot_count(&self) -> usize {
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner).next as usize
    }

    /// Encodes raw samples of ended log epochs, up to `epoch_max`, in a range of slots, and packs
    /// the windows that are due. Readers and writers wait for no packing.
    pub(crate) fn condense(&self, slots: Range<usize>, due: &BTreeSet<Window>, epoch_max: Epoch) {
        let (mut scratch, mut all_loose) = (Scratch::new(), Vec::new());
        for slot in slots {
            let slot = slot as u32;
            if let Some(series) = self.shard(slot).series(slot) {
                self.note_shrunk(series.end(due, epoch_max, &mut all_loose, &mut scratch));
            }
            for loose in all_loose.drain(..) {
                let Some(packed) = pack(&loose.frames, &mut scratch) else { continue };
                if let Some(series) = self.shard(slot).series(slot) {
                    self.note_shrunk(series.condense(&loose, packed));
                }
            }
        }
    }

    /// Returns the generation, which changes when slots may have been reused.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the approximate bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.series_bytes.load(Ordering::Relaxed) + self.index_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the index.
    #[cfg(test)]
    pub(crate) fn index_bytes(&self) -> usize {
        self.index_bytes.load(Ordering::Relaxed)
    }

    /// Returns the limits.
    pub(crate) fn limits(&self) -> &HeadLimits {
        &self.limits
    }

    /// Returns the number of active series.
    pub(crate) fn active_count(&self) -> usize {
        self.active.count()
    }

    /// Returns the number of active series of each tenant.
    pub(crate) fn tenant_series(&self) -> Vec<(String, usize)> {
        self.active.tenant_series()
    }

    /// Sets the limits of active series by tenant.
    pub(crate) fn set_tenant_limits(&self, limits: TenantSeriesLimits) {
        self.active.set_tenant_limits(limits);
    }

    /// Returns the refused samples of series beyond a limit, by metric and limit.
    pub(crate) fn refused_series(&self) -> Vec<RefusedSeries> {
        self.active.refused()
    }

    /// Checks whether an inactive series may become active.
    pub(crate) fn admit(&self, labels: &Labels) -> Result<(), RejectReason> {
        self.active.admit(labels, &self.limits, self.bytes())
    }

    /// Counts samples of a series that was not admitted. Returns the exceeded limit.
    pub(crate) fn refuse(&self, labels: &Labels, reason: RejectReason, samples: u64) -> Overflow {
        self.active.refuse(labels, reason, &self.limits, self.bytes(), samples)
    }

    /// Counts a series as active, unless it already is.
    #[inline]
    pub(crate) fn activate(&self, series: &mut HeadSeries) {
        if !std::mem::replace(&mut series.is_active, true) {
            self.active.enter(&series.labels);
        }
    }

    /// Counts a series as inactive if it has no open samples.
    pub(crate) fn deactivate_if_empty(&self, series: &mut HeadSeries) {
        if series.is_empty() && std::mem::take(&mut series.is_active) {
            self.active.leave(&series.labels);
        }
    }

    /// Notes that series have grown.
    pub(crate) fn note_grown(&self, bytes: usize) {
        self.series_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that series have shrunk.
    pub(crate) fn note_shrunk(&self, bytes: usize) {
        let shrunk = |held: usize| Some(held.saturating_sub(bytes));
        // `shrunk` always returns a value.
        let _ = self.series_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shrunk);
    }

    /// Returns the number of series.
    pub(crate) fn series_count(&self) -> usize {
        let vacant = self.vacant.lock().unwrap_or_else(PoisonError::into_inner);
        vacant.next as usize - vacant.freed.len()
    }

    /// Returns the number of series that were created, also by a replay of the log.
    pub(crate) fn created_count(&self) -> u64 {
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner).created
    }

    /// Returns the postings; writers wait meanwhile.
    pub(crate) fn index_read(&self) -> RwLockReadGuard<'_, LabelIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self, hash: u64) -> &RwLock<HashTable<SlotEntry>> {
        // The upper bits: the table itself uses the lower ones and the topmost seven.
        &self.slots[(hash >> 48) as usize % SHARD_COUNT]
    }
}

/// Returns `some` in the order of `known`, followed by the slots that `known` lacks.
fn sort_like(known: &[u32], some: &[u32]) -> Vec<u32> {
    let words = some.iter().max().map_or(0, |max| *max as usize / 64 + 1);
    let mut waiting = vec![0_u64; words];
    some.iter().for_each(|slot| waiting[*slot as usize / 64] |= 1 << (slot % 64));
    let mut take = |slot: &u32| {
        let Some(word) = waiting.get_mut(*slot as usize / 64) else { return false };
        let bit = 1 << (slot % 64);
        let is_waiting = *word & bit != 0;
        *word &= !bit;
        is_waiting
    };
    let mut ordered = Vec::with_capacity(some.len());
    ordered.extend(known.iter().copied().filter(&mut take));
    if ordered.len() < some.len() {
        ordered.extend(some.iter().copied().filter(&mut take));
    }
    ordered
}
