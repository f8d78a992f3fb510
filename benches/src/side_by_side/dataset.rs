//! Seeded scrapes of a cluster, generated while they are sent: only the state of each series is in
//! memory.
//!
//! Counters of requests (32 per target: 8 paths × 4 statuses, with rare resets), gauges with jitter
//! and noise (two per target), and classic histograms (12 buckets each).

use std::ops::Range;

use testkit::remote_write::{RequestEncoder, encode_labels};

use crate::data::Random;
use crate::scenario::load::Protocol;

/// Time between two scrapes.
pub const INTERVAL_MS: i64 = 15_000;
/// Scrapes per hour.
const SCRAPES_PER_HOUR: usize = 240;
/// Maximum jitter of a gauge's scrape.
const JITTER_MS: u64 = 50;
/// Maximum jitter of every scrape of a dataset with jitter.
const STRONG_JITTER_MS: u64 = 500;
/// Scrape intervals of a dataset with mixed intervals, as multiples of [`INTERVAL_MS`].
const INTERVAL_FACTORS: [usize; 3] = [1, 2, 4];
/// Mean distance, in scrapes, of the first failed scrapes of a dataset with gaps.
const GAP_DISTANCE: u64 = 100;
/// Maximum number of scrapes that fail in a row.
const GAP_SCRAPES: u64 = 10;
/// Maximum number of scrapes by which a sample is sent late, ten minutes.
const LATE_SCRAPES: u64 = 40;
/// Paths of the counters.
pub const PATHS: [&str; 8] = [
    "/api/v1/items",
    "/api/v1/items/{id}",
    "/api/v1/orders",
    "/api/v1/orders/{id}",
    "/api/v1/users",
    "/healthz",
    "/login",
    "/metrics",
];
/// Statuses of the counters, with the limit of their growth per scrape.
const STATUSES: [(&str, u64); 4] = [("200", 100), ("404", 30), ("500", 10), ("503", 4)];
/// Upper bounds of the histograms.
const BOUNDS: [&str; 12] =
    ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
const NAMESPACES: [&str; 3] = ["shop", "search", "billing"];
/// Staleness marker.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Size and behavior of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dataset {
    /// Name of the dataset.
    pub name: &'static str,
    /// Number of clusters; the other sizes are per cluster.
    pub clusters: usize,
    /// Counter series.
    pub counters: usize,
    /// Targets with two gauges each.
    pub gauge_pairs: usize,
    /// Classic histograms.
    pub histograms: usize,
    /// Samples of a series that does not end.
    pub scrapes: usize,
    /// Scrapes of a series in one request.
    pub scrapes_per_request: usize,
    /// Behavior of targets and senders.
    pub behavior: Behavior,
    /// Protocol of the senders.
    pub protocol: Protocol,
    /// Time between two of the 512 steps of a query in s.
    pub step_s: i64,
    /// True if the ranges of functions are as long as a step, like Grafana's `$__interval`.
    pub has_long_ranges: bool,
}

/// Behavior of targets and senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behavior {
    /// Evenly spaced scrapes, except for a small jitter of gauges.
    Steady,
    /// A third of the targets is replaced every hour.
    Churn,
    /// A tenth of the samples is sent up to [`LATE_SCRAPES`] scrapes later.
    Late,
    /// Every scrape is up to [`STRONG_JITTER_MS`] early or late.
    Jitter,
    /// Targets have different scrape intervals.
    MixedIntervals,
    /// Scrapes fail, which staleness markers report.
    Gaps,
}

