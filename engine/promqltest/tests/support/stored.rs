//! The same samples in a real store: appended in random runs, and sealed at random points.

use std::sync::Arc;

use model::memory::MemorySource;
use model::{Batch, Labels, Source};
use promqltest::generate::Random;
use storage::{Store, StoreOptions};

/// How samples are cut into runs, and how often open windows are sealed.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// So many samples of a series are appended at once, at most.
    pub run_max: u64,
    /// Everything is sealed after one append in so many.
    pub sealed_one_in: u64,
}

impl Default for Cut {
    fn default() -> Cut {
        Cut { run_max: 100, sealed_one_in: 4 }
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
        let options = StoreOptions { ahead_max_ms: None, background: false, ..Default::default() };
        let store = Arc::new(Store::open("memory:///", options).await.unwrap());
        let mut runs = self.runs(samples);
        while !runs.is_empty() {
            let mut batch = Batch::default();
            for _ in 0..=self.random.below(8).min(runs.len() as u64 - 1) {
                let (labels, run) = runs.swap_remove(self.random.below(runs.len() as u64) as usize);
                batch.push(&labels, &run);
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

    /// The samples of each series cut into runs.
    fn runs(&mut self, samples: &MemorySource) -> Vec<(Labels, Vec<(i64, f64)>)> {
        let mut runs = Vec::new();
        for (labels, timestamps, values) in samples.iter() {
            let samples: Vec<(i64, f64)> =
                timestamps.iter().copied().zip(values.iter().copied()).collect();
            let mut rest = &samples[..];
            while !rest.is_empty() {
                let count = (1 + self.random.below(self.cut.run_max) as usize).min(rest.len());
                runs.push((labels.clone(), rest[..count].to_vec()));
                rest = &rest[count..];
            }
        }
        runs
    }
}
