//! Every variant against a plain convolution modulo `t`, counts against what was done, noise, and
//! what answers hide.

use std::{collections::BTreeSet, sync::Arc};

use pronghorn_graph::geometry::{ConvGeometry, Window};
use pronghorn_he::bfv::{
    Ciphertext, EvaluationKeys, Hider, Parameters, PublicKey, SecretKey, Switching,
};
use pronghorn_ring::{
    modulus::largest_ntt_prime,
    random::{Prg, Seed},
    rns,
};
use proptest::prelude::*;

use super::layout::Layout;
use super::{
    Layer, Objective, Packing, Rows, SlotError, Taps, Variant, choose, convolution, cost, matrix,
};

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

/// Small parameters that protect nothing.
fn toy(n: usize, special: bool) -> Parameters<u64> {
    let t = largest_ntt_prime(17, n).unwrap();
    let primes = rns::primes(n, &[50, 50, 50]).unwrap();
    let (chain, switching) = match special {
        true => (&primes[..2], Switching::SpecialPrimes(&primes[2..])),
        false => (&primes[..], Switching::Digits(10)),
    };
    Parameters::insecure_paper_parameters(n, chain, switching, t).unwrap()
}

fn draw(count: usize, most: i32, stream: u64) -> Vec<i32> {
    let mut bytes = vec![0; 4 * count];
    Prg::new(&seed(9), "pronghorn test values")
        .stream(stream)
        .fill(&mut bytes);
    let value = |bytes: &[u8; 4]| i32::from_le_bytes(*bytes) % (most + 1);
    bytes.as_chunks::<4>().0.iter().map(value).collect()
}

fn centre(t: i64, value: i64) -> i32 {
    let residue = value.rem_euclid(t);
    (if residue > t / 2 {
        residue - t
    } else {
        residue
    }) as i32
}

/// The layer on integers, modulo `t`.
fn plain(geometry: &ConvGeometry, weights: &[i32], values: &[i32], t: u64) -> Vec<i32> {
    let [out_height, out_width] = geometry.output().unwrap();
    let [height, width] = geometry.input;
    let [kernel_height, kernel_width] = geometry.window.kernel;
    let each = geometry.in_channels / geometry.groups;
    let mut out = Vec::new();
    for channel in 0..geometry.out_channels {
        let group = channel / (geometry.out_channels / geometry.groups);
        for y in 0..out_height {
            for x in 0..out_width {
                let mut sum = 0;
                for input in 0..each {
                    for down in geometry.window.taps(0, y, height) {
                        for right in geometry.window.taps(1, x, width) {
                            let at = [
                                geometry.window.index(0, y, down),
                                geometry.window.index(1, x, right),
                            ];
                            let place = (channel * each + input) * kernel_height + down;
                            let weight = weights[place * kernel_width + right];
                            let from = (group * each + input) * height + at[0];
                            sum += i64::from(weight) * i64::from(values[from * width + at[1]]);
                        }
                    }
                }
                out.push(centre(t as i64, sum));
            }
        }
    }
    out
}

struct Client {
    key: SecretKey<u64>,
    public: PublicKey<u64>,
}

impl Client {
    fn new(parameters: &Parameters<u64>) -> Self {
        let key = SecretKey::generate(parameters, &seed(1));
        let public = PublicKey::generate_from_seed(&key, &seed(2));
        Self { key, public }
    }

    fn keys(&self, packing: &Packing) -> EvaluationKeys<u64> {
        let (steps, swaps) = (packing.steps(), packing.swaps());
        EvaluationKeys::generate_from_seed(&self.key, &steps, swaps, &seed(3)).unwrap()
    }

    fn encrypt(&self, packing: &Packing, values: &[i32]) -> Vec<Ciphertext<u64>> {
        let mut encryptor = self.key.encryptor_from_seed(&seed(4));
        let slots = packing.pack(values).unwrap();
        slots
            .iter()
            .map(|slots| {
                let plain = packing.parameters().encode(slots).unwrap();
                encryptor.encrypt(&plain).unwrap().expand()
            })
            .collect()
    }

