//! Tiling harness: one query over the same encoded bytes, evaluated in several ways, with time and
//! memory of each. See `benches/README.md`.

mod ladder;
mod tiles;

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

use benches::data::{INTERVAL_MS, Kind, START_MS, Shape};
use benches::kernel::CountingAllocator;
use benches::measure::{Measured, bytes, measure, table};
use benches::options::{ReportOptions, count};
use benches::report;
use benches::source::ChunkSource;
use clap::Parser;
use engine::steps::Steps;
use engine::tile::TileShape;

use ladder::{Grouping, Ladder, Sums};
use tiles::{Tiles, sealed_store};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const STEP_COUNT: usize = 512;
const LOOKBACK_MS: i64 = 300_000;
const RANGE_MS: i64 = 300_000;

const SUM: &str = "sum by (path) (requests_total)";
const SUM_OF_RATES: &str = "sum by (path) (rate(requests_total[5m]))";

/// Evaluates one query over the same encoded bytes in several ways.
#[derive(Parser)]
#[command(name = "tiling")]
struct Options {
    /// Runs of each measurement.
    #[arg(long = "runs", value_name = "N", default_value = "9", value_parser = count())]
    run_count: usize,
    /// Also measure heights and widths of tiles.
    #[arg(long = "sweep")]
    is_sweep: bool,
    #[command(flatten)]
    report: ReportOptions,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut sections = vec![ladder_section, memory_section, groups_section];
    if options.is_sweep {
        sections.push(sweep_section);
    }
    report::run("Tiling harness", "tiling", options.report.is_record, |report| {
        sections.iter().for_each(|section| report.push(&section(&options)));
        Ok(())
    })
}

/// Returns `count` steps over all samples.
fn steps(shape: Shape, count: usize) -> Steps {
    let start_ms = START_MS + INTERVAL_MS;
    let step_ms = (shape.end_ms() - start_ms) / (count as i64 - 1);
    Steps { start_ms, step_ms, count }
}

fn ladder_section(options: &Options) -> String {
    let shape = Shape::MARK;
    let source = ChunkSource::generate(shape, Kind::Counter);
    let ladder = Ladder::new(source.all(), steps(shape, STEP_COUNT), LOOKBACK_MS);
    let mut text = format!(
        "## {} series × {} samples, {} steps, {} groups\n\n\
         Encoded: {} ({:.2} bytes a sample).\n\n",
        shape.series,
        shape.samples,
        STEP_COUNT,
        shape.groups,
        bytes(source.encoded_bytes()),
        source.encoded_bytes() as f64 / shape.sample_count() as f64,
    );
    let _ = writeln!(text, "{}", decoding_table(&ladder, shape, options.run_count));
    let tiles = |threads| tiles_over(&source, shape, STEP_COUNT, threads, TileShape::default());
    let (one, two) = (tiles(1), tiles(2));
    let runtime = runtime();
    let store = sealed_store(&runtime, shape, Kind::Counter);
    let columns = |threads| {
        let (source, steps) = (Arc::clone(&store), steps(shape, STEP_COUNT));
        Tiles::new(&runtime, source, steps, LOOKBACK_MS, threads, TileShape::default())
    };
    let (columns_one, columns_two) = (columns(1), columns(2));
    let sum: Vec<Rung<'_>> = vec![
        ("binary search per step", Box::new(|| ladder.search_sum(Grouping::ByLabels))),
        ("the same, groups found once", Box::new(|| ladder.search_sum(Grouping::Known))),
        ("stateful cursors, row by row", Box::new(|| ladder.cursor_sum())),
        ("columnar transposition", Box::new(|| ladder.column_sum())),
        ("tiles (the engine), one thread", Box::new(|| one.sums(SUM))),
        ("tiles, two threads", Box::new(|| two.sums(SUM))),
        ("the store, columns decoded before, one thread", Box::new(|| columns_one.sums(SUM))),
        ("the store, two threads", Box::new(|| columns_two.sums(SUM))),
    ];
    let sum_of_rates: Vec<Rung<'_>> = vec![
        ("binary search per step", Box::new(|| ladder.search_rate(Grouping::ByLabels, RANGE_MS))),
        ("the same, groups found once", Box::new(|| ladder.search_rate(Grouping::Known, RANGE_MS))),
        ("tiles (the engine), one thread", Box::new(|| one.sums(SUM_OF_RATES))),
        ("tiles, two threads", Box::new(|| two.sums(SUM_OF_RATES))),
        (
            "the store, columns decoded before, one thread",
            Box::new(|| columns_one.sums(SUM_OF_RATES)),
        ),
        ("the store, two threads", Box::new(|| columns_two.sums(SUM_OF_RATES))),
    ];
    for (query, rungs) in [(SUM, sum), (SUM_OF_RATES, sum_of_rates)] {
        let _ = writeln!(text, "`{query}`\n\n{}", ladder_table(rungs, options.run_count));
    }
    text
}

/// Measures cursors that return a batch of up to 512 samples per call, or at most one or two.
fn decoding_table(ladder: &Ladder, shape: Shape, run_count: usize) -> String {
    let rows = [("a batch", None), ("one sample", Some(INTERVAL_MS))].map(|(name, advance_ms)| {
        let measured = measure(run_count, || ladder.decode_only(advance_ms));
        let ns = |cpu_ms: f64| format!("{:.2}", cpu_ms * 1e6 / shape.sample_count() as f64);
        let ms = format!("{:.1}", measured.cpu_ms);
        vec![name.to_owned(), ms, ns(measured.cpu_ms), ns(measured.cpu_min_ms)]
    });
    table(&["decoding alone, per call", "CPU ms", "ns a sample", "min"], &rows)
}

