//! Distributed decryption: right for all numbers of parties, once a result, across restarts.

use std::io;

use pronghorn_he::multikey::{
    Contribution, Decryptor, Limits, MultiKeyError, Partial, Relinearisation, Rule,
};

use super::*;

const BITS: [u32; 4] = [50, 50, 50, 50];
const LOG_SCALE: i32 = 45;

fn limits(parties: usize) -> Limits {
    Limits {
        limbs: 4,
        parties,
        log_message: 100.0,
        log_noise: 70.0,
        log_power: None,
        results: 3,
    }
}

struct Scene {
    setup: Setup<u64>,
    parties: Vec<Decryptor<u64>>,
    rule: Rule<u64>,
}

impl Scene {
    fn new(count: usize) -> Self {
        let setup = Setup::<u64>::new(1024, &BITS, &[50, 50], count);
        let rule = Rule::new(&setup.common, limits(count)).expect("room");
        let parties = (0..count).map(|i| decryptor(&setup, &rule, i)).collect();
        Self {
            setup,
            parties,
            rule,
        }
    }

    /// The product of the sum of everyone's values with the first party's.
    fn result(&mut self) -> (Ciphertext<u64>, Slots) {
        let count = self.parties.len();
        let values: Vec<_> = (0..count).map(|i| self.setup.values(i)).collect();
        let scale = 2f64.powi(LOG_SCALE);
        let fresh: Vec<_> = (0..count)
            .map(|i| self.setup.encrypt(i, &values[i], scale, BITS.len()))
            .collect();
        let all = fresh[1..]
            .iter()
            .fold(fresh[0].clone(), |sum, x| sum.add(x).expect("one scale"));
        let keys = &self.setup.keys;
        let result = all.multiply(&fresh[0], keys, 0, Relinearisation::Quadratic);
        let expected = product(&sum(values.iter()), &values[0]);
        (result.expect("all keys"), expected)
    }

    fn contribute(&mut self, result: &Ciphertext<u64>) -> Vec<Contribution<u64>> {
        let keys = &self.setup.keys;
        let parties = self.parties.iter_mut();
        parties
            .map(|party| {
                party
                    .contribute(result.extended(), keys)
                    .expect("the rule allows it")
            })
            .collect()
    }

    fn decrypt(
        &mut self,
        result: &Ciphertext<u64>,
        contributions: &[Contribution<u64>],
    ) -> Vec<Partial<u64>> {
        let parties = self.parties.iter_mut();
        parties
            .map(|party| {
                party
                    .decrypt(result.extended(), contributions, |_| Ok(()))
                    .expect("the rule allows it")
            })
            .collect()
    }
}

fn decryptor(setup: &Setup<u64>, rule: &Rule<u64>, i: usize) -> Decryptor<u64> {
    Decryptor::new(again(setup, i), rule).expect("one reference")
}

/// The same secret from its seed.
fn again(setup: &Setup<u64>, i: usize) -> SecretKey<u64> {
    SecretKey::generate(&setup.common, &Seed::from_bytes([i as u8 + 1; 32]))
}

#[test]
fn results_come_out_within_the_rule() {
    for count in COUNTS {
        let mut scene = Scene::new(count);
        let (result, expected) = scene.result();
        // The noise there is keeps the promise that the rule is made for.
        let ring = scene.setup.common.ring().clone();
        let message = ring.message(&expected.re, &expected.im, result.scale(), BITS.len());
        let message = message.expect("it fits").to_plaintext();
        let secrets: Vec<_> = scene.setup.secrets.iter().collect();
        let exact = result.decrypt_with_all(&secrets).expect("all secrets");
        let noise = largest_difference(&exact.to_coefficients(), &message.to_coefficients());
        assert!(noise.log2() < limits(count).log_noise, "{}", noise.log2());
        let contributions = scene.contribute(&result);
        let partials = scene.decrypt(&result, &contributions);
        let merged = result.merge(&contributions, &partials).expect("all there");
        let error = largest_difference(&merged.to_coefficients(), &message.to_coefficients());
        let bound = scene.rule.log_error();
        assert!(error.log2() < bound, "{count}: {} {bound}", error.log2());
        // The floods are there: some coefficient is near their reach.
        assert!(error.log2() > f64::from(scene.rule.log_flood()) - 2.0);
        let found = ring.decode(&merged).expect("one parameter set");
        let errors = found.re.iter().zip(&expected.re);
        let worst = errors.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        // 2^(90 + 10) of scale and floods of 2^117: no bit is left of these values.
        assert!(worst > 1.0);
    }
}

fn largest_difference(x: &[f64], y: &[f64]) -> f64 {
    let pairs = x.iter().zip(y);
    pairs.map(|(x, y)| (x - y).abs()).fold(1.0, f64::max)
}

