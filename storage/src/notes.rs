//! Notes of tools in a store, such as the progress of an import.
//!
//! A note is stored in the store that it is about, so it is deleted and copied with it.

use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::store::Store;
use crate::value;

/// Maximum length of the name of a note, in bytes.
pub const NOTE_NAME_BYTES_MAX: usize = 256;
/// Maximum length of a note, in bytes.
pub const NOTE_BYTES_MAX: usize = 64 << 10;

impl Store {
    /// Returns the note under a name, if there is one.
    pub async fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = keys::note(name);
        match self.core().lsm.get(&key).await? {
            None => Ok(None),
            Some(bytes) => Ok(Some(value::decode(&key, &bytes)?.to_vec())),
        }
    }

    /// Stores a note under a name, or replaces it. On return it is durable, and so are all writes
    /// acknowledged before.
    ///
    /// Errors: a name or note beyond [`NOTE_NAME_BYTES_MAX`] or [`NOTE_BYTES_MAX`].
    pub async fn set_note(&self, name: &str, note: &[u8]) -> Result<(), StoreError> {
        if name.len() > NOTE_NAME_BYTES_MAX || note.len() > NOTE_BYTES_MAX {
            return Err(StoreError::LimitExceeded(format!(
                "a note of {} bytes under a name of {}, the limits are {NOTE_BYTES_MAX} and \
                 {NOTE_NAME_BYTES_MAX}",
                note.len(),
                name.len()
            )));
        }
        let key = keys::note(name);
        let mut set = WriteSet::default();
        set.put(key.clone(), value::encode(&key, note));
        self.core().lsm.commit(set).await
    }
}
