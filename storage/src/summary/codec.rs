//! Stored form of the summaries of a block.
//!
//! Layout: "Summaries of a block" in `docs/formats.md`.

use std::ops::Range;

use super::{SLOTS, Summary, WindowSummaries, larger, slot_of, smaller};
use crate::chunk::{self, Decoder};
use crate::error::StoreError;
use crate::value;
use crate::varint::{push_varint, take_count, take_u32, take_varint, unzigzag, zigzag};
use crate::window::Window;

const VERSION: u8 = 1;
/// Powers of ten by which values are integers. The last scale is of values as they are.
const SCALES: [f64; 7] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
const RAW: u8 = 7;

/// In the first byte of a series: its resets are not known.
const LACKS_RESETS: u8 = 64;

const HAS_EXTREMES: u8 = 1;
const HAS_RESETS: u8 = 2;
const HAS_RAW_SUM: u8 = 4;
const HAS_REST: u8 = 8;
const IS_ONE: u8 = 16;
const IS_ENDED: u8 = 32;
/// The rest of the sum is a float of 32 bits.
const IS_REST_SHORT: u8 = 64;
/// Number and distance of the samples are the expected ones.
const IS_REGULAR: u8 = 128;

/// Collects the summaries of a block's series.
#[derive(Debug, Default)]
pub(crate) struct SummaryBuilder {
    /// Id and length of the summaries of each series.
    series: Vec<(u32, usize)>,
    bodies: Vec<u8>,
    /// Number of summarized samples, with staleness markers.
    sample_count: usize,
    /// Times of the first series with summaries.
    common: Option<CommonTimes>,
    times: Vec<i64>,
    values: Vec<f64>,
    /// Start timestamps, which summaries do not have.
    starts: Vec<i64>,
    /// Ids of the series that have some.
    with_starts: Vec<u32>,
}

impl SummaryBuilder {
    /// Adds a series: ids ascend. Its frames stand end to end, and lie in one window.
    pub(crate) fn push(&mut self, id: u32, frames: &[u8]) {
        let before = self.bodies.len();
        if let Some(window) = self.decode(frames)
            && let Some(summaries) = super::of_window(window, &self.times, &self.values)
        {
            let common = self.common.get_or_insert_with(|| CommonTimes::of(window, &summaries));
            encode_series(window, common, &summaries, &mut self.bodies);
            self.sample_count += self.times.len();
        }
        if !self.starts.is_empty() {
            self.with_starts.push(id);
        }
        self.series.push((id, self.bodies.len() - before));
    }

    /// Decodes frames of floats. Returns their window, and `None` for any other samples.
    fn decode(&mut self, frames: &[u8]) -> Option<Window> {
        self.times.clear();
        self.values.clear();
        self.starts.clear();
        for frame in chunk::frames(frames) {
            let (offset, header) = frame.ok()?;
            if header.encoding.is_histograms() {
                return None;
            }
            let decoder = Decoder::new(&frames[offset..], &header).ok()?;
            decoder.read_all(&mut self.times, &mut self.values, &mut self.starts).ok()?;
        }
        let window = Window::of(*self.times.first()?);
        let is_one = Window::of(*self.times.last()?) == window;
        (is_one && self.times.is_sorted_by(|a, b| a < b)).then_some(window)
    }

    /// Returns whether summaries can replace a series of a block, by its frames: all facts are known.
    pub(crate) fn can_summarize(&mut self, frames: &[u8]) -> bool {
        let Some(window) = self.decode(frames) else { return false };
        let found = super::of_window(window, &self.times, &self.values);
        found.is_some_and(|all| all.iter().flatten().all(|summary| !summary.resets.is_nan()))
    }

    /// Returns the number of summarized samples.
    pub(crate) fn sample_count(&self) -> usize {
        self.sample_count
    }

