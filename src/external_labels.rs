//! External labels: labels of all series of this server, which name it among others. They are part
//! of series in gRPC, remote read and federation, and are never stored.
//!
//! A stored label of the same name is overridden. Matchers of external labels are decided at once,
//! so that a query for another server reads nothing.

use std::ops::Range;
use std::sync::Arc;

use model::labels::is_valid_label_name;
use model::{
    Answer, BoxFuture, Budget, Cursor, ExemplarQuery, KnownMetric, Labels, MatchOp, Matcher,
    MetadataQuery, Selection, SeriesExemplars, SeriesSet, SmolStr, Source, SourceError,
};

/// Bytes that a series with external labels takes besides its labels.
const SERIES_BYTES: usize = size_of::<Labels>() + size_of::<u32>() + 2 * size_of::<usize>();

/// Checks an external label. One without a value does not exist, so that servers could not be told
/// apart.
pub(crate) fn check_label(name: &str, value: &str) -> Result<(), String> {
    if !is_valid_label_name(name) || name == "__name__" {
        return Err(format!("{name:?} is not a valid label name"));
    }
    if value.is_empty() {
        return Err(format!("the external label {name:?} has no value"));
    }
    Ok(())
}

/// Number of series after which a loop yields to other tasks.
const YIELD_SERIES: usize = 1_024;

/// Source whose series have external labels.
pub(crate) struct ExternalSource {
    inner: Arc<dyn Source>,
    labels: Labels,
}

/// Returns a source with external labels.
pub(crate) fn with_external_labels(inner: Arc<dyn Source>, labels: Labels) -> Arc<dyn Source> {
    if labels.is_empty() { inner } else { Arc::new(ExternalSource { inner, labels }) }
}

impl ExternalSource {
    /// Returns the matchers of stored labels; `None` if one of an external label fails.
    fn stored_matchers(&self, matchers: &[Matcher]) -> Option<Vec<Matcher>> {
        let mut stored = Vec::with_capacity(matchers.len());
        for matcher in matchers {
            match self.labels.get(matcher.name()) {
                "" => stored.push(matcher.clone()),
                value if matcher.matches(value) => {}
                _ => return None,
            }
        }
        if stored.is_empty() && !matchers.is_empty() {
            stored.push(every_series());
        }
        Some(stored)
    }

    /// Returns the query of stored labels; `None` if it selects nothing.
    fn stored_query(&self, query: &MetadataQuery) -> Option<MetadataQuery> {
        let selectors: Vec<_> =
            query.selectors.iter().filter_map(|matchers| self.stored_matchers(matchers)).collect();
        if selectors.is_empty() && !query.selectors.is_empty() {
            return None;
        }
        Some(MetadataQuery { selectors, ..query.clone() })
    }
}

/// Returns a matcher that all series pass.
fn every_series() -> Matcher {
    Matcher::new(MatchOp::Regex, "__name__", ".*").expect("the expression is valid")
}

