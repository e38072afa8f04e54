//! Parts of programs: carries, signs, conversions, multiplexers, maxima.
//!
//! The carry of a sum of two private numbers is a tree over generate and propagate bits (Goldreich,
//! Micali and Wigderson, STOC 1987, on a carry-lookahead adder). Leaves are three bits: their
//! generate and propagate bits are a table of 8 strings, of which an OT hands over one (Rathee and
//! others, "CrypTFlow2", CCS 2020, section 3.1, on leaves of four).

use std::ops::Range;

use super::program::{Builder, MOST_STRINGS, Party, Plane, Prefix, Word};
use crate::circuit::{CircuitError, Modulus};

/// Whether a range of bits of a sum makes a carry, and whether it passes one on.
#[derive(Clone, Copy)]
pub(super) struct Carry {
    pub generate: Plane,
    /// Absent where nobody asks.
    pub propagate: Option<Plane>,
}

impl Carry {
    /// The carry out of this range, with the carry into it.
    pub fn out(&self, builder: &mut Builder, into: Option<Plane>) -> Plane {
        match (into, self.propagate) {
            (Some(into), Some(propagate)) => {
                let passed = builder.and(propagate, &[into]);
                builder.xor(&[self.generate, passed[0]])
            }
            _ => self.generate,
        }
    }
}

impl Builder {
    /// The carry out of a range of bits of the sum of the parties' residues; `None` of no bits.
    pub fn carry(&mut self, word: Word, range: Range<u32>, propagate: bool) -> Option<Carry> {
        let mut first = range.start;
        let mut nodes = Vec::new();
        for width in leaf_widths(range.len(), propagate) {
            nodes.push(self.leaf_of(word, first, width, propagate || first > range.start));
            first += width;
        }
        while nodes.len() > 1 {
            let pairs = nodes.chunks(2).enumerate();
            nodes = pairs
                .map(|(place, pair)| match *pair {
                    [low, high] => self.join(low, high, propagate || place > 0),
                    _ => pair[0],
                })
                .collect();
        }
        nodes.pop()
    }

    /// A few bits. A single one passes a carry on where the sum of the parties' bits is 1, which
    /// needs no message.
    fn leaf_of(&mut self, word: Word, first: u32, width: u32, propagate: bool) -> Carry {
        let bits = self.own_bits(word, first..first + width);
        let mut of = vec![Prefix::Generate(bits.len())];
        if propagate && width > 1 {
            of.push(Prefix::Propagate(bits.len()));
        }
        let out = self.leaf(&bits, &of);
        Carry {
            generate: out[0],
            propagate: match width {
                1 => Some(bits[0]),
                _ => out.get(1).copied(),
            },
        }
    }

    fn own_bits(&mut self, word: Word, range: Range<u32>) -> Vec<Plane> {
        range.map(|bit| self.bit(word, bit)).collect()
    }

    /// Bits of the sum of the parties' residues, with the carry into the first. Each leaf tells its
    /// carries without one into it, and with one. So a leaf is a level behind the one below.
    pub fn sum_bits(&mut self, word: Word, range: Range<u32>, into: Option<Plane>) -> Vec<Plane> {
        let (mut first, mut into) = (range.start, into);
        let mut sums = Vec::with_capacity(range.len());
        while first < range.end {
            let last = range.end.min(first + LEAF as u32);
            let bits = self.own_bits(word, first..last);
            // Nobody asks for the carry out of the last.
            let carried = bits.len() - usize::from(last == range.end);
            let carries = self.carries(&bits[..carried], into);
            let each = [into].into_iter().chain(carries.iter().copied().map(Some));
            for (&bit, carry) in bits.iter().zip(each) {
                let terms: Vec<Plane> = [bit].into_iter().chain(carry).collect();
                sums.push(self.xor(&terms));
            }
            into = carries.last().copied();
            first = last;
        }
        sums
    }

