//! Excludes partitions without matching series, by the dictionary of label pairs.
//!
//! ```text
//! name="value"   the partitions of the pair: one range of the dictionary
//! name=~"regex"  all values of the label, each matched once, and their partitions
//! ```
//!
//! The results are kept in the partition indexes, so that these need no read for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use model::{Budget, Matcher, SourceError};

use super::partition::PartitionIndex;
use super::results::{MatcherRef, Resolved, SelectionRef};
use super::{Lookup, Term, term, wants};
use crate::error::StoreError;
use crate::keys;
use crate::lsm::Lsm;
use crate::parallel::yielder::Yielder;
use crate::value;
use crate::window::PartitionId;

/// Maximum number of partitions that are read concurrently.
const PARTITIONS_AT_ONCE: usize = 16;
/// Number of matching values from which they are not looked up one by one, if more than one of
/// `MATCHING_SHARE` values matches.
const MATCHING_MAX: usize = 1024;
const MATCHING_SHARE: usize = 8;
/// Number of entries of other partitions from which the scan is given up, if they are
/// `BESIDE_SHARE` times the wanted ones.
const BESIDE_MAX: usize = 4096;
const BESIDE_SHARE: usize = 3;
/// Maximum number of matching values, counted per partition.
const FOUND_MAX: usize = 1 << 18;

/// Partition that may hold matching series.
pub(crate) struct Candidate {
    pub(crate) index: Arc<PartitionIndex>,
    /// The series, if an earlier query has resolved them.
    pub(crate) known: Option<Arc<Resolved>>,
}

/// Returns the partitions that may hold series which pass all matchers. If the index of a partition
/// knows the result of a matcher, or of all together, that is used instead of the dictionary.
pub(crate) async fn prune(
    lsm: &Lsm,
    partitions: Vec<Arc<PartitionIndex>>,
    matchers: &[Matcher],
    budget: &Budget,
) -> Result<Vec<Candidate>, SourceError> {
    let (mut holding, mut unknown) = (Vec::with_capacity(partitions.len()), Vec::new());
    let selection = SelectionRef::of(matchers);
    for index in partitions {
        match index.known_series(&selection) {
            Some(series) if series.labels.is_empty() => {}
            Some(series) => holding.push(Candidate { index, known: Some(series) }),
            None => unknown.push(index),
        }
    }
    if !unknown.is_empty() {
        let left = Box::pin(prune_unknown(lsm, unknown, matchers, budget)).await?;
        holding.extend(left.into_iter().map(|index| Candidate { index, known: None }));
        holding.sort_by_key(|candidate| candidate.index.partition);
    }
    Ok(holding)
}

/// Returns the partitions that may hold series which pass all matchers, by the results of each.
async fn prune_unknown(
    lsm: &Lsm,
    mut partitions: Vec<Arc<PartitionIndex>>,
    matchers: &[Matcher],
    budget: &Budget,
) -> Result<Vec<Arc<PartitionIndex>>, SourceError> {
    let mut yielder = Yielder::new(budget);
    // Matchers of exact values first: they leave fewer partitions to the others.
    let kept = |matcher| match term(matcher) {
        Some((Term::Keep, lookup)) => Some((matcher, lookup)),
        _ => None,
    };
    let (by_value, by_prefix): (Vec<_>, Vec<_>) = matchers
        .iter()
        .filter_map(kept)
        .partition(|(_, lookup)| matches!(lookup, Lookup::Values(_)));
    let are_kept = partitions.iter().all(|index| index.is_cached());
    let by_prefix = by_prefix.into_iter().filter(|_| are_kept);
    let kept: Vec<_> = by_value.into_iter().chain(by_prefix).collect();
    // Before all reads: what one matcher excludes need not be known of another.
    partitions.retain(|index| !kept.iter().any(|(matcher, _)| index.knows_none(matcher)));
    for (matcher, lookup) in kept {
        if partitions.iter().filter(|index| !index.knows(matcher)).count() < 2 {
            continue;
        }
        let holding = match lookup {
            Lookup::Values(values) => partitions_of(lsm, matcher, &values, &mut yielder).await?,
            Lookup::Prefix(prefix) => {
                let found = matching(lsm, &partitions, matcher, prefix, &mut yielder).await?;
                let Some(found) = found else { continue };
                note(lsm, &partitions, matcher, &found, budget).await?;
                let known = partitions.iter().filter(|index| index.knows(matcher));
                known.map(|index| index.partition).chain(found.into_keys()).collect()
            }
        };
        partitions.retain(|index| {
            let may_hold = holding.contains(&index.partition);
            if !may_hold {
                index.note_none(matcher);
            }
            may_hold
        });
    }
    Ok(partitions)
}

