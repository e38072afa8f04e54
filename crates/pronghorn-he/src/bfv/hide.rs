//! Function privacy: an answer that gives the owner of the key an additive share of its values, and
//! nothing else.
//!
//! # What is sent
//!
//! To a ciphertext `(b, a)` of `m` the server adds an encryption of zero under the client's
//! [`PublicKey`], and to every coefficient of `b` a mask `r`, uniform modulo `Q`. Then it divides by
//! all primes that are not needed, and drops low bits of `b` and `a` that hold nothing but noise.
//! The client's share is what it decrypts, `round(t (phase + r) / Q)`, the server's is `- round(t r
//! / Q)`, both modulo `t`.
//!
//! # What the client learns
//!
//! Of the answer alone nothing, whatever it has sent: false ciphertexts, with noise of its choice,
//! and false keys. What it gets is a public function of `b' = b + b_pk v + e_0 + r` and
//! `a' = a + a_pk v + e_1`.
//!
//! 1. `b'` is uniform: `r` is, and occurs in nothing else that the client gets.
//! 2. `v` and `e_1` then occur in `a'` alone. `a_pk` comes out of a generator, so `a_pk v + e_1` is
//!    a sample of RLWE under a secret that the client does not have, and `a'` is indistinguishable
//!    from uniform. A client may try many seeds of `a_pk`. The generator stands for a random oracle
//!    there.
//!
//! So a simulator draws both. All answers under one key share `a_pk`: as many samples of RLWE.
//!
//! The server's share is fixed by `r`, and both shares add up to the layer's values. With honest
//! keys a client who learns that sum too, as where a layer's values are opened, learns nothing else:
//! `t r / Q`, rounded, follows from it, and what is left of `r` hides `b'`, up to `t |e| / Q` a
//! coefficient, the probability below.
//!
//! **A false public key breaks that.** Under `b_pk = Q / t - a_pk s` the sum is the layer's values
//! plus `v`. Who learns it takes `a_pk v` off `a'`, and what is left tells the weights.
//! `tests/bfv/answers.rs` does it. So answers hide weights from a malicious client only as long as
//! it does not learn the sum. Semi-honest clients make honest keys.
//!
//! # When shares add up
//!
//! With noise `e` in the phase, `m` comes out where `t r / Q` is further than `t |e| / Q` from the
//! middle between two integers. `r` is uniform, so a coefficient fails with a probability of at most
//! the mean of `2 t |e| / Q`, and that is at most `2 t sigma / Q`, with the standard deviation of
//! `e`. Over all answers of an image the [format](Parameters::answer_format) keeps this below
//! `2^-`[`WRONG_BITS`].
//!
//! The sum over coefficients is easier to bound than one coefficient. Let `e` be an error with
//! independent coefficients of variance `V`, `p_k` plaintexts, and `s_k` different rotations. The
//! terms of `sum_k p_k s_k(e)` depend on each other, but the expected sum of its squares is
//! `N V sum_k |p_k|^2` all the same: on the embeddings, `p_k` is diagonal and `s_k` a permutation
//! without fixed points against the others, so mixed terms have trace zero.
//!
//! # Why not a flood
//!
//! A mask modulo `t` alone, with noise that floods what is below `Q / t`, hides the noise of honest
//! ciphertexts. A client that sends noise of nearly `Q / t` reads the weights bit by bit, of honest
//! keys: `tests/bfv/answers.rs` does it against such a mask.

use std::marker::PhantomData;

use pronghorn_ring::{
    Word,
    random::{Prg, RandomError, Seed},
    sample, vector,
};

use super::{BfvError, Ciphertext, Noise, Parameters, PublicKey, SecretKey};
use crate::{noise, rns::slices, wipe::wipe};

/// All shares of an image's answers add up to the values, but for a probability of `2^-40`.
pub const WRONG_BITS: u32 = 40;

/// The shortening of an answer. It follows from public numbers alone, so both parties compute it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerFormat {
    /// Primes that are left.
    pub limbs: usize,
    /// Low bits dropped from every coefficient of `b`; with one prime only.
    pub dropped_b: u32,
    /// Low bits dropped from every coefficient of `a`; with one prime only.
    pub dropped_a: u32,
}

