//! Names as in Prometheus; `tests/against_prometheus` compares with it.

use super::super::naming::{NameKind, label_name, metric_name, unit_name};
use super::*;

const ESCAPED: Strategy = Strategy { suffixes: true, utf8: false };
const BARE: Strategy = Strategy { suffixes: false, utf8: false };
const UTF8: Strategy = Strategy { suffixes: true, utf8: true };
const AS_IS: Strategy = Strategy { suffixes: false, utf8: true };

/// Settings of a translation strategy.
struct Strategy {
    suffixes: bool,
    utf8: bool,
}

impl Strategy {
    fn settings(&self) -> Settings {
        Settings { add_suffixes: self.suffixes, allow_utf8: self.utf8, ..Settings::default() }
    }
}

/// Name, unit, kind; then the name by each strategy, in the order of the table in `naming`.
const METRICS: &[(&str, &str, NameKind, [&str; 4])] = &[
    ("a", "", NameKind::Gauge, ["a", "a", "a", "a"]),
    ("a.b", "s", NameKind::Gauge, ["a_b_seconds", "a_b", "a.b_seconds", "a.b"]),
    ("a.b", "s", NameKind::Counter, ["a_b_seconds_total", "a_b", "a.b_seconds_total", "a.b"]),
    ("a.total", "", NameKind::Counter, ["a_total", "a_total", "a_total", "a.total"]),
    (
        "total.total.x",
        "By",
        NameKind::Counter,
        ["x_bytes_total", "total_total_x", "total.total.x_bytes_total", "total.total.x"],
    ),
    ("a", "1", NameKind::Gauge, ["a_ratio", "a", "a_ratio", "a"]),
    ("a", "1", NameKind::Counter, ["a_total", "a", "a_total", "a"]),
    ("a_ratio_b", "1", NameKind::Gauge, ["a_b_ratio", "a_ratio_b", "a_ratio_b_ratio", "a_ratio_b"]),
    ("a_seconds", "s", NameKind::Other, ["a_seconds", "a_seconds", "a_seconds", "a_seconds"]),
    (
        "a_seconds_b",
        "s",
        NameKind::Other,
        ["a_seconds_b", "a_seconds_b", "a_seconds_b_seconds", "a_seconds_b"],
    ),
    ("a", "By/s", NameKind::Other, ["a_bytes_per_second", "a", "a_bytes_per_second", "a"]),
    (
        "a",
        "m/s",
        NameKind::Counter,
        ["a_meters_per_second_total", "a", "a_meters_per_second_total", "a"],
    ),
    ("a", "1/s", NameKind::Gauge, ["a_per_second", "a", "a_per_second", "a"]),
    ("a", "{req}/m", NameKind::Gauge, ["a_per_minute", "a", "a_per_minute", "a"]),
    ("a", "{req}", NameKind::Gauge, ["a", "a", "a", "a"]),
    ("a", "s/{req}", NameKind::Gauge, ["a_seconds", "a", "a_seconds", "a"]),
    ("a", "foo%", NameKind::Gauge, ["a_foo_", "a", "a_foo%", "a"]),
    ("a", "foo%/s", NameKind::Gauge, ["a_foo_per_second", "a", "a_foo%_per_second", "a"]),
    ("a", "foo/%", NameKind::Gauge, ["a_foo", "a", "a_foo_per_%", "a"]),
    ("a", "foo bar/baz", NameKind::Gauge, ["a_foo_bar_per_baz", "a", "a_foo bar_per_baz", "a"]),
    ("a", " s / h ", NameKind::Gauge, ["a_seconds_per_hour", "a", "a_seconds_per_hour", "a"]),
    ("a", "°F", NameKind::Gauge, ["a_F", "a", "a_°F", "a"]),
    ("a", "%", NameKind::Gauge, ["a_percent", "a", "a_percent", "a"]),
    ("9a", "", NameKind::Gauge, ["_9a", "_9a", "9a", "9a"]),
    ("__a__b__", "", NameKind::Gauge, ["a_b", "__a__b__", "__a__b__", "__a__b__"]),
    (".a..b.", "", NameKind::Gauge, ["a_b", "a_b", ".a..b.", ".a..b."]),
    ("a:b/ü", "", NameKind::Gauge, ["a:b", "a:b", "a:b/ü", "a:b/ü"]),
    ("ütotal", "", NameKind::Counter, ["total", "total", "ütotal_total", "ütotal"]),
    ("xütotal", "", NameKind::Counter, ["x_total", "x_total", "x_total", "xütotal"]),
    ("total", "", NameKind::Counter, ["total", "total", "total_total", "total"]),
    ("___", "", NameKind::Gauge, ["", "___", "___", "___"]),
    ("%", "s", NameKind::Gauge, ["seconds", "", "%_seconds", "%"]),
];