    /// The carry out of each of a leaf's bits, with the carry into the first.
    fn carries(&mut self, bits: &[Plane], into: Option<Plane>) -> Vec<Plane> {
        if bits.is_empty() {
            return Vec::new();
        }
        let generate = (1..=bits.len()).map(Prefix::Generate);
        // The first passes a carry on where the sum of the parties' bits is 1.
        let propagate = (2..=bits.len()).map(Prefix::Propagate);
        let propagate = propagate.filter(|_| into.is_some());
        let out = self.leaf(bits, &generate.chain(propagate).collect::<Vec<_>>());
        let (generate, propagate) = out.split_at(bits.len());
        let Some(into) = into else {
            return generate.to_vec();
        };
        let propagate: Vec<Plane> = [bits[0]].iter().chain(propagate).copied().collect();
        let passed = self.and(into, &propagate);
        let terms = generate.iter().zip(passed);
        terms
            .map(|(&generate, passed)| self.xor(&[generate, passed]))
            .collect()
    }

    /// A bit times each of others.
    pub fn products(&mut self, bit: Plane, others: &[Plane]) -> Vec<Plane> {
        let products = others.chunks(MOST_STRINGS);
        products.flat_map(|others| self.and(bit, others)).collect()
    }

    /// `(G, P) o (G', P') = (G + P G', P P')`.
    fn join(&mut self, low: Carry, high: Carry, propagate: bool) -> Carry {
        let Some(above) = high.propagate else {
            return high;
        };
        let (generate, propagate) = match low.propagate {
            Some(below) if propagate => {
                let products = self.and(above, &[low.generate, below]);
                (products[0], Some(products[1]))
            }
            _ => (self.and(above, &[low.generate])[0], None),
        };
        Carry {
            generate: self.xor(&[high.generate, generate]),
            propagate,
        }
    }

    /// The sum of the parties' bits as numbers, one modulo `2^e` where `modulus` is.
    pub fn number_of(&mut self, bit: Plane, modulus: Modulus) -> Word {
        // c0 + c1 - 2 c0 c1; modulo 2 the sum alone.
        let own = self.number(bit, None, modulus);
        let Some(half) = halved(modulus) else {
            return own;
        };
        let factor = self.number(bit, None, half);
        let both = self.product(Party::Client, bit, factor);
        self.sum(&[(own, 1), (both, -2)], 0, modulus)
    }

    /// A shared bit times a shared word, modulo its modulus. Two products, one level.
    pub fn multiplex(&mut self, bit: Plane, word: Word) -> Word {
        let own = self.pick(bit, word);
        let signed = self.signed(bit, word);
        let mixed = [Party::Client, Party::Server].map(|of| self.product(of, bit, signed));
        let modulus = self.modulus(word);
        self.sum(&[(own, 1), (mixed[0], 1), (mixed[1], 1)], 0, modulus)
    }

    /// Brings values of `0..2^(n-1)`, shared modulo `2^n`, to another modulus. Their sum of shares
    /// passes `2^n` where either party's top bit is set.
    pub fn extend(&mut self, word: Word, modulus: Modulus) -> Word {
        let bits = self.modulus(word).bits();
        if self.modulus(word).reduces_to(modulus) {
            return self.sum(&[(word, 1)], 0, modulus);
        }
        let counted = modulus_of_wraps(modulus, bits);
        let top = self.bit(word, bits - 1);
        let server = self.number(top, Some(Party::Server), counted);
        // 1 - top at the server; the client's half is not used.
        let rest = self.sum(&[(server, -1)], 1, counted);
        let client = self.product(Party::Client, top, rest);
        let weight = -(1i64 << bits);
        self.sum(&[(word, 1), (server, weight), (client, weight)], 0, modulus)
    }

