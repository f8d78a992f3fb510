//! The cursor of one series over its parts: a chain where they follow one another, a merge
//! where they overlap.
//!
//! ```text
//! parts, by time    [ a ][ b ]   [ c      ][ d ]
//!                              [ e ]
//! groups            [ a ][ b ] [ c + e    ][ d ]
//! ```
//!
//! Parts that overlap form a group, which is decoded whole and merged when the cursor comes to
//! it: parts lie in one window of two hours each, and so do groups but for those at a border
//! that was written twice. A group of one part is decoded batch by batch straight into the
//! caller's arrays. Of two samples of one time the later write wins.

use model::{Advance, Cursor, SampleBatch, SourceError};

use crate::chunk::{Decoder, FrameHeader};
use crate::head::series::{Part, Scratch};
use crate::keys;

/// The parts of one series: `rank` is the order of writing.
pub(crate) struct SeriesParts {
    /// Sorted by their first time.
    parts: Vec<Placed>,
}

struct Placed {
    min_ms: i64,
    max_ms: i64,
    rank: u32,
    part: Part,
}

impl SeriesParts {
    /// The parts of a series that lie in a range, given in the order of their writing.
    ///
    /// Errors: a frame whose header cannot be read.
    pub(crate) fn new(
        parts: Vec<Part>,
        start_ms: i64,
        end_ms: i64,
        series: &model::Labels,
    ) -> Result<SeriesParts, SourceError> {
        let mut placed = Vec::with_capacity(parts.len());
        for (rank, part) in parts.into_iter().enumerate() {
            let (min_ms, max_ms) = match &part {
                Part::Frame { bytes, key } => {
                    let header = FrameHeader::read(bytes)
                        .map_err(|e| e.at(series.to_string(), location(key.as_deref())))?;
                    (header.min_ms, header.max_ms)
                }
                Part::Raw(samples) => match (samples.first(), samples.last()) {
                    (Some((min_ms, _)), Some((max_ms, _))) => (*min_ms, *max_ms),
                    _ => continue,
                },
            };
            if min_ms <= end_ms && max_ms >= start_ms {
                placed.push(Placed { min_ms, max_ms, rank: rank as u32, part });
            }
        }
        placed.sort_by_key(|p| p.min_ms);
        Ok(SeriesParts { parts: placed })
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Earliest and latest time.
    pub(crate) fn times(&self) -> Option<(i64, i64)> {
        let min_ms = self.parts.first()?.min_ms;
        Some((min_ms, self.parts.iter().map(|p| p.max_ms).max()?))
    }

    /// Whether no two parts overlap.
    pub(crate) fn is_chain(&self) -> bool {
        self.parts.windows(2).all(|pair| pair[0].max_ms < pair[1].min_ms)
    }

    /// The parts, by their first time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().map(|placed| &placed.part)
    }

    /// Samples of all parts.
    pub(crate) fn sample_count(&self) -> usize {
        self.parts
            .iter()
            .map(|p| match &p.part {
                Part::Frame { bytes, .. } => {
                    FrameHeader::read(bytes).map_or(0, |h| h.count as usize)
                }
                Part::Raw(samples) => samples.len(),
            })
            .sum()
    }

    /// Bytes of all parts.
    pub(crate) fn bytes(&self) -> usize {
        self.parts
            .iter()
            .map(|p| match &p.part {
                Part::Frame { bytes, .. } => bytes.len(),
                Part::Raw(samples) => samples.len() * 16,
            })
            .sum()
    }

    /// One past the last part of the group that begins at `start`.
    fn group_end(&self, start: usize) -> usize {
        let mut max_ms = self.parts[start].max_ms;
        let mut end = start + 1;
        while end < self.parts.len() && self.parts[end].min_ms <= max_ms {
            max_ms = max_ms.max(self.parts[end].max_ms);
            end += 1;
        }
        end
    }
}

/// A cursor over the parts of one series.
pub(crate) struct PartsCursor<'a> {
    labels: &'a model::Labels,
    parts: &'a SeriesParts,
    start_ms: i64,
    end_ms: i64,
    /// The next part that has not been opened.
    next: usize,
    open: Open<'a>,
}

