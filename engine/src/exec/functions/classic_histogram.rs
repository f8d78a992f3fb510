//! `histogram_quantile`, `histogram_quantiles` and `histogram_fraction` of classic histograms. A
//! classic histogram consists of the series that differ only in `le`. Series with native histograms
//! are in `native_answers`.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use model::checkpoint::sort_by;
use model::{Checkpoint, Labels, Reservation};

use crate::annotations::{BucketRepair, Cause};
use crate::error::QueryError;
use crate::exec::adapter::unique::{Meeting, unique};
use crate::exec::matrix::gather::Gather;
use crate::exec::matrix::scan::scan;
use crate::exec::operator::{Context, Operand, SeriesMeta, TileReader, VectorOperator};
use crate::number_text::{general, parse_float};
use crate::parse::ast::Span;
use crate::steps::Steps;
use crate::tile::{Tile, is_present, set_present};

use super::buckets::{Bucket, Repair, fraction, quantile};

pub(super) const BUCKET_LABEL: &str = "le";

/// Function of a histogram, with its parameters by step.
pub(super) enum Question {
    /// Quantile of the observations.
    Quantile {
        /// The quantile (0 to 1) at each step.
        shares: Arc<[f64]>,
        /// If set, only the steps whose quantile has these bits are evaluated.
        only: Option<u64>,
    },
    /// Fraction of the observations between two values.
    Fraction {
        /// Lower value, by step.
        lower: Vec<f64>,
        /// Upper value, by step.
        upper: Vec<f64>,
    },
}

impl Question {
    /// Returns the quantile that is requested at the step, if any.
    fn share_at(&self, step: usize) -> Option<f64> {
        match self {
            Question::Quantile { shares, only } => {
                Some(shares[step]).filter(|share| only.is_none_or(|bits| bits == share.to_bits()))
            }
            Question::Fraction { .. } => None,
        }
    }

    pub(super) fn is_asked_at(&self, step: usize) -> bool {
        matches!(self, Question::Fraction { .. }) || self.share_at(step).is_some()
    }
}

/// A question, and the label to add to its results.
pub(super) struct Request {
    pub(super) question: Question,
    pub(super) label: Option<(String, String)>,
}

/// Warns of quantiles outside 0 to 1, once per run of equal values.
pub(super) fn check_quantiles(ctx: &Context, quantiles: &[f64], cause: Cause) {
    let mut latest = None;
    for quantile in quantiles.iter().filter(|quantile| !(0.0..=1.0).contains(*quantile)) {
        if latest.replace(quantile.to_bits()) != Some(quantile.to_bits()) {
            let shown = general(*quantile);
            ctx.warn(format!("quantile value should be between 0 and 1, got {shown}"), cause);
        }
    }
}

/// Evaluates requests for every histogram of a vector. `span` is the position of the vector.
///
/// Errors: errors of the vector, and the limits of the query.
/// Source: `resetHistograms`, `funcHistogramQuantile` of Prometheus.
pub(super) fn evaluate(
    ctx: &Context,
    span: Span,
    input: Box<dyn VectorOperator>,
    requests: Vec<Request>,
    mut reservation: Reservation,
) -> Result<Operand, QueryError> {
    let is_mixed = input.has_histograms();
    let Collected { histograms, unbounded } =
        collect(ctx, input.series(), is_mixed, &mut reservation)?;
    if !is_mixed {
        warn_of_unbounded(ctx, span, &*input, &unbounded)?;
    }
    let output_count = histograms.len().saturating_mul(requests.len());
    let bytes = output_count.saturating_mul(size_of::<SeriesMeta>() + size_of::<(u32, u32)>());
    reservation.grow(bytes as u64)?;
    let mut series = Vec::with_capacity(output_count);
    let mut outputs = Vec::with_capacity(series.capacity());
    for (index, histogram) in histograms.iter().enumerate() {
        ctx.budget.check()?;
        for (request_index, request) in requests.iter().enumerate() {
            let mut meta =
                SeriesMeta { labels: histogram.labels.clone(), drop_name: true }.dropping_name(ctx);
            if let Some((name, value)) = &request.label {
                reservation
                    .grow((meta.labels.as_bytes().len() + name.len() + value.len()) as u64)?;
                meta.labels = meta.labels.to_builder().set(name, value).build();
            }
            series.push(meta);
            outputs.push((index as u32, request_index as u32));
        }
    }
    let answers = Box::new(Answers {
        ctx: ctx.clone(),
        span,
        is_mixed,
        input,
        histograms,
        requests,
        outputs,
        series,
        _reservation: reservation,
    });
    // For an instant query, Prometheus checks duplicate label sets only after it removes names.
    let is_checked_later = ctx.delayed_name_removal && answers.steps().count == 1;
    Ok(Operand::Vector(if is_checked_later {
        answers
    } else {
        unique(ctx, answers, Meeting::Refused)?
    }))
}

