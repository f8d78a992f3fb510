//! Metric families of OpenMetrics text, with their metadata.

use std::collections::BTreeMap;

use formats::open_metrics::Family;
use model::{MetricKind, MetricMetadata, SmolStr};

/// Groups metrics by family, both sorted by name.
///
/// `known` returns the latest metadata of a metric. In OpenMetrics the family of a counter has no
/// `_total`, but its samples have it: metadata that do not fit this form are omitted.
pub(super) fn families(
    names: Vec<SmolStr>,
    known: impl Fn(&str) -> Option<MetricMetadata>,
) -> Vec<(Family, Vec<SmolStr>)> {
    let mut families: BTreeMap<String, (Family, Vec<SmolStr>)> = BTreeMap::new();
    for name in names {
        let family = family_of(&name, &known);
        let (_, names) =
            families.entry(family.name.clone()).or_insert_with(|| (family, Vec::new()));
        names.push(name);
    }
    families.into_values().collect()
}

/// Returns the suffixes of samples of a family, by its type. The empty one is the family's name.
fn suffixes(kind: MetricKind) -> &'static [&'static str] {
    match kind {
        MetricKind::Counter => &["_total", "_created"],
        MetricKind::Histogram => &["_bucket", "_sum", "_count", "_created"],
        MetricKind::GaugeHistogram => &["_bucket", "_gsum", "_gcount"],
        MetricKind::Summary => &["", "_sum", "_count", "_created"],
        MetricKind::Info => &["_info"],
        MetricKind::Unknown | MetricKind::Gauge | MetricKind::StateSet => &[""],
    }
}

fn family_of(name: &str, known: &impl Fn(&str) -> Option<MetricMetadata>) -> Family {
    const SUFFIXES: [&str; 9] =
        ["", "_total", "_created", "_bucket", "_sum", "_count", "_gsum", "_gcount", "_info"];
    for suffix in SUFFIXES {
        let Some(stem) = name.strip_suffix(suffix).filter(|stem| !stem.is_empty()) else {
            continue;
        };
        // Remote write and the older text format name a counter with its suffix.
        let spellings = [stem.to_owned(), format!("{stem}_total"), format!("{stem}_info")];
        for spelling in spellings {
            let metadata =
                known(&spelling).filter(|metadata| suffixes(metadata.kind).contains(&suffix));
            let is_own = |metadata: &MetricMetadata| match metadata.kind {
                MetricKind::Counter => true,
                MetricKind::Info => !spelling.ends_with("_total"),
                _ => spelling == stem,
            };
            if let Some(metadata) = metadata.filter(is_own) {
                return described(stem, metadata);
            }
        }
    }
    // The help of a name with the wrong form is still useful.
    let help = known(name).map(|metadata| metadata.help).unwrap_or_default();
    let name = name.to_owned();
    Family { name, kind: MetricKind::Unknown, help, unit: String::new() }
}

fn described(name: &str, metadata: MetricMetadata) -> Family {
    let is_suffix =
        name.strip_suffix(metadata.unit.as_str()).is_some_and(|rest| rest.ends_with('_'));
    let unit = if is_suffix { metadata.unit } else { String::new() };
    Family { name: name.to_owned(), kind: metadata.kind, help: metadata.help, unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_put_under_the_family_that_openmetrics_asks_for() {
        let known = |name: &str| {
            let (kind, unit) = match name {
                "requests" => (MetricKind::Counter, ""),
                "errors_total" => (MetricKind::Counter, ""),
                "odd_counter" => (MetricKind::Counter, ""),
                "latency_seconds" => (MetricKind::Histogram, "seconds"),
                "build_info" => (MetricKind::Info, ""),
                "queue" => (MetricKind::Gauge, "seconds"),
                _ => return None,
            };
            Some(MetricMetadata { kind, help: name.to_uppercase(), unit: unit.to_owned() })
        };
        let names = [
            "build_info",
            "errors_total",
            "latency_seconds_bucket",
            "latency_seconds_count",
            "latency_seconds_other",
            "latency_seconds_sum",
            "nobody_knows",
            "odd_counter",
            "queue",
            "queue_count",
            "requests_created",
            "requests_total",
        ];
        let found: Vec<_> = families(names.map(SmolStr::new).to_vec(), known)
            .into_iter()
            .map(|(family, names)| {
                (family.name, family.kind.as_str(), family.unit, names.join(" "))
            })
            .collect();
        let expected = [
            ("build", "info", "", "build_info"),
            ("errors", "counter", "", "errors_total"),
            (
                "latency_seconds",
                "histogram",
                "seconds",
                "latency_seconds_bucket latency_seconds_count latency_seconds_sum",
            ),
            ("latency_seconds_other", "unknown", "", "latency_seconds_other"),
            ("nobody_knows", "unknown", "", "nobody_knows"),
            ("odd_counter", "unknown", "", "odd_counter"),
            ("queue", "gauge", "", "queue"),
            ("queue_count", "unknown", "", "queue_count"),
            ("requests", "counter", "", "requests_created requests_total"),
        ];
        let expected = expected.map(|(name, kind, unit, names)| {
            (name.to_owned(), kind, unit.to_owned(), names.to_owned())
        });
        assert_eq!(found, expected);
    }
}
