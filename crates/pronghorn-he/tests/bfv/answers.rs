//! Answers that hide the weights of the server.

use super::*;

/// Room for products at degree 4096.
const BUDGET: Budget = Budget {
    bits: 40,
    log_coefficients: 20,
};

/// A hidden answer: what the server kept, and what the client got of the bytes.
fn hide(
    setup: &Setup<u64>,
    ciphertext: &Ciphertext<u64>,
    noise: Noise,
    row: u64,
) -> (Vec<i32>, Answer<u64>) {
    let parameters = &setup.parameters;
    let format = parameters.answer_format(noise, &BUDGET).unwrap();
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
            // About as many bits as the values and the secret's reach take, of the 200 or 300
            // before.
            let format = answer.format();
            assert_eq!(format.limbs, 1);
            assert!(100 - format.dropped_b - format.dropped_a < 62, "{format:?}");
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
        .answer_format(Noise::of_secret_encryption(), &BUDGET)
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
        parameters.answer_format(large, &BUDGET),
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

#[test]
fn noise_tells_the_weights_without_the_flood_only() {
    let mut setup = Setup::new(Parameters::<u64>::small(18).unwrap());
    let noise = Noise::of_secret_encryption()
        .times(setup.parameters.largest_norm())
        .sum(8);
    // A layer that keeps its input, one with weights of 1 and -1, and the size of their noises.
    let ones = setup
        .parameters
        .multiplier(&vec![1; setup.parameters.n()])
        .unwrap();
    let signs: Vec<_> = setup.values(1).iter().map(|value| value.signum()).collect();
    let signs = setup.parameters.multiplier(&signs).unwrap();
    let input = setup.encrypt(&setup.values(0));
    let results = [&ones, &signs].map(|weights| input.mul_plain(weights).unwrap());
    let measured = |setup: &Setup<u64>, what: &dyn Fn(&[f64]) -> Vec<f64>| {
        let mut row = 0;
        let [x, y] = [0, 1].map(|which| {
            let all = (0..4).flat_map(|_| {
                row += 1;
                let (_, answer) = hide(setup, &results[which], noise, row);
                what(&setup.key.answer_noise(&answer).unwrap())
            });
            all.collect::<Vec<_>>()
        });
        distance(&x, &y)
    };
    // Of the noise before anything is hidden there is no doubt.
    let [x, y] = [0, 1].map(|which| setup.key.noise(&results[which]).unwrap());
    assert!(distance(&x, &y) > 20.0);
    // 1.95 is beyond 1 in 1,000.
    let plain: &dyn Fn(&[f64]) -> Vec<f64> = &|noise| noise.to_vec();
    assert!(measured(&setup, plain) < 1.95);
    // A client that knows the errors of its own encryption correlates the noise with them.
    let errors = setup.key.noise(&input).unwrap();
    let correlate =
        |noise: &[f64]| -> Vec<f64> { noise.iter().zip(&errors).map(|(x, e)| x * e).collect() };
    assert!(measured(&setup, &correlate) < 1.95);
    // Almost no flood: what is dropped is sized by the room, so the room must be small for noise to
    // show.
    let unflooded: Vec<Vec<f64>> = results
        .iter()
        .enumerate()
        .map(|(row, result)| {
            let format = pronghorn_he::bfv::AnswerFormat {
                log_flood: 4,
                limbs: 2,
                dropped_b: 0,
                dropped_a: 0,
            };
            let public = PublicKey::generate_from_seed(&setup.key, &seed(5));
            let answer = Hider::new(&seed(4))
                .hide(row as u64, result, &public, &format)
                .unwrap();
            setup.key.answer_noise(&answer).unwrap()
        })
        .collect();
    assert!(distance(&unflooded[0], &unflooded[1]) > 20.0);
}

/// The flood keeps its budget, grows with what it hides, and asks for room.
#[test]
fn floods_keep_their_budget() {
    let parameters = Parameters::<u64>::small(17).unwrap();
    let noise = Noise::of_secret_encryption().times(parameters.largest_norm());
    let reach = |bits, log_coefficients| {
        let budget = Budget {
            bits,
            log_coefficients,
        };
        parameters.answer_format(noise, &budget)
    };
    let log_flood = |bits, log_coefficients| reach(bits, log_coefficients).unwrap().log_flood;
    // 40 bits, 10 of the coefficients, 22 of the largest norm and less than 3 of a fresh error.
    assert_eq!(log_flood(40, 20), 40 + 10 + 22 + 3);
    assert_eq!(log_flood(40, 22), log_flood(40, 20) + 1);
    assert_eq!(log_flood(43, 20), log_flood(40, 20) + 3);
    let found = reach(60, 20).unwrap_err().to_string();
    assert!(found.contains("flood of 2^95"), "{found}");
}
