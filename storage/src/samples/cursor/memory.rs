//! Lookups of steps and facts of windows, from the columns and tails of a cursor's parts.

use std::ops::Range;
use std::sync::Arc;

use model::{
    FilledSteps, FilledWindows, LookupSteps, SourceError, TimeRange, WINDOWS_MAX, WantedFact,
    WindowFacts, Windows, stale_nan,
};

use super::{Open, OpenColumn, PartsCursor};
use crate::samples::columns::KeptColumn;
use crate::samples::part::Part;
use crate::samples::piece::Piece;
use crate::samples::raw;
use crate::samples::run::column_of;
use crate::samples::windows::{Pieces, Position};

impl PartsCursor<'_> {
    /// See [`model::Cursor::fill_steps`].
    pub(super) fn fill_steps_in_memory(
        &mut self,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> Result<FilledSteps, SourceError> {
        let mut filled = FilledSteps { are_all_seen: true, ..FilledSteps::default() };
        if self.windows.is_none() && self.next == 0 && matches!(self.open, Open::None) {
            let first_ms = self.parts.start_ms_of(0).min(self.end_ms);
            filled.steps = steps.count_until(first_ms.saturating_sub(1)).min(out.len());
            out[..filled.steps].fill(stale_nan());
            filled.are_all_seen = filled.steps == 0;
            (filled.newest_ms, filled.newest) = (i64::MIN, stale_nan());
        }
        while self.windows.is_none() && filled.steps < out.len() {
            if matches!(self.open, Open::None) {
                if !self.is_memory_next(steps, out.len()) {
                    break;
                }
                self.open_next()?;
            }
            let rest = steps.from(filled.steps);
            let next_ms = self.parts.start_ms_of(self.next);
            let until_ms = self.end_ms.min(next_ms.saturating_sub(1));
            let (found, left, goes_on) = match &mut self.open {
                Open::Column { column, at } => {
                    let found = column.fill_steps(*at, rest, until_ms, &mut out[filled.steps..]);
                    *at += found.samples;
                    // Steps of a later call may see its last sample.
                    (found, column.len() - *at, true)
                }
                Open::Raw { rest: samples, starts } => {
                    let found = raw::fill_steps(samples, rest, until_ms, &mut out[filled.steps..]);
                    *samples = &samples[found.samples..];
                    *starts = starts.get(found.samples..).unwrap_or_default();
                    (found, samples.len(), !samples.is_empty())
                }
                _ => break,
            };
            if found.steps > 0 {
                (filled.newest_ms, filled.newest) = (found.newest_ms, found.newest);
                filled.are_all_seen &= found.are_all_seen;
            }
            filled.steps += found.steps;
            filled.samples += found.samples;
            if filled.steps < out.len() && steps.time(filled.steps) >= next_ms {
                // No later step sees the other samples.
                filled.samples += left;
            } else if goes_on || found.steps == 0 {
                break;
            }
            self.open = Open::None;
        }
        Ok(filled)
    }

    /// See [`model::Cursor::fill_windows`].
    pub(super) fn fill_windows_in_memory(
        &mut self,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> Result<FilledWindows, SourceError> {
        let count = windows.count_before(self.end_ms.saturating_add(1)).min(WINDOWS_MAX);
        let is_selected = windows.after_ms(0) >= self.start_ms.saturating_sub(1);
        let Some(last) = count.checked_sub(1).filter(|_| is_selected) else {
            return Ok(FilledWindows::default());
        };
        let Some((mut part, mut at)) = self.take_place() else {
            return Ok(FilledWindows::default());
        };
        while self.parts.end_ms_of(part) <= windows.after_ms(0) && self.is_in_memory(part)? {
            (part, at) = (part + 1, 0);
        }
        let last_ms = windows.end_ms(last);
        let mut end = part;
        while self.parts.start_ms_of(end) <= last_ms && self.is_in_memory(end)? {
            end += 1;
        }
        let times = TimeRange::new(windows.after_ms(0), last_ms);
        let mut pieces = Pieces::new();
        let end = self.add_pieces(part..end, times, &mut pieces);
        let count = windows.count_before(self.parts.start_ms_of(end)).min(count);
        if count == 0 {
            drop(pieces);
            self.go_to(part, at);
            return Ok(FilledWindows::default());
        }
        let place = pieces.place(Position { part, at });
        let (mut filled, seen) = pieces.fill(place, Windows { count, ..windows }, wanted, facts);
        let counted = pieces.number(pieces.place(self.counted)).max(pieces.number(place));
        filled.new_samples = pieces.number(seen).saturating_sub(counted);
        let next = pieces.after(place, windows.after_ms(filled.windows));
        // Without samples in these windows, the next one is not known.
        let before = Position { part, at };
        let [seen, next] = [seen, next].map(|place| pieces.position(place).unwrap_or(before));
        drop(pieces);
        self.counted = self.counted.max(seen);
        self.go_to(next.part, next.at);
        Ok(filled)
    }

    /// Adds the pieces of parts in memory that may have samples in a range of time, up to the first
    /// part with too many staleness markers. Returns the index of the part after them.
    pub(in crate::samples) fn add_pieces<'p>(
        &'p self,
        parts: Range<usize>,
        times: TimeRange,
        pieces: &mut Pieces<'p>,
    ) -> usize {
        let end = parts.end;
        for part in parts {
            let push = |at, piece| pieces.push(Position { part, at }, piece);
            let is_known = match self.decoded_at(part) {
                Ok(at) => Piece::each_of_column(&self.decoded[at].1, times, push),
                Err(_) => Piece::each_of(&self.parts.parts[part], times, push),
            };
            if !is_known {
                return part;
            }
        }
        end
    }

    /// Closes the open group, and returns its part and the index of the next sample, if samples in
    /// memory are open or nothing is.
    fn take_place(&mut self) -> Option<(usize, usize)> {
        let part = self.next.saturating_sub(1);
        let place = match &self.open {
            Open::None => (self.next, 0),
            Open::Column { at, .. } => (part, *at),
            Open::Raw { rest, .. } => {
                let samples = self.parts.parts[part].raw()?;
                (part, samples.len() - rest.len())
            }
            _ => return None,
        };
        let open = std::mem::replace(&mut self.open, Open::None);
        if let Open::Column { column: OpenColumn::Now(column), .. } = open {
            self.keep_decoded(part, column);
        }
        Some(place)
    }

    /// Returns the position of the column of a part among those decoded, otherwise where it
    /// belongs.
    #[inline]
    fn decoded_at(&self, part: usize) -> Result<usize, usize> {
        self.decoded.binary_search_by_key(&part, |(of, _)| *of)
    }

    fn keep_decoded(&mut self, part: usize, column: Arc<KeptColumn>) {
        if let Err(at) = self.decoded_at(part) {
            self.decoded.insert(at, (part, column));
        }
    }

    /// Moves to a sample of a part; all parts that were read before are groups of their own.
    pub(in crate::samples) fn go_to(&mut self, part: usize, at: usize) {
        self.decoded.retain(|(of, _)| *of >= part);
        self.next = part;
        if at == 0 {
            return;
        }
        self.open = match &self.parts.parts[part] {
            Part::Column(column) => Open::Column { column: OpenColumn::Loaded(column), at },
            Part::Tail(tail) => Open::Raw { rest: &tail.items()[at..], starts: &[] },
            Part::Floats(floats) => Open::Raw {
                rest: &floats.samples[at..],
                starts: floats.starts.get(at..).unwrap_or_default(),
            },
            _ => {
                let at = self.decoded_at(part).expect("it was decoded to be read");
                let (_, column) = self.decoded.remove(at);
                Open::Column { column: OpenColumn::Now(column), at }
            }
        };
        self.next = part + 1;
    }

    /// Returns whether a part is a group of its own with floats in memory; decodes its run. Runs
    /// are decoded even if no window reads them: otherwise each query would have to read their
    /// blocks.
    pub(in crate::samples) fn is_in_memory(&mut self, part: usize) -> Result<bool, SourceError> {
        if self.parts.group_end(part) != part + 1 {
            return Ok(false);
        }
        match (&self.parts.parts[part], self.columns) {
            (Part::Column(_) | Part::Tail(_) | Part::Floats(_), _) => Ok(true),
            (Part::Run(run), Some(columns)) => {
                if self.decoded_at(part).is_err() {
                    let damaged = |error| self.damaged(&self.parts.parts[part], error);
                    let column = column_of(run, columns).map_err(damaged)?;
                    self.keep_decoded(part, column);
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns whether the next group is one part in memory or a run that begins before the last of
    /// some steps.
    fn is_memory_next(&self, steps: LookupSteps, step_count: usize) -> bool {
        let next = self.parts.parts.get(self.next);
        next.is_some_and(|part| {
            matches!(part, Part::Column(_) | Part::Run(_) | Part::Tail(_) | Part::Floats(_))
                && self.columns.is_some()
                && part.times().start_ms <= steps.time(step_count - 1)
                && self.parts.group_end(self.next) == self.next + 1
        })
    }
}
