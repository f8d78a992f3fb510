//! Late samples of an open series in one window.

use bytes::Bytes;
use model::HistogramSample;

use super::window::frames_bytes;
use crate::chunk::FrameHeader;
use crate::samples::part::{Floats, LateFloats, sorted_later_wins};

/// Late samples. No time is raw both as a float and as a histogram. Raw samples are later writes
/// than the frames.
#[derive(Debug)]
pub(super) struct Late {
    /// Latest time.
    pub(super) max_ms: i64,
    pub(super) frames: Vec<Bytes>,
    pub(super) floats: Floats,
    pub(super) histograms: Vec<HistogramSample>,
}

impl Late {
    pub(super) fn new() -> Late {
        Late {
            max_ms: i64::MIN,
            frames: Vec::new(),
            floats: Floats::default(),
            histograms: Vec::new(),
        }
    }

    /// Returns the samples if all are floats.
    pub(super) fn floats(&self) -> Option<LateFloats> {
        let is_of_floats = |frame: &Bytes| {
            FrameHeader::read(frame).is_ok_and(|header| !header.encoding.is_histograms())
        };
        let are_floats = self.histograms.is_empty() && self.frames.iter().all(is_of_floats);
        are_floats.then(|| LateFloats {
            frames: self.frames.clone(),
            floats: sorted_later_wins(&self.floats),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Late>()
            + frames_bytes(&self.frames)
            + self.floats.samples.capacity() * size_of::<(i64, f64)>()
            + self.floats.starts.capacity() * size_of::<i64>()
            + self.histograms.iter().map(HistogramSample::memory_bytes).sum::<usize>()
    }
}
