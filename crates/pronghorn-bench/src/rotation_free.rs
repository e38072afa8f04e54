//! Linear layers of the coefficient engine, both parties in one process connected by memory; the
//! rotation-free paper's protocol beside it is in [`paper`].

use pronghorn_engine::{
    ClientModel, ClientPublication, Connection, EngineError, PreludeKind, ServerModel,
    coefficient::publication::Polynomials,
    share::{Batch, Share},
};
use pronghorn_graph::fixed::Linear;
use pronghorn_he::rlwe;
use pronghorn_plan::{
    Built, CheckedPlan, Derived, Rlwe, ShareBits, StepKind, Weights,
    steps::linear::coefficient::{CoefficientLinear, Layout},
};
use pronghorn_ring::{
    Ntt, Prime,
    random::{Prg, Seed},
};

use crate::parties::{Phase, clocked, exchange};

pub mod paper;

/// Multiplications of one image at one party.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Of residues modulo `q`; a butterfly has one.
    pub residues: u64,
    /// Of a residue by a weight of at most 16 bits, not reduced: each is done in limbs, two to four
    /// of 16 bits or two of 30.
    pub weights: u64,
}

/// What a layer cost.
pub struct Cost {
    /// The step's name.
    pub name: String,
    /// One image.
    pub online: Phase,
    /// The client's multiplications.
    pub client: Work,
    /// The server's.
    pub server: Work,
    /// Polynomials that the server publishes, and keeps none of; the client keeps all.
    pub published: u64,
    /// Output elements: the coefficients of products that each party makes use of.
    pub outputs: u64,
    /// Degree of the ring.
    pub degree: usize,
    /// Bits of its modulus.
    pub modulus_bits: u32,
}

/// All linear steps of a plan, published.
pub struct Network {
    client: (ClientModel, Connection),
    server: (ServerModel, Connection),
    layers: Vec<Layer>,
    /// What publishing cost, once a client.
    pub publication: Phase,
}

/// A linear step, with the server's weights.
struct Layer {
    index: usize,
    linear: Linear,
}

impl Network {
    /// Publishes the linear steps of a built model.
    ///
    /// # Errors
    /// When a linear step is of another engine than the coefficient engine.
    pub fn new(built: &Built) -> Result<Self, EngineError> {
        let plan = &built.plan;
        if !plan.trust.shares() {
            return Err(refused("the network", "it is not on shares"));
        }
        if plan.slot_key_bytes() > 0 {
            return Err(refused("the network", "it has layers on slots"));
        }
        let mut layers = Vec::new();
        for (index, ..) in plan.linear_steps() {
            parts(plan, index)?;
            let Weights::Layer(linear) = &built.weights[index] else {
                return Err(refused(&plan.step_name(index), "its weights are missing"));
            };
            layers.push(Layer {
                index,
                linear: linear.clone(),
            });
        }
        let mut network = Self {
            client: (ClientModel::new(plan.clone())?, Connection::default()),
            server: (ServerModel::new(built)?, Connection::default()),
            layers,
            publication: Phase::default(),
        };
        network.publication = network.begin()?;
        Ok(network)
    }

    /// The exchanges before an image; what publishing cost, where it was due.
    fn begin(&self) -> Result<Phase, EngineError> {
        let mut publication = Phase::default();
        let client = self.client.0.preludes(&self.client.1, 1)?;
        let server = self.server.0.preludes(&self.server.1, 1)?;
        for ((kind, mut client), (_, mut server)) in client.into_iter().zip(server) {
            let mut cost = Phase::default();
            exchange(&mut *client, &mut *server, &mut cost)?;
            if kind == PreludeKind::Publication {
                publication = cost;
            }
        }
        Ok(publication)
    }

    /// Runs every linear step once on shares of random values, on rayon's current threads; the
    /// results are compared with the layer in integers where that is asked for.
    ///
    /// # Errors
    /// When a machine fails, or a result is wrong.
    pub fn run(&self, checked: bool) -> Result<Vec<Cost>, EngineError> {
        self.begin()?;
        let layers = self.layers.iter();
        layers.map(|layer| self.layer(layer, checked)).collect()
    }

