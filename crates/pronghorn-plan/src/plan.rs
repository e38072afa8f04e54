//! The plan's types, its bytes and its hash.

use pronghorn_graph::{
    fixed::{ActivationOp, Finish, LocalOp, ValueSpec},
    geometry::ConvGeometry,
};
use pronghorn_he::{rlwe::Encoding, shares::ShareEncoding};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    coefficient::Layout, encrypted::EncryptedPlan, slots::SlotPlan, trust::TrustLevel, validate,
};

/// The format of [`Plan::to_bytes`]; a reader refuses any other.
pub const FORMAT: u16 = 4;

/// Longest plan a reader accepts, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// What both parties do, step by step. Step `i` makes value `i`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`FORMAT`].
    pub format: u16,
    /// The model's name, for messages.
    pub model: String,
    /// Who learns what.
    pub trust: TrustLevel,
    /// Steps in order; the first is the only [`StepKind::Input`].
    pub steps: Vec<Step>,
    /// The step whose value is the result.
    pub output: usize,
    /// What the client does to the decoded result in floating point.
    pub finish: Vec<Finish>,
    /// Most images in one batch, from the memory the server's owner allows.
    pub max_batch: usize,
}

/// One step and the value it makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The node of the model it comes from.
    pub name: String,
    /// What happens.
    pub kind: StepKind,
    /// Steps whose values it reads, all before it.
    pub inputs: Vec<usize>,
    /// Shape, scale and range of the value it makes.
    pub value: ValueSpec,
}

/// The kinds of steps. Between steps each party holds an additive share of every value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StepKind {
    /// The client's input: its share is the value, the server's is zero.
    Input,
    /// The server's weights meet the shares, in a linear engine.
    Linear(LinearPlan),
    /// The same on slots, by packed homomorphic encryption.
    Slots(SlotPlan),
    /// Each party works on its own share; nothing is sent.
    Local(LocalOp),
    /// A non-linear function by an activation protocol.
    Activation(ActivationPlan),
    /// The client learns the value, and no more of the shares.
    Open,
    /// A whole polynomial network on ciphertexts, from the client's input to the client's result.
    Encrypted(EncryptedPlan),
}

/// A linear step's engine and parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearPlan {
    /// Which engine.
    pub engine: Engine,
    /// Sizes of the convolution or dense layer.
    pub geometry: ConvGeometry,
    /// Words of the ciphertext.
    pub word: WordSize,
    /// Degree `N` of the ring: in the batch engine, images of one block.
    pub degree: usize,
    /// The modulus `q`, a prime `= 1 mod 2N`.
    pub modulus: u64,
    /// A message `m` is `m << scale_log` in a coefficient.
    pub scale_log: u32,
    /// Low bits the server drops from each word of `b` of its answer.
    pub dropped_bits: u32,
    /// Low bits the server drops from each coefficient of `a` of its answer.
    pub dropped_bits_a: u32,
    /// The answers each element has: one, or two for weights cut into a high and a low digit.
    pub parts: Vec<Part>,
    /// Under `two-party`, where inputs and answers are shares; none where the client has the values.
    pub shares: Option<ShareBits>,
}

/// How the shares of a linear step's answer are held: see [`crate::held`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareBits {
    /// Messages live modulo `2^value_bits`.
    pub value_bits: u32,
    /// Bits below the unit that shares of the answer have.
    pub guard_bits: u32,
}

/// One answer of a linear step. The element is the sum of its parts, each shifted up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Bits by which it is shifted up.
    pub left_shift: u32,
    /// Smallest integer it can be.
    pub low: i32,
    /// Largest integer it can be.
    pub high: i32,
}

impl Part {
    /// The middle of its range; answers hold `message - centre`.
    pub fn centre(&self) -> i64 {
        (i64::from(self.low) + i64::from(self.high)).div_euclid(2)
    }
}

/// Most parts of a linear step.
pub const MAX_PARTS: usize = 2;

/// The linear engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// One ciphertext row an element, one coefficient an image.
    Batch,
    /// One ciphertext for many elements of an image, one coefficient an element: [`crate::coefficient`].
    Coefficient,
    /// One ciphertext for many elements of an image, one slot an element: [`crate::slots`]. Such steps are [`StepKind::Slots`].
    Slot,
}

/// Words that hold ciphertext residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordSize {
    /// 32 bits, primes of at most 31.
    U32,
    /// 64 bits, primes of at most 60.
    U64,
}

impl LinearPlan {
    /// Where values sit in polynomials, in the coefficient engine.
    pub fn layout(&self) -> Option<Layout> {
        (self.engine == Engine::Coefficient)
            .then(|| Layout::new(&self.geometry, self.degree))
            .flatten()
    }

    /// Bits of the modulus: the width of a ciphertext word on the wire.
    pub fn modulus_bits(&self) -> u32 {
        u64::BITS - self.modulus.leading_zeros()
    }

    /// Bits of a coefficient of `a` in the answer.
    pub fn answer_bits_a(&self) -> u32 {
        self.modulus_bits() - self.dropped_bits_a
    }

    /// Bits of a word of `b` in the answer.
    pub fn answer_bits(&self) -> u32 {
        self.modulus_bits() - self.dropped_bits
    }

    /// How shares sit in the words, where there are shares. A validated plan has parameters for it.
    pub fn share_encoding(&self) -> Option<ShareEncoding> {
        let ShareBits {
            value_bits,
            guard_bits,
        } = self.shares?;
        ShareEncoding::new(self.modulus, value_bits, guard_bits)
    }

