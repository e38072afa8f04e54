//! Tickets: an admission service says which client may open one session at which node.
//!
//! A ticket is signed (Ed25519), names its node, and serves once within its time. A node keeps the
//! names of used ones until they end, and refuses those of before its own start. So a restart makes
//! none valid again. Nodes have the public key alone, and cannot issue tickets.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ring::{
    rand::{SecureRandom, SystemRandom},
    signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::lock::lock;

/// Most bytes of a ticket.
pub const MAX_TICKET: usize = 1024;

/// Longest time of a ticket: as long are names of used ones kept.
pub const LONGEST: Duration = Duration::from_secs(600);

/// Used tickets that are remembered at most; beyond them none is taken.
const MOST_USED: usize = 1 << 16;

/// Bytes of a signature, which come first.
const SIGNATURE: usize = 64;

/// What is signed begins with this.
const CONTEXT: &[u8] = b"pronghorn 2026 ticket";

/// What a ticket says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ticket {
    /// Random.
    id: [u8; 16],
    /// The node that it is for.
    node: String,
    /// The client's name; none: whatever it shows the node.
    client: Option<String>,
    /// Milliseconds since 1970.
    issued: u64,
    /// Likewise.
    ends: u64,
}

/// Why a ticket is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TicketError {
    /// The node asks for tickets.
    #[error(
        "this node serves clients with a ticket: ask its admission service for one (--admission URL)"
    )]
    Missing,
    /// Nobody vouches for it.
    #[error("the ticket is not from this node's admission service")]
    Forged,
    /// It is for another node.
    #[error("the ticket is for node {named}, and this is {node}")]
    Node {
        /// In the ticket.
        named: String,
        /// This one.
        node: String,
    },
    /// Its time is over, or it is of before the node's start.
    #[error("the ticket's time is over: ask for another")]
    Old,
    /// It serves once.
    #[error("the ticket was used: ask for another")]
    Used,
    /// More tickets of late than are remembered.
    #[error("the node is busy: it remembers no more tickets; ask for another later")]
    Full,
}

impl TicketError {
    /// Whether another ticket may do.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Old | Self::Used | Self::Full)
    }
}

/// A key of an admission service that makes no sense, or no randomness.
#[derive(Debug, Error)]
#[error("the key of the admission service cannot be used: {0}")]
pub struct KeyError(&'static str);

/// Issues tickets.
pub struct Signer(Ed25519KeyPair);

impl Signer {
    /// A new key, PKCS 8.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn generate() -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let made = made.map_err(|_| KeyError("the system has no randomness"))?;
        Ok(Zeroizing::new(made.as_ref().to_vec()))
    }

    /// With a key, PKCS 8.
    ///
    /// # Errors
    /// It is none.
    pub fn new(key: &[u8]) -> Result<Self, KeyError> {
        let read = Ed25519KeyPair::from_pkcs8(key);
        Ok(Self(read.map_err(|_| KeyError("it is no Ed25519 key"))?))
    }

    /// What nodes know it by.
    pub fn public(&self) -> [u8; 32] {
        let public = self.0.public_key().as_ref().first_chunk();
        *public.expect("an Ed25519 key has 32 bytes")
    }

    /// A ticket for a client at a node, for so long.
    ///
    /// # Errors
    /// The names are too long, or the system has no randomness.
    pub fn issue(
        &self,
        node: &str,
        client: Option<&str>,
        time: Duration,
    ) -> Result<Vec<u8>, KeyError> {
        let mut id = [0; 16];
        let filled = SystemRandom::new().fill(&mut id);
        filled.map_err(|_| KeyError("the system has no randomness"))?;
        let issued = now();
        let time = time.min(LONGEST).as_millis() as u64;
        let ticket = Ticket {
            id,
            node: node.into(),
            client: client.map(str::to_owned),
            issued,
            ends: issued.saturating_add(time),
        };
        let bytes = self.sign(&ticket);
        match bytes.len() <= MAX_TICKET {
            true => Ok(bytes),
            false => Err(KeyError("the names in a ticket are too long")),
        }
    }

    fn sign(&self, ticket: &Ticket) -> Vec<u8> {
        let body = body(ticket);
        let mut bytes = self.0.sign(&body).as_ref().to_vec();
        bytes.extend(&body[CONTEXT.len()..]);
        bytes
    }
}

