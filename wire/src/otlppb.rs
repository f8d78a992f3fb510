//! The messages of OTLP for prost and for `serde_json`, to test against, and requests by chance.

use prost::{Message, Oneof};
use serde_json::{Value as Json, json};

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(message, repeated, tag = "1")]
    pub resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_metrics: Vec<ScopeMetrics>,
    #[prost(message, repeated, tag = "1000")]
    pub deprecated_scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(string, tag = "3")]
    pub unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 9, 10, 11")]
    pub data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    #[prost(message, tag = "5")]
    Gauge(Numbers),
    #[prost(message, tag = "7")]
    Sum(Numbers),
    #[prost(message, tag = "9")]
    Histogram(Histograms),
    #[prost(message, tag = "10")]
    Exponential(Exponentials),
    #[prost(message, tag = "11")]
    Summary(Summaries),
}

#[derive(Clone, PartialEq, Message)]
pub struct Numbers {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    pub temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Histograms {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    pub temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Exponentials {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<ExponentialPoint>,
    #[prost(int32, tag = "2")]
    pub temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Summaries {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<SummaryPoint>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum Number {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Integer(i64),
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum ExemplarValue {
    #[prost(double, tag = "3")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Integer(i64),
}

#[derive(Clone, PartialEq, Message)]
pub struct NumberPoint {
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub time_ns: u64,
    #[prost(oneof = "Number", tags = "4, 6")]
    pub value: Option<Number>,
    #[prost(message, repeated, tag = "5")]
    pub exemplars: Vec<Exemplar>,
    #[prost(uint32, tag = "8")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct HistogramPoint {
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub time_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "8")]
    pub exemplars: Vec<Exemplar>,
    #[prost(uint32, tag = "10")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExponentialPoint {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub time_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    pub scale: i32,
    #[prost(fixed64, tag = "7")]
    pub zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub positive: Option<Buckets>,
    #[prost(message, optional, tag = "9")]
    pub negative: Option<Buckets>,
    #[prost(uint32, tag = "10")]
    pub flags: u32,
    #[prost(message, repeated, tag = "11")]
    pub exemplars: Vec<Exemplar>,
    #[prost(double, tag = "14")]
    pub zero_threshold: f64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Buckets {
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    pub bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SummaryPoint {
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub time_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    #[prost(double, tag = "5")]
    pub sum: f64,
    #[prost(message, repeated, tag = "6")]
    pub quantile_values: Vec<Quantile>,
    #[prost(uint32, tag = "8")]
    pub flags: u32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Quantile {
    #[prost(double, tag = "1")]
    pub quantile: f64,
    #[prost(double, tag = "2")]
    pub value: f64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Exemplar {
    #[prost(message, repeated, tag = "7")]
    pub filtered_attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub time_ns: u64,
    #[prost(oneof = "ExemplarValue", tags = "3, 6")]
    pub value: Option<ExemplarValue>,
    #[prost(bytes = "vec", tag = "4")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub trace_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    List(ArrayValue),
    #[prost(message, tag = "6")]
    Map(KeyValueList),
    #[prost(bytes = "vec", tag = "7")]
    Bytes(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValue>,
}

/// An attribute of a text.
pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::Text(value.to_owned()))
}

/// An attribute.
pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

/// A request of one resource and one scope.
pub fn request(attributes: Vec<KeyValue>, metrics: Vec<Metric>) -> Request {
    Request {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource { attributes }),
            scope_metrics: vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }],
            ..ResourceMetrics::default()
        }],
    }
}

/// A metric.
pub fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        description: format!("About {name}."),
        unit: unit.to_owned(),
        data: Some(data),
    }
}

/// The temporality that is taken.
pub const CUMULATIVE: i32 = 2;

impl Request {
    /// As JSON of the protocol.
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
    // Numbers of 64 bits may come without quotes.
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

/// Requests by chance, each later than the one before.
///
/// They are such that Prometheus takes them whole and in one way: within a request, no two series
/// become one after their names are translated, and all data points of a resource have the same
/// first and last time.
pub struct Generator {
    seed: u64,
    /// Of the next request.
    time_ns: u64,
    number: u64,
}

/// How far a request reaches.
const SPAN_NS: u64 = 4_000_000_000;

impl Generator {
    pub fn new(seed: u64, time_ns: u64) -> Generator {
        Generator { seed, time_ns, number: 0 }
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % bound
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize].clone()
    }

