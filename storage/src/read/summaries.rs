//! Summaries in place of samples, for selections that need only a part of some windows: facts, the
//! newest samples, or nothing of the times between them.
//!
//! A block that windows of the query see is read in these cases:
//!
//! - one of the windows begins or ends in one of its hours,
//! - another run or the head has samples of the same window and perhaps series,
//! - samples are deleted,
//! - a wanted series has no summaries with the wanted facts.
//!
//! Any other block is read only if a wanted series has no summaries: it may have histograms. A block
//! of which only summaries are left cannot be read: the request for it remains, and the selection
//! fails.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::{Budget, Reservation, SourceError, TimeRange, stale_nan};

use roaring::RoaringBitmap;

use super::blocks::{BlockRequest, BlockSource, WantedRun};
use crate::block::BlockEntry;
use crate::delete::Masks;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::{Lsm, Scan};
use crate::parallel::workers::Workers;
use crate::parallel::yielder::Yielder;
use crate::samples::part::{Floats, Part, Parts};
use crate::samples::shared::SharedSlice;
use crate::sizes::Sizes;
use crate::summary::codec::StoredSummaries;
use crate::summary::edges::{Edges, Reach, Replaced};
use crate::summary::{BUCKET_MS, Summary, slot_of};
use crate::value;
use crate::window::Window;

/// Maximum number of metrics of a partition for which summaries are read in place of blocks, one
/// after the other. Summaries without blocks are read for any number.
const METRICS_MAX: usize = 16;
/// Summaries are read as a range if more than one of this many blocks is wanted.
const RANGE_SHARE: usize = 64;
/// Bytes of summaries of a partition that are decoded together.
const BATCH_BYTES: u64 = 512 << 10;
/// Part of the series that are visited on the runtime's thread whose summaries are decoded there.
const INLINE_SHARE: usize = 32;

/// Summaries that a selection may use.
pub(crate) struct WantedSummaries {
    pub(crate) edges: Edges,
    /// Windows of the store with samples of the selection in the head that windows of the query see.
    pub(crate) in_head: BTreeSet<Window>,
    /// Threads that decode summaries.
    decoding: Workers,
}

impl WantedSummaries {
    /// Returns the summaries that a selection between `edges` may use, with the windows of the
    /// store that have samples of it in the head.
    pub(crate) fn new(edges: Edges, in_head: BTreeSet<Window>) -> WantedSummaries {
        WantedSummaries { edges, in_head, decoding: Workers::new() }
    }

    /// Returns summaries by which a series exists: of one window that sees everything.
    pub(crate) fn existing() -> WantedSummaries {
        WantedSummaries::new(Edges::of_all(), BTreeSet::new())
    }

    /// Decodes summaries, many of them outside of the threads of the runtime. Returns the candidates
    /// whose blocks need not be read.
    ///
    /// Errors: damaged bytes.
    async fn decode(
        &self,
        sizes: &Sizes,
        mut decoder: Box<SummaryDecoder>,
        batch: Vec<ReadSummaries>,
    ) -> Result<(Box<SummaryDecoder>, Vec<Candidate>), SourceError> {
        let count = batch.len() * decoder.ids.len().min(sizes.block_series_max);
        let is_inline = count <= sizes.inline_series_max / INLINE_SHARE;
        let decode = move || {
            let replaced = decoder.add_all(batch);
            (decoder, replaced)
        };
        let (decoder, replaced) =
            if is_inline { decode() } else { self.decoding.run(decode).await? };
        Ok((decoder, replaced?))
    }

    /// Returns the parts of all series, many of them made outside of the threads of the runtime.
    ///
    /// Errors: those of the budget.
    async fn parts(
        &self,
        sizes: &Sizes,
        decoder: Box<SummaryDecoder>,
        budget: &Budget,
    ) -> Result<Vec<Parts>, SourceError> {
        let _copies = Reservation::new(budget, size_of_val(&decoder.merged[..]) as u64)?;
        let is_inline = decoder.merged.len() <= sizes.inline_series_max;
        let parts = move || decoder.into_parts();
        if is_inline { Ok(parts()) } else { self.decoding.run(parts).await }
    }

    /// Returns whether a window of the query sees a window of the store.
    fn see(&self, window: Window) -> bool {
        self.edges.see(TimeRange::new(window.start_ms(), window.end_ms() - 1))
    }
}

/// A block whose summaries are wanted.
struct Candidate {
    /// Position of the block in the runs of its metric.
    run: usize,
    entry: usize,
    window: Window,
    block: BlockEntry,
    key: Vec<u8>,
    /// Wanted series that are deleted in the window.
    deleted: RoaringBitmap,
}

