//! Copies of a store are independent stores.

use std::pin::pin;
use std::sync::atomic::Ordering;

use futures::TryStreamExt;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{ObjectStore, ObjectStoreExt};

use super::faults::Faulty;
use super::harness::{self, batch, labels, open, options, read_all};
use crate::lsm::Location;
use crate::{Store, StoreError};

/// Timeout for a copy after the object store has refused a write.
const WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(100);

async fn open_copy(
    objects: &std::sync::Arc<dyn ObjectStore>,
    name: &str,
) -> Result<Store, StoreError> {
    let path = ObjectPath::from_iter(["snapshots", name, "tessella"]);
    let mut location = Location::on(std::sync::Arc::clone(objects));
    location.path = path;
    Store::open_at(&location, options()).await
}

#[test]
fn a_copy_has_all_acknowledged_samples_and_is_independent() {
    harness::run(async {
        let objects = harness::memory();
        let store = open(&objects).await.unwrap();
        let series = labels(&[("__name__", "a")]);
        store.append(batch(&series, &[(1000, 1.0), (2000, 2.0)])).await.unwrap();
        store.seal_all().await.unwrap();
        let sealed = read_all(&store).await.unwrap();
        store.append(batch(&series, &[(3000, 3.0), (4000, 4.0)])).await.unwrap();
        store.delete(vec![vec![]], 4000, 4000).await.unwrap();
        let all = read_all(&store).await.unwrap();
        store.snapshot("whole", true).await.unwrap();
        store.snapshot("sealed", false).await.unwrap();
        store.append(batch(&series, &[(5000, 5.0)])).await.unwrap();
        let whole = open_copy(&objects, "whole").await.unwrap();
        assert_eq!(read_all(&whole).await.unwrap(), all);
        whole.append(batch(&series, &[(6000, 6.0)])).await.unwrap();
        assert_eq!(read_all(&store).await.unwrap()[0].1.len(), 4);
        whole.close().await.unwrap();
        store.close().await.unwrap();
        // Without the original store.
        let of_store = ObjectPath::from("tessella");
        let files: Vec<_> = objects.list(Some(&of_store)).try_collect().await.unwrap();
        for file in files {
            objects.delete(&file.location).await.unwrap();
        }
        let copy = open_copy(&objects, "sealed").await.unwrap();
        assert_eq!(read_all(&copy).await.unwrap(), sealed);
        let copy = open_copy(&objects, "whole").await.unwrap();
        assert_eq!(read_all(&copy).await.unwrap()[0].1.len(), 4);
    });
}

#[test]
fn half_a_copy_is_removed_at_the_next_start() {
    harness::run(async {
        let objects = harness::memory();
        let count = async |folder: &str| {
            let folder = ObjectPath::from(folder);
            let files: Vec<_> = objects.list(Some(&folder)).try_collect().await.unwrap();
            files.len()
        };
        let mut writes = 0;
        loop {
            let store = open(&objects).await.unwrap();
            store.append(batch(&labels(&[("a", "b")]), &[(writes, 1.0)])).await.unwrap();
            drop(store);
            let (faulty, writes_left) = Faulty::counted_on(&objects, writes, false);
            let name = format!("copy-{writes}");
            let mut copying = pin!(async { open(&faulty).await?.snapshot(&name, true).await });
            // A copy waits for an object store that refuses writes.
            let snapshot = loop {
                match tokio::time::timeout(WAIT_MAX, &mut copying).await {
                    Ok(snapshot) => break snapshot,
                    Err(_) if writes_left.load(Ordering::SeqCst) < 0 => {
                        break Err(StoreError::Unavailable("it refuses writes".to_owned()));
                    }
                    Err(_) => {}
                }
            };
            let store = open(&objects).await.unwrap();
            if snapshot.is_ok() {
                let copy = open_copy(&objects, &name).await.unwrap();
                assert_eq!(read_all(&copy).await.unwrap(), read_all(&store).await.unwrap());
                break;
            }
            assert_eq!(count("snapshots").await, 0, "after {writes} writes");
            store.close().await.unwrap();
            writes += 1;
        }
        assert!(writes > 3, "{writes} writes only");
    });
}
