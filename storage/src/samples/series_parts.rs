//! Parts of one series in order of time, and their groups.
//!
//! ```text
//! parts, by time    [ a ][ b ]   [ c      ][ d ]
//!                              [ e ]
//! groups            [ a ][ b ] [ c + e    ][ d ]
//! ```
//!
//! Parts that overlap form a group. A part lies in one window of two hours, and so does a group,
//! except at a boundary that was written twice.

use std::ops::Range;

use model::{SourceError, TimeRange};

use super::cursor::location;
use super::part::{Part, Parts};
use super::shared::{Room, SharedSlice};
use crate::chunk::{HistogramBefore, HistogramDecoder};
use crate::summary::Summary;
use crate::summary::edges::Edges;

/// Parts of one series.
pub(crate) struct SeriesParts {
    /// Sorted by their first time.
    pub(super) parts: Parts,
    /// Order of writing of each part; `None` if all parts are disjoint.
    pub(super) ranks: Option<Vec<u32>>,
    has_histograms: bool,
}

impl SeriesParts {
    /// Creates the parts of a series in a range, given in the order of writing.
    ///
    /// Errors: a frame whose header cannot be read.
    pub(crate) fn new(
        mut parts: Parts,
        start_ms: i64,
        end_ms: i64,
        series: &model::Labels,
    ) -> Result<SeriesParts, SourceError> {
        let (mut has_histograms, mut is_chain) = (false, true);
        let mut before_ms = None;
        let mut all_overlap = true;
        for part in &parts {
            if let Part::Frame(frame) = part
                && let Err(error) = frame.header
            {
                return Err(error.at(series.to_string(), location(frame.key.as_deref())));
            }
            let TimeRange { start_ms: min_ms, end_ms: max_ms } = part.times();
            all_overlap &= min_ms <= end_ms && max_ms >= start_ms;
            is_chain &= before_ms.is_none_or(|before_ms| before_ms < min_ms);
            has_histograms |= part.is_histograms();
            before_ms = Some(max_ms);
        }
        if !all_overlap {
            parts.retain(|part| {
                let TimeRange { start_ms: min_ms, end_ms: max_ms } = part.times();
                min_ms <= end_ms && max_ms >= start_ms
            });
            has_histograms = parts.iter().any(Part::is_histograms);
        }
        if is_chain {
            return Ok(SeriesParts { parts, ranks: None, has_histograms });
        }
        let mut ranked: Vec<(u32, Part)> = (0..).zip(parts).collect();
        ranked.sort_by_key(|(_, part)| part.times().start_ms);
        let (ranks, parts) = ranked.into_iter().unzip();
        Ok(SeriesParts { parts, ranks: Some(ranks), has_histograms })
    }

    /// Merges summaries of parts that follow each other, where no window begins or ends. All summaries
    /// are copied to `room`: a few would hold those of their whole day.
    pub(crate) fn merge_summaries(&mut self, edges: &Edges, room: &mut Room<Summary>) {
        if !self.has_summaries() {
            return;
        }
        if self.ranks.is_some() {
            self.summaries_mut().for_each(|slice| *slice = room.copy(slice.items()));
            return;
        }
        let mut merged = Parts::new();
        let mut reach = edges.reach(i64::MIN);
        for part in std::mem::take(&mut self.parts) {
            let Part::Summaries(next) = part else {
                merged.push(part);
                continue;
            };
            let next = next.items();
            if let Some(Part::Summaries(last)) = merged.last_mut() {
                room.change_last(last, |all| {
                    next.iter().for_each(|summary| edges.push(all, &mut reach, summary));
                });
            } else {
                merged.push(Part::Summaries(room.copy(next)));
                reach = edges.reach(next.last().map_or(i64::MIN, |last| last.first_ms));
            }
        }
        self.parts = merged;
    }

    /// Returns the summaries of all parts.
    pub(crate) fn summaries_mut(&mut self) -> impl Iterator<Item = &mut SharedSlice<Summary>> {
        self.parts.iter_mut().filter_map(Part::summaries_mut)
    }

    /// Prefetches the columns of the parts.
    pub(crate) fn fetch(&self) {
        self.parts.iter().for_each(Part::fetch);
    }

