//! Symmetric RLWE with values in coefficients and a seeded `a` shared by several secrets.
//!
//! A row encrypts one value of each of up to `blocks * N` images. For block `k`, with secret `s_k`,
//! `b_k = scale * m_k + e_k - a * s_k  mod (q, X^N + 1)`: the same uniform `a` serves every
//! block (Peikert, Vaikuntanathan, Waters, CRYPTO 2008, do this for LWE), so `a` costs its
//! seed, its expansion and its share of the server's work once for all blocks. Distinguishing `k`
//! blocks from random is at most `k` times as likely as distinguishing one (a hybrid over the
//! independent secrets).
//!
//! `a` lives in the NTT domain, where uniform is uniform too. Everything the server does is
//! linear over the integers and acts on each word alone, so it never leaves that domain: the
//! client does one inverse NTT a row and block, the server none.

use std::{mem, ops::Range, sync::Arc};

use pronghorn_ring::{
    Ntt, NttError, Prime, Word,
    modulus::ModulusError,
    random::{Prg, Seed},
    sample,
    security::{self, SecurityError, SecurityLevel},
    vector,
};
use rayon::prelude::*;
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::simd;

/// Why a set of RLWE parameters is refused.
#[derive(Debug, Error)]
pub enum ParameterError {
    /// Fewer than 128 bits.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Not a prime that fits the word.
    #[error(transparent)]
    Modulus(#[from] ModulusError),
    /// The prime and the degree do not go together.
    #[error(transparent)]
    Ntt(#[from] NttError),
}

/// `Z_q[X] / (X^N + 1)` with at least 128 bits of security for a ternary secret.
#[derive(Clone)]
pub struct RlweRing<W: Word> {
    ntt: Arc<Ntt<W>>,
    security: SecurityLevel,
}

impl<W: Word> RlweRing<W> {
    /// The ring of degree `n` modulo the prime `q = 1 mod 2n`.
    ///
    /// # Errors
    /// When the table of ePrint 2024/463 gives `(n, q)` less than 128 bits, or `q` does not fit.
    pub fn new(n: usize, q: u64) -> Result<Self, ParameterError> {
        let security = security::check(n, u64::BITS - q.saturating_sub(1).leading_zeros())?;
        Ok(Self {
            ntt: Arc::new(Ntt::new(n, Prime::new(q)?)?),
            security,
        })
    }

    /// Coefficients of a polynomial.
    pub fn n(&self) -> usize {
        self.ntt.n()
    }

    /// The modulus.
    pub fn modulus(&self) -> &Prime<W> {
        self.ntt.modulus()
    }

    /// The transform.
    pub(crate) fn ntt(&self) -> &Ntt<W> {
        &self.ntt
    }

    /// From coefficients to the NTT domain.
    pub fn forward(&self, words: &mut [W]) {
        self.ntt.forward(words);
    }

    /// The level of the security table these parameters meet.
    pub fn security(&self) -> SecurityLevel {
        self.security
    }

    /// Switches the modulus of the `a` of an answer: from the NTT domain to coefficients without
    /// their `dropped` low bits. Nothing happens where none are dropped. Variable time: `a` is
    /// public.
    pub fn drop_low_bits_public(&self, a: &mut [W], dropped: u32) {
        if dropped > 0 {
            self.ntt.inverse(a);
            vector::shift_right(a, dropped);
        }
    }

    /// Undoes [`drop_low_bits_public`](Self::drop_low_bits_public) but for the bits dropped, in
    /// whose place comes their middle: back in the NTT domain, each coefficient off by at most
    /// `2^(dropped - 1)`.
    pub fn restore_low_bits_public(&self, a: &mut [W], dropped: u32) {
        if dropped > 0 {
            vector::shift_back(self.modulus(), a, dropped);
            self.ntt.forward(a);
        }
    }

    /// The number of secrets that a batch needs.
    pub fn blocks(&self, batch: usize) -> usize {
        batch.div_ceil(self.n())
    }
}

/// Expands the public `a` of row `row`, in the NTT domain. Both parties call this with the
/// seed the client chose, which is public: variable time.
pub fn expand_a<W: Word>(seed: &Prg, row: u64, q: &Prime<W>, a: &mut [W]) {
    sample::uniform_public(&mut seed.stream(row), q, a);
}

/// The generator that [`expand_a`] reads, from the seed on the wire.
pub fn a_generator(seed: &Seed) -> Prg {
    Prg::new(seed, "pronghorn 2026 RLWE public a")
}

/// The residue of a coefficient of a secret or an error, for a modulus above 128: without a
/// multiplication, so that loops are vectorised.
#[inline(always)]
pub(crate) fn small_residue<W: Word>(q: &Prime<W>, value: i8) -> W {
    let negative = i64::from(value >> 7);
    W::from_u64((i64::from(value) + (negative & q.value() as i64)) as u64)
}

/// The place of a message in a word, and the bits of the answer's word that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// A message `m` is `m << scale_log` in a coefficient.
    pub scale_log: u32,
    /// Low bits the server dropped from every coefficient of `b` of its answer.
    pub dropped_bits: u32,
    /// The answer holds `m - centre`, so that its range is symmetric.
    pub centre: i64,
    /// Smallest message of an answer.
    pub low: i32,
    /// Largest message of an answer.
    pub high: i32,
}

/// A decrypted message lies outside its proven range: a wrong server, or a damaged answer.
#[derive(Debug, Error)]
#[error(
    "a decrypted value lies outside the range the plan proves; the answer is damaged or the server runs another model"
)]
pub struct OutOfRange;

