//! Opens the LSM, for writing or as a reader of another process's store.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use slatedb::admin::Admin;
use slatedb::db_cache::DbCache;
use slatedb::object_store::ObjectStore;
use slatedb::{
    CompactorBuilder, Db, GarbageCollectorBuilder, SstBlockSize, SstReader, VersionedCompactions,
    VersionedManifest, WriteBatch,
};
use slatedb_common::clock::{DefaultSystemClock, SystemClock};

use crate::error::StoreError;
use crate::keys;
use crate::lsm::cache::blocks;
use crate::lsm::cache::disk::DiskCache;
use crate::lsm::cache::fetches::{Fetches, Ranges};
use crate::lsm::compaction::garbage;
use crate::lsm::compaction::orphans;
use crate::lsm::compaction::schedule;
use crate::lsm::follow::follower::LsmFollower;
use crate::lsm::follow::view::{View, ViewLocation};
use crate::lsm::objects::failures;
use crate::lsm::objects::files;
use crate::lsm::objects::guarded::Guarded;
use crate::lsm::objects::layer::Layered;
use crate::lsm::objects::leftovers::Leftovers;
use crate::lsm::objects::metered;
use crate::lsm::objects::verified;
use crate::lsm::owner::{Claim, Ownership};
use crate::lsm::read::in_time;
use crate::lsm::settings::{
    Segments, cache_policy, collector_options, compactor_options, settings,
};
use crate::lsm::{
    Access, Location, Lsm, PARTITION_READS, clock, mark, snapshot, store_error, tracing_account,
    unless_it_panics,
};
use crate::options::StoreOptions;

/// Lifetime of a reader's checkpoints, after which its SSTs may be deleted if it has crashed.
const CHECKPOINT_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Maximum number of attempts to open an LSM that another process opens at the same time.
const BUILDS_MAX: u32 = 4;

impl Lsm {
    /// Opens or creates the LSM at a location, and acquires its ownership.
    pub(crate) async fn open(
        location: &Location,
        options: &StoreOptions,
    ) -> Result<Lsm, StoreError> {
        let ownership = Ownership::acquire(location, options).await?;
        Lsm::open_claimed(location, options, Claim(ownership), None).await
    }

    /// Opens or creates the LSM of a claimed store. Fences an earlier writer, whose commits are all
    /// visible on return. Shares the caches of `reader`, the LSM that this process has read.
    pub(crate) async fn open_claimed(
        location: &Location,
        options: &StoreOptions,
        Claim(ownership): Claim,
        reader: Option<&Lsm>,
    ) -> Result<Lsm, StoreError> {
        match Lsm::open_owned(location, options, &ownership, reader).await {
            Ok(lsm) => Ok(Lsm { ownership: Some(Arc::new(ownership)), ..lsm }),
            Err(error) => {
                let lost = ownership.status().lost();
                ownership.give_back().await;
                Err(lost.unwrap_or(error))
            }
        }
    }

    /// Opens the LSM once this process owns the store.
    async fn open_owned(
        location: &Location,
        options: &StoreOptions,
        ownership: &Ownership,
        reader: Option<&Lsm>,
    ) -> Result<Lsm, StoreError> {
        let near = Arc::clone(&location.object_store);
        let status = Arc::clone(ownership.status());
        let guarded = Arc::new(Guarded::new(near, location.path.clone(), status));
        let ObjectLayers { counters, failures, verified, counted, fetches, disk, blocks, indexes } =
            ObjectLayers::of(guarded, location, options, reader)?;
        let compaction_requests = schedule::CompactionRequests::default();
        let reads = garbage::ReadTracker::default();
        let current = garbage::CurrentTables::default();
        let parts = DbOpener {
            location,
            options,
            counted: Arc::clone(&counted),
            objects: Arc::clone(&fetches) as _,
            blocks: Arc::clone(&blocks),
            compaction_requests: compaction_requests.clone(),
            reads: reads.clone(),
            current: current.clone(),
            clock: Arc::new(clock::MonotonicClock::new(machine_clock(location))),
        };
        let found = parts.look().await;
        let (db, found) = match parts.open(found).await {
            Ok(opened) => opened,
            Err(error) => return Err(files::with_name(location, error).await),
        };
        let verified = verified.as_deref();
        files::check_swapped(&parts.counted, location, verified, &db.manifest()).await?;
        let mark = location.lsm_folder().and_then(|folder| mark::Mark::open(&folder));
        let mark = mark.map(Arc::new);
        let files = snapshot::Files::of(location);
        files.remove_unfinished(&db).await?;
        let in_use = garbage::TablesInUse::new(reads.clone(), current);
        let orphans = orphans::Orphans::new(location, counted, in_use, options, found);
        Ok(Lsm {
            access: Access::Writer(db),
            compaction_requests,
            reads,
            orphans: Some(Arc::new(orphans)),
            read_timeout: options.read_timeout,
            blocks,
            fetches,
            indexes,
            disk,
            files,
            counters,
            failures,
            mark,
            ownership: None,
            idle: tracing_account::IdleDispatchers::default(),
            account: None,
            reads_at_once: *PARTITION_READS.start(),
        })
    }

