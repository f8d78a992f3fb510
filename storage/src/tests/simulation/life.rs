//! Lives of processes: requests to a store, and their ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{
    Batch, Budget, Labels, MatchOp, Matcher, MetadataQuery, RejectReason, Source, SourceError,
    TimeRange,
};
use tokio::task::JoinSet;

use super::chance::Chance;
use super::known::{Cell, Certainty, Known};
use super::objects::{Cloud, Faults, Link, Machine, Remote, Time, lock};
use crate::lsm::{Location, Simulated};
use crate::sizes::Sizes;
use crate::tests::harness::{self, Read, ReadValue, labels, read_full};
use crate::window::{PARTITION_MS, PartitionId, WINDOW_MS};
use crate::{RETENTION_CONFIRMATION, Store, StoreError, StoreOptions};

/// Start of the world: five hours into a day.
const BEGIN_MS: i64 = 20_000 * PARTITION_MS + 5 * 60 * 60 * 1000;
/// Number of series, of which every eighth has histograms.
const SERIES: u8 = 24;
/// Maximum samples of a write, so that an outcome lists all refused ones.
const SAMPLES_MAX: u64 = crate::outcome::REJECTIONS_MAX as u64;
/// Timeout for unfinished requests at rest.
const REST_PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Timeout for any request, whatever fails meanwhile.
const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);

/// Interval at which the LSM polls for a newer manifest.
const MANIFEST_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// State that outlives all processes.
pub(super) struct World {
    time: Arc<Time>,
    cloud: Arc<Cloud>,
    known: Arc<Mutex<Known>>,
    chance: Chance,
    options: StoreOptions,
    lives: u32,
    /// True if a store is taken over by standbys.
    has_standbys: bool,
    /// The next value.
    value: u64,
    /// Hash of the requests of all processes.
    pub(super) trace: u64,
    pub(super) requests: u64,
}

/// An open store.
struct Process {
    store: Store,
    life: u32,
    machine: Arc<Machine>,
    /// True if no faults are injected.
    is_calm: bool,
    /// Set once another process has taken over.
    is_fenced: AtomicBool,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let mut chance = Chance::new(seed);
        let time = Arc::new(Time::new(BEGIN_MS));
        let cloud = Arc::new(Cloud::new(Arc::clone(&time)));
        let mut options = options(&mut chance);
        // Not drawn, so that existing seeds keep their meaning.
        if [3, 5, 6].contains(&(seed % 7)) {
            options.retention_confirmation = RETENTION_CONFIRMATION;
        }
        let sizes = if has_shipped_sizes(seed) { Sizes::default() } else { Sizes::small() };
        options.sizes = Sizes { manifest_poll_interval: MANIFEST_POLL_INTERVAL, ..sizes };
        World {
            time,
            cloud,
            known: Arc::new(Mutex::new(Known::new())),
            chance,
            options,
            lives: 0,
            has_standbys: false,
            value: 1,
            trace: 0,
            requests: 0,
        }
    }

    /// Returns the world of a seed in which standbys follow each process, and take over from it.
    pub(super) fn with_standbys(seed: u64) -> World {
        World { has_standbys: true, ..World::new(seed) }
    }

    /// Runs some lives and a last one without faults.
    pub(super) fn run(&mut self) {
        for _ in 0..1 + self.chance.below(4) {
            let faults = faults(&mut self.chance);
            self.live(&faults, false);
        }
        self.live(&Faults::default(), true);
        self.live(&Faults::default(), true);
    }

    /// Runs one runtime, at first with one process. Its tasks end wherever they are.
    fn live(&mut self, faults: &Faults, is_last: bool) {
        let mut chance = self.chance.fork();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .thread_name(std::thread::current().name().unwrap_or_default())
            .build()
            .expect("a runtime can be built");
        let first_life = self.lives + 1;
        runtime.block_on(async {
            self.time.begin();
            let link = Link::new(&self.cloud, faults.clone(), chance.fork());
            self.lives += 1;
            self.tell(format!("life {} begins with {faults:?}", self.lives));
            let mut lives = Lives { world: self, chance: chance.fork(), links: Vec::new() };
            let told = tokio::select! {
                biased;
                () = link.is_dead() => "the process dies at a request",
                () = lives.go(Arc::clone(&link), is_last) => "it ends",
                () = tokio::time::sleep(PATIENCE) => {
                    lock(&lives.world.known).violated("it hangs");
                }
            };
            let links = std::mem::take(&mut lives.links);
            for link in links {
                link.die();
                self.trace = self.trace.rotate_left(7) ^ link.trace.load(Ordering::Relaxed);
                self.requests += link.requests();
            }
            self.tell(told);
            self.time.end(Duration::from_millis(chance.below(90_000)));
        });
        drop(runtime);
        let mut known = lock(&self.known);
        (first_life..=self.lives).for_each(|life| known.died(life));
        drop(known);
        futures::executor::block_on(self.cloud.bury(&mut chance));
    }

    fn tell(&self, what: impl Into<String>) {
        let at_ms = self.time.now_ms() - BEGIN_MS;
        lock(&self.known).tell(format!("{at_ms:>8} ms: {}", what.into()));
    }
}

