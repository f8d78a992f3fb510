//! Leftovers of crashes on the object store are deleted, and nothing that is still needed.
//! [`super::simulation`] covers compactions after a crash, as its time is simulated.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use model::Labels;
use slatedb::admin::Admin;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::faults::Faulty;
use super::harness::{self, batch, labels, open_with, options, read_all};
use crate::lsm::{Location, end_checkpoints};
use crate::remote::{RemoteOptions, S3Options, Secret};
use crate::window::WINDOW_MS;
use crate::{Store, StoreError, StoreOptions};
use testkit::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};

/// Maximum time to wait for an event, or for its absence.
const PATIENCE: Duration = Duration::from_secs(120);

/// Options without compaction, after which slatedb would delete SSTs itself.
fn without_merges() -> StoreOptions {
    StoreOptions { compaction_interval: Some(Duration::from_secs(86_400)), ..options() }
}

fn series() -> Labels {
    labels(&[("__name__", "a")])
}

/// Writes a sample to an SST.
async fn write_file(store: &Store, number: i64) -> Result<(), StoreError> {
    store.append(batch(&series(), &[(number * WINDOW_MS, 1.0)])).await?;
    store.seal_all().await?;
    crate::seal::write_out(store.core()).await
}

/// Returns the SSTs on an object store, with their sizes.
async fn stored(objects: &Arc<dyn ObjectStore>) -> Vec<(String, u64)> {
    let folder = ObjectPath::from("tessella/compacted");
    let files: Vec<_> = objects.list(Some(&folder)).try_collect().await.unwrap();
    let name = |path: &ObjectPath| path.filename().unwrap().to_owned();
    files.iter().map(|file| (name(&file.location), file.size)).collect()
}

async fn names(objects: &Arc<dyn ObjectStore>) -> BTreeSet<String> {
    stored(objects).await.into_iter().map(|(name, _)| name).collect()
}

/// Returns the SSTs that the manifest of a store names.
fn live(store: &Store) -> BTreeSet<String> {
    store.core().lsm.files().into_iter().map(|(_, name)| name).collect()
}