    /// Opens the LSM at a location for reading, and returns its follower. Another process may write
    /// to it.
    ///
    /// With `is_pinned`, checkpoints keep the SSTs that are read. Otherwise nothing is written, and
    /// an SST may be deleted during a read if another process writes.
    ///
    /// Errors: [`StoreError::NoStore`].
    pub(crate) async fn open_to_read(
        location: &Location,
        options: &StoreOptions,
        is_pinned: bool,
    ) -> Result<(Lsm, LsmFollower), StoreError> {
        let near = Arc::clone(&location.object_store);
        let ObjectLayers { counters, failures, verified, counted, fetches, disk, blocks, indexes } =
            ObjectLayers::of(near, location, options, None)?;
        let folder = location.lsm_folder();
        let noted = folder.as_deref().and_then(mark::noted);
        let cache: Arc<dyn DbCache> = Arc::clone(&blocks) as _;
        let path = location.path.clone();
        let views =
            ViewLocation::new(path, Arc::clone(&fetches) as _, cache, CHECKPOINT_LIFETIME, options);
        if unless_it_panics(views.newest_manifest()).await?.is_none() {
            let leftovers = Leftovers::find(&counted, &location.path, options.read_timeout).await?;
            // The store may have just been created.
            if let Some(leftovers) = leftovers
                && unless_it_panics(views.newest_manifest()).await?.is_none()
            {
                return Err(leftovers.refusal());
            }
            return Err(StoreError::NoStore("no process has written to it yet".to_owned()));
        }
        let base = if is_pinned { views.pin().await? } else { views.look().await? };
        let current = Arc::new(RwLock::new(Arc::new(View::of(base))));
        let mut following =
            LsmFollower::new(views, Arc::clone(&current), options.sizes.follow_interval);
        if let Some(step) = following.advance().await? {
            following.publish(&step);
        }
        let lsm = Lsm {
            access: Access::Reader(None, current),
            compaction_requests: schedule::CompactionRequests::default(),
            reads: garbage::ReadTracker::default(),
            orphans: None,
            read_timeout: options.read_timeout,
            blocks,
            fetches,
            indexes,
            disk,
            files: snapshot::Files::of(location),
            counters,
            failures,
            mark: None,
            ownership: None,
            idle: tracing_account::IdleDispatchers::default(),
            account: None,
            reads_at_once: *PARTITION_READS.start(),
        };
        let (verified, manifest) = (verified.as_deref(), lsm.manifest());
        let mut checked = files::check_swapped(&counted, location, verified, &manifest).await;
        if let Some(folder) = &folder {
            checked = checked.and(mark::check(folder, noted, following.newest_commit()));
        }
        match checked {
            Ok(()) => Ok((lsm, following)),
            Err(error) => {
                following.close().await;
                Err(error)
            }
        }
    }
}

/// Layers between the LSM and its objects.
struct ObjectLayers {
    counters: Arc<metered::RequestCounters>,
    failures: Arc<failures::Failures>,
    /// Layer that verifies SSTs on their first read, on a local disk.
    verified: Option<Arc<Layered<verified::VerifiedStore>>>,
    /// Metered object store.
    counted: Arc<dyn ObjectStore>,
    /// `counted` with the disk cache, if there is one, and with shared requests.
    fetches: Arc<Layered<Fetches>>,
    disk: Option<DiskCache>,
    blocks: Arc<blocks::BlockCache>,
    indexes: Arc<SstReader>,
}

