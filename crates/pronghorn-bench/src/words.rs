//! CryptoNets and MobileNet layer by layer with the CKKS operations that HE-Transformer makes of
//! them, so that words of 32 and of 64 bits meet on the same code: a product with a scalar and a sum
//! for each weight, as in X. Li, M. Nishi, T. Shishido, K. Kimura, "Acceleration of HE-Transformer
//! with bit reduced SEAL and HEXL", sections 5.3.1 and 5.4.
//!
//! This is not how Pronghorn runs the networks (its engines multiply by matrices of small
//! integers); it is what the paper's Tables 2 and 3 compare.

use std::time::Instant;

use pronghorn_he::ckks::{
    Ciphertext, CkksError, EvaluationKeys, Parameters, PublicKey, SecretKey, Slots, slices,
};
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
    security::SecurityLevel,
};
use rayon::prelude::*;

use crate::{
    ckks::{CkksBenchError, parameters},
    cryptonets, mobilenet,
};

/// A network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// CryptoNets (nGraph-HE2, appendix A.1).
    CryptoNets,
    /// MobileNetV2 with 0.35 of its maps on pictures of 96x96, with ReLU6 by the client.
    MobileNet,
}

/// Values in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// One.
    Real,
    /// Two, as real and imaginary part (nGraph-HE2, section 3.1.2). They are multiplied with real
    /// weights, but cannot be squared.
    Complex,
}

/// What stands between the layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// Squares, under encryption, relinearised; layers and squares are rescaled.
    Square,
    /// The client decrypts, rectifies and encrypts again (nGraph-HE2, section 4.1).
    /// A MobileNet's ReLU is cut at 6.
    Relu,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The network.
    pub network: Network,
    /// Degree of the ring.
    pub n: usize,
    /// Sizes of the ciphertexts' primes, in bits.
    pub bits: Vec<u32>,
    /// Size of the special prime; squares need one.
    pub special_bits: Option<u32>,
    /// Values in a slot.
    pub packing: Packing,
    /// What stands between the layers.
    pub activation: Activation,
    /// What is encrypted has scale `2^scale_log`.
    pub scale_log: u32,
    /// Weights have scale `2^weight_scale_log`; where not given, that of the prime which rescaling
    /// drops next.
    pub weight_scale_log: Option<u32>,
    /// Work with one in so many ciphertexts of each layer, as often as with all; 1 for the whole
    /// network. Seconds are multiplied to be those of the whole.
    pub one_in: usize,
}

/// Seconds of one kind of work for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What was done.
    pub name: &'static str,
    /// Whether the server does it, or the client.
    pub server: bool,
    /// Seconds, of all threads together as long as the slowest takes.
    pub seconds: f64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Costs {
    /// In order.
    pub steps: Vec<Step>,
    /// The largest error of a result: shows that the network was computed.
    pub error: f64,
    /// The largest result, about 1.
    pub largest: f64,
    /// The level of the security table that the parameters meet, if any.
    pub security: Option<SecurityLevel>,
    /// Bits of all primes together.
    pub modulus_bits: u32,
    /// Images of a batch.
    pub images: usize,
}

/// Layers of a MobileNet's longest block.
const LONGEST_BLOCK: usize = 3;

/// Slots whose results are compared with those of doubles.
const CHECKED: usize = 4;

/// Runs one batch on rayon's current threads.
///
/// # Errors
/// When there are no such parameters, or they do not carry the network.
pub fn run<W: Word>(config: &Config) -> Result<Costs, CkksBenchError> {
    if (config.packing, config.activation) == (Packing::Complex, Activation::Square) {
        return Err(CkksBenchError::ComplexSquares);
    }
    if (config.network, config.activation) == (Network::MobileNet, Activation::Square) {
        return Err(CkksBenchError::MobileNetSquares);
    }
    let special: Vec<u32> = config.special_bits.into_iter().collect();
    let parameters = parameters::<W>(config.n, &config.bits, &special)?;
    let seed = |number| Seed::from_bytes([number; 32]);
    let key = SecretKey::generate(&parameters, &seed(1));
    let mut run = Run {
        public: PublicKey::generate_from_seed(&key, &seed(2)),
        keys: config
            .special_bits
            .map(|_| EvaluationKeys::generate_from_seed(&key, 2, &[], false, &seed(3)))
            .transpose()
            .map_err(CkksError::from)?,
        random: Prg::new(&seed(4), "pronghorn 2026 benchmarks of words"),
        parameters,
        key,
        config,
        steps: Vec::new(),
    };
    let (found, wanted) = run.network()?;
    let values = found.iter().zip(&wanted);
    let slots = values.flat_map(|(found, wanted)| found.iter().zip(wanted));
    let error = slots.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    let sizes = wanted.iter().flatten().map(|x| x.abs());
    let basis = run.parameters.basis();
    Ok(Costs {
        error,
        largest: sizes.fold(0.0, f64::max),
        security: run.parameters.security(),
        modulus_bits: basis.product_bits(0..basis.limbs()),
        images: run.parameters.slots()
            * match config.packing {
                Packing::Real => 1,
                Packing::Complex => 2,
            },
        steps: run.steps,
    })
}

