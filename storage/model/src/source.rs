//! The read seam: what the engine asks of whoever holds the series.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use crate::budget::Budget;
use crate::cursor::Cursor;
use crate::error::SourceError;
use crate::exemplar::SeriesExemplars;
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::metadata::KnownMetric;
use crate::time_range::TimeRange;

/// A future on the heap that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Request of one selector: series that pass every matcher, and their samples in a range of time.
#[derive(Debug, Clone)]
pub struct Selection {
    /// All must pass.
    pub matchers: Vec<Matcher>,
    /// Times of the samples.
    pub times: TimeRange,
    /// Whether of each series only the newest of these samples matters: the others may be left
    /// out.
    pub only_newest: bool,
}

/// What a metadata endpoint wants: the union of some selectors over a range of time.
#[derive(Debug, Clone)]
pub struct MetadataQuery {
    /// One or more selectors; none at all stands for every series.
    pub selectors: Vec<Vec<Matcher>>,
    /// Times of the samples.
    pub times: TimeRange,
    /// At most so many answers, the first in order; 0 for all.
    pub limit: usize,
}

/// What the endpoint of exemplars wants: those of the series that pass all matchers of one of
/// the selectors.
#[derive(Debug, Clone)]
pub struct ExemplarQuery {
    /// The selectors; none at all stands for no series.
    pub selectors: Vec<Vec<Matcher>>,
    /// Times of the samples.
    pub times: TimeRange,
}

/// What has been found, and what is missing from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    /// What has been found.
    pub found: Vec<T>,
    /// What could not be read, in words; the first few, and how many more there are.
    pub warnings: Vec<String>,
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Answer { found: Vec::new(), warnings: Vec::new() }
    }
}

/// Where series come from.
///
/// The futures do all the I/O; what they return is in memory, and reading it is synchronous.
pub trait Source: Send + Sync {
    /// Resolves and loads a selection.
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>>;

    /// The label sets of matching series, sorted.
    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>>;

    /// The names of the labels of matching series, sorted.
    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<String>, SourceError>>;

    /// The values of one label among matching series, sorted.
    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<String>, SourceError>>;

    /// A number that grows with every change, once it can be seen and before it is acknowledged.
    /// What is loaded after it was taken is at least as new.
    ///
    /// Some sources do not follow their changes.
    fn version(&self) -> Option<u64> {
        None
    }

    /// The times, in ms since the epoch, at which every series is as it was for whoever took the
    /// version before loading: nothing has been written or deleted there since.
    fn unchanged_since(&self, _version: u64) -> Range<i64> {
        0..0
    }

    /// The exemplars of matching series, sorted by labels, those of a series by time. They are
    /// in memory; to match many series takes a while all the same.
    ///
    /// Some sources keep none.
    fn exemplars(
        &self,
        _query: &ExemplarQuery,
        _budget: &Budget,
    ) -> Result<Answer<SeriesExemplars>, SourceError> {
        Ok(Answer::default())
    }

    /// What is known of one metric, or of the first so many in the order of their names.
    ///
    /// Some sources know nothing.
    fn metadata(&self, _metric: Option<&str>, _limit: usize) -> Answer<KnownMetric> {
        Answer::default()
    }
}

/// The loaded series of one selection: encoded, in memory, and unchanging.
///
/// Invariant: sorted by labels, each label set once. A series may turn out to have no
/// sample in the selected range.
pub trait SeriesSet: Send + Sync {
    /// How many series there are.
    fn len(&self) -> usize;

    /// Whether nothing matched.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The labels of a series.
    fn labels(&self, series_index: usize) -> &Labels;

    /// A new cursor at the start of the selected range.
    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_>;

    /// Says that a cursor of a series will be asked for soon, and read: `ahead` others come before
    /// it. So its memory can be brought nearer meanwhile.
    ///
    /// Who has it at hand ignores this.
    fn expect(&self, _series_index: usize, _ahead: usize) {}

    /// About how many samples the series holds in the range (an upper bound).
    fn sample_count_estimate(&self, series_index: usize) -> usize;

    /// Whether the series may hold native histograms in the range; known before they are
    /// decoded.
    fn has_histograms(&self, series_index: usize) -> bool;

    /// How many bytes of encoded samples are held.
    fn encoded_bytes(&self) -> usize;
}
