//! Object store that compares an SST with the manifest before its first read. Another valid SST in
//! its place would go unnoticed, and hide samples.
//!
//! Used on local disks, where it costs three small reads per SST and start. Comparing all SSTs at
//! the start would triple the start time of a store of years.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use slatedb::SstReader;
use slatedb::manifest::{SsTableHandle, SsTableInfo};
use slatedb::object_store::path::Path;
use slatedb::object_store::{GetOptions, GetResult, ObjectStore, Result};

use crate::lsm::objects::checksummed::damaged;
use crate::lsm::objects::layer::{Layer, Layered};

/// Timeout for the comparison of one SST.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Object store that verifies SSTs on their first read.
#[derive(Debug)]
pub(in crate::lsm) struct VerifiedStore {
    objects: Arc<dyn ObjectStore>,
    /// Folder of the LSM.
    path: Path,
    /// SSTs that have not been verified yet, by name.
    unverified: Mutex<HashMap<String, SsTableHandle>>,
}

impl VerifiedStore {
    /// Wraps the object store of an LSM at a path.
    pub(in crate::lsm) fn new(objects: Arc<dyn ObjectStore>, path: Path) -> Layered<VerifiedStore> {
        Layered(VerifiedStore { objects, path, unverified: Mutex::default() })
    }

    /// Adds SSTs to be verified on their first read.
    pub(in crate::lsm) fn verify_on_read(&self, files: impl IntoIterator<Item = SsTableHandle>) {
        let named = files.into_iter().map(|file| (format!("{}.sst", file.id.value()), file));
        self.unverified.lock().unwrap_or_else(PoisonError::into_inner).extend(named);
    }

    /// Verifies an SST, if that has not been done.
    ///
    /// Errors: it is another SST. An unreadable one is left to the read that follows.
    async fn verify(&self, from: &Path) -> Result<()> {
        let Some(name) = from.filename() else { return Ok(()) };
        let listed = {
            let unverified = self.unverified.lock().unwrap_or_else(PoisonError::into_inner);
            unverified.get(name).cloned()
        };
        let Some(listed) = listed else { return Ok(()) };
        let reader = SstReader::new(self.path.clone(), Arc::clone(&self.objects), None, None);
        let opening = tokio::time::timeout(CHECK_TIMEOUT, reader.open(listed.id.value()));
        let Ok(Ok(found)) = opening.await else { return Ok(()) };
        difference(&listed, found.info()).map_or(Ok(()), |detail| Err(damaged(from, detail)))?;
        self.unverified.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }
}

/// Returns the difference between the manifest's entry of an SST and the SST found.
pub(in crate::lsm) fn difference(listed: &SsTableHandle, found: &SsTableInfo) -> Option<String> {
    let keys = |info: &SsTableInfo| (info.first_entry.clone(), info.last_entry.clone());
    let is_other = keys(&listed.info) != keys(found);
    is_other.then(|| "it holds other keys than the manifest says: it is another file".to_owned())
}

#[async_trait]
impl Layer for VerifiedStore {
    fn below(&self) -> &dyn ObjectStore {
        &*self.objects
    }

    async fn get_opts(&self, from: &Path, how: GetOptions) -> Result<GetResult> {
        if !how.head {
            self.verify(from).await?;
        }
        self.objects.get_opts(from, how).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::Location;
    use crate::tests::harness::{self, batch, labels};
    use crate::window::PARTITION_MS;
    use crate::{Store, StoreOptions, keys};
    use slatedb::object_store::ObjectStoreExt;

    #[test]
    fn another_file_in_the_place_of_one_is_not_read() {
        harness::run(async {
            let location = Location::on(harness::memory());
            let compaction_interval = Some(Duration::from_secs(86_400));
            let options = StoreOptions { compaction_interval, ..harness::options() };
            let store = Store::open_at(&location, options).await.unwrap();
            for day in 0..2 {
                let samples = [(day * PARTITION_MS, 1.0)];
                store.append(batch(&labels(&[("a", "b")]), &samples)).await.unwrap();
            }
            store.seal_all().await.unwrap();
            crate::seal::write_out(store.core()).await.unwrap();
            let manifest = store.core().lsm.manifest();
            let days =
                manifest.segments().iter().filter(|s| keys::parse_partition(s.prefix()).is_some());
            let files: Vec<SsTableHandle> =
                days.filter_map(|day| Some(day.l0().front()?.sst.clone())).collect();
            let verified =
                VerifiedStore::new(Arc::clone(&location.object_store), location.path.clone());
            verified.verify_on_read(files.clone());
            let path = |file: &SsTableHandle| {
                let name = format!("{}.sst", file.id.value());
                location.path.clone().join("compacted").join(name)
            };
            let [first, second] = [path(&files[0]), path(&files[1])];
            let bytes = verified.get(&first).await.unwrap().bytes().await.unwrap();
            location.object_store.put(&second, bytes.into()).await.unwrap();
            for _ in 0..2 {
                let error = verified.get_range(&second, 0..4).await.unwrap_err().to_string();
                let expected = format!("damaged data at {second}: it holds other keys");
                assert!(error.contains(&expected), "{error}");
                assert!(verified.get_range(&first, 0..4).await.is_ok());
            }
        });
    }
}
