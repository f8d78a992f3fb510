//! Remote write 1.0: from a `prometheus.WriteRequest` to a [`Batch`], in one pass and in place.
//!
//! A label as senders write it differs from its packed form by three bytes of framing:
//!
//! ```text
//! wire     0a len  0a name_len name  12 value_len value
//! packed              name_len name     value_len value
//! ```
//!
//! So the fast path copies each text together with its length byte, compares names eight
//! bytes at a time, and checks all labels of a series for ASCII at once. It takes labels that
//! are sorted, unique, short, not empty and ASCII, which is nearly all there is. A series with
//! any other label is read again by the careful path, which sorts, checks and refuses as
//! Prometheus does. Fields may be split, repeated, unknown or in any order.
//!
//! Source: `storage/remote/write_handler.go` and `prompb/types.proto` of Prometheus. Of its two
//! ways to treat a request with some bad series, this follows the one of remote write 2.0: the
//! good ones are kept and the bad ones named, also for 1.0, where Prometheus drops series with
//! bad labels without a word.

mod careful;
mod fast;
#[cfg(test)]
mod tests;

use model::labels::LABEL_BYTES_MAX;
use model::{Batch, BatchSeries, Labels};

use super::limits::{
    DECOMPRESSED_BYTES_CEILING, DECOMPRESSED_FLAG, Limits, SAMPLES_FLAG, SERIES_FLAG,
};
use super::rejects::{Reason, Rejects, series_text};
use super::wire::{FIXED64, Key, Kind, LENGTH, Reader, Shape, VARINT, WireError};
use careful::CarefulLabels;
use fast::LabelPacker;

/// How many zero bytes behind a message let the fast path read its last series too. It is
/// right without them, and slower.
pub const MESSAGE_PADDING: usize = fast::PADDING;

const LABEL: Shape = &[(1, Kind::Text), (2, Kind::Text)];
const EXEMPLAR: Shape = &[(1, Kind::Message(LABEL)), (2, Kind::Double), (3, Kind::Varint)];
const BUCKET_SPAN: Shape = &[(1, Kind::Varint), (2, Kind::Varint)];
const HISTOGRAM: Shape = &[
    (1, Kind::Varint),
    (2, Kind::Double),
    (3, Kind::Double),
    (4, Kind::Varint),
    (5, Kind::Double),
    (6, Kind::Varint),
    (7, Kind::Double),
    (8, Kind::Message(BUCKET_SPAN)),
    (9, Kind::Varints),
    (10, Kind::Doubles),
    (11, Kind::Message(BUCKET_SPAN)),
    (12, Kind::Varints),
    (13, Kind::Doubles),
    (14, Kind::Varint),
    (15, Kind::Varint),
    (16, Kind::Doubles),
];
const METADATA: Shape = &[(1, Kind::Varint), (2, Kind::Text), (4, Kind::Text), (5, Kind::Text)];

/// Why a whole request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Mend the request: the compression is broken.
    #[error("cannot decompress the request: {0}")]
    Snappy(#[from] snap::Error),
    /// Mend the request: the bytes are not a write request.
    #[error("malformed write request at byte {position}, {place}: {error}")]
    Malformed {
        /// Where in the decompressed message.
        position: usize,
        /// Which series, which field.
        place: Place,
        /// What is wrong.
        error: WireError,
    },
    /// Send less at once, or raise the limit.
    #[error("request of {reached} {what} is over the limit of {limit} (--{flag})")]
    TooLarge {
        /// What is counted, in the plural.
        what: &'static str,
        /// The flag that sets the limit, without dashes.
        flag: &'static str,
        /// The limit.
        limit: usize,
        /// The figure reached; where counting stopped at the limit, one more than it.
        reached: usize,
    },
}

/// A place in a write request, for error texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which series, counted from zero; none outside of a series.
    pub series_index: Option<usize>,
    /// The field's name in the protobuf definition.
    pub field: &'static str,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.series_index {
            Some(index) => write!(f, "timeseries[{index}].{}", self.field),
            None => f.write_str(self.field),
        }
    }
}

/// What a request held besides the batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Exemplars passed over: they are not stored yet.
    pub exemplar_count: u64,
    /// Metadata entries passed over: they are not stored yet.
    pub metadata_count: u64,
    /// Series and samples left out of the batch, and why.
    pub rejects: Rejects,
}

/// Decompresses one request into `message`, followed by [`MESSAGE_PADDING`] zero bytes.
///
/// Returns the length of the message. The length that the body declares is checked against
/// the limit before anything is allocated.
pub fn decompress(
    body: &[u8],
    limits: &Limits,
    message: &mut Vec<u8>,
) -> Result<usize, DecodeError> {
    let length = decompressed_len(body)?;
    check_decompressed_len(length, limits)?;
    message.resize(length + MESSAGE_PADDING, 0);
    let written = snap::raw::Decoder::new().decompress(body, &mut message[..length])?;
    message[written..].fill(0);
    message.truncate(written + MESSAGE_PADDING);
    Ok(written)
}

