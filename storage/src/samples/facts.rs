//! Facts of windows from summaries, and from the samples of parts that have none.
//!
//! The samples of a group of parts are summarized between the boundaries of windows when a window
//! reaches them. So windows that overlap decode them once.

use std::collections::VecDeque;

use model::{
    FilledWindows, SourceError, TimeRange, WINDOWS_MAX, WantedFact, WindowFacts, WindowSamples,
    Windows, is_stale,
};

use super::cursor::PartsCursor;
use super::part::Part;
use super::windows::{Falls, Pieces, Place};
use crate::summary::edges::Edges;
use crate::summary::{CompensatedSum, Summary, larger, smaller};

/// Summaries that the next windows may need.
pub(super) struct SummaryQueue<'a> {
    edges: &'a Edges,
    summaries: VecDeque<Queued>,
}

/// Summary that windows may need.
struct Queued {
    summary: Summary,
    /// True if it was stored; otherwise it was made of samples.
    is_stored: bool,
}

impl<'a> SummaryQueue<'a> {
    pub(super) fn new(edges: &'a Edges) -> SummaryQueue<'a> {
        SummaryQueue { edges, summaries: VecDeque::new() }
    }
}

/// Fold of the summaries of a window.
#[derive(Default)]
struct WindowFold {
    all: Option<Summary>,
    is_stored: bool,
    resets: Vec<f64>,
    sum: CompensatedSum,
}

impl WindowFold {
    fn clear(&mut self) {
        (self.all, self.is_stored, self.sum) = (None, true, CompensatedSum::default());
        self.resets.clear();
    }

    fn add(&mut self, next: &Summary, is_stored: bool) {
        self.sum.add_sum(next);
        self.is_stored &= is_stored;
        let Some(all) = &mut self.all else {
            self.all = Some(*next);
            self.resets.extend(Some(next.resets).filter(|value| *value != 0.0));
            return;
        };
        // Also 0, which may change the sign of a zero.
        self.resets.extend((next.first < all.last).then_some(all.last));
        self.resets.extend(Some(next.resets).filter(|value| *value != 0.0));
        all.count += next.count;
        (all.last_ms, all.last) = (next.last_ms, next.last);
        (all.min, all.max) = (smaller(all.min, next.min), larger(all.max, next.max));
    }

    /// Writes the facts of a window.
    fn write(&self, window: usize, wanted: WantedFact, facts: &mut WindowFacts) {
        let Some(all) = self.all else {
            facts.set_samples(window, WindowSamples::default());
            return;
        };
        let Summary { first_ms, last_ms, first, last, min, max, .. } = all;
        let count = usize::try_from(all.count).unwrap_or(usize::MAX);
        facts.set_samples(window, WindowSamples { count, first_ms, last_ms });
        facts.first[window] = first;
        facts.fact[window] = match wanted {
            WantedFact::Ends => last,
            WantedFact::Difference => last - first,
            WantedFact::Increase => self.resets.iter().fold(last - first, |rise, v| rise + v),
            WantedFact::Min => min,
            WantedFact::Max => max,
            WantedFact::Sum => self.sum.total(),
        };
    }
}

impl PartsCursor<'_> {
    /// Writes the facts of all windows of a call; see [`model::Cursor::fill_windows`].
    ///
    /// Errors: damaged bytes, and summaries that windows divide.
    pub(super) fn fill_from_summaries(
        &mut self,
        queue: &mut SummaryQueue<'_>,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> Result<FilledWindows, SourceError> {
        let mut filled = FilledWindows::default();
        let mut fold = WindowFold::default();
        for window in 0..windows.count.min(WINDOWS_MAX) {
            let range = self.range();
            let after_ms = windows.after_ms(window).max(range.start_ms.saturating_sub(1));
            let end_ms = windows.end_ms(window).min(range.end_ms);
            while queue.summaries.front().is_some_and(|front| front.summary.last_ms <= after_ms) {
                queue.summaries.pop_front();
            }
            filled.new_samples += self.summarize(queue, after_ms, end_ms, wanted)?;
            fold.clear();
            let seen = queue.summaries.iter().filter(|queued| queued.summary.last_ms > after_ms);
            for queued in seen.take_while(|queued| queued.summary.first_ms <= end_ms) {
                let Queued { summary, is_stored } = queued;
                let is_divided = summary.last_ms > end_ms
                    || summary.first_ms <= after_ms && summary.before_last_ms > after_ms;
                if is_divided {
                    let detail = format!("the window ({after_ms}, {end_ms}] divides a summary");
                    return Err(self.misread(detail));
                }
                if wanted == WantedFact::Increase && summary.resets.is_nan() {
                    return Err(self.misread("a summary has no resets".to_owned()));
                }
                let is_whole = summary.first_ms > after_ms;
                fold.add(&if is_whole { *summary } else { summary.last_alone() }, *is_stored);
            }
            fold.write(window, wanted, facts);
            filled.windows += 1;
            filled.period += 1;
            filled.summarized += usize::from(fold.all.is_some() && fold.is_stored);
        }
        Ok(filled)
    }

