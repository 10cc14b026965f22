//! Chance from a seed: the same walk everywhere, so that a failure can be walked again.

/// xorshift.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The walk of a seed; seeds that follow one another have nothing in common.
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number from 0 to below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    /// One of these.
    ///
    /// # Panics
    /// There is none.
    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}
