//! Buckets on one side of zero, and operations that change their layout.

use super::Span;
use super::cell::{Cell, Summed};
use super::spans::{Indices, SpanBuilder, coarser_layout, merged, shared_runs};

/// Spans with their cells.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer<C> {
    pub(super) spans: Vec<Span>,
    pub(super) cells: Vec<C>,
}

impl<C: Cell> Layer<C> {
    /// Iterates over indices and cells, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, C)> + '_ {
        Indices::new(&self.spans, self.cells.len()).zip(self.cells.iter().copied())
    }

    /// Merges buckets into those of a schema that is coarser by `shift`.
    ///
    /// Source: `reduceResolution` and `kahanReduceResolution` in `model/histogram` of Prometheus.
    pub(super) fn coarsen(&mut self, shift: u32) {
        let (spans, positions) = coarser_layout(&self.spans, self.cells.len(), shift);
        let cells = merged(&self.cells, &positions, C::absorb);
        *self = Layer { spans, cells };
    }

    /// Adds counts times `sign`, like [`Layer::merge`]. Allocates only if a bucket is missing.
    pub(super) fn merge_counts(
        &mut self,
        spans: &[Span],
        counts: &[f64],
        skipped: usize,
        sign: f64,
    ) {
        let add = |cells: &mut [C], counts: &[f64]| {
            for (cell, count) in cells.iter_mut().zip(counts) {
                *cell = cell.plus(sign * count);
            }
        };
        let len = self.cells.len();
        if self.spans == spans && len == counts.len() {
            add(&mut self.cells[skipped..], &counts[skipped..]);
        } else if shared_runs((&self.spans, len), (spans, counts.len()), skipped, |_, _| {}) {
            let cells = &mut self.cells;
            shared_runs((&self.spans, len), (spans, counts.len()), skipped, |own, other| {
                add(&mut cells[own], &counts[other]);
            });
        } else {
            self.merge(spans, counts.iter().map(|count| C::new(sign * count)), skipped);
        }
    }

    /// Adds the buckets of another layer without its first `skipped` ones.
    ///
    /// A missing bucket is inserted at the end of the previous span if adjacent, else at the start of
    /// the next span if adjacent, else in its own span. Spans that become adjacent are not joined.
    ///
    /// Source: `addBuckets` and `kahanAddBuckets` in `model/histogram/float_histogram.go` of
    /// Prometheus.
    pub(super) fn merge(
        &mut self,
        spans: &[Span],
        others: impl Iterator<Item = C>,
        skipped: usize,
    ) {
        let others = others.skip(skipped);
        if self.spans == spans {
            let own = self.cells.iter_mut().skip(skipped);
            own.zip(others).for_each(|(cell, other)| *cell = cell.merge(other));
            return;
        }
        let others: Vec<C> = others.collect();
        let indices = Indices::new(spans, skipped + others.len()).skip(skipped);
        let union = Union::new(&self.spans, self.cells.len(), indices);
        if union.others.iter().any(|position| matches!(position, Position::New(_))) {
            let mut cells = vec![C::new(0.0); union.len];
            for (cell, position) in self.cells.iter().zip(union.own) {
                cells[position] = *cell;
            }
            *self = Layer { spans: union.spans, cells };
        }
        for (other, position) in others.into_iter().zip(union.others) {
            match position {
                Position::New(at) => self.cells[at] = other,
                Position::Shared(at) => self.cells[at] = self.cells[at].merge(other),
            }
        }
    }

    /// Removes empty buckets at the ends of spans, and runs of more than `empty_max` of them in the
    /// middle; then fills gaps of up to `empty_max` buckets. No adjacent spans remain.
    ///
    /// Source: `compactBuckets` in `model/histogram/generic.go` of Prometheus.
    pub(super) fn compact(&mut self, empty_max: usize) {
        let is_apart = |span: &Span| usize::try_from(span.offset).is_ok_and(|gap| gap > empty_max);
        let is_compact = self.cells.iter().all(|cell| cell.count() != 0.0)
            && self.spans.iter().all(|span| span.length > 0)
            && self.spans.iter().skip(1).all(is_apart);
        if is_compact {
            return;
        }
        let kept = self.without_empty_runs(empty_max);
        let mut spans = SpanBuilder::with_capacity(self.spans.len());
        let mut cells = Vec::with_capacity(kept.len());
        for (index, cell) in kept {
            if let Some(end) = spans.end()
                && index > end
                && usize::try_from(index - end).is_ok_and(|gap| gap <= empty_max)
            {
                for _ in end..index {
                    spans.extend();
                    cells.push(C::new(0.0));
                }
            }
            spans.push(index);
            cells.push(cell);
        }
        *self = Layer { spans: spans.finish(), cells };
    }

    /// Returns the buckets without the empty ones at the ends of each run of adjacent buckets, and
    /// without any more than `empty_max` empty ones in a row.
    fn without_empty_runs(&self, empty_max: usize) -> Vec<(i64, C)> {
        let mut kept: Vec<(i64, C)> = Vec::with_capacity(self.cells.len());
        // Empty buckets after the last kept one, adjacent to it.
        let mut empty: Vec<(i64, C)> = Vec::new();
        for (index, cell) in self.iter() {
            let end = empty.last().or(kept.last()).map(|(last, _)| last + 1);
            if end != Some(index) {
                empty.clear();
            }
            if !cell.is_empty() {
                if empty.len() <= empty_max {
                    kept.append(&mut empty);
                }
                empty.clear();
                kept.push((index, cell));
            } else if end == Some(index) {
                empty.push((index, cell));
            }
        }
        kept
    }

    /// Returns the custom buckets of sums that are not empty.
    ///
    /// Source: `addCustomBucketsWithMismatches` in `model/histogram/float_histogram.go` of
    /// Prometheus.
    pub(super) fn from_sums(sums: &[Summed]) -> Layer<C> {
        let mut spans = SpanBuilder::default();
        let mut cells = Vec::new();
        for (index, sum) in (0..).zip(sums).filter(|(_, sum)| !sum.is_empty()) {
            spans.push(index);
            cells.push(C::from_summed(*sum));
        }
        Layer { spans: spans.finish(), cells }
    }
}