    fn decrypt(&self, outputs: &[Ciphertext<u64>]) -> Vec<Vec<i32>> {
        let values = outputs.iter().map(|output| {
            let plain = self.key.decrypt(output).unwrap();
            output.parameters().decode(&plain).unwrap()
        });
        values.collect()
    }
}

/// Evaluates a layer of made-up weights and values, without keys where it says that it needs none.
fn evaluate(
    geometry: &ConvGeometry,
    variant: &Variant,
    parameters: &Parameters<u64>,
) -> Result<Layer, SlotError> {
    let packing = Arc::new(Packing::new(geometry, variant, parameters)?);
    let most = parameters.t() as i32 / 2;
    let weights = draw(geometry.weights_len(), most, 1);
    let values = draw(packing.input_len(), most, 2);
    let layer = Layer::prepare(packing.clone(), &weights)?;
    let client = Client::new(parameters);
    let rotates = packing.swaps() || !packing.steps().is_empty();
    let keys = rotates.then(|| client.keys(&packing));
    let inputs = client.encrypt(&packing, &values);
    let (outputs, counts) = layer.evaluate_counted(&inputs, keys.as_ref())?;
    assert_eq!(counts, *packing.counts(), "{geometry:?} {variant:?}");
    if rotates {
        let without = layer.evaluate(&inputs, None);
        assert!(matches!(without, Err(SlotError::NoKeys)));
    }
    let bound = packing.noise().bound().log2();
    for output in &outputs {
        let found = client.key.log_noise(output).unwrap();
        assert!(found <= bound, "2^{found} of 2^{bound}: {variant:?}");
    }
    let found = packing.unpack(&client.decrypt(&outputs))?;
    let expected = plain(geometry, &weights, &values, parameters.t());
    assert_eq!(*found, expected, "{geometry:?} {variant:?}");
    Ok(layer)
}

fn conv(
    [in_channels, out_channels, groups]: [usize; 3],
    input: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    padding: [usize; 4],
) -> ConvGeometry {
    let window = Window {
        kernel,
        stride,
        dilation,
        padding,
    };
    ConvGeometry {
        in_channels,
        out_channels,
        input,
        window,
        groups,
    }
}

fn geometries() -> impl Strategy<Value = ConvGeometry> {
    let pair = |low: usize, high: usize| [low..=high, low..=high];
    (
        (1..=3usize, 1..=5usize, 1..=5usize),
        pair(1, 9),
        pair(1, 3),
        pair(1, 3),
        pair(1, 2),
        [0..=2usize, 0..=2usize, 0..=2usize, 0..=2usize],
    )
        .prop_map(|(channels, input, kernel, stride, dilation, padding)| {
            let (groups, each_in, each_out) = channels;
            let channels = [groups * each_in, groups * each_out, groups];
            conv(channels, input, kernel, stride, dilation, padding)
        })
        .prop_filter("valid", |geometry| geometry.validate().is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_variant_of_convolutions(
        geometry in geometries(),
        log_n in 5..9u32,
        special: bool,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 6),
    ) {
        let parameters = toy(1 << log_n, special);
        let variants = cost::choice::variants(&geometry, parameters.n());
        for (place, pick) in picks.iter().enumerate() {
            let mut variant = pick.get(&variants).clone();
            // Bands that a channel does not need.
            if place % 3 == 2 {
                variant.block = (variant.block / 2).max(1);
            }
            variant.fold = place % 2 == 1;
            match evaluate(&geometry, &variant, &parameters) {
                Ok(_) | Err(SlotError::Variant { .. }) => {}
                Err(error) => panic!("{error}: {geometry:?} {variant:?}"),
            }
        }
    }

    #[test]
    fn every_matrix_method(inputs in 1..150usize, outputs in 1..150usize, log_n in 5..8u32, special: bool) {
        let parameters = toy(1 << log_n, special);
        let (geometry, n) = (ConvGeometry::dense(inputs, outputs), parameters.n());
        let hybrid = matrix::hybrid(inputs, outputs, n);
        for variant in [
            matrix::naive(inputs, n),
            matrix::input_packing(inputs, outputs, n),
            matrix::diagonal(n),
            matrix::baby_step_giant_step(inputs, outputs, n, 1),
            matrix::baby_step_giant_step(inputs, outputs, n, hybrid.baby.isqrt().next_power_of_two()),
            hybrid,
        ] {
            evaluate(&geometry, &variant, &parameters).unwrap();
        }
    }

    #[test]
    fn both_convolutions_of_the_paper(geometry in geometries(), special: bool) {
        let parameters = toy(256, special);
        for variant in [
            convolution::input_rotations(&geometry, 256).unwrap(),
            convolution::output_rotations(&geometry, 256).unwrap(),
        ] {
            evaluate(&geometry, &variant, &parameters).unwrap();
        }
    }
}

