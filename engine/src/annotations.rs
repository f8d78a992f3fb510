//! Warnings and infos, which travel beside a result.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;

use crate::functions::rfc3339;
use crate::number_text::{general, general_rounded};
use crate::parse::ast::Span;

/// At most so many annotations of a kind are kept; what is beyond is counted.
pub const ANNOTATIONS_MAX: usize = 10;

/// How much an annotation matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `PromQL warning: …`: the result may be wrong.
    Warning,
    /// `PromQL info: …`: the query may not mean what its author thinks.
    Info,
}

/// One annotation: a message and where in the query its cause stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation {
    /// How much it matters.
    pub severity: Severity,
    /// The message without the `PromQL …:` prefix and without the position.
    pub message: String,
    /// Where its cause stands, if it stands in the query.
    pub position: Option<(u32, u32)>,
    /// What was mended, where buckets were.
    pub repair: Option<BucketRepair>,
}

/// What was done to the buckets of classic histograms to make their counts ascend.
///
/// Units: bounds and counts as in the data; times in ms since the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BucketRepair {
    /// The least upper bound of a mended bucket.
    pub bound_min: f64,
    /// The greatest upper bound of a mended bucket.
    pub bound_max: f64,
    /// The greatest difference that was made up.
    pub difference_max: f64,
    /// The first time.
    pub start_ms: i64,
    /// The last time.
    pub end_ms: i64,
    /// How many histograms, each time counted.
    pub histogram_count: u64,
}

impl BucketRepair {
    /// What follows the message.
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

    /// This repair and another.
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

/// A set of annotations: each message once. Of several places with one message the last
/// in the query is kept.
///
/// Source: `Annotations` of Prometheus, which tells them apart by their texts alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    entries: BTreeMap<(Severity, String), Annotation>,
}

impl Annotations {
    /// Adds a warning.
    pub fn warn(&mut self, message: impl Into<String>, span: Span) {
        self.add(Severity::Warning, message.into(), span);
    }

    /// Adds an info.
    pub fn info(&mut self, message: impl Into<String>, span: Span) {
        self.add(Severity::Info, message.into(), span);
    }

    /// Adds the info that buckets were mended.
    pub fn info_repair(&mut self, message: impl Into<String>, span: Span, repair: BucketRepair) {
        self.insert(Annotation {
            severity: Severity::Info,
            message: message.into(),
            position: Some((span.start, span.end)),
            repair: Some(repair),
        });
    }

    fn add(&mut self, severity: Severity, message: String, span: Span) {
        let position = Some((span.start, span.end));
        self.insert(Annotation { severity, message, position, repair: None });
    }

    fn insert(&mut self, annotation: Annotation) {
        let key = (annotation.severity, annotation.message.clone());
        match self.entries.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(annotation);
            }
            Entry::Occupied(mut entry) => {
                let kept = entry.get_mut();
                kept.position = kept.position.max(annotation.position);
                kept.repair = match (kept.repair, annotation.repair) {
                    (Some(kept), Some(added)) => Some(kept.merge(&added)),
                    (kept, added) => kept.or(added),
                };
            }
        }
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: Annotations) {
        for annotation in other.entries.into_values() {
            self.insert(annotation);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All annotations.
    pub fn iter(&self) -> impl Iterator<Item = &Annotation> {
        self.entries.values()
    }

    /// The warnings and the infos as the API prints them, at most `limit` of each
    /// (0 for all), with a last line that counts the rest.
    ///
    /// Source: `Annotations.AsStrings` of Prometheus.
    pub fn to_strings(&self, query: &str, limit: usize) -> (Vec<String>, Vec<String>) {
        let render = |severity: Severity, kind: &str| {
            let mut lines = Vec::new();
            let mut omitted = 0;
            for annotation in self.entries.values().filter(|a| a.severity == severity) {
                if limit > 0 && lines.len() >= limit {
                    omitted += 1;
                    continue;
                }
                let mut line = format!("PromQL {kind}: {}", annotation.message);
                if let Some(repair) = &annotation.repair {
                    line.push_str(&repair.to_text());
                }
                if let Some((start, _)) = annotation.position {
                    let (row, column) = row_and_column(query, start as usize);
                    let _ = write!(line, " ({row}:{column})");
                }
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

/// Row and column of a byte of the query, both from 1, columns in bytes.
///
/// Source: `PositionRange.StartPosInput` of Prometheus.
pub fn row_and_column(query: &str, offset: usize) -> (usize, usize) {
    let before = &query.as_bytes()[..offset.min(query.len())];
    let row = 1 + before.iter().filter(|b| **b == b'\n').count();
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    (row, 1 + before.len() - line_start)
}