#[test]
fn metrics_are_named_by_each_strategy() {
    for (name, unit, kind, expected) in METRICS {
        for (strategy, expected) in [ESCAPED, BARE, UTF8, AS_IS].iter().zip(expected) {
            let built = metric_name(&strategy.settings(), name, unit, *kind);
            // The empty text is an invalid name.
            assert_eq!(built.as_deref().unwrap_or_default(), *expected, "{name} {unit} {kind:?}");
        }
    }
    let refused = metric_name(&BARE.settings(), "a/_", "", NameKind::Gauge);
    assert_eq!(refused, Ok("a__".to_owned()));
    let refused = metric_name(&BARE.settings(), "/__/", "", NameKind::Gauge);
    let words = "normalization for metric \"/__/\" resulted in invalid name \"__\"";
    assert_eq!(refused, Err(words.to_owned()));
}

#[test]
fn labels_are_named_by_each_setting() {
    let settings = |preserves, sanitizes| Settings {
        preserve_multiple_underscores: preserves,
        sanitize_leading_underscore: sanitizes,
        ..Settings::default()
    };
    // Default settings; without runs of underscores; without `key` before an underscore.
    for (name, expected) in [
        ("a.b", ["a_b", "a_b", "a_b"]),
        ("a..b", ["a__b", "a_b", "a__b"]),
        ("_a", ["key_a", "key_a", "_a"]),
        ("__a", ["__a", "key_a", "__a"]),
        ("__a__b__", ["__a__b__", "__a_b__", "__a__b__"]),
        ("9", ["key_9", "key_9", "key_9"]),
        ("ü", ["key_", "key_", ""]),
        ("üa", ["key_a", "key_a", "_a"]),
        ("a ü b", ["a___b", "a_b", "a___b"]),
        ("____", ["", "", ""]),
        (".", ["key_", "key_", ""]),
        ("..", ["", "key_", ""]),
        ("", ["", "", ""]),
    ] {
        for (settings, expected) in
            [settings(true, true), settings(false, true), settings(true, false)]
                .iter()
                .zip(expected)
        {
            let built = label_name(settings, name);
            assert_eq!(built.as_deref().unwrap_or_default(), expected, "{name}");
        }
    }
    let utf8 = Settings { allow_utf8: true, ..Settings::default() };
    assert_eq!(label_name(&utf8, "a.b ü").as_deref(), Ok("a.b ü"));
    let words = "label name \"__\" contains only underscores";
    assert_eq!(label_name(&utf8, "__"), Err(words.to_owned()));
}

#[test]
fn units_are_translated_to_words() {
    for (unit, expected) in [
        ("", ""),
        ("1", ""),
        ("s", "seconds"),
        ("By/s", "bytes_per_second"),
        ("{call}/s", "per_second"),
        ("{call}", ""),
        ("%/h", "percent_per_hour"),
        ("_a_", "a"),
        ("m^2", "m_2"),
        ("°F", "F"),
        ("a/b/c", "a_per_b_c"),
        ("a/%", "a_per"),
    ] {
        assert_eq!(unit_name(unit), expected, "{unit}");
    }
}
