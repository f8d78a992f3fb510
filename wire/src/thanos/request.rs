//! Decoding of requests. Fields that only help the server to plan are skipped.

use crate::matcher::{LabelMatcher, MatcherError};
use crate::protobuf::{Reader, WireError};

/// Maximum number of matchers of a request.
const MATCHERS_MAX: usize = 10_000;
/// Maximum number of replica labels of a request.
const REPLICA_LABELS_MAX: usize = 256;

/// Error of decoding a request. The client can fix each of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The bytes are not a request.
    #[error("malformed request: {0}")]
    Malformed(#[from] WireError),
    /// A matcher is invalid.
    #[error("malformed request: {0}")]
    Matcher(#[from] MatcherError),
    /// A text is not UTF-8.
    #[error("malformed request: field {0} is not UTF-8")]
    NotUtf8(u32),
    /// The request is over a limit.
    #[error("request has more than {limit} {what}, which is the limit")]
    TooMany {
        /// The counted unit, in the plural.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// `thanos.QueryRequest` or `thanos.QueryRangeRequest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRequest {
    /// The PromQL text, which is complete; the plan in the request has no stable form.
    pub text: String,
    /// Times of the evaluation.
    pub times: QueryTimes,
    /// Timeout in seconds; 0 without one.
    pub timeout_seconds: i64,
    /// Lookback in seconds; 0 for that of the server.
    pub lookback_delta_seconds: i64,
    /// Names of labels that distinguish replicas.
    pub replica_labels: Vec<String>,
    /// Maximum number of series of a message; at most 1 for clients without batches.
    pub batch_series_max: usize,
}

/// Times of an evaluation, in seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryTimes {
    /// At one time; 0 for now.
    Instant {
        /// The time.
        time_seconds: i64,
    },
    /// On a grid.
    Range {
        /// The first step.
        start_seconds: i64,
        /// The end, inclusive.
        end_seconds: i64,
        /// Distance of two steps.
        interval_seconds: i64,
    },
}

impl QueryRequest {
    /// Decodes a `thanos.QueryRequest`.
    pub fn decode_instant(message: &[u8]) -> Result<QueryRequest, RequestError> {
        let mut time_seconds = 0;
        let fields = Fields { timeout: 3, replica_labels: 5, lookback_delta: 12, batch: 15 };
        let request = decode_query(message, &fields, |field, number| {
            if field == 2 {
                time_seconds = number;
            }
        })?;
        Ok(QueryRequest { times: QueryTimes::Instant { time_seconds }, ..request })
    }

    /// Decodes a `thanos.QueryRangeRequest`.
    pub fn decode_range(message: &[u8]) -> Result<QueryRequest, RequestError> {
        let (mut start_seconds, mut end_seconds, mut interval_seconds) = (0, 0, 0);
        let fields = Fields { timeout: 5, replica_labels: 7, lookback_delta: 14, batch: 17 };
        let request = decode_query(message, &fields, |field, number| match field {
            2 => start_seconds = number,
            3 => end_seconds = number,
            4 => interval_seconds = number,
            _ => {}
        })?;
        let times = QueryTimes::Range { start_seconds, end_seconds, interval_seconds };
        Ok(QueryRequest { times, ..request })
    }
}

/// Numbers of the fields that differ between the two requests.
struct Fields {
    timeout: u32,
    replica_labels: u32,
    lookback_delta: u32,
    batch: u32,
}

/// Decodes all fields but the times, whose numbers are passed on.
fn decode_query(
    message: &[u8],
    fields: &Fields,
    mut time: impl FnMut(u32, i64),
) -> Result<QueryRequest, RequestError> {
    let mut request = QueryRequest {
        text: String::new(),
        times: QueryTimes::Instant { time_seconds: 0 },
        timeout_seconds: 0,
        lookback_delta_seconds: 0,
        replica_labels: Vec::new(),
        batch_series_max: 0,
    };
    let mut reader = Reader::new(message, message.len());
    while !reader.is_at_end() {
        let key = reader.key()?;
        match key.field {
            1 => request.text = text(key.field, reader.nested(key)?)?,
            field if field == fields.timeout => {
                request.timeout_seconds = reader.integer(key)? as i64;
            }
            field if field == fields.replica_labels => {
                push_name(&mut request.replica_labels, field, reader.nested(key)?)?;
            }
            field if field == fields.lookback_delta => {
                request.lookback_delta_seconds = reader.integer(key)? as i64;
            }
            field if field == fields.batch => {
                request.batch_series_max = count(reader.integer(key)?);
            }
            field @ 2..=4 => time(field, reader.integer(key)? as i64),
            _ => reader.skip(key)?,
        }
    }
    Ok(request)
}

/// `thanos.SeriesRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeriesRequest {
    /// First timestamp, inclusive, ms since the epoch.
    pub min_ms: i64,
    /// Last timestamp, inclusive.
    pub max_ms: i64,
    /// Matchers, of which all must pass.
    pub matchers: Vec<LabelMatcher>,
    /// True for labels without samples.
    pub skip_chunks: bool,
    /// Names of labels that distinguish replicas.
    pub replica_labels: Vec<String>,
    /// Maximum number of series; 0 for all.
    pub limit: usize,
    /// Maximum number of series of a message; at most 1 for clients without batches.
    pub batch_series_max: usize,
}

impl SeriesRequest {
    /// Decodes a request.
    pub fn decode(message: &[u8]) -> Result<SeriesRequest, RequestError> {
        let mut request = SeriesRequest::default();
        let mut reader = Reader::new(message, message.len());
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field {
                1 => request.min_ms = reader.integer(key)? as i64,
                2 => request.max_ms = reader.integer(key)? as i64,
                3 => push_matcher(&mut request.matchers, reader.nested(key)?)?,
                8 => request.skip_chunks = reader.integer(key)? != 0,
                14 => push_name(&mut request.replica_labels, key.field, reader.nested(key)?)?,
                15 => request.limit = count(reader.integer(key)?),
                16 => request.batch_series_max = count(reader.integer(key)?),
                _ => reader.skip(key)?,
            }
        }
        Ok(request)
    }
}

