//! Honest and false keys, on both sides.

use std::sync::{Arc, Mutex};

use pronghorn_he::{
    ckks::{self, Parameters, PublicKey},
    rns::slices,
};
use pronghorn_plan::{BuildOptions, Built, StepKind, planner::schedule::Passes};
use pronghorn_ring::test_seed::TestSeeds;

use super::{
    client::{ClientKeys, KeysClient},
    server::ServerKeys,
    *,
};
use crate::{
    connection::{Connection, Connections, Kept},
    encrypted::{keys::EncryptedKeySets, tests::built_with},
    exchange::tests::{assert_table, names},
    machine::{Machine, Want},
    protocol::Prelude,
};

#[test]
fn the_table_lists_the_messages() {
    let shape = Shape {
        levels: 6,
        key_bytes: 5 << 20,
        kept: true,
    };
    assert_table(include_str!("mod.rs"), names(&shape.messages()));
}

/// A plan of an encrypted network with so many sets of keys.
fn built(key_checks: usize) -> Built {
    let passes = Passes {
        lazy_relinearisation: false,
        ..Passes::default()
    };
    built_with(BuildOptions {
        passes,
        key_checks,
        ..BuildOptions::default()
    })
}

/// Keys that are bytes of a generator. One seed has other keys.
struct Mock<const KEPT: bool, const CHECKED: bool = true> {
    plan: CheckedPlan,
    cheat: Mutex<Option<[u8; 32]>>,
}

impl<const KEPT: bool, const CHECKED: bool> Mock<KEPT, CHECKED> {
    fn new(plan: &CheckedPlan) -> Arc<Self> {
        Arc::new(Self {
            plan: plan.clone(),
            cheat: Mutex::default(),
        })
    }
}

impl<const KEPT: bool, const CHECKED: bool> KeySets for Mock<KEPT, CHECKED> {
    type Client = [u8; 32];
    type Server = Vec<u8>;

    const KEPT: bool = KEPT;
    const CHECKED: bool = CHECKED;

    fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    fn bytes(&self) -> usize {
        100
    }

    fn encode(&self, seed: &Seed, out: &mut dyn FnMut(&[u8])) -> Result<(), EngineError> {
        let mut bytes = [0; 100];
        if *self.cheat.lock().unwrap() != Some(*seed.as_bytes()) {
            Prg::new(seed, "pronghorn test keys")
                .stream(0)
                .fill(&mut bytes);
        }
        out(&bytes);
        Ok(())
    }

    fn client(&self, seed: &Seed) -> [u8; 32] {
        *seed.as_bytes()
    }

    fn server(&self, bytes: &[u8]) -> Result<Vec<u8>, EngineError> {
        Ok(bytes.to_vec())
    }
}

/// A client of real keys, in one set of which bytes are changed.
struct Cheat {
    sets: EncryptedKeySets<u32>,
    cheat: Mutex<Option<[u8; 32]>>,
    change: fn(&EncryptedKeySets<u32>, &mut [u8]),
}

impl KeySets for Cheat {
    type Client = <EncryptedKeySets<u32> as KeySets>::Client;
    type Server = <EncryptedKeySets<u32> as KeySets>::Server;

    const KEPT: bool = false;
    const CHECKED: bool = true;

    fn plan(&self) -> &CheckedPlan {
        self.sets.plan()
    }

    fn bytes(&self) -> usize {
        self.sets.bytes()
    }

    fn encode(&self, seed: &Seed, out: &mut dyn FnMut(&[u8])) -> Result<(), EngineError> {
        let mut bytes = Vec::new();
        self.sets
            .encode(seed, &mut |part| bytes.extend_from_slice(part))?;
        if *self.cheat.lock().unwrap() == Some(*seed.as_bytes()) {
            (self.change)(&self.sets, &mut bytes);
        }
        out(&bytes);
        Ok(())
    }

    fn client(&self, seed: &Seed) -> Self::Client {
        self.sets.client(seed)
    }

    fn server(&self, bytes: &[u8]) -> Result<Self::Server, EngineError> {
        self.sets.server(bytes)
    }
}

/// Runs both machines to their end; the messages of each party.
fn run(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
) -> Result<[usize; 2], EngineError> {
    let mut counts = [0; 2];
    let mut message = Vec::new();
    loop {
        message.clear();
        match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => {
                client.send(&mut message)?;
                server.receive(&message)?;
                counts[0] += 1;
            }
            (Want::Receive, Want::Send) => {
                server.send(&mut message)?;
                client.receive(&message)?;
                counts[1] += 1;
            }
            (Want::Done, Want::Done) => return Ok(counts),
            other => panic!("stuck: {other:?}"),
        }
    }
}

