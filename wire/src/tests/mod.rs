//! The decoders against their twin: messages of prost, and a naive translation of them.

mod hostile;
mod v2;

use std::collections::{HashMap, HashSet};

use model::histogram::{WireCounts, WireHistogram};
use model::{BatchMetadata, Labels, MetricKind, RejectReason};
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::limits::LimitNames;
use crate::rejects::Counts;
use testkit::prompb::{
    self, BucketSpan, Count, Exemplar, Histogram, Label, MetricMetadata, Sample, TimeSeries,
    WriteRequest, ZeroCount,
};

const LIMITS: LimitNames = LimitNames::FIELDS;

fn limits() -> Limits {
    Limits {
        labels_per_series_max: 6,
        label_name_bytes_max: 200,
        label_value_bytes_max: 300,
        ..Limits::default()
    }
}

/// Result of decoding a request, which compares NaN by bits.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    series: Vec<SeriesReading>,
    metadata: Vec<BatchMetadata>,
    rejected: HashMap<RejectReason, Counts>,
    exemplars_dropped: u64,
    metadata_dropped: u64,
}

#[derive(Debug, PartialEq)]
struct SeriesReading {
    labels: Labels,
    /// Time, bits, start.
    samples: Vec<(i64, u64, i64)>,
    /// Time, start.
    histograms: Vec<(i64, i64, model::Histogram)>,
    exemplars: Vec<(Labels, i64, u64)>,
}

impl Reading {
    fn reject(&mut self, reason: RejectReason, counts: Counts) {
        if counts != Counts::default() {
            let known = self.rejected.entry(reason).or_default();
            *known = *known + counts;
        }
    }
}

fn decode(
    version: Version,
    bytes: &[u8],
    limits: &Limits,
    batch: &mut Batch,
) -> Result<Decoded, DecodeError> {
    let mut reserve = |_| Ok(());
    Decoder::default().decode(version, bytes, bytes.len(), limits, &mut reserve, batch)
}

fn ours(version: Version, bytes: &[u8], padding: usize) -> Result<Reading, DecodeError> {
    let mut padded = bytes.to_vec();
    // The bytes after a message must not matter.
    padded.resize(bytes.len() + padding, 0x0a);
    let (mut decoder, mut batch) = (Decoder::default(), Batch::default());
    let mut reserve = |_| Ok(());
    let decoded =
        decoder.decode(version, &padded, bytes.len(), &limits(), &mut reserve, &mut batch)?;
    let series = (0..batch.series.len()).map(|index| SeriesReading {
        labels: Labels::from_bytes(batch.labels_bytes(index)).unwrap(),
        samples: batch
            .samples(index)
            .map(|at| (batch.timestamps[at], batch.values[at].to_bits(), batch.start(at)))
            .collect(),
        histograms: batch.histograms[batch.histograms(index)]
            .iter()
            .map(|h| (h.timestamp_ms, h.start_ms, model::Histogram::clone(&h.histogram)))
            .collect(),
        exemplars: batch
            .exemplars
            .iter()
            .filter(|exemplar| exemplar.series_index as usize == index)
            .map(|exemplar| {
                let labels = Labels::from_bytes(exemplar.labels.as_bytes()).unwrap();
                (labels, exemplar.timestamp_ms, exemplar.value.to_bits())
            })
            .collect(),
    });
    Ok(Reading {
        series: series.collect(),
        metadata: batch.metadata.clone(),
        rejected: decoded
            .rejects
            .counts()
            .filter(|(_, counts)| *counts != Counts::default())
            .collect(),
        exemplars_dropped: decoded.exemplars_dropped,
        metadata_dropped: decoded.metadata_dropped,
    })
}