/// A histogram, classic or native.
pub(super) struct Histogram {
    /// Labels; for a classic histogram, without the bucket label.
    pub(super) labels: Labels,
    /// Upper bound and series of each bucket, sorted by bound; empty for a native histogram.
    pub(super) buckets: Vec<(f64, u32)>,
    /// True if `buckets` are sorted. They are not if a bound is NaN, which has no position in the
    /// order; then the buckets of each step are sorted as in Go.
    is_sorted: bool,
    /// Series with exactly these labels, which may have native histograms.
    pub(super) natives: Vec<u32>,
}

/// Bytes of a histogram without its labels: its entries in tables that may be half full.
const HISTOGRAM_BYTES: usize = 2 * (size_of::<Histogram>() + size_of::<(Labels, usize)>() + 8);

/// Histograms of a vector.
struct Collected {
    histograms: Vec<Histogram>,
    /// Series whose bucket label is not a number.
    unbounded: Vec<u32>,
}

/// Builder of histograms, by their labels.
struct Histograms<'a> {
    list: Vec<Histogram>,
    slot_of: HashMap<Labels, usize, foldhash::fast::RandomState>,
    checkpoint: Checkpoint,
    reservation: &'a mut Reservation,
}

impl Histograms<'_> {
    fn of(&mut self, labels: Labels) -> Result<&mut Histogram, QueryError> {
        self.checkpoint.work(labels.as_bytes().len())?;
        let slot = match self.slot_of.get(&labels) {
            Some(slot) => *slot,
            None => {
                self.reservation.grow((labels.as_bytes().len() + HISTOGRAM_BYTES) as u64)?;
                self.slot_of.insert(labels.clone(), self.list.len());
                let (buckets, natives) = (Vec::new(), Vec::new());
                self.list.push(Histogram { labels, buckets, is_sorted: true, natives });
                self.list.len() - 1
            }
        };
        Ok(&mut self.list[slot])
    }
}

/// Groups series into histograms. If `is_mixed`, each series may be a native histogram, too.
fn collect(
    ctx: &Context,
    series: &[SeriesMeta],
    is_mixed: bool,
    reservation: &mut Reservation,
) -> Result<Collected, QueryError> {
    // Growing vectors may have twice the needed capacity.
    let bytes = series.len() * 2 * size_of::<(f64, u32, u32)>();
    reservation.grow(bytes as u64)?;
    let (list, slot_of) = (Vec::new(), HashMap::default());
    let mut histograms =
        Histograms { list, slot_of, checkpoint: Checkpoint::new(&ctx.budget), reservation };
    let mut bounded: Vec<(f64, u32)> = Vec::new();
    let mut unbounded = Vec::new();
    for (index, meta) in (0..).zip(series) {
        histograms.checkpoint.work(meta.labels.as_bytes().len())?;
        match parse_float(meta.labels.get(BUCKET_LABEL)) {
            Some(bound) => bounded.push((bound, index)),
            None if is_mixed => histograms.of(meta.labels.clone())?.natives.push(index),
            None => unbounded.push(index),
        }
    }
    for (bound, index) in &bounded {
        let labels = series[*index as usize].labels.filtered(|name| name != BUCKET_LABEL);
        histograms.of(labels)?.buckets.push((*bound, *index));
    }
    if is_mixed {
        for (_, index) in &bounded {
            histograms.of(series[*index as usize].labels.clone())?.natives.push(*index);
        }
    }
    let Histograms { list: mut histograms, mut checkpoint, .. } = histograms;
    for histogram in &mut histograms {
        histogram.is_sorted = histogram.buckets.iter().all(|(bound, _)| !bound.is_nan());
        if histogram.is_sorted {
            let buckets = std::mem::take(&mut histogram.buckets);
            histogram.buckets =
                sort_by(buckets, &mut checkpoint, |_| 1, |a, b| a.0.total_cmp(&b.0))?;
        }
    }
    Ok(Collected { histograms, unbounded })
}

/// Warns of series with a sample but without a bucket bound.
fn warn_of_unbounded(
    ctx: &Context,
    span: Span,
    input: &dyn VectorOperator,
    unbounded: &[u32],
) -> Result<(), QueryError> {
    scan(ctx, input, unbounded, |series, _, tile| {
        for (row, index) in series.iter().enumerate() {
            if tile.row(row).1.iter().any(|word| *word != 0) {
                report_unbounded(ctx, span, &input.series()[*index as usize].labels);
            }
        }
    })
}

