//! Remote write 1.0: a `prometheus.WriteRequest`, in one pass.
//!
//! A label on the wire differs from its packed form by three bytes of framing:
//!
//! ```text
//! wire     0a len  0a name_len name  12 value_len value
//! packed              name_len name     value_len value
//! ```
//!
//! The fast path copies each text with its length byte, compares names eight bytes at a time, and
//! checks all labels of a series for ASCII at once.

use crate::batch_builder::{BatchBuilder, SeriesMark, metric_kind};
use crate::fast_path::{self, LabelPacker};
use crate::protobuf::{LENGTH, Reader, WireError};
use crate::slow_path::check_label;
use crate::{DecodeError, Decoded, Decoder, malformed};

/// Decodes the message `bytes[..length]`.
pub(super) fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    length: usize,
    builder: BatchBuilder<'_>,
) -> Result<Decoded, DecodeError> {
    let mut request = RequestDecoder { decoder, builder };
    request.message(Reader::new(bytes, length))?;
    Ok(request.builder.decoded)
}

/// Decodes one request.
struct RequestDecoder<'a, 'b> {
    decoder: &'a mut Decoder,
    builder: BatchBuilder<'b>,
}

impl RequestDecoder<'_, '_> {
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
                    let message = reader.nested(key).map_err(outside("metadata"))?;
                    self.metadata(message)?;
                }
                _ => reader.skip(key).map_err(outside("unknown field"))?,
            }
        }
        Ok(())
    }

    fn series(&mut self, message: Reader<'_>) -> Result<(), DecodeError> {
        let mark = self.builder.open_series()?;
        let packed_len = self.series_parts(message, mark)?;
        self.builder.check_samples()?;
        if let Some(packed_len) = packed_len {
            let packed = &self.decoder.packed[..packed_len];
            self.builder.batch.labels_arena.extend_from_slice(packed);
        } else {
            let labels = &mut self.decoder.labels;
            let limits = self.builder.limits;
            // The wire format of these labels has been checked.
            labels.read_series(message, limits).map_err(|error| {
                malformed(message.position(), Some(mark.series_index), "labels", error)
            })?;
            let arena = &mut self.builder.batch.labels_arena;
            if let Err((reason, text)) = labels.pack(message.buffer(), limits, arena) {
                self.builder.refuse_series(mark, reason, text);
                return Ok(());
            }
        }
        self.builder.close_series(mark);
        Ok(())
    }

    /// Reads the fields of one series: labels into the packer, all else into the batch. Returns the
    /// length of the packed labels if the fast path took them all.
    fn series_parts(
        &mut self,
        message: Reader<'_>,
        mark: SeriesMark,
    ) -> Result<Option<usize>, DecodeError> {
        let mut reader = message;
        let mut packer = LabelPacker::new(&mut self.decoder.packed, message, self.builder.limits);
        packer.pack(&mut reader);
        if self.builder.fits_sample_limit(reader.rest().len()) {
            while let Some((timestamp, value)) = fast_path::sample(&mut reader) {
                self.builder.push_sample(timestamp, value);
            }
        }
        while !reader.is_at_end() {
            let start = reader.position();
            let series_index = Some(mark.series_index);
            let within = |field| move |error| malformed(start, series_index, field, error);
            let key = reader.key().map_err(within("key"))?;
            match key.field {
                1 => {
                    let label = reader.nested(key).map_err(within("labels"))?;
                    check_label(label).map_err(within("labels"))?;
                    packer.give_up();
                }
                2 => {
                    let message = reader.nested(key).map_err(within("samples"))?;
                    let (timestamp, value) = sample(message).map_err(within("samples"))?;
                    self.builder.push_sample(timestamp, value);
                    self.builder.check_samples()?;
                }
                3 => {
                    let message = reader.nested(key).map_err(within("exemplars"))?;
                    let labels = &mut self.decoder.labels;
                    labels.clear();
                    let (timestamp, value) =
                        exemplar(message, |label| labels.read_label(label, self.builder.limits))
                            .map_err(within("exemplars"))?;
                    self.builder.push_exemplar(labels, message.buffer(), timestamp, value)?;
                }
                4 => {
                    let message = reader.nested(key).map_err(within("histograms"))?;
                    let parts = &mut self.decoder.histogram;
                    self.builder.push_histogram(parts, message, false, mark)?;
                }
                _ => reader.skip(key).map_err(within("unknown field"))?,
            }
        }
        Ok(packer.finish())
    }

    fn metadata(&mut self, mut message: Reader<'_>) -> Result<(), DecodeError> {
        let mut kind = 0;
        let (mut name, mut help, mut unit) = (&[][..], &[][..], &[][..]);
        while !message.is_at_end() {
            let start = message.position();
            let within = |error| malformed(start, None, "metadata", error);
            let key = message.key().map_err(within)?;
            match key.field {
                1 => kind = message.integer(key).map_err(within)?,
                2 => name = message.nested(key).map_err(within)?.rest(),
                4 => help = message.nested(key).map_err(within)?.rest(),
                5 => unit = message.nested(key).map_err(within)?.rest(),
                _ => message.skip(key).map_err(within)?,
            }
        }
        let kind = metric_kind(kind);
        self.builder.push_metadata(name, kind, help, unit)
    }
}

/// Reads one `prometheus.Sample` in any encoding; absent fields are zero, the last of repeated ones
/// wins.
fn sample(mut message: Reader<'_>) -> Result<(i64, f64), WireError> {
    let (mut timestamp, mut value) = (0, 0.0);
    while !message.is_at_end() {
        let key = message.key()?;
        match key.field {
            1 => value = message.double(key)?,
            2 => timestamp = message.integer(key)? as i64,
            _ => message.skip(key)?,
        }
    }
    Ok((timestamp, value))
}

/// Reads one `prometheus.Exemplar` and passes each of its labels to `take_label`.
fn exemplar<'a>(
    mut message: Reader<'a>,
    mut take_label: impl FnMut(Reader<'a>) -> Result<(), WireError>,
) -> Result<(i64, f64), WireError> {
    let (mut timestamp, mut value) = (0, 0.0);
    while !message.is_at_end() {
        let key = message.key()?;
        match key.field {
            1 => take_label(message.nested(key)?)?,
            2 => value = message.double(key)?,
            3 => timestamp = message.integer(key)? as i64,
            _ => message.skip(key)?,
        }
    }
    Ok((timestamp, value))
}
