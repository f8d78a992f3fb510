//! Packed results of consecutive steps, which can be cut, extended and read.

use std::ops::Range;
use std::sync::Arc;

use model::Labels;

use crate::result::Row;
use crate::steps::{Reach, Steps};

/// A piece is merged with the previous piece once it has at least one in this many of that piece's
/// steps. So each step is repacked only a few times.
const SHARE_MERGED: usize = 2;

/// Result of a query at consecutive steps, at a version of the source.
#[derive(Debug, Clone)]
pub(crate) struct CachedSteps {
    /// Pieces in order of time; each starts one step after the last step of the previous piece.
    pieces: Vec<LivePiece>,
    /// Reach of a step.
    pub(crate) reach: Reach,
    /// Version of the source before any sample of the result was loaded.
    pub(crate) version: u64,
    /// Number of steps of the longest query that used this result.
    pub(crate) asked_max: usize,
}

/// Piece with its valid steps; at least one is valid.
#[derive(Debug, Clone)]
struct LivePiece {
    piece: Arc<Piece>,
    live: Range<usize>,
}

/// Immutable result at consecutive steps.
///
/// Invariant: rows are sorted by labels, each label set once.
#[derive(Debug)]
pub(crate) struct Piece {
    steps: Steps,
    rows: Vec<PackedRow>,
}

/// Row that stores only its present values.
#[derive(Debug)]
struct PackedRow {
    labels: Labels,
    presence: Box<[u64]>,
    values: Box<[f64]>,
}

impl PackedRow {
    fn pack(row: &Row) -> PackedRow {
        let values = row.iter().map(|(_, value)| value).collect();
        PackedRow { labels: row.labels.clone(), presence: row.presence.as_slice().into(), values }
    }

    /// Copies the values at the steps `from`, at least one, to `row`, starting at its step `to`.
    fn unpack(&self, from: &Range<usize>, row: &mut Row, to: usize) {
        let (first_word, last_word) = (from.start / 64, (from.end - 1) / 64);
        let before = &self.presence[..first_word];
        let mut values_before: usize = before.iter().map(|word| word.count_ones() as usize).sum();
        for (index, word) in self.presence.iter().enumerate().take(last_word + 1).skip(first_word) {
            let start = from.start.saturating_sub(index * 64);
            let end = (from.end - index * 64).min(64);
            // The requested bits, the first of them lowest.
            let mut bits = (word & (u64::MAX >> (64 - end))) >> start;
            let skipped = (word & !(u64::MAX << start)).count_ones() as usize;
            let values = &self.values[values_before + skipped..];
            values_before += word.count_ones() as usize;
            let at = to + (index * 64 + start - from.start);
            place_bits(&mut row.presence, at, bits);
            if bits == u64::MAX {
                row.values[at..at + 64].copy_from_slice(&values[..64]);
                continue;
            }
            for value in values {
                if bits == 0 {
                    break;
                }
                row.values[at + bits.trailing_zeros() as usize] = *value;
                bits &= bits - 1;
            }
        }
    }

    fn bytes(&self) -> u64 {
        let cells = self.presence.len() + self.values.len();
        (size_of::<PackedRow>() + self.labels.as_bytes().len() + cells * 8) as u64
    }
}

/// Copies `bits` into `words`, from bit index `at` on.
fn place_bits(words: &mut [u64], at: usize, bits: u64) {
    let (word, shift) = (at / 64, at % 64);
    words[word] |= bits << shift;
    if shift > 0 && bits >> (64 - shift) != 0 {
        words[word + 1] |= bits >> (64 - shift);
    }
}

impl Piece {
    /// Packs the rows of a result; `None` if there are histograms.
    pub(crate) fn pack(steps: Steps, rows: &[Row]) -> Option<Piece> {
        let has_histograms = rows.iter().any(|row| !row.histograms.is_empty());
        (!has_histograms).then(|| Piece { steps, rows: rows.iter().map(PackedRow::pack).collect() })
    }

    fn bytes(&self) -> u64 {
        self.rows.iter().map(PackedRow::bytes).sum()
    }
}

impl LivePiece {
    fn whole(piece: Piece) -> LivePiece {
        let live = 0..piece.steps.count;
        LivePiece { piece: Arc::new(piece), live }
    }

    fn steps(&self) -> Steps {
        let Steps { step_ms, .. } = self.piece.steps;
        let start_ms = self.piece.steps.time(self.live.start);
        Steps { start_ms, step_ms, count: self.live.len() }
    }
}

impl CachedSteps {
    /// Creates cached steps from one piece.
    pub(crate) fn new(piece: Piece, reach: Reach, version: u64) -> CachedSteps {
        let asked_max = piece.steps.count;
        CachedSteps { pieces: vec![LivePiece::whole(piece)], reach, version, asked_max }
    }

    /// Returns all steps; `None` if there are none left.
    pub(crate) fn steps(&self) -> Option<Steps> {
        let first = self.pieces.first()?.steps();
        Some(Steps { count: self.pieces.iter().map(|part| part.live.len()).sum(), ..first })
    }

