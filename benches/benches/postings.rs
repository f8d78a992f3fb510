//! Matchers to series: in the head, sealed with the index cache, and sealed without it. The store is
//! in memory, so that the index is measured and not a disk.

use std::hint::black_box;
use std::sync::Arc;

use benches::data::{START_MS, labels};
use criterion::{Criterion, criterion_group, criterion_main};
use model::{Batch, Budget, MatchOp, Matcher, MetadataQuery, Source, TimeRange};
use storage::{ManualClock, Store, StoreOptions};
use tokio::runtime::Runtime;

const SERIES: usize = 20_000;
const GROUPS: usize = 200;

fn batch() -> Batch {
    let mut batch = Batch::default();
    for index in 0..SERIES {
        batch.push(&labels(index, GROUPS), &[(START_MS, index as f64)]);
    }
    batch
}

fn queries() -> Vec<(&'static str, usize, Vec<Matcher>)> {
    let path = |group: usize| format!("/v1/resource/{group:05}");
    let matcher = |op, name: &str, value: &str| {
        Matcher::new(op, name, value).expect("the expression is good")
    };
    vec![
        (
            "one series",
            1,
            vec![
                Matcher::equal("instance", "host-012345.example:9100"),
                Matcher::equal("job", "api"),
            ],
        ),
        ("one group", SERIES / GROUPS, vec![Matcher::equal("path", path(7))]),
        (
            "all but a group",
            SERIES - SERIES / GROUPS,
            vec![Matcher::equal("job", "api"), matcher(MatchOp::NotEqual, "path", &path(7))],
        ),
        (
            "an expression",
            SERIES / GROUPS * 10,
            vec![matcher(MatchOp::Regex, "path", "/v1/resource/0001[0-9]")],
        ),
    ]
}

fn bench(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("threads can be started");
    let kept = StoreOptions::default().index_cache_bytes_max;
    for (place, index_cache_bytes_max) in [("head", kept), ("sealed", kept), ("unkept", 0)] {
        let options = StoreOptions {
            clock: Arc::new(ManualClock::new(START_MS)),
            background: false,
            index_cache_bytes_max,
            ..StoreOptions::default()
        };
        let store = runtime.block_on(async {
            let store = Store::open("memory:///", options).await.expect("memory can be opened");
            store.append(batch()).await.expect("memory takes it");
            if place != "head" {
                store.seal_all().await.expect("memory takes it");
            }
            store
        });
        measure(criterion, &runtime, &store, place);
        runtime.block_on(store.close()).expect("memory can be closed");
    }
}

fn measure(criterion: &mut Criterion, runtime: &Runtime, store: &Store, place: &str) {
    let mut group = criterion.benchmark_group(format!("postings/{place}"));
    for (name, count, matchers) in queries() {
        let query = MetadataQuery {
            selectors: vec![matchers],
            times: TimeRange::new(START_MS, START_MS),
            limit: 0,
        };
        let select = || {
            let budget = Budget::unlimited();
            runtime.block_on(store.series(&query, &budget)).expect("memory answers")
        };
        assert_eq!(select().len(), count, "{name}");
        group.bench_function(name, |b| b.iter(|| black_box(select())));
        let values = || {
            let budget = Budget::unlimited();
            let values = store.label_values("path", &query, &budget);
            runtime.block_on(values).expect("memory answers")
        };
        group.bench_function(format!("{name}, values"), |b| b.iter(|| black_box(values())));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
