//! Lines of a file, bounded in length and counted for errors.

use std::io::{self, BufRead};

use crate::error::FormatError;

/// Reads a file, one line at a time.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    pub(crate) input: R,
    /// The line, without its line feed.
    pub(crate) line: Vec<u8>,
    /// Bytes of the lines read so far.
    pub(crate) byte_count: u64,
    /// Name of the file, for errors.
    path: String,
    line_count: u64,
    /// Maximum length of a line, in bytes.
    bytes_max: usize,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(path: &str, input: R, bytes_max: usize) -> Lines<R> {
        let path = path.to_owned();
        Lines { input, line: Vec::new(), byte_count: 0, path, line_count: 0, bytes_max }
    }

    /// Reads the next line; returns whether there was one.
    pub(crate) fn read(&mut self) -> Result<bool, FormatError> {
        self.line.clear();
        self.line_count += 1;
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(FormatError::Io { path: self.path.clone(), source }),
            };
            if available.is_empty() {
                return Ok(!self.line.is_empty());
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            self.line.extend_from_slice(&available[..taken]);
            let consumed = taken + usize::from(end.is_some());
            self.input.consume(consumed);
            self.byte_count += consumed as u64;
            if self.line.len() > self.bytes_max {
                return Err(self.wrong(format!("a line of more than {} bytes", self.bytes_max)));
            }
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// Creates an error about the current line.
    pub(crate) fn wrong(&self, detail: impl Into<String>) -> FormatError {
        let (path, line) = (self.path.clone(), self.line_count);
        FormatError::Line { path, line, detail: detail.into() }
    }
}
