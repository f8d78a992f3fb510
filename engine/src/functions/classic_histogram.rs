//! `histogram_quantile`, `histogram_quantiles` and `histogram_fraction` of classic
//! histograms: series that differ in `le` only are the buckets of one.

use std::cmp::Ordering;
use std::sync::Arc;

use hashbrown::HashMap;
use model::Labels;
use model::watch::sort_by;

use crate::annotations::{BucketRepair, Cause};
use crate::error::QueryError;
use crate::exec::charge::Charge;
use crate::exec::gather::Gather;
use crate::exec::operator::{Context, Operand, SeriesMeta, TileReader, VectorOperator};
use crate::exec::scan::scan;
use crate::exec::unique::unique;
use crate::exec::watch::Watch;
use crate::number_text::{general, parse_float};
use crate::parse::ast::Span;
use crate::tile::{Tile, is_present, set_present};
use crate::window::Steps;

use super::buckets::{Bucket, Repair, fraction, quantile};

const BUCKET_LABEL: &str = "le";

/// What is asked of a histogram; one number a step each.
pub(super) enum Question {
    /// The value below which a share of the observations lies.
    Quantile {
        /// The share.
        shares: Arc<[f64]>,
        /// Answered only where the share has these bits; else everywhere.
        only: Option<u64>,
    },
    /// The share of the observations between two values.
    Fraction {
        /// From here.
        lower: Vec<f64>,
        /// To here.
        upper: Vec<f64>,
    },
}

impl Question {
    /// Whether it is asked at a step, and about which share of the observations.
    fn share_at(&self, step: usize) -> Option<f64> {
        match self {
            Question::Quantile { shares, only } => {
                Some(shares[step]).filter(|share| only.is_none_or(|bits| bits == share.to_bits()))
            }
            Question::Fraction { .. } => None,
        }
    }

    fn is_asked_at(&self, step: usize) -> bool {
        matches!(self, Question::Fraction { .. }) || self.share_at(step).is_some()
    }
}

/// A question and the label that its answers bear besides the histogram's.
pub(super) struct Request {
    pub(super) question: Question,
    pub(super) label: Option<(String, String)>,
}

/// Warns of quantiles outside of 0 to 1, once a value.
pub(super) fn check_quantiles(ctx: &Context, quantiles: &[f64], cause: Cause) {
    let mut latest = None;
    for quantile in quantiles.iter().filter(|quantile| !(0.0..=1.0).contains(*quantile)) {
        if latest.replace(quantile.to_bits()) != Some(quantile.to_bits()) {
            let shown = general(*quantile);
            ctx.warn(format!("quantile value should be between 0 and 1, got {shown}"), cause);
        }
    }
}

/// Answers requests about every classic histogram of a vector. `span` is that of the vector;
/// `charge` is for the requests.
///
/// Errors: what the vector gives, and the limits of the query.
/// Source: `resetHistograms`, `funcHistogramQuantile` of Prometheus.
pub(super) fn evaluate(
    ctx: &Context,
    span: Span,
    input: Box<dyn VectorOperator>,
    requests: Vec<Request>,
    mut charge: Charge,
) -> Result<Operand, QueryError> {
    let Collected { histograms, unbounded } = collect(ctx, input.series(), &mut charge)?;
    warn_of_unbounded(ctx, span, &*input, &unbounded)?;
    let output_count = histograms.len().saturating_mul(requests.len());
    let bytes = output_count.saturating_mul(size_of::<SeriesMeta>() + size_of::<(u32, u32)>());
    charge.grow(bytes as u64)?;
    let mut series = Vec::with_capacity(output_count);
    let mut outputs = Vec::with_capacity(series.capacity());
    for (index, histogram) in histograms.iter().enumerate() {
        ctx.budget.check()?;
        for (request_index, request) in requests.iter().enumerate() {
            let mut meta =
                SeriesMeta { labels: histogram.labels.clone(), drop_name: true }.dropping_name(ctx);
            if let Some((name, value)) = &request.label {
                charge.grow((meta.labels.as_bytes().len() + name.len() + value.len()) as u64)?;
                meta.labels = meta.labels.to_builder().set(name, value).build();
            }
            series.push(meta);
            outputs.push((index as u32, request_index as u32));
        }
    }
    let answers = Box::new(Answers {
        ctx: ctx.clone(),
        span,
        input,
        histograms,
        requests,
        outputs,
        series,
        _charge: charge,
    });
    // At an instant Prometheus looks for repeated label sets only when names have been removed.
    let is_checked_later = ctx.delayed_name_removal && answers.steps().count == 1;
    Ok(Operand::Vector(if is_checked_later { answers } else { unique(ctx, answers)? }))
}