/// Returns whether the stores of a seed have the default sizes: of every fourth, none of which is
/// in [`PERMANENT`](super::PERMANENT).
fn has_shipped_sizes(seed: u64) -> bool {
    seed % 4 == 1
}

/// Returns the options shared by all processes of a world.
fn options(chance: &mut Chance) -> StoreOptions {
    let day = PARTITION_MS;
    StoreOptions {
        background: chance.happens(500),
        ahead_max_ms: None,
        retention_ms: chance.pick(&[None, None, None, Some(2 * day)]),
        retention_bytes: chance.pick(&[None, None, None, None, None, None, None, Some(40_000)]),
        commit_interval_min: chance.pick(&[Duration::ZERO, Duration::from_millis(50)]),
        queue_samples_max: chance.pick(&[1 << 20, 1 << 20, 40]),
        log_bytes_max: chance.pick(&[1 << 30, 4_000]),
        full_compaction_after: chance
            .pick(&[Duration::ZERO, Duration::from_secs(100 * 365 * 86_400)]),
        compaction_interval: Some(Duration::from_secs(5)),
        orphan_age_min: chance.pick(&[Duration::ZERO, Duration::from_secs(60)]),
        cache_bytes_max: chance.pick(&[0, 64 << 10, 16 << 20]),
        warm_up_span_ms: chance.pick(&[None, Some(3 * day)]),
        index_cache_bytes_max: chance.pick(&[0, 20_000, 16 << 20]),
        columns_bytes_max: chance.pick(&[0, 8 << 10, 16 << 20]),
        object_store_retries_max: chance.pick(&[None, None, Some(0), Some(3)]),
        ..harness::options()
    }
}

/// Returns the faults of a life.
fn faults(chance: &mut Chance) -> Faults {
    let mut faults = Faults::default();
    match chance.below(6) {
        0 | 1 => {}
        2 => faults.errors = 20,
        3 => (faults.errors, faults.conflicts, faults.lost) = (100, 50, 5),
        4 => (faults.slow, faults.lost, faults.errors) = (100, 10, 10),
        _ => {
            let mut from = Duration::from_secs(chance.below(60));
            for _ in 0..3 {
                let until = from + Duration::from_secs(1 + chance.below(100));
                faults.outages.push(from..until);
                from = until + Duration::from_secs(chance.below(60));
            }
            faults.errors = 10;
        }
    }
    match chance.below(5) {
        0 | 1 => faults.dies_at_write = Some(chance.below(80)),
        2 => faults.dies_at = Some(chance.below(1500)),
        _ => {}
    }
    faults
}

impl Faults {
    fn is_calm(&self) -> bool {
        (self.errors, self.slow, self.lost, self.conflicts) == (0, 0, 0, 0)
            && self.outages.is_empty()
    }
}

fn series(number: u8) -> Labels {
    let metric = ["a", "b", "c"][usize::from(number % 3)];
    labels(&[("__name__", metric), ("n", &number.to_string())])
}

