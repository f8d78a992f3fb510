//! Source of encoded series in memory, to measure queries without the store.

use std::ops::Range;
use std::sync::Arc;

use model::{
    Advance, BoxFuture, Budget, Cursor, Labels, Matcher, MetadataQuery, SampleBatch, Selection,
    SeriesSet, SmolStr, Source, SourceError,
};
use storage::chunk::{self, CHUNK_PADDING_BYTES, ChunkError, Decoder, FrameHeader};

use crate::data::{self, Kind, Shape};

/// Samples of a chunk, as in the head.
pub const CHUNK_SAMPLES: usize = 120;

/// Series in memory, encoded in chunks.
#[derive(Debug, Clone)]
pub struct ChunkSource(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Sorted by labels.
    series: Vec<Series>,
    /// Frames of all series end to end, and the padding.
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Series {
    labels: Labels,
    frames: Range<usize>,
    sample_count: usize,
}

impl ChunkSource {
    /// Encodes seeded series of one kind.
    pub fn generate(shape: Shape, kind: Kind) -> ChunkSource {
        ChunkSource::encode((0..shape.series).map(|index| {
            let (timestamps, values) = data::samples(index, shape.samples, kind);
            (data::labels(index, shape.groups), timestamps, values)
        }))
    }

    /// Encodes series, given in ascending order of their labels.
    pub fn encode(input: impl Iterator<Item = (Labels, Vec<i64>, Vec<f64>)>) -> ChunkSource {
        let (mut series, mut bytes) = (Vec::new(), Vec::new());
        for (labels, timestamps, values) in input {
            let start = bytes.len();
            let pieces = timestamps.chunks(CHUNK_SAMPLES).zip(values.chunks(CHUNK_SAMPLES));
            for (timestamps, values) in pieces {
                chunk::encode(timestamps, values, &mut bytes);
            }
            let sample_count = timestamps.len();
            series.push(Series { labels, frames: start..bytes.len(), sample_count });
        }
        assert!(series.is_sorted_by(|a, b| a.labels < b.labels), "series come sorted");
        bytes.resize(bytes.len() + CHUNK_PADDING_BYTES, 0);
        bytes.shrink_to_fit();
        ChunkSource(Arc::new(Inner { series, bytes }))
    }

    /// Returns the bytes of all frames.
    pub fn encoded_bytes(&self) -> usize {
        self.0.bytes.len() - CHUNK_PADDING_BYTES
    }

    /// Returns all series with all of their samples.
    pub fn all(&self) -> Arc<dyn SeriesSet> {
        let series = (0..self.0.series.len() as u32).collect();
        Arc::new(ChunkSet {
            inner: Arc::clone(&self.0),
            series,
            start_ms: i64::MIN,
            end_ms: i64::MAX,
        })
    }

    fn matching(&self, matchers: &[Matcher]) -> Vec<u32> {
        let passes = |labels: &Labels| matchers.iter().all(|m| m.matches(labels.get(m.name())));
        let series = self.0.series.iter().enumerate();
        series.filter(|(_, s)| passes(&s.labels)).map(|(index, _)| index as u32).collect()
    }
}

impl Source for ChunkSource {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let set = ChunkSet {
                inner: Arc::clone(&self.0),
                series: self.matching(&selection.matchers),
                start_ms: selection.times.start_ms,
                end_ms: selection.times.end_ms,
            };
            budget.charge_series(set.len() as u64)?;
            Ok(Arc::new(set) as Arc<dyn SeriesSet>)
        })
    }

    fn series<'a>(
        &'a self,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        Box::pin(async { unreachable!("{LOOKUPS}") })
    }

    fn label_names<'a>(
        &'a self,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(async { unreachable!("{LOOKUPS}") })
    }

    fn label_values<'a>(
        &'a self,
        _name: &'a str,
        _query: &'a MetadataQuery,
        _budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(async { unreachable!("{LOOKUPS}") })
    }
}

const LOOKUPS: &str = "the benches over this source look up no metadata";

/// Decodes all samples of a set, series by series, and visits each batch with the series' index.
pub fn decode_each(set: &dyn SeriesSet, mut visit: impl FnMut(usize, &SampleBatch)) {
    let mut batch = SampleBatch::new();
    for index in 0..set.len() {
        let mut cursor = set.cursor(index);
        loop {
            batch.clear();
            let advance = cursor.next_batch(i64::MAX, &mut batch).expect("bytes are good");
            visit(index, &batch);
            if advance != Advance::Full {
                break;
            }
        }
    }
}

