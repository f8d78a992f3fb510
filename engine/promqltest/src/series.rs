//! Series descriptions: a label set followed by values.
//!
//! ```text
//! name{label="value"} 1 2+3x4 _ _x2 stale {{schema:1 count:3 buckets:[1 2]}}x5
//! ```
//!
//! Source: "Series descriptions" in `promql/parser` of Prometheus.

use std::sync::Arc;

use model::labels::{METRIC_NAME, is_legacy_label_name};
use model::{Labels, stale_nan};

use crate::duration::parse_duration_ms;
use crate::histogram::{CounterResetHint, Histogram, buckets_from};

/// Maximum values of a line.
const SERIES_VALUES_MAX: u64 = 1_000_000;

/// Value of a series at one step.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesValue {
    /// `_`: no sample.
    Omitted,
    /// A number, or the staleness marker.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

/// Parses the labels and values of a line.
pub(crate) fn parse_series(line: &str) -> Result<(Labels, Vec<SeriesValue>), String> {
    let mut scanner = Scanner { rest: line.trim() };
    let labels = scanner.metric()?;
    let mut values = Vec::new();
    while !scanner.rest.is_empty() {
        if !scanner.skip_spaces() {
            return Err(format!("unexpected {:?} in series values", scanner.rest));
        }
        if scanner.rest.is_empty() {
            break;
        }
        scanner.item(&mut values)?;
    }
    Ok((labels, values))
}

/// Labels and start timestamps of a line `name{…}@st -1m -30sx4 _`; each start timestamp is in ms
/// relative to its sample.
pub(crate) type StartTimestamps = (Labels, Vec<Option<i64>>);

/// Returns whether a line contains start timestamps: its first word ends in `@st`.
pub(crate) fn is_start_timestamps(line: &str) -> bool {
    line.split([' ', '\t'])
        .next()
        .is_some_and(|word| word.len() < line.len() && word.ends_with("@st"))
}

/// Parses a line of start timestamps.
pub(crate) fn parse_start_timestamps(line: &str) -> Result<StartTimestamps, String> {
    let (metric, items) = line.split_once([' ', '\t']).ok_or("missing start timestamps")?;
    let (labels, _) = parse_series(metric.strip_suffix("@st").ok_or("missing @st")?)?;
    let mut starts = Vec::new();
    for item in items.split_whitespace() {
        start_timestamp_item(item, &mut starts)
            .map_err(|error| format!("invalid start timestamp {item:?}: {error}"))?;
    }
    Ok((labels, starts))
}

fn start_timestamp_item(item: &str, starts: &mut Vec<Option<i64>>) -> Result<(), String> {
    let (item, repeats) = match item.split_once('x') {
        Some((item, count)) => (item, Some(parse_count(count)?)),
        None => (item, None),
    };
    if item == "_" {
        let count = repeats.unwrap_or(1);
        starts.extend((0..count).map(|_| None));
        return check_value_count(starts.len() as u64);
    }
    let step_at = item.char_indices().skip(1).find(|(_, c)| matches!(c, '+' | '-')).map(|c| c.0);
    let (base, step) = item.split_at(step_at.unwrap_or(item.len()));
    let base = signed_duration_ms(base)?;
    let step = if step.is_empty() {
        0
    } else if repeats.is_none() {
        return Err("a step needs a repetition".to_owned());
    } else {
        signed_duration_ms(step)?
    };
    let count = repeats.unwrap_or(0);
    starts.extend((0..=count as i64).map(|i| Some(base + i * step)));
    check_value_count(starts.len() as u64)
}

fn signed_duration_ms(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(positive) => parse_duration_ms(positive).map(|ms| -ms),
        None => parse_duration_ms(text.strip_prefix('+').unwrap_or(text)),
    }
}

fn parse_count(text: &str) -> Result<u64, String> {
    let count = text.parse().map_err(|_| format!("invalid repetition {text:?}"))?;
    check_value_count(count)?;
    Ok(count)
}

fn check_value_count(count: u64) -> Result<(), String> {
    if count > SERIES_VALUES_MAX {
        return Err(format!("{count} values are more than {SERIES_VALUES_MAX}"));
    }
    Ok(())
}

