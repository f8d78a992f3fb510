//! Resolution of matchers to series: postings of the head in memory ([`labels`]), those of
//! partitions in the LSM with a cache ([`partition`], [`cache`]).
//!
//! Each matcher becomes one term, a set of ids to keep or to drop, and the terms are combined. A
//! matcher that accepts the empty value drops the series whose value it rejects, so that series
//! without the label remain. Any other matcher keeps the series whose value it accepts.
//!
//! Source: `PostingsForMatchers` in `tsdb/querier.go` of Prometheus, for what is selected.

pub(crate) mod cache;
mod ids;
mod labels;
pub(crate) mod lists;
pub(crate) mod partition;
mod postings;
mod prune;
pub(crate) mod results;
pub(crate) mod runs;

use std::ops::Deref;

use model::{Labels, Matcher};
use roaring::RoaringBitmap;

pub(crate) use ids::{Ids, bitmap_bytes};
pub(crate) use labels::LabelIndex;
pub(crate) use postings::{decode_postings, encode_postings};
pub(crate) use prune::{Candidate, prune};

/// Labels in memory that can be shared.
pub(crate) trait KnownLabels: Send + Sync + 'static {
    /// Returns shared labels by their packed bytes, if they are in memory.
    fn labels_of(&self, labels: &[u8]) -> Option<Labels>;
}

/// Effect of a matcher's term on its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    /// Only these stay.
    Keep,
    /// These are removed.
    Drop,
}

/// Values of a label that a term needs.
pub(crate) enum Lookup<'a> {
    /// Exactly these.
    Values(Vec<&'a str>),
    /// All with this prefix that pass [`wants`].
    Prefix(&'a str),
}

/// Returns the term of a matcher, and the values that it needs; `None` if the matcher excludes
/// nothing.
pub(crate) fn term(matcher: &Matcher) -> Option<(Term, Lookup<'_>)> {
    if matcher.matches_everything() {
        return None;
    }
    if !matcher.matches_empty() {
        let lookup = match matcher.literal_values() {
            Some(values) => Lookup::Values(values),
            None => Lookup::Prefix(matcher.literal_prefix()),
        };
        return Some((Term::Keep, lookup));
    }
    let lookup = match matcher.refused_values() {
        Some(values) => Lookup::Values(values),
        None => Lookup::Prefix(matcher.refused_prefix()),
    };
    Some((Term::Drop, lookup))
}

/// Returns whether any of the matchers excludes something.
pub(crate) fn is_restricted(matchers: &[Matcher]) -> bool {
    matchers.iter().any(|matcher| term(matcher).is_some())
}

/// Returns whether series with a value of the label belong to the matcher's term.
pub(crate) fn wants(matcher: &Matcher, term: Term, value: &str) -> bool {
    matcher.matches(value) == (term == Term::Keep)
}

/// Combines all terms to the selected ids.
pub(crate) fn combine<I: Deref<Target = RoaringBitmap>>(
    all: impl FnOnce() -> RoaringBitmap,
    terms: &[(Term, I)],
) -> RoaringBitmap {
    let of = |wanted| terms.iter().filter(move |(term, _)| *term == wanted).map(|(_, ids)| &**ids);
    let mut keep: Vec<&RoaringBitmap> = of(Term::Keep).collect();
    keep.sort_by_key(|ids| ids.len());
    let mut ids = match keep[..] {
        [] => all(),
        [only] => only.clone(),
        [first, second, ref rest @ ..] => {
            let mut ids = first & second;
            for more in rest {
                ids &= *more;
            }
            ids
        }
    };
    for dropped in of(Term::Drop) {
        ids -= dropped;
    }
    ids
}
