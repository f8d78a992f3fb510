//! The stages whose instructions are counted, in nanoseconds of the wall.

#[path = "instructions/stages.rs"]
#[allow(dead_code, reason = "the table has units, criterion does not")]
mod stages;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use stages::{APPEND, STAGES};

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stage");
    for make in STAGES.into_iter().chain([APPEND]) {
        let mut stage = make();
        group.throughput(Throughput::Elements(stage.count as u64));
        group.bench_function(stage.name, |b| {
            b.iter_batched(&mut stage.prepare, |run| run(), BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
