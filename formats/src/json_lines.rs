//! JSON lines as VictoriaMetrics' `/api/v1/export` writes them: a series with samples on each line.
//!
//! ```text
//! {"metric":{"__name__":"up","job":"x"},"values":[1,null,"Infinity"],"timestamps":[0,15000,30000]}
//! ```
//!
//! Timestamps are ms since the epoch. `null` is a staleness marker, since VictoriaMetrics stores no other
//! NaN. Only this order of keys is read, without spaces between them.

use std::fmt;
use std::io::BufRead;

use model::number_text::parse_float;
use model::{Labels, stale_nan};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::error::FormatError;
use crate::labels::{LABELS_MAX, labels_of};
use crate::lines::Lines;

/// Start of each line.
pub const START: &[u8] = br#"{"metric":"#;
/// Maximum length of a line, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 20;
/// Maximum number of samples on a line; a series may have several lines.
pub const LINE_SAMPLES_MAX: usize = 1_000_000;

/// Samples of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesLine {
    /// The series, which may have no metric name.
    pub labels: Labels,
    /// Timestamps, ms since the epoch, and values.
    pub samples: Vec<(i64, f64)>,
}

/// Reads a file, one line at a time.
#[derive(Debug)]
pub struct Reader<R>(Lines<R>);

impl<R: BufRead> Reader<R> {
    /// Creates a reader at the start of a file.
    pub fn new(path: &str, input: R) -> Reader<R> {
        Reader(Lines::new(path, input, LINE_BYTES_MAX))
    }

    /// Bytes of the lines read so far.
    pub fn byte_count(&self) -> u64 {
        self.0.byte_count
    }

    /// Returns the input.
    pub fn input(&self) -> &R {
        &self.0.input
    }

    /// Returns the next line; `None` at the end of the file.
    ///
    /// Errors: an invalid line, such as one that is cut off.
    pub fn next_line(&mut self) -> Result<Option<SeriesLine>, FormatError> {
        if !self.0.read()? {
            return Ok(None);
        }
        let text = std::str::from_utf8(&self.0.line);
        let parsed = text.map_err(|_| "bytes that are not UTF-8".to_owned()).and_then(parse);
        parsed.map(Some).map_err(|detail| self.0.wrong(detail))
    }
}

