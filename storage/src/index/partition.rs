//! Reading a partition: from matchers to ids, to labels, to the frames in its blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use model::{Budget, Labels, Matcher, SourceError};
use roaring::RoaringBitmap;

use super::facts::Facts;
use super::runs::Run;
use super::{Lookup, Term, term};
use crate::chunk::ChunkError;
use crate::error::StoreError;
use crate::head::series::{Part, frame_overlaps};
use crate::keys;
use crate::lsm::Lsm;
use crate::read::breather::Breather;
use crate::seal::block::{self, BlockEntry};
use crate::store::Inner;
use crate::value;
use crate::window::window_of;

/// Ids in a page of the forward index; few in tests, so that there are several pages.
pub(crate) const PAGE_IDS: u32 = if cfg!(test) { 5 } else { 128 };
/// Reads of one partition in flight.
const READS_MAX: usize = 8;
/// A range is read whole once it is wanted by more than one part in so many.
const RANGE_SHARE: usize = 8;
/// Taking a block apart is so much work, in series.
const BLOCK_WORK: usize = 16;

/// What has been loaded of a partition.
pub(crate) struct Loaded {
    /// Series with their frames, the earlier write first.
    pub(crate) series: Vec<(Labels, Vec<Part>)>,
}

/// The blocks of one run of one metric that hold wanted series.
struct WantedRun {
    window: i64,
    run: u32,
    /// All blocks of the run, and whether each is wanted.
    entries: Vec<(BlockEntry, bool)>,
}

/// Loads what a partition holds of the series that match, in a range of time.
///
/// `charge` is told of the bytes of the blocks before they are read.
pub(crate) async fn load(
    inner: &Inner,
    facts: &Facts,
    matchers: &[Matcher],
    range: (i64, i64),
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    budget: &Budget,
) -> Result<Loaded, SourceError> {
    let mut breather = Breather::new(budget);
    let lsm = &inner.lsm;
    let ids = facts.resolve(lsm, matchers, &mut breather).await?;
    if ids.is_empty() {
        return Ok(Loaded { series: Vec::new() });
    }
    let labels = facts.labels_of(lsm, &inner.head, &ids, &mut breather).await?;
    charge(labels.iter().map(|(_, l)| l.as_bytes().len() + 64).sum())?;
    let mut metrics: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
    for (id, labels) in &labels {
        metrics.entry(keys::metric_hash(labels.metric_name())).or_default().insert(*id);
    }
    let windows = window_of(range.0)..=window_of(range.1);
    let runs = wanted_runs(lsm, facts, &metrics, &windows, range).await?;
    budget.check()?;
    let wanted_bytes = runs
        .iter()
        .flat_map(|(_, runs)| runs)
        .flat_map(|run| &run.entries)
        .filter(|(_, wanted)| *wanted)
        .map(|(entry, _)| entry.bytes as usize)
        .sum();
    charge(wanted_bytes)?;
    let mut parts: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    let reads: Vec<_> = runs.iter().map(|(metric, runs)| read_blocks(lsm, *metric, runs)).collect();
    let mut reads = stream::iter(reads).buffered(READS_MAX);
    while let Some(blocks) = reads.try_next().await? {
        budget.check()?;
        for (key, bytes) in blocks {
            breather.work(BLOCK_WORK).await?;
            for (id, frames) in block::decode_block(&key, &bytes)? {
                if let Ok(at) = labels.binary_search_by_key(&id, |(id, _)| *id) {
                    let place = FramesPlace { key: &key, labels: &labels[at].1 };
                    let parts = parts.entry(id).or_default();
                    push_frames(&place, &bytes.slice(frames), range, parts)?;
                }
            }
        }
    }
    let series =
        labels.into_iter().filter_map(|(id, labels)| Some((labels, parts.remove(&id)?))).collect();
    Ok(Loaded { series })
}

/// Whose frames are read, and where they stand.
struct FramesPlace<'a> {
    key: &'a Bytes,
    labels: &'a Labels,
}

/// Splits the frames of a series that stand end to end, and keeps those in the range.
///
/// The checksum of a frame that is kept is verified by its decoder; one that its header puts
/// outside of the range is verified here, or a damaged header would hide samples.
/// Errors: damaged frames, naming the series.
fn push_frames(
    place: &FramesPlace<'_>,
    frames: &Bytes,
    (start_ms, end_ms): (i64, i64),
    parts: &mut Vec<Part>,
) -> Result<(), SourceError> {
    let damaged = |error: ChunkError| {
        error.at(place.labels.to_string(), format!("key {}", keys::printable(place.key)))
    };
    for frame in crate::chunk::frames(frames) {
        let (offset, header) = frame.map_err(damaged)?;
        let bytes = frames.slice(offset..);
        if header.min_ms <= end_ms && header.max_ms >= start_ms {
            debug_assert!(frame_overlaps(&bytes, start_ms, end_ms));
            parts.push(Part::Frame { bytes, key: Some(place.key.clone()) });
        } else {
            header.verify(&bytes).map_err(damaged)?;
        }
    }
    Ok(())
}

