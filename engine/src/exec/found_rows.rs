//! Rows of an output whose series are not known before its values.

use hashbrown::HashMap;
use model::Labels;
use model::watch::sort_by;

use crate::error::QueryError;
use crate::exec::charge::Charge;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, SeriesMeta};
use crate::exec::watch::Watch;
use crate::tile::{is_present, set_present};
use crate::window::Steps;

/// Rows that are made as values for new label sets come up.
///
/// Invariant: a label set has one row in a realm (a number that the caller chooses to keep
/// rows apart); the rows' bytes are charged to the query's budget.
pub struct FoundRows {
    steps: Steps,
    charge: Charge,
    slot_of: HashMap<(Labels, u32), u32, foldhash::fast::RandomState>,
    rows: Vec<FoundRow>,
}

/// What a row takes beside its cells and the bytes of its labels: itself and its entry.
const ROW_BYTES: usize = 2 * (size_of::<FoundRow>() + size_of::<((Labels, u32), u32)>());

struct FoundRow {
    meta: SeriesMeta,
    place: (u8, u32),
    values: Vec<f64>,
    presence: Vec<u64>,
}

impl FoundRows {
    /// No rows yet.
    pub fn new(ctx: &Context, steps: Steps) -> Result<FoundRows, QueryError> {
        let charge = Charge::new(&ctx.budget, 0)?;
        Ok(FoundRows { steps, charge, slot_of: HashMap::default(), rows: Vec::new() })
    }

    /// The row of a label set in a realm, made where there is none yet. Rows end up in the order
    /// of their least places.
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
        self.charge.grow(((self.steps.count + words) * 8 + label_bytes + ROW_BYTES) as u64)?;
        let slot = self.rows.len() as u32;
        self.slot_of.insert(key, slot);
        let (values, presence) = (vec![0.0; self.steps.count], vec![0; words]);
        self.rows.push(FoundRow { meta, place, values, presence });
        Ok(slot)
    }

    /// Writes a value; false where there is one already.
    pub fn set(&mut self, slot: u32, step: usize, value: f64) -> bool {
        let row = &mut self.rows[slot as usize];
        if is_present(&row.presence, step) {
            return false;
        }
        set_present(&mut row.presence, step);
        row.values[step] = value;
        true
    }

    /// All rows as a matrix.
    ///
    /// Errors: the limits of the query.
    pub fn into_matrix(self, ctx: &Context) -> Result<Matrix, QueryError> {
        let mut watch = Watch::new(&ctx.budget);
        let rows = sort_by(self.rows, &mut watch, |_| 1, |a, b| a.place.cmp(&b.place))?;
        let series = rows.iter().map(|row| row.meta.clone()).collect();
        let mut matrix = Matrix::new(ctx, series, self.steps)?;
        for (index, row) in rows.into_iter().enumerate() {
            watch.work(row.values.len())?;
            let (values, presence) = matrix.row_mut(index);
            values.copy_from_slice(&row.values);
            presence.copy_from_slice(&row.presence);
        }
        Ok(matrix)
    }
}
