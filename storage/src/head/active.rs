//! Counts of active series, in total, by metric and by tenant, and of samples refused by their limits.
//!
//! A series is active from the decision on its first sample until all its samples are sealed. If
//! a commit fails, its new series stay counted; the store takes no more writes anyway.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use model::{Labels, RejectReason};

use crate::keys::metric_hash;
use crate::options::StoreOptions;
use crate::outcome::{Overflow, RefusedSeries};

use super::tenants::{TenantCounts, TenantSeriesLimits};

/// Maximum number of pairs of metric and limit that are counted separately.
const OFFENDERS_MAX: usize = 32;
/// Minimum interval of warnings, and lifetime of the cached largest metric.
const WARN_INTERVAL: Duration = Duration::from_secs(10);
/// Eighths of the head's memory limit from which new series are refused, and from which the head
/// is sealed early.
const NEW_SERIES_EIGHTHS: usize = 7;
const SEAL_EIGHTHS: usize = 6;

/// Limits of the head; `usize::MAX` means no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadLimits {
    /// Maximum active series of all metrics.
    pub(crate) series_max: usize,
    /// Maximum active series of each metric.
    pub(crate) series_per_metric_max: usize,
    /// Maximum bytes of memory.
    pub(crate) bytes_max: usize,
}

impl HeadLimits {
    /// Returns the limits that options set.
    pub(crate) fn new(options: &StoreOptions) -> HeadLimits {
        let bound = |max: usize| if max == 0 { usize::MAX } else { max };
        HeadLimits {
            series_max: bound(options.active_series_max),
            series_per_metric_max: bound(options.active_series_per_metric_max),
            bytes_max: bound(options.head_bytes_max),
        }
    }

    /// Returns the bytes from which new series are refused, to leave room for known series.
    pub(crate) fn new_series_bytes_max(&self) -> usize {
        self.bytes_max / 8 * NEW_SERIES_EIGHTHS
    }

    /// Returns the bytes from which the head is sealed early.
    pub(crate) fn seal_bytes_min(&self) -> usize {
        self.bytes_max / 8 * SEAL_EIGHTHS
    }
}

/// Counts of active series.
#[derive(Default)]
pub(crate) struct Active(Mutex<ActiveState>);

#[derive(Default)]
struct ActiveState {
    count: usize,
    /// Metrics by the hash of their name; names with the same hash are counted together.
    metrics: HashMap<u64, OfMetric, RandomState>,
    /// Present if tenants are counted.
    tenants: Option<TenantCounts>,
    refused: Vec<RefusedSeries>,
    /// Samples that were refused since the last warning.
    unwarned: u64,
    warned_at: Option<Instant>,
    largest: Option<(Instant, String, usize)>,
}

struct OfMetric {
    count: usize,
    /// Labels of one of its series, for the name.
    example: Labels,
}

impl Active {
    /// Returns counts without a series; with a label, by its value, too.
    pub(crate) fn new(tenant_label: Option<String>) -> Active {
        let tenants = tenant_label.map(TenantCounts::new);
        Active(Mutex::new(ActiveState { tenants, ..ActiveState::default() }))
    }

    /// Sets the limits of active series by tenant, if tenants are counted.
    pub(crate) fn set_tenant_limits(&self, limits: TenantSeriesLimits) {
        if let Some(tenants) = &mut self.lock().tenants {
            tenants.limits = limits;
        }
    }

    /// Returns the number of active series of each tenant.
    pub(crate) fn tenant_series(&self) -> Vec<(String, usize)> {
        self.lock().tenants.as_ref().map_or_else(Vec::new, TenantCounts::all)
    }

    /// Returns the number of active series.
    pub(crate) fn count(&self) -> usize {
        self.lock().count
    }

    /// Checks whether one more series may become active in a head of `bytes` bytes.
    pub(crate) fn admit(
        &self,
        labels: &Labels,
        limits: &HeadLimits,
        bytes: usize,
    ) -> Result<(), RejectReason> {
        if bytes >= limits.new_series_bytes_max() {
            return Err(RejectReason::HeadSize);
        }
        let state = self.lock();
        if state.count >= limits.series_max {
            return Err(RejectReason::ActiveSeries);
        }
        if let Some((found, limit)) = state.tenants.as_ref().map(|tenants| tenants.of(labels))
            && found >= limit
        {
            return Err(RejectReason::ActiveSeriesOfTenant);
        }
        let of_metric = state.metrics.get(&metric_hash(labels.metric_name()));
        if of_metric.is_some_and(|metric| metric.count >= limits.series_per_metric_max) {
            return Err(RejectReason::ActiveSeriesOfMetric);
        }
        Ok(())
    }

    /// Counts a series that becomes active.
    pub(crate) fn enter(&self, labels: &Labels) {
        let mut state = self.lock();
        state.count += 1;
        if let Some(tenants) = &mut state.tenants {
            tenants.enter(labels);
        }
        let hash = metric_hash(labels.metric_name());
        let new = || OfMetric { count: 0, example: labels.clone() };
        state.metrics.entry(hash).or_insert_with(new).count += 1;
    }

    /// Counts a series that becomes inactive.
    pub(crate) fn leave(&self, labels: &Labels) {
        let mut state = self.lock();
        state.count = state.count.saturating_sub(1);
        if let Some(tenants) = &mut state.tenants {
            tenants.leave(labels);
        }
        let hash = metric_hash(labels.metric_name());
        if let Some(metric) = state.metrics.get_mut(&hash) {
            metric.count -= 1;
            if metric.count == 0 {
                state.metrics.remove(&hash);
            }
        }
        if state.metrics.len() < state.metrics.capacity() / 8 {
            state.metrics.shrink_to_fit();
        }
    }