    /// Returns whether there are series, and each has summaries.
    pub(crate) fn is_complete(&self) -> bool {
        !self.series.is_empty() && self.series.iter().all(|(_, len)| *len > 0)
    }

    /// Returns the value; `None` if no series has summaries.
    pub(crate) fn finish(self, key: &[u8]) -> Option<Vec<u8>> {
        if self.bodies.is_empty() {
            return None;
        }
        let mut body = encode_header(&self.common.unwrap_or_default(), &self.series);
        body.extend_from_slice(&self.bodies);
        Some(value::encode(key, &body))
    }
}

/// Encodes the header: version, common times, and the id and length of each series.
fn encode_header(common: &CommonTimes, series: &[(u32, usize)]) -> Vec<u8> {
    let mut body = vec![VERSION];
    [common.offset_ms, common.step_ms].into_iter().for_each(|time_ms| signed(&mut body, time_ms));
    common.counts.into_iter().for_each(|count| push_varint(&mut body, count));
    push_varint(&mut body, series.len() as u64);
    let mut before = -1;
    for (id, len) in series {
        push_varint(&mut body, (i64::from(*id) - before - 1) as u64);
        push_varint(&mut body, *len as u64);
        before = i64::from(*id);
    }
    body
}

/// Summaries of a block, of which each series is decoded when it is wanted.
pub(crate) struct StoredSummaries<'a> {
    window: Window,
    common: CommonTimes,
    bodies: &'a [u8],
    /// Series by id; the range is empty if a series has no summaries.
    series: Vec<(u32, Range<usize>)>,
}

impl<'a> StoredSummaries<'a> {
    /// Opens a value.
    ///
    /// Errors: damaged bytes.
    pub(crate) fn open(
        key: &[u8],
        bytes: &'a [u8],
        window: Window,
    ) -> Result<StoredSummaries<'a>, StoreError> {
        let body = value::decode(key, bytes)?;
        StoredSummaries::of(body, window).map_err(|detail| value::corrupt(key, detail))
    }

    fn of(body: &'a [u8], window: Window) -> Result<StoredSummaries<'a>, String> {
        let (version, mut rest) = body.split_first().ok_or("no version")?;
        if *version != VERSION {
            return Err(format!("unknown version {version}"));
        }
        let rest = &mut rest;
        let (offset_ms, step_ms) = (take_signed(rest)?, take_signed(rest)?);
        let mut common = CommonTimes { offset_ms, step_ms, counts: [0; SLOTS] };
        for count in &mut common.counts {
            *count = u64::from(take_u32(rest)?);
        }
        let count = take_count(rest)?;
        let mut series = Vec::with_capacity(count);
        let (mut next_id, mut start) = (0_u32, 0_usize);
        for _ in 0..count {
            let id = next_id.checked_add(take_u32(rest)?).ok_or("series id out of range")?;
            next_id = id.checked_add(1).ok_or("series id out of range")?;
            let end = start.saturating_add(take_u32(rest)? as usize);
            series.push((id, start..end));
            start = end;
        }
        if start != rest.len() {
            return Err(format!("{start} bytes are announced, {} found", rest.len()));
        }
        Ok(StoredSummaries { window, common, bodies: rest, series })
    }

    /// Returns the window of the samples.
    pub(crate) fn window(&self) -> Window {
        self.window
    }

    /// Returns whether a series has summaries, by index.
    pub(crate) fn has(&self, index: usize) -> bool {
        !self.series[index].1.is_empty()
    }

    /// Returns the ids of the series, which ascend.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.series.iter().map(|(id, _)| *id)
    }

    /// Encodes the summaries of some series as the value of another key.
    pub(crate) fn encode_only(&self, key: &[u8], is_kept: impl Fn(u32) -> bool) -> Vec<u8> {
        let kept = || self.series.iter().filter(|(id, _)| is_kept(*id));
        let series: Vec<(u32, usize)> = kept().map(|(id, range)| (*id, range.len())).collect();
        let mut body = encode_header(&self.common, &series);
        kept().for_each(|(_, range)| body.extend_from_slice(&self.bodies[range.clone()]));
        value::encode(key, &body)
    }

    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns the index of a series, from `from` on if it is there: ids ascend.
    pub(crate) fn find(&self, id: u32, from: usize) -> Option<usize> {
        match self.series.get(from) {
            Some((found, _)) if *found == id => Some(from),
            _ => self.series.binary_search_by_key(&id, |(id, _)| *id).ok(),
        }
    }

    /// Returns the first series whose summaries differ from those of a builder. Earlier versions
    /// wrote none of series with start timestamps, or whose resets are not known.
    pub(crate) fn first_difference(&self, expected: &SummaryBuilder) -> Option<u32> {
        let mut rest = &expected.bodies[..];
        for (index, (id, len)) in expected.series.iter().enumerate() {
            let (body, tail) = rest.split_at(*len);
            rest = tail;
            let found = self.series.get(index).filter(|(found, _)| found == id);
            let lacks_resets = body.first().is_some_and(|head| head & LACKS_RESETS != 0);
            let may_lack = lacks_resets || expected.with_starts.binary_search(id).is_ok();
            let is_same = |range: &Range<usize>| {
                self.bodies[range.clone()] == *body || range.is_empty() && may_lack
            };
            if found.is_none_or(|(_, range)| !is_same(range)) {
                return Some(*id);
            }
        }
        self.series.get(expected.series.len()).map(|(id, _)| *id)
    }

    /// Appends the summaries of a series, by index. Returns whether it has any.
    ///
    /// Errors: damaged bytes, which the checksum did not show.
    pub(crate) fn decode(&self, index: usize, out: &mut Vec<Summary>) -> Result<bool, String> {
        let (id, range) = &self.series[index];
        if range.is_empty() {
            return Ok(false);
        }
        let mut rest = &self.bodies[range.clone()];
        decode_series(self.window, &self.common, &mut rest, out)
            .map_err(|detail| format!("series {id}: {detail}"))?;
        if !rest.is_empty() {
            return Err(format!("series {id}: {} bytes follow its summaries", rest.len()));
        }
        Ok(true)
    }
}

