//! Peers of `multi-key` that vanish at any message, lie, or ask for more: a clear error, nothing
//! learnt, and the others go on.

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::roles::*;
use pronghorn_he::multikey::{Party, SecretKey};
use pronghorn_multikey::{
    Aim,
    roles::{Client, Owner, Service, Terms},
};
use pronghorn_ring::random::Seed;
use pronghorn_session::{
    frame::{self, Kind, MAX_ERROR},
    message::{MAGIC, VERSION},
    multikey::{CloudError, CloudLimits, CloudOptions, Refusal},
};

/// Kinds of messages, as the documentation of the module has them.
const HELLO: u8 = 1;
const WANTED: u8 = 2;
const PUBLICATION: u8 = 3;
const KEYS: u8 = 4;
const READY: u8 = 5;
const OFFER: u8 = 6;
const INTRODUCTION: u8 = 7;
const REQUEST: u8 = 8;
const OUTCOME: u8 = 9;
const ANSWER: u8 = 10;
const ALIVE: u8 = 11;
const PAIR: u8 = 14;
const PAIR_KEY: u8 = 15;
const REFUSED: u8 = 12;

/// A peer that sends what a test wants.
struct Raw(TcpStream);

impl Raw {
    fn connect(cloud: &Cloud) -> Self {
        let stream = TcpStream::connect(cloud.server.local_addr()).expect("it listens");
        Self::new(stream)
    }

    fn new(stream: TcpStream) -> Self {
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("it is connected");
        Self(stream)
    }

    /// A frame that says that so many bytes follow.
    fn announce(&mut self, what: u8, length: u64, digest: [u8; 32]) {
        let header = [&[what][..], &length.to_le_bytes(), &digest].concat();
        frame::write_frame(&mut self.0, Kind::Role, &header).expect("it reads");
    }

    fn send(&mut self, what: u8, body: &[u8]) {
        self.announce(what, body.len() as u64, *blake3::hash(body).as_bytes());
        for part in body.chunks(1 << 20) {
            frame::write_frame(&mut self.0, Kind::Data, part).expect("it reads");
        }
    }

    /// The next message; none where the peer has closed or sent an error.
    fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let (mut header, mut body, mut part) = (Vec::new(), Vec::new(), Vec::new());
        let kinds = [(Kind::Role, 41), (Kind::Error, MAX_ERROR)];
        let kind = frame::read_frame(&mut self.0, &kinds, &mut header).ok()?;
        if kind == Kind::Error {
            return None;
        }
        let length = u64::from_le_bytes(header[1..9].try_into().expect("8 bytes"));
        while (body.len() as u64) < length {
            frame::read_frame(&mut self.0, &[(Kind::Data, 1 << 20)], &mut part).ok()?;
            body.extend_from_slice(&part);
        }
        assert_eq!(*blake3::hash(&body).as_bytes(), header[9..41]);
        Some((header[0], body))
    }

    fn expect(&mut self, what: u8) -> Vec<u8> {
        let (found, body) = self.receive().expect("a message");
        let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
        assert_eq!(found, what, "{text}");
        body
    }

    /// The category of a refusal.
    fn refused(&mut self) -> u8 {
        self.expect(REFUSED)[0]
    }

    fn hello(&mut self, role: u8, owner: Party, publication: &[u8]) {
        let mut hello = MAGIC.to_vec();
        hello.extend(VERSION.to_le_bytes());
        hello.push(role);
        hello.extend(owner.0);
        hello.extend(publication);
        self.send(HELLO, &hello);
    }
}

/// What a cloud without scruples has: the roles of the crate below, for this test's owner.
struct Puppet {
    service: Service<u32>,
    client: Client<u32>,
    owner: Party,
}

impl Puppet {
    fn outcome(&mut self) -> Vec<u8> {
        let request = self.client.request(&IMAGE).expect("in range");
        let party = self.client.party();
        self.service.evaluate(party, &request).expect("joined")
    }
}

/// An honest owner at a hostile cloud, which wants its publication or has it.
fn attending(scratch: &Scratch, wants: bool) -> (Raw, Attending) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("bound").to_string();
    let mut keys = owner(scratch, 4).expect("its keys");
    let (party, options) = (keys.party(), options());
    let cancel = options.cancel.clone();
    let attend = move || keys.attend(&graph(1), &address, &options, &|_| ());
    let attending = Attending {
        cancel,
        thread: Some(thread::spawn(attend)),
        party,
    };
    let (stream, _) = listener.accept().expect("the owner connects");
    let mut cloud = Raw::new(stream);
    cloud.expect(HELLO);
    cloud.send(
        WANTED,
        &[&[wants.into()][..], &u64::MAX.to_le_bytes()].concat(),
    );
    (cloud, attending)
}

