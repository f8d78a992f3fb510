//! Section `otlp` of the configuration file: translation of OTLP metrics.
//!
//! Source: `OTLPConfig` of Prometheus, for names, defaults and errors.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::{self, Deserializer};
use wire::otlp::{Promoted, Settings};

use crate::flags::Args;

/// Section `otlp`. A reload applies it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct OtlpConfig(Fields);

/// Fields as they are written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fields {
    promote_all_resource_attributes: bool,
    #[serde(deserialize_with = "attributes")]
    promote_resource_attributes: Vec<String>,
    #[serde(deserialize_with = "attributes")]
    ignore_resource_attributes: Vec<String>,
    #[serde(deserialize_with = "strategy")]
    translation_strategy: Strategy,
    keep_identifying_resource_attributes: bool,
    convert_histograms_to_nhcb: bool,
    promote_scope_metadata: bool,
    label_name_underscore_sanitization: bool,
    label_name_preserve_multiple_underscores: bool,
}

/// Translation of metric and label names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    UnderscoreEscapingWithSuffixes,
    UnderscoreEscapingWithoutSuffixes,
    NoUtf8EscapingWithSuffixes,
    NoTranslation,
}

impl Strategy {
    const ALL: [(Strategy, &str); 4] = [
        (Strategy::UnderscoreEscapingWithSuffixes, "UnderscoreEscapingWithSuffixes"),
        (Strategy::UnderscoreEscapingWithoutSuffixes, "UnderscoreEscapingWithoutSuffixes"),
        (Strategy::NoUtf8EscapingWithSuffixes, "NoUTF8EscapingWithSuffixes"),
        (Strategy::NoTranslation, "NoTranslation"),
    ];

    fn name(self) -> &'static str {
        Strategy::ALL[self as usize].1
    }
}

impl Default for Fields {
    fn default() -> Fields {
        Fields {
            promote_all_resource_attributes: false,
            promote_resource_attributes: Vec::new(),
            ignore_resource_attributes: Vec::new(),
            translation_strategy: Strategy::UnderscoreEscapingWithSuffixes,
            keep_identifying_resource_attributes: false,
            convert_histograms_to_nhcb: false,
            promote_scope_metadata: false,
            label_name_underscore_sanitization: true,
            label_name_preserve_multiple_underscores: true,
        }
    }
}

impl TryFrom<Fields> for OtlpConfig {
    type Error = &'static str;

    fn try_from(fields: Fields) -> Result<OtlpConfig, &'static str> {
        match fields.promote_all_resource_attributes {
            true if !fields.promote_resource_attributes.is_empty() => Err(
                "'promote_all_resource_attributes' and 'promote_resource_attributes' cannot be \
                 configured simultaneously",
            ),
            false if !fields.ignore_resource_attributes.is_empty() => {
                Err("'ignore_resource_attributes' cannot be configured unless \
                 'promote_all_resource_attributes' is true")
            }
            _ => Ok(OtlpConfig(fields)),
        }
    }
}

