//! Runs of one partition: the blocks of each metric.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::partition::PartitionIndex;
use crate::block::{self, BlockEntry};
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::Lsm;
use crate::value;
use crate::window::Window;

/// Bytes that a metric or a run counts in addition to its blocks.
const RUN_BYTES: usize = 64;

/// Run of a metric: the samples of one window that were sealed together.
#[derive(Debug, Clone)]
pub(crate) struct MetricRun {
    pub(crate) window: Window,
    /// The log epoch that was sealed.
    pub(crate) epoch: Epoch,
    /// Its blocks, by id.
    pub(crate) blocks: Arc<[BlockEntry]>,
}

/// Runs by metric.
#[derive(Default)]
pub(crate) struct RunIndex {
    bytes: AtomicUsize,
    metrics: Mutex<Metrics>,
}

#[derive(Default)]
struct Metrics {
    runs: HashMap<u64, Arc<[MetricRun]>, RandomState>,
    /// Set if metrics that are not listed have no runs.
    is_whole: bool,
}

impl RunIndex {
    /// Returns the bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn keep(&self, found: HashMap<u64, Vec<MetricRun>, RandomState>, is_whole: bool) {
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        for (metric, runs) in found {
            let run_bytes = |run: &MetricRun| RUN_BYTES + size_of_val(&*run.blocks);
            let bytes = RUN_BYTES + runs.iter().map(run_bytes).sum::<usize>();
            if metrics.runs.insert(metric, runs.into()).is_none() {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        metrics.is_whole |= is_whole;
    }

    /// Returns the known runs of some metrics.
    fn known(&self, wanted: &[u64]) -> Vec<Option<Arc<[MetricRun]>>> {
        let metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |metric| {
            let runs = metrics.runs.get(metric).cloned();
            runs.or_else(|| metrics.is_whole.then(|| Arc::from([])))
        };
        wanted.iter().map(of).collect()
    }
}

impl PartitionIndex {
    /// Returns the runs of some metrics, ordered by window, the earlier run first.
    pub(crate) async fn runs_of(
        &self,
        lsm: &Lsm,
        wanted: &[u64],
    ) -> Result<Vec<Arc<[MetricRun]>>, StoreError> {
        let known = self.runs.known(wanted);
        let is_unknown = |(metric, known): (&u64, &Option<_>)| known.is_none().then_some(*metric);
        let unknown: Vec<u64> = wanted.iter().zip(&known).filter_map(is_unknown).collect();
        self.count_lookup(unknown.is_empty());
        if unknown.is_empty() {
            return Ok(known.into_iter().flatten().collect());
        }
        let read = Box::pin(self.read_runs(lsm, unknown)).await?;
        let of = |(metric, known): (&u64, Option<Arc<[MetricRun]>>)| {
            known.or_else(|| read.get(metric).cloned()).unwrap_or_default()
        };
        Ok(wanted.iter().zip(known).map(of).collect())
    }

    /// Returns the runs of a metric by window, the earlier run first.
    pub(crate) async fn windows_of(
        &self,
        lsm: &Lsm,
        metric: u64,
    ) -> Result<BTreeMap<Window, Vec<MetricRun>>, StoreError> {
        let mut windows: BTreeMap<Window, Vec<MetricRun>> = BTreeMap::new();
        for run in self.runs_of(lsm, &[metric]).await?.iter().flat_map(|runs| runs.iter()) {
            windows.entry(run.window).or_default().push(run.clone());
        }
        Ok(windows)
    }

    /// Reads the runs of some metrics, and keeps them.
    async fn read_runs(
        &self,
        lsm: &Lsm,
        unknown: Vec<u64>,
    ) -> Result<HashMap<u64, Arc<[MetricRun]>, RandomState>, StoreError> {
        let is_whole = unknown.len() > self.sizes.metric_scans_max;
        let prefixes: Vec<Vec<u8>> = if is_whole {
            vec![keys::directories(self.partition)]
        } else {
            unknown.iter().map(|m| keys::directories_of_metric(self.partition, *m)).collect()
        };
        let mut found: HashMap<u64, Vec<MetricRun>, RandomState> =
            unknown.iter().map(|metric| (*metric, Vec::new())).collect();
        for prefix in prefixes {
            let mut scan = lsm.scan_prefix(&prefix).await?;
            while let Some((key, bytes)) = scan.next().await? {
                let (metric, index, epoch) = keys::parse_directory(&key)
                    .ok_or_else(|| value::corrupt(&key, "malformed directory key"))?;
                let window = self.partition.window(index);
                let blocks = block::decode_directory(&key, &bytes)?.into();
                found.entry(metric).or_default().push(MetricRun { window, epoch, blocks });
            }
        }
        let runs = found.iter().map(|(metric, runs)| (*metric, Arc::from(&runs[..]))).collect();
        self.runs.keep(found, is_whole);
        Ok(runs)
    }
}
