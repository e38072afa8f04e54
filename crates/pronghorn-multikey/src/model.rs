//! Encrypted weights, and the evaluation of a network with them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use pronghorn_graph::polynomial::{PolyGraph, PolyOp};
use pronghorn_he::{
    ckks::{Encryptor, SeededCiphertext, Slots},
    multikey::{Ciphertext, KeyRing, Party, Relinearisation},
};
use pronghorn_ring::Word;
use zeroize::Zeroizing;

use crate::{
    NetworkError, Program, Setting,
    layout::{Spot, fill},
    network::{Node, Op, Work},
    packing::{Packing, Rotation},
};

/// The weights of a network, encrypted by their owner.
pub struct Model<W: Word> {
    /// By node.
    pub layers: BTreeMap<usize, Layer<W>>,
}

/// The weights of a layer.
pub struct Layer<W: Word> {
    /// For each ciphertext of the output one for each product.
    pub weights: Vec<Vec<SeededCiphertext<W>>>,
    /// One for each ciphertext of the output.
    pub addends: Vec<SeededCiphertext<W>>,
}

/// Weights in the places of a packing, ready to be encrypted. Wiped on drop.
type Values = Zeroizing<Vec<f64>>;

impl Program {
    /// The network's weights, encrypted with the owner's encryptor: a seeded ciphertext each, of
    /// the level where it is used.
    ///
    /// # Errors
    /// When `graph` is not the program's network, or weights exceed its bounds.
    pub fn encrypt_model<W: Word>(
        &self,
        setting: &Setting<W>,
        graph: &PolyGraph,
        encryptor: &mut Encryptor<W>,
    ) -> Result<Model<W>, NetworkError> {
        setting.check(self)?;
        let mut layers = BTreeMap::new();
        for (index, node) in self.network.nodes.iter().enumerate() {
            let of_graph = graph.nodes.get(index);
            let matches = of_graph.is_some_and(|of_graph| of_graph.len() == node.elements);
            let other = || NetworkError::OtherNetwork {
                node: node.name.clone(),
            };
            let op = &of_graph.filter(|_| matches).ok_or_else(other)?.op;
            let level = self.steps[index].level;
            let mut encrypt = |values: Values, level: usize, scale: f64| {
                let limbs = setting.limbs(level);
                let message = setting.ring().exact_message(&values, scale, limbs)?;
                Ok::<_, NetworkError>(encryptor.encrypt(&message)?)
            };
            let Some((weights, addends)) = self.weights(index, op) else {
                if node.op.has_weights() {
                    return Err(other());
                }
                continue;
            };
            let scale = setting.weight_scale(level);
            let weights = weights.into_iter().map(|of_output| {
                let of_output = of_output.into_iter();
                of_output
                    .map(|values| encrypt(values, level + 1, scale))
                    .collect::<Result<Vec<_>, _>>()
            });
            let weights = weights.collect::<Result<Vec<_>, _>>()?;
            let addends = addends.into_iter();
            let addends = addends.map(|values| encrypt(values, level, setting.scale(level)));
            let addends = addends.collect::<Result<Vec<_>, _>>()?;
            layers.insert(index, Layer { weights, addends });
        }
        Ok(Model { layers })
    }

