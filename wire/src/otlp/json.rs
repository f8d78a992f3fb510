//! A request in JSON, as the OpenTelemetry protocol maps its messages: names in lower camel case,
//! numbers of 64 bits in quotes, ids in hexadecimal, bytes in base64, enumerations as numbers.
//! Unknown fields are passed over.
//!
//! As Prometheus reads it: names of the protobuf definition are understood as well, numbers may
//! stand in quotes or not, and enumerations may be names.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>, "JSON Protobuf Encoding".

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::message::{
    AnyValue, Attribute, Buckets, Data, DataKind, DataPoints, Exemplar, ExponentialPoint,
    HistogramPoint, Metric, NumberPoint, Point, Quantile, ResourceMetrics, Scope, ScopeMetrics,
    SummaryPoint, VALUE_DEPTH_MAX,
};
use crate::DecodeError;
use crate::decode_budget::DecodeBudget;
use crate::json::{JsonError, JsonFault, JsonReader};

/// Names of [`temporality`](DataPoints::temporality), by number.
const TEMPORALITIES: [&str; 3] = [
    "AGGREGATION_TEMPORALITY_UNSPECIFIED",
    "AGGREGATION_TEMPORALITY_DELTA",
    "AGGREGATION_TEMPORALITY_CUMULATIVE",
];

/// Reads the text that fills `bytes`.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    budget: &mut DecodeBudget<'_>,
) -> Result<Vec<ResourceMetrics<'a>>, DecodeError> {
    // Copies of texts with escapes or base64 are not longer than the message.
    budget.charge(bytes.len())?;
    let mut reader = JsonReader::new(bytes);
    let mut resources = Vec::new();
    reader.object(|json, name| match name {
        "resourceMetrics" | "resource_metrics" => json.list(|json| {
            let resource = resource_metrics(json, budget)?;
            budget.push(&mut resources, resource)
        }),
        _ => unknown(json),
    })?;
    reader.finish()?;
    Ok(resources)
}

impl From<JsonFault> for DecodeError {
    fn from(fault: JsonFault) -> DecodeError {
        let JsonFault { position, error } = fault;
        DecodeError::Json { position, error }
    }
}

fn unknown(json: &mut JsonReader<'_>) -> Result<(), DecodeError> {
    Ok(json.skip()?)
}

fn resource_metrics<'a>(
    json: &mut JsonReader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<ResourceMetrics<'a>, DecodeError> {
    let mut out = ResourceMetrics::default();
    json.object(|json, name| match name {
        "resource" => json.object(|json, name| match name {
            "attributes" => attributes(json, 0, &mut out.attributes, budget),
            _ => unknown(json),
        }),
        "scopeMetrics" | "scope_metrics" => json.list(|json| {
            let scope = scope_metrics(json, budget)?;
            budget.push(&mut out.scopes, scope)
        }),
        _ => unknown(json),
    })?;
    Ok(out)
}

fn scope_metrics<'a>(
    json: &mut JsonReader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<ScopeMetrics<'a>, DecodeError> {
    let mut out = ScopeMetrics::default();
    json.object(|json, name| {
        match name {
            "scope" => scope(json, &mut out.scope, budget)?,
            "metrics" => json.list(|json| {
                let metric = metric(json, budget)?;
                budget.push(&mut out.metrics, metric)
            })?,
            "schemaUrl" | "schema_url" => out.schema_url = json.text()?,
            _ => unknown(json)?,
        }
        Ok::<_, DecodeError>(())
    })?;
    Ok(out)
}

fn scope<'a>(
    json: &mut JsonReader<'a>,
    out: &mut Scope<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    json.object(|json, name| {
        match name {
            "name" => out.name = json.text()?,
            "version" => out.version = json.text()?,
            "attributes" => attributes(json, 0, &mut out.attributes, budget)?,
            _ => unknown(json)?,
        }
        Ok(())
    })
}