/// An honest owner that attends at a hostile cloud, with a client that it admits.
fn attended(scratch: &Scratch) -> (Raw, Puppet, Attending) {
    let (mut cloud, attending) = attending(scratch, true);
    let party = attending.party;
    let mut service = Service::<u32>::new(&cloud.expect(PUBLICATION)).expect("a publication");
    cloud.send(READY, &[]);
    let offer = service.offer().expect("the owner's key");
    let client = Client::new(&offer, party, &Seed::from_bytes([2; 32])).expect("an offer");
    let (name, introduction) = (client.party(), client.introduction());
    for (what, body) in [(INTRODUCTION, &introduction[..]), (PAIR, &name.0)] {
        cloud.send(what, body);
        assert_eq!(cloud.refused(), Refusal::NotAdmitted as u8);
    }
    admit(scratch, name);
    // Admitted and not introduced.
    cloud.send(PAIR, &name.0);
    assert_eq!(cloud.refused(), Refusal::NotAdmitted as u8);
    cloud.send(INTRODUCTION, &introduction);
    cloud.expect(ALIVE);
    cloud.send(PAIR, &name.0);
    let pair = cloud.expect(PAIR_KEY);
    cloud.send(PAIR, &name.0[1..]);
    assert_eq!(cloud.refused(), Refusal::Owner as u8);
    let keys = client.join().expect("randomness");
    service.join(&keys, &pair).expect("public keys");
    let puppet = Puppet {
        service,
        client,
        owner: party,
    };
    (cloud, puppet, attending)
}

#[test]
fn an_owner_decrypts_once_and_nothing_else() {
    let scratch = Scratch::new();
    let (mut cloud, mut puppet, _attending) = attended(&scratch);
    let owner_refused = Refusal::Owner as u8;
    let outcome = puppet.outcome();
    // Once.
    cloud.send(OUTCOME, &outcome);
    cloud.expect(ANSWER);
    cloud.send(OUTCOME, &outcome);
    assert_eq!(cloud.refused(), owner_refused);
    // A stranger's outcome, and one that is cut short.
    let mut strange = outcome.clone();
    strange[3] ^= 1;
    cloud.send(OUTCOME, &strange);
    assert_eq!(
        cloud.refused(),
        owner_refused.min(Refusal::NotAdmitted as u8)
    );
    cloud.send(OUTCOME, &outcome[..outcome.len() / 2]);
    assert_eq!(cloud.refused(), owner_refused);
    // The owner is still there, and decrypts the next.
    let mut honest = Puppet {
        client: Client::new(
            &puppet.service.offer().expect("the owner's key"),
            puppet.owner,
            &Seed::from_bytes([2; 32]),
        )
        .expect("an offer"),
        ..puppet
    };
    let outcome = honest.outcome();
    cloud.send(OUTCOME, &outcome);
    let answer = cloud.expect(ANSWER);
    let found = honest.client.finish(&outcome, &answer);
    check(Ok(found.expect("complete")), &IMAGE);
    // A client that is struck off the list.
    let outcome = honest.outcome();
    std::fs::write(scratch.at("owner").join("clients"), "").expect("it is ours");
    cloud.send(OUTCOME, &outcome);
    assert_eq!(cloud.refused(), Refusal::NotAdmitted as u8);
}

/// An owner that a cloud asks for decryptions, is restarted in between, and asked again.
#[test]
fn a_second_request_is_refused_after_a_restart() {
    let scratch = Scratch::new();
    let (mut cloud, mut puppet, mut attending) = attended(&scratch);
    let outcome = puppet.outcome();
    cloud.send(OUTCOME, &outcome);
    cloud.expect(ANSWER);
    drop(cloud);
    attending.stop();
    let (mut cloud, puppet, _attending) = attended_again(&scratch, puppet);
    cloud.send(INTRODUCTION, &puppet.client.introduction());
    cloud.expect(ALIVE);
    cloud.send(OUTCOME, &outcome);
    assert_eq!(cloud.refused(), Refusal::Owner as u8);
}

