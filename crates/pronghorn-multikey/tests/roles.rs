//! The protocol in one process, and hostile peers.

use std::{cell::RefCell, io};

use pronghorn_graph::{
    finish::Finish,
    geometry::ConvGeometry,
    polynomial::{Layer, PolyGraph, PolyNode, PolyOp},
};
use pronghorn_he::multikey::{
    Ciphertext, EncryptionRing, MultiKeyError, Party, SecretKey, wire::ResumeError,
};
use pronghorn_multikey::{
    Aim, Node, Op,
    roles::{Client, Description, Local, Owner, RoleError, Service, Terms},
};
use pronghorn_ring::random::Seed;

/// Of every node in the model's file.
const NAME: &str = "names-are-the-owners";

/// A square of a dense layer of 6 inputs, and a dense layer of it.
fn graph() -> PolyGraph {
    let node = |op: PolyOp, inputs: Vec<usize>, elements: usize| PolyNode {
        name: NAME.into(),
        op,
        inputs,
        shape: vec![elements],
        reach: 1.0,
        rms: 1.0,
    };
    let dense = |inputs: usize, outputs: usize| {
        let weights = (0..inputs * outputs).map(|i| (i * 37 % 101) as f64 - 50.0);
        PolyOp::Linear(Layer {
            geometry: ConvGeometry::dense(inputs, outputs),
            weights: weights.collect(),
            divisor: 128.0,
            bias: (0..outputs).map(|o| 0.25 - 0.5 * o as f64).collect(),
        })
    };
    PolyGraph {
        low: -1.0,
        name: "test".into(),
        nodes: vec![
            node(PolyOp::Input, vec![], 6),
            node(dense(6, 4), vec![0], 4),
            node(PolyOp::Square, vec![1], 4),
            node(dense(4, 2), vec![2], 2),
        ],
        output: 3,
        finish: vec![],
        class_names: Vec::new(),
    }
}

fn seed(number: u8) -> Seed {
    Seed::from_bytes([number; 32])
}

const IMAGE: [f64; 6] = [0.5, -0.25, 1.0, 0.0, 0.75, -1.0];

/// All three parties after the messages that are sent once.
struct Scene {
    terms: Terms<u32>,
    owner: Owner<u32>,
    service: Service<u32>,
    client: Client<u32>,
    /// The owner's ledger as it was kept last.
    ledger: RefCell<Vec<u8>>,
}

fn terms(results: u64) -> Terms<u32> {
    let aim = Aim {
        error: 2f64.powi(-8),
        results,
    };
    Terms::choose(&graph(), aim, [3; 32]).expect("a shallow network")
}

impl Scene {
    fn new(results: u64) -> Self {
        let terms = terms(results);
        let mut owner = Owner::new(&terms, &seed(1)).expect("one reference");
        let published = owner.publish(&graph()).expect("its network");
        let mut service = Service::new(&published).expect("what was published");
        assert_eq!(service.owner(), owner.party());
        let offer = service.offer().expect("the owner's key");
        let client = Client::new(&offer, owner.party(), &seed(2)).expect("an offer");
        join(&mut owner, &mut service, &client);
        Self {
            terms,
            owner,
            service,
            client,
            ledger: RefCell::default(),
        }
    }

    fn outcome(&mut self, image: &[f64]) -> Vec<u8> {
        let request = self.client.request(image).expect("in range");
        self.service
            .evaluate(self.client.party(), &request)
            .expect("joined")
    }

    /// An image goes through all roles, and its result is the network's.
    fn predicts(&mut self, image: &[f64]) {
        let outcome = self.outcome(image);
        let answer = self.answer(&outcome).expect("once");
        let result = self.client.finish(&outcome, &answer);
        check(&result.expect("complete"), image);
    }

    /// The owner's answer, whose ledger is kept.
    fn answer(&mut self, outcome: &[u8]) -> Result<Vec<u8>, RoleError> {
        let ledger = &self.ledger;
        self.owner.answer(outcome, |bytes| {
            *ledger.borrow_mut() = bytes.to_vec();
            Ok(())
        })
    }
}

