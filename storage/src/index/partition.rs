//! Reading a partition: from matchers to ids, to labels, to the frames in its blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use model::{Budget, Labels, Matcher, SourceError};
use roaring::RoaringBitmap;

use super::{Lookup, Term, combine, term, wants};
use crate::chunk::ChunkError;
use crate::error::StoreError;
use crate::head::series::{Part, frame_overlaps};
use crate::keys;
use crate::lsm::Lsm;
use crate::read::breather::Breather;
use crate::seal::block::{self, BlockEntry};
use crate::value;
use crate::window::{PARTITION_WINDOWS, window_of};

/// Ids in a page of the forward index; few in tests, so that there are several pages.
pub(crate) const PAGE_IDS: u32 = if cfg!(test) { 5 } else { 128 };
/// Reads of one partition in flight.
const READS_MAX: usize = 8;
/// A range is read whole once it is wanted by more than one part in so many.
const RANGE_SHARE: usize = 8;
/// Taking a block apart is so much work, in series.
const BLOCK_WORK: usize = 16;
/// Metrics from which their directories are read in one scan.
const METRICS_SCAN: usize = if cfg!(test) { 2 } else { 32 };

/// A partition and how many series are registered in it: ids count from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partition {
    /// Days since the epoch.
    pub(crate) number: i64,
    /// Registered series.
    pub(crate) series_count: u32,
}

/// What has been loaded of a partition.
pub(crate) struct Loaded {
    /// Series with their frames, the earlier write first.
    pub(crate) series: Vec<(Labels, Vec<Part>)>,
}

/// The ids of the series that pass every matcher.
pub(crate) async fn resolve(
    lsm: &Lsm,
    partition: Partition,
    matchers: &[Matcher],
    breather: &mut Breather,
) -> Result<RoaringBitmap, SourceError> {
    let mut terms = Vec::new();
    for matcher in matchers {
        let Some((term, lookup)) = term(matcher) else { continue };
        let ids = union(lsm, partition.number, matcher, term, lookup, breather).await?;
        if term == Term::Keep && ids.is_empty() {
            return Ok(RoaringBitmap::new());
        }
        terms.push((term, ids));
    }
    let all = || (0..partition.series_count).collect();
    let mut ids = combine(all, terms);
    // What a registration that did not finish has left behind has no series count yet.
    ids.remove_range(partition.series_count..);
    Ok(ids)
}

async fn union(
    lsm: &Lsm,
    partition: i64,
    matcher: &Matcher,
    term: Term,
    lookup: Lookup<'_>,
    breather: &mut Breather,
) -> Result<RoaringBitmap, SourceError> {
    let prefixes: Vec<Vec<u8>> = match lookup {
        Lookup::Values(values) => {
            let pair = |value| keys::postings_of_pair(partition, matcher.name(), value);
            values.into_iter().map(pair).collect()
        }
        Lookup::Prefix(prefix) => {
            vec![keys::postings_of_value_prefix(partition, matcher.name(), prefix)]
        }
    };
    let mut union = RoaringBitmap::new();
    for prefix in prefixes {
        let mut scan = lsm.scan_prefix(&prefix).await?;
        while let Some((key, bytes)) = scan.next().await? {
            breather.work(1).await?;
            let (_, value) = keys::parse_postings(&key)
                .ok_or_else(|| value::corrupt(&key, "malformed postings key"))?;
            if wants(matcher, term, &value) {
                union |= decode_postings(&key, &bytes)?;
            }
        }
    }
    Ok(union)
}

/// The value of a postings key.
pub(crate) fn encode_postings(key: &[u8], ids: &RoaringBitmap) -> Vec<u8> {
    let mut body = Vec::with_capacity(ids.serialized_size());
    ids.serialize_into(&mut body).expect("a vector takes every byte");
    value::encode(key, &body)
}

fn decode_postings(key: &[u8], bytes: &[u8]) -> Result<RoaringBitmap, StoreError> {
    let body = value::decode(key, bytes)?;
    RoaringBitmap::deserialize_from(body).map_err(|e| value::corrupt(key, e.to_string()))
}

