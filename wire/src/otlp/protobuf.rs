//! Decoding of a protobuf request, an `ExportMetricsServiceRequest`.
//!
//! Fields may be split, repeated, unknown or in any order; of a oneof the last field wins. In
//! texts, bytes that are not UTF-8 are replaced by U+FFFD, as Prometheus accepts them, too.

use std::borrow::Cow;

use super::message::{
    AnyValue, Attribute, Buckets, Data, DataKind, DataPoints, Exemplar, ExponentialPoint,
    HistogramPoint, Metric, NumberPoint, Point, Quantile, ResourceMetrics, Scope, ScopeMetrics,
    SummaryPoint, Text, VALUE_DEPTH_MAX,
};
use crate::decode_budget::DecodeBudget;
use crate::protobuf::{FIXED64, Key, LENGTH, Reader, WireError};
use crate::{DecodeError, malformed};

/// Reads the message that fills `bytes`.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    budget: &mut DecodeBudget<'_>,
) -> Result<Vec<ResourceMetrics<'a>>, DecodeError> {
    let mut resources = Vec::new();
    each_field(Reader::new(bytes, bytes.len()), "request", |field| match field.key.field {
        1 => {
            let resource = resource_metrics(field.nested()?, budget)?;
            budget.push(&mut resources, resource)
        }
        _ => field.skip(),
    })?;
    Ok(resources)
}

/// One field of a message, before its content.
struct Field<'r, 'a> {
    reader: &'r mut Reader<'a>,
    key: Key,
    start: usize,
    /// Name of the message with this field.
    message: &'static str,
}

/// Passes each field to `take`, which reads or skips its content.
#[inline]
fn each_field<'a>(
    mut reader: Reader<'a>,
    message: &'static str,
    mut take: impl FnMut(Field<'_, 'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    while !reader.is_at_end() {
        let start = reader.position();
        let key = reader.key().map_err(|error| malformed(start, None, message, error))?;
        take(Field { reader: &mut reader, key, start, message })?;
    }
    Ok(())
}

impl<'a> Field<'_, 'a> {
    fn read<T>(
        self,
        read: impl FnOnce(&mut Reader<'a>, Key) -> Result<T, WireError>,
    ) -> Result<T, DecodeError> {
        let (start, message) = (self.start, self.message);
        read(self.reader, self.key).map_err(|error| malformed(start, None, message, error))
    }

    fn nested(self) -> Result<Reader<'a>, DecodeError> {
        self.read(Reader::nested)
    }

    fn skip(self) -> Result<(), DecodeError> {
        self.read(Reader::skip)
    }

    fn double(self) -> Result<f64, DecodeError> {
        self.read(Reader::double)
    }

    fn integer(self) -> Result<u64, DecodeError> {
        self.read(Reader::integer)
    }

    fn fixed64(self) -> Result<u64, DecodeError> {
        self.read(Reader::fixed64_of)
    }

    fn bytes(self) -> Result<&'a [u8], DecodeError> {
        self.read(|reader, key| Ok(reader.nested(key)?.rest()))
    }

    fn text(self, budget: &mut DecodeBudget<'_>) -> Result<Text<'a>, DecodeError> {
        let bytes = self.bytes()?;
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Ok(Cow::Borrowed(text));
        }
        budget.charge(char::REPLACEMENT_CHARACTER.len_utf8() * bytes.len())?;
        Ok(String::from_utf8_lossy(bytes))
    }

    /// Reads an id, which may be absent.
    fn id<const N: usize>(self) -> Result<[u8; N], DecodeError> {
        self.read(|reader, key| match reader.nested(key)?.rest() {
            [] => Ok([0; N]),
            bytes => bytes.try_into().map_err(|_| WireError::IdLength {
                field: key.field,
                expected: N,
                found: bytes.len(),
            }),
        })
    }

    /// Reads numbers of eight bytes, packed or not.
    fn fixed64s<T>(
        self,
        out: &mut Vec<T>,
        budget: &mut DecodeBudget<'_>,
        of_bits: impl Fn(u64) -> T,
    ) -> Result<(), DecodeError> {
        if self.key.wire_type != LENGTH {
            return budget.push(out, of_bits(self.fixed64()?));
        }
        let (start, message) = (self.start, self.message);
        let (packed, rest) = self.bytes()?.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(malformed(start, None, message, WireError::Truncated));
        }
        packed.iter().try_for_each(|n| budget.push(out, of_bits(u64::from_le_bytes(*n))))
    }

    /// Reads varints, packed or not.
    fn varints(self, out: &mut Vec<u64>, budget: &mut DecodeBudget<'_>) -> Result<(), DecodeError> {
        let mut charged = Ok(());
        self.read(|reader, key| {
            reader.varints(key, |number| {
                if charged.is_ok() {
                    charged = budget.push(out, number);
                }
            })
        })?;
        charged
    }
}