/// Stored summaries of a block.
struct ReadSummaries {
    candidate: Candidate,
    bytes: Bytes,
}

/// Adds the summaries of blocks to the parts of their series, and removes the requests for these
/// blocks. `charge` is called for the memory of summaries.
pub(super) async fn load(
    source: &BlockSource<'_>,
    wanted: &WantedSummaries,
    runs: &mut [(u64, Vec<WantedRun>)],
    ids: &Arc<[u32]>,
    parts: &mut Vec<Parts>,
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    yielder: &mut Yielder,
) -> Result<(), SourceError> {
    let is_summarized = |(_, runs): &(u64, Vec<WantedRun>)| {
        let mut entries = runs.iter().flat_map(|run| &run.entries);
        entries.any(|(_, want)| matches!(want, BlockRequest::Summaries))
    };
    let are_few = runs.len() <= METRICS_MAX;
    if !are_few && !runs.iter().any(is_summarized) {
        return Ok(());
    }
    let (ids, taken) = (Arc::clone(ids), std::mem::take(parts));
    let mut decoder = Box::new(SummaryDecoder::new(wanted.edges, ids, taken));
    for (metric, runs) in runs {
        let (candidates, span) = candidates(*metric, runs, wanted, source.masks, are_few);
        let mut reader = SummaryReader::new(source, &candidates, span).await?;
        let mut candidates = candidates.into_iter();
        loop {
            // Until they are decoded, the bytes count as memory of the query.
            let mut of_batch = Reservation::empty(yielder.budget());
            let mut batch = Vec::new();
            while of_batch.bytes() < BATCH_BYTES
                && let Some(candidate) = candidates.next()
            {
                match reader.next(&candidate.key).await? {
                    Some(bytes) => {
                        of_batch.grow(bytes.len() as u64)?;
                        batch.push(ReadSummaries { candidate, bytes });
                    }
                    None if candidate.block.is_summarized() => {
                        let error = value::corrupt(&candidate.key, "summaries are missing");
                        return Err(error.into());
                    }
                    None => {}
                }
            }
            if batch.is_empty() {
                break;
            }
            yielder.work(batch.len()).await?;
            let replaced;
            (decoder, replaced) = wanted.decode(source.sizes, decoder, batch).await?;
            for Candidate { run, entry, .. } in replaced {
                runs[run].entries[entry].1 = BlockRequest::Nothing;
                source.counters.note_summarized();
            }
            charge(std::mem::take(&mut decoder.added_bytes))?;
        }
    }
    *parts = wanted.parts(source.sizes, decoder, yielder.budget()).await?;
    Ok(())
}

/// Returns the blocks whose summaries may be used, in the order of their keys, and the number of
/// blocks from the first to the last. Without `may_replace`, only blocks without samples.
fn candidates(
    metric: u64,
    runs: &[WantedRun],
    wanted: &WantedSummaries,
    masks: &Masks,
    may_replace: bool,
) -> (Vec<Candidate>, usize) {
    let (mut found, mut span, mut end) = (Vec::new(), 0, 0);
    for (at, run) in runs.iter().enumerate() {
        let is_seen = wanted.see(run.window);
        let suits =
            !is_seen || !wanted.in_head.contains(&run.window) && wanted.edges.suit(run.window);
        // Summaries without a block are always read; `Edges::allow` decides for each of them.
        let may_suit = suits || wanted.edges.replaced() == Replaced::ByFacts;
        let others = || {
            let same = runs.iter().enumerate().filter(|(i, r)| *i != at && r.window == run.window);
            same.flat_map(|(_, other)| &other.entries)
        };
        let is_alone = |entry: &BlockEntry| {
            others().all(|(o, _)| o.last_id < entry.first_id || o.first_id > entry.last_id)
        };
        let is_masked = |e: &BlockEntry| masks.ids().range_cardinality(e.first_id..=e.last_id) > 0;
        for (index, (entry, request)) in run.entries.iter().enumerate() {
            span += usize::from(!found.is_empty());
            let is_candidate = match request {
                BlockRequest::Bytes if is_seen => {
                    may_replace && suits && is_alone(entry) && !is_masked(entry)
                }
                BlockRequest::Bytes => may_replace,
                BlockRequest::Summaries => may_suit && (!is_seen || is_alone(entry)),
                BlockRequest::Nothing | BlockRequest::Columns(_) => false,
            };
            let deleted = || deleted_in(run, entry, masks);
            if is_candidate && let Some(deleted) = deleted() {
                let key = keys::summaries(metric, run.window, run.epoch, entry.first_id);
                let (block, window) = (*entry, run.window);
                found.push(Candidate { run: at, entry: index, window, block, key, deleted });
                end = span;
            }
        }
    }
    (found, end + 1)
}

