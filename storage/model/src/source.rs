//! The read interface between the engine and a store of series.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use smol_str::SmolStr;

use crate::budget::Budget;
use crate::cursor::Cursor;
use crate::derived::DerivedValues;
use crate::error::SourceError;
use crate::exemplar::SeriesExemplars;
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::metadata::KnownMetric;
use crate::time_range::TimeRange;
use crate::windows::WantedWindows;

/// Boxed future that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Request of one selector: series that pass every matcher, and their samples in a range of time.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Matchers, of which all must pass.
    pub matchers: Vec<Matcher>,
    /// Times of the samples.
    pub times: TimeRange,
    /// True if only the newest of these samples of each series matters, without its start
    /// timestamp: the others may be omitted.
    pub only_newest: bool,
    /// Windows outside of which no float matters, if there are any. Cursors of series without
    /// histograms may then know no samples, if only [facts](Cursor::fill_windows) of these windows
    /// are needed.
    pub windows: Option<WantedWindows>,
}

/// Request of a metadata endpoint: the union of some selectors over a range of time.
#[derive(Debug, Clone)]
pub struct MetadataQuery {
    /// Selectors; an empty list selects every series.
    pub selectors: Vec<Vec<Matcher>>,
    /// Times of the samples.
    pub times: TimeRange,
    /// Maximum number of results, the first in order; 0 for all.
    pub limit: usize,
}

/// Request of the exemplars endpoint: those of the series that pass all matchers of one of the
/// selectors.
#[derive(Debug, Clone)]
pub struct ExemplarQuery {
    /// Selectors; an empty list selects no series.
    pub selectors: Vec<Vec<Matcher>>,
    /// Times of the samples.
    pub times: TimeRange,
}

/// Results with warnings about missing ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    /// Results.
    pub found: Vec<T>,
    /// Data that could not be read: the first few warnings, and the number of further ones.
    pub warnings: Vec<String>,
}

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Answer { found: Vec::new(), warnings: Vec::new() }
    }
}

/// Store of series.
///
/// The futures do all I/O; their results are in memory, and reading them is synchronous.
pub trait Source: Send + Sync {
    /// Loads the series of a selection.
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>>;

    /// Returns the label sets of matching series, sorted.
    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>>;

    /// Returns the label names of matching series, sorted.
    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>>;

    /// Returns the values of one label among matching series, sorted.
    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>>;

    /// Returns a number that increases with every change, after the change is visible and before it
    /// is acknowledged. Data loaded later is at least as new.
    ///
    /// `None` if the source does not track changes.
    fn version(&self) -> Option<u64> {
        None
    }

    /// Returns the times, in ms since the epoch, in which nothing was written or deleted since a
    /// version. The caller took the version before it loaded series.
    fn unchanged_since(&self, _version: u64) -> Range<i64> {
        0..0
    }

    /// Returns the exemplars of matching series, sorted by labels, and by time within a series.
    /// They are in memory, but matching many series takes time.
    ///
    /// Empty if the source stores none.
    fn exemplars(
        &self,
        _query: &ExemplarQuery,
        _budget: &Budget,
    ) -> Result<Answer<SeriesExemplars>, SourceError> {
        Ok(Answer::default())
    }

    /// Returns the metadata of one metric, or of the first `limit` metrics by name.
    ///
    /// Empty if the source stores none.
    fn metadata(&self, _metric: Option<&str>, _limit: usize) -> Answer<KnownMetric> {
        Answer::default()
    }
}

/// Loaded series of one selection: encoded, in memory, and immutable.
///
/// Invariant: sorted by labels, each label set once. A series may have no sample in the selected
/// range.
pub trait SeriesSet: Send + Sync {
    /// Returns the number of series.
    fn len(&self) -> usize;

    /// Returns whether no series matched.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the labels of a series.
    fn labels(&self, series_index: usize) -> &Labels;

    /// Returns a new cursor at the start of the selected range.
    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_>;

    /// Prefetches the memory of a series whose cursor will be read soon, after `ahead` others.
    ///
    /// Does nothing by default.
    fn prefetch(&self, _series_index: usize, _ahead: usize) {}

    /// Returns an upper bound of the number of samples of the series in the range.
    fn sample_count_estimate(&self, series_index: usize) -> usize;

    /// Returns whether the series may have native histograms in the range, without decoding them.
    fn has_histograms(&self, series_index: usize) -> bool;

    /// Returns whether any series may have native histograms in the range.
    fn has_any_histograms(&self) -> bool {
        (0..self.len()).any(|index| self.has_histograms(index))
    }

    /// Returns the values that queries have derived from the labels, if the set is kept for later
    /// queries.
    fn derived(&self) -> Option<&DerivedValues> {
        None
    }

    /// Returns the bytes of all encoded samples.
    fn encoded_bytes(&self) -> usize;
}
