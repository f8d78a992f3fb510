//! Damaged values of every kind: an error names the key; no panic, no silent loss.

use std::collections::BTreeSet;

use model::{Batch, MatchOp, Matcher, SourceError};

use super::harness::{
    self, batch, histogram, histogram_batch, labels, open, open_with, read, read_full,
};
use crate::audit::{Damage, verify_at};
use crate::chunk::CHUNK_PADDING_BYTES;
use crate::epoch::Epoch;
use crate::lsm::{Location, WriteSet};
use crate::window::{PartitionId, WINDOW_MS, Window};
use crate::{Store, StoreError, StoreOptions, block, keys};

/// Opens a filled store without caches of index and samples.
async fn filled() -> (std::sync::Arc<dyn slatedb::object_store::ObjectStore>, Store) {
    let options = harness::options();
    filled_with(StoreOptions { index_cache_bytes_max: 0, columns_bytes_max: 0, ..options }).await
}

async fn filled_with(
    options: StoreOptions,
) -> (std::sync::Arc<dyn slatedb::object_store::ObjectStore>, Store) {
    let objects = harness::memory();
    let store = open_with(&objects, options).await.unwrap();
    for number in 0..8 {
        let labels = labels(&[("__name__", "m"), ("n", &number.to_string())]);
        // Uneven times, which the series share.
        let samples: Vec<_> = (0..50).map(|t| (t * 1000 + t * t * 37 % 199, t as f64)).collect();
        let mut batch = batch(&labels, &samples);
        match number {
            6 => batch.starts = vec![7; 50],
            7 => {
                let histogram = |t: u32| harness::at(50_000 + i64::from(t), histogram(&[t; 9]));
                batch.push_histograms(&(0..25).map(histogram).collect::<Vec<_>>());
            }
            _ => {}
        }
        store.append(batch).await.unwrap();
    }
    (objects, store)
}

/// Kind of the keys of summaries, which are not read here.
const SUMMARIES: u8 = b'a';

/// Reads through postings, forward index, directories and blocks.
async fn read_through(store: &Store) -> Result<usize, SourceError> {
    let all = |name| Matcher::new(MatchOp::Regex, name, ".+").unwrap();
    let contents = read_full(store, vec![all("__name__"), all("n")], 0, i64::MAX).await?;
    Ok(contents.iter().map(|(_, samples)| samples.len()).sum())
}

pub(super) async fn entries(store: &Store, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut scan = store.core().lsm.scan_prefix(prefix).await.unwrap();
    let mut entries = Vec::new();
    while let Some((key, value)) = scan.next().await.unwrap() {
        entries.push((key.to_vec(), value.to_vec()));
    }
    entries
}

pub(super) async fn put(store: &Store, key: &[u8], value: Vec<u8>) {
    let mut set = WriteSet::default();
    set.put(key.to_vec(), value);
    store.core().lsm.commit(set).await.unwrap();
}

/// Returns the value with one bit flipped, and cut short, at several offsets.
pub(super) fn damages(key: &[u8], value: &[u8]) -> Vec<Vec<u8>> {
    let is_block = key.get(9) == Some(&b'b');
    let len = value.len() - if is_block { CHUNK_PADDING_BYTES } else { 0 };
    let mut damaged = Vec::new();
    for bit in (0..len * 8).step_by((len * 8 / 40).max(1)) {
        let mut value = value.to_vec();
        value[bit / 8] ^= 1 << (bit % 8);
        damaged.push(value);
    }
    for cut in [0, 1, len / 2, len.saturating_sub(1)] {
        damaged.push(value[..cut].to_vec());
    }
    damaged
}

#[test]
fn damage_in_a_partition_is_an_error_that_names_the_key() {
    harness::run(async {
        let (_, store) = filled().await;
        store.seal_all().await.unwrap();
        assert_eq!(read_through(&store).await.unwrap(), 425);
        let (mut kinds, mut shared_count) = (BTreeSet::new(), 0);
        for (key, value) in entries(&store, &keys::partition(PartitionId::new(0))).await {
            if key[9] == SUMMARIES {
                continue;
            }
            kinds.insert(key[9]);
            if key[9] == b'b' {
                let block = block::DecodedBlock::new(&key, &value.clone().into()).unwrap();
                shared_count += usize::from(block.len() > value.len());
            }
            for damaged in damages(&key, &value) {
                put(&store, &key, damaged.clone()).await;
                match read_through(&store).await {
                    Err(SourceError::Corrupt { location, .. }) => {
                        let name = keys::printable(&key);
                        assert!(location.contains(&name), "{location} does not name {name}");
                    }
                    other => panic!("{} {damaged:?}: {other:?}", keys::printable(&key)),
                }
            }
            put(&store, &key, value).await;
        }
        assert_eq!(kinds, BTreeSet::from([b'b', b'c', b'f', b'i']));
        assert_eq!(shared_count, 2, "blocks of series that share times");
        assert_eq!(read_through(&store).await.unwrap(), 425);
    });
}

