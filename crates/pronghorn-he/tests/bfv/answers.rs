//! Answers that hide the weights of the server.

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
