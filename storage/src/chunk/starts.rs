//! Column of the start timestamps of the floats of a chunk.
//!
//! It follows the Gorilla or packed payload, in runs, and ends with its length:
//!
//! ```text
//! payload of floats │ ( samples × 4 + rule │ data of the rule ) × runs │ bytes of the runs:3 LE
//!
//! rule 0  not known                              no data
//!      1  one start for the run                  zigzag(min time − start)
//!      2  each the time of the sample before     no data; for the first sample its own time
//!      3  each its own                           zigzag(time − start) × samples
//! ```
//!
//! Fields without a width are LEB128 varints. The runs hold as many samples as the chunk.

use super::ChunkError;
use crate::varint::{push_varint, take_varint, unzigzag, zigzag};

/// Size of the column's length field.
pub(super) const LENGTH_BYTES: usize = 3;

const UNKNOWN: u64 = 0;
const ONE: u64 = 1;
const TIME_BEFORE: u64 = 2;
const OWN: u64 = 3;

/// Appends the column of one chunk; missing start timestamps are 0.
pub(super) fn write(timestamps: &[i64], starts: &[i64], out: &mut Vec<u8>) {
    let column_start = out.len();
    let start_of = |at: usize| starts.get(at).copied().unwrap_or(0);
    // Rule of a run that begins here, and its length.
    let run_at = |at: usize| {
        let run = |is_held: &dyn Fn(usize) -> bool| {
            (at..timestamps.len()).take_while(|at| is_held(*at)).count()
        };
        let first = start_of(at);
        if first == 0 {
            return (UNKNOWN, run(&|at| start_of(at) == 0));
        }
        let before = run(&|at| start_of(at) == timestamps[at.saturating_sub(1)]);
        if before > 0 {
            return (TIME_BEFORE, before);
        }
        match run(&|at| start_of(at) == first) {
            1 => (OWN, 1),
            len => (ONE, len),
        }
    };
    let mut at = 0;
    while at < timestamps.len() {
        let (rule, mut len) = run_at(at);
        let mut after = at + len;
        while rule == OWN && after < timestamps.len() && run_at(after).0 == OWN {
            after += 1;
            len += 1;
        }
        push_varint(out, (len as u64) << 2 | rule);
        match rule {
            ONE => push_varint(out, zigzag(timestamps[0].wrapping_sub(start_of(at)))),
            OWN => {
                for (at, timestamp_ms) in (at..after).zip(&timestamps[at..]) {
                    push_varint(out, zigzag(timestamp_ms.wrapping_sub(start_of(at))));
                }
            }
            _ => {}
        }
        at = after;
    }
    let len = (out.len() - column_start) as u32;
    out.extend_from_slice(&len.to_le_bytes()[..LENGTH_BYTES]);
}

/// Returns the end of the floats of a frame, and the column after it. `frame` ends with
/// the whole payload.
pub(super) fn split(frame: &[u8], payload_start: usize) -> Result<(usize, &[u8]), ChunkError> {
    let (rest, length) = frame.split_last_chunk::<LENGTH_BYTES>().unwrap_or((frame, &[0xff; 3]));
    let len = u32::from_le_bytes([length[0], length[1], length[2], 0]);
    match rest.len().checked_sub(len as usize) {
        Some(end) if end > payload_start => Ok((end, &rest[end..])),
        _ => Err(ChunkError::Header { field: "length of the starts", found: u64::from(len) }),
    }
}

/// Reader of the column, a batch at a time.
#[derive(Debug, Clone)]
pub(super) struct StartsReader<'a> {
    rest: &'a [u8],
    rule: u64,
    /// Remaining samples of the run.
    run_left: u64,
    /// Start timestamp of a run of rule 1.
    start_ms: i64,
    min_ms: i64,
    time_before_ms: i64,
}

impl<'a> StartsReader<'a> {
    pub(super) fn new(column: &'a [u8], min_ms: i64) -> StartsReader<'a> {
        StartsReader {
            rest: column,
            rule: UNKNOWN,
            run_left: 0,
            start_ms: 0,
            min_ms,
            time_before_ms: min_ms,
        }
    }

    /// Reads the start timestamp of each of the next samples.
    pub(super) fn read(
        &mut self,
        timestamps: &[i64],
        mut push: impl FnMut(i64),
    ) -> Result<(), &'static str> {
        let cut = |_| "the starts end early";
        for timestamp_ms in timestamps {
            if self.run_left == 0 {
                let run = take_varint(&mut self.rest).map_err(cut)?;
                (self.rule, self.run_left) = (run & 3, run >> 2);
                if self.run_left == 0 {
                    return Err("a run of starts is empty");
                }
                if self.rule == ONE {
                    let distance = unzigzag(take_varint(&mut self.rest).map_err(cut)?);
                    self.start_ms = self.min_ms.wrapping_sub(distance);
                }
            }
            self.run_left -= 1;
            push(match self.rule {
                UNKNOWN => 0,
                ONE => self.start_ms,
                TIME_BEFORE => self.time_before_ms,
                _ => timestamp_ms.wrapping_sub(unzigzag(take_varint(&mut self.rest).map_err(cut)?)),
            });
            self.time_before_ms = *timestamp_ms;
        }
        Ok(())
    }

    /// Checks that nothing follows the last sample.
    pub(super) fn check_end(&self) -> Result<(), &'static str> {
        if self.run_left > 0 || !self.rest.is_empty() {
            return Err("starts follow the last sample");
        }
        Ok(())
    }
}
