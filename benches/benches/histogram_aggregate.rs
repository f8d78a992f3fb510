//! Native histograms in the engine: nanoseconds a histogram to fold series into groups.

use std::hint::black_box;
use std::sync::Arc;

use benches::data::Random;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::exec::aggregate::aggregate;
use engine::exec::matrix::Matrix;
use engine::exec::operator::{Context, SeriesMeta};
use engine::parse::{ParseOptions, parse};
use engine::plan::{Node, NodeKind, PlanOptions, plan};
use engine::tile::TileShape;
use engine::window::Steps;
use model::histogram::{HistogramMean, HistogramSum};
use model::{Budget, Histogram, Labels, Span};

const SERIES: usize = 256;
const GROUPS: usize = 8;
const STEPS: Steps = Steps { start_ms: 0, step_ms: 15_000, count: 64 };
/// Buckets of a histogram, about as many as Prometheus' own latencies have at its default factor.
const BUCKETS: usize = 80;

fn planned(query: &str) -> Node {
    let options = PlanOptions {
        steps: STEPS,
        end_ms: STEPS.end_ms(),
        is_instant: false,
        lookback_ms: 300_000,
        subquery_step_ms: 60_000,
        steps_max: 10_000,
    };
    let expression = parse(query, &ParseOptions::default()).expect("the query is good");
    plan(&expression, &options).expect("the query is good").root
}

/// A histogram of schema 3 in three spans, that begins `from` buckets further up.
fn histogram(random: &mut Random, from: i32, buckets: usize) -> Histogram {
    let span = |offset, length: usize| Span { offset, length: length as u32 };
    let counts: Vec<f64> = (0..buckets).map(|_| random.below(10_000) as f64 / 16.0 + 0.1).collect();
    Histogram {
        schema: 3,
        zero_threshold: 1e-128,
        count: counts.iter().sum(),
        sum: counts.iter().sum::<f64>() * 0.3,
        positive_spans: vec![
            span(from - 40, buckets / 2),
            span(2, buckets / 4),
            span(1, buckets - buckets / 2 - buckets / 4),
        ],
        positive_counts: counts,
        ..Histogram::default()
    }
}

/// Series whose histograms all have the same layout, or each one of its own.
fn matrix(ctx: &Context, is_same: bool) -> Matrix {
    let mut random = Random::new(7);
    let metas = (0..SERIES).map(|series| {
        let pairs = [("group", (series % GROUPS).to_string()), ("series", series.to_string())];
        SeriesMeta { labels: Labels::from_pairs(pairs), drop_name: false }
    });
    let mut matrix =
        Matrix::with_histograms(ctx, metas.collect(), STEPS).expect("there is no limit");
    for series in 0..SERIES {
        let (from, less) =
            if is_same { (0, 0) } else { (random.below(16) as i32, random.below(24)) };
        for step in 0..STEPS.count {
            let histogram = histogram(&mut random, from, BUCKETS - less as usize);
            matrix.set_histogram(series, step, Arc::new(histogram)).expect("there is no limit");
        }
    }
    matrix
}

/// Histograms that are there already, into groups.
fn fold(criterion: &mut Criterion) {
    let ctx = Context::new(Budget::unlimited(), TileShape::default(), true);
    for (layout, is_same) in [("same_layout", true), ("own_layouts", false)] {
        let matrix = matrix(&ctx, is_same);
        let mut group = criterion.benchmark_group(format!("histogram/{layout}"));
        group.throughput(Throughput::Elements((SERIES * STEPS.count) as u64));
        for (name, query) in [
            ("sum", "sum(latency)"),
            ("sum_by", "sum by (group) (latency)"),
            ("avg", "avg(latency)"),
            ("count", "count(latency)"),
        ] {
            let node = planned(query);
            let NodeKind::Aggregate(aggregation) = &node.kind else {
                panic!("an aggregation is planned as one");
            };
            group.bench_function(name, |b| {
                b.iter(|| {
                    let answer = aggregate(&ctx, STEPS, aggregation, node.span, &matrix, None);
                    black_box(answer.expect("there is no limit"));
                });
            });
        }
        group.finish();
    }
}

/// Additions alone, out of a cache: into buckets that are all there.
fn add(criterion: &mut Criterion) {
    let mut random = Random::new(7);
    let histograms: Vec<Histogram> = (0..32).map(|_| histogram(&mut random, 0, BUCKETS)).collect();
    let mut group = criterion.benchmark_group("histogram/add");
    group.throughput(Throughput::Elements(histograms.len() as u64 - 1));
    let mut sum = HistogramSum::new(Histogram::default());
    group.bench_function("sum", |b| {
        b.iter(|| {
            sum.restart(&histograms[0]);
            for histogram in &histograms[1..] {
                black_box(sum.add(histogram)).expect("schemas are the same");
            }
            black_box(&sum);
        });
    });
    let mut mean = HistogramMean::new(Histogram::default());
    group.bench_function("avg", |b| {
        b.iter(|| {
            mean.restart(&histograms[0]);
            for histogram in &histograms[1..] {
                black_box(mean.add(histogram)).expect("schemas are the same");
            }
            black_box(&mean);
        });
    });
    group.finish();
}

criterion_group!(benches, add, fold);
criterion_main!(benches);
