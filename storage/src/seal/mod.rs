//! Sealing: the samples of a window move from the head and the log to blocks and postings.
//!
//! ```text
//! flip      a new log epoch begins; samples of earlier epochs in the head are immutable
//! condense  these samples are packed as in a block, since a seal takes a while
//! per window:
//!   register   series that are new in the partition get an id, postings, and a page entry;
//!              a bounded number in a write; harmless without the next steps
//!   blocks     a bounded number in a write, with an intent that lists their keys; not
//!              visible, because no directory lists them
//!   publish    one write: adds the run directories, sets the window's watermark (sealed up to
//!              the epoch) and the first log epoch to replay, deletes the intents
//!   forget     the head drops the sealed samples
//! drop      log epochs are deleted once all their windows are sealed
//! ```
//!
//! A crash before *publish* leaves blocks that no selection reads; the next start deletes them by
//! the intents, and the log still has the samples. A crash after it leaves log records that replay
//! skips. So no sample is lost or duplicated. Late samples of a sealed window are sealed in the
//! same way, as another run of their later epoch.
//!
//! [`window`](self::window) runs the phases of one window.

mod blocks;
mod clean;
mod frames;
mod leftovers;
mod merge;
mod publish;
mod recover;
mod register;
mod rewrite;
mod series;
mod summarize;
mod sweep;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::SourceError;

use self::series::SealScope;
use crate::core::Core;
use crate::core::seal_state::SealState;
use crate::epoch::Epoch;
use crate::error::StoreError;
use crate::keys;
use crate::lsm::WriteSet;
use crate::meta;
use crate::parallel::shares::in_shares;
use crate::sizes::Sizes;
use crate::window::{WINDOW_MS, Window};

pub(crate) use clean::{clean_tombstones, tidy};
pub(crate) use leftovers::note_emptied;
pub(crate) use recover::recover;
pub(crate) use summarize::summarize_expired;

/// Time after its end for which a window stays open for late samples.
const GRACE_MS: i64 = 30 * 60 * 1000;
/// Time after its newest sample after which a series without open samples is forgotten.
const IDLE_MS: i64 = WINDOW_MS;

/// Windows to seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealExtent {
    /// Everything.
    All,
    /// Closed windows, each time another window closes, and any with many late samples.
    Closed,
}

/// Returns the windows to be sealed among those with open samples.
fn due(
    sizes: &Sizes,
    state: &SealState,
    extent: SealExtent,
    closed_window: Window,
    open: &BTreeMap<Window, u64>,
) -> BTreeSet<Window> {
    let is_at_rest = |(window, samples): &(&Window, &u64)| {
        **window <= closed_window && state.open.get(window) == Some(samples)
    };
    let at_rest = open.iter().filter(is_at_rest).map(|(_, samples)| samples).sum::<u64>();
    let is_due = |of_window: &(&Window, &u64)| match (extent, *of_window) {
        (SealExtent::All, _) => true,
        (SealExtent::Closed, (window, _)) if *window > closed_window => false,
        (SealExtent::Closed, _) if closed_window > state.closed_window => true,
        (SealExtent::Closed, (_, samples)) if is_at_rest(of_window) => {
            *samples >= sizes.late_samples_at_rest || at_rest >= sizes.late_samples_max
        }
        (SealExtent::Closed, (_, samples)) => *samples >= sizes.late_samples_max,
    };
    open.iter().filter(is_due).map(|(window, _)| *window).collect()
}

