//! Samples of a sealed partition: from its run directories to the parts of each series.
//!
//! If all wanted series of a block are cached as columns, the block is not read. Otherwise each of
//! its series gets a slot for its column, which is filled when the series is decoded.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use model::{Labels, SourceError, TimeRange};
use smallvec::SmallVec;

use super::spans::{self, RunBlock, Span};
use super::summaries::{self, WantedSummaries};
use crate::block::{BlockEntry, DecodedBlock};
use crate::chunk::{self, ChunkError, FrameHeader};
use crate::core::CoreCounters;
use crate::delete::{self, Masks};
use crate::epoch::Epoch;
use crate::keys;
use crate::lsm::Lsm;
use crate::parallel::shares::in_shares;
use crate::parallel::yielder::Yielder;
use crate::samples::columns::{self, BlockKey, BlockSlots, ColumnCache, KeptColumn};
use crate::samples::part::{Frame, Part, Parts, Run};
use crate::sizes::Sizes;
use crate::summary::edges::Edges;
use crate::window::Window;

/// Maximum number of concurrent reads of a partition that have unwanted blocks.
const GAPS_AT_ONCE: usize = 8;
/// Work of decoding a block, in series.
const BLOCK_WORK: usize = 16;
/// Number of series that columns are prefetched ahead.
const COLUMNS_AHEAD: usize = 8;
/// Maximum length of a column. Longer runs are decoded for each query, one frame at a time.
const COLUMN_LEN_MAX: usize = 1 << 14;

/// Blocks of one run of one metric.
pub(crate) struct WantedRun {
    pub(crate) window: Window,
    pub(crate) epoch: Epoch,
    /// All blocks of the run.
    pub(crate) entries: Vec<(BlockEntry, BlockRequest)>,
}

/// Requested data of a block.
pub(crate) enum BlockRequest {
    /// None.
    Nothing,
    /// Its bytes.
    Bytes,
    /// Its summaries, which have replaced its samples.
    Summaries,
    /// Only these cached columns, each with the index of its series.
    Columns(Vec<(usize, Arc<KeptColumn>)>),
}

/// Source of blocks.
pub(crate) struct BlockSource<'a> {
    pub(crate) lsm: &'a Lsm,
    pub(crate) columns: &'a ColumnCache,
    pub(crate) sizes: &'a Sizes,
    /// Deleted times of the series.
    pub(crate) masks: &'a Masks,
    /// Summaries that may replace samples.
    pub(crate) summaries: Option<&'a WantedSummaries>,
    pub(crate) counters: &'a CoreCounters,
}

/// Error of a load. Labels may be unknown while samples are read.
pub(crate) enum LoadError {
    /// Error of a series, without its name.
    OfSeries {
        id: u32,
        error: SourceError,
    },
    Other(SourceError),
}

impl<E: Into<SourceError>> From<E> for LoadError {
    fn from(error: E) -> LoadError {
        LoadError::Other(error.into())
    }
}

/// Times of a selection.
#[derive(Clone, Copy)]
struct WantedTimes {
    range: TimeRange,
    /// Windows of the query, which see parts of the range.
    edges: Option<Edges>,
}

impl WantedTimes {
    /// Returns whether floats of a range of time are wanted.
    #[inline]
    fn include(&self, times: TimeRange) -> bool {
        self.range.overlaps(times) && self.edges.is_none_or(|edges| edges.see(times))
    }

    fn include_column(&self, column: &KeptColumn) -> bool {
        self.include(TimeRange::new(column.min_ms(), column.max_ms()))
    }
}

impl BlockSource<'_> {
    /// Adds the parts of a series in a run, without deleted samples.
    fn push(
        &self,
        parts: Parts,
        id: u32,
        epoch: Epoch,
        charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
        found: &mut Parts,
    ) -> Result<(), LoadError> {
        let deleted = self.masks.times(id, epoch);
        if deleted.is_empty() {
            found.extend(parts);
            return Ok(());
        }
        let kept = delete::kept_parts(parts, &deleted, &Labels::default())
            .map_err(|error| LoadError::OfSeries { id, error })?;
        charge(kept.iter().map(Part::bytes).sum())?;
        found.extend(kept);
        Ok(())
    }
}

/// Loads the parts of some series in a range, the earlier write first. Floats that no window sees
/// may be missing.
///
/// `ids` ascend; `charge` is called before bytes are read.
pub(crate) async fn load(
    source: &BlockSource<'_>,
    runs: Vec<(u64, Vec<WantedRun>)>,
    ids: &Arc<[u32]>,
    range: TimeRange,
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    yielder: &mut Yielder,
) -> Result<Vec<Parts>, LoadError> {
    let times = WantedTimes { range, edges: source.summaries.map(|wanted| wanted.edges) };
    // Columns also hold deleted samples.
    if source.masks.is_empty()
        && let Some(kept) = all_kept(source, &runs, ids, times).await?
    {
        charge(kept.bytes)?;
        source.columns.count_hits(kept.column_count);
        return Ok(kept.parts);
    }
    // Boxed like all futures that read the LSM, see the index of a partition.
    Box::pin(read(source, runs, ids, times, charge, yielder)).await
}

