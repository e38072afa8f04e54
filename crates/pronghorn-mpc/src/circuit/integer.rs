//! Arithmetic on words. AND gates are counted for words of `k` wires; known and constant bits make
//! it less.

use super::{Bit, Builder};

impl Builder {
    /// The lowest `width` bits of `value` in two's complement.
    pub fn constant(&mut self, value: i64, width: usize) -> Vec<Bit> {
        let bit = |i: usize| Bit::constant(value >> i.min(63) & 1 == 1);
        (0..width).map(bit).collect()
    }

    /// `word` cut or extended with zeros to `width` bits.
    pub fn resize(&mut self, word: &[Bit], width: usize) -> Vec<Bit> {
        let zeros = std::iter::repeat(&Bit::ZERO);
        word.iter().chain(zeros).take(width).copied().collect()
    }

    /// `word` in two's complement, cut or extended with its sign to `width` bits.
    pub fn resize_signed(&mut self, word: &[Bit], width: usize) -> Vec<Bit> {
        let signs = word.last().into_iter().cycle();
        word.iter().chain(signs).take(width).copied().collect()
    }

    /// `not word`, bit by bit. Free.
    pub fn complement(&mut self, word: &[Bit]) -> Vec<Bit> {
        word.iter().map(|&bit| self.not(bit)).collect()
    }

    /// Two or three of three: one AND.
    pub fn majority(&mut self, x: Bit, y: Bit, z: Bit) -> Bit {
        let (a, b) = (self.xor(x, z), self.xor(y, z));
        let both = self.and(a, b);
        self.xor(z, both)
    }

    /// `x + y + carry` and the carry out: `k` ANDs, the last for the carry.
    ///
    /// # Panics
    /// Unless the words have the same width; so does everything below that takes two words.
    pub fn add_carry(&mut self, x: &[Bit], y: &[Bit], mut carry: Bit) -> (Vec<Bit>, Bit) {
        assert_eq!(x.len(), y.len(), "words of one width");
        let mut sum = Vec::with_capacity(x.len());
        for (&x, &y) in x.iter().zip(y) {
            let difference = self.xor(x, y);
            sum.push(self.xor(difference, carry));
            carry = self.majority(x, y, carry);
        }
        (sum, carry)
    }

    /// `x + y mod 2^k`: `k - 1` ANDs.
    pub fn add(&mut self, x: &[Bit], y: &[Bit]) -> Vec<Bit> {
        self.add_carry(x, y, Bit::ZERO).0
    }

    /// `x - y mod 2^k` and the borrow, `x < y`: `k` ANDs.
    pub fn subtract(&mut self, x: &[Bit], y: &[Bit]) -> (Vec<Bit>, Bit) {
        let y = self.complement(y);
        let (difference, carry) = self.add_carry(x, &y, Bit::ONE);
        (difference, self.not(carry))
    }

    /// `x - y mod 2^k`: `k - 1` ANDs.
    pub fn sub(&mut self, x: &[Bit], y: &[Bit]) -> Vec<Bit> {
        self.subtract(x, y).0
    }

    /// `-x mod 2^k`: `k - 2` ANDs.
    pub fn negate(&mut self, x: &[Bit]) -> Vec<Bit> {
        let zeros = vec![Bit::ZERO; x.len()];
        self.sub(&zeros, x)
    }

    /// `x < y` of words without sign: `k` ANDs.
    pub fn less_than(&mut self, x: &[Bit], y: &[Bit]) -> Bit {
        self.subtract(x, y).1
    }

    /// `x >= y` of words without sign: `k` ANDs.
    pub fn at_least(&mut self, x: &[Bit], y: &[Bit]) -> Bit {
        let below = self.less_than(x, y);
        self.not(below)
    }

    /// `x < y` in two's complement: `k` ANDs.
    pub fn less_than_signed(&mut self, x: &[Bit], y: &[Bit]) -> Bit {
        let (x, y) = (self.flip_sign(x), self.flip_sign(y));
        self.less_than(&x, &y)
    }

    /// `x == y`: `k - 1` ANDs.
    pub fn equal(&mut self, x: &[Bit], y: &[Bit]) -> Bit {
        assert_eq!(x.len(), y.len(), "words of one width");
        let mut equal = Bit::ONE;
        for (&x, &y) in x.iter().zip(y) {
            let difference = self.xor(x, y);
            let same = self.not(difference);
            equal = self.and(equal, same);
        }
        equal
    }

    /// `x` where `select`, else `y`: `k` ANDs.
    pub fn multiplex(&mut self, select: Bit, x: &[Bit], y: &[Bit]) -> Vec<Bit> {
        assert_eq!(x.len(), y.len(), "words of one width");
        let pairs = x.iter().zip(y);
        pairs.map(|(&x, &y)| self.select(select, x, y)).collect()
    }

    /// `x` where `gate`, else 0: `k` ANDs.
    pub fn gate(&mut self, gate: Bit, x: &[Bit]) -> Vec<Bit> {
        x.iter().map(|&bit| self.and(gate, bit)).collect()
    }