/// A cut between preludes; the messages of each party, none where the connection has keys.
fn cut<S: KeySets>(
    client: (&Arc<S>, &Connection),
    server: (&Arc<S>, &Connection),
) -> Result<Option<[usize; 2]>, EngineError> {
    let ours = ClientKeys(client.0.clone()).start(client.1, 1)?;
    let theirs = ServerKeys(server.0.clone()).start(server.1, 1)?;
    match (ours, theirs) {
        (None, None) => Ok(None),
        (Some(mut ours), Some(mut theirs)) => run(ours.as_mut(), theirs.as_mut()).map(Some),
        _ => panic!("one party has keys"),
    }
}

#[test]
fn both_parties_have_the_keys_of_one_seed() {
    for key_checks in [1, 2, 16, 256] {
        let plan = built(key_checks).plan;
        let sets = Mock::<false>::new(&plan);
        let [ours, theirs] = [(); 2].map(|()| Connection::default());
        let groups = key_checks.div_ceil(GROUP);
        let counts = cut((&sets, &ours), (&sets, &theirs)).expect("honest parties");
        // The opening, commitments, the keys; the challenge and the choice.
        let all = [1 + groups + 1, 2];
        assert_eq!(counts, Some(if key_checks == 1 { [1, 0] } else { all }));
        let secret = ours.kept::<Kept<Arc<[u8; 32]>>>().get().expect("keys");
        let public = theirs.kept::<Kept<Arc<Vec<u8>>>>().get().expect("keys");
        let mut expected = Vec::new();
        let seed = Seed::from_bytes(*secret);
        let encoded = sets.encode(&seed, &mut |part| expected.extend_from_slice(part));
        encoded.expect("a mock");
        assert_eq!(*public, expected);
    }
}

/// Keys that tell nothing are not checked, whatever the plan says: the digest, the wish, the keys.
#[test]
fn keys_without_a_check_are_sent_at_once() {
    let sets = Mock::<true, false>::new(&built(16).plan);
    let server = Connections::default();
    let ours = Connection::default();
    let counts = cut((&sets, &ours), (&sets, &server.connect())).expect("honest parties");
    assert_eq!(counts, Some([2, 1]));
    let seed = ours.kept::<Kept<KeptSeed>>().get().expect("there is one");
    let again = Connection::default();
    again.kept::<Kept<KeptSeed>>().put_for(seed, 5);
    let counts = cut((&sets, &again), (&sets, &server.connect())).expect("honest parties");
    assert_eq!(counts, Some([1, 1]));
}

/// A set of keys ends for both parties after the same batch.
#[test]
fn keys_serve_so_many_batches() {
    let sets = Mock::<true>::new(&built(2).plan);
    let [ours, theirs] = [(); 2].map(|()| Connection::default());
    let mut cuts = 0;
    for batch in 0..2 * BATCHES + 1 {
        let counts = cut((&sets, &ours), (&sets, &theirs)).expect("honest parties");
        assert_eq!(counts.is_some(), batch % BATCHES == 0, "batch {batch}");
        cuts += usize::from(counts.is_some());
    }
    assert_eq!(cuts, 3);
}

