//! Series with samples to seal.

use std::collections::BTreeMap;

use model::Labels;

use crate::core::Core;
use crate::epoch::Epoch;
use crate::head::Fetch;
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

/// Slots of the series of each window, ascending in each shard.
pub(super) type SlotsByWindow = BTreeMap<Window, Vec<u32>>;

/// Finds the series of several windows in one pass over the head.
///
/// A slot may get another series later, but not one with samples of ended epochs, so [`gather`] checks
/// each slot again.
pub(super) fn find(core: &Core, windows: &[Window], epoch: Epoch) -> SlotsByWindow {
    let mut slots: SlotsByWindow = windows.iter().map(|window| (*window, Vec::new())).collect();
    core.head.for_each(|slot, series| {
        for window in series.windows_until(epoch) {
            if let Some(slots) = slots.get_mut(&window)
                && slots.last() != Some(&slot)
            {
                slots.push(slot);
            }
        }
    });
    slots
}

/// Returns the series with samples to seal among those in some slots. New series have no id yet.
pub(super) fn gather(
    core: &Core,
    SealScope { window, epoch }: SealScope,
    slots: &[u32],
) -> Vec<SealedSeries> {
    let partition = window.partition();
    let mut found = Vec::with_capacity(slots.len());
    let mut visit = core.head.visit_slots(Fetch::Series);
    for slot in slots {
        let Some(series) = visit.series(*slot, 1) else { continue };
        if series.holds_window(window, epoch) {
            if series.partition != partition {
                series.partition = partition;
                series.id_in_partition = NONE;
            }
            found.push(SealedSeries {
                slot: *slot,
                labels: series.labels.clone(),
                metric: keys::metric_hash(series.labels.metric_name()),
                id: series.id_in_partition,
            });
        }
    }
    found
}
