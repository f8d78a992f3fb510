//! Decodes frames to histograms, a batch at a time.

use std::sync::Arc;

use model::{Advance, HISTOGRAM_BATCH_LEN, Histogram, HistogramSample, ResetHint, SampleBatch};
use model::{Span, stale_nan};

use super::column::{COUNT_LIMIT, FloatColumn, unfold};
use super::layout::{HISTOGRAM_BUCKETS_MAX, Layout, canonical_spans, same_bits};
use super::{
    ESCAPE_ZEROS, HistogramBefore, HistogramState, Mode, StartRule, THRESHOLD_ANY, THRESHOLD_ONE,
};
use crate::chunk::ChunkError;
use crate::chunk::bits::{LOADED_BITS, load, read_bits};
use crate::chunk::frame::{Encoding, FrameHeader};

/// Forward-only reader of one chunk of histograms, resumed at increasing bounds.
///
/// It keeps a state for each bucket and the last histogram.
///
/// Invariant: the returned samples strictly ascend, for any bytes. A histogram allocates at most a
/// column of 32 bytes and a count of 8 bytes for each of its bits.
#[derive(Debug, Clone)]
pub struct HistogramDecoder<'a> {
    bits: Bits<'a>,
    state: HistogramState,
    /// Last sample, unless it was skipped.
    last: Option<Arc<Histogram>>,
    before: Option<HistogramBefore>,
    /// Time of the next sample, if there is one.
    next_ms: i64,
    max_ms: i64,
    count: u32,
    remaining: u32,
    /// Damage found; later calls return it again.
    failed: Option<ChunkError>,
}

impl<'a> HistogramDecoder<'a> {
    /// Opens the frame at the start of `bytes`, and verifies its header and checksum. Bytes after
    /// the frame are never used.
    pub fn open(bytes: &'a [u8]) -> Result<HistogramDecoder<'a>, ChunkError> {
        let header = FrameHeader::read(bytes)?;
        header.verify(bytes)?;
        HistogramDecoder::new(bytes, &header)
    }

    /// Opens a frame whose checksum the caller has verified, or does not need.
    pub fn new(bytes: &'a [u8], header: &FrameHeader) -> Result<HistogramDecoder<'a>, ChunkError> {
        if bytes.len() < header.frame_len() {
            let (expected, found) = (header.frame_len(), bytes.len());
            return Err(ChunkError::Truncated { expected, found });
        }
        if header.encoding != Encoding::Histograms {
            return Err(ChunkError::UnknownEncoding { tag: header.encoding as u8 });
        }
        let mut decoder = HistogramDecoder {
            bits: Bits {
                bytes,
                bit: header.payload_start() * 8 + 64,
                end_bit: header.payload_end() * 8,
            },
            state: HistogramState::new(),
            last: None,
            before: None,
            next_ms: header.min_ms,
            max_ms: header.max_ms,
            count: header.count,
            remaining: header.count,
            failed: None,
        };
        decoder.state.time_ms = header.min_ms;
        if decoder.bits.take(1) == 1 {
            let distance_ms = decoder.bits.take_number();
            let fingerprint = decoder.bits.take(32) as u32;
            decoder.before = header
                .min_ms
                .checked_sub_unsigned(distance_ms)
                .filter(|_| distance_ms > 0)
                .map(|timestamp_ms| HistogramBefore { timestamp_ms, fingerprint });
            if decoder.before.is_none() {
                return Err(decoder.damaged("the time before is out of range"));
            }
        }
        Ok(decoder)
    }

    /// Returns the histogram that the hint of the first sample refers to.
    pub fn before(&self) -> Option<HistogramBefore> {
        self.before
    }

    /// Returns the number of samples that have been neither returned nor skipped.
    pub fn remaining(&self) -> usize {
        self.remaining as usize
    }

    /// Appends the next samples with `timestamp <= until_ms` to `batch`, until it is full or the
    /// bound is reached. Bounds never decrease.
    ///
    /// Errors: the payload does not match its header. Earlier samples are in the batch; the next
    /// call fails again.
    pub fn next_batch(
        &mut self,
        until_ms: i64,
        batch: &mut SampleBatch,
    ) -> Result<Advance, ChunkError> {
        while self.remaining > 0 && self.next_ms <= until_ms {
            if batch.is_full() {
                return Ok(Advance::Full);
            }
            let sample = self.next_sample()?;
            batch.histograms.push(sample);
        }
        Ok(if self.remaining == 0 {
            Advance::End
        } else if batch.histograms.len() >= HISTOGRAM_BATCH_LEN {
            Advance::Full
        } else {
            Advance::Reached
        })
    }

    /// Returns the next sample, which must exist.
    fn next_sample(&mut self) -> Result<HistogramSample, ChunkError> {
        let is_same = self.step()?;
        let histogram = match &self.last {
            Some(last) if is_same => Arc::clone(last),
            _ => Arc::new(self.state.histogram()),
        };
        self.last = Some(Arc::clone(&histogram));
        Ok(HistogramSample {
            timestamp_ms: self.state.time_ms,
            start_ms: self.state.start_ms,
            histogram,
        })
    }

    /// Skips the samples with `timestamp < start_ms` without creating histograms. Returns whether
    /// there was one.
    pub fn skip_before(&mut self, start_ms: i64) -> Result<bool, ChunkError> {
        let remaining = self.remaining;
        while self.remaining > 0 && self.next_ms < start_ms {
            if !self.step()? {
                self.last = None;
            }
        }
        Ok(self.remaining < remaining)
    }

    /// Advances to the next sample; returns whether its histogram equals the one before.
    fn step(&mut self) -> Result<bool, ChunkError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let stepped = self.try_step();
        if let Err(error) = stepped {
            self.failed = Some(error);
        }
        stepped
    }

    fn try_step(&mut self) -> Result<bool, ChunkError> {
        let time_before_ms = self.state.time_ms;
        self.state.time_ms = self.next_ms;
        let is_same = self.read_body(time_before_ms).map_err(|detail| self.damaged(detail))?;
        if self.bits.bit > self.bits.end_bit {
            return Err(self.damaged("the payload ends early"));
        }
        if self.remaining > 1 {
            self.read_time()?;
        } else {
            self.check_end()?;
        }
        self.remaining -= 1;
        Ok(is_same)
    }

    fn read_time(&mut self) -> Result<(), ChunkError> {
        self.state.delta_ms = self.state.delta_ms.wrapping_add(self.bits.take_time());
        let next_ms = self.state.time_ms.checked_add(self.state.delta_ms);
        match next_ms.filter(|_| self.state.delta_ms > 0) {
            Some(next_ms) if next_ms <= self.max_ms => self.next_ms = next_ms,
            Some(_) => return Err(self.damaged("time passes the header's")),
            None => return Err(self.damaged("time does not ascend")),
        }
        Ok(())
    }

    /// Reads a sample without its time.
    fn read_body(&mut self, time_before_ms: i64) -> Result<bool, &'static str> {
        let (bits, state) = (&mut self.bits, &mut self.state);
        let is_first = self.remaining == self.count;
        let mut mode = if state.is_signed { Mode::Signed } else { Mode::Rising };
        let is_plain = bits.take(1) == 0;
        let is_same = !is_plain && bits.take(1) == 0;
        if is_first && (is_plain || is_same) {
            return Err("the first sample follows from none");
        }
        if is_plain || is_same {
            state.start_ms = state.start_by(state.start_rule, time_before_ms);
        } else {
            mode = read_control(bits, state, time_before_ms)?;
        }
        if is_same {
            return Ok(true);
        }
        state.is_stale = mode == Mode::Stale;
        if !state.is_stale {
            read_values(bits, state, mode)?;
        }
        Ok(false)
    }

