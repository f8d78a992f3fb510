//! Times and values of a column, packed so that they unpack at memory speed.
//!
//! ```text
//! times    even    first + i × step                                  nothing a sample
//!          near    first + i × step + i16                            2 bytes
//!          any     first + u32, or as they are                       4 or 8 bytes
//! values   whole   (base + u16 or u32) ÷ 10^digits                   2 or 4 bytes
//!          any     as they are                                       8 bytes
//! ```
//!
//! Counters and most gauges are whole numbers, or have a few decimal places; a value counts as such
//! if unpacking returns all its 64 bits.

use model::widest;

/// Maximum number of decimal places. Up to here both operands of the division are exact, so it
/// rounds as parsing the decimal does.
const DIGITS_MAX: usize = 6;
const POWERS_OF_TEN: [f64; DIGITS_MAX + 1] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
/// Whole numbers up to this are exact, and so is the sum of a base and an offset.
const WHOLE_MAX: f64 = (1_u64 << 51) as f64;
/// Adding this to a number up to [`WHOLE_MAX`] rounds it to a whole number.
const ROUNDER: f64 = 3.0 * (1_u64 << 51) as f64;

#[derive(Debug, PartialEq)]
pub(super) enum Times {
    Even {
        step_ms: i64,
    },
    /// Distances from evenly spaced times, with the smallest and the largest one.
    Near {
        step_ms: i64,
        off_ms: Box<[i16]>,
        off_min_ms: i16,
        off_max_ms: i16,
    },
    Offsets(Box<[u32]>),
    Any(Box<[i64]>),
}

#[derive(Debug, PartialEq)]
pub(super) enum Values {
    Short { base: f64, power: f64, above: Box<[u16]> },
    Long { base: f64, power: f64, above: Box<[u32]> },
    Any(Box<[f64]>),
}

impl Times {
    pub(super) fn of(times: &[i64]) -> Times {
        let (min_ms, max_ms) = (times[0], times[times.len() - 1]);
        // Differences of such times do not overflow.
        let Some(span_ms) = max_ms.checked_sub(min_ms).filter(|span| *span < 1 << 40) else {
            return Times::Any(times.into());
        };
        let intervals = (times.len() - 1).max(1) as i64;
        // The mean is off by a fraction of a ms if only the last scrape was late.
        let middle = times.len() / 2;
        let candidates = [
            times.get(1).map_or(1, |second| second - min_ms),
            times.get(middle + 1).map_or(1, |next| next - times[middle]),
            (span_ms + intervals / 2) / intervals,
        ];
        for step_ms in candidates.into_iter().filter(|step| *step > 0) {
            if times.iter().zip(0..).all(|(time, at): (_, i64)| *time == min_ms + at * step_ms) {
                return Times::Even { step_ms };
            }
        }
        // Whole seconds first, as scrape intervals are.
        let mean_ms = candidates[2].max(1);
        let rounded_ms = (mean_ms + 500) / 1000 * 1000;
        for step_ms in [rounded_ms, mean_ms].into_iter().filter(|step| *step > 0) {
            let off = |(time, at): (&i64, i64)| i16::try_from(time - min_ms - at * step_ms).ok();
            if let Some(off_ms) = times.iter().zip(0..).map(off).collect::<Option<Box<[i16]>>>() {
                let off_min_ms = off_ms.iter().copied().min().unwrap_or(0);
                let off_max_ms = off_ms.iter().copied().max().unwrap_or(0);
                return Times::Near { step_ms, off_ms, off_min_ms, off_max_ms };
            }
        }
        if span_ms <= i64::from(u32::MAX) {
            Times::Offsets(times.iter().map(|time| (time - min_ms) as u32).collect())
        } else {
            Times::Any(times.into())
        }
    }

    #[inline]
    pub(super) fn get(&self, min_ms: i64, at: usize) -> i64 {
        match self {
            Times::Even { step_ms } => min_ms + at as i64 * step_ms,
            Times::Near { step_ms, off_ms, .. } => {
                min_ms + at as i64 * step_ms + i64::from(off_ms[at])
            }
            Times::Offsets(offsets) => min_ms + i64::from(offsets[at]),
            Times::Any(times) => times[at],
        }
    }

    #[inline]
    pub(super) fn read(&self, min_ms: i64, from: usize, out: &mut [i64]) {
        let range = from..from + out.len();
        match self {
            Times::Even { step_ms } => {
                let mut time_ms = min_ms + from as i64 * step_ms;
                for out in out {
                    *out = time_ms;
                    time_ms = time_ms.wrapping_add(*step_ms);
                }
            }
            Times::Near { step_ms, off_ms, .. } => {
                let mut time_ms = min_ms + from as i64 * step_ms;
                for (out, off_ms) in out.iter_mut().zip(&off_ms[range]) {
                    *out = time_ms + i64::from(*off_ms);
                    time_ms = time_ms.wrapping_add(*step_ms);
                }
            }
            Times::Offsets(offsets) => {
                for (out, offset) in out.iter_mut().zip(&offsets[range]) {
                    *out = min_ms + i64::from(*offset);
                }
            }
            Times::Any(times) => out.copy_from_slice(&times[range]),
        }
    }
}