/// Returns the series of a block that are deleted in its window; `None` if one is deleted in part.
/// Deletes cover whole windows in which summaries have replaced samples.
fn deleted_in(run: &WantedRun, entry: &BlockEntry, masks: &Masks) -> Option<RoaringBitmap> {
    let mut deleted = RoaringBitmap::new();
    if masks.is_empty() {
        return Some(deleted);
    }
    let window = run.window.times();
    for id in masks.ids().range(entry.first_id..=entry.last_id) {
        let times = masks.times(id, run.epoch);
        if times.iter().any(|times| times.covers(window)) {
            deleted.insert(id);
        } else if times.iter().any(|times| times.overlaps(window)) {
            return None;
        }
    }
    Some(deleted)
}

/// Reads summaries in the order of their keys.
enum SummaryReader<'a> {
    Scan { scan: Box<Scan>, ahead: Option<(Bytes, Bytes)> },
    Gets(&'a Lsm),
}

impl<'a> SummaryReader<'a> {
    async fn new(
        source: &BlockSource<'a>,
        candidates: &[Candidate],
        span: usize,
    ) -> Result<SummaryReader<'a>, StoreError> {
        let (Some(first), Some(last)) = (candidates.first(), candidates.last()) else {
            return Ok(SummaryReader::Gets(source.lsm));
        };
        if candidates.len() * RANGE_SHARE <= span {
            return Ok(SummaryReader::Gets(source.lsm));
        }
        let end = [&last.key[..], &[0]].concat();
        let mut scan = Box::new(source.lsm.scan(&first.key, &end).await?);
        let ahead = scan.next().await?;
        Ok(SummaryReader::Scan { scan, ahead })
    }

    /// Returns the value of a key, which is after all earlier ones; `None` without summaries.
    async fn next(&mut self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match self {
            SummaryReader::Gets(lsm) => lsm.get_present(key).await,
            SummaryReader::Scan { scan, ahead } => {
                while let Some((found, _)) = ahead
                    && &found[..] < key
                {
                    *ahead = scan.next().await?;
                }
                Ok(ahead.as_ref().filter(|(found, _)| *found == key).map(|(_, b)| b.clone()))
            }
        }
    }
}

/// Last summary of a series.
#[derive(Clone, Copy)]
struct LastSummary {
    window: Window,
    /// Boundaries after it.
    reach: Reach,
    /// Index in [`SummaryDecoder::merged`].
    at: usize,
}

/// Summary of one of the series.
struct SummaryOf {
    /// Index of the series.
    series: u32,
    /// True for the first summary of a part: the window before has none of the series.
    begins_part: bool,
    summary: Summary,
}

/// Decodes summaries to the parts of their series.
struct SummaryDecoder {
    edges: Edges,
    ids: Arc<[u32]>,
    parts: Vec<Parts>,
    /// Of each series.
    last: Vec<Option<LastSummary>>,
    /// Merged summaries of all series, those of each in the order of time.
    merged: Vec<SummaryOf>,
    /// Summaries of one block, series by series.
    summaries: Vec<Summary>,
    /// Index of each of these series, and the end of its summaries.
    found: Vec<(usize, usize)>,
    /// Bytes of summaries that were added.
    added_bytes: usize,
}

impl SummaryDecoder {
    fn new(edges: Edges, ids: Arc<[u32]>, parts: Vec<Parts>) -> SummaryDecoder {
        let last = vec![None; ids.len()];
        let (merged, summaries, found) = (Vec::new(), Vec::new(), Vec::new());
        SummaryDecoder { edges, ids, parts, last, merged, summaries, found, added_bytes: 0 }
    }

    /// Adds the summaries of some blocks, in the order of their keys. Returns the candidates of the
    /// blocks that need not be read.
    ///
    /// Errors: damaged bytes.
    fn add_all(&mut self, batch: Vec<ReadSummaries>) -> Result<Vec<Candidate>, StoreError> {
        let mut replaced = Vec::new();
        for ReadSummaries { candidate, bytes } in batch {
            let stored = StoredSummaries::open(&candidate.key, &bytes, candidate.window)?;
            let are_enough = self.decode(&stored, &candidate);
            if are_enough.map_err(|detail| value::corrupt(&candidate.key, detail))? {
                self.push_found(candidate.window);
                replaced.push(candidate);
            }
        }
        Ok(replaced)
    }