impl ObjectLayers {
    /// Creates the layers, with the caches and counters of `reader` if there is one.
    fn of(
        mut near: Arc<dyn ObjectStore>,
        location: &Location,
        options: &StoreOptions,
        reader: Option<&Lsm>,
    ) -> Result<ObjectLayers, StoreError> {
        let counters = reader.map(|reader| Arc::clone(&reader.counters)).unwrap_or_default();
        let failures = failures::Failures::watched_by(options.write_failures.clone());
        let failures = Arc::new(failures);
        let mut verified = None;
        if location.lsm_folder().is_some() {
            let verifying = verified::VerifiedStore::new(Arc::clone(&near), location.path.clone());
            near = Arc::clone(verified.insert(Arc::new(verifying))) as _;
        }
        let counted: Arc<dyn ObjectStore> =
            Arc::new(metered::Metered::new(near, Arc::clone(&counters), Arc::clone(&failures)));
        let mut objects = Arc::clone(&counted);
        let cache = match reader.and_then(|reader| reader.disk.as_ref()) {
            Some(shared) => Some(shared.over(Arc::clone(&counted))),
            None => open_disk_cache(location, Arc::clone(&counted), options)?,
        };
        let disk = cache.as_ref().map(|cache| cache.0.clone());
        if let Some(cache) = cache {
            objects = Arc::new(cache);
        }
        let (blocks, ranges) = match reader {
            Some(reader) => (Arc::clone(&reader.blocks), Arc::clone(reader.fetches.ranges())),
            None => {
                let ranges = Arc::new(Ranges::new(options.cache_bytes_max));
                let blocks_max = options.cache_bytes_max - ranges.bytes_max();
                (Arc::new(blocks::BlockCache::new(blocks_max)), ranges)
            }
        };
        let fetches = Arc::new(Fetches::new(objects, ranges));
        let cache: Arc<dyn DbCache> = Arc::clone(&blocks) as _;
        let (path, objects) = (location.path.clone(), Arc::clone(&fetches) as _);
        let indexes = Arc::new(SstReader::new(path, objects, Some(cache), None));
        Ok(ObjectLayers { counters, failures, verified, counted, fetches, disk, blocks, indexes })
    }
}

/// The newest manifest, and the compactions that were read after it.
struct NewestState {
    manifest: VersionedManifest,
    compactions: Option<VersionedCompactions>,
}

/// Inputs for opening the database.
struct DbOpener<'a> {
    location: &'a Location,
    options: &'a StoreOptions,
    /// Object store for compactions and garbage collection.
    counted: Arc<dyn ObjectStore>,
    /// Object store for reads, with the disk cache if there is one.
    objects: Arc<dyn ObjectStore>,
    blocks: Arc<blocks::BlockCache>,
    compaction_requests: schedule::CompactionRequests,
    reads: garbage::ReadTracker,
    current: garbage::CurrentTables,
    clock: Arc<clock::MonotonicClock>,
}

