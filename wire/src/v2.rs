//! Remote write 2.0: an `io.prometheus.write.v2.Request`, in two passes.
//!
//! The first pass reads the symbol table, whose symbols may be anywhere between the series, and the
//! second reads the series. The budget of the request bounds the labels that references unfold to.
//!
//! As in the receiver of Prometheus, the first symbol may be any text, and a series may have both
//! floats and histograms, though the specification forbids both. Unlike there, a series may have
//! exemplars alone, as Prometheus sends them, and the reference 0 of metadata is always the empty
//! text, as in the specification.
//!
//! Source: <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>, `writeV2` in
//! `storage/remote/write_handler.go` of Prometheus.

use model::{METRIC_NAME, MetricKind, RejectReason};

use crate::batch_builder::{BatchBuilder, SeriesMark, metric_kind};
use crate::fast_path;
use crate::limits::Limits;
use crate::protobuf::{LENGTH, Reader, WireError};
use crate::rejects::Counts;
use crate::slow_path::UncheckedLabels;
use crate::symbol_table::{PackedRefs, SYMBOL_BYTES, SymbolTable, read_refs};
use crate::{DecodeError, Decoded, Decoder, malformed};

/// Maximum number of references in an error text.
const REFS_SHOWN_MAX: usize = 64;

/// Number of metrics whose metadata are known to be in the batch.
const SEEN_MAX: usize = 1024;

/// Decodes the message `bytes[..length]`.
pub(super) fn decode(
    decoder: &mut Decoder,
    bytes: &[u8],
    length: usize,
    builder: BatchBuilder<'_>,
) -> Result<Decoded, DecodeError> {
    let message = Reader::new(bytes, length);
    let mut request = RequestDecoder { decoder, builder };
    request.symbols(message)?;
    request.all_series(message)?;
    Ok(request.builder.decoded)
}

/// Decodes one request.
struct RequestDecoder<'a, 'b> {
    decoder: &'a mut Decoder,
    builder: BatchBuilder<'b>,
}

/// Labels and metadata of a series.
#[derive(Debug, Default)]
struct SeriesParts {
    /// The labels if the fast path took them all.
    packed: Option<PackedRefs>,
    metadata: Metadata,
}

/// The metadata of a series, as references.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Metadata {
    kind: MetricKind,
    help_ref: u32,
    unit_ref: u32,
}

/// Metadata of a metric that are in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenEntry {
    metric_ref: u32,
    metadata: Metadata,
}

/// Table of fixed size by which a metric with many series adds its metadata once. After a collision
/// they are added again, which is harmless.
#[derive(Debug, Default)]
pub(super) struct SeenMetadata(Vec<Option<SeenEntry>>);

impl SeenMetadata {
    fn clear(&mut self) {
        self.0.clear();
        self.0.resize(SEEN_MAX, None);
    }

    /// Inserts metadata; returns whether they are new.
    fn insert(&mut self, metric_ref: u32, metadata: Metadata) -> bool {
        let seen = Some(SeenEntry { metric_ref, metadata });
        std::mem::replace(&mut self.0[metric_ref as usize % SEEN_MAX], seen) != seen
    }
}

impl RequestDecoder<'_, '_> {
    /// Reads the symbol table.
    fn symbols(&mut self, mut reader: Reader<'_>) -> Result<(), DecodeError> {
        self.decoder.symbols.clear();
        while !reader.is_at_end() {
            let start = reader.position();
            let within = |field| move |error| malformed(start, None, field, error);
            let key = reader.key().map_err(within("key"))?;
            if key.field != 4 {
                let field = if key.field == 5 { "timeseries" } else { "unknown field" };
                reader.skip(key).map_err(within(field))?;
                continue;
            }
            let text = reader.nested(key).map_err(within("symbols"))?;
            self.builder.budget.charge(SYMBOL_BYTES)?;
            self.decoder.symbols.push(text);
        }
        Ok(())
    }

    /// Reads the series.
    fn all_series(&mut self, mut reader: Reader<'_>) -> Result<(), DecodeError> {
        self.decoder.seen.clear();
        while !reader.is_at_end() {
            let start = reader.position();
            let within = |field| move |error| malformed(start, None, field, error);
            let key = reader.key().map_err(within("key"))?;
            if key.field == 5 {
                let series = reader.nested(key).map_err(within("timeseries"))?;
                self.series(series)?;
            } else {
                reader.skip(key).map_err(within("unknown field"))?;
            }
        }
        Ok(())
    }

