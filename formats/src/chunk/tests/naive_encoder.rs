//! A naive encoder of all encodings, the twin of the decoder.

use model::{Histogram, Span, is_stale};

/// A float.
#[derive(Debug, Clone, Copy)]
pub(super) struct Float {
    pub(super) time_ms: i64,
    pub(super) start_ms: i64,
    pub(super) value: f64,
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    free: u32,
}

impl Bits {
    fn push(&mut self, value: u64, count: u32) {
        for at in (0..count).rev() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            self.free -= 1;
            *self.bytes.last_mut().unwrap() |= ((value >> at & 1) as u8) << self.free;
        }
    }

    fn unsigned_varint(&mut self, value: u64) {
        for byte in varint(value) {
            self.push(byte.into(), 8);
        }
    }

    fn varint(&mut self, value: i64) {
        self.unsigned_varint((value << 1 ^ value >> 63) as u64);
    }

    /// Appends the ones that select the width, then the number.
    fn varbit_where(&mut self, value: u64, fits: impl Fn(u32) -> bool) {
        let widths = [0, 3, 6, 9, 12, 18, 25, 56, 64];
        let ones = widths.iter().position(|width| fits(*width)).unwrap();
        for _ in 0..ones {
            self.push(1, 1);
        }
        if ones < 8 {
            self.push(0, 1);
        }
        self.push(value, widths[ones]);
    }

    fn varbit(&mut self, value: i64) {
        self.varbit_where(value as u64, |width| match width {
            0 => value == 0,
            64 => true,
            width => value > -(1 << (width - 1)) && value <= 1 << (width - 1),
        });
    }

    fn unsigned_varbit(&mut self, value: u64) {
        self.varbit_where(value, |width| width == 64 || value < 1 << width);
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[derive(Clone, Copy, Default)]
struct Window {
    is_set: bool,
    leading: u32,
    trailing: u32,
}

impl Window {
    /// Returns whether a change fits the window.
    fn fits(&self, xor: u64) -> bool {
        self.is_set && xor.leading_zeros() >= self.leading && xor.trailing_zeros() >= self.trailing
    }

    fn push_inside(&self, bits: &mut Bits, xor: u64) {
        bits.push(xor >> self.trailing, 64 - self.leading - self.trailing);
    }

    fn push_new(&mut self, bits: &mut Bits, xor: u64) {
        let (leading, trailing) = (xor.leading_zeros().min(31), xor.trailing_zeros());
        *self = Window { is_set: true, leading, trailing };
        bits.push(leading.into(), 5);
        bits.push(u64::from(64 - leading - trailing) & 63, 6);
        self.push_inside(bits, xor);
    }

    fn push(&mut self, bits: &mut Bits, value: f64, before: f64) {
        let xor = value.to_bits() ^ before.to_bits();
        if xor == 0 {
            bits.push(0, 1);
        } else if self.fits(xor) {
            bits.push(0b10, 2);
            self.push_inside(bits, xor);
        } else {
            bits.push(0b11, 2);
            self.push_new(bits, xor);
        }
    }
}

/// Encodes a chunk of XOR.
pub(super) fn xor(samples: &[Float]) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.push(samples.len() as u64, 16);
    let (mut time, mut delta, mut value) = (0, 0, 0.0);
    let mut window = Window::default();
    for (index, sample) in samples.iter().enumerate() {
        let next = sample.time_ms - time;
        match index {
            0 => {
                bits.varint(sample.time_ms);
                bits.push(sample.value.to_bits(), 64);
            }
            1 => bits.unsigned_varint(next as u64),
            _ => {
                let change = next - delta;
                let width = [14, 17, 20]
                    .into_iter()
                    .position(|w: u32| change > -(1 << (w - 1)) && change <= 1 << (w - 1));
                match (change, width) {
                    (0, _) => bits.push(0, 1),
                    (_, Some(0)) => push_both(&mut bits, (0b10, 2), (change, 14)),
                    (_, Some(1)) => push_both(&mut bits, (0b110, 3), (change, 17)),
                    (_, Some(_)) => push_both(&mut bits, (0b1110, 4), (change, 20)),
                    (_, None) => push_both(&mut bits, (0b1111, 4), (change, 64)),
                }
            }
        }
        if index > 0 {
            window.push(&mut bits, sample.value, value);
            delta = next;
        }
        (time, value) = (sample.time_ms, sample.value);
    }
    bits.bytes
}

fn push_both(bits: &mut Bits, (prefix, len): (u64, u32), (value, width): (i64, u32)) {
    bits.push(prefix, len);
    bits.push(value as u64, width);
}

