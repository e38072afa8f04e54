//! The architecture of a network, which all parties know, and its program on slots.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pronghorn_graph::{
    self as graph,
    geometry::ConvGeometry,
    polynomial::{PolyGraph, PolyOp},
};
use serde::{Deserialize, Serialize};

use crate::{
    NetworkError,
    layout::{Layout, Place},
    packing::{self, Input, Packing, Rows},
};

/// Most ciphertexts of all values and weights together. Each takes about a megabyte.
const MOST_CIPHERTEXTS: usize = 1 << 16;

/// The architecture of a polynomial network: operators, their shapes, and the range of inputs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Network {
    /// Nodes in topological order; the first is the input, and the only one.
    pub nodes: Vec<Node>,
    /// The node whose value is the result.
    pub output: usize,
}

/// An operator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// The node of the model it comes from, for messages.
    pub name: String,
    /// The operator, without weights.
    pub op: Op,
    /// Nodes whose values it reads.
    pub inputs: Vec<usize>,
    /// Elements of its value.
    pub elements: usize,
}

/// The operators, without weights.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// The input.
    Input {
        /// The least element: zero, or minus the largest.
        low: f64,
        /// The largest magnitude of an element.
        reach: f64,
    },
    /// A convolution or dense layer.
    Linear {
        /// Sizes.
        geometry: ConvGeometry,
    },
    /// A factor and a summand for each element.
    Factor,
    /// `x * x`.
    Square,
    /// `inputs[0] * inputs[1]`.
    Multiply,
    /// `inputs[0] + inputs[1]`.
    Add,
    /// Each element copies one of an input, or is zero.
    Rearrange(Vec<Option<Source>>),
}

/// The element of an input that an element of a rearrangement copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The input of the operator.
    pub input: usize,
    /// The element of that input.
    pub index: usize,
}

impl Network {
    /// The architecture of a network with weights.
    pub fn of(network: &PolyGraph) -> Self {
        let nodes = network.nodes.iter().map(|node| Node {
            name: node.name.clone(),
            op: match &node.op {
                PolyOp::Input => Op::Input {
                    low: network.low,
                    reach: node.reach,
                },
                PolyOp::Linear(layer) => Op::Linear {
                    geometry: layer.geometry.clone(),
                },
                PolyOp::Factor(_) => Op::Factor,
                PolyOp::Square => Op::Square,
                PolyOp::Multiply => Op::Multiply,
                PolyOp::Add => Op::Add,
                PolyOp::Rearrange(sources) => {
                    let copied = |source: &graph::layout::Source| Source {
                        input: source.input,
                        index: source.index,
                    };
                    let sources = sources.iter();
                    Op::Rearrange(sources.map(|source| source.as_ref().map(copied)).collect())
                }
            },
            inputs: node.inputs.clone(),
            elements: node.len(),
        });
        Self {
            nodes: nodes.collect(),
            output: network.output,
        }
    }

    /// The network with its operators' names in place of those of the model's file, which are the
    /// owner's alone.
    #[must_use]
    pub fn without_names(&self) -> Self {
        let mut network = self.clone();
        for (index, node) in network.nodes.iter_mut().enumerate() {
            node.name = format!("{} {index}", node.op.name());
        }
        network
    }

    /// Products on the longest way to the result: the levels of the program.
    pub fn depth(&self) -> usize {
        self.levels()[0]
    }