pub(super) fn report_unbounded(ctx: &Context, span: Span, labels: &Labels) {
    let mut message = String::from("bucket label \"le\" is missing or has a malformed value of ");
    // Writing to a string cannot fail.
    let _ = model::labels::write_quoted(&mut message, labels.get(BUCKET_LABEL));
    ctx.warn(with_metric_name(ctx, message, labels), span);
}

/// Appends the metric name to the message if it is still known.
pub(super) fn with_metric_name(ctx: &Context, mut message: String, labels: &Labels) -> String {
    if ctx.delayed_name_removal && !labels.metric_name().is_empty() {
        message.push_str(" for metric name ");
        // Writing to a string cannot fail.
        let _ = model::labels::write_quoted(&mut message, labels.metric_name());
    }
    message
}

pub(super) struct Answers {
    pub(super) ctx: Context,
    pub(super) span: Span,
    /// Whether the vector may contain native histograms.
    is_mixed: bool,
    input: Box<dyn VectorOperator>,
    pub(super) histograms: Vec<Histogram>,
    pub(super) requests: Vec<Request>,
    /// Histogram and request of each output series.
    outputs: Vec<(u32, u32)>,
    series: Vec<SeriesMeta>,
    _reservation: Reservation,
}

impl VectorOperator for Answers {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn has_effects(&self) -> bool {
        let is_quantile = |request: &Request| matches!(request.question, Question::Quantile { .. });
        self.is_mixed || self.requests.iter().any(is_quantile) || self.input.has_effects()
    }

    fn has_histograms(&self) -> bool {
        false
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        // Native histograms are read in parts and dropped.
        let entries_max =
            if self.is_mixed { self.ctx.tile_shape_of(&*self.input).series } else { usize::MAX };
        let open = |entries: &[u32]| Gather::open(&self.ctx, &*self.input, entries);
        let mut parts = Vec::new();
        let mut entries = Vec::new();
        let mut first_rows: HashMap<u32, usize, foldhash::fast::RandomState> = HashMap::default();
        let mut outputs = Vec::with_capacity(series.len());
        for index in series {
            let (histogram, request) = self.outputs[*index as usize];
            if entries.len() >= entries_max && !first_rows.contains_key(&histogram) {
                parts.push(OutputPart { entries: open(&entries), end: outputs.len() });
                entries.clear();
                first_rows.clear();
            }
            let first_row = *first_rows.entry(histogram).or_insert_with(|| {
                let first_row = entries.len();
                let histogram = &self.histograms[histogram as usize];
                entries.extend(histogram.buckets.iter().map(|(_, series)| *series));
                entries.extend(&histogram.natives);
                first_row
            });
            outputs.push(Output { histogram, request, first_row });
        }
        parts.push(OutputPart { entries: open(&entries), end: outputs.len() });
        let scratch =
            Scratch { buckets: Vec::new(), checkpoint: Checkpoint::new(&self.ctx.budget) };
        Box::new(AnswersReader { answers: self, parts, outputs, scratch, first_step: 0 })
    }
}

struct AnswersReader<'a> {
    answers: &'a Answers,
    parts: Vec<OutputPart<'a>>,
    outputs: Vec<Output>,
    scratch: Scratch,
    first_step: usize,
}

/// Buffers shared by the results of a reader.
pub(super) struct Scratch {
    /// Buckets of a step.
    pub(super) buckets: Vec<Bucket>,
    pub(super) checkpoint: Checkpoint,
}

/// Consecutive outputs that share a reader.
struct OutputPart<'a> {
    /// Buckets and native histograms of the outputs.
    entries: Gather<'a>,
    /// Index after the last of the outputs.
    end: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) histogram: u32,
    pub(super) request: u32,
    /// First row of the histogram's buckets in the entries; its native histograms follow.
    pub(super) first_row: usize,
}

impl TileReader for AnswersReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        tile.reset(self.outputs.len(), step_count);
        let mut row = 0;
        for part in &mut self.parts {
            part.entries.next(step_count)?;
            let asking = Asking {
                answers: self.answers,
                entries: &part.entries,
                first_step: self.first_step,
            };
            for (row, output) in (row..part.end).zip(&self.outputs[row..part.end]) {
                let (values, presence) = tile.row_mut(row);
                asking.answer(*output, &mut self.scratch, values, presence)?;
            }
            row = part.end;
            part.entries.drop_histograms();
        }
        self.first_step += step_count;
        Ok(())
    }
}