    /// Checks the end of the payload after the last sample.
    fn check_end(&self) -> Result<(), ChunkError> {
        if self.state.time_ms != self.max_ms {
            return Err(self.damaged("the last time is not the header's"));
        }
        let unused = self.bits.end_bit - self.bits.bit;
        if unused >= 8
            || (unused > 0 && read_bits(self.bits.bytes, self.bits.bit, unused as u32) != 0)
        {
            return Err(self.damaged("bits follow the end"));
        }
        Ok(())
    }

    #[cold]
    fn damaged(&self, detail: &'static str) -> ChunkError {
        let sample_index = self.count - self.remaining;
        ChunkError::Payload { detail, sample_index, bit: self.bits.bit }
    }
}

/// Reads the control of a sample that differs from the one before.
fn read_control(
    bits: &mut Bits<'_>,
    state: &mut HistogramState,
    time_before_ms: i64,
) -> Result<Mode, &'static str> {
    let control = bits.take(8);
    state.hint = match control >> 6 {
        0 => ResetHint::Unknown,
        1 => ResetHint::Reset,
        2 => ResetHint::NotReset,
        _ => ResetHint::Gauge,
    };
    let mode = match control >> 4 & 3 {
        0 => Mode::Rising,
        1 => Mode::Signed,
        2 => Mode::FromZero,
        _ => Mode::Stale,
    };
    let rule = match control & 3 {
        0 => StartRule::Unknown,
        1 => StartRule::Same,
        2 => StartRule::TimeBefore,
        _ => StartRule::Written,
    };
    if rule == StartRule::Written {
        state.start_ms = state.time_ms.wrapping_sub(unfold(bits.take_number()));
        state.start_rule = StartRule::Same;
    } else {
        state.start_ms = state.start_by(rule, time_before_ms);
        state.start_rule = rule;
    }
    if control & 0b1000 != 0 {
        let layout = read_layout(bits, &state.layout)?;
        state.set_layout(layout);
    }
    if control & 0b100 != 0 {
        state.excess = unfold(bits.take_number());
    }
    match mode {
        Mode::Rising => state.is_signed = false,
        Mode::Signed => state.is_signed = true,
        Mode::FromZero => {
            state.is_signed = false;
            state.begin_at_zero();
        }
        Mode::Stale if control & 0b1100 != 0 => return Err("a stale sample has a layout"),
        Mode::Stale => {}
    }
    Ok(mode)
}