    /// Summarizes the parts up to a time. Returns the number of samples and summaries that were
    /// read.
    fn summarize(
        &mut self,
        queue: &mut SummaryQueue<'_>,
        after_ms: i64,
        end_ms: i64,
        wanted: WantedFact,
    ) -> Result<usize, SourceError> {
        let mut read = 0;
        while let Some(group) = self.next_group(end_ms) {
            self.prefetch_parts(group.start);
            let parts = self.parts_of(group.clone());
            if parts.iter().all(|part| part.times().end_ms <= after_ms) {
                continue;
            }
            if let [Part::Summaries(summaries)] = parts {
                read += summaries.items().len();
                let stored = |summary: &Summary| Queued { summary: *summary, is_stored: true };
                queue.summaries.extend(summaries.items().iter().map(stored));
                continue;
            }
            let divided = match parts {
                [_] => self.divide_in_memory(group.start, queue, wanted)?,
                _ => None,
            };
            if let Some(count) = divided {
                read += count;
            } else {
                let merged = self.merge(group.clone())?;
                let all = merged.timestamps().iter().zip(merged.values());
                let plain = all.filter(|(_, value)| !is_stale(**value));
                let (times, values): (Vec<i64>, Vec<f64>) = plain.unzip();
                read += times.len();
                divide(queue, &times, &values, wanted);
            }
            // Drops the decoded column.
            self.go_to(group.end, 0);
        }
        Ok(read)
    }

    /// Adds the summaries of a part in memory like [`divide`]. Returns the number of its samples;
    /// `None`, without summaries, if their facts are not known without reading them one by one.
    ///
    /// Errors: damaged bytes.
    fn divide_in_memory(
        &mut self,
        part: usize,
        queue: &mut SummaryQueue<'_>,
        wanted: WantedFact,
    ) -> Result<Option<usize>, SourceError> {
        if !self.is_in_memory(part)? {
            return Ok(None);
        }
        let range = self.range();
        let mut pieces = Pieces::new();
        let end = self.add_pieces(part..part + 1, range, &mut pieces);
        Ok(if end > part { divide_pieces(queue, &pieces, range, wanted) } else { None })
    }
}

/// Adds the summaries of pieces like [`divide`]. Returns the number of their samples in `range`;
/// `None`, without effect, if a fact is not known.
fn divide_pieces(
    queue: &mut SummaryQueue<'_>,
    pieces: &Pieces<'_>,
    range: TimeRange,
    wanted: WantedFact,
) -> Option<usize> {
    let in_range = pieces.after(Place { piece: 0, at: 0 }, range.start_ms.saturating_sub(1));
    let until = pieces.number(pieces.after(in_range, range.end_ms));
    let mut start = pieces.number(in_range);
    let count = until - start;
    let all_falls = match wanted {
        WantedFact::Increase if count > 0 => pieces.falls(in_range, pieces.place_of(until - 1))?,
        _ => Falls::default(),
    };
    let mut falls = all_falls.numbers().peekable();
    let queued = queue.summaries.len();
    while start < until {
        let first = pieces.place_of(start);
        let first_ms = pieces.time(first);
        let edge_ms = queue.edges.next_edge(first_ms);
        let end = pieces.number(pieces.after(first, edge_ms)).min(until);
        while falls.next_if(|fall| *fall <= start).is_some() {}
        let end = falls.peek().map_or(end, |fall| end.min(*fall));
        let last = pieces.place_of(end - 1);
        let mut summary = Summary {
            last_ms: pieces.time(last),
            count: (end - start) as u64,
            last: pieces.value(last),
            ..Summary::of_one(first_ms, pieces.value(first))
        };
        if end - start > 1 {
            summary.before_last_ms = pieces.time(pieces.place_of(end - 2));
        }
        let fact = match wanted {
            // Without a decrease, the ends are enough.
            WantedFact::Ends | WantedFact::Difference | WantedFact::Increase => None,
            WantedFact::Min => Some(&mut summary.min),
            WantedFact::Max => Some(&mut summary.max),
            WantedFact::Sum => Some(&mut summary.sum),
        };
        if let Some(fact) = fact {
            let Some(folded) = pieces.folded(first, last, wanted) else {
                queue.summaries.truncate(queued);
                return None;
            };
            *fact = folded;
        }
        queue.summaries.push_back(Queued { summary, is_stored: false });
        start = end;
    }
    Some(count)
}

/// Adds summaries of samples between boundaries and, for increases, between resets. They have only
/// the wanted fact.
fn divide(queue: &mut SummaryQueue<'_>, times: &[i64], values: &[f64], wanted: WantedFact) {
    let mut start = 0;
    while let Some(first_ms) = times.get(start) {
        let edge_ms = queue.edges.next_edge(*first_ms);
        let mut end = start + times[start..].partition_point(|time_ms| *time_ms <= edge_ms);
        if wanted == WantedFact::Increase {
            let falls = values[start..end].windows(2).position(|pair| pair[1] < pair[0]);
            end = falls.map_or(end, |at| start + at + 1);
        }
        let (times, values) = (&times[start..end], &values[start..end]);
        if let Some(mut summary) = Summary::of_ends(times, values) {
            match wanted {
                // Without a decrease, the ends are enough.
                WantedFact::Ends | WantedFact::Difference | WantedFact::Increase => {}
                WantedFact::Min | WantedFact::Max => summary.set_extremes(values),
                WantedFact::Sum => summary.set_sum(values),
            }
            queue.summaries.push_back(Queued { summary, is_stored: false });
        }
        start = end;
    }
}
