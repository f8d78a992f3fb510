//! Stages of ingestion and queries, each as a repeatable operation on seeded data.

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;

use benches::data::{self, INTERVAL_MS, Kind, START_MS, Shape};
use benches::source::ChunkSource;
use engine::exec::aggregate::aggregate;
use engine::exec::evaluate::evaluate;
use engine::exec::matrix::{Matrix, materialize};
use engine::exec::operator::{Context, Operand, VectorOperator};
use engine::parse::ast::Span;
use engine::parse::{ParseOptions, parse};
use engine::plan::{Node, NodeKind, PlanOptions, plan};
use engine::result::{QueryStats, Row};
use engine::steps::Steps;
use engine::tile::{Tile, TileShape};
use engine::{Annotations, Engine, EngineOptions, QueryOptions, QueryOutput, Value};
use futures::executor::block_on;
use model::{Batch, Budget, METRIC_NAME, SampleBatch, Source};
use prost::Message;
use storage::chunk::{self, CHUNK_PADDING_BYTES, Decoder};
use storage::{ManualClock, Store, StoreOptions};
use testkit::otlppb::{self, Number, NumberPoint, Numbers};
use testkit::prompb::{WriteRequest, v2};
use tokio::runtime::{Builder, Runtime};
use wire::{Limits, Version};

/// One stripe of tiles.
const SHAPE: Shape = Shape { series: 512, samples: 1_024, groups: 32 };
const STEP_COUNT: usize = 512;
const CHUNK_COUNT: usize = 1_000;
const CHUNK_SAMPLES: usize = 120;
/// Series of one sample in a request, as Prometheus sends them.
const REQUEST_SERIES: usize = 2_000;
const ANSWER: Shape = Shape { series: 200, samples: 512, groups: 32 };

/// Prepared operation.
pub type Run = Box<dyn FnOnce()>;

/// Stage.
pub struct Stage {
    /// Name in the table.
    pub name: &'static str,
    /// Unit of the figures.
    pub unit: &'static str,
    /// Number of units in one run.
    pub count: usize,
    /// Prepares a run.
    pub prepare: Box<dyn FnMut() -> Run>,
}

/// Constructor of a stage, which generates its data.
type Make = fn() -> Stage;

/// All stages, in the order of the table.
pub const STAGES: [Make; 20] = [
    || encode("encode", Kind::Counter),
    || decode("decode", Kind::Counter),
    || decode("decode, noise", Kind::Noise),
    fill,
    || reduce("reduce rows, sum", "sum by (path) (requests_total)", None),
    || reduce("reduce columns, quantile", "quantile by (path) (0.9, requests_total)", Some(0.9)),
    || reduce("reduce columns, topk", "topk by (path) (3, requests_total)", Some(3.0)),
    || roll_up("roll up, rate", "rate(requests_total[5m])"),
    || roll_up("roll up, max_over_time", "max_over_time(requests_total[5m])"),
    prepare_query,
    whole_query,
    || over_counters("kept columns, sum", "sum by (path) (requests_total)"),
    || over_counters("kept columns, sum of rate", "sum by (path) (rate(requests_total[5m]))"),
    || over_counters("kept columns, max_over_time", "max_over_time(requests_total[5m])"),
    average_floats,
    || encode_json("JSON, whole numbers", Kind::Counter),
    || encode_json("JSON, random floats", Kind::Noise),
    || decode_request("ingest decode, v1", Version::V1, &request()),
    || decode_request("ingest decode, v2", Version::V2, &request_v2()),
    decode_otlp,
];

/// Stage of a whole commit, the last one of ingestion.
pub const APPEND: Make = append;

/// Returns a stage whose runs need no preparation.
fn repeated(
    name: &'static str,
    unit: &'static str,
    count: usize,
    run: impl Fn() + 'static,
) -> Stage {
    let run = Rc::new(run);
    let prepare = Box::new(move || {
        let run = Rc::clone(&run);
        Box::new(move || run()) as Run
    });
    Stage { name, unit, count, prepare }
}

fn chunks(kind: Kind) -> Vec<(Vec<i64>, Vec<f64>)> {
    (0..CHUNK_COUNT).map(|index| data::samples(index, CHUNK_SAMPLES, kind)).collect()
}

