//! Steps on shares (`two-party`) from fixed-point nodes.
//!
//! Moduli, guard bits and the prime of a layer depend on the steps after it. So nodes become drafts
//! first: layers without parameters, chains of activations as one step each. Then ranges, prime,
//! conversions and guard bits are settled, in this order, and every draft becomes a complete step.

use std::collections::{BTreeSet, HashMap};

use pronghorn_graph::{
    fixed::{ActivationOp, FixedGraph, FixedNode, FixedOp, ValueSpec},
    geometry::ConvGeometry,
    matrices::Matrices,
    names::printable,
};
use pronghorn_mpc::circuit::signed_width;

use super::{
    BuildError, Engine,
    draft::{self, Draft, Layer, Op, insert_before, nodes},
    guards,
    method::{Lowered, consumers},
    parameters, pools, ranges,
};
use crate::{
    plan::Step,
    rlwe::ShareBits,
    share_form::{self, Fault, LEAST_GUARD, LayerShares, MAX_BITS, ShareRules, Takes, share_forms},
    steps::{
        StepKind,
        activation::{
            chain::{self, Stage},
            garbled::Garbled,
            lean::{Lean, Transfers},
        },
        argmax::ArgMax,
        bias::Bias,
        linear::slots::SlotLinear,
        matrices,
    },
};

/// The steps of a fixed-point graph on shares. `engine`: that of all layers, or for each layer the
/// coefficient engine where it fits.
pub(super) fn lower(fixed: &FixedGraph, engine: Option<Engine>) -> Result<Lowered, BuildError> {
    // Layers whose answers are made exact at once: guard bits up to the next activation are too
    // many.
    let mut exact = BTreeSet::new();
    // Products of matrices that have no parameters under encryption.
    let mut transferred = BTreeSet::new();
    let (drafts, output) = loop {
        let mut drafts = Drafts::new(engine == Some(Engine::Slot), transferred.clone());
        let mut output = drafts.all(fixed, &exact)?;
        let mut drafts = drafts.drafts;
        pools::take_apart(&mut drafts, &mut output);
        ranges::widen(&mut drafts)?;
        guards::settle_prime(&mut drafts)?;
        convert(&mut drafts, &mut output);
        let Some((step, bits)) = settle_guards(&mut drafts)? else {
            let without = without_parameters(&drafts);
            if without.is_empty() {
                break (drafts, output);
            }
            transferred.extend(without);
            continue;
        };
        let before = exact.len();
        exact.extend(drafts[step].guarded());
        if exact.len() == before {
            // Guard bits of others, or ranges that grow with the errors of others.
            let guarded = |draft: &Draft<'_>| draft.guarded().is_some();
            let layers = ranges::before(&drafts, step, guarded);
            exact.extend(layers.filter_map(|layer| drafts[layer].guarded()));
        }
        if exact.len() == before {
            return Err(BuildError::Bits {
                layer: drafts[step].name.clone(),
                reason: format!(
                    "shares of its values take {bits} bits, more than {MAX_BITS}: lower \
                     --weight-bits or --input-bits, or raise --error"
                ),
            });
        }
    };
    finish(drafts, output, engine)
}

/// The drafts so far.
struct Drafts<'a> {
    /// Whether layers run on slots.
    on_slots: bool,
    /// Products of matrices that go by oblivious transfer.
    transferred: BTreeSet<usize>,
    drafts: Vec<Draft<'a>>,
    /// Whether shares of the value have guard bits.
    guarded: Vec<bool>,
    /// The draft that makes exact shares of the value.
    exact: Vec<Option<usize>>,
}

impl<'a> Drafts<'a> {
    fn new(on_slots: bool, transferred: BTreeSet<usize>) -> Self {
        Self {
            on_slots,
            transferred,
            drafts: Vec::new(),
            guarded: Vec::new(),
            exact: Vec::new(),
        }
    }

