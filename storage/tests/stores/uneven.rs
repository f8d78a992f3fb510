//! Stores of series that share uneven times, with numbers that are multiples of a page of memory,
//! start timestamps, and staleness markers.

use model::{Batch, Labels, stale_nan};
use storage::Store;

use crate::plain::{Contents, options, read};
use crate::{each_store, run};

const SERIES: i64 = 20;
const PAGE_BYTES: i64 = 4096;

fn series(number: i64) -> Labels {
    let number = format!("{number:02}");
    Labels::from_pairs([("__name__", "memory_bytes"), ("container", number.as_str())])
}

fn samples(number: i64) -> Vec<(i64, f64)> {
    let value = |i: i64| match i {
        150 => stale_nan(),
        _ => ((number + i * i % 101) * PAGE_BYTES) as f64,
    };
    (0..200).map(|i| (i * 15_000 + i * i * 37 % 199, value(i))).collect()
}

async fn write(url: &str) {
    let store = Store::open(url, options()).await.unwrap();
    let mut batch = Batch::default();
    (0..SERIES).for_each(|number| batch.push(&series(number), &samples(number)));
    store.append(batch).await.unwrap();
    let mut with_starts = Batch::default();
    with_starts.push(&series(SERIES), &samples(SERIES));
    with_starts.starts = vec![7; 200];
    store.append(with_starts).await.unwrap();
    store.seal_all().await.unwrap();
    store.close().await.unwrap();
}

fn expected() -> Contents {
    let bits = |(time_ms, value): (i64, f64)| (time_ms, value.to_bits());
    (0..=SERIES)
        .map(|number| (series(number), samples(number).into_iter().map(bits).collect()))
        .collect()
}

#[test]
fn shared_times_and_shifted_numbers_are_read() {
    each_store(
        "uneven",
        |url| run(write(url)),
        |url, name| {
            run(async {
                let store = Store::open(url, options()).await.unwrap();
                assert_eq!(read(&store).await, expected(), "{name}");
                store.close().await.unwrap();
            });
        },
    );
}
