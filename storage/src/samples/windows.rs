//! Facts of windows over the parts of a series, from the packed columns.
//!
//! ```text
//! windows        (----------]
//!                     (----------]
//!                          (----------]
//! pieces    [ . . . . . . . ][ . . . . . . . . . ]
//!                ^ first           ^ last          of the first window
//! ```
//!
//! If the samples are evenly spaced, first and last samples move by the same number of samples from
//! window to window, or from each window to the one some windows later: steps of 5 s over samples
//! every 15 s repeat after 3 windows and 1 sample. Otherwise they are searched, piece by piece.

mod falls;

use model::{
    FilledWindows, LookupSteps, WINDOWS_MAX, WantedFact, WindowFacts, WindowSamples, Windows,
    widest,
};
use smallvec::SmallVec;

use super::columns::{FoundSamples, WholeSum, extreme_of};
use super::piece::Piece;
use super::repeated::{Repetition, spread};
pub(super) use falls::Falls;

/// Minimum number of repeating windows to process together.
const ALIKE_MIN: usize = 4;
/// Number of windows whose even samples are searched, before later ones are tested for being alike.
const EACH_MIN: usize = 64;
/// Maximum number of samples of an overlapping window that are read for each window.
const FOLDED_MAX: usize = 2_048;
/// Maximum number of windows that read each unpacked value.
const READS_MAX: i64 = 8;
/// Maximum number of windows that read each packed value for an extreme.
const EXTREME_READS_MAX: i64 = 64;

/// Number of pieces up to which they need no allocation.
const PIECES: usize = 16;

/// Position of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) piece: usize,
    pub(super) at: usize,
}

/// Pieces of consecutive parts of a series.
pub(super) struct Pieces<'a> {
    pieces: SmallVec<[Piece<'a>; PIECES]>,
    /// Number of the first sample of each piece.
    numbers: SmallVec<[usize; PIECES]>,
    /// Position of the first sample of each piece.
    positions: SmallVec<[Position; PIECES]>,
    /// Number of samples.
    len: usize,
}

/// Position of a sample in parts, which may also have staleness markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) part: usize,
    pub(super) at: usize,
}

/// First and last sample of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WindowEnds {
    first: Place,
    last: Place,
}

/// Windows of evenly spaced samples.
struct AlikeWindows {
    count: usize,
    /// Ends of each window of the first period.
    ends: SmallVec<[WindowEnds; 4]>,
    /// Number of samples from each window to the one a period later.
    stride: usize,
}