fn metric<'a>(
    json: &mut JsonReader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<Metric<'a>, DecodeError> {
    let mut out = Metric::default();
    json.object(|json, name| {
        match name {
            "name" => out.name = json.text()?,
            "description" => out.description = json.text()?,
            "unit" => out.unit = json.text()?,
            "gauge" => {
                out.data = Data::Gauge(data_points(json, DataKind::Gauge, budget, number_point)?);
            }
            "sum" => out.data = Data::Sum(data_points(json, DataKind::Sum, budget, number_point)?),
            "histogram" => {
                let points = data_points(json, DataKind::Histogram, budget, histogram_point)?;
                out.data = Data::Histogram(points);
            }
            "exponentialHistogram" | "exponential_histogram" => {
                let points = data_points(json, DataKind::Exponential, budget, exponential_point)?;
                out.data = Data::Exponential(points);
            }
            "summary" => {
                out.data =
                    Data::Summary(data_points(json, DataKind::Summary, budget, summary_point)?);
            }
            _ => unknown(json)?,
        }
        Ok::<_, DecodeError>(())
    })?;
    Ok(out)
}

/// Reads the data points of a metric. Fields of other kinds are unknown.
fn data_points<'a, P>(
    json: &mut JsonReader<'a>,
    kind: DataKind,
    budget: &mut DecodeBudget<'_>,
    read: impl Fn(&mut JsonReader<'a>, &mut DecodeBudget<'_>) -> Result<P, DecodeError>,
) -> Result<DataPoints<P>, DecodeError> {
    let mut out = DataPoints::default();
    json.object(|json, name| {
        match name {
            "dataPoints" | "data_points" => json.list(|json| {
                let point = read(json, budget)?;
                budget.push(&mut out.points, point)
            })?,
            "aggregationTemporality" | "aggregation_temporality" if kind.has_temporality() => {
                out.temporality = temporality(json)?;
            }
            "isMonotonic" | "is_monotonic" if kind == DataKind::Sum => {
                out.is_monotonic = json.boolean()?;
            }
            _ => unknown(json)?,
        }
        Ok::<_, DecodeError>(())
    })?;
    Ok(out)
}

fn temporality(json: &mut JsonReader<'_>) -> Result<i32, DecodeError> {
    if !json.is_text()? {
        return Ok(json.integer("a 32-bit integer")?);
    }
    let name = json.text()?;
    match TEMPORALITIES.iter().position(|known| *known == name) {
        Some(number) => Ok(number as i32),
        None => Err(json.fault(JsonError::Encoding("a name of a temporality")).into()),
    }
}

/// Reads a common field of data points.
fn point_field<'a>(
    json: &mut JsonReader<'a>,
    name: &str,
    out: &mut Point<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    match name {
        "attributes" => attributes(json, 0, &mut out.attributes, budget)?,
        "startTimeUnixNano" | "start_time_unix_nano" => out.start_ns = unsigned(json)?,
        "timeUnixNano" | "time_unix_nano" => out.time_ns = unsigned(json)?,
        "flags" => out.flags = json.integer("an unsigned 32-bit integer")?,
        _ => unknown(json)?,
    }
    Ok(())
}

fn unsigned(json: &mut JsonReader<'_>) -> Result<u64, JsonFault> {
    json.integer("an unsigned 64-bit integer")
}

fn signed(json: &mut JsonReader<'_>) -> Result<i64, JsonFault> {
    json.integer("a 64-bit integer")
}

fn number_point<'a>(
    json: &mut JsonReader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<NumberPoint<'a>, DecodeError> {
    let mut out = NumberPoint::default();
    json.object(|json, name| {
        match name {
            "asDouble" | "as_double" => out.value = json.double()?,
            "asInt" | "as_int" => out.value = signed(json)? as f64,
            "exemplars" => exemplars(json, &mut out.exemplars, budget)?,
            _ => point_field(json, name, &mut out.point, budget)?,
        }
        Ok::<_, DecodeError>(())
    })?;
    Ok(out)
}

