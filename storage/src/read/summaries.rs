//! Summaries in place of samples, for selections that need only a part of some windows: facts, the
//! newest samples, or nothing of the times between them.
//!
//! A block is read if a window of the query begins or ends in one of its hours, if another run or
//! the head has samples of the same window and perhaps series, if samples are deleted, or if one of
//! the wanted series has no summaries. A block of which only summaries are left cannot be read: the
//! request for it remains, and the selection fails.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use model::{Labels, SourceError, TimeRange, stale_nan};

use super::blocks::{BlockRequest, BlockSource, WantedRun};
use crate::block::BlockEntry;
use crate::delete::Masks;
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::{Lsm, Scan};
use crate::parallel::yielder::Yielder;
use crate::samples::part::{Floats, Part, Parts};
use crate::summary::codec::StoredSummaries;
use crate::summary::edges::{Edges, Replaced};
use crate::summary::{BUCKET_MS, Summary, WindowSummaries};
use crate::value;
use crate::window::Window;

/// Maximum number of metrics of a partition for which summaries are read, one after the other.
const METRICS_MAX: usize = 16;
/// Summaries are read as a range if more than one of this many blocks is wanted.
const RANGE_SHARE: usize = 64;

/// Summaries that a selection may use.
pub(crate) struct WantedSummaries {
    pub(crate) edges: Edges,
    /// Windows of the store with samples of the selection in the head.
    pub(crate) in_head: BTreeSet<Window>,
    /// Set once summaries have replaced a block.
    pub(crate) are_used: AtomicBool,
}

impl WantedSummaries {
    /// Returns summaries by which a series exists: of one window that sees everything.
    pub(crate) fn existing() -> WantedSummaries {
        let (in_head, are_used) = (BTreeSet::new(), AtomicBool::new(false));
        WantedSummaries { edges: Edges::of_all(), in_head, are_used }
    }

    /// Returns whether a window of the query sees a window of the store.
    fn see(&self, window: Window) -> bool {
        self.edges.see(TimeRange::new(window.start_ms(), window.end_ms() - 1))
    }
}

/// A block whose summaries are wanted.
struct Candidate {
    run: usize,
    entry: usize,
    key: Vec<u8>,
}

/// Adds the summaries of blocks to the parts of their series, and removes the requests for these
/// blocks. `charge` is called for the memory of summaries.
pub(super) async fn load(
    source: &BlockSource<'_>,
    wanted: &WantedSummaries,
    runs: &mut [(u64, Vec<WantedRun>)],
    labels: &[(u32, Labels)],
    parts: &mut [Parts],
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    yielder: &mut Yielder,
) -> Result<(), SourceError> {
    let is_summarized = |(_, runs): &(u64, Vec<WantedRun>)| {
        let mut entries = runs.iter().flat_map(|run| &run.entries);
        entries.any(|(_, want)| matches!(want, BlockRequest::Summaries))
    };
    if runs.len() > METRICS_MAX && !runs.iter().any(is_summarized) {
        return Ok(());
    }
    // Window of the last summary of each series.
    let mut newest = vec![None; labels.len()];
    for (metric, runs) in runs {
        let (candidates, span) = candidates(*metric, runs, wanted, source.masks);
        let mut reader = SummaryReader::new(source, &candidates, span).await?;
        for candidate in &candidates {
            let run = &mut runs[candidate.run];
            let window = run.window;
            let Some(bytes) = reader.next(&candidate.key).await? else { continue };
            let stored = StoredSummaries::open(&candidate.key, &bytes, window)?;
            let (entry, request) = &mut run.entries[candidate.entry];
            let of_run = OfRun { stored: &stored, entry, epoch: run.epoch };
            let found = of_run.decode(source, wanted, labels);
            let Some(found) = found.map_err(|detail| value::corrupt(&candidate.key, detail))?
            else {
                continue;
            };
            *request = BlockRequest::Nothing;
            wanted.are_used.store(true, Ordering::Relaxed);
            source.counters.note_summarized();
            yielder.work(found.len()).await?;
            let mut more = 0;
            for (index, summaries) in found {
                more += if wanted.edges.replaced() == Replaced::ByNewest {
                    push_newest(&mut parts[index], &wanted.edges, window, &summaries)
                } else {
                    let continues = newest[index] == Some(window.previous());
                    newest[index] = Some(window);
                    push(&mut parts[index], continues, &wanted.edges, summaries)
                };
            }
            charge(more)?;
        }
    }
    Ok(())
}

