//! Random signs for measurements: the same every time.

/// Random signs (xorshift64*).
pub(crate) struct Signs(u64);

/// The state of a generator without a seed.
const START: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for Signs {
    fn default() -> Self {
        Self(START)
    }
}

impl Signs {
    pub(crate) fn new(seed: u64) -> Self {
        Self(START ^ (seed + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    }

    /// 1 or -1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 63 == 0 {
            1.0
        } else {
            -1.0
        }
    }
}