/// Header of start timestamps, and the bits after each sample.
struct Starts {
    header: u8,
    start_ms: i64,
    distance_ms: i64,
}

impl Starts {
    fn new(starts: &[i64]) -> Starts {
        let changes = starts.windows(2).position(|pair| pair[0] != pair[1]).map(|at| at + 1);
        let from = match changes {
            Some(at) if at <= 127 => at as u8,
            // From here on they are always written.
            _ if starts.len() > 127 => 127,
            _ => 0,
        };
        let header = from | if starts[0] != 0 { 0x80 } else { 0 };
        Starts { header, start_ms: 0, distance_ms: 0 }
    }

    fn push(&mut self, bits: &mut Bits, index: usize, start: i64, time: i64, before: i64) {
        let from = usize::from(self.header & 0x7f);
        if index == 0 {
            if self.header & 0x80 != 0 {
                bits.varint(time - start);
            }
        } else if from > 0 && index >= from {
            let distance = before - start;
            bits.varbit(if index == from { distance } else { distance - self.distance_ms });
            self.distance_ms = distance;
        }
        self.start_ms = start;
    }
}

/// Encodes a chunk of XOR2.
pub(super) fn xor2(samples: &[Float]) -> Vec<u8> {
    let mut bits = Bits::default();
    let starts: Vec<i64> = samples.iter().map(|sample| sample.start_ms).collect();
    let mut starts = Starts::new(&starts);
    bits.push(samples.len() as u64, 16);
    bits.push(starts.header.into(), 8);
    let (mut time, mut delta, mut value) = (0, 0, 0.0_f64);
    let mut window = Window::default();
    for (index, sample) in samples.iter().enumerate() {
        let next = sample.time_ms - time;
        let xor = sample.value.to_bits() ^ value.to_bits();
        let stale = is_stale(sample.value);
        let change = next - delta;
        match index {
            0 => {
                bits.varint(sample.time_ms);
                bits.push(sample.value.to_bits(), 64);
            }
            1 => {
                bits.unsigned_varint(next as u64);
                push_value(&mut bits, &mut window, xor, stale);
            }
            _ if change == 0 && stale => bits.push(0b11111, 5),
            _ if change == 0 && xor == 0 => bits.push(0, 1),
            _ if change == 0 => {
                bits.push(0b10, 2);
                let fits = window.fits(xor);
                bits.push(u64::from(!fits), 1);
                if fits {
                    window.push_inside(&mut bits, xor);
                } else {
                    window.push_new(&mut bits, xor);
                }
            }
            _ => {
                match change {
                    -4096..=4095 => push_both(&mut bits, (0b110, 3), (change, 13)),
                    -524_288..=524_287 => push_both(&mut bits, (0b1110, 4), (change, 20)),
                    _ => push_both(&mut bits, (0b11110, 5), (change, 64)),
                }
                push_value(&mut bits, &mut window, xor, stale);
            }
        }
        starts.push(&mut bits, index, sample.start_ms, sample.time_ms, time);
        if index > 0 {
            delta = next;
        }
        time = sample.time_ms;
        if !stale {
            value = sample.value;
        }
    }
    bits.bytes
}

fn push_value(bits: &mut Bits, window: &mut Window, xor: u64, stale: bool) {
    if stale {
        bits.push(0b111, 3);
    } else if xor == 0 {
        bits.push(0, 1);
    } else if window.fits(xor) {
        bits.push(0b10, 2);
        window.push_inside(bits, xor);
    } else {
        bits.push(0b110, 3);
        window.push_new(bits, xor);
    }
}

fn histogram_header(histograms: &[(i64, Histogram)], is_gauge: bool, starts: &Starts) -> Bits {
    let mut bits = Bits::default();
    let flags = if is_gauge { 0b11 } else { 0 };
    if starts.header == 0 {
        bits.push(histograms.len() as u64, 16);
        bits.push(flags << 6, 8);
    } else {
        bits.push(flags, 2);
        bits.push(histograms.len() as u64, 14);
        bits.push(starts.header.into(), 8);
    }
    let layout = &histograms[0].1;
    let threshold = layout.zero_threshold;
    if threshold == 0.0 {
        bits.push(0, 8);
    } else if threshold.log2().fract() == 0.0 {
        bits.push((threshold.log2() + 244.0) as u64, 8);
    } else {
        bits.push(255, 8);
        bits.push(threshold.to_bits(), 64);
    }
    bits.varbit(layout.schema.into());
    for spans in [&layout.positive_spans, &layout.negative_spans] {
        bits.unsigned_varbit(spans.len() as u64);
        for Span { offset, length } in spans {
            bits.unsigned_varbit((*length).into());
            bits.varbit((*offset).into());
        }
    }
    if layout.has_custom_buckets() {
        bits.unsigned_varbit(layout.custom_bounds.len() as u64);
        for bound in layout.custom_bounds.iter() {
            if *bound < 0.0 {
                bits.unsigned_varbit(0);
                bits.push(bound.to_bits(), 64);
            } else {
                bits.unsigned_varbit((bound * 1000.0).round() as u64 + 1);
            }
        }
    }
    bits
}

