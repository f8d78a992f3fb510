//! Native histograms for queries: counters and gauges of every schema and with custom bounds, with
//! resets, changes of layout and zero bucket, NaN observations, and floats in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::histogram::{
    CUSTOM_BUCKETS_SCHEMA, EXPONENTIAL_SCHEMA_MAX, EXPONENTIAL_SCHEMA_MIN, decide_hint,
    exponential_bound,
};
use model::memory::MemorySource;
use model::{Histogram, Labels, ResetHint, Span, stale_nan};

use crate::generate::Random;
use crate::generate::samples::{Shape, random_shape, steady, walk, with};

/// Custom bounds, some in common; the third extends the first.
const BOUNDS: [&[f64]; 4] = [
    &[1.0, 2.0, 5.0, 10.0],
    &[0.5, 2.0, 5.0],
    &[1.0, 2.0, 3.0, 5.0, 10.0, 20.0],
    &[-3.0, 0.0, 7.5],
];

/// Kind of observations, and frequency of changes.
#[derive(Debug, Clone, Copy)]
struct Habit {
    is_gauge: bool,
    /// True if counts are fractional.
    is_fractional: bool,
    has_negative: bool,
    /// True if all buckets exist from the first sample on, some empty, and samples may repeat.
    /// Empty buckets affect `changes`, `resets` of gauges and quantiles with NaN observations. In
    /// Prometheus, all samples of a chunk have the same buckets.
    is_settled: bool,
    /// One in how many samples observes a NaN or an infinity.
    odd_one_in: u64,
    /// One in how many samples resets the counter, with another layout.
    reset_one_in: u64,
    /// One in how many samples halves the resolution or widens the zero bucket.
    merged_one_in: u64,
    /// One in how many samples changes the kind of buckets.
    kind_one_in: u64,
    /// One in how many samples switches between floats and histograms.
    float_one_in: u64,
}

const CALM: Habit = Habit {
    is_gauge: false,
    is_fractional: false,
    has_negative: false,
    is_settled: true,
    odd_one_in: u64::MAX,
    reset_one_in: u64::MAX,
    merged_one_in: u64::MAX,
    kind_one_in: u64::MAX,
    float_one_in: u64::MAX,
};

/// Adds all series of histograms.
pub(super) fn add_histograms(source: &mut MemorySource, seed: u64) {
    // Separate random numbers, so that floats do not depend on histograms.
    let mut random = Random::new(seed ^ 0x4157_0000);
    let counter = Habit { is_settled: false, reset_one_in: 50, merged_one_in: 60, ..CALM };
    for job in ["a", "b"] {
        for instance in ["0", "1", "2"] {
            let own = [("job", job), ("instance", instance)];
            let mut add = |name: &str, shape: Option<Shape>, habit, kind| {
                let shape = shape.unwrap_or_else(|| random_shape(&mut random));
                add_series(source, &mut random, &with(&own, name, &[]), &shape, habit, kind);
            };
            add("steady_seconds", Some(steady()), CALM, Kind::Exponential(3));
            add("rpc_seconds", None, counter, Kind::Any);
            add("size_bytes", None, counter, Kind::AnyCustom);
            let gauge = Habit {
                is_gauge: true,
                is_fractional: instance == "1",
                has_negative: true,
                ..CALM
            };
            add("queue_depth", None, gauge, Kind::Any);
            let mixed = Habit { float_one_in: 12, kind_one_in: 60, ..counter };
            add("mixed", None, mixed, Kind::Any);
        }
        let own = [("job", job)];
        let odd = Habit {
            odd_one_in: 40,
            kind_one_in: 30,
            has_negative: true,
            is_settled: true,
            ..counter
        };
        let labels = with(&own, "odd_seconds", &[]);
        let shape = random_shape(&mut random);
        add_series(source, &mut random, &labels, &shape, odd, Kind::Any);
        // In addition to the classic histogram of the same name.
        let labels = with(&own, "latency", &[]);
        add_series(source, &mut random, &labels, &steady(), CALM, Kind::Exponential(0));
    }
    for schema in EXPONENTIAL_SCHEMA_MIN..=EXPONENTIAL_SCHEMA_MAX {
        let job = if schema % 2 == 0 { "a" } else { "b" };
        let own = [("job", job), ("schema", &schema.to_string())];
        let habit = Habit {
            is_fractional: schema % 3 == 0,
            has_negative: true,
            merged_one_in: 80,
            ..counter
        };
        let labels = with(&own, "fine_seconds", &[]);
        let shape = random_shape(&mut random);
        add_series(source, &mut random, &labels, &shape, habit, Kind::Exponential(schema));
    }
    let labels = Labels::from_pairs([("__name__", "alone_seconds")]);
    add_series(source, &mut random, &labels, &steady(), counter, Kind::Exponential(1));
}