fn encode_all(series: &[(Vec<i64>, Vec<f64>)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CHUNK_COUNT * CHUNK_SAMPLES * 10);
    for (timestamps, values) in series {
        chunk::encode(timestamps, values, &mut bytes);
    }
    bytes
}

fn encode(name: &'static str, kind: Kind) -> Stage {
    let series = chunks(kind);
    repeated(name, "sample", CHUNK_COUNT * CHUNK_SAMPLES, move || {
        black_box(encode_all(&series));
    })
}

fn decode(name: &'static str, kind: Kind) -> Stage {
    let mut bytes = encode_all(&chunks(kind));
    let offsets: Vec<usize> =
        chunk::frames(&bytes).map(|frame| frame.expect("just encoded").0).collect();
    bytes.resize(bytes.len() + CHUNK_PADDING_BYTES, 0);
    repeated(name, "sample", CHUNK_COUNT * CHUNK_SAMPLES, move || {
        let mut batch = SampleBatch::new();
        for offset in &offsets {
            let mut decoder = Decoder::open(&bytes[*offset..]).expect("just encoded");
            batch.clear();
            black_box(decoder.next_batch(i64::MAX, &mut batch)).expect("just encoded");
        }
    })
}

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
        needs_samples: false,
    };
    let expression = parse(query, &ParseOptions::default()).expect("the query is good");
    plan(&expression, &options).expect("the query is good").root
}

fn context() -> Context {
    Context::new(Budget::unlimited(), TileShape::default(), true)
}

/// Returns the operator of a query over one stripe.
fn operator(ctx: &Context, query: &str) -> Box<dyn VectorOperator> {
    let set = ChunkSource::generate(SHAPE, Kind::Counter).all();
    match evaluate(ctx, &[set], &planned(query)) {
        Ok(Operand::Vector(operator)) => operator,
        _ => panic!("{query} gives series"),
    }
}

/// Reads all tiles of one stripe.
fn read_tiles(ctx: &Context, operator: &dyn VectorOperator) {
    let series: Vec<u32> = (0..SHAPE.series as u32).collect();
    let mut tile = Tile::new(ctx.tile_shape);
    let mut reader = operator.open(&series);
    for _ in 0..STEP_COUNT / ctx.tile_shape.steps {
        reader.next_tile(ctx.tile_shape.steps, &mut tile).expect("bytes are good");
        black_box(&tile);
    }
}

fn fill() -> Stage {
    let ctx = context();
    let operator = operator(&ctx, "requests_total");
    repeated("fill tiles", "sample", SHAPE.sample_count(), move || read_tiles(&ctx, &*operator))
}

fn roll_up(name: &'static str, query: &str) -> Stage {
    let ctx = context();
    let operator = operator(&ctx, query);
    repeated(name, "sample", SHAPE.sample_count(), move || read_tiles(&ctx, &*operator))
}

fn reduce(name: &'static str, query: &str, param: Option<f64>) -> Stage {
    let ctx = context();
    let matrix: Matrix =
        materialize(&ctx, &*operator(&ctx, "requests_total")).expect("there is no limit");
    let NodeKind::Aggregate(aggregation) = planned(query).kind else {
        panic!("an aggregation is planned as one");
    };
    repeated(name, "cell", SHAPE.series * STEP_COUNT, move || {
        let param = param.map(|value| Operand::Scalar(vec![value; STEP_COUNT]));
        let reduced = aggregate(&ctx, steps(), &aggregation, Span::default(), &matrix, param);
        black_box(reduced.expect("there is no limit"));
    })
}

/// Parsing and planning of a query.
fn prepare_query() -> Stage {
    const QUERY: &str = "histogram_quantile(0.99, sum by (le, path) \
                         (rate(request_seconds_bucket{job=\"api\", path=~\"/v1/.+\"}[5m])))";
    const TIMES: usize = 100;
    repeated("parse and plan", "query", TIMES, || {
        for _ in 0..TIMES {
            black_box(planned(black_box(QUERY)));
        }
    })
}