/// The group that is being read.
enum Open<'a> {
    None,
    Frame { decoder: Decoder<'a>, part: usize },
    Raw { rest: &'a [(i64, f64)] },
    Merged { samples: Vec<(i64, f64)>, at: usize },
}

impl<'a> PartsCursor<'a> {
    /// A cursor at the start of a range.
    pub(crate) fn new(
        labels: &'a model::Labels,
        parts: &'a SeriesParts,
        start_ms: i64,
        end_ms: i64,
    ) -> PartsCursor<'a> {
        PartsCursor { labels, parts, start_ms, end_ms, next: 0, open: Open::None }
    }

    /// Opens the next group; false if there is none.
    fn open_next(&mut self) -> Result<bool, SourceError> {
        let first = self.next;
        if first >= self.parts.parts.len() {
            return Ok(false);
        }
        let end = self.parts.group_end(first);
        if end - first > 1 {
            self.open = Open::Merged { samples: self.merge(first, end)?, at: 0 };
            self.next = end;
            return Ok(true);
        }
        let placed = &self.parts.parts[first];
        self.open = match &placed.part {
            Part::Raw(samples) => {
                let start = samples.partition_point(|(t, _)| *t < self.start_ms);
                Open::Raw { rest: &samples[start..] }
            }
            Part::Frame { bytes, .. } => {
                let mut decoder =
                    Decoder::open(bytes).map_err(|e| self.damaged(&placed.part, e))?;
                if placed.min_ms < self.start_ms {
                    decoder
                        .skip_before(self.start_ms)
                        .map_err(|e| self.damaged(&placed.part, e))?;
                }
                Open::Frame { decoder, part: first }
            }
        };
        self.next = end;
        Ok(true)
    }

    /// The samples of overlapping parts in order, each time once.
    fn merge(&self, first: usize, end: usize) -> Result<Vec<(i64, f64)>, SourceError> {
        let mut ranked: Vec<(i64, u32, f64)> = Vec::new();
        let mut scratch = Scratch::new();
        for placed in &self.parts.parts[first..end] {
            match &placed.part {
                Part::Raw(samples) => {
                    ranked.extend(samples.iter().map(|(t, v)| (*t, placed.rank, *v)));
                }
                Part::Frame { bytes, .. } => {
                    scratch.clear();
                    scratch.decode(bytes).map_err(|e| self.damaged(&placed.part, e))?;
                    let samples = scratch.timestamps.iter().zip(&scratch.values);
                    ranked.extend(samples.map(|(t, v)| (*t, placed.rank, *v)));
                }
            }
        }
        ranked.retain(|(t, _, _)| (self.start_ms..=self.end_ms).contains(t));
        ranked.sort_by_key(|(timestamp_ms, rank, _)| (*timestamp_ms, *rank));
        let mut samples: Vec<(i64, f64)> = Vec::with_capacity(ranked.len());
        for (timestamp_ms, _, value) in ranked {
            match samples.last_mut() {
                Some(last) if last.0 == timestamp_ms => last.1 = value,
                _ => samples.push((timestamp_ms, value)),
            }
        }
        Ok(samples)
    }

    fn damaged(&self, part: &Part, error: crate::chunk::ChunkError) -> SourceError {
        let key = match part {
            Part::Frame { key, .. } => key.as_deref(),
            Part::Raw(_) => None,
        };
        error.at(self.labels.to_string(), location(key))
    }
}

fn location(key: Option<&[u8]>) -> String {
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
            let advance = match &mut self.open {
                Open::None => Advance::End,
                Open::Frame { decoder, part } => match decoder.next_batch(until_ms, batch) {
                    Ok(advance) => advance,
                    Err(error) => {
                        let part = *part;
                        return Err(self.damaged(&self.parts.parts[part].part, error));
                    }
                },
                Open::Raw { rest } => {
                    let taken = push_samples(rest, until_ms, batch);
                    *rest = &rest[taken..];
                    after(rest, batch)
                }
                Open::Merged { samples, at } => {
                    *at += push_samples(&samples[*at..], until_ms, batch);
                    after(&samples[*at..], batch)
                }
            };
            match advance {
                Advance::Full => return Ok(Advance::Full),
                Advance::Reached => return Ok(self.reached(until_ms)),
                Advance::End => {
                    self.open = Open::None;
                    let Some(next) = self.parts.parts.get(self.next) else {
                        return Ok(Advance::End);
                    };
                    if next.min_ms > until_ms {
                        return Ok(self.reached(until_ms));
                    }
                    if batch.is_full() {
                        return Ok(Advance::Full);
                    }
                    self.open_next()?;
                }
            }
        }
    }
}

impl PartsCursor<'_> {
    /// At the end of the range there is nothing to come, whatever the parts still hold.
    fn reached(&self, until_ms: i64) -> Advance {
        if until_ms >= self.end_ms { Advance::End } else { Advance::Reached }
    }
}

fn push_samples(samples: &[(i64, f64)], until_ms: i64, batch: &mut SampleBatch) -> usize {
    let room = model::SAMPLE_BATCH_LEN - batch.len;
    let window = &samples[..room.min(samples.len())];
    let take = window.partition_point(|(t, _)| *t <= until_ms);
    for (timestamp_ms, value) in &window[..take] {
        batch.push(*timestamp_ms, *value);
    }
    take
}

fn after(rest: &[(i64, f64)], batch: &SampleBatch) -> Advance {
    if rest.is_empty() {
        Advance::End
    } else if batch.is_full() {
        Advance::Full
    } else {
        Advance::Reached
    }
}
