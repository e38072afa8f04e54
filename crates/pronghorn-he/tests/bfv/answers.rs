//! Answers that hide the weights of the server.

use pronghorn_he::{
    bfv::{AnswerFormat, SeededCiphertext},
    rns::wire::{pack, packed_len, unpack},
};
use pronghorn_ring::bits;

use super::*;

/// A hidden answer: what the server kept, and what the client got of the bytes.
fn hide(
    setup: &Setup<u64>,
    ciphertext: &Ciphertext<u64>,
    noise: Noise,
    row: u64,
) -> (Vec<i32>, Answer<u64>) {
    let parameters = &setup.parameters;
    let format = parameters.answer_format(noise, 1).unwrap();
    let (hider, public) = (
        Hider::new(&seed(4)),
        PublicKey::generate_from_seed(&setup.key, &seed(5)),
    );
    let answer = hider.hide(row, ciphertext, &public, &format).unwrap();
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    assert_eq!(bytes.len(), Answer::encoded_len(parameters, &format));
    let answer = Answer::decode(parameters, &format, &bytes).unwrap();
    (hider.shares(parameters, row), answer)
}

#[test]
fn shares_of_hidden_answers_add_up() {
    for parameters in [
        Parameters::small(20).unwrap(),
        Parameters::large(17).unwrap(),
    ] {
        let mut setup = Setup::new(parameters);
        let fresh = Noise::of_secret_encryption();
        let noise =
            setup.parameters.rotation_noise() + fresh.times(setup.parameters.largest_norm());
        let (x, w) = (setup.values(0), setup.values(1));
        let product = setup.encrypt(&x).mul_plain(&setup.multiplier(1)).unwrap();
        let product = product.rotate(1, &setup.keys).unwrap();
        let expected = left(&setup.with(&x, &w, |x, w| x * w), 1);
        for row in [0, 7] {
            let (server, answer) = hide(&setup, &product, noise, row);
            let client = setup.key.decrypt_answer(&answer).unwrap();
            assert_eq!(setup.with(&server, &client, |x, y| x + y), expected);
            // As many primes as shares need that add up, of two or three.
            assert_eq!(answer.format().limbs, 2);
            // Shares look uniform: their mean to five standard errors.
            for shares in [&server, &client] {
                let mean =
                    shares.iter().map(|&share| f64::from(share)).sum::<f64>() / shares.len() as f64;
                let error = setup.parameters.t() as f64 / (12.0 * shares.len() as f64).sqrt();
                assert!(mean.abs() < 5.0 * error, "{mean}");
            }
        }
    }
}

#[test]
fn every_limb_may_be_needed() {
    // Narrow primes: answers of two limbs, without dropped bits.
    let parameters = toy::<u32>(64, &[25, 25, 25, 25, 25], &[], 10, 20);
    let mut setup = Setup::new(parameters.clone());
    let format = parameters
        .answer_format(Noise::of_secret_encryption(), 1)
        .unwrap();
    assert!(format.limbs > 1 && format.limbs < 5 && format.dropped_b + format.dropped_a == 0);
    let (x, hider) = (setup.values(3), Hider::new(&seed(4)));
    let public = PublicKey::generate_from_seed(&setup.key, &seed(5));
    let answer = hider.hide(0, &setup.encrypt(&x), &public, &format).unwrap();
    let client = setup.key.decrypt_answer(&answer).unwrap();
    assert_eq!(
        setup.with(&hider.shares(&parameters, 0), &client, |x, y| x + y),
        x
    );
    assert!(matches!(
        hider.hide(1 << 32, &setup.encrypt(&x), &public, &format),
        Err(BfvError::Row { .. })
    ));
    let none = pronghorn_he::bfv::AnswerFormat { limbs: 6, ..format };
    assert!(hider.hide(0, &setup.encrypt(&x), &public, &none).is_err());
    let large = Noise::of_secret_encryption().times(2f64.powi(60));
    assert!(matches!(
        parameters.answer_format(large, 1),
        Err(BfvError::NoRoom { .. })
    ));
}

/// The statistic of Kolmogorov and Smirnov: the largest distance of two empirical distributions, in
/// units of what chance gives.
fn distance(x: &[f64], y: &[f64]) -> f64 {
    let (mut x, mut y) = (x.to_vec(), y.to_vec());
    x.sort_by(f64::total_cmp);
    y.sort_by(f64::total_cmp);
    let share =
        |sorted: &[f64], at: f64| sorted.partition_point(|&z| z <= at) as f64 / sorted.len() as f64;
    let largest = x
        .iter()
        .chain(&y)
        .map(|&at| (share(&x, at) - share(&y, at)).abs())
        .fold(0.0, f64::max);
    largest * (x.len() as f64 * y.len() as f64 / (x.len() + y.len()) as f64).sqrt()
}

