//! Writes what the tests read: chunks of every encoding, and whole blocks.

use std::collections::BTreeSet;
use std::path::Path;

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

    /// Ones that tell the width, and a number of it.
    fn wide(&mut self, value: u64, fits: impl Fn(u32) -> bool) {
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

    fn wide_integer(&mut self, value: i64) {
        self.wide(value as u64, |width| match width {
            0 => value == 0,
            64 => true,
            width => value > -(1 << (width - 1)) && value <= 1 << (width - 1),
        });
    }

    fn wide_unsigned(&mut self, value: u64) {
        self.wide(value, |width| width == 64 || value < 1 << width);
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
    /// Whether a change fits the window.
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

/// A chunk of the first encoding.
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

/// The header of starts, and what stands behind each sample.
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
            // From there on they are always written.
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
            bits.wide_integer(if index == from { distance } else { distance - self.distance_ms });
            self.distance_ms = distance;
        }
        self.start_ms = start;
    }
}

/// A chunk of the encoding that knows starts.
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
    bits.wide_integer(layout.schema.into());
    for spans in [&layout.positive_spans, &layout.negative_spans] {
        bits.wide_unsigned(spans.len() as u64);
        for Span { offset, length } in spans {
            bits.wide_unsigned((*length).into());
            bits.wide_integer((*offset).into());
        }
    }
    if layout.has_custom_buckets() {
        bits.wide_unsigned(layout.custom_bounds.len() as u64);
        for bound in layout.custom_bounds.iter() {
            if *bound < 0.0 {
                bits.wide_unsigned(0);
                bits.push(bound.to_bits(), 64);
            } else {
                bits.wide_unsigned((bound * 1000.0).round() as u64 + 1);
            }
        }
    }
    bits
}

fn push_time(bits: &mut Bits, index: usize, at: i64, time: &mut i64, delta: &mut i64) {
    if index == 0 {
        bits.wide_integer(at);
    } else {
        bits.wide_integer(at - *time - *delta);
        *delta = at - *time;
    }
    *time = at;
}

/// A chunk of histograms with integer counts.
pub(super) fn integer_histograms(
    histograms: &[(i64, Histogram)],
    is_gauge: bool,
    start_ms: i64,
) -> Vec<u8> {
    let mut starts = Starts::new(&vec![start_ms; histograms.len()]);
    let mut bits = histogram_header(histograms, is_gauge, &starts);
    let (mut time, mut delta, mut sum) = (0, 0, 0.0);
    let mut window = Window::default();
    // Number and growth of everything.
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
                bits.wide_unsigned(now as u64);
                *total = (now, 0);
            }
            bits.push(histogram.sum.to_bits(), 64);
            for delta in &deltas {
                bits.wide_integer(*delta);
            }
            buckets = deltas.into_iter().map(|delta| (delta, 0)).collect();
        } else {
            let stale = is_stale(histogram.sum);
            for (total, now) in totals.iter_mut().zip(now) {
                let growth = if stale { total.1 } else { now - total.0 };
                bits.wide_integer(growth - total.1);
                *total = (total.0 + growth, growth);
            }
            window.push(&mut bits, histogram.sum, sum);
            if !stale {
                for (bucket, now) in buckets.iter_mut().zip(deltas) {
                    let growth = now - bucket.0;
                    bits.wide_integer(growth - bucket.1);
                    *bucket = (now, growth);
                }
            }
        }
        sum = histogram.sum;
        starts.push(&mut bits, index, start_ms, *at, before_ms);
    }
    bits.bytes
}

/// A chunk of histograms with counts in floats.
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

/// A series of a block: labels, and chunks with their times and encodings.
pub(super) struct WrittenSeries {
    pub(super) labels: Vec<(String, String)>,
    pub(super) chunks: Vec<(i64, i64, u8, Vec<u8>)>,
}

fn push_section(out: &mut Vec<u8>, body: &[u8]) {
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&crc32c::crc32c(body).to_be_bytes());
}

fn push_signed(out: &mut Vec<u8>, value: i64) {
    out.extend(varint((value << 1 ^ value >> 63) as u64));
}

