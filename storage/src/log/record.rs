//! The log record of one group commit. Each series is defined once in an epoch.
//!
//! Layout: "Log record" in `docs/formats.md`. Histograms are stored as frames of
//! [`chunk::histogram`].

use model::{Advance, Labels, ResetHint, SampleBatch};

use crate::chunk::{self, HistogramBefore, HistogramDecoder, HistogramEncoder};
use crate::samples::decided::DecidedHistogram;
use crate::varint::{
    push_varint, take_count, take_labels, take_u32, take_varint, unzigzag, zigzag,
};

const VERSION_FLOATS: u8 = 1;
const VERSION: u8 = 2;

/// Consecutive samples of one series in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordRun {
    /// Reference of the series.
    pub(crate) reference: u32,
    /// Number of samples.
    pub(crate) count: u32,
    /// Set for histograms, unset for floats.
    pub(crate) is_histograms: bool,
}

/// Samples that are written together, in columns, and their series by reference.
#[derive(Debug, Default)]
pub(crate) struct LogRecord {
    /// Reference of the first definition.
    pub(crate) first_ref: u32,
    /// Labels of the series that the record defines, by ascending reference.
    pub(crate) definitions: Vec<Labels>,
    /// The runs, in the order in which they are applied.
    pub(crate) runs: Vec<RecordRun>,
    /// Times of all floats.
    pub(crate) timestamps: Vec<i64>,
    /// Values of all floats.
    pub(crate) values: Vec<f64>,
    /// Starts of the first floats; later floats have the start 0.
    pub(crate) starts: Vec<i64>,
    /// All histograms.
    pub(crate) histograms: Vec<DecidedHistogram>,
}

impl LogRecord {
    /// Empties the record and keeps its allocations.
    pub(crate) fn clear(&mut self) {
        self.definitions.clear();
        self.runs.clear();
        self.timestamps.clear();
        self.values.clear();
        self.starts.clear();
        self.histograms.clear();
    }

    /// Returns the earliest time of all samples, or `None` for an empty record.
    pub(crate) fn earliest_ms(&self) -> Option<i64> {
        let of_histograms = self.histograms.iter().map(|decided| decided.sample.timestamp_ms);
        self.timestamps.iter().copied().min().into_iter().chain(of_histograms).min()
    }

