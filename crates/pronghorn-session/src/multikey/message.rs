//! Messages between the roles: what is not the roles' own.

use super::error::CloudError;
use crate::{
    error::SessionError,
    message::{MAGIC, VERSION},
};

/// Bytes of a `Role` frame.
pub const HEADER: usize = 1 + 8 + 32;

/// Kinds of messages; the discriminants are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// Who is on the line.
    Hello = 1,
    /// Whether a publication or keys are to be sent.
    Wanted = 2,
    /// The encrypted model and the owner's keys.
    Publication = 3,
    /// A client's public keys.
    Keys = 4,
    /// The peer may go on.
    Ready = 5,
    /// The description and the owner's encryption key.
    Offer = 6,
    /// A client's encryption key.
    Introduction = 7,
    /// An encrypted image.
    Request = 8,
    /// A result under both keys.
    Outcome = 9,
    /// The owner's contribution and partial decryption.
    Answer = 10,
    /// A sign of life.
    Alive = 11,
    /// Why a message is refused.
    Refused = 12,
    /// The client leaves.
    Bye = 13,
    /// The name of a client whose key of the pair is wanted.
    Pair = 14,
    /// The key of the pair of the model owner and a client.
    PairKey = 15,
}

impl What {
    const ALL: [Self; 15] = [
        Self::Hello,
        Self::Wanted,
        Self::Publication,
        Self::Keys,
        Self::Ready,
        Self::Offer,
        Self::Introduction,
        Self::Request,
        Self::Outcome,
        Self::Answer,
        Self::Alive,
        Self::Refused,
        Self::Bye,
        Self::Pair,
        Self::PairKey,
    ];
}

/// Who is on the line, by its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A model owner, and the name of its publication.
    Owner([u8; 16]),
    /// A client.
    Client,
}

/// The first message: who is on the line, and the name of the model owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who.
    pub role: Role,
    /// The name of the model owner.
    pub owner: [u8; 32],
}

impl Hello {
    /// The body.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        match &self.role {
            Role::Owner(publication) => {
                bytes.push(1);
                bytes.extend(self.owner);
                bytes.extend(publication);
            }
            Role::Client => {
                bytes.push(2);
                bytes.extend(self.owner);
            }
        }
        bytes
    }

    /// Reads the body.
    ///
    /// # Errors
    /// When it has another form.
    pub fn decode(bytes: &[u8]) -> Result<Self, CloudError> {
        let rest = bytes
            .strip_prefix(&MAGIC)
            .ok_or(SessionError::NotPronghorn)?;
        let (version, rest) = rest.split_first_chunk().ok_or(SessionError::NotPronghorn)?;
        let theirs = u16::from_le_bytes(*version);
        if theirs != VERSION {
            let ours = VERSION;
            return Err(SessionError::Version { ours, theirs }.into());
        }
        let wrong = || malformed("the hello has another length or role".into());
        let (&role, rest) = rest.split_first().ok_or_else(wrong)?;
        let (&owner, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let role = match (role, rest.len()) {
            (1, 16) => Role::Owner(rest.try_into().map_err(|_| wrong())?),
            (2, 0) => Role::Client,
            _ => return Err(wrong()),
        };
        Ok(Self { role, owner })
    }
}

pub(super) fn malformed(reason: String) -> CloudError {
    CloudError::Message { reason }
}

/// A message whose body is yet to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its kind.
    pub what: What,
    /// Bytes of the body.
    pub length: u64,
    /// BLAKE3 of the body.
    pub digest: [u8; 32],
}

impl Header {
    /// Of a body that is sent.
    pub fn of(what: What, body: &[u8]) -> Self {
        Self {
            what,
            length: body.len() as u64,
            digest: *blake3::hash(body).as_bytes(),
        }
    }

    /// The payload of a `Role` frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = vec![self.what as u8];
        payload.extend(self.length.to_le_bytes());
        payload.extend(self.digest);
        payload
    }

    /// Reads the payload of a `Role` frame.
    ///
    /// # Errors
    /// When it has another length, or the kind is unknown.
    pub fn decode(payload: &[u8]) -> Result<Self, CloudError> {
        let wrong = || malformed("a message has no header".into());
        let payload: &[u8; HEADER] = payload.try_into().map_err(|_| wrong())?;
        let (length, digest) = payload[1..].split_first_chunk().ok_or_else(wrong)?;
        let what = What::ALL.into_iter().find(|&what| what as u8 == payload[0]);
        Ok(Header {
            what: what
                .ok_or_else(|| malformed(format!("a message of unknown kind {}", payload[0])))?,
            length: u64::from_le_bytes(*length),
            digest: digest.try_into().map_err(|_| wrong())?,
        })
    }
}

/// Whether the cloud wants a publication or keys, and how long they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whether it is to be sent.
    pub send: bool,
    /// Its most bytes.
    pub most: u64,
}

impl Wanted {
    /// Bytes of the body.
    pub const BYTES: u64 = 9;

    /// The body.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.send.into()];
        bytes.extend(self.most.to_le_bytes());
        bytes
    }

    /// Reads the body.
    ///
    /// # Errors
    /// When it has another form.
    pub fn decode(bytes: &[u8]) -> Result<Self, CloudError> {
        let wrong = || malformed("what the cloud wants has another length".into());
        let (&send, most) = bytes.split_first().ok_or_else(wrong)?;
        Ok(Self {
            send: send != 0,
            most: u64::from_le_bytes(most.try_into().map_err(|_| wrong())?),
        })
    }

    /// Refuses to send what the cloud does not take.
    ///
    /// # Errors
    /// When it is longer.
    pub fn check(&self, length: u64) -> Result<(), CloudError> {
        let most = self.most;
        match length <= most {
            true => Ok(()),
            false => Err(CloudError::TooLarge { length, most }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_are_read_as_they_were_written(
            owner: [u8; 32],
            publication: Option<[u8; 16]>,
            send: bool,
            most: u64,
            what in 0..What::ALL.len(),
            body: Vec<u8>,
        ) {
            let role = publication.map_or(Role::Client, Role::Owner);
            let hello = Hello { role, owner };
            prop_assert_eq!(Hello::decode(&hello.encode()).expect("a hello"), hello);
            let wanted = Wanted { send, most };
            prop_assert_eq!(Wanted::decode(&wanted.encode()).expect("nine bytes"), wanted);
            let header = Header::of(What::ALL[what], &body);
            prop_assert_eq!(Header::decode(&header.encode()).expect("a header"), header);
        }

        #[test]
        fn other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            // 26 and more bytes that begin with the magic are in the fuzz target.
            prop_assert!(Hello::decode(&bytes).is_err());
            prop_assert_eq!(Wanted::decode(&bytes).is_ok(), bytes.len() == 9);
            let known = bytes.len() == HEADER && (1..=What::ALL.len() as u8).contains(&bytes[0]);
            prop_assert_eq!(Header::decode(&bytes).is_ok(), known);
        }
    }
}
