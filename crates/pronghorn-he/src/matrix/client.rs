//! The client's half.

use pronghorn_ring::{
    SimdLevel, bits,
    random::{RandomError, Seed},
    vector,
};
use zeroize::Zeroizing;

use super::{Layout, Parameters};
use crate::rns::{self, Encryptor, PublicKey, SecretKey, SeededCiphertext, WireError};

/// A secret that serves one product, or several of the same parameters, and encrypts factors under
/// it. Wiped on drop; no Debug.
pub struct MatrixClient {
    parameters: Parameters,
    key: SecretKey<u64>,
    encryptor: Encryptor<u64>,
}

impl MatrixClient {
    /// With fresh randomness of the system.
    ///
    /// # Errors
    /// When the system has none.
    pub fn generate(parameters: &Parameters) -> Result<Self, RandomError> {
        let key = SecretKey::generate(parameters.ring(), &Seed::from_os()?);
        Ok(Self {
            encryptor: key.encryptor()?,
            parameters: parameters.clone(),
            key,
        })
    }

    /// Appends the public key, and the seed of the `a` of all factors.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn encode_key(&self, out: &mut Vec<u8>) -> Result<(), RandomError> {
        PublicKey::generate(&self.key)?.encode(out);
        out.extend(self.encryptor.seed());
        Ok(())
    }

    /// Appends ciphertext `factor` of a layout: the client's share of a factor is `share(element)`.
    /// The ciphertexts come in their order, those of the first layout of a product first. Two NTTs.
    pub fn encode_factor(
        &mut self,
        layout: &Layout,
        factor: usize,
        share: impl Fn(usize) -> i32,
        out: &mut Vec<u8>,
    ) {
        let parameters = &self.parameters;
        let encrypted = self.encryptor.encrypt_next(2, |limb, words, _| {
            words.fill(0);
            for (coefficient, element) in layout.factor(factor) {
                words[coefficient] = parameters.encode(limb, share(element));
            }
        });
        rns::wire::pack(parameters.ring(), 2, encrypted.b(), out);
    }

    /// Adds answer `answer` of a layout to `sums`, words modulo the first prime, one for each
    /// element of the product. Two NTTs.
    ///
    /// # Errors
    /// When the message is none.
    pub fn add_answer(
        &self,
        layout: &Layout,
        answer: usize,
        message: &[u8],
        mut add: impl FnMut(usize, u64),
    ) -> Result<(), WireError> {
        let (basis, setting) = (self.parameters.ring().basis(), self.parameters.setting());
        let (q, n) = (basis.prime(0), setting.degree());
        let (widths, dropped) = (setting.widths(), setting.dropped());
        let count = layout.elements(answer);
        let length = bits::packed_len(n, widths.a);
        let expected = length + bits::packed_len(count, widths.b);
        if message.len() != expected {
            return Err(WireError::Length {
                field: "the answer",
                expected,
                found: message.len(),
            });
        }
        let (first, second) = message.split_at(length);
        let (mut a, mut b) = (vec![0; n], vec![0; count]);
        bits::unpack(first, widths.a, &mut a)?;
        bits::unpack(second, widths.b, &mut b)?;
        for (words, dropped) in [(&mut a, dropped.a), (&mut b, dropped.b)] {
            if rns::simd::largest(SimdLevel::detect(), words) > (q.value() - 1) >> dropped {
                return Err(WireError::Word { limb: 0 });
            }
            vector::shift_back(q, words, dropped);
        }
        basis.ntt(0).forward(&mut a);
        let mut phase = Zeroizing::new(vec![0; n]);
        self.key.secret().multiply(0, &a, &mut phase);
        basis.ntt(0).inverse(&mut phase);
        for ((coefficient, element), b) in layout.answer(answer).zip(b) {
            add(element, q.add(b, phase[coefficient]));
        }
        Ok(())
    }

    /// The share of an element of the sum of the products that are encrypted, with its guard bits.
    pub fn share(&self, sum: u64) -> i32 {
        self.parameters.setting().encoding().decode(sum)
    }
}

/// A client's key, and the seed of the `a` of its factors: what a server reads of it first.
pub(super) struct Keys {
    pub public: PublicKey<u64>,
    pub seed: [u8; 32],
}

impl Keys {
    pub fn decode(parameters: &Parameters, bytes: &[u8]) -> Result<Self, WireError> {
        let expected = parameters.setting().key_bytes();
        let found = bytes.len();
        let field = "the public key";
        let Some((key, seed)) = bytes.split_last_chunk::<32>().filter(|_| found == expected) else {
            return Err(WireError::Length {
                field,
                expected,
                found,
            });
        };
        let public = PublicKey::decode(parameters.ring(), key)?;
        match public.limbs() {
            2 => Ok(Self {
                public,
                seed: *seed,
            }),
            limbs => Err(WireError::Range {
                field: "the number of limbs of the public key",
                found: limbs as u64,
                low: 2,
                high: 2,
            }),
        }
    }
}

/// The ciphertext that has this number among those of a product.
pub(super) fn factor(
    parameters: &Parameters,
    seed: [u8; 32],
    number: u64,
    message: &[u8],
) -> Result<SeededCiphertext<u64>, WireError> {
    let ring = parameters.ring();
    let mut b = vec![0; 2 * ring.n()];
    rns::wire::unpack(ring, 2, message, &mut b)?;
    Ok(SeededCiphertext::new(ring, seed, number, b))
}