impl Source for ExternalSource {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let Some(matchers) = self.stored_matchers(&selection.matchers) else {
                return Ok(Arc::new(NoSeries) as Arc<dyn SeriesSet>);
            };
            let stored = Selection { matchers, ..selection.clone() };
            let inner = self.inner.select(&stored, budget).await?;
            let set = ExternalSet::new(inner, &self.labels, budget).await?;
            Ok(Arc::new(set) as Arc<dyn SeriesSet>)
        })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        Box::pin(async move {
            let Some(stored) = self.stored_query(query) else { return Ok(Vec::new()) };
            // The first in stored order need not be the first with external labels.
            let stored = MetadataQuery { limit: 0, ..stored };
            let found = self.inner.series(&stored, budget).await?;
            let all = with_labels(found.len(), |index| &found[index], &self.labels, budget).await?;
            let mut series: Vec<_> = all.into_iter().map(|(labels, _)| labels).collect();
            series.dedup();
            limit(&mut series, query.limit);
            Ok(series)
        })
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(async move {
            let Some(stored) = self.stored_query(query) else { return Ok(Vec::new()) };
            let mut names = self.inner.label_names(&stored, budget).await?;
            if !names.is_empty() {
                names.extend(self.labels.iter().map(|(name, _)| SmolStr::new(name)));
                names.sort();
                names.dedup();
                limit(&mut names, query.limit);
            }
            Ok(names)
        })
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(async move {
            let Some(stored) = self.stored_query(query) else { return Ok(Vec::new()) };
            let value = self.labels.get(name);
            if value.is_empty() {
                return self.inner.label_values(name, &stored, budget).await;
            }
            let one = MetadataQuery { limit: 1, ..stored };
            let has_series = !self.inner.label_names(&one, budget).await?.is_empty();
            Ok(if has_series { vec![SmolStr::new(value)] } else { Vec::new() })
        })
    }

    fn version(&self) -> Option<u64> {
        self.inner.version()
    }

    fn unchanged_since(&self, version: u64) -> Range<i64> {
        self.inner.unchanged_since(version)
    }

    fn exemplars(
        &self,
        query: &ExemplarQuery,
        budget: &Budget,
    ) -> Result<Answer<SeriesExemplars>, SourceError> {
        let selectors: Vec<_> =
            query.selectors.iter().filter_map(|matchers| self.stored_matchers(matchers)).collect();
        let stored = ExemplarQuery { selectors, ..query.clone() };
        let mut answer = self.inner.exemplars(&stored, budget)?;
        for series in &mut answer.found {
            series.labels = series.labels.overridden_by(&self.labels);
        }
        answer.found.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(answer)
    }

    fn metadata(&self, metric: Option<&str>, limit: usize) -> Answer<KnownMetric> {
        self.inner.metadata(metric, limit)
    }
}

/// Returns series with external labels and their indices, sorted by the labels.
async fn with_labels<'a>(
    count: usize,
    labels_of: impl Fn(usize) -> &'a Labels,
    external: &Labels,
    budget: &Budget,
) -> Result<Vec<(Labels, u32)>, SourceError> {
    let mut series = Vec::with_capacity(count);
    for index in 0..count {
        if index % YIELD_SERIES == YIELD_SERIES - 1 {
            budget.check()?;
            tokio::task::yield_now().await;
        }
        let labels = labels_of(index).overridden_by(external);
        budget.charge_memory((labels.as_bytes().len() + SERIES_BYTES) as u64)?;
        series.push((labels, index as u32));
    }
    if series.is_sorted_by(|(a, _), (b, _)| a <= b) {
        return Ok(series);
    }
    let sort = move || {
        series.sort_by(|(a, _), (b, _)| a.cmp(b));
        series
    };
    if count < YIELD_SERIES {
        return Ok(sort());
    }
    let sorting = tokio::task::spawn_blocking(sort).await;
    Ok(sorting.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
}

fn limit<T>(items: &mut Vec<T>, limit: usize) {
    if limit > 0 {
        items.truncate(limit);
    }
}

/// Series with external labels.
///
/// Invariant: sorted by the labels, each label set once. The stored series have another order,
/// because a label in between changes it.
struct ExternalSet {
    inner: Arc<dyn SeriesSet>,
    /// Labels with the index of the stored series.
    series: Vec<(Labels, u32)>,
}

impl ExternalSet {
    /// Errors: the budget, or two series that differ only in labels that are overridden.
    async fn new(
        inner: Arc<dyn SeriesSet>,
        external: &Labels,
        budget: &Budget,
    ) -> Result<ExternalSet, SourceError> {
        let series =
            with_labels(inner.len(), |index| inner.labels(index), external, budget).await?;
        if let Some(pair) = series.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let [(labels, first), (_, second)] = pair else { unreachable!("windows of 2") };
            return Err(SourceError::Ambiguous {
                series: labels.to_string(),
                first: inner.labels(*first as usize).to_string(),
                second: inner.labels(*second as usize).to_string(),
            });
        }
        Ok(ExternalSet { inner, series })
    }

    fn stored(&self, series_index: usize) -> usize {
        self.series[series_index].1 as usize
    }
}