/// The naive twin of `write_handler.go`.
fn theirs(request: &WriteRequest) -> Reading {
    let mut reading = Reading::default();
    for series in &request.timeseries {
        let mut exemplars = Vec::new();
        for exemplar in &series.exemplars {
            match naive_exemplar_labels(&exemplar.labels) {
                Some(labels) => {
                    exemplars.push((labels, exemplar.timestamp, exemplar.value.to_bits()));
                }
                None => reading.exemplars_dropped += 1,
            }
        }
        let samples: Vec<_> =
            series.samples.iter().map(|s| (s.timestamp, s.value.to_bits(), 0)).collect();
        let histograms: Vec<_> =
            series.histograms.iter().map(|h| (h.timestamp, 0, naive_histogram(h))).collect();
        naive_series(&mut reading, naive_labels(&series.labels), samples, histograms, exemplars);
    }
    for metadata in &request.metadata {
        let MetricMetadata { r#type, metric_family_name, help, unit } = metadata;
        naive_metadata(&mut reading, metric_family_name, *r#type, help, unit);
    }
    reading
}

fn naive_series(
    reading: &mut Reading,
    labels: Result<Labels, RejectReason>,
    samples: Vec<(i64, u64, i64)>,
    histograms: Vec<(i64, i64, Option<model::Histogram>)>,
    exemplars: Vec<(Labels, i64, u64)>,
) {
    let counts = Counts {
        floats: samples.len() as u64,
        histograms: histograms.len() as u64,
        exemplars: exemplars.len() as u64,
    };
    match labels {
        Err(reason) => reading.reject(reason, counts),
        Ok(labels) => {
            let valid = histograms.into_iter();
            let valid: Vec<_> = valid.filter_map(|(t, s, h)| Some((t, s, h?))).collect();
            let invalid = counts.histograms - valid.len() as u64;
            reading.reject(
                RejectReason::Histogram,
                Counts { histograms: invalid, ..Counts::default() },
            );
            if !samples.is_empty() || !valid.is_empty() || !exemplars.is_empty() {
                reading.series.push(SeriesReading {
                    labels,
                    samples,
                    histograms: valid,
                    exemplars,
                });
            }
        }
    }
}

/// Passes the fields to the model, which validates them.
fn naive_histogram(sent: &Histogram) -> Option<model::Histogram> {
    let sent = sent.clone();
    let spans = |spans: Vec<BucketSpan>| {
        let span = |s: &BucketSpan| model::Span { offset: s.offset, length: s.length };
        spans.iter().map(span).collect()
    };
    let counts = match (sent.count, sent.zero_count) {
        (Some(Count::Float(count)), zero_count) => WireCounts::Float {
            count,
            zero_count: if let Some(ZeroCount::Float(count)) = zero_count { count } else { 0.0 },
            positive_counts: sent.positive_counts,
            negative_counts: sent.negative_counts,
        },
        (count, zero_count) => WireCounts::Integer {
            count: if let Some(Count::Integer(count)) = count { count } else { 0 },
            zero_count: if let Some(ZeroCount::Integer(count)) = zero_count { count } else { 0 },
            positive_deltas: sent.positive_deltas,
            negative_deltas: sent.negative_deltas,
        },
    };
    let wire = WireHistogram {
        reset_hint: model::ResetHint::from_number(sent.reset_hint as u8).unwrap_or_default(),
        schema: sent.schema,
        zero_threshold: sent.zero_threshold,
        sum: sent.sum,
        positive_spans: spans(sent.positive_spans),
        negative_spans: spans(sent.negative_spans),
        custom_bounds: sent.custom_values.into(),
        counts,
    };
    wire.into_histogram().ok()
}

fn naive_metadata(reading: &mut Reading, metric: &[u8], kind: i32, help: &[u8], unit: &[u8]) {
    let kinds = [
        MetricKind::Unknown,
        MetricKind::Counter,
        MetricKind::Gauge,
        MetricKind::Histogram,
        MetricKind::GaugeHistogram,
        MetricKind::Summary,
        MetricKind::Info,
        MetricKind::StateSet,
    ];
    let kind = usize::try_from(kind).ok().and_then(|kind| kinds.get(kind)).copied();
    let text = |text: &[u8]| String::from_utf8(text.to_vec());
    match (text(metric), text(help), text(unit)) {
        (Ok(metric), Ok(help), Ok(unit)) if !metric.is_empty() => {
            let kind = kind.unwrap_or_default();
            reading.metadata.push(BatchMetadata { metric, kind, help, unit });
        }
        _ => reading.metadata_dropped += 1,
    }
}

fn naive_pairs(labels: &[Label]) -> Option<Vec<(String, String)>> {
    let text = |text: &[u8]| String::from_utf8(text.to_vec()).ok();
    labels.iter().map(|label| Some((text(&label.name)?, text(&label.value)?))).collect()
}

fn naive_exemplar_labels(labels: &[Label]) -> Option<Labels> {
    let given: Vec<Label> =
        labels.iter().filter(|label| !label.value.is_empty()).cloned().collect();
    let pairs = naive_pairs(&given)?;
    let names: HashSet<_> = pairs.iter().map(|(name, _)| name).collect();
    let chars: usize = pairs.iter().map(|(n, v)| n.chars().count() + v.chars().count()).sum();
    let is_kept = labels.len() <= limits().labels_per_series_max
        && names.len() == pairs.len()
        && !names.contains(&String::new())
        && chars <= 128;
    is_kept.then(|| Labels::from_pairs(pairs))
}

fn naive_labels(labels: &[Label]) -> Result<Labels, RejectReason> {
    let limits = limits();
    if labels.len() > limits.labels_per_series_max {
        return Err(RejectReason::LabelLimit);
    }
    let pairs = naive_pairs(labels).ok_or(RejectReason::InvalidLabels)?;
    let metric = pairs.iter().filter(|(name, _)| name == "__name__");
    let is_named = metric.clone().count() > 0 && metric.clone().all(|(_, v)| !v.is_empty());
    if !is_named || pairs.iter().any(|(name, _)| name.is_empty()) {
        return Err(RejectReason::InvalidLabels);
    }
    let names: HashSet<_> = pairs.iter().map(|(name, _)| name).collect();
    if names.len() < pairs.len() {
        return Err(RejectReason::DuplicateLabel);
    }
    let pairs: Vec<_> = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let is_long = |(name, value): &(String, String)| {
        name.len() > limits.label_name_bytes_max || value.len() > limits.label_value_bytes_max
    };
    if pairs.iter().any(is_long) {
        return Err(RejectReason::LabelLimit);
    }
    Ok(Labels::from_pairs(pairs))
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[a-c]{1,3}".prop_map(String::into_bytes),
        2 => "[a-c]{7}[a-c]{1,3}".prop_map(String::into_bytes),
        2 => "[a-z]{30,35}".prop_map(String::into_bytes),
        1 => Just(Vec::new()),
        1 => "\\PC{0,3}".prop_map(String::into_bytes),
        1 => (100usize..320).prop_map(|len| vec![b'x'; len]),
        1 => proptest::collection::vec(any::<u8>(), 0..3),
    ]
}

fn label() -> impl Strategy<Value = Label> {
    let name = prop_oneof![4 => text(), 1 => Just(b"__name__".to_vec())];
    (name, text()).prop_map(|(name, value)| Label { name, value })
}

/// Mostly labels as senders send them: unique, named, and in four of five cases sorted.
fn labels() -> impl Strategy<Value = Vec<Label>> {
    let labels = proptest::collection::vec(label(), 0..8);
    (labels, 0u8..10, any::<proptest::sample::Index>()).prop_map(|(mut labels, chance, index)| {
        if chance > 0 {
            labels.retain(|label| !label.name.is_empty() && label.name != b"__name__");
            labels.push(Label { name: b"__name__".to_vec(), value: b"up".to_vec() });
            labels.sort_by(|a, b| a.name.cmp(&b.name));
            labels.dedup_by(|a, b| a.name == b.name);
        }
        if chance == 1 {
            let count = labels.len();
            labels.rotate_left(index.index(count));
        }
        if chance == 2 {
            labels.reverse();
        }
        labels
    })
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(0.0),
        Just(-0.0),
        any::<u64>().prop_map(f64::from_bits),
        Just(model::stale_nan()),
    ]
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 1_700_000_000_000i64..1_800_000_000_000,
        1 => any::<i64>(),
        1 => Just(0),
        1 => -5i64..5,
    ]
}

