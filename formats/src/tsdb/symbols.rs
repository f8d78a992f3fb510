//! The texts of an index, by number.

use std::collections::HashMap;
use std::sync::Arc;

use super::file::WindowedFile;
use crate::error::FormatError;

/// Symbols that are found and read together.
const GROUP_LEN: u32 = 32;
/// Bytes of symbols that are kept in memory.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// The longest symbol, in bytes: what fits a label.
const SYMBOL_BYTES_MAX: u64 = model::labels::LABEL_BYTES_MAX as u64;

/// Symbols that were read together.
pub(super) type Texts = Arc<[Box<str>]>;

/// The symbol table: of every group of symbols the place is known, and some are in memory.
#[derive(Debug)]
pub(super) struct Symbols {
    file: WindowedFile,
    count: u32,
    /// Where each group begins.
    groups: Vec<u64>,
    kept: HashMap<u32, Texts>,
    kept_bytes: usize,
}

impl Symbols {
    /// Checks the table, and finds its groups.
    pub(super) fn read(mut file: WindowedFile, offset: u64) -> Result<Symbols, FormatError> {
        let len = u64::from(file.u32(offset)?);
        file.check(offset + 4, len)?;
        let count = file.u32(offset + 4)?;
        // A symbol takes a byte at least, so that groups are no more than the file is long.
        if len < 4 || u64::from(count) > len - 4 {
            return Err(file.damaged(offset, format!("{count} symbols in {len} bytes")));
        }
        let (mut at, end) = (offset + 8, offset + 4 + len);
        let mut groups = Vec::new();
        for number in 0..count {
            if number % GROUP_LEN == 0 {
                groups.push(at);
            }
            let (len, text) = file.varint(at)?;
            let next = text.checked_add(len).filter(|next| *next <= end);
            at = next.ok_or_else(|| file.damaged(at, "a symbol is cut short"))?;
        }
        Ok(Symbols { file, count, groups, kept: HashMap::new(), kept_bytes: 0 })
    }

    /// A symbol: some symbols, and its place among them.
    pub(super) fn get(&mut self, number: u32) -> Result<(Texts, usize), FormatError> {
        let group = number / GROUP_LEN;
        let at = match self.groups.get(group as usize) {
            Some(at) if number < self.count => *at,
            _ => {
                let detail = format!("symbol {number} is asked for, and there are {}", self.count);
                return Err(self.file.damaged(0, detail));
            }
        };
        let place = (number % GROUP_LEN) as usize;
        if let Some(texts) = self.kept.get(&group) {
            return Ok((Arc::clone(texts), place));
        }
        let len = GROUP_LEN.min(self.count - group * GROUP_LEN);
        let texts = read_group(&mut self.file, at, len)?;
        let bytes: usize = texts.iter().map(|text| text.len() + size_of::<Box<str>>()).sum();
        if self.kept_bytes + bytes > KEPT_BYTES_MAX {
            self.kept.clear();
            self.kept_bytes = 0;
        }
        self.kept_bytes += bytes;
        self.kept.insert(group, Arc::clone(&texts));
        Ok((texts, place))
    }
}

fn read_group(file: &mut WindowedFile, mut at: u64, len: u32) -> Result<Texts, FormatError> {
    let mut texts = Vec::new();
    for _ in 0..len {
        let (len, start) = file.varint(at)?;
        if len > SYMBOL_BYTES_MAX {
            return Err(file.damaged(at, format!("a symbol of {len} bytes")));
        }
        let text = std::str::from_utf8(file.bytes(start, len as usize)?).map(Box::from);
        texts.push(text.map_err(|_| file.damaged(start, "a symbol that is not UTF-8"))?);
        at = start + len;
    }
    Ok(Arc::from(texts))
}