/// Evaluation of outputs at the steps of a tile.
pub(super) struct Asking<'a> {
    pub(super) answers: &'a Answers,
    pub(super) entries: &'a Gather<'a>,
    pub(super) first_step: usize,
}

impl Asking<'_> {
    fn answer(
        &self,
        output: Output,
        scratch: &mut Scratch,
        values: &mut [f64],
        presence: &mut [u64],
    ) -> Result<(), QueryError> {
        scratch.checkpoint.work(values.len())?;
        if !self.answers.histograms[output.histogram as usize].natives.is_empty() {
            return self.answer_mixed(output, scratch, values, presence);
        }
        let question = &self.answers.requests[output.request as usize].question;
        let mut repairs = None;
        for (step, value) in values.iter_mut().enumerate() {
            let at = self.first_step + step;
            if !question.is_asked_at(at) {
                continue;
            }
            self.fill_buckets(output, step, scratch)?;
            if !scratch.buckets.is_empty() {
                set_present(presence, step);
                *value = self.answer_classic(output, at, &mut scratch.buckets, &mut repairs);
            }
        }
        if let Some(repairs) = repairs {
            self.report_repairs(output, repairs);
        }
        Ok(())
    }

    /// Collects the buckets that are present at a step of the tile, sorted by bound.
    pub(super) fn fill_buckets(
        &self,
        output: Output,
        step: usize,
        scratch: &mut Scratch,
    ) -> Result<(), QueryError> {
        let histogram = &self.answers.histograms[output.histogram as usize];
        scratch.checkpoint.work(4 * histogram.buckets.len())?;
        scratch.buckets.clear();
        for (entry, (bound, _)) in histogram.buckets.iter().enumerate() {
            let (counts, present) = self.entries.row(output.first_row + entry);
            if is_present(present, step) {
                scratch.buckets.push(Bucket { upper_bound: *bound, count: counts[step] });
            }
        }
        if !histogram.is_sorted {
            let buckets = std::mem::take(&mut scratch.buckets);
            scratch.buckets = sort_by(
                buckets,
                &mut scratch.checkpoint,
                |_| 1,
                |a, b| a.upper_bound.partial_cmp(&b.upper_bound).unwrap_or(Ordering::Equal),
            )?;
        }
        Ok(())
    }

    /// Computes the result from the buckets of a step, which are corrected in place.
    pub(super) fn answer_classic(
        &self,
        output: Output,
        at: usize,
        buckets: &mut Vec<Bucket>,
        repairs: &mut Option<BucketRepair>,
    ) -> f64 {
        match &self.answers.requests[output.request as usize].question {
            Question::Fraction { lower, upper } => fraction(lower[at], upper[at], buckets),
            Question::Quantile { shares, .. } => {
                let (value, repair) = quantile(shares[at], buckets);
                if let Some(repair) = repair
                    && self.answers.is_first_quantile(output.request, at)
                {
                    self.answers.add_repair(repairs, repair, at);
                }
                value
            }
        }
    }

    pub(super) fn report_repairs(&self, output: Output, repair: BucketRepair) {
        let ctx = &self.answers.ctx;
        let labels = &self.answers.histograms[output.histogram as usize].labels;
        let message = "input to histogram_quantile needed to be fixed for monotonicity (see \
                       https://prometheus.io/docs/prometheus/latest/querying/functions/\
                       #histogram_quantile)";
        let message = with_metric_name(ctx, message.to_owned(), labels);
        ctx.info_repair(message, self.answers.span, repair);
    }
}

impl Answers {
    /// Returns whether no earlier request uses the buckets of a step. The first request corrects
    /// the buckets; later requests use the corrected ones.
    fn is_first_quantile(&self, request: u32, step: usize) -> bool {
        !self.requests[..request as usize].iter().any(|earlier| {
            earlier.question.share_at(step).is_some_and(|share| (0.0..=1.0).contains(&share))
        })
    }

    fn add_repair(&self, repairs: &mut Option<BucketRepair>, repair: Repair, step: usize) {
        let time_ms = self.steps().time(step);
        let repair = BucketRepair {
            bound_min: repair.bound_min,
            bound_max: repair.bound_max,
            difference_max: repair.difference_max,
            start_ms: time_ms,
            end_ms: time_ms,
            histogram_count: 1,
        };
        *repairs = Some(repairs.map_or(repair, |sum| sum.merge(&repair)));
    }
}