    fn one_of(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// The next request.
    pub fn request(&mut self) -> Request {
        self.number = 0;
        let resources = 1 + self.below(3);
        let mut resource_metrics: Vec<_> = (0..resources).map(|n| self.resource(n)).collect();
        if self.one_of(3) {
            // A resource may come in parts.
            let resource = resource_metrics[0].resource.clone();
            let scope_metrics = vec![self.scope()];
            resource_metrics.push(ResourceMetrics {
                resource,
                scope_metrics,
                ..ResourceMetrics::default()
            });
        }
        self.time_ns += 10_000_000_000 + self.below(1000) * 1_000_000;
        Request { resource_metrics }
    }

    fn resource(&mut self, number: u64) -> ResourceMetrics {
        let mut attributes = match self.below(4) {
            0 => vec![text("service.instance.id", &format!("instance-{number}"))],
            1 => vec![text("service.name", &format!("service-{number}"))],
            2 => vec![
                text("service.name", &format!("service-{number}")),
                text("service.namespace", "shop"),
                attribute("service.instance.id", Value::Integer(number as i64)),
            ],
            _ => vec![text("host.name", &format!("host-{number}"))],
        };
        // Without a name, the resource's series are told apart by this.
        attributes.push(text("telemetry.sdk.language", "rust"));
        attributes.push(text("resource.number", &number.to_string()));
        for key in ["cloud.region", "a b", "deployment_environment", "ünï", "process.pid", "_x"] {
            if self.one_of(2) {
                let value = self.value(1);
                attributes.push(attribute(key, value));
            }
        }
        let scopes = 1 + self.below(2);
        ResourceMetrics {
            resource: Some(Resource { attributes }),
            scope_metrics: (0..scopes).map(|_| self.scope()).collect(),
            ..ResourceMetrics::default()
        }
    }

    fn scope(&mut self) -> ScopeMetrics {
        let mut scope = Scope::default();
        if !self.one_of(3) {
            scope.name = self.pick(&["io.opentelemetry.http", "mine", "\"quoted\""]).to_owned();
            scope.version = self.pick(&["", "1.2.3"]).to_owned();
            for key in ["team", "with.dot", "9"] {
                if self.one_of(3) {
                    let value = self.value(1);
                    scope.attributes.push(attribute(key, value));
                }
            }
        }
        let mut metrics = vec![self.span()];
        let count = 1 + self.below(6);
        metrics.extend((0..count).map(|_| self.metric()));
        let schema_url = self.pick(&["", "https://opentelemetry.io/schemas/1.24.0"]).to_owned();
        ScopeMetrics { scope: Some(scope), metrics, schema_url }
    }

    /// A gauge with the first and the last time.
    fn span(&mut self) -> Metric {
        let name = self.name();
        let points = [0, SPAN_NS].map(|later| NumberPoint {
            time_ns: self.time_ns + later,
            value: Some(Number::Integer(later as i64)),
            ..NumberPoint::default()
        });
        let numbers = Numbers { data_points: points.into(), ..Numbers::default() };
        metric(&name, "1", Data::Gauge(numbers))
    }

    /// A name that no other metric of the request has, however it is translated.
    fn name(&mut self) -> String {
        self.number += 1;
        let before = self.pick(&["", "http.server.", "ünï.", "9", "_", "a__b.", "a:b/", "total."]);
        let behind = self.pick(&[
            "",
            ".total",
            "_total",
            ".ratio",
            "_seconds",
            ".milliseconds",
            ".per_second",
            "%",
            ".",
            "..x",
            ".bytes",
            " y z",
        ]);
        format!("{before}m{}{behind}", self.number)
    }

    fn metric(&mut self) -> Metric {
        let name = self.name();
        let unit = self.pick(&[
            "",
            "1",
            "s",
            "ms",
            "By",
            "By/s",
            "{request}",
            "{request}/s",
            "%",
            "m/s",
            "1/s",
            "foo",
            "foo_bar/baz",
            "/s",
            "Cel",
            "m^2",
            "°F",
            "s/",
            " s / m ",
        ]);
        let data = match self.below(6) {
            0 => Data::Gauge(self.numbers()),
            1 | 2 => Data::Sum(self.numbers()),
            3 => Data::Histogram(self.histograms()),
            4 => Data::Exponential(self.exponentials()),
            _ => Data::Summary(self.summaries()),
        };
        Metric {
            description: self.pick(&["", "What it is.", "Zwei\nZeilen \"ü\""]).to_owned(),
            ..metric(&name, unit, data)
        }
    }

    /// The attributes and times of some data points.
    fn points<T>(
        &mut self,
        mut of: impl FnMut(&mut Generator, Vec<KeyValue>, u64, u64, u32) -> T,
    ) -> Vec<T> {
        let mut points = Vec::new();
        for number in 0..1 + self.below(3) {
            let attributes = self.attributes(number);
            let start_ns = match self.below(3) {
                0 => 0,
                _ => self.time_ns - 1_000_000 * self.below(3_600_000),
            };
            let mut later = self.below(1000) * 1_000_000;
            for _ in 0..1 + self.below(2) {
                let flags = u32::from(self.one_of(9));
                let time_ns = self.time_ns + later + self.below(1_000_000);
                points.push(of(self, attributes.clone(), start_ns, time_ns, flags));
                later += 1_500_000_000;
            }
        }
        points
    }

    fn attributes(&mut self, number: u64) -> Vec<KeyValue> {
        let mut attributes = vec![attribute("point", Value::Integer(number as i64))];
        let keys = [
            "http.method",
            "http_method",
            "http-method",
            "__name__",
            "le",
            "job",
            "instance",
            "quantile",
            "_private",
            "__reserved__",
            "9lives",
            "ünï",
            "a b",
            "a  b",
            "otel_scope_name",
            "otel.scope.version",
            "cloud.region",
            "x.__y__z",
            "UPPER",
        ];
        for key in keys {
            if self.one_of(5) {
                let value = self.value(2);
                attributes.push(attribute(key, value));
            }
        }
        // Their order does not matter.
        let first = self.below(attributes.len() as u64) as usize;
        attributes.rotate_left(first);
        attributes
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.below(if depth > 0 { 12 } else { 8 }) {
            0 => Value::Bool(self.one_of(2)),
            1 => Value::Integer(self.pick(&[0, -1, i64::MIN, i64::MAX, 1 << 60])),
            2 | 3 => Value::Double(self.double()),
            4 => Value::Bytes((0..self.below(5)).map(|n| n as u8 * 77).collect()),
            5..8 => {
                Value::Text(self.pick(&["", "GET", "<a&b>", "ü\"\\\n\u{1}\u{2028}"]).to_owned())
            }
            8 | 9 => {
                let values =
                    (0..self.below(4)).map(|_| AnyValue { value: Some(self.value(depth - 1)) });
                Value::List(ArrayValue { values: values.collect() })
            }
            _ => {
                let keys = ["b", "a", "ü"].into_iter();
                let values = keys.map(|key| attribute(key, self.value(depth - 1)));
                Value::Map(KeyValueList { values: values.collect() })
            }
        }
    }

    fn double(&mut self) -> f64 {
        let whole = self.below(1000) as f64;
        self.pick(&[
            0.0,
            -0.0,
            whole,
            whole / 7.0,
            -whole,
            1e-7,
            2.5e-5,
            1e20,
            1e21,
            1.5e300,
            5e-324,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ])
    }

    fn numbers(&mut self) -> Numbers {
        let data_points = self.points(|random, attributes, start_ns, time_ns, flags| NumberPoint {
            attributes,
            start_ns,
            time_ns,
            flags,
            value: match random.below(6) {
                0 => None,
                1 | 2 => Some(Number::Integer(random.below(1 << 40) as i64 - 1000)),
                _ => Some(Number::Double(random.double())),
            },
            exemplars: random.exemplars(time_ns),
        });
        Numbers { data_points, temporality: CUMULATIVE, is_monotonic: self.one_of(2) }
    }

    fn histograms(&mut self) -> Histograms {
        let data_points = self.points(|random, attributes, start_ns, time_ns, flags| {
            let explicit_bounds = random.pick(&[
                vec![],
                vec![0.0],
                vec![0.005, 0.1, 1.0, 2.5, 10.0],
                vec![-1.0, 0.0, 1e-7, 1e21],
                (1..40).map(f64::from).collect(),
            ]);
            let bucket_counts: Vec<u64> =
                (0..=explicit_bounds.len()).map(|_| random.few()).collect();
            HistogramPoint {
                attributes,
                start_ns,
                time_ns,
                flags,
                count: bucket_counts.iter().sum(),
                sum: if random.one_of(4) { None } else { Some(random.finite()) },
                bucket_counts,
                explicit_bounds,
                exemplars: random.exemplars(time_ns),
            }
        });
        Histograms { data_points, temporality: CUMULATIVE }
    }

    fn exponentials(&mut self) -> Exponentials {
        let data_points = self.points(|random, attributes, start_ns, time_ns, flags| {
            let scale = random.below(20) as i32 - 4;
            let [positive, negative] = [0, 1].map(|_| {
                let offset = random.below(2000) as i32 - 1000;
                let counts = (0..random.below(30)).map(|_| match scale {
                    // Behind empty buckets, Prometheus merges others wrongly.
                    9.. => 1 + random.few(),
                    _ => random.few(),
                });
                Buckets { offset, bucket_counts: counts.collect() }
            });
            let zero_count = random.few();
            let counts = positive.bucket_counts.iter().chain(&negative.bucket_counts);
            ExponentialPoint {
                attributes,
                start_ns,
                time_ns,
                flags,
                count: zero_count + counts.sum::<u64>(),
                sum: if random.one_of(4) { None } else { Some(random.finite()) },
                scale,
                zero_count,
                positive: Some(positive),
                negative: Some(negative).filter(|_| !random.one_of(2)),
                exemplars: random.exemplars(time_ns),
                zero_threshold: 0.25,
            }
        });
        let mut all = Exponentials { data_points, temporality: CUMULATIVE };
        for point in &mut all.data_points {
            let sides = [&point.positive, &point.negative].into_iter().flatten();
            let counts = sides.flat_map(|side| &side.bucket_counts).sum::<u64>();
            point.count = point.zero_count + counts;
        }
        all
    }

    fn summaries(&mut self) -> Summaries {
        let data_points = self.points(|random, attributes, start_ns, time_ns, flags| {
            let quantiles = [0.0, 0.5, 0.99, 0.999_999, 1.0].into_iter();
            let quantiles = quantiles.filter(|_| random.one_of(2)).collect::<Vec<_>>();
            SummaryPoint {
                attributes,
                start_ns,
                time_ns,
                flags,
                count: random.below(1000),
                // Where prost finds 0 it leaves out the sign with the field.
                sum: random.double() + 0.0,
                quantile_values: quantiles
                    .into_iter()
                    .map(|quantile| Quantile { quantile, value: random.double() + 0.0 })
                    .collect(),
            }
        });
        Summaries { data_points }
    }

    /// A count, often 0.
    fn few(&mut self) -> u64 {
        let some = self.below(1 << 20);
        self.pick(&[0, 0, 0, 1, 2, 7, some])
    }

    fn finite(&mut self) -> f64 {
        self.below(1 << 30) as f64 / 1024.0 - 1000.0
    }

    /// Exemplars in the order of their values and times, before a time.
    fn exemplars(&mut self, time_ns: u64) -> Vec<Exemplar> {
        let count = if self.one_of(2) { 0 } else { self.below(4) };
        (0..count)
            .map(|number| {
                let attributes = match self.below(6) {
                    0 => vec![text("long", &"x".repeat(60 + self.below(20) as usize))],
                    1 => vec![text("user.id", "7"), attribute("n", Value::Integer(1))],
                    2 => vec![text("empty", "")],
                    _ => vec![],
                };
                let mut id = |len: u8| (0..len).map(|_| self.below(256) as u8).collect::<Vec<_>>();
                let (trace_id, span_id) = (id(16), id(8));
                let has_ids = !self.one_of(5);
                let value = number as f64 * 3.0 + self.below(3) as f64;
                Exemplar {
                    filtered_attributes: attributes,
                    time_ns: time_ns - (count - number) * 7_000_000,
                    value: Some(match self.one_of(2) {
                        true => ExemplarValue::Integer(value as i64),
                        false => ExemplarValue::Double(value),
                    }),
                    span_id: if has_ids { span_id } else { vec![] },
                    trace_id: if has_ids { trace_id } else { vec![] },
                }
            })
            .collect()
    }
}
