//! LabelNames of metrics, labels and units, from those of OpenTelemetry.
//!
//! | strategy | metric `http.server.duration`, unit `ms` | label `http.method` |
//! |---|---|---|
//! | `UnderscoreEscapingWithSuffixes` | `http_server_duration_milliseconds` | `http_method` |
//! | `UnderscoreEscapingWithoutSuffixes` | `http_server_duration` | `http_method` |
//! | `NoUTF8EscapingWithSuffixes` | `http.server.duration_milliseconds` | `http.method` |
//! | `NoTranslation` | `http.server.duration` | `http.method` |
//!
//! Suffixes are, in this order: the unit, `per_` and what it is counted by, and `total` of a
//! counter or `ratio` of a gauge whose unit is `1`. A part of the name that is a suffix already
//! is not repeated. Units in braces, such as `{request}`, are no suffix.
//!
//! Source: `github.com/prometheus/otlptranslator` 1.0, which Prometheus 3.14 uses.

use model::labels::quoted;

use super::Settings;

/// Kind of a metric, as far as it changes the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    Counter,
    Gauge,
    Other,
}

/// Translates the name of a metric.
///
/// Errors: the result is empty, in the words of Prometheus.
pub(super) fn metric_name(
    settings: &Settings,
    name: &str,
    unit: &str,
    kind: NameKind,
) -> Result<String, String> {
    if settings.allow_utf8 {
        return Ok(match settings.add_suffixes {
            true => with_suffixes(name, unit, kind),
            false => name.to_owned(),
        });
    }
    let built = match settings.add_suffixes {
        true => escaped_with_suffixes(name, unit, kind),
        false => escaped(name),
    };
    if built.is_empty() {
        return Err(format!("normalization for metric {} resulted in empty name", quoted(name)));
    }
    if built != name && built.bytes().all(|byte| byte == b'_') {
        let (name, built) = (quoted(name), quoted(&built));
        return Err(format!("normalization for metric {name} resulted in invalid name {built}"));
    }
    Ok(built)
}

fn is_metric_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

