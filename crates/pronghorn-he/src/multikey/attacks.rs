//! The known attacks on distributed decryption: each works on bare partial decryptions, and fails
//! on what [`Decryptor`] gives.

use pronghorn_ring::{
    random::{Prg, Seed},
    rns, vector,
};

use super::{
    Choice, Ciphertext, Common, Contribution, Decryptor, Extended, KeyRing, Limits, Party,
    PublicKeys, Relinearisation, Rule, SecretKey, decryption::share, keys::Parts,
};
use crate::{
    ckks::{Parameters, Plaintext},
    rns::{PublicKey, keys::add_gadget, slices},
};

const N: usize = 1024;
const LIMBS: usize = 3;
const SCALE: f64 = (1u64 << 30) as f64;

/// Two parties that each encrypted a value, whose sum they open. The evaluator sees all but the
/// secrets.
struct Scene {
    common: Common<u64>,
    seeds: [u8; 2],
    keys: KeyRing<u64>,
    inputs: [Ciphertext<u64>; 2],
    values: [f64; 2],
    sum: Ciphertext<u64>,
}

impl Scene {
    fn new() -> Self {
        let primes = rns::primes(N, &[50, 50, 50, 50]).expect("primes");
        let ring = Parameters::insecure_paper_parameters(N, &primes[..LIMBS], &primes[LIMBS..]);
        let ring = ring.expect("a chain");
        let common = Common::new(&ring, [1; 32]).expect("a special prime");
        let (seeds, values) = ([11, 12], [0.75, -0.5]);
        let mut keys = KeyRing::new(&common);
        let mut random = Prg::new(&Seed::from_bytes([5; 32]), "pronghorn test attacks").stream(0);
        let inputs = [0, 1].map(|i| {
            let secret = secret(&common, seeds[i]);
            let public = secret.public_keys(Choice::default()).expect("randomness");
            let message = ring.message(&vec![values[i]; N / 2], &[], SCALE, LIMBS);
            let input = public.encrypt(&message.expect("it fits"), &mut random);
            keys.insert(public).expect("one reference");
            input.expect("one parameter set")
        });
        let sum = inputs[0].add(&inputs[1]).expect("one scale");
        Self {
            common,
            seeds,
            keys,
            inputs,
            values,
            sum,
        }
    }

    fn secret(&self, i: usize) -> SecretKey<u64> {
        secret(&self.common, self.seeds[i])
    }

    fn party(&self, i: usize) -> Party {
        self.secret(i).party()
    }

    fn decryptor(&self, i: usize) -> Decryptor<u64> {
        let limits = Limits {
            limbs: LIMBS,
            parties: 2,
            log_message: 32.0,
            log_noise: 12.0,
            log_power: None,
            results: 1024,
        };
        let rule = Rule::new(&self.common, limits).expect("room");
        Decryptor::new(self.secret(i), &rule).expect("one reference")
    }

    /// The partial decryptions that the parties give, as words.
    fn protected(&self) -> [Vec<u64>; 2] {
        let mut parties = [0, 1].map(|i| self.decryptor(i));
        let result = self.sum.extended();
        let contributions = parties
            .each_mut()
            .map(|party| party.contribute(result, &self.keys).expect("allowed"));
        parties.each_mut().map(|party| {
            let given = party.decrypt(result, &contributions, |_| Ok(()));
            given.expect("allowed").share
        })
    }

    /// Bare `c_i s_i`.
    fn bare(&self) -> [Vec<u64>; 2] {
        [0, 1].map(|i| {
            let part = self.sum.extended().part(self.party(i)).expect("a party");
            share(&self.secret(i), part, None)
        })
    }

    /// The first slot of the phase that two polynomials add up to.
    fn read(&self, x: &[u64], y: &[u64]) -> f64 {
        let ring = self.common.ring();
        let mut sum = x.to_vec();
        crate::rns::slices::add_assign(ring, LIMBS, &mut sum, y);
        let plain = Plaintext::new(ring, sum, SCALE);
        ring.decode(&plain).expect("one parameter set").re[0]
    }
}

fn secret(common: &Common<u64>, seed: u8) -> SecretKey<u64> {
    SecretKey::generate(common, &Seed::from_bytes([seed; 32]))
}

