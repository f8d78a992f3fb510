//! Errors of matchers and of sources.

use crate::budget::BudgetError;

/// Reason why a matcher cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// The regular expression does not parse.
    #[error("error parsing regexp: {0}")]
    Syntax(String),
    /// The regular expression exceeds a limit.
    #[error("regular expression of {bytes} bytes exceeds the limit: {detail}")]
    TooLarge {
        /// Length of the expression.
        bytes: usize,
        /// Limit that it exceeds.
        detail: String,
    },
}

/// Reason why series could not be read, by what the caller can do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// Raise a limit, or ask for less.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// Retry: the object store does not answer.
    #[error("storage is unavailable: {0}")]
    Unavailable(String),
    /// Delete one of two series, or change the external labels.
    #[error("series {first} and {second} are both {series} with external labels")]
    Ambiguous {
        /// Labels that both have with external labels.
        series: String,
        /// Labels of the first one.
        first: String,
        /// Labels of the second one.
        second: String,
    },
    /// Ask for whole hours and functions of summaries: only summaries are left of samples that the
    /// selection needs.
    #[error(
        "only summaries of hours are kept of the samples of {}: use ranges and steps of whole hours \
         that begin and end at full hours, and functions that summaries answer (see \
         docs/configuration.md, \"Retention of samples\")",
        crate::calendar::rfc3339(*.time_ms)
    )]
    OnlySummaries {
        /// Time of a needed sample, in ms.
        time_ms: i64,
    },
    /// Restore: bytes are damaged.
    #[error("damaged data at {location}{}: {detail}", of_series(series))]
    Corrupt {
        /// Labels of the series; empty if it is not known.
        series: String,
        /// Key, chunk and offset.
        location: String,
        /// Expected and found content.
        detail: String,
    },
}

fn of_series(series: &str) -> String {
    if series.is_empty() { String::new() } else { format!(" of series {series}") }
}