/// A client with its seed needs no second cut: not where the server has its keys, and not where it
/// has lost them. A server that has never checked them wants others.
#[test]
fn checked_keys_are_not_checked_again() {
    let sets = Mock::<true>::new(&built(16).plan);
    let server = Connections::default();
    let ours = Connection::default();
    let seed_of = |connection: &Connection| {
        let seed = connection.kept::<Kept<KeptSeed>>().get();
        *seed.expect("there is one").0.as_bytes()
    };
    let again = |seed: [u8; 32]| {
        let connection = Connection::default();
        let seed = KeptSeed(Arc::new(Seed::from_bytes(seed)));
        connection.kept::<Kept<KeptSeed>>().put_for(seed, 5);
        connection
    };
    let first = cut((&sets, &ours), (&sets, &server.connect())).expect("honest parties");
    assert_eq!(first, Some([1 + 1 + 2 + 1, 3]));
    let seed = seed_of(&ours);
    let second = again(seed);
    let counts = cut((&sets, &second), (&sets, &server.connect())).expect("honest parties");
    assert_eq!(counts, Some([1, 1]));
    assert_eq!(second.kept::<Kept<KeptSeed>>().left(), 4);
    // Another client's keys take all the room.
    let cache: KeyCache<Vec<u8>> = server.connect().shared();
    cache.put([1; 16], [1; 32], 300 << 20, Arc::new(Vec::new()));
    cache.put([0; 16], [2; 32], 256 << 20, Arc::new(Vec::new()));
    let third = again(seed);
    let counts = cut((&sets, &third), (&sets, &server.connect())).expect("honest parties");
    assert_eq!(counts, Some([2, 1]));
    assert_eq!(seed_of(&third), seed);
    // The server is another.
    let fourth = again(seed);
    let counts = cut((&sets, &fourth), (&sets, &Connection::default())).expect("honest parties");
    assert_eq!(counts, Some([1 + 1 + 2 + 1, 3]));
    assert_ne!(seed_of(&fourth), seed);
}

/// A server that names a set whose seed it has: the client would use keys of which the server has
/// the secret.
#[test]
fn a_server_cannot_choose_a_set_that_it_opened() {
    for key_checks in [2usize, 16] {
        let sets = Mock::<true>::new(&built(key_checks).plan);
        for other in [1, key_checks - 1, key_checks] {
            let [ours, theirs] = [(); 2].map(|()| Connection::default());
            let client = ClientKeys(sets.clone())
                .start(&ours, 1)
                .expect("randomness");
            let server = ServerKeys(sets.clone())
                .start(&theirs, 1)
                .expect("randomness");
            let (mut client, mut server) = (client.expect("no keys"), server.expect("no keys"));
            let mut message = Vec::new();
            let refused = loop {
                message.clear();
                if client.want() == Want::Send {
                    client.send(&mut message).expect("its turn");
                    server.receive(&message).expect("honest messages");
                    continue;
                }
                server.send(&mut message).expect("its turn");
                let is_choice = message.len() == 1 + DIGEST;
                if is_choice {
                    message[0] ^= other as u8;
                }
                let received = client.receive(&message);
                if is_choice {
                    break received.expect_err("the server has that seed");
                }
                received.expect("honest messages");
            };
            assert!(
                refused.to_string().contains("whose secret it has"),
                "{refused}"
            );
            assert!(!ours.kept::<Kept<KeptSeed>>().is_some());
        }
    }
}

/// A challenge that is none is refused when it comes, and not when its answer is due.
#[test]
fn a_malformed_challenge_is_refused_at_once() {
    let sets = Mock::<false>::new(&built(4).plan);
    let client = ClientKeys(sets).start(&Connection::default(), 1);
    let mut client = client.expect("randomness").expect("no keys");
    while client.want() == Want::Send {
        client.send(&mut Vec::new()).expect("its turn");
    }
    let refused = client.receive(&vec![0xff; client.max_incoming()]);
    assert!(matches!(refused, Err(EngineError::Ot { .. })));
}

/// A client that claims more for its seed than it has: the server counts over connections, and then
/// wants new keys.
#[test]
fn uses_add_up_over_connections() {
    let sets = Mock::<true>::new(&built(2).plan);
    let server = Connections::default();
    let ours = Connection::default();
    let all = Some([1 + 1 + 1 + 1, 3]);
    let first = cut((&sets, &ours), (&sets, &server.connect())).expect("honest parties");
    assert_eq!(first, all);
    let seed = ours.kept::<Kept<KeptSeed>>().get().expect("there is one");
    for batch in 1..=BATCHES {
        let again = Connection::default();
        let kept = again.kept::<Kept<KeptSeed>>();
        kept.put_for(seed.clone(), usize::MAX);
        let counts = cut((&sets, &again), (&sets, &server.connect())).expect("honest parties");
        let is_new = batch == BATCHES;
        assert_eq!(counts, if is_new { all } else { Some([1, 1]) }, "{batch}");
        let found = kept.get().expect("there is one");
        assert_eq!(found.0.as_bytes() != seed.0.as_bytes(), is_new);
    }
}

/// As many as their reason allows, and floods last for these.
#[test]
fn batches_take_what_floods_say() {
    let plan = built(2).plan;
    assert_eq!(most_batches(&plan), BATCHES);
    assert!(plan.flood().expect("it floods").count as usize >= BATCHES);
}