    /// How messages sit in the words of one part of the answer.
    pub fn encoding(&self, part: &Part) -> Encoding {
        Encoding {
            scale_log: self.scale_log,
            dropped_bits: self.dropped_bits,
            centre: part.centre(),
            low: part.low,
            high: part.high,
        }
    }
}

/// An activation step: the protocol and the elementwise chain it computes in one go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationPlan {
    /// Which protocol.
    pub protocol: Protocol,
    /// Applied in order, each to the result of the one before.
    pub ops: Vec<ActivationOp>,
}

/// The activation protocols of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// The value is revealed to the client, who computes in the clear.
    Reveal,
    /// Garbled circuits on shares: the server garbles, the client evaluates.
    Garbled,
    /// Squares on shares, by oblivious transfer.
    Product,
}

/// Why bytes are not a plan, or a plan is not one to follow.
#[derive(Debug, Error)]
pub enum PlanError {
    /// Longer than [`MAX_BYTES`].
    #[error("the plan has {length} bytes; at most {MAX_BYTES} are accepted")]
    TooLong {
        /// Bytes found.
        length: usize,
    },
    /// Another format.
    #[error(
        "the plan has format {found}, this version reads format {FORMAT}: use the same version of pronghorn on both sides"
    )]
    Format {
        /// The format found.
        found: u16,
    },
    /// Not decodable.
    #[error("the plan's bytes are damaged: {reason}")]
    Damaged {
        /// What the decoder met.
        reason: String,
    },
    /// A field with a value no honest plan has.
    #[error("the plan's step {step} ({name}): {reason}")]
    Step {
        /// Index of the step.
        step: usize,
        /// Its name.
        name: String,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// A field of the plan as a whole.
    #[error("the plan's {field}: {reason}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong and what was expected.
        reason: String,
    },
}

impl Plan {
    /// Canonical bytes: a format number, then the fields in order.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a plan in memory always serialises")
    }

    /// Reads and validates a plan from an untrusted peer or file.
    ///
    /// # Errors
    /// When the bytes are not a plan, or any field is out of bounds: shapes that do not follow from the
    /// operators, ranges that do not hold, parameters below 128 bits of security.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PlanError> {
        if bytes.len() > MAX_BYTES {
            return Err(PlanError::TooLong {
                length: bytes.len(),
            });
        }
        // The decoder's own words say nothing to users.
        let damaged = |_: postcard::Error| PlanError::Damaged {
            reason: "its fields do not decode".into(),
        };
        let (format, _) = postcard::take_from_bytes::<u16>(bytes).map_err(damaged)?;
        if format != FORMAT {
            return Err(PlanError::Format { found: format });
        }
        let (plan, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(damaged)?;
        if !rest.is_empty() {
            return Err(PlanError::Damaged {
                reason: format!("{} bytes follow its end", rest.len()),
            });
        }
        validate::validate(&plan)?;
        Ok(plan)
    }

    /// BLAKE3 of [`Plan::to_bytes`]: what the parties compare.
    pub fn hash(&self) -> [u8; 32] {
        blake3::derive_key("pronghorn 2026 plan hash", &self.to_bytes())
    }

    /// [`Plan::hash`] in hexadecimal, as users compare it.
    pub fn hash_hex(&self) -> String {
        self.hash()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// JSON for people and tools.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan in memory always serialises")
    }

    /// Who learns what.
    pub fn trust(&self) -> TrustLevel {
        self.trust
    }

    /// By how many units a result's integer may differ from the oracle's: none, unless ciphertexts are approximate.
    pub fn tolerance(&self) -> i32 {
        match &self.steps[self.output].kind {
            StepKind::Encrypted(encrypted) => {
                let unit = f64::from(-self.result().fraction_bits).exp2();
                (encrypted.error / unit).ceil() as i32 + 1
            }
            _ => 0,
        }
    }

    /// How many images a batch counts as against a client's quota: all slots of an encrypted network give results, whatever
    /// the client says it put there.
    pub fn charged(&self, batch: usize) -> usize {
        match &self.steps[self.output].kind {
            StepKind::Encrypted(encrypted) => encrypted.slots(),
            _ => batch,
        }
    }

    /// Most images in one batch.
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Shape, scale and range of the input.
    pub fn input(&self) -> &ValueSpec {
        &self.steps[0].value
    }

    /// Shape, scale and range of the result before [`Plan::finish`].
    pub fn result(&self) -> &ValueSpec {
        &self.steps[self.output].value
    }

    /// Elements of one image.
    pub fn input_len(&self) -> usize {
        self.input().len()
    }

    /// Shape of the result after [`Plan::finish`].
    pub fn output_shape(&self) -> Vec<usize> {
        if self.finish.contains(&Finish::ArgMax) {
            vec![1]
        } else {
            self.result().shape.clone()
        }
    }

    /// Elements of one image's result after [`Plan::finish`].
    pub fn output_len(&self) -> usize {
        self.output_shape().iter().product()
    }

    /// The prime that shares are taken modulo where layers run on slots.
    pub fn slot_modulus(&self) -> Option<u64> {
        self.steps.iter().find_map(|step| match &step.kind {
            StepKind::Slots(slots) => Some(slots.t),
            _ => None,
        })
    }

    /// The linear steps with their plans.
    pub fn linear_steps(&self) -> impl Iterator<Item = (usize, &Step, &LinearPlan)> {
        self.steps
            .iter()
            .enumerate()
            .filter_map(|(index, step)| match &step.kind {
                StepKind::Linear(linear) => Some((index, step, linear)),
                _ => None,
            })
    }
}
