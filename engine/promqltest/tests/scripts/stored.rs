//! Samples in a real store: appended in random runs, and sealed at random points.

use std::sync::Arc;

use model::memory::MemorySource;
use model::{Batch, Histogram, HistogramSample, Labels, ResetHint, Source};
use promqltest::generate::Random;
use storage::{Store, StoreOptions};

/// Cache settings of a store.
#[derive(Debug, Clone, Copy)]
pub enum Caches {
    /// Nothing.
    Off,
    /// So little that most of it has gone before it is asked for again.
    Tight,
    /// All that is read here.
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

/// Division of samples into runs, frequency of sealing, and what is kept of what was
/// read.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Maximum of samples of a series that are appended at once.
    pub run_max: u64,
    /// Average number of appends between seals.
    pub sealed_one_in: u64,
    /// Cache settings.
    pub caches: Caches,
}

impl Cut {
    /// Runs of middling length, sealed now and then.
    pub fn plain(caches: Caches) -> Cut {
        Cut { run_max: 100, sealed_one_in: 4, caches }
    }
}

/// Makes stores in memory, one at a time: the one before is closed.
pub struct Stores {
    random: Random,
    cut: Cut,
    open: Option<Arc<Store>>,
}

impl Stores {
    pub fn new(seed: u64, cut: Cut) -> Stores {
        Stores { random: Random::new(seed), cut, open: None }
    }

    /// A new store with these samples.
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

    /// A run of a series: any of them, or the first where hints follow from the order.
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

    /// The samples of each series cut into runs.
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

/// The runs of one series that have not been appended yet, in the order of time.
type Runs = Vec<Run>;

/// Some samples of one series.
struct Run {
    labels: Labels,
    /// Time, value and start.
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

/// A histogram as its sender offers it, so that the store decides on the hint that is there.
fn offered(sample: &HistogramSample) -> HistogramSample {
    let mut sample = sample.clone();
    if sample.histogram.reset_hint == ResetHint::Unknown {
        let histogram = (*sample.histogram).clone();
        sample.histogram = Arc::new(Histogram { reset_hint: ResetHint::Reset, ..histogram });
    }
    sample
}