    /// The weights of a node in all slots, by ciphertext of the output, and its biases; `None`
    /// where it has none.
    pub(crate) fn weights(
        &self,
        index: usize,
        op: &PolyOp,
    ) -> Option<(Vec<Vec<Values>>, Vec<Values>)> {
        let step = &self.steps[index];
        let layout = &step.layout;
        let fill = |period: usize, spots: &[Spot], value: &dyn Fn(usize) -> f64| {
            Zeroizing::new(fill(self.slots, period, spots, value))
        };
        let of_layout = |value: &dyn Fn(usize) -> f64| -> Vec<Values> {
            let spots = layout.spots();
            spots
                .iter()
                .map(|spots| fill(layout.period(), spots, value))
                .collect()
        };
        let elements = self.network.nodes[index].elements;
        let addend = |element: usize| match op {
            PolyOp::Linear(layer) => layer.bias[element / (elements / layer.bias.len().max(1))],
            PolyOp::Factor(factor) => factor.addends[element],
            _ => 0.0,
        };
        let is_same = matches!(
            (op, &self.network.nodes[index].op),
            (PolyOp::Linear(_), Op::Linear { .. }) | (PolyOp::Factor(_), Op::Factor)
        );
        match (op, &step.work) {
            _ if !is_same => None,
            (_, Work::Linear(packing)) => {
                let weight = |index: usize| weight(op, index);
                let of_output = packing.products.iter().map(|products| {
                    let products = products.iter();
                    let values = products.map(|x| fill(packing.period, &x.weights, &weight));
                    values.collect()
                });
                Some((of_output.collect(), of_layout(&addend)))
            }
            (PolyOp::Factor(_), Work::Slotwise) => {
                let factors = of_layout(&|element| weight(op, element)).into_iter();
                Some((
                    factors.map(|values| vec![values]).collect(),
                    of_layout(&addend),
                ))
            }
            _ => None,
        }
    }

    /// An image, encrypted with the client's encryptor.
    ///
    /// # Errors
    /// When it has another number of elements, or one out of the network's range.
    pub fn encrypt_input<W: Word>(
        &self,
        setting: &Setting<W>,
        values: &[f64],
        encryptor: &mut Encryptor<W>,
    ) -> Result<Vec<SeededCiphertext<W>>, NetworkError> {
        setting.check(self)?;
        let node = &self.network.nodes[0];
        let (Work::Input(input), Op::Input { low, reach }) = (&self.steps[0].work, &node.op) else {
            return Err(NetworkError::OtherNetwork {
                node: node.name.clone(),
            });
        };
        count("elements of the input", values.len(), node.elements)?;
        let inside = |value: f64| *low <= value && value <= *reach;
        if let Some(index) = values.iter().position(|&value| !inside(value)) {
            return Err(NetworkError::Input {
                index,
                value: values[index],
                low: *low,
                high: *reach,
            });
        }
        let level = self.steps[0].level;
        let encrypt = |spots: &Vec<Spot>| {
            let slots = Zeroizing::new(fill(self.slots, input.period, spots, |i| values[i]));
            let (scale, limbs) = (setting.scale(level), setting.limbs(level));
            let message = setting.ring().exact_message(&slots, scale, limbs)?;
            Ok(encryptor.encrypt(&message)?)
        };
        input.spots.iter().map(encrypt).collect()
    }

    /// The elements of the result, from the slots of its ciphertexts.
    ///
    /// # Errors
    /// When there are other ciphertexts or slots.
    pub fn decode(&self, slots: &[Slots]) -> Result<Vec<f64>, NetworkError> {
        let layout = &self.steps[self.network.output].layout;
        count(
            "ciphertexts of the result",
            slots.len(),
            layout.ciphertexts(),
        )?;
        let places = layout.places.iter();
        let element = |place: &Option<crate::layout::Place>| {
            let Some(place) = place else { return Ok(0.0) };
            let slots = &slots[place.ciphertext].re;
            let found = slots.get(place.slot).copied();
            found.ok_or(NetworkError::Count {
                what: "slots of the result",
                found: slots.len(),
                expected: self.slots,
            })
        };
        places.map(element).collect()
    }
}

/// A weight of a layer, or a factor.
pub(crate) fn weight(op: &PolyOp, index: usize) -> f64 {
    match op {
        PolyOp::Linear(layer) => layer.weights[index] / layer.divisor,
        PolyOp::Factor(factor) => factor.factors[index] / factor.divisor,
        _ => 0.0,
    }
}

fn count(what: &'static str, found: usize, expected: usize) -> Result<(), NetworkError> {
    if found == expected {
        Ok(())
    } else {
        Err(NetworkError::Count {
            what,
            found,
            expected,
        })
    }
}

/// A model that the cloud evaluates: expanded ciphertexts, checked against the program.
pub struct Cloud<W: Word> {
    program: Arc<Program>,
    setting: Setting<W>,
    layers: BTreeMap<usize, Expanded<W>>,
}

