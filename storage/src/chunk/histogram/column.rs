//! Columns of a histogram chunk: predictors of the next number.
//!
//! Both coders are adaptive: encoder and decoder update the state of a column in the same way after
//! each number, so the state is not stored.

/// Fractional bits of the two running means.
const FRACTION_BITS: u32 = 4;
/// Weight 2⁻ˢ of the newest number in the means, by the age of a column.
const SHIFTS: [u32; 16] = [0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4];
/// Exclusive upper bound of counts.
pub(super) const COUNT_LIMIT: i64 = 1 << 53;
/// Exclusive upper bound of the codes of such counts.
const CODE_LIMIT: u64 = 1 << 58;

/// Column of whole numbers that mostly grow at a steady rate.
///
/// A number is stored as the difference of its growth from the mean growth, in a Rice code. The
/// parameter of the code follows the mean of these differences.
///
/// Invariant: `0 <= value < COUNT_LIMIT`, so that no step below overflows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IntegerColumn {
    pub(super) value: i64,
    /// Mean growth, with [`FRACTION_BITS`].
    rate: i64,
    /// Mean of the coded numbers, with [`FRACTION_BITS`].
    spread: i64,
    /// Number of values so far, up to the length of [`SHIFTS`]; 0 for a new column.
    age: u32,
}

impl IntegerColumn {
    /// Returns whether the column has no value yet.
    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        self.age == 0
    }

    /// Sets the first value.
    pub(super) fn begin(&mut self, value: i64) {
        let bits = 64 - value.leading_zeros();
        *self = IntegerColumn { value, rate: 0, spread: 1 << FRACTION_BITS << (bits / 3), age: 1 };
        if value == 0 {
            self.spread = 0;
        }
    }

    /// Returns the parameter of the Rice code, its number of plain low bits: ⌊log₂⌋ of the mean.
    #[inline(always)]
    pub(super) fn parameter(&self) -> u32 {
        64 - (self.spread >> (FRACTION_BITS + 1)).leading_zeros()
    }

    /// Returns the expected growth.
    #[inline(always)]
    fn expected(&self) -> i64 {
        (self.rate + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS
    }

    /// Returns the code of the next value, which must not be lower than the last one.
    #[inline(always)]
    pub(super) fn rising_code(&self, value: i64) -> u64 {
        let (growth, expected) = (value - self.value, self.expected().max(0));
        if growth <= 2 * expected { fold(growth - expected) } else { growth as u64 }
    }

    /// Returns the growth of a [`IntegerColumn::rising_code`].
    #[inline(always)]
    pub(super) fn rising_growth(&self, code: u64) -> i64 {
        let expected = self.expected().max(0);
        if code <= 2 * expected as u64 { expected + unfold(code) } else { code as i64 }
    }

    /// Returns the code of any next value.
    #[inline(always)]
    pub(super) fn signed_code(&self, value: i64) -> u64 {
        fold(value - self.value - self.expected())
    }

    /// Returns the growth of a [`IntegerColumn::signed_code`].
    #[inline(always)]
    pub(super) fn signed_growth(&self, code: u64) -> i64 {
        unfold(code).wrapping_add(self.expected())
    }

    /// Advances to the next value. Returns false, without a change, if it is out of range.
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
            // Counts of events deviate from their mean by about its square root.
            let bits = 64 - growth.unsigned_abs().leading_zeros();
            self.rate = growth << FRACTION_BITS;
            self.spread = if bits == 0 { 0 } else { 1 << FRACTION_BITS << (bits / 2) };
        }
        self.age = (self.age + 1).min(15);
        true
    }
}

/// Maps a signed number to an unsigned one (zigzag): small ones stay small.
#[inline(always)]
pub(super) fn fold(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Inverts [`fold`].
#[inline(always)]
pub(super) fn unfold(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Column of floats, each stored as its xor with the one before.
///
/// Invariant: `leading + significant <= 64`; `significant` is 0 before the first window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FloatColumn {
    pub(super) bits: u64,
    pub(super) leading: u32,
    pub(super) significant: u32,
}
