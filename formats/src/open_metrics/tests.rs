use model::{BatchMetadata, Exemplar, Labels, MetricKind};
use proptest::prelude::*;

use super::*;
use crate::FormatError;

fn read(text: &[u8]) -> Result<Vec<Entry>, FormatError> {
    let mut reader = Reader::new("x.om", text);
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        entries.push(entry);
    }
    assert_eq!(reader.byte_count(), text.len() as u64);
    Ok(entries)
}

fn sample(labels: &[(&str, &str)], timestamp_ms: i64, value: f64) -> Entry {
    let labels = Labels::from_pairs(labels.iter().copied());
    Entry::Sample(Sample { labels, timestamp_ms, value, exemplar: None })
}

#[test]
fn a_text_is_read_entry_by_entry() {
    let text = "# HELP a_seconds says \\\"x\\\\y\\\"\\nand more\n\
                # TYPE a_seconds counter\n\
                # UNIT a_seconds seconds\n\
                a_seconds_total{b=\"c\",d=\"e\\\"\\\\\\n}\",} 1.5e3 1600000000.123\n\
                a_seconds_total{b=\"c\",d=\"e\\\"\\\\\\n}\",} NaN -0.5\n\
                up 1 12\n\
                # TYPE last gauge\n\
                # EOF\n";
    let labels = [("__name__", "a_seconds_total"), ("b", "c"), ("d", "e\"\\\n}")];
    let metadata = |metric: &str, kind, help: &str, unit: &str| {
        let (metric, help, unit) = (metric.to_owned(), help.to_owned(), unit.to_owned());
        Entry::Metadata(BatchMetadata { metric, kind, help, unit })
    };
    let entries = read(text.as_bytes()).unwrap();
    assert_eq!(
        entries[0],
        metadata("a_seconds", MetricKind::Counter, "says \"x\\y\"\nand more", "seconds")
    );
    assert_eq!(entries[1], sample(&labels, 1_600_000_000_123, 1500.0));
    let Entry::Sample(stale) = &entries[2] else { panic!("{entries:?}") };
    assert_eq!((stale.timestamp_ms, stale.value.to_bits()), (-500, 0x7ff8_0000_0000_0001));
    assert_eq!(entries[3], sample(&[("__name__", "up")], 12_000, 1.0));
    assert_eq!(entries[4], metadata("last", MetricKind::Gauge, "", ""));
    assert_eq!(entries.len(), 5);
}

#[test]
fn utf8_names_are_in_quotes() {
    let text = "# TYPE \"my.metric\" gauge\n\
                {\"my.metric\",\"a.b\"=\"x\"} 1 1\n\
                {c=\"}\",\"my.metric\"} 2 2\n\
                # EOF";
    let entries = read(text.as_bytes()).unwrap();
    assert_eq!(entries[1], sample(&[("__name__", "my.metric"), ("a.b", "x")], 1000, 1.0));
    assert_eq!(entries[2], sample(&[("__name__", "my.metric"), ("c", "}")], 2000, 2.0));
}

#[test]
fn exemplars_have_their_own_timestamp_or_that_of_their_sample() {
    let text = "a 1 5 # {trace_id=\"x y\"} 0.5 4.25\na 1 6 # {} 2\n# EOF\n";
    let exemplars: Vec<_> = read(text.as_bytes())
        .unwrap()
        .into_iter()
        .map(|entry| match entry {
            Entry::Sample(sample) => sample.exemplar.unwrap(),
            Entry::Metadata(metadata) => panic!("{metadata:?}"),
        })
        .collect();
    let labels = Labels::from_pairs([("trace_id", "x y")]);
    assert_eq!(exemplars[0], Exemplar { labels, timestamp_ms: 4250, value: 0.5 });
    assert_eq!(exemplars[1], Exemplar { labels: Labels::empty(), timestamp_ms: 6000, value: 2.0 });
}

#[test]
fn timestamps_are_exact_to_the_millisecond() {
    let read_ms = |text: &str| match &read(format!("a 1 {text}\n# EOF\n").as_bytes()).unwrap()[0] {
        Entry::Sample(sample) => sample.timestamp_ms,
        Entry::Metadata(metadata) => panic!("{metadata:?}"),
    };
    for (text, ms) in [
        ("0", 0),
        // 1.001 × 1000 as a float is less than 1001.
        ("1.001", 1001),
        ("1600000000.1", 1_600_000_000_100),
        ("1600000000.1239", 1_600_000_000_123),
        ("1.6e9", 1_600_000_000_000),
        ("-12.5", -12_500),
    ] {
        assert_eq!(read_ms(text), ms, "{text}");
    }
}

