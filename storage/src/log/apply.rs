//! Applying a record to the head, without checks, since the log has only accepted samples.

use std::collections::BTreeMap;

use super::record::LogRecord;
use crate::epoch::Epoch;
use crate::head::{Fetch, Head, SlotShare};
use crate::samples::scratch::Scratch;
use crate::window::Window;

/// Record, with the head slot of the series of each run.
#[derive(Clone, Copy)]
pub(super) struct SlottedRecord<'a> {
    pub(super) epoch: Epoch,
    pub(super) record: &'a LogRecord,
    pub(super) slots: &'a [u32],
}

/// Adds the samples of a record to the series in a share of its slots, except samples of windows
/// that are not wanted. Counts the added samples of each window, and returns the latest time.
pub(super) fn apply(
    head: &Head,
    SlottedRecord { epoch, record, slots }: SlottedRecord<'_>,
    share: SlotShare,
    is_wanted: impl FnMut(Window) -> bool,
    windows: &mut BTreeMap<Window, u64>,
    scratch: &mut Scratch,
) -> i64 {
    let (mut float_at, mut histogram_at) = (0, 0);
    let mut newest_ms = i64::MIN;
    let mut wanted = WantedWindows { is_wanted, windows, recent: None, count: 0 };
    let mut visit = head.visit_slots(Fetch::Samples);
    for (slot, run) in slots.iter().zip(&record.runs) {
        let at = if run.is_histograms { &mut histogram_at } else { &mut float_at };
        let range = *at..*at + run.count as usize;
        *at = range.end;
        if !share.has(*slot) {
            continue;
        }
        let Some(series) = visit.series(*slot, run.count as usize) else { continue };
        // A replay makes no decisions, and a seal may have found the series empty since.
        head.activate(series);
        if run.is_histograms {
            for decided in &record.histograms[range] {
                newest_ms = newest_ms.max(decided.sample.timestamp_ms);
                if wanted.has(decided.sample.timestamp_ms) {
                    series.append_histogram(epoch, decided, scratch);
                } else {
                    series.note_newest_histogram(&decided.sample);
                }
            }
            continue;
        }
        let starts = record.starts.get(range.start..).unwrap_or_default();
        let samples = record.timestamps[range.clone()].iter().zip(&record.values[range]);
        for (at, (timestamp_ms, value)) in samples.enumerate() {
            newest_ms = newest_ms.max(*timestamp_ms);
            if wanted.has(*timestamp_ms) {
                let start_ms = starts.get(at).copied().unwrap_or(0);
                series.append(epoch, *timestamp_ms, *value, start_ms, scratch);
            } else {
                series.note_newest(*timestamp_ms, *value);
            }
        }
    }
    visit.release();
    wanted.note();
    head.note_grown(std::mem::take(&mut scratch.grown_bytes));
    head.note_shrunk(std::mem::take(&mut scratch.shrunk_bytes));
    newest_ms
}

/// Returns the first and the last window.
pub(super) fn ends(windows: &BTreeMap<Window, u64>) -> Option<(Window, Window)> {
    Some((*windows.first_key_value()?.0, *windows.last_key_value()?.0))
}

/// Filter of windows, which counts the samples of each wanted window.
struct WantedWindows<'a, F> {
    is_wanted: F,
    windows: &'a mut BTreeMap<Window, u64>,
    /// The last window that was looked up, and whether it is wanted.
    recent: Option<(Window, bool)>,
    /// Samples of that window that are not in `windows` yet.
    count: u64,
}

impl<F: FnMut(Window) -> bool> WantedWindows<'_, F> {
    #[inline]
    fn has(&mut self, timestamp_ms: i64) -> bool {
        let window = Window::of(timestamp_ms);
        match self.recent {
            Some((recent, is_wanted)) if recent == window => {
                self.count += 1;
                is_wanted
            }
            _ => {
                self.note();
                let is_wanted = (self.is_wanted)(window);
                self.recent = Some((window, is_wanted));
                self.count = 1;
                is_wanted
            }
        }
    }

    fn note(&mut self) {
        if let Some((window, true)) = self.recent {
            *self.windows.entry(window).or_default() += self.count;
        }
    }
}