/// All datasets.
pub const DATASETS: [Dataset; 10] = [
    SMALL,
    Dataset { name: "wide", clusters: 10, scrapes: 240, step_s: 5, ..SMALL },
    Dataset { name: "churn", behavior: Behavior::Churn, ..SMALL },
    Dataset { name: "late", behavior: Behavior::Late, ..SMALL },
    Dataset { name: "jitter", behavior: Behavior::Jitter, ..SMALL },
    Dataset { name: "mixed", behavior: Behavior::MixedIntervals, ..SMALL },
    Dataset { name: "gaps", behavior: Behavior::Gaps, ..SMALL },
    Dataset { name: "otlp", protocol: Protocol::Otlp, ..SMALL },
    Dataset {
        name: "long",
        counters: 96,
        gauge_pairs: 28,
        histograms: 4,
        scrapes: 30 * 24 * SCRAPES_PER_HOUR,
        scrapes_per_request: 60,
        // 512 steps of it are 29.8 days.
        step_s: 5_040,
        ..SMALL
    },
    Dataset {
        name: "year",
        counters: 64,
        gauge_pairs: 6,
        histograms: 2,
        scrapes: 365 * 24 * SCRAPES_PER_HOUR,
        scrapes_per_request: 240,
        // 512 steps of it are 362 days and 16 hours.
        step_s: 17 * 3_600,
        has_long_ranges: true,
        ..SMALL
    },
];

const SMALL: Dataset = Dataset {
    name: "small",
    clusters: 1,
    counters: 5_000,
    gauge_pairs: 600,
    histograms: 100,
    scrapes: 1_024,
    scrapes_per_request: 1,
    behavior: Behavior::Steady,
    protocol: Protocol::V1,
    step_s: 15,
    has_long_ranges: false,
};

impl Dataset {
    /// Returns the distance of the times at which queries may end, in s. Grafana aligns steps.
    pub fn alignment_s(&self) -> i64 {
        if self.has_long_ranges { self.step_s } else { 60 }
    }

    /// Returns the number of series at any time.
    pub fn series_count(&self) -> usize {
        let gauges = 2 * self.gauge_pairs;
        self.clusters * (self.counters + gauges + BOUNDS.len() * self.histograms)
    }

    /// Returns the state of all series, in independent parts of about the same size.
    pub fn parts(&self, count: usize) -> Vec<Part> {
        let mut targets = Vec::new();
        for cluster in 0..self.clusters {
            let of_counters = self.counters.div_ceil(PATHS.len() * STATUSES.len());
            let mut push = |kind, count| {
                for index in 0..count {
                    targets.push(Target::new(self, kind, cluster, index));
                }
            };
            push(Kind::Counters, of_counters);
            push(Kind::Gauges, self.gauge_pairs);
            push(Kind::Histogram, self.histograms);
        }
        let mut parts: Vec<Part> =
            (0..count).map(|_| Part { dataset: *self, targets: Vec::new() }).collect();
        for (index, target) in targets.into_iter().enumerate() {
            parts[index % count].targets.push(target);
        }
        parts
    }

    /// Returns the end of the samples, if the first scrape began at a time.
    pub fn end_ms(&self, start_ms: i64) -> i64 {
        start_ms + self.scrapes as i64 * INTERVAL_MS
    }
}

/// Targets of one sender.
pub struct Part {
    dataset: Dataset,
    targets: Vec<Target>,
}