/// The weights of a layer, by ciphertext of the output.
struct Expanded<W: Word> {
    weights: Vec<Vec<Ciphertext<W>>>,
    addends: Vec<Ciphertext<W>>,
}

/// The ciphertexts of a value.
type Value<W> = Vec<Ciphertext<W>>;

impl<W: Word> Cloud<W> {
    /// The model of `owner`, ready for evaluation.
    ///
    /// # Errors
    /// When a ciphertext is missing, or has other limbs or another scale than the program says.
    pub fn new(
        program: &Arc<Program>,
        setting: &Setting<W>,
        owner: Party,
        model: &Model<W>,
    ) -> Result<Self, NetworkError> {
        setting.check(program)?;
        let mut layers = BTreeMap::new();
        for (index, node) in program.network.nodes.iter().enumerate() {
            if !node.op.has_weights() {
                continue;
            }
            let step = &program.steps[index];
            let level = step.level;
            let expand = |what, ciphertexts: &[SeededCiphertext<W>], expected, level, scale| {
                count(what, ciphertexts.len(), expected)?;
                let ciphertexts = ciphertexts.iter();
                let one = |x| expand(setting, owner, node, what, x, level, scale);
                ciphertexts.map(one).collect::<Result<Vec<_>, _>>()
            };
            let layer = model.layers.get(&index);
            let layer = layer.ok_or_else(|| NetworkError::OtherNetwork {
                node: node.name.clone(),
            })?;
            let outputs = step.layout.ciphertexts();
            count("outputs of a layer", layer.weights.len(), outputs)?;
            let weights = layer.weights.iter().enumerate().map(|(output, weights)| {
                let expected = match &step.work {
                    Work::Linear(packing) => packing.products[output].len(),
                    _ => 1,
                };
                let scale = setting.weight_scale(level);
                expand("weights", weights, expected, level + 1, scale)
            });
            let weights = weights.collect::<Result<Vec<_>, _>>()?;
            let addends = expand(
                "biases",
                &layer.addends,
                outputs,
                level,
                setting.scale(level),
            )?;
            layers.insert(index, Expanded { weights, addends });
        }
        Ok(Self {
            program: program.clone(),
            setting: setting.clone(),
            layers,
        })
    }

