//! Annotations of range functions on histograms.

use model::labels::quoted;

use crate::annotations::Cause;
use crate::exec::operator::Context;

/// Annotation of a range.
///
/// Source: the annotations of these names in `util/annotations/annotations.go` of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum RangeAnnotation {
    /// Floats and histograms cannot be combined.
    MixedFloats = 1 << 0,
    /// Histograms with exponential and with custom buckets cannot be combined.
    MixedSchemas = 1 << 1,
    /// A gauge is used as a counter.
    NotCounter = 1 << 2,
    /// A counter is used as a gauge.
    NotGauge = 1 << 3,
    /// Histograms are ignored.
    Ignored = 1 << 4,
    /// One histogram is marked as reset, another as not reset.
    Collision = 1 << 5,
    /// Different custom bounds were added up.
    ReconciledAdd = 1 << 6,
    /// Different custom bounds were subtracted.
    ReconciledSub = 1 << 7,
    /// Different custom bounds were aggregated.
    ReconciledAggregation = 1 << 8,
    /// A start timestamp is before the previous sample; every occurrence counts.
    Overlap = 1 << 9,
}

const ALL: [RangeAnnotation; 10] = [
    RangeAnnotation::MixedFloats,
    RangeAnnotation::MixedSchemas,
    RangeAnnotation::NotCounter,
    RangeAnnotation::NotGauge,
    RangeAnnotation::Ignored,
    RangeAnnotation::Collision,
    RangeAnnotation::ReconciledAdd,
    RangeAnnotation::ReconciledSub,
    RangeAnnotation::ReconciledAggregation,
    RangeAnnotation::Overlap,
];

/// Set of annotations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::exec::rollup) struct RangeAnnotations(u16);

impl RangeAnnotations {
    #[inline]
    pub(super) fn add(&mut self, remark: RangeAnnotation) {
        self.0 |= remark as u16;
    }

    /// Adds an annotation if the condition is true.
    #[inline]
    pub(super) fn add_if(&mut self, is_so: bool, remark: RangeAnnotation) {
        if is_so {
            self.add(remark);
        }
    }

    #[inline]
    pub(super) fn merge(&mut self, other: RangeAnnotations) {
        self.0 |= other.0;
    }

    #[inline]
    pub(super) fn has(self, remark: RangeAnnotation) -> bool {
        self.0 & remark as u16 != 0
    }

    /// Returns the annotations that are not in `other`.
    pub(super) fn without(self, other: RangeAnnotations) -> RangeAnnotations {
        RangeAnnotations(self.0 & !other.0)
    }

    /// Reports all annotations except overlaps for the metric `name`.
    pub(super) fn say(self, ctx: &Context, name: &str, cause: Cause) {
        let name = quoted(name);
        for remark in ALL.into_iter().filter(|remark| self.has(*remark)) {
            match remark {
                RangeAnnotation::MixedFloats => ctx.warn(
                    format!("encountered a mix of histograms and floats for metric name {name}"),
                    cause,
                ),
                RangeAnnotation::MixedSchemas => ctx.warn(
                    format!(
                        "vector contains a mix of histograms with exponential and custom buckets \
                         schemas for metric name {name}"
                    ),
                    cause,
                ),
                RangeAnnotation::NotCounter => {
                    ctx.warn(
                        format!("this native histogram metric is not a counter: {name}"),
                        cause,
                    );
                }
                RangeAnnotation::NotGauge => {
                    ctx.warn(format!("this native histogram metric is not a gauge: {name}"), cause);
                }
                RangeAnnotation::Ignored => ctx.info(
                    format!(
                        "ignored histograms in a range containing both floats and histograms for \
                         metric name {name}"
                    ),
                    cause,
                ),
                RangeAnnotation::Collision => {
                    ctx.warn("conflicting counter resets during histogram aggregation", cause);
                }
                RangeAnnotation::ReconciledAdd => reconciled(ctx, "addition", cause),
                RangeAnnotation::ReconciledSub => reconciled(ctx, "subtraction", cause),
                RangeAnnotation::ReconciledAggregation => reconciled(ctx, "aggregation", cause),
                RangeAnnotation::Overlap => {}
            }
        }
    }
}

fn reconciled(ctx: &Context, what: &str, cause: Cause) {
    ctx.info(format!("mismatched custom buckets were reconciled during {what}"), cause);
}

/// Returns the warning of overlapping start timestamps.
///
/// Source: `NewStartTimeOverlapWarning` of Prometheus.
pub(super) fn overlap(name: &str) -> String {
    let name = quoted(name);
    format!("sample has start time that overlaps with previous sample timestamp for metric {name}")
}