    /// Refuses nodes that do not fit their inputs.
    fn check(&self) -> Result<(), NetworkError> {
        for (index, node) in self.nodes.iter().enumerate() {
            let input = |place: usize| {
                let input = node.inputs.get(place).filter(|&&input| input < index)?;
                Some(self.nodes[*input].elements)
            };
            let inputs = |count: usize| node.inputs.len() == count;
            let before = node.inputs.iter().all(|&input| input < index);
            let fits = match &node.op {
                Op::Input { low, reach } => {
                    let is_range = *low == 0.0 || *low == -reach;
                    index == 0 && reach.is_finite() && *reach > 0.0 && is_range && inputs(0)
                }
                Op::Linear { geometry } => {
                    // The output is there only if no product of sizes is too large.
                    let sizes = geometry.output().map(|[h, w]| {
                        let read = geometry.in_channels * geometry.input[0] * geometry.input[1];
                        [read, geometry.out_channels * h * w]
                    });
                    let fits =
                        |[read, made]: [usize; 2]| input(0) == Some(read) && made == node.elements;
                    inputs(1) && sizes.is_ok_and(fits)
                }
                Op::Factor | Op::Square => inputs(1) && input(0) == Some(node.elements),
                Op::Multiply | Op::Add => {
                    let same = |place| input(place) == Some(node.elements);
                    inputs(2) && same(0) && same(1)
                }
                Op::Rearrange(sources) => {
                    let inside = |source: &Source| {
                        input(source.input).is_some_and(|elements| source.index < elements)
                    };
                    let count = 1..=packing::MOST_PRODUCTS;
                    count.contains(&node.inputs.len())
                        && sources.len() == node.elements
                        && sources.iter().flatten().all(inside)
                }
            };
            if !fits || !before {
                let node = node.name.clone();
                return Err(NetworkError::Shape { node });
            }
        }
        let output = self.nodes.get(self.output);
        output.map(|_| ()).ok_or(NetworkError::NoProducts)
    }

    /// Refuses nodes that the result does not depend on. They would ask for levels that it has not.
    fn check_readers(&self) -> Result<(), NetworkError> {
        let mut read = vec![false; self.nodes.len()];
        read[self.output] = true;
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if !read[index] {
                let node = node.name.clone();
                return Err(NetworkError::Unread { node });
            }
            node.inputs.iter().for_each(|&input| read[input] = true);
        }
        Ok(())
    }

    /// Levels that are left at each value: the products between it and the result, on the longest
    /// way.
    fn levels(&self) -> Vec<usize> {
        let mut levels = vec![0; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate().rev() {
            let before = levels[index] + usize::from(node.op.is_product());
            for &input in &node.inputs {
                levels[input] = before.max(levels[input]);
            }
        }
        levels
    }

    /// True for values that reach the result without another layer's weights, whose zeros would
    /// hide partial sums.
    pub(crate) fn shown(&self) -> Vec<bool> {
        let mut shown = vec![false; self.nodes.len()];
        shown[self.output] = true;
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if shown[index] && !node.op.has_weights() {
                node.inputs.iter().for_each(|&input| shown[input] = true);
            }
        }
        shown
    }

    /// An earlier value that a layer's output meets slot by slot, or what is made of the output
    /// slot by slot.
    fn met(&self, layer: usize) -> Option<usize> {
        let mut alike = vec![false; self.nodes.len()];
        alike[layer] = true;
        for (index, node) in self.nodes.iter().enumerate().skip(layer + 1) {
            let is_slotwise = matches!(node.op, Op::Add | Op::Multiply | Op::Square | Op::Factor);
            let Some(other) = node.inputs.iter().find(|&&input| !alike[input]) else {
                alike[index] = is_slotwise;
                continue;
            };
            let meets = node.inputs.iter().any(|&input| alike[input]);
            if is_slotwise && meets && *other < layer {
                return Some(*other);
            }
            alike[index] = is_slotwise && meets;
        }
        None
    }

    /// Reads of each value; being the result counts as one.
    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        uses[self.output] = 1;
        let reads = self.nodes.iter().flat_map(|node| &node.inputs);
        reads.for_each(|&input| uses[input] += 1);
        uses
    }
}