fn push_time(bits: &mut Bits, index: usize, at: i64, time: &mut i64, delta: &mut i64) {
    if index == 0 {
        bits.varbit(at);
    } else {
        bits.varbit(at - *time - *delta);
        *delta = at - *time;
    }
    *time = at;
}

/// Encodes a chunk of histograms with integer counts.
pub(super) fn integer_histograms(
    histograms: &[(i64, Histogram)],
    is_gauge: bool,
    start_ms: i64,
) -> Vec<u8> {
    let mut starts = Starts::new(&vec![start_ms; histograms.len()]);
    let mut bits = histogram_header(histograms, is_gauge, &starts);
    let (mut time, mut delta, mut sum) = (0, 0, 0.0);
    let mut window = Window::default();
    // Value and delta of each count.
    let mut totals = [(0_i64, 0_i64); 2];
    let mut buckets: Vec<(i64, i64)> = Vec::new();
    for (index, (at, histogram)) in histograms.iter().enumerate() {
        let before_ms = time;
        push_time(&mut bits, index, *at, &mut time, &mut delta);
        let now = [histogram.count as i64, histogram.zero_count as i64];
        let deltas: Vec<i64> = [&histogram.positive_counts, &histogram.negative_counts]
            .into_iter()
            .flat_map(|counts| {
                let before = std::iter::once(0.0).chain(counts.iter().copied());
                counts.iter().zip(before).map(|(count, before)| (count - before) as i64)
            })
            .collect();
        if index == 0 {
            for (total, now) in totals.iter_mut().zip(now) {
                bits.unsigned_varbit(now as u64);
                *total = (now, 0);
            }
            bits.push(histogram.sum.to_bits(), 64);
            for delta in &deltas {
                bits.varbit(*delta);
            }
            buckets = deltas.into_iter().map(|delta| (delta, 0)).collect();
        } else {
            let stale = is_stale(histogram.sum);
            for (total, now) in totals.iter_mut().zip(now) {
                let growth = if stale { total.1 } else { now - total.0 };
                bits.varbit(growth - total.1);
                *total = (total.0 + growth, growth);
            }
            window.push(&mut bits, histogram.sum, sum);
            if !stale {
                for (bucket, now) in buckets.iter_mut().zip(deltas) {
                    let growth = now - bucket.0;
                    bits.varbit(growth - bucket.1);
                    *bucket = (now, growth);
                }
            }
        }
        sum = histogram.sum;
        starts.push(&mut bits, index, start_ms, *at, before_ms);
    }
    bits.bytes
}

/// Encodes a chunk of histograms with float counts.
pub(super) fn float_histograms(
    histograms: &[(i64, Histogram)],
    is_gauge: bool,
    start_ms: i64,
) -> Vec<u8> {
    let mut starts = Starts::new(&vec![start_ms; histograms.len()]);
    let mut bits = histogram_header(histograms, is_gauge, &starts);
    let (mut time, mut delta) = (0, 0);
    let mut columns: Vec<(f64, Window)> = Vec::new();
    for (index, (at, histogram)) in histograms.iter().enumerate() {
        let before_ms = time;
        push_time(&mut bits, index, *at, &mut time, &mut delta);
        let numbers: Vec<f64> = [histogram.count, histogram.zero_count, histogram.sum]
            .into_iter()
            .chain(histogram.positive_counts.iter().copied())
            .chain(histogram.negative_counts.iter().copied())
            .collect();
        if index == 0 {
            for number in &numbers {
                bits.push(number.to_bits(), 64);
            }
            columns = numbers.into_iter().map(|number| (number, Window::default())).collect();
        } else {
            let len = if is_stale(histogram.sum) { 3 } else { numbers.len() };
            for ((before, window), now) in columns.iter_mut().zip(numbers).take(len) {
                window.push(&mut bits, now, *before);
                *before = now;
            }
        }
        starts.push(&mut bits, index, start_ms, *at, before_ms);
    }
    bits.bytes
}