/// A result whose scale leaves bits above the flood.
#[test]
fn values_survive_the_flood_where_the_scale_pays_for_it() {
    for count in COUNTS {
        let mut setup = Setup::<u64>::new(1024, &BITS, &[50, 50], count);
        let limits = Limits {
            log_noise: 20.0,
            log_power: None,
            log_message: 130.0,
            ..limits(count)
        };
        let rule = Rule::new(&setup.common, limits).expect("room");
        let scale = 2f64.powi(120);
        let values: Vec<_> = (0..count).map(|i| setup.values(i)).collect();
        let fresh: Vec<_> = (0..count)
            .map(|i| setup.encrypt(i, &values[i], scale, BITS.len()))
            .collect();
        let result = fresh[1..]
            .iter()
            .fold(fresh[0].clone(), |sum, x| sum.add(x).expect("one scale"));
        let mut parties: Vec<_> = (0..count).map(|i| decryptor(&setup, &rule, i)).collect();
        let contributions: Vec<_> = (parties.iter_mut())
            .map(|party| party.contribute(result.extended(), &setup.keys))
            .collect::<Result<_, _>>()
            .expect("allowed");
        let partials: Vec<_> = (parties.iter_mut())
            .map(|party| party.decrypt(result.extended(), &contributions, |_| Ok(())))
            .collect::<Result<_, _>>()
            .expect("allowed");
        let merged = result.merge(&contributions, &partials).expect("all there");
        let found = setup.common.ring().decode(&merged).expect("parameters");
        let expected = sum(values.iter());
        let errors = found.re.iter().zip(&expected.re);
        let worst = errors.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(worst < 2f64.powi(-40), "{count}: {worst:e}");
    }
}

#[test]
fn a_result_is_decrypted_once_across_restarts() {
    let mut scene = Scene::new(2);
    let (result, _) = scene.result();
    let contributions = scene.contribute(&result);
    let extended = result.extended();
    // A failing disk gives the result up without telling anything.
    let broken = |_: &[u8]| Err(io::Error::other("full"));
    let refused = scene.parties[0].decrypt(extended, &contributions, broken);
    assert!(matches!(refused, Err(MultiKeyError::Persist(_))));
    let repeated = scene.parties[0].decrypt(extended, &contributions, |_| Ok(()));
    assert!(matches!(repeated, Err(MultiKeyError::Given)));
    let mut kept = Vec::new();
    let keep = |bytes: &[u8]| {
        kept = bytes.to_vec();
        Ok(())
    };
    scene.parties[1]
        .decrypt(extended, &contributions, keep)
        .expect("allowed");
    let Scene { setup, rule, .. } = scene;
    let mut resumed = Decryptor::resume(again(&setup, 1), &rule, &kept).expect("its ledger");
    assert_eq!(resumed.results_left(), 2);
    let refused = resumed.decrypt(extended, &contributions, |_| Ok(()));
    assert!(matches!(refused, Err(MultiKeyError::Given)));
    let refused = resumed.contribute(extended, &setup.keys);
    assert!(matches!(refused, Err(MultiKeyError::Given)));
    // Another key, another rule, damaged bytes.
    assert!(Decryptor::resume(again(&setup, 0), &rule, &kept).is_err());
    let other = Limits {
        results: 4,
        ..limits(2)
    };
    let other = Rule::new(&setup.common, other).expect("room");
    assert!(Decryptor::resume(again(&setup, 1), &other, &kept).is_err());
    for length in 0..kept.len() {
        assert!(Decryptor::resume(again(&setup, 1), &rule, &kept[..length]).is_err());
    }
}

#[test]
fn a_contribution_survives_a_restart() {
    let mut scene = Scene::new(2);
    let (result, _) = scene.result();
    let contributions = scene.contribute(&result);
    let kept = scene.parties[0].ledger();
    let Scene { setup, rule, .. } = scene;
    let mut resumed = Decryptor::resume(again(&setup, 0), &rule, &kept).expect("its ledger");
    let given = resumed.decrypt(result.extended(), &contributions, |_| Ok(()));
    assert!(given.is_ok());
}

#[test]
fn own_contributions_cannot_be_left_out() {
    let mut scene = Scene::new(3);
    let (result, _) = scene.result();
    let extended = result.extended();
    let none = scene.parties[0].decrypt(extended, &[], |_| Ok(()));
    assert!(matches!(none, Err(MultiKeyError::NotOffered)));
    let stale = scene.contribute(&result);
    let mut fresh = stale.clone();
    fresh[0] = scene.parties[0]
        .contribute(extended, &scene.setup.keys)
        .expect("allowed");
    // One missing, one twice, an older one of its own.
    let twice = [&fresh[..], &fresh[1..2]].concat();
    for wrong in [&fresh[1..], &fresh[..2], &twice[..], &stale[..]] {
        let refused = scene.parties[0].decrypt(extended, wrong, |_| Ok(()));
        assert!(matches!(refused, Err(MultiKeyError::Contribution { .. })));
    }
    // Of another result.
    let (other, _) = scene.result();
    let others = scene.contribute(&other);
    let refused = scene.parties[0].decrypt(extended, &others, |_| Ok(()));
    assert!(matches!(refused, Err(MultiKeyError::Contribution { .. })));
    let given = scene.parties[0].decrypt(extended, &fresh, |_| Ok(()));
    let given = given.expect("allowed");
    // Merging needs all of them, of one session, once.
    let missing = result.merge(&fresh, std::slice::from_ref(&given));
    assert!(matches!(missing, Err(MultiKeyError::Partial { .. })));
    let twice = result.merge(&fresh, &[given.clone(), given.clone()]);
    assert!(matches!(twice, Err(MultiKeyError::Partial { .. })));
    let other = other.merge(&others, &[given]);
    assert!(matches!(other, Err(MultiKeyError::Partial { .. })));
}