/// The length that a compressed body declares for its message.
pub fn decompressed_len(body: &[u8]) -> Result<usize, DecodeError> {
    if body.is_empty() {
        return Err(DecodeError::Snappy(snap::Error::Empty));
    }
    Ok(snap::raw::decompress_len(body)?)
}

fn check_decompressed_len(length: usize, limits: &Limits) -> Result<(), DecodeError> {
    let limit = limits.decompressed_bytes_max.min(DECOMPRESSED_BYTES_CEILING);
    if length <= limit {
        return Ok(());
    }
    let what = "decompressed bytes";
    Err(DecodeError::TooLarge { what, flag: DECOMPRESSED_FLAG, limit, reached: length })
}

/// The working memory of decoding, kept from request to request.
#[derive(Debug, Default)]
pub struct Decoder {
    packed: Vec<u8>,
    careful: CarefulLabels,
}

impl Decoder {
    /// Decodes the message `bytes[..length]` into an empty batch. What follows in `bytes` is
    /// never interpreted; see [`MESSAGE_PADDING`].
    ///
    /// Series with faults of their own are left out and reported in the answer.
    ///
    /// Errors: a message that is malformed anywhere, or over a limit, leaves nothing usable
    /// in the batch.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        length: usize,
        limits: &Limits,
        batch: &mut Batch,
    ) -> Result<Decoded, DecodeError> {
        check_decompressed_len(length, limits)?;
        batch.clear();
        let mut request =
            Request { decoder: self, limits, batch, decoded: Decoded::default(), series_count: 0 };
        request.message(Reader::new(bytes, length))?;
        Ok(request.decoded)
    }
}

/// One request on its way through the decoder.
struct Request<'a> {
    decoder: &'a mut Decoder,
    limits: &'a Limits,
    batch: &'a mut Batch,
    decoded: Decoded,
    series_count: usize,
}