fn number_of(labels: &Labels) -> u8 {
    labels.get("n").parse().expect("each series has its number")
}

fn has_histograms(number: u8) -> bool {
    number % 8 == 7
}

/// Returns the histogram for a value.
fn histogram(value: u64) -> model::Histogram {
    let counts = [1 + (value % 5) as u32, 2, 1 + (value % 3) as u32];
    model::Histogram { sum: value as f64, ..harness::histogram(&counts) }
}

fn batch(samples: &[(Cell, u64)]) -> Batch {
    let mut batch = Batch::default();
    for ((number, time_ms), value) in samples {
        if has_histograms(*number) {
            batch.push(&series(*number), &[]);
            batch.push_histograms(&[harness::at(*time_ms, histogram(*value))]);
        } else {
            batch.push(&series(*number), &[(*time_ms, *value as f64)]);
        }
    }
    batch
}

/// Returns the value of a sample.
fn value_of(number: u8, read: &Read) -> u64 {
    match &read.value {
        ReadValue::Float(bits) => f64::from_bits(*bits) as u64,
        ReadValue::Histogram(found) => {
            let value = found.sum as u64;
            let expected = model::Histogram { reset_hint: found.reset_hint, ..histogram(value) };
            assert_eq!(**found, expected, "a histogram of series {number}");
            value
        }
    }
}

/// Process that follows another one, to take over from it.
struct Standby {
    location: Location,
    process: Process,
}

/// Processes in one runtime: one, and those that it has taken over from.
struct Lives<'a> {
    world: &'a mut World,
    chance: Chance,
    links: Vec<Arc<Link>>,
}