/// Runs garbage collection until nothing is left to delete.
async fn collect(store: &Store) {
    let started = Instant::now();
    while store.core().lsm.has_orphans().await {
        assert!(started.elapsed() < PATIENCE, "leftovers of a crash stay");
        store.maintain().await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Puts an object next to the SSTs.
async fn plant(objects: &Arc<dyn ObjectStore>, name: &str, bytes: usize) {
    let path = ObjectPath::from(format!("tessella/compacted/{name}"));
    objects.put(&path, PutPayload::from(vec![1; bytes])).await.unwrap();
}

/// Writes one sample to an SST in a runtime of its own, which ends the store's tasks.
fn live_once(objects: &Arc<dyn ObjectStore>) {
    harness::run(async {
        let store = open_with(objects, without_merges()).await.unwrap();
        write_file(&store, 1).await.unwrap();
    });
}

fn admin(objects: &Arc<dyn ObjectStore>) -> Admin {
    Admin::builder("tessella", Arc::clone(objects)).build()
}

/// Returns the SSTs that a manifest names, by default the newest.
async fn named(objects: &Arc<dyn ObjectStore>, id: Option<u64>) -> BTreeSet<String> {
    let manifest = admin(objects).read_manifest(id).await.unwrap().unwrap();
    let views: Vec<_> = manifest.all_sst_views().collect();
    views.into_iter().map(|view| format!("{}.sst", view.sst.id.value())).collect()
}

/// Returns the SSTs that checkpoints keep, including those of compactions.
async fn pinned(objects: &Arc<dyn ObjectStore>) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for checkpoint in admin(objects).list_checkpoints(None).await.unwrap() {
        files.extend(named(objects, Some(checkpoint.manifest_id)).await);
    }
    files
}

/// Collects orphans until only SSTs of the manifest and of checkpoints are left.
async fn wait_until_idle(objects: &Arc<dyn ObjectStore>, store: &Store) {
    let started = Instant::now();
    loop {
        store.maintain().await.unwrap();
        let stored = names(objects).await;
        let mut wanted = live(store);
        wanted.extend(pinned(objects).await);
        if stored == wanted {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{stored:?} instead of {wanted:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a process on an object store that accepts a number of writes; the first refusal ends it.
fn live_until_refused(objects: &Arc<dyn ObjectStore>, writes: i64, last_lands: bool) {
    let (faulty, writes_left) = Faulty::counted_on(objects, writes, last_lands);
    let refused = async {
        while writes_left.load(Ordering::SeqCst) >= 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let life = async {
        let store = open_with(&faulty, without_merges()).await?;
        write_file(&store, 2).await
    };
    harness::run(async {
        let ended = async {
            tokio::select! {
                _ = life => {}
                () = refused => {}
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the process ends");
    });
}

#[test]
fn orphans_are_deleted_after_crashes_at_any_write() {
    let mut deleted = 0;
    for (writes, last_lands) in (0..14).flat_map(|w| [(w, false), (w, true)]) {
        let objects = harness::memory();
        live_once(&objects);
        live_until_refused(&objects, writes, last_lands);
        let before = harness::run(async {
            let store = open_with(&objects, without_merges()).await.unwrap();
            let before = read_all(&store).await.unwrap();
            wait_until_idle(&objects, &store).await;
            deleted += store.stats().orphans_deleted;
            assert_eq!(read_all(&store).await.unwrap(), before);
            before
        });
        harness::run(async {
            let store = open_with(&objects, without_merges()).await.unwrap();
            assert_eq!(read_all(&store).await.unwrap(), before);
        });
    }
    assert!(deleted > 0, "no crash left anything");
}

#[test]
fn only_ssts_are_deleted_and_none_before_its_time() {
    let objects = harness::memory();
    live_once(&objects);
    let orphan = "01ARZ3NDEKTSV4RRFFQ69G5FAV.sst";
    let others = ["notes.txt", "01ARZ3NDEKTSV4RRFFQ69G5FAV.txt", "01arz3ndektsv4rrffq69g5fav.sst"];
    harness::run(async {
        for name in others.into_iter().chain([orphan]) {
            plant(&objects, name, 1000).await;
        }
        let age = Duration::from_secs(3600);
        let patient = StoreOptions { orphan_age_min: age, ..without_merges() };
        let store = open_with(&objects, patient).await.unwrap();
        for _ in 0..4 {
            store.maintain().await.unwrap();
        }
        assert!(names(&objects).await.contains(orphan), "it is too young");
    });
    harness::run(async {
        let store = open_with(&objects, without_merges()).await.unwrap();
        collect(&store).await;
        let left = names(&objects).await;
        assert!(!left.contains(orphan));
        assert!(others.iter().all(|name| left.contains(*name)), "{left:?}");
        let stats = store.stats();
        assert_eq!((stats.orphans_deleted, stats.orphan_bytes_deleted), (1, 1000));
    });
}

#[test]
fn files_that_a_reader_has_pinned_stay_until_it_ends() {
    harness::run(async {
        let objects = harness::memory();
        let location = Location::on(Arc::clone(&objects));
        let store = open_with(&objects, without_merges()).await.unwrap();
        for number in 0..3 {
            write_file(&store, number).await.unwrap();
        }
        let pinned_by_reader = live(&store);
        let long = Duration::from_secs(3600);
        let reader = Store::open_reader_at(&location, options(), long).await.unwrap();
        let before = read_all(&reader).await.unwrap();
        drop(store);
        // Compacted: the newest manifest does not name them any more.
        let merging = StoreOptions { full_compaction_after: Duration::ZERO, ..options() };
        let store = open_with(&objects, merging).await.unwrap();
        let started = Instant::now();
        while live(&store).is_superset(&pinned_by_reader) {
            assert!(started.elapsed() < PATIENCE, "nothing is compacted");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(store);
        let orphan = "01ARZ3NDEKTSV4RRFFQ69G5FAV.sst";
        plant(&objects, orphan, 10).await;
        let still_named = named(&objects, None).await;
        let merged: BTreeSet<_> = pinned_by_reader.difference(&still_named).cloned().collect();
        assert!(!merged.is_empty());
        let store = open_with(&objects, without_merges()).await.unwrap();
        wait_until_idle(&objects, &store).await;
        let left = names(&objects).await;
        assert!(left.is_superset(&pinned_by_reader) && !left.contains(orphan), "{left:?}");
        assert_eq!(read_all(&reader).await.unwrap(), before);
        reader.close().await.unwrap();
        // Checkpoints of compactions expire in seconds, and leave the manifest minutes later.
        end_checkpoints(&Location::on(Arc::clone(&objects))).await;
        let started = Instant::now();
        while !names(&objects).await.is_disjoint(&merged) {
            assert!(started.elapsed() < PATIENCE, "unpinned SSTs stay");
            store.maintain().await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn unfinished_files_on_a_disk_are_deleted_unless_in_use() {
    harness::run(async {
        let folder = Folder::new("orphans");
        let url = folder.0.display().to_string();
        let open = || async {
            let location = Location::parse(&url, &RemoteOptions::default()).unwrap();
            Store::open_at(&location, without_merges()).await.unwrap()
        };
        let store = open().await;
        write_file(&store, 1).await.unwrap();
        let before = read_all(&store).await.unwrap();
        drop(store);
        let half = |name: &str| {
            let path = folder.0.join("tessella").join(name);
            std::fs::write(&path, vec![1; 1 << 20]).unwrap();
            path
        };
        let dead =
            ["compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst#1", "wal/00000000000000000009.sst#12"];
        let dead = dead.map(half);
        let alive = half("manifest/00000000000000000099.manifest#1");
        let others = ["compacted/notes#1", "compacted/x.sst#", "compacted/x.sst#1y"].map(half);
        let store = open().await;
        std::fs::write(&alive, "a reader still uses it").unwrap();
        collect(&store).await;
        assert!(dead.iter().all(|path| !path.exists()), "{dead:?}");
        assert!(others.iter().chain([&alive]).all(|path| path.exists()), "{others:?}");
        let stats = store.stats();
        assert_eq!((stats.orphans_deleted, stats.orphan_bytes_deleted), (2, 2 << 20));
        assert_eq!(read_all(&store).await.unwrap(), before);
    });
}

#[test]
fn a_copy_that_a_crash_cuts_off_leaves_no_links_on_a_disk() {
    harness::run(async {
        let folder = Folder::new("copy");
        let url = folder.0.display().to_string();
        let location = Location::parse(&url, &RemoteOptions::default()).unwrap();
        let store = Store::open_at(&location, without_merges()).await.unwrap();
        write_file(&store, 1).await.unwrap();
        // State after a crash: the checkpoint, and a link without its final name.
        let copy = store.core().lsm.snapshot("half").await.unwrap();
        drop((copy, store));
        let copies = folder.0.join("snapshots");
        let link = copies.join("half/tessella/compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst#0");
        std::fs::write(&link, "x").unwrap();
        std::fs::create_dir(copies.join("other")).unwrap();
        let _store = Store::open_at(&location, without_merges()).await.unwrap();
        assert!(!copies.join("half").exists());
        assert!(copies.join("other").exists());
    });
}

/// Begins an upload as a crash leaves it.
async fn begin_upload(location: &Location, folder: &ObjectPath, name: &str) -> ObjectPath {
    let path = folder.clone().join(name);
    let mut upload = location.object_store.put_multipart(&path).await.unwrap();
    upload.put_part(PutPayload::from(vec![1; 5 << 20])).await.unwrap();
    std::mem::forget(upload);
    path
}

/// Returns the unfinished uploads below a folder.
async fn begun(location: &Location, folder: &ObjectPath) -> Vec<ObjectPath> {
    let uploads = location.uploads.as_ref().unwrap().list(folder).await.unwrap();
    uploads.into_iter().map(|upload| upload.path).collect()
}

async fn halves_of_uploads_go(server: &S3Server) {
    let s3 = S3Options {
        endpoint: Some(server.endpoint()),
        allow_http: Some(true),
        access_key_id: Some(ACCESS_KEY.to_owned()),
        secret_access_key: Some(Secret::new(SECRET_KEY)),
        ..S3Options::default()
    };
    let options = RemoteOptions { s3, ..RemoteOptions::default() };
    let location = Location::parse(&format!("s3://{BUCKET}/some/prefix"), &options).unwrap();
    let store = Store::open_at(&location, without_merges()).await.unwrap();
    write_file(&store, 1).await.unwrap();
    let before = read_all(&store).await.unwrap();
    store.close().await.unwrap();
    let ours = location.path.clone().join("compacted");
    let others = ObjectPath::from("some/others/tessella/compacted");
    let dead = begin_upload(&location, &ours, "01ARZ3NDEKTSV4RRFFQ69G5FAV.sst").await;
    let of_others = begin_upload(&location, &others, "01ARZ3NDEKTSV4RRFFQ69G5FAV.sst").await;
    assert_eq!(begun(&location, &ours).await, [dead]);
    let store = Store::open_at(&location, without_merges()).await.unwrap();
    let alive = begin_upload(&location, &ours, "01BX5ZZKBKACTAV9WEVGEMMVRZ.sst").await;
    collect(&store).await;
    assert_eq!(begun(&location, &ours).await, [alive], "this process began it");
    assert_eq!(begun(&location, &others).await, [of_others], "it belongs to another store");
    assert_eq!(store.stats().orphans_deleted, 1);
    assert_eq!(read_all(&store).await.unwrap(), before);
    store.close().await.unwrap();
}

#[test]
fn halves_of_uploads_to_versitygw_go() {
    if let Some(server) = S3Server::versitygw("uploads") {
        harness::run(halves_of_uploads_go(&server));
    }
}

#[test]
fn halves_of_uploads_to_moto_go() {
    if let Some(server) = S3Server::moto("uploads") {
        harness::run(halves_of_uploads_go(&server));
    }
}

/// A directory deleted with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tessella-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
