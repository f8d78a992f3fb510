//! Hostile requests: each ends in a result or a named error, within bounds of memory.

use super::*;
use testkit::prompb::v2::{self, Request, SymbolTable};

/// Maximum capacity of a batch in samples: the limit, rounded up by doubling.
const SAMPLES_HELD_MAX: usize = 2 * 1_000_000;

/// Size of a batch on the heap.
const BATCH_BYTES_MAX: usize = 200 << 20;

fn heap_bytes(batch: &Batch) -> usize {
    let histograms = batch.histograms.iter().map(|sample| sample.histogram.heap_bytes());
    // Shared bounds mostly occur once.
    let mut bounds: Vec<_> = batch.histograms.iter().map(|h| &h.histogram.custom_bounds).collect();
    bounds.dedup_by(|left, right| std::sync::Arc::ptr_eq(left, right));
    let bounds = bounds.into_iter();
    batch.labels_arena.capacity()
        + 16 * batch.timestamps.capacity()
        + 8 * batch.starts.capacity()
        + 24 * batch.series.capacity()
        + histograms.sum::<usize>()
        + bounds.map(|bounds| size_of_val(&**bounds)).sum::<usize>()
        + batch.exemplars.capacity() * size_of::<model::BatchExemplar>()
        + batch.metadata.capacity() * size_of::<BatchMetadata>()
}

/// Decodes with the limits of the server, and counts the grants.
fn check(version: Version, bytes: &[u8]) -> Result<(Batch, Decoded, usize), DecodeError> {
    let (mut decoder, mut batch) = (Decoder::default(), Batch::default());
    let mut granted = bytes.len();
    let mut reserve = |more| {
        granted += more;
        Ok(())
    };
    let limits = Limits::default();
    let result = decoder.decode(version, bytes, bytes.len(), &limits, &mut reserve, &mut batch);
    assert!(heap_bytes(&batch) < BATCH_BYTES_MAX, "{} bytes", heap_bytes(&batch));
    assert!(decoder.heap_bytes() < BATCH_BYTES_MAX, "{} bytes", decoder.heap_bytes());
    for capacity in [&batch.timestamps, &batch.starts].map(Vec::capacity) {
        assert!(capacity <= SAMPLES_HELD_MAX, "{capacity} samples");
    }
    assert!(granted <= 4 * limits.decompressed_bytes_max);
    result.map(|decoded| (batch, decoded, granted))
}

fn limit_name_of<T>(result: Result<T, DecodeError>) -> &'static str {
    match result {
        Err(DecodeError::TooLarge { name, .. }) => name,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is taken"),
    }
}

/// A request of version 2 with one series.
fn one(table: SymbolTable, series: v2::TimeSeries) -> Vec<u8> {
    Request { symbols: table.symbols, timeseries: vec![series] }.encode_to_vec()
}

fn up(table: &mut SymbolTable) -> Vec<u32> {
    vec![table.add(b"__name__"), table.add(b"up")]
}

fn sample() -> v2::Sample {
    v2::Sample { value: 1.0, timestamp: 1, start_timestamp: 0 }
}