impl Lives<'_> {
    async fn go(&mut self, link: Arc<Link>, is_last: bool) {
        let Some(mut process) = self.open(link).await else { return };
        let mut undead: Option<Arc<Process>> = None;
        let mut tasks = JoinSet::new();
        self.check(&process).await;
        let mut standby = self.open_standby().await;
        let steps = if is_last { 0 } else { 4 + self.chance.below(16) };
        for _ in 0..steps {
            self.pause(&process).await;
            if let Some(standby) = &standby
                && self.chance.happens(300)
            {
                let followed = standby.process.store.catch_up().await;
                must_be_fine(&self.world.known, &standby.process, "following", &followed);
            }
            if standby.is_some() && self.chance.happens(100) {
                self.world.lives += 1;
                self.world.tell(format!("life {} is promoted", self.world.lives));
                process.is_fenced.store(true, Ordering::Relaxed);
                let promoted = self.promote(standby.take()).await;
                let Some(next) = promoted else { return };
                undead = Some(std::mem::replace(&mut process, next));
                settle(&mut tasks).await;
                self.check(&process).await;
                standby = self.open_standby().await;
            }
            if undead.is_none() && self.chance.happens(25) {
                let link = Link::new(&self.world.cloud, Faults::default(), self.chance.fork());
                self.world.lives += 1;
                self.world.tell(format!("life {} takes over", self.world.lives));
                process.is_fenced.store(true, Ordering::Relaxed);
                let Some(next) = self.open(link).await else { return };
                undead = Some(std::mem::replace(&mut process, next));
                settle(&mut tasks).await;
                self.check(&process).await;
            }
            match &undead {
                Some(undead) if self.chance.happens(300) => self.step(undead, &mut tasks).await,
                _ => self.step(&process, &mut tasks).await,
            }
        }
        if is_last {
            self.finish(&process).await;
        }
        if self.chance.happens(500) {
            settle(&mut tasks).await;
            let closed = process.store.close().await;
            must_be_fine(&self.world.known, &process, "closing", &closed);
        }
    }

    /// Opens a standby of the present process, without faults.
    async fn open_standby(&mut self) -> Option<Standby> {
        if !self.world.has_standbys {
            return None;
        }
        let link = Link::new(&self.world.cloud, Faults::default(), self.chance.fork());
        let (location, machine, options) = self.place(&link);
        let lag = Duration::from_secs(10);
        match Store::open_reader_at(&location, options, lag).await {
            Ok(store) => {
                let is_fenced = AtomicBool::new(false);
                let process = Process { store, life: 0, machine, is_calm: true, is_fenced };
                Some(Standby { location, process })
            }
            Err(error) => {
                lock(&self.world.known).violated(&format!("the standby does not open: {error}"));
            }
        }
    }

    /// Makes a standby the writer, which starts a life.
    async fn promote(&mut self, standby: Option<Standby>) -> Option<Arc<Process>> {
        let Standby { location, mut process } = standby?;
        self.look_at_clock(&process.machine);
        let options = process.store.core().options.clone();
        let (_command, mut commanded) = tokio::sync::watch::channel(true);
        let promoted = match Store::claim_at(location, &options, &mut commanded).await {
            Ok(claim) => process.store.promote(claim).await,
            Err(error) => Err(error),
        };
        must_be_fine(&self.world.known, &process, "promotion", &promoted);
        if promoted.ok()?.is_some() {
            lock(&self.world.known).violated("the head of a standby could not be used");
        }
        process.life = self.world.lives;
        Some(Arc::new(process))
    }

    async fn open(&mut self, link: Arc<Link>) -> Option<Arc<Process>> {
        let (location, machine, options) = self.place(&link);
        let is_calm = link.faults.is_calm();
        self.look_at_clock(&machine);
        match Store::open_at(&location, options).await {
            Ok(store) => {
                let life = self.world.lives;
                Some(Arc::new(Process {
                    store,
                    life,
                    machine,
                    is_calm,
                    is_fenced: AtomicBool::new(false),
                }))
            }
            Err(error) => {
                self.world.tell(format!("the store does not open: {error}"));
                if is_calm || is_damage(&error) {
                    lock(&self.world.known).violated(&format!("the store does not open: {error}"));
                }
                None
            }
        }
    }

    /// Returns the location, the machine and the options of a process behind a link.
    fn place(&mut self, link: &Arc<Link>) -> (Location, Arc<Machine>, StoreOptions) {
        let skews = [0, 0, 0, 3_600_000, -3_600_000, 90_000_000, -90_000_000];
        let confirmation_ms = self.world.options.retention_confirmation.as_millis() as i64;
        let confirmed_from_ms = AtomicI64::new(self.world.time.now_ms() + confirmation_ms);
        let machine = Arc::new(Machine {
            time: Arc::clone(&self.world.time),
            confirmed_from_ms,
            skew_ms: AtomicI64::new(self.chance.pick(&skews)),
            tree_skew_ms: self.chance.pick(&skews),
        });
        self.links.push(Arc::clone(link));
        let mut location = Location::on(Arc::new(Remote(Arc::clone(link))));
        location.has_conditional_overwrite = self.chance.happens(500);
        location.garbage_interval = Duration::from_secs(10);
        location.simulated =
            Some(Simulated { clock: Arc::clone(&machine) as _, seed: self.chance.next() });
        let options =
            StoreOptions { clock: Arc::clone(&machine) as _, ..self.world.options.clone() };
        (location, machine, options)
    }

    /// Lets time pass, and sets clocks.
    async fn pause(&mut self, process: &Process) {
        self.look_at_clock(&process.machine);
        match self.chance.below(20) {
            0..8 => {}
            8..16 => tokio::time::sleep(Duration::from_millis(self.chance.below(3000))).await,
            16..18 => tokio::time::sleep(Duration::from_secs(self.chance.below(30))).await,
            18 => tokio::time::sleep(Duration::from_secs(self.chance.below(200))).await,
            _ => {
                let skew_ms = self.chance.within(-PARTITION_MS..PARTITION_MS);
                self.set_clock(process, skew_ms);
                self.world.tell(format!("the clock is set {skew_ms} ms off"));
            }
        }
        self.look_at_clock(&process.machine);
    }

    /// Sets the clock of a process, which notices the step unless it is small.
    fn set_clock(&self, process: &Process, skew_ms: i64) {
        let machine = &process.machine;
        let before_ms = machine.skew_ms.load(Ordering::Relaxed);
        process.store.core().observe_retention_time();
        machine.skew_ms.store(skew_ms, Ordering::Relaxed);
        process.store.core().observe_retention_time();
        if skew_ms.abs_diff(before_ms) >= 60_000 {
            let suspension = self.world.options.retention_confirmation * 6;
            let until_ms = self.world.time.now_ms() + suspension.as_millis() as i64;
            machine.confirmed_from_ms.fetch_max(until_ms, Ordering::Relaxed);
        }
    }

    /// Allows samples beyond the retention to expire, by this clock and the newest sample, unless
    /// the clock was set recently.
    fn look_at_clock(&self, machine: &Machine) {
        let is_confirmed =
            self.world.time.now_ms() >= machine.confirmed_from_ms.load(Ordering::Relaxed);
        if let Some(oldest_ms) = self.oldest_ms(machine)
            && (is_confirmed || oldest_ms == i64::MAX)
        {
            lock(&self.world.known).expire(day_start_ms(oldest_ms), oldest_ms);
        }
    }

    /// Returns the time before which samples may have expired, if any.
    fn oldest_ms(&self, machine: &Machine) -> Option<i64> {
        if self.world.options.retention_bytes.is_some() {
            return Some(i64::MAX);
        }
        let retention_ms = self.world.options.retention_ms?;
        let newest_ms = lock(&self.world.known).newest_ms()?;
        Some(crate::Clock::now_ms(machine).min(newest_ms) - retention_ms)
    }

    async fn step(&mut self, process: &Arc<Process>, tasks: &mut JoinSet<()>) {
        match self.chance.below(100) {
            0..35 => append(self.known(), Arc::clone(process), self.samples()).await,
            35..45 => {
                for _ in 0..2 + self.chance.below(4) {
                    let samples = self.samples();
                    tasks.spawn(append(self.known(), Arc::clone(process), samples));
                }
            }
            45..50 => {
                settle(tasks).await;
                let again = lock(&self.world.known).unsure();
                if let Some(samples) = again {
                    append(self.known(), Arc::clone(process), samples).await;
                }
            }
            50..58 => self.delete(process, tasks).await,
            58..78 => {
                let what = self.chance.pick(&[
                    Chore::Seal,
                    Chore::Seal,
                    Chore::Maintain,
                    Chore::Clean,
                    Chore::WriteOut,
                ]);
                let chore = chore(self.known(), Arc::clone(process), what);
                if self.chance.happens(500) {
                    tasks.spawn(chore);
                } else {
                    chore.await;
                }
            }
            78..88 => {
                settle(tasks).await;
                self.check(process).await;
            }
            88..95 => self.check_concurrent(process).await,
            _ => {
                settle(tasks).await;
                tokio::time::sleep(Duration::from_secs(self.chance.below(120))).await;
            }
        }
    }
}

