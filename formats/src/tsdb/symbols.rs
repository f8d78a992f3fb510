//! The symbol table of an index.

use std::collections::HashMap;
use std::sync::Arc;

use super::file::WindowedFile;
use crate::error::FormatError;

/// Number of symbols in a group, which are read together.
const GROUP_LEN: u32 = 32;
/// Maximum size of cached symbols, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Maximum length of a symbol, in bytes, as of a label.
const SYMBOL_BYTES_MAX: u64 = model::labels::LABEL_BYTES_MAX as u64;

/// Symbols of a group.
pub(super) type Texts = Arc<[Box<str>]>;

/// The symbol table: offsets of all groups of symbols, and a cache of groups.
#[derive(Debug)]
pub(super) struct SymbolTable {
    file: WindowedFile,
    count: u32,
    /// Offset of each group.
    groups: Vec<u64>,
    kept: HashMap<u32, Texts>,
    kept_bytes: usize,
}

impl SymbolTable {
    /// Checks the table and finds its groups.
    pub(super) fn read(mut file: WindowedFile, offset: u64) -> Result<SymbolTable, FormatError> {
        let len = u64::from(file.u32(offset)?);
        file.check(offset + 4, len)?;
        let count = file.u32(offset + 4)?;
        // A symbol has at least one byte, which bounds the number of groups.
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
            at = next.ok_or_else(|| file.damaged(at, "a symbol is truncated"))?;
        }
        Ok(SymbolTable { file, count, groups, kept: HashMap::new(), kept_bytes: 0 })
    }

    /// Returns the group of a symbol, and its index in the group.
    pub(super) fn get(&mut self, number: u32) -> Result<(Texts, usize), FormatError> {
        let group = number / GROUP_LEN;
        let at = match self.groups.get(group as usize) {
            Some(at) if number < self.count => *at,
            _ => {
                let detail = format!("symbol {number} is asked for, and there are {}", self.count);
                return Err(self.file.damaged(0, detail));
            }
        };
        let index = (number % GROUP_LEN) as usize;
        if let Some(texts) = self.kept.get(&group) {
            return Ok((Arc::clone(texts), index));
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
        Ok((texts, index))
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
