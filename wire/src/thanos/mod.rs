//! Messages of the gRPC services of Thanos that a node serves: requests are decoded, responses
//! encoded straight from series and samples.
//!
//! ```text
//! Info/Info                      → external labels, time range, services
//! Query/{Query, QueryRange}      → series with samples, in batches; warnings
//! Store/Series                   → series with chunks, in batches
//! Store/{LabelNames, LabelValues}, Exemplars, MetricMetadata, TSDBStatistics
//! ```
//!
//! Names and field numbers are listed in `thanos.proto` next to this file.
//!
//! Source: the `.proto` files in `pkg/*/*pb` of Thanos 0.42.

mod request;
mod response;
#[cfg(test)]
mod tests;

pub use request::{
    ExemplarsRequest, LabelsRequest, MetadataRequest, QueryRequest, QueryTimes, RequestError,
    SeriesRequest, StatisticsRequest, health_service,
};
pub use response::{
    BlockStatistics, QueryResponses, SeriesResponses, exemplars, info, label_list, metric_metadata,
    statistics, warning,
};
