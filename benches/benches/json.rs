//! The answer of a range query as JSON: nanoseconds a point.

use benches::data::{INTERVAL_MS, Kind, START_MS, Shape, labels, samples};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use engine::result::{QueryStats, Row};
use engine::window::Steps;
use engine::{Annotations, QueryOutput, Value};

const SHAPE: Shape = Shape { series: 200, samples: 512, groups: 32 };

fn answer(kind: Kind) -> QueryOutput {
    let steps = Steps { start_ms: START_MS, step_ms: INTERVAL_MS, count: SHAPE.samples };
    let row = |index| Row {
        labels: labels(index, SHAPE.groups),
        values: samples(index, SHAPE.samples, kind).1,
        presence: vec![u64::MAX; SHAPE.samples / 64],
        histograms: Vec::new(),
    };
    QueryOutput {
        value: Value::Grid { steps, rows: (0..SHAPE.series).map(row).collect() },
        annotations: Annotations::default(),
        stats: QueryStats::default(),
        explained: None,
        seen: None,
    }
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("json");
    group.throughput(Throughput::Elements(SHAPE.sample_count() as u64));
    for (kind, name) in [(Kind::Counter, "whole numbers"), (Kind::Noise, "random floats")] {
        let answer = answer(kind);
        group.bench_function(name, |b| {
            b.iter_batched(|| answer.clone(), tessella::encode_value, BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
