//! Positions in the text of a query.

/// A range of bytes of the query text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Index after the last byte.
    pub end: u32,
}

impl Span {
    /// Returns the span from the first to the last byte of `spans`; empty if there are none.
    pub fn hull(spans: impl IntoIterator<Item = Span>) -> Span {
        let hull = |a: Span, b: Span| Span { start: a.start.min(b.start), end: a.end.max(b.end) };
        spans.into_iter().reduce(hull).unwrap_or_default()
    }
}

/// Returns row and column of a byte of the query, both from 1; columns count bytes.
///
/// Source: `PositionRange.StartPosInput` of Prometheus.
pub fn row_and_column(query: &str, offset: usize) -> (usize, usize) {
    let before = &query.as_bytes()[..offset.min(query.len())];
    let row = 1 + before.iter().filter(|b| **b == b'\n').count();
    let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    (row, 1 + before.len() - line_start)
}
