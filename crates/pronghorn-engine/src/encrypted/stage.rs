//! Running a network: stages, in which every operation acts on each word alone, and rescalings
//! between them.
//!
//! A stage runs unit by unit (one tile of one limb, [`TILE`] words of every polynomial of every
//! element) through all its operations, so that what a layer makes is squared and met by the next
//! layer while it is in cache, and is never stored: of CryptoNets' 845 squares not one.

use pronghorn_he::ckks::{CkksError, EvaluationKeys};
use pronghorn_product::Scratch as ProductScratch;
use pronghorn_ring::{Prime, SimdLevel, Word, rns::Division, vector};
use rayon::prelude::*;

use super::{
    Shape,
    network::{Network, Node, Op},
    request::{CHUNK, Request},
    values::{TILE, Values},
};
use crate::{error::EngineError, simd};

/// Elements that a rescaling handles together, for each thread.
const RESCALED_TOGETHER: usize = 32;

/// Words of a polynomial that are multiplied together.
const MULTIPLIED_TOGETHER: usize = 4 * TILE;

/// The result of the network on the input of `request`.
///
/// # Errors
/// When the request holds words that are no residues.
pub fn run<W: Word>(
    network: &Network<W>,
    shape: &Shape,
    request: &Request,
    keys: Option<&EvaluationKeys<W>>,
) -> Result<Values<W>, EngineError> {
    let mut stored: Vec<Option<Values<W>>> = network.nodes.iter().map(|_| None).collect();
    for stage in 0..network.stages {
        for (index, node) in network.nodes.iter().enumerate() {
            if node.stage != stage || !node.op.leads_on() {
                continue;
            }
            let value = stored[node.inputs[0]].as_ref();
            let value = value.expect("read values are stored");
            let divided = match (&node.op, keys) {
                (Op::Rescale(division), _) => rescale(network, node, value, division),
                (&Op::Relinearise { dropped }, Some(keys)) => {
                    relinearise(network, node, value, keys, dropped).map_err(shape.ckks())?
                }
                _ => {
                    return Err(EngineError::OutOfTurn {
                        state: "has no evaluation keys",
                    });
                }
            };
            stored[index] = Some(divided);
        }
        let here = Stage::new(network, stage);
        here.run(shape, request, &mut stored)?;
        for (value, node) in stored.iter_mut().zip(&network.nodes) {
            if node.stored_until.is_none_or(|until| until <= stage)
                && let Some(value) = value.take()
            {
                network.words.give(value.into_room());
            }
        }
    }
    Ok(stored[network.output].take().expect("the result is stored"))
}

/// The operations of a stage but its rescalings.
struct Stage<'a, W: Word> {
    network: &'a Network<W>,
    nodes: Vec<usize>,
    /// Whether some node reads the client's input.
    reads_input: bool,
}

/// One chunk of one limb, and where the values go that are stored: by tile, then `(node, words)`.
struct Task<'a, W> {
    limb: usize,
    chunk: usize,
    outputs: Vec<Vec<(usize, &'a mut [W])>>,
}

/// Buffers of one thread.
struct Room<W: Word> {
    /// The client's input of this chunk, `[tile][poly][element][TILE]`.
    input: Vec<W>,
    chunk: Vec<W>,
    /// Values of this unit, by node.
    values: Vec<Option<Vec<W>>>,
    spare: Vec<Vec<W>>,
    /// A product's.
    product: ProductScratch,
}

impl<W: Word> Default for Room<W> {
    fn default() -> Self {
        Self {
            input: Vec::new(),
            chunk: Vec::new(),
            values: Vec::new(),
            spare: Vec::new(),
            product: ProductScratch::default(),
        }
    }
}

impl<W: Word> Room<W> {
    /// A buffer of so many words, whatever they are: the one whose length is nearest, since what it
    /// lacks must be zeroed.
    fn take(&mut self, length: usize) -> Vec<W> {
        let nearest = (0..self.spare.len()).min_by_key(|&i| self.spare[i].len().abs_diff(length));
        let mut buffer = nearest.map_or_else(Vec::new, |i| self.spare.swap_remove(i));
        buffer.resize(length, W::default());
        buffer
    }
}

impl<'a, W: Word> Stage<'a, W> {
    fn new(network: &'a Network<W>, stage: usize) -> Self {
        let is_here = |&index: &usize| {
            let node: &Node<W> = &network.nodes[index];
            node.stage == stage && !matches!(node.op, Op::Input) && !node.op.leads_on()
        };
        let nodes: Vec<usize> = (0..network.nodes.len()).filter(is_here).collect();
        let reads_input = nodes
            .iter()
            .any(|&index| network.nodes[index].inputs.contains(&0));
        Self {
            network,
            nodes,
            reads_input,
        }
    }

