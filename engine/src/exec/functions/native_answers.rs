//! Native histograms in functions of histograms: separately, or combined with classic histograms
//! of the same labels.

use std::sync::Arc;

use model::Histogram;

use crate::catalog::NativeHistogramFunction;
use crate::error::QueryError;
use crate::exec::adapter::elementwise::{HistogramKernel, HistogramRule};
use crate::number_text::parse_float;
use crate::tile::set_present;

use super::classic_histogram::{
    Asking, BUCKET_LABEL, Output, Question, Scratch, report_unbounded, with_metric_name,
};
use super::native_quantile::{NanEffect, fraction, quantile, variance};

/// Returns the rule of a function that returns a number for each native histogram.
pub(super) fn of_each(function: NativeHistogramFunction) -> HistogramRule {
    let kernel = match function {
        NativeHistogramFunction::Avg => each(|histogram| histogram.sum / histogram.count),
        NativeHistogramFunction::Count => each(|histogram| histogram.count),
        NativeHistogramFunction::Stddev => each(|histogram| variance(histogram).sqrt()),
        NativeHistogramFunction::Stdvar => each(variance),
        NativeHistogramFunction::Sum => each(|histogram| histogram.sum),
    };
    HistogramRule::Answer(kernel)
}

fn each(answer: impl Fn(&Histogram) -> f64 + Send + Sync + 'static) -> HistogramKernel {
    Box::new(move |_, histograms, values, presence| {
        for (step, cell) in histograms.iter().enumerate() {
            if let Some(histogram) = cell {
                values[step] = answer(histogram);
                set_present(presence, step);
            }
        }
    })
}

/// Conditions in a row that cause annotations, each reported once.
#[derive(Default)]
struct Met {
    /// A step has both a native and a classic histogram with the same labels.
    both: bool,
    result_is_nan: bool,
    is_skewed: bool,
    are_excluded: bool,
}

impl Asking<'_> {
    /// Computes the results of a histogram that may be native at some steps and classic at others.
    /// A step with both has no result.
    ///
    /// Source: `resetHistograms` of Prometheus.
    pub(super) fn answer_mixed(
        &self,
        output: Output,
        scratch: &mut Scratch,
        values: &mut [f64],
        presence: &mut [u64],
    ) -> Result<(), QueryError> {
        self.warn_of_floats(output);
        let question = &self.answers.requests[output.request as usize].question;
        let mut met = Met::default();
        let mut repairs = None;
        for (step, value) in values.iter_mut().enumerate() {
            let at = self.first_step + step;
            if !question.is_asked_at(at) {
                continue;
            }
            self.fill_buckets(output, step, scratch)?;
            let buckets = &mut scratch.buckets;
            *value = match (self.native_at(output, step), buckets.is_empty()) {
                (Some(histogram), true) => {
                    scratch.checkpoint.work(bucket_count(histogram))?;
                    answer_native(question, at, histogram, &mut met)
                }
                (None, false) => self.answer_classic(output, at, buckets, &mut repairs),
                (Some(_), false) => {
                    met.both = true;
                    continue;
                }
                (None, true) => continue,
            };
            set_present(presence, step);
        }
        if let Some(repairs) = repairs {
            self.report_repairs(output, repairs);
        }
        self.report_met(output, &met);
        Ok(())
    }

    fn native_at(&self, output: Output, step: usize) -> Option<&Arc<Histogram>> {
        let histogram = &self.answers.histograms[output.histogram as usize];
        let first_row = output.first_row + histogram.buckets.len();
        (first_row..first_row + histogram.natives.len())
            .find_map(|row| self.entries.histograms(row).get(step)?.as_ref())
    }

    /// Warns of series with a float but without a bucket bound.
    fn warn_of_floats(&self, output: Output) {
        let histogram = &self.answers.histograms[output.histogram as usize];
        let first_row = output.first_row + histogram.buckets.len();
        let is_unbounded = || parse_float(histogram.labels.get(BUCKET_LABEL)).is_none();
        let has_float = |row: usize| self.entries.row(row).1.iter().any(|word| *word != 0);
        if (first_row..first_row + histogram.natives.len()).any(has_float) && is_unbounded() {
            report_unbounded(&self.answers.ctx, self.answers.span, &histogram.labels);
        }
    }

    fn report_met(&self, output: Output, met: &Met) {
        let (ctx, span) = (&self.answers.ctx, self.answers.span);
        let labels = &self.answers.histograms[output.histogram as usize].labels;
        let message = |text: &str| with_metric_name(ctx, text.to_owned(), labels);
        if met.both {
            let text = "vector contains a mix of classic and native histograms";
            ctx.warn(message(text), span);
        }
        let infos = [
            (met.result_is_nan, "input to histogram_quantile has NaN observations, result is NaN"),
            (
                met.is_skewed,
                "input to histogram_quantile has NaN observations, result is skewed higher",
            ),
            (
                met.are_excluded,
                "input to histogram_fraction has NaN observations, which are excluded from all \
                 fractions",
            ),
        ];
        for (_, text) in infos.into_iter().filter(|(is_met, _)| *is_met) {
            ctx.info(message(text), span);
        }
    }
}

fn bucket_count(histogram: &Histogram) -> usize {
    histogram.positive_counts.len() + histogram.negative_counts.len()
}

fn answer_native(question: &Question, at: usize, histogram: &Histogram, met: &mut Met) -> f64 {
    let (value, effect) = match question {
        Question::Fraction { lower, upper } => fraction(lower[at], upper[at], histogram),
        Question::Quantile { shares, .. } => quantile(shares[at], histogram),
    };
    match effect {
        Some(NanEffect::Result) => met.result_is_nan = true,
        Some(NanEffect::Skew) => met.is_skewed = true,
        Some(NanEffect::Excluded) => met.are_excluded = true,
        None => {}
    }
    value
}
