//! Parsing of one line of OpenMetrics text.

use model::labels::{is_legacy_label_name, is_legacy_metric_name};
use model::number_text::parse_float;
use model::{Exemplar, Labels, METRIC_NAME, MetricKind};

use crate::labels::{LABELS_MAX, labels_of};

/// The NaN that Prometheus stores for a NaN in a text.
///
/// Source: `NormalNaN` in `model/value/value.go` of Prometheus.
const NORMAL_NAN_BITS: u64 = 0x7ff8_0000_0000_0001;

/// A parsed line.
#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// Description of a metric.
    Help { metric: String, help: String },
    /// The type of a metric.
    Type { metric: String, kind: MetricKind },
    /// The unit of a metric's values.
    Unit { metric: String, unit: String },
    /// A sample.
    Sample(SampleLine<'a>),
    /// The end of the text.
    End,
}

/// A sample before its series is parsed: most lines repeat the series of the line before.
#[derive(Debug, PartialEq)]
pub(super) struct SampleLine<'a> {
    /// Name and labels as written.
    pub(super) series: &'a str,
    pub(super) value: f64,
    pub(super) timestamp_ms: i64,
    /// Without a timestamp, it has that of its sample.
    pub(super) exemplar: Option<Exemplar>,
}

/// Parses a line without its line feed.
///
/// Errors: a description of the error.
pub(super) fn parse(line: &str) -> Result<Line<'_>, String> {
    match line.strip_prefix("# ") {
        Some("EOF") => Ok(Line::End),
        Some(comment) => parse_comment(comment),
        None if line.is_empty() => Err("an empty line".to_owned()),
        None => Ok(Line::Sample(parse_sample(line)?)),
    }
}

fn parse_comment(comment: &str) -> Result<Line<'_>, String> {
    let unknown = || "a comment that is none of HELP, TYPE, UNIT and EOF".to_owned();
    let (keyword, rest) = comment.split_once(' ').ok_or_else(unknown)?;
    if !matches!(keyword, "HELP" | "TYPE" | "UNIT") {
        return Err(unknown());
    }
    let (metric, rest) = if rest.starts_with('"') {
        let end = quoted_len(rest).ok_or("a metric name without a closing quote")?;
        (unescaped(&rest[1..end - 1]), &rest[end..])
    } else {
        let end = rest.find(' ').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if !is_legacy_metric_name(name) {
            return Err(format!("{name:?} after {keyword} is not a metric name"));
        }
        (name.to_owned(), rest)
    };
    let text = rest.strip_prefix(' ').ok_or_else(|| format!("no text after {keyword} {metric}"))?;
    match keyword {
        "HELP" => Ok(Line::Help { metric, help: unescaped(text) }),
        "TYPE" => Ok(Line::Type { metric, kind: parse_kind(text)? }),
        _ => {
            let is_suffix = || metric.strip_suffix(text).is_some_and(|m| m.ends_with('_'));
            if text.is_empty() || is_suffix() {
                return Ok(Line::Unit { metric, unit: text.to_owned() });
            }
            Err(format!("the unit {text:?} is not a suffix of the metric {metric:?}"))
        }
    }
}

fn parse_kind(text: &str) -> Result<MetricKind, String> {
    [
        MetricKind::Unknown,
        MetricKind::Counter,
        MetricKind::Gauge,
        MetricKind::Histogram,
        MetricKind::GaugeHistogram,
        MetricKind::Summary,
        MetricKind::Info,
        MetricKind::StateSet,
    ]
    .into_iter()
    .find(|kind| kind.as_str() == text)
    .ok_or_else(|| format!("{text:?} is not the type of a metric"))
}

fn parse_sample(line: &str) -> Result<SampleLine<'_>, String> {
    let (series, rest) = line.split_at(series_len(line)?);
    let rest = rest.strip_prefix(' ').ok_or("no value after the series")?;
    let (value, rest) = split_word(rest);
    let value = parse_value(value)?;
    let rest = rest.strip_prefix(' ').filter(|rest| !rest.starts_with('#'));
    let (timestamp, rest) = split_word(rest.ok_or("the sample has no timestamp")?);
    let timestamp_ms = parse_timestamp_ms(timestamp)?;
    let exemplar = match rest {
        "" => None,
        rest => Some(parse_exemplar(rest, timestamp_ms)?),
    };
    Ok(SampleLine { series, value, timestamp_ms, exemplar })
}

/// Parses ` # {labels} value [timestamp]`.
fn parse_exemplar(text: &str, sample_ms: i64) -> Result<Exemplar, String> {
    let unexpected = || format!("{text:?} after the timestamp is not an exemplar");
    let text = text.strip_prefix(" # ").filter(|t| t.starts_with('{')).ok_or_else(unexpected)?;
    let (labels, rest) = text.split_at(braces_len(text)?);
    let labels = parse_labels(&labels[1..], None)?;
    let rest = rest.strip_prefix(' ').ok_or("no value after the labels of the exemplar")?;
    let (value, rest) = split_word(rest);
    let value = parse_value(value)?;
    let timestamp_ms = match rest.strip_prefix(' ') {
        None => sample_ms,
        Some(timestamp) => parse_timestamp_ms(timestamp)?,
    };
    Ok(Exemplar { labels, timestamp_ms, value })
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_at(text.find(' ').unwrap_or(text.len()))
}