/// arXiv 2506.20101: the evaluator adds the fresh `c_0` of a party to that party's partial
/// decryption of a sum.
#[test]
fn fresh_inputs_are_read_from_bare_shares_only() {
    let scene = Scene::new();
    let (bare, protected) = (scene.bare(), scene.protected());
    for i in 0..2 {
        let own = scene.inputs[i].extended().poly(0);
        let found = scene.read(own, &bare[i]);
        assert!((found - scene.values[i]).abs() < 1e-4, "{found}");
        let found = scene.read(own, &protected[i]);
        assert!((found - scene.values[i]).abs() > 1e3, "{found}");
    }
}

/// A flood alone does not stop it: only the contributions do.
#[test]
fn floods_alone_do_not_hide_inputs() {
    let scene = Scene::new();
    let random = &mut Prg::new(&Seed::from_bytes([6; 32]), "pronghorn test attacks").stream(1);
    let basis = scene.common.ring().basis();
    let flood = pronghorn_ring::rns::Integers::sums_of_uniforms(basis, 24, N, random);
    let part = scene.sum.extended().part(scene.party(0)).expect("a party");
    let flooded = share(&scene.secret(0), part, Some(&flood));
    let found = scene.read(scene.inputs[0].extended().poly(0), &flooded);
    assert!((found - scene.values[0]).abs() < 1.0, "{found}");
}

/// Li and Micciancio: `c_i s_i` divided by `c_i`, value by value of the transform, is the secret.
#[test]
fn secrets_are_read_from_bare_shares_only() {
    let scene = Scene::new();
    let (bare, protected) = (scene.bare(), scene.protected());
    let ring = scene.common.ring();
    let q = ring.basis().prime(0);
    for i in 0..2 {
        let secret = scene.secret(i);
        let part = scene.sum.extended().part(secret.party()).expect("a party");
        let quotient = |share: &[u64]| -> Vec<u64> {
            let pairs = share[..N].iter().zip(&part[..N]);
            pairs
                .map(|(&share, &part)| q.mul(share, q.inverse(part).unwrap_or_default()))
                .collect()
        };
        let known = &secret.secret().words[..N];
        assert!(quotient(&bare[i]) == known);
        let found = quotient(&protected[i]);
        let same = found.iter().zip(known).filter(|(x, y)| x == y).count();
        assert!(same < 3, "{same}");
    }
}

/// The noise of a sum, known to no one, is read from bare shares and drowned in protected ones.
#[test]
fn the_noise_is_flooded() {
    let scene = Scene::new();
    let secrets = [scene.secret(0), scene.secret(1)];
    let exact = scene
        .sum
        .extended()
        .phase(&secrets.each_ref())
        .expect("all");
    let mut read = scene.sum.extended().poly(0).to_vec();
    for share in scene.bare() {
        crate::rns::slices::add_assign(scene.common.ring(), LIMBS, &mut read, &share);
    }
    assert!(read == exact);
    // Floods of 2^(12 + 5 + 40 + 5), and up to four bits for the contributions' noise.
    let log_flood = scene.decryptor(0).rule.log_flood();
    assert!((62..=67).contains(&log_flood), "{log_flood}");
}