/// The owner's next process.
fn attended_again(scratch: &Scratch, puppet: Puppet) -> (Raw, Puppet, Attending) {
    let (mut cloud, attending) = attending(scratch, false);
    cloud.send(READY, &[]);
    (cloud, puppet, attending)
}

/// A client that goes away after any of its messages, or within one.
#[test]
fn clients_that_vanish_stop_nobody_else() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let owner = Attending::start(&scratch, &cloud, 8, 1);
    for vanishes_after in 0..=5 {
        let mut raw = Raw::connect(&cloud);
        if vanishes_after == 0 {
            continue;
        }
        raw.hello(2, owner.party, &[]);
        let offer = raw.expect(OFFER);
        let seed = Seed::from_bytes([40 + vanishes_after; 32]);
        let mut client = Client::<u32>::new(&offer, owner.party, &seed).expect("an offer");
        admit(&scratch, client.party());
        if vanishes_after == 1 {
            continue;
        }
        raw.send(INTRODUCTION, &client.introduction());
        raw.expect(WANTED);
        let keys = client.join().expect("randomness");
        if vanishes_after == 2 {
            // Half of its keys.
            raw.announce(KEYS, keys.len() as u64, *blake3::hash(&keys).as_bytes());
            let half = &keys[..(keys.len() / 2).min(1 << 20)];
            frame::write_frame(&mut raw.0, Kind::Data, half).expect("it reads");
            continue;
        }
        raw.send(KEYS, &keys);
        raw.expect(READY);
        if vanishes_after == 3 {
            continue;
        }
        let request = client.request(&IMAGE).expect("in range");
        raw.send(REQUEST, &request);
        if vanishes_after == 4 {
            continue;
        }
        raw.expect(OUTCOME);
    }
    // Two went away behind their requests, and may have been answered.
    cloud.events.wait("left", 6);
    let mut honest = client(&scratch, &cloud, owner.party, "honest");
    for _ in 0..3 {
        check(honest.predict(&IMAGE), &IMAGE);
    }
}

/// An owner that goes away after any of its messages: its clients hear that it is away, and go on
/// once it is back.
#[test]
fn owners_that_vanish_are_away_until_they_are_back() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let mut attending = Attending::start(&scratch, &cloud, 64, 1);
    let party = attending.party;
    let mut asking = client(&scratch, &cloud, party, "client");
    attending.stop();
    let directory = scratch.at("owner");
    let read = |name: &str| std::fs::read(directory.join(name)).expect("the owner's file");
    let seed: [u8; 32] = read("owner.seed").try_into().expect("32 bytes");
    let description = postcard::from_bytes(&read("terms")).expect("a description");
    let terms = Terms::<u32>::new(description).expect("its own");
    let publication = &read("published")[..16];
    for vanishes_after in 0..3 {
        let mut owner = Owner::resume(&terms, &Seed::from_bytes(seed), &read("ledger"));
        let owner = owner.as_mut().expect("its ledger");
        let mut raw = Raw::connect(&cloud);
        raw.hello(1, party, publication);
        assert_eq!(raw.expect(WANTED)[0], 0);
        raw.expect(READY);
        cloud.events.wait("attended", 2 + 2 * vanishes_after);
        let vanishing = thread::scope(|scope| {
            let asked = scope.spawn(|| asking.predict(&IMAGE));
            if vanishes_after > 0 {
                let introduction = raw.expect(INTRODUCTION);
                if vanishes_after > 1 {
                    owner.admit([party_of(&terms, &introduction)]);
                    owner.introduce(&introduction).expect("admitted");
                    raw.send(ALIVE, &[]);
                    raw.expect(OUTCOME);
                }
            }
            drop(raw);
            asked.join().expect("no panic")
        });
        assert_eq!(
            refusal(vanishing.err()),
            Some(Refusal::Away),
            "{vanishes_after}"
        );
        let times = 3 + 2 * vanishes_after;
        let mut back = Attending::start(&scratch, &cloud, 64, times);
        check(asking.predict(&IMAGE), &IMAGE);
        back.stop();
    }
}

