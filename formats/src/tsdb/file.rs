//! A file that is read through a window.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use model::varint::take_varint;

use crate::error::FormatError;

/// Size of a window.
const WINDOW_BYTES: usize = 256 << 10;

/// A file, with the part of it that was read last.
#[derive(Debug)]
pub(super) struct WindowedFile {
    file: File,
    path: PathBuf,
    len: u64,
    /// Start of the window.
    start: u64,
    window: Vec<u8>,
}

impl WindowedFile {
    pub(super) fn open(path: &Path) -> Result<WindowedFile, FormatError> {
        let io = |source| FormatError::io(path, source);
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        Ok(WindowedFile { file, path: path.to_owned(), len, start: 0, window: Vec::new() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns some bytes. The caller limits `len`.
    ///
    /// Errors: the file is shorter.
    pub(super) fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8], FormatError> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len);
        let Some(end) = end else {
            let detail = format!("{len} bytes are expected, and the file has {}", self.len);
            return Err(self.damaged(offset, detail));
        };
        let is_within = offset >= self.start && end <= self.start + self.window.len() as u64;
        if !is_within {
            let wanted = (self.len - offset).min(len.max(WINDOW_BYTES) as u64) as usize;
            self.window.resize(wanted, 0);
            self.start = offset;
            if let Err(source) = self.file.read_exact_at(&mut self.window, offset) {
                self.window.clear();
                return Err(FormatError::io(&self.path, source));
            }
        }
        let from = (offset - self.start) as usize;
        Ok(&self.window[from..from + len])
    }

    pub(super) fn u32(&mut self, offset: u64) -> Result<u32, FormatError> {
        let bytes = self.bytes(offset, 4)?;
        Ok(u32::from_be_bytes(bytes.try_into().expect("4 bytes were read")))
    }

    /// Returns a varint, and the offset after it.
    pub(super) fn varint(&mut self, offset: u64) -> Result<(u64, u64), FormatError> {
        let len = self.len.saturating_sub(offset).min(10) as usize;
        let mut rest = self.bytes(offset, len)?;
        match take_varint(&mut rest) {
            Some(value) => Ok((value, offset + (len - rest.len()) as u64)),
            None => Err(self.damaged(offset, "a number is truncated")),
        }
    }

    /// Checks the checksum after some bytes, of any number.
    pub(super) fn check(&mut self, offset: u64, len: u64) -> Result<(), FormatError> {
        let end = offset.checked_add(len).filter(|end| end.saturating_add(4) <= self.len);
        let Some(end) = end else {
            let detail = format!("{len} bytes are expected, and the file has {}", self.len);
            return Err(self.damaged(offset, detail));
        };
        let (mut at, mut found) = (offset, 0);
        while at < end {
            let len = (end - at).min(WINDOW_BYTES as u64) as usize;
            found = crc32c::crc32c_append(found, self.bytes(at, len)?);
            at += len as u64;
        }
        let expected = self.u32(end)?;
        if expected != found {
            let detail = format!("checksum {expected:08x} is expected, {found:08x} found");
            return Err(self.damaged(offset, detail));
        }
        Ok(())
    }

    /// Returns an error of damage at an offset of this file.
    pub(super) fn damaged(&self, offset: u64, detail: impl Into<String>) -> FormatError {
        FormatError::damaged(&self.path, offset, detail)
    }
}