#[test]
fn known_counts() {
    // Table VIII of Gazelle, in rows of 1024 slots: rotations and products.
    let counts = |inputs, outputs, variant: &Variant| {
        let parameters = toy(2048, false);
        let geometry = ConvGeometry::dense(inputs, outputs);
        let packing = Packing::new(&geometry, variant, &parameters).unwrap();
        let counts = packing.counts();
        (
            counts.input_rotations,
            counts.output_rotations,
            counts.products,
        )
    };
    assert_eq!(counts(2048, 1, &matrix::naive(2048, 2048)), (0, 11, 1));
    assert_eq!(
        counts(1024, 128, &matrix::naive(1024, 2048)),
        (0, 1280, 128)
    );
    assert_eq!(counts(1024, 16, &matrix::naive(1024, 2048)), (0, 160, 16));
    assert_eq!(counts(128, 16, &matrix::naive(128, 2048)), (0, 112, 16));
    assert_eq!(
        counts(1024, 128, &matrix::hybrid(1024, 128, 2048)),
        (63, 4, 64)
    );
    assert_eq!(counts(1024, 16, &matrix::hybrid(1024, 16, 2048)), (7, 7, 8));
    assert_eq!(counts(128, 16, &matrix::hybrid(128, 16, 2048)), (0, 7, 1));
}

/// From the client's values to the sum of both shares, by messages.
fn hidden(layer: &Layer, client: &Client, values: &[i32]) -> Vec<i32> {
    let packing = layer.packing();
    let keys = client.keys(packing);
    let inputs = client.encrypt(packing, values);
    let outputs = layer.evaluate(&inputs, Some(&keys)).unwrap();
    let (hider, format) = (Hider::new(&seed(5)), packing.format().unwrap());
    let rows = 0..outputs.len() as u64;
    let server: Vec<_> = rows
        .map(|row| hider.shares(packing.parameters(), row))
        .collect();
    let answers = outputs.iter().enumerate().map(|(row, output)| {
        let answer = hider.hide(row as u64, output, &client.public, &format);
        client.key.decrypt_answer(&answer.unwrap()).unwrap()
    });
    let answers: Vec<_> = answers.collect();
    let t = packing.parameters().t() as i64;
    let shares = [
        packing.unpack(&answers).unwrap(),
        packing.unpack(&server).unwrap(),
    ];
    let pairs = shares[0].iter().zip(shares[1].iter());
    pairs
        .map(|(&x, &y)| centre(t, i64::from(x) + i64::from(y)))
        .collect()
}