impl<'a> Pieces<'a> {
    pub(super) fn new() -> Pieces<'a> {
        let (pieces, numbers, positions) = (SmallVec::new(), SmallVec::new(), SmallVec::new());
        Pieces { pieces, numbers, positions, len: 0 }
    }

    /// Adds the piece whose first sample is at a position.
    #[inline]
    pub(super) fn push(&mut self, position: Position, piece: Piece<'a>) {
        self.pieces.push(piece);
        self.numbers.push(self.len);
        self.positions.push(position);
        self.len += piece.len();
    }

    /// Returns the place of the first sample at a position or after it.
    #[inline]
    pub(super) fn place(&self, position: Position) -> Place {
        let next = self.positions.partition_point(|start| *start <= position);
        let inside = next.checked_sub(1).and_then(|piece| {
            let start = self.positions[piece];
            let is_inside =
                start.part == position.part && position.at - start.at < self.pieces[piece].len();
            is_inside.then(|| Place { piece, at: position.at - start.at })
        });
        inside.unwrap_or(Place { piece: next, at: 0 })
    }

    /// Returns the position of a sample, or the one after the last sample; `None` without samples.
    #[inline]
    pub(super) fn position(&self, place: Place) -> Option<Position> {
        let start = self.positions.get(place.piece);
        let found = start.map(|start| Position { at: start.at + place.at, ..*start });
        found.or_else(|| {
            let (start, piece) = (self.positions.last()?, self.pieces.last()?);
            Some(Position { at: start.at + piece.len(), ..*start })
        })
    }

    /// Returns the number of a sample.
    #[inline]
    pub(super) fn number(&self, place: Place) -> usize {
        self.numbers.get(place.piece).copied().unwrap_or(self.len) + place.at
    }

    #[inline]
    pub(super) fn time(&self, place: Place) -> i64 {
        self.pieces[place.piece].time(place.at)
    }

    #[inline]
    pub(super) fn value(&self, place: Place) -> f64 {
        self.pieces[place.piece].value(place.at)
    }

    /// Returns the place of the first sample from `place` on that is later than `time_ms`; the piece
    /// after the last one if there is none.
    #[inline]
    pub(super) fn after(&self, mut place: Place, time_ms: i64) -> Place {
        while let Some(piece) = self.pieces.get(place.piece) {
            place.at += piece.count_until(place.at, time_ms);
            if place.at < piece.len() {
                break;
            }
            place = Place { piece: place.piece + 1, at: 0 };
        }
        place
    }

    /// Returns the place of the last sample up to `time_ms`, which is not before `place`.
    #[inline]
    fn newest(&self, place: Place, time_ms: i64) -> Place {
        let Place { piece, at } = self.after(place, time_ms);
        match at.checked_sub(1) {
            Some(at) => Place { piece, at },
            None => Place { piece: piece - 1, at: self.pieces[piece - 1].len() - 1 },
        }
    }

    /// Writes the facts of the first windows; `place` is not after the first sample of the first
    /// window. Also returns the place after the last sample of the last window.
    pub(super) fn fill(
        &self,
        place: Place,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> (FilledWindows, Place) {
        let first = self.after(place, windows.after_ms(0));
        let first_ms = self.pieces.get(first.piece).map_or(i64::MAX, |piece| piece.time(first.at));
        let empty_count = windows.count_before(first_ms);
        if empty_count > 0 {
            facts.set_samples(0, WindowSamples::default());
            let filled =
                FilledWindows { windows: empty_count, period: 1, ..FilledWindows::default() };
            return (filled, place);
        }
        let last = self.newest(first, windows.end_ms(0));
        let is_of_ends =
            matches!(wanted, WantedFact::Ends | WantedFact::Difference | WantedFact::Increase);
        let alike = self.alike(first, last, windows);
        if !is_of_ends {
            // Steps that are shorter than the distance of samples see the same samples.
            let repeated = alike.as_ref().map_or(1, |a| a.ends.len().div_ceil(a.stride));
            let step_ms = windows.step_ms * repeated as i64;
            if !self.is_cheap_to_fold(first, last, Windows { step_ms, ..windows }, wanted) {
                return (FilledWindows::default(), place);
            }
        }
        match alike {
            Some(alike) if alike.count >= ALIKE_MIN.min(windows.count) => {
                self.fill_alike(&alike, wanted, facts)
            }
            _ => self.fill_each(first, windows, wanted, facts),
        }
    }

    /// Returns whether there are staleness markers or gaps inside of parts.
    fn is_divided(&self) -> bool {
        self.positions.windows(2).any(|pair| pair[0].part == pair[1].part)
    }

    /// Returns whether folding the values of windows costs less than handing over all samples; windows
    /// with the same samples count once.
    fn is_cheap_to_fold(
        &self,
        first: Place,
        last: Place,
        windows: Windows,
        wanted: WantedFact,
    ) -> bool {
        if windows.count == 1 || windows.step_ms >= windows.span_ms {
            return true;
        }
        if self.is_divided() {
            return false;
        }
        let count = self.number(last) - self.number(first) + 1;
        let reads = windows.span_ms / windows.step_ms.max(1);
        let reads_packed_max = match wanted {
            WantedFact::Min | WantedFact::Max => EXTREME_READS_MAX,
            _ => i64::MAX,
        };
        let are_packed = self.pieces[first.piece..=last.piece].iter().all(Piece::is_packed);
        reads <= if are_packed { reads_packed_max } else { READS_MAX } && count <= FOLDED_MAX
    }

    /// Returns the windows whose samples are those of earlier ones, some samples later; `first` and
    /// `last` are the ends of the first window.
    fn alike(&self, first: Place, last: Place, windows: Windows) -> Option<AlikeWindows> {
        let pieces = &self.pieces;
        let sample_ms = pieces[first.piece].even_step_ms(None)?;
        let is_even = last.piece == first.piece
            || pieces[last.piece].even_step_ms(Some(sample_ms)) == Some(sample_ms);
        if !is_even {
            return None;
        }
        let Repetition { period, stride } = Repetition::of(windows.step_ms, sample_ms)?;
        // Shorter windows may be empty between windows with samples.
        if period > 1 && windows.span_ms < sample_ms {
            return None;
        }
        let (first_ms, last_ms) = (self.time(first), self.time(last));
        let starts_inside =
            first.at > 0 || first_ms.saturating_sub(windows.after_ms(0)) <= sample_ms;
        let ends_inside = windows.end_ms(0) - last_ms < sample_ms;
        if !starts_inside || !ends_inside {
            return None;
        }
        let (first_end, last_end) =
            (self.even_end(first.piece, sample_ms), self.even_end(last.piece, sample_ms));
        let next_ms = pieces.get(last_end).map_or(i64::MAX, |piece| piece.time(0));
        let later_ms = |place: Place, end: usize| {
            let end = self.number(Place { piece: end, at: 0 });
            (end - 1 - self.number(place)) as i64 * sample_ms
        };
        // The end of the first window that begins, or ends, after all even samples.
        let begins_ms = first_ms.saturating_add(later_ms(first, first_end));
        let ends_ms = last_ms.saturating_add(later_ms(last, last_end)).saturating_add(sample_ms);
        let until_ms = begins_ms.saturating_add(windows.span_ms).min(ends_ms).min(next_ms);
        let count = windows.count_before(until_ms);
        let ends = (0..count.min(period)).map(|window| {
            let passed = |bound_ms: i64, time_ms: i64| (bound_ms - time_ms).div_euclid(sample_ms);
            let before = passed(windows.after_ms(window), first_ms) + 1;
            let until = passed(windows.end_ms(window), last_ms);
            WindowEnds {
                first: self.moved(first, before as usize),
                last: self.moved(last, until as usize),
            }
        });
        Some(AlikeWindows { count, ends: ends.collect(), stride })
    }

    /// Returns the piece after those that continue a piece of even samples at the same distance.
    fn even_end(&self, piece: usize, sample_ms: i64) -> usize {
        let continues = |pair: &&[Piece<'_>]| {
            let [before, next] = pair else { return false };
            next.time(0) - before.time(before.len() - 1) == sample_ms
                && next.even_step_ms(Some(sample_ms)) == Some(sample_ms)
        };
        piece + 1 + self.pieces[piece..].windows(2).take_while(continues).count()
    }

    /// Returns the place of a later sample.
    #[inline]
    fn moved(&self, place: Place, samples: usize) -> Place {
        let Place { mut piece, at } = place;
        let mut at = at + samples;
        while at >= self.pieces[piece].len() {
            at -= self.pieces[piece].len();
            piece += 1;
        }
        Place { piece, at }
    }

    /// Writes the value of a sample to `out`, and then every `stride`th.
    #[inline]
    fn read_strided(&self, first: Place, stride: usize, mut out: &mut [f64]) {
        let (mut place, mut passed) = (first, 0);
        while !out.is_empty() {
            place = self.moved(place, passed);
            let piece = &self.pieces[place.piece];
            let count = ((piece.len() - 1 - place.at) / stride + 1).min(out.len());
            let (of_piece, rest) = out.split_at_mut(count);
            piece.read_strided(place.at, stride, of_piece);
            (passed, out) = (count * stride, rest);
        }
    }

    /// Writes the facts of windows whose samples repeat.
    fn fill_alike(
        &self,
        alike: &AlikeWindows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> (FilledWindows, Place) {
        let AlikeWindows { count, ends, stride } = alike;
        let (count, period) = (*count, ends.len());
        for (window, ends) in ends.iter().enumerate() {
            facts.set_samples(window, self.samples_of(*ends));
        }
        let last_of =
            |window: usize| self.moved(ends[window % period].last, window / period * stride);
        let mut windows = count;
        match wanted {
            WantedFact::Ends | WantedFact::Difference | WantedFact::Increase => {
                let firsts = &mut facts.first[..count];
                self.read_ends(alike, |ends| ends.first, firsts);
                let lasts = &mut facts.fact[..count];
                self.read_ends(alike, |ends| ends.last, lasts);
                if wanted != WantedFact::Ends {
                    let both = lasts.iter_mut().zip(firsts);
                    widest(
                        #[inline(always)]
                        || both.for_each(|(last, first)| *last -= *first),
                    );
                }
                if wanted == WantedFact::Increase {
                    let Some(falls) = self.falls(ends[0].first, last_of(count - 1)) else {
                        return (FilledWindows::default(), ends[0].first);
                    };
                    let numbers =
                        |ends: &WindowEnds| self.number(ends.first)..self.number(ends.last);
                    let numbers: SmallVec<[_; 4]> = ends.iter().map(numbers).collect();
                    windows = falls.add_alike(lasts, &numbers, *stride);
                }
            }
            WantedFact::Min | WantedFact::Max | WantedFact::Sum => {
                windows = self.fold_alike(alike, wanted, &mut facts.fact[..count]);
            }
        }
        let last = last_of(windows.saturating_sub(1));
        let end = Place { at: last.at + 1, ..last };
        let period = period.min(windows);
        (FilledWindows { windows, period, ..FilledWindows::default() }, end)
    }

    /// Writes the values at one end of windows whose samples repeat.
    fn read_ends(&self, alike: &AlikeWindows, end: impl Fn(WindowEnds) -> Place, out: &mut [f64]) {
        let AlikeWindows { ends, stride, .. } = alike;
        if let [ends] = &ends[..] {
            return self.read_strided(end(*ends), *stride, out);
        }
        let mut values = [0.0; WINDOWS_MAX];
        for (window, ends_of_window) in ends.iter().enumerate() {
            let place = end(*ends_of_window);
            let values = &mut values[..(out.len() - window).div_ceil(ends.len())];
            if window == 0 || end(ends[window - 1]) != place {
                self.read_strided(place, *stride, values);
            }
            spread(values, &mut out[window..], ends.len());
        }
    }

    /// Writes the extreme or the sum of windows whose samples repeat. Returns the number of windows
    /// up to the first one for which it is not known.
    fn fold_alike(&self, alike: &AlikeWindows, wanted: WantedFact, facts: &mut [f64]) -> usize {
        let AlikeWindows { ends, stride, .. } = alike;
        if let [ends] = &ends[..] {
            return self.fold_strided(*ends, *stride, wanted, facts);
        }
        let mut values = [0.0; WINDOWS_MAX];
        let (mut count, mut known) = (facts.len(), 0);
        for (window, ends_of_window) in ends.iter().enumerate() {
            let values = &mut values[..(facts.len() - window).div_ceil(ends.len())];
            if window == 0 || ends[window - 1] != *ends_of_window {
                known = self.fold_strided(*ends_of_window, *stride, wanted, values);
            }
            if known < values.len() {
                count = count.min(window + known * ends.len());
            }
            spread(values, &mut facts[window..], ends.len());
        }
        count
    }

    /// Writes the extreme or the sum of windows that move by `stride` samples. Returns the number of
    /// windows up to the first one for which it is not known.
    fn fold_strided(
        &self,
        WindowEnds { first, last }: WindowEnds,
        stride: usize,
        wanted: WantedFact,
        facts: &mut [f64],
    ) -> usize {
        let (mut from, mut to) = (first, last);
        let (mut done, mut passed) = (0, 0);
        while done < facts.len() {
            (from, to) = (self.moved(from, passed), self.moved(to, passed));
            let piece = &self.pieces[from.piece];
            if from.piece == to.piece {
                let fitting = ((piece.len() - 1 - to.at) / stride + 1).min(facts.len() - done);
                let (range, out) = (from.at..to.at + 1, &mut facts[done..done + fitting]);
                let is_known = match wanted {
                    WantedFact::Sum => piece.moving_sums(range, stride, out),
                    _ => piece.moving_extremes(range, stride, wanted == WantedFact::Max, out),
                };
                if is_known {
                    done += fitting;
                    passed = fitting * stride;
                    continue;
                }
            }
            let Some(known) = self.folded(from, to, wanted) else { break };
            facts[done] = known;
            done += 1;
            passed = stride;
        }
        done
    }

    /// Returns the number of windows to search before later ones are tested for being alike.
    fn searched(&self, first: Place, windows: Windows) -> usize {
        if self.pieces[first.piece].even_step_ms(None).is_none() {
            return WINDOWS_MAX;
        }
        // Windows that begin before all samples are not alike.
        let growing = windows.count_before(self.time(first).saturating_add(windows.span_ms));
        growing.clamp(EACH_MIN, WINDOWS_MAX)
    }

    /// Writes the facts of windows, whose first and last samples are searched.
    fn fill_each(
        &self,
        first: Place,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> (FilledWindows, Place) {
        let unknown = (FilledWindows::default(), first);
        let Some(after_ms) = windows.first_end_ms.checked_sub(windows.span_ms) else {
            return unknown;
        };
        let count = windows.count.min(self.searched(first, windows));
        let newest = self.newest(first, windows.end_ms(count - 1));
        let falls = match wanted {
            WantedFact::Increase => self.falls(first, newest),
            _ => Some(Falls::default()),
        };
        let Some(falls) = falls else { return unknown };
        let (mut firsts, mut lasts) = ([0; WINDOWS_MAX], [0; WINDOWS_MAX]);
        let (firsts, lasts) = (&mut firsts[..count], &mut lasts[..count]);
        let (starts, ends) = (lookups(after_ms, windows), lookups(windows.first_end_ms, windows));
        let (first_ms, values) = (&mut facts.first_ms[..count], &mut facts.first[..count]);
        self.find_next(
            first.piece,
            starts,
            FoundSamples { at: firsts, times_ms: first_ms, values },
        );
        let (last_ms, values) = (&mut facts.last_ms[..count], &mut facts.fact[..count]);
        self.find_newest(first.piece, ends, FoundSamples { at: lasts, times_ms: last_ms, values });
        let counts = &mut facts.counts[..count];
        let ends = firsts.iter().zip(&*lasts);
        widest(
            #[inline(always)]
            || {
                for (count, (first, last)) in counts.iter_mut().zip(ends) {
                    *count = (last + 1).saturating_sub(*first);
                }
            },
        );
        let filled = match wanted {
            WantedFact::Ends => count,
            WantedFact::Difference | WantedFact::Increase => {
                let both = facts.fact[..count].iter_mut().zip(&facts.first);
                widest(
                    #[inline(always)]
                    || both.for_each(|(last, first)| *last -= *first),
                );
                falls.add_each(&mut facts.fact[..count], firsts, lasts)
            }
            WantedFact::Min | WantedFact::Max | WantedFact::Sum => {
                let is_known = |window: &usize| {
                    if facts.counts[*window] == 0 {
                        return true;
                    }
                    let ends = [firsts[*window], lasts[*window]].map(|at| self.place_of(at));
                    let folded = self.folded(ends[0], ends[1], wanted);
                    facts.fact[*window] = folded.unwrap_or(0.0);
                    folded.is_some()
                };
                (0..count).take_while(is_known).count()
            }
        };
        let last = (0..filled).rfind(|window| facts.counts[*window] > 0);
        let end = last.map_or(first, |window| {
            let last = self.place_of(lasts[window]);
            Place { at: last.at + 1, ..last }
        });
        (FilledWindows { windows: filled, period: filled, ..FilledWindows::default() }, end)
    }

    /// Finds the newest sample up to each step, the first of which is not before `piece`. Writes
    /// numbers in place of indices.
    fn find_newest(&self, piece: usize, steps: LookupSteps, mut found: FoundSamples<'_>) {
        let (mut next, mut done, count) = (piece, 0, found.at.len());
        while done < count {
            let until = |later: &Piece<'_>| steps.count_until(later.time(0) - 1).min(count);
            let end = self.pieces.get(next + 1).map_or(count, until);
            if end > done {
                self.find_in(next, steps.from(done), 0, found.part(done..end));
                done = end;
            }
            next += 1;
        }
    }

    /// Finds the first sample after each step; for the first step it is in `piece`. Writes numbers in
    /// place of indices, and the number after the last sample for steps without a later sample.
    fn find_next(&self, piece: usize, steps: LookupSteps, mut found: FoundSamples<'_>) {
        let (mut done, count) = (0, found.at.len());
        for (next, piece) in self.pieces.iter().enumerate().skip(piece) {
            if done == count {
                break;
            }
            let (first_ms, last_ms) = (piece.time(0), piece.time(piece.len() - 1));
            let before = steps.count_until(first_ms.saturating_sub(1)).clamp(done, count);
            let FoundSamples { at, times_ms, values } = found.part(done..before);
            at.fill(self.numbers[next]);
            times_ms.fill(first_ms);
            values.fill(piece.value(0));
            done = steps.count_until(last_ms.saturating_sub(1)).clamp(before, count);
            if done > before {
                self.find_in(next, steps.from(before), 1, found.part(before..done));
            }
        }
        found.at[done..].fill(self.len);
    }

    /// Finds samples of a piece like [`Piece::find`], but writes numbers.
    #[inline]
    fn find_in(&self, piece: usize, steps: LookupSteps, ahead: usize, mut found: FoundSamples<'_>) {
        self.pieces[piece].find(steps, ahead, &mut found);
        found.at.iter_mut().for_each(|at| *at += self.numbers[piece]);
    }

    /// Returns the place of a sample.
    #[inline]
    pub(super) fn place_of(&self, number: usize) -> Place {
        let piece = self.numbers.partition_point(|first| *first <= number) - 1;
        Place { piece, at: number - self.numbers[piece] }
    }

    #[inline]
    fn samples_of(&self, WindowEnds { first, last }: WindowEnds) -> WindowSamples {
        WindowSamples {
            count: self.number(last) - self.number(first) + 1,
            first_ms: self.time(first),
            last_ms: self.time(last),
        }
    }

    /// Returns the extreme or the sum of all values from `first` to `last`; `None` if it is not
    /// known.
    pub(super) fn folded(&self, first: Place, last: Place, wanted: WantedFact) -> Option<f64> {
        let ranges = (first.piece..=last.piece).map(|at| {
            let piece = &self.pieces[at];
            let start = if at == first.piece { first.at } else { 0 };
            let end = if at == last.piece { last.at + 1 } else { piece.len() };
            (piece, start..end)
        });
        if wanted == WantedFact::Sum {
            let mut sums = ranges.map(|(piece, range)| piece.whole_sum(range));
            let first = sums.next()??;
            return sums.try_fold(first, |sum, next| sum.plus(next?)).map(WholeSum::total);
        }
        let is_max = wanted == WantedFact::Max;
        let extremes = ranges.filter_map(|(piece, range)| piece.extreme(range, is_max));
        Some(extreme_of(extremes, is_max).unwrap_or_else(|| self.value(last)))
    }
}

/// Returns steps from `first_ms` on at the distance of windows, without a limit to the age of samples.
fn lookups(first_ms: i64, windows: Windows) -> LookupSteps {
    LookupSteps { first_ms, step_ms: windows.step_ms, lookback_ms: i64::MAX }
}
