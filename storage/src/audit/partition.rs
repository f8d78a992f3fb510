//! Survey and verification of one partition: its blocks, and its index against them.

use std::collections::{BTreeMap, HashMap};

use model::{Labels, TimeRange};
use roaring::RoaringBitmap;

use super::verify::{Damage, OnDamage};
use crate::block::{self, BlockEntry, DecodedBlock, page};
use crate::chunk::{Encoding, frames};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::index::decode_postings;
use crate::keys;
use crate::lsm::Lsm;
use crate::summary::codec::{StoredSummaries, SummaryBuilder};
use crate::window::PartitionId;

/// Depth of the survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Frame headers.
    Headers,
    /// The index as well, against the blocks.
    Everything { page_ids: u32 },
}

/// Frames of one encoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodingSurvey {
    /// Number of frames.
    pub frames: u64,
    /// Number of samples.
    pub samples: u64,
    /// Bytes of the frames, of which blocks store shared times once.
    pub bytes: u64,
}

/// Survey of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionSurvey {
    /// Its first ms since the epoch.
    pub start_ms: i64,
    /// Times of its samples, if it has any.
    pub times_ms: Option<TimeRange>,
    /// Number of registered series.
    pub series: u32,
    /// Number of registered series that cleaning has removed.
    pub series_gone: u64,
    /// Frames of its blocks, by the names of encodings.
    pub encodings: BTreeMap<&'static str, EncodingSurvey>,
    /// Number of listed blocks, and their bytes.
    pub blocks: u64,
    /// See `blocks`.
    pub block_bytes: u64,
    /// Number of listed blocks of which only summaries are left.
    pub blocks_summarized: u64,
    /// Blocks that no directory lists: left by an interrupted seal, or by cleaning for selections
    /// in progress.
    pub blocks_unlisted: u64,
    /// Runs of all metrics and windows: the samples that were sealed together.
    pub runs: u64,
    /// Runs of a metric and window that has an earlier run.
    pub runs_unmerged: u64,
    /// Number of SSTs.
    pub files: u64,
    /// Number of sorted runs and level 0 SSTs, each of which is read separately.
    pub file_runs: u64,
    /// Bytes of the SSTs.
    pub file_bytes: u64,
}

impl PartitionSurvey {
    /// Returns the number of samples of all encodings.
    pub fn samples(&self) -> u64 {
        self.encodings.values().map(|of| of.samples).sum()
    }
}

fn encoding_name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Gorilla => "gorilla",
        Encoding::GorillaStarts => "gorilla with starts",
        Encoding::Packed => "packed",
        Encoding::PackedStarts => "packed with starts",
        Encoding::Histograms => "histograms",
    }
}

/// Key of a run: metric, index of the window and epoch, as in the key of its directory.
type RunKey = (u64, u8, Epoch);

/// Reads a partition.
///
/// Errors: the LSM cannot be read.
pub(super) async fn walk(
    lsm: &Lsm,
    partition: PartitionId,
    series_count: u32,
    depth: Depth,
    on_damage: OnDamage<'_>,
) -> Result<PartitionSurvey, StoreError> {
    let mut survey = PartitionSurvey {
        start_ms: partition.start_ms(),
        series: series_count,
        ..PartitionSurvey::default()
    };
    let size = lsm.segment_size(&keys::partition(partition));
    (survey.files, survey.file_runs, survey.file_bytes) = (size.ssts, size.runs, size.bytes);
    let labels = match depth {
        Depth::Headers => Vec::new(),
        Depth::Everything { page_ids } => {
            forward(lsm, partition, series_count, page_ids, on_damage).await?
        }
    };
    let mut listed = directories(lsm, partition, &mut survey, on_damage).await?;
    blocks(lsm, partition, &labels, &mut listed, &mut survey, on_damage).await?;
    for ((metric, window, epoch), entries) in &mut listed {
        for entry in entries.values().filter(|entry| !entry.is_summarized()) {
            let key = keys::block(*metric, partition.window(*window), *epoch, entry.first_id);
            on_damage(Damage::in_lsm(&key, "the block is listed, but missing"));
        }
        entries.retain(|_, entry| entry.is_summarized());
        survey.blocks_summarized += entries.len() as u64;
        for entry in entries.values() {
            let times = TimeRange::new(entry.min_ms, entry.max_ms);
            survey.times_ms = Some(survey.times_ms.map_or(times, |all| all.join(times)));
        }
    }
    if matches!(depth, Depth::Everything { .. }) {
        postings(lsm, partition, series_count, &labels, on_damage).await?;
        summaries(lsm, partition, &mut listed, on_damage).await?;
    }
    Ok(survey)
}