    /// The result for an image of `client`, one ciphertext or more under both keys. `watch` hears
    /// of each node when its value is there, with the seconds that it took.
    ///
    /// # Errors
    /// When the input is not what the program says, or keys are missing.
    pub fn evaluate(
        &self,
        client: Party,
        input: &[SeededCiphertext<W>],
        keys: &KeyRing<W>,
        mut watch: impl FnMut(&Node, f64),
    ) -> Result<Vec<Ciphertext<W>>, NetworkError> {
        let Program { network, steps, .. } = &*self.program;
        let mut last_use: Vec<usize> = (0..network.nodes.len()).collect();
        for (index, node) in network.nodes.iter().enumerate() {
            node.inputs
                .iter()
                .for_each(|&input| last_use[input] = index);
        }
        last_use[network.output] = usize::MAX;
        let mut values: Vec<Option<Value<W>>> = Vec::with_capacity(steps.len());
        for (index, node) in network.nodes.iter().enumerate() {
            let started = Instant::now();
            let level = steps[index].level;
            let at = self.program.level_read(index);
            let mut inputs = Vec::with_capacity(node.inputs.len());
            for &input in &node.inputs {
                let value = values[input].as_deref().unwrap_or_default();
                inputs.push(self.lowered(value, steps[input].level, at)?);
            }
            let value = match (&node.op, &steps[index].work) {
                (Op::Input { .. }, Work::Input(expected)) => {
                    count(
                        "ciphertexts of the input",
                        input.len(),
                        expected.spots.len(),
                    )?;
                    let scale = self.setting.scale(level);
                    let one = |x| expand(&self.setting, client, node, "the input", x, level, scale);
                    let value: Value<W> = input.iter().map(one).collect::<Result<_, _>>()?;
                    fresh(client, value, keys)?
                }
                (_, Work::Linear(packing)) => {
                    self.linear(index, packing, &inputs[0], client, keys)?
                }
                (Op::Factor, _) => {
                    let products = inputs[0].iter().zip(&self.layers[&index].weights);
                    let sums = products.map(|(x, weights)| self.sum(&[(&weights[0], x)], keys));
                    let sums = sums.collect::<Result<Vec<_>, _>>()?;
                    self.with_addends(index, fresh(client, sums, keys)?)?
                }
                (Op::Square, _) => {
                    let squares = inputs[0].iter();
                    let dropped = self.setting.dropped();
                    let square = |x: &Ciphertext<W>| {
                        self.settled(x.square(keys, dropped, Relinearisation::Quadratic)?, level)
                    };
                    let squares = squares.map(square).collect::<Result<_, _>>()?;
                    fresh(client, squares, keys)?
                }
                (Op::Multiply, _) => {
                    let pairs = inputs[0].iter().zip(&*inputs[1]);
                    let products =
                        pairs.map(|(x, y)| self.settled(self.sum(&[(x, y)], keys)?, level));
                    fresh(client, products.collect::<Result<_, _>>()?, keys)?
                }
                (Op::Add, _) => {
                    let pairs = inputs[0].iter().zip(&*inputs[1]);
                    pairs.map(|(x, y)| x.add(y)).collect::<Result<_, _>>()?
                }
                (Op::Rearrange(_), _) => together(inputs.concat())?,
                _ => {
                    return Err(NetworkError::OtherNetwork {
                        node: node.name.clone(),
                    });
                }
            };
            values.push(Some(value));
            for &input in &node.inputs {
                if last_use[input] == index {
                    values[input] = None;
                }
            }
            watch(node, started.elapsed().as_secs_f64());
        }
        Ok(values.swap_remove(network.output).unwrap_or_default())
    }

    /// Rotations of the input, hoisted; their products with the weights, made fresh; folds; biases.
    fn linear(
        &self,
        index: usize,
        packing: &Packing,
        input: &[Ciphertext<W>],
        client: Party,
        keys: &KeyRing<W>,
    ) -> Result<Value<W>, NetworkError> {
        let mut rotated: BTreeMap<Rotation, Ciphertext<W>> = BTreeMap::new();
        let parts = packing.rotations().into_iter();
        let parts: Vec<_> = parts.map(|x| (x, packing.parts(x.steps))).collect();
        for (ciphertext, x) in input.iter().enumerate() {
            let of_input = parts.iter().filter(|(x, _)| x.ciphertext == ciphertext);
            // By the first part those with the second parts that follow it.
            let mut firsts: BTreeMap<usize, Vec<(Rotation, usize)>> = BTreeMap::new();
            for &(rotation, [first, second]) in of_input {
                firsts.entry(first).or_default().push((rotation, second));
            }
            let steps: Vec<i64> = firsts.keys().map(|&steps| steps as i64).collect();
            let turned = x.rotate_many(&steps, keys)?;
            for (x, seconds) in turned.into_iter().zip(firsts.into_values()) {
                if let [(rotation, 0)] = seconds[..] {
                    rotated.insert(rotation, x);
                    continue;
                }
                let steps: Vec<i64> = seconds.iter().map(|&(_, steps)| steps as i64).collect();
                let turned = x.rotate_many(&steps, keys)?;
                let of_first = seconds.iter().map(|&(rotation, _)| rotation);
                rotated.extend(of_first.zip(turned));
            }
        }
        let mut sums = Vec::with_capacity(packing.products.len());
        for (products, weights) in packing.products.iter().zip(&self.layers[&index].weights) {
            let factors = products.iter().zip(weights);
            let factors = factors.filter_map(|(product, weights)| {
                let x = rotated.get(&product.rotation)?;
                Some((weights, x))
            });
            // Folds add noise up, so they come before the last prime goes.
            let late = self.setting.late(packing);
            let dropped = self.setting.dropped() - late;
            let factors: Vec<_> = factors.collect();
            let mut sum = Ciphertext::inner_product(&factors, keys, dropped)?;
            sum = sum.refreshed(client, keys)?;
            for &fold in &packing.folds {
                let turned = sum.rotate_many(&[fold as i64], keys)?;
                sum = sum.add(&turned[0])?;
            }
            sums.push(if late > 0 { sum.rescale(late)? } else { sum });
        }
        self.with_addends(index, sums)
    }