/// Reads the parts of some series as [`load`], not all of which are cached as columns.
async fn read(
    source: &BlockSource<'_>,
    mut runs: Vec<(u64, Vec<WantedRun>)>,
    ids: &Arc<[u32]>,
    times: WantedTimes,
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    yielder: &mut Yielder,
) -> Result<Vec<Parts>, LoadError> {
    let mut parts: Vec<Parts> = ids.iter().map(|_| Parts::new()).collect();
    if let Some(wanted) = source.summaries {
        summaries::load(source, wanted, &mut runs, ids, &mut parts, charge, yielder).await?;
    }
    check_samples(&runs, times.range)?;
    let bytes = use_cached_columns(source, &mut runs, ids, times, yielder).await?;
    charge(bytes)?;
    let budget = yielder.budget().clone();
    let spans: Vec<Span> =
        runs.iter().flat_map(|(metric, runs)| spans::of_blocks(blocks_of(*metric, runs))).collect();
    let gap_count = spans.iter().filter(|span| span.has_gaps()).count();
    let at_once = if gap_count > GAPS_AT_ONCE { GAPS_AT_ONCE } else { source.lsm.reads_at_once() };
    // Created before they are polled: a stream that calls a closure is not seen to be `Send`.
    let reads: Vec<BoxFuture<'_, _>> =
        spans.iter().map(|span| span.read(source.lsm, &budget).boxed()).collect();
    let mut reads = stream::iter(reads).buffered(at_once);
    let mut blocks = Vec::new().into_iter();
    for (metric, runs) in &runs {
        for WantedRun { window, epoch, entries } in runs {
            for (entry, want) in entries {
                match want {
                    BlockRequest::Nothing | BlockRequest::Summaries => {}
                    BlockRequest::Columns(kept) => {
                        for (at, column) in kept.iter().filter(|(_, c)| times.include_column(c)) {
                            let part = Part::Column(Arc::clone(column));
                            let part = Parts::from_iter([part]);
                            source.push(part, ids[*at], *epoch, charge, &mut parts[*at])?;
                        }
                    }
                    BlockRequest::Bytes => {
                        if blocks.len() == 0
                            && let Some(read) = reads.try_next().await?
                        {
                            blocks = read.into_iter();
                        }
                        let Some((key, bytes)) = blocks.next() else { continue };
                        yielder.work(BLOCK_WORK).await?;
                        let first_id = entry.first_id;
                        let block_key =
                            BlockKey { metric: *metric, window: *window, epoch: *epoch, first_id };
                        let block = ReadBlock { key, bytes, block_key, ids, times };
                        block.push_parts(source, charge, &mut parts)?;
                    }
                }
            }
        }
    }
    Ok(parts)
}

/// Returns the blocks of some runs of a metric, in the order of their keys.
fn blocks_of(metric: u64, runs: &[WantedRun]) -> impl Iterator<Item = RunBlock> {
    runs.iter().flat_map(move |run| {
        run.entries.iter().map(move |(entry, want)| {
            let key = || keys::block(metric, run.window, run.epoch, entry.first_id);
            let wanted = matches!(want, BlockRequest::Bytes).then(key);
            RunBlock { wanted, bytes: u64::from(entry.bytes) }
        })
    })
}

/// Errors: the samples of a wanted block are replaced by summaries.
fn check_samples(runs: &[(u64, Vec<WantedRun>)], range: TimeRange) -> Result<(), SourceError> {
    let mut entries = runs.iter().flat_map(|(_, runs)| runs).flat_map(|run| &run.entries);
    match entries.find(|(_, want)| matches!(want, BlockRequest::Summaries)) {
        Some((entry, _)) => {
            Err(SourceError::OnlySummaries { time_ms: entry.min_ms.max(range.start_ms) })
        }
        None => Ok(()),
    }
}