/// The runs of each metric that lie in the windows, with the blocks that hold wanted ids.
async fn wanted_runs(
    lsm: &Lsm,
    facts: &Facts,
    metrics: &BTreeMap<u64, RoaringBitmap>,
    windows: &RangeInclusive<i64>,
    (start_ms, end_ms): (i64, i64),
) -> Result<Vec<(u64, Vec<WantedRun>)>, StoreError> {
    let hashes: Vec<u64> = metrics.keys().copied().collect();
    let runs = facts.runs_of(lsm, &hashes).await?;
    let mut found = Vec::with_capacity(hashes.len());
    for ((metric, ids), runs) in metrics.iter().zip(runs) {
        let is_wanted = |e: &BlockEntry| {
            e.min_ms <= end_ms
                && e.max_ms >= start_ms
                && ids.range_cardinality(e.first_id..=e.last_id) > 0
        };
        let wanted_run = |run: &Run| WantedRun {
            window: run.window,
            run: run.run,
            entries: run.blocks.iter().map(|entry| (*entry, is_wanted(entry))).collect(),
        };
        let in_windows = runs.iter().filter(|run| windows.contains(&run.window));
        let wanted: Vec<WantedRun> = in_windows.map(wanted_run).collect();
        if !wanted.is_empty() {
            found.push((*metric, wanted));
        }
    }
    Ok(found)
}

/// The wanted blocks of one metric, in the order of their keys.
async fn read_blocks(
    lsm: &Lsm,
    metric: u64,
    runs: &[WantedRun],
) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let mut wanted = Vec::new();
    let mut span = 0;
    for run in runs {
        for (entry, is_wanted) in &run.entries {
            span += usize::from(*is_wanted || !wanted.is_empty());
            if *is_wanted {
                wanted.push(keys::block(metric, run.window, run.run, entry.first_id));
            }
        }
    }
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else {
        return Ok(Vec::new());
    };
    if wanted.len() * RANGE_SHARE <= span {
        let read = |key: Vec<u8>| async move {
            let bytes = lsm.get(&key).await?;
            let bytes = bytes.ok_or_else(|| value::corrupt(&key, "block is missing"))?;
            Ok((Bytes::from(key), bytes))
        };
        return stream::iter(wanted).map(read).buffered(READS_MAX).try_collect().await;
    }
    let mut end = last.clone();
    end.push(0);
    let mut blocks = Vec::with_capacity(wanted.len());
    let mut scan = lsm.scan(first, &end).await?;
    for key in &wanted {
        loop {
            match scan.next().await? {
                Some((found, bytes)) if found == *key => {
                    blocks.push((found, bytes));
                    break;
                }
                // A block that is not wanted, or of a seal that did not finish.
                Some((found, _)) if found < *key => {}
                _ => return Err(value::corrupt(key, "block is missing")),
            }
        }
    }
    Ok(blocks)
}

/// Of some partitions those that can hold series which pass every matcher, by the dictionary.
/// Of which that is known without it are left to what is known.
pub(crate) async fn prune(
    lsm: &Lsm,
    mut partitions: Vec<Arc<Facts>>,
    matchers: &[Matcher],
) -> Result<Vec<Arc<Facts>>, StoreError> {
    for matcher in matchers {
        let Some((Term::Keep, Lookup::Values(values))) = term(matcher) else { continue };
        if partitions.iter().filter(|facts| !facts.knows(matcher)).count() < 2 {
            continue;
        }
        let mut holding = BTreeSet::new();
        for value in values {
            let prefix = keys::dictionary_of_pair(matcher.name(), value);
            let mut scan = lsm.scan_prefix(&prefix).await?;
            while let Some((key, _)) = scan.next().await? {
                let number = keys::parse_ordered(&key, &prefix)
                    .ok_or_else(|| value::corrupt(&key, "malformed dictionary key"))?;
                holding.insert(number);
            }
        }
        partitions.retain(|facts| {
            let may_hold = holding.contains(&facts.number);
            if !may_hold {
                facts.note_none(matcher);
            }
            may_hold
        });
    }
    Ok(partitions)
}
