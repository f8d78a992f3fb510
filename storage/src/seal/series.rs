//! Series with samples to seal.

use model::Labels;

use crate::core::Core;
use crate::epoch::Epoch;
use crate::head::series::NONE;
use crate::keys;
use crate::window::Window;

/// Samples that are sealed together: of one window, and of epochs up to `epoch`, which becomes the
/// epoch of their runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct SealScope {
    pub(super) window: Window,
    pub(super) epoch: Epoch,
}

/// A series with samples to seal.
#[derive(Debug, Clone)]
pub(super) struct SealedSeries {
    pub(super) slot: u32,
    pub(super) labels: Labels,
    pub(super) metric: u64,
    /// Id in the partition, or [`NONE`].
    pub(super) id: u32,
}

/// Returns the series with samples to seal. New series have no id yet.
pub(super) fn gather(core: &Core, SealScope { window, epoch }: SealScope) -> Vec<SealedSeries> {
    let partition = window.partition();
    let mut found = Vec::new();
    core.head.for_each(|slot, series| {
        if series.holds_window(window, epoch) {
            if series.partition != partition {
                series.partition = partition;
                series.id_in_partition = NONE;
            }
            found.push(SealedSeries {
                slot,
                labels: series.labels.clone(),
                metric: keys::metric_hash(series.labels.metric_name()),
                id: series.id_in_partition,
            });
        }
    });
    found
}
