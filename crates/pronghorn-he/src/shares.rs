//! Additive shares in the coefficients of RLWE: messages modulo a power of two, answers that hide
//! everything but their value.
//!
//! A share `m` modulo `2^bits` sits in a word as `round(q m / 2^bits)`, so that what wraps around
//! `2^bits` wraps around `q`, and both parties' shares may be encoded each on its own. The server
//! of a linear step adds to its answer
//!
//! * an encryption of zero under the client's [`PublicKey`], so that `a' = W a + a_0 u + e` is a
//!   sample of RLWE with the secret `u` and tells the client, who knows every `a`, nothing of `W`;
//! * a mask that is uniform modulo `q` on every coefficient of `b'` that it sends, so that neither
//!   value nor noise show.
//!
//! # Publishing `a'`
//!
//! `a'` depends on the client's `a` and `a_0`, which are public, and on the server's `W`, `u` and
//! `e`, on no input. So one `a'` serves any number of batches, as long as the client takes a fresh
//! secret `s` for each, and the server adds `b_0 u` with the same `u` ([`Rerandomiser`]) and a
//! fresh mask ([`Hider`]) to each answer:
//!
//! * The client sees `a'`, one RLWE sample a row, and for every batch words that the masks make
//!   uniform and independent of all else.
//! * The server sees, for every batch, samples under that batch's secret with the same `a` in all:
//!   RLWE with one `a` for many secrets (Peikert, Vaikuntanathan, Waters, CRYPTO 2008), which costs
//!   a factor of as many secrets in the advantage, as blocks of one batch do. So who uses this
//!   bounds their number, and keeps as many bits of security above 128.
//! * A malicious client that sends a `b_0` which is no RLWE sample has coefficients of `b_0 u` in
//!   its sums. What it learns of them through results adds up over all batches with this `u`, and
//!   with `u` it has the row of `W`: the number of images it may ask for is what limits that.
//! * The noise of an answer, `W e + e_0 u + e s`, has the size it has with a fresh `u`. The parties
//!   never compare notes on it: the shares' errors end within the next protocol. Dithered rounding
//!   is the exception: errors move few of its values, and nothing is proven of `u` then
//!   (`docs/trust-and-security.md`).
//!
//! The shares of the answer are what each party rounds its word to, with `guard` bits below the
//! unit: `2^guard y + delta` modulo `2^(bits + guard)`, where `|delta| <= 1` as long as the noise
//! is below [`ShareEncoding::noise_room`]. The next protocol drops the guard bits inside, where
//! nobody sees them, and what comes out is exact. With a dither each party drops its own.

use pronghorn_ring::{
    Prime, Word,
    random::{Prg, Seed, Stream},
    sample, vector,
};
use zeroize::{Zeroize, Zeroizing};

use crate::{
    noise,
    rlwe::{self, RlweRing, Scratch, SecretKey},
};

/// The encoding of shares in words modulo `q`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareEncoding {
    modulus: u64,
    bits: u32,
    guard: u32,
    /// `round(2^(64 + bits + guard) / q)`.
    inverse: u64,
}

impl ShareEncoding {
    /// Shares modulo `2^bits`, answers with `guard` bits more. `None` unless `bits + guard <= 32`
    /// and `2^(bits + guard + 1) <= q < 2^60`.
    pub fn new(modulus: u64, bits: u32, guard: u32) -> Option<Self> {
        let width = bits
            .checked_add(guard)
            .filter(|&width| bits > 0 && width <= 32)?;
        if modulus >> 60 != 0 || modulus >> (width + 1) == 0 {
            return None;
        }
        let inverse =
            (((1u128 << (64 + width)) + u128::from(modulus / 2)) / u128::from(modulus)) as u64;
        Some(Self {
            modulus,
            bits,
            guard,
            inverse,
        })
    }