/// Other steps than writing, deleting and reading.
#[derive(Debug, Clone, Copy)]
enum Chore {
    Seal,
    Maintain,
    Clean,
    WriteOut,
}

impl Lives<'_> {
    fn known(&self) -> Arc<Mutex<Known>> {
        Arc::clone(&self.world.known)
    }

    /// Returns the samples of a write, each cell once: mostly new, in a few windows of three days.
    fn samples(&mut self) -> Vec<(Cell, u64)> {
        let chance = &mut self.chance;
        let mut samples = BTreeMap::new();
        let held: Vec<Cell> = if chance.happens(200) {
            lock(&self.world.known).cells().collect()
        } else {
            Vec::new()
        };
        let days = 1 + chance.below(3) as i64;
        for _ in 0..1 + chance.below(SAMPLES_MAX) {
            let day_ms = BEGIN_MS - chance.within(0..days) * PARTITION_MS;
            let window_ms = chance.pick(&[0, 0, -1, -5]) * WINDOW_MS;
            let cell = (
                chance.below(u64::from(SERIES)) as u8,
                day_ms + window_ms - chance.within(0..WINDOW_MS / 1000) * 1000,
            );
            let cell =
                if held.is_empty() || chance.happens(600) { cell } else { chance.pick(&held) };
            samples.insert(cell, self.world.value);
            self.world.value += 1;
        }
        samples.into_iter().collect()
    }

    async fn delete(&mut self, process: &Arc<Process>, tasks: &mut JoinSet<()>) {
        let chance = &mut self.chance;
        let number = chance.below(u64::from(SERIES)) as u8;
        let selectors = match chance.below(4) {
            0 => vec![vec![Matcher::equal("__name__", chance.pick(&["a", "b", "c"]))]],
            1 => vec![
                vec![Matcher::equal("n", number.to_string())],
                vec![Matcher::equal("n", "3"), Matcher::equal("__name__", "a")],
            ],
            2 => vec![vec![matcher(MatchOp::Regex, "n", "1.*")]],
            _ => vec![vec![Matcher::equal("n", number.to_string())]],
        };
        let start_ms = BEGIN_MS - chance.within(-PARTITION_MS..3 * PARTITION_MS);
        let times = match chance.below(3) {
            0 => (i64::MIN, i64::MAX),
            1 => (start_ms, start_ms + WINDOW_MS * 3),
            _ => (start_ms, start_ms + 600_000),
        };
        let deleting = delete(self.known(), Arc::clone(process), selectors, times);
        if self.chance.happens(300) {
            tasks.spawn(deleting);
        } else {
            deleting.await;
        }
    }

    /// Reads everything while only background tasks run.
    async fn check(&mut self, process: &Process) {
        wait_until_idle(process).await;
        if process.is_fenced.load(Ordering::Relaxed) {
            return;
        }
        self.look_at_clock(&process.machine);
        let now_ms = crate::Clock::now_ms(&*process.machine);
        let Some(found) = read(&self.world.known, process, Vec::new()).await else { return };
        self.look_at_clock(&process.machine);
        let known = self.known();
        lock(&known).check(&found, process.life);
        // After a start the newest sample may be known only by its day.
        if self.world.options.retention_confirmation.is_zero()
            && let Some(retention_ms) = self.world.options.retention_ms
            && let Some(newest_ms) = found.keys().map(|cell| day_start_ms(cell.1)).max()
            && let border_ms = day_start_ms(newest_ms.min(now_ms) - retention_ms)
            && let Some(cell) = found.keys().find(|cell| cell.1 < border_ms)
        {
            lock(&known).violated(&format!("{cell:?} is beyond the retention"));
        }
        // A selection by matchers is part of the whole.
        let number = self.chance.below(u64::from(SERIES)) as u8;
        let (matchers, is_wanted): (_, Box<dyn Fn(u8) -> bool>) = match self.chance.below(3) {
            0 => (vec![Matcher::equal("__name__", "a")], Box::new(|n| n % 3 == 0)),
            1 => (
                vec![matcher(MatchOp::Regex, "n", "1.*")],
                Box::new(|n| n.to_string().starts_with('1')),
            ),
            _ => (vec![Matcher::equal("n", number.to_string())], Box::new(move |n| n == number)),
        };
        if let Some(some) = read(&known, process, matchers.clone()).await {
            let mut expected = found.clone();
            expected.retain(|cell, _| is_wanted(cell.0));
            if some != expected && self.oldest_ms(&process.machine).is_none() {
                lock(&known).violated(&format!("{matchers:?}: {some:?}, not {expected:?}"));
            }
        }
        self.check_names(process, &found).await;
    }

    /// Checks that all series and values with samples are listed, and none that was never sent.
    async fn check_names(&self, process: &Process, found: &BTreeMap<Cell, u64>) {
        let (start_ms, end_ms) = (i64::MIN, i64::MAX);
        let query =
            MetadataQuery { selectors: vec![], times: TimeRange::new(start_ms, end_ms), limit: 0 };
        let budget = Budget::unlimited();
        let listed = process.store.series(&query, &budget).await;
        let values = process.store.label_values("n", &query, &budget).await;
        let (Some(listed), Some(values)) =
            (self.read_result(process, listed), self.read_result(process, values))
        else {
            return;
        };
        let has_expired = self.oldest_ms(&process.machine).is_some();
        let known = lock(&self.world.known);
        let sent: BTreeSet<u8> = known.cells().map(|cell| cell.0).collect();
        let held: BTreeSet<u8> = found.keys().map(|cell| cell.0).collect();
        let listed: BTreeSet<u8> = listed.iter().map(number_of).collect();
        let values: BTreeSet<u8> = values.iter().map(|v| v.parse().unwrap_or(u8::MAX)).collect();
        for (what, found) in [("series", listed), ("values", values)] {
            if !(has_expired || found.is_superset(&held)) || !found.is_subset(&sent) {
                known.violated(&format!("{what} {found:?}, held {held:?}, sent {sent:?}"));
            }
        }
    }

    fn read_result<T>(&self, process: &Process, result: Result<T, SourceError>) -> Option<T> {
        fine_read(&self.world.known, process, result)
    }

    /// Reads everything while other requests run.
    async fn check_concurrent(&mut self, process: &Process) {
        let known = self.known();
        let before = lock(&known).before();
        let Some(found) = read(&known, process, Vec::new()).await else { return };
        if process.is_fenced.load(Ordering::Relaxed) {
            return;
        }
        self.look_at_clock(&process.machine);
        lock(&known).check_concurrent(&found, &before);
    }

    /// Runs all maintenance without faults, and checks that the store comes to rest.
    async fn finish(&mut self, process: &Arc<Process>) {
        for chore_of in [Chore::Seal, Chore::Clean, Chore::WriteOut, Chore::Maintain] {
            chore(self.known(), Arc::clone(process), chore_of).await;
            self.check(process).await;
        }
        append(self.known(), Arc::clone(process), self.samples()).await;
        // Compaction and garbage collection run, sometimes for as long as manifests are kept.
        let rest = if self.chance.happens(100) { 2400 } else { 200 };
        tokio::time::sleep(Duration::from_secs(rest)).await;
        self.check(process).await;
        chore(self.known(), Arc::clone(process), Chore::Clean).await;
        for rest in [rest, 30, 30] {
            chore(self.known(), Arc::clone(process), Chore::Maintain).await;
            tokio::time::sleep(Duration::from_secs(rest)).await;
        }
        self.check(process).await;
        if process.store.core().lsm.has_orphans().await {
            lock(&self.world.known).violated("leftovers of crashes stay");
        }
    }
}