fn sample() -> impl Strategy<Value = Sample> {
    (number(), time()).prop_map(|(value, timestamp)| Sample { value, timestamp })
}

fn spans() -> impl Strategy<Value = Vec<BucketSpan>> {
    let span = (any::<i32>(), any::<u32>());
    proptest::collection::vec(span.prop_map(|(offset, length)| BucketSpan { offset, length }), 0..2)
}

/// Any histogram; most are invalid.
fn any_histogram() -> impl Strategy<Value = Histogram> {
    let deltas = || proptest::collection::vec(any::<i64>(), 0..3);
    let counts = || proptest::collection::vec(any::<f64>(), 0..3);
    let count = proptest::option::of(prop_oneof![
        any::<u64>().prop_map(Count::Integer),
        any::<f64>().prop_map(Count::Float),
    ]);
    let zero_count = proptest::option::of(prop_oneof![
        any::<u64>().prop_map(ZeroCount::Integer),
        any::<f64>().prop_map(ZeroCount::Float),
    ]);
    let parts = (spans(), spans(), deltas(), deltas(), counts(), counts());
    (count, zero_count, any::<i32>(), parts, counts(), time()).prop_map(
        |(count, zero_count, schema, parts, custom_values, timestamp)| Histogram {
            count,
            sum: 1.5,
            schema,
            zero_threshold: 0.25,
            zero_count,
            negative_spans: parts.0,
            positive_spans: parts.1,
            negative_deltas: parts.2,
            positive_deltas: parts.3,
            negative_counts: parts.4,
            positive_counts: parts.5,
            reset_hint: 1,
            timestamp,
            custom_values,
        },
    )
}