/// Query from its text to its result.
fn whole_query() -> Stage {
    let source: Arc<dyn Source> = Arc::new(ChunkSource::generate(SHAPE, Kind::Counter));
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    repeated("whole query, sum of rate", "sample", SHAPE.sample_count(), move || {
        block_on(answer(&engine, &source, "sum by (path) (rate(requests_total[5m]))"));
    })
}

async fn answer(engine: &Engine, source: &Arc<dyn Source>, query: &str) {
    let (steps, options) = (steps(), QueryOptions::default());
    let (start_ms, end_ms, step_ms) = (steps.start_ms, steps.end_ms(), steps.step_ms);
    let answer = engine.range(Arc::clone(source), query, start_ms, end_ms, step_ms, &options);
    black_box(answer.await.expect("the query is good"));
}

/// Averages of ranges, whose sums are not whole numbers.
fn average_floats() -> Stage {
    over_columns("kept columns, avg_over_time", "avg_over_time(requests_total[5m])", Kind::Noise)
}

fn over_counters(name: &'static str, query: &'static str) -> Stage {
    over_columns(name, query, Kind::Counter)
}

/// Query over decoded columns of even scrapes, which the store has kept for the same selection.
fn over_columns(name: &'static str, query: &'static str, kind: Kind) -> Stage {
    let (runtime, store) = store();
    let mut batch = Batch::default();
    for index in 0..SHAPE.series {
        let values = data::samples(index, SHAPE.samples, kind).1;
        let times = (0..).map(|at| START_MS + at * INTERVAL_MS);
        let samples: Vec<(i64, f64)> = times.zip(values).collect();
        batch.push(&data::labels(index, SHAPE.groups), &samples);
    }
    let outcome = runtime.block_on(store.append(batch)).expect("memory takes it");
    assert_eq!(outcome.accepted, SHAPE.sample_count());
    let source: Arc<dyn Source> = Arc::new(store);
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    repeated(name, "sample", SHAPE.sample_count(), move || {
        runtime.block_on(answer(&engine, &source, query));
    })
}

/// Returns an empty store in memory.
fn store() -> (Runtime, Store) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let options = StoreOptions {
        clock: Arc::new(ManualClock::new(START_MS)),
        ahead_max_ms: None,
        background: false,
        ..StoreOptions::default()
    };
    let store = runtime.block_on(Store::open("memory:///", options));
    (runtime, store.expect("memory can be opened"))
}

fn encode_json(name: &'static str, kind: Kind) -> Stage {
    let steps = Steps { start_ms: START_MS, step_ms: INTERVAL_MS, count: ANSWER.samples };
    let row = |index| Row {
        labels: data::labels(index, ANSWER.groups),
        values: data::samples(index, ANSWER.samples, kind).1,
        presence: vec![u64::MAX; ANSWER.samples / 64],
        histograms: Vec::new(),
    };
    let answer = QueryOutput {
        value: Value::Grid { steps, rows: (0..ANSWER.series).map(row).collect() },
        annotations: Annotations::default(),
        stats: QueryStats::default(),
        explained: None,
        step_stats: None,
    };
    let prepare = Box::new(move || {
        let answer = answer.clone();
        Box::new(move || drop(black_box(json::value::encode_value(answer)))) as Run
    });
    Stage { name, unit: "point", count: ANSWER.sample_count(), prepare }
}

fn request() -> Vec<u8> {
    let all: Vec<_> = (0..REQUEST_SERIES).map(|index| data::labels(index, 32)).collect();
    let labels: Vec<Vec<(&str, &str)>> = all.iter().map(|labels| labels.iter().collect()).collect();
    let samples: Vec<[(i64, f64); 1]> = (0..REQUEST_SERIES).map(sample).collect();
    let series = labels.iter().map(Vec::as_slice).zip(samples.iter().map(|one| &one[..]));
    WriteRequest::of(series).encode_to_vec()
}

fn sample(index: usize) -> [(i64, f64); 1] {
    let (timestamps, values) = data::samples(index, 1, Kind::Counter);
    [(timestamps[0], values[0])]
}

