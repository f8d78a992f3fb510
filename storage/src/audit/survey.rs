//! Survey of the contents of a store.

use std::collections::BTreeMap;

use model::TimeRange;

use super::partition::{self, Depth, PartitionSurvey};
use super::verify::Damage;
use super::{OnProgress, Opened};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::log::record::LogRecord;
use crate::lsm::{Location, Lsm};
use crate::meta::{self, Meta};
use crate::options::StoreOptions;
use crate::window::Window;

/// Contents of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreSurvey {
    /// Version of the format.
    pub format: u32,
    /// Process that writes to it, or crashed while it did.
    pub owner: Option<String>,
    /// Partitions, the earliest first.
    pub partitions: Vec<PartitionSurvey>,
    /// Unsealed records.
    pub log: LogSurvey,
    /// Deletes, the earliest first.
    pub tombstones: Vec<TombstoneSurvey>,
    /// Number of commits with exemplars.
    pub exemplar_entries: u64,
    /// Number of metrics with metadata.
    pub metrics_described: u64,
    /// Names of the notes of tools.
    pub notes: Vec<String>,
    /// Number of SSTs, without the WAL, and their bytes.
    pub files: u64,
    /// See `files`.
    pub file_bytes: u64,
    /// Number of damages that were skipped; a verification names them.
    pub damages: u64,
}

/// Records that the next start replays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogSurvey {
    /// First epoch whose records count, and the next one to be assigned.
    pub first_epoch: u32,
    /// See `first_epoch`.
    pub next_epoch: u32,
    /// Number of records.
    pub records: u64,
    /// Bytes of the records.
    pub bytes: u64,
    /// Number of samples that are not sealed.
    pub samples: u64,
    /// Number of series.
    pub series: u64,
    /// Times of the unsealed samples, if there are any.
    pub times_ms: Option<TimeRange>,
}

/// A delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TombstoneSurvey {
    /// Last log epoch that it covers.
    pub epoch: u32,
    /// First deleted time.
    pub start_ms: i64,
    /// Last deleted time.
    pub end_ms: i64,
    /// Selectors of the series, in PromQL.
    pub selectors: Vec<String>,
    /// Set if the samples have been removed from the blocks.
    pub is_cleaned: bool,
}

/// Surveys the store at a URL.
///
/// Errors: there is no store, it cannot be read, or its metadata is damaged.
pub async fn survey(
    url: &str,
    options: &StoreOptions,
    on_progress: OnProgress<'_>,
) -> Result<StoreSurvey, StoreError> {
    let location = Location::find(url, &options.remote)?;
    location.check_readable().await?;
    survey_at(&location, options, on_progress).await
}

pub(crate) async fn survey_at(
    location: &Location,
    options: &StoreOptions,
    on_progress: OnProgress<'_>,
) -> Result<StoreSurvey, StoreError> {
    let mut opened = Opened::open(location, options).await?;
    let found = survey_lsm(&mut opened, on_progress).await;
    opened.close().await;
    found
}

async fn survey_lsm(
    opened: &mut Opened,
    on_progress: OnProgress<'_>,
) -> Result<StoreSurvey, StoreError> {
    let lsm = opened.lsm.clone();
    let meta = meta::read_meta(&lsm).await?;
    let size = lsm.segment_size(&[]);
    let mut survey = StoreSurvey {
        format: meta.format,
        owner: meta.owner.clone(),
        files: size.ssts,
        file_bytes: size.bytes,
        ..StoreSurvey::default()
    };
    let mut damages = 0;
    let mut count = |_: Damage| damages += 1;
    let mut done = 0;
    for (number, series_count) in &meta.partitions {
        let mut found =
            partition::walk(&lsm, *number, *series_count, Depth::Headers, &mut count).await?;
        found.series_gone = meta.deleted_ids.get(number).map_or(0, roaring::RoaringBitmap::len);
        done += found.file_bytes;
        on_progress(done, size.bytes);
        survey.partitions.push(found);
        opened.keep().await;
    }
    survey.log = log(&lsm, &meta, &mut count).await?;
    survey.damages = damages;
    survey.tombstones = meta
        .tombstones
        .iter()
        .map(|tombstone| TombstoneSurvey {
            epoch: tombstone.epoch.number(),
            start_ms: tombstone.start_ms,
            end_ms: tombstone.end_ms,
            selectors: tombstone.selectors.iter().map(|matchers| selector(matchers)).collect(),
            is_cleaned: tombstone.is_cleaned,
        })
        .collect();
    survey.exemplar_entries = count_keys(&lsm, keys::EXEMPLARS_PREFIX).await?;
    survey.metrics_described = count_keys(&lsm, keys::METADATA_PREFIX).await?;
    let mut scan = lsm.scan_prefix(keys::NOTES_PREFIX).await?;
    while let Some((key, _)) = scan.next().await? {
        survey.notes.extend(keys::parse_note(&key));
    }
    Ok(survey)
}

fn selector(matchers: &[model::Matcher]) -> String {
    let matchers: Vec<String> = matchers.iter().map(ToString::to_string).collect();
    format!("{{{}}}", matchers.join(", "))
}

async fn count_keys(lsm: &Lsm, prefix: &[u8]) -> Result<u64, StoreError> {
    let mut count = 0;
    let mut scan = lsm.scan_prefix(prefix).await?;
    while scan.next().await?.is_some() {
        count += 1;
    }
    Ok(count)
}

async fn log(
    lsm: &Lsm,
    meta: &Meta,
    on_damage: &mut (dyn FnMut(Damage) + Send),
) -> Result<LogSurvey, StoreError> {
    let mut survey = LogSurvey {
        first_epoch: meta.first_epoch.number(),
        next_epoch: meta.next_epoch.number(),
        ..LogSurvey::default()
    };
    let mut series: BTreeMap<Epoch, u64> = BTreeMap::new();
    let mut scan = lsm.scan(&keys::log_epoch(meta.first_epoch), keys::LOG_END).await?;
    while let Some((key, bytes)) = scan.next().await? {
        let (Some((epoch, _)), Ok(columns)) =
            (keys::parse_log(&key), LogRecord::decode(&bytes, None))
        else {
            on_damage(Damage::in_lsm(&key, "the record cannot be decoded"));
            continue;
        };
        survey.records += 1;
        survey.bytes += bytes.len() as u64;
        survey.next_epoch = survey.next_epoch.max(epoch.next().number());
        *series.entry(epoch).or_default() += columns.definitions.len() as u64;
        let is_open = |time_ms: &i64| {
            meta.watermarks.get(&Window::of(*time_ms)).is_none_or(|sealed| *sealed < epoch)
        };
        let of_histograms = columns.histograms.iter().map(|decided| decided.sample.timestamp_ms);
        for time_ms in columns.timestamps.iter().copied().chain(of_histograms).filter(is_open) {
            survey.samples += 1;
            let time = TimeRange::new(time_ms, time_ms);
            survey.times_ms = Some(survey.times_ms.map_or(time, |times| times.join(time)));
        }
    }
    // Each epoch defines its series again.
    survey.series = series.values().copied().max().unwrap_or(0);
    Ok(survey)
}