    fn layer(&self, layer: &Layer, checked: bool) -> Result<Cost, EngineError> {
        let plan = self.client.0.plan();
        let (index, step) = (layer.index, &plan.steps[layer.index]);
        let (linear, layout) = parts(plan, index)?;
        let inputs = plan.steps[step.inputs[0]].value.len();
        let [of_client, of_server] = [0, 1].map(|party| random_share(inputs, party));
        let [of_client, of_server] = [of_client?, of_server?];
        let sum = checked.then(|| sums(of_client.words(), of_server.words()));
        let [of_client, of_server] = [of_client, of_server].map(|share| vec![Share::Words(share)]);
        let mut online = Phase::default();
        let mut client = clocked(&mut online.client, || {
            let (model, connection) = &self.client;
            model.step(index, connection, 1, of_client)
        })?;
        let mut server = clocked(&mut online.server, || {
            let (model, connection) = &self.server;
            model.step(index, connection, 1, of_server)
        })?;
        exchange(&mut *client, &mut *server, &mut online)?;
        let shares = [client.into_made()?.share, server.into_made()?.share];
        if let Some(sum) = sum {
            check((plan, index), linear.shares, &layer.linear, &sum, &shares)?;
        }
        let rlwe = &linear.rlwe;
        let (client, server) = work(rlwe.degree as u64, layout);
        Ok(Cost {
            name: self.server.0.names().steps[index].clone(),
            online,
            client,
            server,
            published: layout.published() as u64,
            outputs: step.value.len() as u64,
            degree: rlwe.degree,
            modulus_bits: rlwe.modulus_bits(),
        })
    }
}

/// A step of the coefficient engine, and where its values sit.
fn parts(plan: &CheckedPlan, index: usize) -> Result<(&CoefficientLinear, &Layout), EngineError> {
    let step = plan.steps.get(index);
    let step = step.ok_or_else(|| refused("the network", "it has no such linear step"))?;
    match (&step.kind, plan.derived(index)) {
        (StepKind::CoefficientLinear(linear), Derived::Polynomials(layout)) => Ok((linear, layout)),
        _ => Err(refused(&plan.step_name(index), "it is of another engine")),
    }
}

/// The multiplications that the machines do for an image: [`pronghorn_engine::coefficient`] says
/// which.
fn work(degree: u64, layout: &Layout) -> (Work, Work) {
    let transform = degree / 2 * u64::from(degree.ilog2());
    let published = layout.published() as u64;
    let inputs = (layout.tiles() * layout.polynomials()) as u64 + 1;
    let client = Work {
        // The secret's transform; then `a s` for each input and for what hides, and `p s` for each
        // published polynomial.
        residues: transform + (inputs + published) * (degree + transform),
        weights: 0,
    };
    let server = Work {
        // The transform of `b_0`; then those of `u`, and `u b_0`.
        residues: transform + published * (degree + 2 * transform),
        weights: layout.geometry().multiply_adds(),
    };
    (client, server)
}

/// What a client sees of one output channel of a layer, and what it is not to find there.
pub struct Sample {
    /// Degree of the ring.
    pub degree: usize,
    /// Its modulus.
    pub modulus: u64,
    /// The public `a` that meets the first input polynomial, coefficient by coefficient.
    pub a: Vec<u64>,
    /// The published polynomial.
    pub published: Vec<u64>,
    /// Low bits of it that are not sent, and made up.
    pub dropped_bits: u32,
    /// The weights that meet the first input polynomial, and the exponents they are at minus of.
    pub weights: Vec<(usize, i32)>,
}

