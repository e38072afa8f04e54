//! The model owner's connection, which all clients' connections share.

use std::{
    collections::BTreeSet,
    net::Shutdown,
    sync::{
        Condvar, Mutex, PoisonError, TryLockError,
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
use crate::{lock::lock, transport::Transport};

/// How often the owner hears from the cloud.
pub(super) const ALIVE: Duration = Duration::from_secs(15);
/// How long a question waits for an owner that has just come in place of another.
const ATTACHING: Duration = Duration::from_secs(10);

/// The owner, if it is connected.
#[derive(Default)]
pub(super) struct Attended {
    owner: Mutex<Option<Owner>>,
    /// Told when an owner comes.
    came: Condvar,
    /// Ends the line of the owner that came last, while somebody asks it.
    last: Mutex<Option<Line>>,
    /// Counts connections, so that a later one is not ended in an earlier one's place.
    next: AtomicU64,
}

/// A handle on a connection.
struct Line {
    number: u64,
    control: Box<dyn Transport>,
}

struct Owner {
    peer: Peer,
    number: u64,
    /// Clients that it was told of on this connection.
    introduced: BTreeSet<Party>,
}

impl Attended {
    /// Takes the owner's connection, in place of an earlier one, and tells the owner so; its number.
    /// Whoever asks the earlier one hears that its line has ended: it may be dead, and silent.
    pub fn attach(&self, mut peer: Peer) -> Result<u64, CloudError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let control = peer.control()?;
        if let Some(earlier) = lock(&self.last).replace(Line { number, control }) {
            // It may have ended already.
            let _ = earlier.control.shutdown(Shutdown::Both);
        }
        let mut owner = lock(&self.owner);
        let earlier = owner.take();
        peer.send(What::Ready, &[])?;
        *owner = Some(Owner {
            peer,
            number,
            introduced: BTreeSet::new(),
        });
        drop(owner);
        self.came.notify_all();
        if let Some(mut earlier) = earlier {
            earlier.peer.close(None);
        }
        Ok(number)
    }

    /// Gives the connection of this number back, if it is still there.
    pub fn detach(&self, number: u64) -> Option<Peer> {
        let mut owner = lock(&self.owner);
        match &*owner {
            Some(found) if found.number == number => owner.take().map(|owner| owner.peer),
            _ => None,
        }
    }

    /// Whether the connection of this number is there, and the owner has not left it. While somebody
    /// asks the owner it is.
    pub fn is_there(&self, number: u64) -> bool {
        let mut owner = match self.owner.try_lock() {
            Ok(owner) => owner,
            Err(TryLockError::WouldBlock) => return true,
            Err(TryLockError::Poisoned(owner)) => owner.into_inner(),
        };
        match owner.as_mut() {
            Some(found) if found.number == number => found.peer.ended().is_none(),
            _ => false,
        }
    }

    /// Refuses where the owner is away.
    pub fn check(&self) -> Result<(), CloudError> {
        lock(&self.owner).as_ref().map(drop).ok_or_else(away)
    }

    /// Tells the owner that the cloud is there.
    pub fn keep_alive(&self, idle: Duration) -> Result<(), CloudError> {
        self.with_owner(|owner| {
            owner
                .exchange(What::Alive, &[], (What::Alive, 0), idle)
                .map(drop)
        })
    }

    /// Tells the owner of a client, by its introduction.
    pub fn introduce(&self, client: (Party, &[u8]), idle: Duration) -> Result<(), CloudError> {
        self.with_owner(|owner| owner.introduce(client, idle))
    }

    /// Sends a message about a client to the owner and waits for its answer, while nobody else asks.
    /// An owner that was not told of the client on this connection is told before. Where the
    /// connection fails the owner is away, or another one is asked that has come in its place.
    pub fn ask(
        &self,
        client: (Party, &[u8]),
        (what, body): (What, &[u8]),
        answer: (What, u64),
        idle: Duration,
    ) -> Result<Vec<u8>, CloudError> {
        self.with_owner(|owner| {
            owner.introduce(client, idle)?;
            owner.exchange(what, body, answer, idle)
        })
    }

    fn with_owner<T>(
        &self,
        act: impl Fn(&mut Owner) -> Result<T, CloudError>,
    ) -> Result<T, CloudError> {
        let mut owner = lock(&self.owner);
        loop {
            let found = owner.as_mut().ok_or_else(away)?;
            let number = found.number;
            match act(found) {
                Err(error) if !matches!(error, CloudError::Refused { .. }) => *owner = None,
                done => return done,
            }
            // Each turn waits for a later owner, so this ends.
            if !lock(&self.last)
                .as_ref()
                .is_some_and(|last| last.number > number)
            {
                return Err(away());
            }
            let waited = self
                .came
                .wait_timeout_while(owner, ATTACHING, |owner| owner.is_none());
            owner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Owner {
    /// Tells the owner of a client, once a connection.
    fn introduce(
        &mut self,
        (client, introduction): (Party, &[u8]),
        idle: Duration,
    ) -> Result<(), CloudError> {
        if !self.introduced.contains(&client) {
            self.exchange(What::Introduction, introduction, (What::Alive, 0), idle)?;
            self.introduced.insert(client);
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        what: What,
        body: &[u8],
        (answer, most): (What, u64),
        idle: Duration,
    ) -> Result<Vec<u8>, CloudError> {
        self.peer.send(what, body)?;
        self.peer.take(idle, answer, most)
    }
}

fn away() -> CloudError {
    CloudError::Refused {
        refusal: Refusal::Away,
        text: "the model owner is not connected to the cloud: try again once it is".into(),
    }
}