/// Whoever contributes last cancels the masks: with a "result" whose part at a party is `q / 4`,
/// that party's share is its secret. An [answer](Decryptor::answer) takes no later contribution.
#[test]
fn a_last_contribution_tells_the_secret_and_answers_take_none() {
    let scene = Scene::new();
    let ring = scene.common.ring();
    let (victim, secret) = (scene.party(0), scene.secret(0));
    let parties = scene.sum.extended().parties().to_vec();
    let place = parties.iter().position(|&party| party == victim);
    let part = 1 + place.expect("a party");
    // A quarter of the modulus, rounded down: - (Q mod 4) / 4 modulo each prime.
    let primes: Vec<u64> = ring
        .basis()
        .primes()
        .take(LIMBS)
        .map(|q| q.word())
        .collect();
    let rest = primes.iter().fold(1, |rest, q| rest * (q % 4) % 4);
    let mut words = vec![0; 3 * LIMBS * N];
    for (limb, &prime) in primes.iter().enumerate() {
        let q = ring.basis().prime(limb);
        let quarter = q.mul(prime - rest, q.inverse(4).expect("odd"));
        words[(part * LIMBS + limb) * N..][..N].fill(quarter);
    }
    let chosen = Extended::from_words(&scene.common, parties.clone(), LIMBS, words);
    let chosen = chosen.expect("in order");
    let scale = primes.iter().map(|&q| q as f64).product::<f64>() / 4.0;
    let slots = |words: &[u64], scale: f64| {
        let plain = Plaintext::new(ring, words.to_vec(), scale);
        ring.decode(&plain).expect("one parameter set").re
    };
    let known = slots(&secret.secret().words[..LIMBS * N], 1.0);
    let matches = |share: &[u64]| {
        let pairs = slots(share, scale).into_iter().zip(&known);
        pairs.filter(|(x, y)| (x - **y).abs() < 0.1).count()
    };

    let mut owner = scene.decryptor(0);
    let own = owner.contribute(&chosen, &scene.keys).expect("allowed");
    let mut zero = vec![0; 3 * LIMBS * N];
    for (poly, zero) in zero.chunks_exact_mut(LIMBS * N).enumerate() {
        for (limb, zero) in zero.chunks_exact_mut(N).enumerate() {
            let q = primes[limb];
            let from = &own.zero.poly(poly)[limb * N..][..N];
            std::iter::zip(zero, from).for_each(|(x, y)| *x = (q - y) % q);
        }
    }
    let zero = Extended::from_words(&scene.common, parties, LIMBS, zero).expect("in order");
    let forged = Contribution {
        party: scene.party(1),
        result: own.result,
        zero,
    };
    let share = owner.decrypt(&chosen, &[own, forged], |_| Ok(()));
    assert_eq!(matches(&share.expect("allowed").share), N / 2);

    let mut owner = scene.decryptor(0);
    let (own, partial) = owner
        .answer(&chosen, &scene.keys, |_| Ok(()))
        .expect("allowed");
    let mut read = own.zero.poly(0).to_vec();
    assert!(matches(&partial.share) < N / 20);
    crate::rns::slices::add_assign(ring, LIMBS, &mut read, &partial.share);
    assert!(matches(&read) < N / 20);
    assert!(owner.answer(&chosen, &scene.keys, |_| Ok(())).is_err());
}

/// A contribution that is no encryption of zero makes an honest result one of its party's choice,
/// also where it was chosen before the others' were shown: here `q / 4` stands at the victim. With
/// the own secret the party takes the victim's mask off its share, and has the victim's secret. So
/// commitments to contributions alone would protect nobody.
#[test]
fn a_false_contribution_tells_the_secret_without_a_look_at_the_others() {
    let scene = Scene::new();
    let ring = scene.common.ring();
    let result = scene.sum.extended();
    let parties = result.parties().to_vec();
    let at = |party: Party| parties.iter().position(|&other| other == party);
    let place = 1 + at(scene.party(0)).expect("a party");
    let primes: Vec<u64> = (0..LIMBS).map(|l| ring.basis().prime(l).word()).collect();
    let rest = primes.iter().fold(1, |rest, q| rest * (q % 4) % 4);
    let mut words = vec![0; 3 * LIMBS * N];
    for (limb, &prime) in primes.iter().enumerate() {
        let q = ring.basis().prime(limb);
        let quarter = q.mul(prime - rest, q.inverse(4).expect("odd"));
        let known = &result.poly(place)[limb * N..][..N];
        let words = &mut words[(place * LIMBS + limb) * N..][..N];
        std::iter::zip(words, known).for_each(|(word, &x)| *word = (quarter + prime - x) % prime);
    }
    let zero = Extended::from_words(&scene.common, parties, LIMBS, words).expect("in order");
    let forged = Contribution {
        party: scene.party(1),
        result: result.digest(),
        zero,
    };
    let mut owner = scene.decryptor(0);
    let own = owner.contribute(result, &scene.keys).expect("allowed");
    let mask = own.zero.clone();
    let share = owner.decrypt(result, &[own, forged], |_| Ok(()));
    let mut read = share.expect("nothing shows that it is false").share;
    slices::add_assign(ring, LIMBS, &mut read, mask.poly(0));
    let own = super::decryption::share(
        &scene.secret(1),
        mask.part(scene.party(1)).expect("one"),
        None,
    );
    slices::add_assign(ring, LIMBS, &mut read, &own);
    let slots = |words: &[u64], scale: f64| {
        let plain = Plaintext::new(ring, words.to_vec(), scale);
        ring.decode(&plain).expect("one parameter set").re
    };
    let scale = primes.iter().map(|&q| q as f64).product::<f64>() / 4.0;
    let secret = scene.secret(0);
    let known = slots(&secret.secret().words[..LIMBS * N], 1.0);
    let found = slots(&read, scale);
    let right = std::iter::zip(found, known)
        .filter(|(x, y)| (x - y).abs() < 0.1)
        .count();
    assert_eq!(right, N / 2);
}