/// Times that the series of a block mostly have in common.
#[derive(Debug, Clone, Copy, Default)]
struct CommonTimes {
    /// Time of the first sample, from the start of the window.
    offset_ms: i64,
    /// Distance of samples.
    step_ms: i64,
    /// Number of samples of each bucket.
    counts: [u64; SLOTS],
}

impl CommonTimes {
    fn of(window: Window, summaries: &WindowSummaries) -> CommonTimes {
        let mut all = summaries.iter().flatten();
        let offset_ms = all.clone().next().map_or(0, |first| first.first_ms - window.start_ms());
        let step_ms = all.find(|s| s.count > 1).map_or(0, |s| s.last_ms - s.before_last_ms);
        let counts = summaries.map(|summary| summary.map_or(0, |summary| summary.count));
        CommonTimes { offset_ms, step_ms, counts }
    }
}

/// State that the next summary of a series is relative to.
struct Before {
    /// Expected time of the next sample.
    next_ms: i64,
    step_ms: i64,
    /// Last value, as an integer of the scale.
    last: i64,
}

impl Before {
    fn new(window: Window, common: &CommonTimes) -> Before {
        let next_ms = window.start_ms().saturating_add(common.offset_ms);
        Before { next_ms, step_ms: common.step_ms, last: 0 }
    }
}

fn integer(value: f64, scale: u8) -> Option<i64> {
    let by = SCALES.get(usize::from(scale))?;
    let scaled = (value * by).round();
    let integer = scaled as i64;
    // Through the integer, which has no -0.
    let is_same =
        scaled.abs() < super::EXACT_MAX && (integer as f64 / by).to_bits() == value.to_bits();
    is_same.then_some(integer)
}

