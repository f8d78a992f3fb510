//! The store: opens, appends, seals and closes; reading is in [`crate::read`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use model::{Batch, Matcher};
use roaring::RoaringBitmap;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::columns::ColumnCache;
use crate::delete::{TOMBSTONES_MAX, Tombstones};
use crate::error::StoreError;
use crate::exemplar::Exemplars;
use crate::head::Head;
use crate::head::commit::{self, Bounds, Done, Log, Pending, Queue};
use crate::index::cache::IndexCache;
use crate::index::facts::Facts;
use crate::keys;
use crate::lsm::{Location, Lsm, Reads, SharedMemory, Snapshot, WriteSet};
use crate::metadata::Metadata;
use crate::options::StoreOptions;
use crate::outcome::AppendOutcome;
use crate::read::warm::warm_up;
use crate::seal;
use crate::stats::{Counters, StoreStats};
use crate::value;
use crate::window::{TIME_MAX_MS, TIME_MIN_MS, partition_end_ms, partition_of_window, window_of};

/// How often the background task looks for something to seal or to delete.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(15);
/// How long after a failure deletes are cleaned up again by themselves.
const CLEAN_AGAIN_MS: i64 = 3_600_000;

/// An open store. Share it in an [`Arc`]; [`Store::close`] ends it properly.
pub struct Store {
    inner: Arc<Inner>,
    background: Mutex<Option<JoinHandle<()>>>,
    /// Reads ahead of queries.
    warming: Option<JoinHandle<()>>,
}

/// What the tasks of a store share.
pub(crate) struct Inner {
    pub(crate) lsm: Lsm,
    pub(crate) head: Head,
    /// Decoded floats of what has been read.
    pub(crate) columns: Arc<ColumnCache>,
    pub(crate) options: StoreOptions,
    /// Selections under way: what they may still want stays.
    pub(crate) selections: Reads,
    /// What has been deleted and is still in files.
    pub(crate) tombstones: Tombstones,
    /// The one writer of log and head.
    pub(crate) log: tokio::sync::Mutex<Log>,
    pub(crate) counters: Counters,
    /// Held by whoever seals, deletes, or forgets series: slots stay what they are meanwhile.
    pub(crate) sealing: tokio::sync::Mutex<seal::State>,
    /// Partitions by number, and how many series are registered in each.
    pub(crate) partitions: RwLock<BTreeMap<i64, u32>>,
    /// What is known of them.
    pub(crate) index: IndexCache,
    /// Set once the store is to be closed: a seal ends before its next window.
    pub(crate) is_closing: AtomicBool,
    /// When deletes may be cleaned up by themselves again, after it has failed.
    clean_from_ms: AtomicI64,
    queue: Queue,
    /// Told when nobody leads any more.
    idle: Notify,
    /// Told when the log has grown too large.
    log_is_large: Notify,
}

impl Store {
    /// Opens or creates a store, takes over from whoever writes to it, and replays the log.
    ///
    /// `url` is a plain path, `file:///path`, `memory:///`, `s3://bucket/prefix`,
    /// `gs://bucket/prefix` or `az://container/prefix`; what [`StoreOptions::remote`] leaves open
    /// of the last three comes from the environment.
    /// Errors: a URL that cannot be used; an object store that cannot be used, and why, within
    /// seconds; damaged bytes.
    /// Panics: outside of a tokio runtime.
    pub async fn open(url: &str, options: StoreOptions) -> Result<Store, StoreError> {
        let mut location = Location::parse(url, &options.remote)?;
        location.check().await?;
        Store::open_at(&location, options).await
    }

    /// The same on objects in memory that others may open too.
    pub async fn open_in(
        memory: &SharedMemory,
        options: StoreOptions,
    ) -> Result<Store, StoreError> {
        Store::open_at(&memory.location(), options).await
    }

