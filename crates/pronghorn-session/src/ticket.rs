//! Tickets: an admission service says which client may open one session at which node.
//!
//! A ticket is signed (Ed25519), names its node, and serves once within its time. It also names the
//! node's run: random bytes of the process, which the service reads in its metrics. A node keeps the
//! names of used ones until they end. So a restart makes none valid again, whatever the clocks say,
//! and of two processes with one name each refuses the other's. Nodes have the public key alone, and
//! cannot issue tickets.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
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

use crate::{
    lock::lock,
    quota::{Identity, subtract},
    store::Owner,
};

/// Most bytes of a ticket.
pub const MAX_TICKET: usize = 1024;

/// Longest time of a ticket: as long are names of used ones kept.
pub const LONGEST: Duration = Duration::from_secs(600);

/// Used tickets that are remembered at most; beyond them none is taken.
const MOST_USED: usize = 1 << 16;

/// Those of one client: the name in the ticket, else its address. So none uses up all of them. It is
/// more than an admission service issues to a client in a minute, which a ticket lasts.
const MOST_OF_ONE: u64 = 1 << 12;

/// Bytes of a signature, which come first.
const SIGNATURE: usize = 64;

/// What is signed begins with this.
const CONTEXT: &[u8] = b"pronghorn 2026 ticket 2";

/// Names one process of a node; random, and no secret.
pub type Run = [u8; 16];

/// What a ticket says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ticket {
    /// Random.
    id: [u8; 16],
    /// The node that it is for.
    node: String,
    /// The process of that node.
    run: Run,
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
    /// A name without TLS.
    #[error("a ticket with a client's name needs TLS")]
    Plain,
    /// It is for another node.
    #[error("the ticket is for node {named}, and this is {node}")]
    Node {
        /// In the ticket.
        named: String,
        /// This one.
        node: String,
    },
    /// Its time is over, or it is for a process of the node that has ended.
    #[error("the ticket's time is over: ask for another")]
    Old,
    /// It serves once.
    #[error("the ticket was used: ask for another")]
    Used,
    /// More tickets of late than are remembered.
    #[error("the node is busy: it remembers no more tickets; ask for another later")]
    Full,
    /// More of one client.
    #[error("the node is busy: it remembers no more tickets of this client; ask for another later")]
    FullOfClient,
}

impl TicketError {
    /// Whether another ticket may do.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Old | Self::Used | Self::Full | Self::FullOfClient
        )
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

    /// A ticket for a client at a process of a node, for so long.
    ///
    /// # Errors
    /// The names are too long, or the system has no randomness.
    pub fn issue(
        &self,
        node: &str,
        run: Run,
        client: Option<&str>,
        time: Duration,
    ) -> Result<Vec<u8>, KeyError> {
        let id = random()?;
        let issued = now();
        let time = time.min(LONGEST).as_millis() as u64;
        let ticket = Ticket {
            id,
            node: node.into(),
            run,
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

fn random() -> Result<[u8; 16], KeyError> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| KeyError("the system has no randomness"))?;
    Ok(bytes)
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
    run: Run,
    used: Mutex<UsedTickets>,
}

#[derive(Default)]
struct UsedTickets {
    /// Who used each, by its end and its name.
    owners: BTreeMap<(u64, [u8; 16]), Owner>,
    /// How many each has used of these.
    counts: HashMap<Owner, u64>,
    /// The latest time that was seen: a clock that steps back makes none young again.
    latest: u64,
}