/// Returns the blocks whose summaries may be used, in the order of their keys, and the number of
/// blocks from the first to the last.
fn candidates(
    metric: u64,
    runs: &[WantedRun],
    wanted: &WantedSummaries,
    masks: &Masks,
) -> (Vec<Candidate>, usize) {
    let (mut found, mut span, mut end) = (Vec::new(), 0, 0);
    for (at, run) in runs.iter().enumerate() {
        let suits = !wanted.in_head.contains(&run.window)
            && (wanted.edges.suit(run.window) || !wanted.see(run.window));
        // All that is left is looked at, and then decided for each summary.
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
                BlockRequest::Bytes => suits && is_alone(entry) && !is_masked(entry),
                BlockRequest::Summaries => may_suit && is_alone(entry),
                BlockRequest::Nothing | BlockRequest::Columns(_) => false,
            };
            if is_candidate {
                let block = keys::block(metric, run.window, run.epoch, entry.first_id);
                let key = keys::summaries_of_block(&block);
                found.push(Candidate { run: at, entry: index, key });
                end = span;
            }
        }
    }
    (found, end + 1)
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

/// Summaries of a series, with its index.
type Found = (usize, WindowSummaries);

/// Summaries of a block, with its entry and the epoch of its run.
struct OfRun<'a> {
    stored: &'a StoredSummaries<'a>,
    entry: &'a BlockEntry,
    epoch: Epoch,
}

impl OfRun<'_> {
    /// Returns the summaries of the wanted series of a block that windows see, by their indices;
    /// `None` if one of them needs its samples.
    fn decode(
        &self,
        source: &BlockSource<'_>,
        wanted: &WantedSummaries,
        labels: &[(u32, Labels)],
    ) -> Result<Option<Vec<Found>>, String> {
        let OfRun { stored, entry, .. } = *self;
        let start = labels.partition_point(|(id, _)| *id < entry.first_id);
        let end = labels.partition_point(|(id, _)| *id <= entry.last_id);
        let is_seen = wanted.see(stored.window());
        let mut found = Vec::with_capacity(if is_seen { end - start } else { 0 });
        for (index, (id, _)) in labels.iter().enumerate().take(end).skip(start) {
            match self.is_deleted(source, *id) {
                Some(true) => continue,
                Some(false) => {}
                None => return Ok(None),
            }
            let Some(at) = stored.find(*id) else { continue };
            if !is_seen && stored.has(at) {
                continue;
            }
            let Some(summaries) = stored.decode(at)? else { return Ok(None) };
            if !summaries.iter().flatten().all(|summary| wanted.edges.allow(summary)) {
                return Ok(None);
            }
            found.push((index, summaries));
        }
        Ok(Some(found))
    }

    /// Returns whether a series is deleted in the block; `None` if its samples decide. Deletes cover
    /// whole windows in which summaries have replaced samples.
    fn is_deleted(&self, source: &BlockSource<'_>, id: u32) -> Option<bool> {
        let window = self.stored.window().times();
        let deleted = source.masks.times(id, self.epoch);
        let is_whole = deleted.iter().any(|times| times.covers(window));
        let is_touched = deleted.iter().any(|times| times.overlaps(window));
        (is_whole == is_touched).then_some(is_whole)
    }
}

/// Adds the last samples of the buckets of a window of the store that a window of the query sees: none
/// ends before them in their bucket. Returns their bytes.
fn push_newest(
    parts: &mut Parts,
    edges: &Edges,
    window: Window,
    summaries: &WindowSummaries,
) -> usize {
    let mut samples = Vec::new();
    for (slot, summary) in summaries.iter().enumerate() {
        let end_ms = window.start_ms() + slot as i64 * BUCKET_MS;
        let is_seen = edges.see(TimeRange::new(end_ms - BUCKET_MS + 1, end_ms));
        let Some(summary) = summary.filter(|_| is_seen) else { continue };
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

/// Adds summaries to the parts of a series, merged where no window begins or ends. Returns the bytes
/// of those that were not merged.
fn push(parts: &mut Parts, continues: bool, edges: &Edges, summaries: WindowSummaries) -> usize {
    if summaries.iter().all(Option::is_none) {
        return 0;
    }
    if !continues || !matches!(parts.last(), Some(Part::Summaries(_))) {
        parts.push(Part::Summaries(Vec::new()));
    }
    let Some(Part::Summaries(all)) = parts.last_mut() else { return 0 };
    let before = all.len();
    summaries.into_iter().flatten().for_each(|summary| edges.push(all, summary));
    (all.len() - before) * size_of::<Summary>()
}