#[test]
fn a_damaged_index_is_not_cached() {
    harness::run(async {
        let (_, store) = filled_with(harness::options()).await;
        store.seal_all().await.unwrap();
        let mut kinds = BTreeSet::new();
        for (key, value) in entries(&store, &keys::partition(PartitionId::new(0))).await {
            if [b'b', SUMMARIES].contains(&key[9]) {
                continue;
            }
            kinds.insert(key[9]);
            store.core().index.remove(PartitionId::new(0));
            for damaged in damages(&key, &value).into_iter().step_by(11) {
                put(&store, &key, damaged).await;
                match read_through(&store).await {
                    Err(SourceError::Corrupt { location, .. }) => {
                        assert!(location.contains(&keys::printable(&key)), "{location}");
                    }
                    other => panic!("{}: {other:?}", keys::printable(&key)),
                }
            }
            put(&store, &key, value.clone()).await;
            assert_eq!(read_through(&store).await.unwrap(), 425);
            // Cached values are not read again.
            put(&store, &key, vec![0]).await;
            assert_eq!(read_through(&store).await.unwrap(), 425);
            put(&store, &key, value).await;
        }
        assert_eq!(kinds, BTreeSet::from([b'c', b'f', b'i']));
    });
}

#[test]
fn a_damaged_block_is_not_cached() {
    harness::run(async {
        let is_block = |(key, _): &(Vec<u8>, Vec<u8>)| key[9] == b'b';
        for number in 0..3 {
            for damage in (0..40).step_by(7) {
                let (_, store) = filled_with(harness::options()).await;
                store.seal_all().await.unwrap();
                let entries = entries(&store, &keys::partition(PartitionId::new(0))).await;
                let (key, value) = entries.into_iter().filter(is_block).nth(number).unwrap();
                put(&store, &key, damages(&key, &value)[damage].clone()).await;
                match read_through(&store).await {
                    Err(SourceError::Corrupt { location, .. }) => {
                        assert!(location.contains(&keys::printable(&key)), "{location}");
                    }
                    other => panic!("{}: {other:?}", keys::printable(&key)),
                }
                put(&store, &key, value).await;
                assert_eq!(read_through(&store).await.unwrap(), 425);
                let misses = store.stats().columns_misses;
                assert_eq!(misses, 7, "floats are cached, each once");
                assert_eq!(read_through(&store).await.unwrap(), 425);
                assert_eq!(store.stats().columns_misses, misses);
            }
        }
    });
}

#[test]
fn missing_blocks_and_pages_are_errors() {
    harness::run(async {
        let (_, store) = filled().await;
        store.seal_all().await.unwrap();
        for (key, value) in entries(&store, &keys::partition(PartitionId::new(0))).await {
            if key[9] == b'b' || key[9] == b'f' {
                let mut set = WriteSet::default();
                set.delete(&key);
                store.core().lsm.commit(set).await.unwrap();
                let result = read_through(&store).await;
                assert!(matches!(result, Err(SourceError::Corrupt { .. })), "{result:?}");
                put(&store, &key, value).await;
            }
        }
    });
}

#[test]
fn a_damaged_page_of_labels_is_reported_once() {
    harness::run(async {
        for page in 0..2 {
            let (objects, store) = filled().await;
            store.seal_all().await.unwrap();
            let pages = entries(&store, &keys::forward(PartitionId::new(0))).await;
            assert_eq!(pages.len(), 2, "the series fill more than a page");
            put(&store, &pages[page].0, b"no page".to_vec()).await;
            store.close().await.unwrap();
            let mut damages = Vec::new();
            let mut note = |damage: Damage| damages.push(damage.detail);
            let location = Location::on(objects);
            verify_at(&location, &harness::options(), &mut |_, _| {}, &mut note).await.unwrap();
            // The damaged page, and the ids next to it; not every series of the day.
            assert!((1..=2).contains(&damages.len()), "{damages:#?}");
        }
    });
}