fn body(ticket: &Ticket) -> Vec<u8> {
    let fields = postcard::to_stdvec(ticket).expect("plain structs in memory always serialise");
    [CONTEXT, &fields].concat()
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// A node's view of tickets.
pub struct Tickets {
    public: [u8; 32],
    node: String,
    started: u64,
    /// When those that were used end.
    used: Mutex<HashMap<[u8; 16], u64>>,
}

impl Tickets {
    /// A node of this name, which takes tickets of the service with this key.
    pub fn new(public: [u8; 32], node: String) -> Self {
        Self {
            public,
            node,
            started: now(),
            used: Mutex::default(),
        }
    }

    /// Takes a ticket, once; the client's name in it.
    ///
    /// # Errors
    /// It is forged, for another node, old or used.
    pub fn take(&self, bytes: &[u8]) -> Result<Option<String>, TicketError> {
        let ticket = self.read(bytes).ok_or(TicketError::Forged)?;
        if ticket.node != self.node {
            let (named, node) = (ticket.node, self.node.clone());
            return Err(TicketError::Node { named, node });
        }
        let now = now();
        let longest = ticket.issued.saturating_add(LONGEST.as_millis() as u64);
        if ticket.issued <= self.started || now > ticket.ends || ticket.ends > longest {
            return Err(TicketError::Old);
        }
        let mut used = lock(&self.used);
        if used.contains_key(&ticket.id) {
            return Err(TicketError::Used);
        }
        if used.len() >= MOST_USED {
            used.retain(|_, ends| *ends >= now);
        }
        if used.len() >= MOST_USED {
            return Err(TicketError::Full);
        }
        used.insert(ticket.id, ticket.ends);
        Ok(ticket.client)
    }

    fn read(&self, bytes: &[u8]) -> Option<Ticket> {
        let (signature, fields) = bytes.split_at_checked(SIGNATURE)?;
        let signed = [CONTEXT, fields].concat();
        let key = UnparsedPublicKey::new(&ED25519, self.public);
        key.verify(&signed, signature).ok()?;
        match postcard::take_from_bytes(fields) {
            Ok((ticket, [])) => Some(ticket),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever a service signs: fields that cannot be read are refused, and a ticket serves once.
        #[test]
        fn any_signed_fields_are_read_or_refused(
            start in prop::collection::vec(any::<u8>(), 0..20),
            rest in prop::collection::vec(any::<u8>(), 0..60),
            at in 0..80_usize,
        ) {
            let signer = signer();
            let node = node(&signer, "one");
            let good = signer.issue("one", Some("alice"), MINUTE).expect("it is short");
            let fields = &good[SIGNATURE..];
            let kept = &fields[..at.min(fields.len())];
            for fields in [[kept, &rest].concat(), [&start, fields].concat(), rest.clone()] {
                let mut bytes = signer.0.sign(&[CONTEXT, &fields].concat()).as_ref().to_vec();
                bytes.extend(&fields);
                let taken = node.take(&bytes);
                prop_assert!(taken.is_err() || node.take(&bytes) == Err(TicketError::Used));
            }
        }
    }

    fn signer() -> Signer {
        Signer::new(&Signer::generate().expect("there is randomness")).expect("it is a key")
    }

    /// A node that has been there for a second.
    fn node(signer: &Signer, name: &str) -> Tickets {
        let mut node = Tickets::new(signer.public(), name.into());
        node.started -= 1000;
        node
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_ticket_serves_once_at_its_node() {
        let signer = signer();
        let [one, two] = ["one:7700", "two:7700"].map(|name| node(&signer, name));
        let ticket = signer
            .issue("one:7700", Some("alice"), MINUTE)
            .expect("it is short");
        assert!(matches!(two.take(&ticket), Err(TicketError::Node { .. })));
        assert_eq!(one.take(&ticket), Ok(Some("alice".into())));
        assert_eq!(one.take(&ticket), Err(TicketError::Used));
        let nobody = signer.issue("two:7700", None, MINUTE).expect("it is short");
        assert_eq!(two.take(&nobody), Ok(None));
        let long = "n".repeat(MAX_TICKET);
        assert!(signer.issue(&long, None, MINUTE).is_err());
    }

    #[test]
    fn changed_tickets_are_refused() {
        let signer = signer();
        let node = node(&signer, "one");
        let ticket = signer
            .issue("one", Some("alice"), MINUTE)
            .expect("it is short");
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(node.take(&changed), Err(TicketError::Forged));
        }
        for cut in 0..ticket.len() {
            assert_eq!(node.take(&ticket[..cut]), Err(TicketError::Forged));
        }
        let other = self::signer()
            .issue("one", None, MINUTE)
            .expect("it is short");
        assert_eq!(node.take(&other), Err(TicketError::Forged));
        assert!(node.take(&ticket).is_ok());
    }

    #[test]
    fn old_tickets_are_refused() {
        let signer = signer();
        let ticket = |from: u64, ends: u64| {
            signer.sign(&Ticket {
                id: [1; 16],
                node: "one".into(),
                client: None,
                issued: now() - from,
                ends: now() - from + ends,
            })
        };
        let node = node(&signer, "one");
        assert_eq!(node.take(&ticket(500, 100)), Err(TicketError::Old));
        // Of before its start, and for longer than any is remembered.
        assert_eq!(node.take(&ticket(2000, 60_000)), Err(TicketError::Old));
        assert_eq!(node.take(&ticket(500, 601_000)), Err(TicketError::Old));
        assert_eq!(node.take(&ticket(500, 60_000)), Ok(None));
    }
}