/// Replaces wanted blocks by their columns where all wanted ones are cached. Returns the bytes of
/// all wanted blocks and columns.
async fn use_cached_columns(
    source: &BlockSource<'_>,
    runs: &mut [(u64, Vec<WantedRun>)],
    ids: &[u32],
    times: WantedTimes,
    yielder: &mut Yielder,
) -> Result<usize, SourceError> {
    let mut bytes = 0;
    for (metric, runs) in runs {
        for WantedRun { window, epoch, entries } in runs {
            for (entry, want) in
                entries.iter_mut().filter(|(_, w)| matches!(w, BlockRequest::Bytes))
            {
                let first_id = entry.first_id;
                let key = BlockKey { metric: *metric, window: *window, epoch: *epoch, first_id };
                let slots = source.columns.block(&key);
                let Some(kept) = slots.and_then(|slots| kept_columns(&slots, ids, times)) else {
                    bytes += entry.bytes as usize;
                    continue;
                };
                yielder.work(1 + kept.len() / BLOCK_WORK).await?;
                source.columns.count_hits(kept.len());
                bytes += kept.iter().map(|(_, column)| column.bytes()).sum::<usize>();
                *want = BlockRequest::Columns(kept);
            }
        }
    }
    Ok(bytes)
}

/// Parts of some series, and their sizes.
#[derive(Default)]
struct KeptParts {
    parts: Vec<Parts>,
    bytes: usize,
    column_count: usize,
}

/// Returns the parts of all series, if all of them are cached as columns.
async fn all_kept(
    source: &BlockSource<'_>,
    runs: &[(u64, Vec<WantedRun>)],
    ids: &Arc<[u32]>,
    times: WantedTimes,
) -> Result<Option<KeptParts>, SourceError> {
    let mut blocks = Vec::new();
    for (metric, runs) in runs {
        for WantedRun { window, epoch, entries } in runs {
            for (entry, want) in entries {
                match want {
                    BlockRequest::Bytes => {}
                    BlockRequest::Summaries => return Ok(None),
                    BlockRequest::Nothing | BlockRequest::Columns(_) => continue,
                }
                let first_id = entry.first_id;
                let key = BlockKey { metric: *metric, window: *window, epoch: *epoch, first_id };
                let Some(slots) = source.columns.block(&key) else { return Ok(None) };
                blocks.push(slots);
            }
        }
    }
    let share = {
        let ids = Arc::clone(ids);
        move |share: Range<usize>| -> Result<_, SourceError> {
            Ok(kept_of_share(&blocks, &ids[share], times))
        }
    };
    let mut all = KeptParts::default();
    for share in in_shares(source.sizes, ids.len(), share).await? {
        let Some(share) = share else { return Ok(None) };
        all.bytes += share.bytes;
        all.column_count += share.column_count;
        all.parts.extend(share.parts);
    }
    Ok(Some(all))
}

/// Returns the parts of a share of the series, from the slots of blocks in the order of writing.
fn kept_of_share(blocks: &[Arc<BlockSlots>], ids: &[u32], times: WantedTimes) -> Option<KeptParts> {
    let mut kept = KeptParts::default();
    kept.parts.extend(ids.iter().map(|_| Parts::new()));
    for block in blocks {
        for (index, column) in kept_columns(block, ids, times)? {
            kept.bytes += column.bytes();
            kept.column_count += 1;
            if times.include_column(&column) {
                kept.parts[index].push(Part::Column(column));
            }
        }
    }
    Some(kept)
}

/// Returns the cached columns of all wanted series of a block, each with the index of its series;
/// `None` if one is missing. Series of which no wanted time has floats need no column.
fn kept_columns(
    slots: &BlockSlots,
    wanted: &[u32],
    times: WantedTimes,
) -> Option<Vec<(usize, Arc<KeptColumn>)>> {
    let ids = slots.ids();
    let (first, last) = (*ids.first()?, *ids.last()?);
    let start = wanted.partition_point(|id| *id < first);
    let mut kept = Vec::new();
    let mut at = 0;
    for (index, id) in wanted.iter().enumerate().skip(start) {
        if *id > last {
            break;
        }
        slots.fetch(at + COLUMNS_AHEAD);
        at += ids[at..].partition_point(|other| other < id);
        if ids.get(at) == Some(id) {
            match slots.column(at) {
                Some(column) => kept.push((index, column)),
                None if slots.float_times(at).is_some_and(|of| !times.include(of)) => {}
                None => return None,
            }
        }
    }
    Some(kept)
}

/// A block that was read.
struct ReadBlock<'a> {
    key: Bytes,
    bytes: Bytes,
    block_key: BlockKey,
    ids: &'a [u32],
    times: WantedTimes,
}

