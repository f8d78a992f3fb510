//! The web configuration in force: read at the start, and anew when one of its files has changed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tracing::{error, info};

use super::WebConfig;
use super::files::Files;
use crate::access::PasswordChecks;
use crate::config::ConfigError;

const CANNOT_BE_READ: &str = "Web configuration cannot be reloaded; the last one holds.";

/// What holds for connections and requests now.
///
/// Prometheus reads its file at each request and each handshake, and answers none while the file
/// has a fault. Here a request or a handshake looks whether a file has changed, reads it anew if
/// so, and what was in force stays where it has a fault: a slip of the pen locks nobody out, and
/// the log tells of it.
#[derive(Debug, Default)]
pub(crate) struct ActiveWebConfig {
    file: Option<File>,
    checks: PasswordChecks,
}

struct File {
    path: PathBuf,
    config: RwLock<Arc<WebConfig>>,
    seen: Mutex<Seen>,
}

/// What was read last.
struct Seen {
    files: Files,
    /// What was wrong with it.
    fault: Option<String>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ActiveWebConfig {
    /// What a file says; nothing holds where none is named.
    ///
    /// Errors: a fault of the file, or of one that it names.
    pub(crate) fn load(path: Option<&Path>) -> Result<ActiveWebConfig, ConfigError> {
        let Some(path) = path else { return Ok(ActiveWebConfig::default()) };
        let mut files = Files::new();
        let config = WebConfig::load(path, &mut files)?;
        let file = File {
            path: path.to_owned(),
            config: RwLock::new(Arc::new(config)),
            seen: Mutex::new(Seen { files, fault: None }),
        };
        Ok(ActiveWebConfig { file: Some(file), checks: PasswordChecks::default() })
    }

    /// What holds now, where a file is named: as it is, if nobody else is just reading it.
    pub(crate) fn config(&self) -> Option<Arc<WebConfig>> {
        let file = self.file.as_ref()?;
        if let Ok(mut seen) = file.seen.try_lock()
            && seen.files.may_have_changed()
        {
            let known_fault = seen.fault.take();
            if let Err(error) = file.read(&mut seen)
                && seen.fault != known_fault
            {
                error!(%error, "{CANNOT_BE_READ}");
            }
        }
        Some(file.current())
    }

    /// Whether connections are encrypted, which stays as it is from the start on.
    pub(crate) fn has_tls(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.current().tls.is_some())
    }

    /// Reads the files anew, whether they have changed or not.
    ///
    /// Errors: a fault; what was in force stays.
    pub(crate) fn reload(&self) -> Result<(), ConfigError> {
        match &self.file {
            Some(file) => {
                file.read(&mut file.seen()).inspect_err(|error| error!(%error, "{CANNOT_BE_READ}"))
            }
            None => Ok(()),
        }
    }

    /// What bounds the checking of passwords.
    pub(crate) fn checks(&self) -> &PasswordChecks {
        &self.checks
    }
}

impl File {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Arc<WebConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self, seen: &mut Seen) -> Result<(), ConfigError> {
        let mut files = Files::new();
        let read = WebConfig::load(&self.path, &mut files).and_then(|config| {
            let before = self.current();
            let message = if config.tls.is_some() != before.tls.is_some() {
                "TLS is turned on and off by a restart alone"
            } else if config.access.is_open() && !before.access.is_open() {
                // A file that is being written is empty for a moment.
                "the last user and token are taken away by a restart alone"
            } else {
                return Ok(config);
            };
            let path = self.path.display().to_string();
            Err(ConfigError::Conflict { path, message: message.to_owned() })
        });
        let is_same = files.are_same(&seen.files);
        *seen = Seen { files, fault: read.as_ref().err().map(ToString::to_string) };
        let mut config = read?;
        // What is the same keeps what it knows: passwords, rate and sessions.
        if !is_same {
            config.inherit(&self.current());
            *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
            info!("Web configuration is reloaded.");
        }
        Ok(())
    }
}