/// An answer as it is sent: coefficients without their dropped bits.
pub struct Answer<W: Word> {
    pub(super) parameters: Parameters<W>,
    pub(super) format: AnswerFormat,
    /// `[poly][limb][N]`.
    pub(super) words: Vec<W>,
}

/// Everything random that hides a server's answers; one for each run of a linear step, wiped on
/// drop. Rows are the answers of the step; each has its own streams, so they may be hidden in any
/// order and by several threads.
pub struct Hider<W: Word> {
    masks: Prg,
    zeros: Prg,
    word: PhantomData<W>,
}

impl<W: Word> Parameters<W> {
    /// The shortest answer, for images of so many `answers` whose noise is that of `noise` before
    /// they are hidden.
    ///
    /// # Errors
    /// When the noise does not fit the modulus.
    pub fn answer_format(&self, noise: Noise, answers: usize) -> Result<AnswerFormat, BfvError> {
        let hidden = self.hidden(noise).deviation();
        let fit = |limbs: usize| self.fit(limbs, hidden, answers);
        (1..=self.limbs()).find_map(fit).ok_or(BfvError::NoRoom {
            log_noise: hidden.log2(),
            log_room: self.log_fitting(self.limbs(), answers),
        })
    }

    /// The noise of an answer and of its encryption of zero.
    pub(super) fn hidden(&self, noise: Noise) -> Noise {
        noise + Noise::of_public_encryption(self.n())
    }

    /// `log2` of the standard deviation that fits answers of so many primes.
    pub(super) fn log_fitting(&self, limbs: usize, answers: usize) -> f64 {
        let coefficients = (answers.max(1) * self.n()) as f64;
        self.log_room_of(limbs) - f64::from(WRONG_BITS) - coefficients.log2()
    }

    /// With so many primes left, if a noise of this standard deviation then fits.
    fn fit(&self, limbs: usize, hidden: f64, answers: usize) -> Option<AnswerFormat> {
        let divided = limbs < self.limbs();
        let log_divisor = self.log_modulus() - self.ring().log_modulus(limbs);
        // What the division by the other primes rounds: `r_0 + r_1 s`.
        let rounding = if divided {
            self.rounding().deviation()
        } else {
            0.0
        };
        let noise = hidden * (-log_divisor).exp2() + rounding;
        // One part in 2^20 is for what doubles round here.
        let room = self.log_fitting(limbs, answers).exp2() * (1.0 - 20f64.exp2().recip()) - noise;
        if room <= 0.0 {
            return None;
        }
        // Half of the room for `a`, the rest for `b`; a word keeps a bit.
        let widest = self.ring().basis().prime(0).bits() - 1;
        let most = if limbs == 1 { widest } else { 0 };
        let bound_a = |dropped: u32| noise::dropped_a_bound(self.n(), dropped) as f64;
        let bound_b = |dropped: u32| {
            if dropped == 0 {
                0.0
            } else {
                f64::from(dropped - 1).exp2()
            }
        };
        let dropped_a = (0..=most)
            .rev()
            .find(|&dropped| bound_a(dropped) <= room / 2.0)?;
        let rest = room - bound_a(dropped_a);
        let dropped_b = (0..=most).rev().find(|&dropped| bound_b(dropped) <= rest)?;
        Some(AnswerFormat {
            limbs,
            dropped_b,
            dropped_a,
        })
    }

    fn rounding(&self) -> Noise {
        Noise {
            variance: (self.n() as f64 + 1.0) / 12.0,
        }
    }
}

