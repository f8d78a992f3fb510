//! Warnings and infos, which travel with a result.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;

use crate::number_text::{general, general_rounded};
use crate::span::{Span, row_and_column};
use model::calendar::rfc3339;

/// Maximum number of annotations shown per severity; further annotations are counted.
pub const ANNOTATIONS_MAX: usize = 10;

/// Maximum number of different annotations held. Further annotations are only counted, including
/// repetitions.
pub const ANNOTATIONS_HELD_MAX: usize = 1_000;

/// Severity of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `PromQL warning: …`: the result may be wrong.
    Warning,
    /// `PromQL info: …`: the query may not mean what its author thinks.
    Info,
}

/// Position of the cause of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// Position shown to the user.
    pub at: Span,
    /// Span of all operands of the expression that reports it. Of two annotations with one message,
    /// the one that is evaluated later is shown.
    pub operands: Span,
}

impl From<Span> for Cause {
    fn from(span: Span) -> Cause {
        Cause { at: span, operands: span }
    }
}

/// Annotation: a message and the position of its cause in the query.
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation {
    /// Severity.
    pub severity: Severity,
    /// Message without the `PromQL …:` prefix and without the position.
    pub message: String,
    /// Position of its cause.
    pub cause: Cause,
    /// Repair of buckets, if any.
    pub repair: Option<BucketRepair>,
    /// Number of occurrences, if counted; otherwise 0.
    pub count: u64,
}

/// Repair of the buckets of classic histograms, to make their counts ascend.
///
/// Units: bounds and counts as in the data; times in ms since the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketRepair {
    /// Least upper bound of a repaired bucket.
    pub bound_min: f64,
    /// Greatest upper bound of a repaired bucket.
    pub bound_max: f64,
    /// Greatest amount by which a count was raised.
    pub difference_max: f64,
    /// Time of the first repair.
    pub start_ms: i64,
    /// Time of the last repair.
    pub end_ms: i64,
    /// Number of repaired histograms, counted at each step.
    pub histogram_count: u64,
}

impl BucketRepair {
    /// Returns the text after the message.
    fn to_text(self) -> String {
        format!(
            ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            general(self.bound_min),
            general(self.bound_max),
            general_rounded(self.difference_max, 2),
            self.histogram_count,
            rfc3339(self.start_ms),
            rfc3339(self.end_ms),
        )
    }

    /// Returns the combination of two repairs.
    pub fn merge(&self, other: &BucketRepair) -> BucketRepair {
        BucketRepair {
            bound_min: self.bound_min.min(other.bound_min),
            bound_max: self.bound_max.max(other.bound_max),
            difference_max: self.difference_max.max(other.difference_max),
            start_ms: self.start_ms.min(other.start_ms),
            end_ms: self.end_ms.max(other.end_ms),
            histogram_count: self.histogram_count + other.histogram_count,
        }
    }
}

/// Set of annotations, in which each message occurs once. If several expressions report one
/// message, the position of the one evaluated last is kept.
///
/// Source: `Annotations` of Prometheus, which tells them apart by their texts alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    entries: BTreeMap<(Severity, String), Annotation>,
    /// Number of annotations that are not held, by severity.
    beyond: BTreeMap<Severity, usize>,
}

impl Annotations {
    /// Adds a warning.
    pub fn warn(&mut self, message: impl Into<String>, cause: impl Into<Cause>) {
        self.add(Severity::Warning, message.into(), cause.into());
    }

    /// Adds a warning that is shown with a count.
    pub fn warn_counted(
        &mut self,
        message: impl Into<String>,
        cause: impl Into<Cause>,
        count: u64,
    ) {
        let (message, cause) = (message.into(), cause.into());
        let severity = Severity::Warning;
        self.insert(Annotation { severity, message, cause, repair: None, count });
    }

    /// Adds an info.
    pub fn info(&mut self, message: impl Into<String>, cause: impl Into<Cause>) {
        self.add(Severity::Info, message.into(), cause.into());
    }

    /// Adds the info that buckets were repaired.
    pub fn info_repair(&mut self, message: impl Into<String>, span: Span, repair: BucketRepair) {
        self.insert(Annotation {
            severity: Severity::Info,
            message: message.into(),
            cause: span.into(),
            repair: Some(repair),
            count: 0,
        });
    }

    fn add(&mut self, severity: Severity, message: String, cause: Cause) {
        self.insert(Annotation { severity, message, cause, repair: None, count: 0 });
    }