fn matcher(op: MatchOp, name: &str, value: &str) -> Matcher {
    Matcher::new(op, name, value).expect("a valid matcher")
}

/// Returns the start of the day of a time.
fn day_start_ms(time_ms: i64) -> i64 {
    PartitionId::of(time_ms).start_ms()
}

/// Waits for all running tasks.
async fn settle(tasks: &mut JoinSet<()>) {
    while let Some(joined) = tasks.join_next().await {
        if let Err(error) = joined
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Waits for commits and deletes that continue after a timeout was answered.
async fn wait_until_idle(process: &Process) {
    let at_rest = async {
        // A durable delete continues in turns, between which the log is free.
        while process.store.core().log.lock().await.is_dropping() {
            tokio::task::yield_now().await;
        }
    };
    // After a longer outage they do not end during the comparison.
    let _ = tokio::time::timeout(REST_PATIENCE, at_rest).await;
}

fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { .. } | StoreError::NewerFormat { .. })
}

/// Panics on damage, and on errors without an injected fault.
fn must_be_fine<T>(
    known: &Mutex<Known>,
    process: &Process,
    what: &str,
    result: &Result<T, StoreError>,
) {
    let error = result.as_ref().err();
    let is_fenced = process.is_fenced.load(Ordering::Relaxed);
    let mut known = lock(known);
    let at_ms = process.machine.time.now_ms() - BEGIN_MS;
    let life = process.life;
    known.tell(format!(
        "{at_ms:>8} ms: {what} in life {life}: {}",
        match error {
            None => "done".to_owned(),
            Some(error) => error.to_string(),
        }
    ));
    if let Some(error) = error
        && (is_damage(error) || (process.is_calm && !is_fenced))
        && !matches!(error, StoreError::Overloaded { .. } | StoreError::LimitExceeded(_))
    {
        known.violated(&format!("{what} in life {life}: {error}"));
    }
}

