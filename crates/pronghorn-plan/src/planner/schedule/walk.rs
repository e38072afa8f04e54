//! What one walk through a network finds, and what it costs.

use pronghorn_graph::polynomial::{PolyNode, PolyOp};

use crate::steps::encrypted::{MAX_POLYS, Program, ProgramNode, ProgramOp};

/// Values may be this much larger than on the samples before they wrap around the modulus; and that
/// only where they are so in most slots, since a coefficient is a mean over the slots.
pub const HEADROOM: f64 = 4.0;

/// Noise may be this much larger than measured on the samples before results are less precise than
/// the plan says.
pub(super) const NOISE_MARGIN: f64 = 2.0;

/// Bits to spare, so that what is checked again elsewhere does not fail by a rounding.
pub(super) const SPARE: f64 = 0.01;

/// How a network is scheduled.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// What the server does.
    pub program: Program,
    /// Degree of the ring.
    pub degree: usize,
    /// The modulus.
    pub primes: Vec<u64>,
    /// Special primes of key switching; none where nothing is relinearised.
    pub special: Vec<u64>,
    /// The highest power of the secret that is relinearised; 1 for none.
    pub key_power: usize,
    /// The input's scale.
    pub scale_log: u32,
    /// The reach of the flood is `2^flood_log`.
    pub flood_log: u32,
    /// Bits of the distance that it keeps over the lifetime of a key.
    pub flood_bits: u32,
    /// Primes left of the answer after its last rescaling.
    pub answer_limbs: usize,
    /// Its scale then.
    pub answer_scale: f64,
    /// Bound on the error of a result.
    pub error: f64,
    /// Predicted seconds of one core of the server for one batch.
    pub seconds: f64,
}

/// A value on the way.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) node: ProgramNode,
    /// The node of the graph that it is the value of.
    pub(super) of: usize,
    /// Primes divided away on its way.
    pub(super) dropped: usize,
    /// Whether it is made of a product that was not rescaled yet.
    pub(super) pending: bool,
    pub(super) work: Work,
}

/// What one limb of one value costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Multiply-adds of words by small integers.
    pub(super) multiply_adds: f64,
    /// Products of residues.
    pub(super) products: f64,
}

/// Rates of one core, for predictions, measured on a Sapphire Rapids at 3 GHz with `pronghorn bench
/// batch` and the example `ring_bench` of `pronghorn-bench`.
mod rate {
    /// Word multiply-adds by weights a second.
    pub const MULTIPLY_ADDS: f64 = 45e9;
    /// Products of residues a second.
    pub const PRODUCTS: f64 = 2e9;
    /// Seconds of a transform, for each word of it.
    pub const TRANSFORM: f64 = 1e-9;
}

/// What a walk found.
pub(super) struct Walk {
    pub(super) values: Vec<Value>,
    pub(super) output: usize,
    pub(super) degree: usize,
    pub(super) special: usize,
    /// Most primes in all.
    pub(super) most: usize,
    /// Primes that rescaling divides by before the answer.
    pub(super) dropped: usize,
    /// Primes that stay until the answer.
    pub(super) last: usize,
    /// After so many primes are gone, the others hold so many bits.
    pub(super) needs: Vec<(usize, f64)>,
    /// Variance of the result's error on the samples; for any values that the arithmetic carries.
    pub(super) variance: f64,
    pub(super) worst_variance: f64,
    pub(super) key_power: usize,
    pub(super) flood_log: u32,
    pub(super) answer_limbs: usize,
    pub(super) answer_scale: f64,
    pub(super) error: f64,
}

/// What one limb of `node`'s value costs, with `polys` polynomials from inputs of `before`.
pub(super) fn work(node: &PolyNode, polys: usize, before: usize) -> Work {
    let elements = node.len() as f64;
    match &node.op {
        PolyOp::Linear(layer) => Work {
            multiply_adds: layer.geometry.multiply_adds() as f64 * polys as f64,
            ..Work::default()
        },
        PolyOp::Square | PolyOp::Multiply => Work {
            products: elements * (before * (before + 1) / 2) as f64,
            ..Work::default()
        },
        PolyOp::Factor(_) => Work {
            products: elements * polys as f64,
            ..Work::default()
        },
        PolyOp::Input | PolyOp::Add | PolyOp::Rearrange(_) => Work::default(),
    }
}

impl Walk {
    pub(super) fn push(&mut self, value: Value) -> Option<usize> {
        let ProgramNode {
            polys,
            scale,
            reach,
            ..
        } = value.node;
        if polys > MAX_POLYS || !scale.is_finite() {
            return None;
        }
        self.need(value.dropped, HEADROOM * reach * scale, scale);
        if value.dropped >= self.most {
            return None;
        }
        self.values.push(value);
        Some(self.values.len() - 1)
    }

    /// After `dropped` primes the others must hold numbers of magnitude `most`, and 1 at this
    /// scale.
    pub(super) fn need(&mut self, dropped: usize, most: f64, scale: f64) {
        self.needs
            .push((dropped, most.max(scale).log2() + 1.0 + SPARE));
    }

    /// Predicted seconds of one core for one batch.
    pub(super) fn seconds(&self) -> f64 {
        let all = self.dropped + self.last;
        let of = |value: &Value| {
            let limbs = all.saturating_sub(value.dropped) as f64;
            let ciphertexts = value.node.elements as f64;
            let transforms = match value.node.op {
                ProgramOp::Rescale { limbs: gone } => {
                    value.node.polys as f64 * (limbs + gone as f64)
                }
                ProgramOp::Relinearise { limbs: gone } => {
                    // Each power: back, and up to all primes for each digit; then the sums: down
                    // from the special ones.
                    let (before, special) = (limbs + gone as f64, self.special as f64);
                    let switched = (self.values[value.node.inputs[0]].node.polys - 2) as f64;
                    let digits = (before / special).ceil();
                    switched * digits * (before + special) + 2.0 * (special + before)
                }
                ProgramOp::Node(_) | ProgramOp::Scale => 0.0,
            };
            limbs
                * (value.work.multiply_adds / rate::MULTIPLY_ADDS
                    + value.work.products / rate::PRODUCTS)
                + ciphertexts * transforms * rate::TRANSFORM
        };
        self.degree as f64 * self.values.iter().map(of).sum::<f64>()
    }

    /// The schedule of a walk with these primes, from an input at scale `2^scale_log`.
    pub(super) fn schedule(
        self,
        scale_log: u32,
        primes: &[u64],
        special: &[u64],
        flood_bits: u32,
    ) -> Schedule {
        let seconds = self.seconds();
        let nodes = self.values.into_iter().map(|value| ProgramNode {
            limbs: primes.len() - value.dropped,
            ..value.node
        });
        Schedule {
            program: Program {
                nodes: nodes.collect(),
                output: self.output,
            },
            degree: self.degree,
            primes: primes.to_vec(),
            special: if self.key_power > 1 {
                special.to_vec()
            } else {
                Vec::new()
            },
            key_power: self.key_power,
            scale_log,
            flood_log: self.flood_log,
            flood_bits,
            answer_limbs: self.answer_limbs,
            answer_scale: self.answer_scale,
            error: self.error,
            seconds,
        }
    }
}