/// A valid histogram of either kind.
fn sound_histogram() -> impl Strategy<Value = Histogram> {
    let buckets = proptest::collection::vec(0i64..9, 0..5);
    (any::<bool>(), buckets, -9i32..12, 0u64..3, time()).prop_map(
        |(is_float, buckets, schema, zero_count, timestamp)| {
            let is_custom = schema < -6;
            let zero_count = if is_custom { 0 } else { zero_count };
            let count = zero_count + buckets.iter().sum::<i64>() as u64;
            let length = buckets.len() as u32;
            let mut histogram = Histogram {
                sum: 2.5,
                schema: if is_custom { -53 } else { schema },
                positive_spans: vec![BucketSpan { offset: 1, length }],
                custom_values: if is_custom { vec![0.5, 1.0, 2.0, 4.0, 8.0] } else { vec![] },
                timestamp,
                reset_hint: (timestamp % 5) as i32,
                ..Histogram::default()
            };
            if is_float {
                histogram.count = Some(Count::Float(count as f64));
                histogram.zero_count = Some(ZeroCount::Float(zero_count as f64));
                histogram.positive_counts = buckets.iter().map(|count| *count as f64).collect();
            } else {
                histogram.count = Some(Count::Integer(count));
                histogram.zero_count = Some(ZeroCount::Integer(zero_count));
                let before = std::iter::once(&0).chain(&buckets);
                histogram.positive_deltas =
                    buckets.iter().zip(before).map(|(b, a)| b - a).collect();
            }
            histogram
        },
    )
}

fn histogram() -> impl Strategy<Value = Histogram> {
    prop_oneof![1 => any_histogram(), 3 => sound_histogram()]
}