/// Writes a block; deleted are times by the reference of a series. Gives the references.
pub(super) fn write_block(
    folder: &Path,
    series: &[WrittenSeries],
    deleted: &[(u64, i64, i64)],
) -> Vec<u64> {
    std::fs::create_dir_all(folder.join("chunks")).unwrap();
    let meta = format!(
        "{{\"ulid\":\"01BX5ZZKBKACTAV9WEVGEMMVRZ\",\"minTime\":0,\"maxTime\":1000,\
         \"stats\":{{\"numSeries\":{}}},\"compaction\":{{\"level\":1}},\"version\":1}}",
        series.len()
    );
    std::fs::write(folder.join("meta.json"), meta).unwrap();
    let mut chunks = vec![0x85, 0xbd, 0x40, 0xdd, 1, 0, 0, 0];
    let texts: BTreeSet<&str> = series
        .iter()
        .flat_map(|series| &series.labels)
        .flat_map(|(name, value)| [name.as_str(), value.as_str()])
        .collect();
    let texts: Vec<&str> = texts.into_iter().collect();
    let mut index = vec![0xba, 0xaa, 0xd7, 0x00, 2];
    let symbols_at = index.len() as u64;
    let mut symbols = (texts.len() as u32).to_be_bytes().to_vec();
    for text in &texts {
        symbols.extend(varint(text.len() as u64));
        symbols.extend_from_slice(text.as_bytes());
    }
    push_section(&mut index, &symbols);
    let series_at = index.len() as u64;
    let mut references = Vec::new();
    for series in series {
        index.resize(index.len().next_multiple_of(16), 0);
        references.push(index.len() as u64 / 16);
        let mut body = varint(series.labels.len() as u64);
        for text in series.labels.iter().flat_map(|(name, value)| [name, value]) {
            body.extend(varint(texts.binary_search(&text.as_str()).unwrap() as u64));
        }
        body.extend(varint(series.chunks.len() as u64));
        let mut before: Option<(i64, u64)> = None;
        for (min_ms, max_ms, encoding, bytes) in &series.chunks {
            let place = chunks.len() as u64;
            chunks.extend(varint(bytes.len() as u64));
            let mut rest = vec![*encoding];
            rest.extend_from_slice(bytes);
            chunks.extend_from_slice(&rest);
            chunks.extend_from_slice(&crc32c::crc32c(&rest).to_be_bytes());
            match before {
                None => push_signed(&mut body, *min_ms),
                Some((before_ms, _)) => body.extend(varint((min_ms - before_ms) as u64)),
            }
            body.extend(varint((max_ms - min_ms) as u64));
            match before {
                None => body.extend(varint(place)),
                Some((_, before)) => push_signed(&mut body, (place - before) as i64),
            }
            before = Some((*max_ms, place));
        }
        index.extend(varint(body.len() as u64));
        index.extend_from_slice(&body);
        index.extend_from_slice(&crc32c::crc32c(&body).to_be_bytes());
    }
    index.resize(index.len().next_multiple_of(4), 0);
    let postings_at = index.len() as u64;
    let mut postings = (references.len() as u32).to_be_bytes().to_vec();
    for reference in &references {
        postings.extend_from_slice(&(*reference as u32).to_be_bytes());
    }
    push_section(&mut index, &postings);
    let table_at = index.len() as u64;
    let mut table = 1_u32.to_be_bytes().to_vec();
    table.extend([2, 0, 0]);
    table.extend(varint(postings_at));
    push_section(&mut index, &table);
    let contents = [symbols_at, series_at, postings_at, postings_at, table_at, table_at];
    let contents: Vec<u8> = contents.iter().flat_map(|at| at.to_be_bytes()).collect();
    index.extend_from_slice(&contents);
    index.extend_from_slice(&crc32c::crc32c(&contents).to_be_bytes());
    std::fs::write(folder.join("index"), index).unwrap();
    std::fs::write(folder.join("chunks/000001"), chunks).unwrap();
    let mut stones = Vec::new();
    for (reference, from, to) in deleted {
        stones.extend(varint(*reference));
        push_signed(&mut stones, *from);
        push_signed(&mut stones, *to);
    }
    let mut file = vec![0x01, 0x30, 0xba, 0x30, 1];
    file.extend_from_slice(&stones);
    file.extend_from_slice(&crc32c::crc32c(&stones).to_be_bytes());
    std::fs::write(folder.join("tombstones"), file).unwrap();
    references
}
