//! Stores opened with sizes other than those they were written with.

use std::sync::Arc;

use model::{Batch, Labels, Matcher};
use slatedb::object_store::ObjectStore;

use super::harness::{self, labels, open_with, read};
use crate::keys;
use crate::sizes::Sizes;
use crate::window::{PARTITION_MS, PartitionId};
use crate::{Store, StoreOptions};

/// Series of a round: more than a small block and page hold, fewer than default ones.
const SERIES: usize = 12;

fn series(round: usize, number: usize) -> Labels {
    labels(&[("__name__", "a"), ("round", &round.to_string()), ("n", &format!("{number:02}"))])
}

/// Returns the default sizes, except for the pages of the forward index.
fn shipped_but_pages() -> Sizes {
    Sizes { page_ids: Sizes::small().page_ids, ..Sizes::default() }
}

async fn open_sized(objects: &Arc<dyn ObjectStore>, sizes: Sizes) -> Store {
    open_with(objects, StoreOptions { sizes, ..harness::options() }).await.unwrap()
}

/// Adds the series of a round to the first day, and a sample to all series of earlier rounds.
async fn write_round(store: &Store, round: usize) {
    let mut all = Batch::default();
    for earlier in 0..=round {
        for number in 0..SERIES {
            all.push(&series(earlier, number), &[(round as i64 * 1000, number as f64)]);
        }
    }
    store.append(all).await.unwrap();
    store.seal_all().await.unwrap();
}

/// Returns the number of blocks of the first day.
async fn block_count(store: &Store) -> usize {
    let mut scan = store.core().lsm.scan_prefix(&keys::blocks(PartitionId::new(0))).await.unwrap();
    let mut count = 0;
    while scan.next().await.unwrap().is_some() {
        count += 1;
    }
    count
}

/// Compares all samples of all rounds, without those of deleted series.
async fn check(store: &Store, rounds: usize, deleted: &[Labels]) {
    let found = read(store, vec![], 0, PARTITION_MS - 1).await.unwrap();
    let mut expected = Vec::new();
    for first in 0..rounds {
        for number in 0..SERIES {
            let samples = (first..rounds).map(|round| {
                let bits = (number as f64).to_bits();
                (round as i64 * 1000, bits)
            });
            expected.push((series(first, number), samples.collect::<Vec<_>>()));
        }
    }
    expected.retain(|(labels, _)| !deleted.contains(labels));
    expected.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, expected);
}

#[test]
fn a_store_opens_with_other_sizes_than_it_was_written_with() {
    harness::run(async {
        let (small, shipped) = (Sizes::small(), shipped_but_pages());
        for order in [[small, shipped, small], [shipped, small, shipped]] {
            let objects = harness::memory();
            for (round, sizes) in order.into_iter().enumerate() {
                let store = open_sized(&objects, sizes).await;
                check(&store, round, &[]).await;
                let before = block_count(&store).await;
                write_round(&store, round).await;
                let added = block_count(&store).await - before;
                assert_eq!(added, ((round + 1) * SERIES).div_ceil(sizes.block_series_max));
                check(&store, round + 1, &[]).await;
                store.close().await.unwrap();
            }
            // Cleaning rewrites the runs as blocks of the current size.
            for sizes in order {
                let store = open_sized(&objects, sizes).await;
                let deleted = series(0, 0);
                let selector = vec![Matcher::equal("round", "0"), Matcher::equal("n", "00")];
                store.delete(vec![selector], 0, PARTITION_MS).await.unwrap();
                store.clean_tombstones().await.unwrap();
                check(&store, order.len(), &[deleted]).await;
                store.close().await.unwrap();
            }
        }
    });
}

#[test]
fn a_store_is_damaged_to_a_process_with_other_pages() {
    harness::run(async {
        let (small, shipped) = (shipped_but_pages(), Sizes::default());
        for (written, opened, detail) in [
            (small, shipped, "labels of series 5 are missing"),
            (shipped, small, "page is missing"),
        ] {
            let objects = harness::memory();
            let store = open_sized(&objects, written).await;
            write_round(&store, 0).await;
            store.close().await.unwrap();
            let store = open_sized(&objects, opened).await;
            let error = read(&store, vec![], 0, PARTITION_MS - 1).await.unwrap_err();
            assert!(error.to_string().contains(detail), "{error}");
            store.close().await.unwrap();
            check(&open_sized(&objects, written).await, 1, &[]).await;
        }
    });
}