/// Checks that summaries are those of the samples of their blocks, and that those without samples are
/// complete. Removes these from the listed ones.
async fn summaries(
    lsm: &Lsm,
    partition: PartitionId,
    listed: &mut Listed,
    on_damage: OnDamage<'_>,
) -> Result<(), StoreError> {
    let mut scan = lsm.scan_prefix(&keys::summaries_of_day(partition)).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let Some(window) = keys::window_of_summaries(&key) else { continue };
        let Some(block_key) = keys::block_of_summaries(&key) else { continue };
        let Ok(stored) = StoredSummaries::open(&key, &bytes, window) else { continue };
        if let Some(entry) = take_listed(listed, &block_key) {
            if let Err(detail) = check_summarized(&stored, &entry) {
                on_damage(Damage::in_lsm(&key, detail));
            }
            continue;
        }
        let Some(block) = lsm.get(&block_key).await? else {
            // Without a directory, they are left of an interrupted cleanup.
            let directory = keys::directory_of_block(&block_key).unwrap_or_default();
            if lsm.get(&directory).await?.is_some() {
                on_damage(Damage::in_lsm(&key, "the block of the summaries is missing"));
            }
            continue;
        };
        let Ok(decoded) = DecodedBlock::new(&block_key, &block) else { continue };
        let mut expected = SummaryBuilder::default();
        decoded.frames().for_each(|(id, frames)| expected.push(id, &frames));
        if let Some(id) = stored.first_difference(&expected) {
            let detail = format!("the summaries of series {id} are not those of its samples");
            on_damage(Damage::in_lsm(&key, detail));
        }
    }
    for ((metric, window, epoch), entries) in listed {
        for entry in entries.values() {
            let key = keys::summaries(*metric, partition.window(*window), *epoch, entry.first_id);
            on_damage(Damage::in_lsm(&key, "the summaries are listed, but missing"));
        }
    }
    Ok(())
}

/// Checks summaries without samples against their directory entry.
fn check_summarized(stored: &StoredSummaries<'_>, entry: &BlockEntry) -> Result<(), String> {
    let ids = (stored.ids().next(), stored.ids().last());
    if ids != (Some(entry.first_id), Some(entry.last_id)) {
        return Err(format!("series {} to {} are listed", entry.first_id, entry.last_id));
    }
    for (index, id) in stored.ids().enumerate() {
        if !stored.has(index) {
            return Err(format!("series {id} has neither samples nor summaries"));
        }
    }
    Ok(())
}

/// Blocks that directories list.
type Listed = BTreeMap<RunKey, BTreeMap<u32, BlockEntry>>;

/// Removes a block from the listed ones.
fn take_listed(listed: &mut Listed, key: &[u8]) -> Option<BlockEntry> {
    let run_key = keys::parse_directory(&keys::directory_of_block(key)?)?;
    let first_id = u32::from_be_bytes(*key.last_chunk::<4>()?);
    listed.get_mut(&run_key)?.remove(&first_id)
}

/// Returns the labels of all ids.
async fn forward(
    lsm: &Lsm,
    partition: PartitionId,
    series_count: u32,
    page_ids: u32,
    on_damage: OnDamage<'_>,
) -> Result<Vec<Labels>, StoreError> {
    let mut all = Vec::new();
    let mut scan = lsm.scan_prefix(&keys::forward(partition)).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let page = keys::parse_forward_page(&key).unwrap_or(u32::MAX);
        // Undecodable values were reported with their file.
        let labels = page::decode(&key, &bytes).unwrap_or_default();
        let first = page.saturating_mul(page_ids) as usize;
        if first != all.len() {
            on_damage(Damage::in_lsm(&key, format!("the page before ends at id {}", all.len())));
        }
        // Ids of a missing page have no labels; references to them are not reported.
        if all.len() < first && first < series_count as usize {
            all.resize(first, Labels::default());
        }
        all.extend(labels);
    }
    if all.len() < series_count as usize {
        let detail = format!("{series_count} series are registered, {} have labels", all.len());
        on_damage(Damage::in_lsm(&keys::partition_entry(partition), detail));
    }
    Ok(all)
}

/// Returns the blocks that directories list.
async fn directories(
    lsm: &Lsm,
    partition: PartitionId,
    survey: &mut PartitionSurvey,
    on_damage: OnDamage<'_>,
) -> Result<Listed, StoreError> {
    let mut listed = Listed::new();
    let mut before: Option<(u64, u8)> = None;
    let mut scan = lsm.scan_prefix(&keys::directories(partition)).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let Some(run_key @ (metric, window, _)) = keys::parse_directory(&key) else {
            on_damage(Damage::in_lsm(&key, "malformed key"));
            continue;
        };
        survey.runs += 1;
        survey.runs_unmerged += u64::from(before == Some((metric, window)));
        before = Some((metric, window));
        let Ok(entries) = block::decode_directory(&key, &bytes) else { continue };
        listed.insert(run_key, entries.into_iter().map(|entry| (entry.first_id, entry)).collect());
    }
    Ok(listed)
}

