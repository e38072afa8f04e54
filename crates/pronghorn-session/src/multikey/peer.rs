//! Messages on a connection between two roles.

use std::{io::Write, sync::atomic::Ordering, time::Duration};

use super::error::{CloudError, Refusal};
use crate::{
    channel::PROOF_BYTES,
    client::{ConnectOptions, link, prove, secured},
    error::{SessionError, foreign_peer},
    frame::{Kind, MAX_HANDSHAKE},
    link::Link,
    message::{ErrorMessage, MAGIC, VERSION},
    text::printable,
};

/// Longest body of a frame, in bytes.
const PART: usize = 1 << 20;
/// Bytes of a `Role` frame.
pub(super) const HEADER: usize = 1 + 8 + 32;
/// Longest hello.
const MOST_HELLO: u64 = MAX_HANDSHAKE as u64;
/// Longest text of a refusal, and its category.
const MOST_REFUSAL: u64 = 4 << 10;

/// Kinds of messages; the discriminants are on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum What {
    Hello = 1,
    Wanted = 2,
    Publication = 3,
    Keys = 4,
    Ready = 5,
    Offer = 6,
    Introduction = 7,
    Request = 8,
    Outcome = 9,
    Contribution = 10,
    Partial = 11,
    Withdraw = 12,
    Alive = 13,
    Refused = 14,
    Bye = 15,
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
        Self::Contribution,
        Self::Partial,
        Self::Withdraw,
        Self::Alive,
        Self::Refused,
        Self::Bye,
    ];
}

/// Who is on the line, by its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A model owner, and the name of its publication.
    Owner([u8; 16]),
    /// A client.
    Client,
}

/// The first message: who is on the line, and the name of the model owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub role: Role,
    pub owner: [u8; 32],
}

impl Hello {
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub what: What,
    pub length: u64,
    digest: [u8; 32],
}

/// A message that may come, and its most bytes.
pub(super) type Accept = (What, u64);

/// The other end of a connection.
pub(super) struct Peer {
    link: Link,
}

impl Peer {
    pub fn new(link: Link) -> Self {
        Self { link }
    }

    /// Bytes sent and received.
    pub fn bytes(&self) -> [u64; 2] {
        let traffic = self.link.traffic;
        [traffic.bytes_sent, traffic.bytes_received]
    }

    /// Sends a message.
    pub fn send(&mut self, what: What, body: &[u8]) -> Result<(), CloudError> {
        let mut header = vec![what as u8];
        header.extend((body.len() as u64).to_le_bytes());
        header.extend(blake3::hash(body).as_bytes());
        self.link.send(Kind::Role, header)?;
        for part in body.chunks(PART) {
            let mut payload = self.link.buffer();
            payload.extend_from_slice(part);
            self.link.send(Kind::Data, payload)?;
        }
        Ok(())
    }

    /// Says why this side does not do what it was asked for.
    pub fn refuse(&mut self, refusal: Refusal, text: &str) -> Result<(), CloudError> {
        let cut = text.floor_char_boundary(MOST_REFUSAL as usize - 1);
        let body = [&[refusal as u8], &text.as_bytes()[..cut]].concat();
        self.send(What::Refused, &body)
    }

    /// The first message, which comes within a time, after the proof of a token where there may be
    /// one. `admit` is told the proof.
    pub fn hello(
        &mut self,
        within: Duration,
        may_prove: bool,
        admit: impl FnOnce(Option<&[u8]>) -> Result<(), CloudError>,
    ) -> Result<Hello, CloudError> {
        let first = [(Kind::Role, HEADER), (Kind::Token, PROOF_BYTES)];
        let without = &first[..1];
        let accept = if may_prove { &first[..] } else { without };
        let (mut payload, mut proof) = (Vec::new(), None);
        let kind = self.link.receive_first(within, accept, &mut payload);
        if kind.map_err(foreign_peer)? == Kind::Token {
            proof = Some(std::mem::take(&mut payload));
            self.link.receive_first(within, without, &mut payload)?;
        }
        admit(proof.as_deref())?;
        let header = self.open(&payload, &[(What::Hello, MOST_HELLO)])?;
        Hello::decode(&self.body(header)?)
    }

    /// Waits for a message as long as `within`, whose body the caller takes. A refusal is an error.
    pub fn begin(&mut self, within: Duration, accept: &[Accept]) -> Result<Header, CloudError> {
        let mut payload = Vec::new();
        let frame = [(Kind::Role, HEADER)];
        self.link.receive_within(within, &frame, &mut payload)?;
        self.open(&payload, accept)
    }