    /// All nodes, with exact shares right after those of `exact`, and the opening of the result.
    fn all(&mut self, fixed: &'a FixedGraph, exact: &BTreeSet<usize>) -> Result<usize, BuildError> {
        let consumers = consumers(fixed);
        let mut draft_of = vec![0usize; fixed.nodes.len()];
        for (index, node) in fixed.nodes.iter().enumerate() {
            let inputs: Vec<usize> = node.inputs.iter().map(|&input| draft_of[input]).collect();
            draft_of[index] = match &node.op {
                FixedOp::Activation(op)
                    if consumers[node.inputs[0]] == 1 && self.join(inputs[0], op, &node.value) =>
                {
                    inputs[0]
                }
                _ => self.node(index, node, inputs)?,
            };
            if exact.contains(&index) {
                draft_of[index] = self.exact(draft_of[index]);
            }
        }
        // Many results cost far less made exact first. `protocols` takes this step out for few.
        let result = self.exact(draft_of[fixed.output]);
        let value = self.drafts[result].value.clone();
        let open = Op::Ready(StepKind::Open);
        Ok(self.push("result".into(), open, vec![result], value))
    }

    /// Adds a function to the chain of draft `before`, if that is one that takes it.
    fn join(&mut self, before: usize, op: &ActivationOp, value: &ValueSpec) -> bool {
        let count = self.drafts.len();
        let draft = &mut self.drafts[before];
        let Op::Chain(chain) = &mut draft.op else {
            return false;
        };
        // A slope would multiply the errors of shares that were to be exact.
        if chain.ops.is_empty() && matches!(op, ActivationOp::LeakyRelu { .. }) {
            return false;
        }
        // Steps with a dither come in the order of their nodes.
        if op.dithered().is_some() && before + 1 < count {
            return false;
        }
        chain.ops.push(op.clone());
        let joins = Stage::of(&chain.ops).is_some();
        if joins {
            draft.value = value.clone();
        } else {
            chain.ops.pop();
        }
        joins
    }

    fn node(
        &mut self,
        index: usize,
        node: &'a FixedNode,
        mut inputs: Vec<usize>,
    ) -> Result<usize, BuildError> {
        let name = printable(&node.name);
        let op = match &node.op {
            FixedOp::Input => Op::Ready(StepKind::Input),
            FixedOp::Local(op) => Op::Ready(StepKind::Local(op.clone())),
            FixedOp::Constants(linear)
                if let Some(left_shift) = linear.shifts_alone()
                    && !self.on_slots =>
            {
                Op::Bias(draft::Constants {
                    linear,
                    step: Bias { left_shift },
                })
            }
            FixedOp::Linear(linear) | FixedOp::Constants(linear) => {
                if !self.on_slots {
                    inputs[0] = self.exact(inputs[0]);
                }
                Op::Layer(Layer {
                    index,
                    node,
                    linear,
                    shares: match self.on_slots {
                        true => LayerShares::Residues(None),
                        false => LayerShares::Guarded(LEAST_GUARD),
                    },
                })
            }
            FixedOp::Activation(ActivationOp::Square) => {
                inputs[0] = self.exact(inputs[0]);
                Op::Ready(StepKind::Square)
            }
            FixedOp::ArgMax => Op::Ready(StepKind::ArgMax(ArgMax::default())),
            FixedOp::Product => {
                for input in &mut inputs {
                    *input = self.exact(*input);
                }
                Op::Ready(StepKind::Product)
            }
            FixedOp::MatMul => {
                let shapes = [0, 1].map(|place| &self.drafts[inputs[place]].value.shape);
                let sizes = Matrices::of(shapes[0], shapes[1]);
                for input in &mut inputs {
                    *input = self.exact(*input);
                }
                let may_be = !self.on_slots && !self.transferred.contains(&index);
                match sizes {
                    Ok(sizes) if may_be && pays(&sizes, &node.value) => {
                        Op::Matrices(draft::Matrices {
                            index,
                            guard: LEAST_GUARD,
                        })
                    }
                    _ => Op::Ready(StepKind::MatrixProduct),
                }
            }
            FixedOp::Activation(op) => {
                let ops = vec![op.clone()];
                if Stage::of(&ops).is_none() {
                    return Err(BuildError::Layer {
                        layer: node.name.clone(),
                        reason: "no circuit computes a leaky ReLU with a negative slope: use \
                                 --trust client-aided"
                            .into(),
                    });
                }
                Op::Chain(Garbled { ops })
            }
        };
        Ok(self.push(name, op, inputs, node.value.clone()))
    }