impl Op {
    /// The operator's name in messages.
    fn name(&self) -> &'static str {
        match self {
            Self::Input { .. } => "input",
            Self::Linear { .. } => "linear",
            Self::Factor => "factors",
            Self::Square => "square",
            Self::Multiply => "multiply",
            Self::Add => "add",
            Self::Rearrange(_) => "rearrange",
        }
    }

    /// Weights of all outputs together, each as often as it is used.
    pub(crate) fn weights(&self) -> usize {
        match self {
            Self::Linear { geometry } => {
                usize::try_from(geometry.multiply_adds()).unwrap_or(usize::MAX)
            }
            _ => 0,
        }
    }

    /// True if it has encrypted weights.
    pub fn has_weights(&self) -> bool {
        matches!(self, Self::Linear { .. } | Self::Factor)
    }

    /// True if it multiplies ciphertexts, which takes a level.
    pub fn is_product(&self) -> bool {
        match self {
            Self::Linear { .. } | Self::Factor | Self::Square | Self::Multiply => true,
            Self::Input { .. } | Self::Add | Self::Rearrange(_) => false,
        }
    }
}

/// A network on ciphertexts of `slots` slots: for each node where its value lies and how it comes
/// about. Follows from the architecture, so each party makes it for itself.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The network.
    pub network: Network,
    /// Slots of a ciphertext.
    pub slots: usize,
    /// One for each node.
    pub steps: Vec<Step>,
    repeats: Repeats,
}

/// The value of a node.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// Levels that are left.
    pub level: usize,
    /// The places of its elements.
    pub layout: Layout,
    /// True if it depends on no weights, so that it is under the client's key alone.
    pub is_client_alone: bool,
    /// How it comes about.
    pub work: Work,
}

/// How a value comes about.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// The client encrypts it.
    Input(Input),
    /// Rotations times ciphertexts of weights.
    Linear(Packing),
    /// Nothing but what the operator says, slot by slot.
    Slotwise,
}

impl Step {
    /// The level at which its node takes values.
    fn level_read(&self, node: &Node) -> usize {
        self.level + usize::from(node.op.is_product())
    }
}

