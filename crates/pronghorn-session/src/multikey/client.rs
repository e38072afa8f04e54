//! A client of a cloud.

use pronghorn_he::multikey::Party;
use pronghorn_multikey::roles::{Client, Terms};
use pronghorn_ring::random::Seed;

use super::{
    error::CloudError,
    message::{Hello, Role, Wanted, What},
    peer::{Peer, connect, unless_cancelled},
};
use crate::{client::ConnectOptions, error::SessionError};

/// Longest offer: a description, and an encryption key of some megabytes.
const MOST_OFFER: u64 = 64 << 20;

/// A client that is connected to a cloud, for images one after the other.
pub struct CloudClient {
    peer: Peer,
    client: Client<u32>,
    options: ConnectOptions,
    /// Bytes of the public keys, where they were sent.
    keys_sent: Option<u64>,
    over: bool,
}

impl CloudClient {
    /// Connects, and learns what the cloud offers: enough to know the own name.
    ///
    /// # Errors
    /// When the cloud cannot be reached, has no model of `owner`, or a damaged one.
    pub fn meet(
        address: &str,
        owner: Party,
        seed: &Seed,
        options: ConnectOptions,
    ) -> Result<Self, CloudError> {
        let mut peer = connect(address, &options)?;
        let hello = Hello {
            role: Role::Client,
            owner: owner.0,
        };
        peer.send(What::Hello, &hello.encode())?;
        let offer = peer.take(options.timeout, What::Offer, MOST_OFFER);
        let offer = offer.map_err(|error| unless_cancelled(&options, error))?;
        Ok(Self {
            client: Client::new(&offer, owner, seed)?,
            peer,
            options,
            keys_sent: None,
            over: false,
        })
    }

    /// The client's name, which the model owner admits.
    pub fn party(&self) -> Party {
        self.client.party()
    }

    /// What all parties agree on.
    pub fn terms(&self) -> &Terms<u32> {
        self.client.terms()
    }

    /// Introduces itself to the model owner, and sends the public keys unless the cloud has them.
    /// `announce` is told their bytes before they are sent.
    ///
    /// # Errors
    /// When the model owner is away or does not admit this client, or the cloud takes no keys of
    /// this size.
    pub fn join(&mut self, announce: impl FnOnce(u64)) -> Result<(), CloudError> {
        let joined = self.try_join(announce);
        joined.map_err(|error| self.ended(error))
    }

    fn try_join(&mut self, announce: impl FnOnce(u64)) -> Result<(), CloudError> {
        let wait = self.options.timeout;
        let introduction = self.client.introduction();
        self.peer.send(What::Introduction, &introduction)?;
        let wanted = Wanted::decode(&self.peer.take(wait, What::Wanted, Wanted::BYTES)?)?;
        if wanted.send {
            // Before they take memory.
            let length = self.client.terms().client_key_bytes() as u64;
            announce(length);
            wanted.check(length)?;
            let keys = self.client.join()?;
            self.peer.send(What::Keys, &keys)?;
            self.keys_sent = Some(keys.len() as u64);
        }
        self.peer.take(wait, What::Ready, 0).map(drop)
    }

    /// Bytes of the public keys that were sent to the cloud; none where it had them.
    pub fn keys_sent(&self) -> Option<u64> {
        self.keys_sent
    }

    /// Bytes sent and received on this connection.
    pub fn bytes(&self) -> [u64; 2] {
        self.peer.bytes()
    }

    /// The result of an image, before the client's operations on it.
    ///
    /// # Errors
    /// When the image is out of range, or the cloud or the model owner refuse: then another image
    /// may follow. Any other error ends the connection.
    pub fn predict(&mut self, image: &[f64]) -> Result<Vec<f64>, CloudError> {
        if self.over {
            return Err(SessionError::Over.into());
        }
        let request = self.client.request(image)?;
        match self.ask(&request) {
            Err(error @ CloudError::Refused { .. }) => Err(error),
            outcome => outcome.map_err(|error| self.ended(error)),
        }
    }

    fn ask(&mut self, request: &[u8]) -> Result<Vec<f64>, CloudError> {
        let wait = self.options.timeout;
        let most = self.client.terms().most_message_bytes() as u64;
        self.peer.send(What::Request, request)?;
        let outcome = self.peer.take(wait, What::Outcome, most)?;
        let answer = self.peer.take(wait, What::Answer, most)?;
        Ok(self.client.finish(&outcome, &answer)?)
    }

    /// Says goodbye. Nothing can be asked for after it.
    pub fn leave(&mut self) {
        if !self.over {
            // The cloud notices without it, too.
            let _ = self.peer.send(What::Bye, &[]);
            self.over = true;
            self.peer.close(None);
        }
    }

    fn ended(&mut self, error: CloudError) -> CloudError {
        self.over = true;
        self.peer.close(None);
        unless_cancelled(&self.options, error)
    }
}

impl Drop for CloudClient {
    fn drop(&mut self) {
        self.leave();
    }
}
