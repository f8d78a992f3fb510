//! Section `tenants` of the configuration file: limits of tenants.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, de};

use crate::tenancy::{LimitTable, TenantLimits, check_name};
use crate::units::{format_bytes, parse_bytes};

/// Maximum number of tenants with limits of their own.
const OVERRIDES_MAX: usize = 1_000;

/// Section `tenants`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantsConfig {
    defaults: LimitsConfig,
    #[serde(deserialize_with = "overrides")]
    overrides: BTreeMap<String, LimitsConfig>,
}

/// Limits of a tenant; 0 is no limit. An override has the defaults for limits that it does not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsConfig {
    active_series: Option<u64>,
    samples_per_second: Option<u64>,
    concurrent_queries: Option<u64>,
    #[serde(deserialize_with = "size")]
    query_memory: Option<u64>,
}

impl TenantsConfig {
    /// Returns whether the section sets nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == TenantsConfig::default()
    }

    /// Returns the limits of all tenants.
    pub(crate) fn limits(&self) -> LimitTable {
        let defaults = self.defaults.over(TenantLimits::default());
        let own = |(tenant, own): (&String, &LimitsConfig)| (tenant.clone(), own.over(defaults));
        LimitTable { defaults, overrides: self.overrides.iter().map(own).collect() }
    }

    /// Returns the section as YAML, empty if nothing is set.
    pub(super) fn to_yaml(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut out = format!("tenants:\n  defaults: {}\n", self.defaults.to_yaml());
        if !self.overrides.is_empty() {
            out.push_str("  overrides:\n");
        }
        for (tenant, limits) in &self.overrides {
            // All characters of a name are plain within single quotes, except for the quote itself.
            let tenant = tenant.replace('\'', "''");
            let _ = writeln!(out, "    '{tenant}': {}", limits.to_yaml());
        }
        out
    }
}

impl LimitsConfig {
    fn over(&self, defaults: TenantLimits) -> TenantLimits {
        TenantLimits {
            active_series_max: self.active_series.unwrap_or(defaults.active_series_max),
            samples_per_second_max: self
                .samples_per_second
                .unwrap_or(defaults.samples_per_second_max),
            queries_max: self.concurrent_queries.unwrap_or(defaults.queries_max),
            query_memory_bytes_max: self.query_memory.unwrap_or(defaults.query_memory_bytes_max),
        }
    }

    fn to_yaml(&self) -> String {
        let fields = [
            ("active_series", self.active_series.map(|count| count.to_string())),
            ("samples_per_second", self.samples_per_second.map(|count| count.to_string())),
            ("concurrent_queries", self.concurrent_queries.map(|count| count.to_string())),
            ("query_memory", self.query_memory.map(format_bytes)),
        ];
        let set = fields.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let texts: Vec<String> = set.map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{{{}}}", texts.join(", "))
    }
}

fn size<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(input)?;
    parse_bytes(&text).map(Some).map_err(de::Error::custom)
}

fn overrides<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<BTreeMap<String, LimitsConfig>, D::Error> {
    let overrides = BTreeMap::<String, LimitsConfig>::deserialize(input)?;
    if overrides.len() > OVERRIDES_MAX {
        let found = overrides.len();
        let message = format!("{found} overrides of tenants, the limit is {OVERRIDES_MAX}");
        return Err(de::Error::custom(message));
    }
    for tenant in overrides.keys() {
        check_name(tenant)
            .map_err(|reason| de::Error::custom(format!("invalid tenant {tenant:?}: {reason}")))?;
    }
    Ok(overrides)
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse("tessella.yml", text).map_err(|error| error.to_string())
    }

    #[test]
    fn overrides_have_the_defaults_for_what_they_do_not_set() {
        let text = "tenants:\n  defaults: {active_series: 10, samples_per_second: 20, \
                    concurrent_queries: 3, query_memory: 1MiB}\n  overrides:\n    team-a: \
                    {active_series: 0, query_memory: 2GiB}\n    it's: {}\n";
        let config = parse(text).unwrap();
        let limits = config.tenants.limits();
        let of = |tenant| {
            let limits = limits.of(tenant);
            [
                limits.active_series_max,
                limits.samples_per_second_max,
                limits.queries_max,
                limits.query_memory_bytes_max,
            ]
        };
        assert_eq!(of("other"), [10, 20, 3, 1 << 20]);
        assert_eq!(of("it's"), of("other"));
        assert_eq!(of("team-a"), [0, 20, 3, 2 << 30]);
        let series = limits.active_series();
        assert_eq!((series.of("team-a"), series.of("other")), (usize::MAX, 10));
        assert_eq!(parse(&config.to_yaml()), Ok(config));
        assert!(parse("").unwrap().tenants.is_empty());
    }

    #[test]
    fn invalid_limits_are_errors() {
        for (text, message) in [
            ("tenants: {overrides: {a/b: {}}}", "invalid tenant \"a/b\": it has characters"),
            ("tenants: {defaults: {series: 1}}", "unknown field `series`"),
            ("tenants: {defaults: {active_series: -1}}", ""),
            ("tenants: {defaults: {query_memory: much}}", "much"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        let many: Vec<String> = (0..1_001).map(|i| format!("t{i}: {{}}")).collect();
        let error = parse(&format!("tenants: {{overrides: {{{}}}}}", many.join(", ")));
        assert!(error.unwrap_err().contains("1001 overrides of tenants, the limit is 1000"));
    }
}
