//! The log record of one group commit: columns, and each series defined once per epoch.
//!
//! ```text
//! crc32c:4 LE of the rest │ version:1 = 1
//! first reference │ definitions │ ( length │ packed labels ) × definitions
//! runs │ ( zigzag(reference − reference before − 1) │ samples ) × runs
//! zigzag(time − time before) × samples
//! value:8 LE × samples
//! ```
//!
//! Everything without a width is a LEB128 varint. References count from 0 in each log epoch
//! and are given in the order of definition; the first "before" is −1 for references and 0
//! for times.

use model::Labels;
use model::labels::check_packed;

const VERSION: u8 = 1;

/// What is written together: series by slot or reference, and their samples end to end.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Columns {
    /// Reference of the first definition.
    pub(crate) first_ref: u32,
    /// Labels of the series that are defined here, their references ascending.
    pub(crate) definitions: Vec<Labels>,
    /// Reference and number of samples of each run.
    pub(crate) runs: Vec<(u32, u32)>,
    /// Times of all samples.
    pub(crate) timestamps: Vec<i64>,
    /// Values of all samples.
    pub(crate) values: Vec<f64>,
}

impl Columns {
    /// Empties the columns and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.definitions.clear();
        self.runs.clear();
        self.timestamps.clear();
        self.values.clear();
    }

    /// The bytes of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let labels: usize = self.definitions.iter().map(|l| l.as_bytes().len() + 3).sum();
        let mut out =
            Vec::with_capacity(64 + labels + self.runs.len() * 4 + self.values.len() * 10);
        out.extend_from_slice(&[0, 0, 0, 0, VERSION]);
        push_varint(&mut out, u64::from(self.first_ref));
        push_varint(&mut out, self.definitions.len() as u64);
        for labels in &self.definitions {
            push_varint(&mut out, labels.as_bytes().len() as u64);
            out.extend_from_slice(labels.as_bytes());
        }
        push_varint(&mut out, self.runs.len() as u64);
        let mut before = -1;
        for (reference, count) in &self.runs {
            push_varint(&mut out, zigzag(i64::from(*reference) - before - 1));
            push_varint(&mut out, u64::from(*count));
            before = i64::from(*reference);
        }
        let mut before = 0;
        for timestamp_ms in &self.timestamps {
            push_varint(&mut out, zigzag(timestamp_ms.wrapping_sub(before)));
            before = *timestamp_ms;
        }
        for value in &self.values {
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        let checksum = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a record.
    ///
    /// Errors: what is wrong with the bytes; whatever they are, no more memory is taken than
    /// a few times their length.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Columns, String> {
        let (checksum, body) = bytes.split_first_chunk::<4>().ok_or("record is cut short")?;
        let (expected, found) = (u32::from_le_bytes(*checksum), crc32c::crc32c(body));
        if expected != found {
            return Err(format!("checksum {found:#010x} differs from the stored {expected:#010x}"));
        }
        let (version, mut rest) = body.split_first().ok_or("record is cut short")?;
        if *version != VERSION {
            return Err(format!("unknown version {version}"));
        }
        let rest = &mut rest;
        let first_ref = take_u32(rest)?;
        let definitions =
            (0..take_count(rest)?).map(|_| take_labels(rest)).collect::<Result<_, _>>()?;
        let mut runs = Vec::new();
        let mut before = -1;
        let mut sample_count = 0_usize;
        for _ in 0..take_count(rest)? {
            let reference = i64::checked_add(before + 1, unzigzag(take_varint(rest)?))
                .and_then(|r| u32::try_from(r).ok())
                .ok_or("series reference out of range")?;
            before = i64::from(reference);
            let count = take_u32(rest)?;
            sample_count = sample_count.saturating_add(count as usize);
            runs.push((reference, count));
        }
        if sample_count > rest.len() / 9 {
            return Err(format!("{sample_count} samples do not fit the record"));
        }
        let mut timestamps = Vec::with_capacity(sample_count);
        let mut before = 0_i64;
        for _ in 0..sample_count {
            before = before.wrapping_add(unzigzag(take_varint(rest)?));
            timestamps.push(before);
        }
        if rest.len() != sample_count * 8 {
            return Err(format!("{} bytes of {sample_count} values", rest.len()));
        }
        let (words, _) = rest.as_chunks::<8>();
        let values = words.iter().map(|w| f64::from_bits(u64::from_le_bytes(*w))).collect();
        Ok(Columns { first_ref, definitions, runs, timestamps, values })
    }
}

pub(crate) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Appends a LEB128 varint.
#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a varint off the front.
#[inline]
pub(crate) fn take_varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first().ok_or("cut short in a number")?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number has more than 64 bits".to_owned())
}

/// Takes a varint that must fit 32 bits.
pub(crate) fn take_u32(rest: &mut &[u8]) -> Result<u32, String> {
    let number = take_varint(rest)?;
    u32::try_from(number).map_err(|_| format!("{number} does not fit 32 bits"))
}

/// Takes a count of things that have at least a byte each.
pub(crate) fn take_count(rest: &mut &[u8]) -> Result<usize, String> {
    let count = take_varint(rest)?;
    match usize::try_from(count) {
        Ok(count) if count <= rest.len() => Ok(count),
        _ => Err(format!("{count} entries do not fit {} bytes", rest.len())),
    }
}

/// Takes a length and so many bytes of packed labels, checked whole.
pub(crate) fn take_labels(rest: &mut &[u8]) -> Result<Labels, String> {
    let len = take_count(rest)?;
    let (bytes, tail) = rest.split_at_checked(len).ok_or("cut short in labels")?;
    *rest = tail;
    check_packed(bytes).map_err(|error| error.to_string())?;
    Ok(Labels::from_checked_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn columns() -> impl Strategy<Value = Columns> {
        let run = (any::<u32>(), proptest::collection::vec((any::<i64>(), any::<u64>()), 0..4));
        let label = ("[a-z]{1,3}", "[a-z]{1,300}").prop_map(|(n, v)| Labels::from_pairs([(n, v)]));
        (any::<u32>(), proptest::collection::vec(label, 0..4), proptest::collection::vec(run, 0..6))
            .prop_map(|(first_ref, definitions, runs)| {
                let mut columns = Columns { first_ref, definitions, ..Columns::default() };
                for (reference, samples) in runs {
                    columns.runs.push((reference, samples.len() as u32));
                    columns.timestamps.extend(samples.iter().map(|(t, _)| t));
                    // Without NaN, so that equality means what it says.
                    columns.values.extend(samples.iter().map(|(_, v)| (*v >> 12) as f64));
                }
                columns
            })
    }

    proptest! {
        #[test]
        fn records_come_back(columns in columns()) {
            prop_assert_eq!(Columns::decode(&columns.encode()), Ok(columns));
        }

        #[test]
        fn every_flipped_bit_is_found(columns in columns(), place in any::<prop::sample::Index>()) {
            let mut bytes = columns.encode();
            let bit = place.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Columns::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(
            body in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let body = [&[VERSION], &body[..]].concat();
            let bytes = [&crc32c::crc32c(&body).to_le_bytes(), &body[..]].concat();
            let _ = Columns::decode(&bytes);
        }
    }
}
