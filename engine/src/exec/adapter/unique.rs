//! Merging of label sets: entries with the same labels become one series.

use hashbrown::HashMap;
use model::{Checkpoint, Labels, Reservation};

use crate::error::QueryError;
use crate::exec::matrix::gather::Gather;
use crate::exec::matrix::{Matrix, materialize};
use crate::exec::operator::{Context, SeriesMeta, TileReader, VectorOperator};
use crate::steps::Steps;
use crate::tile::{HistogramCell, Tile, is_present, mark_histograms};

/// Prometheus' error message for two values of one label set at one time.
pub const SAME_LABELSET: &str = "vector cannot contain metrics with the same labelset";

/// Rule for a step that has a float and a histogram of one label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// Returns an error, as for two floats.
    ///
    /// Source: `rangeEval` of Prometheus.
    Refused,
    /// The result of a query has both. Another operator sees the float, and no histogram of the
    /// series from that step on.
    ///
    /// Source: `mergeSeriesWithSameLabelset` of Prometheus, which compares floats with floats and
    /// histograms with histograms, and `nextValues`, which stays at a histogram after a float.
    Merged,
}

/// Merges entries with the same labels into one series, which has a value at each step at which one
/// of the entries has a value. The first entry decides whether the name is dropped.
///
/// Errors: the limits of the query. Readers return an error if two entries of one label set have a
/// value at a step; for a float and a histogram, `meeting` decides.
pub fn unique(
    ctx: &Context,
    input: Box<dyn VectorOperator>,
    meeting: Meeting,
) -> Result<Box<dyn VectorOperator>, QueryError> {
    if input.is_sorted() {
        return Ok(input);
    }
    let groups = LabelGroups::new(ctx, input.series())?;
    if groups.count == input.series().len() {
        return Ok(input);
    }
    let reservation = Reservation::new(&ctx.budget, groups.members_bytes())?;
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); groups.count];
    for (index, group) in groups.of_series.iter().enumerate() {
        members[*group as usize].push(index as u32);
    }
    let series = members.iter().map(|m| input.series()[m[0] as usize].clone()).collect();
    let ctx = ctx.clone();
    Ok(Box::new(Unique {
        ctx,
        input,
        series,
        members,
        meeting,
        is_answer: false,
        _reservation: reservation,
    }))
}

/// Groups of entries with the same labels.
struct LabelGroups {
    /// Number of label sets.
    count: usize,
    /// Label set of each entry; label sets are numbered by first occurrence.
    of_series: Vec<u32>,
    _reservation: Reservation,
}

impl LabelGroups {
    fn new(ctx: &Context, series: &[SeriesMeta]) -> Result<LabelGroups, QueryError> {
        let slot_bytes = 2 * size_of::<(&Labels, u32)>() + size_of::<u32>();
        let reservation = Reservation::new(&ctx.budget, (series.len() * slot_bytes) as u64)?;
        let mut checkpoint = Checkpoint::new(&ctx.budget);
        let mut seen: HashMap<&Labels, u32, foldhash::fast::RandomState> =
            HashMap::with_capacity_and_hasher(series.len(), foldhash::fast::RandomState::default());
        let mut of_series = Vec::with_capacity(series.len());
        for meta in series {
            checkpoint.work(meta.labels.as_bytes().len())?;
            let next = seen.len() as u32;
            of_series.push(*seen.entry(&meta.labels).or_insert(next));
        }
        Ok(LabelGroups { count: seen.len(), of_series, _reservation: reservation })
    }

    /// Returns the bytes of the lists of entries of each label set.
    fn members_bytes(&self) -> u64 {
        let lists = self.count * (size_of::<Vec<u32>>() + size_of::<SeriesMeta>());
        (lists + 4 * self.of_series.len() * size_of::<u32>()) as u64
    }
}

/// Makes entries of one label set agree on whether the name is dropped: as in Prometheus, the entry
/// with the earliest value decides. `None` if no entries differ.
///
/// Errors: errors of the operator's readers, and the limits of the query.
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
    let _reservation = Reservation::new(&ctx.budget, groups.members_bytes())?;
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
    /// Entries of each series.
    members: Vec<Vec<u32>>,
    meeting: Meeting,
    /// True if the tiles are the result of the query.
    is_answer: bool,
    _reservation: Reservation,
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

    fn holds_histograms(&self) -> bool {
        self.input.holds_histograms()
    }

    fn become_answer(&mut self) {
        self.is_answer = true;
        self.input.become_answer();
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        let mut entries = Vec::new();
        let mut ends = Vec::with_capacity(series.len());
        for index in series {
            entries.extend_from_slice(&self.members[*index as usize]);
            ends.push(entries.len());
        }
        let have_met = vec![false; ends.len()];
        let entries = Gather::open(&self.ctx, &*self.input, &entries);
        Box::new(UniqueReader { unique: self, entries, ends, have_met })
    }
}

struct UniqueReader<'a> {
    unique: &'a Unique,
    entries: Gather<'a>,
    /// Index after the last entry of each row.
    ends: Vec<usize>,
    /// For each row, whether a step had both a float and a histogram.
    have_met: Vec<bool>,
}

impl TileReader for UniqueReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.entries.next(step_count)?;
        tile.reset(self.ends.len(), step_count);
        let mut entry = 0;
        for row in 0..self.ends.len() {
            while entry < self.ends[row] {
                let (from, present) = self.entries.row(entry);
                let (values, presence) = tile.row_mut(row);
                merge_row(values, presence, from, present)?;
                merge_histograms(tile, row, self.entries.histograms(entry))?;
                entry += 1;
            }
            if tile.has_histograms() {
                self.judge_meetings(tile, row)?;
            }
        }
        Ok(())
    }
}

impl UniqueReader<'_> {
    /// Applies `meeting` to the steps of a row that have both a float and a histogram.
    fn judge_meetings(&mut self, tile: &mut Tile, row: usize) -> Result<(), QueryError> {
        let (_, presence, cells) = tile.mixed_row_mut(row);
        let meets = |step: &usize| cells[*step].is_some() && is_present(presence, *step);
        let first =
            if self.have_met[row] { Some(0) } else { (0..cells.len()).find(|step| meets(step)) };
        match (first, self.unique.meeting) {
            (None, _) => Ok(()),
            (Some(_), Meeting::Refused) => Err(QueryError::Execution(SAME_LABELSET.to_owned())),
            (Some(_), Meeting::Merged) if self.unique.is_answer => Ok(()),
            (Some(first), Meeting::Merged) => {
                self.have_met[row] = true;
                cells[first..].fill(None);
                Ok(())
            }
        }
    }
}

/// Adds the histograms of `from` to a row of a tile.
///
/// Errors: a step at which both have a histogram.
fn merge_histograms(tile: &mut Tile, row: usize, from: &[HistogramCell]) -> Result<(), QueryError> {
    if from.is_empty() {
        return Ok(());
    }
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
    Ok(())
}

/// Adds the present values of the row `from` to the row `values`.
///
/// Errors: a step at which both have a value.
fn merge_row(
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
