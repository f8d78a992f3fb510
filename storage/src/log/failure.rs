//! First failure of a commit, which the log and its queue share.

use std::sync::{Arc, OnceLock};

use crate::error::StoreError;

/// First failure of a commit: after it, neither the log nor the queue takes writes.
#[derive(Debug, Default, Clone)]
pub(crate) struct LogFailure(Arc<OnceLock<StoreError>>);

impl LogFailure {
    /// Notes the first failure; ignores later ones.
    pub(crate) fn set(&self, error: &StoreError) {
        let _ = self.0.set(error.clone());
    }

    /// Returns the failure, if there was one.
    pub(crate) fn get(&self) -> Option<StoreError> {
        self.0.get().cloned()
    }
}
