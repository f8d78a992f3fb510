//! Samples of CPU time over a duration.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use tokio::net::unix::pipe::Receiver;

use crate::kernel::cpu_timer::CpuTimer;

/// CPU time between two samples, as in Go.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of distinct stacks; further ones are counted together.
const STACKS_MAX: usize = 16_384;
/// Interval between checks for a stopping server.
const STOP_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of records that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Samples by stack.
#[derive(Debug, Default)]
pub(crate) struct CpuSamples {
    /// Samples by stack; the empty stack stands for those beyond the limit.
    pub(crate) stacks: HashMap<Vec<u64>, u64>,
    /// Samples that could not be taken.
    pub(crate) lost: u64,
    /// Duration of sampling.
    pub(crate) duration: Duration,
}

/// Samples for a duration, or until the server stops. Dropping the future stops the timer.
///
/// Errors: sampling runs already (`ResourceBusy`), is not supported (`Unsupported`), or the system
/// cannot start the timer.
pub(crate) async fn sample(
    duration: Duration,
    is_stopping: impl Fn() -> bool,
) -> io::Result<CpuSamples> {
    let timer = CpuTimer::start(INTERVAL)?;
    let receiver = Receiver::from_owned_fd(timer.records()?)?;
    let mut records = Records::new(timer.generation());
    let started = Instant::now();
    while let Some(left) = duration.checked_sub(started.elapsed()).filter(|_| !is_stopping()) {
        let readable = receiver.readable();
        match tokio::time::timeout(left.min(STOP_INTERVAL), readable).await {
            Ok(readable) => {
                readable?;
                records.read(&receiver)?;
            }
            Err(_) => continue,
        }
    }
    let (duration, lost) = (started.elapsed(), timer.lost());
    drop(timer);
    records.read(&receiver)?;
    Ok(CpuSamples { stacks: records.stacks, lost, duration })
}

/// Reader of records of `kernel/cpu_timer`.
struct Records {
    generation: u32,
    /// Bytes of an incomplete record.
    bytes: Vec<u8>,
    stacks: HashMap<Vec<u64>, u64>,
}

impl Records {
    fn new(generation: u32) -> Records {
        Records { generation, bytes: Vec::with_capacity(2 * READ_BYTES), stacks: HashMap::new() }
    }

    /// Reads the available bytes.
    fn read(&mut self, receiver: &Receiver) -> io::Result<()> {
        loop {
            let held = self.bytes.len();
            self.bytes.resize(held + READ_BYTES, 0);
            let read = receiver.try_read(&mut self.bytes[held..]);
            self.bytes.truncate(held + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(()),
                Ok(_) => self.count(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts complete records.
    fn count(&mut self) {
        let mut at = 0;
        while let Some((generation, stack, bytes)) = first_record(&self.bytes[at..]) {
            at += bytes;
            if generation != self.generation || stack.is_empty() {
                continue;
            }
            let is_full = self.stacks.len() + 1 >= STACKS_MAX;
            let is_other = is_full && !self.stacks.contains_key(&stack);
            *self.stacks.entry(if is_other { Vec::new() } else { stack }).or_default() += 1;
        }
        self.bytes.drain(..at);
    }
}

/// Returns generation, stack and length of the first record, if it is complete.
fn first_record(bytes: &[u8]) -> Option<(u32, Vec<u64>, usize)> {
    let (generation, rest) = bytes.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let count = u32::from_ne_bytes(*count) as usize;
    let frames = rest.get(..8 * count)?.as_chunks().0;
    let stack = frames.iter().map(|frame| u64::from_ne_bytes(*frame)).collect();
    Some((u32::from_ne_bytes(*generation), stack, 8 + 8 * count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(generation: u32, stack: &[u64]) -> Vec<u8> {
        let mut bytes = generation.to_ne_bytes().to_vec();
        bytes.extend((stack.len() as u32).to_ne_bytes());
        bytes.extend(stack.iter().flat_map(|frame| frame.to_ne_bytes()));
        bytes
    }

    #[test]
    fn records_are_counted_however_they_are_cut() {
        let parts = [
            record(7, &[1, 2]),
            record(6, &[1]),
            record(7, &[]),
            record(7, &[1, 2]),
            record(7, &[3]),
        ];
        let bytes = parts.concat();
        for size in 1..=bytes.len() {
            let mut records = Records::new(7);
            for piece in bytes.chunks(size) {
                records.bytes.extend_from_slice(piece);
                records.count();
            }
            assert_eq!(records.stacks, HashMap::from([(vec![1, 2], 2), (vec![3], 1)]), "{size}");
            assert!(records.bytes.is_empty());
        }
    }

    #[test]
    fn stacks_beyond_the_limit_are_one() {
        let mut records = Records::new(1);
        for frame in 0..20_000 {
            records.bytes.extend(record(1, &[frame]));
            records.bytes.extend(record(1, &[0]));
        }
        records.count();
        assert_eq!(records.stacks.len(), STACKS_MAX);
        assert_eq!(records.stacks[&vec![0]], 20_001);
        let others = 20_000 - (STACKS_MAX as u64 - 1);
        assert_eq!(records.stacks[&Vec::new()], others);
    }
}
