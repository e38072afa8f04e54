//! The rotation-free paper's own protocol (algorithms 1 and 2), and the same with masking
//! coefficients in the filters: to be measured, not to be used.
//!
//! The client sends `c_0 = v b + Delta_m m + e`; the server multiplies it by each filter
//! polynomial, takes the coefficients that are outputs and masks them; the client adds those of `v
//! (s p)`, with `p = f a + e_Delta` published before. Values sit as in equations 5, 6, 10 and 11:
//! channel `m` of row `y`, column `x` at exponent `(y W + x) C + m`, where `W` counts the zeros to
//! the right of a row, which are its padding and that of the next. The shift of equation 8 moves
//! outputs of different channels apart and changes no cost; it is left out.
//!
//! * [`Protocol::Paper`]: log Q = 104, `Delta = 2^40`, masks in `+-Delta`. It gives small filters
//!   away.
//! * [`Protocol::Hardened`]: one prime of 50 bits, messages at even exponents, random coefficients
//!   of filters at odd ones, masks uniform.
//!
//! Both parties fold a product onto the residue class of exponents that holds outputs: the class of
//! multiples of `F` has as its transform of degree `N / F` the means of `F` values each, which are
//! side by side in bit-reversed order.

use pronghorn_engine::EngineError;
use pronghorn_ring::{
    Ntt, Prime,
    modulus::largest_ntt_prime,
    random::{Prg, Seed},
    sample, vector,
};

use super::{Work, refused};
use crate::parties::{Phase, clocked};

mod packing;

pub use packing::Layer;
use packing::{Packing, Product};

/// Which protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// As published. Insecure.
    Paper,
    /// With masking coefficients, at 128 bits.
    Hardened,
}

/// Bits of what is encoded.
#[derive(Clone, Copy)]
struct Scales {
    message: u32,
    filter: u32,
}

impl Protocol {
    /// Bits of the primes.
    fn prime_bits(self) -> &'static [u32] {
        match self {
            Self::Paper => &[55, 49],
            Self::Hardened => &[50],
        }
    }

    fn scales(self) -> Scales {
        match self {
            Self::Paper => Scales {
                message: 40,
                filter: 40,
            },
            Self::Hardened => Scales {
                message: 26,
                filter: 14,
            },
        }
    }

    /// Messages are at multiples of this.
    fn spread(self) -> usize {
        match self {
            Self::Paper => 1,
            Self::Hardened => 2,
        }
    }
}

/// One prime of the modulus.
struct Limb {
    ntt: Ntt<u64>,
    /// Of degree `N / fold`.
    short: Ntt<u64>,
    /// In the transform's domain, like all that follow: the public key.
    a: Vec<u64>,
    b: Vec<u64>,
    /// `[product][polynomial]`: filters over `fold`.
    filters: Vec<Vec<u64>>,
    /// `s p` over `fold`.
    published: Vec<Vec<u64>>,
}

/// A layer that is set up at both parties.
pub struct Run {
    protocol: Protocol,
    packing: Packing,
    degree: usize,
    limbs: Vec<Limb>,
    weights: Vec<f64>,
    outputs: usize,
}

/// What it cost.
pub struct Cost {
    /// One image.
    pub online: Phase,
    /// The client's multiplications.
    pub client: Work,
    /// The server's.
    pub server: Work,
    /// Filter polynomials, which the server keeps, and the client their `s p`.
    pub published: u64,
    /// Coefficients of products that are made use of.
    pub outputs: u64,
    /// Largest error of an output, whose inputs are in `+-1` and weights in `+-1/2`, where that was
    /// asked for.
    pub error: Option<f64>,
}

