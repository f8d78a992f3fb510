//! Protobuf in its text format, on many lines or on one.
//!
//! The fields of a metric in binary form are written as text, in the order of their declaration.
//!
//! Source: `encoding/prototext` of Go's protobuf library, without the spaces that it adds at
//! random; `io/prometheus/client/metrics.proto` of Prometheus' client model.

use model::number_text::general;
use model::varint::take_varint;

use super::Kind;

/// Layout of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A line for each field, and an empty line after each family.
    Lines,
    /// A line for each family.
    Compact,
}

/// A field of a message.
struct Field {
    number: u64,
    name: &'static str,
    kind: FieldKind,
}

/// Type of a field.
#[derive(Clone, Copy)]
enum FieldKind {
    Text,
    Double,
    Integer,
    Zigzag,
    Message(&'static [Field]),
}

const fn field(number: u64, name: &'static str, kind: FieldKind) -> Field {
    Field { number, name, kind }
}

use FieldKind::{Double, Integer, Message, Text, Zigzag};

const METRIC: &[Field] = &[
    field(1, "label", Message(&[field(1, "name", Text), field(2, "value", Text)])),
    field(5, "untyped", Message(&[field(1, "value", Double)])),
    field(7, "histogram", Message(HISTOGRAM)),
    field(6, "timestamp_ms", Integer),
];

const HISTOGRAM: &[Field] = &[
    field(4, "sample_count_float", Double),
    field(2, "sample_sum", Double),
    field(
        3,
        "bucket",
        Message(&[field(4, "cumulative_count_float", Double), field(2, "upper_bound", Double)]),
    ),
    field(5, "schema", Zigzag),
    field(6, "zero_threshold", Double),
    field(8, "zero_count_float", Double),
    field(9, "negative_span", Message(SPAN)),
    field(11, "negative_count", Double),
    field(12, "positive_span", Message(SPAN)),
    field(14, "positive_count", Double),
];

const SPAN: &[Field] = &[field(1, "offset", Zigzag), field(2, "length", Integer)];

impl Layout {
    /// Begins a family.
    pub(super) fn begin_family(self, out: &mut Vec<u8>, name: &str, kind: Kind) {
        let kind = match kind {
            Kind::Untyped => "UNTYPED",
            Kind::Histogram => "HISTOGRAM",
            Kind::GaugeHistogram => "GAUGE_HISTOGRAM",
        };
        self.push_name(out, "name", true, 0);
        push_text(out, name.as_bytes());
        self.end_field(out);
        self.push_name(out, "type", false, 0);
        out.extend_from_slice(kind.as_bytes());
        self.end_field(out);
    }

    /// Adds a metric in its binary form.
    pub(super) fn push_metric(self, out: &mut Vec<u8>, metric: &[u8]) {
        self.push_name(out, "metric", false, 0);
        self.push_message(out, metric, METRIC, 0);
        self.end_field(out);
    }

    /// Ends a family.
    pub(super) fn end_family(self, out: &mut Vec<u8>) {
        out.push(b'\n');
    }

    fn push_message(self, out: &mut Vec<u8>, bytes: &[u8], fields: &[Field], depth: usize) {
        out.push(b'{');
        if self == Layout::Lines && !bytes.is_empty() {
            out.push(b'\n');
        }
        let mut is_first = true;
        for field in fields {
            for value in values(bytes, field.number) {
                self.push_name(out, field.name, is_first, depth + 1);
                is_first = false;
                match (field.kind, value) {
                    (Message(inner), Value::Bytes(bytes)) => {
                        self.push_message(out, bytes, inner, depth + 1);
                    }
                    (_, Value::Bytes(bytes)) => push_text(out, bytes),
                    (_, Value::Double(value)) => out.extend_from_slice(double(value).as_bytes()),
                    (Zigzag, Value::Integer(number)) => {
                        let number = (number >> 1) as i64 ^ -((number & 1) as i64);
                        out.extend_from_slice(number.to_string().as_bytes());
                    }
                    (_, Value::Integer(number)) => {
                        out.extend_from_slice((number as i64).to_string().as_bytes());
                    }
                }
                self.end_field(out);
            }
        }
        if self == Layout::Lines && !bytes.is_empty() {
            self.indent(out, depth);
        }
        out.push(b'}');
    }

    fn push_name(self, out: &mut Vec<u8>, name: &str, is_first: bool, depth: usize) {
        match self {
            Layout::Lines => self.indent(out, depth),
            Layout::Compact if !is_first => out.push(b' '),
            Layout::Compact => {}
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        if self == Layout::Lines {
            out.push(b' ');
        }
    }

    fn end_field(self, out: &mut Vec<u8>) {
        if self == Layout::Lines {
            out.push(b'\n');
        }
    }

    fn indent(self, out: &mut Vec<u8>, depth: usize) {
        out.resize(out.len() + 2 * depth, b' ');
    }
}

/// Value of a field on the wire.
enum Value<'a> {
    Integer(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// Returns the values of a field of a message that this crate has encoded.
fn values(mut bytes: &[u8], field: u64) -> impl Iterator<Item = Value<'_>> {
    std::iter::from_fn(move || {
        while !bytes.is_empty() {
            let key = take_varint(&mut bytes)?;
            let value = match key & 7 {
                0 => Value::Integer(take_varint(&mut bytes)?),
                1 => {
                    let (double, rest) = bytes.split_first_chunk()?;
                    bytes = rest;
                    Value::Double(f64::from_le_bytes(*double))
                }
                _ => {
                    let length = usize::try_from(take_varint(&mut bytes)?).ok()?;
                    let (value, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    Value::Bytes(value)
                }
            };
            if key >> 3 == field {
                return Some(value);
            }
        }
        None
    })
}

fn double(value: f64) -> String {
    match value {
        value if value.is_nan() => "nan".to_owned(),
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        value => general(value),
    }
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\0'..=' ' if character != ' ' => push_hex(out, 'x', 2, character),
            '\x7f' => push_hex(out, 'x', 2, character),
            '\u{80}'..='\u{9f}' => push_hex(out, 'u', 4, character),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

fn push_hex(out: &mut Vec<u8>, kind: char, digits: usize, character: char) {
    out.extend_from_slice(format!("\\{kind}{:0digits$x}", u32::from(character)).as_bytes());
}
