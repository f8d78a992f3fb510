//! From matchers to series: postings of the head in memory, of partitions in the tree.
//!
//! Each matcher becomes one term, a set of ids to keep or to drop, and the terms are
//! combined. A matcher that the empty value passes drops the series whose value fails it, so
//! that series without the label stay; any other keeps the series whose value passes.
//!
//! Source: `PostingsForMatchers` in `tsdb/querier.go` of Prometheus, for what is selected.

mod labels;
pub(crate) mod partition;

use model::{MatchOp, Matcher};
use roaring::RoaringBitmap;

pub(crate) use labels::LabelIndex;

/// What becomes of the series that a matcher's term names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    /// Only they stay.
    Keep,
    /// They go.
    Drop,
}

/// Which values of a label a term needs.
pub(crate) enum Lookup<'a> {
    /// These.
    Values(Vec<&'a str>),
    /// Those with this prefix that pass [`wants`].
    Prefix(&'a str),
}

/// The term of a matcher, and the values that it needs; none if it excludes nothing.
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
    let lookup = match matcher.op() {
        MatchOp::NotEqual => Lookup::Values(vec![matcher.value()]),
        _ => Lookup::Prefix(""),
    };
    Some((Term::Drop, lookup))
}

/// Whether the series with a value of the matcher's label belong to its term.
pub(crate) fn wants(matcher: &Matcher, term: Term, value: &str) -> bool {
    matcher.matches(value) == (term == Term::Keep)
}

/// The ids that all terms together select.
pub(crate) fn combine(
    all: impl FnOnce() -> RoaringBitmap,
    terms: impl IntoIterator<Item = (Term, RoaringBitmap)>,
) -> RoaringBitmap {
    let (keep, drop): (Vec<_>, Vec<_>) =
        terms.into_iter().partition(|(term, _)| *term == Term::Keep);
    let mut keep: Vec<_> = keep.into_iter().map(|(_, ids)| ids).collect();
    keep.sort_by_key(RoaringBitmap::len);
    let mut ids = keep.into_iter().reduce(|a, b| a & b).unwrap_or_else(all);
    for (_, dropped) in drop {
        ids -= dropped;
    }
    ids
}