impl Run {
    /// Random weights and keys.
    ///
    /// # Errors
    /// When the layer does not fit polynomials of this degree.
    pub fn new(protocol: Protocol, layer: &Layer, degree: usize) -> Result<Self, EngineError> {
        let misfit = || refused("the layer", "it does not fit polynomials of this degree");
        let packing = layer
            .packing(degree, protocol.spread())
            .ok_or_else(misfit)?;
        let random = Prg::new(
            &Seed::from_os()?,
            "pronghorn bench rotation-free: the paper",
        );
        let [_, outputs, weights] = layer.sizes();
        let weights: Vec<f64> = reals(&random, 0, weights).map(|x| x / 2.0).collect();
        let secret = small(&random, 1, degree, sample::ternary);
        let limbs = protocol.prime_bits().iter().enumerate();
        let limbs = limbs.map(|(limb, &bits)| {
            let prime = largest_ntt_prime(bits, degree).and_then(|q| Prime::new(q).ok());
            let prime = prime.ok_or_else(misfit)?;
            let of = |n| Ntt::new(n, prime).map_err(|_| misfit());
            let (ntt, short) = (of(degree)?, of(degree / packing.fold)?);
            Ok(Limb::new(
                (protocol, &packing, &random),
                (ntt, short),
                limb as u64,
                &secret,
                &weights,
            ))
        });
        let limbs = limbs.collect::<Result<_, EngineError>>()?;
        Ok(Self {
            protocol,
            packing,
            degree,
            limbs,
            weights,
            outputs,
        })
    }

