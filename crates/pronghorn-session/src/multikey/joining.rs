//! Clients' keys at the cloud.

use std::{collections::BTreeSet, sync::Mutex};

use pronghorn_he::multikey::Party;

use super::{
    cloud::{CloudServer, KEYS, PAIRS, no_model},
    error::{CloudError, Refusal},
    message::What,
    peer::Peer,
};
use crate::{lock::lock, text::hex};

impl CloudServer {
    /// Whether the cloud has a client's keys.
    pub(super) fn has_keys(&self, client: Party) -> bool {
        lock(&self.recent).contains(&client) || self.directory.file(&file_of(client)).exists()
    }

    /// Asks the model owner for the key of the pair with a client, where the cloud has none.
    pub(super) fn take_pair(&self, joined: (Party, &[u8])) -> Result<(), CloudError> {
        let (client, _) = joined;
        let name = pair_of(client);
        if self.directory.file(&name).exists() {
            return Ok(());
        }
        let most = match &*self.published() {
            Some(published) => published.service.terms().pair_key_bytes() as u64,
            None => return Err(no_model()),
        };
        let idle = self.options.limits.idle;
        let asked = (What::Pair, &client.0[..]);
        let key = (self.attended).ask(joined, asked, (What::PairKey, most), idle)?;
        let found = match &*self.published() {
            Some(published) => published.service.name_of_pair(&key)?,
            None => return Err(no_model()),
        };
        if found != client {
            let text = "the model owner's key is for another client".into();
            let refusal = Refusal::Message;
            return Err(CloudError::Refused { refusal, text });
        }
        let kept = self.directory.replace(&name, &key);
        kept.map_err(CloudError::file(&self.directory.file(&name)))
    }

    /// Takes a client's public keys.
    pub(super) fn take_keys(&self, peer: &mut Peer, client: Party) -> Result<(), CloudError> {
        let limits = &self.options.limits;
        let _one = Joining::begin(&self.joining, client)?;
        let header = peer.begin(limits.idle, &[(What::Keys, self.most_keys())])?;
        if self.kept(KEYS)?.len() >= limits.kept {
            let text = "the cloud keeps the keys of as many clients as it takes; its owner may remove some".into();
            let refusal = Refusal::Busy;
            return Err(CloudError::Refused { refusal, text });
        }
        let name = file_of(client);
        let failed = CloudError::file(&self.directory.file(&name));
        let mut file = self.directory.part(&name).map_err(&failed)?;
        let loaded = (peer.body_to(header, &mut file))
            .and_then(|()| self.load(client, || self.directory.read_part(&name)));
        if let Err(error) = loaded {
            self.directory.remove_part(&name);
            return Err(error);
        }
        self.directory.complete(&name, file).map_err(failed)
    }

    /// Most bytes of a client's keys that are taken.
    pub(super) fn most_keys(&self) -> u64 {
        let published = self.published();
        let asked = (published.as_ref()).map_or(0, |x| x.service.terms().most_key_bytes());
        (asked as u64).min(self.options.limits.upload)
    }

    /// Makes sure that a client's keys are in memory.
    pub(super) fn ready_keys(&self, client: Party) -> Result<(), CloudError> {
        let mut recent = lock(&self.recent);
        if let Some(at) = recent.iter().position(|&other| other == client) {
            recent.remove(at);
            recent.push(client);
            return Ok(());
        }
        drop(recent);
        let name = file_of(client);
        self.load(client, || self.directory.read(&name)?.ok_or_else(no_keys))
    }

    /// Expands keys, one client's at a time, in place of those of whoever was silent longest.
    fn load(
        &self,
        client: Party,
        read: impl FnOnce() -> Result<Vec<u8>, CloudError>,
    ) -> Result<(), CloudError> {
        let _one = lock(&self.expansion);
        let (bytes, pair) = (read()?, self.directory.read(&pair_of(client))?);
        let pair = pair.ok_or_else(no_keys)?;
        let keys = match &*self.published() {
            Some(published) => published.service.decode(&bytes, &pair)?,
            None => return Err(no_model()),
        };
        drop((bytes, pair));
        if keys.party() != client {
            let text = "the public keys are another client's than was introduced".into();
            let refusal = Refusal::Message;
            return Err(CloudError::Refused { refusal, text });
        }
        let mut published = self.published_mut();
        let service = &mut published.as_mut().ok_or_else(no_model)?.service;
        let mut recent = lock(&self.recent);
        // Another connection of this client's may have loaded them meanwhile.
        recent.retain(|&other| other != client);
        while recent.len() >= self.options.limits.clients.max(1) {
            service.forget(recent.remove(0));
        }
        service.insert(keys)?;
        recent.push(client);
        Ok(())
    }
}

/// The file of a client's keys.
fn file_of(client: Party) -> String {
    format!("{KEYS}{}", hex(&client.0))
}

/// The file of the key of the model owner and a client.
fn pair_of(client: Party) -> String {
    format!("{PAIRS}{}", hex(&client.0))
}

fn no_keys() -> CloudError {
    CloudError::Refused {
        refusal: Refusal::Message,
        text: "the cloud has no keys of this client any more: connect again".into(),
    }
}

/// A client whose keys are on their way: on one connection at a time, since they come into one file.
struct Joining<'a> {
    all: &'a Mutex<BTreeSet<Party>>,
    client: Party,
}

impl<'a> Joining<'a> {
    fn begin(all: &'a Mutex<BTreeSet<Party>>, client: Party) -> Result<Self, CloudError> {
        if lock(all).insert(client) {
            return Ok(Self { all, client });
        }
        let text = "another connection sends this client's keys: try again later".into();
        let refusal = Refusal::Busy;
        Err(CloudError::Refused { refusal, text })
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        lock(self.all).remove(&self.client);
    }
}