impl Program {
    /// The program of a network, layer by layer: in the slots of an earlier value that the layer's
    /// output meets, else with the cheapest packing.
    ///
    /// # Errors
    /// When an operator needs values in other places than they are in, a layer needs too many
    /// ciphertexts, or there is nothing to compute that takes the owner's weights.
    pub fn new(network: Network, slots: usize) -> Result<Self, NetworkError> {
        network.check()?;
        let (levels, uses) = (network.levels(), network.uses());
        if levels[0] == 0 {
            return Err(NetworkError::NoProducts);
        }
        network.check_readers()?;
        let shown = network.shown();
        let mut steps: Vec<Step> = Vec::with_capacity(network.nodes.len());
        // Ciphertexts of values and weights.
        let mut all = 0;
        // The layer that alone reads the input, and its packing.
        let mut input_packing: Option<(usize, Packing)> = None;
        for (index, node) in network.nodes.iter().enumerate() {
            let layout = |place: usize| -> &Layout { &steps[node.inputs[place]].layout };
            let too_large = || NetworkError::TooLarge {
                node: node.name.clone(),
                elements: node.elements,
                slots,
            };
            let placed = |chosen: Option<Packing>, rows: &dyn Fn() -> Rows| {
                let met = network.met(index).and_then(|other| steps.get(other));
                let met = met.map(|other| &other.layout);
                let packing = packing::beside(chosen, rows, layout(0), slots, met);
                let packing = packing.ok_or_else(too_large)?;
                Ok::<_, NetworkError>((packing.output.clone(), Work::Linear(packing)))
            };
            let (layout, work) = match &node.op {
                Op::Input { .. } => {
                    let first = first_layer(&network, &uses);
                    let found = first.map(|(reader, geometry)| {
                        let found =
                            packing::choose_first(geometry, node.elements, slots, shown[reader]);
                        let (input, packing) = found.ok_or_else(too_large)?;
                        Ok::<_, NetworkError>((input, (reader, packing)))
                    });
                    let plain = Layout::in_order(node.elements, slots);
                    let in_order = || Input {
                        spots: plain.spots(),
                        period: plain.period(),
                    };
                    let input = match found.transpose()? {
                        Some((input, packing)) => {
                            input_packing = Some(packing);
                            input
                        }
                        None => in_order(),
                    };
                    let layout = Layout {
                        periods: vec![plain.period(); input.spots.len()],
                        ..plain
                    };
                    (layout, Work::Input(input))
                }
                Op::Linear { geometry } => {
                    let chosen = match &input_packing {
                        Some((reader, packing)) if *reader == index => Some(packing.clone()),
                        _ => packing::choose(geometry, layout(0), slots, shown[index]),
                    };
                    placed(chosen, &|| packing::rows(geometry))?
                }
                Op::Factor if layout(0).has_copies() => {
                    // Copies of an element lie in one slot, which has one factor: a layer parts
                    // them.
                    let chosen = packing::choose_apart(layout(0), slots, shown[index]);
                    placed(chosen, &|| packing::diagonal(node.elements))?
                }
                Op::Factor => {
                    // Factors are repeated at the largest distance, and zeros elsewhere.
                    let layout = Layout {
                        periods: vec![layout(0).period(); layout(0).ciphertexts()],
                        clean: true,
                        ..layout(0).clone()
                    };
                    if layout.places.contains(&None) {
                        return Err(unaligned(node));
                    }
                    (layout, Work::Slotwise)
                }
                Op::Square => (layout(0).clone(), Work::Slotwise),
                Op::Multiply | Op::Add => {
                    let (left, right) = (layout(0), layout(1));
                    let clean = if matches!(node.op, Op::Add) {
                        left.clean && right.clean
                    } else {
                        left.clean || right.clean
                    };
                    if !left.is_beside(right) {
                        return Err(unaligned(node));
                    }
                    let layout = Layout {
                        clean,
                        ..left.clone()
                    };
                    (layout, Work::Slotwise)
                }
                Op::Rearrange(sources) => {
                    let inputs: Vec<&Layout> = (0..node.inputs.len()).map(layout).collect();
                    let ciphertexts: usize = inputs.iter().map(|input| input.ciphertexts()).sum();
                    // Before memory is taken for them.
                    if ciphertexts > packing::MOST_PRODUCTS {
                        return Err(too_large());
                    }
                    (rearranged(sources, &inputs), Work::Slotwise)
                }
            };
            all += layout.ciphertexts();
            if let Work::Linear(packing) = &work {
                all += packing.products.iter().map(Vec::len).sum::<usize>();
            }
            if layout.ciphertexts() > packing::MOST_PRODUCTS || all > MOST_CIPHERTEXTS {
                return Err(too_large());
            }
            let weights = node.op.has_weights();
            let mut inputs = node.inputs.iter();
            steps.push(Step {
                level: levels[index],
                layout,
                is_client_alone: !weights && inputs.all(|&input| steps[input].is_client_alone),
                work,
            });
        }
        if steps[network.output].is_client_alone {
            return Err(NetworkError::NoWeights);
        }
        if !steps[network.output].layout.clean {
            let name = network.nodes[network.output].name.clone();
            return Err(NetworkError::PartialSums { node: name });
        }
        let repeats = Repeats::of(&network, &steps);
        Ok(Self {
            network,
            slots,
            steps,
            repeats,
        })
    }

    /// Rotations to the left that the program needs of keys of the client, and of keys of the model
    /// owner: those of the input are the client's alone.
    pub fn rotations(&self) -> [Vec<i64>; 2] {
        let (mut client, mut owner) = (BTreeSet::<usize>::new(), BTreeSet::<usize>::new());
        for (step, node) in self.steps.iter().zip(&self.network.nodes) {
            if let Work::Linear(packing) = &step.work {
                let steps = packing.keys();
                client.extend(&steps);
                if !self.steps[node.inputs[0]].is_client_alone {
                    owner.extend(&steps);
                }
                client.extend(&packing.folds);
                owner.extend(&packing.folds);
            }
        }
        [client, owner].map(|steps| steps.into_iter().map(|steps| steps as i64).collect())
    }

