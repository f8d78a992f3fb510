//! Active series by tenant: the value of one label.

use std::collections::HashMap;

use model::Labels;

/// Limits of active series by tenant; `usize::MAX` means no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSeriesLimits {
    /// Maximum of a tenant without a limit of its own.
    pub default_max: usize,
    /// Maxima by tenant.
    pub overrides: HashMap<Box<str>, usize>,
}

impl Default for TenantSeriesLimits {
    fn default() -> TenantSeriesLimits {
        TenantSeriesLimits { default_max: usize::MAX, overrides: HashMap::new() }
    }
}

impl TenantSeriesLimits {
    /// Returns the maximum of a tenant.
    pub fn of(&self, tenant: &str) -> usize {
        self.overrides.get(tenant).copied().unwrap_or(self.default_max)
    }
}

/// Counts of active series by tenant. The number of active series bounds that of tenants.
#[derive(Debug)]
pub(super) struct TenantCounts {
    label: String,
    counts: HashMap<Box<str>, usize>,
    pub(super) limits: TenantSeriesLimits,
}

impl TenantCounts {
    /// Returns counts by a label.
    pub(super) fn new(label: String) -> TenantCounts {
        let limits = TenantSeriesLimits::default();
        TenantCounts { label, counts: HashMap::new(), limits }
    }

    /// Returns the number of active series of a series' tenant, and its limit. A series without a
    /// tenant has none.
    pub(super) fn of(&self, labels: &Labels) -> (usize, usize) {
        match labels.get(&self.label) {
            "" => (0, usize::MAX),
            tenant => (self.counts.get(tenant).copied().unwrap_or(0), self.limits.of(tenant)),
        }
    }

    /// Counts a series that becomes active.
    pub(super) fn enter(&mut self, labels: &Labels) {
        match labels.get(&self.label) {
            "" => {}
            tenant => match self.counts.get_mut(tenant) {
                Some(count) => *count += 1,
                None => drop(self.counts.insert(tenant.into(), 1)),
            },
        }
    }

    /// Counts a series that becomes inactive.
    pub(super) fn leave(&mut self, labels: &Labels) {
        let tenant = labels.get(&self.label);
        if let Some(count) = self.counts.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(tenant);
            }
        }
    }

    /// Returns the number of active series of each tenant that has some.
    pub(super) fn all(&self) -> Vec<(String, usize)> {
        self.counts.iter().map(|(tenant, count)| (tenant.to_string(), *count)).collect()
    }
}