/// `thanos.LabelNamesRequest` or `thanos.LabelValuesRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelsRequest {
    /// Name of the label; empty in a request for names.
    pub label: String,
    /// First timestamp, inclusive, ms since the epoch.
    pub start_ms: i64,
    /// Last timestamp, inclusive.
    pub end_ms: i64,
    /// Matchers, of which all must pass.
    pub matchers: Vec<LabelMatcher>,
    /// Names of labels that distinguish replicas.
    pub replica_labels: Vec<String>,
    /// Maximum number of results; 0 for all.
    pub limit: usize,
}

impl LabelsRequest {
    /// Decodes a `thanos.LabelNamesRequest`.
    pub fn decode_names(message: &[u8]) -> Result<LabelsRequest, RequestError> {
        // The fields of the other request without its first one.
        LabelsRequest::decode(message, 1)
    }

    /// Decodes a `thanos.LabelValuesRequest`.
    pub fn decode_values(message: &[u8]) -> Result<LabelsRequest, RequestError> {
        LabelsRequest::decode(message, 0)
    }

    fn decode(message: &[u8], offset: u32) -> Result<LabelsRequest, RequestError> {
        let mut request = LabelsRequest::default();
        let mut reader = Reader::new(message, message.len());
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field + offset {
                1 => request.label = text(key.field, reader.nested(key)?)?,
                4 => request.start_ms = reader.integer(key)? as i64,
                5 => request.end_ms = reader.integer(key)? as i64,
                7 => push_matcher(&mut request.matchers, reader.nested(key)?)?,
                8 => push_name(&mut request.replica_labels, key.field, reader.nested(key)?)?,
                9 => request.limit = count(reader.integer(key)?),
                _ => reader.skip(key)?,
            }
        }
        Ok(request)
    }
}

/// `thanos.ExemplarsRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExemplarsRequest {
    /// Expression whose selectors select series.
    pub text: String,
    /// First timestamp, inclusive, ms since the epoch.
    pub start_ms: i64,
    /// Last timestamp, inclusive.
    pub end_ms: i64,
}

impl ExemplarsRequest {
    /// Decodes a request.
    pub fn decode(message: &[u8]) -> Result<ExemplarsRequest, RequestError> {
        let mut request = ExemplarsRequest::default();
        let mut reader = Reader::new(message, message.len());
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field {
                1 => request.text = text(key.field, reader.nested(key)?)?,
                2 => request.start_ms = reader.integer(key)? as i64,
                3 => request.end_ms = reader.integer(key)? as i64,
                _ => reader.skip(key)?,
            }
        }
        Ok(request)
    }
}

/// `thanos.MetricMetadataRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetadataRequest {
    /// Name of the metric; empty for all.
    pub metric: String,
    /// Maximum number of metrics; below 0 for all.
    pub limit: i32,
}

impl MetadataRequest {
    /// Decodes a request.
    pub fn decode(message: &[u8]) -> Result<MetadataRequest, RequestError> {
        let mut request = MetadataRequest::default();
        let mut reader = Reader::new(message, message.len());
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field {
                1 => request.metric = text(key.field, reader.nested(key)?)?,
                2 => request.limit = reader.integer(key)? as i32,
                _ => reader.skip(key)?,
            }
        }
        Ok(request)
    }
}

/// `thanos.TSDBStatisticsRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatisticsRequest {
    /// Maximum number of entries of each list.
    pub limit: i32,
}

impl StatisticsRequest {
    /// Decodes a request.
    pub fn decode(message: &[u8]) -> Result<StatisticsRequest, RequestError> {
        let mut request = StatisticsRequest::default();
        let mut reader = Reader::new(message, message.len());
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field {
                2 => request.limit = reader.integer(key)? as i32,
                _ => reader.skip(key)?,
            }
        }
        Ok(request)
    }
}

/// Decodes the service of a `grpc.health.v1.HealthCheckRequest`; empty for the whole server.
pub fn health_service(message: &[u8]) -> Result<String, RequestError> {
    let mut service = String::new();
    let mut reader = Reader::new(message, message.len());
    while !reader.is_at_end() {
        let key = reader.key()?;
        match key.field {
            1 => service = text(key.field, reader.nested(key)?)?,
            _ => reader.skip(key)?,
        }
    }
    Ok(service)
}

fn text(field: u32, reader: Reader<'_>) -> Result<String, RequestError> {
    reader.utf8().ok_or(RequestError::NotUtf8(field))
}

/// Returns a count, which clients send as a signed number; 0 if it is negative.
fn count(number: u64) -> usize {
    usize::try_from(number as i64).unwrap_or(0)
}

fn push_name(names: &mut Vec<String>, field: u32, reader: Reader<'_>) -> Result<(), RequestError> {
    if names.len() == REPLICA_LABELS_MAX {
        return Err(RequestError::TooMany { what: "replica labels", limit: REPLICA_LABELS_MAX });
    }
    names.push(text(field, reader)?);
    Ok(())
}

fn push_matcher(matchers: &mut Vec<LabelMatcher>, reader: Reader<'_>) -> Result<(), RequestError> {
    if matchers.len() == MATCHERS_MAX {
        return Err(RequestError::TooMany { what: "matchers", limit: MATCHERS_MAX });
    }
    matchers.push(LabelMatcher::decode(reader)?);
    Ok(())
}