    /// Brings values of `low..=high`, shared modulo a prime `t`, to `2^e`. The residues of the
    /// value from 0 on sum up to it, or to `t` more: then `2^l - t` more has a carry out of `l`
    /// bits.
    ///
    /// # Errors
    /// [`CircuitError::Range`] where the prime does not hold the values.
    pub fn lift(
        &mut self,
        word: Word,
        (low, high): (i64, i64),
        modulus: Modulus,
    ) -> Result<Word, CircuitError> {
        let prime = self.modulus(word);
        let t = prime.neg(1) as i64 + 1;
        if high - low >= t {
            return Err(prime.range_error(low, high));
        }
        let raised = self.sum(&[(word, 1)], -low, prime);
        let bits = prime.bits();
        let binary = Modulus::power_of_two(bits)?;
        let beyond = self.sum(&[(raised, 1)], (1i64 << bits) - t, binary);
        let mut terms = vec![(raised, 1)];
        if let Some(wraps) = self.carry(beyond, 0..bits, false) {
            terms.push((self.number_of(wraps.generate, modulus), -t));
        }
        Ok(self.sum(&terms, low, modulus))
    }

    /// Whether a signed value, shared modulo `2^k`, is at least 0; the carry into bit `low` is
    /// given.
    pub fn is_positive_above(&mut self, word: Word, low: u32, carry: Option<Plane>) -> Plane {
        let top = self.modulus(word).bits() - 1;
        let sign = self.bit(word, top);
        let carry = match self.carry(word, low..top, carry.is_some()) {
            Some(upper) => Some(upper.out(self, carry)),
            None => carry,
        };
        let terms: Vec<Plane> = [sign].into_iter().chain(carry).collect();
        let negative = self.xor(&terms);
        self.not(negative)
    }

    /// The larger of two signed values whose difference fits the modulus `2^k`.
    pub fn maximum(&mut self, x: Word, y: Word) -> Word {
        let modulus = self.modulus(x);
        let difference = self.sum(&[(x, 1), (y, -1)], 0, modulus);
        let larger = self.is_positive_above(difference, 0, None);
        let above = self.multiplex(larger, difference);
        self.sum(&[(above, 1), (y, 1)], 0, modulus)
    }

    /// The product of all bits.
    pub fn all(&mut self, bits: &[Plane]) -> Plane {
        let mut bits = bits.to_vec();
        while bits.len() > 1 {
            bits = bits
                .chunks(2)
                .map(|pair| match *pair {
                    [x, y] => self.and(x, &[y])[0],
                    _ => pair[0],
                })
                .collect();
        }
        bits[0]
    }
}

/// Bits of a leaf: as many as cost least. With 1 the tree has leaves of single bits alone, which
/// take 65 OTs in place of 36, and 1 to 2 levels more.
const LEAF: usize = 3;

/// The bits of each leaf, from the lowest: [`LEAF`], or fewer where that is enough. The lowest
/// takes four where that spares a leaf of three, if nobody asks whether it passes a carry on: then
/// it has half the strings' bits.
fn leaf_widths(bits: usize, propagate: bool) -> Vec<u32> {
    let widest = match !propagate && LEAF == 3 && bits % 3 == 1 && bits > 1 {
        true => 4,
        false => LEAF.min(bits),
    };
    let (mut widths, mut rest) = (Vec::new(), bits);
    let mut leaves = bits.saturating_sub(widest).div_ceil(LEAF);
    if widest > 0 {
        widths.push(widest as u32);
        rest -= widest;
    }
    while rest > 0 {
        let width = rest.div_ceil(leaves);
        widths.push(width as u32);
        (rest, leaves) = (rest - width, leaves - 1);
    }
    widths
}

/// The modulus that wraps beyond `2^bits` count by: `2^(m - bits)` for results modulo `2^m`.
pub(super) fn modulus_of_wraps(output: Modulus, bits: u32) -> Modulus {
    let counted = match output {
        Modulus::PowerOfTwo(_) => Modulus::power_of_two(output.bits() - bits),
        Modulus::Prime(_) => Ok(output),
    };
    counted.unwrap_or(output)
}

/// The modulus `m` of `2^m = 2 * half`; `None` for 2. A prime stays.
fn halved(modulus: Modulus) -> Option<Modulus> {
    match modulus {
        Modulus::PowerOfTwo(_) => Modulus::power_of_two(modulus.bits() - 1).ok(),
        Modulus::Prime(_) => Some(modulus),
    }
}
