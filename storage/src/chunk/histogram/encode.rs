//! Encodes histograms to frames, one sample at a time.

use model::{Histogram, HistogramSample, ResetHint};

use super::column::{FloatColumn, IntegerColumn, fold};
use super::layout::{Layout, has_integer_counts, integer, is_storable};
use super::{ESCAPE_ZEROS, HistogramBefore, HistogramState, Mode, PAYLOAD_BYTES_FULL, StartRule};
use super::{THRESHOLD_ANY, THRESHOLD_ONE};
use crate::chunk::bits::PendingBits;
use crate::chunk::frame::{self, Encoding};
use crate::chunk::{CHUNK_SAMPLES_MAX, ordered_bits};

/// Frame of histograms that is still growing.
#[derive(Debug, Clone)]
pub struct HistogramEncoder {
    sink: Sink,
    state: HistogramState,
    count: usize,
    min_ms: i64,
}

impl HistogramEncoder {
    /// Creates a frame that begins with a sample. Its hint refers to the histogram `before`, if
    /// there was one.
    ///
    /// Panics: the histogram is not [storable](is_storable).
    pub fn new(sample: &HistogramSample, before: Option<HistogramBefore>) -> HistogramEncoder {
        let mut encoder = HistogramEncoder {
            sink: Sink { bytes: Vec::new(), pending: PendingBits::new() },
            state: HistogramState::new(),
            count: 0,
            min_ms: sample.timestamp_ms,
        };
        encoder.sink.push(ordered_bits(sample.timestamp_ms), 64);
        match before.filter(|before| before.timestamp_ms < sample.timestamp_ms) {
            Some(before) => {
                encoder.sink.push(1, 1);
                encoder.sink.push_number(sample.timestamp_ms.abs_diff(before.timestamp_ms));
                encoder.sink.push(u64::from(before.fingerprint), 32);
            }
            None => encoder.sink.push(0, 1),
        }
        encoder.state.time_ms = sample.timestamp_ms;
        encoder.push_body(sample, sample.timestamp_ms);
        encoder
    }

    /// Adds a sample; returns false if the frame is full.
    ///
    /// Panics: the sample is not later than the one before, or not [storable](is_storable).
    pub fn push(&mut self, sample: &HistogramSample) -> bool {
        let time_before_ms = self.state.time_ms;
        assert!(
            time_before_ms < sample.timestamp_ms,
            "times ascend: {time_before_ms} before {}",
            sample.timestamp_ms
        );
        if self.count == CHUNK_SAMPLES_MAX
            || self.sink.bytes.len() >= PAYLOAD_BYTES_FULL
            || sample.timestamp_ms.checked_sub(self.min_ms).is_none()
        {
            return false;
        }
        let delta_ms = sample.timestamp_ms - time_before_ms;
        self.sink.push_time(delta_ms.wrapping_sub(self.state.delta_ms));
        self.state.delta_ms = delta_ms;
        self.state.time_ms = sample.timestamp_ms;
        self.push_body(sample, time_before_ms);
        true
    }

    /// Returns the number of samples, at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the time of the first sample.
    pub fn min_ms(&self) -> i64 {
        self.min_ms
    }

    /// Returns the time of the last sample.
    pub fn max_ms(&self) -> i64 {
        self.state.time_ms
    }

    /// Returns the approximate length of the payload.
    pub fn payload_bytes(&self) -> usize {
        self.sink.bytes.len()
    }

