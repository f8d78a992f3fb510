//! Lookups of series and labels, and remote reads: work that holds slots but evaluates no query.

use std::sync::Arc;
use std::time::Duration;

use model::Budget;

use super::Gates;
use super::active::Client;
use super::gate::{GateError, PermitRequest, QueryPermit};
use super::sending::{Answered, Sending};

/// Request for a lookup.
#[derive(Debug, Clone, Default)]
pub(crate) struct LookupRequest {
    /// Path and selectors.
    pub(crate) text: String,
    /// Who asks.
    pub(crate) client: Client,
}

/// A lookup of series or labels. Dropping it stops what still works for it.
pub(crate) struct Lookup {
    /// What it may cost.
    pub(crate) budget: Budget,
    /// How long it may take.
    pub(crate) timeout: Duration,
    pub(super) request: LookupRequest,
    pub(super) gates: Arc<Gates>,
    /// Whether it is a remote read.
    pub(super) is_read: bool,
    pub(super) places: Option<LookupPlaces>,
}

/// Work that takes no place.
pub(crate) struct UnplacedWork {
    pub(super) request: LookupRequest,
    pub(super) gates: Arc<Gates>,
}

impl Answered for UnplacedWork {
    fn into_sending(self, bytes: u64) -> Sending {
        self.gates.prepare(&self.request, bytes)
    }
}

/// The places of a lookup.
pub(super) struct LookupPlaces {
    pub(super) waited: Duration,
    pub(super) _place: QueryPermit,
    /// Its place among remote reads, if it is one and they are limited.
    pub(super) _read_place: Option<QueryPermit>,
}

impl Lookup {
    /// Response that is computed while it is sent.
    pub(crate) fn sending(&self) -> Sending {
        let listed = self.gates.list(&self.request);
        self.gates.outbox.prepare_computing(listed, self.budget.memory_bytes())
    }

    /// Gives its places back while it computes nothing.
    pub(crate) fn pause(&mut self) {
        self.places = None;
    }

    /// Waits for places again.
    ///
    /// Errors: none comes free in time.
    pub(crate) async fn resume(&mut self) -> Result<(), GateError> {
        let timeout = self.timeout.saturating_sub(self.budget.elapsed());
        self.places = Some(self.gates.enter(self.is_read, PermitRequest::Again, timeout).await?);
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