impl Network {
    /// Of output channel 0 of step `index`, whose first polynomial is all of its input, in one
    /// tile.
    ///
    /// # Errors
    /// When the step is none of the coefficient engine, in 64-bit words.
    pub fn sample(&self, index: usize) -> Result<Sample, EngineError> {
        let missing = || refused("the network", "it has no such step in 64-bit words");
        let (client, connection) = &self.client;
        let publication = ClientPublication::of(connection).ok_or_else(missing)?;
        let published = publication.polynomials(index)?;
        let layer = self.layers.iter().find(|layer| layer.index == index);
        let (Some(Polynomials::U64(words)), Some(layer)) = (published, layer) else {
            return Err(missing());
        };
        let (linear, layout) = parts(client.plan(), index)?;
        let Rlwe {
            degree,
            modulus,
            dropped_bits_a,
            ..
        } = linear.rlwe;
        let prime = Prime::new(modulus).map_err(|_| missing())?;
        let ntt = Ntt::new(degree, prime).map_err(|_| missing())?;
        let mut published = words[..degree].to_vec();
        let mut a = vec![0; degree];
        rlwe::expand_a(&publication.generator(index), 0, &prime, &mut a);
        ntt.inverse(&mut published);
        ntt.inverse(&mut a);
        let [_, inputs] = layout.group();
        let [height, width] = layer.linear.geometry.window.kernel;
        let taps = (0..inputs).flat_map(|channel| {
            let cells = (0..height).flat_map(move |y| (0..width).map(move |x| [y, x]));
            cells.map(move |tap| (channel, tap))
        });
        let exponents = taps.map(|(channel, tap)| layout.tap(channel, tap).1);
        Ok(Sample {
            degree,
            modulus,
            a,
            published,
            dropped_bits: dropped_bits_a,
            weights: exponents
                .zip(layer.linear.weights.iter().map(|&weight| weight.into()))
                .collect(),
        })
    }
}

/// Uniform words.
fn random_share(elements: usize, party: u64) -> Result<Batch, EngineError> {
    let prg = Prg::new(&Seed::from_os()?, "pronghorn bench rotation-free: shares");
    let (mut bytes, mut share) = (vec![0; 4 * elements], Batch::zeros(elements, 1));
    prg.stream(party).fill(&mut bytes);
    let words = share.words_mut().iter_mut();
    for (word, bytes) in words.zip(bytes.as_chunks::<4>().0) {
        *word = i32::from_le_bytes(*bytes);
    }
    Ok(share)
}

fn sums(x: &[i32], y: &[i32]) -> Vec<i32> {
    x.iter().zip(y).map(|(x, y)| x.wrapping_add(*y)).collect()
}

/// That shares with guard bits are of the layer's outputs, to a unit of their last place.
fn check(
    (plan, index): (&CheckedPlan, usize),
    bits: ShareBits,
    linear: &Linear,
    inputs: &[i32],
    shares: &[Share; 2],
) -> Result<(), EngineError> {
    let words = shares.each_ref().map(|share| match share {
        Share::Words(words) => words.words(),
        Share::Zero => &[],
    });
    let (step, guard) = (&plan.steps[index], bits.guard_bits);
    let unused = u32::BITS - bits.value_bits - guard;
    let found = sums(words[0], words[1]);
    let wrong = found
        .iter()
        .zip(convolve(linear, inputs))
        .any(|(found, wanted)| {
            let error = found.wrapping_sub(wanted.wrapping_shl(guard));
            (error << unused >> unused).abs() > 1
        });
    if wrong || found.len() != step.value.len() {
        return Err(refused(&plan.step_name(index), "the result is wrong"));
    }
    Ok(())
}

/// The layer modulo `2^32`.
fn convolve(linear: &Linear, inputs: &[i32]) -> Vec<i32> {
    let geometry = &linear.geometry;
    let ([height, width], window) = (geometry.input, &geometry.window);
    let positions: Vec<[usize; 2]> = geometry.output().map_or(Vec::new(), |[rows, columns]| {
        let cells = (0..rows).flat_map(|y| (0..columns).map(move |x| [y, x]));
        cells.collect()
    });
    let channels = geometry.in_channels / geometry.groups;
    let of_group = geometry.out_channels / geometry.groups;
    let mut outputs = Vec::with_capacity(geometry.out_channels * positions.len());
    for output in 0..geometry.out_channels {
        let weights = &linear.weights[output * geometry.row_len()..];
        let first = output / of_group * channels;
        for &[y, x] in &positions {
            let mut sum = linear.bias[output];
            for channel in 0..channels {
                for ky in window.taps(0, y, height) {
                    for kx in window.taps(1, x, width) {
                        let at = (first + channel) * height + window.index(0, y, ky);
                        let input = inputs[at * width + window.index(1, x, kx)];
                        let tap = (channel * window.kernel[0] + ky) * window.kernel[1] + kx;
                        sum = sum.wrapping_add(i32::from(weights[tap]).wrapping_mul(input));
                    }
                }
            }
            outputs.push(sum);
        }
    }
    outputs
}

