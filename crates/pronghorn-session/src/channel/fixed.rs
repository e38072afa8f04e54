//! Two ends of a connection after its handshake, under keys that everybody knows: for fuzzing alone.

use std::ops::Range;

use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, crypto::cipher::AeadKey,
    crypto::ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
};

use super::record::{self, Opener, Said, Schedule, Sealer};

/// What an end makes of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// Data, in this range of the record.
    Data(Range<usize>),
    /// A renewal, a ticket or a goodbye.
    Said,
    /// It ends the connection.
    Refused,
}

/// An end that seals whatever it is told, and one that opens as ours do.
pub struct Peers {
    sealer: Sealer,
    opener: Opener,
}

impl Peers {
    /// Before the first record; a client's end takes tickets.
    pub fn new(takes_tickets: bool) -> Result<Self, Error> {
        let suite = TLS13_AES_256_GCM_SHA384.tls13();
        let suite = suite.ok_or(Error::EncryptError)?;
        let ends = || {
            let secrets = ExtractedSecrets {
                tx: (0, key(0)),
                rx: (0, key(0)),
            };
            record::directions(suite, secrets, Counter::default(), takes_tickets)
        };
        let (sealer, opener) = (ends().0, ends().1);
        Ok(Self { sealer, opener })
    }

    /// Seals a record of a kind.
    ///
    /// # Errors
    /// The cipher fails.
    pub fn seal(&mut self, kind: u8, payload: &[u8]) -> Result<Vec<u8>, Error> {
        self.sealer.seal(ContentType::from(kind), payload)
    }

    /// Seals a renewal, after which the sealing end is under its next key.
    ///
    /// # Errors
    /// The cipher fails.
    pub fn renew(&mut self) -> Result<Vec<u8>, Error> {
        self.sealer.renew()
    }

    /// Opens what its header says is a record.
    pub fn open(&mut self, record: &mut [u8]) -> Opened {
        match self.opener.open(record) {
            Ok(Said::Data(range)) => Opened::Data(range),
            Ok(_) => Opened::Said,
            Err(error) => {
                let _ = record::alert_for(&error);
                Opened::Refused
            }
        }
    }

    /// The length of the record at the start of these bytes; `None` before its header is there.
    ///
    /// # Errors
    /// The bytes are no TLS, or the record is too long.
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, Error> {
        record::record_length(bytes)
    }
}

/// The keys of each direction, in turn.
#[derive(Default)]
struct Counter {
    sent: u8,
    received: u8,
}

impl Schedule for Counter {
    fn next_to_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.sent = self.sent.wrapping_add(1);
        Ok((0, key(self.sent)))
    }

    fn next_to_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.received = self.received.wrapping_add(1);
        Ok((0, key(self.received)))
    }
}

fn key(number: u8) -> ConnectionTrafficSecrets {
    // Keys of another length than the suite's make rustls panic.
    let key = AeadKey::from([number; 32]);
    ConnectionTrafficSecrets::Aes256Gcm {
        key,
        iv: [number; 12].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target of fuzzing begins here: what one end seals the other opens, also after a renewal.
    #[test]
    fn both_ends_have_the_same_keys() {
        let mut peers = Peers::new(true).expect("the suite is of TLS 1.3");
        for payload in [&b"before"[..], b"after"] {
            let mut sealed = peers.seal(23, payload).expect("it seals");
            assert_eq!(Peers::length(&sealed), Ok(Some(sealed.len())));
            let Opened::Data(range) = peers.open(&mut sealed) else {
                panic!("it is data");
            };
            assert_eq!(&sealed[range], payload);
            let mut renewal = peers.renew().expect("it seals");
            assert_eq!(peers.open(&mut renewal), Opened::Said);
        }
        assert_eq!(peers.open(&mut [0; 40]), Opened::Refused);
    }
}
