//! Cursor over the parts of one series: chained if they are disjoint, merged if they overlap.
//!
//! A group of parts that overlap is decoded as a whole and merged when the cursor reaches it. A group
//! of one part is decoded batch by batch into the caller's batch. Of two samples with the same time,
//! the later write wins.
//!
//! A histogram's hint that the counter was not reset refers to the histogram before it at the time
//! of writing. If another one precedes it now, the hint becomes unknown.

mod memory;

use std::ops::{Deref, Range};
use std::sync::Arc;

use model::{
    Advance, Cursor, FilledSteps, FilledWindows, HISTOGRAM_BATCH_LEN, HistogramSample, LookupSteps,
    SampleBatch, SourceError, StepRanges, TimeRange, WantedFact, WindowFacts, Windows, prefetch,
};
use smallvec::SmallVec;

use super::columns::{Column, KeptColumn, SelectionColumns};
use super::decided::DecidedHistogram;
use super::facts::SummaryQueue;
use super::merge::{self, Mixed, MixedSample};
use super::merged::MergedFloats;
use super::part::{Floats, Part};
use super::raw::{push_samples, seen};
use super::run::{column_of, decoded};
use super::scratch::Scratch;
use super::series_parts::SeriesParts;
use super::windows::Position;
use crate::chunk::{ChunkError, Decoder, HistogramDecoder};
use crate::keys;
use crate::summary::edges::Edges;

/// Number of parts by which a part is prefetched ahead, and its samples.
const PARTS_AHEAD: usize = 4;
const SAMPLES_AHEAD: usize = 2;

/// Cursor over the parts of one series.
pub(crate) struct PartsCursor<'a> {
    labels: &'a model::Labels,
    parts: &'a SeriesParts,
    start_ms: i64,
    end_ms: i64,
    /// Caches decoded columns.
    columns: Option<SelectionColumns<'a>>,
    /// Ranges of steps that the caller reads, if not everything.
    windows: Option<StepRanges>,
    /// Next part that has not been opened.
    next: usize,
    open: Open<'a>,
    /// Columns of runs that later windows read, too, with the indices of their parts.
    decoded: SmallVec<[(usize, Arc<KeptColumn>); 1]>,
    /// First sample that has not been counted in windows.
    counted: Position,
    /// Last histogram that was handed over.
    last_histogram: Option<HistogramSample>,
    /// Set if some parts may be summaries, which only windows can be answered from.
    summaries: Option<Box<SummaryQueue<'a>>>,
}