/// A message is too large for the modulus at its scale: the plan is not one that was built here.
#[derive(Debug, Error)]
#[error("a value is too large for the plan's modulus at its scale; the plan is damaged or hostile")]
pub struct TooLarge;

/// One ternary secret a block, for one linear step of one batch, or a band of it; wiped on drop.
pub struct SecretKey<W: Word> {
    ring: RlweRing<W>,
    /// Secrets in the NTT domain, block after block.
    ntt: Vec<W>,
    /// Their Shoup quotients.
    shoup: Vec<W>,
    errors: Prg,
}

/// Memory for a key: that of an earlier one, wiped, or none.
pub struct KeyRoom<W>([Vec<W>; 2]);

impl<W> Default for KeyRoom<W> {
    fn default() -> Self {
        Self([Vec::new(), Vec::new()])
    }
}

impl<W: Word> Drop for SecretKey<W> {
    fn drop(&mut self) {
        self.ntt.zeroize();
        self.shoup.zeroize();
    }
}

impl<W: Word> SecretKey<W> {
    /// Draws `blocks` secrets, and the generator of the errors, from `seed`. A seed makes one key,
    /// and a key encrypts every `(row, block)` at most once: an `(a, error)` pair must never meet
    /// two messages. Callers draw a fresh seed for each linear step of each batch, and for each band
    /// whose rows have the numbers of another's.
    pub fn generate(ring: &RlweRing<W>, blocks: usize, seed: &Seed) -> Self {
        Self::generate_in(ring, blocks, seed, KeyRoom::default())
    }

    /// The same in the memory of an earlier key.
    pub fn generate_in(ring: &RlweRing<W>, blocks: usize, seed: &Seed, room: KeyRoom<W>) -> Self {
        let n = ring.n();
        let secrets = Prg::new(seed, "pronghorn 2026 RLWE ternary secrets");
        let [mut ntt, mut shoup] = room.0;
        for words in [&mut ntt, &mut shoup] {
            words.resize(blocks * n, W::default());
        }
        let room = || Zeroizing::new(vec![0i8; n]);
        let both = ntt
            .par_chunks_exact_mut(n)
            .zip(shoup.par_chunks_exact_mut(n));
        both.enumerate()
            .for_each_init(room, |ternary, (block, (secret, shoup))| {
                sample::ternary(&mut secrets.stream(block as u64), ternary);
                for (word, &coefficient) in secret.iter_mut().zip(ternary.iter()) {
                    *word = small_residue(ring.modulus(), coefficient);
                }
                ring.ntt.forward(secret);
                for (quotient, &word) in shoup.iter_mut().zip(secret.iter()) {
                    *quotient = ring.modulus().shoup(word);
                }
            });
        Self {
            ring: ring.clone(),
            ntt,
            shoup,
            errors: Prg::new(seed, "pronghorn 2026 RLWE errors"),
        }
    }

    /// The memory of the key, wiped.
    pub fn into_room(mut self) -> KeyRoom<W> {
        let mut room = [&mut self.ntt, &mut self.shoup].map(mem::take);
        room.iter_mut().for_each(Zeroize::zeroize);
        KeyRoom(room)
    }

