//! Hashes by which senders choose the shard of a target.

use md5::{Digest as _, Md5};

const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_5: u64 = 0x27d4_eb2f_1656_67c5;

/// Returns the number whose modulus the action `hashmod` of relabelling takes.
///
/// Source: `relabel` of Prometheus: the last 8 bytes of MD5.
pub(super) fn hashmod(joined: &[u8]) -> u64 {
    let digest: [u8; 16] = Md5::digest(joined).into();
    let [.., a, b, c, d, e, f, g, h] = digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the index of the node with the highest weight for a hash.
///
/// Source: `GetNodeIdx` of vmagent's `consistenthash`.
pub(super) fn rendezvous(hash: u64, node_hashes: &[u64]) -> usize {
    let (mut highest, mut found) = (0, 0);
    for (index, node) in node_hashes.iter().enumerate() {
        let weight = xorshift_star(node ^ hash);
        if weight > highest {
            (highest, found) = (weight, index);
        }
    }
    found
}

fn xorshift_star(mut x: u64) -> u64 {
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    x.wrapping_mul(2_685_821_657_736_338_717)
}

/// Returns the XXH64 of bytes, with seed 0.
///
/// Source: the specification of xxHash, "XXH64 Algorithm Description".
pub(super) fn xxh64(bytes: &[u8]) -> u64 {
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut hash = match stripes {
        [] => PRIME_5,
        stripes => of_stripes(stripes),
    };
    hash = hash.wrapping_add(bytes.len() as u64);
    let (lanes, rest) = rest.as_chunks::<8>();
    for lane in lanes {
        hash ^= round(0, u64::from_le_bytes(*lane));
        hash = hash.rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4);
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        hash ^= u64::from(u32::from_le_bytes(*word)).wrapping_mul(PRIME_1);
        hash = hash.rotate_left(23).wrapping_mul(PRIME_2).wrapping_add(PRIME_3);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIME_5);
        hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(PRIME_2);
    hash = (hash ^ hash >> 29).wrapping_mul(PRIME_3);
    hash ^ hash >> 32
}

fn of_stripes(stripes: &[[u8; 32]]) -> u64 {
    let mut sums = [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, 0_u64.wrapping_sub(PRIME_1)];
    for stripe in stripes {
        for (sum, lane) in sums.iter_mut().zip(stripe.as_chunks::<8>().0) {
            *sum = round(*sum, u64::from_le_bytes(*lane));
        }
    }
    let rotated = sums.iter().zip([1, 7, 12, 18]).map(|(sum, by)| sum.rotate_left(by));
    let joined = rotated.fold(0, u64::wrapping_add);
    sums.iter().fold(joined, |hash, sum| {
        (hash ^ round(0, *sum)).wrapping_mul(PRIME_1).wrapping_add(PRIME_4)
    })
}

fn round(sum: u64, lane: u64) -> u64 {
    sum.wrapping_add(lane.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `github.com/cespare/xxhash`, which vmagent uses.
    #[test]
    fn xxh64_is_that_of_vmagent() {
        let long = "0123456789".repeat(10);
        for (text, hash) in [
            ("", 0xef46_db37_51d8_e999),
            ("a", 0xd24e_c4f1_a98c_6e5b),
            ("as", 0x1c33_0fb2_d66b_e179),
            ("asd", 0x631c_37ce_72a9_7393),
            ("asdf", 0x4158_72f5_99ce_a71e),
            (
                "Call me Ishmael. Some years ago--never mind how long precisely-",
                0x02a2_e854_70d6_fd96,
            ),
        ] {
            assert_eq!(xxh64(text.as_bytes()), hash, "{text}");
        }
        assert_eq!(xxh64(long.as_bytes()), 0xf80e_7b96_315a_fffa, "{long}");
    }

    /// Values of Prometheus' relabelling.
    #[test]
    fn hashmod_is_that_of_prometheus() {
        assert_eq!(hashmod(b"baz") % 1000, 976);
        assert_eq!(hashmod(b""), 16_825_458_760_271_544_958);
    }
}