    /// `factor * x mod 2^width` of a word in two's complement: an addition or subtraction for each
    /// digit of the factor in its non-adjacent form but one.
    pub fn multiply_constant(&mut self, x: &[Bit], factor: i64, width: usize) -> Vec<Bit> {
        let mut product = vec![Bit::ZERO; width];
        let (mut rest, mut shift) = (i128::from(factor), 0);
        while rest != 0 && shift < width {
            if rest & 1 == 1 {
                // 1 where the rest is 1 mod 4, -1 where it is 3: the next digit is 0 then.
                let digit = 2 - (rest & 3);
                let term = self.resize_signed(x, width - shift);
                let upper = if digit == 1 {
                    self.add(&product[shift..], &term)
                } else {
                    self.sub(&product[shift..], &term)
                };
                product.splice(shift.., upper);
                rest -= digit;
            }
            rest >>= 1;
            shift += 1;
        }
        product
    }

    /// `(x + 2^(shift-1)) >> shift` in two's complement, arithmetic shift, halves rounding up, as
    /// `(x >> shift) + bit (shift-1) of x`; exact, one bit wider than `x >> shift`: `k - shift`
    /// ANDs. A shift of 0 gives `x`.
    pub fn round_shift(&mut self, x: &[Bit], shift: u32) -> Vec<Bit> {
        let shift = shift as usize;
        if shift == 0 {
            return x.to_vec();
        }
        let half = self.resize_signed(x, shift)[shift - 1];
        let kept = &x[shift.min(x.len() - 1)..];
        let wide = self.resize_signed(kept, kept.len() + 1);
        let zeros = vec![Bit::ZERO; wide.len()];
        self.add_carry(&wide, &zeros, half).0
    }

    /// `min(max(x, low), high)` in two's complement.
    ///
    /// # Panics
    /// Unless both bounds fit the word.
    pub fn clip(&mut self, x: &[Bit], low: i64, high: i64) -> Vec<Bit> {
        let [low, high] = [low, high].map(|bound| self.constant(bound, x.len()));
        let above = self.less_than_signed(&high, x);
        let below = self.less_than_signed(x, &low);
        let x = self.multiplex(above, &high, x);
        self.multiplex(below, &low, &x)
    }

    /// `max(x, 0)` in two's complement: `k - 1` ANDs.
    pub fn relu(&mut self, x: &[Bit]) -> Vec<Bit> {
        let Some((&sign, magnitude)) = x.split_last() else {
            return Vec::new();
        };
        let positive = self.not(sign);
        let mut relu = self.gate(positive, magnitude);
        relu.push(Bit::ZERO);
        relu
    }

    /// `x << shift` where `x >= 0`, else `x * slope`, in `width` bits of two's complement.
    pub fn leaky_relu(&mut self, x: &[Bit], slope: i64, shift: u32, width: usize) -> Vec<Bit> {
        let above = self.shift_left(x, shift, width);
        let below = self.multiply_constant(x, slope, width);
        match x.last() {
            Some(&sign) => self.multiplex(sign, &below, &above),
            None => above,
        }
    }

    /// `x << shift` in `width` bits of two's complement. Free.
    pub fn shift_left(&mut self, x: &[Bit], shift: u32, width: usize) -> Vec<Bit> {
        let mut word = vec![Bit::ZERO; shift as usize];
        word.extend_from_slice(x);
        self.resize_signed(&word, width)
    }

    /// The larger of two words in two's complement: `2k` ANDs.
    pub fn max(&mut self, x: &[Bit], y: &[Bit]) -> Vec<Bit> {
        let less = self.less_than_signed(x, y);
        self.multiplex(less, y, x)
    }

    /// The largest of words in two's complement, in a tree: `2k` ANDs for each but one.
    ///
    /// # Panics
    /// Where there is no word.
    pub fn max_of(&mut self, words: &[Vec<Bit>]) -> Vec<Bit> {
        match words {
            [] => panic!("the largest of no words"),
            [word] => word.clone(),
            _ => {
                let (left, right) = words.split_at(words.len() / 2);
                let (left, right) = (self.max_of(left), self.max_of(right));
                self.max(&left, &right)
            }
        }
    }

    /// The index of the first largest of words in two's complement, and that word: a tree of
    /// `2k + i` ANDs a node, `i` the bits of the indices below it that differ.
    ///
    /// # Panics
    /// Where there is no word.
    pub fn argmax_of(&mut self, words: &[Vec<Bit>]) -> (Vec<Bit>, Vec<Bit>) {
        let width = (usize::BITS - (words.len().max(2) - 1).leading_zeros()) as usize;
        self.argmax_from(words, 0, width)
    }

    fn argmax_from(
        &mut self,
        words: &[Vec<Bit>],
        first: usize,
        width: usize,
    ) -> (Vec<Bit>, Vec<Bit>) {
        match words {
            [] => panic!("the largest of no words"),
            [word] => (self.constant(first as i64, width), word.clone()),
            _ => {
                let middle = words.len() / 2;
                let (i, x) = self.argmax_from(&words[..middle], first, width);
                let (j, y) = self.argmax_from(&words[middle..], first + middle, width);
                let less = self.less_than_signed(&x, &y);
                (self.multiplex(less, &j, &i), self.multiplex(less, &y, &x))
            }
        }
    }

    /// The word whose order without sign is that of `x` in two's complement.
    fn flip_sign(&mut self, x: &[Bit]) -> Vec<Bit> {
        let mut x = x.to_vec();
        if let Some(top) = x.last_mut() {
            *top = self.not(*top);
        }
        x
    }
}
