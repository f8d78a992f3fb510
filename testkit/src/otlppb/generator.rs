//! Random requests.

use super::{
    AnyValue, ArrayValue, Buckets, CUMULATIVE, Data, Exemplar, ExemplarValue, ExponentialPoint,
    Exponentials, HistogramPoint, Histograms, KeyValue, KeyValueList, Metric, Number, NumberPoint,
    Numbers, Quantile, Request, Resource, ResourceMetrics, Scope, ScopeMetrics, Summaries,
    SummaryPoint, Value, attribute, metric, text,
};

/// Generator of random requests with ascending timestamps.
///
/// Prometheus accepts each of them as a whole. Within a request, translated names of series are
/// unique, and all data points of a resource have the same first and last timestamp.
pub struct Generator {
    seed: u64,
    /// Timestamp of the next request.
    time_ns: u64,
    number: u64,
}

/// Time range of a request.
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

    /// Returns the next request.
    pub fn request(&mut self) -> Request {
        self.number = 0;
        let resources = 1 + self.below(3);
        let mut resource_metrics: Vec<_> = (0..resources).map(|n| self.resource(n)).collect();
        if self.one_of(3) {
            // A resource may be split.
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
        // Distinguishes the series of resources without a name.
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

    /// Returns a gauge with the first and the last timestamp.
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

    /// Returns a name whose translations are all unique in the request.
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

    /// Returns attributes and timestamps of some data points.
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
                    // After empty buckets, Prometheus merges others wrongly.
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
                // prost omits a negative zero.
                sum: random.double() + 0.0,
                quantile_values: quantiles
                    .into_iter()
                    .map(|quantile| Quantile { quantile, value: random.double() + 0.0 })
                    .collect(),
            }
        });
        Summaries { data_points }
    }

    /// Returns a count, often 0.
    fn few(&mut self) -> u64 {
        let some = self.below(1 << 20);
        self.pick(&[0, 0, 0, 1, 2, 7, some])
    }

    fn finite(&mut self) -> f64 {
        self.below(1 << 30) as f64 / 1024.0 - 1000.0
    }

    /// Returns exemplars before a timestamp, sorted by value and timestamp.
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
