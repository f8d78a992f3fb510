//! Requests as prost writes them, answers as prost and a naive reader of chunks read them.

use std::sync::Arc;

use model::histogram::CUSTOM_BUCKETS_SCHEMA;
use model::{Histogram, Labels, MatchOp, ResetHint, Span};
use proptest::prelude::*;
use prost::Message;

use super::*;

#[derive(Clone, PartialEq, Message)]
struct ReadRequestMessage {
    #[prost(message, repeated, tag = "1")]
    queries: Vec<QueryMessage>,
    #[prost(int32, repeated, tag = "2")]
    accepted: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryMessage {
    #[prost(int64, tag = "1")]
    start: i64,
    #[prost(int64, tag = "2")]
    end: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<MatcherMessage>,
    #[prost(message, optional, tag = "4")]
    hints: Option<HintsMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct MatcherMessage {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct HintsMessage {
    #[prost(int64, tag = "1")]
    step: i64,
    #[prost(string, tag = "2")]
    function: String,
    #[prost(int64, tag = "3")]
    start: i64,
    #[prost(int64, tag = "4")]
    end: i64,
    #[prost(string, repeated, tag = "5")]
    grouping: Vec<String>,
    #[prost(bool, tag = "6")]
    by: bool,
    #[prost(int64, tag = "7")]
    range: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ReadResponse {
    #[prost(message, repeated, tag = "1")]
    results: Vec<QueryResult>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryResult {
    #[prost(message, repeated, tag = "1")]
    series: Vec<testkit::prompb::TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkedReadResponse {
    #[prost(message, repeated, tag = "1")]
    series: Vec<ChunkedSeries>,
    #[prost(int64, tag = "2")]
    query_index: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkedSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<testkit::prompb::Label>,
    #[prost(message, repeated, tag = "2")]
    chunks: Vec<ChunkMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkMessage {
    #[prost(int64, tag = "1")]
    min: i64,
    #[prost(int64, tag = "2")]
    max: i64,
    #[prost(int32, tag = "3")]
    encoding: i32,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

const LIMITS: ReadLimits =
    ReadLimits { message_bytes_max: 1 << 20, queries_max: 3, matchers_max: 5 };

fn matcher(kind: i32, name: &str, value: &str) -> MatcherMessage {
    MatcherMessage { kind, name: name.into(), value: value.into() }
}

fn decode(message: &ReadRequestMessage) -> Result<ReadRequest, ReadError> {
    let body = snap::raw::Encoder::new().compress_vec(&message.encode_to_vec()).unwrap();
    ReadRequest::decode(&body, &LIMITS)
}

#[test]
fn requests_are_read_as_prost_writes_them() {
    let hints = HintsMessage {
        step: 15_000,
        function: "rate".to_owned(),
        start: -5,
        end: 70,
        grouping: vec!["a".to_owned()],
        by: true,
        range: 60,
    };
    let first = QueryMessage {
        start: -7,
        end: i64::MAX,
        matchers: (0..4).map(|kind| matcher(kind, "name", "välue")).collect(),
        hints: Some(hints),
    };
    let message = ReadRequestMessage {
        queries: vec![first, QueryMessage::default()],
        accepted: vec![7, 1, 0],
    };
    let request = decode(&message).unwrap();
    assert_eq!(request.response, ResponseType::StreamedXorChunks);
    let [first, second] = &request.queries[..] else { panic!("two queries") };
    assert_eq!((first.start_ms, first.end_ms), (-7, i64::MAX));
    let ops: Vec<_> = first.matchers.iter().map(|m| m.op).collect();
    use MatchOp::{Equal, NotEqual, NotRegex, Regex};
    assert_eq!(ops, [Equal, NotEqual, Regex, NotRegex]);
    assert!(first.matchers.iter().all(|m| m.name == "name" && m.value == "välue"));
    let hints = ReadHints { start_ms: -5, end_ms: 70, function: "rate".to_owned() };
    assert_eq!(first.hints, Some(hints));
    assert_eq!(*second, ReadQuery::default());
    let of = |accepted| decode(&ReadRequestMessage { accepted, ..Default::default() });
    assert_eq!(of(vec![]).unwrap().response, ResponseType::Samples);
    assert_eq!(of(vec![0, 1]).unwrap().response, ResponseType::Samples);
    assert_eq!(of(vec![5]), Err(ReadError::NoResponseType(vec![5])));
}

#[test]
fn what_is_no_request_is_refused() {
    let too_large =
        |what, limit, reached| Err::<ReadRequest, _>(ReadError::TooLarge { what, limit, reached });
    let queries = |count: usize, matchers: usize| {
        let query = QueryMessage {
            matchers: vec![matcher(0, "a", "b"); matchers],
            ..QueryMessage::default()
        };
        decode(&ReadRequestMessage { queries: vec![query; count], accepted: vec![] })
    };
    assert!(queries(3, 1).is_ok());
    assert_eq!(queries(4, 0), too_large("queries", 3, 4));
    assert_eq!(queries(2, 3), too_large("matchers", 5, 6));
    let one = |matcher| {
        let query = QueryMessage { matchers: vec![matcher], ..QueryMessage::default() };
        decode(&ReadRequestMessage { queries: vec![query], accepted: vec![] })
    };
    assert_eq!(one(matcher(4, "a", "b")), Err(ReadError::MatcherType(4)));
    let bad = MatcherMessage { value: vec![0xff], ..matcher(0, "a", "") };
    assert_eq!(one(bad), Err(ReadError::NotUtf8));
    assert!(matches!(ReadRequest::decode(b"", &LIMITS), Err(ReadError::Snappy(_))));
    assert!(matches!(ReadRequest::decode(b"\x05abc", &LIMITS), Err(ReadError::Snappy(_))));
    let body = snap::raw::Encoder::new().compress_vec(&[0x0a, 0x05, 1]).unwrap();
    assert!(matches!(ReadRequest::decode(&body, &LIMITS), Err(ReadError::Malformed(_))));
    let claims = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    assert_eq!(
        ReadRequest::decode(&claims, &LIMITS),
        too_large("bytes", 1 << 20, u32::MAX as usize)
    );
}

/// A reader of bits that is as simple as can be.
struct NaiveBits<'a>(&'a [u8], usize);

impl NaiveBits<'_> {
    fn bit(&mut self) -> u64 {
        let bit = self.0[self.1 / 8] >> (7 - self.1 % 8) & 1;
        self.1 += 1;
        u64::from(bit)
    }

    fn bits(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |bits, _| bits << 1 | self.bit())
    }

    /// A number of so many bits whose largest is half of what they hold.
    fn signed(&mut self, count: u32) -> i64 {
        let bits = self.bits(count);
        if count < 64 && bits > 1 << (count - 1) { bits as i64 - (1 << count) } else { bits as i64 }
    }

    fn varint(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.bits(8);
            number |= (byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn ones(&mut self, max: u32) -> u32 {
        (0..max).take_while(|_| self.bit() == 1).count() as u32
    }

    fn varbit_bits(&mut self) -> u32 {
        [0, 3, 6, 9, 12, 18, 25, 56, 64][self.ones(8) as usize]
    }

    fn varbit(&mut self) -> i64 {
        match self.varbit_bits() {
            0 => 0,
            bits => self.signed(bits),
        }
    }

    fn varbit_unsigned(&mut self) -> u64 {
        let bits = self.varbit_bits();
        self.bits(bits)
    }

    fn xor(&mut self, before: &mut (u64, u32, u32)) -> f64 {
        if self.bit() == 1 {
            if self.bit() == 1 {
                before.1 = self.bits(5) as u32;
                let significant = match self.bits(6) as u32 {
                    0 => 64,
                    bits => bits,
                };
                before.2 = 64 - before.1 - significant;
            }
            before.0 ^= self.bits(64 - before.1 - before.2) << before.2;
        }
        f64::from_bits(before.0)
    }

    fn zero_threshold(&mut self) -> f64 {
        match self.bits(8) {
            0 => 0.0,
            255 => f64::from_bits(self.bits(64)),
            power => 2.0_f64.powi(power as i32 - 244),
        }
    }

    fn spans(&mut self) -> Vec<Span> {
        let count = self.varbit_unsigned();
        let one = |_| {
            let length = self.varbit_unsigned() as u32;
            Span { length, offset: self.varbit() as i32 }
        };
        (0..count).map(one).collect()
    }

    fn custom_bounds(&mut self) -> Vec<f64> {
        let count = self.varbit_unsigned();
        let one = |_| match self.varbit_unsigned() {
            0 => f64::from_bits(self.bits(64)),
            bound => (bound - 1) as f64 / 1000.0,
        };
        (0..count).map(one).collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Sample {
    Float(u64),
    Histogram(Histogram),
}

fn read_floats(data: &[u8]) -> Vec<(i64, Sample)> {
    let count = u16::from_be_bytes([data[0], data[1]]);
    let mut bits = NaiveBits(&data[2..], 0);
    let (mut time, mut delta, mut value) = (0_i64, 0_i64, (0, 0, 0));
    let mut samples = Vec::new();
    for index in 0..count {
        match index {
            0 => {
                let number = bits.varint();
                time = (number >> 1) as i64 ^ -((number & 1) as i64);
                value.0 = bits.bits(64);
            }
            1 => {
                delta = bits.varint() as i64;
                time += delta;
            }
            _ => {
                delta += match bits.ones(4) {
                    0 => 0,
                    ones => bits.signed([14, 17, 20, 64][ones as usize - 1]),
                };
                time += delta;
            }
        }
        let value = if index == 0 { f64::from_bits(value.0) } else { bits.xor(&mut value) };
        samples.push((time, Sample::Float(value.to_bits())));
    }
    samples
}

/// Of whole numbers, or of floats.
fn read_histograms(data: &[u8], is_whole: bool) -> Vec<(i64, Sample)> {
    let count = u16::from_be_bytes([data[0], data[1]]);
    let hints = [ResetHint::Unknown, ResetHint::NotReset, ResetHint::Reset, ResetHint::Gauge];
    let first_hint = hints[usize::from(data[2] >> 6)];
    let mut bits = NaiveBits(&data[3..], 0);
    let zero_threshold = bits.zero_threshold();
    let schema = bits.varbit() as i8;
    let (positive_spans, negative_spans) = (bits.spans(), bits.spans());
    let bounds = if schema == CUSTOM_BUCKETS_SCHEMA { bits.custom_bounds() } else { vec![] };
    let buckets = |spans: &[Span]| spans.iter().map(|s| s.length as usize).sum::<usize>();
    let (positive, negative) = (buckets(&positive_spans), buckets(&negative_spans));
    let (mut time, mut delta) = (0, 0);
    let mut whole = vec![(0_i64, 0_i64); 2 + positive + negative];
    let mut floats = vec![(0_u64, 0, 0); 3 + positive + negative];
    let mut samples = Vec::new();
    for index in 0..count {
        if index == 0 {
            time = bits.varbit();
        } else {
            delta += bits.varbit();
            time += delta;
        }
        let mut column = |bits: &mut NaiveBits<'_>, column: usize| {
            let (value, growth) = &mut whole[column];
            if index == 0 {
                *value = if column < 2 { bits.varbit_unsigned() as i64 } else { bits.varbit() };
            } else {
                *growth += bits.varbit();
                *value += *growth;
            }
            *value
        };
        let mut float = |bits: &mut NaiveBits<'_>, column: usize| {
            if index == 0 {
                floats[column].0 = bits.bits(64);
                return f64::from_bits(floats[column].0);
            }
            bits.xor(&mut floats[column])
        };
        let mut histogram = Histogram {
            reset_hint: match first_hint {
                ResetHint::Gauge => ResetHint::Gauge,
                hint if index == 0 => hint,
                _ => ResetHint::NotReset,
            },
            schema,
            zero_threshold,
            positive_spans: positive_spans.clone(),
            negative_spans: negative_spans.clone(),
            custom_bounds: Arc::from(&bounds[..]),
            ..Histogram::default()
        };
        if is_whole {
            histogram.count = column(&mut bits, 0) as f64;
            histogram.zero_count = column(&mut bits, 1) as f64;
            histogram.sum = float(&mut bits, 2);
            let mut side = |from: usize, count: usize| {
                let mut sum = 0;
                let mut next = |at| {
                    sum += column(&mut bits, 2 + from + at);
                    sum as f64
                };
                (0..count).map(&mut next).collect::<Vec<_>>()
            };
            histogram.positive_counts = side(0, positive);
            histogram.negative_counts = side(positive, negative);
        } else {
            histogram.count = float(&mut bits, 0);
            histogram.zero_count = float(&mut bits, 1);
            histogram.sum = float(&mut bits, 2);
            let mut side = |from: usize, count: usize| {
                (0..count).map(|at| float(&mut bits, 3 + from + at)).collect::<Vec<_>>()
            };
            histogram.positive_counts = side(0, positive);
            histogram.negative_counts = side(positive, negative);
        }
        samples.push((time, Sample::Histogram(histogram)));
    }
    samples
}

fn encode(samples: &[(i64, Sample)]) -> Vec<EncodedChunk> {
    let mut encoder = ChunkEncoder::default();
    let mut chunks = Vec::new();
    for (time_ms, sample) in samples {
        let sample = match sample {
            Sample::Float(bits) => ReadSample::Float(f64::from_bits(*bits)),
            Sample::Histogram(histogram) => ReadSample::Histogram(histogram),
        };
        chunks.extend(encoder.push(*time_ms, sample));
    }
    chunks.extend(encoder.finish());
    chunks
}

fn read(chunks: &[EncodedChunk]) -> Vec<(i64, Sample)> {
    let one = |chunk: &EncodedChunk| {
        let samples = match chunk.encoding {
            ChunkEncoding::Xor => read_floats(&chunk.data),
            ChunkEncoding::Histogram => read_histograms(&chunk.data, true),
            ChunkEncoding::FloatHistogram => read_histograms(&chunk.data, false),
        };
        assert!(samples.len() <= 120);
        assert_eq!((samples[0].0, samples[samples.len() - 1].0), (chunk.min_ms, chunk.max_ms));
        samples
    };
    chunks.iter().flat_map(one).collect()
}

fn histogram(number: u64, layout: u8, is_whole: bool, hint: ResetHint) -> Histogram {
    let fraction = if is_whole { 0.0 } else { 0.25 };
    let count = |at: u64| (number * (at + 1)) as f64 + fraction;
    let mut histogram = Histogram {
        reset_hint: hint,
        schema: layout as i8 - 2,
        zero_threshold: [0.0, 1e-3, 0.5, 2.0_f64.powi(-128)][usize::from(layout % 4)],
        zero_count: count(1),
        count: count(9),
        sum: number as f64 * 0.3,
        positive_spans: vec![Span { offset: -3, length: 2 }, Span { offset: 400, length: 1 }],
        negative_spans: vec![Span { offset: i32::from(layout), length: 2 }],
        positive_counts: vec![count(2), count(0), count(3)],
        negative_counts: vec![count(7), 0.0],
        custom_bounds: Arc::from([]),
    };
    if layout == 0 {
        histogram.schema = CUSTOM_BUCKETS_SCHEMA;
        histogram.custom_bounds = Arc::from([-1.5, 0.001, 0.1, 33_554.43, 33_554.431, 1e9]);
        (histogram.negative_spans, histogram.negative_counts) = (vec![], vec![]);
        (histogram.zero_threshold, histogram.zero_count) = (0.0, 0.0);
    }
    histogram
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let float = prop_oneof![
        any::<u64>().prop_map(Sample::Float),
        (0..50_u32).prop_map(|value| Sample::Float(f64::from(value).to_bits())),
        Just(Sample::Float(model::STALE_NAN_BITS)),
    ];
    let hint = prop_oneof![
        5 => Just(ResetHint::NotReset),
        1 => Just(ResetHint::Unknown),
        1 => Just(ResetHint::Reset),
        2 => Just(ResetHint::Gauge)
    ];
    let native = (0..1_u64 << 40, 0..3_u8, prop::bool::weighted(0.7), hint).prop_map(
        |(number, layout, whole, hint)| Sample::Histogram(histogram(number, layout, whole, hint)),
    );
    let stale = Just(Sample::Histogram(Histogram::stale()));
    prop_oneof![10 => float, 10 => native, 1 => stale]
}

proptest! {
    #[test]
    fn chunks_are_read_back_to_the_bit(
        start in -1_i64 << 50..1 << 50,
        steps in prop::collection::vec(
            (prop_oneof![
                Just(15_000_i64), 1..100_i64, 1..1_i64 << 20, 1..1_i64 << 45
            ], any_sample(), 1..20_usize),
            1..30,
        ),
    ) {
        let mut time = start;
        let mut samples = Vec::new();
        for (step, sample, times) in steps {
            // Runs of one kind, so that chunks have more than one sample.
            for index in 0..times {
                time += step;
                let sample = match &sample {
                    Sample::Float(bits) => Sample::Float(bits ^ (index as u64) << 30),
                    Sample::Histogram(h) if h.is_stale() => sample.clone(),
                    Sample::Histogram(h) => {
                        let mut h = h.clone();
                        h.count += index as f64;
                        h.positive_counts[0] += index as f64;
                        h.sum *= 1.5;
                        Sample::Histogram(h)
                    }
                };
                samples.push((time, sample));
            }
        }
        prop_assert_eq!(read(&encode(&samples)), samples);
    }
}

#[test]
fn chunks_are_as_long_as_those_of_prometheus() {
    let floats: Vec<_> =
        (0..300).map(|i| (i * 15_000, Sample::Float((i as f64).to_bits()))).collect();
    let counts: Vec<_> =
        encode(&floats).iter().map(|chunk| read_floats(&chunk.data).len()).collect();
    assert_eq!(counts, [120, 120, 60]);
    // A histogram that only grows stays in a chunk of whole numbers, which tells of no reset.
    let grown = |i: u64| Sample::Histogram(histogram(i, 1, true, ResetHint::NotReset));
    let growing: Vec<_> = (1..100).map(|i| (i as i64 * 15_000, grown(i))).collect();
    let chunks = encode(&growing);
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].encoding, ChunkEncoding::Histogram);
    assert!(chunks[0].data.len() < 99 * 16, "{}", chunks[0].data.len());
    // What a reset begins has a chunk of its own, and so has what lacks a bucket.
    let mut cut = growing;
    if let Sample::Histogram(h) = &mut cut[50].1 {
        h.reset_hint = ResetHint::Reset;
    }
    assert_eq!(encode(&cut).len(), 2);
}

#[test]
fn samples_are_what_prost_reads() {
    let labels = Labels::from_pairs([("__name__", "up"), ("job", "ä")]);
    let mut series = SeriesEncoder::default();
    series.begin(&labels);
    series.push_float(-5, -0.0);
    series.push_float(0, 0.0);
    series.push_histogram(7, &histogram(3, 1, true, ResetHint::Gauge));
    series.push_histogram(8, &histogram(3, 0, false, ResetHint::NotReset));
    let mut encoder = ResultEncoder::default();
    encoder.end_query();
    encoder.push_series(&series);
    encoder.end_query();
    let message = snap::raw::Decoder::new().decompress_vec(&encoder.compress().unwrap()).unwrap();
    let read = ReadResponse::decode(&message[..]).unwrap();
    assert_eq!(read.results.len(), 2);
    assert!(read.results[0].series.is_empty());
    let [series] = &read.results[1].series[..] else { panic!("one series") };
    let names: Vec<_> = series.labels.iter().map(|l| (&l.name[..], &l.value[..])).collect();
    assert_eq!(names, [(&b"__name__"[..], &b"up"[..]), (b"job", "ä".as_bytes())]);
    let floats: Vec<_> = series.samples.iter().map(|s| (s.timestamp, s.value.to_bits())).collect();
    assert_eq!(floats, [(-5, (-0.0_f64).to_bits()), (0, 0)]);
    let [whole, float] = &series.histograms[..] else { panic!("two histograms") };
    use testkit::prompb::{Count, ZeroCount};
    assert_eq!((whole.timestamp, whole.schema, whole.reset_hint), (7, -1, 3));
    assert_eq!(
        (whole.count, whole.zero_count),
        (Some(Count::Integer(30)), Some(ZeroCount::Integer(6)))
    );
    assert_eq!(whole.positive_deltas, [9, -6, 9]);
    assert_eq!(whole.negative_deltas, [24, -24]);
    assert!(whole.positive_counts.is_empty() && whole.custom_values.is_empty());
    let spans: Vec<_> = whole.positive_spans.iter().map(|s| (s.offset, s.length)).collect();
    assert_eq!(spans, [(-3, 2), (400, 1)]);
    assert_eq!((float.timestamp, float.schema, float.reset_hint), (8, -53, 2));
    assert_eq!(
        (float.count, float.zero_count),
        (Some(Count::Float(30.25)), Some(ZeroCount::Float(0.0)))
    );
    assert_eq!(float.positive_counts, [9.25, 3.25, 12.25]);
    assert_eq!(float.custom_values.len(), 6);
}

/// The frames of a stream, whose checksums hold.
fn frames(mut bytes: &[u8]) -> Vec<ChunkedReadResponse> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = prost::decode_length_delimiter(&mut bytes).unwrap();
        let (crc, rest) = bytes.split_first_chunk::<4>().unwrap();
        let (frame, rest) = rest.split_at(length);
        assert_eq!(u32::from_be_bytes(*crc), crc32c::crc32c(frame));
        frames.push(ChunkedReadResponse::decode(frame).unwrap());
        bytes = rest;
    }
    frames
}

/// Bits of which each differs from those before as often as not.
fn scattered(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn frames_hold_one_series_and_end_near_their_bound() {
    let labels = |job: &str| Labels::from_pairs([("__name__", "up"), ("job", job)]);
    let floats: Vec<_> = (0..1200_i64).map(|i| (i, Sample::Float(scattered(i as u64)))).collect();
    let chunks = encode(&floats);
    let chunk_bytes = chunks[1].data.len();
    let mut out = Vec::new();
    let mut encoder = FrameEncoder::new(2, 3 * chunk_bytes);
    for job in ["a", "b"] {
        encoder.begin(&labels(job));
        for chunk in &chunks {
            encoder.push(chunk, &mut out);
        }
        encoder.end(&mut out);
    }
    encoder.begin(&labels("c"));
    encoder.end(&mut out);
    encoder.push_labels_alone(&mut out);
    let frames = frames(&out);
    for (index, job) in ["a", "b"].into_iter().enumerate() {
        let of: Vec<_> =
            frames.iter().filter(|f| f.series[0].labels[1].value == job.as_bytes()).collect();
        assert_eq!(of.len(), 4);
        assert!(of.iter().all(|f| f.series.len() == 1 && f.query_index == 2));
        assert!(of[..3].iter().all(|f| f.series[0].chunks.len() == 3), "{index}");
        let data = of.iter().flat_map(|f| &f.series[0].chunks);
        let read: Vec<_> = data.flat_map(|chunk| read_floats(&chunk.data)).collect();
        assert_eq!(read, floats);
    }
    let last = frames.last().unwrap();
    assert_eq!((&last.series[0].labels[1].value[..], last.series[0].chunks.len()), (&b"c"[..], 0));
    assert_eq!(frames.len(), 9);
}