fn resource_metrics<'a>(
    message: Reader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<ResourceMetrics<'a>, DecodeError> {
    /// Field of old senders, which called a scope an instrumentation library.
    const DEPRECATED_SCOPE_METRICS: u32 = 1000;
    let mut out = ResourceMetrics::default();
    each_field(message, "resource_metrics", |field| match field.key.field {
        1 => each_field(field.nested()?, "resource", |field| match field.key.field {
            1 => push_attribute(field.nested()?, 0, &mut out.attributes, budget),
            _ => field.skip(),
        }),
        2 => {
            let scope = scope_metrics(field.nested()?, budget)?;
            budget.push(&mut out.scopes, scope)
        }
        DEPRECATED_SCOPE_METRICS => {
            let scope = scope_metrics(field.nested()?, budget)?;
            budget.push(&mut out.deprecated_scopes, scope)
        }
        _ => field.skip(),
    })?;
    Ok(out)
}

fn scope_metrics<'a>(
    message: Reader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<ScopeMetrics<'a>, DecodeError> {
    let mut out = ScopeMetrics::default();
    each_field(message, "scope_metrics", |field| {
        match field.key.field {
            1 => scope(field.nested()?, &mut out.scope, budget)?,
            2 => {
                let metric = metric(field.nested()?, budget)?;
                budget.push(&mut out.metrics, metric)?;
            }
            3 => out.schema_url = field.text(budget)?,
            _ => field.skip()?,
        }
        Ok(())
    })?;
    Ok(out)
}

fn scope<'a>(
    message: Reader<'a>,
    out: &mut Scope<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    each_field(message, "scope", |field| {
        match field.key.field {
            1 => out.name = field.text(budget)?,
            2 => out.version = field.text(budget)?,
            3 => push_attribute(field.nested()?, 0, &mut out.attributes, budget)?,
            _ => field.skip()?,
        }
        Ok(())
    })
}

fn metric<'a>(
    message: Reader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<Metric<'a>, DecodeError> {
    let mut out = Metric::default();
    each_field(message, "metrics", |field| {
        match field.key.field {
            1 => out.name = field.text(budget)?,
            2 => out.description = field.text(budget)?,
            3 => out.unit = field.text(budget)?,
            5 => {
                let points = data_points(field.nested()?, DataKind::Gauge, budget, number_point)?;
                out.data = Data::Gauge(points);
            }
            7 => {
                let points = data_points(field.nested()?, DataKind::Sum, budget, number_point)?;
                out.data = Data::Sum(points);
            }
            9 => {
                let (kind, read) = (DataKind::Histogram, histogram_point);
                out.data = Data::Histogram(data_points(field.nested()?, kind, budget, read)?);
            }
            10 => {
                let (kind, read) = (DataKind::Exponential, exponential_point);
                out.data = Data::Exponential(data_points(field.nested()?, kind, budget, read)?);
            }
            11 => {
                let (kind, read) = (DataKind::Summary, summary_point);
                out.data = Data::Summary(data_points(field.nested()?, kind, budget, read)?);
            }
            _ => field.skip()?,
        }
        Ok(())
    })?;
    Ok(out)
}