impl Request<'_> {
    fn message(&mut self, mut reader: Reader<'_>) -> Result<(), DecodeError> {
        while !reader.is_at_end() {
            let start = reader.position();
            let outside = |field| move |error| malformed(start, None, field, error);
            let key = reader.key().map_err(outside("key"))?;
            match key.field {
                1 => {
                    key.expect(LENGTH).map_err(outside("timeseries"))?;
                    let series = reader.message().map_err(outside("timeseries"))?;
                    self.series(series)?;
                }
                3 => {
                    metadata(key, &mut reader).map_err(outside("metadata"))?;
                    self.decoded.metadata_count += 1;
                }
                _ => reader.skip(key).map_err(outside("unknown field"))?,
            }
        }
        Ok(())
    }

    fn series(&mut self, message: Reader<'_>) -> Result<(), DecodeError> {
        let series_index = self.series_count;
        self.series_count += 1;
        if self.series_count > self.limits.series_max {
            return Err(over("series", SERIES_FLAG, self.limits.series_max));
        }
        let samples_start = self.batch.timestamps.len();
        let parts = self.series_parts(message, series_index)?;
        if self.batch.timestamps.len() > self.limits.samples_max {
            return Err(over("samples", SAMPLES_FLAG, self.limits.samples_max));
        }

        let labels_start = self.batch.labels_arena.len();
        if let Some(packed_len) = parts.packed_len {
            self.batch.labels_arena.extend_from_slice(&self.decoder.packed[..packed_len]);
        } else {
            let labels = &mut self.decoder.careful;
            // The wire format of these labels has been read once already.
            labels.read(message, self.limits).map_err(|error| {
                malformed(message.position(), Some(series_index), "labels", error)
            })?;
            if let Err((reason, text)) = labels.pack(self.limits, &mut self.batch.labels_arena) {
                let refused = self.batch.timestamps.len() - samples_start;
                self.truncate(labels_start, samples_start);
                let refused = refused as u64 + parts.histogram_count;
                self.decoded.rejects.add(reason, refused, || text);
                return Ok(());
            }
        }
        if parts.histogram_count > 0 {
            self.refuse_histograms(labels_start, parts.histogram_count);
        }
        self.close_series(labels_start, samples_start);
        Ok(())
    }

    /// Reads the fields of one series: labels into the packer, samples into the batch.
    fn series_parts(
        &mut self,
        message: Reader<'_>,
        series_index: usize,
    ) -> Result<SeriesParts, DecodeError> {
        let mut reader = message;
        let mut packer = LabelPacker::new(&mut self.decoder.packed, message, self.limits);
        packer.pack(&mut reader);
        let mut parts = SeriesParts::default();
        while let Some((timestamp, value)) = fast::sample(&mut reader) {
            self.batch.timestamps.push(timestamp);
            self.batch.values.push(value);
        }
        while !reader.is_at_end() {
            let start = reader.position();
            let within = |field| move |error| malformed(start, Some(series_index), field, error);
            let key = reader.key().map_err(within("key"))?;
            match key.field {
                1 => {
                    nested(key, &mut reader, LABEL).map_err(within("labels"))?;
                    packer.give_up();
                }
                2 => {
                    let (timestamp, value) = sample(key, &mut reader).map_err(within("samples"))?;
                    self.batch.timestamps.push(timestamp);
                    self.batch.values.push(value);
                    // Two bytes can stand for a sample: stop before memory outgrows the limit.
                    if self.batch.timestamps.len() > self.limits.samples_max {
                        return Err(over("samples", SAMPLES_FLAG, self.limits.samples_max));
                    }
                }
                3 => {
                    nested(key, &mut reader, EXEMPLAR).map_err(within("exemplars"))?;
                    self.decoded.exemplar_count += 1;
                }
                4 => {
                    nested(key, &mut reader, HISTOGRAM).map_err(within("histograms"))?;
                    parts.histogram_count += 1;
                }
                _ => reader.skip(key).map_err(within("unknown field"))?,
            }
        }
        parts.packed_len = packer.finish();
        Ok(parts)
    }

    #[cold]
    fn refuse_histograms(&mut self, labels_start: usize, count: u64) {
        let labels = Labels::from_checked_bytes(&self.batch.labels_arena[labels_start..]);
        self.decoded.rejects.add(Reason::Histogram, count, || {
            let pairs = labels.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let series = series_text(pairs);
            format!("native histograms are not stored yet: {count} refused for series {series}")
        });
    }

    /// Files what has been added to the batch since the two starts as one series.
    fn close_series(&mut self, labels_start: usize, samples_start: usize) {
        if self.batch.timestamps.len() == samples_start {
            self.truncate(labels_start, samples_start);
            return;
        }
        // All of these are at most the message's length, which is below 2^30.
        self.batch.series.push(BatchSeries {
            labels_start: labels_start as u32,
            labels_end: self.batch.labels_arena.len() as u32,
            samples_start: samples_start as u32,
            samples_end: self.batch.timestamps.len() as u32,
            histograms_start: self.batch.histograms.len() as u32,
            histograms_end: self.batch.histograms.len() as u32,
        });
    }

    fn truncate(&mut self, labels_len: usize, samples_len: usize) {
        self.batch.labels_arena.truncate(labels_len);
        self.batch.timestamps.truncate(samples_len);
        self.batch.values.truncate(samples_len);
    }
}

/// What one series holds besides its samples.
#[derive(Debug, Default)]
struct SeriesParts {
    /// The length of the packed labels, if the fast path could take them all.
    packed_len: Option<usize>,
    histogram_count: u64,
}

fn metadata(key: Key, reader: &mut Reader<'_>) -> Result<(), WireError> {
    nested(key, reader, METADATA)
}

fn nested(key: Key, reader: &mut Reader<'_>, shape: Shape) -> Result<(), WireError> {
    key.expect(LENGTH)?;
    reader.message()?.check(shape)
}

/// Reads one `prometheus.Sample` in any encoding; absent fields are zero, the last one wins.
fn sample(key: Key, reader: &mut Reader<'_>) -> Result<(i64, f64), WireError> {
    key.expect(LENGTH)?;
    let mut message = reader.message()?;
    let (mut timestamp, mut value) = (0, 0.0);
    while !message.is_at_end() {
        let key = message.key()?;
        match key.field {
            1 => {
                key.expect(FIXED64)?;
                value = f64::from_bits(message.fixed64()?);
            }
            2 => {
                key.expect(VARINT)?;
                timestamp = message.varint()? as i64;
            }
            _ => message.skip(key)?,
        }
    }
    Ok((timestamp, value))
}

#[cold]
fn malformed(
    position: usize,
    series_index: Option<usize>,
    field: &'static str,
    error: WireError,
) -> DecodeError {
    DecodeError::Malformed { position, place: Place { series_index, field }, error }
}

#[cold]
fn over(what: &'static str, flag: &'static str, limit: usize) -> DecodeError {
    DecodeError::TooLarge { what, flag, limit, reached: limit + 1 }
}

/// The longest text that both the limits and the packed form allow.
fn text_bytes_max(limit: usize) -> usize {
    limit.min(LABEL_BYTES_MAX)
}
