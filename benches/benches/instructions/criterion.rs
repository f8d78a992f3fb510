//! Wall time of the stages whose instructions are counted.

mod stages;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use stages::{APPEND, STAGES};

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stage");
    for make in STAGES.into_iter().chain([APPEND]) {
        let mut stage = make();
        group.throughput(Throughput::Elements(stage.count as u64));
        let name = format!("{}, {} {}", stage.name, stage.count, stage.unit);
        group.bench_function(name, |b| {
            b.iter_batched(&mut stage.prepare, |run| run(), BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