#[test]
fn chosen_variants_are_what_they_cost() {
    let three = |channels, size| {
        let (kernel, padding) = ([3, 3], [1; 4]);
        conv(channels, [size; 2], kernel, [1, 1], [1, 1], padding)
    };
    let layers = [
        ConvGeometry::dense(784, 100),
        ConvGeometry::dense(128, 10),
        ConvGeometry::dense(5000, 3),
        ConvGeometry::per_channel(7, [9, 9]),
        three([1, 5, 1], 28),
        three([4, 6, 1], 16),
        // Depthwise, and an image of more than a row of slots.
        three([8, 8, 8], 14),
        three([1, 2, 1], 70),
        conv([3, 4, 1], [32, 32], [7, 7], [3, 3], [1, 1], [0; 4]),
    ];
    for geometry in &layers {
        let choice = choose(geometry, (1 << 18) - 1, &Objective::default()).unwrap();
        assert!(choice.parameters.security().is_some());
        assert!(choice.parameters.t() / 2 >= (1 << 18) - 1);
        let packing = Packing::new(geometry, &choice.variant, &choice.parameters).unwrap();
        assert_eq!(*packing.counts(), choice.cost.counts, "{geometry:?}");
        let layer = evaluate(geometry, &choice.variant, &choice.parameters).unwrap();
        let client = Client::new(&choice.parameters);
        let (mut keys, mut sent) = (Vec::new(), Vec::new());
        client.keys(&packing).encode(&mut keys);
        assert!(keys.len().abs_diff(choice.cost.keys) < 100 + choice.cost.keys / 100);
        let plain = choice.parameters.encode(&[]).unwrap();
        let mut encryptor = client.key.encryptor_from_seed(&seed(4));
        encryptor.encrypt(&plain).unwrap().encode(&mut sent);
        assert_eq!(choice.cost.up, sent.len() * packing.inputs());
        let values = draw(packing.input_len(), 100, 7);
        let weights = draw(geometry.weights_len(), choice.parameters.t() as i32 / 2, 1);
        let expected = self::plain(geometry, &weights, &values, choice.parameters.t());
        assert_eq!(hidden(&layer, &client, &values), expected);
    }
    let nothing = choose(&layers[0], 1 << 40, &Objective::default());
    assert!(matches!(nothing, Err(SlotError::Range { .. })));
}

#[test]
fn rotations_before_products_have_room() {
    let geometry = conv([2, 3, 1], [14, 14], [3, 3], [1, 1], [1, 1], [1; 4]);
    for degree in [4096, 8192] {
        for variant in [
            convolution::input_rotations(&geometry, degree).unwrap(),
            convolution::output_rotations(&geometry, degree).unwrap(),
        ] {
            let parameters = cost::parameters(&geometry, &variant, degree, 30_000);
            evaluate(&geometry, &variant, &parameters.unwrap()).unwrap();
        }
    }
    let variant = convolution::input_rotations(&geometry, 4096).unwrap();
    let refused = cost::parameters(&geometry, &variant, 4096, 1 << 26);
    assert!(matches!(refused, Err(SlotError::NoVariant)));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let geometry = ConvGeometry::dense(10, 3);
    let parameters = toy(64, false);
    let good = matrix::hybrid(10, 3, 64);
    let new = |variant: &Variant| Packing::new(&geometry, variant, &parameters);
    let bad = [
        Variant {
            block: 3,
            ..good.clone()
        },
        Variant {
            block: 64,
            ..good.clone()
        },
        Variant {
            inputs: 5,
            ..good.clone()
        },
        Variant {
            outputs: 64,
            ..good.clone()
        },
        Variant {
            baby: 16,
            ..good.clone()
        },
        Variant {
            rows: Rows::Swap,
            baby: 0,
            ..good.clone()
        },
    ];
    for variant in &bad {
        assert!(
            matches!(new(variant), Err(SlotError::Variant { .. })),
            "{variant:?}"
        );
    }
    let taps = Variant {
        taps: [Taps::Copies; 2],
        ..good.clone()
    };
    assert!(matches!(new(&taps), Err(SlotError::Taps { axis: 0, .. })));
    let packing = Arc::new(new(&good).unwrap());
    assert!(matches!(
        packing.pack(&[0; 9]),
        Err(SlotError::Count { found: 9, .. })
    ));
    assert!(matches!(
        packing.unpack(&[[0; 64]; 2]),
        Err(SlotError::Count { .. })
    ));
    assert!(matches!(
        packing.unpack(&[[0; 63]; 1]),
        Err(SlotError::Count { .. })
    ));
    assert!(matches!(
        Layer::prepare(packing, &[0; 31]),
        Err(SlotError::Count { .. })
    ));
}

