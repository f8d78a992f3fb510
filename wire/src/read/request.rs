//! Decoding of requests.

use crate::matcher::{LabelMatcher, MatcherError};
use crate::protobuf::{Reader, WireError};

/// Type of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseType {
    /// One message of plain samples, compressed.
    Samples,
    /// A stream of frames with chunks.
    StreamedXorChunks,
}

/// Limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimits {
    /// Decompressed bytes.
    pub message_bytes_max: usize,
    /// Queries.
    pub queries_max: usize,
    /// Matchers of all queries.
    pub matchers_max: usize,
}

/// A remote read request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Queries; the response has one result for each.
    pub queries: Vec<ReadQuery>,
    /// First response type in the request that is supported.
    pub response: ResponseType,
}

/// One query of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadQuery {
    /// First timestamp, inclusive, ms since the epoch.
    pub start_ms: i64,
    /// Last timestamp, inclusive.
    pub end_ms: i64,
    /// Matchers, all of which select.
    pub matchers: Vec<LabelMatcher>,
    /// Hints of the client about its use of the samples.
    pub hints: Option<ReadHints>,
}

/// Hints of a client about its use of the samples, as far as they change the response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadHints {
    /// First timestamp that the client uses.
    pub start_ms: i64,
    /// Last timestamp that the client uses.
    pub end_ms: i64,
    /// Function around the selector; `series` asks for labels only.
    pub function: String,
}

/// Error of decoding a request. The client can fix each of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The compression is invalid.
    #[error("cannot decompress the request: {0}")]
    Snappy(#[from] snap::Error),
    /// The request is over a limit.
    #[error("read request has {reached} {what}, the limit is {limit}")]
    TooLarge {
        /// The counted unit, in the plural.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// The size that exceeds it.
        reached: usize,
    },
    /// The bytes are not a read request.
    #[error("malformed read request: {0}")]
    Malformed(#[from] WireError),
    /// A matcher is invalid.
    #[error(transparent)]
    Matcher(#[from] MatcherError),
    /// A text is not UTF-8.
    #[error("malformed read request: a hint is not UTF-8")]
    NotUtf8,
    /// None of the accepted response types is supported.
    #[error(
        "none of the response types {0:?} is supported, but 0 (SAMPLES) and 1 (STREAMED_XOR_CHUNKS)"
    )]
    NoResponseType(Vec<u64>),
}

/// Maximum number of response types that are read.
const RESPONSE_TYPES_MAX: usize = 64;

impl ReadRequest {
    /// Decompresses and decodes a request.
    ///
    /// Memory: bounded by the limits.
    pub fn decode(body: &[u8], limits: &ReadLimits) -> Result<ReadRequest, ReadError> {
        let length = snap::raw::decompress_len(body)?;
        limits.check("bytes", length, limits.message_bytes_max)?;
        let message = snap::raw::Decoder::new().decompress_vec(body)?;
        let mut reader = Reader::new(&message, message.len());
        let (mut queries, mut accepted) = (Vec::new(), Vec::new());
        let mut matcher_count = 0;
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field {
                1 => {
                    limits.check("queries", queries.len() + 1, limits.queries_max)?;
                    let query = reader.nested(key)?;
                    queries.push(ReadQuery::decode(query, &mut matcher_count, limits)?);
                }
                2 => reader.varints(key, |number| {
                    if accepted.len() < RESPONSE_TYPES_MAX {
                        accepted.push(number);
                    }
                })?,
                _ => reader.skip(key)?,
            }
        }
        Ok(ReadRequest { queries, response: ResponseType::first_of(accepted)? })
    }
}

impl ResponseType {
    /// Returns the first supported type; plain samples if the client names none.
    fn first_of(accepted: Vec<u64>) -> Result<ResponseType, ReadError> {
        let known = accepted.iter().find_map(|number| match number {
            0 => Some(ResponseType::Samples),
            1 => Some(ResponseType::StreamedXorChunks),
            _ => None,
        });
        match known {
            Some(known) => Ok(known),
            None if accepted.is_empty() => Ok(ResponseType::Samples),
            None => Err(ReadError::NoResponseType(accepted)),
        }
    }
}

impl ReadLimits {
    fn check(&self, what: &'static str, reached: usize, limit: usize) -> Result<(), ReadError> {
        if reached > limit {
            return Err(ReadError::TooLarge { what, limit, reached });
        }
        Ok(())
    }
}

impl ReadQuery {
    fn decode(
        mut reader: Reader<'_>,
        matcher_count: &mut usize,
        limits: &ReadLimits,
    ) -> Result<ReadQuery, ReadError> {
        let mut query = ReadQuery::default();
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field {
                1 => query.start_ms = reader.integer(key)? as i64,
                2 => query.end_ms = reader.integer(key)? as i64,
                3 => {
                    *matcher_count += 1;
                    limits.check("matchers", *matcher_count, limits.matchers_max)?;
                    query.matchers.push(LabelMatcher::decode(reader.nested(key)?)?);
                }
                4 => {
                    let hints = query.hints.get_or_insert_default();
                    hints.decode(reader.nested(key)?)?;
                }
                _ => reader.skip(key)?,
            }
        }
        Ok(query)
    }
}

impl ReadHints {
    /// Reads hints over earlier ones, as protobuf merges repeated messages.
    fn decode(&mut self, mut reader: Reader<'_>) -> Result<(), ReadError> {
        while !reader.is_at_end() {
            let key = reader.key()?;
            match key.field {
                2 => self.function = text(reader.nested(key)?)?,
                3 => self.start_ms = reader.integer(key)? as i64,
                4 => self.end_ms = reader.integer(key)? as i64,
                _ => reader.skip(key)?,
            }
        }
        Ok(())
    }
}

fn text(reader: Reader<'_>) -> Result<String, ReadError> {
    reader.utf8().ok_or(ReadError::NotUtf8)
}
