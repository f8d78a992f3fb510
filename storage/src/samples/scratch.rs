//! Reusable buffers for decoding and encoding floats.

use bytes::Bytes;
use model::SampleBatch;

use super::columns::Column;
use super::part::push_starts;
use crate::chunk::{self, ChunkError, Decoder, FrameEnd, PackedEncoder};

/// Reusable buffers for floats.
pub(crate) struct Scratch {
    /// Created when the first frame is decoded.
    batch: Option<Box<SampleBatch>>,
    /// Decoded times.
    pub(crate) timestamps: Vec<i64>,
    /// Decoded values.
    pub(crate) values: Vec<f64>,
    /// Start timestamps of the first of them; missing ones are 0.
    pub(crate) starts: Vec<i64>,
    bytes: Vec<u8>,
    packing: PackedEncoder,
    /// Bytes that series have grown by since the buffers were taken.
    pub(crate) grown_bytes: usize,
    /// Bytes that series have shrunk by in the same time.
    pub(crate) shrunk_bytes: usize,
}

impl Scratch {
    /// Creates empty buffers.
    pub(crate) fn new() -> Scratch {
        Scratch {
            batch: None,
            timestamps: Vec::new(),
            values: Vec::new(),
            starts: Vec::new(),
            bytes: Vec::new(),
            packing: PackedEncoder::default(),
            grown_bytes: 0,
            shrunk_bytes: 0,
        }
    }

    /// Removes the samples.
    pub(crate) fn clear(&mut self) {
        self.timestamps.clear();
        self.values.clear();
        self.starts.clear();
    }

    /// Decodes a frame of floats, and appends its samples.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<(), ChunkError> {
        let mut decoder = Decoder::open(bytes)?;
        let batch = self.batch.get_or_insert_with(SampleBatch::new);
        loop {
            batch.clear();
            let advance = decoder.next_batch(i64::MAX, batch)?;
            let (timestamps, values) = batch.samples();
            push_starts(&mut self.starts, self.timestamps.len(), &batch.starts);
            self.timestamps.extend_from_slice(timestamps);
            self.values.extend_from_slice(values);
            if advance != model::Advance::Full {
                return Ok(());
            }
        }
    }

    /// Encodes the samples as one frame; they must lie in one window.
    pub(crate) fn encode(&mut self) -> Bytes {
        self.bytes.clear();
        chunk::encode_with_starts(&self.timestamps, &self.values, &self.starts, &mut self.bytes);
        Bytes::copy_from_slice(&self.bytes)
    }

    /// Encodes samples behind those of a frame whose end is known, or as a frame of their own; see
    /// [`chunk::grow`].
    pub(crate) fn grow(
        &mut self,
        before: Option<(&[u8], FrameEnd)>,
        samples: &[(i64, f64)],
    ) -> Option<(Bytes, FrameEnd)> {
        self.bytes.clear();
        let end = chunk::grow(before, samples, &mut self.bytes)?;
        Some((Bytes::copy_from_slice(&self.bytes), end))
    }

    /// Packs the samples of frames that stand end to end. Returns `None` for histograms and for
    /// damaged frames.
    pub(crate) fn pack(&mut self, frames: &[u8]) -> Option<&[u8]> {
        self.clear();
        for frame in chunk::frames(frames) {
            let (offset, header) = frame.ok()?;
            if header.encoding.is_histograms() {
                return None;
            }
            self.decode(&frames[offset..]).ok()?;
        }
        self.bytes.clear();
        self.packing.encode(&self.timestamps, &self.values, &self.starts, &mut self.bytes);
        Some(&self.bytes)
    }

    /// Appends the samples of a column.
    pub(crate) fn unpack(&mut self, column: &Column) {
        column.unpack(&mut self.timestamps, &mut self.values, &mut self.starts);
    }

    pub(crate) fn push_all(&mut self, samples: &[(i64, f64)], starts: &[i64]) {
        push_starts(&mut self.starts, self.timestamps.len(), starts);
        self.timestamps.extend(samples.iter().map(|(timestamp, _)| timestamp));
        self.values.extend(samples.iter().map(|(_, value)| value));
    }
}
