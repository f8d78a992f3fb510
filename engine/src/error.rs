//! Errors of queries, divided by what the caller can do.

use model::{BudgetError, SourceError};

/// Error of a query.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QueryError {
    /// Fix the query: it does not parse or its types do not fit.
    /// The message carries the position as Prometheus prints it: `1:5: parse error: …`.
    #[error("{0}")]
    Parse(String),
    /// Fix the query or the data: run-time errors as in Prometheus.
    #[error("{0}")]
    Execution(String),
    /// Raise a limit, request less, or retry.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl From<BudgetError> for QueryError {
    fn from(error: BudgetError) -> Self {
        QueryError::Source(SourceError::Budget(error))
    }
}