/// Layers that multiply by 1 and by 3, on a ciphertext of zero whose noise is an eighth of what a
/// message is scaled by: that of another plaintext modulus, under the same key. And that noise.
fn noisy(setup: &Setup<u64>) -> ([Ciphertext<u64>; 2], f64) {
    let parameters = &setup.parameters;
    let larger = Parameters::<u64>::small(parameters.t().ilog2() + 4).unwrap();
    let ones = vec![1; parameters.n()];
    let mut bytes = Vec::new();
    Setup::new(larger.clone()).encrypt(&ones).encode(&mut bytes);
    let named = bytes.windows(32).position(|window| window == larger.hash());
    let place = named.expect("the parameters are named");
    bytes[place..place + 32].copy_from_slice(parameters.hash());
    let zero = Ciphertext::decode(parameters, &bytes).unwrap();
    assert_eq!(setup.decrypt(&zero), vec![0; parameters.n()]);
    let layers = [1, 3].map(|weight| {
        let weights = vec![weight; parameters.n()];
        zero.mul_plain(&parameters.multiplier(&weights).unwrap())
            .unwrap()
    });
    (layers, parameters.log_modulus().exp2() / larger.t() as f64)
}

/// A client that sends more noise than it should reads weights where the mask is modulo `t` alone,
/// and nothing where it is modulo `Q`.
#[test]
fn noise_of_a_clients_choice_tells_nothing() {
    let setup = Setup::new(Parameters::<u64>::small(17).unwrap());
    let (results, unit) = noisy(&setup);
    let mask = setup.parameters.encode(&setup.values(0)).unwrap();
    for (result, weight) in results.iter().zip([1.0, 3.0]) {
        let mut masked = result.clone();
        masked.add_plain_assign(&mask).unwrap();
        let read = setup.key.noise(&masked).unwrap()[0].abs() / unit;
        assert!((read - weight).abs() < 0.1, "{read} is not {weight}");
    }
    let noise = Noise::of_secret_encryption();
    let measured = |index: usize| {
        let answers = (0..4u64).map(|number| {
            let row = number + 4 * index as u64;
            let (_, answer) = hide(&setup, &results[index], noise, row);
            setup.key.answer_noise(&answer).unwrap()
        });
        answers.collect::<Vec<_>>().concat()
    };
    // 1.95 is beyond 1 in 1,000.
    let (ones, threes) = (measured(0), measured(1));
    assert!(distance(&ones, &threes) < 1.95);
    // The noise of an answer is uniform, up to half of what a message is scaled by.
    let reach = ones.iter().fold(0f64, |most, noise| most.max(noise.abs()));
    let uniform: Vec<f64> = (0..ones.len())
        .map(|place| reach * (2.0 * place as f64 / ones.len() as f64 - 1.0))
        .collect();
    assert!(distance(&ones, &uniform) < 1.95);
    // Without the mask there is no doubt.
    let [ones, threes] = results.map(|result| setup.key.noise(&result).unwrap()[0]);
    assert!((threes / ones - 3.0).abs() < 0.1);
}

/// `(b + Q / t, a)` in place of `(b, a)`: what it encrypts is the randomness of each encryption.
fn false_key(honest: &PublicKey<u64>) -> Vec<u8> {
    let (parameters, ring) = (honest.parameters(), honest.parameters().ring());
    let mut bytes = Vec::new();
    honest.encode(&mut bytes);
    let start = bytes.len() - packed_len(ring, ring.limbs());
    let mut b = vec![0; ring.limbs() * ring.n()];
    unpack(ring, ring.limbs(), &bytes[start..], &mut b).unwrap();
    let primes: Vec<u64> = ring.basis().primes().map(|q| q.word()).collect();
    let t = parameters.t();
    let times = |x: u64, y: u64, q: u64| (u128::from(x) * u128::from(y) % u128::from(q)) as u64;
    let rest = primes.iter().fold(1, |rest, &q| times(rest, q % t, t));
    for (&q, limb) in primes.iter().zip(b.chunks_exact_mut(ring.n())) {
        // Q / t, rounded down, is - (Q mod t) / t modulo q.
        let inverse = (0..64).rev().fold(1, |power, bit| {
            let square = times(power, power, q);
            if (q - 2) >> bit & 1 == 1 {
                times(square, t % q, q)
            } else {
                square
            }
        });
        let scaled = times(q - rest % q, inverse, q);
        limb.iter_mut()
            .for_each(|word| *word = (*word + scaled) % q);
    }
    bytes.truncate(start);
    pack(ring, ring.limbs(), &b, &mut bytes);
    bytes
}