/// Group that is being read.
enum Open<'a> {
    None,
    Frame { decoder: Decoder<'a>, part: usize },
    Column { column: OpenColumn<'a>, at: usize },
    Histograms(Box<OpenHistograms<'a>>),
    Raw { rest: &'a [(i64, f64)], starts: &'a [i64] },
    RawHistograms { rest: &'a [HistogramSample] },
    Merged { floats: MergedFloats, at: usize },
    Mixed { samples: Vec<MixedSample>, at: usize },
}

/// Column that is being read.
enum OpenColumn<'a> {
    /// From the loaded set.
    Loaded(&'a KeptColumn),
    /// Decoded by this cursor.
    Now(Arc<KeptColumn>),
}

impl Deref for OpenColumn<'_> {
    type Target = Column;

    #[inline]
    fn deref(&self) -> &Column {
        match self {
            OpenColumn::Loaded(column) => column,
            OpenColumn::Now(column) => column,
        }
    }
}

struct OpenHistograms<'a> {
    decoder: HistogramDecoder<'a>,
    part: usize,
    /// Set if the next sample is the first of its frame.
    is_first: bool,
}

impl<'a> PartsCursor<'a> {
    /// Creates a cursor at the start of a range.
    pub(crate) fn new(
        labels: &'a model::Labels,
        parts: &'a SeriesParts,
        start_ms: i64,
        end_ms: i64,
        columns: Option<SelectionColumns<'a>>,
    ) -> PartsCursor<'a> {
        let (windows, open, last_histogram) = (None, Open::None, None);
        let (next, summaries) = (0, None);
        PartsCursor {
            labels,
            parts,
            start_ms,
            end_ms,
            columns,
            windows,
            next,
            open,
            decoded: SmallVec::new(),
            counted: Position { part: 0, at: 0 },
            last_histogram,
            summaries,
        }
    }

    /// Returns the cursor over parts that may be summaries, divided at the boundaries of windows.
    pub(crate) fn over_summaries(mut self, edges: &'a Edges) -> PartsCursor<'a> {
        self.summaries = Some(Box::new(SummaryQueue::new(edges)));
        self
    }

    /// Returns the selected times.
    pub(super) fn range(&self) -> TimeRange {
        TimeRange::new(self.start_ms, self.end_ms)
    }

    /// Takes the next group if it begins up to a time.
    pub(super) fn next_group(&mut self, until_ms: i64) -> Option<Range<usize>> {
        let is_any =
            self.next < self.parts.parts.len() && self.parts.start_ms_of(self.next) <= until_ms;
        is_any.then(|| {
            let group = self.next..self.parts.group_end(self.next);
            self.next = group.end;
            group
        })
    }

    /// Prefetches parts some places after one, and the samples of parts that were prefetched before.
    #[inline]
    pub(super) fn prefetch_parts(&self, part: usize) {
        let parts = &self.parts.parts;
        parts.get(part + SAMPLES_AHEAD).into_iter().for_each(Part::fetch_samples);
        parts.get(part + PARTS_AHEAD).into_iter().for_each(Part::fetch);
    }

    /// Returns parts by index.
    pub(super) fn parts_of(&self, group: Range<usize>) -> &'a [Part] {
        &self.parts.parts[group]
    }

    /// Returns the error for parts that cannot be read as the caller does.
    pub(super) fn misread(&self, detail: String) -> SourceError {
        let (series, location) = (self.labels.to_string(), "the summaries".to_owned());
        SourceError::Corrupt { series, location, detail }
    }

    /// Opens the next group, which must exist.
    fn open_next(&mut self) -> Result<(), SourceError> {
        let first = self.next;
        let end = self.parts.group_end(first);
        let group = first..end;
        self.open = if group.len() == 1 {
            self.open_part(first)?
        } else if self.parts.ranked(group.clone()).any(|(_, part)| part.is_histograms()) {
            let samples = self.merge_mixed(group)?;
            Open::Mixed { samples, at: 0 }
        } else {
            Open::Merged { floats: self.merge(group)?, at: 0 }
        };
        self.next = end;
        Ok(())
    }

    fn open_part(&self, index: usize) -> Result<Open<'a>, SourceError> {
        let part = &self.parts.parts[index];
        let damaged = |error| self.damaged(part, error);
        let starts_inside = part.times().start_ms < self.start_ms;
        Ok(match part {
            Part::Summaries(_) => {
                return Err(self.misread("samples were not loaded".to_owned()));
            }
            Part::Column(column) => self.open_column(OpenColumn::Loaded(column)),
            Part::Run(run) => match self.columns {
                Some(columns) => {
                    self.open_column(OpenColumn::Now(column_of(run, columns).map_err(damaged)?))
                }
                None => Open::Merged { floats: self.merge(index..index + 1)?, at: 0 },
            },
            Part::Tail(tail) => {
                let samples = tail.items();
                let start = samples.partition_point(|(t, _)| *t < self.start_ms);
                Open::Raw { rest: &samples[start..], starts: &[] }
            }
            Part::Floats(floats) => {
                let Floats { samples, starts } = &**floats;
                let start = samples.partition_point(|(t, _)| *t < self.start_ms);
                let starts = starts.get(start..).unwrap_or_default();
                Open::Raw { rest: &samples[start..], starts }
            }
            Part::Histograms(samples) => {
                let start = samples.partition_point(|s| s.timestamp_ms < self.start_ms);
                Open::RawHistograms { rest: &samples[start..] }
            }
            Part::Frame(frame) if part.is_histograms() => {
                let mut decoder = HistogramDecoder::open(&frame.bytes).map_err(damaged)?;
                let is_passed =
                    starts_inside && decoder.skip_before(self.start_ms).map_err(damaged)?;
                Open::Histograms(Box::new(OpenHistograms {
                    decoder,
                    part: index,
                    is_first: !is_passed,
                }))
            }
            Part::Frame(frame) => {
                let mut decoder = Decoder::open(&frame.bytes).map_err(damaged)?;
                if starts_inside {
                    decoder.skip_before(self.start_ms).map_err(damaged)?;
                }
                Open::Frame { decoder, part: index }
            }
        })
    }

    fn open_column(&self, column: OpenColumn<'a>) -> Open<'a> {
        let before_ms = self.start_ms.saturating_sub(1);
        let at = if self.start_ms == i64::MIN { 0 } else { column.count_until(0, before_ms) };
        Open::Column { column, at }
    }

    /// Merges the floats of overlapping parts in order, each time once.
    pub(super) fn merge(&self, group: Range<usize>) -> Result<MergedFloats, SourceError> {
        let mut in_order_of_writing: Vec<(u32, &Part)> = self.parts.ranked(group).collect();
        in_order_of_writing.sort_by_key(|(rank, _)| *rank);
        let mut parts = in_order_of_writing.into_iter().map(|(_, part)| part);
        let mut scratch = Scratch::new();
        parts.next().map_or(Ok(()), |part| self.decode_floats(part, &mut scratch))?;
        let mut all = MergedFloats::of(&mut scratch);
        for part in parts {
            scratch.clear();
            self.decode_floats(part, &mut scratch)?;
            all.add_later(&scratch.timestamps, &scratch.values, &scratch.starts);
        }
        all.retain(self.start_ms, self.end_ms);
        Ok(all)
    }

    /// Merges overlapping parts with histograms among them.
    fn merge_mixed(&self, group: Range<usize>) -> Result<Vec<MixedSample>, SourceError> {
        let mut all: Vec<Mixed> = Vec::new();
        let mut scratch = Scratch::new();
        for (rank, part) in self.parts.ranked(group) {
            let mut push = |decided: DecidedHistogram| all.push(Mixed::histogram(decided, rank));
            match part {
                Part::Histograms(samples) => {
                    let undecided = samples.iter().cloned();
                    undecided.for_each(|sample| push(DecidedHistogram { sample, before: None }));
                }
                Part::Frame(frame) if part.is_histograms() => {
                    merge::decode(&frame.bytes, push).map_err(|e| self.damaged(part, e))?;
                }
                Part::Frame(_)
                | Part::Run(_)
                | Part::Column(_)
                | Part::Tail(_)
                | Part::Summaries(_)
                | Part::Floats(_) => {
                    scratch.clear();
                    self.decode_floats(part, &mut scratch)?;
                    let samples = scratch.timestamps.iter().zip(&scratch.values);
                    all.extend(samples.enumerate().map(|(at, (timestamp_ms, value))| {
                        let start_ms = scratch.starts.get(at).copied().unwrap_or(0);
                        Mixed::float(*timestamp_ms, *value, start_ms, rank)
                    }));
                }
            }
        }
        all.retain(|mixed| (self.start_ms..=self.end_ms).contains(&mixed.timestamp_ms()));
        Ok(merge::resolve(all, self.last_histogram.as_ref()))
    }

    /// Appends the floats of a part to empty buffers.
    fn decode_floats(&self, part: &Part, scratch: &mut Scratch) -> Result<(), SourceError> {
        match part {
            Part::Tail(tail) => scratch.push_all(tail.items(), &[]),
            Part::Floats(floats) => scratch.push_all(&floats.samples, &floats.starts),
            Part::Column(column) => {
                scratch.unpack(column);
            }
            Part::Run(run) => {
                let is_part = |(at, _): &&(usize, _)| std::ptr::eq(&self.parts.parts[*at], part);
                if let Some((_, column)) = self.decoded.iter().find(is_part) {
                    scratch.unpack(column);
                    return Ok(());
                }
                let damaged = |error| self.damaged(part, error);
                match self.columns {
                    Some(columns) => scratch.unpack(&*column_of(run, columns).map_err(damaged)?),
                    None => scratch.unpack(&decoded(run).map_err(damaged)?),
                }
            }
            Part::Frame(frame) => {
                scratch.decode(&frame.bytes).map_err(|e| self.damaged(part, e))?;
            }
            Part::Summaries(_) => {
                return Err(self.misread("samples were not loaded".to_owned()));
            }
            Part::Histograms(_) => {}
        }
        Ok(())
    }

    fn damaged(&self, part: &Part, error: ChunkError) -> SourceError {
        let key = match part {
            Part::Frame(frame) => frame.key.as_deref(),
            Part::Run(run) => run.key.as_deref(),
            Part::Column(_)
            | Part::Summaries(_)
            | Part::Tail(_)
            | Part::Floats(_)
            | Part::Histograms(_) => None,
        };
        error.at(self.labels.to_string(), location(key))
    }

    /// Reads the next histograms of a frame.
    fn next_histograms(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        let Open::Histograms(open) = &mut self.open else { return Ok(Advance::End) };
        let first = batch.histograms.len();
        let advance = match open.decoder.next_batch(until_ms, batch) {
            Ok(advance) => advance,
            Err(error) => {
                let part = open.part;
                return Err(self.damaged(&self.parts.parts[part], error));
            }
        };
        if let Some(sample) = batch.histograms.get_mut(first) {
            if std::mem::take(&mut open.is_first) {
                let last = self.last_histogram.as_ref();
                merge::take_back(&mut sample.histogram, open.decoder.before(), last);
            }
            self.last_histogram = batch.histograms.last().cloned();
        }
        Ok(advance)
    }
}