impl AnswerFormat {
    /// The field that is impossible with these parameters, its value and the most it may be.
    pub(super) fn check<W: Word>(
        &self,
        parameters: &Parameters<W>,
    ) -> Result<(), (&'static str, u64, u64)> {
        let limbs = parameters.limbs() as u64;
        if !(1..=limbs).contains(&(self.limbs as u64)) {
            return Err(("the number of primes left", self.limbs as u64, limbs));
        }
        let width = parameters.ring().basis().prime(0).bits() - 1;
        let most = if self.limbs == 1 { width } else { 0 };
        let fields = [
            ("the bits dropped of b", self.dropped_b, most),
            ("the bits dropped of a", self.dropped_a, most),
        ];
        match fields.into_iter().find(|(_, found, most)| found > most) {
            Some((field, found, most)) => Err((field, found.into(), most.into())),
            None => Ok(()),
        }
    }

    /// Bits on the wire of a coefficient of `b` and of `a`, in one limb.
    pub(super) fn widths<W: Word>(&self, parameters: &Parameters<W>, limb: usize) -> [u32; 2] {
        let bits = parameters.ring().basis().prime(limb).bits();
        [bits - self.dropped_b, bits - self.dropped_a]
    }
}

impl<W: Word> Hider<W> {
    /// From a fresh seed of the system.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> Result<Self, RandomError> {
        Ok(Self::new(&Seed::from_os()?))
    }

    /// From a secret seed that nothing else uses.
    pub fn new(seed: &Seed) -> Self {
        Self {
            masks: Prg::new(seed, "pronghorn 2026 BFV answers: masks"),
            zeros: Prg::new(seed, "pronghorn 2026 BFV answers: encryptions of zero"),
            word: PhantomData,
        }
    }

    /// The server's shares of answer `row`, one a slot, in `-t/2 .. t/2`: with what the client
    /// decrypts they add up to the values modulo `t`. They are known before anything of the
    /// client's is.
    pub fn shares(&self, parameters: &Parameters<W>, row: u64) -> Vec<i32> {
        let mut mask = self.mask(parameters, row);
        parameters.scale(&mut mask);
        let plain = parameters.unscale(&mask);
        wipe(&mut mask);
        let mut shares = parameters
            .decode(&plain)
            .expect("the mask is of these parameters");
        // -t/2 is no value, as t is odd.
        shares.iter_mut().for_each(|share| *share = -*share);
        shares
    }

    /// Uniform modulo `Q` in every coefficient, `[limb][N]`.
    fn mask(&self, parameters: &Parameters<W>, row: u64) -> Vec<W> {
        let (limbs, n) = (parameters.limbs(), parameters.n());
        let (mut words, mut stream) = (vec![W::default(); limbs * n], self.masks.stream(row));
        let primes = parameters.ring().basis().primes();
        for (q, limb) in primes.zip(words.chunks_exact_mut(n)) {
            sample::uniform_secret(&mut stream, q, limb);
        }
        words
    }

    /// Hides a ciphertext as answer `row`, which is done once for each row of a hider. See the
    /// [module](self) for what that hides. Shares add up where the noise of `ciphertext` is what
    /// `format` was made for. Constant time. Four NTTs a limb for the mask and the encryption of
    /// zero, and two to shorten.
    ///
    /// # Errors
    /// When parameters differ, there is no such row, or the format does not fit the parameters.
    pub fn hide(
        &self,
        row: u64,
        ciphertext: &Ciphertext<W>,
        key: &PublicKey<W>,
        format: &AnswerFormat,
    ) -> Result<Answer<W>, BfvError> {
        let parameters = ciphertext.parameters();
        parameters.ring().same(key.parameters().ring())?;
        if row >> 32 != 0 {
            return Err(BfvError::Row { row });
        }
        if let Err((field, found, limit)) = format.check(parameters) {
            return Err(BfvError::Shape {
                field,
                found: found as usize,
                limit: limit as usize,
            });
        }
        let mut hidden = ciphertext.clone();
        self.add_mask(row, &mut hidden);
        key.key.add_zero(
            parameters.limbs(),
            hidden.words_mut(),
            &mut self.zeros.stream(row),
        );
        Ok(Answer {
            words: shorten(&hidden, format),
            parameters: parameters.clone(),
            format: *format,
        })
    }

    fn add_mask(&self, row: u64, hidden: &mut Ciphertext<W>) {
        let parameters = hidden.parameters().clone();
        let (basis, n) = (parameters.ring().basis(), parameters.n());
        let mut mask = self.mask(&parameters, row);
        let b = hidden.words_mut().chunks_exact_mut(n);
        for (limb, (mask, b)) in mask.chunks_exact_mut(n).zip(b).enumerate() {
            basis.ntt(limb).forward(mask);
            vector::add_assign(basis.prime(limb), b, mask);
        }
        wipe(&mut mask);
    }
}