impl Part {
    /// Generates all scrapes in the order of time, and calls `send` for each request of at least
    /// `samples` samples: with its message, their number, and the number of finished scrapes.
    ///
    /// Errors: the first error of `send`.
    pub fn send<E>(
        mut self,
        start_ms: i64,
        samples: usize,
        mut send: impl FnMut(&RequestEncoder, usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut encoder = RequestEncoder::default();
        let mut count = 0;
        for first in (0..self.dataset.scrapes).step_by(self.dataset.scrapes_per_request) {
            let scrapes =
                first..(first + self.dataset.scrapes_per_request).min(self.dataset.scrapes);
            for target in &mut self.targets {
                count += target.scrape(&self.dataset, start_ms, scrapes.clone(), &mut encoder);
                if count >= samples {
                    send(&encoder, count, scrapes.end)?;
                    encoder.clear();
                    count = 0;
                }
            }
        }
        if count > 0 {
            send(&encoder, count, self.dataset.scrapes)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counters,
    Gauges,
    Histogram,
}

/// Target of scrapes.
struct Target {
    kind: Kind,
    cluster: usize,
    index: usize,
    /// Number of replacements.
    generation: usize,
    phase_ms: i64,
    random: Random,
    series: Vec<Series>,
    /// Samples to be sent late.
    held_back: Vec<HeldBack>,
    /// First scrape after the current gap.
    gap_end: usize,
}

/// Sample that is sent with a later scrape.
struct HeldBack {
    scrape: usize,
    series_index: usize,
    sample: (i64, f64),
}

/// Result of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScrapeResult {
    Values,
    /// The first of some failed scrapes: staleness markers are sent.
    Failed,
}

/// Returns the maximum jitter of a target's scrapes.
fn jitter_ms(dataset: &Dataset, kind: Kind) -> u64 {
    match (dataset.behavior, kind) {
        (Behavior::Jitter, _) => STRONG_JITTER_MS,
        (_, Kind::Gauges) => JITTER_MS,
        (_, Kind::Counters | Kind::Histogram) => 0,
    }
}

struct Series {
    labels: Box<[u8]>,
    value: f64,
    /// Limit of the growth between two scrapes.
    growth: u64,
}

impl Target {
    fn new(dataset: &Dataset, kind: Kind, cluster: usize, index: usize) -> Target {
        let seed = (cluster as u64) << 32 | (kind as u64) << 24 | index as u64;
        let mut random = Random::new(seed);
        let margin = jitter_ms(dataset, kind) as i64 + 1;
        let phase_ms = margin + random.below((INTERVAL_MS - 2 * margin) as u64) as i64;
        let (series, held_back) = (Vec::new(), Vec::new());
        let mut target = Target {
            kind,
            cluster,
            index,
            generation: 0,
            phase_ms,
            random,
            series,
            held_back,
            gap_end: 0,
        };
        let labels = target.labels(dataset);
        for (position, labels) in labels.into_iter().enumerate() {
            let (value, growth) = match kind {
                // Counters of different ages.
                Kind::Counters => {
                    let (_, growth) = STATUSES[position / PATHS.len()];
                    (target.random.below(1_000_000_000) as f64, growth)
                }
                Kind::Gauges => (67_108_864.0, 0),
                Kind::Histogram => (0.0, 0),
            };
            target.series.push(Series { labels, value, growth });
        }
        target
    }

    /// Returns the encoded labels of all its series.
    fn labels(&self, dataset: &Dataset) -> Vec<Box<[u8]>> {
        let &Target { kind, cluster, index, generation, .. } = self;
        let (name, job) = match kind {
            Kind::Counters => ("api", "api"),
            Kind::Gauges => ("worker", "kubelet"),
            Kind::Histogram => ("gateway", "gateway"),
        };
        let cluster_name = format!("cluster-{cluster:02}");
        let instance = format!("10.{cluster}.{}.{}:8080", index / 250, index % 250);
        let pod_number = (index * 7_919 + cluster * 104_729 + generation * 15_485_863) % 1_048_575;
        let pod = format!("{name}-7c9d5f{:04x}-{pod_number:05x}", index / 10);
        let common = [
            ("cluster", cluster_name.as_str()),
            ("instance", &instance),
            ("job", job),
            ("namespace", NAMESPACES[index % NAMESPACES.len()]),
            ("pod", &pod),
        ];
        let encode = |metric: &str, own: &[(&str, &str)]| {
            let mut all = vec![("__name__", metric)];
            all.extend(common);
            all.extend_from_slice(own);
            all.sort_unstable();
            encode_labels(all).into_boxed_slice()
        };
        match kind {
            Kind::Counters => {
                let first = index * PATHS.len() * STATUSES.len();
                let count = (dataset.counters - first).min(PATHS.len() * STATUSES.len());
                let own = |at: usize| {
                    let (path, status) = (PATHS[at % PATHS.len()], STATUSES[at / PATHS.len()].0);
                    encode("http_requests_total", &[("path", path), ("status", status)])
                };
                (0..count).map(own).collect()
            }
            Kind::Gauges => ["container_memory_working_set_bytes", "container_cpu_usage_cores"]
                .map(|metric| encode(metric, &[("container", "app")]))
                .to_vec(),
            Kind::Histogram => BOUNDS
                .map(|bound| {
                    let handler = ["read", "write"][index % 2];
                    let own = [("handler", handler), ("le", bound)];
                    encode("http_request_duration_seconds_bucket", &own)
                })
                .to_vec(),
        }
    }

    /// Adds the samples of scrapes to a request and returns their number.
    fn scrape(
        &mut self,
        dataset: &Dataset,
        start_ms: i64,
        scrapes: Range<usize>,
        encoder: &mut RequestEncoder,
    ) -> usize {
        let mut count = 0;
        if dataset.behavior == Behavior::Churn && self.ends_at(scrapes.start) {
            count += self.replace(dataset, self.time_ms(start_ms, scrapes.start), encoder);
        }
        let mut samples = vec![Vec::with_capacity(scrapes.len()); self.series.len()];
        for scrape in scrapes.clone() {
            self.advance();
            let Some(result) = self.scrape_result(dataset.behavior, scrape) else { continue };
            let time_ms = self.time_ms(start_ms, scrape) + self.jitter(dataset);
            for (series_index, samples) in samples.iter_mut().enumerate() {
                let value = match result {
                    ScrapeResult::Values => self.series[series_index].value,
                    ScrapeResult::Failed => STALE,
                };
                let sample = (time_ms, value);
                if dataset.behavior == Behavior::Late && self.random.below(10) == 0 {
                    let scrape = scrape + 1 + self.random.below(LATE_SCRAPES) as usize;
                    self.held_back.push(HeldBack { scrape, series_index, sample });
                } else {
                    samples.push(sample);
                }
            }
        }
        for (series, samples) in self.series.iter().zip(&samples).filter(|(_, s)| !s.is_empty()) {
            encoder.push(&series.labels, samples.iter().copied());
            count += samples.len();
        }
        let is_last = scrapes.end == dataset.scrapes;
        let is_due = |held: &mut HeldBack| is_last || held.scrape < scrapes.end;
        for held in self.held_back.extract_if(.., is_due) {
            encoder.push(&self.series[held.series_index].labels, [held.sample]);
            count += 1;
        }
        count
    }

    /// Returns the result of a scrape; `None` if it yields no samples, not even markers.
    fn scrape_result(&mut self, behavior: Behavior, scrape: usize) -> Option<ScrapeResult> {
        match behavior {
            Behavior::MixedIntervals => {
                let factor = INTERVAL_FACTORS[self.index % INTERVAL_FACTORS.len()];
                scrape.is_multiple_of(factor).then_some(ScrapeResult::Values)
            }
            Behavior::Gaps if scrape < self.gap_end => None,
            // After a gap, at least one scrape succeeds.
            Behavior::Gaps if scrape > self.gap_end && self.random.below(GAP_DISTANCE) == 0 => {
                self.gap_end = scrape + 1 + self.random.below(GAP_SCRAPES) as usize;
                Some(ScrapeResult::Failed)
            }
            _ => Some(ScrapeResult::Values),
        }
    }

    /// Returns how late a scrape is, in ms.
    fn jitter(&mut self, dataset: &Dataset) -> i64 {
        match jitter_ms(dataset, self.kind) {
            0 => 0,
            limit_ms => self.random.below(2 * limit_ms + 1) as i64 - limit_ms as i64,
        }
    }

    fn time_ms(&self, start_ms: i64, scrape: usize) -> i64 {
        start_ms + scrape as i64 * INTERVAL_MS + self.phase_ms
    }

    /// Returns whether this target is replaced at this scrape.
    fn ends_at(&self, scrape: usize) -> bool {
        scrape > 0
            && scrape.is_multiple_of(SCRAPES_PER_HOUR)
            && self.index % 3 == (scrape / SCRAPES_PER_HOUR) % 3
    }

    /// Replaces all series: ends them with staleness markers and starts others.
    fn replace(&mut self, dataset: &Dataset, time_ms: i64, encoder: &mut RequestEncoder) -> usize {
        for series in &self.series {
            encoder.push(&series.labels, [(time_ms, STALE)]);
        }
        self.generation += 1;
        for (labels, series) in self.labels(dataset).into_iter().zip(&mut self.series) {
            series.labels = labels;
            if self.kind != Kind::Gauges {
                series.value = 0.0;
            }
        }
        self.series.len()
    }

    /// Advances all values to the next scrape.
    fn advance(&mut self) {
        match self.kind {
            Kind::Counters => {
                for series in &mut self.series {
                    series.value += self.random.below(series.growth) as f64;
                }
                if self.random.below(2_000) == 0 {
                    self.series.iter_mut().for_each(|series| series.value = 0.0);
                }
            }
            Kind::Gauges => {
                let pages = self.random.below(2_048) as f64 - 1_023.5;
                self.series[0].value = (self.series[0].value + 8_192.0 * pages).abs();
                self.series[1].value = 0.01 + 4.0 * self.random.unit();
            }
            Kind::Histogram => {
                // Bell-shaped distribution over the bounds; buckets are cumulative.
                for _ in 0..20 {
                    let mean = (self.random.unit() + self.random.unit()) / 2.0;
                    let at = (mean * BOUNDS.len() as f64) as usize;
                    self.series[at..].iter_mut().for_each(|bucket| bucket.value += 1.0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::convert::Infallible;

    use prost::Message;
    use testkit::prompb::{TimeSeries, WriteRequest};

    use super::*;

    type Held = BTreeMap<Vec<(String, String)>, Vec<(i64, f64)>>;

    /// Returns all samples by series, sent in parts and requests.
    fn held(dataset: &Dataset, parts: usize, request: usize) -> Held {
        let mut held = Held::new();
        for part in dataset.parts(parts) {
            let sent: Result<(), Infallible> = part.send(0, request, |encoder, count, _| {
                let mut body = Vec::new();
                encoder.compress(&mut body);
                let bytes = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
                let message = WriteRequest::decode(bytes.as_slice()).unwrap();
                let found: usize = message.timeseries.iter().map(|s| s.samples.len()).sum();
                assert_eq!(found, count);
                for TimeSeries { labels, samples, .. } in message.timeseries {
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    let labels =
                        labels.into_iter().map(|l| (text(l.name), text(l.value))).collect();
                    let samples = samples.into_iter().map(|s| (s.timestamp, s.value));
                    held.entry(labels).or_default().extend(samples);
                }
                Ok(())
            });
            sent.unwrap();
        }
        held
    }

    /// Returns a dataset like another, but small.
    fn tiny(like: &Dataset) -> Dataset {
        Dataset {
            clusters: like.clusters.min(2),
            counters: 72,
            gauge_pairs: 6,
            histograms: 3,
            // More than two hours if targets are replaced.
            scrapes: if like.behavior == Behavior::Churn { 500 } else { 130 },
            ..*like
        }
    }

    fn text(samples: &[(i64, f64)]) -> String {
        format!("{samples:?}")
    }

    #[test]
    fn datasets_have_documented_sizes() {
        let counts = DATASETS.map(|dataset| dataset.series_count());
        assert_eq!(counts, [7_400, 74_000, 7_400, 7_400, 7_400, 7_400, 7_400, 7_400, 200, 100]);
        for dataset in DATASETS {
            let parts = dataset.parts(3);
            let series: usize =
                parts.iter().flat_map(|part| &part.targets).map(|t| t.series.len()).sum();
            assert_eq!(series, dataset.series_count(), "{}", dataset.name);
        }
    }

    #[test]
    fn data_do_not_depend_on_how_they_are_sent() {
        for dataset in DATASETS.map(|dataset| tiny(&dataset)) {
            let (one, other) = (held(&dataset, 1, 40), held(&dataset, 3, 1_000));
            assert_eq!(one.len(), other.len());
            for ((labels, samples), (other_labels, other_samples)) in one.iter().zip(&other) {
                assert_eq!(labels, other_labels);
                // As text, because staleness markers are NaN.
                assert_eq!(text(samples), text(other_samples), "{labels:?}");
            }
        }
    }

    #[test]
    fn labels_are_sorted_and_times_ascend_before_the_end() {
        for dataset in DATASETS.map(|dataset| tiny(&dataset)) {
            for (labels, samples) in held(&dataset, 2, 100) {
                assert!(labels.is_sorted(), "{labels:?}");
                let is_sorted = samples.is_sorted_by(|a, b| a.0 < b.0);
                assert_eq!(is_sorted, dataset.behavior != Behavior::Late, "{labels:?}");
                let times: BTreeSet<i64> = samples.iter().map(|(time_ms, _)| *time_ms).collect();
                assert_eq!(times.len(), samples.len(), "{labels:?}");
                assert!(samples.iter().all(|(t, _)| (0..dataset.end_ms(0)).contains(t)));
            }
        }
    }

    #[test]
    fn buckets_are_cumulative() {
        let held = held(&tiny(&DATASETS[0]), 1, 100);
        let mut histograms = BTreeMap::<_, Vec<(f64, f64)>>::new();
        for (labels, samples) in &held {
            if let Some((_, bound)) = labels.iter().find(|(name, _)| name == "le") {
                let target: Vec<_> = labels.iter().filter(|(name, _)| name != "le").collect();
                let bound = bound.trim_start_matches('+').parse().unwrap();
                histograms.entry(target).or_default().push((bound, samples[99].1));
            }
        }
        assert_eq!(histograms.len(), 3);
        for mut buckets in histograms.into_values() {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert_eq!(buckets.len(), 12);
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{buckets:?}");
            assert_eq!(buckets[11].1, 100.0 * 20.0);
        }
    }

    #[test]
    fn a_third_of_the_targets_is_replaced_every_hour() {
        let dataset = Dataset { clusters: 1, ..tiny(&DATASETS[2]) };
        assert!(dataset.behavior == Behavior::Churn && dataset.scrapes > 2 * SCRAPES_PER_HOUR);
        let held = held(&dataset, 2, 100);
        let is_end = |(_, value): &(i64, f64)| value.to_bits() == STALE.to_bits();
        let (ended, going): (Vec<_>, Vec<_>) =
            held.iter().partition(|(_, samples)| samples.last().is_some_and(is_end));
        // After two hours: of counters (targets 0 to 2), gauges (0 to 5) and histograms (0 to 2), the
        // targets 1 and 2; 1, 2, 4 and 5; 1 and 2 are replaced.
        assert_eq!(going.len(), dataset.series_count());
        assert_eq!(ended.len(), (32 + 8) + 2 * 4 + 12 * 2);
        for (labels, samples) in ended {
            assert_eq!(samples.iter().filter(|sample| is_end(sample)).count(), 1, "{labels:?}");
        }
        let values: BTreeSet<_> = held.values().map(Vec::len).collect();
        assert_eq!(values, BTreeSet::from([241, 481, 500 - 240, 500 - 480, 500]));
    }

    fn by_behavior(behavior: Behavior) -> Held {
        let dataset = DATASETS.iter().find(|dataset| dataset.behavior == behavior).unwrap();
        held(&tiny(dataset), 2, 100)
    }

    #[test]
    fn jitter_concerns_all_series() {
        for (labels, samples) in by_behavior(Behavior::Jitter) {
            let distances = samples.windows(2).map(|pair| pair[1].0 - pair[0].0);
            let distances: BTreeSet<i64> = distances.collect();
            assert!(distances.len() > 50, "{labels:?}: {distances:?}");
            let limit_ms = 2 * STRONG_JITTER_MS as i64;
            assert!(distances.iter().all(|ms| (ms - INTERVAL_MS).abs() <= limit_ms));
        }
    }

    #[test]
    fn targets_have_one_of_several_intervals() {
        let counts: BTreeSet<_> =
            by_behavior(Behavior::MixedIntervals).values().map(Vec::len).collect();
        assert_eq!(counts, BTreeSet::from([130, 65, 33]));
    }

    #[test]
    fn gaps_begin_with_staleness_markers() {
        let is_end = |(_, value): &(i64, f64)| value.to_bits() == STALE.to_bits();
        let (mut ends, mut gaps) = (0, 0);
        for (labels, samples) in by_behavior(Behavior::Gaps) {
            for pair in samples.windows(2) {
                let distance_ms = pair[1].0 - pair[0].0;
                assert!(!is_end(&pair[0]) || !is_end(&pair[1]), "{labels:?}");
                let is_gap = distance_ms > INTERVAL_MS + 2 * JITTER_MS as i64;
                assert!(!is_gap || is_end(&pair[0]), "{labels:?}");
                ends += usize::from(is_end(&pair[0]));
                gaps += usize::from(is_gap);
            }
        }
        assert!(gaps > 50 && ends >= gaps, "{gaps} gaps after {ends} markers");
    }
}
