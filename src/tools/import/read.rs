//! Reading files into batches, on a thread of its own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use formats::FormatError;
use formats::chunk::ChunkSample;
use formats::open_metrics::{Entry, Reader, Sample};
use formats::tsdb::Block;
use model::{Batch, Labels};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;

use super::batcher::Batcher;
use super::inputs::Input;
use super::labels::AddedLabels;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// How far an input has been imported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Bytes of a text, or series of a block.
    pub(super) position: u64,
    /// The checksum of these bytes, by which it is known that they are the same still.
    pub(super) crc32c: u32,
    /// Samples up to there.
    pub(super) samples: u64,
    /// Whether that is all.
    pub(super) is_done: bool,
}

/// A part of an input, and how far it reaches.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) batch: Batch,
    pub(super) progress: Progress,
    /// Histograms that cannot be, up to [`INVALID_NAMED_MAX`] of them in words.
    pub(super) invalid: Vec<String>,
    /// How many there are in all.
    pub(super) invalid_count: u64,
}

/// Invalid histograms of a piece that are named.
const INVALID_NAMED_MAX: usize = 8;

/// Why reading has ended.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The input is no good.
    Format(FormatError),
    /// Nobody wants more.
    Unwanted,
}

impl From<FormatError> for Stopped {
    fn from(error: FormatError) -> Stopped {
        Stopped::Format(error)
    }
}

/// Pieces on their way.
struct Pieces {
    batcher: Batcher,
    progress: Progress,
    /// Samples of a block.
    taken: u64,
    invalid: Vec<String>,
    invalid_count: u64,
    sender: Sender<Piece>,
}

impl Pieces {
    fn new(from: Progress, sender: Sender<Piece>) -> Pieces {
        Pieces {
            batcher: Batcher::default(),
            progress: from,
            taken: 0,
            invalid: Vec::new(),
            invalid_count: 0,
            sender,
        }
    }

    /// Hands over what has been read, if that is enough.
    fn send_if_full(&mut self) -> Result<(), Stopped> {
        if self.batcher.is_full() { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), Stopped> {
        let piece = Piece {
            batch: self.batcher.take(),
            progress: self.progress,
            invalid: std::mem::take(&mut self.invalid),
            invalid_count: std::mem::take(&mut self.invalid_count),
        };
        self.sender.blocking_send(piece).map_err(|_| Stopped::Unwanted)
    }

    fn finish(mut self) -> Result<(), Stopped> {
        self.progress.is_done = true;
        self.send()
    }
}

/// Reads the beginning of a file or block. A pipe is left alone: what is read of it is gone.
///
/// Errors: it is not what it is taken for.
pub(super) fn check_start(input: &Input) -> Result<(), FormatError> {
    match input {
        Input::Text(path) => {
            let metadata = std::fs::metadata(path).map_err(|source| io_error(path, source))?;
            if !metadata.is_file() {
                return Ok(());
            }
            let file = File::open(path).map_err(|source| io_error(path, source))?;
            let input = BufReader::with_capacity(READ_BYTES, file);
            Reader::new(&path.display().to_string(), input).next_entry().map(drop)
        }
        Input::Block(folder, _) => Block::open(folder).map(drop),
    }
}

/// Reads a text behind what has been imported of it.
pub(super) fn read_text(
    path: &Path,
    added: &AddedLabels,
    from: Progress,
    sender: Sender<Piece>,
) -> Result<(), Stopped> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    let input = Summed { input: BufReader::with_capacity(READ_BYTES, file), crc32c: 0 };
    let mut reader = Reader::new(&name, input);
    let mut pieces = Pieces::new(from, sender);
    while let Some(entry) = reader.next_entry()? {
        // All of it is read, so that what follows is understood, and all of it checked.
        if reader.byte_count() <= from.position {
            continue;
        }
        match entry {
            Entry::Metadata(metadata) => pieces.batcher.metadata(metadata),
            Entry::Sample(Sample { labels, timestamp_ms, value, exemplar }) => {
                let labels = added.set_on(&labels);
                pieces.batcher.float(&labels, timestamp_ms, 0, value);
                if let Some(exemplar) = exemplar {
                    pieces.batcher.exemplar(&labels, exemplar);
                }
                pieces.progress.samples += 1;
                // Nothing read so far has not been handed over: a sample comes behind what is
                // said of its metric.
                pieces.progress.position = reader.byte_count();
                pieces.progress.crc32c = reader.input().crc32c;
                pieces.send_if_full()?;
            }
        }
    }
    pieces.progress.position = reader.byte_count();
    pieces.progress.crc32c = reader.input().crc32c;
    pieces.finish()
}

/// Whether a text begins with what has been imported, and nothing else has come behind it where
/// that was all.
pub(super) fn is_same_text(path: &Path, progress: &Progress) -> Result<bool, FormatError> {
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    let len = file.metadata().map_err(|source| io_error(path, source))?.len();
    if len < progress.position || (progress.is_done && len != progress.position) {
        return Ok(false);
    }
    let mut input = BufReader::with_capacity(READ_BYTES, file.take(progress.position));
    let (mut crc32c, mut found) = (0, 0);
    loop {
        let bytes = input.fill_buf().map_err(|source| io_error(path, source))?;
        if bytes.is_empty() {
            return Ok(found == progress.position && crc32c == progress.crc32c);
        }
        crc32c = crc32c::crc32c_append(crc32c, bytes);
        let len = bytes.len();
        found += len as u64;
        input.consume(len);
    }
}

/// Reads the series of a block behind those that have been imported.
pub(super) fn read_block(
    folder: &Path,
    added: &AddedLabels,
    from: Progress,
    sender: Sender<Piece>,
) -> Result<(), Stopped> {
    let mut block = Block::open(folder)?;
    let mut pieces = Pieces::new(from, sender);
    let first = u32::try_from(from.position).unwrap_or(u32::MAX);
    for number in first..block.series_count() {
        let series = block.series(number)?;
        let labels = added.set_on(&series.labels);
        for chunk in &series.chunks {
            block.samples(&series, chunk, |sample| pieces.take(&labels, sample))?;
        }
        pieces.progress.position = u64::from(number) + 1;
        pieces.progress.samples = from.samples + pieces.taken;
        pieces.send_if_full()?;
    }
    pieces.finish()
}

impl Pieces {
    fn take(&mut self, labels: &Labels, sample: ChunkSample) -> Result<(), Stopped> {
        match sample {
            ChunkSample::Float { timestamp_ms, start_ms, value } => {
                self.batcher.float(labels, timestamp_ms, start_ms, value);
            }
            ChunkSample::Histogram(sample) => self.batcher.histogram(labels, sample),
            ChunkSample::Invalid { timestamp_ms, detail } => {
                self.invalid_count += 1;
                if self.invalid.len() < INVALID_NAMED_MAX {
                    self.invalid.push(format!("{labels} at {timestamp_ms}: {detail}"));
                }
                return Ok(());
            }
        }
        // They count as imported once their series is.
        self.taken += 1;
        self.send_if_full()
    }
}

fn io_error(path: &Path, source: io::Error) -> FormatError {
    FormatError::Io { path: path.display().to_string(), source }
}

/// Sums up what has been read.
struct Summed<R> {
    input: R,
    crc32c: u32,
}

impl<R: BufRead> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &buffer[..len]);
        Ok(len)
    }
}

impl<R: BufRead> BufRead for Summed<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, len: usize) {
        if let Ok(bytes) = self.input.fill_buf() {
            self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes[..len.min(bytes.len())]);
        }
        self.input.consume(len);
    }
}
