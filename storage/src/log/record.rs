//! The log record of one group commit. Each series is defined once in an epoch.
//!
//! Layout: "Log record" in `docs/formats.md`. Histograms are stored as frames of
//! [`chunk::histogram`].

use model::{Advance, Labels, ResetHint, SampleBatch};

use super::values::{push_values, take_values};
use crate::chunk::{self, HistogramBefore, HistogramDecoder, HistogramEncoder};
use crate::samples::decided::DecidedHistogram;
use crate::varint::{
    push_varint, take_bytes, take_count, take_labels, take_u32, take_varint, unzigzag, zigzag,
};
use model::labels::check_packed;

/// Versions without compression: of floats, and with starts and histograms.
const VERSION_FLOATS: u8 = 1;
const VERSION_ALL: u8 = 2;
const VERSION: u8 = 3;

/// Maximum bytes that labels share with the labels before them.
const SHARED_BYTES_MAX: usize = u8::MAX as usize;
/// Maximum number of runs, or of floats, in a record for each of its bytes.
const ITEMS_PER_BYTE: usize = 2;

/// Consecutive samples of one series in a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RecordRun {
    /// Reference of the series.
    pub(crate) reference: u32,
    /// Number of samples.
    pub(crate) count: u32,
    /// Set for histograms, unset for floats.
    pub(crate) is_histograms: bool,
    /// Bits of the last float of the series that the epoch has logged before, 0 before the first.
    /// Only [`LogRecord::encode`] reads them.
    pub(crate) bits_before: u64,
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
        let mut out = Vec::with_capacity(64 + labels + self.runs.len() + self.values.len() * 10);
        out.extend_from_slice(&[0, 0, 0, 0, VERSION]);
        push_varint(&mut out, u64::from(self.first_ref));
        push_definitions(&mut out, &self.definitions);
        push_runs(&mut out, &self.runs);
        push_repeated(&mut out, differences(&self.timestamps));
        push_varint(&mut out, self.starts.len() as u64);
        push_repeated(&mut out, differences(&self.starts));
        let mut rest = &self.histograms[..];
        for run in self.runs.iter().filter(|run| run.is_histograms) {
            let (histograms, tail) = rest.split_at(run.count as usize);
            rest = tail;
            let mut frames = Vec::new();
            push_histograms(&mut frames, histograms);
            push_varint(&mut out, frames.len() as u64);
            out.extend_from_slice(&frames);
        }
        push_values(&mut out, &self.runs, &self.values);
        let checksum = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        // The memtable keeps the allocation.
        out.shrink_to_fit();
        out
    }

    /// Reads a record of any version. `logged` has the bits of the last float of each series of
    /// the epoch, by reference, and is updated. Without it, they count as 0, and values of
    /// version 3 are not those that were written.
    ///
    /// Allocates at most a bounded multiple of the length of the bytes, even if damaged.
    ///
    /// Errors: a description of the damage; the record is not the next one of the epoch.
    pub(crate) fn decode(bytes: &[u8], logged: Option<&mut Vec<u64>>) -> Result<LogRecord, String> {
        let (checksum, body) = bytes.split_first_chunk::<4>().ok_or("record is cut short")?;
        let (expected, found) = (u32::from_le_bytes(*checksum), crc32c::crc32c(body));
        if expected != found {
            return Err(format!("checksum {found:#010x} differs from the stored {expected:#010x}"));
        }
        let (version, mut rest) = body.split_first().ok_or("record is cut short")?;
        let first_ref = take_u32(&mut rest)?;
        if let Some(logged) = logged.as_deref().filter(|all| all.len() != first_ref as usize) {
            return Err(format!("expected reference {}", logged.len()));
        }
        let record = LogRecord { first_ref, ..LogRecord::default() };
        let record = match *version {
            VERSION => return record.take_compressed(rest, logged),
            VERSION_FLOATS => record.take_uncompressed(rest, true)?,
            VERSION_ALL => record.take_uncompressed(rest, false)?,
            version => return Err(format!("unknown version {version}")),
        };
        // All records of an epoch are of the same process, and so of the same version.
        if let Some(logged) = logged {
            logged.resize(first_ref as usize + record.definitions.len(), 0);
        }
        Ok(record)
    }

    /// Reads the rest of version 3.
    fn take_compressed(
        mut self,
        mut rest: &[u8],
        logged: Option<&mut Vec<u64>>,
    ) -> Result<LogRecord, String> {
        let rest = &mut rest;
        self.definitions = take_definitions(rest)?;
        self.runs = take_runs(rest)?;
        let series_count = self.first_ref as usize + self.definitions.len();
        let is_defined = |run: &RecordRun| (run.reference as usize) < series_count;
        if logged.is_some() && !self.runs.iter().all(is_defined) {
            return Err("a series is not defined".to_owned());
        }
        let float_count = self.float_count();
        self.timestamps = sums(take_repeated(rest, float_count)?);
        let start_count = usize::try_from(take_varint(rest)?).unwrap_or(usize::MAX);
        if start_count > float_count {
            return Err(format!("{start_count} starts of {float_count} floats"));
        }
        self.starts = sums(take_repeated(rest, start_count)?);
        self.take_all_histograms(rest)?;
        self.values = match logged {
            None => take_values(rest, &self.runs, float_count, None)?,
            Some(logged) => {
                logged.resize(series_count, 0);
                take_values(rest, &self.runs, float_count, Some(logged))?
            }
        };
        Ok(self)
    }

    /// Reads the rest of version 1 or 2.
    fn take_uncompressed(mut self, mut rest: &[u8], is_plain: bool) -> Result<LogRecord, String> {
        let rest = &mut rest;
        self.definitions =
            (0..take_count(rest)?).map(|_| take_labels(rest)).collect::<Result<_, _>>()?;
        self.runs = take_uncompressed_runs(rest, is_plain)?;
        let float_count = self.float_count();
        if float_count > rest.len() / 9 {
            return Err(format!("{float_count} samples do not fit the record"));
        }
        self.timestamps = take_differences(rest, float_count)?;
        let len = rest.len();
        let (values, tail) = rest
            .split_at_checked(float_count * 8)
            .ok_or_else(|| format!("{len} bytes of {float_count} values"))?;
        *rest = tail;
        let (words, _) = values.as_chunks::<8>();
        self.values = words.iter().map(|w| f64::from_bits(u64::from_le_bytes(*w))).collect();
        if !is_plain {
            let start_count = take_count(rest)?;
            if start_count > float_count {
                return Err(format!("{start_count} starts of {float_count} floats"));
            }
            self.starts = take_differences(rest, start_count)?;
            self.take_all_histograms(rest)?;
        }
        match rest.len() {
            0 => Ok(self),
            len => Err(format!("{len} bytes follow the record")),
        }
    }

    /// Returns the number of floats of all runs.
    fn float_count(&self) -> usize {
        let floats = self.runs.iter().filter(|run| !run.is_histograms);
        floats.fold(0_usize, |total, run| total.saturating_add(run.count as usize))
    }

    /// Reads the histograms of all runs.
    fn take_all_histograms(&mut self, rest: &mut &[u8]) -> Result<(), String> {
        for run in self.runs.iter().filter(|run| run.is_histograms) {
            let frames = take_bytes(rest)?;
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

/// Appends labels, each without the bytes that it shares with the labels before.
fn push_definitions(out: &mut Vec<u8>, definitions: &[Labels]) {
    push_varint(out, definitions.len() as u64);
    let mut before: &[u8] = &[];
    for labels in definitions {
        let bytes = labels.as_bytes();
        let pairs = bytes.iter().zip(before).take(SHARED_BYTES_MAX);
        let shared = pairs.take_while(|(a, b)| a == b).count();
        out.push(shared as u8);
        push_varint(out, (bytes.len() - shared) as u64);
        out.extend_from_slice(&bytes[shared..]);
        before = bytes;
    }
}

fn take_definitions(rest: &mut &[u8]) -> Result<Vec<Labels>, String> {
    let mut definitions: Vec<Labels> = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..take_count(rest)? {
        let (shared, tail) = rest.split_first().ok_or("cut short in labels")?;
        *rest = tail;
        if usize::from(*shared) > bytes.len() {
            return Err(format!("labels share {shared} of {} bytes", bytes.len()));
        }
        bytes.truncate(usize::from(*shared));
        bytes.extend_from_slice(take_bytes(rest)?);
        check_packed(&bytes).map_err(|error| error.to_string())?;
        definitions.push(Labels::from_checked_bytes(&bytes));
    }
    Ok(definitions)
}

/// Appends the runs; consecutive series with as many samples of one kind are one entry.
fn push_runs(out: &mut Vec<u8>, runs: &[RecordRun]) {
    push_varint(out, runs.len() as u64);
    let mut before = -1;
    let entries = runs.iter().map(|run| {
        let skipped = zigzag(i64::from(run.reference) - before - 1);
        before = i64::from(run.reference);
        (skipped, u64::from(run.count) << 1 | u64::from(run.is_histograms))
    });
    push_groups(entries, |(skipped, number), more| {
        push_varint(out, skipped);
        push_varint(out, number);
        push_varint(out, more);
    });
}

fn take_runs(rest: &mut &[u8]) -> Result<Vec<RecordRun>, String> {
    let run_count = take_items(rest)?;
    let mut runs = Vec::with_capacity(run_count);
    let mut before = -1;
    while runs.len() < run_count {
        let skipped = unzigzag(take_varint(rest)?);
        let number = take_varint(rest)?;
        let count = u32::try_from(number >> 1)
            .map_err(|_| format!("{} does not fit 32 bits", number >> 1))?;
        for _ in 0..take_group_len(rest, run_count - runs.len())? {
            let reference = i64::checked_add(before + 1, skipped)
                .and_then(|reference| u32::try_from(reference).ok())
                .ok_or("series reference out of range")?;
            before = i64::from(reference);
            runs.push(RecordRun {
                reference,
                count,
                is_histograms: number & 1 == 1,
                bits_before: 0,
            });
        }
    }
    Ok(runs)
}

/// Takes a count of items that are at most [`ITEMS_PER_BYTE`].
fn take_items(rest: &mut &[u8]) -> Result<usize, String> {
    let count = usize::try_from(take_varint(rest)?).unwrap_or(usize::MAX);
    check_items(count, rest)?;
    Ok(count)
}

fn check_items(count: usize, rest: &[u8]) -> Result<(), String> {
    match count <= rest.len().saturating_mul(ITEMS_PER_BYTE) {
        true => Ok(()),
        false => Err(format!("{count} entries do not fit {} bytes", rest.len())),
    }
}

/// Takes the length of a group, which is at least 1 and at most `max`.
fn take_group_len(rest: &mut &[u8], max: usize) -> Result<usize, String> {
    match usize::try_from(take_varint(rest)?) {
        Ok(more) if more < max => Ok(more + 1),
        _ => Err("a group has too many entries".to_owned()),
    }
}

/// Calls `push` with each group of equal entries, and the length of the group minus 1.
fn push_groups<T: Copy + PartialEq>(
    entries: impl Iterator<Item = T>,
    mut push: impl FnMut(T, u64),
) {
    let mut group = None;
    for entry in entries {
        match &mut group {
            Some((first, more)) if *first == entry => *more += 1,
            _ => {
                if let Some((first, more)) = group.replace((entry, 0)) {
                    push(first, more);
                }
            }
        }
    }
    if let Some((first, more)) = group {
        push(first, more);
    }
}

/// Appends numbers, with the length of each group of equal ones.
fn push_repeated(out: &mut Vec<u8>, numbers: impl Iterator<Item = u64>) {
    push_groups(numbers, |number, more| {
        push_varint(out, number);
        push_varint(out, more);
    });
}

/// Reads `count` numbers, each at most [`ITEMS_PER_BYTE`] of the remaining bytes.
fn take_repeated(rest: &mut &[u8], count: usize) -> Result<Vec<u64>, String> {
    check_items(count, rest)?;
    let mut numbers = Vec::with_capacity(count);
    while numbers.len() < count {
        let number = take_varint(rest)?;
        let len = take_group_len(rest, count - numbers.len())?;
        numbers.resize(numbers.len() + len, number);
    }
    Ok(numbers)
}

/// Returns the differences between consecutive numbers.
fn differences(numbers: &[i64]) -> impl Iterator<Item = u64> {
    let mut before = 0_i64;
    numbers
        .iter()
        .map(move |number| zigzag(number.wrapping_sub(std::mem::replace(&mut before, *number))))
}

/// Inverts [`differences`].
fn sums(differences: Vec<u64>) -> Vec<i64> {
    let mut sum = 0_i64;
    let next = |difference| {
        sum = sum.wrapping_add(unzigzag(difference));
        sum
    };
    differences.into_iter().map(next).collect()
}

/// Reads the runs of version 1 or 2.
fn take_uncompressed_runs(rest: &mut &[u8], is_plain: bool) -> Result<Vec<RecordRun>, String> {
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
        runs.push(RecordRun { reference, count, is_histograms, bits_before: 0 });
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

/// Reads `count` numbers of version 1 or 2; the caller has checked that the bytes can hold them.
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
        let runs: Vec<_> =
            record.runs.iter().map(|run| (run.reference, run.count, run.is_histograms)).collect();
        let lists = (record.definitions.clone(), runs, record.timestamps.clone());
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
                    let count = count as u32;
                    record.runs.push(RecordRun { reference, count, is_histograms, bits_before: 0 });
                }
                let len = starts.min(record.timestamps.len());
                record.starts = record.timestamps[..len].iter().map(|t| t / 3).collect();
                record
            },
        )
    }

    /// Makes a record the next one of its epoch. `logged` has the last float of each series.
    fn follow(record: &mut LogRecord, logged: &mut Vec<u64>) {
        record.first_ref = logged.len() as u32;
        if logged.is_empty() {
            record.definitions.push(Labels::from_pairs([("first", "series")]));
        }
        logged.resize(logged.len() + record.definitions.len(), 0);
        let mut rest = &record.values[..];
        for run in &mut record.runs {
            run.reference %= logged.len() as u32;
            let last = &mut logged[run.reference as usize];
            run.bits_before = *last;
            if !run.is_histograms {
                let (values, tail) = rest.split_at(run.count as usize);
                rest = tail;
                *last = values.last().map_or(*last, |value| value.to_bits());
            }
        }
    }

    proptest! {
        #[test]
        fn records_of_an_epoch_come_back(records in prop::collection::vec(record(), 1..4)) {
            let (mut written, mut read) = (Vec::new(), Vec::new());
            for mut record in records {
                follow(&mut record, &mut written);
                let decoded = LogRecord::decode(&record.encode(), Some(&mut read)).unwrap();
                prop_assert_eq!(fields(&decoded), fields(&record));
                prop_assert_eq!(&read, &written);
            }
        }

        #[test]
        fn every_flipped_bit_is_found(record in record(), place in any::<prop::sample::Index>()) {
            let mut bytes = record.encode();
            let bit = place.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(LogRecord::decode(&bytes, None).is_err());
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
            let _ = LogRecord::decode(&bytes, None);
            let _ = LogRecord::decode(&bytes, Some(&mut vec![1; record.first_ref as usize % 9]));
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(
            version in VERSION_FLOATS..=VERSION,
            body in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let body = [&[version], &body[..]].concat();
            let bytes = [&crc32c::crc32c(&body).to_le_bytes(), &body[..]].concat();
            let _ = LogRecord::decode(&bytes, None);
            let _ = LogRecord::decode(&bytes, Some(&mut Vec::new()));
        }
    }

    fn with_checksum(body: &[u8]) -> Vec<u8> {
        [&crc32c::crc32c(body).to_le_bytes(), body].concat()
    }

    fn run(reference: u32, count: u32, bits_before: u64) -> RecordRun {
        RecordRun { reference, count, is_histograms: false, bits_before }
    }

    #[test]
    fn records_of_version_1_are_read() {
        let record = LogRecord {
            first_ref: 2,
            definitions: vec![Labels::from_pairs([("a", "b")])],
            runs: vec![run(2, 2, 0), run(0, 1, 0)],
            timestamps: vec![1000, 1200, 900],
            values: vec![1.0, 2.0, 0.5],
            ..LogRecord::default()
        };
        // Version 1; reference 2, one definition of 4 bytes; two runs.
        let head = [1, 2, 1, 4, 1, b'a', 1, b'b', 2, 4, 2, 5, 1];
        let times = [0xd0, 0x0f, 0x90, 0x03, 0xd7, 0x04];
        let values = [1.0_f64, 2.0, 0.5].map(f64::to_le_bytes).concat();
        let bytes = with_checksum(&[&head[..], &times[..], &values[..]].concat());
        let mut logged = vec![0; 2];
        let decoded = LogRecord::decode(&bytes, Some(&mut logged)).unwrap();
        assert_eq!(fields(&decoded), fields(&record));
        assert_eq!(logged.len(), 3);
    }

    #[test]
    fn records_of_version_2_are_read() {
        // Version 2; reference 0, no definition; a run of a float of series 0; a start.
        let head = [2, 0, 0, 1, 0, 2, 0xd0, 0x0f];
        let bytes = with_checksum(&[&head[..], &1.5_f64.to_le_bytes(), &[1, 0x90, 0x03]].concat());
        let decoded = LogRecord::decode(&bytes, None).unwrap();
        assert_eq!(decoded.runs, [run(0, 1, 0)]);
        assert_eq!((decoded.timestamps, decoded.values), (vec![1000], vec![1.5]));
        assert_eq!(decoded.starts, [200]);
    }

    #[test]
    fn records_have_the_documented_bytes() {
        let record = LogRecord {
            first_ref: 0,
            definitions: vec![
                Labels::from_pairs([("a", "b")]),
                Labels::from_pairs([("a", "cc")]),
                Labels::from_pairs([("a", "cd")]),
            ],
            runs: vec![run(0, 1, 0), run(1, 1, 0), run(2, 1, 0), run(0, 2, 5.0_f64.to_bits())],
            timestamps: vec![1000, 1000, 1000, 2000, 3000],
            values: vec![5.0, 0.0, 0.5, 7.0, 3.0],
            ..LogRecord::default()
        };
        let mut body = vec![3, 0, 3];
        body.extend([0, 4, 1, b'a', 1, b'b', 2, 3, 2, b'c', b'c', 4, 1, b'd']);
        // Four runs: three of the next series and one sample; one of series 0 and two samples.
        body.extend([4, 0, 2, 2, 5, 4, 0]);
        // 1000 after 0, twice 0 after it, twice 1000 more; no starts.
        body.extend([0xd0, 0x0f, 0, 0, 1, 0xd0, 0x0f, 1, 0]);
        // Codes 1, 0, 15, 1, 1: 5, nothing, the bits of 0.5, 2 more, 4 less.
        body.extend([0x01, 0x1f, 0x01, 10]);
        body.extend(0.5_f64.to_le_bytes());
        body.extend([4, 7]);
        let bytes = with_checksum(&body);
        assert_eq!(record.encode(), bytes);
        let decoded = LogRecord::decode(&bytes, Some(&mut Vec::new())).unwrap();
        assert_eq!(fields(&decoded), fields(&record));
    }

    #[test]
    fn a_record_that_is_not_the_next_one_is_refused() {
        let mut record = LogRecord { first_ref: 1, ..LogRecord::default() };
        let mut logged = vec![0];
        assert!(LogRecord::decode(&record.encode(), Some(&mut Vec::new())).is_err());
        assert!(LogRecord::decode(&record.encode(), Some(&mut logged)).is_ok());
        record.runs.push(run(1, 1, 0));
        record.timestamps.push(5);
        record.values.push(5.0);
        assert!(LogRecord::decode(&record.encode(), Some(&mut logged)).is_err());
        assert_eq!(logged, [0], "a refused record changes nothing");
    }

    #[test]
    fn groups_beyond_the_bytes_are_refused() {
        let many = [0xff, 0xff, 0xff, 0xff, 0x0f];
        let runs = [&[3, 0, 0][..], &many, &[0, 2], &many].concat();
        assert!(LogRecord::decode(&with_checksum(&runs), None).is_err());
        let samples = [&[3, 0, 0, 1, 0][..], &many, &[0, 0], &many].concat();
        assert!(LogRecord::decode(&with_checksum(&samples), None).is_err());
    }
}
