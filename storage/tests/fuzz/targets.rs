//! Bodies of the fuzz targets of the store, in a file that `fuzz/` shares.

use model::{Advance, HistogramSample, SampleBatch};
use storage::chunk::histogram::{encode_histograms, is_storable};
use storage::chunk::{
    ChunkError, Encoding, FrameHeader, HistogramBefore, HistogramDecoder, frames,
};

/// Reads any bytes as the payload of a chunk of histograms: the number of samples in 2 bytes,
/// the time from the first to the last in 4, both little endian, and the payload. What can be
/// read can be written, and is read again as the same.
pub fn read_histogram_chunk(bytes: &[u8]) {
    let Some((count, rest)) = bytes.split_first_chunk::<2>() else { return };
    let Some((span_ms, payload)) = rest.split_first_chunk::<4>() else { return };
    let (count, span_ms) = (u16::from_le_bytes(*count), u32::from_le_bytes(*span_ms));
    let frame = framed(count.into(), span_ms.into(), payload);
    let Ok(header) = FrameHeader::read(&frame) else { return };
    let Ok((before, samples)) = read_all(&frame) else { return };
    assert_eq!(samples.len(), header.count as usize);
    assert!(samples.is_sorted_by(|a, b| a.timestamp_ms < b.timestamp_ms));
    assert_eq!(samples.last().map(|sample| sample.timestamp_ms), Some(header.max_ms));
    assert!(samples.iter().all(|sample| is_storable(&sample.histogram)));

    let mut again = Vec::new();
    encode_histograms(&samples, before, &mut again);
    let mut read_again = Vec::new();
    for frame in frames(&again) {
        let (offset, _) = frame.expect("just encoded");
        let (found, samples) = read_all(&again[offset..]).expect("just encoded");
        if offset == 0 {
            assert_eq!(found, before);
        }
        read_again.extend(samples);
    }
    assert_eq!(read_again.len(), samples.len());
    for (found, expected) in read_again.iter().zip(&samples) {
        assert_eq!(found.timestamp_ms, expected.timestamp_ms);
        assert_eq!(found.start_ms, expected.start_ms);
        assert_eq!(found.histogram, expected.histogram);
    }
}

/// Returns a frame around a payload, with a valid checksum.
fn framed(count: u64, span_ms: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![Encoding::Histograms as u8];
    for number in [count, span_ms, payload.len() as u64] {
        let mut number = number;
        while number >= 0x80 {
            frame.push(number as u8 | 0x80);
            number >>= 7;
        }
        frame.push(number as u8);
    }
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&crc32c::crc32c(&frame).to_le_bytes());
    frame
}

type Chunk = (Option<HistogramBefore>, Vec<HistogramSample>);

fn read_all(frame: &[u8]) -> Result<Chunk, ChunkError> {
    let mut decoder = HistogramDecoder::open(frame)?;
    let mut batch = SampleBatch::new();
    let mut samples = Vec::new();
    loop {
        match decoder.next_batch(i64::MAX, &mut batch) {
            Ok(advance) => {
                samples.append(&mut batch.histograms);
                if advance == Advance::End {
                    return Ok((decoder.before(), samples));
                }
            }
            Err(error) => {
                // Another read returns the same error.
                batch.clear();
                assert_eq!(decoder.next_batch(i64::MAX, &mut batch), Err(error));
                return Err(error);
            }
        }
    }
}
