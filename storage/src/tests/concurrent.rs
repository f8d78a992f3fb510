//! Concurrent writers, readers and seals: each writer reads its own writes.

use std::sync::Arc;

use model::{Budget, Matcher, Selection, Source, TimeRange};

use super::harness::{self, batch, labels, open, read};

#[test]
fn writers_read_their_writes_while_everything_is_sealed() {
    harness::run(async {
        let objects = harness::memory();
        let store = Arc::new(open(&objects).await.unwrap());
        let sealing = tokio::spawn({
            let store = Arc::clone(&store);
            async move {
                loop {
                    store.seal_all().await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut writers = Vec::new();
        for number in 0..6 {
            let store = Arc::clone(&store);
            writers.push(tokio::spawn(async move {
                let name = number.to_string();
                let labels = labels(&[("__name__", "m"), ("writer", &name)]);
                let mut expected = Vec::new();
                for round in 0..40_i64 {
                    // Forward, and back into windows that may be sealed.
                    let times = [round * 400_000, round * 400_000 - 3_600_001];
                    let samples = times.map(|t| (t, (t + number) as f64));
                    let outcome = store.append(batch(&labels, &samples)).await.unwrap();
                    assert_eq!(outcome.accepted, 2);
                    expected.extend(samples.map(|(t, v)| (t, v.to_bits())));
                    expected.sort_unstable();
                    let own = vec![Matcher::equal("writer", name.as_str())];
                    let found = read(store.as_ref(), own, i64::MIN, i64::MAX).await.unwrap();
                    assert_eq!(found, vec![(labels.clone(), expected.clone())]);
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        sealing.abort();
        let count = |contents: harness::Contents| -> usize {
            contents.iter().map(|(_, samples)| samples.len()).sum()
        };
        assert_eq!(count(harness::read_all(store.as_ref()).await.unwrap()), 6 * 80);
        drop(store);
        let store = open(&objects).await.unwrap();
        assert_eq!(count(harness::read_all(&store).await.unwrap()), 6 * 80);
    });
}

#[test]
fn a_selection_has_each_sample_once_while_its_columns_grow() {
    harness::run(async {
        let store = open(&harness::memory()).await.unwrap();
        let series = labels(&[("__name__", "m")]);
        let at = |time_ms: i64| (time_ms, time_ms as f64);
        let append = async |times: std::ops::Range<i64>| {
            let samples: Vec<_> = times.map(at).collect();
            store.append(batch(&series, &samples)).await.unwrap();
        };
        let all = Selection {
            matchers: vec![Matcher::equal("__name__", "m")],
            times: TimeRange::new(0, i64::MAX),
            only_newest: false,
            windows: None,
        };
        // Frames, and a tail of some raw samples.
        append(0..150).await;
        let early = store.select(&all, &Budget::unlimited()).await.unwrap();
        // The tail becomes a frame of the same column.
        append(150..300).await;
        let times = |reads: Vec<harness::Read>| -> Vec<i64> {
            reads.into_iter().map(|read| read.timestamp_ms).collect()
        };
        let later = harness::read_selection(&store, &all).await.unwrap();
        assert_eq!(times(later.into_iter().next().unwrap().1), (0..300).collect::<Vec<_>>());
        let early = harness::read_series(early.as_ref(), 0, i64::MAX).unwrap();
        assert_eq!(times(early), (0..150).collect::<Vec<_>>());
    });
}