    /// The header in a frame. A refusal is an error.
    fn open(&mut self, payload: &[u8], accept: &[Accept]) -> Result<Header, CloudError> {
        let header = read_header(payload)?;
        if header.what == What::Refused && header.length <= MOST_REFUSAL {
            let body = self.body(header)?;
            let (&refusal, text) = body
                .split_first()
                .ok_or_else(|| malformed("a refusal without a category".into()))?;
            return Err(CloudError::Refused {
                refusal: Refusal::of(refusal),
                text: printable(&String::from_utf8_lossy(text), "\n"),
            });
        }
        let found = accept.iter().find(|(what, _)| *what == header.what);
        let Some(&(what, most)) = found else {
            let expected: Vec<What> = accept.iter().map(|&(what, _)| what).collect();
            let found = header.what;
            return Err(malformed(format!(
                "{found:?} came in place of {expected:?}"
            )));
        };
        if header.length > most {
            let length = header.length;
            return Err(malformed(format!(
                "{what:?} announces {length} bytes, of {most} at most"
            )));
        }
        Ok(header)
    }

    /// The body of a message. Memory grows with what arrives, not with what was announced.
    pub fn body(&mut self, header: Header) -> Result<Vec<u8>, CloudError> {
        let mut body = Vec::new();
        self.body_to(header, &mut body)?;
        Ok(body)
    }

    /// The body of a message, passed on part by part.
    pub fn body_to(&mut self, header: Header, sink: &mut impl Write) -> Result<(), CloudError> {
        let (mut left, mut payload) = (header.length, Vec::new());
        let mut hasher = blake3::Hasher::new();
        while left > 0 {
            let most = left.min(PART as u64) as usize;
            self.link.receive(&[(Kind::Data, most)], &mut payload)?;
            if payload.is_empty() {
                return Err(malformed(format!("{:?} has an empty part", header.what)));
            }
            left -= payload.len() as u64;
            hasher.update(&payload);
            let kept = sink.write_all(&payload);
            kept.map_err(|source| CloudError::File {
                path: format!("{:?}", header.what),
                source,
            })?;
        }
        if *hasher.finalize().as_bytes() != header.digest {
            return Err(SessionError::Damaged.into());
        }
        Ok(())
    }

    /// The body of a message that must come within a time.
    pub fn take(&mut self, within: Duration, what: What, most: u64) -> Result<Vec<u8>, CloudError> {
        let header = self.begin(within, &[(what, most)])?;
        self.body(header)
    }

    /// Ends the connection, with the reason where there is one that the peer is to hear.
    pub fn close(&mut self, error: Option<&CloudError>) {
        let told = error.and_then(|error| match error {
            CloudError::Session(error) if error.is_worth_telling() => {
                Some(ErrorMessage::of_server(error))
            }
            _ => None,
        });
        self.link.close(told.as_ref());
    }
}

/// A frame's payload as a header.
fn read_header(payload: &[u8]) -> Result<Header, CloudError> {
    let wrong = || malformed("a message has no header".into());
    let payload: &[u8; HEADER] = payload.try_into().map_err(|_| wrong())?;
    let (length, digest) = payload[1..].split_first_chunk().ok_or_else(wrong)?;
    let what = What::ALL.into_iter().find(|&what| what as u8 == payload[0]);
    Ok(Header {
        what: what.ok_or_else(|| malformed(format!("a message of unknown kind {}", payload[0])))?,
        length: u64::from_le_bytes(*length),
        digest: digest.try_into().map_err(|_| wrong())?,
    })
}

/// A connection with a cloud, with the proof of a token where there is one.
pub(super) fn connect(address: &str, options: &ConnectOptions) -> Result<Peer, CloudError> {
    let channel = secured(address, options)?;
    let mut link = link(channel.transport, channel.binding.as_ref(), options)?;
    prove(&mut link, channel.proof)?;
    Ok(Peer::new(link))
}

pub(super) fn unless_cancelled(options: &ConnectOptions, error: CloudError) -> CloudError {
    match options.cancel.load(Ordering::SeqCst) {
        true => SessionError::Cancelled.into(),
        false => error,
    }
}

/// Whether the cloud wants a publication or keys, and how long they may be.
pub(super) struct Wanted {
    pub send: bool,
    pub most: u64,
}

impl Wanted {
    pub const BYTES: u64 = 9;

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.send.into()];
        bytes.extend(self.most.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, CloudError> {
        let wrong = || malformed("what the cloud wants has another length".into());
        let (&send, most) = bytes.split_first().ok_or_else(wrong)?;
        Ok(Self {
            send: send != 0,
            most: u64::from_le_bytes(most.try_into().map_err(|_| wrong())?),
        })
    }

    /// Refuses to send what the cloud does not take.
    pub fn check(&self, length: u64) -> Result<(), CloudError> {
        let most = self.most;
        match length <= most {
            true => Ok(()),
            false => Err(CloudError::TooLarge { length, most }),
        }
    }
}