    /// The same at a place that is resolved already.
    pub(crate) async fn open_at(
        location: &Location,
        options: StoreOptions,
    ) -> Result<Store, StoreError> {
        let lsm = Lsm::open(location, &options).await?;
        let mut meta = match seal::recover(&lsm).await {
            Ok(meta) => meta,
            Err(error @ StoreError::NewerFormat { .. }) => {
                lsm.close().await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if let Some(owner) = &meta.owner {
            tracing::warn!(
                owner,
                "the store was not closed by its last writer; this process has taken it over"
            );
        }
        let exemplars = Exemplars::open(&lsm, options.exemplars_max).await?;
        let head = Head::new(exemplars, Metadata::open(&lsm).await?);
        let tombstones = Tombstones::new(std::mem::take(&mut meta.tombstones));
        let log = commit::replay(&lsm, &head, &meta, &tombstones).await?;
        tracing::info!(
            epoch = log.epoch,
            series = head.series_count(),
            log_bytes = log.bytes(),
            "the log has been replayed; this process writes to the store now"
        );
        if let Some(first_kept) = meta.kept_from {
            head.changes.note_deleted_before(partition_end_ms(first_kept - 1));
        }
        let background = options.background;
        let index = IndexCache::new(options.index_cache_bytes_max);
        for (partition, gone) in std::mem::take(&mut meta.gone) {
            index.set_gone(partition, gone);
        }
        let inner = Arc::new(Inner {
            lsm,
            head,
            columns: Arc::new(ColumnCache::new(options.columns_bytes_max)),
            log: tokio::sync::Mutex::new(log),
            selections: Reads::default(),
            tombstones,
            counters: Counters::default(),
            sealing: tokio::sync::Mutex::new(seal::State::new(&meta)),
            partitions: RwLock::new(meta.partitions),
            index,
            is_closing: AtomicBool::new(false),
            clean_from_ms: AtomicI64::new(i64::MIN),
            queue: Queue::default(),
            idle: Notify::new(),
            log_is_large: Notify::new(),
            options,
        });
        let mut set = WriteSet::default();
        let owner = format!("process {}", std::process::id());
        set.put(keys::OWNER.to_vec(), value::encode(keys::OWNER, owner.as_bytes()));
        if meta.format < seal::FORMAT {
            // Nothing is to be converted: what is new is in keys of its own.
            set.put(keys::FORMAT.to_vec(), value::encode_u32(keys::FORMAT, seal::FORMAT));
        }
        inner.lsm.commit(set).await?;
        seal::drop_dead_log(&inner, &mut *inner.sealing.lock().await).await?;
        let task = background.then(|| tokio::spawn(maintain_forever(Arc::clone(&inner))));
        let warming = inner
            .options
            .warm_up_span_ms
            .map(|span_ms| tokio::spawn(warm_up(Arc::clone(&inner), span_ms)));
        Ok(Store { inner, background: Mutex::new(task), warming })
    }

    /// Appends samples, exemplars and metadata; what the outcome calls accepted is durable, and
    /// seen by the next selection.
    ///
    /// Samples of any age within the retention are taken, in any order, unless
    /// [`StoreOptions::out_of_order_window_ms`] narrows that. A sample that is held already is
    /// ignored; another value for a time that is held is refused where the newest samples of
    /// the series tell, else the later write wins.
    /// It waits for [`StoreOptions::write_timeout`] at most. A write that has been begun by then
    /// goes on, since nobody can know whether the object store has it; one that has not is not
    /// stored.
    /// Errors: after one, whether the samples are kept is not known but where it says so; sending
    /// them again is safe. A caller that stops waiting does not stop the write.
    pub async fn append(&self, batch: Batch) -> Result<AppendOutcome, StoreError> {
        if batch.is_empty() {
            return Ok(AppendOutcome::default());
        }
        let (answer, outcome) = oneshot::channel();
        let pending = Pending::new(&self.inner.head, batch, answer);
        let patience = self.inner.options.write_timeout;
        let queue = &self.inner.queue;
        let pushed = queue.push(pending, self.inner.options.queue_samples_max, patience);
        let (ticket, is_first) = pushed.inspect_err(|error| self.inner.note_refused(error))?;
        if is_first {
            tokio::spawn(lead(Arc::clone(&self.inner)));
        }
        let Ok(outcome) = tokio::time::timeout(patience, outcome).await else {
            let may_be_stored = !queue.withdraw(ticket, patience);
            let error = StoreError::Stalled { waited: patience, may_be_stored };
            self.inner.note_refused(&error);
            return Err(error);
        };
        outcome.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("the task that commits has ended".to_owned()))
        })
    }

    /// Deletes the samples, from `start_ms` to `end_ms`, of all series that pass every matcher of
    /// one of the selectors. It is durable on return, and no later selection sees them; what is
    /// written from then on does not count, whatever its time.
    ///
    /// Errors: more than [`TOMBSTONES_MAX`](crate::TOMBSTONES_MAX) deletes wait to be cleaned up;
    /// after another error, whether the samples are deleted is not known. It waits for
    /// [`StoreOptions::write_timeout`] at most, and goes on behind that.
    pub async fn delete(
        &self,
        selectors: Vec<Vec<Matcher>>,
        start_ms: i64,
        end_ms: i64,
    ) -> Result<(), StoreError> {
        if start_ms > end_ms || selectors.is_empty() {
            return Ok(());
        }
        if let Some(error) = self.inner.queue.refusal() {
            return Err(error);
        }
        // Goes on where the caller stops waiting: what is durable has to be applied.
        let deleting = tokio::spawn(delete(Arc::clone(&self.inner), selectors, start_ms, end_ms));
        let patience = self.inner.options.write_timeout;
        match tokio::time::timeout(patience, deleting).await {
            Ok(deleted) => deleted.map_err(|error| StoreError::Unavailable(error.to_string()))?,
            Err(_) => Err(StoreError::Stalled { waited: patience, may_be_stored: true }),
        }
    }

    /// Seals whatever the head holds, open windows included.
    pub async fn seal_all(&self) -> Result<(), StoreError> {
        seal::seal(&self.inner, seal::Which::All).await.map(drop)
    }

    /// Takes deleted samples out of the files, and gives their space back. Answers do not change.
    ///
    /// Errors: what cannot be read stays, and its deletes with it.
    pub async fn clean_tombstones(&self) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        let cleaning = tokio::spawn(async move { seal::clean_tombstones(&inner).await });
        cleaning.await.map_err(|error| StoreError::Unavailable(error.to_string()))?.map(drop)
    }

    /// Copies the store as it is into `snapshots/NAME` beside its files, from where it is opened as
    /// any other store. Without the head, what is not sealed yet is left out.
    ///
    /// Errors: the object store does not answer; then nothing is left of the copy.
    pub async fn snapshot(&self, name: &str, with_head: bool) -> Result<(), StoreError> {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        let copying = tokio::spawn(async move {
            let copy = inner.lsm.snapshot(&name).await?;
            // No record in the copy has a later epoch.
            let next_epoch = inner.log.lock().await.epoch + 1;
            let finished = finish_snapshot(&copy, &inner.options, next_epoch, with_head).await;
            match finished {
                Ok(()) => copy.finish().await,
                Err(error) => {
                    copy.give_up().await;
                    Err(error)
                }
            }
        });
        copying.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
    }

    /// Seals windows that have closed, and deletes partitions beyond the retention. The
    /// background task calls this by itself, where there is one.
    pub async fn maintain(&self) -> Result<(), StoreError> {
        maintain(&self.inner).await.map(drop)
    }

    /// What the store holds and has done.
    pub fn stats(&self) -> StoreStats {
        let stats = self.inner.counters.stats(
            self.inner.head.series_count(),
            self.inner.queue.weight(),
            self.inner.read_partitions(BTreeMap::len),
            self.inner.head.exemplars.stats(),
            self.inner.head.metadata.stats(),
            self.inner.index.stats(),
        );
        let columns = self.inner.columns.stats();
        let blocks = self.inner.lsm.block_cache_stats();
        let disk = self.inner.lsm.disk_cache_stats();
        StoreStats {
            block_cache_bytes: blocks.bytes,
            block_cache_hits: blocks.hits,
            block_cache_misses: blocks.misses,
            disk_cache_bytes: disk.bytes,
            disk_cache_hits: disk.hits,
            disk_cache_misses: disk.misses,
            disk_cache_evicted: disk.evictions,
            disk_cache_failures: disk.failures,
            file_bytes: self.inner.lsm.file_bytes(),
            unmerged_segments: self.inner.lsm.unmerged_segments(),
            object_store_reads: self.inner.lsm.read_counts(),
            columns_bytes: columns.bytes,
            columns_bytes_max: columns.bytes_max,
            columns_hits: columns.hits,
            columns_misses: columns.misses,
            columns_evicted: columns.evictions,
            ..stats
        }
    }

    /// Commits what waits, writes everything out, and closes. Later writes are refused.
    pub async fn close(&self) -> Result<(), StoreError> {
        if let Some(task) = &self.warming {
            task.abort();
        }
        let task = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // Not in the middle of a window: that would be safe, but its work would be lost.
            self.inner.is_closing.store(true, Ordering::Relaxed);
            let _sealing = self.inner.sealing.lock().await;
            task.abort();
        }
        self.inner.queue.refuse(&StoreError::Closed);
        loop {
            let idle = self.inner.idle.notified();
            if !self.inner.queue.is_led() {
                break;
            }
            idle.await;
        }
        let failed = self.inner.log.lock().await.failed();
        let disowned = if failed.is_none() {
            let mut set = WriteSet::default();
            set.delete(keys::OWNER);
            self.inner.lsm.commit(set).await
        } else {
            Ok(())
        };
        let closed = self.inner.lsm.close().await;
        disowned.and(closed)
    }

    /// What the tasks of the store share.
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(task) = self.background.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
        if let Some(task) = &self.warming {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Inner {
    /// The earliest time that is still shown: the start of the first partition kept.
    pub(crate) fn visible_min_ms(&self) -> i64 {
        // What has been hidden once stays so, even where the clock is set back.
        self.head.changes.kept_from_ms().max(match self.options.retention_ms {
            None => i64::MIN,
            Some(retention_ms) => {
                let oldest_ms = self.options.clock.now_ms().saturating_sub(retention_ms);
                partition_end_ms(partition_of_window(window_of(oldest_ms)) - 1)
            }
        })
    }

    /// The partitions that overlap a range of time, as they are now.
    pub(crate) fn partitions_between(&self, start_ms: i64, end_ms: i64) -> Vec<Arc<Facts>> {
        let first = partition_of_window(window_of(start_ms));
        let last = partition_of_window(window_of(end_ms));
        if first > last {
            return Vec::new();
        }
        self.read_partitions(|partitions| {
            let facts = |(number, count): (&i64, &u32)| self.index.facts(*number, *count);
            partitions.range(first..=last).map(facts).collect()
        })
    }

    /// One partition as it is now, if there is one.
    pub(crate) fn partition(&self, partition: i64) -> Option<Arc<Facts>> {
        self.read_partitions(|all| {
            all.get(&partition).map(|count| self.index.facts(partition, *count))
        })
    }

    pub(crate) fn read_partitions<T>(&self, read: impl FnOnce(&BTreeMap<i64, u32>) -> T) -> T {
        read(&self.partitions.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many series are registered in a partition.
    pub(crate) fn series_count(&self, partition: i64) -> u32 {
        self.read_partitions(|partitions| partitions.get(&partition).copied().unwrap_or(0))
    }

    /// Notes of which series of a partition nothing is left.
    pub(crate) fn set_gone(&self, partition: i64, gone: RoaringBitmap) {
        // Together with the number of series, as in the look-ups.
        self.read_partitions(|_| self.index.set_gone(partition, gone));
    }

    /// Notes how many series are registered in a partition.
    pub(crate) fn set_series_count(&self, partition: i64, series_count: u32) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        partitions.insert(partition, series_count);
    }

    /// Forgets a partition that has been deleted.
    pub(crate) fn remove_partition(&self, partition: i64) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        partitions.remove(&partition);
        self.index.remove(partition);
    }

    /// Whether writes are being committed.
    #[cfg(test)]
    pub(crate) fn is_committing(&self) -> bool {
        self.queue.is_committing()
    }

    fn note_refused(&self, error: &StoreError) {
        if matches!(error, StoreError::Stalled { .. }) {
            self.counters.note_stalled();
        }
    }

    fn bounds(&self) -> Bounds {
        let now_ms = self.options.clock.now_ms();
        let before = |span: Option<i64>| span.map_or(TIME_MIN_MS, |ms| now_ms.saturating_sub(ms));
        let ahead = self.options.ahead_max_ms;
        Bounds {
            min_ms: before(self.options.retention_ms)
                .max(self.head.changes.kept_from_ms())
                .max(TIME_MIN_MS),
            max_ms: ahead.map_or(TIME_MAX_MS, |ms| now_ms.saturating_add(ms)).min(TIME_MAX_MS),
            out_of_order_window_ms: self.options.out_of_order_window_ms,
        }
    }
}

/// Refuses everyone who waits if the leader ends in the middle.
struct Leading {
    inner: Arc<Inner>,
    /// Whether it ended by itself; then another may lead already.
    is_done: bool,
}

impl Drop for Leading {
    fn drop(&mut self) {
        if !self.is_done {
            let detail = "the task that commits has ended".to_owned();
            self.inner.queue.fail(&StoreError::Unavailable(detail));
        }
        self.inner.idle.notify_waiters();
    }
}

/// Commits group by group until nobody waits.
async fn lead(inner: Arc<Inner>) {
    let mut leading = Leading { inner: Arc::clone(&inner), is_done: false };
    loop {
        let mut log = inner.log.lock().await;
        let pause = log
            .committed_at
            .and_then(|at| inner.options.commit_interval_min.checked_sub(at.elapsed()));
        if let Some(pause) = pause
            && !pause.is_zero()
        {
            tokio::time::sleep(pause).await;
        }
        let group = inner.queue.take();
        if group.is_empty() {
            leading.is_done = true;
            return;
        }
        let weight = group.iter().map(Pending::weight).sum();
        let done = |committed: Option<Done>| {
            inner.queue.release(weight);
            if let Some(done) = committed {
                note(&inner, done);
            }
        };
        let result = log.commit(&inner.lsm, &inner.head, inner.bounds(), group, done).await;
        if let Err(error) = result {
            tracing::error!(%error, "a write to the log has failed; the store takes no more");
            inner.queue.fail(&error);
        }
    }
}

fn note(inner: &Inner, done: Done) {
    inner.counters.note_commit(done);
    if done.log_bytes_open > inner.options.log_bytes_max {
        inner.log_is_large.notify_one();
    }
}

/// Deletes samples: durable, then dropped and masked, then acknowledged.
async fn delete(
    inner: Arc<Inner>,
    selectors: Vec<Vec<Matcher>>,
    start_ms: i64,
    end_ms: i64,
) -> Result<(), StoreError> {
    let mut log = inner.log.lock().await;
    inner.tombstones.admit(&selectors)?;
    let tombstone = log.end_epoch(&inner.lsm, selectors, (start_ms, end_ms)).await?;
    let (shared, selectors) = (Arc::clone(&inner), tombstone.selectors.clone());
    // Before the head drops anything: what a seal under way has taken from it is masked.
    inner.tombstones.put(tombstone);
    let dropping =
        tokio::task::spawn_blocking(move || shared.head.delete(&selectors, start_ms, end_ms));
    let dropped = dropping.await.map_err(|error| StoreError::Unavailable(error.to_string()));
    // Last, as for a write.
    inner.head.changes.note(start_ms);
    dropped?
}

/// Opens a copy once, so that it is known to be whole, and makes it nobody's.
async fn finish_snapshot(
    copy: &Snapshot,
    options: &StoreOptions,
    next_epoch: u32,
    with_head: bool,
) -> Result<(), StoreError> {
    // The cache on disk is that of the store, which goes on with it.
    let options = StoreOptions { disk_cache: None, ..options.clone() };
    let lsm = Lsm::open(&copy.location(), &options).await?;
    let mut set = WriteSet::default();
    set.delete(keys::OWNER);
    if !with_head {
        set.put(keys::EPOCH.to_vec(), seal::encode_epochs(next_epoch, next_epoch));
        lsm.drop_log_before(next_epoch);
    }
    let committed = lsm.commit(set).await;
    committed.and(lsm.close().await)
}

/// Says whether anything has been sealed.
async fn maintain(inner: &Arc<Inner>) -> Result<bool, StoreError> {
    seal::delete_expired(inner).await?;
    seal::tidy(inner).await?;
    let is_large = inner.log.lock().await.bytes() > inner.options.log_bytes_max;
    let which = if is_large { seal::Which::All } else { seal::Which::Closed };
    let has_sealed = seal::seal(inner, which).await?;
    clean_if_due(inner).await?;
    Ok(has_sealed)
}

/// Cleans up where many deletes wait. What cannot be cleaned must not keep anything else from
/// being done, and is not tried again soon.
async fn clean_if_due(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let now_ms = inner.options.clock.now_ms();
    let is_due = inner.tombstones.counts().0 >= TOMBSTONES_MAX / 2
        && now_ms >= inner.clean_from_ms.load(Ordering::Relaxed);
    if !is_due || inner.is_closing.load(Ordering::Relaxed) {
        return Ok(());
    }
    match seal::clean_tombstones(inner).await {
        Err(StoreError::Closed) if inner.is_closing.load(Ordering::Relaxed) => Ok(()),
        Err(error @ (StoreError::Fenced | StoreError::Closed)) => Err(error),
        Err(error) => {
            tracing::error!(%error, "deletes cannot be cleaned up; it is tried again in an hour");
            inner.clean_from_ms.store(now_ms.saturating_add(CLEAN_AGAIN_MS), Ordering::Relaxed);
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

async fn maintain_forever(inner: Arc<Inner>) {
    let mut has_failed = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(MAINTAIN_INTERVAL) => {}
            // What has just failed is not tried again at the rate of commits.
            () = inner.log_is_large.notified(), if !has_failed => {}
        }
        let result = match maintain(&inner).await {
            Ok(true) => seal::write_out(&inner).await,
            other => other.map(drop),
        };
        has_failed = result.is_err();
        match result {
            Ok(()) => {}
            Err(error @ (StoreError::Fenced | StoreError::Closed)) => {
                tracing::error!(%error, "background maintenance has ended");
                return;
            }
            Err(error) => tracing::error!(%error, "background maintenance has failed"),
        }
    }
}
