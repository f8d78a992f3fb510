//! Groups of series of a metric that fit the memory limit, sorted by labels.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use model::{
    Budget, BudgetError, BudgetLimits, Labels, MatchOp, Matcher, Selection, Source, SourceError,
    TimeRange,
};
use storage::Store;

use super::{SharedSet, equal};
use crate::tools::ToolError;

/// Initial and maximum number of series in a group.
const FIRST: usize = 256;
const MOST: usize = 16 << 10;
/// Minimum time span that is loaded; a larger second cannot be exported.
const SPAN_MIN_MS: i64 = 1000;
/// Maximum length of a matcher with the values of a group, in bytes.
const VALUES_BYTES_MAX: usize = 16 << 10;

/// Series that are not loaded yet.
pub(super) struct Groups {
    series: VecDeque<Labels>,
    start_ms: i64,
    end_ms: i64,
    memory_bytes_max: u64,
    /// Series in the next group.
    size: usize,
    /// Next part of the first series, if it is too large to be loaded as a whole.
    part: Option<SeriesPart>,
}

/// Part of a series that is loaded at once.
#[derive(Debug, Clone, Copy)]
struct SeriesPart {
    start_ms: i64,
    span_ms: i64,
}

/// Loaded group, possibly with other series.
pub(super) struct Loaded {
    pub(super) set: SharedSet,
    selected: HashSet<Labels>,
    is_continued: bool,
}

impl Loaded {
    /// Returns the indices of the series of the group, and whether a part of the series was exported.
    pub(super) fn selected(&self) -> impl Iterator<Item = (usize, bool)> {
        let indices = 0..self.set.len();
        let is_selected = |index: &usize| self.selected.contains(self.set.labels(*index));
        indices.filter(is_selected).map(|index| (index, self.is_continued))
    }
}

impl Groups {
    pub(super) fn new(
        series: Vec<Labels>,
        start_ms: i64,
        end_ms: i64,
        memory_bytes_max: u64,
    ) -> Groups {
        let series = series.into();
        Groups { series, start_ms, end_ms, memory_bytes_max, size: FIRST, part: None }
    }

    /// Loads the next group; `None` after the last one.
    ///
    /// Errors: a second of a series exceeds the limit.
    pub(super) async fn next(&mut self, store: &Store) -> Result<Option<Loaded>, ToolError> {
        while !self.series.is_empty() {
            let len = if self.part.is_some() { 1 } else { self.size.min(self.series.len()) };
            let SeriesPart { start_ms, span_ms } = self.part.unwrap_or_else(|| self.whole());
            let end_ms = start_ms.saturating_add(span_ms).min(self.end_ms);
            let group: Vec<&Labels> = self.series.iter().take(len).collect();
            let matchers = matchers(&group);
            let selection = Selection {
                matchers,
                times: TimeRange::new(start_ms, end_ms),
                only_newest: false,
                windows: None,
            };
            let limits =
                BudgetLimits { memory_bytes_max: self.memory_bytes_max, ..BudgetLimits::default() };
            let budget = Budget::new(limits);
            match store.select(&selection, &budget).await {
                Ok(set) => return Ok(Some(self.loaded(set, len, end_ms))),
                Err(SourceError::Budget(BudgetError::Exceeded { .. })) if len > 1 => {
                    self.size = len / 2;
                }
                Err(SourceError::Budget(BudgetError::Exceeded { .. })) if span_ms > SPAN_MIN_MS => {
                    self.part = Some(SeriesPart { start_ms, span_ms: span_ms / 2 });
                }
                Err(SourceError::Budget(BudgetError::Exceeded { reached, .. })) => {
                    return Err(ToolError::Incomplete(format!(
                        "a second of series {} takes {reached} bytes, because whole blocks are \
                         loaded: raise --max-memory",
                        self.series[0]
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn whole(&self) -> SeriesPart {
        let span_ms = self.end_ms.saturating_sub(self.start_ms);
        SeriesPart { start_ms: self.start_ms, span_ms }
    }

    fn loaded(&mut self, set: SharedSet, len: usize, end_ms: i64) -> Loaded {
        let is_continued = self.part.is_some_and(|part| part.start_ms > self.start_ms);
        let is_small = (set.encoded_bytes() as u64) < self.memory_bytes_max / 4;
        match self.part {
            Some(SeriesPart { start_ms, span_ms }) if end_ms < self.end_ms => {
                let selected = HashSet::from([self.series[0].clone()]);
                let span_ms = if is_small { span_ms.saturating_mul(2) } else { span_ms };
                self.part = Some(SeriesPart { start_ms: end_ms.max(start_ms) + 1, span_ms });
                return Loaded { set, selected, is_continued };
            }
            _ => self.part = None,
        }
        if is_small && len == self.size {
            self.size = (2 * self.size).min(MOST);
        }
        Loaded { set, selected: self.series.drain(..len).collect(), is_continued }
    }
}

/// Returns matchers of a group, which may match other series, too.
fn matchers(group: &[&Labels]) -> Vec<Matcher> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, value) in group.iter().flat_map(|labels| labels.iter()) {
        values.entry(name).or_default().insert(value);
        *counts.entry(name).or_default() += 1;
    }
    let mut matchers = Vec::new();
    for (name, values) in values {
        if counts.get(name) != Some(&group.len()) {
            continue;
        }
        let mut listed = values.iter();
        if let (Some(only), None) = (listed.next(), listed.next()) {
            matchers.push(equal(name, only));
            continue;
        }
        let escaped: Vec<String> = values.iter().map(|value| regex::escape(value)).collect();
        let pattern = escaped.join("|");
        // Without this matcher, more series are loaded.
        if pattern.len() <= VALUES_BYTES_MAX
            && let Ok(matcher) = Matcher::new(MatchOp::Regex, name, &pattern)
        {
            matchers.push(matcher);
        }
    }
    matchers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_told_by_the_values_that_its_series_share() {
        let series = [("a", "x.y"), ("a", "z")].map(|(name, value)| {
            Labels::from_pairs([("__name__", name), ("l", value), (value, "only here")])
        });
        let group: Vec<&Labels> = series.iter().collect();
        let found: Vec<String> = matchers(&group).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["__name__=\"a\"", "l=~\"x\\\\.y|z\""]);
        let matches = |value: &str| matchers(&group)[1].matches(value);
        assert!(matches("x.y") && matches("z") && !matches("xzy"));
    }
}
