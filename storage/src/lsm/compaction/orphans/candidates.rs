//! Objects that exist before the LSM is opened, and those of them that may be orphans.

use std::collections::HashSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use futures::stream::{StreamExt, TryStreamExt};
use slatedb::admin::Admin;
use slatedb::compactor::Compaction;
use slatedb::object_store::path::Path as ObjectPath;
use slatedb::object_store::{ObjectMeta, ObjectStore};
use slatedb::{ObjectMetadata, VersionedCompactions, VersionedManifest};

use crate::error::StoreError;
use crate::lsm::compaction::tables::{TABLE_SUFFIX, TABLES_FOLDER, is_among, names_of, table_id};
use crate::lsm::objects::location::{CHECK_FOLDER, Location};
use crate::lsm::objects::uploads::Upload;
use crate::lsm::unavailable;

/// Suffixes of the file names of the LSM.
const SUFFIXES: [&str; 3] = [TABLE_SUFFIX, ".manifest", ".compactions"];
/// Maximum number of candidates of each kind; further ones are left to later starts.
const FOUND_MAX: usize = 100_000;
/// Maximum depth of files below the folder of the LSM.
const FOLDER_DEPTH_MAX: usize = 3;

/// Objects that may be orphans, as listed before the LSM is opened.
#[derive(Default)]
pub(in crate::lsm) struct OrphanCandidates {
    /// Candidates that have not been tried, or may be tried again.
    pub(super) orphans: HashSet<Orphan>,
    /// Candidates whose deletion failed; tried again after all others.
    pub(super) failed: HashSet<Orphan>,
    /// SSTs that a checkpoint referenced at the last check.
    pub(super) pinned: HashSet<Orphan>,
    /// Epochs of the writer and the compactor before the LSM is opened.
    writer_epoch: u64,
    pub(super) compactor_epoch: u64,
    /// Ids of the compactions that were active then.
    compactions: HashSet<String>,
}

/// Object that may be an orphan.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Orphan {
    /// SST.
    Table(ObjectMetadata),
    /// Object of an earlier preflight check.
    Check(ObjectMetadata),
    Staged(StagedFile),
    Upload(Upload),
}

/// Incomplete file on a local disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StagedFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Time of the last write.
    modified: Option<SystemTime>,
}

impl OrphanCandidates {
    /// Lists the candidates. To be called before the manifest is read and the LSM is opened.
    pub(in crate::lsm) async fn before_opening(
        location: &Location,
        objects: &Arc<dyn ObjectStore>,
    ) -> Result<OrphanCandidates, StoreError> {
        let folder = |name: &str| location.path.clone().join(name);
        let (tables_folder, checks_folder) = (folder(TABLES_FOLDER), folder(CHECK_FOLDER));
        let tables = list_tables(location, objects, FOUND_MAX);
        let uploads = async {
            match &location.uploads {
                Some(uploads) => uploads.list(&tables_folder).await.unwrap_or_else(|error| {
                    tracing::warn!(
                        error,
                        "unfinished uploads cannot be listed; a lifecycle rule of the bucket can delete them"
                    );
                    Vec::new()
                }),
                None => Vec::new(),
            }
        };
        let checks = async {
            match location.is_remote() {
                true => list(objects, &checks_folder).await,
                false => Ok(Vec::new()),
            }
        };
        let staged = list_staged(location.folder_of(&location.path));
        let (tables, uploads, checks, staged) = tokio::join!(tables, uploads, checks, staged);
        let orphans = (tables?.into_iter().map(Orphan::Table))
            .chain(checks?.into_iter().map(Orphan::Check))
            .chain(staged.into_iter().map(Orphan::Staged))
            .chain(uploads.into_iter().map(Orphan::Upload));
        Ok(OrphanCandidates { orphans: orphans.collect(), ..OrphanCandidates::default() })
    }

    /// Excludes the SSTs that a manifest references, and notes who wrote it. The manifest must have
    /// been read after the listing, and the compactions after the manifest.
    pub(in crate::lsm) fn exclude_referenced_by(
        mut self,
        manifest: &VersionedManifest,
        compactions: Option<&VersionedCompactions>,
    ) -> OrphanCandidates {
        self.exclude_referenced(manifest);
        self.writer_epoch = manifest.writer_epoch();
        self.compactor_epoch = manifest.compactor_epoch();
        self.compactions = active(compactions).collect();
        self
    }

