//! Networks on ciphertexts of two parties against the oracle.

use std::sync::Arc;

use pronghorn_graph::{
    geometry::{ConvGeometry, Window},
    layout::Source,
    polynomial::{Factor, Layer, PolyGraph, PolyNode, PolyOp},
};
use pronghorn_he::multikey::{Choice, Ciphertext, Decryptor, KeyRing, SecretKey};
use pronghorn_multikey::{
    Aim, Bound, Bounds, Chain, Chosen, Cloud, Network, NetworkError, Program, Setting, Work,
};
use pronghorn_ring::random::Seed;

/// Integers that look random.
fn weights(count: usize, most: i32, salt: usize) -> Vec<f64> {
    let number = |i: usize| ((i + salt) * 2_654_435_761 % 1_000_003) as i32;
    (0..count)
        .map(|i| f64::from(number(i) % (2 * most + 1) - most))
        .collect()
}

/// A graph under construction.
struct Build(Vec<PolyNode>);

impl Build {
    fn new(elements: usize, reach: f64) -> Self {
        let mut build = Self(Vec::new());
        build.push(PolyOp::Input, vec![], elements);
        build.0[0].reach = reach;
        build
    }

    fn push(&mut self, op: PolyOp, inputs: Vec<usize>, elements: usize) -> usize {
        self.0.push(PolyNode {
            name: format!("{} {}", op.name(), self.0.len()),
            op,
            inputs,
            shape: vec![elements],
            reach: 1.0,
            rms: 1.0,
        });
        self.0.len() - 1
    }

    fn linear(&mut self, input: usize, geometry: ConvGeometry) -> usize {
        let [height, width] = geometry.output().expect("valid");
        let most = 1000;
        let layer = Layer {
            weights: weights(geometry.weights_len(), most, self.0.len()),
            divisor: f64::from(most) * (geometry.row_len() as f64).sqrt(),
            bias: (0..geometry.out_channels)
                .map(|o| 0.1 * o as f64 - 0.2)
                .collect(),
            geometry,
        };
        let elements = layer.geometry.out_channels * height * width;
        self.push(PolyOp::Linear(layer), vec![input], elements)
    }

    fn dense(&mut self, input: usize, outputs: usize) -> usize {
        let inputs = self.0[input].len();
        self.linear(input, ConvGeometry::dense(inputs, outputs))
    }

    fn square(&mut self, input: usize) -> usize {
        self.push(PolyOp::Square, vec![input], self.0[input].len())
    }

    fn factor(&mut self, input: usize) -> usize {
        let elements = self.0[input].len();
        let factor = Factor {
            factors: weights(elements, 500, 7),
            divisor: 512.0,
            addends: (0..elements).map(|i| 0.3 - 0.05 * (i % 9) as f64).collect(),
        };
        self.push(PolyOp::Factor(factor), vec![input], elements)
    }

    fn pair(&mut self, op: PolyOp, inputs: [usize; 2]) -> usize {
        self.push(op, inputs.to_vec(), self.0[inputs[0]].len())
    }

    fn graph(self, output: usize) -> PolyGraph {
        PolyGraph {
            low: -self.0[0].reach,
            name: "test".into(),
            nodes: self.0,
            output,
            finish: Vec::new(),
            class_names: Vec::new(),
        }
    }
}

fn convolution(
    channels: [usize; 2],
    input: [usize; 2],
    kernel: usize,
    stride: usize,
) -> ConvGeometry {
    ConvGeometry {
        in_channels: channels[0],
        out_channels: channels[1],
        input,
        window: Window {
            stride: [stride; 2],
            padding: [1, 0, 0, 1],
            ..Window::plain([kernel; 2])
        },
        groups: 1,
    }
}

/// Convolution, square, dense layer, square, dense layer.
fn squares() -> PolyGraph {
    let mut build = Build::new(64, 1.0);
    let x = build.linear(0, convolution([1, 3], [8, 8], 3, 2));
    let x = build.square(x);
    let x = build.dense(x, 12);
    let x = build.square(x);
    let x = build.dense(x, 5);
    build.graph(x)
}

/// `f x^3 + x`, where `x^3 = x^2 x`, a second convolution between, and a copy of the elements.
fn polynomial() -> PolyGraph {
    let mut build = Build::new(36, 1.0);
    let x = build.linear(0, convolution([1, 2], [6, 6], 3, 1));
    let square = build.square(x);
    let cube = build.pair(PolyOp::Multiply, [square, x]);
    let scaled = build.factor(cube);
    let x = build.pair(PolyOp::Add, [scaled, x]);
    let x = build.linear(x, convolution([2, 2], [5, 5], 2, 2));
    let back: Vec<_> = (0..build.0[x].len()).rev().collect();
    let copied = back.iter().map(|&index| Some(Source { input: 0, index }));
    let x = build.push(PolyOp::Rearrange(copied.collect()), vec![x], back.len());
    let x = build.dense(x, 4);
    build.graph(x)
}

