//! Output rows whose series become known only with their values.

use std::sync::Arc;

use hashbrown::HashMap;
use model::checkpoint::sort_by;
use model::{Checkpoint, Histogram, Labels, Reservation};

use crate::error::QueryError;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, SeriesMeta};
use crate::steps::Steps;
use crate::tile::{HistogramCell, is_present, set_present};

/// Rows that are created when values for new label sets occur.
///
/// Invariant: a label set has one row per realm (a number by which the caller keeps rows apart);
/// the rows' bytes are charged to the query's budget.
pub struct FoundRows {
    steps: Steps,
    reservation: Reservation,
    slot_of: HashMap<(Labels, u32), u32, foldhash::fast::RandomState>,
    rows: Vec<FoundRow>,
}

/// Bytes of a row in addition to its cells and labels: itself and its entry.
const ROW_BYTES: usize = 2 * (size_of::<FoundRow>() + size_of::<((Labels, u32), u32)>());

struct FoundRow {
    meta: SeriesMeta,
    place: (u8, u32),
    values: Vec<f64>,
    presence: Vec<u64>,
    /// Empty until there is a histogram.
    histograms: Vec<HistogramCell>,
    /// Memory charged for the histograms.
    histogram_bytes: u64,
}

impl FoundRows {
    /// Creates an empty set of rows.
    pub fn new(ctx: &Context, steps: Steps) -> Result<FoundRows, QueryError> {
        let reservation = Reservation::new(&ctx.budget, 0)?;
        Ok(FoundRows { steps, reservation, slot_of: HashMap::default(), rows: Vec::new() })
    }

    /// Returns the row of a label set in `realm`; creates it if needed. Rows are finally sorted by
    /// the smallest `place` of their calls.
    pub fn slot(
        &mut self,
        meta: SeriesMeta,
        realm: u32,
        place: (u8, u32),
    ) -> Result<u32, QueryError> {
        let key = (meta.labels.clone(), realm);
        if let Some(slot) = self.slot_of.get(&key) {
            let row = &mut self.rows[*slot as usize];
            row.place = row.place.min(place);
            return Ok(*slot);
        }
        let words = self.steps.count.div_ceil(64);
        let label_bytes = meta.labels.as_bytes().len();
        self.reservation.grow(((self.steps.count + words) * 8 + label_bytes + ROW_BYTES) as u64)?;
        let slot = self.rows.len() as u32;
        self.slot_of.insert(key, slot);
        let (values, presence) = (vec![0.0; self.steps.count], vec![0; words]);
        let histograms = Vec::new();
        let row = FoundRow { meta, place, values, presence, histograms, histogram_bytes: 0 };
        self.rows.push(row);
        Ok(slot)
    }

    /// Writes a value; returns false if there is one already.
    pub fn set(&mut self, slot: u32, step: usize, value: f64) -> bool {
        let row = &mut self.rows[slot as usize];
        if row.is_taken(step) {
            return false;
        }
        set_present(&mut row.presence, step);
        row.values[step] = value;
        true
    }

    /// Writes a histogram; returns false if there is a value already.
    ///
    /// Errors: the memory limit of the query.
    pub fn set_histogram(
        &mut self,
        slot: u32,
        step: usize,
        histogram: Arc<Histogram>,
    ) -> Result<bool, QueryError> {
        let row = &mut self.rows[slot as usize];
        if row.is_taken(step) {
            return Ok(false);
        }
        let plane = if row.histograms.is_empty() { self.steps.count } else { 0 };
        let bytes = (size_of::<Histogram>() + histogram.heap_bytes()) as u64;
        row.histogram_bytes += bytes;
        self.reservation.grow((plane * size_of::<HistogramCell>()) as u64 + bytes)?;
        row.histograms.resize(self.steps.count, None);
        row.histograms[step] = Some(histogram);
        Ok(true)
    }

    /// Converts the rows to a matrix.
    ///
    /// Errors: the limits of the query.
    pub fn into_matrix(mut self, ctx: &Context) -> Result<Matrix, QueryError> {
        let mut checkpoint = Checkpoint::new(&ctx.budget);
        let rows = sort_by(self.rows, &mut checkpoint, |_| 1, |a, b| a.place.cmp(&b.place))?;
        let series = rows.iter().map(|row| row.meta.clone()).collect();
        let mut matrix = if rows.iter().any(|row| !row.histograms.is_empty()) {
            Matrix::with_histograms(ctx, series, self.steps)?
        } else {
            Matrix::new(ctx, series, self.steps)?
        };
        for (index, row) in rows.into_iter().enumerate() {
            checkpoint.work(row.values.len())?;
            let (values, presence) = matrix.row_mut(index);
            values.copy_from_slice(&row.values);
            presence.copy_from_slice(&row.presence);
            // The matrix charges for the histograms now.
            self.reservation.shrink(row.histogram_bytes);
            for (step, histogram) in row.histograms.into_iter().enumerate() {
                if let Some(histogram) = histogram {
                    matrix.set_histogram(index, step, histogram)?;
                }
            }
        }
        Ok(matrix)
    }
}

impl FoundRow {
    fn is_taken(&self, step: usize) -> bool {
        is_present(&self.presence, step) || self.histograms.get(step).is_some_and(Option::is_some)
    }
}
