//! The protobuf wire format, read in place: varints, fields, nested messages. The fields are
//! defined in [`v1`](super::v1) and [`v2`](super::v2).
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>. Groups, which no sender of remote
//! write uses, are an error, so that nothing here recurses.

/// Error of decoding a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends inside a field.
    #[error("the message ends inside a field")]
    Truncated,
    /// A length runs past the end of the message that holds it.
    #[error("length {length} runs past the end of the message, {rest} bytes are left")]
    LengthPastEnd {
        /// The length found.
        length: u64,
        /// The bytes that are left.
        rest: usize,
    },
    /// A varint needs more than 64 bits.
    #[error("varint is longer than 64 bits")]
    VarintTooLong,
    /// A field number outside 1 to 2^29 - 1.
    #[error("field number {0} is out of range")]
    FieldNumber(u64),
    /// A known field in another encoding.
    #[error("field {field} has wire type {found}, expected {expected}")]
    WireType {
        /// Number of the field.
        field: u32,
        /// Wire type in its definition.
        expected: u8,
        /// The wire type found.
        found: u8,
    },
    /// An id of another length.
    #[error("field {field} has {found} bytes, expected {expected}")]
    IdLength {
        /// Number of the field.
        field: u32,
        /// Length in its definition.
        expected: usize,
        /// Length found.
        found: usize,
    },
    /// Values are nested too deeply.
    #[error("values are nested deeper than {0} levels")]
    TooDeep(usize),
    /// A group starts or ends.
    #[error("field {0} is a group, which is not supported")]
    Group(u32),
    /// Wire types 6 and 7 do not exist.
    #[error("field {field} has wire type {found}, which does not exist")]
    NoSuchWireType {
        /// Number of the field.
        field: u32,
        /// The wire type found.
        found: u8,
    },
}

/// Wire type of varints.
pub(super) const VARINT: u8 = 0;
/// Wire type of `fixed64`, `sfixed64` and `double`.
pub(super) const FIXED64: u8 = 1;
/// Wire type of strings, bytes, messages and packed repeated fields.
pub(super) const LENGTH: u8 = 2;
const GROUP_START: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// The head of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) field: u32,
    pub(super) wire_type: u8,
}

impl Key {
    /// Checks the wire type.
    #[inline]
    pub(super) fn expect(self, expected: u8) -> Result<(), WireError> {
        if self.wire_type == expected {
            return Ok(());
        }
        Err(WireError::WireType { field: self.field, expected, found: self.wire_type })
    }
}

