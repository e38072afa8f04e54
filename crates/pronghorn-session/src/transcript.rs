//! A running hash of a connection, by which both parties notice what the line has changed.
//!
//! Both absorb every frame but `Error`: the sender, the kind, the length and the payload. Messages of the two directions never
//! cross, so both see one order. `Done` is sealed: the hash so far, itself included, follows its fields. Who receives it
//! compares before it hands out or keeps what the batch made.
//!
//! The hash is over bytes that both parties know, so a mismatch tells nothing about a secret. It has no key: it finds
//! accidents, not whoever can change a message and its hash. SECURITY.md says what to put in front of a server against that.

use crate::{error::SessionError, frame::Kind, store::file::Party};

/// Bytes of the digest that ends a sealed message.
pub const DIGEST_BYTES: usize = 32;

const CONTEXT: &str = "pronghorn 2026 transcript of a connection";

/// What went over one connection so far, in both directions.
#[derive(Clone, Debug)]
pub struct Transcript(blake3::Hasher);

impl Default for Transcript {
    fn default() -> Self {
        Self(blake3::Hasher::new_derive_key(CONTEXT))
    }
}

impl Transcript {
    /// Adds a frame.
    pub fn absorb(&mut self, sender: Party, kind: Kind, payload: &[u8]) {
        let mut header = [0; 2 + size_of::<u64>()];
        header[0] = sender as u8;
        header[1] = kind as u8;
        header[2..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        self.0.update(&header);
        self.0.update(payload);
    }

    /// Adds a frame that is about to be sent, and appends the digest to it.
    pub fn seal(&mut self, sender: Party, kind: Kind, payload: &mut Vec<u8>) {
        self.absorb(sender, kind, payload);
        payload.extend_from_slice(&self.digest());
    }

    /// Adds a sealed frame that has come, and takes the digest off.
    ///
    /// # Errors
    /// When the digest is missing, or is another than this party's.
    pub fn open(
        &mut self,
        sender: Party,
        kind: Kind,
        payload: &mut Vec<u8>,
    ) -> Result<(), SessionError> {
        let Some((message, &theirs)) = payload.split_last_chunk() else {
            return Err(SessionError::Message {
                kind,
                reason: "it has no digest".into(),
            });
        };
        self.absorb(sender, kind, message);
        if theirs != self.digest() {
            return Err(SessionError::Damaged);
        }
        payload.truncate(payload.len() - DIGEST_BYTES);
        Ok(())
    }

    fn digest(&self) -> [u8; DIGEST_BYTES] {
        *self.0.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(frames: &[(Party, Kind, &[u8])]) -> [u8; DIGEST_BYTES] {
        let mut transcript = Transcript::default();
        for &(sender, kind, payload) in frames {
            transcript.absorb(sender, kind, payload);
        }
        transcript.digest()
    }

    #[test]
    fn sender_kind_order_and_lengths_count() {
        use Party::{Client, Server};
        let digests = [
            digest(&[]),
            digest(&[(Client, Kind::Data, b"ab")]),
            digest(&[(Server, Kind::Data, b"ab")]),
            digest(&[(Client, Kind::Begin, b"ab")]),
            digest(&[(Client, Kind::Data, b"ac")]),
            digest(&[(Client, Kind::Data, b"a"), (Client, Kind::Data, b"b")]),
            digest(&[(Client, Kind::Data, b"b"), (Client, Kind::Data, b"a")]),
            digest(&[(Client, Kind::Data, b"ab"), (Client, Kind::Data, b"")]),
        ];
        for (index, one) in digests.iter().enumerate() {
            assert!(digests[..index].iter().all(|other| other != one));
        }
    }

    #[test]
    fn sealed_messages_open_where_both_have_seen_the_same() {
        let (mut ours, mut theirs) = (Transcript::default(), Transcript::default());
        for (byte, equal) in [(1, true), (2, false)] {
            ours.absorb(Party::Client, Kind::Data, &[1]);
            theirs.absorb(Party::Client, Kind::Data, &[byte]);
            let mut payload = b"fields".to_vec();
            theirs.seal(Party::Server, Kind::Done, &mut payload);
            assert_eq!(payload.len(), 6 + DIGEST_BYTES);
            let opened = ours.open(Party::Server, Kind::Done, &mut payload);
            match equal {
                true => assert!(opened.is_ok() && payload == b"fields"),
                false => assert!(matches!(opened, Err(SessionError::Damaged))),
            }
        }
        let short = ours.open(Party::Server, Kind::Done, &mut vec![0; DIGEST_BYTES - 1]);
        assert!(matches!(short, Err(SessionError::Message { .. })));
    }
}
