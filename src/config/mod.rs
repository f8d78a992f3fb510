//! Configuration file.

mod external_labels;
mod otlp;
mod retention;
mod storage;
mod tenants;

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use ::storage::Retention;
use model::Labels;
use serde::Deserialize;
use serde_saphyr::{DefaultMessageFormatter, Localizer, Location};

use crate::flags::Args;
use crate::tenancy::LimitTable;
use crate::units::{format_duration, parse_duration};
pub use external_labels::ConfiguredLabels;
pub use otlp::OtlpConfig;
pub use storage::StorageConfig;
pub use tenants::TenantsConfig;

/// Maximum size of a configuration file, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Configuration file. Unknown keys are errors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Global settings.
    pub global: Global,
    /// Object stores, applied at a start, and retention.
    pub storage: StorageConfig,
    /// Translation of OTLP metrics.
    pub otlp: OtlpConfig,
    /// Limits of tenants.
    pub tenants: TenantsConfig,
}

/// Section `global`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Global {
    /// Default step of subqueries.
    #[serde(deserialize_with = "positive_duration")]
    pub evaluation_interval: Duration,
    /// Labels of this server in gRPC, remote read and federation.
    pub external_labels: ConfiguredLabels,
}

impl Default for Global {
    fn default() -> Global {
        Global {
            evaluation_interval: Duration::from_secs(60),
            external_labels: ConfiguredLabels::default(),
        }
    }
}

/// Error of a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is larger than the limit.
    #[error("the configuration file {path} has more than {CONFIG_BYTES_MAX} bytes")]
    TooLarge {
        /// Path of the file.
        path: String,
    },
    /// The file has a syntax error or an invalid value.
    #[error("{path}:{line}:{column}: {message}")]
    Invalid {
        /// Path of the file.
        path: String,
        /// Line of the error, from 1.
        line: u64,
        /// Column of the error, from 1.
        column: u64,
        /// Description of the error.
        message: String,
    },
    /// The file conflicts with the command line.
    #[error("{path}: {message}")]
    Conflict {
        /// Path of the file.
        path: String,
        /// Description of the error.
        message: String,
    },
    /// An external label would override the label of tenants.
    #[error(
        "the external label {0:?} (--external-label, global.external_labels) has the name of the \
         label of tenants (--tenancy.label): rename it, or run the server without --tenancy.header"
    )]
    TenantLabel(String),
}

impl Config {
    /// Loads a file, or returns the defaults without a path.
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        let Some(path) = path else {
            return Ok(Config::default());
        };
        let name = path.display().to_string();
        let read = |source| ConfigError::Read { path: name.clone(), source };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(read)?;
        std::io::Read::read_to_string(
            &mut std::io::Read::take(file, CONFIG_BYTES_MAX + 1),
            &mut text,
        )
        .map_err(read)?;
        if text.len() as u64 > CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLarge { path: name });
        }
        Config::parse(&name, &text)
    }

    /// Parses a file, which may be empty.
    pub fn parse(path: &str, text: &str) -> Result<Config, ConfigError> {
        let config: Option<Config> =
            serde_saphyr::from_str(text).map_err(|error| invalid_config(path, &error))?;
        Ok(config.unwrap_or_default())
    }

    /// Returns the retention; flags override the file.
    ///
    /// Errors: the time of a rule exceeds the global time.
    pub(crate) fn retention(&self, args: &Args) -> Result<Retention, ConfigError> {
        self.storage.retention.under(args).map_err(|message| conflict(args, message))
    }

    /// Returns the limits of tenants.
    ///
    /// Errors: tenants are off.
    pub(crate) fn tenant_limits(&self, args: &Args) -> Result<LimitTable, ConfigError> {
        if !self.tenants.is_empty() && !args.tenancy.is_on() {
            let message = "the section tenants needs the flag --tenancy.header";
            return Err(conflict(args, message.to_owned()));
        }
        Ok(self.tenants.limits())
    }

    /// Returns the external labels; flags override the file.
    pub(crate) fn external_labels(&self, args: &Args) -> Labels {
        let flags = Labels::from_pairs(args.external_labels.iter().cloned());
        self.global.external_labels.to_labels().overridden_by(&flags)
    }

    /// Checks the external labels.
    ///
    /// Errors: one has the name of the label of tenants. Its matchers would select all tenants.
    pub(crate) fn check_external_labels(&self, args: &Args) -> Result<(), ConfigError> {
        let of_tenants = &args.tenancy.label;
        if args.tenancy.is_on() && !self.external_labels(args).get(of_tenants).is_empty() {
            return Err(ConfigError::TenantLabel(of_tenants.clone()));
        }
        Ok(())
    }

    /// Returns the configuration as YAML without secrets.
    pub fn to_yaml(&self) -> String {
        let interval = format_duration(self.global.evaluation_interval);
        let global = format!("global:\n  evaluation_interval: {interval}\n");
        let labels = self.global.external_labels.to_yaml();
        let tenants = self.tenants.to_yaml();
        [global, labels, self.storage.to_yaml(), self.otlp.to_yaml(), tenants].concat()
    }
}