/// Seals the windows that are due, one after the other, until the store is closed. Returns whether
/// any window was due.
///
/// A window that cannot be sealed does not stop the others; its samples stay in the log. The first
/// error is returned at the end.
pub(crate) async fn seal(core: &Arc<Core>, extent: SealExtent) -> Result<bool, StoreError> {
    let mut state = core.sealing.lock().await;
    let now_ms = core.options.clock.now_ms();
    let closed_window = Window::of(now_ms.saturating_sub(GRACE_MS)).previous();
    let (epoch, windows) = {
        // The runs of this seal get later epochs than the current tombstones.
        let mut log = core.log_without_deleted().await;
        let mut open = BTreeMap::new();
        for (window, samples) in log.epochs.values().flat_map(|info| &info.windows) {
            *open.entry(*window).or_default() += samples;
        }
        let windows = due(&core.options.sizes, &state, extent, closed_window, &open);
        state.open = open;
        if windows.is_empty()
            && extent == SealExtent::Closed
            && closed_window <= state.closed_window
        {
            return Ok(false);
        }
        if log.epochs.contains_key(&log.epoch) && !windows.is_empty() {
            log.epoch = log.epoch.next();
        }
        (log.epoch.previous(), windows)
    };
    let mut first_error = None;
    let is_any = !windows.is_empty();
    if is_any {
        condense(core, &windows, epoch).await?;
    }
    let windows: Vec<Window> = windows.into_iter().collect();
    let mut rest = &windows[..];
    while !rest.is_empty() {
        let (group, after) = rest.split_at(group_len(&core.options.sizes, &state, rest));
        rest = after;
        let (shared, group) = (Arc::clone(core), group.to_vec());
        let found = blocking(move || series::find(&shared, &group, epoch)).await?;
        for (window, slots) in found {
            if core.is_closing.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match window::seal_window(core, &mut state, SealScope { window, epoch }, slots).await {
                Ok(()) => {}
                Err(error) if error.ends_writes() => return Err(error),
                Err(error) => {
                    let window = window.number();
                    tracing::error!(window, %error, "failed to seal a window");
                    first_error.get_or_insert(error);
                }
            }
        }
    }
    let forgotten = forget_idle(core, now_ms).await;
    if first_error.is_none() {
        state.closed_window = state.closed_window.max(closed_window);
    }
    drop(state);
    if forgotten > 0 {
        core.count_shared_labels().await;
    }
    first_error.map_or(Ok(is_any), Err)
}

/// Returns how many of the first windows to search in one pass: at least one, and at most
/// `found_samples_max` samples in total unless the first one has more. A slot has at least one sample,
/// so this limits the slots.
fn group_len(sizes: &Sizes, state: &SealState, windows: &[Window]) -> usize {
    let mut samples = 0;
    for (at, window) in windows.iter().enumerate() {
        samples += state.open.get(window).copied().unwrap_or_default();
        if at > 0 && samples > sizes.found_samples_max {
            return at;
        }
    }
    windows.len()
}

/// Encodes all raw samples of ended epochs, and packs the windows that are due, on all cores.
async fn condense(
    core: &Arc<Core>,
    due: &BTreeSet<Window>,
    epoch: Epoch,
) -> Result<(), StoreError> {
    let (shared, due) = (Arc::clone(core), due.clone());
    let share = move |slots| {
        shared.head.condense(slots, &due, epoch);
        Ok::<_, SourceError>(())
    };
    let condensed = in_shares(&core.options.sizes, core.head.slot_count(), share).await;
    condensed.map(drop).map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// Flushes sealed blocks to SSTs, which frees their memory and the WAL. SlateDB never deletes its
/// newest file, so a small one is written last.
///
/// Blocks no other task while the object store accepts no writes.
/// Errors: the object store accepts no writes for a minute.
pub(crate) async fn write_out(core: &Core) -> Result<(), StoreError> {
    core.lsm.flush_to_files().await?;
    {
        let state = core.sealing.lock().await;
        let epoch = core.log.lock().await.epoch;
        let mut set = WriteSet::default();
        set.put(keys::EPOCH.to_vec(), meta::encode_epochs(epoch, state.first_epoch));
        core.lsm.commit(set).await?;
    }
    core.lsm.flush_to_files().await
}

/// Returns the time limit of idle series, whose newest sample is older.
pub(crate) fn idle_since_ms(now_ms: i64, newest_ms: i64) -> i64 {
    now_ms.min(newest_ms).saturating_sub(IDLE_MS)
}

/// Removes empty series that are idle, or all empty series if memory is short. Commits take turns
/// with it. Returns the number of removed series.
async fn forget_idle(core: &Core, now_ms: i64) -> usize {
    let is_short = core.head.bytes() >= core.head.limits().bytes_max / 2;
    let mut turns = core.head.forget_in_turns();
    loop {
        let log = core.log.lock().await;
        let idle_since_ms = idle_since_ms(now_ms, log.newest_ms);
        if !turns.next(|series| is_short || series.newest_ms < idle_since_ms) {
            return turns.count();
        }
    }
}

/// Runs long work on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined
        .map_err(|error| StoreError::Unavailable(format!("the sealing task has stopped: {error}")))
}