fn parse(line: &str) -> Result<SeriesLine, String> {
    let rest = after(line, r#"{"metric":"#)?;
    let mut labels = serde_json::Deserializer::from_str(rest).into_iter::<Pairs>();
    let metric = labels.next().ok_or("no object after \"metric\"")?;
    let metric = metric.map_err(|error| format!("labels of the series: {error}"))?;
    let rest = &rest[labels.byte_offset()..];
    let labels = labels_of(metric.0)?;
    if labels.is_empty() {
        return Err("a series without labels".to_owned());
    }
    let (values, rest) = array(after(rest, r#","values":["#)?)?;
    let (timestamps, rest) = array(after(rest, r#","timestamps":["#)?)?;
    if rest != "}" {
        return Err("text after the timestamps".to_owned());
    }
    let count = timestamps.len();
    if values.len() != count {
        return Err(format!("{} values and {count} timestamps", values.len()));
    }
    let samples = timestamps.into_iter().zip(values).map(|(timestamp, value)| {
        let timestamp_ms = timestamp.parse::<i64>();
        let timestamp_ms =
            timestamp_ms.map_err(|_| format!("{timestamp:?} is not a timestamp in ms"))?;
        Ok((timestamp_ms, parse_value(value)?))
    });
    Ok(SeriesLine { labels, samples: samples.collect::<Result<_, String>>()? })
}

/// Pairs of an object in their order; a map would drop all but the last of a name.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            if pairs.len() == LABELS_MAX {
                return Err(A::Error::custom(format!("more than {LABELS_MAX} labels")));
            }
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

/// Returns the text after an expected one.
fn after<'a>(text: &'a str, expected: &str) -> Result<&'a str, String> {
    text.strip_prefix(expected).ok_or_else(|| {
        let found: String = text.chars().take(40).collect();
        format!("{found:?} where {expected} is expected, as in an export of VictoriaMetrics")
    })
}

/// Returns the elements of an array without nested ones, and the text after it.
fn array(text: &str) -> Result<(Vec<&str>, &str), String> {
    let (elements, rest) = text.split_once(']').ok_or("an array without its end")?;
    let elements: Vec<&str> = elements.split(',').take(LINE_SAMPLES_MAX + 1).collect();
    if elements.len() > LINE_SAMPLES_MAX {
        return Err(format!(
            "more than {LINE_SAMPLES_MAX} samples on a line: export with max_rows_per_line=100000"
        ));
    }
    Ok((elements, rest))
}

/// Parses a value.
///
/// Source: `convertValueToSpecialJSON` in `app/vmselect/prometheus/export.qtpl` of VictoriaMetrics.
fn parse_value(text: &str) -> Result<f64, String> {
    match text {
        "null" => Ok(stale_nan()),
        "\"Infinity\"" => Ok(f64::INFINITY),
        "\"-Infinity\"" => Ok(f64::NEG_INFINITY),
        // Words such as NaN, and hexadecimal digits, are no JSON.
        text => {
            let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
            let value = is_plain.then(|| parse_float(text)).flatten();
            value.ok_or_else(|| format!("{text:?} is not a value"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<SeriesLine>, FormatError> {
        let mut reader = Reader::new("x.jsonl", text.as_bytes());
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line()? {
            lines.push(line);
        }
        assert_eq!(reader.byte_count(), text.len() as u64);
        Ok(lines)
    }

    #[test]
    fn lines_are_series_with_samples() {
        let text = concat!(
            r#"{"metric":{"__name__":"up","a":"\"\u00e4}],\n","empty":""},"values":[0.1,null],"timestamps":[-1,2]}"#,
            "\n",
            r#"{"metric":{"a":"b"},"values":["Infinity","-Infinity",-1.5e-7],"timestamps":[1,2,3]}"#,
        );
        let lines = read(text).unwrap();
        let expected = Labels::from_pairs([("__name__", "up"), ("a", "\"\u{e4}}],\n")]);
        assert_eq!(lines[0].labels, expected);
        assert_eq!(lines[0].samples[0], (-1, 0.1));
        let (timestamp_ms, stale) = lines[0].samples[1];
        assert_eq!((timestamp_ms, stale.to_bits()), (2, model::STALE_NAN_BITS));
        let values = [(1, f64::INFINITY), (2, f64::NEG_INFINITY), (3, -1.5e-7)];
        assert_eq!(lines[1].samples, values);
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn invalid_lines_are_named_by_their_number() {
        let good = r#"{"metric":{"a":"b"},"values":[1],"timestamps":[1]}"#;
        for (line, detail) in [
            ("", "where {\"metric\": is expected"),
            ("{}", "where {\"metric\": is expected"),
            (r#"{"metric":{"a":"b"}"#, "where ,\"values\":[ is expected"),
            (r#"{"metric":{"a":1},"values":[1],"timestamps":[1]}"#, "labels of the series"),
            (r#"{"metric":{"a":"b","#, "labels of the series"),
            (r#"{"metric":{},"values":[1],"timestamps":[1]}"#, "a series without labels"),
            (r#"{"metric":{"a":""},"values":[1],"timestamps":[1]}"#, "a series without labels"),
            (r#"{"metric":{"":"b"},"values":[1],"timestamps":[1]}"#, "empty name"),
            (
                r#"{"metric":{"job":"b","a":"b","job":"c"},"values":[1],"timestamps":[1]}"#,
                "the label \"job\" occurs twice",
            ),
            (r#"{"metric":{"a":"b"},"values":[1"#, "an array without its end"),
            (
                r#"{"metric":{"a":"b"},"values":[1,2],"timestamps":[1]}"#,
                "2 values and 1 timestamps",
            ),
            (r#"{"metric":{"a":"b"},"values":[],"timestamps":[]}"#, "\"\" is not a timestamp"),
            (r#"{"metric":{"a":"b"},"values":[NaN],"timestamps":[1]}"#, "\"NaN\" is not a value"),
            (r#"{"metric":{"a":"b"},"values":[0x1],"timestamps":[1]}"#, "\"0x1\" is not a value"),
            (r#"{"metric":{"a":"b"},"values":[1],"timestamps":[1.5]}"#, "is not a timestamp in ms"),
            (r#"{"metric":{"a":"b"},"values":[1],"timestamps":[1]} "#, "text after the timestamps"),
        ] {
            let error = read(&format!("{good}\n{line}\n{good}\n")).unwrap_err().to_string();
            assert!(error.starts_with("x.jsonl:2: ") && error.contains(detail), "{line}: {error}");
        }
        let many: Vec<String> = (0..=LABELS_MAX).map(|at| format!(r#""l{at}":"v""#)).collect();
        let line = format!(r#"{{"metric":{{{}}},"values":[1],"timestamps":[1]}}"#, many.join(","));
        let error = read(&line).unwrap_err().to_string();
        assert!(error.contains("more than 10000 labels"), "{error}");
        let many = vec!["1"; LINE_SAMPLES_MAX + 1].join(",");
        let line = format!(r#"{{"metric":{{"a":"b"}},"values":[{many}],"timestamps":[{many}]}}"#);
        let error = read(&line).unwrap_err().to_string();
        assert!(error.contains("more than 1000000 samples on a line"), "{error}");
    }

    proptest! {
        #[test]
        fn damaged_lines_are_read_or_refused(at in 0_usize..80, byte: u8, cut in 0_usize..80) {
            let good = r#"{"metric":{"a":"b\u00e4"},"values":[1,null,"Infinity"],"timestamps":[1,2,3]}"#;
            let mut bytes = good.as_bytes().to_vec();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let mut reader = Reader::new("x.jsonl", &bytes[..]);
            while let Ok(Some(line)) = reader.next_line() {
                prop_assert!(!line.labels.is_empty() && !line.samples.is_empty());
            }
        }
    }
}