    /// Makes the stage's values, and stores those that later stages read.
    fn run(
        &self,
        shape: &Shape,
        request: &Request,
        stored: &mut [Option<Values<W>>],
    ) -> Result<(), EngineError> {
        let nodes = self
            .nodes
            .iter()
            .map(|&index| (index, &self.network.nodes[index]));
        let limbs = nodes.clone().map(|(_, node)| node.limbs).max().unwrap_or(0);
        let kept = nodes.filter(|(_, node)| node.stored_until.is_some());
        let mut outputs: Vec<(usize, Values<W>)> = kept
            .map(|(index, node)| (index, self.network.values(node)))
            .collect();
        let tasks = self.tasks(limbs, &mut outputs);
        let inputs: &[Option<Values<W>>] = stored;
        tasks
            .into_par_iter()
            .try_for_each_init(Room::default, |room, task| {
                self.run_task(shape, request, inputs, task, room)
            })?;
        for (index, values) in outputs {
            stored[index] = Some(values);
        }
        Ok(())
    }

    fn tasks<'b>(&self, limbs: usize, outputs: &'b mut [(usize, Values<W>)]) -> Vec<Task<'b, W>> {
        let chunks = self.network.parameters.n() / CHUNK;
        let mut tasks: Vec<Task<'b, W>> = (0..limbs * chunks)
            .map(|task| Task {
                limb: task / chunks,
                chunk: task % chunks,
                outputs: (0..CHUNK / TILE).map(|_| Vec::new()).collect(),
            })
            .collect();
        for (index, values) in outputs {
            let units = tasks.iter_mut().flat_map(|task| &mut task.outputs);
            for (unit, words) in units.zip(values.units_mut()) {
                unit.push((*index, words));
            }
        }
        tasks
    }

    fn run_task(
        &self,
        shape: &Shape,
        request: &Request,
        stored: &[Option<Values<W>>],
        task: Task<'_, W>,
        room: &mut Room<W>,
    ) -> Result<(), EngineError> {
        let (limb, chunk) = (task.limb, task.chunk);
        let input_unit = 2 * self.network.nodes[0].elements * TILE;
        if self.reads_input {
            let Room {
                input,
                chunk: words,
                ..
            } = room;
            input.resize(CHUNK / TILE * input_unit, W::default());
            request.read(shape, &self.network.parameters, (limb, chunk), input, words)?;
        }
        for (tile, mut outputs) in task.outputs.into_iter().enumerate() {
            let input = std::mem::take(&mut room.input);
            let from_client = input.chunks_exact(input_unit).nth(tile).unwrap_or_default();
            let before = |index: usize| match &stored[index] {
                Some(values) => Some(values.unit(limb, chunk * (CHUNK / TILE) + tile)),
                None => (index == 0).then_some(from_client),
            };
            self.run_unit(limb, &before, &mut outputs, room);
            room.input = input;
        }
        Ok(())
    }

    /// All operations on one tile of one limb; `before` gives the values of earlier stages.
    fn run_unit<'b>(
        &self,
        limb: usize,
        before: &dyn Fn(usize) -> Option<&'b [W]>,
        outputs: &mut [(usize, &mut [W])],
        room: &mut Room<W>,
    ) where
        W: 'b,
    {
        let network = self.network;
        let q = network.parameters.basis().prime(limb);
        room.values.resize_with(network.nodes.len(), || None);
        for (place, &index) in self.nodes.iter().enumerate() {
            let node = &network.nodes[index];
            if limb >= node.limbs {
                continue;
            }
            let later = &self.nodes[place + 1..];
            let read_again = |input: usize| {
                let reads = |&node: &usize| network.nodes[node].inputs.contains(&input);
                later.iter().any(reads)
            };
            if matches!(node.op, Op::Same)
                && node.stored_until.is_none()
                && !read_again(node.inputs[0])
                && let Some(value) = room.values[node.inputs[0]].take()
            {
                room.values[index] = Some(value);
                continue;
            }
            let mut out = room.take(node.polys * node.elements * TILE);
            let operand = |&input: &usize| Operand {
                words: before(input)
                    .or(room.values[input].as_deref())
                    .expect("values are made before they are read"),
                elements: network.nodes[input].elements,
                polys: network.nodes[input].polys,
            };
            let inputs: Vec<Operand<'_, W>> = node.inputs.iter().map(operand).collect();
            apply(
                &node.op,
                node,
                q,
                limb,
                &inputs,
                &mut out,
                &mut room.product,
            );
            if let Some((_, words)) = outputs.iter_mut().find(|(output, _)| *output == index) {
                words.copy_from_slice(&out);
            }
            room.values[index] = Some(out);
            for &input in &node.inputs {
                if !read_again(input) {
                    room.spare.extend(room.values[input].take());
                }
            }
        }
        let left = room.values.iter_mut().filter_map(Option::take);
        room.spare.extend(left);
    }
}

