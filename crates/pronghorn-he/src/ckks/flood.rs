//! Function privacy: a result that tells the owner of the key its values, and nothing else.

use pronghorn_ring::{Word, random::Stream, rns::Integers, vector};

use super::{Ciphertext, CkksError};
use crate::{
    rns::{PublicKey, slices},
    wipe::wipe,
};

impl<W: Word> PublicKey<W> {
    /// Makes a ciphertext of `k + 1` polynomials safe to send back to the owner of the key: adds to
    /// the polynomials `i - 1` and `i` a fresh encryption of zero, for `i = 1 ..= k`, and to
    /// polynomial 0 a [flood](crate::flood) of reach `2^log_reach` in every coefficient.
    /// [`Noise::flood_reach`](super::Noise::flood_reach) gives `log_reach`,
    /// [`Noise::of_flood`](super::Noise::of_flood) the noise this adds.
    ///
    /// # What the owner learns
    ///
    /// Let the result be `c_0 ... c_k`, decrypting to `m + e`: `m` is what the values alone say,
    /// and `e`, whose power is that of the noise, depends on everything the server did. The
    /// view is `c'_1 ... c'_k` and the phase `d = sum_i c'_i s^i` (`c'_0` follows from these). A
    /// simulator that knows `m` draws `c'_i` uniformly and `d = m + u` with the flood `u`.
    /// This is why it succeeds:
    ///
    /// 1. `d = m + e + z + u`, `z` being the noises of the encryptions of zero. All `e + z + u`
    ///    under a key are within the statistical distance of equation (2) of [`crate::flood`] of
    ///    `u`, whatever inputs the owner chooses on the way, within the noise that it is made for.
    ///    So `d` may be replaced by `m + u`, independent of the masks and errors.
    /// 2. `c'_1 = c_1 + a v_1 + e_1 + (terms of v_2)`. `v_1` and `e_1` now occur nowhere else, and
    ///    `a` is uniform: `a v_1 + e_1` is an RLWE sample under a secret that the owner does not
    ///    have, so `c'_1` is indistinguishable from uniform. With it the terms of `v_2` in `c'_1`
    ///    are gone, and the same goes for `c'_2`, up to `c'_k`: `k` steps, each RLWE with the same
    ///    `a` and a fresh secret.
    ///
    /// It holds against an owner who follows the protocol. `a` comes out of a seed by a random
    /// function, so no owner can choose it, but a `b` that is no RLWE sample can reveal the masks.
    /// Scale and number of limbs and polynomials are not hidden.
    ///
    /// Constant time. Three NTTs a limb for each power of the secret, and one.
    ///
    /// # Errors
    /// When the ciphertext is of other parameters or has more limbs than the key, or the noise does
    /// not fit its modulus.
    pub fn flood(
        &self,
        ciphertext: &mut Ciphertext<W>,
        log_reach: u32,
        random: &mut Stream,
    ) -> Result<(), CkksError> {
        self.parameters().same(ciphertext.parameters())?;
        let limbs = ciphertext.limbs();
        self.flood_words(limbs, ciphertext.data_mut(), log_reach, random)
    }

    /// [`flood`](Self::flood) on words `[poly][limb][N]`.
    ///
    /// # Errors
    /// When there are more limbs than the key has, or the noise does not fit the modulus; nothing
    /// was added then.
    ///
    /// # Panics
    /// Unless `x` is whole polynomials of `limbs` limbs.
    pub fn flood_words(
        &self,
        limbs: usize,
        x: &mut [W],
        log_reach: u32,
        random: &mut Stream,
    ) -> Result<(), CkksError> {
        let (parameters, n) = (self.parameters(), self.parameters().n());
        self.check_limbs(limbs)?;
        let log_modulus = parameters.log_modulus(limbs);
        if f64::from(log_reach) + 2.0 > log_modulus {
            return Err(CkksError::Flood {
                log_reach,
                log_modulus,
            });
        }
        let flood = Integers::sums_of_uniforms(parameters.basis(), log_reach, n, random);
        let (mut words, mut room) = (vec![W::default(); n], vec![W::default(); n]);
        for (limb, x) in slices::each_limb(parameters, limbs, x).take(limbs) {
            let q = parameters.basis().prime(limb);
            flood.residues(q, &mut words, &mut room);
            parameters.basis().ntt(limb).forward(&mut words);
            vector::add_assign(q, x, &words);
        }
        wipe(&mut words);
        wipe(&mut room);
        let poly = limbs * n;
        for i in 1..x.len() / poly {
            self.add_zero(limbs, &mut x[(i - 1) * poly..(i + 1) * poly], random);
        }
        Ok(())
    }
}
