//! Limits of tenants.

use std::collections::BTreeMap;

/// Limits of one tenant; 0 is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TenantLimits {
    /// Maximum number of active series.
    pub(crate) active_series_max: u64,
    /// Maximum rate of samples, a second.
    pub(crate) samples_per_second_max: u64,
    /// Maximum number of queries and lookups that run or wait.
    pub(crate) queries_max: u64,
    /// Maximum memory of all running queries, in bytes.
    pub(crate) query_memory_bytes_max: u64,
}

/// Limits of all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LimitTable {
    /// Limits of tenants without limits of their own.
    pub(crate) defaults: TenantLimits,
    /// Limits by tenant.
    pub(crate) overrides: BTreeMap<String, TenantLimits>,
}

impl LimitTable {
    /// Returns the limits of a tenant.
    pub(crate) fn of(&self, tenant: &str) -> TenantLimits {
        self.overrides.get(tenant).copied().unwrap_or(self.defaults)
    }

    /// Returns the limits of active series for the store.
    pub(crate) fn active_series(&self) -> storage::TenantSeriesLimits {
        let bound = |limits: &TenantLimits| match limits.active_series_max {
            0 => usize::MAX,
            max => usize::try_from(max).unwrap_or(usize::MAX),
        };
        let overrides = self.overrides.iter();
        storage::TenantSeriesLimits {
            default_max: bound(&self.defaults),
            overrides: overrides
                .map(|(tenant, own)| (tenant.as_str().into(), bound(own)))
                .collect(),
        }
    }
}