    /// Noise of an answer's coefficient must stay below this: with the rounding of both shares,
    /// half a unit each, and that of [`ShareEncoding::decode`], the error is then below two units,
    /// so at most one.
    pub fn noise_room(&self) -> u64 {
        // A unit less 1/16, twice what `decode` is off by beyond a half.
        let unit = self.modulus >> (self.bits + self.guard);
        unit - unit.div_ceil(16)
    }

    /// `round(q m / 2^bits)` for the low bits of a share: off by at most half.
    #[inline]
    pub fn encode(&self, share: i32) -> u64 {
        let share = u64::from(share as u32) & (u64::MAX >> (64 - self.bits));
        let product = u128::from(self.modulus) * u128::from(share);
        ((product + (1u128 << self.bits >> 1)) >> self.bits) as u64
    }

    /// `round(2^(bits + guard) word / q)` modulo `2^32`, for a residue: off by at most
    /// `1/2 + 2^-5`.
    #[inline]
    pub fn decode(&self, word: u64) -> i32 {
        let product = u128::from(word) * u128::from(self.inverse);
        ((product + (1 << 63)) >> 64) as u32 as i32
    }
}

/// Bound on the noise that a re-randomised answer has beyond the layer's own: `e_0 u + e s`, each a
/// product with `n` ternary coefficients, exceeded with probability at most `2^-63`.
pub fn zero_bound(n: usize) -> u64 {
    2 * noise::linear_bound(n as f64, (n as f64).sqrt())
}

impl<W: Word> SecretKey<W> {
    /// [`SecretKey::encrypt_row`] for shares.
    pub fn encrypt_shares(
        &self,
        row: u64,
        a: &[W],
        shares: &[i32],
        encoding: &ShareEncoding,
        scratch: &mut Scratch<W>,
        b: &mut [W],
    ) {
        let encode = |share: &i32| W::from_u64(encoding.encode(*share));
        self.encrypt_words(row, a, shares.iter().map(encode), scratch, b);
    }

    /// The client's public key: encryptions of zero in all coefficients of all blocks, as row
    /// `row`.
    pub fn encrypt_zeros(&self, row: u64, a: &[W], scratch: &mut Scratch<W>, b: &mut [W]) {
        self.encrypt_words(row, a, std::iter::repeat(W::default()), scratch, b);
    }

    /// `b = word + e - a s`, for residues.
    fn encrypt_words(
        &self,
        row: u64,
        a: &[W],
        mut words: impl Iterator<Item = W>,
        scratch: &mut Scratch<W>,
        b: &mut [W],
    ) {
        let q = self.ring().modulus();
        self.with_masks(a, (0, b.len()), scratch, |block, range, mask, errors| {
            self.draw_errors(row, block, errors);
            let noise = errors.iter().zip(mask);
            for ((b, (&error, &mask)), word) in b[range].iter_mut().zip(noise).zip(&mut words) {
                *b = q.add(word, q.sub(rlwe::small_residue(q, error), mask));
            }
        });
    }