    /// Encrypts a row, or a part of it from block `first` on: `b[j] = scale * messages[j] + e_j -
    /// (a s)_j`, block after block. The last block may be shorter than `N`: coefficients that hold
    /// no image are neither made nor sent.
    ///
    /// Cost a block: an inverse NTT, `N` products, `N` errors. `a` is in the NTT domain; `b` in
    /// coefficients.
    ///
    /// # Errors
    /// When some `|messages[j]| << scale_log` exceeds `q / 2`, which no plan of ours asks for; `b`
    /// is then no ciphertext and must not be sent.
    pub fn encrypt_row(
        &self,
        (row, first): (u64, usize),
        a: &[W],
        messages: &[i32],
        scale_log: u32,
        scratch: &mut Scratch<W>,
        b: &mut [W],
    ) -> Result<(), TooLarge> {
        let mut inside = true;
        let q = self.ring.modulus().value();
        self.with_masks(
            a,
            (first, b.len()),
            scratch,
            |block, range, mask, errors| {
                self.draw_errors(row, block, errors);
                let (messages, b) = (&messages[range.clone()], &mut b[range]);
                inside &= simd::encrypt(messages, errors, mask, scale_log, q, b);
            },
        );
        if inside { Ok(()) } else { Err(TooLarge) }
    }

    /// Decrypts a row of an answer, or a part of it from block `first` on, into `messages`; `a` is in
    /// the NTT domain, `b` holds words without their dropped bits.
    ///
    /// # Errors
    /// When a message lies outside `encoding.low..=encoding.high`.
    pub fn decrypt_row(
        &self,
        first: usize,
        a: &[W],
        b: &[W],
        encoding: &Encoding,
        scratch: &mut Scratch<W>,
        messages: &mut [i32],
    ) -> Result<(), OutOfRange> {
        let mut inside = true;
        let q = self.ring.modulus().value();
        self.with_masks(a, (first, b.len()), scratch, |_, range, mask, _| {
            let (b, messages) = (&b[range.clone()], &mut messages[range]);
            inside &= simd::decrypt(b, mask, encoding, q, messages);
        });
        if inside { Ok(()) } else { Err(OutOfRange) }
    }

    /// Calls `f` with each block of `len` words of a row, from block `first` on: its number, its
    /// words' range, `a * s_block`, and room for errors.
    pub(crate) fn with_masks(
        &self,
        a: &[W],
        (first, len): (usize, usize),
        scratch: &mut Scratch<W>,
        mut f: impl FnMut(usize, Range<usize>, &[W], &mut [i8]),
    ) {
        let n = self.ring.n();
        for (block, start) in (first..).zip((0..len).step_by(n)) {
            let count = n.min(len - start);
            self.mask(block, a, &mut scratch.words);
            let (mask, errors) = (&scratch.words[..count], &mut scratch.errors[..count]);
            f(block, start..start + count, mask, errors);
        }
    }

    /// Calls `f` with `a * s_block` in coefficients, and room for errors.
    pub(crate) fn with_mask(
        &self,
        block: usize,
        a: &[W],
        scratch: &mut Scratch<W>,
        f: impl FnOnce(&[W], &mut [i8]),
    ) {
        self.mask(block, a, &mut scratch.words);
        f(&scratch.words, &mut scratch.errors);
    }

    /// The errors of a block of a row; each block of each row has its own.
    pub(crate) fn draw_errors(&self, row: u64, block: usize, errors: &mut [i8]) {
        let blocks = self.ntt.len() / self.ring.n();
        let stream = row * blocks as u64 + block as u64;
        sample::centred_binomial(&mut self.errors.stream(stream), errors);
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &RlweRing<W> {
        &self.ring
    }

    /// `a * s_block` in coefficients.
    fn mask(&self, block: usize, a: &[W], product: &mut [W]) {
        let range = block * self.ring.n()..(block + 1) * self.ring.n();
        vector::mul_shoup(
            self.ring.modulus(),
            a,
            &self.ntt[range.clone()],
            &self.shoup[range],
            product,
        );
        self.ring.ntt.inverse(product);
    }
}

/// Room for one polynomial and its errors; wiped on drop.
pub struct Scratch<W: Word> {
    words: Vec<W>,
    errors: Vec<i8>,
}

impl<W: Word> Scratch<W> {
    /// Room for polynomials of `ring`.
    pub fn new(ring: &RlweRing<W>) -> Self {
        Self {
            words: vec![W::default(); ring.n()],
            errors: vec![0; ring.n()],
        }
    }
}

impl<W: Word> Drop for Scratch<W> {
    fn drop(&mut self) {
        self.words.zeroize();
        self.errors.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_residues_are_residues() {
        fn check<W: Word>(primes: &[u64]) {
            for &prime in primes {
                let q = Prime::<W>::new(prime).unwrap();
                for value in i8::MIN..=i8::MAX {
                    let wanted = q.from_i64(value.into()).to_u64();
                    assert_eq!(
                        small_residue(&q, value).to_u64(),
                        wanted,
                        "{value} mod {prime}"
                    );
                }
            }
        }
        check::<u32>(&[257, 12_289, 2_147_483_647]);
        check::<u64>(&[257, 12_289, 2_147_483_647, 2_305_843_009_213_693_951]);
    }
}
