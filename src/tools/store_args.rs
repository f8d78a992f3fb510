//! Flags of the store, which all tools have.

use std::path::PathBuf;
use std::time::Duration;

use storage::StoreOptions;

use super::ToolError;
use crate::config::Config;
use crate::flags::object_store::ObjectStoreArgs;
use crate::flags::{LogFormat, LogLevel, parse_positive_duration};
use crate::units::parse_bytes;

/// Location of a store, and how it is read; flags as of the server.
#[derive(Debug, Clone, clap::Args)]
pub struct StoreArgs {
    /// Location of the store: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or
    /// az://container/prefix (with the usual environment variables AWS_, GOOGLE_ or AZURE_).
    #[arg(long = "storage.url", value_name = "URL", default_value = "./data")]
    pub storage_url: String,

    #[command(flatten)]
    pub(crate) reading: StoreReadArgs,
}

impl StoreArgs {
    /// Returns options for the store, which each tool completes.
    pub(crate) fn options(&self) -> Result<StoreOptions, ToolError> {
        self.reading.options()
    }
}

/// Flags of any number of stores.
#[derive(Debug, Clone, clap::Args)]
pub struct StoreReadArgs {
    #[command(flatten)]
    pub(crate) object_store: ObjectStoreArgs,

    /// Configuration file of the server, for its object store settings.
    #[arg(long = "config.file", value_name = "PATH")]
    pub config_file: Option<PathBuf>,

    /// Maximum time until the object store answers, as a duration.
    #[arg(long = "storage.read-timeout", value_name = "DURATION", default_value = "30s", value_parser = parse_positive_duration)]
    pub read_timeout: Duration,

    /// Maximum size of the block cache in memory.
    #[arg(long = "storage.cache-size", value_name = "SIZE", default_value = "128MiB", value_parser = parse_bytes)]
    pub cache_bytes_max: u64,

    /// Minimum level of log messages.
    #[arg(long = "log.level", value_name = "LEVEL", default_value = "warn")]
    pub log_level: LogLevel,

    /// Format of log messages.
    #[arg(long = "log.format", value_name = "FORMAT", default_value = "logfmt")]
    pub log_format: LogFormat,
}

impl StoreReadArgs {
    /// Returns options for the store, which each tool completes.
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