#[test]
fn errors_name_their_line() {
    for (text, line, detail) in [
        ("", 1, "does not end with # EOF"),
        ("a 1 1\n", 2, "does not end with # EOF"),
        ("a 1 1\n# EOF\n\n", 3, "text after # EOF"),
        ("a 1 1\n# EOF\nb 1 1\n", 3, "text after # EOF"),
        ("a 1 1\n\n# EOF\n", 2, "empty line"),
        ("a 1\n# EOF\n", 1, "no timestamp"),
        ("a 1 # {} 1\n# EOF\n", 1, "no timestamp"),
        ("a{b=\"c\" 1 1\n# EOF\n", 1, "closing brace"),
        ("a{b=\"c} 1 1\n# EOF\n", 1, "closing quote"),
        ("a{b=c} 1 1\n# EOF\n", 1, "no value in quotes"),
        ("a{b=\"c\";d=\"e\"} 1 1\n# EOF\n", 1, "comma"),
        ("a{b=\"1\",b=\"2\"} 1 1\n# EOF\n", 1, "occurs twice"),
        ("{b=\"1\"} 1 1\n# EOF\n", 1, "no metric name"),
        ("a{\"b\"} 1 1\n# EOF\n", 1, "two names"),
        ("0a 1 1\n# EOF\n", 1, "not a metric name"),
        ("a x 1\n# EOF\n", 1, "\"x\" is not a number"),
        ("a 0x1p4 1\n# EOF\n", 1, "is not a number"),
        ("a 1 NaN\n# EOF\n", 1, "not a timestamp"),
        ("a 1 1e40\n# EOF\n", 1, "not a timestamp"),
        ("a 1 99999999999999999999\n# EOF\n", 1, "not a timestamp"),
        ("a 1 1 2\n# EOF\n", 1, "not an exemplar"),
        ("a 1 1 # {a=\"b\"}\n# EOF\n", 1, "no value"),
        ("a 1 1\n#EOF\n", 2, "no value"),
        ("# nothing\n# EOF\n", 1, "a comment that is none"),
        ("# TYPE a thing\n# EOF\n", 1, "not the type"),
        ("# UNIT a_seconds bytes\n# EOF\n", 1, "not a suffix"),
    ] {
        let error = read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("x.om:{line}: ")), "{text:?}: {error}");
        assert!(error.contains(detail), "{text:?}: {error}");
    }
    let error = read(b"a{b=\"\xff\"} 1 1\n# EOF\n").unwrap_err().to_string();
    assert!(error.contains("x.om:1: bytes that are not UTF-8"), "{error}");
    let long = vec![b'a'; LINE_BYTES_MAX + 1];
    assert!(read(&long).unwrap_err().to_string().contains("a line of more than"));
}

fn any_text() -> impl Strategy<Value = String> {
    "[a-z\\\\\"\n{},= #\u{e9}\u{1f600}]{0,6}"
}

fn any_labels() -> impl Strategy<Value = Labels> {
    let name = prop_oneof!["[a-z]{1,3}", "[a-z.\\\\\"{},= \u{e9}]{1,4}"];
    let pairs = proptest::collection::vec((name.clone(), any_text()), 0..4);
    (name, pairs).prop_map(|(name, pairs)| {
        let named = std::iter::once(("__name__".to_owned(), name));
        Labels::from_pairs(pairs.into_iter().chain(named))
    })
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let value = prop_oneof![any::<f64>(), (-5_i64..5).prop_map(|v| v as f64)];
    let value = value.prop_filter("NaN is written without its bits", |value| !value.is_nan());
    let time = prop_oneof![-5_000_i64..5_000, 1_600_000_000_000_i64..1_600_001_000_000];
    let exemplar = (any_labels(), time.clone(), value.clone())
        .prop_map(|(labels, timestamp_ms, value)| Exemplar { labels, timestamp_ms, value });
    let exemplar = proptest::option::of(exemplar);
    (any_labels(), time, value, exemplar).prop_map(|(labels, timestamp_ms, value, exemplar)| {
        Sample { labels, timestamp_ms, value, exemplar }
    })
}

fn written(samples: &[Sample]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for sample in samples {
        writer.series(&sample.labels);
        writer.sample(sample.timestamp_ms, sample.value, sample.exemplar.as_ref()).unwrap();
    }
    writer.finish().unwrap()
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        samples in proptest::collection::vec(any_sample(), 0..20),
        help in any_text(),
    ) {
        let family = Family {
            name: "a.b".to_owned(),
            kind: MetricKind::Gauge,
            help: help.clone(),
            unit: String::new(),
        };
        let mut writer = Writer::new(Vec::new());
        writer.family(&family).unwrap();
        let mut text = writer.finish().unwrap();
        text.truncate(text.len() - "# EOF\n".len());
        text.extend(written(&samples));
        let entries = read(&text).unwrap();
        let metadata = BatchMetadata {
            metric: "a.b".to_owned(),
            kind: MetricKind::Gauge,
            help,
            unit: String::new(),
        };
        prop_assert_eq!(&entries[0], &Entry::Metadata(metadata));
        let expected: Vec<Entry> = samples.into_iter().map(Entry::Sample).collect();
        prop_assert_eq!(&entries[1..], &expected[..]);
    }

    #[test]
    fn mutated_text_is_read_or_refused(
        samples in proptest::collection::vec(any_sample(), 1..5),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut text = written(&samples);
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        match read(&text) {
            Ok(_) | Err(FormatError::Line { .. }) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&text);
    }
}