/// A forward reader of one message inside a larger buffer.
///
/// Invariant: `position <= end <= bytes.len()`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader of the message `bytes[..end]`; the bytes after it are padding.
    pub(super) fn new(bytes: &'a [u8], end: usize) -> Reader<'a> {
        assert!(end <= bytes.len(), "a message lies inside its buffer");
        Reader { bytes, position: 0, end }
    }

    /// Offset of the next byte in the buffer.
    #[inline]
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// End of the message in the buffer.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Moves to a later position of the same message.
    #[inline]
    pub(super) fn seek(&mut self, position: usize) {
        debug_assert!(self.position <= position && position <= self.end);
        self.position = position;
    }

    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.position >= self.end
    }

    /// The whole buffer, to which positions refer.
    #[inline]
    pub(super) fn buffer(&self) -> &'a [u8] {
        self.bytes
    }

    /// The message from the current position on.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..self.end]
    }

    /// Returns the rest as text; `None` if it is not UTF-8.
    pub(super) fn utf8(&self) -> Option<String> {
        std::str::from_utf8(self.rest()).ok().map(str::to_owned)
    }

    /// Like [`rest`](Self::rest), with the bytes after the message, for wide loads.
    #[inline]
    pub(super) fn rest_padded(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        match self.rest().first() {
            Some(byte) if *byte < 0x80 => {
                self.position += 1;
                Ok(u64::from(*byte))
            }
            _ => self.varint_long(),
        }
    }

    fn varint_long(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for (index, byte) in self.rest().iter().enumerate() {
            // The tenth byte holds the last bit.
            if index == 9 && *byte > 1 {
                return Err(WireError::VarintTooLong);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.position += index + 1;
                return Ok(value);
            }
        }
        Err(WireError::Truncated)
    }

    #[inline]
    pub(super) fn fixed64(&mut self) -> Result<u64, WireError> {
        let bytes = self.rest().first_chunk::<8>().ok_or(WireError::Truncated)?;
        self.position += 8;
        Ok(u64::from_le_bytes(*bytes))
    }

    #[inline]
    pub(super) fn key(&mut self) -> Result<Key, WireError> {
        let key = self.varint()?;
        let field = key >> 3;
        if field == 0 || key > u64::from(u32::MAX) {
            return Err(WireError::FieldNumber(field));
        }
        Ok(Key { field: field as u32, wire_type: (key & 7) as u8 })
    }

    /// Returns a reader of the next length-delimited field; this reader continues after it.
    #[inline]
    pub(super) fn message(&mut self) -> Result<Reader<'a>, WireError> {
        let length = self.varint()?;
        let rest = self.end - self.position;
        if length > rest as u64 {
            return Err(WireError::LengthPastEnd { length, rest });
        }
        let start = self.position;
        self.position += length as usize;
        Ok(Reader { bytes: self.bytes, position: start, end: self.position })
    }

    /// Like [`message`](Self::message), with the key of the field, if this is `key` and the length
    /// is one byte. Otherwise returns `None` and moves nothing.
    #[inline]
    pub(super) fn short_message(&mut self, key: u8) -> Option<Reader<'a>> {
        match self.rest() {
            [found, length @ ..0x80, rest @ ..]
                if *found == key && rest.len() >= usize::from(*length) =>
            {
                let position = self.position + 2;
                self.position = position + usize::from(*length);
                Some(Reader { bytes: self.bytes, position, end: self.position })
            }
            _ => None,
        }
    }

    #[inline]
    fn skip_bytes(&mut self, count: usize) -> Result<(), WireError> {
        if self.end - self.position < count {
            return Err(WireError::Truncated);
        }
        self.position += count;
        Ok(())
    }

    /// Skips the content of an unknown field.
    #[inline]
    pub(super) fn skip(&mut self, key: Key) -> Result<(), WireError> {
        match key.wire_type {
            VARINT => self.varint().map(drop),
            FIXED64 => self.skip_bytes(8),
            LENGTH => self.message().map(drop),
            FIXED32 => self.skip_bytes(4),
            GROUP_START | GROUP_END => Err(WireError::Group(key.field)),
            found => Err(WireError::NoSuchWireType { field: key.field, found }),
        }
    }

    /// Passes each number of a repeated field of varints to `take`, packed or not.
    pub(super) fn varints(&mut self, key: Key, mut take: impl FnMut(u64)) -> Result<(), WireError> {
        if key.wire_type != LENGTH {
            key.expect(VARINT)?;
            take(self.varint()?);
            return Ok(());
        }
        let mut packed = self.message()?;
        while !packed.is_at_end() {
            take(packed.varint()?);
        }
        Ok(())
    }

    /// Appends the numbers of a repeated field of doubles, until `out` has `len_max`.
    pub(super) fn doubles(
        &mut self,
        key: Key,
        len_max: usize,
        out: &mut Vec<f64>,
    ) -> Result<(), WireError> {
        let count_max = len_max.saturating_sub(out.len());
        if key.wire_type != LENGTH {
            out.extend(Some(self.double(key)?).filter(|_| count_max > 0));
            return Ok(());
        }
        let (packed, rest) = self.message()?.rest().as_chunks::<8>();
        if !rest.is_empty() {
            return Err(WireError::Truncated);
        }
        out.extend(packed.iter().take(count_max).map(|bytes| f64::from_le_bytes(*bytes)));
        Ok(())
    }

    /// Reads the content of a double.
    #[inline]
    pub(super) fn double(&mut self, key: Key) -> Result<f64, WireError> {
        key.expect(FIXED64)?;
        Ok(f64::from_bits(self.fixed64()?))
    }

    /// Reads the content of an integer.
    #[inline]
    pub(super) fn integer(&mut self, key: Key) -> Result<u64, WireError> {
        key.expect(VARINT)?;
        self.varint()
    }

    /// Returns a reader of the content of a message, a text or bytes.
    #[inline]
    pub(super) fn nested(&mut self, key: Key) -> Result<Reader<'a>, WireError> {
        key.expect(LENGTH)?;
        self.message()
    }
}

