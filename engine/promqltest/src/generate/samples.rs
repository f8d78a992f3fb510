//! Samples for queries: resets, gaps, stale markers, NaN, infinities, irregular timestamps, and
//! series that begin and end. This file has the floats; native histograms are in `native.rs`.

use model::memory::MemorySource;
use model::{Labels, stale_nan};

use crate::generate::{Random, native};

/// First timestamp, in ms: far from the epoch, and not aligned to a step.
pub const START_MS: i64 = 1_700_000_003_000;
/// Duration of the data.
pub const SPAN_MS: i64 = 7_200_000;
const SCRAPE_MS: i64 = 15_000;

/// Time range and spacing of a series' samples.
pub(super) struct Shape {
    from_ms: i64,
    to_ms: i64,
    interval_ms: i64,
    jitter_ms: u64,
    /// One in how many samples begins a gap.
    gap_one_in: u64,
    /// True if a gap begins with a staleness marker.
    is_marked: bool,
}

/// Returns all samples for a seed.
pub fn samples(seed: u64) -> MemorySource {
    let mut random = Random::new(seed);
    let mut source = MemorySource::new();
    for job in ["a", "b"] {
        for instance in ["0", "1", "2"] {
            let own = [("job", job), ("instance", instance)];
            for code in ["200", "500"] {
                let labels = with(&own, "requests_total", &[("code", code)]);
                add_counter(&mut source, &mut random, &labels);
            }
            add_gauge(&mut source, &mut random, &with(&own, "temperature", &[]), true);
            add_gauge(&mut source, &mut random, &with(&own, "load", &[("zone", "z")]), false);
            add_gauge(&mut source, &mut random, &with(&own, "other", &[]), false);
            let version = if instance == "0" { "v1" } else { "v2" };
            let info = with(&own, "target_info", &[("version", version), ("cluster", "c")]);
            add(&mut source, &mut random, &info, &steady(), |_, _| 1.0);
        }
        let build = with(&[("job", job)], "build_info", &[("revision", "r1")]);
        add(&mut source, &mut random, &build, &steady(), |_, _| 1.0);
        add_classic_histogram(&mut source, &mut random, job);
        let flappy = with(&[("job", job)], "flappy", &[]);
        let shape = Shape { gap_one_in: 4, is_marked: true, ..steady() };
        add(&mut source, &mut random, &flappy, &shape, |random, _| random.below(5) as f64);
    }
    for n in 0..10 {
        let own = [("n", ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"][n])];
        let parity = if n % 2 == 0 { "even" } else { "odd" };
        let labels = with(&own, "unique", &[("parity", parity)]);
        add(&mut source, &mut random, &labels, &steady(), |random, _| {
            n as f64 * 10.0 + random.below(32) as f64 / 8.0
        });
    }
    let sparse = Shape { interval_ms: 240_000, jitter_ms: 90_000, ..steady() };
    let labels = Labels::from_pairs([("__name__", "sparse")]);
    add(&mut source, &mut random, &labels, &sparse, |random, _| random.below(100) as f64 - 50.0);
    let labels = Labels::from_pairs([("__name__", "lonely")]);
    add(&mut source, &mut random, &labels, &steady(), |_, i| (i % 7) as f64);
    let labels = Labels::from_pairs([("__name__", "moment_seconds")]);
    add(&mut source, &mut random, &labels, &steady(), |random, _| {
        random.below(4_000_000_000) as f64 - 1_000_000_000.0
    });
    for name in ["a \"quoted\" name", "b\\c", "Ä\n"] {
        let own = [("service.name", name), ("job", "a")];
        add_counter(&mut source, &mut random, &with(&own, "http.requests", &[]));
    }
    native::add_histograms(&mut source, seed);
    source
}

pub(super) fn with(own: &[(&str, &str)], name: &str, more: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(own.iter().chain(more).copied().chain([("__name__", name)]))
}

pub(super) fn steady() -> Shape {
    Shape {
        from_ms: START_MS,
        to_ms: START_MS + SPAN_MS,
        interval_ms: SCRAPE_MS,
        jitter_ms: 0,
        gap_one_in: u64::MAX,
        is_marked: false,
    }
}

pub(super) fn random_shape(random: &mut Random) -> Shape {
    let mut shape = steady();
    if random.one_in(3) {
        shape.from_ms += random.below(SPAN_MS as u64 / 2) as i64;
    }
    if random.one_in(3) {
        shape.to_ms -= random.below(SPAN_MS as u64 / 2) as i64;
    }
    shape.interval_ms = [SCRAPE_MS, SCRAPE_MS, 30_000, 60_000][random.below(4) as usize];
    shape.jitter_ms = [0, 0, 10, 4_000][random.below(4) as usize];
    shape.gap_one_in = [u64::MAX, 20, 60][random.below(3) as usize];
    shape.is_marked = random.one_in(2);
    shape
}

/// Adds a series; `value` is called with the index of the sample.
fn add(
    source: &mut MemorySource,
    random: &mut Random,
    labels: &Labels,
    shape: &Shape,
    mut value: impl FnMut(&mut Random, usize) -> f64,
) {
    walk(random, shape, |random, time_ms, number| {
        let value = number.map_or(stale_nan(), |number| value(random, number));
        source.append(labels, time_ms, value);
    });
}

/// Calls `at` for each time of a series, ascending, with the index of the sample, or `None` for a
/// staleness marker.
pub(super) fn walk(
    random: &mut Random,
    shape: &Shape,
    mut at: impl FnMut(&mut Random, i64, Option<usize>),
) {
    let mut time_ms = shape.from_ms;
    let mut count = 0;
    while time_ms <= shape.to_ms {
        let jitter = if shape.jitter_ms == 0 { 0 } else { random.below(shape.jitter_ms) as i64 };
        if random.one_in(shape.gap_one_in) {
            if shape.is_marked {
                at(random, time_ms + jitter, None);
            }
            time_ms += shape.interval_ms * (1 + random.below(40) as i64);
            continue;
        }
        at(random, time_ms + jitter, Some(count));
        count += 1;
        time_ms += shape.interval_ms;
    }
    if shape.to_ms < START_MS + SPAN_MS && shape.is_marked {
        at(random, time_ms, None);
    }
}

fn add_counter(source: &mut MemorySource, random: &mut Random, labels: &Labels) {
    let shape = random_shape(random);
    let mut total = random.below(1000) as f64;
    add(source, random, labels, &shape, |random, _| {
        total = if random.one_in(50) { random.below(5) as f64 } else { total };
        total += random.below(16) as f64;
        total
    });
}

/// Adds a gauge of numbers with exact sums; with `is_odd`, some are NaN or infinite.
fn add_gauge(source: &mut MemorySource, random: &mut Random, labels: &Labels, is_odd: bool) {
    let shape = random_shape(random);
    add(source, random, labels, &shape, |random, _| match random.below(120) {
        0 if is_odd => f64::NAN,
        1 if is_odd => f64::INFINITY,
        2 if is_odd => f64::NEG_INFINITY,
        3 => -0.0,
        _ => random.below(80) as f64 / 4.0 - 5.0,
    });
}

fn add_classic_histogram(source: &mut MemorySource, random: &mut Random, job: &str) {
    let mut totals = [0u64; 5];
    for i in 0..SPAN_MS / SCRAPE_MS {
        let time_ms = START_MS + i * SCRAPE_MS;
        let mut below = 0;
        for (total, le) in totals.iter_mut().zip(["0.1", "0.5", "1", "5", "+Inf"]) {
            *total += random.below(4);
            below += *total;
            let labels = with(&[("job", job)], "latency_bucket", &[("le", le)]);
            source.append(&labels, time_ms, below as f64);
        }
        let count = with(&[("job", job)], "latency_count", &[]);
        source.append(&count, time_ms, below as f64);
        let sum = with(&[("job", job)], "latency_sum", &[]);
        source.append(&sum, time_ms, below as f64 * 0.75);
    }
}
