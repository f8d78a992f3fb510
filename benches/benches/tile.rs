//! The engine's tiles: filling them from encoded series, and folding them into groups.

use std::hint::black_box;

use benches::data::{INTERVAL_MS, Kind, START_MS, Shape};
use benches::source::ChunkSource;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::exec::aggregate::aggregate;
use engine::exec::matrix::{Matrix, materialize};
use engine::exec::operator::{Context, Operand, VectorOperator};
use engine::exec::select::InstantSelector;
use engine::parse::ast::Span;
use engine::parse::{ParseOptions, parse};
use engine::plan::{Node, NodeKind, PlanOptions, plan};
use engine::tile::{Tile, TileShape};
use engine::window::Steps;
use model::Budget;

const SHAPE: Shape = Shape { series: 512, samples: 1_024, groups: 32 };
const STEP_COUNT: usize = 512;

fn steps() -> Steps {
    Steps { start_ms: START_MS + INTERVAL_MS, step_ms: 2 * INTERVAL_MS, count: STEP_COUNT }
}

fn planned(query: &str) -> Node {
    let steps = steps();
    let options = PlanOptions {
        steps,
        end_ms: steps.end_ms(),
        is_instant: false,
        lookback_ms: 300_000,
        subquery_step_ms: 60_000,
        steps_max: 10_000,
    };
    let expression = parse(query, &ParseOptions::default()).expect("the query is good");
    plan(&expression, &options).expect("the query is good").root
}

fn context() -> Context {
    Context::new(Budget::unlimited(), TileShape::default(), true)
}

fn selector(ctx: &Context, source: &ChunkSource) -> InstantSelector {
    let NodeKind::Instant(instant) = planned("requests_total").kind else {
        panic!("a selector is planned as one");
    };
    InstantSelector::new(ctx, source.all(), steps(), instant).expect("there is no limit")
}

/// One stripe of series, tile after tile: decoding, looking up, writing rows.
fn fill(criterion: &mut Criterion) {
    let ctx = context();
    let source = ChunkSource::generate(SHAPE, Kind::Counter);
    let selector = selector(&ctx, &source);
    let series: Vec<u32> = (0..SHAPE.series as u32).collect();
    let mut tile = Tile::new(ctx.tile_shape);
    let mut group = criterion.benchmark_group("tile/fill");
    group.throughput(Throughput::Elements(SHAPE.sample_count() as u64));
    group.bench_function("samples", |b| {
        b.iter(|| {
            let mut reader = selector.open(&series);
            for _ in 0..STEP_COUNT / ctx.tile_shape.steps {
                reader.next_tile(ctx.tile_shape.steps, &mut tile).expect("bytes are good");
                black_box(&tile);
            }
        });
    });
    group.finish();
}

/// Values that are there already, into groups: by rows (sum, avg, stddev), and by columns
/// (quantile, topk).
fn reduce(criterion: &mut Criterion) {
    let ctx = context();
    let source = ChunkSource::generate(SHAPE, Kind::Counter);
    let matrix: Matrix = materialize(&ctx, &selector(&ctx, &source)).expect("there is no limit");
    let mut group = criterion.benchmark_group("tile/reduce");
    group.throughput(Throughput::Elements((SHAPE.series * STEP_COUNT) as u64));
    for (name, query, param) in [
        ("sum", "sum by (path) (requests_total)", None),
        ("avg", "avg by (path) (requests_total)", None),
        ("stddev", "stddev by (path) (requests_total)", None),
        ("quantile", "quantile by (path) (0.9, requests_total)", Some(0.9)),
        ("topk", "topk by (path) (3, requests_total)", Some(3.0)),
    ] {
        let NodeKind::Aggregate(aggregation) = planned(query).kind else {
            panic!("an aggregation is planned as one");
        };
        group.bench_function(name, |b| {
            b.iter(|| {
                let param = param.map(|value| Operand::Scalar(vec![value; STEP_COUNT]));
                aggregate(&ctx, steps(), &aggregation, Span::default(), &matrix, param)
                    .expect("no limit is set")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, fill, reduce);
criterion_main!(benches);
