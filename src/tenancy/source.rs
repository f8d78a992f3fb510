//! A [`Source`] of the series of tenants. Each selector gets a matcher of the tenants' label, so that
//! a matcher in a query can only narrow it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::{
    Answer, BoxFuture, Budget, ExemplarQuery, KnownMetric, Labels, Matcher, MetadataQuery,
    MetricMetadata, Selection, SeriesExemplars, SeriesSet, SmolStr, Source, SourceError,
};

use super::label::metadata_name;
use super::{Tenancy, Tenants};

/// Source of the series of tenants.
struct TenantSource {
    inner: Arc<dyn Source>,
    tenants: Tenants,
    matcher: Matcher,
}

/// Returns the source of the series of tenants.
pub(crate) fn with_tenants(
    inner: Arc<dyn Source>,
    tenancy: &Tenancy,
    tenants: &Tenants,
) -> Arc<dyn Source> {
    let matcher = tenancy.matcher(tenants);
    Arc::new(TenantSource { inner, tenants: tenants.clone(), matcher })
}

/// Adds a matcher to selectors. An empty list selects every series, so it becomes one selector.
pub(crate) fn narrowed(selectors: &[Vec<Matcher>], matcher: &Matcher) -> Vec<Vec<Matcher>> {
    let narrow = |matchers: &Vec<Matcher>| {
        let mut matchers = matchers.clone();
        matchers.push(matcher.clone());
        matchers
    };
    if selectors.is_empty() {
        return vec![vec![matcher.clone()]];
    }
    selectors.iter().map(narrow).collect()
}

impl TenantSource {
    fn query(&self, query: &MetadataQuery) -> MetadataQuery {
        MetadataQuery { selectors: narrowed(&query.selectors, &self.matcher), ..query.clone() }
    }

    /// Returns warnings without their texts, which may name series of others.
    fn warnings(found: &[String]) -> Vec<String> {
        match found {
            [] => Vec::new(),
            _ => vec!["some stored data cannot be read, see the log of the server".to_owned()],
        }
    }
}

impl Source for TenantSource {
    fn select<'a>(
        &'a self,
        selection: &'a Selection,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Arc<dyn SeriesSet>, SourceError>> {
        Box::pin(async move {
            let mut own = selection.clone();
            own.matchers.push(self.matcher.clone());
            self.inner.select(&own, budget).await
        })
    }

    fn series<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<Labels>, SourceError>> {
        Box::pin(async move { self.inner.series(&self.query(query), budget).await })
    }

    fn label_names<'a>(
        &'a self,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(async move { self.inner.label_names(&self.query(query), budget).await })
    }

    fn label_values<'a>(
        &'a self,
        name: &'a str,
        query: &'a MetadataQuery,
        budget: &'a Budget,
    ) -> BoxFuture<'a, Result<Vec<SmolStr>, SourceError>> {
        Box::pin(async move { self.inner.label_values(name, &self.query(query), budget).await })
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
        if query.selectors.is_empty() {
            return Ok(Answer::default());
        }
        let selectors = narrowed(&query.selectors, &self.matcher);
        let answer = self.inner.exemplars(&ExemplarQuery { selectors, ..query.clone() }, budget)?;
        Ok(Answer { warnings: Self::warnings(&answer.warnings), ..answer })
    }

    /// Returns the metadata that the tenants have sent.
    fn metadata(&self, metric: Option<&str>, limit: usize) -> Answer<KnownMetric> {
        let mut metrics: BTreeMap<Arc<str>, Vec<MetricMetadata>> = BTreeMap::new();
        let mut warnings = Vec::new();
        let names = self.tenants.names();
        let stored = match metric {
            Some(metric) => {
                let of_tenant = |tenant: &String| {
                    self.inner.metadata(Some(&metadata_name(tenant, metric)), limit)
                };
                names.iter().map(of_tenant).collect()
            }
            None => vec![self.inner.metadata(None, usize::MAX)],
        };
        for answer in stored {
            warnings.extend(answer.warnings);
            for known in answer.found {
                let owner = names.iter().find_map(|tenant| {
                    known.metric.strip_prefix(metadata_name(tenant, "").as_str())
                });
                let Some(metric) = owner else { continue };
                let entries = metrics.entry(metric.into()).or_default();
                for entry in known.entries.iter() {
                    if !entries.contains(entry) {
                        entries.push(entry.clone());
                    }
                }
            }
        }
        let known = |(metric, entries): (Arc<str>, Vec<MetricMetadata>)| KnownMetric {
            metric,
            entries: entries.into(),
        };
        let found = metrics.into_iter().take(limit).map(known).collect();
        Answer { found, warnings: Self::warnings(&warnings) }
    }
}
