//! What is in a store, and whether all of it is right: the business of tools, and of nobody who
//! serves.
//!
//! ```text
//! survey   what the store says of itself, and the frames of every block by their headers
//! verify   objects     every file that is wanted: filter, index, each block, each key and value
//!          partitions  every block that is listed, decoded; the index against the blocks
//!          log         records in their order
//! ```
//!
//! Nothing is written, and whoever writes to the store goes on.

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

/// How far a tool has come: bytes read, and bytes in all, about.
pub type OnProgress<'a> = &'a mut (dyn FnMut(u64, u64) + Send);

/// A tree as it is now, and what keeps its files.
struct Opened {
    lsm: Lsm,
    /// Where nobody writes to the store, its files stay by themselves, and nothing is written.
    keeping: Option<LsmFollower>,
    /// Ids in a page of the forward index.
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

    /// Sees to it that the files stay for some more minutes.
    async fn keep(&mut self) {
        if let Some(following) = &mut self.keeping {
            // What goes all the same is missed when it is read.
            let _ = following.keep_files().await;
        }
    }

    /// Lets go of the files.
    async fn close(self) {
        let Opened { lsm, mut keeping, .. } = self;
        drop(lsm);
        if let Some(following) = &mut keeping {
            following.close().await;
        }
    }
}
