//! Seeded counters of several numbers of series, and of a year.

use std::io;

use testkit::remote_write::{RequestEncoder, encode_labels};

use crate::data::Random;
use crate::scenario::load::{Sender, send};
use crate::scenario::server::Server;

/// Time between two samples.
pub const INTERVAL_S: i64 = 60;
/// Number of samples in a request, at most.
const REQUEST_SAMPLES: usize = 5_000;
/// Numbers of values of the labels to group by.
pub const GROUP_COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
/// Limit of the growth between two samples.
const GROWTH: u64 = 100;

/// Counters with one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Number of series.
    pub series: usize,
    /// Number of samples of each series.
    pub samples: usize,
}

/// 50 series of a year.
pub const YEAR: Metric = Metric { series: 50, samples: 365 * 24 * 60 };

/// Returns the metrics of an hour, with up to a number of series.
pub fn hours(series_max: usize) -> impl Iterator<Item = Metric> {
    let counts = [1_000, 10_000, 100_000, 1_000_000].into_iter();
    counts.filter(move |series| *series <= series_max).map(|series| Metric { series, samples: 60 })
}

/// Returns the name of the label that groups into a number of groups.
pub fn group_label(groups: usize) -> String {
    format!("of_{groups}")
}

impl Metric {
    /// Returns the name.
    pub fn name(&self) -> String {
        format!("series_{}_samples_{}_total", self.series, self.samples)
    }

    fn labels(&self, index: usize) -> Vec<u8> {
        let mut labels = vec![
            ("__name__".to_owned(), self.name()),
            ("instance".to_owned(), format!("host-{index:07}.example:9100")),
            ("job".to_owned(), "api".to_owned()),
        ];
        let group = |count| (group_label(count), format!("group-{:05}", index % count));
        labels.extend(GROUP_COUNTS.into_iter().map(group));
        labels.sort_unstable();
        encode_labels(labels)
    }

    /// Returns all series, in parts for senders. A part of a long metric could overtake another by
    /// more than a server accepts as late: it has one part.
    fn parts(&self) -> Vec<Part> {
        let count = if self.samples > 1_000 { 1 } else { 4 };
        let size = self.series.div_ceil(count);
        let part = |first: usize| {
            let series = first..(first + size).min(self.series);
            let counter = |index| Counter {
                labels: self.labels(index).into_boxed_slice(),
                value: 0.0,
                random: Random::new(index as u64),
            };
            Part { metric: *self, counters: series.map(counter).collect() }
        };
        (0..self.series).step_by(size).map(part).collect()
    }

    /// Sends all samples; the newest are at a time.
    ///
    /// Errors: the server is gone, or refuses samples.
    pub fn load(&self, server: &Server, end_s: i64) -> io::Result<()> {
        let run = |part: Part, sender: &mut Sender| {
            part.send(end_s, |encoder, count| sender.send(encoder, count))
        };
        send(server, self.parts(), run).map(drop)
    }
}

/// Series of one sender.
struct Part {
    metric: Metric,
    counters: Vec<Counter>,
}

struct Counter {
    labels: Box<[u8]>,
    value: f64,
    random: Random,
}

impl Part {
    /// Calls `send` for each request, in the order of time: with its message and number of samples.
    ///
    /// Errors: the first error of `send`.
    fn send<E>(
        mut self,
        end_s: i64,
        mut send: impl FnMut(&RequestEncoder, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        // A tenth of the samples at once: few series in a request would need many requests.
        let at_once = (self.metric.samples / 10).clamp(1, 60);
        let start_s = end_s - (self.metric.samples as i64 - 1) * INTERVAL_S;
        let mut encoder = RequestEncoder::default();
        let mut count = 0;
        for first in (0..self.metric.samples).step_by(at_once) {
            let range = first..(first + at_once).min(self.metric.samples);
            for counter in &mut self.counters {
                let Counter { labels, value, random } = counter;
                let samples = range.clone().map(|at| {
                    *value += random.below(GROWTH) as f64;
                    ((start_s + at as i64 * INTERVAL_S) * 1_000, *value)
                });
                encoder.push(labels, samples);
                count += range.len();
                if count >= REQUEST_SAMPLES {
                    send(&encoder, count)?;
                    encoder.clear();
                    count = 0;
                }
            }
        }
        if count > 0 {
            send(&encoder, count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn every_sample_is_sent_once() {
        for metric in [Metric { series: 1_001, samples: 60 }, Metric { series: 3, samples: 5_000 }]
        {
            let mut counts = Vec::new();
            let mut series = 0;
            for part in metric.parts() {
                series += part.counters.len();
                let sent: Result<(), Infallible> = part.send(0, |_, count| {
                    counts.push(count);
                    Ok(())
                });
                sent.unwrap();
            }
            assert_eq!(series, metric.series);
            assert_eq!(counts.iter().sum::<usize>(), metric.series * metric.samples);
            assert!(counts.iter().all(|count| *count < REQUEST_SAMPLES + 60), "{counts:?}");
        }
    }

    #[test]
    fn metrics_of_an_hour_are_limited() {
        let series = |max| hours(max).map(|metric| metric.series).collect::<Vec<_>>();
        assert_eq!(series(10_000), [1_000, 10_000]);
        assert_eq!(series(1_000_000), [1_000, 10_000, 100_000, 1_000_000]);
    }
}
