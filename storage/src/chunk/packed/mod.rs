//! Packed floats: the regular part is stored once, and the rest of each sample in the number of bits
//! that the widest needs.
//!
//! ```text
//! min time:8 │ times │ values │ columns of bits: times, values │ leaps
//!
//! times:   step │ width:1 = 0                                    time i is min + i × step
//!          step │ width:1 │ zigzag(lowest)                       … + lowest + column i
//!          step │ width + 128:1 │ zigzag(lowest) │ zigzag(common) │ others
//!                                        a bit i: 0 … + common; 1 … + lowest + next of others
//! values:  kind 0: 0:1 │ scale:1 │ zigzag(first) │ zigzag(lowest) │ bits │ leaps
//!                  number i is number i − 1 + lowest + column i − 1, or that + a leap
//!          kind 1: 1:1 │ scale:1 │ zigzag(lowest) │ bits         number i is lowest + column i
//!          kind 2: 2:1 │ lowest:8 LE │ bits                      bits i are lowest + column i
//!                  value i is number i / 10^scale, or the float of these bits
//!          kind + 128: as above for all samples but the last, which is a staleness marker
//! bits:    width:1, or width + 128:1 │ shift:1 if the column has only the bits from shift on
//! leap:    samples since the leap before, or the first sample │ zigzag(leap)
//! ```
//!
//! Fields without a width are LEB128 varints. Each column of bits begins at a byte, highest bit
//! first, and zero bits fill its last byte; a column of width 0 is absent. If times have others,
//! the bits that mark them precede their column. *others* and *leaps* before the columns are
//! their counts.
//!
//! Numbers are whole and at most 2⁵³, so that the conversion between value and number is exact.
//! Sums wrap around.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(super) use decode::Packed;
pub use encode::PackedEncoder;

/// Maximum number of samples of an encoded frame.
pub(super) const SAMPLES_MAX: usize = 512;
/// Minimum length of a payload, with one sample.
pub(super) const PAYLOAD_BYTES_MIN: usize = 8 + 2 + 4;
/// Flag: most times have the same distance from the regular one.
const SPARSE: u8 = 128;
/// Flag: the numbers of the column of values are shifted.
const SHIFTED: u8 = 128;
/// Maximum number of decimal places.
const SCALE_MAX: u8 = 12;

/// Flag: the last sample is a staleness marker, and not among the numbers.
const ENDED: u8 = 128;

const LEAPING: u8 = 0;
const WHOLE: u8 = 1;
const BITS: u8 = 2;

/// Powers of ten, all exact.
const POWERS: [f64; SCALE_MAX as usize + 1] =
    [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12];

/// Returns the number of bits of a number.
fn bit_len(number: u64) -> u32 {
    64 - number.leading_zeros()
}