fn request_v2() -> Vec<u8> {
    let mut table = v2::SymbolTable::default();
    let help_ref = table.add(b"What is counted here, and in which unit.");
    let mut series = |index| {
        let [(timestamp, value)] = sample(index);
        let labels = data::labels(index, 32);
        let refs = labels.iter().flat_map(|(name, value)| [name, value]);
        v2::TimeSeries {
            labels_refs: refs.map(|text| table.add(text.as_bytes())).collect(),
            samples: vec![v2::Sample { value, timestamp, start_timestamp: 0 }],
            metadata: Some(v2::Metadata { r#type: 1, help_ref, unit_ref: 0 }),
            ..v2::TimeSeries::default()
        }
    };
    let timeseries = (0..REQUEST_SERIES).map(&mut series).collect();
    v2::Request { symbols: table.symbols, timeseries }.encode_to_vec()
}

/// Decoding of a request from compressed bytes to a batch.
fn decode_request(name: &'static str, version: Version, message: &[u8]) -> Stage {
    let body = snap::raw::Encoder::new().compress_vec(message).expect("it is small");
    repeated(name, "series", REQUEST_SERIES, move || {
        let (limits, mut unpacked) = (Limits::default(), Vec::new());
        let length = wire::decompress(&body, &limits, &mut unpacked).expect("just compressed");
        let (mut decoder, mut batch) = (wire::Decoder::default(), Batch::default());
        let mut grant = |_| Ok(());
        let decoded = decoder.decode(version, &unpacked, length, &limits, &mut grant, &mut batch);
        assert!(black_box(decoded).expect("it is good").rejects.is_empty());
        assert_eq!(batch.sample_count(), REQUEST_SERIES);
    })
}

/// Decoding of an OTLP request, which is not compressed, to a batch.
fn decode_otlp() -> Stage {
    let points = (0..REQUEST_SERIES).map(|index| {
        let [(time_ms, value)] = sample(index);
        let labels = data::labels(index, 32);
        let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
        NumberPoint {
            attributes: others.map(|(name, value)| otlppb::text(name, value)).collect(),
            start_ns: START_MS as u64 * 1_000_000,
            time_ns: time_ms as u64 * 1_000_000,
            value: Some(Number::Double(value)),
            ..NumberPoint::default()
        }
    });
    let (data_points, temporality) = (points.collect(), otlppb::CUMULATIVE);
    let sum = otlppb::Data::Sum(Numbers { data_points, temporality, is_monotonic: true });
    let metric = otlppb::metric("requests_total", "", sum);
    let message = otlppb::request(Vec::new(), vec![metric]).encode_to_vec();
    repeated("ingest decode, OTLP", "series", REQUEST_SERIES, move || {
        let (limits, settings) = (Limits::default(), wire::otlp::Settings::default());
        let (mut batch, mut grant) = (Batch::default(), |_| Ok(()));
        let encoding = wire::otlp::Encoding::Protobuf;
        let decoded =
            wire::otlp::decode(encoding, &message, &settings, &limits, &mut grant, &mut batch);
        assert!(black_box(decoded).expect("it is good").rejects.is_empty());
        assert_eq!(batch.sample_count(), REQUEST_SERIES);
    })
}

/// Commit of one sample for each of known series.
fn append() -> Stage {
    let (runtime, store) = store();
    let (runtime, store) = (Rc::new(runtime), Rc::new(store));
    let all: Vec<_> = (0..REQUEST_SERIES).map(|index| data::labels(index, 32)).collect();
    let mut round = 0;
    let prepare = Box::new(move || {
        round += 1;
        let mut batch = Batch::default();
        for (index, labels) in all.iter().enumerate() {
            let value = (round * (index as i64 % 7 + 1)) as f64;
            batch.push(labels, &[(START_MS + round * INTERVAL_MS, value)]);
        }
        let (runtime, store) = (Rc::clone(&runtime), Rc::clone(&store));
        Box::new(move || {
            let outcome = runtime.block_on(store.append(batch)).expect("memory takes it");
            assert_eq!(outcome.accepted, REQUEST_SERIES);
        }) as Run
    });
    Stage { name: "append", unit: "sample", count: REQUEST_SERIES, prepare }
}