fn read_layout(bits: &mut Bits<'_>, before: &Layout) -> Result<Layout, &'static str> {
    let is_integer = bits.take(1) == 1;
    let schema = bits.take(8) as u8 as i8;
    let zero_threshold = match bits.take(8) {
        0 => 0.0,
        THRESHOLD_ANY => f64::from_bits(bits.take(64)),
        code => f64::from_bits(((code as i64 - THRESHOLD_ONE + 1023) as u64) << 52),
    };
    let (positive_spans, positive_len) = read_spans(bits)?;
    let (negative_spans, negative_len) = read_spans(bits)?;
    if positive_len + negative_len > HISTOGRAM_BUCKETS_MAX {
        return Err("a histogram has too many buckets");
    }
    let bound_count = bits.take_number();
    if bound_count > HISTOGRAM_BUCKETS_MAX as u64 || bound_count * 8 > bits.left() {
        return Err("a histogram has too many bounds");
    }
    let mut custom_bounds = Vec::with_capacity(bound_count as usize);
    for _ in 0..bound_count {
        custom_bounds.push(match bits.take(1) {
            0 => bits.take_number() as f64 / 1000.0,
            _ => f64::from_bits(bits.take(64)),
        });
    }
    // Samples of one chunk share their bounds even if their buckets change.
    let custom_bounds: Arc<[f64]> = if same_bits(&custom_bounds, &before.custom_bounds) {
        Arc::clone(&before.custom_bounds)
    } else {
        custom_bounds.into()
    };
    // Each column takes at least one bit.
    if (positive_len + negative_len) as u64 > bits.left() {
        return Err("a histogram has more buckets than bits");
    }
    Ok(Layout {
        is_integer,
        schema,
        zero_threshold,
        positive_spans,
        negative_spans,
        positive_len,
        negative_len,
        custom_bounds,
    })
}

fn read_spans(bits: &mut Bits<'_>) -> Result<(Vec<Span>, usize), &'static str> {
    let count = bits.take_number();
    if count > HISTOGRAM_BUCKETS_MAX as u64 || count * 14 > bits.left() {
        return Err("a histogram has too many spans");
    }
    let mut spans = Vec::with_capacity(count as usize);
    let mut len = 0;
    for _ in 0..count {
        let offset = i32::try_from(unfold(bits.take_number()));
        let length = u32::try_from(bits.take_number());
        let (Ok(offset), Ok(length)) = (offset, length) else {
            return Err("a span is out of range");
        };
        len += length as usize;
        spans.push(Span { offset, length });
    }
    if len > HISTOGRAM_BUCKETS_MAX {
        return Err("a histogram has too many buckets");
    }
    if canonical_spans(&spans).len() != spans.len() {
        return Err("spans are not in their fewest form");
    }
    Ok((spans, len))
}

fn read_values(
    bits: &mut Bits<'_>,
    state: &mut HistogramState,
    mode: Mode,
) -> Result<(), &'static str> {
    bits.take_float(&mut state.sum)?;
    if !state.layout.is_integer {
        for column in &mut state.floats {
            bits.take_float(column)?;
        }
        return Ok(());
    }
    if mode == Mode::Signed {
        read_integers::<true>(bits, state)?;
    } else {
        read_integers::<false>(bits, state)?;
    }
    let total = state.integers.iter().map(|column| column.value).fold(0, i64::wrapping_add);
    match total.wrapping_add(state.excess) as u64 {
        count if count < COUNT_LIMIT as u64 => Ok(()),
        _ => Err("a count is out of range"),
    }
}

/// Reads one number of each column. Hot loop: a load, a count of zeros and two shifts per bucket.
fn read_integers<const IS_SIGNED: bool>(
    bits: &mut Bits<'_>,
    state: &mut HistogramState,
) -> Result<(), &'static str> {
    for column in &mut state.integers {
        if column.is_fresh() {
            match bits.take_number() {
                value if value < COUNT_LIMIT as u64 => column.begin(value as i64),
                _ => return Err("a count is out of range"),
            }
            continue;
        }
        let code = bits.take_code(column.parameter());
        let growth =
            if IS_SIGNED { column.signed_growth(code) } else { column.rising_growth(code) };
        if !column.advance(growth, code) {
            return Err("a count is out of range");
        }
    }
    Ok(())
}