/// The second polynomial of an answer whose bits are all there, `[limb][N]` coefficients.
fn second(answer: &Answer<u64>) -> Vec<Vec<u64>> {
    let parameters = answer.parameters();
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    let length = Answer::encoded_len(parameters, answer.format());
    let packed: usize = 2 * packed_len(parameters.ring(), parameters.limbs());
    let mut rest = &bytes[length - packed..];
    let limbs = parameters.ring().basis().primes().map(|q| {
        let (limb, after) = rest.split_at(2 * bits::packed_len(parameters.n(), q.bits()));
        rest = after;
        let mut words = vec![0; parameters.n()];
        bits::unpack(&limb[limb.len() / 2..], q.bits(), &mut words).unwrap();
        words
    });
    limbs.collect()
}

/// What the proof of the [module](pronghorn_he::bfv) does not cover: a client of a false public key
/// that learns the sum of both shares too, as where a layer's values are opened. The sum tells the
/// randomness of the encryption of zero, and without it `a'` tells the weights.
#[test]
fn a_false_public_key_and_an_opened_result_tell_weights() {
    const WEIGHT: i32 = 37;
    let parameters = &Parameters::<u64>::small(17).unwrap();
    let mut setup = Setup::new(parameters.clone());
    let honest = PublicKey::generate_from_seed(&setup.key, &seed(5));
    let bytes = false_key(&honest);
    let key = PublicKey::decode(parameters, &bytes).unwrap();
    // The client's input is zero, and the layer multiplies it by one weight.
    let input = setup.encrypt(&vec![0; parameters.n()]);
    let layer = |weight: i32| {
        let weights = vec![weight; parameters.n()];
        let multiplier = parameters.multiplier(&weights).unwrap();
        input.mul_plain(&multiplier).unwrap()
    };
    let format = AnswerFormat {
        limbs: parameters.limbs(),
        dropped_b: 0,
        dropped_a: 0,
    };
    let hider = Hider::new(&seed(4));
    let answer = hider.hide(0, &layer(WEIGHT), &key, &format).unwrap();
    let server = hider.shares(parameters, 0);
    let client = setup.key.decrypt_answer(&answer).unwrap();
    let opened = setup.with(&server, &client, |x, y| x + y);
    // The opened values are the randomness: small coefficients.
    let randomness = parameters.encode(&opened).unwrap();
    let t = parameters.t();
    assert!(
        randomness
            .coefficients()
            .iter()
            .all(|&x| x <= 1 || x == t - 1)
    );
    // The key as a ciphertext, times the randomness, is what was added.
    let mut as_ciphertext = bytes[..34].to_vec();
    as_ciphertext[1] = 17;
    as_ciphertext[2..34].copy_from_slice(parameters.hash());
    as_ciphertext.extend(&bytes[35..67]);
    as_ciphertext.extend(0u64.to_le_bytes());
    as_ciphertext.extend(&bytes[67..]);
    let as_ciphertext = SeededCiphertext::decode(parameters, &as_ciphertext).unwrap();
    let added = as_ciphertext
        .expand()
        .mul_plain(&randomness.to_multiplier())
        .unwrap();
    let found = second(&answer);
    let fits = |weight: i32| {
        let guess = layer(weight);
        let (limb, n, basis) = (0, parameters.n(), parameters.ring().basis());
        let (q, from) = (basis.prime(limb).word(), parameters.limbs() * n);
        let parts = [&guess, &added].map(|part| part.words()[from..from + n].to_vec());
        let mut sum: Vec<u64> = std::iter::zip(&parts[0], &parts[1])
            .map(|(x, y)| (x + y) % q)
            .collect();
        basis.ntt(limb).inverse(&mut sum);
        std::iter::zip(&sum, &found[limb]).all(|(x, y)| {
            let error = (q + x - y) % q;
            error.min(q - error) < 64
        })
    };
    let fitting: Vec<i32> = (-128..128).filter(|&weight| fits(weight)).collect();
    assert_eq!(fitting, [WEIGHT]);
}

/// More answers and more noise ask for a larger modulus.
#[test]
fn shares_add_up_with_a_stated_probability() {
    let parameters = Parameters::<u64>::small(17).unwrap();
    let workload = Workload {
        t_bits: 17,
        products: 1,
        input_rotations: false,
        output_rotations: 0,
        doublings: 0,
    };
    let spare = |answers| workload.spare(&parameters, answers);
    // Q / 2t of 82 bits, less 40, 12 of the coefficients, and 24 of the noise.
    assert!((5.0..8.0).contains(&spare(1)), "{}", spare(1));
    assert!((spare(1) - spare(4) - 2.0).abs() < 1e-9);
    assert!(workload.fits(&parameters, 1) && !workload.fits(&parameters, 256));
}