fn histogram_point<'a>(
    json: &mut JsonReader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<HistogramPoint<'a>, DecodeError> {
    let mut out = HistogramPoint::default();
    json.object(|json, name| {
        match name {
            "count" => out.count = unsigned(json)?,
            "sum" => out.sum = Some(json.double()?),
            "bucketCounts" | "bucket_counts" => counts(json, &mut out.bucket_counts, budget)?,
            "explicitBounds" | "explicit_bounds" => json.list(|json| {
                let bound = json.double()?;
                budget.push(&mut out.explicit_bounds, bound)
            })?,
            "exemplars" => exemplars(json, &mut out.exemplars, budget)?,
            _ => point_field(json, name, &mut out.point, budget)?,
        }
        Ok::<_, DecodeError>(())
    })?;
    Ok(out)
}

fn exponential_point<'a>(
    json: &mut JsonReader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<ExponentialPoint<'a>, DecodeError> {
    let mut out = ExponentialPoint::default();
    json.object(|json, name| {
        match name {
            "count" => out.count = unsigned(json)?,
            "sum" => out.sum = Some(json.double()?),
            "scale" => out.scale = json.integer("a 32-bit integer")?,
            "zeroCount" | "zero_count" => out.zero_count = unsigned(json)?,
            "positive" => buckets(json, &mut out.positive, budget)?,
            "negative" => buckets(json, &mut out.negative, budget)?,
            "exemplars" => exemplars(json, &mut out.exemplars, budget)?,
            _ => point_field(json, name, &mut out.point, budget)?,
        }
        Ok::<_, DecodeError>(())
    })?;
    Ok(out)
}

fn buckets(
    json: &mut JsonReader<'_>,
    out: &mut Buckets,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    json.object(|json, name| {
        match name {
            "offset" => out.offset = json.integer("a 32-bit integer")?,
            "bucketCounts" | "bucket_counts" => counts(json, &mut out.counts, budget)?,
            _ => unknown(json)?,
        }
        Ok(())
    })
}

fn counts(
    json: &mut JsonReader<'_>,
    out: &mut Vec<u64>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    json.list(|json| {
        let count = unsigned(json)?;
        budget.push(out, count)
    })
}

fn summary_point<'a>(
    json: &mut JsonReader<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<SummaryPoint<'a>, DecodeError> {
    let mut out = SummaryPoint::default();
    json.object(|json, name| {
        match name {
            "count" => out.count = unsigned(json)?,
            "sum" => out.sum = json.double()?,
            "quantileValues" | "quantile_values" => json.list(|json| {
                let quantile = quantile(json)?;
                budget.push(&mut out.quantiles, quantile)
            })?,
            _ => point_field(json, name, &mut out.point, budget)?,
        }
        Ok::<_, DecodeError>(())
    })?;
    Ok(out)
}

fn quantile(json: &mut JsonReader<'_>) -> Result<Quantile, DecodeError> {
    let mut out = Quantile::default();
    json.object(|json, name| {
        match name {
            "quantile" => out.quantile = json.double()?,
            "value" => out.value = json.double()?,
            _ => unknown(json)?,
        }
        Ok::<_, DecodeError>(())
    })?;
    Ok(out)
}

fn exemplars<'a>(
    json: &mut JsonReader<'a>,
    out: &mut Vec<Exemplar<'a>>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    json.list(|json| {
        let mut exemplar = Exemplar::default();
        json.object(|json, name| {
            match name {
                "filteredAttributes" | "filtered_attributes" => {
                    attributes(json, 0, &mut exemplar.attributes, budget)?;
                }
                "timeUnixNano" | "time_unix_nano" => exemplar.time_ns = unsigned(json)?,
                "asDouble" | "as_double" => exemplar.value = Some(json.double()?),
                "asInt" | "as_int" => exemplar.value = Some(signed(json)? as f64),
                "traceId" | "trace_id" => exemplar.trace_id = id(json)?,
                "spanId" | "span_id" => exemplar.span_id = id(json)?,
                _ => unknown(json)?,
            }
            Ok::<_, DecodeError>(())
        })?;
        budget.push(out, exemplar)
    })
}