/// Reads the data points of a metric. Fields of other kinds are unknown.
fn data_points<'a, P>(
    message: Reader<'a>,
    kind: DataKind,
    budget: &mut DecodeBudget<'_>,
    read: impl Fn(Reader<'a>, &mut DecodeBudget<'_>) -> Result<P, DecodeError>,
) -> Result<DataPoints<P>, DecodeError> {
    let mut out = DataPoints::default();
    each_field(message, kind.name(), |field| {
        match field.key.field {
            1 => {
                let point = read(field.nested()?, budget)?;
                budget.push(&mut out.points, point)?;
            }
            2 if kind.has_temporality() => out.temporality = field.integer()? as i32,
            3 if kind == DataKind::Sum => out.is_monotonic = field.integer()? != 0,
            _ => field.skip()?,
        }
        Ok(())
    })?;
    Ok(out)
}

/// Attributes in the message of a data point.
#[derive(Debug, Clone, Copy)]
pub(super) struct EncodedAttributes<'a> {
    /// The message, or its part from the first attribute on.
    point: Reader<'a>,
    /// Number of their field.
    number: u32,
}

impl<'a> EncodedAttributes<'a> {
    /// Passes the message of each attribute to `take`, until it returns false.
    #[inline]
    pub(super) fn each(
        &self,
        mut take: impl FnMut(Reader<'a>) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut point = self.point;
        debug_assert!(self.number < 16, "the key has one byte");
        let usual_key = (self.number << 3) as u8 | LENGTH;
        while !point.is_at_end() {
            if let Some(nested) = point.short_message(usual_key) {
                if !take(nested)? {
                    break;
                }
                continue;
            }
            let start = point.position();
            let key = point.key();
            let nested = key.and_then(|key| match key.field == self.number {
                true => point.nested(key).map(Some),
                false => point.skip(key).map(|()| None),
            });
            let nested = nested.map_err(|error| malformed(start, None, "data_points", error))?;
            if let Some(nested) = nested
                && !take(nested)?
            {
                break;
            }
        }
        Ok(())
    }

    /// Decodes all attributes.
    pub(super) fn decode(
        &self,
        budget: &mut DecodeBudget<'_>,
    ) -> Result<Vec<Attribute<'a>>, DecodeError> {
        let mut out = Vec::new();
        self.each(|message| push_attribute(message, 0, &mut out, budget).map(|()| true))?;
        Ok(out)
    }
}

/// Returns key and text of an attribute that has a text, in the encoding of most senders.
#[inline]
pub(super) fn plain_attribute(message: &[u8]) -> Option<[&[u8]; 2]> {
    const FIRST: u8 = 1 << 3 | LENGTH;
    const SECOND: u8 = 2 << 3 | LENGTH;
    let (key, rest) = short_field(message, FIRST)?;
    let (value, []) = short_field(rest, SECOND)? else { return None };
    let (text, []) = short_field(value, FIRST)? else { return None };
    Some([key, text])
}

/// Splits a field off whose length is one byte.
#[inline]
fn short_field(bytes: &[u8], key: u8) -> Option<(&[u8], &[u8])> {
    match bytes {
        [found, length @ ..0x80, rest @ ..] if *found == key => {
            rest.split_at_checked(usize::from(*length))
        }
        _ => None,
    }
}