fn runtime() -> Arc<Runtime> {
    Arc::new(Runtime::new().expect("threads can be started"))
}

type Rung<'a> = (&'a str, Box<dyn Fn() -> Sums + 'a>);

fn tiles_over(
    source: &ChunkSource,
    shape: Shape,
    step_count: usize,
    threads: usize,
    tile_shape: TileShape,
) -> Tiles {
    let steps = steps(shape, step_count);
    Tiles::new(&runtime(), Arc::new(source.clone()), steps, LOOKBACK_MS, threads, tile_shape)
}

fn ladder_table(rungs: Vec<Rung<'_>>, run_count: usize) -> String {
    let mut expected = None;
    let mut measured: Vec<Measured> = Vec::new();
    let mut rows = Vec::new();
    for (name, rung) in rungs {
        let found = rung();
        check_equal(name, &found, expected.get_or_insert_with(|| found.clone()));
        let this = measure(run_count, rung);
        let ratio = |to: Option<&Measured>| {
            to.map_or(String::new(), |to| format!("{:.2}", to.cpu_ms / this.cpu_ms))
        };
        rows.push(vec![
            name.to_owned(),
            format!("{:.1}", this.cpu_ms),
            format!("{:.1}", this.cpu_min_ms),
            format!("{:.1}", this.wall_ms),
            ratio(measured.last()),
            ratio(measured.first()),
            bytes(this.peak_bytes),
        ]);
        measured.push(this);
    }
    table(&["rung", "CPU ms", "min", "wall ms", "× before", "× first", "peak"], &rows)
}

/// Measures the memory of `sum by (…) (rate(…))` by series and steps.
fn memory_section(_: &Options) -> String {
    let mut rows = Vec::new();
    for (series, step_count) in [(1_250, 512), (5_000, 512), (5_000, 4_096), (20_000, 4_096)] {
        let shape = Shape { series, ..Shape::MARK };
        let source = ChunkSource::generate(shape, Kind::Counter);
        let tiles = tiles_over(&source, shape, step_count, 1, TileShape::default());
        let measured = measure(1, || tiles.run(SUM_OF_RATES));
        rows.push(vec![
            format!("{series} × {step_count}"),
            bytes(series * step_count * 8),
            bytes(shape.groups * step_count * 8),
            bytes(measured.peak_bytes),
            format!("{:.1}", measured.cpu_ms),
        ]);
    }
    let head = ["series × steps", "all values", "output", "peak", "CPU ms"];
    format!("## Memory of `{SUM_OF_RATES}`, one thread\n\n{}", table(&head, &rows))
}

/// Measures the time of `sum by (…) (m)` by number of groups.
fn groups_section(options: &Options) -> String {
    let mut rows = Vec::new();
    for groups in [1, 32, 512, 5_000] {
        let shape = Shape { groups, ..Shape::MARK };
        let source = ChunkSource::generate(shape, Kind::Counter);
        let run = |query, threads| {
            let tiles = tiles_over(&source, shape, STEP_COUNT, threads, TileShape::default());
            measure(options.run_count, || tiles.run(query))
        };
        let (sum, sum_two) = (run(SUM, 1), run(SUM, 2));
        let quantile = run("quantile by (path) (0.9, requests_total)", 1);
        rows.push(vec![
            groups.to_string(),
            format!("{:.1}", sum.cpu_ms),
            format!("{:.1}", sum_two.cpu_ms),
            bytes(sum.peak_bytes),
            format!("{:.1}", quantile.cpu_ms),
        ]);
    }
    let head = ["groups", "sum, CPU ms", "two threads, CPU ms", "peak", "quantile, CPU ms"];
    format!("## Groups\n\n{}", table(&head, &rows))
}

/// Measures the time of `sum by (…) (m)` by height and width of tiles.
fn sweep_section(options: &Options) -> String {
    const WIDTHS: [usize; 6] = [16, 32, 64, 128, 256, 512];
    let shape = Shape::MARK;
    let source = ChunkSource::generate(shape, Kind::Counter);
    let mut rows = Vec::new();
    for height in [64, 128, 256, 512, 1_024, 2_048] {
        let mut row = vec![height.to_string()];
        for width in WIDTHS {
            let tile_shape = TileShape { series: height, steps: width };
            let tiles = tiles_over(&source, shape, STEP_COUNT, 1, tile_shape);
            row.push(format!("{:.1}", measure(options.run_count, || tiles.run(SUM)).cpu_ms));
        }
        rows.push(row);
    }
    let widths = WIDTHS.map(|width| format!("{width} steps"));
    let head: Vec<&str> =
        std::iter::once("series").chain(widths.iter().map(String::as_str)).collect();
    format!("## Height and width of tiles, `{SUM}`, CPU ms\n\n{}", table(&head, &rows))
}

/// Checks the result of a rung.
///
/// Panics: it differs.
fn check_equal(name: &str, found: &Sums, expected: &Sums) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_equal = found.to_bits() == expected.to_bits()
            || (found - expected).abs() <= 1e-9 * expected.abs();
        assert!(is_equal, "{name}: {found} instead of {expected} at cell {index}");
    }
}