/// The buckets of one histogram.
struct Histogram {
    /// Without the bucket label.
    labels: Labels,
    /// Upper bound and series of each bucket, by bound.
    buckets: Vec<(f64, u32)>,
    /// Whether that is so. A bound that is NaN has no place in the order; the buckets of each
    /// step are sorted as Go would sort them then.
    is_sorted: bool,
}

/// What a histogram takes beside its labels: its entries in tables that may be half full.
const HISTOGRAM_BYTES: usize = 2 * (size_of::<Histogram>() + size_of::<(Labels, usize)>() + 8);

/// The histograms of a vector.
struct Collected {
    histograms: Vec<Histogram>,
    /// Series whose bucket label is not a number.
    unbounded: Vec<u32>,
}

/// Sorts series into histograms.
fn collect(
    ctx: &Context,
    series: &[SeriesMeta],
    charge: &mut Charge,
) -> Result<Collected, QueryError> {
    // Vectors that grow may have twice the room that they need.
    let bytes = series.len() * 2 * size_of::<(f64, u32)>();
    charge.grow(bytes as u64)?;
    let mut watch = Watch::new(&ctx.budget);
    let mut histograms: Vec<Histogram> = Vec::new();
    let mut unbounded = Vec::new();
    let mut seen: HashMap<Labels, usize, foldhash::fast::RandomState> = HashMap::default();
    for (index, meta) in series.iter().enumerate() {
        watch.work(meta.labels.as_bytes().len())?;
        let Some(bound) = parse_float(meta.labels.get(BUCKET_LABEL)) else {
            unbounded.push(index as u32);
            continue;
        };
        let labels = meta.labels.filtered(|name| name != BUCKET_LABEL);
        let slot = match seen.get(&labels) {
            Some(slot) => *slot,
            None => {
                charge.grow((labels.as_bytes().len() + HISTOGRAM_BYTES) as u64)?;
                seen.insert(labels.clone(), histograms.len());
                histograms.push(Histogram { labels, buckets: Vec::new(), is_sorted: true });
                histograms.len() - 1
            }
        };
        histograms[slot].buckets.push((bound, index as u32));
    }
    for histogram in &mut histograms {
        histogram.is_sorted = histogram.buckets.iter().all(|(bound, _)| !bound.is_nan());
        if histogram.is_sorted {
            let buckets = std::mem::take(&mut histogram.buckets);
            histogram.buckets = sort_by(buckets, &mut watch, |_| 1, |a, b| a.0.total_cmp(&b.0))?;
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
                let labels = &input.series()[*index as usize].labels;
                let mut message =
                    String::from("bucket label \"le\" is missing or has a malformed value of ");
                // Writing to a string cannot fail.
                let _ = model::labels::write_quoted(&mut message, labels.get(BUCKET_LABEL));
                ctx.warn(with_metric_name(ctx, message, labels), span);
            }
        }
    })
}

/// The message with the metric's name, where that is still known.
fn with_metric_name(ctx: &Context, mut message: String, labels: &Labels) -> String {
    if ctx.delayed_name_removal && !labels.metric_name().is_empty() {
        message.push_str(" for metric name ");
        // Writing to a string cannot fail.
        let _ = model::labels::write_quoted(&mut message, labels.metric_name());
    }
    message
}

struct Answers {
    ctx: Context,
    span: Span,
    input: Box<dyn VectorOperator>,
    histograms: Vec<Histogram>,
    requests: Vec<Request>,
    /// Histogram and request of each output series.
    outputs: Vec<(u32, u32)>,
    series: Vec<SeriesMeta>,
    _charge: Charge,
}

impl VectorOperator for Answers {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn has_effects(&self) -> bool {
        self.requests.iter().any(|request| matches!(request.question, Question::Quantile { .. }))
            || self.input.has_effects()
    }

