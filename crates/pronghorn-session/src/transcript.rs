//! A running hash of a connection, by which both parties notice what the line has changed.
//!
//! Each direction has a hash of its frames but `Error`: the place of a frame among those of both
//! directions, its kind, its length and a checksum of its payload. Places are those of the
//! protocol's order, which both parties know. A message that is sent ahead has the place that it
//! would have had otherwise, so both parties count alike. `Done` is sealed: the digest of both
//! hashes, its own fields included, follows these. Who receives it compares before it hands out or
//! keeps what the batch made.
//!
//! The hashes are over bytes that both parties know, so a mismatch tells nothing about a secret.
//! They have no key: they find accidents, not whoever can change a message and its hash.
//! SECURITY.md says what to put in front of a server against that. So the checksum of a payload is
//! XXH3 of 128 bits, which an accident passes with a chance of about 2^-128. A cryptographic hash
//! finds no more here, and BLAKE3 took an eighth of the time of a ResNet-20.

use twox_hash::XxHash3_128;

use crate::{channel::Binding, error::SessionError, frame::Kind, store::file::Party};

/// Bytes of the digest that ends a sealed message.
pub const DIGEST_BYTES: usize = 32;

/// A digest.
pub type Digest = [u8; DIGEST_BYTES];

/// Bytes that stand for a frame: kind, place, length and checksum.
const FRAME: usize = 1 + 8 + 8 + 16;

const WAY: &str = "pronghorn 2026 frames of one direction";
const BOTH: &str = "pronghorn 2026 transcript of a connection";

/// The frames that one party has sent.
#[derive(Clone, Debug)]
pub struct Way {
    sender: Party,
    hasher: blake3::Hasher,
}

impl Way {
    /// None yet.
    pub fn new(sender: Party) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(WAY);
        hasher.update(&[sender as u8]);
        Self { sender, hasher }
    }

    /// None yet on a channel, whose binding comes first.
    pub(crate) fn on_channel(sender: Party, binding: Option<&Binding>) -> Self {
        let mut way = Self::new(sender);
        if let Some(binding) = binding {
            way.hasher.update(binding.as_bytes());
        }
        way
    }

    /// Adds the frame that has `place` others of both parties before it, in the protocol's order.
    pub fn add(&mut self, place: u64, kind: Kind, payload: &[u8]) {
        let mut frame = [kind as u8; FRAME];
        frame[1..9].copy_from_slice(&place.to_le_bytes());
        frame[9..17].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        frame[17..].copy_from_slice(&XxHash3_128::oneshot(payload).to_le_bytes());
        self.hasher.update(&frame);
    }

    /// Of these frames alone.
    pub fn digest(&self) -> Digest {
        *self.hasher.finalize().as_bytes()
    }

    /// With those that the other party has sent, of which this is the digest.
    pub fn digest_with(&self, other: &Digest) -> Digest {
        let mut hasher = blake3::Hasher::new_derive_key(BOTH);
        let (own, other) = (&self.digest(), other);
        let in_order = match self.sender {
            Party::Client => [own, other],
            Party::Server => [other, own],
        };
        for digest in in_order {
            hasher.update(digest);
        }
        *hasher.finalize().as_bytes()
    }
}

/// What a sealed frame says, and its digest.
///
/// # Errors
/// When it is too short to have one.
pub(crate) fn split_digest(kind: Kind, payload: &[u8]) -> Result<(&[u8], &Digest), SessionError> {
    payload.split_last_chunk().ok_or(SessionError::Message {
        kind,
        reason: "it has no digest".into(),
    })
}

/// Both directions, for whoever sees all frames in the protocol's order: not a relay, where
/// messages are sent ahead.
#[derive(Clone, Debug)]
pub struct Transcript {
    client: Way,
    server: Way,
    frames: u64,
}

impl Default for Transcript {
    fn default() -> Self {
        Self {
            client: Way::new(Party::Client),
            server: Way::new(Party::Server),
            frames: 0,
        }
    }
}

impl Transcript {
    /// Adds a frame.
    pub fn absorb(&mut self, sender: Party, kind: Kind, payload: &[u8]) {
        let way = match sender {
            Party::Client => &mut self.client,
            Party::Server => &mut self.server,
        };
        way.add(self.frames, kind, payload);
        self.frames += 1;
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
        let (message, &theirs) = split_digest(kind, payload)?;
        self.absorb(sender, kind, message);
        if theirs != self.digest() {
            return Err(SessionError::Damaged);
        }
        payload.truncate(payload.len() - DIGEST_BYTES);
        Ok(())
    }

    fn digest(&self) -> Digest {
        self.client.digest_with(&self.server.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(frames: &[(Party, Kind, &[u8])]) -> Digest {
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