/// Kind of buckets of a series.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Exponential(i8),
    AnyCustom,
    /// Any exponential schema, rarely custom bounds.
    Any,
}

fn add_series(
    source: &mut MemorySource,
    random: &mut Random,
    labels: &Labels,
    shape: &Shape,
    habit: Habit,
    kind: Kind,
) {
    let mut counter = Counter::new(random, kind, habit.has_negative);
    let mut is_float = false;
    let mut previous: Option<Arc<Histogram>> = None;
    walk(random, shape, |random, time_ms, number| {
        is_float ^= random.one_in(habit.float_one_in);
        let is_stale = number.is_none();
        // A histogram becomes stale by a histogram: Prometheus 3.14.0 loses some float markers.
        let writes_float = if is_stale { previous.is_none() } else { is_float };
        if writes_float {
            let value = if is_stale { stale_nan() } else { random.below(80) as f64 / 4.0 };
            source.append(labels, time_ms, value);
            previous = None;
            return;
        }
        let mut histogram = match is_stale {
            true => Histogram::stale(),
            false => counter.next(random, habit, kind),
        };
        histogram.reset_hint = decide_hint(previous.as_deref(), &histogram);
        let histogram = Arc::new(histogram);
        source.append_histogram(labels, time_ms, Arc::clone(&histogram), 0);
        previous = Some(histogram);
    });
}

/// A histogram that accumulates observations.
struct Counter {
    schema: i8,
    bounds: Arc<[f64]>,
    threshold: f64,
    /// Bucket index at the center of the observations.
    center: i32,
    zero: f64,
    positive: BTreeMap<i32, f64>,
    negative: BTreeMap<i32, f64>,
    /// Observations that are in no bucket.
    without: f64,
    sum: f64,
    has_negative: bool,
    /// Maximum gap that is filled with empty buckets. All gaps or none are filled, so that equal
    /// histograms have equal spans in any chunk.
    gap_max: i32,
}

impl Counter {
    fn new(random: &mut Random, kind: Kind, has_negative: bool) -> Counter {
        let is_custom = match kind {
            Kind::Exponential(_) => false,
            Kind::AnyCustom => true,
            Kind::Any => random.one_in(6),
        };
        let schema = match kind {
            _ if is_custom => CUSTOM_BUCKETS_SCHEMA,
            Kind::Exponential(schema) => schema,
            _ => EXPONENTIAL_SCHEMA_MIN + random.below(13) as i8,
        };
        let threshold = match random.below(3) {
            _ if is_custom => 0.0,
            0 => 0.0,
            1 => 2f64.powi(-128),
            _ => 0.001,
        };
        let bounds = if is_custom {
            *random.pick(&[&BOUNDS[0], &BOUNDS[1], &BOUNDS[2], &BOUNDS[3]])
        } else {
            &[]
        };
        Counter {
            schema,
            bounds: Arc::from(bounds),
            threshold,
            center: random.below(16) as i32 - 4,
            zero: 0.0,
            positive: BTreeMap::new(),
            negative: BTreeMap::new(),
            without: 0.0,
            sum: 0.0,
            has_negative: has_negative && !is_custom,
            gap_max: if random.one_in(2) { 0 } else { i32::MAX },
        }
    }