/// Parses a number of PromQL: decimal with `_` between digits, octal with a leading zero.
pub(crate) fn parse_number(text: &str) -> Result<f64, String> {
    let error = || format!("error parsing number {text:?}");
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if digits.starts_with(['+', '-']) {
        return Err(error());
    }
    let plain = digits.replace('_', "");
    let integer = match plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None if plain.len() > 1 && plain.starts_with('0') => i64::from_str_radix(&plain, 8).ok(),
        None => plain.parse::<i64>().ok(),
    };
    if let Some(integer) = integer {
        return Ok(sign * integer as f64);
    }
    // Rust also accepts "infinity" and the spellings of "nan" that Go accepts.
    digits.parse::<f64>().map(|value| sign * value).map_err(|_| error())
}

struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn accept(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.accept(token) {
            return Ok(());
        }
        Err(format!("expected {token:?}, found {:?}", self.rest))
    }

    fn skip_spaces(&mut self) -> bool {
        let rest = self.rest.trim_start_matches([' ', '\t']);
        let skipped = rest.len() < self.rest.len();
        self.rest = rest;
        skipped
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Reads `name`, `name{a="b"}`, `{a="b"}` or `{"name", a="b"}`.
    fn metric(&mut self) -> Result<Labels, String> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        let mut pairs: Vec<(String, String)> = Vec::new();
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("metric name {name:?} begins with a digit"));
        }
        if !name.is_empty() {
            pairs.push((METRIC_NAME.to_owned(), name.to_owned()));
        }
        if self.accept("{") {
            loop {
                self.skip_spaces();
                if self.accept("}") {
                    break;
                }
                pairs.push(self.label()?);
                self.skip_spaces();
                if !self.accept(",") && !self.rest.starts_with('}') {
                    return Err(format!("unexpected {:?} inside braces", self.rest));
                }
            }
        } else if name.is_empty() {
            return Err(format!("expected a metric, found {:?}", self.rest));
        }
        Ok(Labels::from_pairs(pairs))
    }

    fn label(&mut self) -> Result<(String, String), String> {
        let is_quoted = self.rest.starts_with(['"', '\'', '`']);
        let name = if is_quoted {
            self.string()?
        } else {
            let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_legacy_label_name(name) {
                return Err(format!("expected a label name, found {name:?}{:?}", self.rest));
            }
            name.to_owned()
        };
        self.skip_spaces();
        if !self.accept("=") {
            // A quoted string without a value is the metric name.
            return if is_quoted {
                Ok((METRIC_NAME.to_owned(), name))
            } else {
                Err(format!("expected \"=\", found {:?}", self.rest))
            };
        }
        self.skip_spaces();
        Ok((name, self.string()?))
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
        let quote = quote.ok_or_else(|| format!("expected a string, found {:?}", self.rest))?;
        let mut escaped = false;
        for (at, c) in self.rest.char_indices().skip(1) {
            if escaped {
                escaped = false;
            } else if c == '\\' && quote != '`' {
                escaped = true;
            } else if c == quote {
                let (literal, rest) = self.rest.split_at(at + 1);
                self.rest = rest;
                return unquote(literal);
            }
        }
        Err(format!("unterminated string {:?}", self.rest))
    }

    /// Reads one item of the values, up to the next space.
    fn item(&mut self, values: &mut Vec<SeriesValue>) -> Result<(), String> {
        if self.accept("{{") {
            return self.histogram_item(values);
        }
        if self.accept("_") {
            let count = self.repetition()?.unwrap_or(1);
            values.extend((0..count).map(|_| SeriesValue::Omitted));
            return check_value_count(values.len() as u64);
        }
        let mut value = self.value()?;
        let step = if self.rest.starts_with(['+', '-']) { Some(self.number()?) } else { None };
        let count = self.repetition()?;
        if step.is_some() && count.is_none() {
            return Err("a step needs a repetition: expected \"x\"".to_owned());
        }
        for _ in 0..=count.unwrap_or(0) {
            values.push(SeriesValue::Float(value));
            value += step.unwrap_or(0.0);
        }
        check_value_count(values.len() as u64)
    }

    fn value(&mut self) -> Result<f64, String> {
        if self.rest.starts_with("stale") {
            let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            if word != "stale" {
                return Err(format!("unexpected {word:?}, expected a number or \"stale\""));
            }
            return Ok(stale_nan());
        }
        self.number()
    }

    fn repetition(&mut self) -> Result<Option<u64>, String> {
        if !self.accept("x") {
            return Ok(None);
        }
        parse_count(self.take_while(|c| c.is_ascii_digit())).map(Some)
    }

    /// Reads a number with an optional sign, but not hexadecimal, because `x` repeats.
    fn number(&mut self) -> Result<f64, String> {
        let start = self.rest;
        let sign = if self.accept("-") {
            -1.0
        } else {
            self.accept("+");
            1.0
        };
        if self.rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return match word.to_ascii_lowercase().as_str() {
                "inf" => Ok(sign * f64::INFINITY),
                "nan" => Ok(f64::NAN),
                _ => Err(format!("unexpected {word:?}, expected a number or \"stale\"")),
            };
        }
        let mut previous = ' ';
        let digits = self.rest.find(|c: char| {
            let is_part = c.is_ascii_digit()
                || matches!(c, '.' | '_' | 'e' | 'E')
                || matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
            previous = c;
            !is_part
        });
        let (digits, rest) = self.rest.split_at(digits.unwrap_or(self.rest.len()));
        self.rest = rest;
        if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(format!("bad number or duration syntax: {start:?}"));
        }
        Ok(sign * parse_number(digits)?)
    }

    /// Reads `{{…}}`, `{{…}}x3` or `{{…}}+{{…}}x3` after the first braces.
    fn histogram_item(&mut self, values: &mut Vec<SeriesValue>) -> Result<(), String> {
        let base = self.histogram()?;
        let factor = if self.accept("+{{") {
            1.0
        } else if self.accept("-{{") {
            -1.0
        } else {
            let count = self.repetition()?.unwrap_or(0);
            let value = SeriesValue::Histogram(Arc::new(base));
            values.extend((0..=count).map(|_| value.clone()));
            return check_value_count(values.len() as u64);
        };
        let increment = self.histogram()?;
        let count = self.repetition()?.ok_or("a step needs a repetition: expected \"x\"")?;
        let mut current = base;
        current.is_hint_explicit = increment.is_hint_explicit;
        for i in 0..=count {
            if i > 0 {
                current = current.plus(&increment, factor)?;
            }
            values.push(SeriesValue::Histogram(Arc::new(current.clone())));
        }
        check_value_count(values.len() as u64)
    }

    /// Reads `{{key:value key:[1 2]}}` after the opening braces.
    fn histogram(&mut self) -> Result<Histogram, String> {
        let mut histogram = Histogram::default();
        let (mut offset, mut negative_offset) = (0, 0);
        let (mut positive, mut negative) = (Vec::new(), Vec::new());
        let mut seen: Vec<&str> = Vec::new();
        loop {
            self.skip_spaces();
            if self.accept("}}") {
                break;
            }
            let key = self.take_while(|c| c.is_ascii_alphabetic() || c == '_');
            if seen.contains(&key) {
                return Err(format!("duplicate key {key:?} in histogram"));
            }
            seen.push(key);
            self.expect(":")?;
            match key {
                "schema" => histogram.schema = self.integer()?,
                "sum" => histogram.sum = self.number()?,
                "count" => histogram.count = self.number()?,
                "z_bucket" => histogram.zero_count = self.number()?,
                "z_bucket_w" => histogram.zero_threshold = self.number()?,
                "custom_values" => histogram.custom_values = self.numbers()?,
                "buckets" => positive = self.numbers()?,
                "offset" => offset = self.integer()?,
                "n_buckets" => negative = self.numbers()?,
                "n_offset" => negative_offset = self.integer()?,
                "counter_reset_hint" => {
                    histogram.counter_reset_hint = self.counter_reset_hint()?;
                    histogram.is_hint_explicit = true;
                }
                _ => return Err(format!("bad histogram descriptor found: {key:?}")),
            }
        }
        histogram.positive = buckets_from(offset, &positive);
        histogram.negative = buckets_from(negative_offset, &negative);
        Ok(histogram)
    }

    fn counter_reset_hint(&mut self) -> Result<CounterResetHint, String> {
        match self.take_while(|c| c.is_ascii_alphabetic() || c == '_') {
            "unknown" => Ok(CounterResetHint::Unknown),
            "reset" => Ok(CounterResetHint::Reset),
            "not_reset" => Ok(CounterResetHint::NotReset),
            "gauge" => Ok(CounterResetHint::Gauge),
            other => Err(format!("unknown counter reset hint {other:?}")),
        }
    }

    fn integer(&mut self) -> Result<i32, String> {
        let number = self.number()?;
        if number.fract() != 0.0 || number.abs() > f64::from(i32::MAX / 2) {
            return Err(format!("expected an integer, found {number}"));
        }
        Ok(number as i32)
    }

    fn numbers(&mut self) -> Result<Vec<f64>, String> {
        self.expect("[")?;
        let mut numbers = Vec::new();
        loop {
            self.skip_spaces();
            if self.accept("]") {
                return Ok(numbers);
            }
            numbers.push(self.number()?);
        }
    }
}

