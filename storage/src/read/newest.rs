//! The newest samples of series, where the head has each of them at hand.

use model::{Advance, Cursor, Labels, SampleBatch, SeriesSet, SourceError};
use smallvec::smallvec;

use super::order::Found;
use super::set::Charge;
use crate::head::series::{Floats, Part};

/// A series and its newest sample.
pub(super) type Newest = (Labels, (i64, f64));

/// Series with one float each, sorted by labels.
pub(super) struct NewestSet {
    pub(super) series: Vec<Newest>,
    /// What has been charged for them, given back in the end.
    pub(super) _charge: Charge,
}

/// The same as what is found of series that have more.
pub(super) fn found((labels, newest): Newest) -> Found {
    let floats = Floats { samples: vec![newest], starts: Vec::new() };
    (labels, smallvec![Part::Floats(Box::new(floats))])
}

impl SeriesSet for NewestSet {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.series[series_index].0
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        Box::new(NewestCursor(Some(self.series[series_index].1)))
    }

    fn sample_count_estimate(&self, _series_index: usize) -> usize {
        1
    }

    fn has_histograms(&self, _series_index: usize) -> bool {
        false
    }

    fn encoded_bytes(&self) -> usize {
        self.series.len() * size_of::<(i64, f64)>()
    }
}

/// One float, until it has been handed over.
struct NewestCursor(Option<(i64, f64)>);

impl Cursor for NewestCursor {
    fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, SourceError> {
        match self.0 {
            Some((timestamp_ms, _)) if timestamp_ms > until_ms => Ok(Advance::Reached),
            Some(_) if batch.is_full() => Ok(Advance::Full),
            newest => {
                if let Some((timestamp_ms, value)) = newest {
                    batch.push(timestamp_ms, value);
                    self.0 = None;
                }
                Ok(Advance::End)
            }
        }
    }
}