    /// Appends the current frame; more samples may be added later.
    pub fn finish(&self, out: &mut Vec<u8>) {
        let frame_start = out.len();
        let mut header = [0; frame::HEADER_BYTES_MAX];
        let mut end = Vec::with_capacity(8);
        self.sink.pending.close(&mut end);
        let header_len = frame::write_header(
            &mut header,
            Encoding::Histograms,
            self.count,
            self.state.time_ms.abs_diff(self.min_ms),
            self.sink.bytes.len() + end.len(),
        );
        out.extend_from_slice(&header[..header_len]);
        out.extend_from_slice(&self.sink.bytes);
        out.extend_from_slice(&end);
        let checksum = crc32c::crc32c(&out[frame_start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// Writes a sample without its time.
    fn push_body(&mut self, sample: &HistogramSample, time_before_ms: i64) {
        let histogram = &*sample.histogram;
        assert!(is_storable(histogram), "callers of append check it");
        self.count += 1;
        let (sink, state) = (&mut self.sink, &mut self.state);
        let start_rule = start_rule(state, sample, time_before_ms);
        let is_stale_marker = is_stale_marker(histogram);
        let is_same_start = start_rule == state.start_rule && start_rule != StartRule::Written;
        if self.count > 1
            && is_same_start
            && state.hint == histogram.reset_hint
            && is_unchanged(state, histogram, is_stale_marker)
        {
            sink.push(0b10, 2);
            state.start_ms = sample.start_ms;
            return;
        }
        let change = if is_stale_marker {
            Change { mode: Mode::Stale, layout: None, excess: None }
        } else {
            change_of(state, histogram)
        };
        let is_plain = self.count > 1
            && is_same_start
            && state.hint == histogram.reset_hint
            && change.layout.is_none()
            && change.excess.is_none()
            && change.mode == if state.is_signed { Mode::Signed } else { Mode::Rising };
        if is_plain {
            sink.push(0, 1);
        } else {
            push_control(sink, state, sample, &change, start_rule);
        }
        state.start_ms = sample.start_ms;
        state.is_stale = change.mode == Mode::Stale;
        if !state.is_stale {
            push_values(sink, state, histogram, change.mode);
        }
    }
}

/// Appends histograms to `out` as frames, one after the other; returns how many frames.
///
/// There is one frame, unless it grows too long. The hint of the first sample was decided
/// against the histogram `before`, each other one against the sample before it.
///
/// Panics: times do not strictly ascend, or a histogram is not [storable](is_storable).
pub fn encode_histograms(
    samples: &[HistogramSample],
    before: Option<HistogramBefore>,
    out: &mut Vec<u8>,
) -> usize {
    let Some((first, rest)) = samples.split_first() else { return 0 };
    let mut encoder = HistogramEncoder::new(first, before);
    let mut frame_count = 1;
    let mut last = first;
    for sample in rest {
        if !encoder.push(sample) {
            encoder.finish(out);
            encoder = HistogramEncoder::new(sample, Some(HistogramBefore::of(last)));
            frame_count += 1;
        }
        last = sample;
    }
    encoder.finish(out);
    frame_count
}

/// Changes of a sample that the columns do not express.
struct Change {
    mode: Mode,
    layout: Option<Layout>,
    excess: Option<i64>,
}

fn change_of(state: &HistogramState, histogram: &Histogram) -> Change {
    let is_integer = has_integer_counts(histogram);
    // Whole numbers fit a layout of floats: one fraction does not cause two changes.
    let is_kind_held = state.layout.is_integer <= is_integer;
    let layout =
        (!is_kind_held || !state.layout.fits(histogram)).then(|| Layout::of(histogram, is_integer));
    if !layout.as_ref().unwrap_or(&state.layout).is_integer {
        let mode = if state.is_signed { Mode::Signed } else { Mode::Rising };
        return Change { mode, layout, excess: None };
    }
    let excess = excess_of(histogram);
    let excess = (excess != state.excess).then_some(excess);
    // A new layout first carries the columns over; falling counts are rare then.
    let falls = match &layout {
        None => falls(&state.integers, histogram),
        Some(layout) => falls(&layout.carry(&state.layout, &state.integers), histogram),
    };
    let mode = match (falls, histogram.reset_hint) {
        (true, ResetHint::Gauge | ResetHint::NotReset) => Mode::Signed,
        (true, _) => Mode::FromZero,
        (false, ResetHint::Gauge) if state.is_signed => Mode::Signed,
        (false, _) => Mode::Rising,
    };
    Change { mode, layout, excess }
}

fn excess_of(histogram: &Histogram) -> i64 {
    let whole = |count: &f64| integer(*count).unwrap_or_default();
    let counts = histogram.positive_counts.iter().chain(&histogram.negative_counts);
    let total = counts.map(whole).fold(whole(&histogram.zero_count), i64::wrapping_add);
    whole(&histogram.count).wrapping_sub(total)
}

/// Returns the counts in the order of integer columns.
fn integer_counts(histogram: &Histogram) -> impl Iterator<Item = i64> {
    std::iter::once(&histogram.zero_count)
        .chain(&histogram.positive_counts)
        .chain(&histogram.negative_counts)
        .map(|count| integer(*count).unwrap_or_default())
}

/// Returns the counts in the order of float columns.
fn float_counts(histogram: &Histogram) -> impl Iterator<Item = f64> {
    [histogram.count, histogram.zero_count]
        .into_iter()
        .chain(histogram.positive_counts.iter().copied())
        .chain(histogram.negative_counts.iter().copied())
}

fn falls(columns: &[IntegerColumn], histogram: &Histogram) -> bool {
    columns.iter().zip(integer_counts(histogram)).any(|(column, count)| count < column.value)
}

/// Returns whether a histogram is nothing but a staleness marker.
fn is_stale_marker(histogram: &Histogram) -> bool {
    histogram.is_stale()
        && Histogram { reset_hint: histogram.reset_hint, ..Histogram::stale() }.identical(histogram)
}

/// Returns whether a sample with the same hint equals the one before.
fn is_unchanged(state: &HistogramState, histogram: &Histogram, is_stale_marker: bool) -> bool {
    if is_stale_marker || state.is_stale {
        return is_stale_marker && state.is_stale;
    }
    if state.sum.bits != histogram.sum.to_bits() || !state.layout.fits(histogram) {
        return false;
    }
    if !state.layout.is_integer {
        return state
            .floats
            .iter()
            .zip(float_counts(histogram))
            .all(|(column, count)| column.bits == count.to_bits());
    }
    has_integer_counts(histogram)
        && state
            .integers
            .iter()
            .zip(integer_counts(histogram))
            .all(|(column, count)| column.value == count)
        && excess_of(histogram) == state.excess
}

fn start_rule(state: &HistogramState, sample: &HistogramSample, time_before_ms: i64) -> StartRule {
    let rules = [state.start_rule, StartRule::Unknown, StartRule::TimeBefore, StartRule::Same];
    let holds = |rule: &StartRule| state.start_by(*rule, time_before_ms) == sample.start_ms;
    rules.into_iter().find(holds).unwrap_or(StartRule::Written)
}

fn push_control(
    sink: &mut Sink,
    state: &mut HistogramState,
    sample: &HistogramSample,
    change: &Change,
    start_rule: StartRule,
) {
    let hint = sample.histogram.reset_hint;
    sink.push(0b11, 2);
    sink.push(u64::from(hint.number()), 2);
    sink.push(change.mode as u64, 2);
    sink.push(u64::from(change.layout.is_some()), 1);
    sink.push(u64::from(change.excess.is_some()), 1);
    sink.push(start_rule as u64, 2);
    state.hint = hint;
    state.start_rule = start_rule;
    if start_rule == StartRule::Written {
        sink.push_number(fold(sample.timestamp_ms.wrapping_sub(sample.start_ms)));
        state.start_rule = StartRule::Same;
    }
    if let Some(layout) = &change.layout {
        sink.push_layout(layout);
        state.set_layout(layout.clone());
    }
    if let Some(excess) = change.excess {
        sink.push_number(fold(excess));
        state.excess = excess;
    }
    match change.mode {
        Mode::Rising | Mode::FromZero => state.is_signed = false,
        Mode::Signed => state.is_signed = true,
        Mode::Stale => {}
    }
    if change.mode == Mode::FromZero {
        state.begin_at_zero();
    }
}

fn push_values(sink: &mut Sink, state: &mut HistogramState, histogram: &Histogram, mode: Mode) {
    sink.push_float(&mut state.sum, histogram.sum);
    if !state.layout.is_integer {
        for (column, count) in state.floats.iter_mut().zip(float_counts(histogram)) {
            sink.push_float(column, count);
        }
        return;
    }
    for (column, count) in state.integers.iter_mut().zip(integer_counts(histogram)) {
        if column.is_fresh() {
            sink.push_number(count as u64);
            column.begin(count);
            continue;
        }
        let code = match mode {
            Mode::Signed => column.signed_code(count),
            _ => column.rising_code(count),
        };
        sink.push_code(code, column.parameter());
        let is_held = column.advance(count - column.value, code);
        assert!(is_held, "counts are below the limit");
    }
}

/// Sink of the encoded bits.
#[derive(Debug, Clone)]
struct Sink {
    bytes: Vec<u8>,
    pending: PendingBits,
}

impl Sink {
    #[inline]
    fn push(&mut self, bits: u64, count: u32) {
        self.pending.push(bits, count, &mut self.bytes);
    }

    fn push_number(&mut self, number: u64) {
        let bits = (64 - number.leading_zeros()).max(1);
        self.push(u64::from(bits - 1), 6);
        self.push(number, bits);
    }

    #[inline]
    fn push_code(&mut self, code: u64, parameter: u32) {
        let zeros = code >> parameter;
        if zeros < u64::from(ESCAPE_ZEROS) {
            // Writes the stop bit and the low bits together.
            let low = code & ((1 << parameter) - 1);
            self.push(0, zeros as u32);
            self.push(1 << parameter | low, parameter + 1);
        } else {
            self.push(0, ESCAPE_ZEROS);
            self.push_number(code);
        }
    }

    fn push_time(&mut self, delta_of_deltas: i64) {
        let bits = delta_of_deltas as u64;
        match delta_of_deltas {
            0 => self.push(0, 1),
            -63..=64 => self.push(0b10 << 7 | bits & 0x7f, 9),
            -255..=256 => self.push(0b110 << 9 | bits & 0x1ff, 12),
            -2047..=2048 => self.push(0b1110 << 12 | bits & 0xfff, 16),
            _ => {
                self.push(0b1111, 4);
                self.push(bits, 64);
            }
        }
    }

    fn push_float(&mut self, column: &mut FloatColumn, value: f64) {
        let xor = column.bits ^ value.to_bits();
        column.bits = value.to_bits();
        if xor == 0 {
            self.push(0, 1);
            return;
        }
        let (leading, trailing) = (xor.leading_zeros(), xor.trailing_zeros());
        let significant = 64 - leading - trailing;
        let trailing_before = 64 - column.leading - column.significant;
        let fits = column.significant > 0
            && leading >= column.leading
            && trailing >= trailing_before
            && column.significant <= significant + 12;
        if fits {
            self.push(0b10, 2);
            self.push(xor >> trailing_before, column.significant);
            return;
        }
        (column.leading, column.significant) = (leading, significant);
        self.push(0b11, 2);
        self.push(u64::from(leading), 6);
        self.push(u64::from(significant - 1), 6);
        self.push(xor >> trailing, significant);
    }

    fn push_layout(&mut self, layout: &Layout) {
        self.push(u64::from(layout.is_integer), 1);
        self.push(u64::from(layout.schema as u8), 8);
        let code = threshold_code(layout.zero_threshold);
        self.push(code, 8);
        if code == THRESHOLD_ANY {
            self.push(layout.zero_threshold.to_bits(), 64);
        }
        for spans in [&layout.positive_spans, &layout.negative_spans] {
            self.push_number(spans.len() as u64);
            for span in spans {
                self.push_number(fold(i64::from(span.offset)));
                self.push_number(u64::from(span.length));
            }
        }
        self.push_number(layout.custom_bounds.len() as u64);
        for bound in layout.custom_bounds.iter() {
            match thousandths(*bound) {
                Some(number) => {
                    self.push(0, 1);
                    self.push_number(number);
                }
                None => {
                    self.push(1, 1);
                    self.push(bound.to_bits(), 64);
                }
            }
        }
    }
}

fn threshold_code(threshold: f64) -> u64 {
    if threshold.to_bits() == 0 {
        return 0;
    }
    let bits = threshold.to_bits();
    let code = (bits >> 52) as i64 - 1023 + THRESHOLD_ONE;
    let is_power = bits << 12 == 0;
    if is_power && (1..THRESHOLD_ANY as i64).contains(&code) { code as u64 } else { THRESHOLD_ANY }
}

/// Returns a bound as whole thousandths, if that reproduces its bits.
fn thousandths(bound: f64) -> Option<u64> {
    let number = integer((bound * 1000.0).round())?;
    (number as f64 / 1000.0).to_bits().eq(&bound.to_bits()).then_some(number as u64)
}
