//! The messages as JSON.

use serde_json::{Value as Json, json};

use super::{
    AnyValue, Buckets, Data, Exemplar, ExemplarValue, ExponentialPoint, HistogramPoint, KeyValue,
    Metric, Number, NumberPoint, Request, ResourceMetrics, ScopeMetrics, SummaryPoint, Value,
};

impl Request {
    /// Converts the message to JSON.
    pub fn to_json(&self) -> Json {
        let scope = |metrics: &ScopeMetrics| {
            let scope = metrics.scope.clone().unwrap_or_default();
            json!({
                "scope": {
                    "name": scope.name,
                    "version": scope.version,
                    "attributes": attributes_json(&scope.attributes),
                },
                "schemaUrl": metrics.schema_url,
                "metrics": metrics.metrics.iter().map(metric_json).collect::<Vec<_>>(),
            })
        };
        let resource = |resource: &ResourceMetrics| {
            let attributes = resource.resource.clone().unwrap_or_default().attributes;
            json!({
                "resource": {"attributes": attributes_json(&attributes)},
                "scopeMetrics": resource.scope_metrics.iter().map(scope).collect::<Vec<_>>(),
                "unknown": [{"a": null}, "]"],
            })
        };
        json!({"resourceMetrics": self.resource_metrics.iter().map(resource).collect::<Vec<_>>()})
    }
}

fn metric_json(metric: &Metric) -> Json {
    let mut out = json!({
        "name": metric.name,
        "description": metric.description,
        "unit": metric.unit,
    });
    match &metric.data {
        None => {}
        Some(Data::Gauge(numbers)) => {
            out["gauge"] = json!({"dataPoints": list(&numbers.data_points, number_json)});
        }
        Some(Data::Sum(numbers)) => {
            out["sum"] = json!({
                "dataPoints": list(&numbers.data_points, number_json),
                "aggregationTemporality": numbers.temporality,
                "isMonotonic": numbers.is_monotonic,
            });
        }
        Some(Data::Histogram(histograms)) => {
            out["histogram"] = json!({
                "dataPoints": list(&histograms.data_points, histogram_json),
                "aggregationTemporality": histograms.temporality,
            });
        }
        Some(Data::Exponential(exponentials)) => {
            out["exponentialHistogram"] = json!({
                "dataPoints": list(&exponentials.data_points, exponential_json),
                "aggregationTemporality": exponentials.temporality,
            });
        }
        Some(Data::Summary(summaries)) => {
            out["summary"] = json!({"dataPoints": list(&summaries.data_points, summary_json)});
        }
    }
    out
}

fn list<T>(items: &[T], of: impl Fn(&T) -> Json) -> Json {
    items.iter().map(of).collect()
}

fn point_json(attributes: &[KeyValue], start_ns: u64, time_ns: u64, flags: u32) -> Json {
    json!({
        "attributes": attributes_json(attributes),
        "startTimeUnixNano": start_ns.to_string(),
        "timeUnixNano": time_ns.to_string(),
        "flags": flags,
    })
}

fn number_json(point: &NumberPoint) -> Json {
    let mut out = point_json(&point.attributes, point.start_ns, point.time_ns, point.flags);
    match point.value {
        None => {}
        Some(Number::Double(value)) => out["asDouble"] = double_json(value),
        Some(Number::Integer(value)) => out["asInt"] = value.to_string().into(),
    }
    out["exemplars"] = list(&point.exemplars, exemplar_json);
    out
}

fn histogram_json(point: &HistogramPoint) -> Json {
    let mut out = point_json(&point.attributes, point.start_ns, point.time_ns, point.flags);
    out["count"] = point.count.to_string().into();
    if let Some(sum) = point.sum {
        out["sum"] = double_json(sum);
    }
    out["bucketCounts"] = list(&point.bucket_counts, |count| count.to_string().into());
    out["explicitBounds"] = list(&point.explicit_bounds, |bound| double_json(*bound));
    out["exemplars"] = list(&point.exemplars, exemplar_json);
    out["min"] = 0.5.into();
    out
}

fn exponential_json(point: &ExponentialPoint) -> Json {
    let mut out = point_json(&point.attributes, point.start_ns, point.time_ns, point.flags);
    let buckets = |buckets: &Option<Buckets>| {
        let Buckets { offset, bucket_counts } = buckets.clone().unwrap_or_default();
        json!({"offset": offset, "bucketCounts": list(&bucket_counts, |n| n.to_string().into())})
    };
    out["count"] = point.count.to_string().into();
    if let Some(sum) = point.sum {
        out["sum"] = double_json(sum);
    }
    out["scale"] = point.scale.into();
    // Numbers of 64 bits may have no quotes.
    out["zeroCount"] = point.zero_count.into();
    out["positive"] = buckets(&point.positive);
    out["negative"] = buckets(&point.negative);
    out["zeroThreshold"] = double_json(point.zero_threshold);
    out["exemplars"] = list(&point.exemplars, exemplar_json);
    out
}

fn summary_json(point: &SummaryPoint) -> Json {
    let mut out = point_json(&point.attributes, point.start_ns, point.time_ns, point.flags);
    out["count"] = point.count.to_string().into();
    out["sum"] = double_json(point.sum);
    out["quantileValues"] = list(
        &point.quantile_values,
        |quantile| json!({"quantile": double_json(quantile.quantile), "value": double_json(quantile.value)}),
    );
    out
}

fn exemplar_json(exemplar: &Exemplar) -> Json {
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let mut out = json!({
        "filteredAttributes": attributes_json(&exemplar.filtered_attributes),
        "timeUnixNano": exemplar.time_ns.to_string(),
        "traceId": hex(&exemplar.trace_id),
        "spanId": hex(&exemplar.span_id),
    });
    match exemplar.value {
        None => {}
        Some(ExemplarValue::Double(value)) => out["asDouble"] = double_json(value),
        Some(ExemplarValue::Integer(value)) => out["asInt"] = value.to_string().into(),
    }
    out
}

fn attributes_json(attributes: &[KeyValue]) -> Json {
    list(attributes, |attribute| {
        let value = attribute.value.clone().unwrap_or_default();
        json!({"key": attribute.key, "value": value_json(&value)})
    })
}

fn value_json(value: &AnyValue) -> Json {
    match &value.value {
        None => json!({}),
        Some(Value::Text(text)) => json!({"stringValue": text}),
        Some(Value::Bool(value)) => json!({"boolValue": value}),
        Some(Value::Integer(value)) => json!({"intValue": value.to_string()}),
        Some(Value::Double(value)) => json!({"doubleValue": double_json(*value)}),
        Some(Value::List(values)) => {
            json!({"arrayValue": {"values": list(&values.values, value_json)}})
        }
        Some(Value::Map(map)) => json!({"kvlistValue": {"values": attributes_json(&map.values)}}),
        Some(Value::Bytes(bytes)) => json!({"bytesValue": base64(bytes)}),
    }
}

fn double_json(value: f64) -> Json {
    match value {
        v if v.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        v => v.into(),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let all = chunk.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        let all = all << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * position)) as usize & 63];
            out.push(if position <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}
