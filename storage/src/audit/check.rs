//! Verification of one key and its value.

use crate::block::{self, DecodedBlock, page};
use crate::chunk::{Decoder, HistogramDecoder, frames};
use crate::error::StoreError;
use crate::exemplar;
use crate::index::decode_postings;
use crate::keys;
use crate::log::record::LogRecord;
use crate::meta;
use crate::metadata;
use crate::summary::codec::StoredSummaries;
use crate::value;

use bytes::Bytes;
use model::{Advance, SampleBatch};

/// Verifies key, value, all checksums, and all samples of a block or a record.
pub(super) fn entry(key: &[u8], bytes: &Bytes) -> Result<(), StoreError> {
    let corrupt = |detail: &str| value::corrupt(key, detail);
    match key.first() {
        Some(b'l') => {
            keys::parse_log(key).ok_or_else(|| corrupt("malformed key"))?;
            LogRecord::decode(bytes, None).map(drop).map_err(|detail| value::corrupt(key, detail))
        }
        Some(b'd') => {
            keys::parse_dictionary_pair(key).ok_or_else(|| corrupt("malformed key"))?;
            if bytes.is_empty() { Ok(()) } else { Err(corrupt("the value is not empty")) }
        }
        Some(b'm') => meta::check_entry(key, bytes),
        Some(b'n') => metadata::check_entry(key, bytes),
        Some(b'x') => exemplar::check_entry(key, bytes),
        Some(b'p') => match key.get(9) {
            Some(b'b') => block_entry(key, bytes),
            Some(b'c') => {
                keys::parse_directory(key).ok_or_else(|| corrupt("malformed key"))?;
                block::decode_directory(key, bytes).map(drop)
            }
            Some(b'f') => {
                keys::parse_forward_page(key).ok_or_else(|| corrupt("malformed key"))?;
                page::decode(key, bytes).map(drop)
            }
            Some(b'i') => {
                keys::parse_postings(key).ok_or_else(|| corrupt("malformed key"))?;
                decode_postings(key, bytes).map(drop)
            }
            Some(b'a') => summaries_entry(key, bytes),
            _ => Err(corrupt("a key of no kind that is known")),
        },
        _ => Err(corrupt("a key of no kind that is known")),
    }
}

fn summaries_entry(key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
    let window = keys::window_of_summaries(key);
    let window = window.ok_or_else(|| value::corrupt(key, "malformed key"))?;
    let stored = StoredSummaries::open(key, bytes, window)?;
    let mut summaries = Vec::new();
    for index in 0..stored.len() {
        summaries.clear();
        stored.decode(index, &mut summaries).map_err(|detail| value::corrupt(key, detail))?;
    }
    Ok(())
}

fn block_entry(key: &[u8], bytes: &Bytes) -> Result<(), StoreError> {
    let mut batch = SampleBatch::new();
    for (id, frames) in DecodedBlock::new(key, bytes)?.frames() {
        samples(&frames, &mut batch)
            .map_err(|detail| value::corrupt(key, format!("series {id}: {detail}")))?;
    }
    Ok(())
}

/// Decodes the frames of a series of a block. Times ascend from frame to frame.
fn samples(bytes: &[u8], batch: &mut SampleBatch) -> Result<(), String> {
    for frame in frames(bytes) {
        let (offset, header) = frame.map_err(|error| error.to_string())?;
        let at = |error: crate::chunk::ChunkError| format!("frame at {offset}: {error}");
        let frame = &bytes[offset..];
        header.verify(frame).map_err(at)?;
        let mut found = 0;
        let mut last_ms = None;
        let mut decode = |batch: &mut SampleBatch, advance: Advance| {
            found += batch.sample_count();
            let times = batch.samples().0.last().copied();
            last_ms =
                times.or(batch.histograms.last().map(|sample| sample.timestamp_ms)).or(last_ms);
            batch.clear();
            advance == Advance::End
        };
        if header.encoding.is_histograms() {
            let mut decoder = HistogramDecoder::open(frame).map_err(at)?;
            loop {
                let advance = decoder.next_batch(i64::MAX, batch).map_err(at)?;
                if decode(batch, advance) {
                    break;
                }
            }
        } else {
            let mut decoder = Decoder::open(frame).map_err(at)?;
            loop {
                let advance = decoder.next_batch(i64::MAX, batch).map_err(at)?;
                if decode(batch, advance) {
                    break;
                }
            }
        }
        if found != header.count as usize || last_ms != Some(header.max_ms) {
            return Err(format!(
                "frame at {offset}: {} samples up to {} are announced, {found} up to {last_ms:?} found",
                header.count, header.max_ms
            ));
        }
    }
    Ok(())
}
