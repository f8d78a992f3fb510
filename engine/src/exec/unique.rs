//! Label sets that occur once: entries with the same labels become one series.

use hashbrown::HashMap;
use model::Labels;

use crate::error::QueryError;
use crate::exec::charge::Charge;
use crate::exec::gather::Gather;
use crate::exec::matrix::{Matrix, materialize};
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::exec::watch::Watch;
use crate::tile::{HistogramCell, Tile, is_present, mark_histograms};
use crate::window::Steps;

/// Prometheus' answer to two values of one label set at one time.
pub const SAME_LABELSET: &str = "vector cannot contain metrics with the same labelset";

/// An operator without repeated label sets: entries that bear the same labels become one
/// series, which has a value wherever one of them has. The first entry decides whether the
/// name goes.
///
/// Errors: the limits of the query; the readers refuse a step at which two entries of one label
/// set have a value.
/// Source: `mergeSeriesWithSameLabelset` of Prometheus.
pub fn unique(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
) -> Result<Box<dyn VectorOperator>, QueryError> {
    if input.has_distinct_labels() {
        return Ok(input);
    }
    let groups = LabelGroups::new(ctx, input.series())?;
    if groups.count == input.series().len() {
        return Ok(input);
    }
    let charge = Charge::new(&ctx.budget, groups.members_bytes())?;
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); groups.count];
    for (index, group) in groups.of_series.iter().enumerate() {
        members[*group as usize].push(index as u32);
    }
    let series = members.iter().map(|m| input.series()[m[0] as usize].clone()).collect();
    Ok(Box::new(Unique { ctx: ctx.clone(), input, series, members, _charge: charge }))
}

/// Which entries bear the same labels.
struct LabelGroups {
    /// How many label sets there are.
    count: usize,
    /// The label set of each entry, numbered in the order in which they come first.
    of_series: Vec<u32>,
    _charge: Charge,
}

impl LabelGroups {
    fn new(ctx: &Context, series: &[SeriesMeta]) -> Result<LabelGroups, QueryError> {
        let slot_bytes = 2 * size_of::<(&Labels, u32)>() + size_of::<u32>();
        let charge = Charge::new(&ctx.budget, (series.len() * slot_bytes) as u64)?;
        let mut watch = Watch::new(&ctx.budget);
        let mut seen: HashMap<&Labels, u32, foldhash::fast::RandomState> =
            HashMap::with_capacity_and_hasher(series.len(), foldhash::fast::RandomState::default());
        let mut of_series = Vec::with_capacity(series.len());
        for meta in series {
            watch.work(meta.labels.as_bytes().len())?;
            let next = seen.len() as u32;
            of_series.push(*seen.entry(&meta.labels).or_insert(next));
        }
        Ok(LabelGroups { count: seen.len(), of_series, _charge: charge })
    }

    /// What lists of the entries of each label set take.
    fn members_bytes(&self) -> u64 {
        let lists = self.count * (size_of::<Vec<u32>>() + size_of::<SeriesMeta>());
        (lists + 4 * self.of_series.len() * size_of::<u32>()) as u64
    }
}

/// Settles whether the name goes where two entries of one label set differ on it: the one
/// that has a value first decides, as the first sample does in Prometheus. `None` where
/// nothing differs.
///
/// Errors: what the operator's readers give, and the limits of the query.
pub fn settle_names(
    ctx: &Context,
    input: &dyn VectorOperator,
) -> Result<Option<Matrix>, QueryError> {
    let groups = LabelGroups::new(ctx, input.series())?;
    let rule = |index: &u32| input.series()[*index as usize].drop_name;
    let mut first_rule = vec![None; groups.count];
    let mut differs = vec![false; groups.count];
    for (meta, group) in input.series().iter().zip(&groups.of_series) {
        let group = *group as usize;
        differs[group] |= *first_rule[group].get_or_insert(meta.drop_name) != meta.drop_name;
    }
    if !differs.contains(&true) {
        return Ok(None);
    }
    let _charge = Charge::new(&ctx.budget, groups.members_bytes())?;
    let mut differing: HashMap<u32, Vec<u32>, foldhash::fast::RandomState> = HashMap::default();
    for (index, group) in groups.of_series.iter().enumerate() {
        if differs[*group as usize] {
            differing.entry(*group).or_default().push(index as u32);
        }
    }
    let mut matrix = materialize(ctx, input)?;
    for entries in differing.values() {
        let first_step = |entry: &&u32| {
            let mut presence = matrix.row(**entry as usize).1.to_vec();
            mark_histograms(&mut presence, 0, matrix.histograms(**entry as usize));
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
    _charge: Charge,
}

impl VectorOperator for Unique {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn has_histograms(&self) -> bool {
        self.input.has_histograms()
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
            while entry < *end {
                let (from, present) = self.entries.row(entry);
                let (values, presence) = tile.row_mut(row);
                merge_row(values, presence, from, present)?;
                merge_histograms(tile, row, self.entries.histograms(entry))?;
                entry += 1;
            }
        }
        Ok(())
    }
}

/// Adds histograms to a row of a tile that holds floats already.
///
/// Errors: a step at which both have something.
fn merge_histograms(tile: &mut Tile, row: usize, from: &[HistogramCell]) -> Result<(), QueryError> {
    if from.is_empty() && tile.histograms(row).is_empty() {
        return Ok(());
    }
    let presence = tile.row(row).1.to_vec();
    let cells = tile.histograms_mut(row);
    for (step, histogram) in from.iter().enumerate() {
        if histogram.is_none() {
            continue;
        }
        if cells[step].is_some() {
            return Err(QueryError::Execution(SAME_LABELSET.to_owned()));
        }
        cells[step].clone_from(histogram);
    }
    if (0..cells.len()).any(|step| cells[step].is_some() && is_present(&presence, step)) {
        return Err(QueryError::Execution(SAME_LABELSET.to_owned()));
    }
    Ok(())
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
