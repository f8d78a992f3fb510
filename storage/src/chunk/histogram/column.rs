//! One column of a histogram chunk: what the next number is relative to.
//!
//! Both coders are adaptive: encoder and decoder change the state of a column in the same way
//! after each number, so that nothing of it is written.

/// Fractional bits of the two running means.
const FRACTION_BITS: u32 = 4;
/// By the age of a column, the share of the newest number in the means: 2⁻ˢ.
const SHIFTS: [u32; 16] = [0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4];
/// Counts are below this.
pub(super) const COUNT_LIMIT: i64 = 1 << 53;
/// Codes of numbers within that bound are below this.
const CODE_LIMIT: u64 = 1 << 58;

/// A column of whole numbers that mostly grow at a steady rate.
///
/// A number is stored as what its growth differs from the mean growth, in a Rice code whose
/// parameter follows the mean of these differences.
///
/// Invariant: `0 <= value < COUNT_LIMIT`, so that no step below overflows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IntegerColumn {
    pub(super) value: i64,
    /// Mean growth, with [`FRACTION_BITS`].
    rate: i64,
    /// Mean of the numbers that were coded, with [`FRACTION_BITS`].
    spread: i64,
    /// Numbers so far, up to the last of [`SHIFTS`]; 0 for a column that begins.
    age: u32,
}

impl IntegerColumn {
    /// Whether there is no number before.
    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        self.age == 0
    }

    /// Takes the first number.
    pub(super) fn begin(&mut self, value: i64) {
        let bits = 64 - value.leading_zeros();
        *self = IntegerColumn { value, rate: 0, spread: 1 << FRACTION_BITS << (bits / 3), age: 1 };
        if value == 0 {
            self.spread = 0;
        }
    }

    /// How many low bits the Rice code stores plainly: the whole part of log₂ of the mean.
    #[inline(always)]
    pub(super) fn parameter(&self) -> u32 {
        64 - (self.spread >> (FRACTION_BITS + 1)).leading_zeros()
    }

    /// The growth that is expected.
    #[inline(always)]
    fn expected(&self) -> i64 {
        (self.rate + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS
    }

    /// The code of the next number, of which is known that it is not below the last one.
    #[inline(always)]
    pub(super) fn rising_code(&self, value: i64) -> u64 {
        let (growth, expected) = (value - self.value, self.expected().max(0));
        if growth <= 2 * expected { fold(growth - expected) } else { growth as u64 }
    }

    /// The growth behind [`IntegerColumn::rising_code`].
    #[inline(always)]
    pub(super) fn rising_growth(&self, code: u64) -> i64 {
        let expected = self.expected().max(0);
        if code <= 2 * expected as u64 { expected + unfold(code) } else { code as i64 }
    }

    /// The code of any next number.
    #[inline(always)]
    pub(super) fn signed_code(&self, value: i64) -> u64 {
        fold(value - self.value - self.expected())
    }

    /// The growth behind [`IntegerColumn::signed_code`].
    #[inline(always)]
    pub(super) fn signed_growth(&self, code: u64) -> i64 {
        unfold(code).wrapping_add(self.expected())
    }

    /// Goes on to the next number. False if it is out of bounds: then nothing has changed.
    #[inline(always)]
    pub(super) fn advance(&mut self, growth: i64, code: u64) -> bool {
        let value = self.value.wrapping_add(growth);
        if value as u64 >= COUNT_LIMIT as u64 || code >= CODE_LIMIT {
            return false;
        }
        self.value = value;
        if self.age > 1 {
            let shift = SHIFTS[(self.age & 15) as usize];
            self.rate += ((growth << FRACTION_BITS) - self.rate) >> shift;
            self.spread += (((code as i64) << FRACTION_BITS) - self.spread) >> shift;
        } else {
            // What counts events differs from its mean by about the root of it.
            let bits = 64 - growth.unsigned_abs().leading_zeros();
            self.rate = growth << FRACTION_BITS;
            self.spread = if bits == 0 { 0 } else { 1 << FRACTION_BITS << (bits / 2) };
        }
        self.age = (self.age + 1).min(15);
        true
    }
}

/// A signed number as an unsigned one: small ones stay small.
#[inline(always)]
pub(super) fn fold(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// The number behind [`fold`].
#[inline(always)]
pub(super) fn unfold(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// A column of floats, each stored as its xor with the one before.
///
/// Invariant: `leading + significant <= 64`; `significant` is 0 before the first window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FloatColumn {
    pub(super) bits: u64,
    pub(super) leading: u32,
    pub(super) significant: u32,
}
