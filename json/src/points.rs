//! Floats of a grid: the text of each time is encoded once and copied to every series.

use std::ops::Range;

use engine::steps::Steps;

use crate::number::{SAMPLE_BYTES_MAX, write_sample_value, write_timestamp};

/// Maximum number of cached times, which take half a MiB; longer grids encode each time again.
const STEPS_HELD_MAX: usize = 16 << 10;
/// Maximum length of `,[-9223372036854775.808,"`, rounded up.
const OPENING_BYTES_MAX: usize = 31;
/// End of a point.
const CLOSING: &[u8; 2] = b"\"]";
/// Maximum length of a point.
const POINT_BYTES_MAX: usize = OPENING_BYTES_MAX + SAMPLE_BYTES_MAX + CLOSING.len();

/// Times of a grid as text.
pub(crate) struct Times {
    steps: Steps,
    /// One per step; empty for too many steps.
    held: Vec<Opening>,
}

/// Text before the value of a point: `,[1435781451.781,"`.
#[derive(Clone, Copy)]
struct Opening {
    text: [u8; OPENING_BYTES_MAX],
    len: u8,
}

impl Opening {
    fn new(time_ms: i64) -> Opening {
        let mut text = [0; OPENING_BYTES_MAX];
        text[..2].copy_from_slice(b",[");
        let time = text[2..].first_chunk_mut().expect("there is room for any time");
        let end = 2 + write_timestamp(time, time_ms);
        text[end..end + 2].copy_from_slice(b",\"");
        Opening { text, len: end as u8 + 2 }
    }
}

impl Times {
    /// Returns the times of steps.
    pub(crate) fn new(steps: Steps) -> Times {
        let held_count = if steps.count <= STEPS_HELD_MAX { steps.count } else { 0 };
        let held = (0..held_count).map(|step| Opening::new(steps.time(step))).collect();
        Times { steps, held }
    }

    /// Time of a step, in ms.
    pub(crate) fn time(&self, step: usize) -> i64 {
        self.steps.time(step)
    }

    /// Writes the points of present cells of a row with a comma before each; the first one of the row
    /// has a bracket instead, and sets `has_points`.
    ///
    /// Shape: one value and one presence bit per step; the cells start at a word of presence.
    pub(crate) fn push_points(
        &self,
        out: &mut Vec<u8>,
        values: &[f64],
        presence: &[u64],
        cells: Range<usize>,
        has_points: &mut bool,
    ) {
        debug_assert!(cells.start.is_multiple_of(64));
        for start in cells.clone().step_by(64) {
            let mut bits = presence[start / 64];
            if cells.end - start < 64 {
                bits &= (1 << (cells.end - start)) - 1;
            }
            if bits == 0 {
                continue;
            }
            let first_at = out.len();
            // Points are written into spare room, which is truncated later.
            out.resize(first_at + bits.count_ones() as usize * POINT_BYTES_MAX, 0);
            let mut at = first_at;
            while bits != 0 {
                let step = start + bits.trailing_zeros() as usize;
                let to = out[at..].first_chunk_mut().expect("there is room for each point");
                at += self.write_point(to, step, values[step]);
                bits &= bits - 1;
            }
            out.truncate(at);
            if !std::mem::replace(has_points, true) {
                out[first_at] = b'[';
            }
        }
    }

    #[inline]
    fn write_point(&self, to: &mut [u8; POINT_BYTES_MAX], step: usize, value: f64) -> usize {
        let opening = to.first_chunk_mut().expect("a point begins with an opening");
        let len = match self.held.get(step) {
            Some(held) => {
                *opening = held.text;
                usize::from(held.len)
            }
            None => {
                let made = Opening::new(self.steps.time(step));
                *opening = made.text;
                usize::from(made.len)
            }
        };
        let value_to = to[len..].first_chunk_mut().expect("there is room for the value");
        let end = len + write_sample_value(value_to, value);
        to[end..end + CLOSING.len()].copy_from_slice(CLOSING);
        end + CLOSING.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::number::{push_sample_value, push_timestamp};

    proptest! {
        #[test]
        fn points_are_those_that_are_present_whether_times_are_held_or_not(
            cells in prop::collection::vec(prop::option::of(-1e9..1e9_f64), 1..200),
            start_ms in prop_oneof![-2000i64..2000, Just(i64::MIN), Just(i64::MAX)],
            has_points in any::<bool>(),
        ) {
            let steps = Steps { start_ms, step_ms: 7, count: cells.len() };
            let values: Vec<f64> = cells.iter().map(|cell| cell.unwrap_or(f64::NAN)).collect();
            let mut presence = vec![0u64; cells.len().div_ceil(64)];
            let mut expected = String::new();
            let mut separator = if has_points { "," } else { "[" };
            for (step, value) in cells.iter().enumerate() {
                let Some(value) = value else { continue };
                presence[step / 64] |= 1 << (step % 64);
                let (mut time, mut text) = (Vec::new(), Vec::new());
                push_timestamp(&mut time, steps.time(step));
                // Not `Display`, which rounds the digit of a tie up, where Go rounds it to even.
                push_sample_value(&mut text, *value);
                let (time, text) =
                    (String::from_utf8(time).unwrap(), String::from_utf8(text).unwrap());
                expected.push_str(&format!("{separator}[{time},{text}]"));
                separator = ",";
            }
            for times in [Times::new(steps), Times { steps, held: Vec::new() }] {
                let mut out = Vec::new();
                let mut has_points = has_points;
                times.push_points(&mut out, &values, &presence, 0..cells.len(), &mut has_points);
                prop_assert_eq!(String::from_utf8(out).unwrap(), expected.as_str());
                prop_assert_eq!(has_points, separator == ",");
            }
        }
    }
}
