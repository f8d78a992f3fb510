//! `target_info`: the series with the attributes of a resource as labels.

use std::hash::BuildHasher as _;

use model::{MetricKind, RejectReason};

use super::{NS_PER_MS, SAMPLE_BYTES, Translator};
use crate::DecodeError;
use crate::otlp::labels::LabelSet;
use crate::otlp::message::Attribute;
use crate::otlp::resource::{PointTimes, ResourceLabels};

/// Name of the metric.
const TARGET_INFO: &str = "target_info";

const NS_PER_DAY: i64 = 86_400 * 1_000_000_000;

/// Maximum number of samples of one resource: one week with the lookback of 5 minutes. Otherwise a
/// wrong clock of a sender could create samples for years.
const TARGET_SAMPLES_MAX: i64 = 4096;

impl<'t> Translator<'t, '_> {
    /// Adds the series of a resource.
    pub(super) fn target_info(
        &mut self,
        attributes: &'t [Attribute<'t>],
        resource: &ResourceLabels<'t>,
        times: Option<PointTimes>,
    ) -> Result<(), DecodeError> {
        let Some(times) = times else { return Ok(()) };
        let (settings, limits) = (self.settings, self.builder.limits);
        let base = match resource.target_info(attributes, settings, &mut self.names, limits) {
            Ok(Some(labels)) => labels,
            Ok(None) => return Ok(()),
            Err((reason, text)) => {
                self.refuse([], reason, || format!("{text} for {TARGET_INFO} of a resource"));
                return Ok(());
            }
        };
        let mark = self.builder.mark();
        self.builder.budget.charge(SAMPLE_BYTES + base.packed_bytes())?;
        self.target_info_samples(&base, times)?;
        let packed = base.pack(TARGET_INFO, None, limits, &mut self.builder.batch.labels_arena);
        self.close_packed(mark, packed);
        self.metadata(TARGET_INFO.to_owned(), MetricKind::Gauge, "Target metadata", "")
    }

    /// Adds samples from the first to the last timestamp, half a lookback apart.
    fn target_info_samples(
        &mut self,
        base: &LabelSet<'_>,
        PointTimes { first_ns: first, last_ns: last }: PointTimes,
    ) -> Result<(), DecodeError> {
        let step = (self.settings.lookback_ns / 2).max(NS_PER_MS) as i64;
        let hash = self.hasher.hash_one(base);
        let before_last = ((last - first) as u64).div_ceil(step as u64) as i64;
        let first_kept = first + (before_last - (TARGET_SAMPLES_MAX - 1)).max(0) * step;
        if first_kept > first {
            self.refuse([], RejectReason::DataPoint, || {
                format!(
                    "{TARGET_INFO} of a resource with data points {} days apart: only the newest \
                     {TARGET_SAMPLES_MAX} samples are kept",
                    (last - first) / NS_PER_DAY
                )
            });
        }
        for time_ns in (first_kept..last).step_by(step as usize).chain([last]) {
            if self.target_steps >= self.builder.limits.samples_max {
                // Bounds the work for repeated resources.
                let limits = self.builder.limits;
                let (limit, name) = (limits.samples_max, limits.names.samples_max);
                self.refuse([], RejectReason::DataPoint, || {
                    format!("{TARGET_INFO}: {limit} samples of one request ({name})")
                });
                return Ok(());
            }
            self.target_steps += 1;
            let time_ms = time_ns / NS_PER_MS as i64;
            if self.seen_targets.insert((hash, time_ms)) {
                self.builder.budget.charge(SAMPLE_BYTES)?;
                self.builder.push_sample(time_ms, 1.0);
                self.builder.check_samples()?;
            }
        }
        Ok(())
    }
}