/// A client's keys, and that of the pair.
fn join(owner: &mut Owner<u32>, service: &mut Service<u32>, client: &Client<u32>) {
    owner.admit([client.party()]);
    let party = owner.introduce(&client.introduction()).expect("admitted");
    assert_eq!(party, client.party());
    let pair = owner.pair(party).expect("introduced");
    assert_eq!(service.name_of_pair(&pair).expect("a key"), party);
    let keys = client.join().expect("randomness");
    assert_eq!(service.join(&keys, &pair).expect("public keys"), party);
}

fn is_given(error: Option<RoleError>) -> bool {
    matches!(error, Some(RoleError::MultiKey(MultiKeyError::Given)))
}

fn check(found: &[f64], image: &[f64]) {
    let wanted = graph().evaluate(image);
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() < 2f64.powi(-8), "{found} {wanted}");
    }
}

#[test]
fn the_client_alone_learns_results() {
    let mut scene = Scene::new(4);
    for image in [IMAGE, [0.0; 6], IMAGE.map(|x| -x)] {
        scene.predicts(&image);
    }
    assert_eq!(scene.owner.results_left(), 1);
}

#[test]
fn a_cloud_that_asks_twice_is_refused_also_after_a_restart() {
    let mut scene = Scene::new(4);
    let outcome = scene.outcome(&IMAGE);
    let answer = scene.answer(&outcome).expect("once");
    assert!(is_given(scene.answer(&outcome).err()));
    // The one whom it concerns goes on.
    check(
        &scene.client.finish(&outcome, &answer).expect("complete"),
        &IMAGE,
    );
    let ledger = scene.ledger.borrow().clone();
    let mut owner = Owner::<u32>::resume(&scene.terms, &seed(1), &ledger).expect("its ledger");
    assert_eq!(
        (owner.party(), owner.results_left()),
        (scene.owner.party(), 3)
    );
    let introduction = introduction(&scene.terms, 2);
    owner.admit([scene.client.party()]);
    owner.introduce(&introduction).expect("admitted");
    assert!(is_given(owner.answer(&outcome, |_| Ok(())).err()));
    let fresh = scene.outcome(&IMAGE);
    assert!(owner.answer(&fresh, |_| Ok(())).is_ok());
    // Another key's ledger, and a damaged one.
    let other = Owner::<u32>::resume(&scene.terms, &seed(9), &ledger);
    assert!(matches!(
        other.err(),
        Some(RoleError::Resume(ResumeError::MultiKey(_)))
    ));
    let damaged = Owner::<u32>::resume(&scene.terms, &seed(1), &ledger[1..]);
    assert!(matches!(
        damaged.err(),
        Some(RoleError::Resume(ResumeError::Wire(_)))
    ));
}

#[test]
fn a_ledger_that_is_not_kept_gives_nothing() {
    let mut scene = Scene::new(4);
    let outcome = scene.outcome(&IMAGE);
    let full = |_: &[u8]| Err(io::Error::from(io::ErrorKind::StorageFull));
    let refused = scene.owner.answer(&outcome, full);
    assert!(matches!(
        refused,
        Err(RoleError::MultiKey(MultiKeyError::Persist(_)))
    ));
    assert!(is_given(scene.answer(&outcome).err()));
}

#[test]
fn another_ciphertext_is_refused() {
    let mut scene = Scene::new(8);
    let other = scene.outcome(&IMAGE);
    let outcome = scene.outcome(&IMAGE);
    // A changed bit: of the ciphertexts it is another outcome, of the header none.
    for at in [0, 5, 40] {
        let mut changed = outcome.clone();
        changed[at] ^= 4;
        assert!(scene.answer(&changed).is_err(), "byte {at}");
    }
    // The answer to another outcome completes nothing.
    let answer = scene.answer(&other).expect("a client's");
    assert!(scene.client.finish(&outcome, &answer).is_err());
    scene.predicts(&IMAGE);
}

/// A client that is not admitted any more.
#[test]
fn who_is_struck_off_the_list_gets_nothing() {
    let mut scene = Scene::new(4);
    scene.predicts(&IMAGE);
    let outcome = scene.outcome(&IMAGE);
    scene.owner.admit([]);
    let refused = scene.answer(&outcome);
    assert!(matches!(refused, Err(RoleError::NotAdmitted { .. })));
    let party = scene.client.party();
    scene.owner.admit([party]);
    scene.predicts(&IMAGE);
}

