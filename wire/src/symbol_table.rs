//! The symbol table of a 2.0 request, and the fast path for labels, which refer to it.
//!
//! ```text
//! table    22 len text   22 len text   …        read once: position of each text, and whether it
//!                                               is short and valid UTF-8
//! series   0a len ( name reference, value reference )*
//! packed   ( name_len name value_len value )*
//! ```
//!
//! A short text is copied together with the length byte before it.

use std::ops::Range;

use model::METRIC_NAME;

use crate::fast_path::{COPY_BYTES, LENGTH_MAX, METRIC_NAME_PREFIX};
use crate::limits::Limits;
use crate::protobuf::{Key, Reader, WireError};

/// Maximum size of a list of references; longer ones take the slow path.
const REFS_BYTES_MAX: usize = 4096;

/// The symbols of one request, as positions in its message.
#[derive(Debug, Default)]
pub(super) struct SymbolTable {
    symbols: Vec<Symbol>,
}

/// Position of a symbol.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u32,
    /// The length, and in the lowest bit whether the fast path takes the text: not empty, UTF-8,
    /// and with a length of one byte.
    len_and_short: u32,
}

/// Size of an entry of the table.
pub(super) const SYMBOL_BYTES: usize = size_of::<Symbol>();

/// The labels of a series in packed form.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedRefs {
    /// Length in bytes.
    pub(super) len: usize,
    /// Reference to the metric name.
    pub(super) metric_ref: u32,
}

impl SymbolTable {
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
    }

    /// Number of symbols.
    pub(super) fn len(&self) -> usize {
        self.symbols.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.symbols.capacity() * SYMBOL_BYTES
    }

    /// Adds the text of a reader.
    pub(super) fn push(&mut self, text: Reader<'_>) {
        let (start, bytes) = (text.position(), text.rest());
        let len = bytes.len();
        let is_short = len != 0
            && len < LENGTH_MAX
            && usize::from(text.buffer()[start - 1]) == len
            && (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok());
        // A message is shorter than 2^30 bytes.
        self.symbols.push(Symbol {
            start: start as u32,
            len_and_short: (len as u32) << 1 | u32::from(is_short),
        });
    }

    /// Returns the range of a symbol in the message; `None` if there is no such symbol.
    pub(super) fn get(&self, reference: u32) -> Option<Range<usize>> {
        let symbol = self.symbols.get(reference as usize)?;
        Some(symbol.start as usize..symbol.start as usize + symbol.len())
    }

    /// Packs the labels of references if they are canonical and within the limits; `None` sends the
    /// series to the slow path.
    // Not inlined: the loop needs every register.
    #[inline(never)]
    pub(super) fn pack(
        &self,
        refs: &[u8],
        buffer: &[u8],
        limits: &Limits,
        packed: &mut Vec<u8>,
    ) -> Option<PackedRefs> {
        let texts_max = limits.label_name_bytes_max.min(limits.label_value_bytes_max);
        if refs.len() > REFS_BYTES_MAX || texts_max < LENGTH_MAX {
            return None;
        }
        // A reference of one byte becomes a short text; copies may write past its end.
        let bytes_max = refs.len() * LENGTH_MAX + 2 * COPY_BYTES;
        if packed.len() < bytes_max {
            packed.resize(bytes_max, 0);
        }
        let (mut at, mut len, mut label_count) = (0, 0, 0);
        let mut metric_ref = None;
        let mut previous = (0, &[][..]);
        while at < refs.len() {
            let name_ref = reference(refs, &mut at)?;
            let value_ref = reference(refs, &mut at)?;
            let name = self.short(name_ref)?;
            let value = self.short(value_ref)?;
            let prefix = name.prefix(buffer);
            let name_bytes = name.bytes(buffer);
            if prefix <= previous.0 && (prefix < previous.0 || name_bytes <= previous.1) {
                return None;
            }
            previous = (prefix, name_bytes);
            if prefix == METRIC_NAME_PREFIX && name.len() == METRIC_NAME.len() {
                metric_ref = Some(value_ref);
            }
            len += name.copy(buffer, &mut packed[len..]);
            len += value.copy(buffer, &mut packed[len..]);
            label_count += 1;
        }
        if label_count > limits.labels_per_series_max {
            return None;
        }
        Some(PackedRefs { len, metric_ref: metric_ref? })
    }

    #[inline(always)]
    fn short(&self, reference: u32) -> Option<Symbol> {
        let symbol = *self.symbols.get(reference as usize)?;
        (symbol.len_and_short & 1 == 1).then_some(symbol)
    }
}

impl Symbol {
    #[inline(always)]
    fn len(self) -> usize {
        (self.len_and_short >> 1) as usize
    }

    #[inline(always)]
    fn bytes(self, buffer: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &buffer[start..start + self.len()]
    }

    /// Returns the first eight bytes of the text as a number, padded with zeros, in the same order.
    #[inline(always)]
    fn prefix(self, buffer: &[u8]) -> u64 {
        let start = self.start as usize;
        let len = self.len();
        match buffer[start..].first_chunk() {
            Some(head) => {
                let unused_bits = 64 - 8 * len.min(8) as u32;
                u64::from_be_bytes(*head) >> unused_bits << unused_bits
            }
            None => {
                let mut head = [0; 8];
                head[..len].copy_from_slice(self.bytes(buffer));
                u64::from_be_bytes(head)
            }
        }
    }

    /// Copies a short text with the length byte before it; returns the number of bytes.
    #[inline(always)]
    fn copy(self, buffer: &[u8], out: &mut [u8]) -> usize {
        let (start, len) = (self.start as usize, self.len());
        let from = &buffer[start - 1..];
        if len < COPY_BYTES
            && let Some(from) = from.first_chunk::<COPY_BYTES>()
            && let Some(out) = out.first_chunk_mut::<COPY_BYTES>()
        {
            *out = *from;
        } else {
            out[..=len].copy_from_slice(&from[..=len]);
        }
        len + 1
    }
}

/// Reads a reference of at most three bytes; longer ones take the slow path.
#[inline(always)]
fn reference(refs: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0;
    for index in 0..3 {
        let byte = u32::from(*refs.get(*at + index)?);
        value |= (byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *at += index + 1;
            return Some(value);
        }
    }
    None
}

/// Reads a list of references, packed or not, and keeps at most `wanted` of them; returns their
/// number.
pub(super) fn read_refs(
    message: &mut Reader<'_>,
    key: Key,
    count_max: usize,
    out: &mut Vec<u32>,
) -> Result<usize, WireError> {
    let mut count = 0;
    message.varints(key, |reference| {
        count += 1;
        if out.len() < count_max {
            // A `uint32`: higher bits are ignored.
            out.push(reference as u32);
        }
    })?;
    Ok(count)
}
