//! The server's program, ready to run: weights laid out, constants as residues.

use pronghorn_graph::{
    layout::Source,
    polynomial::{Factor, Layer, PolyNode, PolyOp},
};
use pronghorn_he::ckks::Parameters;
use pronghorn_plan::{
    Encrypted, EncryptedPlan,
    steps::encrypted::{ProgramNode, ProgramOp},
};
use pronghorn_product::PackedWeights;
use pronghorn_ring::{
    Prime, Word,
    rns::{Division, RnsBasis},
};

use super::{
    keys::parameters,
    values::{Pool, Values},
};
use crate::error::EngineError;

/// A polynomial network prepared for any number of batches. The server's secret: no Debug.
pub struct Network<W: Word> {
    pub(super) parameters: Parameters<W>,
    pub(super) nodes: Vec<Node<W>>,
    pub(super) output: usize,
    /// Room for the client's rows, and for values.
    pub(super) rows: Pool<u8>,
    pub(super) words: Pool<W>,
    /// How many stages there are; see [`pronghorn_plan::encrypted::Program::stages`].
    pub(super) stages: usize,
}

/// One operation.
pub(super) struct Node<W: Word> {
    pub op: Op<W>,
    pub inputs: Vec<usize>,
    pub elements: usize,
    pub polys: usize,
    pub limbs: usize,
    pub stage: usize,
    /// The last stage that reads its stored value, if it is stored.
    pub stored_until: Option<usize>,
}

/// What is done; constants are `[limb][...]`.
pub(super) enum Op<W: Word> {
    Input,
    Linear {
        weights: PackedWeights,
        /// A word for each output, added to the first polynomial.
        addends: Vec<Vec<W>>,
    },
    Factor {
        factors: Vec<Vec<W>>,
        addends: Vec<Vec<W>>,
    },
    Square,
    Multiply,
    /// Each input times its multiplier, a word a limb; none for 1.
    Add([Option<Vec<W>>; 2]),
    /// Times a number, a word a limb.
    Scale(Vec<W>),
    Rearrange(Vec<Option<Source>>),
    /// The input itself.
    Same,
    Rescale(Division<W>),
    Relinearise {
        dropped: usize,
    },
}

impl<W: Word> Op<W> {
    /// Whether it leads to another stage.
    pub fn leads_on(&self) -> bool {
        matches!(self, Self::Rescale(_) | Self::Relinearise { .. })
    }
}

impl<W: Word> Network<W> {
    /// Prepares the program of an encrypted step.
    ///
    /// # Errors
    /// When parameters or weights are refused.
    pub fn new(
        encrypted: &Encrypted,
        plan: &EncryptedPlan,
        step: &str,
    ) -> Result<Self, EngineError> {
        let parameters = parameters(plan, step)?;
        let basis = parameters.basis();
        let program = &encrypted.program;
        let (stages, until) = (program.stages(), program.stored_until());
        let mut nodes = Vec::with_capacity(program.nodes.len());
        for (index, node) in program.nodes.iter().enumerate() {
            let op = match node.op {
                ProgramOp::Node(of) => {
                    let inputs = node.inputs.iter().map(|&input| &program.nodes[input]);
                    let inputs: Vec<&ProgramNode> = inputs.collect();
                    operator(&encrypted.graph.nodes[of], node, &inputs, basis, step)?
                }
                ProgramOp::Scale => {
                    let factor = (node.scale / program.nodes[node.inputs[0]].scale).round();
                    Op::Scale(residues(basis, node.limbs, &[factor]).concat())
                }
                ProgramOp::Relinearise { limbs } => Op::Relinearise { dropped: limbs },
                ProgramOp::Rescale { limbs } => {
                    let dropped: Vec<usize> = (node.limbs..node.limbs + limbs).collect();
                    Op::Rescale(Division::new(basis, &dropped))
                }
            };
            nodes.push(Node {
                op,
                inputs: node.inputs.clone(),
                elements: node.elements,
                polys: node.polys,
                limbs: node.limbs,
                stage: stages[index],
                stored_until: until[index],
            });
        }
        Ok(Self {
            parameters,
            nodes,
            output: program.output,
            rows: Pool::default(),
            words: Pool::default(),
            stages: stages.iter().max().map_or(0, |last| last + 1),
        })
    }