/// Creates the common part of a data point. Its attributes are not decoded.
fn encoded_point(point: Reader<'_>, number: u32) -> Point<'_> {
    Point { encoded: Some(EncodedAttributes { point, number }), ..Point::default() }
}

/// Reads a common field of data points, some of whose numbers differ by kind.
#[inline]
fn point_field(
    field: Field<'_, '_>,
    out: &mut Point<'_>,
    [attributes, flags]: [u32; 2],
) -> Result<(), DecodeError> {
    match field.key.field {
        2 => out.start_ns = field.fixed64()?,
        3 => out.time_ns = field.fixed64()?,
        number if number == attributes => drop(field.nested()?),
        number if number == flags => out.flags = field.integer()? as u32,
        _ => field.skip()?,
    }
    Ok(())
}

/// Reads a data point in the encoding of most senders; `None` if it has other fields or another
/// encoding.
#[inline]
fn plain_number_point(mut message: Reader<'_>) -> Option<NumberPoint<'_>> {
    const ATTRIBUTES: u8 = 7 << 3 | LENGTH;
    let mut out = NumberPoint::default();
    let mut attributes = None;
    while let [key, number @ ..] = message.rest() {
        let field = message;
        if message.short_message(ATTRIBUTES).is_some() {
            attributes.get_or_insert(field);
            continue;
        }
        let number = u64::from_le_bytes(*number.first_chunk()?);
        match (key >> 3, key & 7) {
            (2, FIXED64) => out.point.start_ns = number,
            (3, FIXED64) => out.point.time_ns = number,
            (4, FIXED64) => out.value = f64::from_bits(number),
            (6, FIXED64) => out.value = number as i64 as f64,
            _ => return None,
        }
        message.seek(message.position() + 1 + size_of::<u64>());
    }
    let attributes = attributes.unwrap_or(message);
    out.point.encoded = Some(EncodedAttributes { point: attributes, number: 7 });
    Some(out)
}

fn number_point<'a>(
    message: Reader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<NumberPoint<'a>, DecodeError> {
    if let Some(point) = plain_number_point(message) {
        return Ok(point);
    }
    let mut out = NumberPoint { point: encoded_point(message, 7), ..NumberPoint::default() };
    each_field(message, "data_points", |field| {
        match field.key.field {
            4 => out.value = field.double()?,
            5 => exemplar(field.nested()?, &mut out.exemplars, budget)?,
            6 => out.value = field.fixed64()? as i64 as f64,
            _ => point_field(field, &mut out.point, [7, 8])?,
        }
        Ok(())
    })?;
    Ok(out)
}

fn histogram_point<'a>(
    message: Reader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<HistogramPoint<'a>, DecodeError> {
    let mut out = HistogramPoint { point: encoded_point(message, 9), ..HistogramPoint::default() };
    each_field(message, "data_points", |field| {
        match field.key.field {
            4 => out.count = field.fixed64()?,
            5 => out.sum = Some(field.double()?),
            6 => field.fixed64s(&mut out.bucket_counts, budget, |count| count)?,
            7 => field.fixed64s(&mut out.explicit_bounds, budget, f64::from_bits)?,
            8 => exemplar(field.nested()?, &mut out.exemplars, budget)?,
            _ => point_field(field, &mut out.point, [9, 10])?,
        }
        Ok(())
    })?;
    Ok(out)
}

fn exponential_point<'a>(
    message: Reader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<ExponentialPoint<'a>, DecodeError> {
    let mut out =
        ExponentialPoint { point: encoded_point(message, 1), ..ExponentialPoint::default() };
    each_field(message, "data_points", |field| {
        match field.key.field {
            4 => out.count = field.fixed64()?,
            5 => out.sum = Some(field.double()?),
            6 => out.scale = crate::protobuf::zigzag32(field.integer()?),
            7 => out.zero_count = field.fixed64()?,
            8 => buckets(field.nested()?, &mut out.positive, budget)?,
            9 => buckets(field.nested()?, &mut out.negative, budget)?,
            11 => exemplar(field.nested()?, &mut out.exemplars, budget)?,
            _ => point_field(field, &mut out.point, [1, 10])?,
        }
        Ok(())
    })?;
    Ok(out)
}

fn buckets(
    message: Reader<'_>,
    out: &mut Buckets,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    each_field(message, "buckets", |field| {
        match field.key.field {
            1 => out.offset = crate::protobuf::zigzag32(field.integer()?),
            2 => field.varints(&mut out.counts, budget)?,
            _ => field.skip()?,
        }
        Ok(())
    })
}