struct Run<'a, W: Word> {
    config: &'a Config,
    parameters: Parameters<W>,
    key: SecretKey<W>,
    public: PublicKey<W>,
    /// None without a special prime.
    keys: Option<EvaluationKeys<W>>,
    random: Prg,
    steps: Vec<Step>,
}

/// The ciphertexts of a value, and what doubles say stands in the slots that are checked:
/// `[ciphertext][slot]`.
struct Value<W: Word> {
    /// Ciphertexts in the whole network.
    count: usize,
    ciphertexts: Vec<Ciphertext<W>>,
    plain: Vec<Plain>,
}

/// Slots that are checked, real parts then imaginary ones.
type Plain = [f64; 2 * CHECKED];

/// A layer of weights.
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    /// Outputs in the whole network.
    pub(crate) outputs: usize,
    pub(crate) terms: Box<Terms>,
    pub(crate) then: Then,
}

/// The terms of an output, `(input, weight)`.
type Terms = dyn Fn(usize) -> Vec<(usize, f64)> + Send + Sync;

/// What follows on a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// The activation.
    Activation,
    /// Rescaling, and the sum with the input of a layer so many back: 1 is this layer.
    Sum(Option<usize>),
    /// The end.
    Nothing,
}

impl<W: Word> Run<'_, W> {
    /// The results in the slots that are checked, decrypted and by doubles.
    fn network(&mut self) -> Result<(Vec<Plain>, Vec<Plain>), CkksBenchError> {
        let (layers, inputs) = match self.config.network {
            Network::CryptoNets => (cryptonets::layers(), cryptonets::INPUT),
            Network::MobileNet => (mobilenet::layers(), mobilenet::INPUT),
        };
        let mut value = self.input(inputs)?;
        // What blocks begin with, as many layers as the longest has.
        let mut before = Vec::new();
        for layer in &layers {
            let sum = self.layer(&value, layer)?;
            before.push(value);
            value = match layer.then {
                Then::Activation => self.activation(sum)?,
                Then::Sum(back) => {
                    let input = back.map(|back| &before[before.len() - back]);
                    self.rescale_and_add(&sum, input)?
                }
                Then::Nothing => sum,
            };
            before.drain(..before.len().saturating_sub(LONGEST_BLOCK));
        }
        let slots = self.decrypt(&value)?;
        Ok((slots.iter().map(checked).collect(), value.plain))
    }

    /// How many of `count` ciphertexts are worked with.
    fn some(&self, count: usize) -> usize {
        count.div_ceil(self.config.one_in)
    }

    /// Runs `work` on each of `of`, and notes the time that `count` would take.
    fn each<T: Sync, R: Send>(
        &mut self,
        (name, server): (&'static str, bool),
        count: usize,
        of: &[T],
        work: impl Fn(&Self, usize, &T) -> Result<R, CkksBenchError> + Sync,
    ) -> Result<Vec<R>, CkksBenchError> {
        let started = Instant::now();
        let this = &*self;
        let done = of
            .par_iter()
            .enumerate()
            .map(|(index, item)| work(this, index, item))
            .collect::<Result<Vec<R>, CkksBenchError>>()?;
        let seconds = started.elapsed().as_secs_f64() * count as f64 / of.len() as f64;
        match self.steps.iter_mut().find(|step| step.name == name) {
            Some(step) => step.seconds += seconds,
            None => self.steps.push(Step {
                name,
                server,
                seconds,
            }),
        }
        Ok(done)
    }

    /// Encodes and encrypts the pixels.
    fn input(&mut self, count: usize) -> Result<Value<W>, CkksBenchError> {
        let slots = self.parameters.slots();
        let complex = self.config.packing == Packing::Complex;
        let pixels = (0..self.some(count)).map(|pixel| {
            let part = |part: usize| {
                let values = (0..slots).map(|slot| number(3 * pixel + 7 * slot + part).abs());
                values.collect::<Vec<f64>>()
            };
            Slots {
                re: part(0),
                im: if complex { part(1) } else { Vec::new() },
            }
        });
        let pixels: Vec<Slots> = pixels.collect();
        self.encrypt(count, &pixels)
    }

    /// What the client sends.
    fn encrypt(&mut self, count: usize, values: &[Slots]) -> Result<Value<W>, CkksBenchError> {
        let plain = values.iter().map(checked).collect();
        let (limbs, scale) = (self.parameters.limbs(), power(self.config.scale_log));
        let encode = |this: &Self, _: usize, values: &Slots| {
            let message = this
                .parameters
                .message(&values.re, &values.im, scale, limbs);
            Ok(message?)
        };
        let messages = self.each(("encode", false), count, values, encode)?;
        let ciphertexts = self.each(
            ("encrypt", false),
            count,
            &messages,
            |this, index, message| {
                let mut random = this.random.stream(index as u64);
                Ok(this.public.encrypt(message, &mut random)?)
            },
        )?;
        Ok(Value {
            count,
            ciphertexts,
            plain,
        })
    }

    /// What the client reads.
    fn decrypt(&mut self, value: &Value<W>) -> Result<Vec<Slots>, CkksBenchError> {
        let count = value.count;
        let plains = self.each(
            ("decrypt", false),
            count,
            &value.ciphertexts,
            |this, _, x| Ok(this.key.decrypt(x)?),
        )?;
        self.each(("decode", false), count, &plains, |this, _, x| {
            Ok(this.parameters.decode(x)?)
        })
    }

    /// Products with scalars, and sums.
    fn layer(&mut self, input: &Value<W>, layer: &Layer) -> Result<Value<W>, CkksBenchError> {
        let first = &input.ciphertexts[0];
        let limbs = first.limbs();
        let prime = self.parameters.basis().prime(limbs - 1).value() as f64;
        let weight_scale = self.config.weight_scale_log.map_or(prime, power);
        // One in so many outputs, spread over all.
        let count = layer.outputs;
        let outputs: Vec<Vec<(usize, f64)>> = (0..self.some(count))
            .map(|output| (layer.terms)(output * self.config.one_in))
            .collect();
        let stored = input.ciphertexts.len();
        let sum = |this: &Self, _: usize, terms: &Vec<(usize, f64)>| {
            let mut sum = vec![W::default(); first.data().len()];
            for &(index, weight) in terms {
                let scalar = this.parameters.scalar(weight, weight_scale, limbs)?;
                let x = input.ciphertexts[index % stored].data();
                slices::mul_scalar_add_assign(&this.parameters, limbs, &mut sum, x, scalar.words());
            }
            let scale = first.scale() * weight_scale;
            Ok(Ciphertext::from_words(&this.parameters, limbs, scale, sum)?)
        };
        let ciphertexts = self.each((layer.name, true), count, &outputs, sum)?;
        let plain = outputs.iter().map(|terms| {
            let mut sum = Plain::default();
            for &(index, weight) in terms {
                let x = &input.plain[index % stored];
                sum.iter_mut()
                    .zip(x)
                    .for_each(|(sum, x)| *sum += weight * x);
            }
            sum
        });
        let plain = plain.collect();
        Ok(Value {
            count,
            ciphertexts,
            plain,
        })
    }

    /// Rescales a sum, and adds the input of its block.
    fn rescale_and_add(
        &mut self,
        sum: &Value<W>,
        input: Option<&Value<W>>,
    ) -> Result<Value<W>, CkksBenchError> {
        let name = ("rescale and add", true);
        let ciphertexts = self.each(name, sum.count, &sum.ciphertexts, |_, index, x| {
            let rescaled = x.rescale(1)?;
            Ok(match input {
                Some(input) => rescaled.add(&input.ciphertexts[index])?,
                None => rescaled,
            })
        })?;
        let mut plain = sum.plain.clone();
        for (sums, input) in plain.iter_mut().zip(input.iter().flat_map(|x| &x.plain)) {
            sums.iter_mut().zip(input).for_each(|(sum, x)| *sum += x);
        }
        Ok(Value {
            count: sum.count,
            ciphertexts,
            plain,
        })
    }

    fn activation(&mut self, value: Value<W>) -> Result<Value<W>, CkksBenchError> {
        match self.config.activation {
            Activation::Square => self.square(&value),
            Activation::Relu => self.relu(&value),
        }
    }

    /// On the server: rescale, square, relinearise and rescale.
    fn square(&mut self, value: &Value<W>) -> Result<Value<W>, CkksBenchError> {
        let count = value.count;
        let rescaled = self.each(("rescale", true), count, &value.ciphertexts, |_, _, x| {
            Ok(x.rescale(1)?)
        })?;
        let squares = self.each(
            ("square", true),
            count,
            &rescaled,
            |_, _, x| Ok(x.square()?),
        )?;
        let name = ("relinearise and rescale", true);
        let ciphertexts = self.each(name, count, &squares, |this, _, x| {
            let keys = this.keys.as_ref().ok_or(CkksBenchError::NoKeys("square"))?;
            Ok(x.relinearise_and_rescale(keys, 1)?)
        })?;
        let plain = value.plain.iter().map(|x| x.map(|x| x * x)).collect();
        Ok(Value {
            count,
            ciphertexts,
            plain,
        })
    }

    /// At the client: decrypt, rectify, encrypt.
    fn relu(&mut self, value: &Value<W>) -> Result<Value<W>, CkksBenchError> {
        let count = value.count;
        let most = match self.config.network {
            Network::CryptoNets => f64::INFINITY,
            Network::MobileNet => 6.0,
        };
        let mut slots = self.decrypt(value)?;
        for slots in &mut slots {
            for x in slots.re.iter_mut().chain(&mut slots.im) {
                *x = x.clamp(0.0, most);
            }
        }
        let mut fresh = self.encrypt(count, &slots)?;
        fresh.plain = value
            .plain
            .iter()
            .map(|x| x.map(|x| x.clamp(0.0, most)))
            .collect();
        Ok(fresh)
    }
}