    fn has_histograms(&self) -> bool {
        false
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        let mut entries = Vec::new();
        let mut first_rows: HashMap<u32, usize, foldhash::fast::RandomState> = HashMap::default();
        let outputs = series
            .iter()
            .map(|index| {
                let (histogram, request) = self.outputs[*index as usize];
                let first_row = *first_rows.entry(histogram).or_insert_with(|| {
                    let first_row = entries.len();
                    let buckets = &self.histograms[histogram as usize].buckets;
                    entries.extend(buckets.iter().map(|(_, series)| *series));
                    first_row
                });
                Output { histogram, request, first_row }
            })
            .collect();
        Box::new(AnswersReader {
            answers: self,
            entries: Gather::open(&self.ctx, &*self.input, &entries),
            outputs,
            buckets: Vec::new(),
            watch: Watch::new(&self.ctx.budget),
            first_step: 0,
        })
    }
}

struct AnswersReader<'a> {
    answers: &'a Answers,
    /// The buckets of all histograms asked for.
    entries: Gather<'a>,
    outputs: Vec<Output>,
    buckets: Vec<Bucket>,
    watch: Watch,
    first_step: usize,
}

#[derive(Clone, Copy)]
struct Output {
    histogram: u32,
    request: u32,
    /// Where the histogram's buckets begin among the entries.
    first_row: usize,
}

impl TileReader for AnswersReader<'_> {
    fn next_tile(&mut self, step_count: usize, tile: &mut Tile) -> Result<(), QueryError> {
        self.entries.next(step_count)?;
        tile.reset(self.outputs.len(), step_count);
        for row in 0..self.outputs.len() {
            let (values, presence) = tile.row_mut(row);
            self.answer(self.outputs[row], values, presence)?;
        }
        self.first_step += step_count;
        Ok(())
    }
}

impl AnswersReader<'_> {
    fn answer(
        &mut self,
        output: Output,
        values: &mut [f64],
        presence: &mut [u64],
    ) -> Result<(), QueryError> {
        let histogram = &self.answers.histograms[output.histogram as usize];
        let request = &self.answers.requests[output.request as usize];
        let mut repairs = None;
        self.watch.work(values.len())?;
        for (step, value) in values.iter_mut().enumerate() {
            let at = self.first_step + step;
            if !request.question.is_asked_at(at) {
                continue;
            }
            self.watch.work(4 * histogram.buckets.len())?;
            self.buckets.clear();
            for (entry, (bound, _)) in histogram.buckets.iter().enumerate() {
                let (counts, present) = self.entries.row(output.first_row + entry);
                if is_present(present, step) {
                    self.buckets.push(Bucket { upper_bound: *bound, count: counts[step] });
                }
            }
            if self.buckets.is_empty() {
                continue;
            }
            if !histogram.is_sorted {
                let buckets = std::mem::take(&mut self.buckets);
                self.buckets = sort_by(
                    buckets,
                    &mut self.watch,
                    |_| 1,
                    |a, b| a.upper_bound.partial_cmp(&b.upper_bound).unwrap_or(Ordering::Equal),
                )?;
            }
            set_present(presence, step);
            *value = match &request.question {
                Question::Fraction { lower, upper } => {
                    fraction(lower[at], upper[at], &mut self.buckets)
                }
                Question::Quantile { shares, .. } => {
                    let (value, repair) = quantile(shares[at], &mut self.buckets);
                    if let Some(repair) = repair
                        && self.answers.is_first_quantile(output.request, at)
                    {
                        self.answers.add_repair(&mut repairs, repair, at);
                    }
                    value
                }
            };
        }
        if let Some(repairs) = repairs {
            self.answers.report(histogram, repairs);
        }
        Ok(())
    }
}

impl Answers {
    /// Whether no request before this one looks at the buckets of a step: the first that
    /// does finds them as they are, and mends them for the others.
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

    fn report(&self, histogram: &Histogram, repair: BucketRepair) {
        let message = "input to histogram_quantile needed to be fixed for monotonicity (see \
                       https://prometheus.io/docs/prometheus/latest/querying/functions/\
                       #histogram_quantile)";
        let message = with_metric_name(&self.ctx, message.to_owned(), &histogram.labels);
        self.ctx.info_repair(message, self.span, repair);
    }
}
