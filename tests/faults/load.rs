//! Requests of many samples, and which of them are known to be stored.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::now_ms;
use testkit::remote_write::{Connection, RequestEncoder, encode_labels};
use testkit::{get, percent_encode};

const SERIES: i64 = 20;
const SAMPLES: i64 = 25;
const STEP_MS: i64 = 100;
const METRIC: &str = "fault_samples";

/// A sender of samples that do not compress.
pub struct Load {
    start_ms: i64,
    /// For each request, whether it was acknowledged; if not, its outcome is unknown.
    acknowledged: Vec<bool>,
}

/// Response to a request.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub text: String,
}

/// Returns a pseudorandom number.
fn scrambled(number: i64) -> f64 {
    let mixed = (number as u64 ^ 0x9e37_79b9).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // Random mantissa, never NaN.
    f64::from_bits((mixed >> 12) | 0x3ff0_0000_0000_0000)
}

impl Load {
    pub fn new(age_ms: i64) -> Load {
        Load { start_ms: now_ms() - age_ms, acknowledged: Vec::new() }
    }

    fn time_ms(&self, request: usize, sample: i64) -> i64 {
        self.start_ms + (request as i64 * SAMPLES + sample) * STEP_MS
    }

    fn value(&self, series: i64, time_ms: i64) -> f64 {
        scrambled((time_ms - self.start_ms) / STEP_MS * SERIES + series)
    }

    /// Sends the next request.
    pub fn send(&mut self, connection: &mut Connection) -> Answer {
        let request = self.acknowledged.len();
        let (mut encoder, mut body) = (RequestEncoder::default(), Vec::new());
        for series in 0..SERIES {
            let labels = encode_labels([("__name__", METRIC), ("series", &series.to_string())]);
            let samples = (0..SAMPLES).map(|sample| {
                let time_ms = self.time_ms(request, sample);
                (time_ms, self.value(series, time_ms))
            });
            encoder.push(&labels, samples);
        }
        encoder.compress(&mut body);
        let (status, text) = connection.write(&body).unwrap();
        self.acknowledged.push(status == 204);
        Answer { status, head: connection.answer_head().to_owned(), text }
    }

    /// Compares all that is stored with what was sent; returns how many requests are there.
    pub fn check(&self, address: &str) -> usize {
        let mut found = vec![0; self.acknowledged.len()];
        for (series, samples) in stored(address) {
            for (time_ms, value) in samples {
                let number = (time_ms - self.start_ms) / STEP_MS;
                assert_eq!(value, self.value(series, time_ms), "at {time_ms}");
                found[(number / SAMPLES) as usize] += 1;
            }
        }
        for (request, (count, is_acknowledged)) in found.iter().zip(&self.acknowledged).enumerate()
        {
            let is_whole = *count == SERIES * SAMPLES;
            assert!(
                is_whole || (*count == 0 && !is_acknowledged),
                "{count} samples of request {request}, acknowledged: {is_acknowledged}"
            );
        }
        found.iter().filter(|count| **count > 0).count()
    }
}

/// All samples by series and time; none twice.
fn stored(address: &str) -> BTreeMap<i64, BTreeMap<i64, f64>> {
    let query = percent_encode(&format!("{METRIC}[3d]"));
    let (status, text) = get(address, &format!("/api/v1/query?query={query}"));
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert!(answer["warnings"].is_null(), "{}", answer["warnings"]);
    let mut stored = BTreeMap::new();
    for series in answer["data"]["result"].as_array().unwrap() {
        let mut samples = BTreeMap::new();
        for pair in series["values"].as_array().unwrap() {
            let time_ms = (pair[0].as_f64().unwrap() * 1_000.0).round() as i64;
            let value: f64 = pair[1].as_str().unwrap().parse().unwrap();
            assert_eq!(samples.insert(time_ms, value), None, "doubled at {time_ms}");
        }
        stored.insert(series["metric"]["series"].as_str().unwrap().parse().unwrap(), samples);
    }
    stored
}