    /// The draft itself, or the one that makes its shares exact.
    fn exact(&mut self, draft: usize) -> usize {
        if !self.guarded[draft] {
            return draft;
        }
        if let Some(exact) = self.exact[draft] {
            return exact;
        }
        let (name, value) = (
            self.drafts[draft].name.clone(),
            self.drafts[draft].value.clone(),
        );
        let chain = Op::Chain(Garbled { ops: Vec::new() });
        let exact = self.push(name, chain, vec![draft], value);
        self.exact[draft] = Some(exact);
        exact
    }

    fn push(&mut self, name: String, op: Op<'a>, inputs: Vec<usize>, value: ValueSpec) -> usize {
        let draft = Draft {
            name,
            op,
            inputs,
            value,
        };
        let passes_on = draft.rules().takes() == Takes::Same
            && draft.inputs.iter().any(|&input| self.guarded[input]);
        self.guarded.push(draft.guarded().is_some() || passes_on);
        self.exact.push(None);
        self.drafts.push(draft);
        self.drafts.len() - 1
    }
}

/// Puts a circuit wherever a step takes shares modulo another number than its input's: a prime for
/// layers on slots, a power of two for squares.
fn convert(drafts: &mut Vec<Draft<'_>>, output: &mut usize) {
    loop {
        let all = nodes(drafts);
        let Some((reader, input)) = share_form::other_modulus(&all, &share_forms(&all)) else {
            return;
        };
        let draft = Draft {
            name: drafts[input].name.clone(),
            op: Op::Chain(Garbled { ops: Vec::new() }),
            inputs: vec![input],
            value: drafts[input].value.clone(),
        };
        insert_before(drafts, output, reader, draft);
    }
}