    /// Counts samples of a refused series, and logs a warning at intervals. Returns the exceeded
    /// limit.
    pub(crate) fn refuse(
        &self,
        labels: &Labels,
        reason: RejectReason,
        limits: &HeadLimits,
        bytes: usize,
        samples: u64,
    ) -> Overflow {
        let mut state = self.lock();
        let metric = labels.metric_name();
        state.count_refused(metric, reason, samples);
        let (metric, metric_series) = match reason {
            RejectReason::ActiveSeriesOfMetric | RejectReason::ActiveSeriesOfTenant => {
                let found = state.metrics.get(&metric_hash(metric));
                (metric.to_owned(), found.map_or(0, |metric| metric.count))
            }
            _ => state.largest(),
        };
        let (found, limit) = match reason {
            RejectReason::ActiveSeriesOfMetric => (metric_series, limits.series_per_metric_max),
            RejectReason::ActiveSeriesOfTenant => {
                state.tenants.as_ref().map_or((0, 0), |tenants| tenants.of(labels))
            }
            RejectReason::ActiveSeries => (state.count, limits.series_max),
            _ => (bytes, limits.bytes_max),
        };
        let overflow = Overflow { metric, metric_series, found, limit };
        state.warn(reason, &overflow, samples);
        overflow
    }

    /// Returns the refused samples, by metric and limit.
    pub(crate) fn refused(&self) -> Vec<RefusedSeries> {
        self.lock().refused.clone()
    }

    fn lock(&self) -> MutexGuard<'_, ActiveState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveState {
    fn count_refused(&mut self, metric: &str, reason: RejectReason, samples: u64) {
        let is_full = self.refused.len() >= OFFENDERS_MAX;
        let is = |name: &str| {
            self.refused.iter().position(|known| known.metric == name && known.reason == reason)
        };
        let name = if is_full && is(metric).is_none() { "" } else { metric };
        let at = is(name).unwrap_or_else(|| {
            self.refused.push(RefusedSeries { metric: name.to_owned(), reason, samples: 0 });
            self.refused.len() - 1
        });
        self.refused[at].samples += samples;
    }

    /// Returns the metric with the most active series and their number, cached for some seconds.
    fn largest(&mut self) -> (String, usize) {
        if let Some((found_at, metric, count)) = &self.largest
            && found_at.elapsed() < WARN_INTERVAL
        {
            return (metric.clone(), *count);
        }
        let largest = self.metrics.values().max_by_key(|metric| metric.count);
        let (metric, count) = largest.map_or((String::new(), 0), |metric| {
            (metric.example.metric_name().to_owned(), metric.count)
        });
        self.largest = Some((Instant::now(), metric.clone(), count));
        (metric, count)
    }

    fn warn(&mut self, reason: RejectReason, overflow: &Overflow, samples: u64) {
        self.unwarned += samples;
        if self.warned_at.is_some_and(|at| at.elapsed() < WARN_INTERVAL) {
            return;
        }
        self.warned_at = Some(Instant::now());
        let Overflow { metric, metric_series, found, limit } = overflow;
        tracing::warn!(
            metric,
            metric_series,
            found,
            limit,
            samples = std::mem::take(&mut self.unwarned),
            "samples of new series are refused: {reason}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits =
        HeadLimits { series_max: 3, series_per_metric_max: 2, bytes_max: 800 };

    fn labels(metric: &str, series: usize) -> Labels {
        Labels::from_pairs([("__name__", metric), ("series", &series.to_string())])
    }

    #[test]
    fn series_are_admitted_up_to_each_limit_and_again_once_others_have_left() {
        let active = Active::default();
        let admit = |metric, bytes| active.admit(&labels(metric, 9), &LIMITS, bytes);
        active.enter(&labels("a", 0));
        assert_eq!(admit("a", 0), Ok(()));
        active.enter(&labels("a", 1));
        assert_eq!(admit("a", 0), Err(RejectReason::ActiveSeriesOfMetric));
        assert_eq!(admit("b", 699), Ok(()));
        assert_eq!(admit("b", 700), Err(RejectReason::HeadSize));
        active.enter(&labels("b", 0));
        assert_eq!((admit("c", 0), active.count()), (Err(RejectReason::ActiveSeries), 3));
        active.leave(&labels("a", 1));
        assert_eq!((admit("a", 0), active.count()), (Ok(()), 2));
    }

    #[test]
    fn refusals_name_the_metric_and_its_count() {
        let active = Active::default();
        for series in 0..2 {
            active.enter(&labels("large", series));
        }
        active.enter(&labels("small", 0));
        let refuse = |reason| active.refuse(&labels("small", 1), reason, &LIMITS, 750, 4);
        let of = |metric: &str, metric_series, found, limit| Overflow {
            metric: metric.to_owned(),
            metric_series,
            found,
            limit,
        };
        assert_eq!(refuse(RejectReason::ActiveSeries), of("large", 2, 3, 3));
        assert_eq!(refuse(RejectReason::ActiveSeriesOfMetric), of("small", 1, 1, 2));
        assert_eq!(refuse(RejectReason::HeadSize), of("large", 2, 750, 800));
    }

    #[test]
    fn offenders_beyond_the_bound_are_counted_together() {
        let active = Active::default();
        for metric in 0..OFFENDERS_MAX + 5 {
            let labels = labels(&format!("metric_{metric}"), 0);
            active.refuse(&labels, RejectReason::ActiveSeries, &LIMITS, 0, 1);
        }
        let refused = active.refused();
        assert_eq!(refused.len(), OFFENDERS_MAX + 1);
        assert_eq!(refused.iter().map(|r| r.samples).sum::<u64>(), OFFENDERS_MAX as u64 + 5);
        assert_eq!(refused.last().map(|r| (r.metric.as_str(), r.samples)), Some(("", 5)));
    }
}
