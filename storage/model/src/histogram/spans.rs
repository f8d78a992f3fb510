//! Conversion between spans and bucket indices.

use std::ops::Range;

use super::Span;

/// Maximum absolute index that [`super::Histogram::validate`] accepts.
///
/// The finest schema covers all numbers with indices up to 2^18; the limit keeps every distance
/// between two buckets in an `i32`.
pub(super) const INDEX_MAX: i64 = 1 << 30;

/// Iterator over the bucket indices of one side, ascending: at most as many as the spans have, and
/// at most `len`, the number of counts.
#[derive(Clone)]
pub(super) struct Indices<'a> {
    spans: &'a [Span],
    next: i64,
    left_in_span: u32,
    left: usize,
}

impl<'a> Indices<'a> {
    pub(super) fn new(spans: &'a [Span], len: usize) -> Indices<'a> {
        Indices { spans, next: 0, left_in_span: 0, left: len }
    }

    /// Returns whether the next index is the first of a span.
    pub(super) fn at_span_start(&self) -> bool {
        self.left_in_span == 0
    }
}

impl Iterator for Indices<'_> {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        if self.left == 0 {
            return None;
        }
        while self.left_in_span == 0 {
            let (span, rest) = self.spans.split_first()?;
            self.spans = rest;
            self.next += i64::from(span.offset);
            self.left_in_span = span.length;
        }
        let index = self.next;
        self.next += 1;
        self.left_in_span -= 1;
        self.left -= 1;
        Some(index)
    }
}

/// Iterates over runs of adjacent buckets: the index of the first one, and the range of their counts.
fn runs(spans: &[Span], len: usize) -> impl Iterator<Item = (i64, Range<usize>)> + '_ {
    let (mut end, mut at) = (0, 0);
    spans.iter().map(move |span| {
        let first = end + i64::from(span.offset);
        end = first + i64::from(span.length);
        let counts = at..len.min(at + span.length as usize);
        at = counts.end;
        (first, counts)
    })
}

/// Passes to `show` the ranges of the other layout's counts, without the first `skipped` ones: in
/// this layout and in their own, run by run. Returns false at the first missing bucket.
///
/// Shape: spans and number of counts of each layout; the two ranges have the same length and are
/// within these numbers.
pub(super) fn shared_runs(
    own: (&[Span], usize),
    other: (&[Span], usize),
    skipped: usize,
    mut show: impl FnMut(Range<usize>, Range<usize>),
) -> bool {
    let mut own_runs = runs(own.0, own.1);
    let mut own_run = own_runs.next();
    for (first, counts) in runs(other.0, other.1) {
        let mut at = counts.start.max(skipped);
        let mut index = first + (at - counts.start) as i64;
        while at < counts.end {
            let Some((own_first, own_counts)) = &own_run else { return false };
            let Ok(ahead) = usize::try_from(index - own_first) else { return false };
            if ahead >= own_counts.len() {
                own_run = own_runs.next();
                continue;
            }
            let len = (own_counts.len() - ahead).min(counts.end - at);
            let start = own_counts.start + ahead;
            show(start..start + len, at..at + len);
            at += len;
            index += len as i64;
        }
    }
    true
}

/// Iterator over bucket indices, descending, each with the position of its count.
#[derive(Clone)]
pub(super) struct ReverseIndices<'a> {
    spans: &'a [Span],
    end: i64,
    left_in_span: u32,
    left: usize,
}

impl<'a> ReverseIndices<'a> {
    pub(super) fn new(spans: &'a [Span], len: usize) -> ReverseIndices<'a> {
        let (mut end, mut left) = (0, len);
        for (position, span) in spans.iter().enumerate() {
            let taken = u32::try_from(left).map_or(span.length, |left| left.min(span.length));
            end += i64::from(span.offset) + i64::from(taken);
            left -= taken as usize;
            if left == 0 {
                let spans = &spans[..=position];
                return ReverseIndices { spans, end, left_in_span: taken, left: len };
            }
        }
        let left_in_span = spans.last().map_or(0, |span| span.length);
        ReverseIndices { spans, end, left_in_span, left: len - left }
    }
}

impl Iterator for ReverseIndices<'_> {
    type Item = (usize, i64);