/// Chooses guard bits. The draft, if any, whose shares then take too many bits, and how many.
fn settle_guards(drafts: &mut [Draft<'_>]) -> Result<Option<(usize, u32)>, BuildError> {
    loop {
        let all = nodes(drafts);
        match share_form::fault(&all, &share_forms(&all)) {
            None => return Ok(None),
            Some((_, Fault::Error { input, guard })) => guards::raise(drafts, input, guard),
            Some((draft, Fault::Width { bits })) => return Ok(Some((draft, bits))),
            Some((draft, Fault::Inexact { .. } | Fault::Modulus { .. })) => {
                return Err(drafts[draft].error("its input is not shared as it takes it"));
            }
        }
    }
}

/// The nodes of products of matrices that have no parameters under encryption, as ranges and guards
/// have grown.
fn without_parameters(drafts: &[Draft<'_>]) -> Vec<usize> {
    let forms = share_forms(&nodes(drafts));
    let without = drafts.iter().zip(&forms).filter_map(|(draft, form)| {
        let (Op::Matrices(of), &[left, right]) = (&draft.op, draft.inputs.as_slice()) else {
            return None;
        };
        let [left, right] = [left, right].map(|input| &drafts[input].value);
        let possible = matrices::is_possible(left, right, form.value_bits(), form.guard);
        (!possible).then_some(of.index)
    });
    without.collect()
}

/// Whether a product of matrices takes fewer bytes under encryption, with room for wider ranges.
fn pays(sizes: &Matrices, value: &ValueSpec) -> bool {
    let bits = signed_width(value.low.into(), value.high.into()) + ROOM;
    matrices::pays(sizes, bits, LEAST_GUARD)
}

/// Bits by which ranges and guards of a product of matrices may grow before its parameters are
/// chosen.
const ROOM: u32 = 2;

/// Complete steps.
fn finish(
    drafts: Vec<Draft<'_>>,
    output: usize,
    engine: Option<Engine>,
) -> Result<Lowered, BuildError> {
    let forms = share_forms(&nodes(&drafts));
    // Networks repeat their layers, and each takes a while to choose.
    let mut chosen: HashMap<ConvGeometry, SlotLinear> = HashMap::new();
    let (mut steps, mut weights): (Vec<Step>, Vec<_>) = (Vec::new(), Vec::new());
    let names = drafts.iter().map(|draft| draft.name.clone()).collect();
    for (draft, form) in drafts.iter().zip(&forms) {
        let kind = match &draft.op {
            Op::Ready(kind) => kind.clone(),
            Op::Bias(constants) => StepKind::Bias(constants.step.clone()),
            Op::Matrices(matrices) => StepKind::EncryptedMatrices(matrices.step(form.value_bits())),
            Op::Chain(chain) => chain_kind(chain),
            Op::Layer(layer) => match layer.prime() {
                Some(t) => StepKind::SlotLinear(on_slots(layer, t, &mut chosen)?),
                None => {
                    let shares = ShareBits {
                        value_bits: form.value_bits(),
                        guard_bits: form.guard,
                    };
                    let input = &drafts[draft.inputs[0]].value;
                    parameters::on_shares(layer, input, &draft.value, shares, engine)?
                }
            },
        };
        weights.push(draft.weights().cloned());
        steps.push(Step {
            kind,
            inputs: draft.inputs.clone(),
            value: draft.value.clone(),
        });
    }
    Ok(Lowered {
        steps,
        names,
        output,
        weights,
    })
}

/// A circuit at first, but for a dither, which no circuit has.
fn chain_kind(of: &Garbled) -> StepKind {
    match chain::is_dithered(&of.ops) {
        true => StepKind::Lean(Lean {
            ops: of.ops.clone(),
            transfers: Transfers::default(),
        }),
        false => StepKind::Garbled(of.clone()),
    }
}

/// Parameters of a layer on slots.
fn on_slots(
    layer: &Layer<'_>,
    t: u64,
    chosen: &mut HashMap<ConvGeometry, SlotLinear>,
) -> Result<SlotLinear, BuildError> {
    let geometry = &layer.linear.geometry;
    if let Some(found) = chosen.get(geometry) {
        return Ok(found.clone());
    }
    let found = SlotLinear::choose(geometry, t);
    let found = found.map_err(|error| BuildError::Bits {
        layer: layer.node.name.clone(),
        reason: error.to_string(),
    })?;
    chosen.insert(geometry.clone(), found.clone());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use pronghorn_graph::fixed::{Linear, LocalOp};

    use super::*;

    const ALL: usize = 4;

    fn node(op: FixedOp, inputs: &[usize], low: i32, high: i32) -> FixedNode {
        let value = ValueSpec {
            shape: vec![ALL],
            fraction_bits: 0,
            low,
            high,
        };
        FixedNode {
            name: "node".into(),
            op,
            inputs: inputs.to_vec(),
            value,
        }
    }

    fn layer(weight: i16) -> FixedNode {
        let reach = i32::from(weight) * 100 * ALL as i32;
        let linear = Linear {
            geometry: ConvGeometry::dense(ALL, ALL),
            weights: vec![weight; ALL * ALL],
            bias: vec![0; ALL],
        };
        node(FixedOp::Linear(linear), &[0], -reach, reach)
    }

    fn activation(op: ActivationOp, input: usize, low: i32, high: i32) -> FixedNode {
        node(FixedOp::Activation(op), &[input], low, high)
    }

    /// Two layers, the dither of the second, then that of the first; and a slope that multiplies
    /// errors of a sum that has no room for them, so that all layers before it are made exact at
    /// once.
    #[test]
    fn dithers_come_in_the_order_of_their_nodes() {
        let dither = |shift| ActivationOp::Dither {
            shifts: vec![shift],
        };
        let add = |left_shift| FixedOp::Local(LocalOp::Add { left_shift });
        let slope = ActivationOp::LeakyRelu {
            slope: 100,
            shift: 8,
        };
        let fixed = FixedGraph {
            name: "order".into(),
            nodes: vec![
                node(FixedOp::Input, &[], -100, 100),
                layer(160),
                layer(320),
                activation(dither(5), 2, -4000, 4001),
                activation(dither(6), 1, -1000, 1001),
                layer(325),
                node(add([0, 0]), &[3, 4], -5000, 5002),
                node(add([2, 0]), &[5, 6], -525_000, 525_002),
                activation(slope, 7, -52_500_000, 134_400_512),
            ],
            output: 8,
            finish: vec![],
        };
        fixed.validate().unwrap();
        let lowered = lower(&fixed, Some(Engine::Coefficient)).unwrap();
        let made_exact =
            |step: &&Step| matches!(&step.kind, StepKind::Garbled(of) if of.ops.is_empty());
        assert!(lowered.steps.iter().any(|step| made_exact(&step)));
        let dithers = lowered
            .steps
            .iter()
            .filter_map(|step| step.kind.as_step().dithers());
        assert_eq!(dithers.collect::<Vec<_>>(), [[5], [6]]);
    }
}