    /// Excludes the SSTs that a manifest references.
    pub(super) fn exclude_referenced(&mut self, manifest: &VersionedManifest) {
        let named = names_of(manifest);
        self.orphans.retain(|orphan| match orphan {
            Orphan::Table(file) => !is_among(file, &named),
            _ => true,
        });
    }

    /// Moves the SSTs with these ids, which checkpoints reference, to `pinned`.
    pub(super) fn set_pinned(&mut self, names: &HashSet<String>) {
        let is_pinned =
            |orphan: &Orphan| matches!(orphan, Orphan::Table(file) if is_among(file, names));
        self.pinned.extend(self.orphans.extract_if(is_pinned));
    }

    /// Returns whether the processes that wrote the candidates are fenced, and their compactions
    /// have ended.
    pub(super) fn is_fenced(
        &self,
        manifest: &VersionedManifest,
        compactions: Option<&VersionedCompactions>,
    ) -> bool {
        manifest.writer_epoch() > self.writer_epoch
            && manifest.compactor_epoch() > self.compactor_epoch
            && !active(compactions).any(|compaction| self.compactions.contains(&compaction))
    }

    /// Returns the SSTs that no listed compaction has written.
    pub(super) fn not_in_compaction(
        &self,
        compactions: Option<&VersionedCompactions>,
    ) -> HashSet<ObjectMetadata> {
        let made: HashSet<String> = listed(compactions)
            .flat_map(Compaction::output_ssts)
            .map(|file| file.id.value().to_string())
            .collect();
        let tables = self.orphans.iter().filter_map(|orphan| match orphan {
            Orphan::Table(file) => Some(file),
            _ => None,
        });
        tables.filter(|file| !is_among(file, &made)).cloned().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.has_only_pinned() && self.pinned.is_empty()
    }

    /// Returns whether only SSTs that checkpoints reference are left.
    pub(super) fn has_only_pinned(&self) -> bool {
        self.orphans.is_empty() && self.failed.is_empty()
    }
}

impl StagedFile {
    /// Returns the file at a path, if there is one.
    pub(super) fn at(path: PathBuf) -> Option<StagedFile> {
        let metadata = std::fs::symlink_metadata(&path).ok().filter(Metadata::is_file)?;
        Some(StagedFile { path, bytes: metadata.len(), modified: metadata.modified().ok() })
    }
}

async fn list(
    objects: &dyn ObjectStore,
    folder: &ObjectPath,
) -> Result<Vec<ObjectMetadata>, StoreError> {
    let files = objects.list(Some(folder)).take(FOUND_MAX).map_ok(metadata_of);
    files.try_collect().await.map_err(|error| unavailable(&error))
}

/// Lists up to `found_max` SSTs. If there are more, the manifest is read during the listing, and
/// the SSTs that it references are left out.
async fn list_tables(
    location: &Location,
    objects: &Arc<dyn ObjectStore>,
    found_max: usize,
) -> Result<Vec<ObjectMetadata>, StoreError> {
    let folder = location.path.clone().join(TABLES_FOLDER);
    let mut files = objects.list(Some(&folder));
    let mut found: Vec<ObjectMetadata> = Vec::new();
    let mut named: Option<HashSet<String>> = None;
    while let Some(file) = files.try_next().await.map_err(|error| unavailable(&error))? {
        let file = metadata_of(file);
        let is_named = named.as_ref().is_some_and(|named| is_among(&file, named));
        if table_id(&file.location).is_none() || is_named {
            continue;
        }
        found.push(file);
        if found.len() >= found_max && named.is_none() {
            let admin = Admin::builder(location.path.clone(), Arc::clone(objects)).build();
            let manifest = admin.read_manifest(None).await;
            let manifest = manifest.map_err(|e| StoreError::Unavailable(e.to_string()))?;
            let names = manifest.as_ref().map(names_of).unwrap_or_default();
            found.retain(|file| !is_among(file, &names));
            named = Some(names);
        }
        if found.len() >= found_max {
            break;
        }
    }
    Ok(found)
}