#[test]
fn damage_in_log_and_meta_values_keeps_the_store_closed() {
    harness::run(async {
        let (objects, store) = filled().await;
        store.seal_all().await.unwrap();
        store.append(batch(&labels(&[("a", "b")]), &[(7, 7.0)])).await.unwrap();
        let samples = [harness::at(7, histogram(&[1, 2, 3]))];
        store.append(histogram_batch(&labels(&[("a", "c")]), &samples)).await.unwrap();
        // The first epoch is sealed: its records are not read again.
        let mut all = entries(&store, &keys::log_epoch(Epoch::new(1))).await;
        all.extend(entries(&store, b"m").await);
        let kinds: BTreeSet<&[u8]> = all.iter().map(|(key, _)| &key[..2]).collect();
        assert!(kinds.len() >= 4, "{kinds:?}");
        let mut last = store;
        for (key, value) in all {
            for damaged in damages(&key, &value).into_iter().step_by(7) {
                put(&last, &key, damaged).await;
                match open(&objects).await {
                    Err(StoreError::Corrupt { location, .. }) => {
                        assert!(location.contains(&keys::printable(&key)), "{location}");
                    }
                    other => panic!("{}: {other:?}", keys::printable(&key)),
                }
                last = reopened(&objects, &key, &value).await;
            }
        }
        assert_eq!(read_through(&last).await.unwrap(), 425);
    });
}

/// Fixes a value of a store that cannot be opened, and opens the store.
pub(super) async fn reopened(
    objects: &std::sync::Arc<dyn slatedb::object_store::ObjectStore>,
    key: &[u8],
    value: &[u8],
) -> Store {
    let location = crate::lsm::Location::on(std::sync::Arc::clone(objects));
    let lsm = crate::lsm::Lsm::open(&location, &harness::options()).await.unwrap();
    let mut set = WriteSet::default();
    set.put(key.to_vec(), value.to_vec());
    lsm.commit(set).await.unwrap();
    drop(lsm);
    open(objects).await.unwrap()
}

#[test]
fn damage_in_the_frames_of_a_block_names_the_series() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let series = labels(&[("__name__", "m"), ("n", "1")]);
        let samples: Vec<_> = (0..200).map(|t| (t * 1000, t as f64)).collect();
        let mut all = batch(&series, &samples);
        all.starts = vec![3; 150];
        let late = |t: u32| harness::at(i64::from(t) * 1000, histogram(&[t, 3 * t]));
        all.push_histograms(&(200..300).map(late).collect::<Vec<_>>());
        store.append(all).await.unwrap();
        store.seal_all().await.unwrap();
        let all = || vec![Matcher::new(MatchOp::Regex, "__name__", ".+").unwrap()];
        for (key, value) in entries(&store, &keys::partition(PartitionId::new(0))).await {
            if key[9] != b'b' {
                continue;
            }
            let header_len = u32::from_le_bytes(value[4..8].try_into().unwrap()) as usize;
            for at in 8 + header_len..value.len() - CHUNK_PADDING_BYTES {
                let mut damaged = value.clone();
                damaged[at] ^= 0x80;
                put(&store, &key, damaged).await;
                // The second range needs only the last frame. Damaged headers of the others must
                // not decide that they are skipped.
                for start_ms in [0, 290_000] {
                    match read_full(&store, all(), start_ms, i64::MAX).await {
                        Err(SourceError::Corrupt { series: named, .. }) => {
                            assert_eq!(named, series.to_string());
                        }
                        other => panic!("byte {at} from {start_ms}: {other:?}"),
                    }
                }
            }
        }
    });
}

#[test]
fn blocks_of_a_failed_window_are_deleted_while_others_are_sealed() {
    const BLOCKS: usize = 3;
    const SAMPLES: i64 = 200;
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        let series_count = BLOCKS * store.core().options.sizes.block_series_max;
        let series = |number: usize| labels(&[("__name__", "a"), ("n", &number.to_string())]);
        for window in 0..2 {
            let samples = (0..SAMPLES).map(|n| (window * WINDOW_MS + n * 1000, n as f64));
            let samples: Vec<_> = samples.collect();
            let mut all = Batch::default();
            (0..series_count).for_each(|number| all.push(&series(number), &samples));
            store.append(all).await.unwrap();
        }
        store.core().head.for_each(|_, held| {
            if held.labels == series(series_count - 1) {
                held.damage(Window::new(0));
            }
        });
        let store = &store;
        let count = |prefix: Vec<u8>| async move { entries(store, &prefix).await.len() };
        for _ in 0..2 {
            let error = store.seal_all().await.unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
            // Each block is a write of its own here, and the last one has failed.
            assert_eq!(count(keys::blocks(PartitionId::new(0))).await, BLOCKS + BLOCKS - 1);
            assert!(count(keys::INTENTS_PREFIX.to_vec()).await >= BLOCKS - 1);
        }
        crate::seal::tidy(store.core()).await.unwrap();
        assert_eq!(
            count(keys::blocks(PartitionId::new(0))).await,
            BLOCKS,
            "blocks of the other window"
        );
        assert_eq!(count(keys::INTENTS_PREFIX.to_vec()).await, 0);
        let found = read(store, vec![], WINDOW_MS, 2 * WINDOW_MS - 1).await.unwrap();
        assert_eq!(found.len(), series_count);
        assert!(found.iter().all(|(_, samples)| samples.len() == SAMPLES as usize));
    });
}
