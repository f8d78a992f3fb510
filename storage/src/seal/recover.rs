//! Cleanup after interrupted seals, at a start.

use crate::error::StoreError;
use crate::keys;
use crate::lsm::{Lsm, WriteSet};
use crate::meta::{Meta, decode_intent, read_meta};
use crate::value;

/// Reads the records of the store about itself, and deletes the leftovers of interrupted seals.
pub(crate) async fn recover(lsm: &Lsm) -> Result<Meta, StoreError> {
    let meta = read_meta(lsm).await?;
    let mut scan = lsm.scan_prefix(keys::INTENTS_PREFIX).await?;
    let mut intents = Vec::new();
    while let Some((key, bytes)) = scan.next().await? {
        intents.push((key, bytes));
    }
    for (key, bytes) in intents {
        undo_intent(lsm, &key, &bytes).await?;
    }
    lsm.drop_log_before(meta.first_epoch);
    Ok(meta)
}

/// Deletes an intent, and those of its blocks that no directory lists.
pub(super) async fn undo_intent(lsm: &Lsm, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
    let mut set = WriteSet::default();
    for block in decode_intent(key, bytes)? {
        // The same process may have repeated a failed seal and published the block.
        let directory = keys::directory_of_block(&block)
            .ok_or_else(|| value::corrupt(key, "malformed block key"))?;
        if lsm.get(&directory).await?.is_none() {
            set.delete(&block);
        }
    }
    set.delete(key);
    lsm.commit(set).await
}