/// A client with false keys makes the outcome an exact multiple of the model's ciphertext `(w_0,
/// w_1)`, by a factor of its choice. The factor 1 shows `w_0` and `w_1`. A large one lifts the
/// message with its noise above the flood, and then `s = (message - w_0) / w_1`. The evaluator's
/// encryption of zero hides `w_0` and `w_1`.
#[test]
fn an_outcome_as_computed_tells_the_secret_and_a_rerandomised_one_does_not() {
    const LARGE: i32 = 110;
    let scene = Scene::new();
    let (owner, client) = (scene.secret(0), scene.secret(1));
    let (basis, weight) = (scene.common.ring().basis(), scene.inputs[0].extended());
    let parties = scene.sum.extended().parties().to_vec();
    let place = parties.iter().position(|&party| party == owner.party());
    let place = 1 + place.expect("a party");
    let outcome = |log_factor: i32| {
        let mut words = vec![0; 3 * LIMBS * N];
        for (to, from) in [(0, 0), (place, 1)] {
            for limb in 0..LIMBS {
                let q = basis.prime(limb);
                let factor = (0..log_factor).fold(1, |power, _| q.mul(power, 2));
                let known = &weight.poly(from)[limb * N..][..N];
                let words = &mut words[(to * LIMBS + limb) * N..][..N];
                std::iter::zip(words, known).for_each(|(word, &x)| *word = q.mul(x, factor));
            }
        }
        let inner = Extended::from_words(&scene.common, parties.clone(), LIMBS, words);
        Ciphertext::new(inner.expect("in order"), SCALE).expect("room")
    };
    // The integers that a phase is so many times of, by the fraction of the modulus that it is.
    let divided = |phase: &[u64]| -> Vec<i64> {
        let primes: Vec<f64> = (0..LIMBS).map(|l| basis.prime(l).word() as f64).collect();
        let size = primes.iter().product::<f64>() / f64::from(LARGE).exp2();
        let mut fractions = vec![0f64; N];
        for (limb, words) in phase.chunks_exact(N).enumerate() {
            let (q, mut words) = (basis.prime(limb), words.to_vec());
            basis.ntt(limb).inverse(&mut words);
            let others = (0..LIMBS).filter(|&other| other != limb);
            let others = others.fold(1, |product, other| {
                q.mul(product, basis.prime(other).word() % q.word())
            });
            let inverse = q.inverse(others).expect("primes differ");
            let parts = fractions.iter_mut().zip(words);
            parts.for_each(|(sum, x)| *sum += q.mul(x, inverse) as f64 / primes[limb]);
        }
        let centred = fractions.iter().map(|x| x - x.round());
        centred.map(|x| (x * size).round() as i64).collect()
    };
    let matches = |small: &Ciphertext<u64>, large: &Ciphertext<u64>| {
        let mut parties = [0, 1].map(|i| scene.decryptor(i));
        let answer = parties[0].answer(large.extended(), &scene.keys, |_| Ok(()));
        let (contribution, partial) = answer.expect("allowed");
        let phase = parties[1].complete(large.extended(), &contribution, partial);
        let q = basis.prime(0);
        let message = divided(&phase.expect("allowed")).into_iter();
        let mut message: Vec<u64> = message.map(|x| q.from_i64(x)).collect();
        basis.ntt(0).forward(&mut message);
        let part = |of: &SecretKey<u64>| small.extended().part(of.party()).expect("a party");
        // The client takes its own part off.
        let own = share(&client, part(&client), None);
        let first = small.extended().poly(0).iter().zip(&own);
        let first = first.map(|(x, y)| (x + y) % q.word());
        let known = &owner.secret().words[..N];
        let quotients = message
            .iter()
            .zip(first)
            .zip(part(&owner))
            .map(|((x, y), &z)| {
                q.mul(
                    (x + q.word() - y) % q.word(),
                    q.inverse(z).unwrap_or_default(),
                )
            });
        quotients.zip(known).filter(|(x, y)| x == *y).count()
    };
    let [small, large] = [0, LARGE].map(outcome);
    assert_eq!(matches(&small, &large), N);
    let [small, large] = [small, large].map(|one| one.rerandomised(&scene.keys).expect("keys"));
    assert!(matches(&small, &large) < 3);
}

