//! Packing the frames of ended windows as in a block, without their series.

use bytes::Bytes;

use crate::chunk::FrameHeader;
use crate::epoch::Epoch;
use crate::samples::scratch::Scratch;
use crate::window::Window;

/// Frames of a window that may be packed.
pub(super) struct LooseFrames {
    pub(super) window: Window,
    pub(super) epoch: Epoch,
    pub(super) frames: Vec<Bytes>,
}

/// Frames packed as in a block.
#[derive(Clone)]
pub(super) enum Packed {
    /// Shorter frames.
    Shorter(Vec<Bytes>),
    /// Packed, the frames would not be shorter.
    NotShorter,
}

/// Packs frames of floats. Returns `None` for damaged ones, which the seal reports.
pub(super) fn pack(frames: &[Bytes], s: &mut Scratch) -> Option<Packed> {
    let frames = frames.concat();
    let packed = s.pack(&frames)?;
    if packed.len() >= frames.len() {
        return Some(Packed::NotShorter);
    }
    let mut shorter = Vec::with_capacity(1);
    push_each_frame(packed, &mut shorter);
    Some(Packed::Shorter(shorter))
}

/// Splits consecutive frames into single ones.
pub(super) fn push_each_frame(bytes: &[u8], frames: &mut Vec<Bytes>) {
    let mut rest = bytes;
    while let Ok(header) = FrameHeader::read(rest) {
        let (frame, tail) = rest.split_at(header.frame_len());
        frames.push(Bytes::copy_from_slice(frame));
        rest = tail;
    }
}