impl Values {
    pub(super) fn of(values: &[f64]) -> Values {
        Values::whole(values).unwrap_or_else(|| Values::Any(values.into()))
    }

    /// Packs the values as whole numbers divided by a power of ten, if all of them are.
    fn whole(values: &[f64]) -> Option<Values> {
        let mut digits = 0;
        let mut range: Option<(f64, f64)> = None;
        let mut at = 0;
        while at < values.len() {
            let Some(number) = whole_number(values[at], POWERS_OF_TEN[digits]) else {
                // With more decimal places, earlier values need not fit any more.
                digits += 1;
                (at, range) = (0, None);
                if digits > DIGITS_MAX {
                    return None;
                }
                continue;
            };
            let (min, max) = range.get_or_insert((number, number));
            (*min, *max) = (min.min(number), max.max(number));
            if *max - *min > f64::from(u32::MAX) {
                return None;
            }
            at += 1;
        }
        let (base, max) = range?;
        let power = POWERS_OF_TEN[digits];
        let above = |value: &f64| rounded(*value * power) - base;
        Some(if max - base <= f64::from(u16::MAX) {
            let above = values.iter().map(|value| above(value) as u16).collect();
            Values::Short { base, power, above }
        } else {
            let above = values.iter().map(|value| above(value) as u32).collect();
            Values::Long { base, power, above }
        })
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> f64 {
        match self {
            Values::Short { base, power, above } => (base + f64::from(above[at])) / power,
            Values::Long { base, power, above } => (base + f64::from(above[at])) / power,
            Values::Any(values) => values[at],
        }
    }

    /// Writes the values at some indices.
    #[inline]
    pub(super) fn gather(&self, found: &[usize], out: &mut [f64]) {
        let found = out.iter_mut().zip(found);
        match self {
            Values::Short { base, power, above } => {
                found.for_each(|(out, at)| *out = (base + f64::from(above[*at])) / power);
            }
            Values::Long { base, power, above } => {
                found.for_each(|(out, at)| *out = (base + f64::from(above[*at])) / power);
            }
            Values::Any(values) => found.for_each(|(out, at)| *out = values[*at]),
        }
    }

    #[inline]
    pub(super) fn read(&self, from: usize, out: &mut [f64]) {
        let range = from..from + out.len();
        match self {
            Values::Short { base, power, above } => unpack(*base, *power, &above[range], out),
            Values::Long { base, power, above } => unpack(*base, *power, &above[range], out),
            Values::Any(values) => out.copy_from_slice(&values[range]),
        }
    }
}

fn unpack<T: Copy + Into<f64>>(base: f64, power: f64, above: &[T], out: &mut [f64]) {
    unpack_strided(base, power, above, 1, out);
}

/// Unpacks the first number, and then every `stride`th.
#[inline]
pub(super) fn unpack_strided<T: Copy + Into<f64>>(
    base: f64,
    power: f64,
    above: &[T],
    stride: usize,
    out: &mut [f64],
) {
    if power == 1.0 {
        read_strided(above, stride, out, |above| base + above.into());
    } else {
        read_strided(above, stride, out, |above| (base + above.into()) / power);
    }
}

/// Reads the first element, and then every `stride`th.
#[inline]
pub(super) fn read_strided<T: Copy>(
    all: &[T],
    stride: usize,
    out: &mut [f64],
    read: impl Fn(T) -> f64 + Copy,
) {
    match stride {
        1 => widest(
            #[inline(always)]
            || out.iter_mut().zip(all).for_each(|(out, from)| *out = read(*from)),
        ),
        2 => read_chunked::<2, T>(all, out, read),
        4 => read_chunked::<4, T>(all, out, read),
        _ => {
            let seen = all.iter().step_by(stride);
            out.iter_mut().zip(seen).for_each(|(out, from)| *out = read(*from));
        }
    }
}

/// Reads every `STRIDE`th element. A constant stride is vectorized.
#[inline]
fn read_chunked<const STRIDE: usize, T: Copy>(
    all: &[T],
    out: &mut [f64],
    read: impl Fn(T) -> f64 + Copy,
) {
    let (chunks, rest) = all.as_chunks::<STRIDE>();
    let (whole, last) = out.split_at_mut(out.len().min(chunks.len()));
    widest(
        #[inline(always)]
        || whole.iter_mut().zip(chunks).for_each(|(out, chunk)| *out = read(chunk[0])),
    );
    last.iter_mut().zip(rest).for_each(|(out, from)| *out = read(*from));
}

/// Returns the whole number that yields exactly this value when divided by a power of ten.
#[inline]
fn whole_number(value: f64, power: f64) -> Option<f64> {
    let number = rounded(value * power);
    // Adding 0 turns −0 into 0, as unpacking does.
    let is_exact =
        number.abs() <= WHOLE_MAX && ((number + 0.0) / power).to_bits() == value.to_bits();
    is_exact.then_some(number + 0.0)
}

/// Rounds a number up to [`WHOLE_MAX`].
#[inline]
fn rounded(number: f64) -> f64 {
    (number + ROUNDER) - ROUNDER
}
