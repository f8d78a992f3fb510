//! Lookups of series and labels, and remote reads: work that holds slots but evaluates no query.

use std::sync::Arc;
use std::time::Duration;

use model::Budget;

use super::Gates;
use super::active::Client;
use super::gate::{GateError, PermitRequest, QueryPermit};
use super::sending::{Answered, Sending};
use crate::tenancy::QuerySlots;

/// Request for a lookup.
#[derive(Debug, Clone, Default)]
pub(crate) struct LookupRequest {
    /// Path and selectors.
    pub(crate) text: String,
    /// Client that sent it.
    pub(crate) client: Client,
}

/// Lookup of series or labels, or a remote read. Dropping it stops its work.
pub(crate) struct Lookup {
    /// Limits and costs.
    pub(crate) budget: Budget,
    /// Time limit.
    pub(crate) timeout: Duration,
    pub(super) request: LookupRequest,
    pub(super) gates: Arc<Gates>,
    /// True for a remote read.
    pub(super) is_read: bool,
    pub(super) permits: Option<LookupPermits>,
    /// Slots of its tenants.
    pub(super) _slots: QuerySlots,
}

/// Work that needs no slot.
pub(crate) struct UngatedWork {
    pub(super) request: LookupRequest,
    pub(super) gates: Arc<Gates>,
}

impl Answered for UngatedWork {
    fn into_sending(self, bytes: u64) -> Sending {
        self.gates.prepare(&self.request, bytes)
    }
}

/// Permits of a lookup.
pub(super) struct LookupPermits {
    pub(super) waited: Duration,
    pub(super) _query_permit: QueryPermit,
    /// Permit of a remote read, if these are limited.
    pub(super) _read_permit: Option<QueryPermit>,
}

impl Lookup {
    /// Returns the state of a response that is computed while it is sent.
    pub(crate) fn sending(&self) -> Sending {
        let listed = self.gates.list(&self.request);
        self.gates.outbox.prepare_computing(listed, self.budget.memory_bytes())
    }

    /// Releases the permits while nothing is computed.
    pub(crate) fn pause(&mut self) {
        self.permits = None;
    }

    /// Waits for permits again.
    ///
    /// Errors: no slot is free in time.
    pub(crate) async fn resume(&mut self) -> Result<(), GateError> {
        let timeout = self.timeout.saturating_sub(self.budget.elapsed());
        self.permits = Some(self.gates.enter(self.is_read, PermitRequest::Again, timeout).await?);
        Ok(())
    }
}

impl Answered for Lookup {
    fn into_sending(self, bytes: u64) -> Sending {
        self.gates.prepare(&self.request, bytes)
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.budget.cancel();
    }
}