#[test]
fn the_budget_ends() {
    let mut scene = Scene::new(2);
    for left in [2, 1, 0] {
        let (result, _) = scene.result();
        let contributions = scene.contribute(&result);
        scene.decrypt(&result, &contributions);
        assert_eq!(scene.parties[0].results_left(), left);
    }
    let (result, _) = scene.result();
    let refused = scene.parties[0].contribute(result.extended(), &scene.setup.keys);
    assert!(matches!(refused, Err(MultiKeyError::Budget { results: 3 })));
    // Nor do results in progress add up to more.
    let mut scene = Scene::new(2);
    for _ in 0..3 {
        let (result, _) = scene.result();
        scene.contribute(&result);
    }
    let (result, _) = scene.result();
    let refused = scene.parties[0].contribute(result.extended(), &scene.setup.keys);
    assert!(matches!(refused, Err(MultiKeyError::Budget { results: 3 })));
}

#[test]
fn results_outside_the_rule_are_refused() {
    let mut scene = Scene::new(2);
    let (result, _) = scene.result();
    let keys = &scene.setup.keys;
    let low = result.drop_limbs(1).expect("limbs");
    let refused = scene.parties[0].contribute(low.extended(), keys);
    assert!(matches!(
        refused,
        Err(MultiKeyError::Result { field: "limbs", .. })
    ));
    let one = Limits {
        parties: 1,
        ..limits(2)
    };
    let rule = Rule::new(&scene.setup.common, one).expect("room");
    let mut narrow = decryptor(&scene.setup, &rule, 0);
    let refused = narrow.contribute(result.extended(), keys);
    assert!(matches!(
        refused,
        Err(MultiKeyError::Result {
            field: "parties",
            ..
        })
    ));
    let values = scene.setup.values(0);
    let alone = scene.setup.encrypt(1, &values, 2f64.powi(40), 4);
    let refused = scene.parties[0].contribute(alone.extended(), &scene.setup.keys);
    assert!(matches!(refused, Err(MultiKeyError::NotAParty { .. })));
}

#[test]
fn rules_need_room() {
    let common = Setup::<u64>::new(1024, &BITS, &[50, 50], 1).common;
    let rule = Rule::new(&common, limits(2)).expect("room");
    // 70 bits of noise, 40 of lambda, half of 10 of coefficients, of 1.6 of the three results and
    // of 1.6 of the flood's Fisher information.
    assert_eq!(rule.log_flood(), 117);
    let more = |change: &dyn Fn(&mut Limits)| {
        let mut limits = limits(2);
        change(&mut limits);
        Rule::new(&common, limits)
    };
    let doubled = more(&|limits| limits.results = 12).expect("room");
    assert_eq!(doubled.log_flood(), 118);
    let no_room = [
        more(&|limits| limits.log_noise = 155.0),
        more(&|limits| limits.log_message = 199.5),
        more(&|limits| limits.limbs = 2),
        more(&|limits| {
            limits.limbs = 3;
            limits.results = u64::MAX;
        }),
        more(&|limits| limits.log_noise = 5000.0),
    ];
    for refused in no_room {
        assert!(matches!(refused, Err(MultiKeyError::NoRoom { .. })));
    }
    for log in [f64::NAN, f64::INFINITY, -1.0] {
        let refused = more(&|limits| limits.log_noise = log);
        assert!(matches!(refused, Err(MultiKeyError::Rule { .. })));
    }
    assert!(more(&|limits| limits.results = 0).is_err());
    assert!(more(&|limits| limits.parties = 0).is_err());
    assert!(more(&|limits| limits.limbs = 5).is_err());
}

/// The sum of the squares of the noise's coefficients, where it is known to be less than that of
/// `N` times the largest, makes smaller floods, and other ledgers.
#[test]
fn floods_hide_the_power_of_the_noise() {
    let setup = Setup::<u64>::new(1024, &[50; 4], &[50, 50], 2);
    let with = |log_power: Option<f64>| {
        let limits = Limits {
            log_noise: 40.0,
            log_power,
            log_message: 50.0,
            ..limits(2)
        };
        Rule::new(&setup.common, limits).expect("room").log_flood()
    };
    // N = 2^10 coefficients of 2^40.
    assert_eq!(with(None), with(Some(90.0)));
    assert_eq!(with(None), with(Some(80.0)) + 5);
}
