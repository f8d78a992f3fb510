//! The decoder of version 2 against its twin.

use super::*;
use model::RejectReason;
use testkit::prompb::v2::{Metadata, Request, SymbolTable};

/// The naive twin of `writeV2`.
fn theirs_v2(request: &Request) -> Reading {
    let mut reading = Reading::default();
    let symbols = &request.symbols;
    let mut sent = HashMap::new();
    for series in &request.timeseries {
        let mut exemplars = Vec::new();
        let mut faulty = 0;
        let mut dropped = 0;
        for exemplar in &series.exemplars {
            let labels = lookup(symbols, &exemplar.labels_refs);
            match labels.as_deref().map(naive_exemplar_labels) {
                None => faulty += 1,
                Some(None) => dropped += 1,
                Some(Some(labels)) => {
                    exemplars.push((labels, exemplar.timestamp, exemplar.value.to_bits()));
                }
            }
        }
        reading.exemplars_dropped += dropped;
        let samples = series.samples.iter();
        let samples: Vec<_> =
            samples.map(|s| (s.timestamp, s.value.to_bits(), s.start_timestamp)).collect();
        let counts = Counts {
            floats: samples.len() as u64,
            histograms: series.histograms.len() as u64,
            exemplars: exemplars.len() as u64 + faulty,
        };
        let metadata = series.metadata.unwrap_or_default();
        let text = |reference: u32| match (reference, symbols.get(reference as usize)) {
            (0, Some(_)) => Some(&[][..]),
            (_, symbol) => symbol.map(Vec::as_slice),
        };
        let labels = lookup(symbols, &series.labels_refs);
        let (Some(labels), Some(help), Some(unit)) =
            (labels, text(metadata.help_ref), text(metadata.unit_ref))
        else {
            reading.reject(RejectReason::Reference, counts);
            continue;
        };
        let labels = match naive_labels(&labels) {
            Ok(labels) => labels,
            Err(reason) => {
                reading.reject(reason, counts);
                continue;
            }
        };
        if counts == Counts::default() {
            reading.reject(RejectReason::Shape, counts);
            continue;
        }
        reading.reject(RejectReason::Reference, Counts { exemplars: faulty, ..Counts::default() });
        let metric = labels.metric_name().to_owned();
        let histograms = series.histograms.iter().cloned();
        let histograms = histograms.map(|sent| {
            let start = sent.start_timestamp;
            (sent.timestamp, start, naive_histogram(&Histogram::from(sent)))
        });
        naive_series(&mut reading, Ok(labels), samples, histograms.collect(), exemplars);
        let is_repeated = sent.insert(metric.clone(), metadata) == Some(metadata);
        let is_kind = (1..=7).contains(&metadata.r#type);
        if !is_repeated && (is_kind || !help.is_empty() || !unit.is_empty()) {
            let is_native = counts.histograms > 0;
            let family = if is_native { &metric } else { family(&metric, metadata.r#type) };
            naive_metadata(&mut reading, family.as_bytes(), metadata.r#type, help, unit);
        }
    }
    reading
}

fn family(metric: &str, kind: i32) -> &str {
    let suffixes: &[&str] = match kind {
        3 => &["_bucket", "_count", "_sum"],
        4 => &["_bucket", "_gcount", "_gsum"],
        5 => &["_count", "_sum"],
        _ => &[],
    };
    for suffix in suffixes {
        if let Some(family) = metric.strip_suffix(suffix) {
            return family;
        }
    }
    metric
}

#[test]
fn metadata_of_a_classic_histogram_are_those_of_its_family() {
    let mut table = SymbolTable::default();
    let labels_refs = vec![table.add(b"__name__"), table.add(b"x_bucket")];
    let metadata = Some(Metadata { r#type: 3, help_ref: table.add(b"help"), unit_ref: 0 });
    let base = prompb::v2::TimeSeries { labels_refs, metadata, ..Default::default() };
    let float = prompb::v2::Sample { value: 1.0, timestamp: 1, start_timestamp: 0 };
    let exemplar = prompb::v2::Exemplar { labels_refs: vec![], value: 1.0, timestamp: 1 };
    let with_float = prompb::v2::TimeSeries { samples: vec![float], ..base.clone() };
    let with_exemplar = prompb::v2::TimeSeries { exemplars: vec![exemplar], ..base.clone() };
    let histograms = vec![Default::default()];
    let with_histogram = prompb::v2::TimeSeries { histograms, ..base };
    for (series, metric) in [(with_float, "x"), (with_exemplar, "x"), (with_histogram, "x_bucket")]
    {
        let request = Request { symbols: table.symbols.clone(), timeseries: vec![series] };
        let reading = ours(Version::V2, &request.encode_to_vec(), 0).unwrap();
        let metrics: Vec<_> = reading.metadata.iter().map(|m| m.metric.as_str()).collect();
        assert_eq!(metrics, [metric]);
    }
}

#[test]
fn the_first_symbol_may_be_any_text() {
    let symbols = [&b"__name__"[..], b"up", b"job", b"a"].map(<[u8]>::to_vec).to_vec();
    let sample = prompb::v2::Sample { value: 1.0, timestamp: 1, start_timestamp: 0 };
    let metadata = Some(Metadata { r#type: 1, help_ref: 0, unit_ref: 0 });
    let series = prompb::v2::TimeSeries {
        labels_refs: vec![2, 3, 0, 1],
        samples: vec![sample],
        metadata,
        ..Default::default()
    };
    let request = Request { symbols, timeseries: vec![series] };
    let reading = ours(Version::V2, &request.encode_to_vec(), 0).unwrap();
    assert_eq!(reading.rejected, HashMap::new());
    assert_eq!(reading.series[0].labels.to_string(), r#"{__name__="up", job="a"}"#);
    let described: Vec<_> = reading.metadata.iter().map(|m| (&*m.metric, &*m.help)).collect();
    assert_eq!(described, [("up", "")]);
}

#[test]
fn a_series_may_have_both_floats_and_histograms() {
    let mut request = Request::of(&request_of(&[("__name__", "up")], &[(1, 1.0)]));
    let histogram = prompb::v2::Histogram { timestamp: 2, ..Default::default() };
    request.timeseries[0].histograms.push(histogram);
    let reading = ours(Version::V2, &request.encode_to_vec(), 0).unwrap();
    assert_eq!(reading.rejected, HashMap::new());
    assert_eq!((reading.series[0].samples.len(), reading.series[0].histograms.len()), (1, 1));
}

/// Looks up labels by their references; of too many only the first.
fn lookup(symbols: &[Vec<u8>], refs: &[u32]) -> Option<Vec<Label>> {
    if !refs.len().is_multiple_of(2) {
        return None;
    }
    let text = |reference: u32| symbols.get(reference as usize).cloned();
    let pair = |(index, pair): (usize, &[u32])| match (text(pair[0]), text(pair[1])) {
        _ if index > limits().labels_per_series_max => Some(Label::default()),
        (Some(name), Some(value)) => Some(Label { name, value }),
        _ => None,
    };
    refs.chunks(2).enumerate().map(pair).collect()
}

/// A request as senders make it, with start timestamps and metadata.
fn request_v2() -> impl Strategy<Value = Request> {
    let metadata = (-1i32..9, text(), text());
    let extra = (metadata, proptest::option::of(time()), 0u8..4);
    let first_symbol = prop_oneof![4 => Just(Vec::new()), 1 => text()];
    let extras = proptest::collection::vec(extra, 5);
    (request(), extras, first_symbol).prop_map(|(request, extras, first_symbol)| {
        let mut made = Request::of(&request);
        let mut table = SymbolTable::default();
        for symbol in &made.symbols {
            table.add(symbol);
        }
        for (series, ((kind, help, unit), start, chance)) in made.timeseries.iter_mut().zip(extras)
        {
            let (help_ref, unit_ref) = (table.add(&help), table.add(&unit));
            if chance > 0 {
                series.metadata = Some(Metadata { r#type: kind, help_ref, unit_ref });
            }
            if chance > 1 {
                series.histograms.clear();
            }
            for sample in &mut series.samples {
                sample.start_timestamp = start.unwrap_or(0);
            }
            for histogram in &mut series.histograms {
                histogram.start_timestamp = start.unwrap_or(0);
            }
        }
        made.symbols = table.symbols;
        made.symbols[0] = first_symbol;
        made
    })
}

fn agrees_with_prost_v2(bytes: &[u8]) -> Result<(), TestCaseError> {
    let oracle = Request::decode(bytes);
    for padding in [0, 3, MESSAGE_PADDING] {
        match (ours(Version::V2, bytes, padding), &oracle) {
            (Ok(reading), Ok(request)) => prop_assert_eq!(reading, theirs_v2(request)),
            (Err(_), Err(_)) => {}
            // prost skips unknown groups.
            (Err(DecodeError::Malformed { error: WireError::Group(_), .. }), Ok(_)) => {}
            (ours, oracle) => prop_assert!(false, "ours {ours:?}\nprost {oracle:?}"),
        }
    }
    Ok(())
}

impl Scrambler {
    fn refs(&mut self, refs: &[u32]) -> Vec<Vec<u8>> {
        let mut fields = Vec::new();
        let mut rest = refs;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + self.next(rest.len() as u64) as usize);
            rest = later;
            let mut packed = Vec::new();
            for reference in now {
                self.varint(&mut packed, u64::from(*reference));
            }
            match now {
                [_] if self.next(2) == 0 => {
                    let mut single = vec![0x08];
                    single.extend(packed);
                    fields.push(single);
                }
                _ => fields.push(self.field(1, &packed)),
            }
        }
        fields
    }

    fn request_v2(&mut self, request: &Request) -> Vec<u8> {
        let mut groups = vec![Vec::new(), Vec::new()];
        for symbol in &request.symbols {
            groups[0].push(self.field(4, symbol));
        }
        for series in &request.timeseries {
            let mut parts = vec![self.refs(&series.labels_refs)];
            let mut samples = Vec::new();
            for sample in &series.samples {
                let mut value = vec![0x09];
                value.extend(sample.value.to_bits().to_le_bytes());
                let (mut time, mut start) = (Vec::new(), Vec::new());
                self.varint(&mut time, 0x10);
                self.varint(&mut time, sample.timestamp as u64);
                self.varint(&mut start, 0x18);
                self.varint(&mut start, sample.start_timestamp as u64);
                let content = self.join(vec![vec![value], vec![time], vec![start]]);
                samples.push(self.field(2, &content));
            }
            parts.push(samples);
            let histograms = series.histograms.iter().map(Message::encode_to_vec);
            parts.push(histograms.map(|content| self.field(3, &content)).collect());
            let exemplars = series.exemplars.iter().map(Message::encode_to_vec);
            parts.push(exemplars.map(|content| self.field(4, &content)).collect());
            let metadata = series.metadata.iter().map(Message::encode_to_vec);
            parts.push(metadata.map(|content| self.field(5, &content)).collect());
            let content = self.join(parts);
            groups[1].push(self.field(5, &content));
        }
        self.join(groups)
    }
}

proptest! {
    #[test]
    fn requests_decode_as_with_prost(request in request_v2()) {
        let bytes = request.encode_to_vec();
        // prost omits a negative zero.
        let expected = theirs_v2(&Request::decode(&bytes[..]).unwrap());
        for padding in [0, 1, MESSAGE_PADDING] {
            let reading = ours(Version::V2, &bytes, padding);
            prop_assert_eq!(reading.as_ref(), Ok(&expected));
        }
    }

    #[test]
    fn symbols_may_stand_anywhere(request in request_v2(), state in any::<u64>()) {
        let bytes = Scrambler { state }.request_v2(&request);
        prop_assert_eq!(ours(Version::V2, &bytes, MESSAGE_PADDING), Ok(theirs_v2(&request)));
        agrees_with_prost_v2(&bytes)?;
    }

    #[test]
    fn references_may_lead_anywhere(
        request in request_v2(),
        wrong in proptest::collection::vec((any::<prop::sample::Index>(), 0u32..40), 1..6),
        odd in any::<bool>(),
    ) {
        let mut request = request;
        for (index, reference) in wrong {
            let count = request.timeseries.len();
            if count == 0 {
                continue;
            }
            let series = &mut request.timeseries[index.index(count)];
            match (reference % 4, &mut series.metadata, series.exemplars.first_mut()) {
                (0, Some(metadata), _) => metadata.help_ref = reference,
                (1, Some(metadata), _) => metadata.unit_ref = reference,
                (2, _, Some(exemplar)) => exemplar.labels_refs.push(reference),
                _ => {
                    let at = index.index(series.labels_refs.len().max(1));
                    match series.labels_refs.get_mut(at) {
                        Some(known) => *known = reference,
                        None => series.labels_refs.push(reference),
                    }
                    if odd {
                        series.labels_refs.pop();
                    }
                }
            }
        }
        agrees_with_prost_v2(&request.encode_to_vec())?;
    }

    #[test]
    fn damaged_requests_decode_or_fail_as_with_prost(
        request in request_v2(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let bytes = damaged(request.encode_to_vec(), &damage, cut);
        agrees_with_prost_v2(&bytes)?;
    }

    #[test]
    fn any_bytes_decode_or_fail_as_with_prost(
        bytes in proptest::collection::vec(
            prop_oneof![any::<u8>(), 0u8..8, Just(0x22), Just(0x2a), Just(0x0a), Just(0x12)], 0..48),
    ) {
        agrees_with_prost_v2(&bytes)?;
    }
}