impl ReadBlock<'_> {
    /// Adds the parts of the wanted series of the block.
    ///
    /// Errors: damaged bytes.
    fn push_parts(
        &self,
        source: &BlockSource<'_>,
        charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
        parts: &mut [Parts],
    ) -> Result<(), LoadError> {
        let columns = source.columns;
        let block = DecodedBlock::new(&self.key, &self.bytes)?;
        // The stored bytes are charged before they are read, those of shared times here.
        charge(block.len().saturating_sub(self.bytes.len()))?;
        let slots =
            (columns.bytes_max() > 0).then(|| columns.add_block(self.block_key, block.ids()));
        for (at, (id, frames)) in block.frames().enumerate() {
            if let Ok(index) = self.ids.binary_search(&id) {
                let found = &mut parts[index];
                if source.masks.is_empty() {
                    self.push_frames(id, &frames, slots.as_ref(), at, found)?;
                    continue;
                }
                let mut of_block = Parts::new();
                self.push_frames(id, &frames, slots.as_ref(), at, &mut of_block)?;
                source.push(of_block, id, self.block_key.epoch, charge, found)?;
            }
        }
        Ok(())
    }

    /// Splits the adjacent frames of a series, and keeps those in the range that windows see. Keeps all
    /// frames as one run if they are floats, and if the range has half of them or is half as long.
    /// Later queries then find their column. Of a series with histograms, keeps all frames in the
    /// range: reset hints refer to earlier samples.
    ///
    /// The decoder verifies the checksums of kept frames. The others are verified here, as a damaged
    /// header would hide samples.
    ///
    /// Errors: damaged frames.
    fn push_frames(
        &self,
        id: u32,
        frames: &Bytes,
        slots: Option<&Arc<BlockSlots>>,
        at: usize,
        parts: &mut Parts,
    ) -> Result<(), LoadError> {
        let damaged = |error: ChunkError| {
            let error = error.at("", format!("key {}", keys::printable(&self.key)));
            LoadError::OfSeries { id, error }
        };
        let headers: SmallVec<[(usize, FrameHeader); 2]> =
            chunk::frames(frames).collect::<Result<_, _>>().map_err(damaged)?;
        let are_floats = headers.iter().all(|(_, header)| !header.encoding.is_histograms());
        let times = WantedTimes { edges: self.times.edges.filter(|_| are_floats), ..self.times };
        let is_wanted =
            |header: &FrameHeader| times.include(TimeRange::new(header.min_ms, header.max_ms));
        if let Some(slots) = slots
            && let Some((min_ms, max_ms, sample_count)) =
                run_of(&headers, self.times.range, is_wanted)
        {
            let column_slot = columns::ColumnSlot::Sealed(Arc::clone(slots), at as u32);
            parts.push(match column_slot.column() {
                Some(column) => Part::Column(column),
                None => {
                    let frames = SmallVec::from_buf([frames.clone()]);
                    Part::Run(Box::new(Run {
                        before: None,
                        frames,
                        late: None,
                        key: Some(self.key.clone()),
                        column_slot,
                        sample_count,
                        min_ms,
                        max_ms,
                    }))
                }
            });
            return Ok(());
        }
        let mut unwanted: Option<TimeRange> = None;
        for (offset, header) in &headers {
            let bytes = frames.slice(*offset..);
            if is_wanted(header) {
                let key = Some(self.key.clone());
                parts.push(Part::Frame(Box::new(Frame { bytes, key, header: Ok(*header) })));
            } else {
                header.verify(&bytes).map_err(damaged)?;
                let times = TimeRange::new(header.min_ms, header.max_ms);
                unwanted = Some(unwanted.map_or(times, |before| before.join(times)));
            }
        }
        // Once all headers are verified.
        if let (Some(slots), Some(times), true) = (slots, unwanted, are_floats)
            && !headers.iter().any(|(_, header)| is_wanted(header))
        {
            slots.note_floats(at, times);
        }
        Ok(())
    }
}

/// Returns the first and last time and the number of samples, if the frames fit one column and
/// enough of them are wanted.
fn run_of(
    headers: &[(usize, FrameHeader)],
    range: TimeRange,
    is_wanted: impl Fn(&FrameHeader) -> bool,
) -> Option<(i64, i64, usize)> {
    let (_, first) = headers.first()?;
    let (_, last) = headers.last()?;
    let sample_count = headers.iter().map(|(_, header)| header.count as usize).sum();
    let are_floats = headers.iter().all(|(_, header)| !header.encoding.is_histograms());
    let do_ascend = headers.windows(2).all(|pair| pair[0].1.max_ms < pair[1].1.min_ms);
    let wanted_count = headers.iter().filter(|(_, header)| is_wanted(header)).count();
    let block_ms = last.max_ms.saturating_sub(first.min_ms);
    let is_long = range.end_ms.saturating_sub(range.start_ms) >= block_ms / 2;
    let is_worthwhile = wanted_count * 2 >= headers.len().max(1) || wanted_count > 0 && is_long;
    let is_kept = are_floats && do_ascend && sample_count <= COLUMN_LEN_MAX && is_worthwhile;
    is_kept.then_some((first.min_ms, last.max_ms, sample_count))
}