fn float(integer: i64, scale: u8) -> f64 {
    integer as f64 / SCALES[usize::from(scale)]
}

/// Returns the first scale of all values except sums.
fn scale_of(summaries: &WindowSummaries) -> u8 {
    let mut all =
        summaries.iter().flatten().flat_map(|s| [s.first, s.last, s.min, s.max, s.resets]);
    let mut scale = 0;
    all.all(|value| {
        while scale < RAW && integer(value, scale).is_none() {
            scale += 1;
        }
        scale < RAW
    });
    let mut all =
        summaries.iter().flatten().flat_map(|s| [s.first, s.last, s.min, s.max, s.resets]);
    if scale < RAW && all.all(|value| integer(value, scale).is_some()) { scale } else { RAW }
}

fn encode_series(
    window: Window,
    common: &CommonTimes,
    summaries: &WindowSummaries,
    out: &mut Vec<u8>,
) {
    let lacks_resets = summaries.iter().flatten().any(|summary| summary.resets.is_nan());
    let summaries = &summaries.map(|summary| {
        summary.map(|summary| match lacks_resets {
            true => Summary { resets: 0.0, ..summary },
            false => summary,
        })
    });
    let scale = scale_of(summaries);
    let slots = (0..SLOTS).filter(|slot| summaries[*slot].is_some());
    let head = scale << 3 | slots.map(|slot| 1 << slot).sum::<u8>();
    out.push(if lacks_resets { head | LACKS_RESETS } else { head });
    let mut before = Before::new(window, common);
    for (summary, count) in summaries.iter().zip(common.counts) {
        if let Some(summary) = summary {
            encode_summary(summary, scale, count, &mut before, out);
        }
    }
}

fn signed(out: &mut Vec<u8>, number: i64) {
    push_varint(out, zigzag(number));
}

/// Encodes a summary of about `count_expected` samples.
fn encode_summary(
    summary: &Summary,
    scale: u8,
    count_expected: u64,
    before: &mut Before,
    out: &mut Vec<u8>,
) {
    let Summary { first_ms, last_ms, before_last_ms, count, first, last, min, max, .. } = *summary;
    let Summary { sum, sum_rest, resets, is_ended, .. } = *summary;
    let of = |value| integer(value, scale).unwrap_or_default();
    let sum_expected = expected_sum(count, of(first), of(last));
    let sum_distance = sum_expected.and_then(|e| integer(sum, scale)?.checked_sub(e));
    let short_rest = sum_rest as f32;
    let step_ms = if count > 1 { last_ms - before_last_ms } else { before.step_ms };
    let span_distance_ms = last_ms - first_ms - (count as i64 - 1) * step_ms;
    let is_regular =
        (count, step_ms, span_distance_ms) == (count_expected, before.step_ms, 0) && count > 1;
    let is_ranked = bits([min, max]) == bits([smaller(first, last), larger(first, last)]);
    let mut flags = if is_ended { IS_ENDED } else { 0 };
    flags |= if is_regular { IS_REGULAR } else { 0 };
    if count == 1 {
        flags |= IS_ONE;
    } else {
        flags |= if is_ranked { 0 } else { HAS_EXTREMES };
        flags |= if resets.to_bits() == 0 { 0 } else { HAS_RESETS };
        flags |= if sum_distance.is_some() { 0 } else { HAS_RAW_SUM };
        flags |= match f64::from(short_rest) == sum_rest {
            _ if sum_rest == 0.0 => 0,
            true => HAS_REST | IS_REST_SHORT,
            false => HAS_REST,
        };
    }
    out.push(flags);
    signed(out, first_ms.wrapping_sub(before.next_ms));
    let push = |out: &mut Vec<u8>, value: f64, relative: i64| match scale {
        RAW => out.extend_from_slice(&value.to_le_bytes()),
        _ => signed(out, of(value) - relative),
    };
    push(out, first, before.last);
    if count > 1 {
        if !is_regular {
            signed(out, count.wrapping_sub(count_expected) as i64);
            signed(out, step_ms - before.step_ms);
            signed(out, span_distance_ms);
        }
        push(out, last, of(first));
        if !is_ranked {
            push(out, min, of(first));
            push(out, max, of(first));
        }
        if resets.to_bits() != 0 {
            push(out, resets, 0);
        }
        match sum_distance {
            Some(distance) => signed(out, distance),
            None => out.extend_from_slice(&sum.to_le_bytes()),
        }
        match flags & (HAS_REST | IS_REST_SHORT) {
            0 => {}
            HAS_REST => out.extend_from_slice(&sum_rest.to_le_bytes()),
            _ => out.extend_from_slice(&short_rest.to_le_bytes()),
        }
    }
    (before.next_ms, before.step_ms, before.last) = (last_ms + step_ms, step_ms, of(last));
}

