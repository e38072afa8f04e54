//! Connecting: from a set-up to OTs of one connection.

use pronghorn_ring::random::Seed;

use super::{CONNECT, CONNECT_MESSAGE, NOT_DONE, ReceiverSetup, SenderSetup};
use crate::{
    machine::{Machine, Want},
    ot::{
        CotReceiver, CotSender,
        error::{OtError, check_length},
    },
};

impl SenderSetup {
    /// Starts a connection.
    ///
    /// # Errors
    /// When the operating system gives no randomness, or a connection of this set-up has failed the
    /// consistency check ([`OtError::Burnt`]).
    pub fn connect(&self) -> Result<ConnectSender, OtError> {
        self.check_usable()?;
        Ok(ConnectSender {
            setup: Self {
                siblings: self.siblings.clone(),
                burnt: self.burnt.clone(),
                ..*self
            },
            nonces: Nonces::new()?,
            sent: false,
            sender: None,
        })
    }
}

impl ReceiverSetup {
    /// Starts a connection.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn connect(&self) -> Result<ConnectReceiver, OtError> {
        Ok(ConnectReceiver {
            setup: Self {
                roots: self.roots.clone(),
                ..*self
            },
            nonces: Nonces::new()?,
            masks: Seed::from_os()?,
            receiver: None,
            sent: false,
        })
    }
}

/// The nonces of a connection.
struct Nonces {
    own: [u8; 32],
}

impl Nonces {
    fn new() -> Result<Self, OtError> {
        let own = *Seed::from_os()?.as_bytes();
        Ok(Self { own })
    }

    fn message(&self, name: &[u8; 32], out: &mut Vec<u8>) {
        out.extend_from_slice(name);
        out.extend_from_slice(&self.own);
    }

    /// The peer's nonce from its message.
    fn peer<'a>(&self, name: &[u8; 32], message: &'a [u8]) -> Result<&'a [u8], OtError> {
        check_length(CONNECT_MESSAGE, message, CONNECT)?;
        let (found, nonce) = message.split_at(32);
        if found != name {
            return Err(OtError::OtherSetup);
        }
        Ok(nonce)
    }
}

/// What the keys of a connection are derived from, with the set-up.
fn connection(name: &[u8; 32], sender: &[u8], receiver: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn ot connection");
    for part in [name, sender, receiver] {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// Makes a [`CotSender`] from a set-up: sends, receives.
pub struct ConnectSender {
    setup: SenderSetup,
    nonces: Nonces,
    sent: bool,
    sender: Option<CotSender>,
}

impl ConnectSender {
    /// The sender, once [`Machine::want`] says [`Want::Done`].
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`] before that.
    pub fn into_sender(self) -> Result<CotSender, OtError> {
        self.sender.ok_or(NOT_DONE)
    }
}

impl Machine for ConnectSender {
    type Error = OtError;

    fn want(&self) -> Want {
        match (self.sent, &self.sender) {
            (false, _) => Want::Send,
            (true, None) => Want::Receive,
            (true, Some(_)) => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), OtError> {
        match self.want() {
            Want::Send => {
                self.nonces.message(&self.setup.name, out);
                self.sent = true;
                Ok(())
            }
            _ => Err(CONNECT_TURN),
        }
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), OtError> {
        match self.want() {
            Want::Receive => {
                self.setup.check_usable()?;
                let name = &self.setup.name;
                let peer = self.nonces.peer(name, message)?;
                let connection = connection(name, &self.nonces.own, peer);
                self.sender = Some(self.setup.sender(connection));
                Ok(())
            }
            _ => Err(CONNECT_TURN),
        }
    }

    fn max_incoming(&self) -> usize {
        match self.want() {
            Want::Receive => CONNECT,
            _ => 0,
        }
    }
}

const CONNECT_TURN: OtError = OtError::OutOfTurn {
    state: "each party sends one message to connect, the sender of OTs first",
};

/// Makes a [`CotReceiver`] from a set-up: receives, sends.
pub struct ConnectReceiver {
    setup: ReceiverSetup,
    nonces: Nonces,
    masks: Seed,
    receiver: Option<CotReceiver>,
    sent: bool,
}

impl ConnectReceiver {
    /// The receiver, once [`Machine::want`] says [`Want::Done`].
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`] before that.
    pub fn into_receiver(self) -> Result<CotReceiver, OtError> {
        match self.want() {
            Want::Done => self.receiver.ok_or(NOT_DONE),
            _ => Err(NOT_DONE),
        }
    }
}

impl Machine for ConnectReceiver {
    type Error = OtError;

    fn want(&self) -> Want {
        match (&self.receiver, self.sent) {
            (None, _) => Want::Receive,
            (Some(_), false) => Want::Send,
            (Some(_), true) => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), OtError> {
        match self.want() {
            Want::Send => {
                self.nonces.message(&self.setup.name, out);
                self.sent = true;
                Ok(())
            }
            _ => Err(CONNECT_TURN),
        }
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), OtError> {
        match self.want() {
            Want::Receive => {
                let name = &self.setup.name;
                let peer = self.nonces.peer(name, message)?;
                let connection = connection(name, peer, &self.nonces.own);
                self.receiver = Some(self.setup.receiver(connection, &self.masks));
                Ok(())
            }
            _ => Err(CONNECT_TURN),
        }
    }

    fn max_incoming(&self) -> usize {
        match self.want() {
            Want::Receive => CONNECT,
            _ => 0,
        }
    }
}