    /// Keeps the steps that see only samples within `unchanged`; returns whether the last steps
    /// were removed.
    pub(crate) fn keep_unchanged(&mut self, unchanged: &Range<i64>) -> bool {
        let Some(steps) = self.steps() else { return false };
        let from_ms = unchanged.start.saturating_add(self.reach.back_ms);
        // The last time that a step sees must be before the end.
        let until_ms = unchanged.end.saturating_sub(self.reach.ahead_ms);
        self.keep(steps_before(steps, from_ms)..steps_before(steps, until_ms));
        self.steps().is_none_or(|kept| kept.end_ms() < steps.end_ms())
    }

    /// Keeps only the steps with the indices `kept`.
    pub(crate) fn keep(&mut self, kept: Range<usize>) {
        let mut first = 0;
        self.pieces.retain_mut(|part| {
            let count = part.live.len();
            let start = kept.start.clamp(first, first + count) - first;
            let end = kept.end.clamp(first, first + count) - first;
            first += count;
            part.live = part.live.start + start..part.live.start + end.max(start);
            !part.live.is_empty()
        });
    }

    /// Removes the first or last step, which the adjoining `piece` contains, too.
    pub(crate) fn make_way(&mut self, piece: &Piece) {
        let Some(all) = self.steps() else { return };
        if piece.steps.start_ms < all.start_ms {
            self.keep(1..all.count);
        } else {
            self.keep(0..all.count - 1);
        }
    }

    /// Limits the steps to the number of the longest query, up to the last step of `asked`.
    pub(crate) fn keep_up_to(&mut self, asked: Steps) {
        let Some(all) = self.steps() else { return };
        if all.count > self.asked_max {
            let end = steps_before(all, asked.end_ms().saturating_add(1));
            self.keep(end.saturating_sub(self.asked_max)..end);
        }
    }

    /// Repacks pieces with few valid steps, and merges small pieces.
    pub(crate) fn tidy(&mut self) {
        for part in &mut self.pieces {
            if part.live.len() * 2 < part.piece.steps.count {
                *part = repack(std::slice::from_ref(part));
            }
        }
        while let [.., before, last] = &self.pieces[..]
            && last.live.len() * SHARE_MERGED >= before.live.len()
        {
            let merged = repack(&self.pieces[self.pieces.len() - 2..]);
            self.pieces.truncate(self.pieces.len() - 2);
            self.pieces.push(merged);
        }
    }

    /// Adds a piece that starts one step after the last step, or ends one step before the first.
    pub(crate) fn extend(&mut self, piece: Piece) {
        let part = LivePiece::whole(piece);
        let is_before =
            self.steps().is_some_and(|steps| part.piece.steps.start_ms < steps.start_ms);
        if is_before {
            self.pieces.insert(0, part);
        } else {
            self.pieces.push(part);
        }
    }

    /// Returns the rows at some cached steps, sorted by labels.
    pub(crate) fn rows(&self, steps: Steps) -> Vec<Row> {
        rows(&self.pieces, steps)
    }

    /// Returns an upper bound of the number of rows.
    pub(crate) fn row_count_max(&self) -> usize {
        self.pieces.iter().map(|part| part.piece.rows.len()).sum()
    }

    /// Returns the number of bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        let own = size_of::<CachedSteps>() + self.pieces.len() * size_of::<(LivePiece, Piece)>();
        own as u64 + self.pieces.iter().map(|part| part.piece.bytes()).sum::<u64>()
    }
}

/// Returns the number of steps before a time.
fn steps_before(steps: Steps, time_ms: i64) -> usize {
    if time_ms <= steps.start_ms {
        return 0;
    }
    let passed = time_ms.abs_diff(steps.start_ms).div_ceil(steps.step_ms.unsigned_abs());
    usize::try_from(passed).map_or(steps.count, |passed| passed.min(steps.count))
}

/// Merges consecutive pieces into one.
fn repack(parts: &[LivePiece]) -> LivePiece {
    let first = parts[0].steps();
    let steps = Steps { count: parts.iter().map(|part| part.live.len()).sum(), ..first };
    let rows = rows(parts, steps).iter().map(PackedRow::pack).collect();
    LivePiece::whole(Piece { steps, rows })
}

/// Returns the rows of consecutive pieces at `steps`, which they all cover.
fn rows(parts: &[LivePiece], steps: Steps) -> Vec<Row> {
    let mut found: Vec<(&PackedRow, Range<usize>, usize)> = Vec::new();
    for part in parts {
        let own = part.steps();
        // Requested steps of this piece, and their index in the resulting rows.
        let start = steps_before(own, steps.start_ms);
        let end = steps_before(own, steps.end_ms().saturating_add(1)).max(start);
        if start == end {
            continue;
        }
        let to = steps_before(steps, own.time(start));
        let from = part.live.start + start..part.live.start + end;
        found.extend(part.piece.rows.iter().map(|row| (row, from.clone(), to)));
    }
    // Stable, and fast because each part is sorted.
    found.sort_by(|a, b| a.0.labels.cmp(&b.0.labels));
    let mut rows: Vec<Row> = Vec::new();
    for group in found.chunk_by(|a, b| a.0.labels == b.0.labels) {
        let mut row = Row {
            labels: group[0].0.labels.clone(),
            values: vec![0.0; steps.count],
            presence: vec![0; steps.count.div_ceil(64)],
            histograms: Vec::new(),
        };
        for (packed, from, to) in group {
            packed.unpack(from, &mut row, *to);
        }
        if row.presence.iter().any(|word| *word != 0) {
            rows.push(row);
        }
    }
    rows
}
