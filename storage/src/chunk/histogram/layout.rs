//! Bucket layout of a histogram, which most samples of a chunk share.

use std::borrow::Cow;
use std::sync::Arc;

pub use model::histogram::HISTOGRAM_BUCKETS_MAX;
use model::{Histogram, Span};

/// Exclusive upper bound of counts that are stored as whole numbers.
const INTEGER_LIMIT: f64 = (1_u64 << 53) as f64;

/// Bucket layout of consecutive samples: the bucket that each column counts.
///
/// Invariant: the spans are those that [`canonical_spans`] returns, and their lengths add up to the
/// number of buckets of each side.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Set if counts are stored as whole numbers.
    pub(super) is_integer: bool,
    pub(super) schema: i8,
    pub(super) zero_threshold: f64,
    pub(super) positive_spans: Vec<Span>,
    pub(super) negative_spans: Vec<Span>,
    pub(super) positive_len: usize,
    pub(super) negative_len: usize,
    pub(super) custom_bounds: Arc<[f64]>,
}

impl Layout {
    /// Returns a layout without buckets, for whole numbers.
    pub(super) fn empty() -> Layout {
        Layout {
            is_integer: true,
            schema: 0,
            zero_threshold: 0.0,
            positive_spans: Vec::new(),
            negative_spans: Vec::new(),
            positive_len: 0,
            negative_len: 0,
            custom_bounds: Arc::default(),
        }
    }

    /// Returns the layout of a histogram.
    pub(super) fn of(histogram: &Histogram, is_integer: bool) -> Layout {
        Layout {
            is_integer,
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold,
            positive_spans: canonical_spans(&histogram.positive_spans).into_owned(),
            negative_spans: canonical_spans(&histogram.negative_spans).into_owned(),
            positive_len: histogram.positive_counts.len(),
            negative_len: histogram.negative_counts.len(),
            custom_bounds: Arc::clone(&histogram.custom_bounds),
        }
    }

    /// Returns whether a histogram has the same buckets.
    pub(super) fn fits(&self, histogram: &Histogram) -> bool {
        self.has_scale_of(histogram.schema, histogram.zero_threshold, &histogram.custom_bounds)
            && self.positive_spans == *canonical_spans(&histogram.positive_spans)
            && self.negative_spans == *canonical_spans(&histogram.negative_spans)
    }

    /// Returns whether buckets with the same index have the same bounds.
    fn has_scale_of(&self, schema: i8, zero_threshold: f64, custom_bounds: &Arc<[f64]>) -> bool {
        self.schema == schema
            && self.zero_threshold.to_bits() == zero_threshold.to_bits()
            && (Arc::ptr_eq(&self.custom_bounds, custom_bounds)
                || same_bits(&self.custom_bounds, custom_bounds))
    }

    /// Returns the number of columns before the buckets: the zero bucket and, for floats, the
    /// count.
    pub(super) fn leading_columns(&self) -> usize {
        if self.is_integer { 1 } else { 2 }
    }

    /// Returns the number of columns.
    pub(super) fn column_count(&self) -> usize {
        self.leading_columns() + self.positive_len + self.negative_len
    }

    /// Maps the columns of the previous layout to this one: common buckets keep their columns, new
    /// ones start empty.
    pub(super) fn carry<C: Copy + Default>(&self, before: &Layout, columns: &[C]) -> Vec<C> {
        let mut carried = vec![C::default(); self.column_count()];
        let is_same_scale = self.is_integer == before.is_integer
            && before.has_scale_of(self.schema, self.zero_threshold, &self.custom_bounds);
        if !is_same_scale || columns.len() != before.column_count() {
            return carried;
        }
        let leading = self.leading_columns();
        carried[..leading].copy_from_slice(&columns[..leading]);
        let sides = [
            (&self.positive_spans, &before.positive_spans, leading, leading),
            (
                &self.negative_spans,
                &before.negative_spans,
                leading + self.positive_len,
                leading + before.positive_len,
            ),
        ];
        for (spans, spans_before, at, at_before) in sides {
            let mut old = bucket_indices(spans_before).zip(&columns[at_before..]).peekable();
            for (index, column) in bucket_indices(spans).zip(&mut carried[at..]) {
                while old.next_if(|(other, _)| *other < index).is_some() {}
                if let Some((_, same)) = old.next_if(|(other, _)| *other == index) {
                    *column = *same;
                }
            }
        }
        carried
    }
}

/// Returns the index of each bucket, ascending except for overlapping spans.
fn bucket_indices(spans: &[Span]) -> impl Iterator<Item = i64> {
    let mut next = 0_i64;
    spans.iter().flat_map(move |span| {
        let first = next + i64::from(span.offset);
        next = first + i64::from(span.length);
        first..next
    })
}

/// Removes empty spans, and joins adjacent ones: the same buckets in the fewest spans.
pub(crate) fn canonical_spans(spans: &[Span]) -> Cow<'_, [Span]> {
    let is_canonical =
        spans.iter().enumerate().all(|(at, span)| span.length > 0 && (at == 0 || span.offset != 0));
    if is_canonical {
        return Cow::Borrowed(spans);
    }
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    let mut gap = 0_i32;
    for span in spans {
        gap = gap.wrapping_add(span.offset);
        if span.length == 0 {
            continue;
        }
        match merged.last_mut() {
            Some(last) if gap == 0 => last.length = last.length.saturating_add(span.length),
            _ => merged.push(Span { offset: gap, length: span.length }),
        }
        gap = 0;
    }
    Cow::Owned(merged)
}

/// Returns whether a chunk can hold a histogram: its spans match its counts, and there are at most
/// [`HISTOGRAM_BUCKETS_MAX`].
pub fn is_storable(histogram: &Histogram) -> bool {
    let adds_up = |spans: &[Span], counts: &[f64]| {
        spans.iter().map(|span| u64::from(span.length)).sum::<u64>() == counts.len() as u64
    };
    histogram.positive_counts.len() + histogram.negative_counts.len() <= HISTOGRAM_BUCKETS_MAX
        && histogram.custom_bounds.len() <= HISTOGRAM_BUCKETS_MAX
        && adds_up(&histogram.positive_spans, &histogram.positive_counts)
        && adds_up(&histogram.negative_spans, &histogram.negative_counts)
}

/// Returns whether all counts can be stored as whole numbers.
pub(super) fn has_integer_counts(histogram: &Histogram) -> bool {
    integer(histogram.count).is_some()
        && integer(histogram.zero_count).is_some()
        && histogram.positive_counts.iter().all(|count| integer(*count).is_some())
        && histogram.negative_counts.iter().all(|count| integer(*count).is_some())
}

/// Returns a count as a whole number, if that reproduces its bits.
#[inline]
pub(super) fn integer(count: f64) -> Option<i64> {
    let whole = count as i64;
    (count < INTEGER_LIMIT && whole >= 0 && (whole as f64).to_bits() == count.to_bits())
        .then_some(whole)
}

pub(super) fn same_bits(left: &[f64], right: &[f64]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(l, r)| l.to_bits() == r.to_bits())
}
