//! Frames of a sealed series: copied, or encoded again where parts overlap.

use model::{Advance, Cursor, HistogramSample, Labels, SampleBatch, SourceError};

use crate::chunk::{self, HistogramBefore, encode_histograms};
use crate::samples::cursor::PartsCursor;
use crate::samples::part::{Floats, Part};
use crate::samples::scratch::Scratch;
use crate::samples::series_parts::SeriesParts;

/// Samples in a frame that is encoded again.
const FRAME_LEN: usize = 240;

/// Returns the frames of a series, concatenated in order, and packed if that is shorter.
pub(super) fn frames_of(
    parts: &SeriesParts,
    labels: &Labels,
    batch: &mut SampleBatch,
    scratch: &mut Scratch,
) -> Result<Vec<u8>, SourceError> {
    let frames = copy_or_encode(parts, labels, batch)?;
    let packed = scratch.pack(&frames).filter(|packed| packed.len() < frames.len());
    Ok(packed.map_or(frames, <[u8]>::to_vec))
}

/// Returns the frames, copied if the parts do not overlap, otherwise encoded again.
fn copy_or_encode(
    parts: &SeriesParts,
    labels: &Labels,
    batch: &mut SampleBatch,
) -> Result<Vec<u8>, SourceError> {
    let mut out = Vec::new();
    if parts.is_chain() {
        for part in parts.iter() {
            match part {
                Part::Frame(frame) => out.extend_from_slice(&frame.bytes),
                Part::Run(_) | Part::Column(_) | Part::Summaries(_) => {
                    unreachable!("a seal asks for frames")
                }
                Part::Tail(tail) => {
                    let (timestamps, values): (Vec<i64>, Vec<f64>) =
                        tail.items().iter().copied().unzip();
                    chunk::encode_with_starts(&timestamps, &values, &[], &mut out);
                }
                Part::Floats(floats) => {
                    let Floats { samples, starts } = &**floats;
                    let (timestamps, values): (Vec<i64>, Vec<f64>) =
                        samples.iter().copied().unzip();
                    chunk::encode_with_starts(&timestamps, &values, starts, &mut out);
                }
                Part::Histograms(samples) => {
                    encode_histograms(samples, None, &mut out);
                }
            }
        }
        return Ok(out);
    }
    let mut cursor = PartsCursor::new(labels, parts, i64::MIN, i64::MAX, None);
    let mut histograms = PendingHistograms { samples: Vec::new(), before: parts.first_before() };
    loop {
        batch.clear();
        let advance = cursor.next_batch(i64::MAX, batch)?;
        let (timestamps, values) = batch.samples();
        for at in (0..batch.len).step_by(FRAME_LEN) {
            let range = at..(at + FRAME_LEN).min(batch.len);
            let starts = &batch.starts[at.min(batch.starts.len())..];
            let (timestamps, values) = (&timestamps[range.clone()], &values[range]);
            let starts = &starts[..starts.len().min(timestamps.len())];
            chunk::encode_with_starts(timestamps, values, starts, &mut out);
        }
        histograms.samples.append(&mut batch.histograms);
        if histograms.samples.len() >= FRAME_LEN || advance != Advance::Full {
            histograms.encode(&mut out);
        }
        if advance != Advance::Full {
            return Ok(out);
        }
    }
}

/// Histograms of the next frame.
struct PendingHistograms {
    samples: Vec<HistogramSample>,
    /// Predecessor of the first histogram.
    before: Option<HistogramBefore>,
}

impl PendingHistograms {
    fn encode(&mut self, out: &mut Vec<u8>) {
        encode_histograms(&self.samples, self.before, out);
        if let Some(last) = self.samples.last() {
            self.before = Some(HistogramBefore::of(last));
        }
        self.samples.clear();
    }
}