    fn series(&mut self, message: Reader<'_>) -> Result<(), DecodeError> {
        let mark = self.builder.open_series()?;
        let parts = self.series_parts(message, mark)?;
        self.builder.check_samples()?;
        let metric_ref = match self.labels(message, mark, &parts)? {
            Ok(metric_ref) => metric_ref,
            Err((reason, text)) => {
                self.builder.refuse_series(mark, reason, text);
                return Ok(());
            }
        };
        let counts = self.builder.counts(mark);
        if counts == Counts::default() {
            let series = self.builder.series_text(mark);
            let what = "TimeSeries must contain at least one sample or histogram";
            self.builder.refuse_series(
                mark,
                RejectReason::Shape,
                format!("{what} for series {series}"),
            );
            return Ok(());
        }
        self.builder.close_series(mark);
        self.metadata(message.buffer(), metric_ref, parts.metadata, counts)
    }

    /// Reads the fields of one series: labels into the working memory, all else into the batch.
    fn series_parts(
        &mut self,
        message: Reader<'_>,
        mark: SeriesMark,
    ) -> Result<SeriesParts, DecodeError> {
        let mut reader = message;
        let mut parts = SeriesParts::default();
        let mut has_refs = false;
        let fits_sample_limit = self.builder.fits_sample_limit(reader.rest().len());
        loop {
            if fits_sample_limit {
                while let Some((timestamp, value, start)) =
                    fast_path::sample_with_start_timestamp(&mut reader)
                {
                    self.builder.push_sample(timestamp, value);
                    self.builder.set_start_timestamp(start);
                }
            }
            if reader.is_at_end() {
                return Ok(parts);
            }
            let start = reader.position();
            let within =
                |field| move |error| malformed(start, Some(mark.series_index), field, error);
            let key = reader.key().map_err(within("key"))?;
            match key.field {
                1 if key.wire_type == LENGTH && !has_refs => {
                    has_refs = true;
                    let refs = reader.message().map_err(within("labels_refs"))?;
                    let Decoder { symbols, packed, .. } = &mut *self.decoder;
                    let limits = self.builder.limits;
                    parts.packed = symbols.pack(refs.rest(), message.buffer(), limits, packed);
                }
                1 => {
                    has_refs = true;
                    reader.skip(key).map_err(within("labels_refs"))?;
                    parts.packed = None;
                }
                2 => {
                    let message = reader.nested(key).map_err(within("samples"))?;
                    self.sample(message).map_err(within("samples"))?;
                    self.builder.check_samples()?;
                }
                3 => {
                    let message = reader.nested(key).map_err(within("histograms"))?;
                    let parts = &mut self.decoder.histogram;
                    self.builder.push_histogram(parts, message, true, mark)?;
                }
                4 => {
                    let message = reader.nested(key).map_err(within("exemplars"))?;
                    self.exemplar(message, mark)?;
                }
                5 => {
                    let message = reader.nested(key).map_err(within("metadata"))?;
                    parts.metadata.read(message).map_err(within("metadata"))?;
                }
                _ => reader.skip(key).map_err(within("unknown field"))?,
            }
        }
    }

    /// Reads one sample in any encoding; absent fields are zero, the last of repeated ones wins.
    fn sample(&mut self, mut message: Reader<'_>) -> Result<(), WireError> {
        let (mut timestamp, mut value, mut start) = (0, 0.0, 0);
        while !message.is_at_end() {
            let key = message.key()?;
            match key.field {
                1 => value = message.double(key)?,
                2 => timestamp = message.integer(key)? as i64,
                3 => start = message.integer(key)? as i64,
                _ => message.skip(key)?,
            }
        }
        self.builder.push_sample(timestamp, value);
        self.builder.set_start_timestamp(start);
        Ok(())
    }