/// All rotations of one input that meet a product in one output differ. Then the power of their
/// noises is the sum of powers, whatever the weights are.
#[test]
fn products_of_an_input_have_rotations_of_their_own() {
    let geometries = [
        ConvGeometry::dense(40, 12),
        ConvGeometry::dense(12, 40),
        ConvGeometry::dense(300, 5),
        conv([3, 4, 1], [6, 6], [3, 3], [1, 1], [1, 1], [1; 4]),
        conv([2, 8, 1], [9, 9], [5, 5], [2, 2], [1, 1], [1; 4]),
        conv([4, 4, 4], [6, 6], [3, 3], [1, 1], [1, 1], [1; 4]),
    ];
    let mut products = 0;
    for geometry in &geometries {
        for variant in cost::choice::variants(geometry, 128) {
            let Ok(layout) = Layout::new(geometry, &variant, 128) else {
                continue;
            };
            for chain in layout.chains() {
                let mut rotations = BTreeSet::new();
                for (swapped, sums) in chain.sums.iter().enumerate() {
                    for sum in sums {
                        for product in &sum.products {
                            let total = (product.step + sum.giant).rem_euclid(layout.row as i64);
                            let is_new = rotations.insert((product.input, swapped, total));
                            assert!(is_new, "{geometry:?} {variant:?}");
                            products += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(products > 10_000, "{products}");
}

/// The largest difference of the distribution functions of two samples: about `1 / sqrt(n)` where
/// they are of one distribution.
fn kolmogorov_smirnov(mut x: Vec<f64>, mut y: Vec<f64>) -> f64 {
    x.sort_unstable_by(f64::total_cmp);
    y.sort_unstable_by(f64::total_cmp);
    let below = |sorted: &[f64], value: f64| {
        sorted.partition_point(|&other| other <= value) as f64 / sorted.len() as f64
    };
    let all = x.iter().chain(&y);
    all.map(|&value| (below(&x, value) - below(&y, value)).abs())
        .fold(0.0, f64::max)
}

#[test]
fn noise_tells_nothing_of_weights() {
    let geometry = ConvGeometry::dense(64, 512);
    let parameters = Parameters::<u64>::for_workload(
        4096,
        &pronghorn_he::bfv::Workload {
            t_bits: 17,
            products: 8,
            input_rotations: false,
            output_rotations: 8,
            doublings: 0,
        },
        1,
    )
    .unwrap();
    let variant = Variant {
        outputs: 256,
        ..matrix::baby_step_giant_step(64, 512, 4096, 1)
    };
    let packing = Arc::new(Packing::new(&geometry, &variant, &parameters).unwrap());
    let format = packing.format().unwrap();
    let client = Client::new(&parameters);
    let keys = client.keys(&packing);
    let inputs = client.encrypt(&packing, &draw(64, 1000, 3));
    // Nothing but one weight, and all as large as they can be.
    let mut small = vec![0; geometry.weights_len()];
    small[0] = 1;
    let large = draw(geometry.weights_len(), parameters.t() as i32 / 2, 1);
    let seen = |weights: &[i32], number: u8| {
        let layer = Layer::prepare(packing.clone(), weights).unwrap();
        let outputs = layer.evaluate(&inputs, Some(&keys)).unwrap();
        let hider = Hider::new(&seed(number));
        let (mut bare, mut hidden) = (Vec::new(), Vec::new());
        for row in 0..8 {
            let answer = hider
                .hide(row, &outputs[0], &client.public, &format)
                .unwrap();
            hidden.extend(client.key.answer_noise(&answer).unwrap());
        }
        bare.extend(client.key.noise(&outputs[0]).unwrap());
        (bare, hidden)
    };
    let ((bare, hidden), (other_bare, other_hidden)) = (seen(&small, 10), seen(&large, 11));
    // Samples of one distribution are further apart once in a thousand times.
    let limit = |count: usize| 1.95 * (2.0 / count as f64).sqrt();
    let (count, found) = (hidden.len(), kolmogorov_smirnov(hidden, other_hidden));
    assert!(found < limit(count), "{found} of {}", limit(count));
    let (count, found) = (bare.len(), kolmogorov_smirnov(bare, other_bare));
    assert!(found > 4.0 * limit(count), "{found} of {}", limit(count));
}