/// Returns the value of a quoted string with Go's escapes; backquotes have no escapes.
pub(crate) fn unquote(literal: &str) -> Result<String, String> {
    let error = || format!("invalid string {literal}");
    let quote = literal.chars().next().ok_or_else(error)?;
    let inner = literal[quote.len_utf8()..].strip_suffix(quote).ok_or_else(error)?;
    if quote == '`' {
        return Ok(inner.to_owned());
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => unescape(&mut chars, &mut bytes).ok_or_else(error)?,
            '\n' => return Err(error()),
            c if c == quote => return Err(error()),
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    String::from_utf8(bytes).map_err(|_| error())
}

/// Appends the value of an escape sequence, read after its backslash.
fn unescape(chars: &mut std::str::Chars<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    let c = chars.next()?;
    let (digits, radix) = match c {
        'x' => (2, 16),
        'u' => (4, 16),
        'U' => (8, 16),
        '0'..='7' => (3, 8),
        _ => (0, 0),
    };
    if digits > 0 {
        let mut text = String::new();
        if radix == 8 {
            text.push(c);
        }
        while text.len() < digits {
            text.push(chars.next()?);
        }
        let code = u32::from_str_radix(&text, radix).ok()?;
        if matches!(c, 'u' | 'U') {
            bytes.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            bytes.push(u8::try_from(code).ok()?);
        }
        return Some(());
    }
    bytes.push(match c {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' | '\'' | '"' => c as u8,
        _ => return None,
    });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(line: &str) -> Vec<f64> {
        let (_, values) = parse_series(line).unwrap();
        values
            .iter()
            .map(|value| match value {
                SeriesValue::Float(value) => *value,
                other => panic!("{other:?} in {line}"),
            })
            .collect()
    }

    #[test]
    fn metrics_are_written_with_and_without_a_name() {
        let labels = |line: &str| parse_series(line).unwrap().0.to_string();
        assert_eq!(labels("up 1"), r#"{__name__="up"}"#);
        assert_eq!(labels(r#"up{job='a', x="b\"c",} 1"#), r#"{__name__="up", job="a", x="b\"c"}"#);
        assert_eq!(labels("{}"), "{}");
        assert_eq!(labels(r#"{"a.b", "c d"=`\n`} 1"#), r#"{__name__="a.b", "c d"="\\n"}"#);
        for wrong in ["", "1up 1", "up{job} 1", "up{job=a} 1", "up {a=\"b\"} 1", "up{a=\"b\"}1"] {
            assert!(parse_series(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn values_expand() {
        assert_eq!(
            floats("m 1 -2 +3 .5 1e3 1_000 010"),
            [1.0, -2.0, 3.0, 0.5, 1000.0, 1000.0, 8.0]
        );
        assert_eq!(floats("m 1+2x3 4x2 0-1.5x1"), [1.0, 3.0, 5.0, 7.0, 4.0, 4.0, 4.0, 0.0, -1.5]);
        assert_eq!(floats("m 1e-3x0 -1-1x1"), [1e-3, -1.0, -2.0]);
        assert_eq!(floats("m Inf -inf +Inf"), [f64::INFINITY, -f64::INFINITY, f64::INFINITY]);
        assert!(floats("m NaN")[0].is_nan());
        assert!(model::is_stale(floats("m stale")[0]));
        let (_, values) = parse_series("m _ _x2 1").unwrap();
        assert_eq!(values[..3], [SeriesValue::Omitted, SeriesValue::Omitted, SeriesValue::Omitted]);
        assert_eq!(values.len(), 4);
        for wrong in ["m 1+2", "m 1+x3", "m stalex3", "m 1x", "m x3", "m 1 + 2x3", "m 1x99999999"] {
            assert!(parse_series(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn histograms_are_read_whole() {
        let line = "m {{schema:1 sum:-0.3 count:32 z_bucket:7 z_bucket_w:0.5 buckets:[5 0 7] \
                    offset:-3 n_buckets:[4 5] n_offset:5 counter_reset_hint:gauge}} {{}}x1";
        let (_, values) = parse_series(line).unwrap();
        let SeriesValue::Histogram(histogram) = &values[0] else { panic!("{values:?}") };
        assert_eq!((histogram.schema, histogram.sum, histogram.count), (1, -0.3, 32.0));
        assert_eq!((histogram.zero_count, histogram.zero_threshold), (7.0, 0.5));
        assert_eq!(histogram.positive.iter().collect::<Vec<_>>(), [(&-3, &5.0), (&-1, &7.0)]);
        assert_eq!(histogram.negative.iter().collect::<Vec<_>>(), [(&5, &4.0), (&6, &5.0)]);
        assert_eq!(histogram.counter_reset_hint, CounterResetHint::Gauge);
        assert_eq!(values.len(), 3);
        let (_, values) =
            parse_series("m {{count:1}}+{{count:2}}x2 {{count:9}}-{{count:2}}x1").unwrap();
        let counts: Vec<f64> = values
            .iter()
            .map(|value| match value {
                SeriesValue::Histogram(histogram) => histogram.count,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(counts, [1.0, 3.0, 5.0, 9.0, 7.0]);
        for wrong in
            ["m {{sum}}", "m {{sum:1 sum:2}}", "m {{x:1}}", "m {{buckets:1}}", "m {{sum:1}"]
        {
            assert!(parse_series(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn start_timestamps_are_durations() {
        assert!(is_start_timestamps(r#"m{a="b"}@st -1m"#));
        assert!(!is_start_timestamps("m@st"));
        let (labels, starts) =
            parse_start_timestamps(r#"m{a="b"}@st _ _x2 -30s-1mx2 0-1mx1 1ms 5sx1"#).unwrap();
        assert_eq!(labels.to_string(), r#"{__name__="m", a="b"}"#);
        let known = [-30_000, -90_000, -150_000, 0, -60_000, 1, 5_000, 5_000];
        assert_eq!(starts[..3], [None, None, None]);
        assert_eq!(starts[3..].iter().map(|s| s.unwrap()).collect::<Vec<_>>(), known);
        for wrong in ["m@st 1", "m@st 1m-1m", "m@st x2", "m@st 1mx"] {
            assert!(parse_start_timestamps(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn strings_are_unquoted_as_go_does() {
        assert_eq!(unquote(r#""a\tb\x41\u00e9\101\"""#).unwrap(), "a\tbA\u{e9}A\"");
        assert_eq!(unquote(r"`a\t`").unwrap(), r"a\t");
        for wrong in ["\"a", "a", "\"", "\"\\", r#""\q""#, r#""a"b""#, r#""\xff""#, r#""\ud800""#] {
            assert!(unquote(wrong).is_err(), "{wrong:?}");
        }
    }
}