    fn is_custom(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    fn next(&mut self, random: &mut Random, habit: Habit, kind: Kind) -> Histogram {
        if random.one_in(habit.kind_one_in) {
            *self = Counter::new(random, kind, habit.has_negative);
        } else if random.one_in(habit.reset_one_in) {
            self.reset(random, habit);
        } else if random.one_in(habit.merged_one_in) && !self.is_custom() {
            self.merge(random);
        }
        if habit.is_gauge {
            self.reset(random, habit);
        }
        if habit.is_settled {
            self.settle();
        }
        for _ in 0..random.below(5) + u64::from(!habit.is_settled) {
            let weight = if habit.is_fractional { 0.25 } else { 1.0 };
            let weight = weight * (1 + random.below(4)) as f64;
            self.observe(random, weight);
        }
        if random.one_in(habit.odd_one_in) {
            match random.below(3) {
                0 => self.sum += f64::INFINITY,
                _ => {
                    self.sum = f64::NAN;
                    self.without += 1.0;
                }
            }
        }
        self.populate();
        self.histogram(habit.is_gauge)
    }

    /// Counts one observation, or several in the same bucket.
    fn observe(&mut self, random: &mut Random, weight: f64) {
        self.sum +=
            weight * (random.below(64) as f64 / 4.0 - if self.has_negative { 8.0 } else { 0.0 });
        let index = if self.is_custom() {
            random.below(self.bounds.len() as u64 + 1) as i32
        } else {
            self.center + random.below(7) as i32 - random.below(7) as i32
        };
        if !self.is_custom()
            && exponential_bound(i64::from(index) - 1, self.schema) < self.threshold
            || !self.is_custom() && random.one_in(12)
        {
            self.zero += weight;
        } else if self.has_negative && random.one_in(2) {
            *self.negative.entry(index).or_default() += weight;
        } else {
            *self.positive.entry(index).or_default() += weight;
        }
    }

    fn reset(&mut self, random: &mut Random, habit: Habit) {
        if !habit.is_settled {
            self.center += random.below(5) as i32 - 2;
            self.center = self.center.clamp(-20, 20);
        }
        (self.zero, self.without, self.sum) = (0.0, 0.0, 0.0);
        self.positive.clear();
        self.negative.clear();
    }

    /// Halves the resolution, or widens the zero bucket.
    fn merge(&mut self, random: &mut Random) {
        if self.schema > EXPONENTIAL_SCHEMA_MIN && random.one_in(2) {
            self.schema -= 1;
            let halved = |index: i32| ((index - 1) >> 1) + 1;
            self.center = halved(self.center);
            for side in [&mut self.positive, &mut self.negative] {
                for (index, count) in std::mem::take(side) {
                    *side.entry(halved(index)).or_default() += count;
                }
            }
            return;
        }
        let lowest = self.positive.keys().chain(self.negative.keys()).min().copied();
        let Some(index) = lowest.map(|lowest| lowest + random.below(3) as i32) else { return };
        let threshold = exponential_bound(i64::from(index), self.schema);
        if threshold <= self.threshold {
            return;
        }
        self.threshold = threshold;
        for side in [&mut self.positive, &mut self.negative] {
            let outside = side.split_off(&(index + 1));
            self.zero += side.values().sum::<f64>();
            *side = outside;
        }
    }

    /// Creates all buckets.
    fn settle(&mut self) {
        let indices = match self.is_custom() {
            true => 0..self.bounds.len() as i32 + 1,
            false => self.center - 6..self.center + 7,
        };
        let (schema, threshold) = (self.schema, self.threshold);
        let is_outside = |index: &i32| {
            schema == CUSTOM_BUCKETS_SCHEMA
                || exponential_bound(i64::from(*index), schema) > threshold
        };
        for index in indices.filter(is_outside) {
            self.positive.entry(index).or_default();
            if self.has_negative {
                self.negative.entry(index).or_default();
            }
        }
    }

    /// Populates each side that is in use. The populated sides determine the bounds of the zero
    /// bucket, and in a chunk of Prometheus all histograms have the same buckets.
    fn populate(&mut self) {
        let is_custom = self.is_custom();
        let mut index = if is_custom { 0 } else { self.center };
        let (threshold, schema) = (self.threshold, self.schema);
        while !is_custom && exponential_bound(i64::from(index) - 1, schema) < threshold {
            index += 1;
        }
        let has_negative = self.has_negative;
        let sides = [Some(&mut self.positive), has_negative.then_some(&mut self.negative)];
        for side in sides.into_iter().flatten().filter(|side| side.is_empty()) {
            side.insert(index, 1.0);
        }
    }

    fn histogram(&self, is_gauge: bool) -> Histogram {
        let (positive_spans, positive_counts) = spans(&self.positive, self.gap_max);
        let (negative_spans, negative_counts) = spans(&self.negative, self.gap_max);
        let counts = positive_counts.iter().chain(&negative_counts);
        Histogram {
            reset_hint: if is_gauge { ResetHint::Gauge } else { ResetHint::Unknown },
            schema: self.schema,
            zero_threshold: self.threshold,
            zero_count: self.zero,
            count: counts.sum::<f64>() + self.zero + self.without,
            sum: self.sum,
            positive_spans,
            negative_spans,
            positive_counts,
            negative_counts,
            custom_bounds: Arc::clone(&self.bounds),
        }
    }
}

/// Converts buckets to spans; gaps up to `gap_max` are filled with empty buckets.
fn spans(buckets: &BTreeMap<i32, f64>, gap_max: i32) -> (Vec<Span>, Vec<f64>) {
    let (mut spans, mut counts): (Vec<Span>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut next = 0;
    for (index, count) in buckets {
        let gap = index - next;
        match spans.last_mut() {
            Some(span) if gap <= gap_max => {
                span.length += gap as u32 + 1;
                counts.extend(std::iter::repeat_n(0.0, gap as usize));
            }
            _ => spans.push(Span { offset: gap, length: 1 }),
        }
        counts.push(*count);
        next = index + 1;
    }
    (spans, counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::samples;

    #[test]
    fn every_kind_of_histogram_comes_up() {
        let source = samples(1);
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut note = |what: &str| *seen.entry(what.to_owned()).or_default() += 1;
        for (_, histograms) in source.histograms() {
            for pair in histograms.windows(2) {
                let [before, histogram] = [&pair[0].histogram, &pair[1].histogram];
                if histogram.is_stale() {
                    note("stale");
                    continue;
                }
                histogram.validate().unwrap();
                note(&format!("schema {}", histogram.schema));
                note(&format!("{:?}", histogram.reset_hint));
                let counts = histogram.positive_counts.iter().chain(&histogram.negative_counts);
                let in_buckets = counts.sum::<f64>() + histogram.zero_count;
                for (applies, what) in [
                    (histogram.count.fract() != 0.0, "fractional"),
                    (histogram.count > in_buckets, "without a bucket"),
                    (histogram.sum.is_infinite(), "infinite"),
                    (!histogram.negative_counts.is_empty(), "negative"),
                    (histogram.zero_threshold > before.zero_threshold, "wider zero bucket"),
                    (histogram.custom_bounds != before.custom_bounds, "other bounds"),
                    (histogram.positive_counts.contains(&0.0), "empty bucket"),
                ] {
                    if applies {
                        note(what);
                    }
                }
            }
        }
        let expected = (EXPONENTIAL_SCHEMA_MIN..=EXPONENTIAL_SCHEMA_MAX)
            .chain([CUSTOM_BUCKETS_SCHEMA])
            .map(|schema| format!("schema {schema}"))
            .chain(["Unknown", "NotReset", "Gauge", "stale", "fractional"].map(str::to_owned))
            .chain(["without a bucket", "infinite", "negative"].map(str::to_owned))
            .chain(["wider zero bucket", "other bounds", "empty bucket"].map(str::to_owned));
        for what in expected {
            assert!(seen.contains_key(&what), "{what} is missing in {seen:?}");
        }
    }
}
