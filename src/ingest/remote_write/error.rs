//! Errors of write requests, and their classes.

use std::time::Duration;

use crate::flags::names::{BODY_FLAG, BODY_TIMEOUT_FLAG};
use crate::tenancy::LimitExceeded;
use crate::units::format_duration;
use storage::StoreError;
use wire::{Counts, DecodeError, InflightFull, Rejects};

/// Error of a write request that is not acknowledged, or only in part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The content type or encoding is unknown.
    #[error("{0}")]
    Unsupported(String),
    /// The connection broke, or the body's framing is wrong.
    #[error("cannot read the request: {0}")]
    Receive(#[source] axum::Error),
    /// The body did not arrive in time.
    #[error("request took longer than {} to arrive (--{BODY_TIMEOUT_FLAG})", format_duration(*.0))]
    Slow(Duration),
    /// The body is larger than the limit, in bytes.
    #[error("request body exceeds the {0} bytes limit (--{BODY_FLAG})")]
    BodyTooLarge(usize),
    /// The labels take more than 4 GiB with that of the tenant.
    #[error(
        "labels of the request exceed 4 GiB with the label of the tenant: send smaller requests"
    )]
    LabelsTooLarge,
    /// The message cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// All requests together hold too many bytes.
    #[error(transparent)]
    Overloaded(#[from] InflightFull),
    /// The tenant sends too many samples.
    #[error(transparent)]
    Tenant(#[from] LimitExceeded),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread that decodes has panicked.
    #[error("the request could not be decoded")]
    Internal,
    /// A part is rejected; the rest is stored.
    #[error("{}", .0.rejects.to_text())]
    Rejected(Box<PartialWrite>),
}

/// Outcome of a request of which a part is rejected.
#[derive(Debug)]
pub(crate) struct PartialWrite {
    pub(super) rejects: Rejects,
    pub(super) written: Counts,
}

/// Class of a write error, by what the sender can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteErrorKind {
    /// Send a format that the server knows.
    Unsupported,
    /// Fix the request; its valid part is stored.
    Invalid,
    /// Send smaller requests.
    TooLarge,
    /// Retry once windows are sealed: there is no room for new series.
    SeriesLimit,
    /// Retry after this time: the tenant has sent too many samples.
    TenantRate(Duration),
    /// Retry soon.
    Unavailable,
    /// None: the server is at fault.
    Internal,
}

impl WriteError {
    /// Returns the class of the error.
    pub(crate) fn kind(&self) -> WriteErrorKind {
        match self {
            WriteError::Unsupported(_) => WriteErrorKind::Unsupported,
            WriteError::Rejected(partial) if partial.rejects.is_for_want_of_room() => {
                WriteErrorKind::SeriesLimit
            }
            WriteError::Tenant(LimitExceeded::Samples { retry, .. }) => {
                WriteErrorKind::TenantRate(*retry)
            }
            WriteError::BodyTooLarge(_)
            | WriteError::LabelsTooLarge
            | WriteError::Decode(DecodeError::TooLarge { .. }) => WriteErrorKind::TooLarge,
            WriteError::Decode(DecodeError::InflightFull(_))
            | WriteError::Slow(_)
            | WriteError::Tenant(LimitExceeded::Queries { .. })
            | WriteError::Overloaded(_) => WriteErrorKind::Unavailable,
            WriteError::Receive(_) | WriteError::Rejected(_) | WriteError::Decode(_) => {
                WriteErrorKind::Invalid
            }
            WriteError::Store(error) => store_error_kind(error),
            WriteError::Internal => WriteErrorKind::Internal,
        }
    }

    /// Returns the number of rejected samples of a request whose rest is stored.
    pub(crate) fn rejected_samples(&self) -> Option<u64> {
        let WriteError::Rejected(partial) = self else { return None };
        let counts = partial.rejects.counts();
        Some(counts.map(|(_, counts)| counts.floats + counts.histograms).sum())
    }

    /// Returns the counts written, for a request that reached the decoder.
    pub(crate) fn written(&self) -> Option<Counts> {
        match self {
            WriteError::Rejected(partial) => Some(partial.written),
            WriteError::Decode(DecodeError::Snappy(_))
            | WriteError::Unsupported(_)
            | WriteError::Receive(_)
            | WriteError::Slow(_)
            | WriteError::BodyTooLarge(_)
            | WriteError::Overloaded(_) => None,
            WriteError::Decode(_)
            | WriteError::LabelsTooLarge
            | WriteError::Tenant(_)
            | WriteError::Store(_)
            | WriteError::Internal => Some(Counts::default()),
        }
    }

    /// Returns the reason for which the log counts a request that is rejected as a whole.
    pub(super) fn reason(&self) -> &'static str {
        match (self, self.kind()) {
            (_, WriteErrorKind::Unsupported) => "unsupported_format",
            (_, WriteErrorKind::TenantRate(_)) => "tenant_rate",
            (_, WriteErrorKind::TooLarge) => "request_too_large",
            (WriteError::Receive(_), _) => "incomplete_request",
            _ => "malformed_request",
        }
    }
}

/// A sender retries where another process may accept the samples.
fn store_error_kind(error: &StoreError) -> WriteErrorKind {
    match error {
        StoreError::Overloaded { .. }
        | StoreError::HeadFull { .. }
        | StoreError::Stalled { .. }
        | StoreError::Unavailable(_)
        | StoreError::ReadOnly
        | StoreError::Fenced
        | StoreError::InUse(_)
        | StoreError::Lost(_)
        | StoreError::Overtaken
        | StoreError::Closed => WriteErrorKind::Unavailable,
        StoreError::Corrupt { .. }
        | StoreError::Budget(_)
        | StoreError::InvalidUrl { .. }
        | StoreError::InvalidSetting { .. }
        | StoreError::Remote { .. }
        | StoreError::NewerFormat { .. }
        | StoreError::NoStore(_)
        | StoreError::Leftovers(_)
        | StoreError::LimitExceeded(_)
        | StoreError::OnlySummaries { .. }
        | StoreError::Uncleaned(_) => WriteErrorKind::Internal,
    }
}