/// An input of an operation, `[poly][element][TILE]`.
#[derive(Clone, Copy)]
struct Operand<'a, W> {
    words: &'a [W],
    elements: usize,
    polys: usize,
}

impl<'a, W> Operand<'a, W> {
    fn poly(&self, poly: usize) -> &'a [W] {
        &self.words[poly * self.elements * TILE..][..self.elements * TILE]
    }
}

/// One operation on one unit.
fn apply<W: Word>(
    op: &Op<W>,
    node: &Node<W>,
    q: &Prime<W>,
    limb: usize,
    inputs: &[Operand<'_, W>],
    out: &mut [W],
    scratch: &mut ProductScratch,
) {
    let poly_len = node.elements * TILE;
    match op {
        Op::Input | Op::Rescale(_) | Op::Relinearise { .. } => {
            unreachable!("not of a stage's words")
        }
        Op::Same => out.copy_from_slice(inputs[0].words),
        Op::Linear { weights, addends } => {
            for (poly, out) in out.chunks_exact_mut(poly_len).enumerate() {
                let addend = (poly == 0).then_some(addends[limb].as_slice());
                pronghorn_product::multiply_tile(
                    weights,
                    q,
                    inputs[0].poly(poly),
                    addend,
                    out,
                    scratch,
                );
            }
        }
        Op::Factor { factors, addends } => {
            for (poly, out) in out.chunks_exact_mut(poly_len).enumerate() {
                out.copy_from_slice(inputs[0].poly(poly));
                for (element, out) in out.chunks_exact_mut(TILE).enumerate() {
                    vector::mul_scalar_assign(q, out, factors[limb][element]);
                    if poly == 0 {
                        simd::add_word(SimdLevel::detect(), out, addends[limb][element], q);
                    }
                }
            }
        }
        Op::Square => multiply(q, inputs[0], inputs[0], out, poly_len),
        Op::Multiply => multiply(q, inputs[0], inputs[1], out, poly_len),
        Op::Add(multipliers) => {
            out.fill(W::default());
            for (input, multiplier) in inputs.iter().zip(multipliers) {
                let sum = &mut out[..input.words.len()];
                match multiplier {
                    Some(words) => vector::mul_scalar_add_assign(q, sum, input.words, words[limb]),
                    None => vector::add_assign(q, sum, input.words),
                }
            }
        }
        Op::Scale(words) => {
            out.copy_from_slice(inputs[0].words);
            vector::mul_scalar_assign(q, out, words[limb]);
        }
        Op::Rearrange(sources) => {
            for (poly, out) in out.chunks_exact_mut(poly_len).enumerate() {
                for (out, source) in out.chunks_exact_mut(TILE).zip(sources) {
                    match source {
                        Some(source) if poly < inputs[source.input].polys => {
                            let from = inputs[source.input].poly(poly);
                            out.copy_from_slice(&from[source.index * TILE..][..TILE]);
                        }
                        _ => out.fill(W::default()),
                    }
                }
            }
        }
    }
}

/// The tensor product: polynomial `k` is the sum of `x_i y_j` over `i + j = k`. A square makes each
/// mixed product once. A few words at a time, which stay in the first cache.
fn multiply<W: Word>(
    q: &Prime<W>,
    x: Operand<'_, W>,
    y: Operand<'_, W>,
    out: &mut [W],
    poly_len: usize,
) {
    let is_square = std::ptr::eq(x.words, y.words);
    if is_square && x.polys == 2 {
        let (first, rest) = out.split_at_mut(poly_len);
        let (second, third) = rest.split_at_mut(poly_len);
        return vector::square_linear(q, [x.poly(0), x.poly(1)], [first, second, third]);
    }
    let polys = out.len() / poly_len;
    for start in (0..poly_len).step_by(MULTIPLIED_TOGETHER) {
        let length = MULTIPLIED_TOGETHER.min(poly_len - start);
        for k in 0..polys {
            let out = &mut out[k * poly_len + start..][..length];
            let factors = |i: usize| {
                let j = k - i;
                (&x.poly(i)[start..][..length], &y.poly(j)[start..][..length])
            };
            let terms = (k + 1).saturating_sub(y.polys)..x.polys.min(k + 1);
            let mut first = true;
            if is_square {
                // Mixed products first, so that they can be doubled together.
                for i in terms.start..k.div_ceil(2) {
                    accumulate(q, factors(i), out, &mut first);
                }
                if !first {
                    simd::double(SimdLevel::detect(), out, q);
                }
                if k % 2 == 0 {
                    accumulate(q, factors(k / 2), out, &mut first);
                }
            } else {
                for i in terms {
                    accumulate(q, factors(i), out, &mut first);
                }
            }
        }
    }
}

/// `out += x y`, or `out = x y` the first time.
fn accumulate<W: Word>(q: &Prime<W>, (x, y): (&[W], &[W]), out: &mut [W], first: &mut bool) {
    if std::mem::take(first) {
        vector::mul(q, x, y, out);
    } else {
        vector::mul_add_assign(q, out, x, y);
    }
}

/// Divides all ciphertexts of a value by their last primes.
fn rescale<W: Word>(
    network: &Network<W>,
    node: &Node<W>,
    value: &Values<W>,
    division: &Division<W>,
) -> Values<W> {
    let basis = network.parameters.basis();
    let n = basis.n();
    let mut out = network.values(node);
    let rows: Vec<(usize, usize)> = (0..node.elements)
        .flat_map(|element| (0..node.polys).map(move |poly| (element, poly)))
        .collect();
    let together = RESCALED_TOGETHER * rayon::current_num_threads();
    let mut divided = vec![vec![W::default(); node.limbs * n]; together.min(rows.len())];
    for rows in rows.chunks(together) {
        divided.par_iter_mut().zip(rows).for_each_init(
            || Divided::new(n, division.sources()),
            |room, (words, &(element, poly))| {
                for (source, digits) in room.digits.chunks_exact_mut(n).enumerate() {
                    let limb = node.limbs + source;
                    value.read(element, poly, limb, digits);
                    basis.ntt(limb).inverse(digits);
                }
                division.digits(&mut room.digits, &mut room.scratch);
                for (limb, words) in words.chunks_exact_mut(n).enumerate() {
                    value.read(element, poly, limb, &mut room.words);
                    let Divided {
                        digits,
                        words: x,
                        scratch,
                    } = room;
                    division.apply(basis, limb, digits, x, words, scratch);
                }
            },
        );
        for (&(element, poly), words) in rows.iter().zip(&divided) {
            for (limb, words) in words.chunks_exact(n).enumerate() {
                out.write(element, poly, limb, words);
            }
        }
    }
    out
}

/// Room of one thread for divisions.
struct Divided<W> {
    digits: Vec<W>,
    words: Vec<W>,
    scratch: Vec<W>,
}

impl<W: Word> Divided<W> {
    fn new(n: usize, sources: usize) -> Self {
        Self {
            digits: vec![W::default(); sources * n],
            words: vec![W::default(); n],
            scratch: vec![W::default(); n],
        }
    }
}

/// Brings all ciphertexts of a value to two polynomials, and divides by their last `dropped`
/// primes.
fn relinearise<W: Word>(
    network: &Network<W>,
    node: &Node<W>,
    value: &Values<W>,
    keys: &EvaluationKeys<W>,
    dropped: usize,
) -> Result<Values<W>, CkksError> {
    let n = network.parameters.n();
    let mut out = network.values(node);
    let elements: Vec<usize> = (0..node.elements).collect();
    let together = RESCALED_TOGETHER * rayon::current_num_threads();
    for elements in elements.chunks(together) {
        let switched: Vec<Vec<W>> = elements
            .par_iter()
            .map_init(
                || vec![W::default(); value.polys * value.limbs * n],
                |x, &element| {
                    for (place, words) in x.chunks_exact_mut(n).enumerate() {
                        value.read(element, place / value.limbs, place % value.limbs, words);
                    }
                    let mut words = vec![W::default(); 2 * node.limbs * n];
                    keys.relinearise_words(value.limbs, dropped, x, &mut words)?;
                    Ok(words)
                },
            )
            .collect::<Result<_, CkksError>>()?;
        for (&element, words) in elements.iter().zip(&switched) {
            for (place, words) in words.chunks_exact(n).enumerate() {
                out.write(element, place / node.limbs, place % node.limbs, words);
            }
        }
    }
    Ok(out)
}