/// The gadget itself, `[digit][limb][N]`: a false key that multiplies by 1.
fn gadget(common: &Common<u64>) -> Vec<u64> {
    let ring = common.ring();
    let words = ring.basis().limbs() * N;
    let one = |piece| {
        let mut part = vec![0; words];
        add_gadget(ring, piece, &mut part, &vec![1; words]);
        part
    };
    ring.pieces().iter().flat_map(one).collect()
}

/// The product of a client's ciphertext and the owner's, with all that a party may know of it.
struct Product {
    common: Common<u64>,
    owner: SecretKey<u64>,
    client: SecretKey<u64>,
    keys: KeyRing<u64>,
    input: Ciphertext<u64>,
    weight: Ciphertext<u64>,
}

impl Product {
    /// With a client whose name is before the owner's, or after it.
    fn new(is_before: bool) -> Self {
        let Scene {
            common,
            keys,
            inputs,
            ..
        } = Scene::new();
        let owner = secret(&common, 11);
        let others = (20..200).map(|seed| secret(&common, seed));
        let mut others = others.filter(|x| (x.party() < owner.party()) == is_before);
        let client = others.next().expect("half of all names");
        let ring = common.ring();
        let message = ring.message(&vec![0.25; N / 2], &[], SCALE, LIMBS);
        let input = client.encryptor().expect("randomness");
        let input = { input }
            .encrypt(&message.expect("it fits"))
            .expect("one parameter set");
        let input = Ciphertext::of_party(&common, client.party(), input.expand());
        let [weight, _] = inputs;
        Self {
            input: input.expect("two polynomials"),
            common,
            owner,
            client,
            keys,
            weight,
        }
    }

    /// The client's keys after a change.
    fn insert(&mut self, change: impl FnOnce(&mut PublicKeys<u64>)) {
        let keys = self.client.public_keys(Choice::default());
        let mut keys = keys.expect("randomness");
        change(&mut keys);
        self.keys.insert(keys).expect("one reference");
    }

    fn computed(&self) -> Extended<u64> {
        let (x, w) = (self.input.extended(), self.weight.extended());
        let quadratic = Relinearisation::Quadratic;
        x.multiply(w, &self.keys, 0, quadratic).expect("all keys")
    }

    fn times(&self, x: &[u64], y: &[u64]) -> Vec<u64> {
        let mut out = vec![0; x.len()];
        let limbs = x.chunks_exact(N).zip(y.chunks_exact(N));
        for (limb, ((x, y), out)) in limbs.zip(out.chunks_exact_mut(N)).enumerate() {
            vector::mul(self.common.ring().basis().prime(limb), x, y, out);
        }
        out
    }

    /// `c_0 + c_1 s` for the owner's `s`.
    fn phase(&self, x: &Extended<u64>) -> Vec<u64> {
        let mut phase = x.poly(0).to_vec();
        if let Some(part) = x.part(self.owner.party()) {
            let share = share(&self.owner, part, None);
            slices::add_assign(self.common.ring(), LIMBS, &mut phase, &share);
        }
        phase
    }

    /// `log2` of the largest coefficient of a difference, where it is small.
    fn log_difference(&self, mut x: Vec<u64>, y: &[u64]) -> Option<u32> {
        let basis = self.common.ring().basis();
        slices::sub_assign(self.common.ring(), LIMBS, &mut x, y);
        let mut limbs = x.chunks_exact_mut(N).enumerate().map(|(limb, x)| {
            basis.ntt(limb).inverse(x);
            let q = basis.prime(limb).word() as i64;
            let centre = |&x: &u64| (x as i64 + q / 2) % q - q / 2;
            x.iter().map(centre).collect::<Vec<i64>>()
        });
        let first = limbs.next()?;
        let largest = first.iter().map(|x| x.unsigned_abs()).max()?;
        limbs.all(|x| x == first).then(|| largest.max(1).ilog2())
    }
}

