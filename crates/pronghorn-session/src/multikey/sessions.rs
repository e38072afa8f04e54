//! What the cloud does on a connection: that of the owner, and those of clients.

use std::{thread, time::Instant};

use pronghorn_he::multikey::Party;

use super::{
    attended::ALIVE,
    cloud::{CloudServer, Published, no_model},
    error::{CloudError, Refusal},
    limits::Guest,
    message::{Wanted, What},
    peer::Peer,
};
use crate::{
    error::SessionError,
    log::{Entry, Level},
    text::hex,
    transport::TICK,
};

impl CloudServer {
    /// The model owner's connection: its publication, and then signs of life, while clients'
    /// connections ask it.
    pub(super) fn owner(
        &self,
        line: &mut Option<Peer>,
        (owner, identity): (Party, Option<String>),
        name: [u8; 16],
        id: u64,
    ) -> Result<(), CloudError> {
        let Some(peer) = line else { return Ok(()) };
        let published = self.published();
        let earlier = published.as_ref().map(|x| (x.service.owner(), x.name));
        drop(published);
        let expected = self.options.owner.or(earlier.map(|(owner, _)| owner));
        if let Some(expected) = expected.filter(|&expected| expected != owner) {
            let [expected, owner] = [expected, owner].map(|party| hex(&party.0));
            let text = format!("the cloud is for the model of {expected}, not of {owner}");
            let refusal = Refusal::OtherOwner;
            return Err(CloudError::Refused { refusal, text });
        }
        let wanted = Wanted {
            send: earlier != Some((owner, name)),
            most: self.options.limits.upload,
        };
        peer.send(What::Wanted, &wanted.encode())?;
        if wanted.send {
            self.publish(peer, (owner, identity.as_deref()), name)?;
            let text = format!("connection {id}: owner {owner} has published a model");
            self.log(Entry::new(Level::Info, "published", &text).number("session", id));
        }
        let Some(peer) = line.take() else {
            return Ok(());
        };
        let number = self.attended.attach(peer)?;
        let text = format!("connection {id}: owner {owner} attends");
        self.log(Entry::new(Level::Info, "attended", &text).number("session", id));
        let ended = self.keep_alive(number);
        *line = self.attended.detach(number);
        ended
    }

    /// Tells the owner that the cloud is there, until its connection ends.
    fn keep_alive(&self, number: u64) -> Result<(), CloudError> {
        loop {
            let since = Instant::now();
            while since.elapsed() < ALIVE {
                if self.is_stopping() {
                    return Err(SessionError::Stopping.into());
                }
                if !self.attended.is_there(number) {
                    return Ok(());
                }
                thread::sleep(TICK);
            }
            self.attended.keep_alive(self.options.limits.idle)?;
        }
    }

    /// A client's connection: its keys, and then image after image.
    pub(super) fn client(
        &self,
        (peer, guest): (&mut Peer, &mut Guest),
        owner: Party,
        identity: Option<&str>,
        id: u64,
    ) -> Result<(), CloudError> {
        let limits = &self.options.limits;
        let _place = self.place_for(&guest.whose)?;
        let (offer, most) = match &*self.published() {
            Some(published) if published.service.owner() == owner => {
                let terms = published.service.terms();
                (
                    published.service.offer()?,
                    terms.most_message_bytes() as u64,
                )
            }
            Some(published) => {
                let found = published.service.owner();
                let [found, owner] = [found, owner].map(|party| hex(&party.0));
                let text = format!("the cloud has the model of {found}, not of {owner}");
                let refusal = Refusal::OtherOwner;
                return Err(CloudError::Refused { refusal, text });
            }
            None => return Err(no_model()),
        };
        peer.send(What::Offer, &offer)?;
        let accept = [(What::Introduction, most), (What::Bye, 0)];
        let header = peer.begin(limits.idle, &accept)?;
        let introduction = peer.body(header)?;
        if header.what == What::Bye {
            return Ok(());
        }
        let client = match &*self.published() {
            Some(published) => published.service.name(&introduction)?,
            None => return Err(no_model()),
        };
        // Before its keys: a stranger's are not taken.
        let joined = (client, introduction.as_slice());
        self.attended.introduce(joined, limits.idle)?;
        self.bind_client(client, identity)?;
        let wanted = Wanted {
            send: !self.has_keys(client),
            most: self.most_keys(),
        };
        if wanted.send {
            self.count_keys(&guest.whose)?;
        }
        self.take_pair(joined)?;
        peer.send(What::Wanted, &wanted.encode())?;
        if wanted.send {
            self.take_keys(peer, client)?;
        } else {
            self.ready_keys(client)?;
        }
        let text = format!("connection {id} is client {client}");
        self.log(Entry::new(Level::Info, "identified", &text).number("session", id));
        peer.send(What::Ready, &[])?;
        let accept = [(What::Request, most), (What::Bye, 0)];
        loop {
            self.count_bytes(guest, peer.bytes())?;
            let header = peer.begin(limits.rest, &accept)?;
            let request = peer.body(header)?;
            if header.what == What::Bye {
                return Ok(());
            }
            match self.image((peer, guest), joined, &request, most) {
                Err(CloudError::Refused { refusal, text }) => peer.refuse(refusal, &text)?,
                Err(CloudError::Role(error)) => {
                    peer.refuse(Refusal::Message, &error.to_string())?;
                }
                done => done?,
            }
        }
    }

    /// One image. A refusal leaves the connection where it was before the request.
    fn image(
        &self,
        (peer, guest): (&mut Peer, &Guest),
        joined: (Party, &[u8]),
        request: &[u8],
        most: u64,
    ) -> Result<(), CloudError> {
        let limits = &self.options.limits;
        self.count_request(&guest.whose)?;
        self.attended.introduce(joined, limits.idle)?;
        self.ready_keys(joined.0)?;
        let outcome = {
            let _turn = self.turn_for(&guest.whose)?;
            self.count_image(&guest.whose)?;
            self.evaluated(joined.0, request)?
        };
        peer.send(What::Outcome, &outcome)?;
        let asked = (What::Outcome, outcome.as_slice());
        let answer = (self.attended).ask(joined, asked, (What::Answer, most), limits.idle)?;
        peer.send(What::Answer, &answer)
    }

    /// The outcome of a request. Others may have taken the place of the client's keys while it
    /// waited.
    fn evaluated(&self, client: Party, request: &[u8]) -> Result<Vec<u8>, CloudError> {
        loop {
            match &*self.published() {
                Some(Published { service, .. }) if service.has_keys(client) => {
                    return Ok(service.evaluate(client, request)?);
                }
                Some(_) => {}
                None => return Err(no_model()),
            }
            self.ready_keys(client)?;
        }
    }
}
