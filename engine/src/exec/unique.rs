//! Label sets that occur once: entries with the same labels become one series.

use hashbrown::HashMap;
use model::Labels;

use crate::error::QueryError;
use crate::exec::gather::Gather;
use crate::exec::matrix::{Matrix, materialize};
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::tile::Tile;
use crate::window::Steps;

/// Prometheus' answer to two values of one label set at one time.
pub const SAME_LABELSET: &str = "vector cannot contain metrics with the same labelset";

/// An operator without repeated label sets: entries that bear the same labels become one
/// series, which has a value wherever one of them has. The first entry decides whether the
/// name goes.
///
/// Errors: the readers refuse a step at which two entries of one label set have a value.
/// Source: `mergeSeriesWithSameLabelset` of Prometheus.
pub fn unique(ctx: &Context, input: Box<dyn VectorOperator>) -> Box<dyn VectorOperator> {
    let mut members: Vec<Vec<u32>> = Vec::new();
    {
        let series = input.series();
        let mut seen: HashMap<&Labels, usize, foldhash::fast::RandomState> =
            HashMap::with_capacity_and_hasher(series.len(), foldhash::fast::RandomState::default());
        for (index, meta) in series.iter().enumerate() {
            let slot = *seen.entry(&meta.labels).or_insert(members.len());
            if slot == members.len() {
                members.push(vec![index as u32]);
            } else {
                members[slot].push(index as u32);
            }
        }
    }
    if members.len() == input.series().len() {
        return input;
    }
    let series = members.iter().map(|m| input.series()[m[0] as usize].clone()).collect();
    Box::new(Unique { ctx: ctx.clone(), input, series, members })
}

/// Settles whether the name goes where two entries of one label set differ on it: the one
/// that has a value first decides, as the first sample does in Prometheus. `None` where
/// nothing differs.
pub fn settle_names(
    ctx: &Context,
    input: &dyn VectorOperator,
) -> Result<Option<Matrix>, QueryError> {
    let mut seen: HashMap<&Labels, Vec<u32>, foldhash::fast::RandomState> = HashMap::default();
    for (index, meta) in input.series().iter().enumerate() {
        seen.entry(&meta.labels).or_default().push(index as u32);
    }
    let rule = |index: &u32| input.series()[*index as usize].drop_name;
    let differing: Vec<Vec<u32>> = seen
        .into_values()
        .filter(|entries| entries.iter().any(|entry| rule(entry) != rule(&entries[0])))
        .collect();
    if differing.is_empty() {
        return Ok(None);
    }
    let mut matrix = materialize(ctx, input)?;
    for entries in &differing {
        let first_step = |entry: &&u32| {
            let presence = matrix.row(**entry as usize).1;
            let word = presence.iter().position(|word| *word != 0);
            word.map_or(usize::MAX, |at| at * 64 + presence[at].trailing_zeros() as usize)
        };
        if let Some(earliest) = entries.iter().min_by_key(first_step) {
            let drops = rule(earliest);
            for entry in entries {
                matrix.series_mut()[*entry as usize].drop_name = drops;
            }
        }
    }
    Ok(Some(matrix))
}

struct Unique {
    ctx: Context,
    input: Box<dyn VectorOperator>,
    series: Vec<SeriesMeta>,
    /// The entries of each series.
    members: Vec<Vec<u32>>,
}

impl VectorOperator for Unique {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        let mut entries = Vec::new();
        let mut ends = Vec::with_capacity(series.len());
        for index in series {
            entries.extend_from_slice(&self.members[*index as usize]);
            ends.push(entries.len());
        }
        Box::new(UniqueReader { entries: Gather::open(&self.ctx, &*self.input, &entries), ends })
    }
}

struct UniqueReader<'a> {
    entries: Gather<'a>,
    /// One past the last entry of each row.
    ends: Vec<usize>,
}

impl TileReader for UniqueReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.entries.next(step_count)?;
        tile.reset(self.ends.len(), step_count);
        let mut entry = 0;
        for (row, end) in self.ends.iter().enumerate() {
            let (values, presence) = tile.row_mut(row);
            while entry < *end {
                let (from, present) = self.entries.row(entry);
                merge_row(values, presence, from, present)?;
                entry += 1;
            }
        }
        Ok(())
    }
}

/// Adds the present values of one row to another.
///
/// Errors: a step at which both have a value.
pub fn merge_row(
    values: &mut [f64],
    presence: &mut [u64],
    from: &[f64],
    present: &[u64],
) -> Result<(), QueryError> {
    for (word, bits) in present.iter().enumerate() {
        if *bits == 0 {
            continue;
        }
        if presence[word] & bits != 0 {
            return Err(QueryError::Execution(SAME_LABELSET.to_owned()));
        }
        presence[word] |= bits;
        let mut left = *bits;
        while left != 0 {
            let step = word * 64 + left.trailing_zeros() as usize;
            values[step] = from[step];
            left &= left - 1;
        }
    }
    Ok(())
}
