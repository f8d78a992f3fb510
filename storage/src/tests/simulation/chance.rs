//! Random numbers from a seed.

use std::ops::Range;

/// SplitMix64, for which every seed is equally good.
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns an independent generator, whose draws do not affect this one.
    pub(super) fn fork(&mut self) -> Chance {
        Chance::new(self.next())
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn within(&mut self, range: Range<i64>) -> i64 {
        range.start + self.below((range.end - range.start).max(1) as u64) as i64
    }

    /// Returns true with a probability in thousandths.
    pub(super) fn happens(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}