    /// Reads one exemplar, or rejects it if its references are invalid.
    fn exemplar(&mut self, message: Reader<'_>, mark: SeriesMark) -> Result<(), DecodeError> {
        let Decoder { refs, labels, symbols, .. } = &mut *self.decoder;
        let position = message.position();
        let count_max = refs_max(self.builder.limits.labels_per_series_max);
        let (count, timestamp, value) = exemplar(message, count_max, refs)
            .map_err(|error| malformed(position, Some(mark.series_index), "exemplars", error))?;
        match collect(labels, symbols, refs, count, self.builder.limits) {
            Ok(()) => self.builder.push_exemplar(labels, message.buffer(), timestamp, value),
            Err(fault) => {
                self.builder.refuse_exemplar(RejectReason::Reference, &fault);
                Ok(())
            }
        }
    }

    /// Appends the labels of a series to the arena; returns the reference to its metric name, or
    /// why the series is rejected.
    fn labels(
        &mut self,
        message: Reader<'_>,
        mark: SeriesMark,
        parts: &SeriesParts,
    ) -> Result<Result<u32, Refusal>, DecodeError> {
        let collected = match &parts.packed {
            Some(packed) => Ok(packed.metric_ref),
            None => self.collect_labels(message).map_err(|error| {
                malformed(message.position(), Some(mark.series_index), "labels_refs", error)
            })?,
        };
        let size = self.decoder.symbols.len();
        let faults = match collected {
            Ok(metric_ref) => parts.metadata.check(size).map(|()| metric_ref),
            Err(fault) => Err(("labels", fault)),
        };
        let metric_ref = match faults {
            Ok(metric_ref) => metric_ref,
            Err((what, fault)) => {
                let series = refs_text(message);
                let text = format!("parsing {what} for series {series}: {fault}");
                return Ok(Err((RejectReason::Reference, text)));
            }
        };
        let arena = &mut self.builder.batch.labels_arena;
        if let Some(packed) = &parts.packed {
            self.builder.budget.charge(packed.len)?;
            arena.extend_from_slice(&self.decoder.packed[..packed.len]);
            return Ok(Ok(metric_ref));
        }
        let labels = &mut self.decoder.labels;
        self.builder.budget.charge(labels.text_bytes())?;
        let packed = labels.pack(message.buffer(), self.builder.limits, arena);
        Ok(packed.map(|()| metric_ref))
    }

    /// Collects the labels of one series for the slow path; returns the reference to its metric
    /// name, or the error of a reference.
    fn collect_labels(&mut self, message: Reader<'_>) -> Result<Result<u32, String>, WireError> {
        let Decoder { refs, labels, symbols, .. } = &mut *self.decoder;
        let limits = self.builder.limits;
        let count = series_refs(message, refs_max(limits.labels_per_series_max), refs)?;
        if let Err(fault) = collect(labels, symbols, refs, count, limits) {
            return Ok(Err(fault));
        }
        let text = |reference| symbols.get(reference).map(|range| &message.buffer()[range]);
        let metric = refs
            .as_chunks::<2>()
            .0
            .iter()
            .find(|[name, _]| text(*name) == Some(METRIC_NAME.as_bytes()));
        // A series without a metric name is rejected later.
        Ok(Ok(metric.map_or(0, |[_, value]| *value)))
    }

    /// Adds the metadata of a series, unless another series has added them.
    fn metadata(
        &mut self,
        buffer: &[u8],
        metric_ref: u32,
        metadata: Metadata,
        counts: Counts,
    ) -> Result<(), DecodeError> {
        let text = |reference| match self.decoder.symbols.get(reference) {
            Some(range) => &buffer[range],
            None => &[],
        };
        let optional_text = |reference| if reference == 0 { &[] } else { text(reference) };
        let help = optional_text(metadata.help_ref);
        let unit = optional_text(metadata.unit_ref);
        let is_unknown = metadata.kind == MetricKind::Unknown;
        if is_unknown && help.is_empty() && unit.is_empty() {
            return Ok(());
        }
        // A native histogram is one series, whose name has no suffix.
        let metric = match counts.histograms {
            0 => family(text(metric_ref), metadata.kind),
            _ => text(metric_ref),
        };
        if !self.decoder.seen.insert(metric_ref, metadata) {
            return Ok(());
        }
        self.builder.push_metadata(metric, metadata.kind, help, unit)
    }
}

/// Reason and text of a rejected series.
type Refusal = (RejectReason, String);