impl HistogramState {
    /// Returns the histogram of the last sample.
    fn histogram(&self) -> Histogram {
        if self.is_stale {
            return Histogram { reset_hint: self.hint, sum: stale_nan(), ..Histogram::default() };
        }
        let layout = &self.layout;
        let leading = layout.leading_columns();
        let (positive, negative) =
            (leading..leading + layout.positive_len, leading + layout.positive_len..);
        let (count, zero_count, positive_counts, negative_counts) = if layout.is_integer {
            let columns = &self.integers;
            let total = columns.iter().map(|c| c.value).fold(self.excess, i64::wrapping_add);
            let counts = |columns: &[super::IntegerColumn]| {
                columns.iter().map(|column| column.value as f64).collect::<Vec<_>>()
            };
            let zero_count = columns[0].value as f64;
            (total as f64, zero_count, counts(&columns[positive]), counts(&columns[negative]))
        } else {
            let columns = &self.floats;
            let number = |column: &FloatColumn| f64::from_bits(column.bits);
            let counts = |columns: &[FloatColumn]| columns.iter().map(number).collect::<Vec<_>>();
            let (count, zero_count) = (number(&columns[0]), number(&columns[1]));
            (count, zero_count, counts(&columns[positive]), counts(&columns[negative]))
        };
        Histogram {
            reset_hint: self.hint,
            schema: layout.schema,
            zero_threshold: layout.zero_threshold,
            zero_count,
            count,
            sum: f64::from_bits(self.sum.bits),
            positive_spans: layout.positive_spans.clone(),
            negative_spans: layout.negative_spans.clone(),
            positive_counts,
            negative_counts,
            custom_bounds: Arc::clone(&layout.custom_bounds),
        }
    }
}

/// Reader of bits. After the end it reads the following bytes or zeros; callers that read a limited
/// number of times check the position afterwards.
#[derive(Debug, Clone)]
struct Bits<'a> {
    bytes: &'a [u8],
    bit: usize,
    end_bit: usize,
}

impl Bits<'_> {
    /// Returns the number of remaining bits.
    fn left(&self) -> u64 {
        self.end_bit.saturating_sub(self.bit) as u64
    }

    /// Reads the next bits, 1 to 64.
    #[inline]
    fn take(&mut self, count: u32) -> u64 {
        let taken = read_bits(self.bytes, self.bit, count);
        self.bit += count as usize;
        taken
    }

    fn take_number(&mut self) -> u64 {
        let bits = self.take(6) as u32 + 1;
        self.take(bits)
    }

    #[inline(always)]
    fn take_code(&mut self, parameter: u32) -> u64 {
        let word = load(self.bytes, self.bit);
        let zeros = word.leading_zeros();
        if zeros < ESCAPE_ZEROS && zeros + 1 + parameter <= LOADED_BITS {
            self.bit += (zeros + 1 + parameter) as usize;
            // Two shifts, since a shift by 64 is not possible.
            let low = word << (zeros + 1) >> 1 >> (63 - parameter);
            return u64::from(zeros) << parameter | low;
        }
        self.take_wide_code(zeros, parameter)
    }

    #[cold]
    fn take_wide_code(&mut self, zeros: u32, parameter: u32) -> u64 {
        if zeros < ESCAPE_ZEROS {
            self.bit += zeros as usize + 1;
            let low = if parameter == 0 { 0 } else { self.take(parameter) };
            return u64::from(zeros) << parameter | low;
        }
        self.bit += ESCAPE_ZEROS as usize;
        self.take_number()
    }

    fn take_time(&mut self) -> i64 {
        for (len, marks) in [(0, 1), (7, 1), (9, 1), (12, 1)] {
            if self.take(marks) == 0 {
                if len == 0 {
                    return 0;
                }
                // Of n bits, 2ⁿ⁻¹ is positive.
                let unused = 64 - len;
                let word = self.take(len) << unused;
                return (word.wrapping_sub(1 << unused) as i64 >> unused) + 1;
            }
        }
        self.take(64) as i64
    }

    fn take_float(&mut self, column: &mut FloatColumn) -> Result<(), &'static str> {
        if self.take(1) == 0 {
            return Ok(());
        }
        if self.take(1) == 1 {
            let leading = self.take(6) as u32;
            let significant = self.take(6) as u32 + 1;
            if leading + significant > 64 {
                return Err("a value is too wide");
            }
            (column.leading, column.significant) = (leading, significant);
        }
        if column.significant == 0 {
            return Err("a value has no window");
        }
        let trailing = 64 - column.leading - column.significant;
        column.bits ^= self.take(column.significant) << trailing;
        Ok(())
    }
}