/// Adds the cells of custom buckets to sums by other bounds, which are a subset of their own.
///
/// Shape: `sums` has one element for each of `bounds` and one for +Inf.
pub(super) fn pour_into<C: Cell>(
    buckets: impl Iterator<Item = (i64, C)>,
    own_bounds: &[f64],
    bounds: &[f64],
    sums: &mut [Summed],
) {
    let mut target = 0;
    for (index, cell) in buckets {
        match usize::try_from(index).ok().and_then(|index| own_bounds.get(index)) {
            Some(own) => {
                while bounds.get(target).is_some_and(|bound| bound < own) {
                    target += 1;
                }
            }
            None => target = bounds.len(),
        }
        sums[target] = cell.pour_into(sums[target]);
    }
}

/// Position of a bucket of the other layer in the union.
enum Position {
    New(usize),
    Shared(usize),
}

/// Union of two layouts.
struct Union {
    spans: Vec<Span>,
    len: usize,
    /// Positions of the own buckets, ascending.
    own: Vec<usize>,
    /// Positions of the other's buckets, ascending.
    others: Vec<Position>,
}

impl Union {
    fn new(own_spans: &[Span], own_len: usize, others: impl Iterator<Item = i64>) -> Union {
        let mut own = OwnBuckets::new(own_spans, own_len);
        let mut spans = SpanBuilder::with_capacity(own_spans.len() + 1);
        let mut union = Union { spans: Vec::new(), len: 0, own: Vec::new(), others: Vec::new() };
        union.own.reserve(own_len);
        for index in others {
            while own.next.is_some_and(|(next, _)| next < index) {
                union.take_own(&mut own, &mut spans);
            }
            match own.next {
                Some((next, _)) if next == index => {
                    union.others.push(Position::Shared(union.len));
                    union.take_own(&mut own, &mut spans);
                }
                next => {
                    union.others.push(Position::New(union.len));
                    union.len += 1;
                    if spans.end() == Some(index) {
                        spans.extend();
                    } else {
                        spans.start(index);
                        own.joins = next.is_some_and(|(next, _)| next == index + 1);
                    }
                }
            }
        }
        while own.next.is_some() {
            union.take_own(&mut own, &mut spans);
        }
        union.spans = spans.finish();
        union
    }

    fn take_own(&mut self, own: &mut OwnBuckets<'_>, spans: &mut SpanBuilder) {
        if let Some((index, starts_span)) = own.take() {
            self.own.push(self.len);
            self.len += 1;
            let joins = std::mem::take(&mut own.joins);
            if starts_span && !joins { spans.start(index) } else { spans.extend() }
        }
    }
}

/// Iterator over the buckets of the own layout.
struct OwnBuckets<'a> {
    indices: Indices<'a>,
    /// Next bucket, and whether it is the first of its span.
    next: Option<(i64, bool)>,
    /// True if the next bucket, the first of its span, joins the span of the bucket before it.
    joins: bool,
}

impl<'a> OwnBuckets<'a> {
    fn new(spans: &'a [Span], len: usize) -> OwnBuckets<'a> {
        let mut own = OwnBuckets { indices: Indices::new(spans, len), next: None, joins: false };
        own.take();
        own
    }

    fn take(&mut self) -> Option<(i64, bool)> {
        let starts_span = self.indices.at_span_start();
        let next = self.indices.next().map(|index| (index, starts_span));
        std::mem::replace(&mut self.next, next)
    }
}
