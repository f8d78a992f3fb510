//! Bits into bytes, highest first, and the numbers that Prometheus' chunks write with them.
//!
//! Source: `tsdb/chunkenc/{bstream,varbit,xor}.go` of Prometheus.

/// How many bits a number may take, after a prefix of ones that tells which; 64 beyond.
const VARBIT_BITS: [u32; 7] = [3, 6, 9, 12, 18, 25, 56];

/// A writer of bits.
#[derive(Debug, Default)]
pub(super) struct Bits {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, in the lowest places.
    pending: u8,
    pending_count: u32,
}

impl Bits {
    /// Adds the lowest `count` bits, at most 64; those above may be anything.
    pub(super) fn push(&mut self, bits: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            let taken = left.min(8 - self.pending_count);
            left -= taken;
            let part = (bits >> left) as u8 & (u8::MAX >> (8 - taken));
            self.pending = (u16::from(self.pending) << taken) as u8 | part;
            self.pending_count += taken;
            if self.pending_count == 8 {
                self.bytes.push(self.pending);
                (self.pending, self.pending_count) = (0, 0);
            }
        }
    }

    /// Adds whole bytes, wherever the last bit stands.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push(u64::from(*byte), 8);
        }
    }

    /// How many bytes there would be now.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + usize::from(self.pending_count > 0)
    }

    /// The bytes, the last one filled with zero bits.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.pending_count > 0 {
            self.bytes.push(self.pending << (8 - self.pending_count));
        }
        self.bytes
    }

    /// Adds a signed number of few bits where it is near 0.
    pub(super) fn push_varbit(&mut self, number: i64) {
        let fits = |bits: u32| {
            let half = 1_i64 << (bits - 1);
            -half < number && number <= half
        };
        self.push_prefixed(number as u64, (number != 0).then(|| class_of(fits)));
    }

    /// The same for a number that is never negative.
    pub(super) fn push_varbit_unsigned(&mut self, number: u64) {
        let fits = |bits: u32| number >> bits == 0;
        self.push_prefixed(number, (number != 0).then(|| class_of(fits)));
    }

    /// Adds as many ones as the class counts, a zero behind all but the last class, and the number;
    /// without a class, which means 0, the zero alone.
    fn push_prefixed(&mut self, number: u64, class: Option<usize>) {
        let Some(class) = class else {
            self.push(0, 1);
            return;
        };
        match VARBIT_BITS.get(class) {
            Some(bits) => {
                let ones = class as u32 + 1;
                self.push((1 << (ones + 1)) - 2, ones + 1);
                self.push(number, *bits);
            }
            None => {
                self.push(0xff, 8);
                self.push(number, 64);
            }
        }
    }
}

fn class_of(fits: impl Fn(u32) -> bool) -> usize {
    VARBIT_BITS.iter().position(|bits| fits(*bits)).unwrap_or(VARBIT_BITS.len())
}

/// A float of which the next one is told by the bits that differ.
#[derive(Debug, Clone, Copy)]
pub(super) struct XorFloat {
    bits: u64,
    /// Zeros in front of the last window and behind it; none has been written yet without.
    window: Option<(u32, u32)>,
}

impl XorFloat {
    /// The first float, which is written whole.
    pub(super) fn begin(value: f64, out: &mut Bits) -> XorFloat {
        out.push(value.to_bits(), 64);
        XorFloat { bits: value.to_bits(), window: None }
    }

    /// The next one.
    pub(super) fn push(&mut self, value: f64, out: &mut Bits) {
        let differing = value.to_bits() ^ self.bits;
        self.bits = value.to_bits();
        if differing == 0 {
            out.push(0, 1);
            return;
        }
        // Five bits tell how many zeros are in front.
        let leading = differing.leading_zeros().min(31);
        let trailing = differing.trailing_zeros();
        if let Some((front, behind)) = self.window
            && leading >= front
            && trailing >= behind
        {
            out.push(0b10, 2);
            out.push(differing >> behind, 64 - front - behind);
            return;
        }
        self.window = Some((leading, trailing));
        let significant = 64 - leading - trailing;
        out.push(0b11, 2);
        out.push(u64::from(leading), 5);
        // 64 is written as 0: none is never needed.
        out.push(u64::from(significant), 6);
        out.push(differing >> trailing, significant);
    }
}