fn metadata_of(file: ObjectMeta) -> ObjectMetadata {
    ObjectMetadata {
        location: file.location,
        last_modified: file.last_modified,
        size: file.size,
        e_tag: file.e_tag,
        version: file.version,
    }
}

/// Lists incomplete files below a folder of a local disk.
async fn list_staged(folder: Option<PathBuf>) -> Vec<StagedFile> {
    let Some(folder) = folder else { return Vec::new() };
    let walking = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        walk(&folder, FOLDER_DEPTH_MAX, &mut found);
        found
    });
    walking.await.unwrap_or_default()
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<StagedFile>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth > 0 {
            walk(&entry.path(), depth - 1, found);
        } else if found.len() < FOUND_MAX && entry.file_name().to_str().is_some_and(is_staged) {
            found.extend(StagedFile::at(entry.path()));
        }
    }
}

/// Returns whether a file name is that of an incomplete file of the LSM: `LocalFileSystem` writes
/// to `NAME#1` first, and no object can have this name.
fn is_staged(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(name, number)| {
        SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
    })
}

fn listed(compactions: Option<&VersionedCompactions>) -> impl Iterator<Item = &Compaction> {
    compactions.into_iter().flat_map(VersionedCompactions::recent_compactions)
}

/// Returns the ids of active compactions.
fn active(compactions: Option<&VersionedCompactions>) -> impl Iterator<Item = String> {
    listed(compactions)
        .filter(|compaction| compaction.active())
        .map(|compaction| compaction.id().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slatedb::object_store::ObjectStoreExt;

    use super::*;
    use crate::StoreOptions;
    use crate::tests::harness::{self, batch, labels};

    #[test]
    fn files_in_use_take_no_room_from_what_is_found() {
        harness::run(async {
            let objects = harness::memory();
            let patient = Some(Duration::from_secs(86_400));
            let options = StoreOptions { compaction_interval: patient, ..harness::options() };
            let store = harness::open_with(&objects, options).await.unwrap();
            for time_ms in 0..8 {
                store.append(batch(&labels(&[("a", "b")]), &[(time_ms, 1.0)])).await.unwrap();
                store.seal_and_forget().await.unwrap();
            }
            store.close().await.unwrap();
            let location = Location::on(Arc::clone(&objects));
            let admin = Admin::builder(location.path.clone(), Arc::clone(&objects)).build();
            let named = names_of(&admin.read_manifest(None).await.unwrap().unwrap());
            // A compaction may have left SSTs that the manifest no longer references.
            for file in list(&*objects, &location.path.clone().join(TABLES_FOLDER)).await.unwrap() {
                if !is_among(&file, &named) {
                    objects.delete(&file.location).await.unwrap();
                }
            }
            let in_use = named.len();
            assert!(in_use > 3);
            // Ids after those of all SSTs in use.
            let orphan = |number: u8| {
                ObjectPath::from(format!(
                    "tessella/compacted/7{}.sst",
                    number.to_string().repeat(25)
                ))
            };
            for number in 0..4 {
                objects.put(&orphan(number), "x".into()).await.unwrap();
            }
            for found_max in 1..in_use + 6 {
                let found = list_tables(&location, &objects, found_max).await.unwrap();
                let paths: Vec<ObjectPath> = found.into_iter().map(|file| file.location).collect();
                let is_orphan = |path: &&ObjectPath| (0..4).any(|number| **path == orphan(number));
                let orphans = paths.iter().filter(is_orphan).count();
                assert_eq!(orphans, found_max.min(4), "of {found_max}: {paths:?}");
                assert!(paths.len() <= found_max);
            }
        });
    }

    #[test]
    fn names_of_incomplete_files_are_recognized() {
        for (name, expected) in [
            ("a.sst#1", true),
            ("1.manifest#22", true),
            ("1.compactions#0", true),
            ("a.sst", false),
            ("a.sst#", false),
            ("a.sst#1x", false),
            ("notes#1", false),
            ("#1", false),
        ] {
            assert_eq!(is_staged(name), expected, "{name}");
        }
    }
}