/// One false set of `2^levels`: accepted as often as it is the one that is left, and never else.
#[test]
fn a_false_set_passes_once_in_as_many_as_there_are() {
    let mut seeds = TestSeeds::new("a false set");
    for key_checks in [2, 8] {
        let plan = built(key_checks).plan;
        let (tries, mut passed) = (400, 0);
        for index in 0..tries {
            let (cheat, honest) = (Mock::<false>::new(&plan), Mock::<false>::new(&plan));
            let [ours, theirs] = [(); 2].map(|()| Connection::default());
            let outcome = seeds.during(|| {
                let client = KeysClient::new(cheat.clone(), &ours).expect("randomness");
                *cheat.cheat.lock().unwrap() = Some(client.strings[index % key_checks]);
                let server = ServerKeys(honest).start(&theirs, 1).expect("randomness");
                run(
                    &mut client.exchange(),
                    server.expect("it has no keys").as_mut(),
                )
            });
            match outcome {
                Ok(_) => {
                    let keys = theirs.kept::<Kept<Arc<Vec<u8>>>>().get();
                    assert_eq!(*keys.expect("keys"), [0; 100], "the false ones passed");
                    passed += 1;
                }
                Err(error) => assert!(matches!(error, EngineError::FalseKeys), "{error}"),
            }
        }
        let (mean, variance) = (
            tries as f64 / key_checks as f64,
            tries as f64 / key_checks as f64 * (1.0 - 1.0 / key_checks as f64),
        );
        let distance = (passed as f64 - mean).abs() / variance.sqrt();
        assert!(distance < 5.0, "{passed} of {tries} with {key_checks} sets");
    }
}