/// Returns the partitions that hold any of some values of a label.
async fn partitions_of(
    lsm: &Lsm,
    matcher: &Matcher,
    values: &[&str],
    yielder: &mut Yielder,
) -> Result<BTreeSet<PartitionId>, SourceError> {
    let mut holding = BTreeSet::new();
    for label_value in values {
        let prefix = keys::dictionary_of_pair(matcher.name(), label_value);
        let mut scan = lsm.scan_prefix(&prefix).await?;
        while let Some((key, _)) = scan.next().await? {
            yielder.work(1).await?;
            let number = keys::parse_ordered(&key, &prefix).ok_or_else(|| malformed(&key))?;
            holding.insert(PartitionId::new(number));
        }
    }
    Ok(holding)
}

/// Returns the matching values in each partition that does not know them; `None` if there are too
/// many, or most entries are of other partitions.
async fn matching(
    lsm: &Lsm,
    partitions: &[Arc<PartitionIndex>],
    matcher: &Matcher,
    prefix: &str,
    yielder: &mut Yielder,
) -> Result<Option<BTreeMap<PartitionId, Vec<String>>>, SourceError> {
    let unknown = partitions.iter().filter(|index| !index.knows(matcher));
    let unknown: BTreeSet<PartitionId> = unknown.map(|index| index.partition).collect();
    let mut found: BTreeMap<PartitionId, Vec<String>> = BTreeMap::new();
    let (mut value_before, mut is_wanted) = (None, false);
    let (mut values, mut matching, mut asked, mut beside, mut found_count) = (0, 0, 0, 0, 0);
    let name = matcher.name();
    let mut scan = lsm.scan_prefix(&keys::dictionary_of_value_prefix(name, prefix)).await?;
    while let Some((key, _)) = scan.next().await? {
        yielder.work(1).await?;
        let (label_value, partition) =
            keys::parse_dictionary(&key, name).ok_or_else(|| malformed(&key))?;
        if !unknown.contains(&partition) {
            beside += 1;
            if beside > BESIDE_MAX + asked * BESIDE_SHARE {
                return Ok(None);
            }
            continue;
        }
        asked += 1;
        if value_before.as_ref() != Some(&label_value) {
            is_wanted = wants(matcher, Term::Keep, &label_value);
            values += 1;
            matching += usize::from(is_wanted);
            value_before = Some(label_value.clone());
        }
        if is_wanted {
            found.entry(partition).or_default().push(label_value);
            found_count += 1;
            let are_many = matching > MATCHING_MAX && matching * MATCHING_SHARE > values;
            if are_many || found_count > FOUND_MAX {
                return Ok(None);
            }
        }
    }
    Ok(Some(found))
}

/// Records the series with the matching values in each partition.
async fn note(
    lsm: &Lsm,
    partitions: &[Arc<PartitionIndex>],
    matcher: &Matcher,
    found: &BTreeMap<PartitionId, Vec<String>>,
    budget: &Budget,
) -> Result<(), SourceError> {
    let with_values =
        partitions.iter().filter_map(|index| Some((index, found.get(&index.partition)?)));
    let notes: Vec<BoxFuture<'_, _>> = with_values
        .map(|(index, values)| index.note_values(lsm, matcher, values, budget).boxed())
        .collect();
    stream::iter(notes).buffered(PARTITIONS_AT_ONCE).try_collect().await
}

impl PartitionIndex {
    /// Returns whether a matcher's term is known to have no ids.
    fn knows_none(&self, matcher: &Matcher) -> bool {
        self.result(MatcherRef::of(matcher)).is_some_and(|ids| ids.is_empty())
    }

    /// Finds and records the series of a matcher's term by their values.
    async fn note_values(
        &self,
        lsm: &Lsm,
        matcher: &Matcher,
        values: &[String],
        budget: &Budget,
    ) -> Result<(), SourceError> {
        let mut yielder = Yielder::new(budget);
        let values: Vec<_> = values.iter().map(String::as_str).collect();
        let ids = self.ids_of_values(lsm, matcher.name(), &values, &mut yielder).await?;
        self.keep_result(MatcherRef::of(matcher), ids);
        Ok(())
    }
}

fn malformed(key: &[u8]) -> StoreError {
    value::corrupt(key, "malformed dictionary key")
}