pub(super) fn location(key: Option<&[u8]>) -> String {
    key.map_or_else(|| "the head".to_owned(), |key| format!("block {}", keys::printable(key)))
}

impl Cursor for PartsCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        let until_ms = until_ms.min(self.end_ms);
        loop {
            // The float readers do not check the number of histograms.
            if batch.histograms.len() >= HISTOGRAM_BATCH_LEN {
                return Ok(Advance::Full);
            }
            let advance = self.read_open(until_ms, batch)?;
            match advance {
                Advance::Full => return Ok(Advance::Full),
                Advance::Reached => return Ok(self.reached(until_ms)),
                Advance::End => {
                    self.open = Open::None;
                    let Some(next) = self.parts.parts.get(self.next) else {
                        return Ok(Advance::End);
                    };
                    if next.times().start_ms > until_ms {
                        return Ok(self.reached(until_ms));
                    }
                    if batch.is_full() {
                        return Ok(Advance::Full);
                    }
                    if self.is_seen(next) {
                        self.open_next()?;
                    } else {
                        self.next += 1;
                    }
                }
            }
        }
    }

    fn restrict_to(&mut self, windows: StepRanges) {
        self.windows = Some(windows);
    }

    #[inline]
    fn prefetch(&self, ahead: usize) {
        match &self.open {
            Open::Column { column, at } if ahead == 0 => column.fetch(*at),
            Open::Column { column, .. } => prefetch(&**column),
            _ => {}
        }
    }

    fn fill_steps(
        &mut self,
        steps: LookupSteps,
        out: &mut [f64],
    ) -> Result<FilledSteps, SourceError> {
        self.fill_steps_in_memory(steps, out)
    }

    fn fill_windows(
        &mut self,
        windows: Windows,
        wanted: WantedFact,
        facts: &mut WindowFacts,
    ) -> Result<FilledWindows, SourceError> {
        if let Some(mut queue) = self.summaries.take() {
            let filled = self.fill_from_summaries(&mut queue, windows, wanted, facts);
            self.summaries = Some(queue);
            return filled;
        }
        self.fill_windows_in_memory(windows, wanted, facts)
    }
}