    /// One image; the parties' work is timed apart. The outputs are compared with the layer's where
    /// that is asked for.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn run(&self, checked: bool) -> Result<Cost, EngineError> {
        let fresh = Prg::new(&Seed::from_os()?, "pronghorn bench rotation-free: an image");
        let image: Vec<f64> = reals(&fresh, 0, self.packing.inputs.len()).collect();
        let mut online = Phase::default();
        let (c_0, v) = clocked(&mut online.client, || self.encrypt(&fresh, &image));
        let (answers, masks) = clocked(&mut online.server, || {
            let filters = self.limbs.iter().map(|limb| &limb.filters);
            let mut answers = self.products(c_0, filters.collect());
            let masks = self.mask(&fresh, &mut answers);
            (self.rescale(answers), masks)
        });
        let found = clocked(&mut online.client, || {
            let published = self.limbs.iter().map(|limb| &limb.published);
            let shares = self.rescale(self.multiplied(&v, published.collect()));
            let q = self.limbs[0].ntt.modulus();
            let sums = answers.iter().zip(&shares);
            let sums = sums.map(|(&x, &y)| q.centre(q.add(x, y)) as f64);
            sums.collect::<Vec<f64>>()
        });
        let polynomials = self.packing.polynomials as u64;
        let bits = self.protocol.prime_bits();
        let request = polynomials * self.degree as u64 * u64::from(bits.iter().sum::<u32>());
        online.bytes_up = request.div_ceil(8);
        online.bytes_down = (self.outputs as u64 * u64::from(bits[0])).div_ceil(8);
        let (client, server) = self.work();
        Ok(Cost {
            online,
            client,
            server,
            published: self.packing.products.len() as u64 * polynomials,
            outputs: self.outputs as u64,
            error: checked.then(|| self.error(&image, &found, &masks)),
        })
    }

    /// `c_0` in coefficients and `v` in the transform's domain, `[limb][polynomial]`.
    #[allow(clippy::type_complexity)]
    fn encrypt(&self, fresh: &Prg, image: &[f64]) -> (Vec<Vec<Vec<u64>>>, Vec<Vec<Vec<u64>>>) {
        let scale = f64::from(self.protocol.scales().message).exp2();
        let mut messages = vec![vec![0i64; self.degree]; self.packing.polynomials];
        for (&(polynomial, exponent), value) in self.packing.inputs.iter().zip(image) {
            messages[polynomial][exponent] = (value * scale).round() as i64;
        }
        let rows = 0..self.packing.polynomials;
        let draws: Vec<_> = rows
            .map(|row| {
                let row = row as u64;
                let v = small(fresh, 1 + 2 * row, self.degree, halved_ternary);
                let errors = small(fresh, 2 + 2 * row, self.degree, sample::centred_binomial);
                (v, errors)
            })
            .collect();
        let encrypted = self.limbs.iter().map(|limb| {
            let q = limb.ntt.modulus();
            let rows = draws.iter().zip(&messages);
            let rows = rows.map(|((v, errors), message)| {
                let v = limb.transformed(v);
                let mut c_0 = vec![0; self.degree];
                vector::mul(q, &v, &limb.b, &mut c_0);
                limb.ntt.inverse(&mut c_0);
                for ((c, &m), &e) in c_0.iter_mut().zip(message).zip(errors) {
                    *c = q.add(*c, q.from_i64(m + i64::from(e)));
                }
                (c_0, v)
            });
            rows.unzip()
        });
        encrypted.unzip()
    }

    /// Products of what came in coefficients.
    fn products(&self, mut c_0: Vec<Vec<Vec<u64>>>, filters: Vec<&Vec<Vec<u64>>>) -> Vec<Vec<u64>> {
        for (limb, rows) in self.limbs.iter().zip(&mut c_0) {
            rows.iter_mut().for_each(|row| limb.ntt.forward(row));
        }
        self.multiplied(&c_0, filters)
    }

    /// The coefficients that are outputs of sums of products, `[limb][output]`.
    fn multiplied(&self, inputs: &[Vec<Vec<u64>>], by: Vec<&Vec<Vec<u64>>>) -> Vec<Vec<u64>> {
        let Packing {
            polynomials,
            products,
            fold,
            ..
        } = &self.packing;
        let limbs = self.limbs.iter().zip(inputs).zip(by);
        let multiplied = limbs.map(|((limb, inputs), by)| {
            let q = limb.ntt.modulus();
            let inputs: Vec<&[u64]> = inputs.iter().map(Vec::as_slice).collect();
            let (mut sum, mut short) = (vec![0; self.degree], vec![0; self.degree / fold]);
            let mut outputs = vec![0; self.outputs];
            for (product, by) in products.iter().zip(by.chunks_exact(*polynomials)) {
                let by: Vec<&[u64]> = by.iter().map(Vec::as_slice).collect();
                vector::inner_product(q, &inputs, &by, &mut sum);
                for (short, values) in short.iter_mut().zip(sum.chunks_exact(*fold)) {
                    // At most 2^9 values below 2^55.
                    *short = q.mul(values.iter().sum(), 1);
                }
                limb.short.inverse(&mut short);
                for &(exponent, output) in &product.outputs {
                    outputs[output] = short[exponent / fold];
                }
            }
            outputs
        });
        multiplied.collect()
    }

    /// Adds masks, which are given back as what they do to an output: modulo the first prime, after
    /// rescaling.
    fn mask(&self, fresh: &Prg, answers: &mut [Vec<u64>]) -> Vec<i64> {
        let mut words = vec![0u64; self.outputs];
        let stream = &mut fresh.stream(u64::MAX);
        let first = self.limbs[0].ntt.modulus();
        match self.protocol {
            Protocol::Hardened => sample::uniform_secret(stream, first, &mut words),
            Protocol::Paper => sample::uniform_power_of_two(stream, 41, &mut words),
        }
        let masks: Vec<i64> = match self.protocol {
            Protocol::Hardened => words.iter().map(|&word| first.centre(word)).collect(),
            Protocol::Paper => words.iter().map(|&word| word as i64 - (1 << 40)).collect(),
        };
        for (limb, answers) in self.limbs.iter().zip(answers) {
            let q = limb.ntt.modulus();
            for (answer, &mask) in answers.iter_mut().zip(&masks) {
                *answer = q.add(*answer, q.from_i64(mask));
            }
        }
        masks
    }

    /// Divides by all primes but the first.
    fn rescale(&self, mut words: Vec<Vec<u64>>) -> Vec<u64> {
        while words.len() > 1 {
            let last = words.pop().unwrap_or_default();
            let from = self.limbs[words.len()].ntt.modulus();
            for (limb, words) in self.limbs.iter().zip(&mut words) {
                let q = limb.ntt.modulus();
                let inverse = q
                    .inverse(q.from_i64(from.value() as i64))
                    .unwrap_or_default();
                let quotient = q.shoup(inverse);
                for (word, &last) in words.iter_mut().zip(&last) {
                    let rest = q.from_i64(from.centre(last));
                    *word = q.mul_shoup(q.sub(*word, rest), inverse, quotient);
                }
            }
        }
        words.pop().unwrap_or_default()
    }

    /// What [`Run::run`] multiplies.
    fn work(&self) -> (Work, Work) {
        let (limbs, degree) = (self.limbs.len() as u64, self.degree as u64);
        let transform = |n: u64| n / 2 * u64::from(n.ilog2());
        let (polynomials, products) = (
            self.packing.polynomials as u64,
            self.packing.products.len() as u64,
        );
        let short = degree / self.packing.fold as u64;
        let rescaled = (limbs - 1) * self.outputs as u64;
        let products = limbs * products * (polynomials * degree + transform(short)) + rescaled;
        let client = limbs * polynomials * (2 * transform(degree) + degree) + products;
        let server = limbs * polynomials * transform(degree) + products;
        let of = |residues| Work {
            residues,
            weights: 0,
        };
        (of(client), of(server))
    }

    /// The largest error of what is left without the masks.
    fn error(&self, image: &[f64], found: &[f64], masks: &[i64]) -> f64 {
        let Scales { message, filter } = self.protocol.scales();
        let divisor = self.limbs[1..]
            .iter()
            .map(|limb| limb.ntt.modulus().value() as f64);
        let divisor: f64 = divisor.product();
        let unit = f64::from(message + filter).exp2() / divisor;
        let modulus = self.limbs[0].ntt.modulus().value() as f64;
        let mut messages = vec![0.0; self.packing.polynomials * self.degree];
        for (&(polynomial, exponent), value) in self.packing.inputs.iter().zip(image) {
            messages[polynomial * self.degree + exponent] = *value;
        }
        let mut worst = 0f64;
        for product in &self.packing.products {
            for &(exponent, output) in &product.outputs {
                // What wraps around meets zeros.
                let terms = product.terms.iter().map(|&(polynomial, shift, weight)| {
                    let place = usize::try_from(exponent as isize - shift).ok();
                    let place = place.filter(|&place| place < self.degree);
                    let message =
                        place.map_or(0.0, |place| messages[polynomial * self.degree + place]);
                    message * self.weights[weight]
                });
                let wanted: f64 = terms.sum();
                let off = found[output] - masks[output] as f64 / divisor - wanted * unit;
                let off = off - (off / modulus).round() * modulus;
                worst = worst.max(off.abs() / unit);
            }
        }
        worst
    }
}