impl Tickets {
    /// A process of the node of this name, which takes tickets of the service with this key.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new(public: [u8; 32], node: String) -> Result<Self, KeyError> {
        Ok(Self {
            public,
            node,
            run: random()?,
            used: Mutex::default(),
        })
    }

    /// What tickets for this process say.
    pub fn run(&self) -> Run {
        self.run
    }

    /// Takes a ticket, once, from a client at an address; the client's name in it.
    ///
    /// # Errors
    /// It is forged, for another node, old or used, or the client has used too many of late.
    pub fn take(&self, bytes: &[u8], from: IpAddr) -> Result<Option<String>, TicketError> {
        let ticket = self.read(bytes).ok_or(TicketError::Forged)?;
        if ticket.node != self.node {
            let (named, node) = (ticket.node, self.node.clone());
            return Err(TicketError::Node { named, node });
        }
        if ticket.run != self.run {
            return Err(TicketError::Old);
        }
        let owner = Identity::new(from, ticket.client.clone()).owner();
        lock(&self.used).take(&ticket, owner, now())?;
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

impl UsedTickets {
    fn take(&mut self, ticket: &Ticket, owner: Owner, now: u64) -> Result<(), TicketError> {
        self.latest = self.latest.max(now);
        let now = self.latest;
        let longest = ticket.issued.saturating_add(LONGEST.as_millis() as u64);
        if now > ticket.ends || ticket.ends > longest {
            return Err(TicketError::Old);
        }
        self.forget_before(now);
        let place = (ticket.ends, ticket.id);
        if self.owners.contains_key(&place) {
            return Err(TicketError::Used);
        }
        let own = self.counts.get(&owner).copied().unwrap_or(0);
        if own >= MOST_OF_ONE {
            return Err(TicketError::FullOfClient);
        }
        if self.owners.len() >= MOST_USED {
            return Err(TicketError::Full);
        }
        self.owners.insert(place, owner);
        self.counts.insert(owner, own + 1);
        Ok(())
    }

    /// Forgets tickets that are old by now.
    fn forget_before(&mut self, now: u64) {
        while let Some(first) = self.owners.first_entry() {
            if first.key().0 >= now {
                break;
            }
            subtract(&mut self.counts, &first.remove(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

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
            let good = signer.issue("one", node.run, Some("alice"), MINUTE).expect("it is short");
            let fields = &good[SIGNATURE..];
            let kept = &fields[..at.min(fields.len())];
            for fields in [[kept, &rest].concat(), [&start, fields].concat(), rest.clone()] {
                let mut bytes = signer.0.sign(&[CONTEXT, &fields].concat()).as_ref().to_vec();
                bytes.extend(&fields);
                let taken = node.take(&bytes, HERE);
                prop_assert!(taken.is_err() || node.take(&bytes, HERE) == Err(TicketError::Used));
            }
        }
    }

    fn signer() -> Signer {
        Signer::new(&Signer::generate().expect("there is randomness")).expect("it is a key")
    }

    fn node(signer: &Signer, name: &str) -> Tickets {
        Tickets::new(signer.public(), name.into()).expect("there is randomness")
    }

    const MINUTE: Duration = Duration::from_secs(60);

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_ticket_serves_once_at_its_node() {
        let signer = signer();
        let [one, two] = ["one:7700", "two:7700"].map(|name| node(&signer, name));
        let ticket = signer
            .issue("one:7700", one.run, Some("alice"), MINUTE)
            .expect("it is short");
        assert!(matches!(
            two.take(&ticket, HERE),
            Err(TicketError::Node { .. })
        ));
        assert_eq!(one.take(&ticket, HERE), Ok(Some("alice".into())));
        assert_eq!(one.take(&ticket, HERE), Err(TicketError::Used));
        let nobody = signer
            .issue("two:7700", two.run, None, MINUTE)
            .expect("it is short");
        assert_eq!(two.take(&nobody, HERE), Ok(None));
        let long = "n".repeat(MAX_TICKET);
        assert!(signer.issue(&long, one.run, None, MINUTE).is_err());
    }

    #[test]
    fn changed_tickets_are_refused() {
        let signer = signer();
        let node = node(&signer, "one");
        let ticket = signer
            .issue("one", node.run, Some("alice"), MINUTE)
            .expect("it is short");
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(node.take(&changed, HERE), Err(TicketError::Forged));
        }
        for cut in 0..ticket.len() {
            assert_eq!(node.take(&ticket[..cut], HERE), Err(TicketError::Forged));
        }
        let other = self::signer()
            .issue("one", node.run, None, MINUTE)
            .expect("it is short");
        assert_eq!(node.take(&other, HERE), Err(TicketError::Forged));
        assert!(node.take(&ticket, HERE).is_ok());
    }

    #[test]
    fn old_tickets_are_refused() {
        let signer = signer();
        let node = node(&signer, "one");
        // Of another process with this name, before it or beside it.
        let other = self::node(&signer, "one");
        let ticket = |from: u64, ends: u64| {
            signer.sign(&Ticket {
                id: [1; 16],
                node: "one".into(),
                run: node.run,
                client: None,
                issued: now() - from,
                ends: now() - from + ends,
            })
        };
        assert_eq!(node.take(&ticket(500, 100), HERE), Err(TicketError::Old));
        // For longer than any is remembered.
        assert_eq!(
            node.take(&ticket(500, 601_000), HERE),
            Err(TicketError::Old)
        );
        assert_eq!(
            other.take(&ticket(500, 60_000), HERE),
            Err(TicketError::Old)
        );
        assert_eq!(node.take(&ticket(500, 60_000), HERE), Ok(None));
    }

    const OWNER: Owner = [0; 16];

    /// A ticket from 1000 to 2000.
    fn unsigned(number: u64) -> Ticket {
        Ticket {
            id: [number.to_le_bytes(), [1; 8]]
                .concat()
                .try_into()
                .expect("16 bytes"),
            node: "one".into(),
            run: [2; 16],
            client: None,
            issued: 1000,
            ends: 2000,
        }
    }

    /// Of one client a node remembers so many, and others go on. Once they end it takes more.
    #[test]
    fn one_client_uses_up_its_own_tickets_alone() {
        let mut used = UsedTickets::default();
        for number in 0..MOST_OF_ONE {
            assert_eq!(used.take(&unsigned(number), OWNER, 1500), Ok(()));
        }
        let next = unsigned(MOST_OF_ONE);
        let full = Err(TicketError::FullOfClient);
        assert_eq!(used.take(&next, OWNER, 1500), full);
        assert!(TicketError::FullOfClient.is_passing());
        assert_eq!(used.take(&next, [1; 16], 1500), Ok(()));
        // What was used is known for as long as it lasts.
        assert_eq!(used.take(&unsigned(0), OWNER, 2000), Err(TicketError::Used));
        let later = |number| Ticket {
            issued: 2000,
            ends: 3000,
            ..unsigned(number)
        };
        assert_eq!(used.take(&later(0), OWNER, 2000), full);
        assert_eq!(used.take(&later(0), OWNER, 2001), Ok(()));
        assert_eq!((used.owners.len(), used.counts.len()), (1, 1));
        // All clients together have a bound too.
        for number in 1..MOST_USED as u64 {
            let owner = [(number / MOST_OF_ONE) as u8; 16];
            assert_eq!(used.take(&later(number), owner, 2001), Ok(()));
        }
        let last = later(MOST_USED as u64);
        assert_eq!(used.take(&last, [99; 16], 2001), Err(TicketError::Full));
    }

    /// Tickets with a name count for that, and others for the address that brings them.
    #[test]
    fn tickets_count_for_a_name_or_an_address() {
        let signer = signer();
        let node = node(&signer, "one");
        let far: IpAddr = "10.0.0.1".parse().expect("it is an address");
        for (name, from) in [
            (Some("alice"), HERE),
            (Some("alice"), far),
            (None, HERE),
            (None, far),
        ] {
            let ticket = signer
                .issue("one", node.run, name, MINUTE)
                .expect("it is short");
            node.take(&ticket, from).expect("it is new");
        }
        let mut counts: Vec<u64> = lock(&node.used).counts.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 1, 2]);
    }

    /// A used ticket stays used, and an old one old, where the clock steps back.
    #[test]
    fn clocks_that_step_back_make_no_ticket_young() {
        let ticket = unsigned(1);
        let mut used = UsedTickets::default();
        assert_eq!(used.take(&ticket, OWNER, 1500), Ok(()));
        assert_eq!(used.take(&ticket, OWNER, 500), Err(TicketError::Used));
        let other = Ticket {
            id: [3; 16],
            ..ticket
        };
        assert_eq!(used.take(&other, OWNER, 2001), Err(TicketError::Old));
        assert_eq!(used.take(&other, OWNER, 1500), Err(TicketError::Old));
    }
}
