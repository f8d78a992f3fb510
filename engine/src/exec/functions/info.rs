//! `info`: adds the labels of info series, which share the identifying labels of a series.
//!
//! The current info series may change from step to step, and with it the labels of the output,
//! so both operands are materialized. The values of the info operand are the timestamps of its
//! samples: of two info series with the same identity, the newer sample wins.
//!
//! Source: `promql/info.go` of Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use model::{Checkpoint, Labels, METRIC_NAME, Reservation};

use crate::error::QueryError;
use crate::exec::adapter::unique::SAME_LABELSET;
use crate::exec::matrix::found_rows::FoundRows;
use crate::exec::matrix::{Matrix, materialize};
use crate::exec::operator::{Context, Operand, SeriesMeta, VectorOperator};
use crate::plan::InfoSelector;
use crate::tile::is_present;

/// Bytes per series while identities are collected and compared: entries of B-trees.
const IDENTITY_BYTES: usize = 256;
/// Bytes of an output series, without its labels.
const ENRICHED_BYTES: usize = 2 * size_of::<((usize, Vec<u32>), Option<u32>)>() + 32;
/// Work of building labels, in units of reading a value.
const ENRICHED_WORK: usize = 256;
/// Work of finding the newest info series of an identity, in units of reading a value.
const NEWEST_WORK: usize = 16;

/// Labels that identify the target of a series.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// Adds labels to the series of a vector. The values of `info` are the timestamps of its samples,
/// in seconds.
///
/// Errors: two info series of one identity with the same timestamp, or two info metrics with
/// different values of a label, with Prometheus' messages; limits of the query.
pub(super) fn evaluate(
    ctx: &Context,
    selector: &InfoSelector,
    base: &dyn VectorOperator,
    info: &dyn VectorOperator,
) -> Result<Operand, QueryError> {
    let base = materialize(ctx, base)?;
    let info = materialize(ctx, info)?;
    let mut checkpoint = Checkpoint::new(&ctx.budget);
    let mut reservation = Reservation::new(&ctx.budget, 0)?;
    let identities = Identities::new(selector, &base, &info, &mut checkpoint, &mut reservation)?;
    identities.check_floats(&info, &mut checkpoint)?;
    let mut found = FoundRows::new(ctx, base.steps())?;
    let mut enriched: HashMap<(usize, Vec<u32>), Option<u32>, foldhash::fast::RandomState> =
        HashMap::default();
    for step in 0..base.steps().count {
        ctx.budget.check()?;
        let newest = identities.newest(&base, &info, step, &mut checkpoint)?;
        for (index, meta) in base.series().iter().enumerate() {
            checkpoint.work(1)?;
            let (values, presence) = base.row(index);
            let histogram = base.histograms(index).get(step).and_then(Option::as_ref);
            if !is_present(presence, step) && histogram.is_none() {
                continue;
            }
            let partners: Vec<u32> = match identities.of_base[index] {
                Some(identity) => newest[identity as usize].values().copied().collect(),
                None => Vec::new(),
            };
            let slot = match enriched.get(&(index, partners.clone())) {
                Some(slot) => *slot,
                None => {
                    checkpoint.work(ENRICHED_WORK)?;
                    reservation.grow((ENRICHED_BYTES + 2 * partners.len() * 4) as u64)?;
                    let is_info = selector.is_info(&meta.labels);
                    let slot = match enrich(selector, is_info, meta, &info, &partners)? {
                        Some(meta) => Some(found.slot(meta, 0, (0, index as u32))?),
                        None => None,
                    };
                    enriched.insert((index, partners), slot);
                    slot
                }
            };
            let Some(slot) = slot else { continue };
            let is_first = match histogram {
                Some(histogram) => found.set_histogram(slot, step, Arc::clone(histogram))?,
                None => found.set(slot, step, values[step]),
            };
            if !is_first {
                return Err(QueryError::Execution(SAME_LABELSET.to_owned()));
            }
        }
    }
    Ok(Operand::Vector(Box::new(found.into_matrix(ctx)?)))
}

/// Numbers of the distinct combinations of identifying labels (identities), by series.
struct Identities {
    count: usize,
    /// Identity of each base series, or `None` if it is not enriched.
    of_base: Vec<Option<u32>>,
    /// Identity of each info series; `None` if no base series has this identity.
    of_info: Vec<Option<u32>>,
}

