//! Packed floats: what is regular is said once, what is left of each sample has as many bits as
//! the widest of them needs.
//!
//! ```text
//! min time:8 │ times │ values │ columns of bits: times, values │ leaps
//!
//! times:   step │ width:1 = 0                                    time i is min + i × step
//!          step │ width:1 │ zigzag(lowest)                       … + lowest + column i
//!          step │ width + 128:1 │ zigzag(lowest) │ zigzag(common) │ others
//!                                        a bit i: 0 … + common; 1 … + lowest + next of others
//! values:  kind 0: 0:1 │ scale:1 │ zigzag(first) │ zigzag(lowest) │ width:1 │ leaps
//!                  number i is number i − 1 + lowest + column i − 1, or that + a leap
//!          kind 1: 1:1 │ scale:1 │ zigzag(lowest) │ width:1      number i is lowest + column i
//!          kind 2: 2:1 │ lowest:8 LE │ width:1                   bits i are lowest + column i
//!                  value i is number i / 10^scale, or the float of these bits
//! leap:    samples since the leap before, or the first sample │ zigzag(leap)
//! ```
//!
//! Whatever has no width is a LEB128 varint. Each column of bits begins with a byte of its own,
//! highest bit first, zero bits fill its last byte; it is not there where its width is 0. Where
//! times have others, the bits that tell them stand before their column. Before the columns stands
//! how many *others* and *leaps* there are.
//!
//! Numbers are whole and not beyond 2⁵³, so that value and number tell of each other to the bit.
//! Sums wrap around.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub(super) use decode::Packed;
pub use encode::encode_packed;

/// The most samples of a frame that is written.
pub(super) const SAMPLES_MAX: usize = 512;
/// The least bytes of a payload: of one sample.
pub(super) const PAYLOAD_BYTES_MIN: usize = 8 + 2 + 4;
/// Marks times of which most have the same distance from the regular one.
const SPARSE: u8 = 128;
/// The most decimal places of a number.
const SCALE_MAX: u8 = 12;

const LEAPING: u8 = 0;
const WHOLE: u8 = 1;
const BITS: u8 = 2;

/// The powers of ten, all exact.
const POWERS: [f64; SCALE_MAX as usize + 1] =
    [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12];

/// How many bits a number needs.
fn bit_len(number: u64) -> u32 {
    64 - number.leading_zeros()
}
