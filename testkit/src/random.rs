//! Pseudorandom numbers.

/// Generator of pseudorandom numbers from a seed.
pub struct Random(pub u64);

impl Random {
    /// Returns a number of 31 bits.
    pub fn any(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Returns a number below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.any() % limit
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.any() as u8).collect()
    }
}