fn summary_point<'a>(
    message: Reader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<SummaryPoint<'a>, DecodeError> {
    let mut out = SummaryPoint { point: encoded_point(message, 7), ..SummaryPoint::default() };
    each_field(message, "data_points", |field| {
        match field.key.field {
            4 => out.count = field.fixed64()?,
            5 => out.sum = field.double()?,
            6 => {
                let mut quantile = Quantile::default();
                each_field(field.nested()?, "quantile_values", |field| {
                    match field.key.field {
                        1 => quantile.quantile = field.double()?,
                        2 => quantile.value = field.double()?,
                        _ => field.skip()?,
                    }
                    Ok(())
                })?;
                budget.push(&mut out.quantiles, quantile)?;
            }
            _ => point_field(field, &mut out.point, [7, 8])?,
        }
        Ok(())
    })?;
    Ok(out)
}

fn exemplar<'a>(
    message: Reader<'a>,
    out: &mut Vec<Exemplar<'a>>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    let mut exemplar = Exemplar::default();
    each_field(message, "exemplars", |field| {
        match field.key.field {
            2 => exemplar.time_ns = field.fixed64()?,
            3 => exemplar.value = Some(field.double()?),
            4 => exemplar.span_id = field.id()?,
            5 => exemplar.trace_id = field.id()?,
            6 => exemplar.value = Some(field.fixed64()? as i64 as f64),
            7 => push_attribute(field.nested()?, 0, &mut exemplar.attributes, budget)?,
            _ => field.skip()?,
        }
        Ok(())
    })?;
    budget.push(out, exemplar)
}

/// Reads an attribute at a depth of nesting.
pub(super) fn attribute<'a>(
    message: Reader<'a>,
    depth: usize,
    budget: &mut DecodeBudget<'_>,
) -> Result<Attribute<'a>, DecodeError> {
    let mut attribute = Attribute::default();
    each_field(message, "attributes", |field| {
        match field.key.field {
            1 => attribute.key = field.text(budget)?,
            2 => any_value(field.nested()?, depth, &mut attribute.value, budget)?,
            _ => field.skip()?,
        }
        Ok(())
    })?;
    Ok(attribute)
}

/// Adds an attribute at a depth of nesting to a list.
fn push_attribute<'a>(
    message: Reader<'a>,
    depth: usize,
    out: &mut Vec<Attribute<'a>>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    let attribute = attribute(message, depth, budget)?;
    budget.push(out, attribute)
}

/// Reads a value at a depth of nesting.
fn any_value<'a>(
    message: Reader<'a>,
    depth: usize,
    out: &mut AnyValue<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    if depth > VALUE_DEPTH_MAX {
        let error = WireError::TooDeep(VALUE_DEPTH_MAX);
        return Err(malformed(message.position(), None, "value", error));
    }
    each_field(message, "value", |field| {
        match field.key.field {
            1 => *out = AnyValue::Text(field.text(budget)?),
            2 => *out = AnyValue::Bool(field.integer()? != 0),
            3 => *out = AnyValue::Integer(field.integer()? as i64),
            4 => *out = AnyValue::Double(field.double()?),
            5 => {
                let mut values = Vec::new();
                each_field(field.nested()?, "array_value", |field| match field.key.field {
                    1 => {
                        let mut value = AnyValue::default();
                        any_value(field.nested()?, depth + 1, &mut value, budget)?;
                        budget.push(&mut values, value)
                    }
                    _ => field.skip(),
                })?;
                *out = AnyValue::List(values);
            }
            6 => {
                let mut values = Vec::new();
                each_field(field.nested()?, "kvlist_value", |field| match field.key.field {
                    1 => push_attribute(field.nested()?, depth + 1, &mut values, budget),
                    _ => field.skip(),
                })?;
                *out = AnyValue::Map(values);
            }
            7 => *out = AnyValue::Bytes(Cow::Borrowed(field.bytes()?)),
            _ => field.skip()?,
        }
        Ok(())
    })
}

impl Reader<'_> {
    /// The content of a field of one number of eight bytes.
    fn fixed64_of(&mut self, key: Key) -> Result<u64, WireError> {
        key.expect(FIXED64)?;
        self.fixed64()
    }
}
