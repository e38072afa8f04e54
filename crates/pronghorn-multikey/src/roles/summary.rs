//! What a network costs, before anything secret is made.

use pronghorn_he::ckks::wire::packed_len;
use pronghorn_ring::{Word, security::SecurityLevel};

use super::Terms;
use crate::{Counts, NetworkError, Work};

/// What all parties of a network pay, and what they get.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// Degree of the ring.
    pub degree: usize,
    /// Levels: products in a row.
    pub levels: usize,
    /// Primes of a fresh ciphertext, and special primes.
    pub primes: [usize; 2],
    /// `log2` of the primes of a fresh ciphertext, and of all.
    pub log_moduli: [f64; 2],
    /// The level of the security table.
    pub security: Option<SecurityLevel>,
    /// The cloud's work for an image.
    pub counts: Counts,
    /// Rotations that public keys are for: the client's, the owner's.
    pub rotations: [usize; 2],
    /// Bytes of public keys: the client's, the owner's. Sent once.
    pub keys: [usize; 2],
    /// Bytes of the key of a client and the owner. The owner sends it once a client.
    pub pair: usize,
    /// Bytes of the encrypted model, about. Sent once.
    pub model: usize,
    /// Bytes of an encrypted image, about.
    pub image: usize,
    /// Bytes of a result under both keys, which goes to client and owner, about.
    pub outcome: usize,
    /// Bytes of the owner's contribution and partial decryption, about.
    pub answer: usize,
    /// `log2` of each party's flood.
    pub log_flood: u32,
    /// The largest error of an output.
    pub error: f64,
    /// The least and the largest element of an input.
    pub range: [f64; 2],
    /// Results of a key.
    pub results: u64,
}

impl Summary {
    /// Bits of security, of the table's 128, 192 and 256.
    pub fn security_bits(&self) -> usize {
        match self.security {
            Some(SecurityLevel::Bits128) => 128,
            Some(SecurityLevel::Bits192) => 192,
            Some(SecurityLevel::Bits256) => 256,
            None => 0,
        }
    }
}

/// Bytes of headers.
const HEADER: usize = 34;
/// And of a seeded ciphertext with its seed and numbers.
const SEEDED: usize = HEADER + 49;

impl<W: Word> Terms<W> {
    /// Counts, bytes and bounds.
    ///
    /// # Errors
    /// Never for terms that were made.
    pub fn summary(&self) -> Result<Summary, NetworkError> {
        let (program, setting) = (&self.program, &self.setting);
        let ring = setting.ring();
        let (limbs, all) = (ring.limbs(), ring.basis().limbs());
        let rotations = program.rotations().map(|steps| steps.len());
        let seeded = |level: usize| SEEDED + packed_len(ring, setting.limbs(level));
        let mut model = 0;
        for (step, node) in program.steps.iter().zip(&program.network.nodes) {
            let outputs = step.layout.ciphertexts();
            let weights = match &step.work {
                Work::Linear(packing) => packing.products.iter().map(Vec::len).sum(),
                Work::Slotwise if node.op.has_weights() => outputs,
                _ => continue,
            };
            model += weights * seeded(step.level + 1) + outputs * seeded(step.level);
        }
        let (results, parties) = (self.outputs(), 2);
        let polynomial = packed_len(ring, setting.limbs(0));
        let extended = HEADER + 2 + 32 * parties + (parties + 1) * polynomial;
        Ok(Summary {
            degree: ring.n(),
            levels: self.description.chain.levels,
            primes: [limbs, all - limbs],
            log_moduli: [ring.log_modulus(limbs), ring.basis().log2_product(0..all)],
            security: ring.security(),
            counts: program.counts(),
            rotations,
            keys: rotations.map(|count| self.key_bytes(count)),
            pair: self.pair_key_bytes(),
            model,
            image: program.counts().inputs * seeded(program.steps[0].level),
            outcome: results * (8 + extended),
            answer: results * (64 + extended + HEADER + 65 + polynomial),
            log_flood: self.rule.log_flood(),
            error: self.error()?,
            range: self.range(),
            results: self.description.results,
        })
    }

    /// Bytes of a client's public keys.
    pub fn client_key_bytes(&self) -> usize {
        let [steps, _] = self.program.rotations();
        self.key_bytes(steps.len())
    }

    /// Bytes of public keys for so many rotations (`he::multikey::wire`).
    fn key_bytes(&self, rotations: usize) -> usize {
        let ring = self.setting.ring();
        let vector = ring.digit_count(ring.limbs()) * packed_len(ring, ring.basis().limbs());
        let own = 71 + 4 * rotations + (1 + rotations) * vector;
        HEADER + 1 + packed_len(ring, ring.basis().limbs()) + own
    }
}