/// Reads the blocks, and removes them from the listed ones.
async fn blocks(
    lsm: &Lsm,
    partition: PartitionId,
    labels: &[Labels],
    listed: &mut Listed,
    survey: &mut PartitionSurvey,
    on_damage: OnDamage<'_>,
) -> Result<(), StoreError> {
    let mut scan = lsm.scan_prefix(&keys::blocks(partition)).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let directory = keys::directory_of_block(&key);
        let run_key = directory.as_deref().and_then(keys::parse_directory);
        let (Some(entry), Some((metric, window, _))) = (take_listed(listed, &key), run_key) else {
            survey.blocks_unlisted += 1;
            continue;
        };
        survey.blocks += 1;
        survey.block_bytes += bytes.len() as u64;
        if entry.bytes as usize != bytes.len() {
            let detail = format!("{} bytes are listed, {} found", entry.bytes, bytes.len());
            on_damage(Damage::in_lsm(&key, detail));
        }
        // Undecodable values were reported with their file.
        let Ok(decoded) = DecodedBlock::new(&key, &bytes) else { continue };
        if let Err(detail) = block(&decoded, entry, partition, window, survey) {
            on_damage(Damage::in_lsm(&key, detail));
        }
        if labels.is_empty() {
            continue;
        }
        for id in decoded.ids() {
            match labels.get(id as usize) {
                // Its missing page was reported.
                None if id < survey.series => {}
                None => {
                    let detail = format!("series {id} is not registered");
                    on_damage(Damage::in_lsm(&key, detail));
                }
                Some(labels) if labels.is_empty() => {}
                Some(labels) if keys::metric_hash(labels.metric_name()) != metric => {
                    let detail = format!("series {id}, {labels}, is of another metric");
                    on_damage(Damage::in_lsm(&key, detail));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// Counts a block, and checks it against its directory entry.
fn block(
    decoded: &DecodedBlock,
    entry: BlockEntry,
    partition: PartitionId,
    window: u8,
    survey: &mut PartitionSurvey,
) -> Result<(), String> {
    let ids = (decoded.ids().next(), decoded.ids().last());
    if ids != (Some(entry.first_id), Some(entry.last_id)) {
        return Err(format!("series {} to {} are listed", entry.first_id, entry.last_id));
    }
    let window = partition.window(window);
    let mut times: Option<TimeRange> = None;
    for (id, of_series) in decoded.frames() {
        for frame in frames(&of_series) {
            let Ok((_, header)) = frame else { continue };
            let of = survey.encodings.entry(encoding_name(header.encoding)).or_default();
            of.frames += 1;
            of.samples += u64::from(header.count);
            of.bytes += header.frame_len() as u64;
            let of_frame = TimeRange::new(header.min_ms, header.max_ms);
            times = Some(times.map_or(of_frame, |times| times.join(of_frame)));
            if header.min_ms < window.start_ms() || header.max_ms >= window.end_ms() {
                return Err(format!("series {id} has samples outside of the window"));
            }
        }
    }
    let Some(times) = times else { return Ok(()) };
    survey.times_ms = Some(survey.times_ms.map_or(times, |all| all.join(times)));
    if times != TimeRange::new(entry.min_ms, entry.max_ms) {
        return Err(format!(
            "times {} to {} are listed, {} to {} found",
            entry.min_ms, entry.max_ms, times.start_ms, times.end_ms
        ));
    }
    Ok(())
}

/// Checks that the postings match the labels of every series, and that the dictionary has each
/// label pair.
async fn postings(
    lsm: &Lsm,
    partition: PartitionId,
    series_count: u32,
    labels: &[Labels],
    on_damage: OnDamage<'_>,
) -> Result<(), StoreError> {
    let mut filed: HashMap<u32, usize> = HashMap::new();
    let mut pair_before = None;
    let mut of_pair = RoaringBitmap::new();
    let mut scan = lsm.scan_prefix(&keys::postings(partition)).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let Some((name, value)) = keys::parse_postings(&key) else { continue };
        let Ok(ids) = decode_postings(&key, &bytes) else { continue };
        let pair = Some((name, value));
        if pair != pair_before {
            of_pair.clear();
            if let Some((name, value)) = &pair {
                let entry = keys::dictionary_entry(name, value, partition);
                if lsm.get(&entry).await?.is_none() {
                    let detail = "the dictionary lacks the partition for this label pair";
                    on_damage(Damage::in_lsm(&entry, detail));
                }
            }
            pair_before = pair;
        }
        let Some((name, value)) = &pair_before else { continue };
        for id in &ids {
            let of = labels.get(id as usize);
            // Its missing page was reported.
            if of.map_or(id < series_count, Labels::is_empty) {
                continue;
            }
            if of.is_none_or(|labels| labels.get(name) != value) || !of_pair.insert(id) {
                let detail = format!("series {id} is in the postings of another label pair");
                on_damage(Damage::in_lsm(&key, detail));
                continue;
            }
            *filed.entry(id).or_default() += 1;
        }
    }
    for (id, labels) in labels.iter().enumerate().filter(|(_, labels)| !labels.is_empty()) {
        let found = filed.get(&(id as u32)).copied().unwrap_or(0);
        if found != labels.len() {
            let key = keys::postings(partition);
            let detail = format!(
                "series {id}, {labels}, has {} labels, but postings under {found}",
                labels.len()
            );
            on_damage(Damage::in_lsm(&key, detail));
        }
    }
    Ok(())
}