impl Metadata {
    /// Reads a message; it overwrites the fields of earlier ones.
    fn read(&mut self, mut message: Reader<'_>) -> Result<(), WireError> {
        while !message.is_at_end() {
            let key = message.key()?;
            match key.field {
                1 => self.kind = metric_kind(message.integer(key)?),
                3 => self.help_ref = message.integer(key)? as u32,
                4 => self.unit_ref = message.integer(key)? as u32,
                _ => message.skip(key)?,
            }
        }
        Ok(())
    }

    /// Errors: an invalid reference, in the words of Prometheus.
    fn check(self, size: usize) -> Result<(), (&'static str, String)> {
        for (name, reference) in [("unit_ref", self.unit_ref), ("help_ref", self.help_ref)] {
            if reference as usize >= size {
                let fault =
                    format!("metadata {name} {reference} outside of symbols table (size {size})");
                return Err(("metadata", fault));
            }
        }
        Ok(())
    }
}

/// Returns the name of a metric family by the name of one of its series: for classic histograms and
/// summaries, the name without its suffix.
fn family(metric: &[u8], kind: MetricKind) -> &[u8] {
    let suffixes: &[&[u8]] = match kind {
        MetricKind::Histogram => &[b"_bucket", b"_count", b"_sum"],
        MetricKind::GaugeHistogram => &[b"_bucket", b"_gcount", b"_gsum"],
        MetricKind::Summary => &[b"_count", b"_sum"],
        _ => &[],
    };
    let stripped = suffixes.iter().find_map(|suffix| metric.strip_suffix(*suffix));
    stripped.filter(|name| !name.is_empty()).unwrap_or(metric)
}

/// Returns the number of references for the labels that the slow path keeps.
fn refs_max(labels_max: usize) -> usize {
    labels_max.saturating_add(1).saturating_mul(2)
}

/// Reads the references of a series and keeps at most `wanted` of them; returns their number.
fn series_refs(
    mut message: Reader<'_>,
    count_max: usize,
    out: &mut Vec<u32>,
) -> Result<usize, WireError> {
    out.clear();
    let mut count = 0;
    while !message.is_at_end() {
        let key = message.key()?;
        match key.field {
            1 => count += read_refs(&mut message, key, count_max, out)?,
            _ => message.skip(key)?,
        }
    }
    Ok(count)
}

/// Reads an exemplar; returns the number of references, its timestamp and its value.
fn exemplar(
    mut message: Reader<'_>,
    count_max: usize,
    refs: &mut Vec<u32>,
) -> Result<(usize, i64, f64), WireError> {
    refs.clear();
    let (mut count, mut timestamp, mut value) = (0, 0, 0.0);
    while !message.is_at_end() {
        let key = message.key()?;
        match key.field {
            1 => count += read_refs(&mut message, key, count_max, refs)?,
            2 => value = message.double(key)?,
            3 => timestamp = message.integer(key)? as i64,
            _ => message.skip(key)?,
        }
    }
    Ok((count, timestamp, value))
}

/// Looks up labels by their references.
///
/// Errors: an invalid reference, in the words of Prometheus.
fn collect(
    labels: &mut UncheckedLabels,
    symbols: &SymbolTable,
    refs: &[u32],
    count: usize,
    limits: &Limits,
) -> Result<(), String> {
    labels.clear();
    if !count.is_multiple_of(2) {
        return Err(format!("invalid labelRefs length {count}"));
    }
    for [name_ref, value_ref] in refs.as_chunks::<2>().0 {
        let (Some(name), Some(value)) = (symbols.get(*name_ref), symbols.get(*value_ref)) else {
            return Err(format!(
                "labelRefs {name_ref} (name) = {value_ref} (value) outside of symbols table \
                 (size {})",
                symbols.len()
            ));
        };
        labels.push(name, value, limits);
    }
    labels.set_count(count / 2);
    Ok(())
}

/// Formats the references of a series as Go prints a list of numbers, truncated.
fn refs_text(message: Reader<'_>) -> String {
    let mut refs = Vec::new();
    // The message has been read before without an error.
    let count = series_refs(message, REFS_SHOWN_MAX, &mut refs).unwrap_or(0);
    let shown: Vec<String> = refs.iter().map(u32::to_string).collect();
    let more = if count > REFS_SHOWN_MAX { " ..." } else { "" };
    format!("[{}{more}]", shown.join(" "))
}
