//! What tools note in a store: how far an import has come.
//!
//! A note lies in the store that it is about, so that it is gone with it, and a copy has it too.

use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::store::Store;
use crate::value;

/// The longest name of a note, in bytes.
pub const NOTE_NAME_BYTES_MAX: usize = 256;
/// The longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 64 << 10;

impl Store {
    /// What has been noted under a name, if anything.
    pub async fn note(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = keys::note(name);
        match self.core().lsm.get(&key).await? {
            None => Ok(None),
            Some(bytes) => Ok(Some(value::decode(&key, &bytes)?.to_vec())),
        }
    }

    /// Notes something under a name, in place of what was noted before. It is durable on return,
    /// and so is all that was acknowledged before.
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
