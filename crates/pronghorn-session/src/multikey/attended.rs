//! The model owner's connection, which all clients' connections share.

use std::{
    collections::BTreeSet,
    net::Shutdown,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use pronghorn_he::multikey::Party;

use super::{
    error::{CloudError, Refusal},
    message::What,
    peer::Peer,
};
use crate::{error::SessionError, lock::lock, transport::Transport};

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
    /// Owners that are about to take the place.
    coming: AtomicUsize,
}

/// A handle on a connection. A later one has a larger number.
struct Line {
    number: u64,
    control: Box<dyn Transport>,
}

type Place<'a> = MutexGuard<'a, Option<Owner>>;

struct Owner {
    peer: Peer,
    number: u64,
    /// Clients that it was told of on this connection.
    introduced: BTreeSet<Party>,
}

impl Attended {
    /// Takes the owner's connection, in place of an earlier one, and tells the owner so; its number.
    /// Whoever asks the earlier one hears that its line has ended: it may be dead, and silent.
    pub fn attach(&self, peer: Peer) -> Result<u64, CloudError> {
        self.coming.fetch_add(1, Ordering::SeqCst);
        let attached = self.replace(peer);
        self.coming.fetch_sub(1, Ordering::SeqCst);
        // Whoever waits for it must not miss that it does not come.
        drop(lock(&self.owner));
        self.came.notify_all();
        let (number, earlier) = attached?;
        if let Some(mut earlier) = earlier {
            earlier.peer.close(None);
        }
        Ok(number)
    }

    fn replace(&self, mut peer: Peer) -> Result<(u64, Option<Owner>), CloudError> {
        let number = {
            let mut last = lock(&self.last);
            let number = last.as_ref().map_or(0, |last| last.number + 1);
            let control = peer.control()?;
            if let Some(earlier) = last.replace(Line { number, control }) {
                // It may have ended already.
                let _ = earlier.control.shutdown(Shutdown::Both);
            }
            number
        };
        let mut owner = lock(&self.owner);
        if owner.as_ref().is_some_and(|later| later.number > number) {
            return Err(SessionError::Over.into());
        }
        peer.send(What::Ready, &[])?;
        let earlier = owner.replace(Owner {
            peer,
            number,
            introduced: BTreeSet::new(),
        });
        Ok((number, earlier))
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
        if lock(&self.last)
            .as_ref()
            .is_some_and(|last| last.number > number)
        {
            return false;
        }
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

    /// The owner's place once it is taken; an error where nobody comes.
    fn present<'a>(&self, owner: Place<'a>) -> Result<Place<'a>, CloudError> {
        let is_coming =
            |owner: &mut Option<Owner>| owner.is_none() && self.coming.load(Ordering::SeqCst) > 0;
        let waited = self.came.wait_timeout_while(owner, ATTACHING, is_coming);
        let (owner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match owner.is_some() {
            true => Ok(owner),
            false => Err(away()),
        }
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
        let mut owner = self.present(lock(&self.owner))?;
        for is_first in [true, false] {
            let Some(found) = owner.as_mut() else { break };
            match act(found) {
                // The other one may have decrypted the result, and its answer is lost: the client
                // asks for another.
                Err(CloudError::Refused {
                    refusal: Refusal::Owner,
                    ..
                }) if !is_first => break,
                Err(error) if !matches!(error, CloudError::Refused { .. }) => {
                    self.cut(owner.take());
                    owner = self.present(owner)?;
                }
                done => return done,
            }
        }
        Err(away())
    }

    /// Ends the line of an owner that does not answer.
    fn cut(&self, lost: Option<Owner>) {
        let last = lock(&self.last);
        if let (Some(last), Some(lost)) = (&*last, &lost)
            && last.number == lost.number
        {
            // It may have ended already.
            let _ = last.control.shutdown(Shutdown::Both);
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
