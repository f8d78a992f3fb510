//! Series of selectors: instant lookups, and the cursors that selectors and ranges read.

pub mod bucketless;
pub mod instant;
pub(super) mod output_series;
pub(super) mod series_cursor;