/// The labels of some ids, ascending by id.
pub(crate) async fn labels_of(
    lsm: &Lsm,
    partition: Partition,
    ids: &RoaringBitmap,
    breather: &mut Breather,
) -> Result<Vec<(u32, Labels)>, SourceError> {
    let pages: BTreeSet<u32> = ids.iter().map(|id| id / PAGE_IDS).collect();
    let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return Ok(Vec::new()) };
    let mut found = Vec::with_capacity(ids.len() as usize);
    let mut keep = |page: u32, all: Vec<Labels>| {
        for (at, labels) in all.into_iter().enumerate() {
            let id = page * PAGE_IDS + at as u32;
            if ids.contains(id) {
                found.push((id, labels));
            }
        }
    };
    if pages.len() * RANGE_SHARE > (last - first) as usize {
        let start = keys::forward_page(partition.number, *first);
        let end = keys::forward_page(partition.number, last + 1);
        let mut scan = lsm.scan(&start, &end).await?;
        while let Some((key, bytes)) = scan.next().await? {
            breather.work(PAGE_IDS as usize).await?;
            let page = keys::parse_forward_page(&key)
                .ok_or_else(|| value::corrupt(&key, "malformed forward index key"))?;
            if pages.contains(&page) {
                keep(page, block::decode_page(&key, &bytes)?);
            }
        }
    } else {
        let read = |page: u32| async move {
            let key = keys::forward_page(partition.number, page);
            let bytes = lsm.get(&key).await?;
            let bytes = bytes.ok_or_else(|| value::corrupt(&key, "page is missing"))?;
            Ok::<_, StoreError>((page, block::decode_page(&key, &bytes)?))
        };
        let mut reads = stream::iter(pages.iter().copied()).map(read).buffered(READS_MAX);
        while let Some((page, all)) = reads.try_next().await? {
            breather.work(PAGE_IDS as usize).await?;
            keep(page, all);
        }
    }
    if found.len() as u64 != ids.len() {
        let key = keys::forward(partition.number);
        let detail =
            format!("{} of {} series are missing", ids.len() - found.len() as u64, ids.len());
        return Err(value::corrupt(&key, detail).into());
    }
    Ok(found)
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
    lsm: &Lsm,
    partition: Partition,
    matchers: &[Matcher],
    range: (i64, i64),
    charge: &mut (dyn FnMut(usize) -> Result<(), SourceError> + Send),
    budget: &Budget,
) -> Result<Loaded, SourceError> {
    let mut breather = Breather::new(budget);
    let ids = resolve(lsm, partition, matchers, &mut breather).await?;
    if ids.is_empty() {
        return Ok(Loaded { series: Vec::new() });
    }
    let labels = labels_of(lsm, partition, &ids, &mut breather).await?;
    charge(labels.iter().map(|(_, l)| l.as_bytes().len() + 64).sum())?;
    let mut metrics: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
    for (id, labels) in &labels {
        metrics.entry(keys::metric_hash(labels.metric_name())).or_default().insert(*id);
    }
    let windows = window_of(range.0)..=window_of(range.1);
    let runs = read_directories(lsm, partition.number, &metrics, &windows, range).await?;
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
async fn read_directories(
    lsm: &Lsm,
    partition: i64,
    metrics: &BTreeMap<u64, RoaringBitmap>,
    windows: &RangeInclusive<i64>,
    (start_ms, end_ms): (i64, i64),
) -> Result<Vec<(u64, Vec<WantedRun>)>, StoreError> {
    let prefixes: Vec<Vec<u8>> = if metrics.len() > METRICS_SCAN {
        vec![keys::directories(partition)]
    } else {
        metrics.keys().map(|m| keys::directories_of_metric(partition, *m)).collect()
    };
    let mut found: BTreeMap<u64, Vec<WantedRun>> = BTreeMap::new();
    for prefix in prefixes {
        let mut scan = lsm.scan_prefix(&prefix).await?;
        while let Some((key, bytes)) = scan.next().await? {
            let (metric, place, run) = keys::parse_directory(&key)
                .ok_or_else(|| value::corrupt(&key, "malformed directory key"))?;
            let window = partition.saturating_mul(PARTITION_WINDOWS) + i64::from(place);
            let Some(ids) = metrics.get(&metric).filter(|_| windows.contains(&window)) else {
                continue;
            };
            let is_wanted = |e: &BlockEntry| {
                e.min_ms <= end_ms
                    && e.max_ms >= start_ms
                    && ids.range_cardinality(e.first_id..=e.last_id) > 0
            };
            let entries = block::decode_directory(&key, &bytes)?;
            let entries = entries.into_iter().map(|e| (e, is_wanted(&e))).collect();
            found.entry(metric).or_default().push(WantedRun { window, run, entries });
        }
    }
    Ok(found.into_iter().collect())
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
pub(crate) async fn prune(
    lsm: &Lsm,
    mut partitions: Vec<Partition>,
    matchers: &[Matcher],
) -> Result<Vec<Partition>, StoreError> {
    for matcher in matchers {
        if partitions.len() < 2 {
            break;
        }
        let Some((Term::Keep, Lookup::Values(values))) = term(matcher) else { continue };
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
        partitions.retain(|p| holding.contains(&p.number));
    }
    Ok(partitions)
}
