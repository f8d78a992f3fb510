//! Senders of floats by remote write 1.0.

use std::collections::BTreeMap;

use super::{Book, Fate, Sender, data, now_ms};
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};

pub const SENDER_COUNT: usize = 4;
const SERIES: usize = 10;
const SAMPLES: i64 = 5;
/// First timestamp of each sender, in hours before now, and the interval of its samples: open
/// windows, closed ones, and partitions of earlier days.
const AGES_AND_STEPS: [(i64, i64); SENDER_COUNT] = [(1, 1), (26, 1_000), (5, 250), (40, 1_000)];

/// One sender with its own series.
pub struct Floats {
    index: usize,
    labels: Vec<Vec<u8>>,
    /// The time of the first sample of its first request.
    start_ms: i64,
    step_ms: i64,
    book: Book,
}

impl Floats {
    pub fn new(index: usize, seed: u64) -> Floats {
        let labels = (0..SERIES).map(|series| {
            encode_labels([
                ("__name__", "crash_samples"),
                ("sender", &format!("s{index}")),
                ("series", &format!("{series:03}")),
            ])
        });
        let (age_hours, step_ms) = AGES_AND_STEPS[index];
        let start_ms = now_ms() - age_hours * 3_600_000;
        Floats { index, labels: labels.collect(), start_ms, step_ms, book: Book::new(seed) }
    }

    /// The time of a sample. Requests of the last sender go back in time in pairs.
    fn time_ms(&self, request: usize, sample: i64) -> i64 {
        let request = if self.index == SENDER_COUNT - 1 { request ^ 1 } else { request };
        self.start_ms + (request as i64 * SAMPLES + sample) * self.step_ms
    }

    /// A value that no other sample of its series has.
    fn value(&self, series: usize, time_ms: i64) -> f64 {
        let number = (time_ms - self.start_ms) / self.step_ms;
        (number * 1_000 + (self.index * SERIES + series) as i64) as f64 + 0.5
    }

    /// Samples by series and time. Asserts that no time occurs twice.
    fn stored(&self, address: &str) -> BTreeMap<String, BTreeMap<i64, f64>> {
        let query = format!("crash_samples{{sender=\"s{}\"}}[2d]", self.index);
        let answer = data(address, "query", &[("query", &query)]);
        let mut stored = BTreeMap::new();
        for series in answer["result"].as_array().unwrap() {
            let mut samples = BTreeMap::new();
            for pair in series["values"].as_array().unwrap() {
                let time_ms = (pair[0].as_f64().unwrap() * 1_000.0).round() as i64;
                let value = pair[1].as_str().unwrap().parse().unwrap();
                assert_eq!(samples.insert(time_ms, value), None, "doubled at {time_ms}");
            }
            let name = series["metric"]["series"].as_str().unwrap().to_owned();
            assert!(stored.insert(name, samples).is_none(), "one series twice");
        }
        stored
    }
}

impl Sender for Floats {
    fn send(&self, connection: &mut Connection, request: usize) -> std::io::Result<(u16, String)> {
        let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
        for (series, labels) in self.labels.iter().enumerate() {
            let samples = (0..SAMPLES).map(|sample| {
                let time_ms = self.time_ms(request, sample);
                (time_ms, self.value(series, time_ms))
            });
            encoder.push(labels, samples);
        }
        encoder.compress(&mut body);
        connection.write(&body)
    }

    fn check(&mut self, address: &str) -> usize {
        let mut stored = self.stored(address);
        let count = stored.values().map(BTreeMap::len).sum();
        for request in 0..self.book.fates.len() {
            let mut found = 0;
            for series in 0..SERIES {
                let samples = stored.entry(format!("{series:03}")).or_default();
                for sample in 0..SAMPLES {
                    let time_ms = self.time_ms(request, sample);
                    if let Some(value) = samples.remove(&time_ms) {
                        assert_eq!(value, self.value(series, time_ms), "altered at {time_ms}");
                        found += 1;
                    }
                }
            }
            let fate = self.book.fates[request];
            assert!(
                found == SERIES * SAMPLES as usize || (found == 0 && fate == Fate::Unknown),
                "sender {}: {found} samples of request {request} of {}, which is {fate:?}",
                self.index,
                self.book.fates.len()
            );
        }
        stored.retain(|_, samples| !samples.is_empty());
        assert!(stored.is_empty(), "stored samples that were not sent: {stored:?}");
        count
    }

    fn book(&self) -> &Book {
        &self.book
    }

    fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }
}