fn refused(step: &str, reason: &'static str) -> EngineError {
    EngineError::Unsupported {
        step: step.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pronghorn_graph::graph::{Graph, Tensor};
    use pronghorn_plan::{BuildOptions, Engine, TrustLevel, build};

    use super::*;
    use crate::parties;

    const NETWORK: &str = r#"{"name":"small","output":3,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2]},
{"name":"fc1","op":{"kind":"dense","weight":"fc1.w","bias":null},"inputs":[0],"shape":[3]},
{"name":"r","op":{"kind":"relu"},"inputs":[1],"shape":[3]},
{"name":"fc2","op":{"kind":"dense","weight":"fc2.w","bias":null},"inputs":[2],"shape":[1]}]}"#;

    fn built(engine: Engine) -> Built {
        built_with(engine, None)
    }

    /// With weights of so many bits: some make words of 64 bits.
    fn built_with(engine: Engine, weight_bits: Option<u32>) -> Built {
        let tensor = |name: &str, shape: [usize; 2], data: &[f32]| {
            (name.to_owned(), Tensor::new(shape, data.to_vec()))
        };
        let weights = [
            tensor("fc1.w", [3, 2], &[0.5, -0.25, 0.1, 0.9, -0.7, 0.3]),
            tensor("fc2.w", [1, 3], &[0.4, -0.6, 0.2]),
        ];
        let options = BuildOptions {
            trust: Some(TrustLevel::TwoParty),
            engine: Some(engine),
            weight_bits,
            input_bits: weight_bits,
            ..BuildOptions::default()
        };
        build(
            &Graph::from_json(NETWORK, weights.into()).unwrap(),
            &options,
        )
        .unwrap()
    }

    #[test]
    fn every_linear_step_is_measured_and_checked() {
        let built = built(Engine::Coefficient);
        let network = Network::new(&built).unwrap();
        let once = built.plan.once().publication;
        assert!(network.publication.bytes_down > once && network.publication.bytes_up > 0);
        for checked in [true, false] {
            let costs = network.run(checked).unwrap();
            let names: Vec<&str> = costs.iter().map(|cost| cost.name.as_str()).collect();
            let steps = built.plan.linear_steps();
            let steps = steps.map(|(index, ..)| &built.names.steps[index]);
            assert!(steps.eq(names), "each linear step once");
            for ((index, ..), cost) in built.plan.linear_steps().zip(&costs) {
                let planned = built.plan.cost(index, 1);
                assert_eq!(cost.online.bytes_up, planned.online.bytes_up);
                assert_eq!(cost.online.bytes_down, planned.online.bytes_down);
            }
        }
    }

    #[test]
    fn what_a_client_sees_has_the_weights_in_it() {
        let built = built_with(Engine::Coefficient, Some(12));
        let network = Network::new(&built).unwrap();
        let (index, ..) = built.plan.linear_steps().next().unwrap();
        let sample = network.sample(index).unwrap();
        assert_eq!(sample.a.len(), sample.degree);
        assert_eq!(sample.published.len(), sample.degree);
        assert_eq!(sample.weights.len(), 2);
        assert!(network.sample(0).is_err() && network.sample(usize::MAX).is_err());
    }

    #[test]
    fn other_engines_are_refused() {
        assert!(Network::new(&built(Engine::Slot)).is_err());
    }

    #[test]
    fn batches_of_a_connection_send_its_keys_once() {
        let model = Arc::new(ServerModel::new(&built(Engine::Coefficient)).unwrap());
        let connection = parties::Connection::new(model).unwrap();
        let [first, second] = [0, 1].map(|_| connection.run(&[0.25, 0.75], 1).unwrap());
        assert_eq!(first.outputs, second.outputs);
        assert!(first.cost.bytes_down > second.cost.bytes_down);
    }
}