/// Joins the words of a name, and its suffixes, by underscores.
fn escaped_with_suffixes(name: &str, unit: &str, kind: NameKind) -> String {
    if unit.is_empty() && kind != NameKind::Counter && is_joined_words(name) {
        return name.to_owned();
    }
    let mut words: Vec<&str> =
        name.split(|c| !is_metric_char(c)).filter(|word| !word.is_empty()).collect();
    let [main, per] = unit_suffixes(unit).map(|suffix| without_odd_chars(&suffix));
    let mut main = if words.contains(&&*main) { "" } else { &*main };
    let mut per = if per == "per_" { "" } else { per.strip_suffix('_').unwrap_or(&per) };
    if words.contains(&per) {
        per = "";
    }
    if !per.is_empty() {
        main = main.strip_suffix('_').unwrap_or(main);
    }
    words.extend([main, per].into_iter().filter(|suffix| !suffix.is_empty()));
    let last = match kind {
        NameKind::Counter => Some("total"),
        NameKind::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(last) = last {
        words.retain(|word| *word != last);
        words.push(last);
    }
    not_beginning_with_digit(words.join("_"))
}

/// Returns whether a name consists of words with an underscore between them, and does not begin
/// with a digit.
fn is_joined_words(name: &str) -> bool {
    let mut before = b'_';
    let are_words = name.bytes().all(|byte| {
        let is_valid = is_metric_char(char::from(byte)) || (byte == b'_' && before != b'_');
        before = byte;
        is_valid
    });
    are_words && before != b'_' && !name.as_bytes()[0].is_ascii_digit()
}

/// Replaces each run of invalid characters by an underscore, and removes it at both ends.
/// Underscores are valid.
fn escaped(name: &str) -> String {
    let words = name.split(|c| !is_metric_char(c) && c != '_').filter(|word| !word.is_empty());
    not_beginning_with_digit(words.collect::<Vec<_>>().join("_"))
}

fn not_beginning_with_digit(name: String) -> String {
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Appends suffixes to a name, after removing those that it has.
fn with_suffixes(name: &str, unit: &str, kind: NameKind) -> String {
    let last = match kind {
        NameKind::Counter => Some("total"),
        NameKind::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    let [main, per] = unit_suffixes(unit);
    let mut name = last.map_or(name, |last| without_suffix(name, last)).to_owned();
    if !per.is_empty() {
        name.truncate(without_suffix(&name, &per).len());
    }
    if !main.is_empty() && !name.ends_with(&main) {
        name = format!("{name}_{main}");
    }
    for suffix in [Some(&*per), last].into_iter().flatten().filter(|suffix| !suffix.is_empty()) {
        name = format!("{name}_{suffix}");
    }
    name
}

/// Removes a suffix and the character before it, unless the name is then empty.
///
/// Prometheus removes the byte before the suffix, which may be a part of a character.
fn without_suffix<'a>(name: &'a str, suffix: &str) -> &'a str {
    let mut rest = name.strip_suffix(suffix).unwrap_or_default().chars();
    match rest.next_back() {
        Some(_) if !rest.as_str().is_empty() => rest.as_str(),
        _ => name,
    }
}

/// Returns the unit of a metric for its metadata.
pub(super) fn unit_name(unit: &str) -> String {
    if unit.is_empty() {
        return String::new();
    }
    let [main, per] = unit_suffixes(unit).map(|suffix| without_odd_chars(&suffix));
    let name = match (main.is_empty(), per.is_empty()) {
        (false, false) => format!("{main}_{per}"),
        (false, true) => main,
        _ => per,
    };
    let name = name.strip_prefix('_').unwrap_or(&name);
    name.strip_suffix('_').unwrap_or(name).to_owned()
}

/// Returns the suffixes of a unit: for the part before the slash, and for the part after it.
fn unit_suffixes(unit: &str) -> [String; 2] {
    if unit.is_empty() {
        return Default::default();
    }
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let [main, per] = [main.trim(), per.trim()].map(|unit| match unit.contains(['{', '}']) {
        true => "",
        false => unit,
    });
    let main = match main {
        "d" => "days",
        "h" => "hours",
        "min" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        "By" => "bytes",
        "KiBy" => "kibibytes",
        "MiBy" => "mebibytes",
        "GiBy" => "gibibytes",
        "TiBy" => "tibibytes",
        "KBy" => "kilobytes",
        "MBy" => "megabytes",
        "GBy" => "gigabytes",
        "TBy" => "terabytes",
        "m" => "meters",
        "V" => "volts",
        "A" => "amperes",
        "J" => "joules",
        "W" => "watts",
        "g" => "grams",
        "Cel" => "celsius",
        "Hz" => "hertz",
        "1" => "",
        "%" => "percent",
        other => other,
    };
    let per = match per {
        "" => String::new(),
        "s" => "per_second".to_owned(),
        "m" => "per_minute".to_owned(),
        "h" => "per_hour".to_owned(),
        "d" => "per_day".to_owned(),
        "w" => "per_week".to_owned(),
        "mo" => "per_month".to_owned(),
        "y" => "per_year".to_owned(),
        other => format!("per_{other}"),
    };
    [main.to_owned(), per]
}

/// Replaces each run of invalid characters of a unit by an underscore, and removes it at the start.
fn without_odd_chars(unit: &str) -> String {
    let mut out = String::with_capacity(unit.len());
    for c in unit.chars() {
        match is_metric_char(c) {
            true => out.push(c),
            false if out.is_empty() || out.ends_with('_') => {}
            false => out.push('_'),
        }
    }
    out
}

/// Translates the name of an attribute to that of a label.
///
/// Errors: the result is empty, in the words of Prometheus.
pub(super) fn label_name(settings: &Settings, name: &str) -> Result<String, String> {
    let has_underscores_only = |name: &str| name.bytes().all(|byte| byte == b'_');
    if name.is_empty() {
        return Err("label name is empty".to_owned());
    }
    if settings.allow_utf8 {
        return match has_underscores_only(name) {
            true => Err(format!("label name {} contains only underscores", quoted(name))),
            false => Ok(name.to_owned()),
        };
    }
    let mut built = escaped_label(name, settings.preserve_multiple_underscores);
    if built.starts_with(|c: char| c.is_ascii_digit()) {
        built.insert_str(0, "key_");
    } else if settings.sanitize_leading_underscore
        && built.starts_with('_')
        && !built.starts_with("__")
    {
        built.insert_str(0, "key");
    }
    if has_underscores_only(&built) {
        let (name, built) = (quoted(name), quoted(&built));
        return Err(format!(
            "normalization for label name {name} resulted in invalid name {built}"
        ));
    }
    Ok(built)
}

fn escaped_label(name: &str, preserves: bool) -> String {
    let escaped = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    if preserves {
        return name.chars().map(escaped).collect();
    }
    // A reserved name keeps its underscores.
    let reserved = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"));
    let mut out = String::with_capacity(name.len());
    for c in reserved.unwrap_or(name).chars().map(escaped) {
        if c != '_' || !out.ends_with('_') {
            out.push(c);
        }
    }
    if reserved.is_some() { format!("__{out}__") } else { out }
}