fn series() -> impl Strategy<Value = TimeSeries> {
    // prost, which always encodes these, omits a negative zero.
    let value = number().prop_map(|value| value + 0.0);
    let exemplar = (proptest::collection::vec(label(), 0..2), value, time())
        .prop_map(|(labels, value, timestamp)| Exemplar { labels, value, timestamp });
    let few = 0..2usize;
    (
        labels(),
        proptest::collection::vec(sample(), 0..4),
        prop_oneof![3 => Just(vec![]), 1 => proptest::collection::vec(exemplar, few.clone())],
        prop_oneof![3 => Just(vec![]), 1 => proptest::collection::vec(histogram(), few)],
    )
        .prop_map(|(labels, samples, exemplars, histograms)| TimeSeries {
            labels,
            samples,
            exemplars,
            histograms,
        })
}

fn request() -> impl Strategy<Value = WriteRequest> {
    let metadata = (0i32..9, text(), text()).prop_map(|(kind, name, help)| MetricMetadata {
        r#type: kind,
        metric_family_name: name,
        help,
        unit: Vec::new(),
    });
    (proptest::collection::vec(series(), 0..5), proptest::collection::vec(metadata, 0..2))
        .prop_map(|(timeseries, metadata)| WriteRequest { timeseries, metadata })
}

/// Rewrites a message in another valid form: fields in another order, repeated texts, unknown
/// fields, padded varints.
struct Scrambler {
    state: u64,
}

impl Scrambler {
    fn next(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) % below
    }

    fn varint(&mut self, out: &mut Vec<u8>, mut value: u64) {
        let padding = if self.next(4) == 0 { self.next(3) } else { 0 };
        let bytes_before = out.len();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        for _ in 0..padding {
            if out.len() - bytes_before < 9 {
                *out.last_mut().unwrap() |= 0x80;
                out.push(0);
            }
        }
    }

    fn field(&mut self, number: u64, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.varint(&mut out, number << 3 | 2);
        self.varint(&mut out, content.len() as u64);
        out.extend_from_slice(content);
        out
    }

    /// Shuffles fields of different numbers; those of one number keep their order.
    fn join(&mut self, mut groups: Vec<Vec<Vec<u8>>>) -> Vec<u8> {
        if self.next(3) == 0 {
            groups.push(vec![self.field(77, b"unknown"), vec![0xe8, 0x04, 0x07]]);
            groups
                .push(vec![vec![0xe9, 0x04, 1, 2, 3, 4, 5, 6, 7, 8], vec![0xed, 0x04, 1, 2, 3, 4]]);
        }
        let mut out = Vec::new();
        while !groups.is_empty() {
            let index = self.next(groups.len() as u64) as usize;
            if groups[index].is_empty() {
                groups.swap_remove(index);
            } else {
                out.extend(groups[index].remove(0));
            }
        }
        out
    }

    fn label(&mut self, label: &Label) -> Vec<u8> {
        let mut texts = |number, text: &[u8]| {
            let mut fields = vec![self.field(number, text)];
            if self.next(4) == 0 {
                fields.insert(0, self.field(number, b"overwritten"));
            }
            if text.is_empty() && self.next(2) == 0 {
                fields.clear();
            }
            fields
        };
        let groups = vec![texts(1, &label.name), texts(2, &label.value)];
        self.join(groups)
    }

    fn sample(&mut self, sample: &Sample) -> Vec<u8> {
        let mut value = vec![0x09];
        value.extend(sample.value.to_bits().to_le_bytes());
        let mut time = Vec::new();
        self.varint(&mut time, 0x10);
        self.varint(&mut time, sample.timestamp as u64);
        self.join(vec![vec![value], vec![time]])
    }

    fn request(&mut self, request: &WriteRequest) -> Vec<u8> {
        let mut groups = vec![Vec::new(), Vec::new()];
        for series in &request.timeseries {
            let mut parts = vec![Vec::new(), Vec::new(), Vec::new(), Vec::new()];
            for label in &series.labels {
                let content = self.label(label);
                parts[0].push(self.field(1, &content));
            }
            for sample in &series.samples {
                let content = self.sample(sample);
                parts[1].push(self.field(2, &content));
            }
            for exemplar in &series.exemplars {
                parts[2].push(self.field(3, &exemplar.encode_to_vec()));
            }
            for histogram in &series.histograms {
                parts[3].push(self.field(4, &histogram.encode_to_vec()));
            }
            let content = self.join(parts);
            groups[0].push(self.field(1, &content));
        }
        for metadata in &request.metadata {
            groups[1].push(self.field(3, &metadata.encode_to_vec()));
        }
        self.join(groups)
    }
}