fn fine_read<T>(
    known: &Mutex<Known>,
    process: &Process,
    result: Result<T, SourceError>,
) -> Option<T> {
    let is_fenced = process.is_fenced.load(Ordering::Relaxed);
    match result {
        Ok(read) => Some(read),
        Err(_) if is_fenced => None,
        Err(error) => {
            let mut known = lock(known);
            known.tell(format!("reading in life {}: {error}", process.life));
            if process.is_calm || matches!(error, SourceError::Corrupt { .. }) {
                known.violated(&format!("reading in life {}: {error}", process.life));
            }
            None
        }
    }
}

async fn read(
    known: &Mutex<Known>,
    process: &Process,
    matchers: Vec<Matcher>,
) -> Option<BTreeMap<Cell, u64>> {
    let result = read_full(&process.store, matchers, i64::MIN, i64::MAX).await;
    let contents = fine_read(known, process, result)?;
    let mut found = BTreeMap::new();
    for (labels, reads) in contents {
        let number = number_of(&labels);
        found.extend(reads.iter().map(|r| ((number, r.timestamp_ms), value_of(number, r))));
    }
    Some(found)
}

async fn append(known: Arc<Mutex<Known>>, process: Arc<Process>, samples: Vec<(Cell, u64)>) {
    let request = lock(&known).send(process.life, &samples);
    let result = process.store.append(batch(&samples)).await;
    let (mut refused, mut certainty) = (Vec::new(), Certainty::Maybe);
    match &result {
        Ok(outcome) => {
            certainty = Certainty::Yes;
            assert_eq!(outcome.rejected.total(), outcome.rejections.len(), "all are listed");
            for rejection in &outcome.rejections {
                refused.push((number_of(&rejection.labels), rejection.timestamp_ms));
                assert!(
                    matches!(rejection.reason, RejectReason::DuplicateTimestamp)
                        || (rejection.reason == RejectReason::OutOfBounds
                            && known_to_expire(&process)),
                    "{rejection:?}"
                );
            }
        }
        Err(
            StoreError::Overloaded { .. }
            | StoreError::Stalled { may_be_stored: false, .. }
            | StoreError::Closed,
        ) => certainty = Certainty::No,
        Err(_) => {}
    }
    lock(&known).answered(request, certainty, &refused);
    must_be_fine(&known, &process, &format!("write {request} of {}", samples.len()), &result);
}

