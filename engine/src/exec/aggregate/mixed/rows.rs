//! Output rows that are created by the first write.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Histogram, Reservation};

use super::wave::Sample;
use crate::error::QueryError;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, SeriesMeta};
use crate::steps::Steps;
use crate::tile::{histogram_bytes, is_present, set_present};

/// Rows sorted by key.
pub(super) struct Rows<K> {
    rows: BTreeMap<K, Row>,
    steps: Steps,
    reservation: Reservation,
}

/// Invariant: `histograms` has one cell per step if there is a histogram, and is empty otherwise.
#[derive(Default)]
struct Row {
    values: Vec<f64>,
    presence: Vec<u64>,
    histograms: Vec<Option<Arc<Histogram>>>,
}

impl<K: Ord> Rows<K> {
    /// Creates an empty set of rows.
    pub(super) fn new(ctx: &Context, steps: Steps) -> Result<Rows<K>, QueryError> {
        Ok(Rows { rows: BTreeMap::new(), steps, reservation: Reservation::new(&ctx.budget, 0)? })
    }

    /// Writes the value of a series at a step.
    ///
    /// Errors: the memory limit of the query.
    pub(super) fn put(
        &mut self,
        key: K,
        step: usize,
        sample: Sample<'_>,
    ) -> Result<(), QueryError> {
        let count = self.steps.count;
        match sample {
            Sample::Float(value) => {
                let row = self.row(key, 0)?;
                row.values[step] = value;
                set_present(&mut row.presence, step);
            }
            Sample::Histogram(histogram) => {
                let before = step.checked_sub(1);
                let row = self.row(key, 0)?;
                let mut bytes = 0;
                if row.histograms.is_empty() {
                    bytes += count * size_of::<Option<Arc<Histogram>>>();
                    row.histograms = vec![None; count];
                }
                let before = before.and_then(|before| row.histograms[before].as_ref());
                if before.is_none_or(|before| !Arc::ptr_eq(before, histogram)) {
                    bytes += size_of::<Histogram>() + histogram.heap_bytes();
                }
                row.histograms[step] = Some(Arc::clone(histogram));
                self.reservation.grow(bytes as u64)?;
            }
        }
        Ok(())
    }

    /// Adds 1 to the value of the row `key` at a step; absent values count as 0. `key_bytes` is the
    /// heap size of the key.
    ///
    /// Errors: the memory limit of the query.
    pub(super) fn count(
        &mut self,
        key: K,
        step: usize,
        key_bytes: usize,
    ) -> Result<(), QueryError> {
        let row = self.row(key, key_bytes)?;
        let before = if is_present(&row.presence, step) { row.values[step] } else { 0.0 };
        row.values[step] = before + 1.0;
        set_present(&mut row.presence, step);
        Ok(())
    }

    fn row(&mut self, key: K, key_bytes: usize) -> Result<&mut Row, QueryError> {
        let (count, words) = (self.steps.count, self.steps.count.div_ceil(64));
        let row = self.rows.entry(key).or_default();
        if row.values.is_empty() {
            self.reservation.grow(((count + words) * 8 + key_bytes) as u64)?;
            row.values = vec![0.0; count];
            row.presence = vec![0; words];
        }
        Ok(row)
    }

    /// Returns the rows in the order of their keys, as series.
    ///
    /// Errors: the memory limit of the query.
    pub(super) fn finish(
        mut self,
        ctx: &Context,
        meta: impl Fn(&K) -> SeriesMeta,
    ) -> Result<Matrix, QueryError> {
        let metas = self.rows.keys().map(meta).collect();
        let has_histograms = self.rows.values().any(|row| !row.histograms.is_empty());
        let mut matrix = if has_histograms {
            Matrix::with_histograms(ctx, metas, self.steps)?
        } else {
            Matrix::new(ctx, metas, self.steps)?
        };
        for (index, row) in std::mem::take(&mut self.rows).into_values().enumerate() {
            let (values, presence) = matrix.row_mut(index);
            values.copy_from_slice(&row.values);
            presence.copy_from_slice(&row.presence);
            // The matrix charges for the histograms now.
            self.reservation.shrink(histogram_bytes(&row.histograms));
            for (step, histogram) in row.histograms.into_iter().enumerate() {
                if let Some(histogram) = histogram {
                    matrix.set_histogram(index, step, histogram)?;
                }
            }
        }
        Ok(matrix)
    }
}