    /// Room for the value of a node.
    pub(super) fn values(&self, node: &Node<W>) -> Values<W> {
        let n = self.parameters.n();
        let room = self.words.take(n * node.limbs * node.polys * node.elements);
        Values::new(n, node.limbs, node.polys, node.elements, room)
    }
}

fn operator<W: Word>(
    of: &PolyNode,
    node: &ProgramNode,
    inputs: &[&ProgramNode],
    basis: &RnsBasis<W>,
    step: &str,
) -> Result<Op<W>, EngineError> {
    Ok(match &of.op {
        PolyOp::Input => Op::Input,
        PolyOp::Linear(layer) => linear(layer, node, basis, step)?,
        PolyOp::Factor(factor) => factors(factor, node, basis),
        PolyOp::Square => Op::Square,
        PolyOp::Multiply => Op::Multiply,
        PolyOp::Add => {
            let multiplier = |input: &ProgramNode| {
                let multiplier = (node.scale / input.scale).round();
                let words = |value| residues(basis, node.limbs, &[value]).concat();
                (multiplier != 1.0).then(|| words(multiplier))
            };
            Op::Add([multiplier(inputs[0]), multiplier(inputs[1])])
        }
        PolyOp::Rearrange(sources) => {
            let is_same = inputs.len() == 1
                && inputs[0].elements == sources.len()
                && sources
                    .iter()
                    .enumerate()
                    .all(|(place, source)| source.is_some_and(|source| source.index == place));
            if is_same {
                Op::Same
            } else {
                Op::Rearrange(sources.clone())
            }
        }
    })
}

fn linear<W: Word>(
    layer: &Layer,
    node: &ProgramNode,
    basis: &RnsBasis<W>,
    step: &str,
) -> Result<Op<W>, EngineError> {
    // What has more bits is refused like the least.
    let short = |&weight: &f64| i16::try_from(weight as i64).unwrap_or(i16::MIN);
    let integers: Vec<i16> = layer.weights.iter().map(short).collect();
    let weights =
        PackedWeights::new(&layer.geometry, &integers).map_err(|source| EngineError::Weights {
            step: step.to_owned(),
            source,
        })?;
    let positions = node.elements / layer.bias.len();
    let bias = layer
        .bias
        .iter()
        .flat_map(|&bias| std::iter::repeat_n(bias * node.scale, positions));
    let addends = residues(basis, node.limbs, &bias.collect::<Vec<f64>>());
    Ok(Op::Linear { weights, addends })
}

fn factors<W: Word>(factor: &Factor, node: &ProgramNode, basis: &RnsBasis<W>) -> Op<W> {
    let addends: Vec<f64> = factor.addends.iter().map(|add| add * node.scale).collect();
    Op::Factor {
        factors: residues(basis, node.limbs, &factor.factors),
        addends: residues(basis, node.limbs, &addends),
    }
}

/// The nearest integers modulo each of the first `limbs` primes.
fn residues<W: Word>(basis: &RnsBasis<W>, limbs: usize, values: &[f64]) -> Vec<Vec<W>> {
    let primes = basis.primes().take(limbs);
    primes
        .map(|q| values.iter().map(|&value| residue(q, value)).collect())
        .collect()
}

/// The nearest integer modulo `q`, exactly, however large: a constant in all slots is the constant
/// polynomial, and in the NTT domain the same word everywhere (nGraph-HE2, algorithm 2).
fn residue<W: Word>(q: &Prime<W>, value: f64) -> W {
    let value = value.round();
    let exponent = (value.abs().max(1.0).log2() as i32 - 61).max(0);
    // Exact: a division by a power of two, of an integer that has 53 bits.
    let mantissa = (value / f64::from(exponent).exp2()) as i64;
    let power = q.pow(q.from_i64(2), exponent as u64);
    q.mul(q.from_i64(mantissa), power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residues_of_large_numbers() {
        let q = Prime::<u32>::new(12_289).expect("a prime");
        for value in [
            0i128,
            1,
            -1,
            12_288,
            -12_290,
            1 << 61,
            -(1 << 62),
            1 << 100,
            -(3 << 110),
        ] {
            let expected = value.rem_euclid(12_289) as u32;
            assert_eq!(residue(&q, value as f64), expected, "{value}");
        }
        assert_eq!(residue(&q, 2.4), 2);
        assert_eq!(residue(&q, -2.6), 12_286);
    }
}