    /// A sum of products, relinearised and divided.
    fn sum(
        &self,
        products: &[(&Ciphertext<W>, &Ciphertext<W>)],
        keys: &KeyRing<W>,
    ) -> Result<Ciphertext<W>, NetworkError> {
        let dropped = self.setting.dropped();
        Ok(Ciphertext::inner_product(products, keys, dropped)?)
    }

    fn with_addends(&self, index: usize, sums: Value<W>) -> Result<Value<W>, NetworkError> {
        let level = self.program.steps[index].level;
        let addends = self.layers[&index].addends.iter();
        let sums = sums.into_iter().zip(addends);
        sums.map(|(sum, addend)| Ok(self.settled(sum, level)?.add(addend)?))
            .collect()
    }

    /// The value at the scale of its level, from which it differs by the rounding of doubles, or of
    /// a factor ([`Setting::check`]).
    fn settled(&self, x: Ciphertext<W>, level: usize) -> Result<Ciphertext<W>, NetworkError> {
        Ok(x.with_scale(self.setting.scale(level))?)
    }

    /// A value brought to a lower level, at the scale there: times a whole number, divided.
    fn lowered<'v>(
        &self,
        value: &'v [Ciphertext<W>],
        from: usize,
        to: usize,
    ) -> Result<Cow<'v, [Ciphertext<W>]>, NetworkError> {
        if from == to {
            return Ok(Cow::Borrowed(value));
        }
        let setting = &self.setting;
        let limbs = setting.limbs(to + 1);
        let factor = setting.lowering(from, to).round();
        let factor = setting.ring().scalar(1.0, factor, limbs)?;
        let lower = |x: &Ciphertext<W>| {
            let x = x.drop_limbs(x.limbs() - limbs)?.mul_scalar(&factor)?;
            self.settled(x.rescale(setting.dropped())?, to)
        };
        Ok(Cow::Owned(
            value.iter().map(lower).collect::<Result<_, _>>()?,
        ))
    }
}

/// Ciphertexts under the keys of all of their parties: a layer reads them as one value.
fn together<W: Word>(value: Value<W>) -> Result<Value<W>, NetworkError> {
    let parties: BTreeSet<Party> = value.iter().flat_map(|x| x.parties().to_vec()).collect();
    let parties: Vec<Party> = parties.into_iter().collect();
    if value.iter().all(|x| x.parties() == parties) {
        return Ok(value);
    }
    let extended = value.iter().map(|x| Ok(x.extended_to(&parties)?));
    extended.collect()
}

/// A value with fresh polynomials of the client, before keys of the client that may be false meet
/// it ([`PairKey`](pronghorn_he::multikey::PairKey)).
fn fresh<W: Word>(
    client: Party,
    value: Value<W>,
    keys: &KeyRing<W>,
) -> Result<Value<W>, NetworkError> {
    let fresh = value.iter().map(|x| Ok(x.refreshed(client, keys)?));
    fresh.collect()
}

/// A ciphertext of one party that has the limbs and the scale of a level.
fn expand<W: Word>(
    setting: &Setting<W>,
    party: Party,
    node: &Node,
    what: &'static str,
    ciphertext: &SeededCiphertext<W>,
    level: usize,
    scale: f64,
) -> Result<Ciphertext<W>, NetworkError> {
    let wrong = |field| NetworkError::Ciphertext {
        what,
        node: node.name.clone(),
        field,
    };
    if ciphertext.limbs() != setting.limbs(level) {
        return Err(wrong("limbs"));
    }
    if ciphertext.scale() != scale {
        return Err(wrong("scale"));
    }
    let expanded = Ciphertext::of_party(setting.common(), party, ciphertext.expand());
    Ok(expanded?)
}