    /// [`SecretKey::encrypt_shares`] in some coefficients of each block only: `shares` and `b` are
    /// `[block][position]`, and the other coefficients are neither made nor sent.
    #[expect(
        clippy::too_many_arguments,
        reason = "rows and blocks of sparse polynomials"
    )]
    pub fn encrypt_shares_at(
        &self,
        row: u64,
        a: &[W],
        positions: &[u32],
        shares: &[i32],
        encoding: &ShareEncoding,
        scratch: &mut Scratch<W>,
        b: &mut [W],
    ) {
        let (q, count) = (self.ring().modulus(), positions.len());
        let blocks = shares.chunks_exact(count).zip(b.chunks_exact_mut(count));
        for (block, (shares, b)) in blocks.enumerate() {
            self.with_mask(block, a, scratch, |mask, errors| {
                let errors = &mut errors[..count];
                self.draw_errors(row, block, errors);
                let sites = positions.iter().zip(errors).zip(shares);
                for (b, ((&position, error), &share)) in b.iter_mut().zip(sites) {
                    let word = W::from_u64(encoding.encode(share));
                    let noise = rlwe::small_residue(q, *error);
                    *b = q.add(word, q.sub(noise, mask[position as usize]));
                }
            });
        }
    }

    /// [`SecretKey::decrypt_shares`] of some coefficients of each block only, `[block][position]`.
    #[expect(
        clippy::too_many_arguments,
        reason = "rows and blocks of sparse polynomials"
    )]
    pub fn decrypt_shares_at(
        &self,
        a: &[W],
        positions: &[u32],
        b: &[W],
        dropped: u32,
        encoding: &ShareEncoding,
        scratch: &mut Scratch<W>,
        shares: &mut [i32],
    ) {
        let (q, count) = (self.ring().modulus(), positions.len());
        let middle = (1u64 << dropped) >> 1;
        let blocks = b.chunks_exact(count).zip(shares.chunks_exact_mut(count));
        for (block, (b, shares)) in blocks.enumerate() {
            self.with_mask(block, a, scratch, |mask, _| {
                for (share, (&position, &b)) in shares.iter_mut().zip(positions.iter().zip(b)) {
                    let high = q.reduce_once(W::from_u64((b.to_u64() << dropped) + middle));
                    *share = encoding.decode(q.add(high, mask[position as usize]).to_u64());
                }
            });
        }
    }

    /// The client's shares of an answer, with their guard bits; `b` holds words without `dropped`
    /// low bits.
    pub fn decrypt_shares(
        &self,
        a: &[W],
        b: &[W],
        dropped: u32,
        encoding: &ShareEncoding,
        scratch: &mut Scratch<W>,
        shares: &mut [i32],
    ) {
        let (q, middle) = (self.ring().modulus(), (1u64 << dropped) >> 1);
        self.with_masks(a, (0, b.len()), scratch, |_, range, mask, _| {
            let words = b[range.clone()].iter().zip(mask);
            for (share, (&b, &mask)) in shares[range].iter_mut().zip(words) {
                let high = q.reduce_once(W::from_u64((b.to_u64() << dropped) + middle));
                *share = encoding.decode(q.add(high, mask).to_u64());
            }
        });
    }
}

/// Encryptions of zero under the client's secrets, one a block, all with the same `a_0`.
pub struct PublicKey<W: Word> {
    ring: RlweRing<W>,
    /// In the NTT domain.
    a: Vec<W>,
    /// In the NTT domain, block after block.
    b: Vec<W>,
}

impl<W: Word> PublicKey<W> {
    /// From its row: `a` in the NTT domain, `b` in coefficients, whole blocks of residues.
    pub fn new(ring: &RlweRing<W>, a: Vec<W>, mut b: Vec<W>) -> Self {
        b.chunks_exact_mut(ring.n())
            .for_each(|block| ring.ntt().forward(block));
        let ring = ring.clone();
        Self { ring, a, b }
    }

    /// `b_0 u` of each block for the secret `u` of a row ([`Rerandomiser::secrets`]), in
    /// coefficients: what an answer whose `a` was [re-randomised](Rerandomiser::rerandomise) is to
    /// be added to.
    pub fn zeros(
        &self,
        secret: &[W],
        scratch: &mut HideScratch<W>,
        mut f: impl FnMut(usize, &[W]),
    ) {
        let (n, q) = (self.ring.n(), self.ring.modulus());
        for (block, public) in self.b.chunks_exact(n).enumerate() {
            vector::mul(q, public, secret, &mut scratch.product);
            self.ring.ntt().inverse(&mut scratch.product);
            f(block, &scratch.product);
        }
    }
}

/// The server's randomness that hides a layer in its `a'`: of each row a ternary secret and an
/// error. For one client's `a`, and all batches that use them. Wiped on drop, no Debug.
pub struct Rerandomiser {
    secrets: Prg,
    errors: Prg,
}

