//! Keys of a pair of parties, which one of them makes; and fresh polynomials under a key.
//!
//! Keys for products of two parties' secrets come from both in ePrint 2019/524: `b` of one and `D`
//! of the other. Either can be false. A product `x w` of a ciphertext of the party that made false
//! keys and one of another party, `w = (w_0, w_1)` with secret `s`, then holds `x_1 w_1 s` or `x_1
//! w_1 r` times a factor of the first one's choice, beside the product (`multikey/attacks.rs`). So
//! a few results tell `s`.
//!
//! A [`PairKey`] is made by the owner of `w` alone, from its secret `s` and the encryption key `(b,
//! a)` of the other party: for each digit, with fresh `v`, `e_0` and `e_1`,
//!
//! ```text
//! k_0 = b v + e_0,   k_1 = a v + e_1 + s g,   so   k_0 + k_1 s' = s s' g + e' v + e_0 + e_1 s'
//! ```
//!
//! for an honest `b = e' - a s'`. For everyone but the other party it is an encryption under that
//! party's key. Where the other party does not see it, `v` hides `s` from that one as well.
//!
//! # Why false keys tell nothing of `s`
//!
//! Let the other party (a client) choose all its keys. For each value let `y = c_0 + c_1 s` and
//! `z = c_2`, of polynomials `(c_0, c_1, c_2)` of everyone, the maker (the owner) and the client. An
//! honest evaluator does the following to them.
//!
//! * A product with weights of message `m` gives `m (y, z) + <T, (b v + e_0, a v + e_1)> / P`, `T`
//!   being the digits of `z w_1`. A square gives `(y^2, 2 y z)` with such a term. Neither holds
//!   `s`.
//! * Keys of the owner add noise of honest size, whatever they are applied to.
//! * Keys of the client, for rotations and from `s'^2`, add a function of `z` to `y`, and make `z`
//!   another function of `z`. They never meet `s`.
//!
//! The result is re-randomised under both keys. If `b + a s'` is not short for any short `s'`, then
//! nothing of `(y, z)` is left in it, by RLWE. Otherwise `y + z s'` is left, for that `s'`. The
//! client's false keys add to it some `<digits of z, D> / P`, `D` being what they differ by. The
//! evaluator makes
//! `z` fresh before the client's keys meet it ([`Ciphertext::refreshed`](super::Ciphertext::refreshed)):
//! then `z` is pseudorandom, and what is added is noise of a law that the client chose, without the
//! model in it and without `s`. Such a client is where one is that encrypts values out of range:
//! floods do not cover noise that such values multiply. The argument is on paper, and assumes RLWE
//! and an evaluator that does not help the client.

use pronghorn_ring::{Word, random::Stream};

use super::{
    Common, Extended, MultiKeyError, Party, SecretKey,
    gadget::{Place, Quotients, Sums},
    keys::name,
};
use crate::{
    rns::{PublicKey, keys::add_gadget},
    wipe::wipe,
};

/// A key for products of the secrets of two parties, which one of them made
/// ([`SecretKey::pair_key`]). For the evaluator alone: the party that it is under must not see it.
#[derive(Clone)]
pub struct PairKey<W: Word> {
    common: Common<W>,
    parties: [Party; 2],
    /// `[digit][limb][N]` each.
    halves: [Vec<W>; 2],
}

impl<W: Word> PairKey<W> {
    pub(super) fn from_parts(common: &Common<W>, parties: [Party; 2], halves: [Vec<W>; 2]) -> Self {
        Self {
            common: common.clone(),
            parties,
            halves,
        }
    }

    /// The common reference string.
    pub fn common(&self) -> &Common<W> {
        &self.common
    }

    /// The party that made it, and the party that it is under.
    pub fn parties(&self) -> [Party; 2] {
        self.parties
    }

    /// The party that it is under.
    pub fn under(&self) -> Party {
        self.parties[1]
    }

    pub(super) fn halves(&self) -> [&[W]; 2] {
        self.halves.each_ref().map(Vec::as_slice)
    }
}

impl<W: Word> SecretKey<W> {
    /// The key of this party and the owner of an encryption key, with fresh randomness. A digit
    /// costs 3 NTTs for each prime.
    ///
    /// # Errors
    /// When the encryption key is of another common reference string or this party's, has not all
    /// limbs, or the system has no randomness.
    pub fn pair_key(&self, other: &PublicKey<W>) -> Result<PairKey<W>, MultiKeyError> {
        let (common, ring) = (self.common(), self.common().ring());
        let (n, all) = (ring.n(), ring.basis().limbs());
        ring.same(other.parameters())?;
        other.check_limbs(all)?;
        let under = name(common, other);
        if other.seed() != common.seed() || under == self.party() {
            return Err(MultiKeyError::Common);
        }
        let random = &mut super::decryption::fresh_stream()?;
        let mut halves = [Vec::new(), Vec::new()];
        for piece in ring.pieces() {
            let mut zero = vec![W::default(); 2 * all * n];
            other.add_zero(all, &mut zero, random);
            let (first, second) = zero.split_at_mut(all * n);
            add_gadget(ring, piece, second, &self.secret().words);
            halves[0].extend_from_slice(first);
            halves[1].extend_from_slice(second);
        }
        let parties = [self.party(), under];
        Ok(PairKey::from_parts(common, parties, halves))
    }
}

impl<W: Word> Extended<W> {
    /// The same value with a fresh polynomial of `party`, by an encryption of zero under its key,
    /// modulo all primes and divided by the special ones. So what is added is as small as a
    /// rounding.
    pub(super) fn refreshed(
        &self,
        party: Party,
        key: &PublicKey<W>,
        random: &mut Stream,
    ) -> Result<Self, MultiKeyError> {
        let (common, limbs) = (self.common(), self.limbs());
        let (ring, n) = (common.ring(), common.ring().n());
        let index = self.parties().binary_search(&party);
        let index = index.map_err(|_| MultiKeyError::NotAParty { party })? + 1;
        key.check_limbs(ring.basis().limbs())?;
        let places: Vec<usize> = (0..limbs)
            .chain(ring.limbs()..ring.basis().limbs())
            .collect();
        let mut zero = vec![W::default(); 2 * places.len() * n];
        key.add_zero_in(&places, &mut zero, random);
        let mut sums = Sums::new(ring, limbs, 2);
        let put = |place: &mut Place<'_, W>| {
            for (sum, zero) in zero.chunks_exact(places.len() * n).enumerate() {
                let from = &zero[place.index * n..][..n];
                place.put(sum).copy_from_slice(from);
            }
        };
        let low = [self.poly(0), self.poly(index)].map(Some);
        let quotients = Quotients {
            first: 0,
            dropped: 0,
            low: &low,
        };
        let mut fresh = ring.pool().take(2 * limbs * n);
        sums.divide(put, &quotients, &mut fresh);
        // They tell what was added.
        wipe(&mut zero);
        sums.wipe();
        let mut refreshed = self.clone();
        for (index, poly) in [0, index].into_iter().zip(fresh.chunks_exact(limbs * n)) {
            refreshed.data_mut()[index * limbs * n..][..limbs * n].copy_from_slice(poly);
        }
        Ok(refreshed)
    }
}
