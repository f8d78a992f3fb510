//! Messages of remote read for prost, and a client.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    pub queries: Vec<Query>,
    #[prost(int32, repeated, tag = "2")]
    pub accepted: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Query {
    #[prost(int64, tag = "1")]
    pub start: i64,
    #[prost(int64, tag = "2")]
    pub end: i64,
    #[prost(message, repeated, tag = "3")]
    pub matchers: Vec<LabelMatcher>,
    #[prost(message, optional, tag = "4")]
    pub hints: Option<Hints>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LabelMatcher {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Hints {
    #[prost(string, tag = "2")]
    pub function: String,
    #[prost(int64, tag = "3")]
    pub start: i64,
    #[prost(int64, tag = "4")]
    pub end: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ReadResponse {
    #[prost(message, repeated, tag = "1")]
    pub results: Vec<QueryResult>,
}

#[derive(Clone, PartialEq, Message)]
pub struct QueryResult {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Series {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    /// Not decoded.
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub histograms: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(int64, tag = "2")]
    pub time: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Frame {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<ChunkedSeries>,
    #[prost(int64, tag = "2")]
    pub query_index: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ChunkedSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub chunks: Vec<Chunk>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Chunk {
    #[prost(int64, tag = "1")]
    pub min: i64,
    #[prost(int64, tag = "2")]
    pub max: i64,
    #[prost(int32, tag = "3")]
    pub encoding: i32,
    #[prost(bytes = "vec", tag = "4")]
    pub data: Vec<u8>,
}

/// Creates a query; types of matchers are 0 `=`, 1 `!=`, 2 `=~`, 3 `!~`.
pub fn query(start: i64, end: i64, matchers: &[(i32, &str, &str)]) -> Query {
    let matcher = |(kind, name, value): &(i32, &str, &str)| LabelMatcher {
        kind: *kind,
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    Query { start, end, matchers: matchers.iter().map(matcher).collect(), hints: None }
}

/// Encodes the body of a request; accepted response types are 0 for samples and 1 for frames.
pub fn body(queries: &[Query], accepted: &[i32]) -> Vec<u8> {
    let request = ReadRequest { queries: queries.to_vec(), accepted: accepted.to_vec() };
    snap::raw::Encoder::new()
        .compress_vec(&request.encode_to_vec())
        .expect("a request can be compressed")
}

/// Decodes a response of plain samples.
pub fn read_samples(body: &[u8]) -> ReadResponse {
    let message = snap::raw::Decoder::new().decompress_vec(body).expect("the body is snappy");
    ReadResponse::decode(&message[..]).expect("the body is a response")
}

/// Decodes a response of frames.
pub fn read_frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = prost::decode_length_delimiter(&mut bytes).expect("a frame has a length");
        // The tests of the encoder and a real client check the checksum.
        let (frame, rest) = bytes[4..].split_at(length);
        frames.push(Frame::decode(frame).expect("a frame is valid protobuf"));
        bytes = rest;
    }
    frames
}
