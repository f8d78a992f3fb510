//! Charges for each kind of memory that a query holds: at least what it takes, up to the
//! limit and not a byte beyond it, and the error names the limit and the figure that passed it.

use std::sync::Arc;

use engine::tile::{Tile, TileShape};
use engine::{Engine, EngineOptions, QueryError, QueryOptions, QueryOutput, Value};
use futures::executor::block_on;
use model::memory::MemorySource;
use model::{BudgetLimits, Labels, MemoryPool, Source};

const NOW_MS: i64 = 1_700_000_000_000;
const SERIES: u64 = 600;
const SAMPLES: u64 = 60;
const STEP_COUNT: u64 = 640;
const TEXT: &str = "a text of one hundred bytes, which is long enough to show in what all of the \
                    labels take together";

/// `m{i}`: a sample a minute for an hour before [`NOW_MS`].
fn source() -> Arc<dyn Source> {
    let mut source = MemorySource::new();
    for series in 0..SERIES {
        let labels = Labels::from_pairs([("__name__", "m"), ("i", &format!("{series:04}"))]);
        for sample in 0..SAMPLES {
            let time_ms = NOW_MS - (SAMPLES - 1 - sample) as i64 * 60_000;
            source.append(&labels, time_ms, (series * sample) as f64);
        }
    }
    Arc::new(source)
}

fn engine() -> Engine {
    // The memory of two threads at one time depends on their speed.
    Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() })
}

fn ask(
    engine: &Engine,
    source: &Arc<dyn Source>,
    query: &str,
    limits: BudgetLimits,
) -> Result<QueryOutput, QueryError> {
    let options = QueryOptions { limits, ..QueryOptions::default() };
    let (source, step_ms) = (Arc::clone(source), 5_000);
    let start_ms = NOW_MS - (STEP_COUNT as i64 - 1) * step_ms;
    if query.ends_with(']') {
        return block_on(engine.instant(source, query, NOW_MS, &options));
    }
    block_on(engine.range(source, query, start_ms, NOW_MS, step_ms, &options))
}

/// Counting what each step saw decodes again what has been counted.
#[test]
fn samples_that_are_decoded_once_more_to_be_counted_are_free() {
    let (engine, source) = (engine(), source());
    let limits = BudgetLimits { samples_max: SERIES * SAMPLES, ..BudgetLimits::default() };
    let options = QueryOptions { limits, per_step_stats: true, ..QueryOptions::default() };
    let asked = engine.instant(source, "count_over_time(m[1h])", NOW_MS, &options);
    let output = block_on(asked).unwrap();
    assert_eq!(output.stats.sample_count, SERIES * SAMPLES);
    assert_eq!(output.step_stats.unwrap().counts, [SERIES * SAMPLES]);
}

