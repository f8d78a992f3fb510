//! Survey and verification of a store, for tools only.
//!
//! ```text
//! survey   metadata of the store, and the frames of every block by their headers
//! verify   objects     every SST and WAL file: filter, index, each block, each key and value
//!          partitions  every block that is listed, decoded; the index against the blocks
//!          log         records in their order
//! ```
//!
//! Nothing is written, and another process may write to the store at the same time.

mod check;
mod objects;
mod partition;
mod survey;
mod verify;

use crate::error::StoreError;
use crate::keys;
use crate::lsm::{Location, Lsm, LsmFollower};
use crate::options::StoreOptions;

pub use partition::{EncodingSurvey, PartitionSurvey};
pub use survey::{LogSurvey, StoreSurvey, TombstoneSurvey, survey};
#[cfg(test)]
pub(crate) use verify::verify_at;
pub use verify::{Damage, Verified, verify};

/// Callback for the progress of a tool: bytes read, and approximate bytes in total.
pub type OnProgress<'a> = &'a mut (dyn FnMut(u64, u64) + Send);

/// LSM at one time, and the follower that keeps its SSTs.
struct Opened {
    lsm: Lsm,
    /// `None` if no process writes to the store: then SSTs are not deleted, and nothing is written.
    keeping: Option<LsmFollower>,
    /// Number of ids in a page of the forward index.
    page_ids: u32,
}

impl Opened {
    async fn open(location: &Location, options: &StoreOptions) -> Result<Opened, StoreError> {
        let page_ids = options.sizes.page_ids;
        let (lsm, _) = Lsm::open_to_read(location, options, false).await?;
        if lsm.get(keys::OWNER).await?.is_none() {
            return Ok(Opened { lsm, keeping: None, page_ids });
        }
        let (lsm, following) = Lsm::open_to_read(location, options, true).await?;
        Ok(Opened { lsm: lsm.fixed(), keeping: Some(following), page_ids })
    }

    /// Renews the checkpoint when due, which keeps the SSTs for some more minutes.
    async fn keep(&mut self) {
        if let Some(following) = &mut self.keeping {
            // An SST that is deleted anyway is reported when it is read.
            let _ = following.keep_files().await;
        }
    }

    /// Releases the SSTs.
    async fn close(self) {
        let Opened { lsm, mut keeping, .. } = self;
        drop(lsm);
        if let Some(following) = &mut keeping {
            following.close().await;
        }
    }
}