    /// At most how often nodes do with one ciphertext what this one does, itself included: rotate
    /// it for a layer, or multiply it with the same other one. Their noise is one noise.
    pub(crate) fn readers(&self, index: usize) -> usize {
        self.repeats.works[index]
    }

    /// At most how often a ciphertext of this value is brought to this level, as part of it or of
    /// another value. It is rounded alike.
    pub(crate) fn lowered(&self, value: usize, level: usize) -> usize {
        let found = self.repeats.lowered.get(&(value, level));
        found.copied().unwrap_or(1)
    }

    /// The levels between which values are brought.
    pub(crate) fn lowerings(&self) -> BTreeSet<(usize, usize)> {
        let values = self.repeats.lowered.keys();
        values
            .map(|&(value, to)| (self.steps[value].level, to))
            .collect()
    }

    /// The level at which a node takes the values that it reads.
    pub(crate) fn level_read(&self, node: usize) -> usize {
        self.steps[node].level_read(&self.network.nodes[node])
    }

    /// What the program does, counted.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (step, node) in self.steps.iter().zip(&self.network.nodes) {
            match &step.work {
                Work::Input(input) => counts.inputs += input.spots.len(),
                Work::Linear(packing) => {
                    let products: usize = packing.products.iter().map(Vec::len).sum();
                    let rotations = packing.rotations();
                    counts.weights += products + step.layout.ciphertexts();
                    counts.hoisted += rotations.iter().filter(|x| x.steps > 0).count();
                    counts.folds += packing.folds.len() * step.layout.ciphertexts();
                    counts.products += products;
                    counts.relinearisations += step.layout.ciphertexts();
                }
                Work::Slotwise if node.op.is_product() => {
                    counts.products += step.layout.ciphertexts();
                    counts.relinearisations += step.layout.ciphertexts();
                    if matches!(node.op, Op::Factor) {
                        counts.weights += 2 * step.layout.ciphertexts();
                    }
                }
                Work::Slotwise => {}
            }
        }
        counts
    }
}

/// What a program does for one image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Ciphertexts of the client.
    pub inputs: usize,
    /// Ciphertexts of the model, biases included.
    pub weights: usize,
    /// Rotations of one ciphertext together with others.
    pub hoisted: usize,
    /// Rotations on their own.
    pub folds: usize,
    /// Products of ciphertexts.
    pub products: usize,
    /// Sums of products, each with one relinearisation.
    pub relinearisations: usize,
}

/// The linear layer that alone reads the input.
fn first_layer<'a>(network: &'a Network, uses: &[usize]) -> Option<(usize, &'a ConvGeometry)> {
    if uses[0] != 1 {
        return None;
    }
    let mut nodes = network.nodes.iter().enumerate();
    let (index, reader) = nodes.find(|(_, node)| node.inputs.contains(&0))?;
    match &reader.op {
        Op::Linear { geometry } => Some((index, geometry)),
        _ => None,
    }
}

/// What a ciphertext is, for noise: what follows from the same ciphertexts in the same way is the
/// same. Of ciphertexts with fresh polynomials one polynomial is the same still.
///
/// A hash. Sums are exact, so their hashes add up: in any order they are one. Where two hashes were
/// equal by chance, bounds would be larger.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Origin(u128);

impl Origin {
    fn hashed(what: u8, parts: [u128; 2]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[what]);
        parts.iter().for_each(|part| {
            hasher.update(&part.to_le_bytes());
        });
        let mut hash = [0; 16];
        hasher.finalize_xof().fill(&mut hash);
        Self(u128::from_le_bytes(hash))
    }

    /// A ciphertext of an input or a layer.
    fn made(node: usize, place: usize) -> Self {
        Self::hashed(0, [node as u128, place as u128])
    }

    fn sum(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    fn product(self, other: Self) -> Self {
        Self::hashed(1, [self.0.min(other.0), self.0.max(other.0)])
    }

    /// Rotations of a ciphertext.
    fn rotated(self) -> Self {
        Self::hashed(2, [self.0, 0])
    }

    /// A ciphertext at a lower level.
    fn lowered(self, level: usize) -> Self {
        Self::hashed(3, [self.0, level as u128])
    }
}

