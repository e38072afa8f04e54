//! Messages on a connection between two roles.

use std::{io::Write, sync::atomic::Ordering, time::Duration};

use super::{
    error::{CloudError, Refusal},
    message::{HEADER, Header, Hello, What, malformed},
};
use crate::{
    channel::PROOF_BYTES,
    client::{ConnectOptions, link, prove, secured},
    error::{SessionError, foreign_peer},
    frame::{Kind, MAX_HANDSHAKE},
    link::Link,
    message::ErrorMessage,
    text::printable,
    transport::Transport,
};

/// Longest body of a frame, in bytes.
const PART: usize = 1 << 20;
/// Longest hello.
const MOST_HELLO: u64 = MAX_HANDSHAKE as u64;
/// Longest text of a refusal, and its category.
const MOST_REFUSAL: u64 = 4 << 10;

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

    /// A handle that ends the connection while another thread waits on it.
    pub fn control(&self) -> Result<Box<dyn Transport>, CloudError> {
        Ok(self.link.control()?)
    }

    /// Why the peer has left while it was not its turn; none where it is there.
    pub fn ended(&mut self) -> Option<SessionError> {
        self.link.look()
    }

    /// Bytes sent and received.
    pub fn bytes(&self) -> [u64; 2] {
        let traffic = self.link.traffic;
        [traffic.bytes_sent, traffic.bytes_received]
    }

    /// Sends a message.
    pub fn send(&mut self, what: What, body: &[u8]) -> Result<(), CloudError> {
        let header = Header::of(what, body);
        self.link.send(Kind::Role, header.encode())?;
        for part in body.chunks(PART) {
            let mut payload = self.link.buffer();
            payload.clear();
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
        let header = Header::decode(payload)?;
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