fn bits(values: [f64; 2]) -> [u64; 2] {
    values.map(f64::to_bits)
}

/// Returns the sum of evenly growing values; `None` if it is out of range.
fn expected_sum(count: u64, first: i64, last: i64) -> Option<i64> {
    let sum = i64::try_from(count).ok()?.checked_mul(first.checked_add(last)?)? / 2;
    (sum.unsigned_abs() < 1 << 60).then_some(sum)
}

fn decode_series(
    window: Window,
    common: &CommonTimes,
    rest: &mut &[u8],
    out: &mut Vec<Summary>,
) -> Result<(), String> {
    let head = take_byte(rest)?;
    let (scale, slots) = (head >> 3 & 7, head & 7);
    if head & !(LACKS_RESETS | 0x3f) != 0 {
        return Err(format!("unknown first byte {head}"));
    }
    let mut before = Before::new(window, common);
    for slot in (0..SLOTS).filter(|slot| slots & 1 << slot != 0) {
        let at = out.len();
        out.push(Summary::of_one(0, 0.0));
        let summary = &mut out[at];
        decode_summary(scale, common.counts[slot], &mut before, rest, summary)?;
        if head & LACKS_RESETS != 0 && summary.count > 1 {
            summary.resets = f64::NAN;
        }
        let Summary { first_ms, last_ms, .. } = *summary;
        let is_inside = first_ms >= window.start_ms()
            && last_ms < window.end_ms()
            && slot_of(window, first_ms) == slot
            && slot_of(window, last_ms) == slot;
        if !is_inside {
            return Err(format!("times {first_ms} to {last_ms} are outside of their bucket"));
        }
    }
    Ok(())
}

#[inline(always)]
fn take_byte(rest: &mut &[u8]) -> Result<u8, String> {
    let (byte, tail) = rest.split_first().ok_or("cut short")?;
    *rest = tail;
    Ok(*byte)
}

#[inline(always)]
fn take_signed(rest: &mut &[u8]) -> Result<i64, String> {
    Ok(unzigzag(take_varint(rest)?))
}

#[inline(always)]
fn take_float(rest: &mut &[u8]) -> Result<f64, String> {
    let (bytes, tail) = rest.split_first_chunk().ok_or("cut short")?;
    *rest = tail;
    Ok(f64::from_le_bytes(*bytes))
}

#[inline(always)]
fn take_short_float(rest: &mut &[u8]) -> Result<f64, String> {
    let (bytes, tail) = rest.split_first_chunk().ok_or("cut short")?;
    *rest = tail;
    Ok(f64::from(f32::from_le_bytes(*bytes)))
}

#[inline(always)]
fn plus(a: i64, b: i64) -> Result<i64, String> {
    a.checked_add(b).ok_or_else(out_of_range)
}

#[cold]
fn out_of_range() -> String {
    "number out of range".to_owned()
}