fn known_to_expire(process: &Process) -> bool {
    let options = &process.store.core().options;
    options.retention_ms.is_some() || options.retention_bytes.is_some()
}

async fn delete(
    known: Arc<Mutex<Known>>,
    process: Arc<Process>,
    selectors: Vec<Vec<Matcher>>,
    (start_ms, end_ms): (i64, i64),
) {
    let is_meant = |number: &u8| {
        let labels = series(*number);
        selectors.iter().any(|matchers| matchers.iter().all(|m| m.matches(labels.get(m.name()))))
    };
    let meant: BTreeSet<u8> = (0..SERIES).filter(is_meant).collect();
    let what = format!("delete of {meant:?} from {start_ms} to {end_ms}");
    let request = lock(&known).delete(process.life, meant, (start_ms, end_ms));
    let result = process.store.delete(selectors, start_ms, end_ms).await;
    let certainty = match &result {
        Ok(()) => Certainty::Yes,
        Err(StoreError::LimitExceeded(_) | StoreError::Closed) => Certainty::No,
        Err(_) => Certainty::Maybe,
    };
    lock(&known).answered(request, certainty, &[]);
    must_be_fine(&known, &process, &format!("{request}, {what}"), &result);
}

async fn chore(known: Arc<Mutex<Known>>, process: Arc<Process>, chore: Chore) {
    let store = &process.store;
    let result = match chore {
        Chore::Seal => store.seal_all().await,
        Chore::Maintain => store.maintain().await,
        Chore::Clean => store.clean_tombstones().await,
        Chore::WriteOut => crate::seal::write_out(store.core()).await,
    };
    must_be_fine(&known, &process, &format!("{chore:?}"), &result);
}