impl Identities {
    ///
    /// Errors: the limits of the query.
    fn new(
        selector: &InfoSelector,
        base: &Matrix,
        info: &Matrix,
        checkpoint: &mut Checkpoint,
        reservation: &mut Reservation,
    ) -> Result<Identities, QueryError> {
        reservation.grow(((base.series().len() + info.series().len()) * IDENTITY_BYTES) as u64)?;
        let mut seen: BTreeMap<Labels, u32> = BTreeMap::new();
        let identity = |labels: &Labels| labels.filtered(|name| IDENTIFYING.contains(&name));
        // For each identifying label, an info series must have one of the values that base series
        // have. If no base series has the label, it is not required.
        let mut occurring: [BTreeSet<&str>; 2] = Default::default();
        let mut of_base = Vec::with_capacity(base.series().len());
        for meta in base.series() {
            checkpoint.work(meta.labels.as_bytes().len())?;
            if selector.is_info(&meta.labels) {
                of_base.push(None);
                continue;
            }
            for (values, name) in occurring.iter_mut().zip(IDENTIFYING) {
                values.extend(Some(meta.labels.get(name)).filter(|value| !value.is_empty()));
            }
            let next = seen.len() as u32;
            of_base.push(Some(*seen.entry(identity(&meta.labels)).or_insert(next)));
        }
        let is_identified = occurring.iter().any(|values| !values.is_empty());
        let mut of_info = Vec::with_capacity(info.series().len());
        for meta in info.series() {
            checkpoint.work(meta.labels.as_bytes().len())?;
            let occurs = occurring
                .iter()
                .zip(IDENTIFYING)
                .all(|(values, name)| values.is_empty() || values.contains(meta.labels.get(name)));
            let next = seen.len() as u32;
            let is_wanted = is_identified && occurs;
            of_info.push(is_wanted.then(|| *seen.entry(identity(&meta.labels)).or_insert(next)));
        }
        Ok(Identities { count: seen.len(), of_base, of_info })
    }

    /// Returns an error if info series have histograms.
    fn check_floats(&self, info: &Matrix, checkpoint: &mut Checkpoint) -> Result<(), QueryError> {
        for (index, meta) in info.series().iter().enumerate() {
            let histograms = info.histograms(index);
            checkpoint.work(1 + histograms.len())?;
            if self.of_info[index].is_some() && histograms.iter().any(Option::is_some) {
                return Err(QueryError::Execution(format!(
                    "this should be an info metric, with float samples: {}",
                    meta.labels
                )));
            }
        }
        Ok(())
    }

    /// Returns the current info series of each identity at a step, one per metric, by metric.
    fn newest<'i>(
        &self,
        base: &Matrix,
        info: &'i Matrix,
        step: usize,
        checkpoint: &mut Checkpoint,
    ) -> Result<Vec<BTreeMap<&'i str, u32>>, QueryError> {
        checkpoint.work(self.count + base.series().len())?;
        let mut newest: Vec<BTreeMap<&str, u32>> = vec![BTreeMap::new(); self.count];
        let is_any = |matrix: &Matrix| {
            (0..matrix.series().len()).any(|index| {
                is_present(matrix.row(index).1, step)
                    || matrix.histograms(index).get(step).is_some_and(Option::is_some)
            })
        };
        if !is_any(base) {
            return Ok(newest);
        }
        for (index, meta) in info.series().iter().enumerate() {
            checkpoint.work(NEWEST_WORK)?;
            let (times, presence) = info.row(index);
            let Some(identity) = self.of_info[index].filter(|_| is_present(presence, step)) else {
                continue;
            };
            let name = meta.labels.metric_name();
            let kept = newest[identity as usize].entry(name).or_insert(index as u32);
            if *kept == index as u32 {
                continue;
            }
            let kept_time = info.row(*kept as usize).0[step];
            if kept_time == times[step] {
                let labels = |index: u32| &info.series()[index as usize].labels;
                let time_ms = (kept_time * 1000.0).round() as i64;
                return Err(QueryError::Execution(format!(
                    "found duplicate series for info metric: existing {} @ {time_ms}, \
                     new {} @ {time_ms}",
                    labels(*kept),
                    meta.labels
                )));
            }
            if kept_time < times[step] {
                *kept = index as u32;
            }
        }
        Ok(newest)
    }
}

/// Adds the labels of info series to a base series; `None` if the base series is dropped, because
/// no info series has the requested labels.
fn enrich(
    selector: &InfoSelector,
    is_info: bool,
    base: &SeriesMeta,
    info: &Matrix,
    partners: &[u32],
) -> Result<Option<SeriesMeta>, QueryError> {
    if is_info {
        return Ok(Some(base.clone()));
    }
    if partners.is_empty() && !selector.allows_no_info() {
        return Ok(None);
    }
    let mut added: BTreeMap<&str, &str> = BTreeMap::new();
    for partner in partners {
        let labels = &info.series()[*partner as usize].labels;
        for (name, value) in labels.iter() {
            if name == METRIC_NAME || !selector.adds(name) {
                continue;
            }
            if added.get(name).is_some_and(|earlier| *earlier != value) {
                return Err(QueryError::Execution(format!("conflicting label: {name}")));
            }
            if !base.labels.has(name) {
                added.insert(name, value);
            }
        }
    }
    let mut builder = base.labels.to_builder();
    added.iter().for_each(|(name, value)| {
        builder.set(name, value);
    });
    Ok(Some(SeriesMeta { labels: builder.build(), drop_name: base.drop_name }))
}
