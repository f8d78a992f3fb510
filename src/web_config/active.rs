//! Active web configuration: loaded at the start and when one of its files changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tracing::{error, info};

use super::WebConfig;
use super::files::Files;
use crate::access::PasswordChecks;
use crate::config::ConfigError;

const CANNOT_BE_READ: &str = "cannot reload web configuration; the previous one stays active";

/// Active web configuration.
///
/// Prometheus reads its file at each request and handshake, and rejects all while the file has an
/// error. Here a request or handshake reloads a changed file, and after an error the previous
/// configuration stays active: a typing error locks out no user, and is logged.
#[derive(Debug, Default)]
pub(crate) struct ActiveWebConfig {
    file: Option<File>,
    checks: PasswordChecks,
}

struct File {
    path: PathBuf,
    config: RwLock<Arc<WebConfig>>,
    last_load: Mutex<LastLoad>,
}

/// Result of the last load.
struct LastLoad {
    files: Files,
    /// Error of the load.
    fault: Option<String>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ActiveWebConfig {
    /// Loads a file; without a path, there is no configuration.
    ///
    /// Errors: the file, or one that it names, is invalid.
    pub(crate) fn load(path: Option<&Path>) -> Result<ActiveWebConfig, ConfigError> {
        let Some(path) = path else { return Ok(ActiveWebConfig::default()) };
        let mut files = Files::new();
        let config = WebConfig::load(path, &mut files)?;
        let file = File {
            path: path.to_owned(),
            config: RwLock::new(Arc::new(config)),
            last_load: Mutex::new(LastLoad { files, fault: None }),
        };
        Ok(ActiveWebConfig { file: Some(file), checks: PasswordChecks::default() })
    }

    /// Returns the configuration, after a reload of changed files unless one is running.
    pub(crate) fn config(&self) -> Option<Arc<WebConfig>> {
        let file = self.file.as_ref()?;
        if let Ok(mut last_load) = file.last_load.try_lock()
            && last_load.files.may_have_changed()
        {
            let known_fault = last_load.fault.take();
            if let Err(error) = file.read(&mut last_load)
                && last_load.fault != known_fault
            {
                error!(%error, "{CANNOT_BE_READ}");
            }
        }
        Some(file.current())
    }

    /// Returns whether connections are encrypted; a reload cannot change it.
    pub(crate) fn has_tls(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.current().tls.is_some())
    }

    /// Reloads the files, changed or not.
    ///
    /// Errors: a file is invalid; the previous configuration stays active.
    pub(crate) fn reload(&self) -> Result<(), ConfigError> {
        match &self.file {
            Some(file) => file
                .read(&mut file.last_load())
                .inspect_err(|error| error!(%error, "{CANNOT_BE_READ}")),
            None => Ok(()),
        }
    }

    /// Limit of concurrent password checks.
    pub(crate) fn checks(&self) -> &PasswordChecks {
        &self.checks
    }
}

impl File {
    fn last_load(&self) -> MutexGuard<'_, LastLoad> {
        self.last_load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Arc<WebConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self, last_load: &mut LastLoad) -> Result<(), ConfigError> {
        let mut files = Files::new();
        let read = WebConfig::load(&self.path, &mut files).and_then(|config| {
            let before = self.current();
            let message = if config.tls.is_some() != before.tls.is_some() {
                "TLS can only be turned on or off by a restart"
            } else if config.access.is_open() && !before.access.is_open() {
                // A file is empty for a moment while it is written.
                "the last user or token can only be removed by a restart"
            } else {
                return Ok(config);
            };
            let path = self.path.display().to_string();
            Err(ConfigError::Conflict { path, message: message.to_owned() })
        });
        let is_same = files.are_same(&last_load.files);
        *last_load = LastLoad { files, fault: read.as_ref().err().map(ToString::to_string) };
        let mut config = read?;
        // Unchanged files keep verified passwords, rates and sessions.
        if !is_same {
            config.inherit(&self.current());
            *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
            info!("web configuration reloaded");
        }
        Ok(())
    }
}