impl SeriesSet for ExternalSet {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, series_index: usize) -> &Labels {
        &self.series[series_index].0
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        self.inner.cursor(self.stored(series_index))
    }

    fn prefetch(&self, series_index: usize, ahead: usize) {
        self.inner.prefetch(self.stored(series_index), ahead);
    }

    fn sample_count_estimate(&self, series_index: usize) -> usize {
        self.inner.sample_count_estimate(self.stored(series_index))
    }

    fn has_histograms(&self, series_index: usize) -> bool {
        self.inner.has_histograms(self.stored(series_index))
    }

    fn has_any_histograms(&self) -> bool {
        self.inner.has_any_histograms()
    }

    fn encoded_bytes(&self) -> usize {
        self.inner.encoded_bytes()
    }
}

/// Empty set.
struct NoSeries;

impl SeriesSet for NoSeries {
    fn len(&self) -> usize {
        0
    }

    fn labels(&self, series_index: usize) -> &Labels {
        unreachable!("series {series_index} of an empty set")
    }

    fn cursor(&self, series_index: usize) -> Box<dyn Cursor + '_> {
        unreachable!("series {series_index} of an empty set")
    }

    fn sample_count_estimate(&self, _: usize) -> usize {
        0
    }

    fn has_histograms(&self, _: usize) -> bool {
        false
    }

    fn encoded_bytes(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use model::memory::MemorySource;
    use model::{BudgetLimits, TimeRange};

    use super::*;

    fn source(series: &[&[(&str, &str)]]) -> Arc<dyn Source> {
        let mut source = MemorySource::new();
        for labels in series {
            source.append(&Labels::from_pairs(labels.iter().copied()), 1, 1.0);
        }
        with_external_labels(Arc::new(source), Labels::from_pairs([("shard", "0")]))
    }

    async fn select(source: &Arc<dyn Source>) -> Result<Vec<String>, SourceError> {
        let matchers = vec![Matcher::equal("shard", "0")];
        let selection =
            Selection { matchers, times: TimeRange::new(0, 1), only_newest: false, windows: None };
        let budget = Budget::new(BudgetLimits::default());
        let set = source.select(&selection, &budget).await?;
        Ok((0..set.len()).map(|index| set.labels(index).to_string()).collect())
    }

    #[tokio::test]
    async fn series_are_sorted_again() {
        let source = source(&[&[("a", "1")], &[("a", "1"), ("b", "2")], &[("z", "3")]]);
        let expected =
            ["{a=\"1\", b=\"2\", shard=\"0\"}", "{a=\"1\", shard=\"0\"}", "{shard=\"0\", z=\"3\"}"];
        assert_eq!(select(&source).await.unwrap(), expected);
        let query = MetadataQuery { selectors: vec![], times: TimeRange::new(0, 1), limit: 2 };
        let budget = Budget::new(BudgetLimits::default());
        let series = source.series(&query, &budget).await.unwrap();
        assert!(series.iter().map(ToString::to_string).eq(expected[..2].iter().copied()));
    }

    #[tokio::test]
    async fn stored_labels_of_the_name_are_overridden() {
        let one = source(&[&[("a", "1"), ("shard", "9")]]);
        assert_eq!(select(&one).await.unwrap(), ["{a=\"1\", shard=\"0\"}"]);
        let two = source(&[&[("a", "1"), ("shard", "8")], &[("a", "1"), ("shard", "9")]]);
        let error = select(&two).await.unwrap_err();
        assert!(matches!(error, SourceError::Ambiguous { .. }), "{error}");
    }
}