struct ChunkSet {
    inner: Arc<Inner>,
    series: Vec<u32>,
    start_ms: i64,
    end_ms: i64,
}

impl ChunkSet {
    fn at(&self, series_index: usize) -> &Series {
        &self.inner.series[self.series[series_index] as usize]
    }
}

impl SeriesSet for ChunkSet {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.at(series_index).labels
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        let series = self.at(series_index);
        Box::new(ChunkCursor {
            bytes: &self.inner.bytes,
            frame_at: series.frames.start,
            at: series.frames.start,
            end: series.frames.end,
            decoder: None,
            labels: &series.labels,
            start_ms: self.start_ms,
            end_ms: self.end_ms,
        })
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.at(series_index).sample_count
    }

    fn has_histograms(&self, _series_index: usize) -> bool {
        false
    }

    fn encoded_bytes(&self) -> usize {
        (0..self.len()).map(|index| self.at(index).frames.len()).sum()
    }
}

/// Cursor over the frames of one series.
struct ChunkCursor<'a> {
    bytes: &'a [u8],
    /// Start of the open frame.
    frame_at: usize,
    /// Start of the next frame, and end of the last one.
    at: usize,
    end: usize,
    decoder: Option<Decoder<'a>>,
    labels: &'a Labels,
    start_ms: i64,
    end_ms: i64,
}

impl<'a> ChunkCursor<'a> {
    fn next_chunk_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, ChunkError> {
        loop {
            if self.decoder.is_none() && !self.open_next()? {
                return Ok(Advance::End);
            }
            let Some(decoder) = &mut self.decoder else { return Ok(Advance::End) };
            match decoder.next_batch(until_ms.min(self.end_ms), batch)? {
                Advance::End => self.decoder = None,
                Advance::Reached if until_ms >= self.end_ms => return Ok(Advance::End),
                advance => return Ok(advance),
            }
        }
    }

    /// Opens the next frame that reaches into the range; false when there is none.
    fn open_next(&mut self) -> Result<bool, ChunkError> {
        while self.at < self.end {
            self.frame_at = self.at;
            let frame: &'a [u8] = &self.bytes[self.at..];
            let header = FrameHeader::read(frame)?;
            if header.min_ms > self.end_ms {
                break;
            }
            self.at += header.frame_len();
            if header.max_ms < self.start_ms {
                continue;
            }
            header.verify(frame)?;
            let mut decoder = Decoder::new(frame, &header)?;
            if header.min_ms < self.start_ms {
                decoder.skip_before(self.start_ms)?;
            }
            self.decoder = Some(decoder);
            return Ok(true);
        }
        Ok(false)
    }
}

impl Cursor for ChunkCursor<'_> {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        self.next_chunk_batch(until_ms, batch)
            .map_err(|error| error.at(self.labels.to_string(), format!("byte {}", self.frame_at)))
    }
}

#[cfg(test)]
mod tests {
    use model::cursor::SliceCursor;

    use super::*;

    #[test]
    fn cursor_reads_across_chunks_as_a_slice_does() {
        let (timestamps, values) = data::samples(0, 1_000, Kind::Counter);
        let source = ChunkSource::encode(
            [(data::labels(0, 1), timestamps.clone(), values.clone())].into_iter(),
        );
        for (first, last) in [(0, 999), (0, 0), (1, 998), (120, 239), (119, 240), (500, 501)] {
            let set = ChunkSet {
                inner: Arc::clone(&source.0),
                series: vec![0],
                start_ms: timestamps[first],
                end_ms: timestamps[last],
            };
            let mut cursor = set.cursor(0);
            let mut slice = SliceCursor::new(&timestamps[first..=last], &values[first..=last]);
            let (mut batch, mut expected) = (SampleBatch::new(), SampleBatch::new());
            for until_ms in [data::START_MS - 1, timestamps[130], timestamps[130], i64::MAX] {
                loop {
                    let advance = slice.next_batch(until_ms, &mut expected).unwrap();
                    cursor.next_batch(until_ms, &mut batch).unwrap();
                    assert_eq!(batch.samples(), expected.samples());
                    if advance != Advance::Full {
                        break;
                    }
                    batch.clear();
                    expected.clear();
                }
            }
            assert_eq!(cursor.next_batch(i64::MAX, &mut batch).unwrap(), Advance::End);
        }
    }
}