/// Takes a value. Returns also its integer of the scale, or 0 for values as they are.
#[inline(always)]
fn take_value(rest: &mut &[u8], scale: u8, relative: i64) -> Result<(f64, i64), String> {
    if scale == RAW {
        return Ok((take_float(rest)?, 0));
    }
    let integer = plus(take_signed(rest)?, relative)?;
    Ok((float(integer, scale), integer))
}

/// Takes the number of samples and their times, except for the first. Returns the step.
fn take_times(
    is_regular: bool,
    count_expected: u64,
    step_before_ms: i64,
    found: &mut Summary,
    rest: &mut &[u8],
) -> Result<i64, String> {
    let mut next = || if is_regular { Ok(0) } else { take_signed(rest) };
    let count = plus(next()?, count_expected as i64)?;
    let step_ms = plus(next()?, step_before_ms)?;
    let span_distance_ms = next()?;
    let first_ms = found.first_ms;
    let steps_ms = count.saturating_sub(1).checked_mul(step_ms);
    let span_ms = steps_ms.and_then(|steps_ms| steps_ms.checked_add(span_distance_ms));
    found.last_ms = plus(first_ms, span_ms.unwrap_or(i64::MAX))?;
    found.before_last_ms = found.last_ms.saturating_sub(step_ms);
    let is_ordered = step_ms > 0 && found.before_last_ms >= first_ms;
    // Times are distinct, so a window bounds the number of samples.
    let is_dense = count.saturating_sub(1) > found.last_ms.saturating_sub(first_ms);
    let are_two = found.before_last_ms == first_ms;
    if count < 2 || is_dense || !is_ordered || (count == 2) != are_two {
        return Err(format!("{count} samples from {first_ms} to {}", found.last_ms));
    }
    found.count = count as u64;
    Ok(step_ms)
}

/// Decodes a summary in place: a copy would wait for the store of its last, narrow field.
#[inline]
fn decode_summary(
    scale: u8,
    count_expected: u64,
    before: &mut Before,
    rest: &mut &[u8],
    found: &mut Summary,
) -> Result<(), String> {
    let flags = take_byte(rest)?;
    let first_ms = plus(take_signed(rest)?, before.next_ms)?;
    let (first, first_integer) = take_value(rest, scale, before.last)?;
    *found = Summary::of_one(first_ms, first);
    found.is_ended = flags & IS_ENDED != 0;
    let mut last_integer = first_integer;
    if flags & IS_ONE == 0 {
        let is_regular = flags & IS_REGULAR != 0;
        before.step_ms = take_times(is_regular, count_expected, before.step_ms, found, rest)?;
        (found.last, last_integer) = take_value(rest, scale, first_integer)?;
        (found.min, found.max) = (smaller(first, found.last), larger(first, found.last));
        if flags & HAS_EXTREMES != 0 {
            found.min = take_value(rest, scale, first_integer)?.0;
            found.max = take_value(rest, scale, first_integer)?.0;
        }
        if flags & HAS_RESETS != 0 {
            found.resets = take_value(rest, scale, 0)?.0;
        }
        found.sum = if scale == RAW || flags & HAS_RAW_SUM != 0 {
            take_float(rest)?
        } else {
            let expected = expected_sum(found.count, first_integer, last_integer);
            let expected = expected.ok_or_else(out_of_range)?;
            float(plus(take_signed(rest)?, expected)?, scale)
        };
        found.sum_rest = match flags & (HAS_REST | IS_REST_SHORT) {
            0 => 0.0,
            HAS_REST => take_float(rest)?,
            _ => take_short_float(rest)?,
        };
    }
    let Summary { last, min, max, sum, sum_rest, resets, .. } = *found;
    let are_finite = [first, last, min, max, sum, sum_rest, resets].iter().all(|v| v.is_finite());
    if !are_finite || min > first.min(last) || max < first.max(last) {
        return Err("values out of order".to_owned());
    }
    before.next_ms = plus(found.last_ms, before.step_ms)?;
    before.last = last_integer;
    Ok(())
}
