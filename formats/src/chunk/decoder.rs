//! Decoding of a chunk.

use super::floats::FloatDecoder;
use super::histograms::HistogramDecoder;
use super::sample::{ChunkError, ChunkSample};
use super::start_timestamps::StartDecoder;

/// Decodes a chunk sample by sample.
#[derive(Debug)]
pub struct ChunkDecoder<'a> {
    body: Body<'a>,
    read: u32,
    count: u32,
    before_ms: Option<i64>,
}

#[derive(Debug)]
enum Body<'a> {
    Floats(FloatDecoder<'a>),
    Histograms(Box<HistogramDecoder<'a>>),
}

impl<'a> ChunkDecoder<'a> {
    /// Starts at the first sample.
    ///
    /// Encodings: 1 XOR, 2 histogram, 3 float histogram; 4, 5 and 6 are these with start
    /// timestamps.
    /// Source: `Encoding` in `tsdb/chunkenc/chunk.go` of Prometheus.
    pub fn new(encoding: u8, bytes: &'a [u8]) -> Result<ChunkDecoder<'a>, ChunkError> {
        let (count, rest) = bytes.split_first_chunk::<2>().ok_or(ChunkError::Truncated)?;
        let count = u16::from_be_bytes(*count);
        let reader =
            |body, count: u16| ChunkDecoder { body, read: 0, count: count.into(), before_ms: None };
        if encoding == 1 {
            return Ok(reader(Body::Floats(FloatDecoder::new(rest, None)), count));
        }
        if !(2..=6).contains(&encoding) {
            return Err(ChunkError::UnknownEncoding(encoding));
        }
        let (third, rest) = rest.split_first().ok_or(ChunkError::Truncated)?;
        if encoding == 4 {
            let floats = FloatDecoder::new(rest, Some(StartDecoder::new(*third)));
            return Ok(reader(Body::Floats(floats), count));
        }
        let has_floats = matches!(encoding, 3 | 6);
        // With start timestamps, the highest two bits of the count are flags.
        let (flags, starts, count) = match encoding {
            5 | 6 => (bytes[0], Some(StartDecoder::new(*third)), count & 0x3fff),
            _ => (*third, None, count),
        };
        let histograms = HistogramDecoder::new(rest, flags >> 6 == 0b11, has_floats, starts);
        Ok(reader(Body::Histograms(Box::new(histograms)), count))
    }

    /// Decodes the next sample; `None` after the last.
    ///
    /// Errors: truncated or invalid bytes, and timestamps that do not ascend.
    pub fn next_sample(&mut self) -> Result<Option<ChunkSample>, ChunkError> {
        if self.read == self.count {
            return Ok(None);
        }
        let sample = match &mut self.body {
            Body::Floats(floats) => floats.next(self.read)?,
            Body::Histograms(histograms) => histograms.next(self.read)?,
        };
        self.read += 1;
        let timestamp_ms = sample.timestamp_ms();
        if self.before_ms.is_some_and(|before_ms| before_ms >= timestamp_ms) {
            return Err(ChunkError::Invalid("times that do not ascend"));
        }
        self.before_ms = Some(timestamp_ms);
        Ok(Some(sample))
    }
}