/// With the keys of ePrint 2019/524 a client's false ones put the owner's `s`, or `r`, into a
/// product: exactly, times a factor of the client's choice.
#[test]
fn false_keys_put_the_owners_secret_into_a_product() {
    for is_before in [true, false] {
        let mut product = Product::new(is_before);
        let false_key = gadget(&product.common);
        product.insert(|keys| {
            let pairwise = keys.pairwise.as_mut().expect("keys of pairs");
            if is_before {
                pairwise.d2 = false_key;
                pairwise.d0.fill(0);
            } else {
                pairwise.b = false_key;
            }
        });
        let second = product.owner.second();
        let known = match is_before {
            true => product.owner.secret(),
            false => second.secret(),
        };
        let (x, w) = (product.input.extended(), product.weight.extended());
        let honest = product.times(x.poly(0), &product.phase(w));
        let cross = product.times(x.poly(1), w.poly(1));
        let mut expected = product.times(&cross, &known.words[..LIMBS * N]);
        slices::add_assign(product.common.ring(), LIMBS, &mut expected, &honest);
        let log = product.log_difference(product.phase(&product.computed()), &expected);
        assert!(log.is_some_and(|log| log < 16), "{is_before}: {log:?}");
        let log = product.log_difference(product.phase(&product.computed()), &honest);
        assert_eq!(log, None);
    }
}

/// With a key of the pair by the owner no key of the client meets the secret: an honest client gets
/// the product, and one with false keys of every kind a product of what it sent.
#[test]
fn false_keys_put_nothing_into_a_product_with_a_key_of_the_pair() {
    for is_before in [true, false] {
        for is_false in [false, true] {
            let mut product = Product::new(is_before);
            let false_key = gadget(&product.common);
            product.insert(|keys| {
                let pairwise = keys.pairwise.as_mut().expect("keys of pairs");
                for key in [&mut pairwise.b, &mut pairwise.d0, &mut pairwise.d2] {
                    key.clone_from(&false_key);
                }
            });
            if is_false {
                // An encryption key that hides nothing from the client, under its own name.
                let ring = product.common.ring();
                let zeros = vec![0; ring.basis().limbs() * N];
                let encryption = PublicKey::from_parts(ring, *product.common.seed(), zeros);
                let keys = product
                    .client
                    .public_keys(Choice::default())
                    .expect("randomness");
                let keys = PublicKeys::from_parts(
                    &product.common,
                    Parts {
                        encryption,
                        pairwise: keys.pairwise,
                        linear: None,
                        own: keys.own,
                    },
                );
                let words = product.input.extended().data().to_vec();
                let input = Extended::of_party(&product.common, keys.party(), LIMBS, words);
                product.input = Ciphertext::new(input.expect("two"), SCALE).expect("room");
                product.keys.insert(keys).expect("one reference");
            }
            let party = product.input.parties()[0];
            let encryption = product.keys.get(party).expect("keys").encryption();
            let pair = product.owner.pair_key(encryption).expect("another's");
            product.keys.insert_pair(pair).expect("one reference");
            let (x, w) = (product.input.extended(), product.weight.extended());
            let message = product.phase(w);
            let found = product.computed();
            let (mut phase, mut sent) = (product.phase(&found), x.poly(0).to_vec());
            if !is_false {
                for (phase, of) in [(&mut phase, &found), (&mut sent, x)] {
                    let own = share(&product.client, of.part(party).expect("a party"), None);
                    slices::add_assign(product.common.ring(), LIMBS, phase, &own);
                }
            }
            let expected = product.times(&sent, &message);
            let log = product.log_difference(phase, &expected);
            assert!(
                log.is_some_and(|log| log < 16),
                "{is_before} {is_false}: {log:?}"
            );
        }
    }
}

/// A refreshed ciphertext has the same phase, and other words at the party.
#[test]
fn refreshed_polynomials_are_others() {
    let product = Product::new(true);
    let mut keys = KeyRing::new(&product.common);
    for secret in [&product.owner, &product.client] {
        let public = secret.public_keys(Choice::default()).expect("randomness");
        keys.insert(public).expect("one reference");
    }
    let party = product.client.party();
    let fresh = [0, 1].map(|_| product.input.refreshed(party, &keys).expect("its key"));
    let phase = |x: &Ciphertext<u64>| x.extended().phase(&[&product.client]).expect("its secret");
    for x in &fresh {
        let log = product.log_difference(phase(x), &phase(&product.input));
        assert!(log.is_some_and(|log| (1..9).contains(&log)), "{log:?}");
    }
    let [x, y] = fresh
        .each_ref()
        .map(|x| x.extended().part(party).expect("a party"));
    assert_eq!(product.log_difference(x.to_vec(), y), None);
    assert!(x.iter().zip(y).filter(|(x, y)| x == y).count() < 3);
    assert!(
        product
            .input
            .refreshed(product.owner.party(), &keys)
            .is_err()
    );
}
