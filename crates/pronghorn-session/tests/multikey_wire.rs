//! The frames between the roles of `multi-key` equal golden files: the bytes of messages that are
//! not the roles' own, and each frame of a whole conversation with its sender and length.
//!
//! `docs/wire.md` says what they mean. After a change of a message, `PRONGHORN_BLESS=1 cargo test -p
//! pronghorn-session multikey_wire::` writes the files anew, and the commit says why.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

use crate::roles::*;
use pronghorn_session::{
    frame::{self, Kind},
    multikey::{
        CloudClient, CloudOptions, Refusal,
        message::{Header, Hello, Role, Wanted, What},
    },
};

fn equals_golden(name: &str, found: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/multikey");
    let path = folder.join(name);
    if env::var_os("PRONGHORN_BLESS").is_some() {
        fs::create_dir_all(&folder).expect("it can be made");
        fs::write(&path, found).expect("it can be written");
    }
    let wanted = fs::read_to_string(&path).expect("a golden file");
    assert_eq!(found, wanted, "{name}");
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    let page = fs::read_to_string(page).expect("the page");
    assert!(page.contains(found.trim_end()), "docs/wire.md lacks {name}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A message: its `Role` frame, and its `Data` frames.
fn frames(what: What, body: &[u8]) -> String {
    let mut bytes = Vec::new();
    let header = Header::of(what, body).encode();
    frame::write_frame(&mut bytes, Kind::Role, &header).expect("a vector takes it");
    if !body.is_empty() {
        frame::write_frame(&mut bytes, Kind::Data, body).expect("a vector takes it");
    }
    hex(&bytes)
}

#[test]
fn messages_have_these_bytes() {
    let owner = [0xA1; 32];
    let hello = |role| Hello { role, owner }.encode();
    let wanted = |send, most| Wanted { send, most }.encode();
    let refused = [&[Refusal::Away as u8][..], b"the model owner is away"].concat();
    let messages = [
        ("Hello, owner", What::Hello, hello(Role::Owner([0xB2; 16]))),
        ("Hello, client", What::Hello, hello(Role::Client)),
        ("Wanted", What::Wanted, wanted(true, 2 << 30)),
        ("Wanted, not to be sent", What::Wanted, wanted(false, 300)),
        ("Publication", What::Publication, b"publication".to_vec()),
        ("Keys", What::Keys, b"keys".to_vec()),
        ("Ready", What::Ready, vec![]),
        ("Offer", What::Offer, b"offer".to_vec()),
        ("Introduction", What::Introduction, b"key".to_vec()),
        ("Request", What::Request, b"image".to_vec()),
        ("Outcome", What::Outcome, b"result".to_vec()),
        ("Answer", What::Answer, b"share".to_vec()),
        ("Alive", What::Alive, vec![]),
        ("Refused", What::Refused, refused),
        ("Bye", What::Bye, vec![]),
        ("Pair", What::Pair, vec![0xC3; 32]),
        ("PairKey", What::PairKey, b"key of the pair".to_vec()),
    ];
    let mut found = String::new();
    for (name, what, body) in messages {
        // A `String` takes every write.
        let _ = writeln!(found, "{name}: {}", frames(what, &body));
    }
    equals_golden("messages.txt", &found);
}

/// A line in the middle, which notes the frames of one connection.
struct Tap {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Tap {
    fn new(party: &'static str, cloud: &Cloud) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("bound").to_string();
        let (to, seen) = (cloud.address(), Arc::<Mutex<Vec<String>>>::default());
        let noted = seen.clone();
        thread::spawn(move || {
            let (near, _) = listener.accept().expect("the party connects");
            let far = TcpStream::connect(to).expect("the cloud listens");
            let ends = [("cloud", &far, &near), (party, &near, &far)];
            thread::scope(|scope| {
                for (sender, from, to) in ends {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (from, to) = (from.expect("open"), to.expect("open"));
                    let noted = &noted;
                    scope.spawn(move || pass(sender, from, to, noted));
                }
            });
        });
        Self { address, seen }
    }
}

/// Passes frames on. Signs of life come by the clock, so they are left out: a request for one, and
/// the answer to it.
fn pass(sender: &str, mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<String>>) {
    let mut header = [0; 5];
    while from.read_exact(&mut header).is_ok() {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).expect("a whole frame");
        let line = match header[4] {
            kind if kind == Kind::Role as u8 => {
                let body = u64::from_le_bytes(payload[1..9].try_into().expect("8 bytes"));
                format!("{sender}: Role {length}, kind {}, body {body}", payload[0])
            }
            kind => format!("{sender}: {kind} {length}"),
        };
        {
            let mut seen = seen.lock().expect("no panic");
            seen.push(line);
            let alive = [
                "cloud: Role 41, kind 11, body 0",
                "owner: Role 41, kind 11, body 0",
            ];
            if seen.ends_with(&alive.map(String::from)) {
                let kept = seen.len() - 2;
                seen.truncate(kept);
            }
        }
        if to
            .write_all(&header)
            .and_then(|()| to.write_all(&payload))
            .is_err()
        {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_conversation_has_these_frames() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let of_owner = Tap::new("owner", &cloud);
    let mut keys = owner(&scratch, 8).expect("new keys");
    let (party, at_cloud) = (keys.party(), options());
    let (cancel, address) = (at_cloud.cancel.clone(), of_owner.address.clone());
    let attend = move || keys.attend(&graph(1), &address, &at_cloud, &|_| ());
    let mut attending = Attending {
        cancel,
        thread: Some(thread::spawn(attend)),
        party,
    };
    cloud.events.wait("attended", 1);
    let of_client = Tap::new("client", &cloud);
    let seed = seed(&scratch, "client");
    let mut client =
        CloudClient::meet(&of_client.address, party, &seed, options()).expect("an offer");
    admit(&scratch, client.party());
    client.join(|_| ()).expect("admitted");
    check(client.predict(&IMAGE), &IMAGE);
    client.leave();
    cloud.events.wait("left", 1);
    let lines = |tap: &Tap| tap.seen.lock().expect("no panic").join("\n") + "\n";
    let found = [lines(&of_owner), lines(&of_client)];
    attending.stop();
    equals_golden("owner.txt", &found[0]);
    equals_golden("client.txt", &found[1]);
}