    /// Decodes the summaries of the wanted series of a block that windows see. Returns whether no
    /// series needs its samples.
    fn decode(
        &mut self,
        stored: &StoredSummaries<'_>,
        Candidate { block, deleted, .. }: &Candidate,
    ) -> Result<bool, String> {
        self.found.clear();
        self.summaries.clear();
        let start = self.ids.partition_point(|id| *id < block.first_id);
        let wanted = self.ids[start..].iter().take_while(|id| **id <= block.last_id);
        let TimeRange { start_ms, end_ms } = stored.window().times();
        let is_seen = self.edges.see(stored.window().times());
        let is_undivided = self.edges.next_edge(start_ms) >= end_ms;
        let mut next = 0;
        for (index, id) in (start..).zip(wanted) {
            if !deleted.is_empty() && deleted.contains(*id) {
                continue;
            }
            let Some(at) = stored.find(*id, next) else { continue };
            next = at + 1;
            if !is_seen && stored.has(at) {
                continue;
            }
            let first = self.summaries.len();
            if !stored.decode(at, &mut self.summaries)? {
                return Ok(false);
            }
            let mut decoded = self.summaries[first..].iter();
            let is_enough = |summary: &Summary| {
                self.edges.suffices(summary) && (is_undivided || self.edges.allow(summary))
            };
            if !decoded.all(is_enough) {
                return Ok(false);
            }
            self.found.push((index, self.summaries.len()));
        }
        Ok(true)
    }

    /// Adds the decoded summaries of a window.
    fn push_found(&mut self, window: Window) {
        let mut start = 0;
        for at in 0..self.found.len() {
            let (index, end) = self.found[at];
            self.added_bytes += if self.edges.replaced() == Replaced::ByNewest {
                let (parts, summaries) = (&mut self.parts[index], &self.summaries[start..end]);
                push_newest(parts, &self.edges, window, summaries)
            } else {
                self.push_merged(index, window, start..end)
            };
            start = end;
        }
    }

    /// Adds decoded summaries of a series in a window, merged where no window of the query begins or
    /// ends. Returns the bytes of those that were not merged.
    fn push_merged(&mut self, series: usize, window: Window, summaries: Range<usize>) -> usize {
        if summaries.is_empty() {
            return 0;
        }
        let count_before = self.merged.len();
        let mut last = self.last[series].take_if(|last| last.window.next() == window);
        for summary in &self.summaries[summaries] {
            let merge = |last: &LastSummary| {
                self.edges.merge(&mut self.merged[last.at].summary, &last.reach, summary)
            };
            if last.as_ref().is_some_and(merge) {
                continue;
            }
            let (reach, at) = (self.edges.reach(summary.first_ms), self.merged.len());
            let begins_part = last.is_none();
            self.merged.push(SummaryOf { series: series as u32, begins_part, summary: *summary });
            last = Some(LastSummary { window, reach, at });
        }
        self.last[series] = last.map(|last| LastSummary { window, ..last });
        (self.merged.len() - count_before) * size_of::<Summary>()
    }

    /// Returns the parts of the series, with their summaries.
    fn into_parts(mut self) -> Vec<Parts> {
        // Stable: the summaries of a series stay in the order of time.
        let mut order: Vec<u32> = (0..self.merged.len() as u32).collect();
        order.sort_by_key(|at| self.merged[*at as usize].series);
        let ordered = || order.iter().map(|at| &self.merged[*at as usize]);
        let all = Arc::new(ordered().map(|of| of.summary).collect());
        let mut start = 0;
        for run in order.chunk_by(|_, next| !self.merged[*next as usize].begins_part) {
            let end = start + run.len() as u32;
            let series = self.merged[run[0] as usize].series as usize;
            self.parts[series].push(Part::Summaries(SharedSlice::new(&all, start..end)));
            start = end;
        }
        self.parts
    }
}

/// Adds the last samples of the buckets of a window of the store that a window of the query sees:
/// none ends before them in their bucket. Returns their bytes.
fn push_newest(parts: &mut Parts, edges: &Edges, window: Window, summaries: &[Summary]) -> usize {
    let mut samples = Vec::new();
    for summary in summaries {
        let slot = slot_of(window, summary.last_ms) as i64;
        let end_ms = window.start_ms() + slot * BUCKET_MS;
        if !edges.see(TimeRange::new(end_ms - BUCKET_MS + 1, end_ms)) {
            continue;
        }
        samples.push((summary.last_ms, summary.last));
        // Of the marker's time, only its order matters.
        samples.extend(summary.is_ended.then_some((summary.last_ms + 1, stale_nan())));
    }
    let bytes = size_of_val(&*samples);
    match parts.last_mut() {
        _ if samples.is_empty() => {}
        Some(Part::Floats(floats)) => floats.samples.append(&mut samples),
        _ => parts.push(Part::Floats(Box::new(Floats { samples, starts: Vec::new() }))),
    }
    bytes
}