/// Floods are made for the bounds of one network.
#[test]
fn another_networks_weights_are_not_published() {
    let scene = Scene::new(4);
    let mut other = graph();
    for node in &mut other.nodes {
        if let PolyOp::Linear(layer) = &mut node.op {
            layer.divisor /= 64.0;
        }
    }
    let refused = scene.owner.publish(&other);
    assert!(matches!(refused, Err(RoleError::OtherNetwork)));
}

/// A cloud that has weights decrypted as if they were a result: under the owner's key alone, and
/// with keys of its own in the client's place.
#[test]
fn weights_are_not_decrypted() {
    let scene = Scene::new(4);
    let common = scene.terms.setting.common();
    let outcome = |client: Party, parties: &[Party]| {
        let mut parties = parties.to_vec();
        parties.sort_unstable();
        let words = vec![0; (parties.len() + 1) * scene.terms.setting.limbs(0) * common.ring().n()];
        let limbs = scene.terms.setting.limbs(0);
        let made = pronghorn_he::multikey::Extended::from_words(common, parties, limbs, words);
        let scale = scene.terms.setting.scale(0);
        let made = Ciphertext::new(made.expect("in order"), scale).expect("room");
        let mut bytes = Vec::new();
        made.encode(&mut bytes);
        let mut outcome = client.0.to_vec();
        outcome.push(1);
        let mut length = bytes.len();
        while length >= 128 {
            outcome.push((length % 128 + 128) as u8);
            length /= 128;
        }
        outcome.push(length as u8);
        outcome.extend(bytes);
        outcome
    };
    let mut owner = scene.owner;
    let (client, own) = (scene.client.party(), owner.party());
    let stranger = SecretKey::generate(common, &seed(66)).party();
    let mut answer = |outcome: &[u8]| owner.answer(outcome, |_| Ok(()));
    for parties in [&[own][..], &[own, stranger], &[own, client, stranger]] {
        let refused = answer(&outcome(client, parties));
        assert!(matches!(refused, Err(RoleError::OtherParties { .. })));
    }
    for (of, parties) in [(stranger, &[own, stranger][..]), (own, &[own])] {
        let refused = answer(&outcome(of, parties));
        assert!(matches!(refused, Err(RoleError::NotAdmitted { .. })));
    }
    // What it refuses is in the form that it accepts.
    assert!(answer(&outcome(client, &[own, client])).is_ok());
    let refused = owner.introduce(&introduction(&scene.terms, 66));
    assert!(matches!(refused, Err(RoleError::NotAdmitted { .. })));
}

/// A client's encryption key.
fn introduction(terms: &Terms<u32>, of: u8) -> Vec<u8> {
    let secret = SecretKey::generate(terms.setting.common(), &seed(of));
    let mut bytes = Vec::new();
    secret.encryption().encode(&mut bytes);
    bytes
}

#[test]
fn keys_of_the_wrong_set_are_refused() {
    let mut scene = Scene::new(4);
    let strange = terms(1 << 30);
    assert!(strange.setting.chain() != scene.terms.setting.chain());
    let refused = scene.owner.introduce(&introduction(&strange, 2));
    assert!(matches!(
        refused,
        Err(RoleError::Message {
            what: "introduction",
            ..
        })
    ));
    let other = Owner::new(&strange, &seed(1)).expect("one reference");
    let published = other.publish(&graph()).expect("its network");
    let offer = Service::<u32>::new(&published)
        .expect("published")
        .offer()
        .expect("a key");
    let refused = Client::<u32>::new(&offer, scene.owner.party(), &seed(2));
    assert!(matches!(refused.err(), Some(RoleError::OtherOwner { .. })));
    let client = Client::<u32>::new(&offer, other.party(), &seed(2)).expect("its owner");
    let pair = scene.owner.pair(scene.client.party()).expect("introduced");
    let refused = scene
        .service
        .join(&client.join().expect("randomness"), &pair);
    assert!(matches!(
        refused,
        Err(RoleError::Message {
            what: "public keys",
            ..
        })
    ));
    let refused = scene.service.join(&vec![0; 1 << 30], &pair);
    assert!(matches!(
        refused,
        Err(RoleError::Message {
            what: "public keys",
            ..
        })
    ));
    let refused = scene.service.evaluate(Party([7; 32]), &[]);
    assert!(matches!(
        refused,
        Err(RoleError::MultiKey(MultiKeyError::NoKeys { .. }))
    ));
    let mut ring = EncryptionRing::new(scene.terms.setting.common());
    let key = SecretKey::generate(strange.setting.common(), &seed(3));
    assert!(ring.insert(key.encryption().clone()).is_err());
}

