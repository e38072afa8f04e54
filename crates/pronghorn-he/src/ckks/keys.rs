//! What CKKS does with the keys of the ring: encryption of messages, decryption to plaintexts.

use pronghorn_ring::{Word, random::Stream};

use super::{Ciphertext, CkksError, Message, Plaintext};
use crate::rns::{
    Encryptor, Index, Parameters, PublicKey, SecretKey, SeededCiphertext as Seeded, slices,
};

impl<W: Word> SecretKey<W> {
    /// `c_0 + c_1 s + ... + c_d s^d`, by Horner's rule: `d` products and sums a word, no NTT.
    ///
    /// # Errors
    /// When the ciphertext is of other parameters.
    pub fn decrypt(&self, ciphertext: &Ciphertext<W>) -> Result<Plaintext<W>, CkksError> {
        let parameters = self.parameters();
        parameters.same(ciphertext.parameters())?;
        let limbs = ciphertext.limbs();
        let mut data = vec![W::default(); limbs * parameters.n()];
        self.decrypt_words(limbs, ciphertext.data(), &mut data);
        Ok(Plaintext::new(parameters, data, ciphertext.scale()))
    }
}

impl<W: Word> Encryptor<W> {
    /// `b = m + e - a s` for the `a` of the next number. An NTT, a product and the expansion of `a`
    /// a limb, and `N` errors.
    ///
    /// # Errors
    /// When the message is of other parameters.
    pub fn encrypt(&mut self, message: &Message<W>) -> Result<SeededCiphertext<W>, CkksError> {
        self.parameters().same(message.parameters())?;
        let seeded = self.encrypt_next(message.limbs(), |limb, b, room| {
            message.residues(limb, b, room)
        });
        Ok(SeededCiphertext::new(seeded, message.scale()))
    }

    /// [`encrypt`](Self::encrypt) into words `[limb][N]`; from several threads at once with numbers
    /// reserved before.
    ///
    /// # Errors
    /// When the message is of other parameters.
    ///
    /// # Panics
    /// When the index is another encryptor's, or `b` has not the limbs of the message.
    pub fn encrypt_words(
        &self,
        index: Index,
        message: &Message<W>,
        b: &mut [W],
    ) -> Result<(), CkksError> {
        let parameters = self.parameters();
        parameters.same(message.parameters())?;
        assert_eq!(
            b.len(),
            message.limbs() * parameters.n(),
            "b has the limbs of the message"
        );
        self.encrypt_residues(index, b, |limb, b, room| message.residues(limb, b, room));
        Ok(())
    }
}

impl<W: Word> PublicKey<W> {
    /// `(b v + e_0 + m, a v + e_1)` with `v` ternary and errors from `random`, which is read on
    /// with every use. Three NTTs a limb.
    ///
    /// # Errors
    /// When the message is of other parameters, or has more limbs than the key.
    pub fn encrypt(
        &self,
        message: &Message<W>,
        random: &mut Stream,
    ) -> Result<Ciphertext<W>, CkksError> {
        self.parameters().same(message.parameters())?;
        self.check_limbs(message.limbs())?;
        let mut data = vec![W::default(); 2 * message.limbs() * self.parameters().n()];
        self.add_zero(message.limbs(), &mut data, random);
        slices::add_assign(
            self.parameters(),
            message.limbs(),
            &mut data,
            message.to_plaintext().data(),
        );
        Ciphertext::from_words(self.parameters(), message.limbs(), message.scale(), data)
    }
}

/// `b` of a ciphertext, and where its `a` comes from.
#[derive(Clone)]
pub struct SeededCiphertext<W: Word> {
    inner: Seeded<W>,
    scale: f64,
}

impl<W: Word> SeededCiphertext<W> {
    pub(super) fn new(inner: Seeded<W>, scale: f64) -> Self {
        Self { inner, scale }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        self.inner.parameters()
    }

    /// The public seed.
    pub fn seed(&self) -> &[u8; 32] {
        self.inner.seed()
    }

    /// The number of its `a` under the seed.
    pub fn number(&self) -> u64 {
        self.inner.number()
    }

    /// `b`, `[limb][N]` in the NTT domain.
    pub fn b(&self) -> &[W] {
        self.inner.b()
    }

    /// Limbs.
    pub fn limbs(&self) -> usize {
        self.inner.limbs()
    }

    /// The scale: the factor on the values.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The ciphertext `(b, a)`, of two polynomials.
    pub fn expand(&self) -> Ciphertext<W> {
        Ciphertext::new(self.inner.expand(), self.scale)
    }
}