fn agrees_with_prost(bytes: &[u8]) -> Result<(), TestCaseError> {
    let oracle = WriteRequest::decode(bytes);
    for padding in [0, 3, MESSAGE_PADDING] {
        match (ours(Version::V1, bytes, padding), &oracle) {
            (Ok(reading), Ok(request)) => prop_assert_eq!(reading, theirs(request)),
            (Err(_), Err(_)) => {}
            // prost skips unknown groups.
            (Err(DecodeError::Malformed { error: WireError::Group(_), .. }), Ok(_)) => {}
            (ours, oracle) => prop_assert!(false, "ours {ours:?}\nprost {oracle:?}"),
        }
    }
    Ok(())
}

#[test]
fn labels_of_exemplars_without_a_value_are_dropped_whatever_their_names() {
    let label = |name: &[u8], value: &[u8]| Label { name: name.into(), value: value.into() };
    let labels = vec![label(b"\x80", b""), label(b"trace", b"x")];
    let exemplar = Exemplar { labels, value: 1.0, timestamp: 5 };
    let series = TimeSeries {
        labels: vec![label(b"__name__", b"a")],
        exemplars: vec![exemplar],
        ..TimeSeries::default()
    };
    let request = WriteRequest { timeseries: vec![series], metadata: vec![] };
    let reading = ours(Version::V1, &request.encode_to_vec(), MESSAGE_PADDING).unwrap();
    assert_eq!(reading, theirs(&request));
    assert_eq!(reading.series[0].exemplars.len(), 1);
}

/// Truncates a message, then overwrites bytes of it.
fn damaged(
    mut bytes: Vec<u8>,
    damage: &[(prop::sample::Index, u8)],
    cut: Option<prop::sample::Index>,
) -> Vec<u8> {
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len() + 1));
    }
    if !bytes.is_empty() {
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = *byte;
        }
    }
    bytes
}

proptest! {
    #[test]
    fn requests_decode_as_with_prost(request in request()) {
        let bytes = request.encode_to_vec();
        // prost omits a negative zero.
        let expected = theirs(&WriteRequest::decode(&bytes[..]).unwrap());
        for padding in [0, 1, MESSAGE_PADDING] {
            let reading = ours(Version::V1, &bytes, padding);
            prop_assert_eq!(reading.as_ref(), Ok(&expected));
        }
    }

    #[test]
    fn fields_may_come_in_any_order_and_encoding(request in request(), state in any::<u64>()) {
        let bytes = Scrambler { state }.request(&request);
        prop_assert_eq!(ours(Version::V1, &bytes, MESSAGE_PADDING), Ok(theirs(&request)));
        agrees_with_prost(&bytes)?;
    }

    #[test]
    fn damaged_requests_decode_or_fail_as_with_prost(
        request in request(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let bytes = damaged(request.encode_to_vec(), &damage, cut);
        agrees_with_prost(&bytes)?;
    }

    #[test]
    fn any_bytes_decode_or_fail_as_with_prost(
        bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), 0u8..8, Just(0x0a), Just(0x12), Just(0x09), Just(0x10)], 0..48),
    ) {
        agrees_with_prost(&bytes)?;
    }

    #[test]
    fn compressed_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let limits = Limits { decompressed_bytes_max: 1_000, ..Limits::default() };
        let mut message = Vec::new();
        if let Ok(length) = decompress(&body, &limits, &mut message) {
            prop_assert!(length <= 1_000);
            prop_assert_eq!(message.len(), length + MESSAGE_PADDING);
        }
        prop_assert!(message.capacity() < 10_000);
    }
}

fn request_of(labels: &[(&str, &str)], samples: &[(i64, f64)]) -> WriteRequest {
    WriteRequest::of([(labels, samples)])
}

