//! The flags of a store, which all tools have.

use std::path::PathBuf;
use std::time::Duration;

use storage::StoreOptions;

use super::ToolError;
use crate::config::Config;
use crate::flags::object_store::ObjectStoreArgs;
use crate::flags::{LogFormat, LogLevel, parse_positive_duration};
use crate::units::parse_bytes;

/// Which store, and how it is reached; the same flags as the server's.
#[derive(Debug, Clone, clap::Args)]
pub struct StoreArgs {
    /// Where the store is: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or
    /// az://container/prefix (with the usual variables AWS_, GOOGLE_ or AZURE_ in the
    /// environment).
    #[arg(long = "storage.url", value_name = "URL", default_value = "./data")]
    pub storage_url: String,

    #[command(flatten)]
    pub(crate) object_store: ObjectStoreArgs,

    /// Configuration file of the server, for what it says of object stores.
    #[arg(long = "config.file", value_name = "PATH")]
    pub config_file: Option<PathBuf>,

    /// How long is waited for an answer of the object store, as a duration.
    #[arg(long = "storage.read-timeout", value_name = "DURATION", default_value = "30s", value_parser = parse_positive_duration)]
    pub read_timeout: Duration,

    /// How much memory decoded blocks may take in the cache, as a size.
    #[arg(long = "storage.cache-size", value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub cache_bytes_max: u64,

    /// Only log messages of this level and above.
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "warn")]
    pub log_level: LogLevel,

    /// How log messages are written.
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt")]
    pub log_format: LogFormat,
}

impl StoreArgs {
    /// How the store is opened, before a tool sets what it needs.
    pub(crate) fn options(&self) -> Result<StoreOptions, ToolError> {
        let config = Config::load(self.config_file.as_deref())?;
        Ok(StoreOptions {
            remote: self.object_store.over(config.storage.remote()),
            read_timeout: self.read_timeout,
            cache_bytes_max: usize::try_from(self.cache_bytes_max).unwrap_or(usize::MAX),
            background: false,
            ..StoreOptions::default()
        })
    }
}
