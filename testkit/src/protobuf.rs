//! Protobuf by hand, for messages that no encoder writes.

/// Returns a number in base 128, as in tags and lengths.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Returns a field with bytes: a text or a message. The number is at most 15.
pub fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(content.len() as u64), content].concat()
}

/// Returns a field with an integer. The number is at most 15.
pub fn number(field: u8, value: i64) -> Vec<u8> {
    [&[field << 3][..], &varint(value as u64)].concat()
}