impl Limb {
    fn new(
        (protocol, packing, random): (Protocol, &Packing, &Prg),
        (ntt, short): (Ntt<u64>, Ntt<u64>),
        limb: u64,
        secret: &[i8],
        weights: &[f64],
    ) -> Self {
        let (n, q) = (ntt.n(), *ntt.modulus());
        let mut a = vec![0; n];
        sample::uniform_public(&mut random.stream(2 + limb), &q, &mut a);
        let mut made = Self {
            ntt,
            short,
            a,
            b: Vec::new(),
            filters: Vec::new(),
            published: Vec::new(),
        };
        let secret = made.transformed(secret);
        let noise = small(random, 4, n, sample::centred_binomial);
        let mut b = made.transformed(&noise);
        let mut product = vec![0; n];
        vector::mul(&q, &made.a, &secret, &mut product);
        vector::sub_assign(&q, &mut b, &product);
        made.b = b;
        let scale = 1i64 << protocol.scales().filter;
        let count = packing.polynomials;
        let over = q
            .inverse(q.from_i64(packing.fold as i64))
            .unwrap_or_default();
        for (index, product) in packing.products.iter().enumerate() {
            for polynomial in 0..count {
                let row = (index * count + polynomial) as u64;
                let mut filter = made.filter(protocol, product, polynomial, weights, (random, row));
                let noise = small(random, 6 + 2 * row, n, sample::centred_binomial);
                let mut p: Vec<u64> = noise
                    .iter()
                    .map(|&e| q.from_i64(i64::from(e) * scale))
                    .collect();
                made.ntt.forward(&mut p);
                vector::mul_add_assign(&q, &mut p, &filter, &made.a);
                vector::mul_assign(&q, &mut p, &secret);
                vector::mul_scalar_assign(&q, &mut p, over);
                vector::mul_scalar_assign(&q, &mut filter, over);
                made.filters.push(filter);
                made.published.push(p);
            }
        }
        made
    }

