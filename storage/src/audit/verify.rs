//! Verification of everything in a store.

use super::partition::{self, Depth};
use super::{OnProgress, Opened, objects};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::log::record::LogRecord;
use crate::lsm::{Location, Lsm, Objects};
use crate::meta::{self, Meta};
use crate::options::StoreOptions;

/// Damage, and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// File and location in it; `None` if the damage is between keys.
    pub object: Option<String>,
    /// Key.
    pub key: Option<String>,
    /// Expected and found data.
    pub detail: String,
}

/// Callback for each damage.
pub(super) type OnDamage<'a> = &'a mut (dyn FnMut(Damage) + Send);

/// Amount of verified data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of files.
    pub objects: u64,
    /// Number of keys in them, tombstones included; a key may be in several files.
    pub entries: u64,
    /// Bytes of keys and values.
    pub entry_bytes: u64,
    /// Number of series of all partitions.
    pub series: u64,
    /// Number of samples in listed blocks.
    pub samples: u64,
    /// Number of log records that count.
    pub log_records: u64,
    /// Number of damages.
    pub damages: u64,
}

impl Damage {
    pub(super) fn of_object(object: &str, error: &StoreError) -> Damage {
        Damage { object: Some(object.to_owned()), key: None, detail: error.to_string() }
    }

    pub(super) fn of_key(object: &str, key: &[u8], error: &StoreError) -> Damage {
        let detail = match error {
            StoreError::Corrupt { detail, .. } => detail.clone(),
            error => error.to_string(),
        };
        let key = Some(keys::printable(key));
        Damage { object: Some(object.to_owned()), key, detail }
    }

    /// Creates damage between keys of the LSM.
    pub(super) fn in_lsm(key: &[u8], detail: impl Into<String>) -> Damage {
        Damage { object: None, key: Some(keys::printable(key)), detail: detail.into() }
    }

    /// Creates damage from an error of reading the LSM.
    pub(super) fn of_error(error: &StoreError) -> Damage {
        match error {
            StoreError::Corrupt { location, detail } => {
                Damage { object: None, key: Some(location.clone()), detail: detail.clone() }
            }
            error => Damage { object: None, key: None, detail: error.to_string() },
        }
    }
}

/// Verifies the store at a URL to the last byte, and reports each damage.
///
/// Errors: there is no store, or its object store does not answer.
pub async fn verify(
    url: &str,
    options: &StoreOptions,
    on_progress: OnProgress<'_>,
    on_damage: &mut (dyn FnMut(Damage) + Send),
) -> Result<Verified, StoreError> {
    let location = Location::find(url, &options.remote)?;
    location.check_readable().await?;
    verify_at(&location, options, on_progress, on_damage).await
}

pub(crate) async fn verify_at(
    location: &Location,
    options: &StoreOptions,
    on_progress: OnProgress<'_>,
    on_damage: &mut (dyn FnMut(Damage) + Send),
) -> Result<Verified, StoreError> {
    let mut verified = Verified::default();
    let mut damages = 0;
    let mut count = |damage: Damage| {
        damages += 1;
        on_damage(damage);
    };
    match Opened::open(location, options).await {
        Ok(mut opened) => {
            let files = opened.lsm.objects();
            let keeper = Some(&mut opened);
            let total =
                objects::verify(&files, keeper, &mut verified, on_progress, &mut count).await;
            verify_lsm(&mut opened, total, &mut verified, on_progress, &mut count).await;
            opened.close().await;
        }
        Err(error @ StoreError::Corrupt { .. }) => {
            // The files may be undamaged.
            count(Damage::of_object("the manifest, or the write-ahead log", &error));
            if let Ok(files) = Objects::at(location).await {
                objects::verify(&files, None, &mut verified, on_progress, &mut count).await;
            }
        }
        Err(error @ StoreError::Leftovers(_)) => count(Damage::of_object("manifest/", &error)),
        Err(error) => return Err(error),
    }
    verified.damages = damages;
    Ok(verified)
}

/// Verifies the contents of the LSM against each other.
async fn verify_lsm(
    opened: &mut Opened,
    total: u64,
    verified: &mut Verified,
    on_progress: OnProgress<'_>,
    on_damage: OnDamage<'_>,
) {
    let mut done = total;
    let meta = match meta::read_meta(&opened.lsm).await {
        Ok(meta) => meta,
        Err(error) => return on_damage(Damage::of_error(&error)),
    };
    for (number, series_count) in &meta.partitions {
        let (lsm, count) = (&opened.lsm, *series_count);
        let depth = Depth::Everything { page_ids: opened.page_ids };
        match partition::walk(lsm, *number, count, depth, on_damage).await {
            Ok(found) => {
                done += found.file_bytes;
                on_progress(done.min(2 * total), 2 * total);
                verified.series += u64::from(*series_count);
                verified.samples += found.samples();
            }
            Err(error) => on_damage(Damage::of_error(&error)),
        }
        opened.keep().await;
    }
    if let Err(error) = log(&opened.lsm, &meta, verified, on_damage).await {
        on_damage(Damage::of_error(&error));
    }
}

/// Checks that records have consecutive numbers, that all records of the last start exist, and that
/// they refer to defined series.
async fn log(
    lsm: &Lsm,
    meta: &Meta,
    verified: &mut Verified,
    on_damage: OnDamage<'_>,
) -> Result<(), StoreError> {
    let mut scan = lsm.scan(&keys::log_epoch(meta.first_epoch), keys::LOG_END).await?;
    let mut expected = (Epoch::FIRST, 0, 0);
    let mut missing = meta.known_records();
    while let Some((key, bytes)) = scan.next().await? {
        let Some((epoch, sequence)) = keys::parse_log(&key) else {
            on_damage(Damage::in_lsm(&key, "malformed key"));
            continue;
        };
        if epoch != expected.0 {
            expected = (epoch, 0, 0);
        }
        if sequence != expected.1 {
            let detail = format!("record {} of the epoch is missing", expected.1);
            on_damage(Damage::in_lsm(&key, detail));
        }
        expected.1 = sequence + 1;
        missing.retain(|(of, count)| *of != epoch || expected.1 < *count);
        // Undecodable values were reported with their file.
        let Ok(columns) = LogRecord::decode(&bytes, None) else { continue };
        verified.log_records += 1;
        if columns.first_ref != expected.2 {
            let detail = format!("series {} is to be defined next", expected.2);
            on_damage(Damage::in_lsm(&key, detail));
        }
        expected.2 = columns.first_ref.saturating_add(columns.definitions.len() as u32);
        if columns.runs.iter().any(|run| run.reference >= expected.2) {
            on_damage(Damage::in_lsm(&key, "samples of an undefined series"));
        }
    }
    for (epoch, count) in missing {
        let last = keys::log(epoch, count.saturating_sub(1));
        on_damage(Damage::in_lsm(&last, format!("{count} records of the epoch were there")));
    }
    Ok(())
}