fn reject_text(request: &WriteRequest) -> String {
    let bytes = request.encode_to_vec();
    let mut batch = Batch::default();
    decode(Version::V1, &bytes, &limits(), &mut batch).unwrap().rejects.to_text()
}

#[test]
fn reject_texts_equal_those_of_prometheus() {
    for (labels, expected) in [
        (&[("job", "a")][..], r#"invalid metric name or labels, got {job="a"}"#),
        (&[], "invalid metric name or labels, got {}"),
        (&[("__name__", "")], r#"invalid metric name or labels, got {__name__=""}"#),
        (
            &[("__name__", "up"), ("", "x")],
            r#"invalid metric name or labels, got {__name__="up", ""="x"}"#,
        ),
        (
            &[("b", "2"), ("__name__", "up"), ("b", "")],
            r#"invalid labels for series, labels {b="2", __name__="up", b=""}, duplicated label b"#,
        ),
    ] {
        assert_eq!(reject_text(&request_of(labels, &[(1, 1.0)])), expected);
    }
}

#[test]
fn labels_are_sorted_and_empty_values_dropped() {
    let sorted = [("__name__", "up"), ("instance", "i"), ("job", "j")];
    let orders: [&[(&str, &str)]; 6] = [
        &sorted,
        &[("job", "j"), ("instance", "i"), ("__name__", "up")],
        &[("instance", "i"), ("__name__", "up"), ("job", "j")],
        &[("__name__", "up"), ("job", "j"), ("instance", "i")],
        &[("__name__", "up"), ("a", ""), ("instance", "i"), ("job", "j"), ("z", "")],
        &[("z", ""), ("job", "j"), ("__name__", "up"), ("instance", "i"), ("a", "")],
    ];
    for labels in orders {
        let request = request_of(labels, &[(1, 1.0)]);
        let second = prompb::v2::Request::of(&request).encode_to_vec();
        for (version, bytes) in [(Version::V1, request.encode_to_vec()), (Version::V2, second)] {
            let reading = ours(version, &bytes, MESSAGE_PADDING).unwrap();
            assert_eq!(reading.rejected, HashMap::new(), "{version:?} {labels:?}");
            let found: Vec<_> = reading.series.iter().map(|series| &series.labels).collect();
            assert_eq!(found, [&Labels::from_pairs(sorted)], "{version:?} {labels:?}");
        }
    }
}

#[test]
fn the_first_reject_of_each_reason_is_an_example() {
    let mut request = request_of(&[("job", "a")], &[(1, 1.0)]);
    let unnamed = request.timeseries[0].clone();
    request.timeseries.resize(40, unnamed);
    let twice = [("__name__", "up"), ("a", "1"), ("a", "2")];
    request.timeseries.extend(request_of(&twice, &[(1, 1.0)]).timeseries);
    let mut batch = Batch::default();
    let bytes = request.encode_to_vec();
    let decoded = decode(Version::V1, &bytes, &limits(), &mut batch).unwrap();
    let examples: Vec<_> = decoded.rejects.examples().collect();
    let duplicated = "invalid labels for series, labels {__name__=\"up\", a=\"1\", a=\"2\"}, \
                      duplicated label a";
    assert_eq!(
        examples,
        [
            (RejectReason::InvalidLabels, "invalid metric name or labels, got {job=\"a\"}"),
            (RejectReason::DuplicateLabel, duplicated),
        ]
    );
    assert!(decoded.rejects.to_text().ends_with("\nand 31 more of this kind"));
}

#[test]
fn reject_texts_name_the_limit() {
    let long = "v".repeat(301);
    let text = reject_text(&request_of(&[("__name__", "up"), ("a", &long)], &[(1, 1.0)]));
    let expected = "label value of 301 bytes is over the limit of 300 \
                    (label_value_bytes_max) for series {__name__=\"up\", a=\"vvv";
    assert!(text.starts_with(expected), "{text}");
    let names: Vec<String> = (0..9).map(|index| format!("l{index}")).collect();
    let labels: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    let text = reject_text(&request_of(&labels, &[(1, 1.0)]));
    let expected = "9 labels are over the limit of 6 (labels_per_series_max) \
                    for series {l0=\"v\"";
    assert!(text.starts_with(expected), "{text}");
    let mut histograms = request_of(&[("__name__", "up")], &[(1, 1.0)]);
    let wrong = Histogram { schema: 1, zero_threshold: 1.0, ..Histogram::default() };
    let wrong = Histogram { positive_deltas: vec![1], ..wrong };
    histograms.timeseries[0].histograms = vec![wrong; 30];
    let text = reject_text(&histograms);
    assert_eq!(text.lines().count(), 11);
    assert!(text.ends_with("\nand 20 more of this kind"), "{text}");
    let line = "positive side: spans need 0 buckets, have 1 buckets: histogram spans specify different \
                number of buckets than provided for series {__name__=\"up\"}";
    assert_eq!(text.lines().next(), Some(line));
}

#[test]
fn malformed_requests_name_series_and_field() {
    let mut bytes = request_of(&[("__name__", "up")], &[(1, 1.0)]).encode_to_vec();
    let second = bytes.len();
    // A second series whose label claims nine bytes of the two that are left.
    bytes.extend([0x0a, 4, 0x0a, 9, 0x0a, 7]);
    let error = ours(Version::V1, &bytes, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "malformed write request at byte {}, timeseries[1].labels: \
             length 9 runs past the end of the message, 2 bytes are left",
            second + 2
        )
    );
}

#[test]
fn requests_over_a_limit_are_rejected_as_a_whole() {
    let bytes = request_of(&[("__name__", "up")], &[(1, 1.0), (2, 2.0)]).encode_to_vec();
    for (limits, name) in [
        (Limits { series_max: 0, ..Limits::default() }, LIMITS.series_max),
        (Limits { samples_max: 1, ..Limits::default() }, LIMITS.samples_max),
        (
            Limits { decompressed_bytes_max: bytes.len() - 1, ..Limits::default() },
            LIMITS.decompressed_bytes_max,
        ),
    ] {
        let mut batch = Batch::default();
        let result = decode(Version::V1, &bytes, &limits, &mut batch);
        let Err(DecodeError::TooLarge { name: found, .. }) = result else {
            panic!("{name}: {result:?}");
        };
        assert_eq!(found, name);
    }
}

#[test]
fn a_declared_length_is_checked_before_it_is_allocated() {
    // Four gibibytes less one, declared by five bytes.
    let body = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00];
    let mut message = Vec::new();
    let error = decompress(&body, &Limits::default(), &mut message).unwrap_err();
    assert!(matches!(error, DecodeError::TooLarge { reached: 0xffff_ffff, .. }), "{error}");
    assert_eq!(message.capacity(), 0);
    let empty = decompress(&[], &Limits::default(), &mut message);
    assert_eq!(empty, Err(DecodeError::Snappy(snap::Error::Empty)));
}

#[test]
fn results_do_not_depend_on_earlier_requests() {
    let (mut decoder, mut batch) = (Decoder::default(), Batch::default());
    let requests = [
        request_of(&[("__name__", "a"), ("long", &"x".repeat(250))], &[(1, 1.0)]),
        request_of(&[("job", "unnamed")], &[(1, 1.0)]),
        request_of(&[("__name__", "b")], &[(5, 2.0), (6, 3.0)]),
    ];
    for request in &requests {
        let bytes = request.encode_to_vec();
        let mut reserve = |_| Ok(());
        let limits = limits();
        decoder
            .decode(Version::V1, &bytes, bytes.len(), &limits, &mut reserve, &mut batch)
            .unwrap();
    }
    assert_eq!(batch.series.len(), 1);
    assert_eq!(batch.labels(0).to_string(), r#"{__name__="b"}"#);
    assert_eq!(batch.timestamps, [5, 6]);
    assert_eq!(batch.labels_arena.len(), batch.labels_bytes(0).len());
}
