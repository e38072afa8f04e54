//! The model owner's connection, which all clients' connections share.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pronghorn_he::multikey::Party;

use super::{
    error::{CloudError, Refusal},
    message::What,
    peer::Peer,
};
use crate::lock::lock;

/// How often the owner hears from the cloud.
pub(super) const ALIVE: Duration = Duration::from_secs(15);

/// The owner, if it is connected.
#[derive(Default)]
pub(super) struct Attended {
    owner: Mutex<Option<Owner>>,
    /// Counts connections, so that a later one is not ended in an earlier one's place.
    next: AtomicU64,
}

struct Owner {
    peer: Peer,
    number: u64,
    /// Clients that it was told of on this connection.
    introduced: BTreeSet<Party>,
}

impl Attended {
    /// Takes the owner's connection, in place of an earlier one; its number.
    pub fn attach(&self, peer: Peer) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let owner = Owner {
            peer,
            number,
            introduced: BTreeSet::new(),
        };
        if let Some(mut earlier) = lock(&self.owner).replace(owner) {
            earlier.peer.close(None);
        }
        number
    }

    /// Gives the connection of this number back, if it is still there.
    pub fn detach(&self, number: u64) -> Option<Peer> {
        let mut owner = lock(&self.owner);
        match &*owner {
            Some(found) if found.number == number => owner.take().map(|owner| owner.peer),
            _ => None,
        }
    }

    /// Whether the connection of this number is there.
    pub fn is(&self, number: u64) -> bool {
        let owner = lock(&self.owner);
        owner.as_ref().is_some_and(|owner| owner.number == number)
    }

    /// Refuses where the owner is away.
    pub fn check(&self) -> Result<(), CloudError> {
        lock(&self.owner).as_ref().map(drop).ok_or_else(away)
    }

    /// Tells the owner of a client, once a connection.
    pub fn introduce(
        &self,
        client: Party,
        introduction: &[u8],
        idle: Duration,
    ) -> Result<(), CloudError> {
        let known = |owner: &Owner| owner.introduced.contains(&client);
        if lock(&self.owner).as_ref().is_some_and(known) {
            return Ok(());
        }
        self.ask(What::Introduction, introduction, (What::Alive, 0), idle)?;
        if let Some(owner) = lock(&self.owner).as_mut() {
            owner.introduced.insert(client);
        }
        Ok(())
    }

    /// Sends a message to the owner and waits for its answer, while nobody else asks. Where the
    /// connection fails the owner is away.
    pub fn ask(
        &self,
        what: What,
        body: &[u8],
        (answer, most): (What, u64),
        idle: Duration,
    ) -> Result<Vec<u8>, CloudError> {
        let mut owner = lock(&self.owner);
        let peer = &mut owner.as_mut().ok_or_else(away)?.peer;
        let asked = peer.send(what, body);
        match asked.and_then(|()| peer.take(idle, answer, most)) {
            Err(error @ CloudError::Refused { .. }) => Err(error),
            Err(_) => {
                *owner = None;
                Err(away())
            }
            found => found,
        }
    }
}

fn away() -> CloudError {
    CloudError::Refused {
        refusal: Refusal::Away,
        text: "the model owner is not connected to the cloud: try again once it is".into(),
    }
}