fn power(log: u32) -> f64 {
    f64::from(log).exp2()
}

/// The slots that are checked.
fn checked(slots: &Slots) -> Plain {
    let mut plain = Plain::default();
    let (re, im) = plain.split_at_mut(CHECKED);
    for (out, values) in [(re, &slots.re), (im, &slots.im)] {
        out.iter_mut().zip(values).for_each(|(out, x)| *out = *x);
    }
    plain
}

/// A made-up number in (-1, 1).
pub(crate) fn number(index: usize) -> f64 {
    (index as f64 * 0.618_033_988_749 + 0.3).fract() * 2.0 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(packing: Packing, activation: Activation) -> Config {
        Config {
            network: Network::CryptoNets,
            n: 1024,
            bits: vec![29; 7],
            special_bits: Some(30),
            packing,
            activation,
            scale_log: 29,
            weight_scale_log: None,
            one_in: 50,
        }
    }

    #[test]
    fn both_words_compute_the_network() {
        for (packing, activation) in [
            (Packing::Real, Activation::Square),
            (Packing::Real, Activation::Relu),
            (Packing::Complex, Activation::Relu),
        ] {
            let config = config(packing, activation);
            for costs in [run::<u32>(&config).unwrap(), run::<u64>(&config).unwrap()] {
                let what = format!("{packing:?}, {activation:?}: {}", costs.error);
                assert!(costs.error < 0.02, "{what}");
                assert_eq!(costs.security, None);
                assert!(costs.steps.iter().all(|step| step.seconds > 0.0));
                let servers = costs.steps.iter().filter(|step| step.server);
                let squares = activation == Activation::Square;
                assert_eq!(servers.count(), if squares { 6 } else { 3 });
                let complex = packing == Packing::Complex;
                assert_eq!(costs.images, if complex { 1024 } else { 512 });
            }
        }
    }

    #[test]
    fn one_prime_carries_a_layer_at_a_time() {
        let mut config = Config {
            n: 2048,
            bits: vec![53],
            special_bits: None,
            scale_log: 27,
            weight_scale_log: Some(22),
            ..config(Packing::Complex, Activation::Relu)
        };
        let costs = run::<u64>(&config).unwrap();
        assert!(costs.error < 0.02, "{}", costs.error);
        assert_eq!(costs.security, Some(SecurityLevel::Bits128));
        config.bits = vec![27, 26];
        assert!(run::<u32>(&config).unwrap().error < 0.02);
    }

    #[test]
    fn both_words_compute_mobilenet() {
        for packing in [Packing::Real, Packing::Complex] {
            let config = Config {
                network: Network::MobileNet,
                bits: vec![29; 4],
                one_in: 2000,
                ..config(packing, Activation::Relu)
            };
            for costs in [run::<u32>(&config).unwrap(), run::<u64>(&config).unwrap()] {
                assert!(costs.error < 0.02, "{packing:?}: {}", costs.error);
                assert!(costs.largest > 0.2, "{packing:?}: {}", costs.largest);
                assert!(costs.steps.iter().all(|step| step.seconds > 0.0));
                assert_eq!(costs.steps.iter().filter(|step| step.server).count(), 5);
            }
        }
        let mut config = config(Packing::Real, Activation::Square);
        config.network = Network::MobileNet;
        assert!(run::<u32>(&config).is_err());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let refused = |config: &Config| run::<u32>(config).unwrap_err().to_string();
        let mut config = config(Packing::Complex, Activation::Square);
        assert!(refused(&config).contains("real and imaginary"));
        config.packing = Packing::Real;
        config.special_bits = None;
        assert!(refused(&config).contains("special primes"));
    }
}