    #[inline]
    fn next(&mut self) -> Option<(usize, i64)> {
        if self.left == 0 {
            return None;
        }
        while self.left_in_span == 0 {
            let (last, rest) = self.spans.split_last()?;
            self.end -= i64::from(last.offset);
            self.left_in_span = rest.last()?.length;
            self.spans = rest;
        }
        self.end -= 1;
        self.left_in_span -= 1;
        self.left -= 1;
        Some((self.left, self.end))
    }
}

/// Builder of spans from ascending indices.
#[derive(Default)]
pub(super) struct SpanBuilder {
    spans: Vec<Span>,
    end: i64,
}

impl SpanBuilder {
    pub(super) fn with_capacity(spans: usize) -> SpanBuilder {
        SpanBuilder { spans: Vec::with_capacity(spans), end: 0 }
    }

    /// Returns the index after the last bucket, if there is one.
    #[inline]
    pub(super) fn end(&self) -> Option<i64> {
        (!self.spans.is_empty()).then_some(self.end)
    }

    /// Adds a bucket to the last span if adjacent, otherwise in a new span.
    #[inline]
    pub(super) fn push(&mut self, index: i64) {
        if self.end() == Some(index) {
            self.extend();
        } else {
            self.start(index);
        }
    }

    /// Adds the bucket after the last one.
    #[inline]
    pub(super) fn extend(&mut self) {
        if let Some(span) = self.spans.last_mut() {
            span.length = span.length.saturating_add(1);
            self.end += 1;
        }
    }

    /// Adds a bucket in a new span.
    #[inline]
    pub(super) fn start(&mut self, index: i64) {
        let offset = saturating_i32(index - self.end);
        self.spans.push(Span { offset, length: 1 });
        self.end = index + 1;
    }

    pub(super) fn finish(self) -> Vec<Span> {
        self.spans
    }
}

fn saturating_i32(value: i64) -> i32 {
    value.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

/// Returns the index of a bucket in a schema that is coarser by `shift`.
#[inline]
pub(super) fn coarser_index(index: i64, shift: u32) -> i64 {
    ((index - 1) >> shift) + 1
}

/// Returns the layout in a schema that is coarser by `shift`: spans, and for each bucket the position
/// of the one that it is merged into, ascending.
///
/// Shape: one position for each bucket, below the number of buckets of the spans.
///
/// Source: `reduceResolution` in `model/histogram/generic.go` of Prometheus.
pub(super) fn coarser_layout(spans: &[Span], len: usize, shift: u32) -> (Vec<Span>, Vec<usize>) {
    let mut out = SpanBuilder::with_capacity(spans.len().min(len));
    let mut positions = Vec::with_capacity(len);
    let mut count = 0;
    for index in Indices::new(spans, len) {
        let index = coarser_index(index, shift);
        if out.end().is_none_or(|end| index >= end) {
            out.push(index);
            count += 1;
        }
        positions.push(count - 1);
    }
    (out.finish(), positions)
}

/// Sums cells by the positions of [`coarser_layout`].
pub(super) fn merged<T: Copy>(cells: &[T], positions: &[usize], add: impl Fn(T, T) -> T) -> Vec<T> {
    let mut merged: Vec<T> = Vec::with_capacity(positions.last().map_or(0, |last| last + 1));
    for (&cell, &position) in cells.iter().zip(positions) {
        match merged.get_mut(position) {
            Some(target) => *target = add(*target, cell),
            None => merged.push(cell),
        }
    }
    merged
}

/// Returns whether both have the same spans, ignoring those without buckets.
///
/// Adjacent spans differ from one long span.
///
/// Source: `spansMatch` in `model/histogram/histogram.go` of Prometheus.
pub(super) fn same_layout(left: &[Span], right: &[Span]) -> bool {
    left == right || populated(left).eq(populated(right))
}

fn populated(spans: &[Span]) -> impl Iterator<Item = (i64, u32)> {
    let mut offset = 0;
    spans.iter().filter_map(move |span| {
        offset += i64::from(span.offset);
        (span.length > 0).then(|| (std::mem::take(&mut offset), span.length))
    })
}