    /// Returns the bytes of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let labels: usize = self.definitions.iter().map(|l| l.as_bytes().len() + 3).sum();
        let mut out =
            Vec::with_capacity(64 + labels + self.runs.len() * 4 + self.values.len() * 10);
        let is_plain = self.starts.is_empty() && self.histograms.is_empty();
        out.extend_from_slice(&[0, 0, 0, 0, if is_plain { VERSION_FLOATS } else { VERSION }]);
        push_varint(&mut out, u64::from(self.first_ref));
        push_varint(&mut out, self.definitions.len() as u64);
        for labels in &self.definitions {
            push_varint(&mut out, labels.as_bytes().len() as u64);
            out.extend_from_slice(labels.as_bytes());
        }
        push_varint(&mut out, self.runs.len() as u64);
        let mut before = -1;
        for run in &self.runs {
            push_varint(&mut out, zigzag(i64::from(run.reference) - before - 1));
            let count = u64::from(run.count);
            push_varint(
                &mut out,
                if is_plain { count } else { count << 1 | u64::from(run.is_histograms) },
            );
            before = i64::from(run.reference);
        }
        push_differences(&mut out, &self.timestamps);
        for value in &self.values {
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        if !is_plain {
            push_varint(&mut out, self.starts.len() as u64);
            push_differences(&mut out, &self.starts);
            let mut rest = &self.histograms[..];
            for run in self.runs.iter().filter(|run| run.is_histograms) {
                let (histograms, tail) = rest.split_at(run.count as usize);
                rest = tail;
                let mut frames = Vec::new();
                push_histograms(&mut frames, histograms);
                push_varint(&mut out, frames.len() as u64);
                out.extend_from_slice(&frames);
            }
        }
        let checksum = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a record of any version.
    ///
    /// Allocates at most a bounded multiple of the length of the bytes, even if damaged.
    ///
    /// Errors: a description of the damage.
    pub(crate) fn decode(bytes: &[u8]) -> Result<LogRecord, String> {
        let (checksum, body) = bytes.split_first_chunk::<4>().ok_or("record is cut short")?;
        let (expected, found) = (u32::from_le_bytes(*checksum), crc32c::crc32c(body));
        if expected != found {
            return Err(format!("checksum {found:#010x} differs from the stored {expected:#010x}"));
        }
        let (version, mut rest) = body.split_first().ok_or("record is cut short")?;
        let is_plain = match *version {
            VERSION_FLOATS => true,
            VERSION => false,
            version => return Err(format!("unknown version {version}")),
        };
        let rest = &mut rest;
        let first_ref = take_u32(rest)?;
        let definitions =
            (0..take_count(rest)?).map(|_| take_labels(rest)).collect::<Result<_, _>>()?;
        let runs = take_runs(rest, is_plain)?;
        let floats = runs.iter().filter(|run| !run.is_histograms);
        let float_count =
            floats.fold(0_usize, |total, run| total.saturating_add(run.count as usize));
        if float_count > rest.len() / 9 {
            return Err(format!("{float_count} samples do not fit the record"));
        }
        let timestamps = take_differences(rest, float_count)?;
        let len = rest.len();
        let (values, mut rest) = rest
            .split_at_checked(float_count * 8)
            .ok_or_else(|| format!("{len} bytes of {float_count} values"))?;
        let (words, _) = values.as_chunks::<8>();
        let values = words.iter().map(|w| f64::from_bits(u64::from_le_bytes(*w))).collect();
        let mut record =
            LogRecord { first_ref, definitions, runs, timestamps, values, ..LogRecord::default() };
        if !is_plain {
            record.take_extra(&mut rest, float_count)?;
        }
        match rest.len() {
            0 => Ok(record),
            len => Err(format!("{len} bytes follow the record")),
        }
    }

    /// Reads the starts and histograms of version 2.
    fn take_extra(&mut self, rest: &mut &[u8], float_count: usize) -> Result<(), String> {
        let start_count = take_count(rest)?;
        if start_count > float_count {
            return Err(format!("{start_count} starts of {float_count} floats"));
        }
        self.starts = take_differences(rest, start_count)?;
        for run in self.runs.iter().filter(|run| run.is_histograms) {
            let len = take_count(rest)?;
            let (frames, tail) = rest.split_at_checked(len).ok_or("cut short in histograms")?;
            *rest = tail;
            let before = self.histograms.len();
            take_histograms(frames, &mut self.histograms)?;
            let found = self.histograms.len() - before;
            if found != run.count as usize {
                return Err(format!("expected {} histograms, found {found}", run.count));
            }
        }
        Ok(())
    }
}

fn take_runs(rest: &mut &[u8], is_plain: bool) -> Result<Vec<RecordRun>, String> {
    let mut runs = Vec::new();
    let mut before = -1;
    for _ in 0..take_count(rest)? {
        let reference = i64::checked_add(before + 1, unzigzag(take_varint(rest)?))
            .and_then(|r| u32::try_from(r).ok())
            .ok_or("series reference out of range")?;
        before = i64::from(reference);
        let number = take_varint(rest)?;
        let (count, is_histograms) =
            if is_plain { (number, false) } else { (number >> 1, number & 1 == 1) };
        let count = u32::try_from(count).map_err(|_| format!("{count} does not fit 32 bits"))?;
        runs.push(RecordRun { reference, count, is_histograms });
    }
    Ok(runs)
}

/// Appends histograms as frames.
fn push_histograms(out: &mut Vec<u8>, histograms: &[DecidedHistogram]) {
    let mut growing: Option<HistogramEncoder> = None;
    for DecidedHistogram { sample, before } in histograms {
        if let Some(encoder) = &mut growing {
            let goes_on = before.is_none_or(|before| before.timestamp_ms == encoder.max_ms());
            if goes_on && encoder.max_ms() < sample.timestamp_ms && encoder.push(sample) {
                continue;
            }
            encoder.finish(out);
        }
        growing = Some(HistogramEncoder::new(sample, *before));
    }
    if let Some(encoder) = growing {
        encoder.finish(out);
    }
}

/// Reads consecutive frames of histograms.
fn take_histograms(bytes: &[u8], histograms: &mut Vec<DecidedHistogram>) -> Result<(), String> {
    let mut batch = SampleBatch::new();
    for frame in chunk::frames(bytes) {
        let (offset, header) = frame.map_err(|error| error.to_string())?;
        let mut decoder =
            HistogramDecoder::new(&bytes[offset..], &header).map_err(|error| error.to_string())?;
        let mut before = decoder.before();
        loop {
            batch.clear();
            let advance =
                decoder.next_batch(i64::MAX, &mut batch).map_err(|error| error.to_string())?;
            for sample in batch.histograms.drain(..) {
                let is_claim = sample.histogram.reset_hint == ResetHint::NotReset;
                let next = HistogramBefore::of(&sample);
                histograms.push(DecidedHistogram { sample, before: before.filter(|_| is_claim) });
                before = Some(next);
            }
            if advance != Advance::Full {
                break;
            }
        }
    }
    Ok(())
}

fn push_differences(out: &mut Vec<u8>, numbers: &[i64]) {
    let mut before = 0_i64;
    for number in numbers {
        push_varint(out, zigzag(number.wrapping_sub(before)));
        before = *number;
    }
}

/// Reads `count` numbers; the caller has checked that the bytes can hold them.
fn take_differences(rest: &mut &[u8], count: usize) -> Result<Vec<i64>, String> {
    let mut numbers = Vec::with_capacity(count);
    let mut before = 0_i64;
    for _ in 0..count {
        before = before.wrapping_add(unzigzag(take_varint(rest)?));
        numbers.push(before);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the fields in comparable form.
    fn fields(record: &LogRecord) -> impl PartialEq + std::fmt::Debug + use<> {
        let values: Vec<u64> = record.values.iter().map(|v| v.to_bits()).collect();
        let histograms: Vec<_> = record
            .histograms
            .iter()
            .map(|d| {
                (d.sample.timestamp_ms, d.sample.start_ms, d.before, d.sample.histogram.clone())
            })
            .collect();
        let lists = (record.definitions.clone(), record.runs.clone(), record.timestamps.clone());
        (record.first_ref, lists, values, record.starts.clone(), histograms)
    }

    fn histogram() -> impl Strategy<Value = DecidedHistogram> {
        let time = prop_oneof![(0_i64..50), -1_i64 << 40..1_i64 << 40];
        (time, any::<i64>(), 0_u8..4, prop::collection::vec(0_u16..9, 0..5), 1_i64..100).prop_map(
            |(timestamp_ms, start_ms, hint, counts, distance)| {
                let reset_hint = ResetHint::from_number(hint).unwrap();
                let histogram = model::Histogram {
                    reset_hint,
                    positive_spans: counts
                        .iter()
                        .map(|count| model::Span { offset: i32::from(*count) + 1, length: 1 })
                        .collect(),
                    positive_counts: counts.iter().map(|count| f64::from(*count)).collect(),
                    ..model::Histogram::default()
                };
                let sample =
                    model::HistogramSample { timestamp_ms, start_ms, histogram: histogram.into() };
                let is_claim = reset_hint == ResetHint::NotReset;
                let before =
                    HistogramBefore { timestamp_ms: timestamp_ms - distance, fingerprint: 5 };
                DecidedHistogram { sample, before: is_claim.then_some(before) }
            },
        )
    }

    /// Sets `before` to the previous sample, where both have the same time.
    fn agree_on_those_before(histograms: &mut [DecidedHistogram]) {
        for at in 1..histograms.len() {
            let previous = HistogramBefore::of(&histograms[at - 1].sample);
            if let Some(before) = &mut histograms[at].before
                && before.timestamp_ms == previous.timestamp_ms
            {
                *before = previous;
            }
        }
    }

    fn record() -> impl Strategy<Value = LogRecord> {
        let floats = prop::collection::vec((any::<i64>(), any::<f64>()), 0..4);
        let histograms = prop::collection::vec(histogram(), 0..4);
        let run = (any::<u32>(), floats, prop::option::weighted(0.3, histograms));
        let label = ("[a-z]{1,3}", "[a-z]{1,300}").prop_map(|(n, v)| Labels::from_pairs([(n, v)]));
        let definitions = prop::collection::vec(label, 0..4);
        let starts = prop_oneof![Just(0_usize), 0_usize..9];
        (any::<u32>(), definitions, prop::collection::vec(run, 0..6), starts).prop_map(
            |(first_ref, definitions, runs, starts)| {
                let mut record = LogRecord { first_ref, definitions, ..LogRecord::default() };
                for (reference, floats, histograms) in runs {
                    let is_histograms = histograms.is_some();
                    let count = match histograms {
                        Some(mut histograms) => {
                            agree_on_those_before(&mut histograms);
                            let count = histograms.len();
                            record.histograms.extend(histograms);
                            count
                        }
                        None => {
                            record.timestamps.extend(floats.iter().map(|(t, _)| t));
                            record.values.extend(floats.iter().map(|(_, v)| v));
                            floats.len()
                        }
                    };
                    record.runs.push(RecordRun { reference, count: count as u32, is_histograms });
                }
                let len = starts.min(record.timestamps.len());
                record.starts = record.timestamps[..len].iter().map(|t| t / 3).collect();
                // A record without histograms and starts has version 1.
                if record.histograms.is_empty() && record.starts.is_empty() {
                    record.runs.retain(|run| !run.is_histograms);
                }
                record
            },
        )
    }

    proptest! {
        #[test]
        fn records_come_back(record in record()) {
            let decoded = LogRecord::decode(&record.encode()).unwrap();
            prop_assert_eq!(fields(&decoded), fields(&record));
        }

        #[test]
        fn every_flipped_bit_is_found(record in record(), place in any::<prop::sample::Index>()) {
            let mut bytes = record.encode();
            let bit = place.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(LogRecord::decode(&bytes).is_err());
        }

        #[test]
        fn damage_under_a_good_checksum_is_a_record_or_an_error(
            record in record(),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = record.encode();
            let at = 4 + place.index(bytes.len() - 4);
            bytes[at] = byte;
            let checksum = crc32c::crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&checksum.to_le_bytes());
            let _ = LogRecord::decode(&bytes);
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(
            version in VERSION_FLOATS..=VERSION,
            body in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let body = [&[version], &body[..]].concat();
            let bytes = [&crc32c::crc32c(&body).to_le_bytes(), &body[..]].concat();
            let _ = LogRecord::decode(&bytes);
        }
    }

    #[test]
    fn records_of_floats_have_the_bytes_of_version_1() {
        let record = LogRecord {
            first_ref: 2,
            definitions: vec![Labels::from_pairs([("a", "b")])],
            runs: vec![
                RecordRun { reference: 2, count: 2, is_histograms: false },
                RecordRun { reference: 0, count: 1, is_histograms: false },
            ],
            timestamps: vec![1000, 1200, 900],
            values: vec![1.0, 2.0, 0.5],
            ..LogRecord::default()
        };
        // Version 1; reference 2, one definition of 4 bytes; two runs.
        let head = [1, 2, 1, 4, 1, b'a', 1, b'b', 2, 4, 2, 5, 1];
        let times = [0xd0, 0x0f, 0x90, 0x03, 0xd7, 0x04];
        let values = [1.0_f64, 2.0, 0.5].map(f64::to_le_bytes).concat();
        let body = [&head[..], &times[..], &values[..]].concat();
        let bytes = [&crc32c::crc32c(&body).to_le_bytes(), &body[..]].concat();
        assert_eq!(record.encode(), bytes);
        assert_eq!(fields(&LogRecord::decode(&bytes).unwrap()), fields(&record));
    }
}