    fn insert(&mut self, annotation: Annotation) {
        let is_full = self.entries.len() >= ANNOTATIONS_HELD_MAX;
        let key = (annotation.severity, annotation.message.clone());
        match self.entries.entry(key) {
            Entry::Vacant(_) if is_full => {
                *self.beyond.entry(annotation.severity).or_default() += 1;
            }
            Entry::Vacant(entry) => {
                entry.insert(annotation);
            }
            Entry::Occupied(mut entry) => {
                let kept = entry.get_mut();
                kept.cause = later(kept.cause, annotation.cause);
                kept.count += annotation.count;
                kept.repair = match (kept.repair, annotation.repair) {
                    (Some(kept), Some(added)) => Some(kept.merge(&added)),
                    (kept, added) => kept.or(added),
                };
            }
        }
    }

    /// Adds all annotations of another set.
    pub fn merge(&mut self, other: Annotations) {
        for annotation in other.entries.into_values() {
            self.insert(annotation);
        }
        for (severity, count) in other.beyond {
            *self.beyond.entry(severity).or_default() += count;
        }
    }

    /// Returns whether there are no annotations.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns all annotations.
    pub fn iter(&self) -> impl Iterator<Item = &Annotation> {
        self.entries.values()
    }

    /// Returns the warnings and the infos as the API prints them, at most `limit` of each (0 for
    /// all), with a last line that counts the rest.
    ///
    /// Source: `Annotations.AsStrings` of Prometheus.
    pub fn to_strings(&self, query: &str, limit: usize) -> (Vec<String>, Vec<String>) {
        let render = |severity: Severity, kind: &str| {
            let mut lines = Vec::new();
            let mut omitted = self.beyond.get(&severity).copied().unwrap_or_default();
            for annotation in self.entries.values().filter(|a| a.severity == severity) {
                if limit > 0 && lines.len() >= limit {
                    omitted += 1;
                    continue;
                }
                let mut line = format!("PromQL {kind}: {}", annotation.message);
                if let Some(repair) = &annotation.repair {
                    line.push_str(&repair.to_text());
                }
                if annotation.count > 1 {
                    let _ = write!(line, " ({} occurrences)", annotation.count);
                }
                let (row, column) = row_and_column(query, annotation.cause.at.start as usize);
                let _ = write!(line, " ({row}:{column})");
                lines.push(line);
            }
            if omitted > 0 {
                lines.push(format!("{omitted} more {kind} annotations omitted"));
            }
            lines
        };
        (render(Severity::Warning, "warning"), render(Severity::Info, "info"))
    }
}

/// Returns the cause that Prometheus keeps for one message: the one evaluated later. That is the
/// outer of two nested calls, otherwise the later one in the query.
fn later(a: Cause, b: Cause) -> Cause {
    let contains = |outer: Span, inner: Span| outer.start <= inner.start && inner.end <= outer.end;
    match (contains(a.operands, b.operands), contains(b.operands, a.operands)) {
        (true, false) => a,
        (false, true) => b,
        _ => {
            std::cmp::max_by_key(a, b, |cause| (cause.operands.start, cause.at.start, cause.at.end))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u32) -> Span {
        Span { start, end: start + 1 }
    }

    #[test]
    fn a_message_is_kept_once_with_its_last_place() {
        let mut annotations = Annotations::default();
        annotations.warn("w", at(4));
        annotations.warn("w", at(2));
        let mut other = Annotations::default();
        other.warn("w", at(7));
        other.info("w", at(1));
        annotations.merge(other);
        let (warnings, infos) = annotations.to_strings("0123\n56789", 0);
        assert_eq!(warnings, ["PromQL warning: w (2:3)"]);
        assert_eq!(infos, ["PromQL info: w (1:2)"]);
    }

    #[test]
    fn of_nested_causes_the_outer_is_kept_wherever_it_is_shown() {
        let span = |start, end| Span { start, end };
        let inner = Cause { at: span(8, 9), operands: span(8, 12) };
        let outer = Cause { at: span(2, 3), operands: span(2, 13) };
        for (first, second) in [(inner, outer), (outer, inner)] {
            let mut annotations = Annotations::default();
            annotations.warn("w", first);
            annotations.warn("w", second);
            assert_eq!(annotations.iter().map(|a| a.cause).collect::<Vec<_>>(), [outer]);
        }
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let mut annotations = Annotations::default();
        for number in 0..2 * ANNOTATIONS_HELD_MAX {
            annotations.warn(number.to_string(), at(0));
        }
        assert_eq!(annotations.iter().count(), ANNOTATIONS_HELD_MAX);
        let (warnings, infos) = annotations.to_strings("", ANNOTATIONS_MAX);
        assert_eq!(warnings.len(), ANNOTATIONS_MAX + 1);
        assert_eq!(warnings[ANNOTATIONS_MAX], "1990 more warning annotations omitted");
        assert!(infos.is_empty());
    }
}
