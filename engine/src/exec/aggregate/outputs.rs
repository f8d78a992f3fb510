//! Output rows of aggregations that take values from columns.

use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use model::checkpoint::sort_by;
use model::{Checkpoint, Reservation};

use crate::error::QueryError;
use crate::exec::aggregate::columns::{Pick, WORK_A_CELL};
use crate::exec::aggregate::group::Groups;
use crate::exec::aggregate::sieve::Bounds;
use crate::exec::matrix::Matrix;
use crate::exec::operator::{Context, SeriesMeta, VectorOperator};
use crate::steps::Steps;
use crate::tile::set_present;

/// Bytes of an output row without its cells: its entry in a table that may be half full.
const ROW_BYTES: usize = 2 * (size_of::<(u64, OutputRow)>() + size_of::<(u64, u32)>());

/// Output rows of one group, by key: the index of the input row, or the bits of the counted value.
pub(super) struct Output {
    slots: Slots,
    rows: Vec<(u64, OutputRow)>,
    /// True if the rows stay in the order of creation (`topk` at a single step: best first).
    is_ranked: bool,
    /// Bounds around the previous results, if known.
    pub(super) bounds: Option<Bounds>,
    reservation: Reservation,
}

/// Index of output rows by key.
enum Slots {
    /// A single row for every key.
    One,
    /// For each input row from the first on: index of its output row plus 1, or 0.
    ByRow(u64, Vec<u32>),
    ByKey(HashMap<u64, u32, RandomState>),
}

pub(super) struct OutputRow {
    pub(super) values: Vec<f64>,
    pub(super) presence: Vec<u64>,
}

impl Output {
    /// Returns an output without rows.
    pub(super) fn new(
        ctx: &Context,
        steps: Steps,
        pick: &Pick,
        group: Range<usize>,
    ) -> Result<Output, QueryError> {
        let is_ranked = steps.count == 1 && matches!(pick, Pick::Topk { .. });
        let mut reservation = Reservation::new(&ctx.budget, 0)?;
        let slots = match pick {
            Pick::Quantile(_) => Slots::One,
            Pick::CountValues { .. } => Slots::ByKey(HashMap::default()),
            Pick::Topk { .. } | Pick::Limitk(_) | Pick::LimitRatio(_) => {
                reservation.grow((group.len() * size_of::<u32>()) as u64)?;
                Slots::ByRow(group.start as u64, vec![0; group.len()])
            }
        };
        Ok(Output { slots, rows: Vec::new(), is_ranked, bounds: None, reservation })
    }

    /// Returns the row of a key, created if needed.
    pub(super) fn row(&mut self, key: u64, steps: Steps) -> Result<&mut OutputRow, QueryError> {
        let next = self.rows.len() as u32;
        let slot = match &mut self.slots {
            Slots::One => 0,
            Slots::ByRow(first, slots) => {
                let slot = &mut slots[(key - *first) as usize];
                if *slot == 0 {
                    *slot = next + 1;
                }
                *slot - 1
            }
            Slots::ByKey(slots) => *slots.entry(key).or_insert(next),
        };
        if slot == next {
            let words = steps.count.div_ceil(64);
            self.reservation.grow(((steps.count + words) * 8 + ROW_BYTES) as u64)?;
            let row = OutputRow { values: vec![0.0; steps.count], presence: vec![0; words] };
            self.rows.push((key, row));
        }
        Ok(&mut self.rows[slot as usize].1)
    }

    /// Writes a value to the row of a key.
    pub(super) fn set(
        &mut self,
        key: u64,
        steps: Steps,
        step: usize,
        value: f64,
    ) -> Result<(), QueryError> {
        let row = self.row(key, steps)?;
        row.values[step] = value;
        set_present(&mut row.presence, step);
        Ok(())
    }
}

/// Returns the rows of all groups, in the order of the groups.
pub(super) fn assemble(
    ctx: &Context,
    steps: Steps,
    input: &dyn VectorOperator,
    groups: &Groups,
    pick: &Pick,
    outputs: Vec<Output>,
) -> Result<Matrix, QueryError> {
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let mut metas = Vec::new();
    let mut rows = Vec::new();
    let mut reservations = Vec::new();
    for (group, mut output) in outputs.into_iter().enumerate() {
        let mut found = std::mem::take(&mut output.rows);
        if !output.is_ranked {
            found = sort_by(found, &mut checkpoint, |_| 1, |(a, _), (b, _)| a.cmp(b))?;
        }
        for (key, row) in found {
            checkpoint.work(WORK_A_CELL)?;
            metas.push(match pick {
                Pick::Quantile(_) => groups.metas[group].clone(),
                Pick::CountValues { label, is_dropped } => {
                    let label = (!is_dropped).then_some(label.as_str());
                    let text = value_text(f64::from_bits(key));
                    let meta = counted(&groups.metas[group], label, &text);
                    let bytes = meta.labels.as_bytes().len() + size_of::<SeriesMeta>();
                    output.reservation.grow(bytes as u64)?;
                    meta
                }
                Pick::Topk { .. } | Pick::Limitk(_) | Pick::LimitRatio(_) => {
                    input.series()[groups.order[key as usize] as usize].clone()
                }
            });
            rows.push(row);
        }
        reservations.push(output.reservation);
    }
    let mut matrix = Matrix::new(ctx, metas, steps)?;
    for (index, row) in rows.into_iter().enumerate() {
        checkpoint.work(row.values.len())?;
        let (values, presence) = matrix.row_mut(index);
        values.copy_from_slice(&row.values);
        presence.copy_from_slice(&row.presence);
    }
    Ok(matrix)
}

/// Returns the labels of a counted value: those of the group and, if given, `label` with `text`.
///
/// Source: `aggregationCountValues` of Prometheus.
pub(super) fn counted(group: &SeriesMeta, label: Option<&str>, text: &str) -> SeriesMeta {
    let mut labels = group.labels.to_builder();
    if let Some(label) = label {
        labels.set(label, text);
    }
    SeriesMeta { labels: labels.build(), drop_name: false }
}

/// Returns the text of a counted number.
pub(super) fn value_text(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}