/// An owner whose line is dead and silent: whoever comes in its place is asked at once.
#[test]
fn owners_take_the_place_of_silent_ones() {
    let scratch = Scratch::new();
    // Longer than the client waits.
    let limits = CloudLimits {
        idle: Duration::from_secs(3600),
        ..CloudLimits::default()
    };
    let options = CloudOptions {
        limits,
        ..CloudOptions::default()
    };
    let cloud = Cloud::start(&scratch, options);
    let mut attending = Attending::start(&scratch, &cloud, 8, 1);
    let party = attending.party;
    let mut asking = client(&scratch, &cloud, party, "client");
    attending.stop();
    let publication = std::fs::read(scratch.at("owner").join("published")).expect("its name");
    let mut silent = Raw::connect(&cloud);
    silent.hello(1, party, &publication[..16]);
    silent.expect(WANTED);
    silent.expect(READY);
    let found = thread::scope(|scope| {
        let waiting = scope.spawn(|| asking.predict(&IMAGE));
        silent.expect(INTRODUCTION);
        attending = Attending::without_waiting(&scratch, &cloud, 8);
        waiting.join().expect("no panic")
    });
    check(found, &IMAGE);
}

fn party_of(terms: &Terms<u32>, introduction: &[u8]) -> Party {
    let mut ring = pronghorn_he::multikey::EncryptionRing::new(terms.setting.common());
    let key = pronghorn_he::ckks::PublicKey::decode(terms.setting.ring(), introduction);
    ring.insert(key.expect("a key")).expect("of these terms")
}

/// A cloud that goes away, answers with another message, or with a damaged one.
#[test]
fn clients_of_false_clouds_learn_nothing_wrong() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let owner = Attending::start(&scratch, &cloud, 4, 1);
    let mut honest = Raw::connect(&cloud);
    honest.hello(2, owner.party, &[]);
    let offer = honest.expect(OFFER);
    let seed = seed(&scratch, "client");
    let meet = |act: &(dyn Fn(&mut Raw) + Sync), party: Party| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("bound").to_string();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().expect("the client connects");
                let mut raw = Raw::new(stream);
                raw.expect(HELLO);
                act(&mut raw);
            });
            let met =
                pronghorn_session::multikey::CloudClient::meet(&address, party, &seed, options());
            let mut met = met?;
            met.join(|_| ())?;
            met.predict(&IMAGE)
        })
    };
    let joined = |raw: &mut Raw| {
        raw.send(OFFER, &offer);
        raw.expect(INTRODUCTION);
        raw.send(WANTED, &[&[0][..], &0u64.to_le_bytes()].concat());
        raw.send(READY, &[]);
        raw.expect(REQUEST);
    };
    let nobody = Party([9; 32]);
    // Another owner's model, by its key.
    let found = meet(&|raw| raw.send(OFFER, &offer), nobody).err();
    assert!(matches!(found, Some(CloudError::Role(_))), "{found:?}");
    // Silence, damage, another message, a message that is too long, another outcome.
    let found = meet(&|_| (), owner.party).err();
    assert!(matches!(found, Some(CloudError::Session(_))), "{found:?}");
    let found = meet(
        &|raw| raw.send(OFFER, &offer[..offer.len() / 2]),
        owner.party,
    )
    .err();
    assert!(matches!(found, Some(CloudError::Role(_))), "{found:?}");
    let found = meet(&|raw| raw.announce(OFFER, 1 << 40, [0; 32]), owner.party).err();
    assert!(
        matches!(found, Some(CloudError::Message { .. })),
        "{found:?}"
    );
    let found = meet(
        &|raw| {
            raw.announce(OFFER, 4, [0; 32]);
            frame::write_frame(&mut raw.0, Kind::Data, &[0; 4]).expect("it reads");
        },
        owner.party,
    );
    assert!(matches!(found.err(), Some(CloudError::Session(_))));
    let found = meet(
        &|raw| {
            joined(raw);
            raw.send(ANSWER, &[]);
        },
        owner.party,
    );
    assert!(matches!(found.err(), Some(CloudError::Message { .. })));
    let found = meet(
        &|raw| {
            joined(raw);
            raw.send(OUTCOME, &[0; 100]);
            raw.send(ANSWER, &[]);
        },
        owner.party,
    );
    assert!(matches!(found.err(), Some(CloudError::Role(_))));
    // More keys than it takes.
    let found = meet(
        &|raw| {
            raw.send(OFFER, &offer);
            raw.expect(INTRODUCTION);
            raw.send(WANTED, &[&[1][..], &1u64.to_le_bytes()].concat());
        },
        owner.party,
    );
    assert!(matches!(found.err(), Some(CloudError::TooLarge { .. })));
}

