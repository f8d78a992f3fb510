//! Changes to the files of an LSM from outside, for tests.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use slatedb::admin::Admin;
use slatedb::config::{GarbageCollectorDirectoryOptions, GarbageCollectorOptions};
use slatedb::object_store::{ObjectMeta, ObjectStoreExt};

use crate::lsm::Location;

fn admin(location: &Location) -> Admin {
    Admin::builder(location.path.clone(), Arc::clone(&location.object_store)).build()
}

/// Deletes all files that no manifest and no checkpoint references, regardless of age.
pub(crate) async fn collect_garbage(location: &Location) {
    let at_once = || {
        Some(GarbageCollectorDirectoryOptions {
            interval: None,
            min_age: Duration::ZERO,
            dry_run: false,
        })
    };
    let options = GarbageCollectorOptions {
        // Readers look up newer manifests by number; they stay for 20 minutes.
        manifest_options: None,
        wal_options: at_once(),
        wal_fence_options: None,
        compacted_options: at_once(),
        compactions_options: None,
        detach_options: None,
        ..GarbageCollectorOptions::default()
    };
    admin(location).run_gc_once(options).await.expect("garbage can be collected");
}

/// Returns the SSTs.
async fn files(location: &Location) -> Vec<ObjectMeta> {
    let folder = location.path.clone().join("compacted");
    let files = location.object_store.list(Some(&folder)).try_collect().await;
    files.expect("the folder can be listed")
}

/// Deletes the SSTs that the newest manifest does not reference.
pub(crate) async fn delete_unlisted(location: &Location) {
    let manifest = admin(location)
        .read_manifest(None)
        .await
        .expect("the manifest can be read")
        .expect("there is a manifest");
    let listed: Vec<String> =
        manifest.all_sst_views().map(|view| format!("{}.sst", view.sst.id.value())).collect();
    for file in files(location).await {
        let name = file.location.filename().unwrap_or_default();
        if !listed.iter().any(|listed| listed == name) {
            location.object_store.delete(&file.location).await.expect("the file can be deleted");
        }
    }
}

/// Deletes all checkpoints.
pub(crate) async fn end_checkpoints(location: &Location) {
    for checkpoint in
        admin(location).list_checkpoints(None).await.expect("checkpoints can be listed")
    {
        admin(location)
            .delete_checkpoint(checkpoint.id)
            .await
            .expect("a checkpoint can be deleted");
    }
}

/// Returns the number of readers' checkpoints.
pub(crate) async fn checkpoint_count(location: &Location) -> usize {
    let all = admin(location).list_checkpoints(None).await.expect("checkpoints can be listed");
    let is_of_reader = |name: &String| name.starts_with("reader");
    all.iter().filter(|checkpoint| checkpoint.name.as_ref().is_some_and(is_of_reader)).count()
}

/// Returns the number of SSTs.
pub(crate) async fn file_count(location: &Location) -> usize {
    files(location).await.len()
}