/// Divides by the primes that go, and drops low bits of the coefficients.
fn shorten<W: Word>(hidden: &Ciphertext<W>, format: &AnswerFormat) -> Vec<W> {
    let (parameters, n) = (hidden.parameters(), hidden.parameters().n());
    let (limbs, kept) = (parameters.limbs(), format.limbs);
    let mut words = vec![W::default(); 2 * kept * n];
    slices::rescale(
        parameters.ring(),
        limbs,
        limbs - kept,
        hidden.words(),
        &mut words,
    );
    let polys = words
        .chunks_exact_mut(kept * n)
        .zip([format.dropped_b, format.dropped_a]);
    for (poly, dropped) in polys {
        parameters.ring().basis().inverse(poly);
        poly.iter_mut().for_each(|word| *word = *word >> dropped);
    }
    words
}

impl<W: Word> Answer<W> {
    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// Its format.
    pub fn format(&self) -> &AnswerFormat {
        &self.format
    }

    /// `[poly][limb][N]` in coefficients, with the middle of the range in place of bits that were
    /// dropped.
    fn restored(&self) -> Vec<W> {
        let (n, kept) = (self.parameters.n(), self.format.limbs);
        let mut words = self.words.clone();
        let dropped = [self.format.dropped_b, self.format.dropped_a];
        for (poly, dropped) in words.chunks_exact_mut(kept * n).zip(dropped) {
            if dropped == 0 {
                continue;
            }
            let middle = W::from_u64(1 << (dropped - 1));
            for (q, limb) in self
                .parameters
                .ring()
                .basis()
                .primes()
                .zip(poly.chunks_exact_mut(n))
            {
                limb.iter_mut()
                    .for_each(|word| *word = q.reduce_once((*word << dropped) | middle));
            }
        }
        words
    }
}

impl<W: Word> SecretKey<W> {
    /// The client's shares of an answer, one a slot, in `-t/2 .. t/2`. Two NTTs a limb and two
    /// modulo `t`. Constant time.
    ///
    /// # Errors
    /// When the answer is of other parameters.
    pub fn decrypt_answer(&self, answer: &Answer<W>) -> Result<Vec<i32>, BfvError> {
        let mut digits = self.answer_digits(answer)?;
        let plain = self.parameters().unscale(&digits);
        wipe(&mut digits);
        self.parameters().decode(&plain)
    }

    /// The noise of every coefficient of an answer, in units of `1` modulo the primes that are
    /// left: which is uniform under the mask.
    ///
    /// # Errors
    /// When the answer is of other parameters.
    pub fn answer_noise(&self, answer: &Answer<W>) -> Result<Vec<f64>, BfvError> {
        Ok(self
            .parameters()
            .noise_of_digits(&self.answer_digits(answer)?))
    }

    fn answer_digits(&self, answer: &Answer<W>) -> Result<Vec<W>, BfvError> {
        let parameters = self.parameters();
        parameters.ring().same(answer.parameters.ring())?;
        let (basis, n, kept) = (
            parameters.ring().basis(),
            parameters.n(),
            answer.format.limbs,
        );
        let mut words = answer.restored();
        let (b, a) = words.split_at_mut(kept * n);
        basis.forward(a);
        let mut phase = vec![W::default(); kept * n];
        for (limb, (phase, (b, a))) in phase
            .chunks_exact_mut(n)
            .zip(b.chunks_exact(n).zip(a.chunks_exact(n)))
            .enumerate()
        {
            self.inner().secret().multiply(limb, a, phase);
            basis.ntt(limb).inverse(phase);
            vector::add_assign(basis.prime(limb), phase, b);
        }
        self.parameters().scale(&mut phase);
        Ok(phase)
    }
}