/// Keys of other parameters, of another client than was introduced, and messages out of turn.
#[test]
fn a_cloud_refuses_what_does_not_fit() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let owner = Attending::start(&scratch, &cloud, 4, 1);
    let joining = || {
        let mut raw = Raw::connect(&cloud);
        raw.hello(2, owner.party, &[]);
        let offer = raw.expect(OFFER);
        (raw, offer)
    };
    let message = Refusal::Message as u8;
    let client_of = |offer: &[u8], number: u8| {
        Client::<u32>::new(offer, owner.party, &Seed::from_bytes([number; 32])).expect("an offer")
    };
    // The key of another set.
    let aim = Aim {
        error: 2f64.powi(-8),
        results: 1 << 30,
    };
    let strange = Terms::<u32>::choose(&graph(1), aim, [3; 32]).expect("a shallow network");
    let key = SecretKey::generate(strange.setting.common(), &Seed::from_bytes([3; 32]));
    let mut introduction = Vec::new();
    key.encryption().encode(&mut introduction);
    let (mut raw, _) = joining();
    raw.send(INTRODUCTION, &introduction);
    assert_eq!(raw.refused(), message);
    // Keys of another client, keys that are cut, keys that are too long.
    let (mut raw, offer) = joining();
    let [first, second] = [50, 51].map(|number| client_of(&offer, number));
    admit(&scratch, first.party());
    raw.send(INTRODUCTION, &first.introduction());
    raw.expect(WANTED);
    raw.send(KEYS, &second.join().expect("randomness"));
    assert_eq!(raw.refused(), message);
    let keys = first.join().expect("randomness");
    for bytes in [&keys[..100], &keys[..keys.len() - 1]] {
        let (mut raw, _) = joining();
        raw.send(INTRODUCTION, &first.introduction());
        raw.expect(WANTED);
        raw.send(KEYS, bytes);
        assert_eq!(raw.refused(), message);
    }
    let (mut raw, _) = joining();
    raw.send(INTRODUCTION, &first.introduction());
    let most = raw.expect(WANTED);
    let most = u64::from_le_bytes(most[1..].try_into().expect("8 bytes"));
    raw.announce(KEYS, most + 1, [0; 32]);
    assert_eq!(raw.refused(), message);
    // Out of turn.
    let (mut raw, _) = joining();
    raw.send(REQUEST, &[1]);
    assert_eq!(raw.refused(), message);
    // The owner's own key as a client's.
    let own = std::fs::read(scratch.at("owner").join("owner.seed")).expect("its seed");
    let own = Seed::from_bytes(own.try_into().expect("32 bytes"));
    let terms = strange_terms(&scratch);
    let key = SecretKey::generate(terms.setting.common(), &own);
    let mut introduction = Vec::new();
    key.encryption().encode(&mut introduction);
    let (mut raw, _) = joining();
    raw.send(INTRODUCTION, &introduction);
    assert_eq!(raw.refused(), message);
    // A hello that is none, of another version, of no role.
    for hello in [
        b"GET / HTTP/1.1".to_vec(),
        [&MAGIC[..], &[9, 9, 1]].concat(),
    ] {
        let mut raw = Raw::connect(&cloud);
        raw.send(HELLO, &hello);
        assert!(raw.receive().is_none_or(|(what, _)| what == REFUSED));
    }
    let mut raw = Raw::connect(&cloud);
    raw.0
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("it reads");
    assert!(raw.receive().is_none());
    // Requests that are damaged leave the connection as it was.
    let (mut raw, offer) = joining();
    let mut client = client_of(&offer, 50);
    raw.send(INTRODUCTION, &client.introduction());
    if raw.expect(WANTED)[0] == 1 {
        raw.send(KEYS, &client.join().expect("randomness"));
    }
    raw.expect(READY);
    let request = client.request(&IMAGE).expect("in range");
    for bytes in [&request[..0], &request[..50], &request[..request.len() - 1]] {
        raw.send(REQUEST, bytes);
        assert_eq!(raw.refused(), message);
    }
    raw.send(REQUEST, &request);
    let (outcome, answer) = (raw.expect(OUTCOME), raw.expect(ANSWER));
    let found = client.finish(&outcome, &answer);
    check(Ok(found.expect("complete")), &IMAGE);
}

fn strange_terms(scratch: &Scratch) -> Terms<u32> {
    let bytes = std::fs::read(scratch.at("owner").join("terms")).expect("the owner's file");
    let description = postcard::from_bytes(&bytes).expect("a description");
    Terms::new(description).expect("its own")
}