fn conflict(args: &Args, message: String) -> ConfigError {
    let path = args.config_file.as_ref().map(|path| path.display().to_string());
    ConfigError::Conflict { path: path.unwrap_or_default(), message }
}

/// Messages of the parser without the position, which [`ConfigError::Invalid`] shows.
struct WithoutLocation;

impl Localizer for WithoutLocation {
    fn attach_location<'a>(&self, message: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        message
    }
}

/// Keys of Prometheus' configuration for scraping, rules and other tasks that this server does not have.
const PROMETHEUS_KEYS: [&str; 12] = [
    "alerting",
    "query_log_file",
    "remote_read",
    "remote_write",
    "rule_files",
    "rule_query_offset",
    "runtime",
    "scrape_config_files",
    "scrape_configs",
    "scrape_interval",
    "scrape_timeout",
    "tracing",
];

/// Returns an error with its position; names the cause if the file is Prometheus' configuration.
fn invalid_config(path: &str, error: &serde_saphyr::Error) -> ConfigError {
    let mut invalid = invalid(path, error);
    if let ConfigError::Invalid { message, .. } = &mut invalid
        && PROMETHEUS_KEYS.iter().any(|key| message.contains(&format!("unknown field `{key}`")))
    {
        message.push_str(
            "; this key is of Prometheus: --config.file takes only the sections of \
             docs/configuration.md",
        );
    }
    invalid
}

/// Returns an error with its position, without the surrounding lines.
pub(crate) fn invalid(path: &str, error: &serde_saphyr::Error) -> ConfigError {
    let location = error.location();
    ConfigError::Invalid {
        path: path.to_owned(),
        line: location.map_or(1, |l| l.line()),
        column: location.map_or(1, |l| l.column()),
        message: error
            .without_snippet()
            .render_with_formatter(&DefaultMessageFormatter.with_localizer(&WithoutLocation)),
    }
}

pub(super) fn positive_duration<'de, D: serde::Deserializer<'de>>(
    input: D,
) -> Result<Duration, D::Error> {
    use serde::de::Error;
    let text = String::deserialize(input)?;
    match parse_duration(&text).map_err(D::Error::custom)? {
        Duration::ZERO => Err(D::Error::custom("a duration above 0 is needed")),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse("tessella.yml", text).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        for text in ["", "# nothing\n", "global: {}\n", "{}"] {
            assert_eq!(parse(text), Ok(Config::default()), "{text:?}");
        }
        let config = parse("global:\n  evaluation_interval: 1m30s\n").unwrap();
        assert_eq!(config.global.evaluation_interval, Duration::from_secs(90));
        assert_eq!(parse(&config.to_yaml()), Ok(config));
    }

    #[test]
    fn secrets_are_read_and_not_shown() {
        let text = "storage:\n  s3:\n    endpoint: http://127.0.0.1:9000\n    path_style: true\n    \
                    access_key_id: key\n    secret_access_key: hush\n  azure:\n    \
                    access_key: \"hush\"\n";
        let config = parse(text).unwrap();
        let remote = config.storage.remote();
        assert_eq!(remote.s3.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(remote.s3.is_path_style, Some(true));
        assert_eq!(remote.s3.secret_access_key, Some(::storage::Secret::new("hush")));
        let shown = config.to_yaml();
        assert!(shown.contains("    secret_access_key: <secret>\n"), "{shown}");
        assert!(shown.contains("  azure:\n    access_key: <secret>\n"), "{shown}");
        assert!(!shown.contains("gcs"), "{shown}");
        for text in [shown.as_str(), &format!("{config:?}")] {
            assert!(!text.contains("hush"), "{text}");
        }
        for wrong in ["[hush]", "{hush: 1}"] {
            let error = parse(&format!("storage:\n  s3:\n    secret_access_key: {wrong}\n"));
            let error = error.unwrap_err();
            assert!(error.starts_with("tessella.yml:3:"), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
        let number = parse("storage:\n  s3:\n    secret_access_key: 4711\n");
        assert!(number.is_ok() || !number.unwrap_err().contains("4711"));
    }

    #[test]
    fn faults_are_named_with_their_line() {
        let cases = [
            (
                "global:\n  evaluation_interval: 1m\n  scrape_interval: 5s\n",
                "tessella.yml:3:3: ",
                "unknown field `scrape_interval`",
            ),
            ("\nscrape_configs: []\n", "tessella.yml:2:1: ", "unknown field `scrape_configs`"),
            ("\nrule_files: []\n", "tessella.yml:2:1: ", "this key is of Prometheus"),
            (
                "global:\n  evaluation_interval: 5\n",
                "tessella.yml:2:24: ",
                "not a valid duration string: \"5\"",
            ),
            (
                "global:\n  evaluation_interval: 0s\n",
                "tessella.yml:2:24: ",
                "a duration above 0 is needed",
            ),
            ("global: [", "tessella.yml:1:", ""),
            (
                "global:\n  evaluation_interval: 1m\n  evaluation_interval: 2m\n",
                "tessella.yml:3:3: ",
                "evaluation_interval",
            ),
        ];
        for (text, location, message) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(location), "{error}");
            assert!(error.contains(message), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            // The position is there once, as the prefix.
            assert!(!error.contains("line") && !error.contains("column"), "{error}");
        }
    }
}