/// Reads an id, which may be absent.
fn id<const N: usize>(json: &mut JsonReader<'_>) -> Result<[u8; N], DecodeError> {
    let mut id = [0; N];
    let text = json.text()?;
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut is_right = text.is_empty() || (pairs.len() == N && rest.is_empty());
    for (byte, [high, low]) in id.iter_mut().zip(pairs) {
        match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => *byte = high << 4 | low,
            _ => is_right = false,
        }
    }
    if is_right {
        return Ok(id);
    }
    let expected = if N == 16 { "32 hexadecimal digits" } else { "16 hexadecimal digits" };
    Err(json.fault(JsonError::Encoding(expected)).into())
}

fn attributes<'a>(
    json: &mut JsonReader<'a>,
    depth: usize,
    out: &mut Vec<Attribute<'a>>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    json.list(|json| {
        let mut attribute = Attribute::default();
        json.object(|json, name| {
            match name {
                "key" => attribute.key = json.text()?,
                "value" => any_value(json, depth, &mut attribute.value, budget)?,
                _ => unknown(json)?,
            }
            Ok::<_, DecodeError>(())
        })?;
        budget.push(out, attribute)
    })
}

/// Reads a value at a depth of nesting.
fn any_value<'a>(
    json: &mut JsonReader<'a>,
    depth: usize,
    out: &mut AnyValue<'a>,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), DecodeError> {
    if depth > VALUE_DEPTH_MAX {
        return Err(json.fault(JsonError::TooDeep(VALUE_DEPTH_MAX)).into());
    }
    json.object(|json, name| {
        match name {
            "stringValue" | "string_value" => *out = AnyValue::Text(json.text()?),
            "boolValue" | "bool_value" => *out = AnyValue::Bool(json.boolean()?),
            "intValue" | "int_value" => *out = AnyValue::Integer(signed(json)?),
            "doubleValue" | "double_value" => *out = AnyValue::Double(json.double()?),
            "arrayValue" | "array_value" => *out = AnyValue::List(list(json, depth, budget)?),
            "kvlistValue" | "kvlist_value" => *out = AnyValue::Map(map(json, depth, budget)?),
            "bytesValue" | "bytes_value" => *out = AnyValue::Bytes(Cow::Owned(base64(json)?)),
            _ => unknown(json)?,
        }
        Ok(())
    })
}

fn base64(json: &mut JsonReader<'_>) -> Result<Vec<u8>, DecodeError> {
    let text = json.text()?;
    let bytes = STANDARD.decode(text.as_bytes());
    bytes.map_err(|_| json.fault(JsonError::Encoding("base64")).into())
}

fn list<'a>(
    json: &mut JsonReader<'a>,
    depth: usize,
    budget: &mut DecodeBudget<'_>,
) -> Result<Vec<AnyValue<'a>>, DecodeError> {
    let mut values = Vec::new();
    json.object(|json, name| match name {
        "values" => json.list(|json| {
            let mut value = AnyValue::default();
            any_value(json, depth + 1, &mut value, budget)?;
            budget.push(&mut values, value)
        }),
        _ => unknown(json),
    })?;
    Ok(values)
}

fn map<'a>(
    json: &mut JsonReader<'a>,
    depth: usize,
    budget: &mut DecodeBudget<'_>,
) -> Result<Vec<Attribute<'a>>, DecodeError> {
    let mut values = Vec::new();
    json.object(|json, name| match name {
        "values" => attributes(json, depth + 1, &mut values, budget),
        _ => unknown(json),
    })?;
    Ok(values)
}