/// A change of a description, and words of the refusal.
type Change<'a> = (&'a dyn Fn(&mut Description), &'a str);

/// Descriptions come from anyone: none makes a party panic, or take memory without bound.
#[test]
fn hostile_descriptions_are_refused() {
    let good = (*terms(4).description).clone();
    let refused = |change: &dyn Fn(&mut Description)| {
        let mut description = good.clone();
        change(&mut description);
        Terms::<u32>::new(description)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(refused(&|_| ()), None);
    let changes: [Change; 18] = [
        (&|x| x.face.input = vec![7], "input 0"),
        (&|x| x.face.output = vec![usize::MAX, 2], "linear 3"),
        (
            &|x| x.face.finish = vec![Finish::Softmax; 9],
            "operations on the result",
        ),
        (&|x| x.chain.level.clear(), "no valid primes of a level"),
        (&|x| x.chain.base.clear(), "no valid primes of the result"),
        (&|x| x.chain.special.clear(), "no valid special primes"),
        (&|x| x.chain.levels = 2, "scales of its levels"),
        (
            &|x| {
                x.chain.levels = 2;
                x.chain.weight_logs.truncate(2);
            },
            "levels of the chain",
        ),
        (&|x| x.chain.levels = usize::MAX, "primes"),
        (&|x| x.chain.degree = 4096, "128"),
        (&|x| x.chain.scale_log = 2000, "scales of its levels"),
        (
            &|x| x.chain.weight_logs[1] = 30,
            "scale of values where they meet",
        ),
        (&|x| x.bounds.nodes.truncate(1), "bounds of nodes"),
        (
            &|x| x.bounds.nodes[2].slots = f64::NAN,
            "bound of the network",
        ),
        (&|x| x.bounds.sensitivity = -1.0, "bound of the network"),
        (
            &|x| x.network.nodes[1].elements = usize::MAX,
            "elements of all values",
        ),
        (&|x| x.network.nodes[2].inputs = vec![2], "square 2"),
        (&|x| x.network.output = 9, "multiplies nothing"),
    ];
    for (change, says) in changes {
        let found = refused(change).expect("refused");
        assert!(found.contains(says), "{found}");
    }
    // A thousand values, each of which reads the one before twice.
    for op in [Op::Add, Op::Rearrange(vec![None; 6])] {
        let found = refused(&|x| {
            let rest = x.network.nodes.split_off(1);
            for index in 0..900 {
                x.network.nodes.push(Node {
                    name: String::new(),
                    op: op.clone(),
                    inputs: vec![index; 2],
                    elements: 6,
                });
            }
            for mut node in rest {
                node.inputs.iter_mut().for_each(|input| *input += 900);
                x.network.nodes.push(node);
            }
            x.network.output += 900;
        });
        assert!(found.is_some());
    }
    let geometry = |change: &dyn Fn(&mut ConvGeometry)| {
        refused(&|x| {
            if let Op::Linear { geometry, .. } = &mut x.network.nodes[1].op {
                change(geometry);
            }
        })
    };
    assert!(geometry(&|x| x.in_channels = 1 << 40).is_some());
    assert!(geometry(&|x| x.window.kernel = [1 << 24; 2]).is_some());
    assert!(geometry(&|x| x.groups = 0).is_some());
}

#[test]
fn no_message_has_a_name_of_the_models_file() {
    let mut scene = Scene::new(4);
    let published = scene.owner.publish(&graph()).expect("its network");
    let offer = scene.service.offer().expect("the owner's key");
    let outcome = scene.outcome(&IMAGE);
    for message in [published, offer, outcome] {
        assert!(!message.windows(NAME.len()).any(|x| x == NAME.as_bytes()));
    }
    let error = Terms::<u32>::new(Description {
        results: 0,
        ..(*scene.terms.description).clone()
    });
    assert!(error.is_err_and(|error| !error.to_string().contains(NAME)));
}

/// A client or an owner that goes away after any message leaves the others able to go on.
#[test]
fn a_party_that_vanishes_stops_nobody_else() {
    let mut scene = Scene::new(8);
    for is_answered in [false, true] {
        let outcome = scene.outcome(&IMAGE);
        if is_answered {
            scene.answer(&outcome).expect("once");
        }
    }
    assert_eq!(scene.owner.results_left(), 7);
    // Another client, and the first one with its keys made again.
    let offer = scene.service.offer().expect("the owner's key");
    for number in [5, 2] {
        let client = Client::new(&offer, scene.owner.party(), &seed(number)).expect("an offer");
        scene.client = client;
        join(&mut scene.owner, &mut scene.service, &scene.client);
        scene.predicts(&IMAGE);
    }
}

#[test]
fn messages_out_of_turn_and_damaged_ones_are_refused() {
    let mut scene = Scene::new(8);
    assert!(matches!(
        scene.client.finish(&[], &[]),
        Err(RoleError::Turn { .. })
    ));
    let outcome = scene.outcome(&IMAGE);
    for cut in [0, 1, 40, outcome.len() - 1] {
        assert!(scene.answer(&outcome[..cut]).is_err());
    }
    let longer = [&outcome[..], &[0]].concat();
    assert!(matches!(
        scene.answer(&longer),
        Err(RoleError::Message { .. })
    ));
    assert_eq!(scene.owner.results_left(), 8);
    let answer = scene.answer(&outcome).expect("once");
    for at in [0, 40, answer.len() / 2] {
        let outcome = scene.outcome(&IMAGE);
        let mut changed = scene.answer(&outcome).expect("once");
        changed[at] ^= 1;
        assert!(scene.client.finish(&outcome, &changed).is_err());
        // The request is given up.
        assert!(matches!(
            scene.client.finish(&outcome, &answer),
            Err(RoleError::Turn { .. })
        ));
    }
    scene.predicts(&IMAGE);
}

/// What is said of bytes before holds: of keys to the byte, of all else but for the lengths of
/// messages' parts.
#[test]
fn a_summary_has_the_bytes_of_messages() {
    let mut scene = Scene::new(4);
    let summary = scene.terms.summary().expect("terms that were made");
    let published = scene.owner.publish(&graph()).expect("its network");
    let keys = scene.client.join().expect("randomness");
    assert_eq!(keys.len(), summary.keys[0]);
    assert!(keys.len() <= scene.terms.most_key_bytes());
    let pair = scene.owner.pair(scene.client.party()).expect("introduced");
    assert_eq!(pair.len(), summary.pair);
    assert!(scene.client.introduction().len() <= scene.terms.most_message_bytes());
    let about = |found: usize, said: usize| assert!(found.abs_diff(said) < 2048, "{found} {said}");
    about(published.len(), summary.keys[1] + summary.model);
    let request = scene.client.request(&IMAGE).expect("in range");
    about(request.len(), summary.image);
    let outcome = scene.outcome(&IMAGE);
    about(outcome.len(), summary.outcome);
    let answer = scene.answer(&outcome).expect("once");
    about(answer.len(), summary.answer);
    let most = scene.terms.most_message_bytes();
    let longest = [&request, &outcome, &answer].map(Vec::len);
    assert!(longest.iter().all(|&length| length <= most));
    assert_eq!(summary.levels, 3);
    assert!(summary.security.is_some() && summary.error < 2f64.powi(-8));
}

#[test]
fn all_roles_in_one_process_compute_the_network() {
    let mut local = Local::new(&terms(2), &graph()).expect("its network");
    for image in [IMAGE, [0.0; 6]] {
        check(&local.predict(&image).expect("in range"), &image);
    }
    assert!(local.predict(&IMAGE).is_err());
}

/// A client's keys that are as long as they should be, and false: it gets nonsense, and others
/// their
/// results. Without a key of the pair, or with another client's, there is no result.
#[test]
fn a_client_with_false_keys_harms_itself_alone() {
    let mut scene = Scene::new(8);
    let offer = scene.service.offer().expect("the owner's key");
    let mut other = Client::<u32>::new(&offer, scene.owner.party(), &seed(7)).expect("an offer");
    scene.owner.admit([scene.client.party(), other.party()]);
    scene
        .owner
        .introduce(&other.introduction())
        .expect("admitted");
    let keys = other.join().expect("randomness");
    let pair = scene.owner.pair(other.party()).expect("introduced");
    let of_first = scene.owner.pair(scene.client.party()).expect("introduced");
    let refused = scene.service.join(&keys, &of_first);
    assert!(matches!(refused, Err(RoleError::OtherParties { .. })));
    let damaged = scene.service.join(&keys, &pair[..pair.len() - 1]);
    assert!(matches!(damaged, Err(RoleError::Message { .. })));
    let request = other.request(&IMAGE).expect("in range");
    assert!(scene.service.evaluate(other.party(), &request).is_err());
    // Zeros behind the encryption key, for which the name stands, and the head of the others.
    let start = other.introduction().len() + 1024;
    let false_keys = [&keys[..start], &vec![0; keys.len() - start]].concat();
    let joined = scene.service.join(&false_keys, &pair);
    assert_eq!(joined.expect("words below the primes"), other.party());
    let outcome = scene
        .service
        .evaluate(other.party(), &request)
        .expect("joined");
    let answer = scene.answer(&outcome).expect("once");
    let found = other.finish(&outcome, &answer).expect("complete");
    let wanted = graph().evaluate(&IMAGE);
    assert!(found.iter().zip(&wanted).any(|(x, y)| (x - y).abs() > 1.0));
    scene.predicts(&IMAGE);
}

#[test]
fn results_of_a_key_are_counted() {
    let mut scene = Scene::new(1);
    scene.predicts(&IMAGE);
    let second = scene.outcome(&IMAGE);
    assert!(matches!(
        scene.answer(&second),
        Err(RoleError::MultiKey(MultiKeyError::Budget { results: 1 }))
    ));
}

/// A cloud that shows a client another range, error or architecture than the owner's has no key of
/// the owner's name under it: neither the owner's own nor one of its making.
#[test]
fn a_false_description_has_another_name() {
    let scene = Scene::new(4);
    let offer = scene.service.offer().expect("the owner's key");
    let offered = |bytes: &[u8]| Client::<u32>::new(bytes, scene.owner.party(), &seed(2)).err();
    assert!(offered(&offer).is_none());
    let (description, key): (Vec<u8>, Vec<u8>) = postcard::from_bytes(&offer).expect("an offer");
    let changes: [fn(&mut Description); 5] = [
        |x| x.results += 1,
        |x| x.nonce[0] ^= 1,
        |x| x.chain.scale_log -= 1,
        |x| x.face.finish.push(Finish::ArgMax),
        |x| {
            if let Op::Input { reach, low } = &mut x.network.nodes[0].op {
                *reach *= 0.5;
                *low *= 0.5;
            }
        },
    ];
    for change in changes {
        let mut other: Description = postcard::from_bytes(&description).expect("a description");
        change(&mut other);
        let bytes = postcard::to_stdvec(&other).expect("a vector takes it");
        let false_offer = postcard::to_stdvec(&(&bytes, &key)).expect("a vector takes it");
        let error = offered(&false_offer).expect("refused");
        assert!(
            matches!(error, RoleError::MultiKey(MultiKeyError::Common)),
            "{error}"
        );
        // The cloud's own key under what it shows.
        let terms = Terms::<u32>::new(other).expect("parameters");
        let secret = SecretKey::generate(terms.setting.common(), &seed(9));
        let mut own = Vec::new();
        secret.encryption().encode(&mut own);
        let false_offer = postcard::to_stdvec(&(&bytes, &own)).expect("a vector takes it");
        let error = offered(&false_offer).expect("refused");
        assert!(matches!(error, RoleError::OtherOwner { .. }), "{error}");
    }
    // Two models of one architecture have two references.
    let aim = Aim {
        error: 2f64.powi(-8),
        results: 4,
    };
    let other = Terms::<u32>::choose(&graph(), aim, [4; 32]).expect("a shallow network");
    assert_ne!(
        other.setting.common().id(),
        scene.terms.setting.common().id()
    );
}