    fn transformed(&self, small: &[i8]) -> Vec<u64> {
        let q = self.ntt.modulus();
        let mut words: Vec<u64> = small.iter().map(|&x| q.from_i64(i64::from(x))).collect();
        self.ntt.forward(&mut words);
        words
    }

    /// A filter polynomial, with masking coefficients where there are exponents that meet no
    /// message.
    fn filter(
        &self,
        protocol: Protocol,
        product: &Product,
        polynomial: usize,
        weights: &[f64],
        (random, row): (&Prg, u64),
    ) -> Vec<u64> {
        let (q, n, bits) = (self.ntt.modulus(), self.ntt.n(), protocol.scales().filter);
        let mut filter = vec![0; n];
        for &(_, exponent, weight) in product.terms.iter().filter(|term| term.0 == polynomial) {
            let weight = (weights[weight] * f64::from(bits).exp2()).round() as i64;
            let turns = exponent.div_euclid(n as isize);
            let at = exponent.rem_euclid(n as isize) as usize;
            filter[at] = q.add(
                filter[at],
                q.from_i64(if turns % 2 == 0 { weight } else { -weight }),
            );
        }
        if protocol == Protocol::Hardened {
            let mut masks = vec![0u64; n / 2];
            sample::uniform_power_of_two(&mut random.stream(7 + 2 * row), bits + 1, &mut masks);
            for (odd, mask) in filter[1..].iter_mut().step_by(2).zip(masks) {
                *odd = q.from_i64(mask as i64 - (1 << bits));
            }
        }
        self.ntt.forward(&mut filter);
        filter
    }
}

fn small(
    random: &Prg,
    row: u64,
    n: usize,
    draw: fn(&mut pronghorn_ring::random::Stream, &mut [i8]),
) -> Vec<i8> {
    let mut values = vec![0; n];
    draw(&mut random.stream(row), &mut values);
    values
}

/// 0 with probability 1/2, -1 and 1 with 1/4 each.
fn halved_ternary(stream: &mut pronghorn_ring::random::Stream, out: &mut [i8]) {
    let mut bytes = vec![0; out.len()];
    stream.fill(&mut bytes);
    for (out, byte) in out.iter_mut().zip(bytes) {
        *out = (byte & 1) as i8 - (byte >> 1 & 1) as i8;
    }
}

/// Uniform in `[-1, 1)`.
fn reals(random: &Prg, row: u64, count: usize) -> impl Iterator<Item = f64> {
    let mut bytes = vec![0; 4 * count];
    random.stream(u64::MAX / 2 + row).fill(&mut bytes);
    let words: Vec<[u8; 4]> = bytes.as_chunks::<4>().0.to_vec();
    let real = |word: [u8; 4]| f64::from(i32::from_le_bytes(word)) / 31f64.exp2();
    words.into_iter().map(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_right() {
        let conv = |stride, kernel| Layer::Conv {
            channels: [5, 3],
            width: 16,
            kernel,
            stride,
        };
        for (protocol, degree, most) in [
            (Protocol::Paper, 1024, 1e-6),
            (Protocol::Hardened, 1024, 1e-2),
        ] {
            for layer in [
                conv(1, 3),
                conv(2, 3),
                conv(1, 5),
                Layer::Dense { sizes: [64, 10] },
            ] {
                let run = Run::new(protocol, &layer, degree).unwrap();
                let error = run.run(true).unwrap().error.unwrap();
                assert!(error < most, "{protocol:?} {layer:?}: {error}");
                assert!(error > 0.0);
                assert!(run.run(false).unwrap().error.is_none());
            }
        }
    }
}