impl DbOpener<'_> {
    /// Lists the candidates of orphans before the LSM is opened. A failure is logged and does not
    /// fail the start.
    async fn look(&self) -> Option<orphans::OrphanCandidates> {
        let looking = orphans::OrphanCandidates::before_opening(self.location, &self.counted);
        let looked = tokio::time::timeout(self.options.read_timeout, looking).await;
        let why = match looked {
            Ok(Ok(found)) => return Some(found),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the object store has not answered".to_owned(),
        };
        tracing::warn!(
            why,
            "orphaned files cannot be listed, their cleanup waits for the next start"
        );
        None
    }

    /// Opens the database, and excludes the SSTs of the manifest before from the candidates.
    async fn open(
        &self,
        found: Option<orphans::OrphanCandidates>,
    ) -> Result<(Db, Option<orphans::OrphanCandidates>), StoreError> {
        let newest = unless_it_panics(self.advance_clock()).await?;
        if newest.is_none() {
            let (path, limit) = (&self.location.path, self.options.read_timeout);
            match Leftovers::find(&self.counted, path, limit).await? {
                Some(leftovers) if !self.options.discard_leftovers => {
                    return Err(leftovers.refusal());
                }
                Some(_) => Leftovers::discard(&self.counted, path).await?,
                None => {}
            }
        }
        let found = found.zip(newest).map(|(found, newest)| {
            found.exclude_referenced_by(&newest.manifest, newest.compactions.as_ref())
        });
        Ok((self.open_db().await?, found))
    }

    async fn open_db(&self) -> Result<Db, StoreError> {
        let folder = self.location.lsm_folder();
        let noted = folder.as_deref().and_then(mark::noted);
        let db = self.build().await?;
        if let Some(folder) = &folder {
            mark::check(folder, noted, db.status().durable_seq)?;
        }
        // Another writer may have added SSTs until it was fenced.
        self.clock.advance_to(clock::newest_sst_ms(&db.manifest()));
        // SlateDB checks the clock with the first write, and cannot be used if that fails. So write
        // a delete without effect; it becomes durable with the next commit.
        let mut nothing = WriteBatch::new();
        nothing.delete(keys::NOTHING);
        let Err(error) = db.write(nothing).await else { return Ok(db) };
        let Some(newest_ms) = clock::newest_write_ms(&error) else {
            return Err(store_error(&error));
        };
        drop(db);
        self.clock.advance_to(Some(newest_ms));
        self.build().await
    }

    /// Advances the clock to the newest SST and compaction. Returns the newest manifest and
    /// compactions, if there are any.
    async fn advance_clock(&self) -> Result<Option<NewestState>, StoreError> {
        let objects = Arc::clone(&self.counted);
        let admin = Admin::builder(self.location.path.clone(), objects)
            .with_system_clock(Arc::clone(&self.clock) as _)
            .build();
        let limit = self.options.read_timeout;
        let Some(manifest) = in_time(limit, admin.read_manifest(None)).await? else {
            return Ok(None);
        };
        self.clock.advance_to(clock::newest_sst_ms(&manifest));
        let compactions = in_time(limit, admin.read_compactions(None)).await?;
        self.clock.advance_to(compactions.as_ref().and_then(clock::newest_compaction_ms));
        Ok(Some(NewestState { manifest, compactions }))
    }

    /// Builds the database, and retries if another process has written a manifest in between.
    async fn build(&self) -> Result<Db, StoreError> {
        let mut builds = 1;
        loop {
            let built = unless_it_panics(async { Ok(self.build_once().await) }).await?;
            match built {
                Ok(db) => return Ok(db),
                Err(error) if !is_overtaken(&error) => return Err(store_error(&error)),
                Err(error) if builds == BUILDS_MAX => {
                    return Err(StoreError::Unavailable(error.to_string()));
                }
                Err(error) => {
                    builds += 1;
                    tracing::warn!(%error, "another process opens the store at the same time; trying again");
                }
            }
        }
    }

    async fn build_once(&self) -> Result<Db, slatedb::Error> {
        let DbOpener { location, options, .. } = self;
        let schedule = schedule::SegmentSchedulerSupplier::new(
            &self.compaction_requests,
            options.full_compaction_after,
            &self.clock,
        );
        let compactor = CompactorBuilder::new(location.path.clone(), Arc::clone(&self.counted))
            .with_options(compactor_options(options.compaction_interval))
            .with_scheduler_supplier(Arc::new(schedule));
        let keeps_fences = !location.has_conditional_overwrite;
        let filter = garbage::Filter::new(self.reads.clone(), self.current.clone(), keeps_fences);
        let collector =
            GarbageCollectorBuilder::new(location.path.clone(), Arc::clone(&self.counted))
                .with_options(collector_options(location, options))
                .with_gc_filter(Arc::new(filter));
        let cache: Arc<dyn DbCache> = Arc::clone(&self.blocks) as _;
        let builder = Db::builder(location.path.clone(), Arc::clone(&self.objects));
        #[cfg(test)]
        let builder = simulated(location, builder);
        let db = builder
            .with_settings(settings(options))
            .with_system_clock(Arc::clone(&self.clock) as _)
            .with_sst_block_size(SstBlockSize::Block64Kib)
            .with_segment_extractor(Arc::new(Segments))
            .with_compactor_builder(compactor)
            .with_gc_builder(collector)
            .with_block_cache_policy(cache_policy())
            .with_db_cache(cache, 0)
            .build()
            .await?;
        self.current.follow(&db);
        Ok(db)
    }
}

/// Returns whether another process has written the manifest first. SlateDB reports this as damage;
/// only the text of its error tells it.
fn is_overtaken(error: &slatedb::Error) -> bool {
    error.to_string().contains("version already exists")
}

#[cfg(not(test))]
fn machine_clock(_: &Location) -> Arc<dyn SystemClock> {
    Arc::new(DefaultSystemClock::new())
}

#[cfg(test)]
fn machine_clock(location: &Location) -> Arc<dyn SystemClock> {
    match &location.simulated {
        Some(simulated) => Arc::clone(&simulated.clock),
        None => Arc::new(DefaultSystemClock::new()),
    }
}

#[cfg(test)]
fn simulated(
    location: &Location,
    builder: slatedb::DbBuilder<slatedb::object_store::path::Path>,
) -> slatedb::DbBuilder<slatedb::object_store::path::Path> {
    match &location.simulated {
        None => builder,
        Some(simulated) => builder.with_seed(simulated.seed),
    }
}

/// Opens the disk cache, if one is configured.
fn open_disk_cache(
    location: &Location,
    objects: Arc<dyn ObjectStore>,
    options: &StoreOptions,
) -> Result<Option<Layered<DiskCache>>, StoreError> {
    let Some(cache) = &options.disk_cache else { return Ok(None) };
    let invalid = |detail: String| StoreError::InvalidSetting {
        setting: format!("the disk cache {}", cache.folder.display()),
        detail,
    };
    if !location.is_remote() {
        return Err(invalid("it needs a remote object store".to_owned()));
    }
    let opened = DiskCache::open(objects, cache, options.sizes.cache_part_bytes);
    opened.map(Some).map_err(|error| invalid(error.to_string()))
}