    /// Prefetches the first samples, once the columns are in the CPU cache.
    pub(crate) fn fetch_samples(&self) {
        self.parts.iter().for_each(Part::fetch_samples);
    }

    /// Returns whether any part has histograms, by the tags of the frames.
    pub(crate) fn has_histograms(&self) -> bool {
        self.has_histograms
    }

    /// Returns whether any part is summaries.
    pub(crate) fn has_summaries(&self) -> bool {
        self.parts.iter().any(Part::is_summaries)
    }

    /// Returns whether facts of windows are known of all parts: none has histograms, and no summaries
    /// overlap another part.
    pub(crate) fn has_facts(&self) -> bool {
        let mut start = 0;
        while start < self.parts.len() {
            let end = self.group_end(start);
            if end - start > 1 && self.parts[start..end].iter().any(Part::is_summaries) {
                return false;
            }
            start = end;
        }
        !self.has_histograms
    }

    /// Returns the histogram that the hint of the first one refers to; see [`DecidedHistogram`].
    pub(crate) fn first_before(&self) -> Option<HistogramBefore> {
        match self.parts.iter().find(|part| part.is_histograms())? {
            Part::Frame(frame) => HistogramDecoder::open(&frame.bytes).ok()?.before(),
            Part::Run(_) | Part::Column(_) | Part::Tail(_) => None,
            Part::Floats(_) | Part::Histograms(_) | Part::Summaries(_) => None,
        }
    }

    /// Returns whether there are no parts.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the earliest and latest time.
    pub(crate) fn times(&self) -> Option<TimeRange> {
        self.parts.iter().map(Part::times).reduce(TimeRange::join)
    }

    /// Returns whether no two parts overlap.
    pub(crate) fn is_chain(&self) -> bool {
        self.parts.windows(2).all(|pair| pair[0].times().end_ms < pair[1].times().start_ms)
    }

    /// Returns the parts by their first time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    /// Returns the number of samples of all parts.
    pub(crate) fn sample_count(&self) -> usize {
        self.parts.iter().map(Part::sample_count).sum()
    }

    /// Returns the size in memory without columns; `None` if samples are encoded.
    pub(crate) fn decoded_bytes(&self) -> Option<usize> {
        let ranks = self.ranks.as_ref().map_or(0, |ranks| size_of_val(&ranks[..]));
        let spilled = if self.parts.spilled() { size_of_val(&self.parts[..]) } else { 0 };
        self.parts
            .iter()
            .try_fold(ranks + spilled, |bytes, part| Some(bytes + part.decoded_bytes()?))
    }

    /// Returns the number of parts.
    pub(crate) fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the bytes that the columns of all parts count in the cache, by [`Part::column_bytes`].
    pub(crate) fn column_bytes(&self) -> usize {
        self.parts.iter().map(Part::column_bytes).sum()
    }

    /// Returns the bytes of all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum()
    }

    /// Returns the first time of a part; the maximum after the last part.
    pub(super) fn start_ms_of(&self, index: usize) -> i64 {
        self.parts.get(index).map_or(i64::MAX, |part| part.times().start_ms)
    }

    /// Returns the last time of a part; the maximum after the last part.
    pub(super) fn end_ms_of(&self, index: usize) -> i64 {
        self.parts.get(index).map_or(i64::MAX, |part| part.times().end_ms)
    }

    /// Returns the index after the last part of the group that begins at `start`.
    pub(super) fn group_end(&self, start: usize) -> usize {
        let mut end = start + 1;
        if self.ranks.is_none() {
            return end;
        }
        let mut max_ms = self.parts[start].times().end_ms;
        while end < self.parts.len() && self.parts[end].times().start_ms <= max_ms {
            max_ms = max_ms.max(self.parts[end].times().end_ms);
            end += 1;
        }
        end
    }

    /// Returns the parts of a group with their order of writing.
    pub(super) fn ranked(&self, group: Range<usize>) -> impl Iterator<Item = (u32, &Part)> {
        let rank = |at: usize| self.ranks.as_ref().map_or(at as u32, |ranks| ranks[at]);
        group.map(move |at| (rank(at), &self.parts[at]))
    }
}
