//! Reads files into batches, on a separate thread.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;

use formats::FormatError;
use formats::chunk::ChunkSample;
use formats::json_lines::{self, SeriesLine};
use formats::open_metrics::{self, Entry, Sample};
use formats::tsdb::Block;
use model::{Batch, Labels};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;

use super::batcher::Batcher;
use super::inputs::Input;
use super::labels::AddedLabels;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Progress of an input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Bytes of a text, or series of a block.
    pub(super) position: u64,
    /// Checksum of these bytes, which detects changes.
    pub(super) crc32c: u32,
    /// Samples up to the position.
    pub(super) samples: u64,
    /// True at the end of the input.
    pub(super) is_done: bool,
}

/// Part of an input, with the progress at its end.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) batch: Batch,
    pub(super) progress: Progress,
    /// Texts of invalid histograms, up to [`INVALID_NAMED_MAX`].
    pub(super) invalid: Vec<String>,
    /// Number of invalid histograms.
    pub(super) invalid_count: u64,
}

/// Maximum number of invalid histograms of a piece that are named.
const INVALID_NAMED_MAX: usize = 8;

/// Reason for the end of reading.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The input is invalid.
    Format(FormatError),
    /// The receiver is gone.
    Unwanted,
}

impl From<FormatError> for Stopped {
    fn from(error: FormatError) -> Stopped {
        Stopped::Format(error)
    }
}

/// Sender of pieces.
struct Pieces {
    batcher: Batcher,
    progress: Progress,
    /// Samples read of a block.
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

    /// Sends a piece if the batch is full.
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

/// Checks the start of a file or block. A pipe is not checked, because it can be read only once.
///
/// Errors: the format is wrong.
pub(super) fn check_start(input: &Input) -> Result<(), FormatError> {
    match input {
        Input::Text(path) => {
            let metadata = std::fs::metadata(path).map_err(|source| io_error(path, source))?;
            if !metadata.is_file() {
                return Ok(());
            }
            match TextReader::open(path)? {
                TextReader::OpenMetrics(mut reader) => reader.next_entry().map(drop),
                TextReader::JsonLines(mut reader) => reader.next_line().map(drop),
            }
        }
        Input::Block(folder, _) => Block::open(folder).map(drop),
    }
}

/// Input of a text: its first bytes, which show the format, and the rest.
type TextInput = ChecksumReader<Chain<Cursor<Vec<u8>>, BufReader<File>>>;

/// Reader of a text by its format.
enum TextReader {
    OpenMetrics(open_metrics::Reader<TextInput>),
    JsonLines(json_lines::Reader<TextInput>),
}

impl TextReader {
    /// Opens a text; its first bytes show its format.
    fn open(path: &Path) -> Result<TextReader, FormatError> {
        let file = File::open(path).map_err(|source| io_error(path, source))?;
        let mut file = BufReader::with_capacity(READ_BYTES, file);
        let mut start = Vec::new();
        let start_len = json_lines::START.len() as u64;
        (&mut file).take(start_len).read_to_end(&mut start).map_err(|e| io_error(path, e))?;
        let is_json = start == json_lines::START;
        let input = ChecksumReader { input: Cursor::new(start).chain(file), crc32c: 0 };
        let name = path.display().to_string();
        Ok(match is_json {
            true => TextReader::JsonLines(json_lines::Reader::new(&name, input)),
            false => TextReader::OpenMetrics(open_metrics::Reader::new(&name, input)),
        })
    }
}

/// Reads the part of a text that is not imported yet.
pub(super) fn read_text(
    path: &Path,
    added: &AddedLabels,
    from: Progress,
    sender: Sender<Piece>,
) -> Result<(), Stopped> {
    let pieces = Pieces::new(from, sender);
    match TextReader::open(path)? {
        TextReader::OpenMetrics(reader) => read_open_metrics(reader, added, from, pieces),
        TextReader::JsonLines(reader) => read_json_lines(reader, added, from, pieces),
    }
}

fn read_open_metrics(
    mut reader: open_metrics::Reader<TextInput>,
    added: &AddedLabels,
    from: Progress,
    mut pieces: Pieces,
) -> Result<(), Stopped> {
    while let Some(entry) = reader.next_entry()? {
        // The imported part is parsed again as context, and its checksum verified.
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
                // All read samples are sent: metadata precede the samples of their metric.
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

fn read_json_lines(
    mut reader: json_lines::Reader<TextInput>,
    added: &AddedLabels,
    from: Progress,
    mut pieces: Pieces,
) -> Result<(), Stopped> {
    while let Some(SeriesLine { labels, samples }) = reader.next_line()? {
        // The imported part is parsed again, and its checksum verified.
        if reader.byte_count() <= from.position {
            continue;
        }
        let labels = added.set_on(&labels);
        let count = samples.len() as u64;
        for (timestamp_ms, value) in samples {
            pieces.send_if_full()?;
            pieces.batcher.float(&labels, timestamp_ms, 0, value);
        }
        // A line counts as imported once all of its samples are.
        pieces.progress.samples += count;
        pieces.progress.position = reader.byte_count();
        pieces.progress.crc32c = reader.input().crc32c;
        pieces.send_if_full()?;
    }
    pieces.finish()
}

/// Returns whether a text starts with the imported part, and a completely imported text has not
/// grown.
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

/// Reads the series of a block that are not imported yet.
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
        // Samples count as imported once their series is complete.
        self.taken += 1;
        self.send_if_full()
    }
}

fn io_error(path: &Path, source: io::Error) -> FormatError {
    FormatError::Io { path: path.display().to_string(), source }
}

/// Reader that computes a checksum.
struct ChecksumReader<R> {
    input: R,
    crc32c: u32,
}

impl<R: BufRead> Read for ChecksumReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &buffer[..len]);
        Ok(len)
    }
}

impl<R: BufRead> BufRead for ChecksumReader<R> {
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