/// A request of either version with all kinds of fields.
fn full(version: Version) -> Vec<u8> {
    let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
    let labels = vec![label("__name__", "up"), label("job", "a")];
    let histogram = Histogram {
        count: Some(Count::Integer(3)),
        zero_count: Some(ZeroCount::Integer(1)),
        positive_spans: vec![BucketSpan { offset: -2, length: 2 }],
        positive_deltas: vec![1, 0],
        timestamp: 1,
        ..Histogram::default()
    };
    let exemplar = Exemplar { labels: vec![label("trace_id", "b")], value: 1.0, timestamp: 1 };
    let floats = TimeSeries {
        labels: labels.clone(),
        samples: vec![Sample { value: 1.0, timestamp: 1_700_000_000_000 }],
        exemplars: vec![exemplar],
        histograms: vec![],
    };
    let histograms = TimeSeries { labels, histograms: vec![histogram], ..TimeSeries::default() };
    let metadata = MetricMetadata {
        r#type: 1,
        metric_family_name: "up".into(),
        help: "help".into(),
        unit: "s".into(),
    };
    let request = WriteRequest { timeseries: vec![floats, histograms], metadata: vec![metadata] };
    match version {
        Version::V1 => request.encode_to_vec(),
        Version::V2 => {
            let mut request = Request::of(&request);
            request.timeseries[0].samples[0].start_timestamp = 1_600_000_000_000;
            let metadata = v2::Metadata { r#type: 1, help_ref: 1, unit_ref: 2 };
            request.timeseries[0].metadata = Some(metadata);
            request.encode_to_vec()
        }
    }
}

#[test]
fn a_request_may_end_at_any_byte_and_any_byte_may_be_any_other() {
    for version in [Version::V1, Version::V2] {
        let whole = full(version);
        assert_eq!(check(version, &whole).unwrap().0.timestamps, [1_700_000_000_000]);
        let mut cut_count = 0;
        for end in 0..whole.len() {
            cut_count += usize::from(check(version, &whole[..end]).is_err());
        }
        // A cut between two fields leaves a valid request.
        assert!(cut_count > whole.len() * 9 / 10, "{cut_count} of {}", whole.len());
        let mut bytes = whole.clone();
        for at in 0..whole.len() {
            for byte in 0..=255 {
                bytes[at] = byte;
                let _ = check(version, &bytes);
            }
            bytes[at] = whole[at];
        }
    }
}

/// Recombined and damaged pieces of valid requests, in place of a fuzzer.
#[test]
fn random_requests_decode_or_fail_without_a_panic() {
    let mut random = Scrambler { state: 7 };
    let pieces = [full(Version::V1), full(Version::V2)];
    let mut taken_count = 0;
    for _ in 0..20_000 {
        let mut bytes = Vec::new();
        for _ in 0..=random.next(3) {
            let piece = &pieces[random.next(2) as usize];
            let start = random.next(2) * random.next(piece.len() as u64);
            bytes.extend_from_slice(&piece[start as usize..]);
        }
        for _ in 0..random.next(4) {
            let at = random.next(bytes.len() as u64) as usize;
            bytes[at] = random.next(256) as u8;
        }
        for version in [Version::V1, Version::V2] {
            taken_count += usize::from(check(version, &bytes).is_ok());
        }
    }
    assert!((2_000..38_000).contains(&taken_count), "{taken_count}");
}

#[test]
fn a_million_references_to_a_long_symbol_end_at_the_budget() {
    let mut table = SymbolTable::default();
    let mut labels_refs = up(&mut table);
    let long = table.add(&vec![b'x'; 1 << 20]);
    labels_refs.extend([table.add(b"a"), long]);
    let series = v2::TimeSeries { labels_refs, samples: vec![sample()], ..Default::default() };
    let few = Request { symbols: table.symbols.clone(), timeseries: vec![series.clone(); 100] };
    let (batch, decoded, granted) = check(Version::V2, &few.encode_to_vec()).unwrap();
    // Longer than a label may be; the budget counts it.
    assert!(batch.series.is_empty());
    assert_eq!(decoded.rejects.counts().map(|(_, counts)| counts.floats).sum::<u64>(), 100);
    assert!(granted > 100 << 20);
    let many = Request { symbols: table.symbols, timeseries: vec![series; 1_000] };
    assert_eq!(
        limit_name_of(check(Version::V2, &many.encode_to_vec())),
        LIMITS.decompressed_bytes_max
    );

    // In one series, only the first of too many labels are looked up.
    let mut table = SymbolTable::default();
    let mut labels_refs = up(&mut table);
    let long = table.add(&vec![b'x'; 1 << 20]);
    labels_refs.extend(vec![long; 1_000_000]);
    let series = v2::TimeSeries { labels_refs, samples: vec![sample()], ..Default::default() };
    assert_eq!(
        limit_name_of(check(Version::V2, &one(table, series))),
        LIMITS.decompressed_bytes_max
    );
}

#[test]
fn metadata_and_exemplars_that_refer_to_a_long_symbol_end_at_the_budget() {
    let mut table = SymbolTable::default();
    let long = table.add(&vec![b'x'; 1 << 20]);
    let name = table.add(b"__name__");
    let timeseries: Vec<v2::TimeSeries> = (0..1_000)
        .map(|index| v2::TimeSeries {
            labels_refs: vec![name, table.add(format!("m{index}").as_bytes())],
            samples: vec![sample()],
            metadata: Some(v2::Metadata { r#type: 1, help_ref: long, unit_ref: 0 }),
            ..Default::default()
        })
        .collect();
    let request = Request { symbols: table.symbols, timeseries };
    assert_eq!(
        limit_name_of(check(Version::V2, &request.encode_to_vec())),
        LIMITS.decompressed_bytes_max
    );

    let mut table = SymbolTable::default();
    let labels_refs = up(&mut table);
    let long = table.add(&vec![b'x'; 1 << 20]);
    let exemplar = v2::Exemplar { labels_refs: vec![1, long], value: 1.0, timestamp: 1 };
    let exemplars = vec![exemplar; 1_000];
    let series =
        v2::TimeSeries { labels_refs, samples: vec![sample()], exemplars, ..Default::default() };
    assert_eq!(
        limit_name_of(check(Version::V2, &one(table, series))),
        LIMITS.decompressed_bytes_max
    );
}

#[test]
fn a_table_of_millions_of_symbols_stays_within_the_budget() {
    let mut table = SymbolTable::default();
    let labels_refs = up(&mut table);
    let series = v2::TimeSeries { labels_refs, samples: vec![sample()], ..Default::default() };
    let mut bytes = one(table, series);
    bytes.extend([0x22, 0].repeat(1_000_000));
    assert_eq!(check(Version::V2, &bytes).unwrap().0.timestamps.len(), 1);
    let bytes = [0x22, 0].repeat(Limits::default().decompressed_bytes_max / 2);
    assert_eq!(check(Version::V2, &bytes).unwrap().0.series.len(), 0);
}

#[test]
fn a_grant_that_is_refused_ends_the_request() {
    let mut table = SymbolTable::default();
    let mut labels_refs = up(&mut table);
    labels_refs.extend([table.add(b"a"), table.add(&[b'x'; 4_000])]);
    let series = v2::TimeSeries { labels_refs, samples: vec![sample()], ..Default::default() };
    let request = Request { symbols: table.symbols, timeseries: vec![series; 1_000] };
    let bytes = request.encode_to_vec();
    let mut asked = Vec::new();
    let full = InflightFull { reached: 7, limit: 5, name: "inflight_bytes_max" };
    let mut reserve = |bytes| {
        asked.push(bytes);
        if asked.len() < 3 { Ok(()) } else { Err(full.clone()) }
    };
    let mut batch = Batch::default();
    let result = Decoder::default().decode(
        Version::V2,
        &bytes,
        bytes.len(),
        &Limits::default(),
        &mut reserve,
        &mut batch,
    );
    assert_eq!(result, Err(DecodeError::InflightFull(full.clone())));
    assert_eq!(asked, [1 << 20; 3]);
    assert!(heap_bytes(&batch) < 8 << 20);
}

#[test]
fn messages_of_two_bytes_count_against_the_limits() {
    // A sample, a histogram, an exemplar, or metadata of two bytes.
    let field = |content: &[u8]| nested(0x0a, content);
    for (tag, name) in [
        (0x12, LIMITS.samples_max),
        (0x1a, LIMITS.decompressed_bytes_max),
        (0x22, LIMITS.decompressed_bytes_max),
    ] {
        let bytes = field(&[tag, 0].repeat(8_000_000));
        assert_eq!(limit_name_of(check(Version::V1, &bytes)), name);
    }
    // Four and six bytes, as in the fast paths.
    let bytes = field(&[0x12, 2, 0x10, 1].repeat(8_000_000));
    assert_eq!(limit_name_of(check(Version::V1, &bytes)), LIMITS.samples_max);
    for sample in [&[0x12, 2, 0x10, 1][..], &[0x12, 4, 0x10, 1, 0x18, 1]] {
        let bytes = nested(0x2a, &sample.repeat(32_000_000 / sample.len()));
        assert_eq!(limit_name_of(check(Version::V2, &bytes)), LIMITS.samples_max);
    }
    let bytes = [0x1a, 0].repeat(1_000_000);
    assert_eq!(limit_name_of(check(Version::V1, &bytes)), LIMITS.series_max);
}

/// A field of bytes.
fn nested(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

#[test]
fn a_histogram_of_too_many_buckets_is_rejected_before_it_is_unfolded() {
    let up = nested(0x0a, &[nested(0x0a, b"__name__"), nested(0x12, b"up")].concat());
    let decoded = |histogram: &[u8]| {
        let bytes = nested(0x0a, &[&up[..], &nested(0x22, histogram)].concat());
        let (mut decoder, mut batch) = (Decoder::default(), Batch::default());
        let mut reserve = |_| panic!("nothing is unfolded");
        let limits = Limits::default();
        let decoded = decoder
            .decode(Version::V1, &bytes, bytes.len(), &limits, &mut reserve, &mut batch)
            .unwrap();
        // Labels are packed into as many bytes as the message has.
        let unfolded = decoder.heap_bytes() - bytes.len();
        assert!(unfolded < 2 << 20, "{unfolded} bytes");
        decoded
    };
    let most = model::histogram::HISTOGRAM_BUCKETS_MAX;
    // A bucket of one byte, one of floats or a bound of eight, a span of two; also split.
    let half = most / 2 + 1;
    for (what, histogram) in [
        ("buckets", nested(0x62, &[0; 24_000_000])),
        ("buckets", [nested(0x4a, &vec![0; half]), nested(0x62, &vec![0; half])].concat()),
        ("buckets", [0x60, 0].repeat(4_000_000)),
        ("buckets", nested(0x6a, &[0; 24_000_000])),
        ("buckets", [0x51, 0, 0, 0, 0, 0, 0, 0, 0].repeat(most + 1)),
        ("spans", [0x5a, 0].repeat(4_000_000)),
        ("custom bounds", [0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0].repeat(most + 1)),
    ] {
        assert_eq!(
            decoded(&histogram).rejects.to_text(),
            format!("histogram has more than {most} {what} for series {{__name__=\"up\"}}")
        );
    }
    // The fields after them are still read.
    let cut = [nested(0x62, &vec![0; most + 1]), vec![0x62, 1]].concat();
    let bytes = nested(0x0a, &nested(0x22, &cut));
    assert!(matches!(check(Version::V1, &bytes), Err(DecodeError::Malformed { .. })));
}

#[test]
fn extreme_numbers_are_rejected_or_accepted() {
    let mut table = SymbolTable::default();
    let labels_refs = up(&mut table);
    let overlong = |number: u32| {
        // Ten bytes for a reference.
        let mut bytes = vec![number as u8 | 0x80];
        bytes.extend([0x80; 8]);
        bytes.push(0);
        bytes
    };
    let mut refs = Vec::new();
    for reference in &labels_refs {
        refs.extend(overlong(*reference));
    }
    let mut series = vec![0x0a, refs.len() as u8];
    series.extend(refs);
    series.extend([0x12, 2, 0x10, 7]);
    let mut bytes = Request { symbols: table.symbols, timeseries: vec![] }.encode_to_vec();
    bytes.extend([0x2a, series.len() as u8]);
    bytes.extend(&series);
    let (batch, ..) = check(Version::V2, &bytes).unwrap();
    assert_eq!(
        (batch.labels(0).to_string().as_str(), batch.timestamps[0]),
        ("{__name__=\"up\"}", 7)
    );
    // A varint of eleven bytes is malformed.
    let at = bytes.len() - 4 - 1;
    bytes[at] = 0x80;
    let error = check(Version::V2, &bytes).unwrap_err();
    assert!(error.to_string().contains("labels_refs: varint is longer than 64 bits"), "{error}");

    for reference in [u32::MAX, 1 << 31, 3] {
        let mut table = SymbolTable::default();
        let mut labels_refs = up(&mut table);
        labels_refs.extend([0, reference]);
        let series = v2::TimeSeries { labels_refs, samples: vec![sample()], ..Default::default() };
        let (_, decoded, _) = check(Version::V2, &one(table, series)).unwrap();
        assert_eq!(
            decoded.rejects.to_text(),
            format!(
                "parsing labels for series [1 2 0 {reference}]: labelRefs 0 (name) = {reference} \
                 (value) outside of symbols table (size 3)"
            )
        );
    }
}