/// A cheat that answers the transfers with sums of no one tree is caught, too, and learns nothing
/// before that: the server says nothing in between.
#[test]
fn inconsistent_openings_are_refused() {
    let plan = built(16).plan;
    let sets = Mock::<false>::new(&plan);
    let (mut refused, mut seeds) = (0, TestSeeds::new("inconsistent openings"));
    for index in 0..32 {
        let [ours, theirs] = [(); 2].map(|()| Connection::default());
        let outcome = seeds.during(|| {
            let client = KeysClient::new(sets.clone(), &ours).expect("randomness");
            let (mut client, mut message) = (client.exchange(), Vec::new());
            let server = ServerKeys(sets.clone())
                .start(&theirs, 1)
                .expect("randomness");
            let mut server = server.expect("it has no keys");
            server.send(&mut message).expect("its challenge");
            client.receive(&message).expect("an honest challenge");
            message.clear();
            client.send(&mut message).expect("its opening");
            // A sum of one level and side, of 4.
            let place = message.len() - 64 * (1 + index % 4) + 32 * (index / 4 % 2);
            message[place] ^= 1;
            server.receive(&message).expect("of its length");
            run(&mut client, server.as_mut())
        });
        match outcome {
            Ok(_) => {}
            Err(EngineError::FalseKeys) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    // The server takes one of two sums.
    assert!((8..=24).contains(&refused), "{refused} of 32");
}

#[test]
fn another_version_is_no_cheat() {
    let sets = Mock::<false>::new(&built(4).plan);
    let [ours, theirs] = [(); 2].map(|()| Connection::default());
    let client = KeysClient::new(sets.clone(), &ours).expect("randomness");
    let (mut client, mut message) = (client.exchange(), Vec::new());
    let server = ServerKeys(sets).start(&theirs, 1).expect("randomness");
    let mut server = server.expect("it has no keys");
    server.send(&mut message).expect("its challenge");
    client.receive(&message).expect("an honest challenge");
    message.clear();
    client.send(&mut message).expect("its opening");
    message[0] ^= 1;
    let error = server.receive(&message).expect_err("another version");
    assert!(matches!(error, EngineError::Unsupported { .. }), "{error}");
}

/// Keys other than those of the commitment, at the very end.
#[test]
fn other_keys_than_those_left_are_refused() {
    let sets = Mock::<false>::new(&built(4).plan);
    let [ours, theirs] = [(); 2].map(|()| Connection::default());
    let client = KeysClient::new(sets.clone(), &ours).expect("randomness");
    let server = ServerKeys(sets).start(&theirs, 1).expect("randomness");
    let (mut client, mut server) = (client.exchange(), server.expect("it has no keys"));
    let (mut message, mut server_said) = (Vec::new(), 0);
    let error = loop {
        message.clear();
        if client.want() == Want::Receive {
            server.send(&mut message).expect("its turn");
            client.receive(&message).expect("honest");
            server_said += 1;
            continue;
        }
        client.send(&mut message).expect("its turn");
        if server_said == 2 {
            message[50] ^= 1;
        }
        if let Err(error) = server.receive(&message) {
            break error;
        }
    };
    assert!(matches!(error, EngineError::FalseKeys), "{error}");
}

/// The bytes of a set with a public key `b = round(Q / 3)` of its flood limbs.
fn false_public_key(sets: &EncryptedKeySets<u32>, bytes: &mut [u8]) {
    let (parameters, limbs) = (sets.parameters(), sets.flood_limbs());
    let mut packed = Vec::new();
    ckks::wire::pack(parameters, limbs, &third(parameters, limbs), &mut packed);
    bytes[32..][..packed.len()].copy_from_slice(&packed);
}

/// `round(Q / 3)` for the first primes, a constant polynomial: one residue a limb, in the NTT
/// domain too.
fn third(parameters: &Parameters<u32>, limbs: usize) -> Vec<u32> {
    let primes: Vec<u64> = parameters
        .basis()
        .primes()
        .take(limbs)
        .map(|q| q.value())
        .collect();
    // 3 x = Q - (Q mod 3) up to rounding; Q is 0 modulo each prime.
    let remainder = primes.iter().fold(1, |product, q| product * (q % 3) % 3);
    let residues = parameters.basis().primes().take(limbs).flat_map(|q| {
        let p = q.value();
        let inverse = q.pow(3, p - 2);
        // Rounds down for 1 and up for 2.
        let up = if remainder == 2 { 1 } else { 0 };
        let numerator = (p + up * 3 - remainder) % p;
        let word = q.mul(numerator as u32, inverse);
        vec![word; parameters.n()]
    });
    residues.collect()
}

/// The outcome of a cut with a real set that is changed, and the server's keys.
fn cheated(
    key_checks: usize,
    which: usize,
    change: fn(&EncryptedKeySets<u32>, &mut [u8]),
) -> (Result<[usize; 2], EngineError>, Connection, Built) {
    let built = built(key_checks);
    let StepKind::Encrypted(plan) = &built.plan.steps[1].kind else {
        panic!("the step is encrypted")
    };
    let sets = || EncryptedKeySets::<u32>::new(&built.plan, plan).expect("a valid plan");
    let cheat = Arc::new(Cheat {
        sets: sets(),
        cheat: Mutex::default(),
        change,
    });
    let [ours, theirs] = [(); 2].map(|()| Connection::default());
    let outcome = TestSeeds::new("a false real set").during(|| {
        let client = KeysClient::new(cheat.clone(), &ours).expect("randomness");
        *cheat.cheat.lock().unwrap() = Some(client.strings[which]);
        let server = ServerKeys(Arc::new(sets()))
            .start(&theirs, 1)
            .expect("randomness");
        run(
            &mut client.exchange(),
            server.expect("it has no keys").as_mut(),
        )
    });
    (outcome, theirs, built)
}

/// The attack of the privacy review: one answer under a false public key gives the weights of a
/// layer. Without a check the server takes the key, and its own mask is taken off. With a check it
/// refuses the key.
#[test]
fn a_false_public_key_gives_weights_unless_it_is_checked() {
    let (outcome, theirs, built) = cheated(1, 0, false_public_key);
    outcome.expect("nothing is checked");
    let keys = theirs.kept::<Kept<Arc<<Cheat as KeySets>::Server>>>().get();
    let keys = keys.expect("it has the keys");
    let StepKind::Encrypted(plan) = &built.plan.steps[1].kind else {
        panic!("the step is encrypted")
    };
    let parameters = keys.public.parameters();
    let weights = [23, -107];
    assert_eq!(
        weights_behind(&keys.public, plan.flood_log, weights),
        Some(weights)
    );
    // Behind an honest key the mask stays on.
    let sets = EncryptedKeySets::<u32>::new(&built.plan, plan).expect("a valid plan");
    let mut bytes = Vec::new();
    let seed = Seed::from_bytes([3; 32]);
    sets.encode(&seed, &mut |part| bytes.extend_from_slice(part))
        .expect("honest keys");
    let honest = sets.server(&bytes).expect("honest keys");
    assert_eq!(honest.public.parameters().hash(), parameters.hash());
    assert_eq!(
        weights_behind(&honest.public, plan.flood_log, weights),
        None
    );

    let (outcome, theirs, _) = cheated(16, 5, false_public_key);
    assert!(matches!(outcome, Err(EngineError::FalseKeys)));
    assert!(
        !theirs
            .kept::<Kept<Arc<<Cheat as KeySets>::Server>>>()
            .is_some()
    );
}

/// A relinearisation key with one word changed, the last one of the set.
#[test]
fn a_false_evaluation_key_is_refused() {
    let change = |_: &EncryptedKeySets<u32>, bytes: &mut [u8]| {
        let last = bytes.len() - 8;
        bytes[last] ^= 1;
    };
    let (outcome, ..) = cheated(1, 0, change);
    outcome.expect("nothing is checked");
    let (outcome, ..) = cheated(16, 5, change);
    assert!(matches!(outcome, Err(EngineError::FalseKeys)));
}

/// Hides the layer `w_0 a_0 + w_1 a_1` of ciphertexts `(0, a_i)` as an encrypted network does, and
/// searches for its weights as a client whose secret is zero.
fn weights_behind(public: &PublicKey<u32>, flood_log: u32, weights: [i64; 2]) -> Option<[i64; 2]> {
    let (parameters, limbs) = (public.parameters(), public.limbs());
    let (n, basis) = (parameters.n(), public.parameters().basis());
    let uniform = ckks::uniform_generator(&[8; 32]);
    let a = [0, 1].map(|number| {
        let mut a = vec![0u32; limbs * n];
        ckks::expand_uniform(parameters, &uniform, number, &mut a);
        a
    });
    let times = |x: &[u32], factor: i64, limb: usize, place: usize| {
        let q = basis.prime(limb);
        let factor = factor.rem_euclid(q.value() as i64) as u32;
        q.mul(x[limb * n + place], factor)
    };
    let mut words = vec![0u32; 2 * limbs * n];
    for limb in 0..limbs {
        for place in 0..n {
            let q = basis.prime(limb);
            let sum = q.add(
                times(&a[0], weights[0], limb, place),
                times(&a[1], weights[1], limb, place),
            );
            words[(limbs + limb) * n + place] = sum;
        }
    }
    let random = Prg::new(&Seed::from_bytes([4; 32]), "pronghorn test");
    let mut stream = random.stream(0);
    public
        .flood_words(limbs, &mut words, flood_log, &mut stream)
        .expect("it fits");
    // Down to one prime: the flood is then far below a third of it.
    let mut answer = vec![0u32; 2 * n];
    slices::rescale(parameters, limbs, limbs - 1, &words, &mut answer);
    let q = basis.prime(0);
    let mut first = answer[..n].to_vec();
    basis.ntt(0).inverse(&mut first);
    let thirds = |word: u32| (3 * u64::from(word) + q.value() / 2) / q.value() % 3;
    // `v` in the first limb of the whole modulus, to take `a v` off.
    let mut v: Vec<u32> = first
        .iter()
        .map(|&word| match thirds(word) {
            0 => 0,
            1 => 1,
            _ => q.word() - 1,
        })
        .collect();
    basis.ntt(0).forward(&mut v);
    let mut of_key = vec![0u32; n];
    let generator = ckks::uniform_generator(public.seed());
    ckks::expand_uniform(parameters, &generator, 0, &mut of_key);
    let mut rest = words[limbs * n..][..n].to_vec();
    for ((word, a), v) in rest.iter_mut().zip(of_key).zip(v) {
        *word = q.sub(*word, q.mul(a, v));
    }
    basis.ntt(0).inverse(&mut rest);
    let a = a.map(|a| {
        let mut a = a[..n].to_vec();
        basis.ntt(0).inverse(&mut a);
        a
    });
    // What is left is the layer and small errors.
    let is_small = |guess: [i64; 2]| {
        (0..12).all(|place| {
            let sum = q.add(
                times(&a[0], guess[0], 0, place),
                times(&a[1], guess[1], 0, place),
            );
            let error = q.sub(rest[place], sum);
            error.min(q.word() - error) < 1 << 10
        })
    };
    let guesses = (-128..128).flat_map(|x| (-128..128).map(move |y| [x, y]));
    let found: Vec<_> = guesses.filter(|&guess| is_small(guess)).collect();
    (found.len() == 1).then(|| found[0])
}