impl Rerandomiser {
    /// From a seed that serves no other layer and no other `a`.
    pub fn new(seed: &Seed) -> Self {
        Self {
            secrets: Prg::new(seed, "pronghorn 2026 answers: ternary secrets"),
            errors: Prg::new(seed, "pronghorn 2026 answers: errors"),
        }
    }

    /// The secrets `u` of rows `first..`, as many as there is room for, in the NTT domain.
    pub fn secrets<W: Word>(&self, ring: &RlweRing<W>, first: u64, secrets: &mut [W]) {
        let mut small = Zeroizing::new(vec![0; ring.n()]);
        for (row, secret) in secrets.chunks_exact_mut(ring.n()).enumerate() {
            sample::ternary(&mut self.secrets.stream(first + row as u64), &mut small);
            transform(ring, &small, secret);
        }
    }

    /// The secret `u` of a row, in the NTT domain, to `scratch`.
    fn secret<W: Word>(&self, ring: &RlweRing<W>, row: u64, scratch: &mut HideScratch<W>) {
        let HideScratch { small, secret, .. } = scratch;
        sample::ternary(&mut self.secrets.stream(row), small);
        transform(ring, small, secret);
    }

    /// Hides row `row` of a layer: `a += a_0 u + e`, all in the NTT domain. Always to the same
    /// words, for the same `a_0`. Leaves `u` in `scratch`.
    pub fn rerandomise<W: Word>(
        &self,
        ring: &RlweRing<W>,
        row: u64,
        a_0: &[W],
        scratch: &mut HideScratch<W>,
        a: &mut [W],
    ) {
        self.secret(ring, row, scratch);
        self.hide_a(ring, row, a_0, scratch, a);
    }

    /// [`Rerandomiser::rerandomise`] with the secret that is in `scratch`.
    fn hide_a<W: Word>(
        &self,
        ring: &RlweRing<W>,
        row: u64,
        a_0: &[W],
        scratch: &mut HideScratch<W>,
        a: &mut [W],
    ) {
        let HideScratch {
            small,
            secret,
            product,
            ..
        } = scratch;
        sample::centred_binomial(&mut self.errors.stream(row), small);
        transform(ring, small, product);
        vector::add_assign(ring.modulus(), a, product);
        vector::mul_add_assign(ring.modulus(), a, secret, a_0);
    }
}

/// Small coefficients in the NTT domain.
fn transform<W: Word>(ring: &RlweRing<W>, small: &[i8], words: &mut [W]) {
    for (word, &value) in words.iter_mut().zip(small) {
        *word = rlwe::small_residue(ring.modulus(), value);
    }
    ring.ntt().forward(words);
}

/// The server's masks for the answers of one linear step of one batch. Wiped on drop, no Debug.
pub struct Hider {
    masks: Prg,
}

impl Hider {
    /// From a fresh seed.
    pub fn new(seed: &Seed) -> Self {
        Self {
            masks: Prg::new(seed, "pronghorn 2026 answers: masks"),
        }
    }

    /// Hides part `row` of an answer behind uniform masks: `b += masks`, and the server's shares
    /// that they leave.
    pub fn mask<W: Word>(
        &self,
        ring: &RlweRing<W>,
        encoding: &ShareEncoding,
        row: u64,
        b: &mut [W],
        shares: &mut [i32],
    ) {
        let mut masks = Zeroizing::new(vec![W::default(); b.len()]);
        let mut stream = self.masks.stream(row);
        draw_masks(&mut stream, ring.modulus(), encoding, &mut masks, shares);
        vector::add_assign(ring.modulus(), b, &masks);
    }

