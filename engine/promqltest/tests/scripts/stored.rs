//! A real store with the same samples, appended in random runs and sealed at random times.

use std::sync::Arc;

use model::memory::MemorySource;
use model::{Batch, Histogram, HistogramSample, Labels, ResetHint, Source};
use promqltest::generate::Random;
use storage::{Store, StoreOptions};

/// Size of a store's caches.
#[derive(Debug, Clone, Copy)]
pub enum Caches {
    /// Disabled.
    Off,
    /// So small that most entries are evicted before they are read again.
    Tight,
    /// Large enough for all reads.
    On,
}

impl Caches {
    fn options(self) -> StoreOptions {
        let bytes = match self {
            Caches::Off => 0,
            Caches::Tight => 8 << 10,
            Caches::On => 64 << 20,
        };
        StoreOptions {
            cache_bytes_max: bytes,
            index_cache_bytes_max: bytes,
            columns_bytes_max: bytes,
            ahead_max_ms: None,
            background: false,
            ..StoreOptions::default()
        }
    }
}

/// Sizes of appended runs, frequency of sealing, and size of caches.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Maximum samples of a series per append.
    pub run_max: u64,
    /// One in how many appends is followed by sealing everything.
    pub sealed_one_in: u64,
    /// Size of caches.
    pub caches: Caches,
}

impl Cut {
    /// Returns runs of medium length, sometimes sealed.
    pub fn plain(caches: Caches) -> Cut {
        Cut { run_max: 100, sealed_one_in: 4, caches }
    }
}

/// Creates stores in memory, one at a time: the previous one is closed.
pub struct Stores {
    random: Random,
    cut: Cut,
    open: Option<Arc<Store>>,
}

impl Stores {
    pub fn new(seed: u64, cut: Cut) -> Stores {
        Stores { random: Random::new(seed), cut, open: None }
    }

    /// Creates a store with these samples.
    pub async fn store(&mut self, samples: &MemorySource) -> Arc<dyn Source> {
        self.close().await;
        let store = Store::open("memory:///", self.cut.caches.options()).await;
        let store = Arc::new(store.unwrap());
        let mut runs = self.runs(samples);
        while !runs.is_empty() {
            let mut batch = Batch::default();
            for _ in 0..=self.random.below(8).min(runs.len() as u64 - 1) {
                if runs.is_empty() {
                    break;
                }
                let at = self.random.below(runs.len() as u64) as usize;
                let run = self.take_run(&mut runs, at);
                run.push_to(&mut batch);
            }
            let count = batch.sample_count();
            let outcome = store.append(batch).await.unwrap();
            assert_eq!(outcome.accepted, count, "{outcome:?}");
            if self.random.one_in(self.cut.sealed_one_in) {
                store.seal_all().await.unwrap();
            }
        }
        self.open = Some(Arc::clone(&store));
        store
    }

    pub async fn close(&mut self) {
        if let Some(store) = self.open.take() {
            store.close().await.unwrap();
        }
    }

    /// Removes a random run of a series, or the first one if hints depend on the order.
    fn take_run(&mut self, series: &mut Vec<Runs>, at: usize) -> Run {
        let runs = &mut series[at];
        let is_ordered = runs.iter().any(|run| !run.histograms.is_empty());
        let index = if is_ordered { 0 } else { self.random.below(runs.len() as u64) as usize };
        let run = runs.remove(index);
        if runs.is_empty() {
            series.swap_remove(at);
        }
        run
    }

    /// Cuts the samples of each series into runs.
    fn runs(&mut self, samples: &MemorySource) -> Vec<Runs> {
        let mut all = Vec::new();
        let series = samples.iter().zip(samples.starts()).zip(samples.histograms());
        for (((labels, times, values), (_, starts)), (_, histograms)) in series {
            let start = |at: usize| starts.get(at).copied().unwrap_or(0);
            let mut floats =
                (0..times.len()).map(|at| (times[at], values[at], start(at))).peekable();
            let mut histograms = histograms.iter().map(offered).peekable();
            let mut runs = Vec::new();
            while floats.peek().is_some() || histograms.peek().is_some() {
                let mut run = Run::new(labels.clone());
                for _ in 0..=self.random.below(self.cut.run_max) {
                    let histogram_ms = histograms.peek().map_or(i64::MAX, |h| h.timestamp_ms);
                    match floats.next_if(|(time_ms, ..)| *time_ms < histogram_ms) {
                        Some(float) => run.floats.push(float),
                        None => run.histograms.extend(histograms.next()),
                    }
                }
                runs.push(run);
            }
            if !runs.is_empty() {
                all.push(runs);
            }
        }
        all
    }
}

/// Remaining runs of a series in order of time.
type Runs = Vec<Run>;

/// Consecutive samples of a series.
struct Run {
    labels: Labels,
    /// Timestamp, value and start timestamp.
    floats: Vec<(i64, f64, i64)>,
    histograms: Vec<HistogramSample>,
}

impl Run {
    fn new(labels: Labels) -> Run {
        Run { labels, floats: Vec::new(), histograms: Vec::new() }
    }

    fn push_to(&self, batch: &mut Batch) {
        let floats: Vec<(i64, f64)> =
            self.floats.iter().map(|(t, value, _)| (*t, *value)).collect();
        if self.floats.iter().any(|(_, _, start_ms)| *start_ms != 0) {
            batch.starts.resize(batch.timestamps.len(), 0);
            batch.starts.extend(self.floats.iter().map(|(_, _, start_ms)| *start_ms));
        }
        batch.push(&self.labels, &floats);
        batch.push_histograms(&self.histograms);
    }
}

/// Returns a histogram as a sender may send it: with `Reset` for `Unknown`, so that the store
/// determines the hint.
fn offered(sample: &HistogramSample) -> HistogramSample {
    let mut sample = sample.clone();
    if sample.histogram.reset_hint == ResetHint::Unknown {
        let histogram = (*sample.histogram).clone();
        sample.histogram = Arc::new(Histogram { reset_hint: ResetHint::Reset, ..histogram });
    }
    sample
}
