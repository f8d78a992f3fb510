//! Seeded series, equal on every machine and in every run.

use model::Labels;

/// Name of the generated metric.
pub const METRIC: &str = "requests_total";
/// Label that the queries group by.
pub const GROUP_LABEL: &str = "path";
/// Time of the first sample in ms since the epoch.
pub const START_MS: i64 = 1_700_000_000_000;
/// Distance of two samples in ms.
pub const INTERVAL_MS: i64 = 15_000;

/// Size of the data.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Number of series.
    pub series: usize,
    /// Samples of each series.
    pub samples: usize,
    /// Number of values of the label that the queries group by, assigned round-robin.
    pub groups: usize,
}

impl Shape {
    /// Size of the reference measurements.
    pub const MARK: Shape = Shape { series: 5_000, samples: 1_024, groups: 32 };

    /// Returns the time of the last sample without jitter.
    pub fn end_ms(&self) -> i64 {
        START_MS + (self.samples as i64 - 1) * INTERVAL_MS
    }

    /// Returns the number of samples of all series.
    pub fn sample_count(&self) -> usize {
        self.series * self.samples
    }
}

/// Kind of a series' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Increasing integers with a reset about every 500 samples.
    Counter,
    /// Random floats, the worst case of the codec.
    Noise,
    /// Constant value.
    Constant,
}

/// Pseudorandom generator of 64-bit numbers ("splitmix64").
///
/// Source: Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Returns a generator; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a float in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns the labels of a series. They sort by instance, so that groups are scattered.
pub fn labels(series_index: usize, group_count: usize) -> Labels {
    let group = series_index % group_count;
    Labels::from_pairs([
        ("__name__", METRIC),
        ("instance", &format!("host-{series_index:06}.example:9100")),
        ("job", "api"),
        (GROUP_LABEL, &format!("/v1/resource/{group:05}")),
    ])
}

/// Returns the samples of a series: scrapes of which every tenth is up to 10 ms early or late, with a
/// different phase for each series.
pub fn samples(series_index: usize, count: usize, kind: Kind) -> (Vec<i64>, Vec<f64>) {
    let mut random = Random::new(series_index as u64);
    let phase_ms = random.below(INTERVAL_MS as u64) as i64;
    let mut value = random.below(100_000) as f64;
    let mut timestamps = Vec::with_capacity(count);
    let mut values = Vec::with_capacity(count);
    for index in 0..count as i64 {
        let jitter_ms = if random.below(10) == 0 { random.below(21) as i64 - 10 } else { 0 };
        timestamps.push(START_MS + index * INTERVAL_MS + phase_ms / 2 + 10 + jitter_ms);
        values.push(value);
        value = match kind {
            Kind::Constant => value,
            Kind::Noise => random.unit() * 100.0,
            Kind::Counter if random.below(500) == 0 => 0.0,
            Kind::Counter => value + random.below(100) as f64,
        };
    }
    (timestamps, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_repeat_and_their_times_ascend() {
        for kind in [Kind::Counter, Kind::Noise, Kind::Constant] {
            let (timestamps, values) = samples(7, 2_000, kind);
            assert!(timestamps.is_sorted_by(|a, b| a < b));
            assert_eq!((timestamps, values), samples(7, 2_000, kind));
        }
    }

    #[test]
    fn counters_are_reset() {
        let (_, values) = samples(3, 5_000, Kind::Counter);
        assert!(values.windows(2).any(|pair| pair[1] < pair[0]));
    }
}