fn input(graph: &PolyGraph) -> Vec<f64> {
    (0..graph.input_len())
        .map(|i| ((i * 37 + 11) % 101) as f64 / 101.0)
        .collect()
}

/// Both parties with their keys.
struct Parties {
    secrets: [SecretKey<u32>; 2],
    keys: KeyRing<u32>,
}

impl Parties {
    /// The client and the model owner.
    fn new(program: &Program, setting: &Setting<u32>) -> Self {
        let seed = |i: u8| Seed::from_bytes([i; 32]);
        let secrets = [1, 2].map(|i| SecretKey::generate(setting.common(), &seed(i)));
        let mut keys = KeyRing::new(setting.common());
        for (secret, steps) in secrets.iter().zip(program.rotations()) {
            let choice = Choice {
                steps: &steps,
                without_pairs: true,
                ..Choice::default()
            };
            let public = secret.public_keys(choice).expect("randomness");
            keys.insert(public).expect("one reference");
        }
        let [client, owner] = &secrets;
        let pair = owner.pair_key(client.encryption()).expect("another's");
        keys.insert_pair(pair).expect("one reference");
        Self { secrets, keys }
    }

    /// The cloud's ciphertexts of the result.
    fn evaluate(
        &self,
        program: &Program,
        setting: &Setting<u32>,
        graph: &PolyGraph,
    ) -> Vec<Ciphertext<u32>> {
        let [client, owner] = &self.secrets;
        let mut encryptor = owner.encryptor().expect("randomness");
        let model = program
            .encrypt_model(setting, graph, &mut encryptor)
            .expect("it fits");
        let mut encryptor = client.encryptor().expect("randomness");
        let image = program.encrypt_input(setting, &input(graph), &mut encryptor);
        let cloud = Cloud::new(&Arc::new(program.clone()), setting, owner.party(), &model)
            .expect("it fits");
        let mut seen = 0;
        let result = cloud
            .evaluate(
                client.party(),
                &image.expect("in range"),
                &self.keys,
                |_, _| seen += 1,
            )
            .expect("all keys");
        assert_eq!(seen, graph.nodes.len());
        result
    }
}