/// Decodes a `sint32`, which counts 0, −1, 1, −2, …; higher bits are ignored.
#[inline]
pub(super) fn zigzag32(number: u64) -> i32 {
    let number = number as u32;
    (number >> 1) as i32 ^ -((number & 1) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> Reader<'_> {
        Reader::new(bytes, bytes.len())
    }

    #[test]
    fn varints_end_at_64_bits() {
        let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(reader(&max).varint(), Ok(u64::MAX));
        let padded = [0x81, 0x80, 0x00];
        assert_eq!(reader(&padded).varint(), Ok(1));
        let mut over = max;
        over[9] = 0x02;
        assert_eq!(reader(&over).varint(), Err(WireError::VarintTooLong));
        assert_eq!(reader(&[0xff; 11]).varint(), Err(WireError::VarintTooLong));
        assert_eq!(reader(&[0x80; 4]).varint(), Err(WireError::Truncated));
        assert_eq!(reader(&[]).varint(), Err(WireError::Truncated));
    }

    #[test]
    fn keys_have_a_number_and_a_known_wire_type() {
        assert_eq!(reader(&[0x00]).key(), Err(WireError::FieldNumber(0)));
        let over = [0x80, 0x80, 0x80, 0x80, 0x10];
        assert_eq!(reader(&over).key(), Err(WireError::FieldNumber(1 << 29)));
        for (wire_type, error) in [
            (3, WireError::Group(2)),
            (4, WireError::Group(2)),
            (6, WireError::NoSuchWireType { field: 2, found: 6 }),
            (7, WireError::NoSuchWireType { field: 2, found: 7 }),
        ] {
            assert_eq!(reader(&[]).skip(Key { field: 2, wire_type }), Err(error));
        }
    }

    #[test]
    fn repeated_numbers_come_packed_or_one_by_one() {
        let numbers = |bytes: &[u8], wire_type| {
            let mut out = Vec::new();
            let key = Key { field: 1, wire_type };
            reader(bytes).varints(key, |number| out.push(number)).map(|()| out)
        };
        assert_eq!(numbers(&[3, 1, 0x80, 1], LENGTH), Ok(vec![1, 128]));
        assert_eq!(numbers(&[2, 1, 0x80], LENGTH), Err(WireError::Truncated));
        assert_eq!(numbers(&[5], VARINT), Ok(vec![5]));
        let error = WireError::WireType { field: 1, expected: VARINT, found: FIXED64 };
        assert_eq!(numbers(&[0; 8], FIXED64), Err(error));
        let doubles = |bytes: &[u8], wire_type| {
            let mut out = Vec::new();
            reader(bytes).doubles(Key { field: 1, wire_type }, 9, &mut out).map(|()| out)
        };
        assert_eq!(doubles(&[8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f], LENGTH), Ok(vec![1.0]));
        assert_eq!(doubles(&[0, 0, 0, 0, 0, 0, 0xf0, 0x3f], FIXED64), Ok(vec![1.0]));
        assert_eq!(doubles(&[7, 0, 0, 0, 0, 0, 0, 0], LENGTH), Err(WireError::Truncated));
    }

    #[test]
    fn zigzag_alternates_signs() {
        let all = [0, 1, 2, 3, 0xffff_fffe, 0xffff_ffff, 1 << 40];
        assert_eq!(all.map(zigzag32), [0, -1, 1, -2, i32::MAX, i32::MIN, 0]);
    }

    #[test]
    fn a_message_stays_inside_the_one_that_holds_it() {
        let bytes = [0x03, 1, 2, 3, 4];
        let mut outer = Reader::new(&bytes, 4);
        assert_eq!(outer.message().map(|inner| inner.rest()), Ok(&bytes[1..4]));
        let mut cut = Reader::new(&bytes, 3);
        assert_eq!(
            cut.message().map(|inner| inner.rest()),
            Err(WireError::LengthPastEnd { length: 3, rest: 2 })
        );
        let mut huge = reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert!(matches!(huge.message(), Err(WireError::LengthPastEnd { length: u64::MAX, .. })));
    }
}
