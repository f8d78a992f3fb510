//! A chunk: an encoding, and the samples of one series that it holds.

use model::HistogramSample;
use model::histogram::HISTOGRAM_BUCKETS_MAX;

use super::float::Floats;
use super::histogram::Histograms;
use super::starts::Starts;

/// What a chunk holds.
#[derive(Debug, Clone)]
pub enum ChunkSample {
    /// A float.
    Float {
        /// Its time, ms since the epoch.
        timestamp_ms: i64,
        /// Since when its counter counts; 0 where that is not known.
        start_ms: i64,
        /// Its value.
        value: f64,
    },
    /// A native histogram, valid.
    Histogram(HistogramSample),
    /// A native histogram that cannot be.
    Invalid {
        /// Its time, ms since the epoch.
        timestamp_ms: i64,
        /// What is wrong with it.
        detail: String,
    },
}

impl ChunkSample {
    /// Its time, ms since the epoch.
    pub fn timestamp_ms(&self) -> i64 {
        match self {
            ChunkSample::Float { timestamp_ms, .. } | ChunkSample::Invalid { timestamp_ms, .. } => {
                *timestamp_ms
            }
            ChunkSample::Histogram(sample) => sample.timestamp_ms,
        }
    }
}

/// Why bytes are not a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// It ends before its samples do.
    #[error("the chunk is cut short")]
    CutShort,
    /// An encoding that this version does not know.
    #[error("the chunk has encoding {0}, which is not known")]
    UnknownEncoding(u8),
    /// More buckets than a histogram may have.
    #[error("a histogram of more than {HISTOGRAM_BUCKETS_MAX} buckets, spans or bounds")]
    TooManyBuckets,
    /// Bits that no writer writes.
    #[error("the chunk has {0}")]
    Invalid(&'static str),
}

/// Reads a chunk sample by sample.
#[derive(Debug)]
pub struct ChunkReader<'a> {
    body: Body<'a>,
    read: u32,
    count: u32,
    before_ms: Option<i64>,
}

#[derive(Debug)]
enum Body<'a> {
    Floats(Floats<'a>),
    Histograms(Box<Histograms<'a>>),
}

impl<'a> ChunkReader<'a> {
    /// A reader at the first sample.
    ///
    /// Encodings: 1 XOR, 2 histogram, 3 float histogram; 4, 5 and 6 are the same with starts.
    /// Source: `Encoding` in `tsdb/chunkenc/chunk.go` of Prometheus.
    pub fn new(encoding: u8, bytes: &'a [u8]) -> Result<ChunkReader<'a>, ChunkError> {
        let (count, behind) = bytes.split_first_chunk::<2>().ok_or(ChunkError::CutShort)?;
        let count = u16::from_be_bytes(*count);
        let reader =
            |body, count: u16| ChunkReader { body, read: 0, count: count.into(), before_ms: None };
        if encoding == 1 {
            return Ok(reader(Body::Floats(Floats::new(behind, None)), count));
        }
        if !(2..=6).contains(&encoding) {
            return Err(ChunkError::UnknownEncoding(encoding));
        }
        let (third, behind) = behind.split_first().ok_or(ChunkError::CutShort)?;
        if encoding == 4 {
            let floats = Floats::new(behind, Some(Starts::new(*third)));
            return Ok(reader(Body::Floats(floats), count));
        }
        let has_floats = matches!(encoding, 3 | 6);
        // With starts, the two bits stand in the count.
        let (flags, starts, count) = match encoding {
            5 | 6 => (bytes[0], Some(Starts::new(*third)), count & 0x3fff),
            _ => (*third, None, count),
        };
        let histograms = Histograms::new(behind, flags >> 6 == 0b11, has_floats, starts);
        Ok(reader(Body::Histograms(Box::new(histograms)), count))
    }

    /// The next sample; none behind the last.
    ///
    /// Errors: bytes that are cut short or that no writer writes, times that do not ascend.
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