/// The largest difference from the oracle.
fn error(graph: &PolyGraph, found: &[f64]) -> f64 {
    let wanted = graph.evaluate(&input(graph));
    assert_eq!(wanted.len(), found.len());
    let pairs = found.iter().zip(&wanted);
    pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

/// The result is within its bound of the oracle's, and other slots hold zero within it.
fn check(graph: &PolyGraph, chain: Chain) {
    let program = Program::new(Network::of(graph), chain.degree / 2).expect("it fits");
    let setting = Setting::<u32>::new(chain, [5; 32]).expect("secure");
    let parties = Parties::new(&program, &setting);
    let result = parties.evaluate(&program, &setting, graph);
    let secrets: Vec<_> = parties.secrets.iter().collect();
    let slots: Vec<_> = (result.iter())
        .map(|x| {
            assert_eq!(x.limbs(), setting.limbs(0));
            assert_eq!(x.parties().len(), 2);
            let plain = x.decrypt_with_all(&secrets).expect("all secrets");
            setting.ring().decode(&plain).expect("one ring")
        })
        .collect();
    let bounds = Bounds::of(&program, graph).expect("its network");
    let bound = Bound::of_result(&program, &bounds, &setting).expect("its levels");
    let most = bound.noise.slot_bound() / setting.scale(0);
    let error = error(graph, &program.decode(&slots).expect("all slots"));
    assert!(error <= most, "error {error:e}, bound {most:e}");
    assert!(
        error >= most / 1e6,
        "error {error:e}, bound {most:e} says nothing"
    );
    let layout = &program.steps[program.network.output].layout;
    // The power that floods are made for, over all slots.
    let wanted = graph.evaluate(&input(graph));
    let mut power = 0.0;
    for (slots, spots) in slots.iter().zip(layout.spots()) {
        let wanted =
            pronghorn_multikey::layout::fill(program.slots, layout.period(), &spots, |i| wanted[i]);
        let errors = slots.re.iter().zip(&slots.im).zip(&wanted);
        power += errors
            .map(|((re, im), x)| (re - x).powi(2) + im.powi(2))
            .sum::<f64>();
    }
    let power = power / (program.slots * slots.len()) as f64 * setting.scale(0).powi(2);
    let most_power = bound.noise.mean;
    assert!(power <= most_power, "power {power:e}, bound {most_power:e}");
    assert!(
        power >= most_power / 1e9,
        "power {power:e}, bound {most_power:e}"
    );
    for (slots, spots) in slots.iter().zip(layout.spots()) {
        let taken =
            pronghorn_multikey::layout::fill(program.slots, layout.period(), &spots, |_| 1.0);
        let others = slots
            .re
            .iter()
            .zip(&taken)
            .filter(|(_, taken)| **taken == 0.0);
        assert!(others.map(|(x, _)| x.abs()).all(|x| x <= most));
        assert!(slots.im.iter().all(|x| x.abs() <= most));
    }
    let largest = graph
        .evaluate(&input(graph))
        .into_iter()
        .fold(0.0, |m: f64, x| m.max(x.abs()));
    assert!(largest <= bound.reach && most < largest / 8.0);
}

#[test]
fn a_network_of_squares_is_the_oracles() {
    let chain = Chain {
        degree: 16_384,
        base: vec![30, 30, 30],
        level: vec![28, 28],
        levels: 5,
        special: vec![30],
        scale_log: 56,
        weight_logs: Vec::new(),
    };
    check(&squares(), chain);
}

/// Primes for as many levels as there are scales of weights.
fn chain_of(scale_log: u32, weight_logs: &[u32]) -> Chain {
    Chain {
        degree: 16_384,
        base: vec![30, 30, 30],
        level: vec![30, 30],
        levels: weight_logs.len(),
        special: vec![30],
        scale_log,
        weight_logs: weight_logs.to_vec(),
    }
}

/// The bound on the mean power of a result's noise.
fn noise_power(graph: &PolyGraph, chain: Chain) -> f64 {
    let program = Program::new(Network::of(graph), chain.degree / 2).expect("it fits");
    let setting = Setting::<u32>::new(chain, [5; 32]).expect("secure");
    let bounds = Bounds::of(&program, graph).expect("its network");
    let bound = Bound::of_result(&program, &bounds, &setting);
    bound.expect("its levels").noise.mean
}

/// Two layers with one input and one matrix, or one layer twice.
fn branches(are_two: bool) -> PolyGraph {
    let mut build = Build::new(64, 1.0);
    // No layer reads the input itself, so it has the same places in both networks.
    let x = copied(&mut build, 0, 0..64);
    let first = build.dense(x, 12);
    let second = match are_two {
        true => build.push(build.0[first].op.clone(), vec![x], 12),
        false => first,
    };
    let sum = build.pair(PolyOp::Add, [first, second]);
    build.graph(sum)
}

/// The input's rotations are one computation for both layers, so their noise adds up by amplitudes:
/// it is that of twice one layer.
#[test]
fn layers_that_read_one_value_have_one_noise() {
    let chain = |scale_log: u32, weight: u32| chain_of(scale_log, &[weight]);
    check(&branches(true), chain(60, 50));
    // Noise of rotations stands out at a small scale.
    let power = [true, false].map(|are_two| noise_power(&branches(are_two), chain(44, 76)));
    let ratio = power[0] / power[1];
    assert!((0.8..1.5).contains(&ratio), "{power:?}");
}

#[test]
fn polynomials_convolutions_and_copies_are_the_oracles() {
    let chain = Chain {
        degree: 16_384,
        base: vec![29, 29, 29],
        level: vec![24, 24],
        levels: 6,
        special: vec![30],
        scale_log: 48,
        weight_logs: Vec::new(),
    };
    check(&polynomial(), chain);
}

/// At parameters for an error, the result has it.
fn aimed(graph: &PolyGraph) {
    let aim = Aim {
        error: 2f64.powi(-10),
        results: 1024,
    };
    let Chosen {
        program,
        setting,
        bounds,
        rule,
    } = aim.choose::<u32>(graph, [9; 32]).expect("room");
    let parties = Parties::new(&program, &setting);
    let result = parties.evaluate(&program, &setting, graph);
    let secrets: Vec<_> = parties.secrets.iter().collect();
    let slots = result.iter().map(|x| {
        let plain = x.decrypt_with_all(&secrets).expect("all secrets");
        setting.ring().decode(&plain).expect("one ring")
    });
    let found = program
        .decode(&slots.collect::<Vec<_>>())
        .expect("all slots");
    let stated = setting.error(&program, &bounds, &rule).expect("its levels");
    let error = error(graph, &found);
    assert!(error <= stated, "{error:e} {stated:e}");
}

#[test]
fn layers_in_a_row_have_room_for_their_weights() {
    let mut build = Build::new(64, 1.0);
    let x = build.linear(0, convolution([1, 3], [8, 8], 3, 1));
    let x = build.dense(x, 10);
    aimed(&build.graph(x));
}

/// Nearest upsampling and tiles are copies of elements, which lie in one slot.
#[test]
fn layers_read_copies_of_elements() {
    let mut build = Build::new(16, 1.0);
    let x = build.linear(0, convolution([1, 2], [4, 4], 3, 1));
    let x = build.square(x);
    let nearest = (0..32 * 4).map(|at: usize| {
        let (plane, y, x) = (at / 64, at % 64 / 8, at % 8);
        plane * 9 + (y / 2).min(2) * 3 + (x / 2).min(2)
    });
    let x = copied(&mut build, x, nearest);
    let x = build.linear(x, convolution([2, 2], [8, 8], 3, 1));
    let x = build.dense(x, 4);
    aimed(&build.graph(x));
    // One layer alone, and a square of copies.
    let mut build = Build::new(5, 1.0);
    let x = copied(&mut build, 0, (0..15).map(|i| i % 5));
    let x = build.square(x);
    let x = build.dense(x, 15);
    let x = build.factor(x);
    aimed(&build.graph(x));
}

/// A layer of these weights, without biases.
fn layer_of(weights: Vec<f64>, inputs: usize) -> PolyOp {
    let outputs = weights.len() / inputs;
    PolyOp::Linear(Layer {
        weights,
        divisor: 1.0,
        bias: vec![0.0; outputs],
        geometry: ConvGeometry::dense(inputs, outputs),
    })
}

fn copied(build: &mut Build, input: usize, sources: impl Iterator<Item = usize>) -> usize {
    let sources = sources.map(|index| Some(Source { input: 0, index }));
    let sources: Vec<_> = sources.collect();
    let elements = sources.len();
    build.push(PolyOp::Rearrange(sources), vec![input], elements)
}

/// Errors of elements that share a slot are one error.
#[test]
fn bounds_count_errors_by_slot() {
    // Four copies of each of four elements, all added up: 4 (4 w)^2.
    let mut build = Build::new(4, 1.0);
    let x = build.dense(0, 4);
    let x = copied(&mut build, x, (0..16).map(|i| i % 4));
    let square = build.square(x);
    let x = build.push(layer_of(vec![1.0; 16], 16), vec![square], 1);
    let graph = build.graph(x);
    for slots in [4096, 8192] {
        let program = Program::new(Network::of(&graph), slots).expect("it fits");
        let bounds = Bounds::of(&program, &graph).expect("its network");
        assert!(bounds.nodes[square].slots >= 8.0, "{:?}", bounds.nodes);
    }
    // One slot has 62 of 63 elements, and nothing in it: the mean is over both slots.
    let mut build = Build::new(2, 1.0);
    let x = build.push(layer_of(vec![0.0, 0.0, 0.5, 0.5], 2), vec![0], 2);
    let x = copied(&mut build, x, (0..63).map(|i| usize::from(i == 62)));
    let square = build.square(x);
    let x = build.square(square);
    let graph = build.graph(x);
    let program = Program::new(Network::of(&graph), 4096).expect("it fits");
    let bounds = Bounds::of(&program, &graph).expect("its network");
    assert!(
        bounds.nodes[square].slots >= 2f64.sqrt(),
        "{:?}",
        bounds.nodes
    );
}

/// The power of noise counts all slots of the result's ciphertexts: an element without a slot has
/// no share, and one that fills its ciphertext a large one.
#[test]
fn bounds_count_the_slots_of_each_ciphertext() {
    let proven = |build: Build, result: usize| {
        let graph = build.graph(result);
        let program = Program::new(Network::of(&graph), 4096).expect("it fits");
        let bounds = Bounds::of(&program, &graph).expect("its network");
        (program, bounds)
    };
    let mut build = Build::new(2, 1.0);
    let x = build.push(layer_of(vec![0.5, 0.5], 2), vec![0], 1);
    let source = Some(Source { input: 0, index: 0 });
    let padded = (0..99).map(|_| None).chain([source]).collect();
    let padded = build.push(PolyOp::Rearrange(padded), vec![x], 100);
    let square = build.square(padded);
    let (_, bounds) = proven(build, square);
    let of_x = bounds.nodes[x];
    assert!(of_x.slots >= 2.0 * of_x.reach * 0.9, "{of_x:?}");
    // Two results of one ciphertext each, of which one has the element alone.
    let mut build = Build::new(4, 1.0);
    let many = build.push(layer_of(vec![0.0; 4 * 600], 4), vec![0], 600);
    let one = build.push(layer_of(vec![0.25; 4], 4), vec![0], 1);
    let sources = (0..600).map(|index| Some(Source { input: 0, index }));
    let both = sources.chain([Some(Source { input: 1, index: 0 })]);
    let both = build.push(PolyOp::Rearrange(both.collect()), vec![many, one], 601);
    let square = build.square(both);
    let (program, bounds) = proven(build, square);
    let periods = &program.steps[both].layout.periods;
    let share = 4.0 / (periods.len() * periods[1]).min(601) as f64;
    let least = (share * 0.9).sqrt() * bounds.nodes[one].reach;
    assert!(
        bounds.nodes[one].slots >= least,
        "{:?} {periods:?}",
        bounds.nodes[one]
    );
}

/// Repetitions of one part of a concatenation are not those of another: what is added to both would
/// leave some as they are, beside the sum.
#[test]
fn parts_of_other_periods_do_not_meet_a_layer() {
    let mut build = Build::new(16, 1.0);
    let x = build.dense(0, 8);
    let z = build.dense(0, 64);
    let of =
        |input: usize, count: usize| (0..count).map(move |index| Some(Source { input, index }));
    let both = build.push(
        PolyOp::Rearrange(of(0, 8).chain(of(1, 64)).collect()),
        vec![x, z],
        72,
    );
    let y = build.dense(0, 72);
    let sum = build.pair(PolyOp::Add, [both, y]);
    let network = Network::of(&build.graph(sum));
    match Program::new(network, 4096) {
        Ok(program) => {
            let periods = &program.steps[sum].layout.periods;
            assert!(periods.iter().all(|period| *period == periods[0]));
        }
        Err(error) => assert!(error.to_string().contains("different slots"), "{error}"),
    }
}

/// A description may come from anyone.
#[test]
fn hostile_architectures_are_refused() {
    let network = |nodes: Vec<PolyNode>| {
        let output = nodes.len() - 1;
        let build = Build(nodes);
        Network::of(&build.graph(output))
    };
    let refused = |build: Build| Program::new(network(build.0), 4096).unwrap_err();
    // Values of more and more ciphertexts: doubled, and by lists of inputs.
    let mut build = Build::new(1, 1.0);
    let x = (0..60).fold(0, |x, _| {
        build.push(PolyOp::Rearrange(vec![None]), vec![x, x], 1)
    });
    build.dense(x, 2);
    let error = refused(build);
    assert!(matches!(error, NetworkError::TooLarge { .. }), "{error}");
    let mut build = Build::new(1, 1.0);
    let x = (0..2).fold(0, |x, _| {
        build.push(PolyOp::Rearrange(vec![None]), vec![x; 4096], 1)
    });
    build.dense(x, 2);
    let error = refused(build);
    assert!(matches!(error, NetworkError::TooLarge { .. }), "{error}");
    for inputs in [vec![], vec![0; 4097], vec![999]] {
        let mut build = Build::new(4, 1.0);
        let x = build.push(PolyOp::Rearrange(vec![None]), inputs, 1);
        build.dense(x, 2);
        let error = refused(build);
        assert!(matches!(error, NetworkError::Shape { .. }), "{error}");
    }
    // Sizes whose product is no number.
    let mut build = Build::new(4, 1.0);
    let x = build.dense(0, 2);
    if let PolyOp::Linear(layer) = &mut build.0[x].op {
        layer.geometry.in_channels = usize::MAX;
        layer.geometry.input = [2, 2];
    }
    let error = refused(build);
    assert!(matches!(error, NetworkError::Shape { .. }), "{error}");
    // A node that leads nowhere.
    let mut build = Build::new(4, 1.0);
    build.square(0);
    build.dense(0, 2);
    let error = refused(build);
    assert!(matches!(error, NetworkError::Unread { .. }), "{error}");
    // A graph of other operators.
    let mut build = Build::new(3, 1.0);
    let x = build.dense(0, 3);
    let program = Program::new(Network::of(&build.graph(x)), 4096).expect("it fits");
    let mut build = Build::new(3, 1.0);
    let x = build.factor(0);
    let other = Bounds::of(&program, &build.graph(x));
    assert!(matches!(other, Err(NetworkError::OtherNetwork { .. })));
}

/// Planning a layer of thousands of rotations takes no longer than it has rotations.
#[test]
fn layers_of_many_rotations_are_planned_at_once() {
    let mut build = Build::new(1, 1.0);
    let x = build.push(
        PolyOp::Rearrange(vec![Some(Source { input: 0, index: 0 }); 4096]),
        vec![0; 4096],
        4096,
    );
    let layers: Vec<_> = (0..12)
        .map(|_| build.push(layer_of(vec![0.25; 4096], 4096), vec![x], 1))
        .collect();
    let x = layers
        .into_iter()
        .reduce(|x, y| build.pair(PolyOp::Add, [x, y]))
        .expect("layers");
    let network = Network::of(&build.graph(x));
    let program = Program::new(network, 4096);
    assert!(program.is_ok_and(|program| program.rotations()[0].len() < 200));
}

/// A result that is the product with a part of a value: in the slot of what was left out, noise meets
/// it.
#[test]
fn bounds_count_what_a_slice_left_out() {
    let mut build = Build::new(2, 1.0);
    let wide = build.push(layer_of(vec![1.0, 0.0, 0.0, 64.0], 2), vec![0], 2);
    let part = copied(&mut build, wide, 0..1);
    let gate = build.dense(0, 1);
    let product = build.pair(PolyOp::Multiply, [gate, part]);
    let graph = build.graph(product);
    let program = Program::new(Network::of(&graph), 4096).expect("the gate lies beside the part");
    let bounds = Bounds::of(&program, &graph).expect("its network");
    assert!(
        bounds.nodes[gate].slots >= 64.0 / 2f64.sqrt(),
        "{:?}",
        bounds.nodes[gate]
    );
    let chain = chain_of(58, &[0, 58]);
    check(&graph, chain);
}

/// Sums of the same ciphertexts in another order are the same ones, and so are their rotations.
#[test]
fn sums_in_another_order_have_one_noise() {
    let chain = chain_of(44, &[76, 76]);
    let power = |in_other_order: bool| {
        let mut build = Build::new(64, 1.0);
        let x = copied(&mut build, 0, 0..64);
        let [a, b, c] = [0; 3].map(|_| build.dense(x, 64));
        let left = build.pair(PolyOp::Add, [a, b]);
        let sum = build.pair(PolyOp::Add, [left, c]);
        let right = build.pair(PolyOp::Add, [b, c]);
        let other = match in_other_order {
            true => build.pair(PolyOp::Add, [a, right]),
            false => build.pair(PolyOp::Add, [left, c]),
        };
        let first = build.dense(sum, 3);
        let second = build.push(build.0[first].op.clone(), vec![other], 3);
        let result = build.pair(PolyOp::Add, [first, second]);
        let all = match in_other_order {
            true => result,
            // Read as well, so that both networks have the same nodes.
            false => {
                let third = build.push(build.0[first].op.clone(), vec![right], 3);
                build.pair(PolyOp::Add, [result, third])
            }
        };
        noise_power(&build.graph(all), chain.clone())
    };
    let [other, same] = [true, false].map(power);
    // The third layer of the other network adds at most a half.
    assert!(other >= 0.6 * same, "{other:e} {same:e}");
}

/// A value that is in another value twice is rounded alike in both places, when a lower level reads
/// them.
#[test]
fn copies_at_a_lower_level_have_one_rounding() {
    let program = |is_twice: bool| {
        let mut build = Build::new(4, 1.0);
        let v = build.dense(0, 4);
        let w = if is_twice { v } else { build.dense(0, 4) };
        let of = |input: usize| (0..4).map(move |index| Some(Source { input, index }));
        let both = build.push(
            PolyOp::Rearrange(of(0).chain(of(1)).collect()),
            vec![v, w],
            8,
        );
        let deep = build.square(both);
        let deep = build.dense(deep, 3);
        let shallow = build.dense(both, 3);
        let sum = build.pair(PolyOp::Add, [deep, shallow]);
        Network::of(&build.graph(sum))
    };
    let [twice, apart] = [true, false].map(program).map(|network| {
        let program = Program::new(network, 4096).expect("it fits");
        format!("{program:?}")
    });
    assert!(twice.contains("lowered: {(2, 1): 2}"), "{twice}");
    assert!(apart.contains("lowered: {(3, 1): 1}"), "{apart}");
}

/// A shortcut over many levels, whose layers make values larger: the factor that brings it down has
/// room.
#[test]
fn long_shortcuts_have_exact_factors() {
    let mut build = Build::new(16, 1.0);
    let first = build.push(layer_of(identity(16, 1.0), 16), vec![0], 16);
    let mut x = first;
    for _ in 0..3 {
        x = build.push(layer_of(identity(16, 30.0), 16), vec![x], 16);
    }
    let x = build.push(layer_of(identity(16, 1.0 / 27_000.0), 16), vec![x], 16);
    let sum = build.pair(PolyOp::Add, [x, first]);
    aimed(&build.graph(sum));
}

/// A multiple of the unit matrix.
fn identity(elements: usize, factor: f64) -> Vec<f64> {
    let entry = |at: usize| {
        if at.is_multiple_of(elements + 1) {
            factor
        } else {
            0.0
        }
    };
    (0..elements * elements).map(entry).collect()
}

/// Squares of one ciphertext have one noise, behind rearrangements too.
#[test]
fn rearranged_values_have_one_noise() {
    let chain = chain_of(58, &[0, 0]);
    let power = |are_rearranged: bool| {
        let mut build = Build::new(16, 1.0);
        let squares = [0, 1].map(|_| {
            let x = match are_rearranged {
                true => copied(&mut build, 0, 0..16),
                false => 0,
            };
            // A sum of the same ciphertexts is the same one.
            let x = build.pair(PolyOp::Add, [x, 0]);
            build.square(x)
        });
        let x = build.pair(PolyOp::Add, squares);
        let x = build.dense(x, 3);
        noise_power(&build.graph(x), chain.clone())
    };
    let [apart, one] = [true, false].map(power);
    assert!(apart >= 0.95 * one, "{apart:e} {one:e}");
}

/// A layer beside a value of fewer or more ciphertexts is refused, not computed.
#[test]
fn values_of_other_ciphertexts_do_not_meet() {
    let mut build = Build::new(2, 1.0);
    let v = build.dense(0, 5000);
    let s = copied(&mut build, v, 0..50);
    let y = build.dense(v, 50);
    let x = build.pair(PolyOp::Add, [s, y]);
    let x = build.dense(x, 2);
    let graph = build.graph(x);
    match Program::new(Network::of(&graph), 4096) {
        Ok(program) => assert!(Bounds::of(&program, &graph).is_ok()),
        Err(error) => assert!(error.to_string().contains("different slots"), "{error}"),
    }
}

/// Two layers of one value lie alike without more ciphertexts of weights.
#[test]
fn gates_cost_what_two_layers_cost() {
    let mut build = Build::new(64, 1.0);
    let layers = [0, 1].map(|_| build.dense(0, 64));
    let x = build.pair(PolyOp::Multiply, layers);
    let x = build.dense(x, 3);
    let program = Program::new(Network::of(&build.graph(x)), 8192).expect("it fits");
    let products = |index: usize| match &program.steps[index].work {
        Work::Linear(packing) => packing.products.iter().map(Vec::len).sum(),
        _ => 0usize,
    };
    assert_eq!(products(1), products(2));
}

/// Copies of an element with a factor each: distances from points, say.
#[test]
fn copies_get_factors_of_their_own() {
    let mut build = Build::new(5, 1.0);
    let x = copied(&mut build, 0, (0..20).map(|i| i % 5));
    let x = build.factor(x);
    let x = build.square(x);
    let x = build.dense(x, 4);
    aimed(&build.graph(x));
    // Beside a layer of the same value, and as the result.
    let mut build = Build::new(6, 1.0);
    let y = build.dense(0, 6);
    let y = copied(&mut build, y, (0..12).map(|i| i % 6));
    let apart = build.factor(y);
    let dense = build.dense(y, 12);
    let x = build.pair(PolyOp::Add, [apart, dense]);
    aimed(&build.graph(x));
}

/// Shortcuts: a layer's output lies where the value is that it meets.
#[test]
fn layers_meet_values_in_their_places() {
    let same = |channels| ConvGeometry {
        window: Window {
            padding: [1; 4],
            ..Window::plain([3; 2])
        },
        ..convolution(channels, [6, 6], 3, 1)
    };
    let mut build = Build::new(36, 1.0);
    let x = build.linear(0, same([1, 2]));
    let x = build.square(x);
    let y = build.linear(x, same([2, 2]));
    // An activation `y^2 + f y`.
    let square = build.square(y);
    let scaled = build.factor(y);
    let y = build.pair(PolyOp::Add, [square, scaled]);
    let x = build.pair(PolyOp::Add, [x, y]);
    let x = build.dense(x, 3);
    aimed(&build.graph(x));
    // A gate, and the input.
    let mut build = Build::new(20, 1.0);
    let left = build.dense(0, 20);
    let right = build.dense(0, 20);
    let right = build.factor(right);
    let x = build.pair(PolyOp::Multiply, [left, right]);
    let y = build.dense(x, 20);
    let x = build.pair(PolyOp::Add, [0, y]);
    aimed(&build.graph(x));
}

/// The client's own values beside values under both keys.
#[test]
fn layers_read_values_of_one_party_and_of_both() {
    let mut build = Build::new(6, 1.0);
    let x = build.dense(0, 6);
    let of = |input: usize| (0..6).map(move |index| Some(Source { input, index }));
    let both = of(0).chain(of(1)).collect();
    let x = build.push(PolyOp::Rearrange(both), vec![x, 0], 12);
    let x = build.dense(x, 3);
    aimed(&build.graph(x));
}

#[test]
fn networks_without_weights_are_refused() {
    let mut build = Build::new(6, 1.0);
    let x = build.square(0);
    let error = Program::new(Network::of(&build.graph(x)), 4096).unwrap_err();
    assert!(matches!(error, NetworkError::NoWeights), "{error}");
}

/// A layer of many rotations makes each of two, with few keys.
#[test]
fn many_rotations_take_few_keys() {
    let mut build = Build::new(40, 1.0);
    let x = build.dense(0, 90);
    let x = build.dense(x, 90);
    let x = build.dense(x, 3);
    let graph = build.graph(x);
    let program = Program::new(Network::of(&graph), 4096).expect("it fits");
    let Work::Linear(packing) = &program.steps[2].work else {
        panic!("a dense layer");
    };
    assert!(packing.is_split());
    let rotations = packing.rotations().len();
    assert!(rotations >= 90 && packing.keys().len() < 25, "{rotations}");
    for rotation in packing.rotations() {
        let [first, second] = packing.parts(rotation.steps);
        assert_eq!(first + second, rotation.steps);
    }
    let chain = Chain {
        degree: 8192,
        base: vec![28, 28],
        level: vec![21, 21],
        levels: 3,
        special: vec![27],
        scale_log: 42,
        weight_logs: Vec::new(),
    };
    check(&graph, chain);
}

/// Decryption by both parties, with floods, at parameters that the network's depth and the error
/// ask for.
#[test]
fn results_are_decrypted_within_the_error_asked_for() {
    let mut build = Build::new(16, 1.0);
    let x = build.dense(0, 8);
    let x = build.square(x);
    let x = build.dense(x, 3);
    let graph = build.graph(x);
    let aim = Aim {
        error: 2f64.powi(-10),
        results: 1024,
    };
    let chosen = aim.choose::<u32>(&graph, [9; 32]);
    let Chosen {
        program,
        bounds,
        setting,
        rule,
    } = chosen.expect("a shallow network");
    assert!(setting.ring().security().is_some());
    let stated = setting.error(&program, &bounds, &rule).expect("its levels");
    assert!(stated <= aim.error);
    let Parties { secrets, keys } = &Parties::new(&program, &setting);
    let parties = Parties::new(&program, &setting);
    let result = parties.evaluate(&program, &setting, &graph);
    let mut decryptors = [1, 2].map(|i| {
        let secret = SecretKey::generate(setting.common(), &Seed::from_bytes([i; 32]));
        Decryptor::new(secret, &rule).expect("one reference")
    });
    let slots = result.iter().map(|result| {
        let extended = result.extended();
        let contributions: Vec<_> = (decryptors.iter_mut())
            .map(|party| party.contribute(extended, keys).expect("allowed"))
            .collect();
        let partials: Vec<_> = (decryptors.iter_mut())
            .map(|party| {
                party
                    .decrypt(extended, &contributions, |_| Ok(()))
                    .expect("once")
            })
            .collect();
        let plain = result
            .merge(&contributions, &partials)
            .expect("all parties");
        setting.ring().decode(&plain).expect("one ring")
    });
    let slots: Vec<_> = slots.collect();
    let found = program.decode(&slots).expect("all slots");
    let error = error(&graph, &found);
    assert!(error <= stated, "{error:e} {stated:e}");
    // The floods are there.
    assert!(error >= stated / 1e3, "{error:e} {stated:e}");
    assert_eq!(secrets.len(), result[0].parties().len());
}

#[test]
fn refusals_name_the_node() {
    // A square at the end would show squares of partial sums if windows were taken; residues are.
    let mut build = Build::new(16, 1.0);
    let x = build.dense(0, 8);
    let x = build.square(x);
    assert!(Program::new(Network::of(&build.graph(x)), 4096).is_ok());
    let mut build = Build::new(16, 1.0);
    let x = build.dense(0, 8);
    let taken = vec![Some(Source { input: 0, index: 3 })];
    let x = build.push(PolyOp::Rearrange(taken), vec![x], 1);
    let error = Program::new(Network::of(&build.graph(x)), 4096).unwrap_err();
    assert!(matches!(error, NetworkError::PartialSums { .. }), "{error}");
    let mut build = Build::new(16, 1.0);
    let x = build.dense(0, 16);
    let x = build.pair(PolyOp::Add, [x, 0]);
    let x = build.dense(x, 3);
    let error = Program::new(Network::of(&build.graph(x)), 4096);
    // Either both lie in one order, or the refusal names the sum.
    if let Err(error) = error {
        assert!(error.to_string().contains("add 2"), "{error}");
    }
    let build = Build::new(16, 1.0);
    let error = Program::new(Network::of(&build.graph(0)), 4096).unwrap_err();
    assert!(matches!(error, NetworkError::NoProducts), "{error}");
}

#[test]
fn the_cloud_checks_what_it_gets() {
    let mut build = Build::new(16, 1.0);
    let x = build.dense(0, 8);
    let graph = build.graph(x);
    let aim = Aim {
        error: 2f64.powi(-6),
        results: 1,
    };
    let chosen = aim.choose::<u32>(&graph, [9; 32]);
    let Chosen {
        program, setting, ..
    } = chosen.expect("a shallow network");
    let program = Arc::new(program);
    let Parties { secrets, keys } = &Parties::new(&program, &setting);
    let [client, owner] = secrets;
    let mut encryptor = owner.encryptor().expect("randomness");
    let model = || program.encrypt_model(&setting, &graph, &mut encryptor);
    let mut encryptor = client.encryptor().expect("randomness");
    let mut outside = input(&graph);
    outside[3] = 2.0;
    let refused = program.encrypt_input(&setting, &outside, &mut encryptor);
    assert!(matches!(refused, Err(NetworkError::Input { index: 3, .. })));
    let refused = program.encrypt_input(&setting, &outside[1..], &mut encryptor);
    assert!(matches!(refused, Err(NetworkError::Count { .. })));
    let mut model = { model }().expect("it fits");
    let cloud = Cloud::new(&program, &setting, owner.party(), &model).expect("it fits");
    let refused = cloud.evaluate(client.party(), &[], keys, |_, _| ());
    assert!(matches!(refused, Err(NetworkError::Count { .. })));
    let layer = model.layers.get_mut(&1).expect("the dense layer");
    let bias = layer.addends[0].clone();
    layer.weights[0][0] = bias;
    let refused = Cloud::new(&program, &setting, owner.party(), &model);
    assert!(matches!(
        refused.err(),
        Some(NetworkError::Ciphertext { field: "limbs", .. })
    ));
    model.layers.clear();
    let refused = Cloud::new(&program, &setting, owner.party(), &model);
    assert!(matches!(
        refused.err(),
        Some(NetworkError::OtherNetwork { .. })
    ));
}

/// Rotations of the input take keys of the client only, as it is under no other.
#[test]
fn the_owner_needs_fewer_keys() {
    let mut build = Build::new(2000, 1.0);
    let x = build.dense(0, 60);
    let program = Program::new(Network::of(&build.graph(x)), 4096).expect("it fits");
    let [client, owner] = program.rotations();
    assert!(owner.len() < client.len(), "{owner:?} {client:?}");
    assert!(owner.iter().all(|steps| client.contains(steps)));
}