/// Returns the length of the series at the start of a line.
fn series_len(line: &str) -> Result<usize, String> {
    let name = line.find(['{', ' ']).unwrap_or(line.len());
    match line.as_bytes().get(name) {
        Some(b'{') => Ok(name + braces_len(&line[name..])?),
        _ => Ok(name),
    }
}

/// Returns the length of the labels in braces at the start of a text.
fn braces_len(text: &str) -> Result<usize, String> {
    let mut at = 1;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let next = rest.find(['"', '}']).ok_or("labels without a closing brace")?;
        at += next;
        if text.as_bytes()[at] == b'}' {
            return Ok(at + 1);
        }
        at += quoted_len(&text[at..]).ok_or("a label without a closing quote")?;
    }
}

/// Returns the length of the quoted text at the start of a text, including quotes.
fn quoted_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Parses [`SampleLine::series`].
pub(super) fn parse_series(series: &str) -> Result<Labels, String> {
    let (name, labels) = series.split_at(series.find('{').unwrap_or(series.len()));
    if !name.is_empty() && !is_legacy_metric_name(name) {
        return Err(format!("{name:?} is not a metric name"));
    }
    let name = (!name.is_empty()).then(|| name.to_owned());
    let labels = parse_labels(labels.strip_prefix('{').unwrap_or("}"), Some(name))?;
    if labels.metric_name().is_empty() {
        return Err(format!("the series {series} has no metric name"));
    }
    Ok(labels)
}

/// Parses labels from after the opening brace to the closing one. If a series has no name before
/// the brace, its quoted name is among the labels.
fn parse_labels(text: &str, metric: Option<Option<String>>) -> Result<Labels, String> {
    let takes_name = metric.is_some();
    let mut name_of_metric = metric.flatten();
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut rest = text;
    while rest != "}" {
        if pairs.len() >= LABELS_MAX {
            return Err(format!("more than {LABELS_MAX} labels"));
        }
        let is_quoted = rest.starts_with('"');
        let end = match is_quoted {
            true => quoted_len(rest).ok_or("a label name without a closing quote")?,
            false => rest.find(['=', ',', '}', '"']).unwrap_or(rest.len()),
        };
        let (name, after) = rest.split_at(end);
        if is_quoted && takes_name && after.starts_with([',', '}']) {
            if name_of_metric.is_some() {
                return Err("the metric has two names".to_owned());
            }
            name_of_metric = Some(unescaped(&name[1..end - 1]));
            rest = after.strip_prefix(',').unwrap_or(after);
            continue;
        }
        let name = match is_quoted {
            true => unescaped(&name[1..end - 1]),
            false if is_legacy_label_name(name) => name.to_owned(),
            false => return Err(format!("{name:?} is not the name of a label")),
        };
        let no_value = || format!("the label {name:?} has no value in quotes");
        let value = after.strip_prefix("=").filter(|v| v.starts_with('"')).ok_or_else(no_value)?;
        let end = quoted_len(value).ok_or_else(no_value)?;
        pairs.push((name, unescaped(&value[1..end - 1])));
        let after = &value[end..];
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after == "}" => after,
            None => return Err(format!("{after:?} where a comma or the end is expected")),
        };
    }
    if let Some(name) = name_of_metric {
        pairs.push((METRIC_NAME.to_owned(), name));
    }
    labels_of(pairs)
}

/// Resolves the escapes `\\`, `\"` and `\n`; other backslashes stay.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let meant = match (c, chars.peek()) {
            ('\\', Some('\\')) => Some('\\'),
            ('\\', Some('"')) => Some('"'),
            ('\\', Some('n')) => Some('\n'),
            _ => None,
        };
        if meant.is_some() {
            chars.next();
        }
        out.push(meant.unwrap_or(c));
    }
    out
}

/// Parses a float as Go does, but without hexadecimal digits and underscores.
///
/// Source: `parseFloat` in `model/textparse/promparse.go` of Prometheus.
fn parse_value(text: &str) -> Result<f64, String> {
    let plain = (!text.contains(['p', 'P', '_'])).then(|| parse_float(text)).flatten();
    match plain.ok_or_else(|| format!("{text:?} is not a number"))? {
        value if value.is_nan() => Ok(f64::from_bits(NORMAL_NAN_BITS)),
        value => Ok(value),
    }
}

/// Parses seconds to ms, truncated as in Prometheus. Decimal digits are exact here, while
/// Prometheus multiplies floats and sometimes loses a ms.
fn parse_timestamp_ms(text: &str) -> Result<i64, String> {
    if let Some(exact) = decimal_ms(text) {
        return Ok(exact);
    }
    let ms = parse_value(text)? * 1000.0;
    // The upper bound of an i64 is not a float.
    if ms >= i64::MIN as f64 && ms < i64::MAX as f64 {
        return Ok(ms as i64);
    }
    Err(format!("{text:?} is not a timestamp in seconds"))
}

fn decimal_ms(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (seconds, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty() || !all_digits(seconds) || !all_digits(fraction) {
        return None;
    }
    let ms = format!("{fraction:0<3}");
    let ms = seconds.parse::<i64>().ok()?.checked_mul(1000)?.checked_add(ms[..3].parse().ok()?)?;
    Some(if digits.len() < text.len() { -ms } else { ms })
}