impl PartsCursor<'_> {
    /// Reads the next samples of the open group.
    #[inline]
    fn read_open(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        Ok(match &mut self.open {
            Open::None => Advance::End,
            Open::Frame { decoder, part } => match decoder.next_batch(until_ms, batch) {
                Ok(advance) => advance,
                Err(error) => {
                    let part = *part;
                    return Err(self.damaged(&self.parts.parts[part], error));
                }
            },
            Open::Column { column, at } => {
                *at += match &self.windows {
                    Some(windows) => column.read_windows(*at, until_ms, windows, batch),
                    None => column.read(*at, until_ms, batch),
                };
                column.advance(*at, batch)
            }
            Open::Histograms(_) => self.next_histograms(until_ms, batch)?,
            Open::Raw { rest, starts } => {
                let mut taken = 1;
                while taken > 0 {
                    // Without windows, one iteration takes all, and a second one ends the loop.
                    let (passed, end_ms) = seen(rest, until_ms, self.windows.as_ref());
                    *rest = &rest[passed..];
                    *starts = starts.get(passed..).unwrap_or_default();
                    taken = push_samples(rest, starts, end_ms, batch);
                    *rest = &rest[taken..];
                    *starts = starts.get(taken..).unwrap_or_default();
                }
                after(rest, batch)
            }
            Open::RawHistograms { rest } => {
                let room = HISTOGRAM_BATCH_LEN - batch.histograms.len();
                let window = &rest[..room.min(rest.len())];
                let taken = window.partition_point(|s| s.timestamp_ms <= until_ms);
                if !batch.is_full()
                    && let Some(last) = rest[..taken].last()
                {
                    self.last_histogram = Some(last.clone());
                    batch.histograms.extend_from_slice(&rest[..taken]);
                    *rest = &rest[taken..];
                }
                after(rest, batch)
            }
            Open::Merged { floats, at } => {
                *at += floats.read(*at, until_ms, batch);
                after(&floats.timestamps()[*at..], batch)
            }
            Open::Mixed { samples, at } => {
                while let Some(sample) = samples.get(*at)
                    && sample.timestamp_ms() <= until_ms
                    && !batch.is_full()
                {
                    if let MixedSample::Histogram(sample) = sample {
                        self.last_histogram = Some(sample.clone());
                    }
                    sample.push_to(batch);
                    *at += 1;
                }
                after(&samples[*at..], batch)
            }
        })
    }

    /// Returns whether the next part must be opened. A frame of floats that lies in a gap of
    /// the windows is skipped. Runs are always decoded whole for the cache; otherwise each query
    /// would have to read their blocks.
    fn is_seen(&self, next: &Part) -> bool {
        let (Some(windows), None, Part::Frame(frame)) = (&self.windows, &self.parts.ranks, next)
        else {
            return true;
        };
        // A damaged header would hide samples.
        let may_be_passed = frame.header.as_ref().is_ok_and(|header| {
            !header.encoding.is_histograms()
                && windows.from(header.min_ms).0 >= header.max_ms
                && header.verify(&frame.bytes).is_ok()
        });
        !may_be_passed
    }

    /// At the end of the range the cursor ends, even if the parts have more samples.
    fn reached(&self, until_ms: i64) -> Advance {
        if until_ms >= self.end_ms { Advance::End } else { Advance::Reached }
    }
}

fn after<T>(rest: &[T], batch: &SampleBatch) -> Advance {
    if rest.is_empty() {
        Advance::End
    } else if batch.is_full() {
        Advance::Full
    } else {
        Advance::Reached
    }
}