impl OtlpConfig {
    /// Returns the settings of the translation.
    pub(crate) fn settings(&self, args: &Args) -> Settings {
        let OtlpConfig(fields) = self;
        let set = |names: &[String]| names.iter().cloned().collect::<HashSet<_>>();
        let strategy = fields.translation_strategy;
        Settings {
            add_suffixes: matches!(
                strategy,
                Strategy::UnderscoreEscapingWithSuffixes | Strategy::NoUtf8EscapingWithSuffixes
            ),
            allow_utf8: matches!(
                strategy,
                Strategy::NoUtf8EscapingWithSuffixes | Strategy::NoTranslation
            ),
            promoted: match fields.promote_all_resource_attributes {
                true => Promoted::AllBut(set(&fields.ignore_resource_attributes)),
                false => Promoted::Listed(set(&fields.promote_resource_attributes)),
            },
            keep_identifying: fields.keep_identifying_resource_attributes,
            to_custom_buckets: fields.convert_histograms_to_nhcb,
            promote_scope: fields.promote_scope_metadata,
            sanitize_leading_underscore: fields.label_name_underscore_sanitization,
            preserve_multiple_underscores: fields.label_name_preserve_multiple_underscores,
            allow_delta: args.otlp_native_delta,
            lookback_ns: u64::try_from(args.lookback_delta.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the section as YAML, empty if nothing is set.
    pub(super) fn to_yaml(&self) -> String {
        let (OtlpConfig(fields), default) = (self, Fields::default());
        let mut out = String::new();
        for (name, names) in [
            ("promote_resource_attributes", &fields.promote_resource_attributes),
            ("ignore_resource_attributes", &fields.ignore_resource_attributes),
        ] {
            if !names.is_empty() {
                out.push_str(&format!("  {name}:\n"));
            }
            for attribute in names {
                // In single quotes of YAML, only these are doubled.
                out.push_str(&format!("  - '{}'\n", attribute.replace('\'', "''")));
            }
        }
        if fields.translation_strategy != default.translation_strategy {
            let name = fields.translation_strategy.name();
            out.push_str(&format!("  translation_strategy: {name}\n"));
        }
        for (name, of) in SWITCHES {
            if of(fields) != of(&default) {
                out.push_str(&format!("  {name}: {}\n", of(fields)));
            }
        }
        if out.is_empty() { out } else { format!("otlp:\n{out}") }
    }
}

/// Name of a Boolean field, and its value.
type Switch = (&'static str, fn(&Fields) -> bool);

const SWITCHES: [Switch; 6] = [
    ("promote_all_resource_attributes", |f| f.promote_all_resource_attributes),
    ("keep_identifying_resource_attributes", |f| f.keep_identifying_resource_attributes),
    ("convert_histograms_to_nhcb", |f| f.convert_histograms_to_nhcb),
    ("promote_scope_metadata", |f| f.promote_scope_metadata),
    ("label_name_underscore_sanitization", |f| f.label_name_underscore_sanitization),
    ("label_name_preserve_multiple_underscores", |f| f.label_name_preserve_multiple_underscores),
];

fn strategy<'de, D: Deserializer<'de>>(input: D) -> Result<Strategy, D::Error> {
    let text = String::deserialize(input)?;
    let known = Strategy::ALL.into_iter().find(|(_, name)| *name == text);
    known.map(|(strategy, _)| strategy).ok_or_else(|| {
        let names = Strategy::ALL.map(|(_, name)| name).join(", ");
        de::Error::custom(format!(
            "unsupported OTLP translation strategy {text:?}, supported are {names}"
        ))
    })
}

/// Parses trimmed names, none empty or repeated.
fn attributes<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    let mut names: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    for name in Vec::<String>::deserialize(input)? {
        let name = name.trim();
        if name.is_empty() {
            return Err(de::Error::custom("empty OTel resource attribute"));
        }
        if !seen.insert(name.to_owned()) {
            let text = format!("duplicated OTel resource attribute {name:?}");
            return Err(de::Error::custom(text));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::Config;
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse("tessella.yml", text).map_err(|error| error.to_string())
    }

    fn settings(text: &str, args: &[&str]) -> Settings {
        let args = Args::parse_from(["tessella"].iter().chain(args));
        parse(text).unwrap().otlp.settings(&args)
    }

    #[test]
    fn what_is_not_set_is_as_in_prometheus() {
        for text in ["", "otlp: {}\n", "global: {}\n"] {
            assert_eq!(settings(text, &[]), Settings::default(), "{text:?}");
        }
        let set = settings("", &["--query.lookback-delta=1m", "--otlp.native-delta-ingestion"]);
        assert_eq!((set.lookback_ns, set.allow_delta), (60_000_000_000, true));
    }

    #[test]
    fn every_field_is_read_and_shown() {
        let text = "otlp:\n  promote_resource_attributes:\n  - 'a.b'\n  - 'it''s'\n  \
                    translation_strategy: NoTranslation\n  \
                    keep_identifying_resource_attributes: true\n  \
                    convert_histograms_to_nhcb: true\n  promote_scope_metadata: true\n  \
                    label_name_underscore_sanitization: false\n  \
                    label_name_preserve_multiple_underscores: false\n";
        let config = parse(text).unwrap();
        assert!(config.to_yaml().ends_with(text), "{}", config.to_yaml());
        assert_eq!(
            settings(text, &[]),
            Settings {
                add_suffixes: false,
                allow_utf8: true,
                promoted: Promoted::Listed(["a.b", "it's"].map(str::to_owned).into()),
                keep_identifying: true,
                to_custom_buckets: true,
                promote_scope: true,
                sanitize_leading_underscore: false,
                preserve_multiple_underscores: false,
                ..Settings::default()
            }
        );
        let text = "otlp:\n  ignore_resource_attributes:\n  - 'x'\n  \
                    promote_all_resource_attributes: true\n";
        assert_eq!(settings(text, &[]).promoted, Promoted::AllBut(["x".to_owned()].into()));
        assert!(parse(text).unwrap().to_yaml().ends_with(text));
        for (strategy, suffixes, utf8) in [
            ("UnderscoreEscapingWithSuffixes", true, false),
            ("UnderscoreEscapingWithoutSuffixes", false, false),
            ("NoUTF8EscapingWithSuffixes", true, true),
            ("NoTranslation", false, true),
        ] {
            let set = settings(&format!("otlp: {{translation_strategy: {strategy}}}"), &[]);
            assert_eq!((set.add_suffixes, set.allow_utf8), (suffixes, utf8), "{strategy}");
        }
    }

    #[test]
    fn faults_are_named_with_their_line() {
        for (text, location, message) in [
            ("\notlp:\n  namespace: a\n", "tessella.yml:3:3: ", "unknown field `namespace`"),
            (
                "otlp:\n  translation_strategy: Some\n",
                "tessella.yml:2:25: ",
                "unsupported OTLP translation strategy \"Some\"",
            ),
            (
                "otlp:\n  promote_resource_attributes: [a, ' ']\n",
                "tessella.yml:2:",
                "empty OTel resource attribute",
            ),
            (
                "otlp:\n  promote_resource_attributes: [a, ' a']\n",
                "tessella.yml:2:",
                "duplicated OTel resource attribute \"a\"",
            ),
            (
                "otlp:\n  ignore_resource_attributes: [a]\n",
                "tessella.yml:",
                "cannot be configured unless 'promote_all_resource_attributes' is true",
            ),
            (
                "otlp:\n  promote_all_resource_attributes: true\n  \
                 promote_resource_attributes: [a]\n",
                "tessella.yml:",
                "cannot be configured simultaneously",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(location), "{error}");
            assert!(error.contains(message), "{error}");
        }
    }
}
