//! Hash of label sets, as in Prometheus: it decides which series `limit_ratio` keeps, and the
//! order of exemplars of the same time and value.

const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_5: u64 = 0x27d4_eb2f_1656_67c5;

/// Returns the 64-bit xxHash of bytes with seed 0.
///
/// For the packed form of a label set, it equals the hash of the set in Prometheus.
/// Source: <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>, "XXH64".
pub fn xxh64(bytes: &[u8]) -> u64 {
    let mut rest = bytes;
    let mut hash = if bytes.len() >= 32 {
        let mut lanes = [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, 0u64.wrapping_sub(PRIME_1)];
        while let Some((stripe, after)) = rest.split_first_chunk::<32>() {
            for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, read(word));
            }
            rest = after;
        }
        let [a, b, c, d] = lanes;
        let mixed = a
            .rotate_left(1)
            .wrapping_add(b.rotate_left(7))
            .wrapping_add(c.rotate_left(12))
            .wrapping_add(d.rotate_left(18));
        lanes.iter().fold(mixed, |hash, lane| {
            (hash ^ round(0, *lane)).wrapping_mul(PRIME_1).wrapping_add(PRIME_4)
        })
    } else {
        PRIME_5
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        hash = (hash ^ round(0, read(word))).rotate_left(27);
        hash = hash.wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        hash ^= read(word).wrapping_mul(PRIME_1);
        hash = hash.rotate_left(23).wrapping_mul(PRIME_2).wrapping_add(PRIME_3);
        rest = after;
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIME_5);
        hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIME_2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIME_3);
    hash ^ (hash >> 32)
}

/// Reads up to eight bytes, little endian.
fn read(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        // From the reference implementation.
        assert_eq!(xxh64(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(xxh64(b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(
            xxh64(b"Call me Ishmael. Some years ago--never mind how long precisely-"),
            0x02a2_e854_70d6_fd96
        );
    }
}
