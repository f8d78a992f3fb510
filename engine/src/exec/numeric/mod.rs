//! Numeric algorithms of aggregations and functions over ranges.

pub mod compensated;
pub mod quantile;