    /// The server's shares of all rows of an answer, `[row][image]`, which [`Hiding::hide`] gives
    /// again: they are known before anything of the client's is.
    pub fn shares<W: Word>(
        &self,
        ring: &RlweRing<W>,
        encoding: &ShareEncoding,
        images: usize,
        shares: &mut [i32],
    ) {
        let mut masks = Zeroizing::new(vec![W::default(); ring.n()]);
        for (row, shares) in shares.chunks_mut(images).enumerate() {
            let mut stream = self.masks.stream(row as u64);
            for shares in shares.chunks_mut(ring.n()) {
                let masks = &mut masks[..shares.len()];
                draw_masks(&mut stream, ring.modulus(), encoding, masks, shares);
            }
        }
    }
}

/// Masks of a block, and the server's shares that they leave.
fn draw_masks<W: Word>(
    stream: &mut Stream,
    q: &Prime<W>,
    encoding: &ShareEncoding,
    masks: &mut [W],
    shares: &mut [i32],
) {
    sample::uniform_secret(stream, q, masks);
    for (share, mask) in shares.iter_mut().zip(masks) {
        *share = encoding.decode(mask.to_u64()).wrapping_neg();
    }
}

/// Hides the answers of one linear step of one batch.
#[derive(Clone, Copy)]
pub struct Hiding<'a, W: Word> {
    /// The client's.
    pub key: &'a PublicKey<W>,
    /// The server's, for the client's `a`.
    pub rerandomiser: &'a Rerandomiser,
    /// The server's, for this batch.
    pub hider: &'a Hider,
    /// The encoding of shares in the answer's words.
    pub encoding: ShareEncoding,
}

impl<W: Word> Hiding<'_, W> {
    /// Re-randomises row `row` of an answer and hides its `b` behind a uniform mask, the negative
    /// of which is the server's share, with guard bits. A row is hidden once for each [`Hider`],
    /// and its `a` once for each [`Rerandomiser`], or again to the same words: none where it was
    /// published before.
    ///
    /// `a` is in the NTT domain, `b` in coefficients, of which the last block may be short.
    /// Cost: one forward NTT, one more for `a`, one inverse NTT a block.
    pub fn hide(
        &self,
        row: u64,
        scratch: &mut HideScratch<W>,
        a: Option<&mut [W]>,
        b: &mut [W],
        shares: &mut [i32],
    ) {
        let Self {
            key,
            rerandomiser,
            hider,
            encoding,
        } = self;
        let (n, q) = (key.ring.n(), key.ring.modulus());
        rerandomiser.secret(&key.ring, row, scratch);
        if let Some(a) = a {
            rerandomiser.hide_a(&key.ring, row, &key.a, scratch, a);
        }
        let HideScratch {
            secret,
            product,
            masks,
            ..
        } = scratch;
        let mut stream = hider.masks.stream(row);
        for ((public, b), shares) in key
            .b
            .chunks_exact(n)
            .zip(b.chunks_mut(n))
            .zip(shares.chunks_mut(n))
        {
            vector::mul(q, public, secret, product);
            key.ring.ntt().inverse(product);
            let masks = &mut masks[..b.len()];
            draw_masks(&mut stream, q, encoding, masks, shares);
            for (b, (&mask, &zero)) in b.iter_mut().zip(masks.iter().zip(&*product)) {
                *b = q.add(*b, q.add(zero, mask));
            }
        }
    }
}

/// Room for [`Hiding::hide`]; wiped on drop.
pub struct HideScratch<W: Word> {
    small: Zeroizing<Vec<i8>>,
    secret: Vec<W>,
    product: Vec<W>,
    masks: Vec<W>,
}

impl<W: Word> HideScratch<W> {
    /// Room for polynomials of `ring`.
    pub fn new(ring: &RlweRing<W>) -> Self {
        let words = || vec![W::default(); ring.n()];
        Self {
            small: Zeroizing::new(vec![0; ring.n()]),
            secret: words(),
            product: words(),
            masks: words(),
        }
    }
}

impl<W: Word> Drop for HideScratch<W> {
    fn drop(&mut self) {
        for words in [&mut self.secret, &mut self.product, &mut self.masks] {
            words.zeroize();
        }
    }
}
