//! TLS records: any bytes, and whatever a peer with the keys seals, whole, cut or changed.
#![no_main]

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::{Splice, edited};
use pronghorn_session::{Opened, Peers};

const DATA: u8 = 23;

/// Bytes of the largest record, its header included.
const MOST: usize = 5 + (1 << 14) + 256;

#[derive(Arbitrary, Debug)]
enum Record {
    /// Sealed by who has the keys, of any kind.
    Sealed { kind: u8, payload: Vec<u8> },
    /// Data.
    Data(Vec<u8>),
    /// An honest change of keys.
    Renewal,
    /// Data that the line changes.
    Changed {
        payload: Vec<u8>,
        splices: Vec<Splice>,
    },
    /// Anything.
    Raw(Vec<u8>),
}

fuzz_target!(|input: (bool, Vec<Record>)| {
    let (takes_tickets, records) = input;
    let mut peers = Peers::new(takes_tickets).expect("the suite is of TLS 1.3");
    for record in records {
        let is_over = match record {
            Record::Sealed { kind, payload } => {
                let sealed = peers.seal(kind, &payload);
                open(&mut peers, sealed.expect("it seals")) == Opened::Refused
            }
            Record::Data(payload) => {
                let sealed = peers.seal(DATA, &payload);
                let mut sealed = sealed.expect("it seals");
                let Opened::Data(range) = peers.open(&mut sealed) else {
                    panic!("what a peer seals is opened");
                };
                assert_eq!(&sealed[range], payload);
                false
            }
            Record::Renewal => {
                let sealed = peers.renew().expect("it seals");
                assert_eq!(open(&mut peers, sealed), Opened::Said);
                false
            }
            Record::Changed { payload, splices } => {
                let sealed = peers.seal(DATA, &payload).expect("it seals");
                let changed = edited(sealed.clone(), &splices);
                let Ok(Some(length)) = Peers::length(&changed) else {
                    return;
                };
                // The minor version says nothing, and what follows is another record's.
                let is_same = changed.get(5..length) == sealed.get(5..);
                let opened = open(&mut peers, changed);
                assert!(is_same || opened == Opened::Refused);
                true
            }
            Record::Raw(bytes) => {
                open(&mut peers, bytes);
                true
            }
        };
        if is_over {
            return;
        }
    }
});

/// As a stream does: the record that the header announces, where it is all there.
fn open(peers: &mut Peers, mut bytes: Vec<u8>) -> Opened {
    match Peers::length(&bytes) {
        Ok(Some(length)) if length <= bytes.len() => {
            assert!(length <= MOST);
            bytes.truncate(length);
            peers.open(&mut bytes)
        }
        _ => Opened::Refused,
    }
}
