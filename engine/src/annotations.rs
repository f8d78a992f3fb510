//! Warnings and infos, which travel beside a result.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Annotation {
    /// How much it matters.
    pub severity: Severity,
    /// The message without the `PromQL …:` prefix and without the position.
    pub message: String,
    /// Where its cause stands, if it stands in the query.
    pub position: Option<(u32, u32)>,
}

/// A set of annotations: each message and position once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations {
    entries: BTreeMap<Annotation, ()>,
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

    fn add(&mut self, severity: Severity, message: String, span: Span) {
        let position = Some((span.start, span.end));
        self.entries.insert(Annotation { severity, message, position }, ());
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: Annotations) {
        self.entries.extend(other.entries);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All annotations.
    pub fn iter(&self) -> impl Iterator<Item = &Annotation> {
        self.entries.keys()
    }

    /// The warnings and the infos as the API prints them, at most `limit` of each
    /// (0 for all), with a last line that counts the rest.
    ///
    /// Source: `Annotations.AsStrings` of Prometheus.
    pub fn to_strings(&self, query: &str, limit: usize) -> (Vec<String>, Vec<String>) {
        let render = |severity: Severity, kind: &str| {
            let mut lines = Vec::new();
            let mut omitted = 0;
            for annotation in self.entries.keys().filter(|a| a.severity == severity) {
                if limit > 0 && lines.len() >= limit {
                    omitted += 1;
                    continue;
                }
                let mut line = format!("PromQL {kind}: {}", annotation.message);
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