#[test]
fn every_kind_of_memory_is_charged_and_bounded() {
    let tile = Tile::bytes(TileShape::default());
    let grid = SERIES * STEP_COUNT * 8;
    // A query, and what it holds of one kind at least.
    let cases = [
        ("tiles", "count(m)".to_owned(), tile),
        ("tiles of both operands", "count(m + 1)".to_owned(), tile),
        ("partials and groups", "sum by (i) (m)".to_owned(), grid),
        ("columns of a group", "quantile(0.5, m)".to_owned(), SERIES * 8 * 8),
        ("what is picked", "topk(600, m)".to_owned(), grid),
        ("counted values", "count_values(\"v\", m)".to_owned(), 16_000 * STEP_COUNT),
        ("the answer", "m".to_owned(), grid),
        ("an answer over ranges", "rate(m[5m])".to_owned(), grid),
        ("a join", "m + on (i) m".to_owned(), grid),
        ("a set operation", "m unless on (i) (m > 1e9)".to_owned(), grid),
        ("a sorted whole", "sort(m) or m".to_owned(), grid),
        (
            "label sets",
            format!("count(label_replace(m, \"text\", \"{TEXT}\", \"\", \"\"))"),
            SERIES * TEXT.len() as u64,
        ),
        ("samples of ranges", "m[1h]".to_owned(), SERIES * SAMPLES * 16),
        ("samples of a window", "count(quantile_over_time(0.5, m[1h]))".to_owned(), SAMPLES * 16),
        ("scalars", "count(m * scalar(vector(time())))".to_owned(), STEP_COUNT * 8),
        ("inner steps", "max_over_time(vector(1)[11h:1s])".to_owned(), 11 * 3600 * 8),
    ];
    let (engine, source) = (engine(), source());
    for (kind, query, least) in cases {
        let free = ask(&engine, &source, &query, BudgetLimits::default());
        let peak = free.unwrap_or_else(|error| panic!("{kind}: {error}")).stats.memory_bytes_peak;
        assert!(peak >= least, "{kind}: {peak} bytes are charged, {least} are held");
        let limited = |bytes| BudgetLimits { memory_bytes_max: bytes, ..BudgetLimits::default() };
        let enough = ask(&engine, &source, &query, limited(peak));
        assert_eq!(enough.unwrap().stats.memory_bytes_peak, peak, "{kind}");
        for limit in [peak - 1, peak / 2] {
            let error = ask(&engine, &source, &query, limited(limit)).unwrap_err().to_string();
            let reached = error
                .strip_prefix("query needs ")
                .and_then(|rest| rest.strip_suffix(" (--query.max-memory)"))
                .and_then(|rest| {
                    rest.strip_suffix(&format!(" bytes of memory, the limit is {limit}"))
                })
                .unwrap_or_else(|| panic!("{kind}: {error}"));
            assert!(reached.parse::<u64>().unwrap() > limit, "{kind}: {error}");
        }
    }
}

/// A range as long as a century sees few samples and gives an answer of many: what is computed for
/// it is counted, tile by tile.
#[test]
fn samples_of_an_answer_are_counted_before_all_of_them_are_computed() {
    let (engine, source) = (engine(), source());
    let tile = TileShape::default();
    let cells = (tile.series * tile.steps) as u64;
    let all = SERIES * STEP_COUNT;
    for query in ["rate(m[100y])", "m", "m + 1", "-m", "sum by (i) (m)"] {
        let limited = |count| BudgetLimits { samples_max: count, ..BudgetLimits::default() };
        let answer = ask(&engine, &source, query, limited(all));
        let Value::Grid { rows, .. } = answer.unwrap().value else { panic!("{query}") };
        let count = rows.iter().map(|row| row.iter().count() as u64).sum::<u64>();
        assert!(count > 4 * cells, "{query}: {count}");
        let limit = SERIES * SAMPLES;
        let error = ask(&engine, &source, query, limited(limit)).unwrap_err().to_string();
        let reached = error
            .strip_prefix("query needs ")
            .and_then(|rest| rest.split_once(" samples in its answer, the limit is 36000 "))
            .unwrap_or_else(|| panic!("{query}: {error}"));
        let reached: u64 = reached.0.parse().unwrap();
        assert!(limit < reached && reached <= limit + cells, "{query}: {reached}");
    }
}

#[test]
fn memory_of_a_query_is_released_on_success_and_on_error() {
    let (engine, source) = (engine(), source());
    let pool = Arc::new(MemoryPool::new(8 << 20));
    let limits = |memory_bytes_max| BudgetLimits {
        memory_bytes_max,
        pool: Some(Arc::clone(&pool)),
        ..BudgetLimits::default()
    };
    for query in ["sum by (i) (m)", "m", "m[1h]", "count_values(\"v\", m)", "m + on (i) m"] {
        for memory_bytes_max in [u64::MAX, 1 << 20] {
            let answer = ask(&engine, &source, query, limits(memory_bytes_max));
            let text = answer.err().map_or(String::new(), |error| error.to_string());
            let is_expected = match text.as_str() {
                "" => true,
                text if memory_bytes_max == 1 << 20 => text.contains("(--query.max-memory)"),
                text => text.contains("together, the limit is 8388608 (--query.max-memory-total)"),
            };
            assert!(is_expected, "{query}: {text}");
            assert_eq!(pool.bytes(), 0, "{query}");
        }
    }
    assert!(pool.bytes_peak() > 1 << 20);
}