/// How often a program does the same with one ciphertext. What that adds to noise is then one noise.
#[derive(Clone, PartialEq, Debug)]
struct Repeats {
    /// By node: of what it rotates, or makes by a product, the most.
    works: Vec<usize>,
    /// By value and level: of ciphertexts of the value that are brought to the level, the most.
    lowered: BTreeMap<(usize, usize), usize>,
}

impl Repeats {
    fn of(network: &Network, steps: &[Step]) -> Self {
        let mut values: Vec<Vec<Origin>> = Vec::with_capacity(steps.len());
        let mut works: Vec<Vec<Origin>> = Vec::with_capacity(steps.len());
        let mut lowered = BTreeMap::<(usize, usize), Vec<Origin>>::new();
        for (index, (node, step)) in network.nodes.iter().zip(steps).enumerate() {
            let level = step.level_read(node);
            for &input in node
                .inputs
                .iter()
                .filter(|&&input| steps[input].level != level)
            {
                let brought = || values[input].iter().map(|x| x.lowered(level)).collect();
                lowered.entry((input, level)).or_insert_with(brought);
            }
            let of = |place: usize| &values[node.inputs[place]][..];
            let pairs = |other: usize| of(0).iter().zip(of(other));
            let value: Vec<Origin> = match &node.op {
                Op::Square => pairs(0).map(|(x, y)| x.product(*y)).collect(),
                Op::Multiply => pairs(1).map(|(x, y)| x.product(*y)).collect(),
                Op::Add => pairs(1).map(|(x, y)| x.sum(*y)).collect(),
                Op::Rearrange(_) => {
                    let inputs = node.inputs.iter().map(|&input| &values[input]);
                    inputs.flatten().copied().collect()
                }
                Op::Input { .. } | Op::Linear { .. } | Op::Factor => {
                    let places = 0..step.layout.ciphertexts();
                    places.map(|place| Origin::made(index, place)).collect()
                }
            };
            works.push(match (&node.op, &step.work) {
                (_, Work::Linear(_)) => of(0).iter().map(|x| x.rotated()).collect(),
                (Op::Square | Op::Multiply, _) => value.clone(),
                _ => Vec::new(),
            });
            values.push(value);
        }
        let mut counts = HashMap::<Origin, usize>::new();
        let all = works.iter().chain(lowered.values()).flatten();
        all.for_each(|&origin| *counts.entry(origin).or_default() += 1);
        let most = |origins: &Vec<Origin>| {
            let counts = origins.iter().map(|origin| counts[origin]);
            counts.max().unwrap_or(1)
        };
        Self {
            works: works.iter().map(most).collect(),
            lowered: lowered
                .iter()
                .map(|(&at, origins)| (at, most(origins)))
                .collect(),
        }
    }
}

fn unaligned(node: &Node) -> NetworkError {
    NetworkError::Places {
        node: node.name.clone(),
    }
}

/// The layout of copied elements, which stay where they are.
fn rearranged(sources: &[Option<Source>], inputs: &[&Layout]) -> Layout {
    let mut first = Vec::new();
    let mut periods = Vec::new();
    for input in inputs {
        first.push(periods.len());
        periods.extend(&input.periods);
    }
    let place = |source: &Option<Source>| {
        let Source { input, index } = (*source)?;
        let place = inputs[input].places[index]?;
        Some(Place {
            ciphertext: first[input] + place.ciphertext,
            slot: place.slot,
        })
    };
    let places: Vec<Option<Place>> = sources.iter().map(place).collect();
    // An element that is left out stays in its slot.
    let moved: usize = inputs.iter().map(|input| input.places.len()).sum();
    let copied = sources.iter().flatten().map(|s| (s.input, s.index));
    let all = copied.collect::<BTreeSet<_>>().len() == moved;
    Layout {
        periods,
        places,
        clean: all && inputs.iter().all(|input| input.clean),
    }
}
