//! All roles in one process, to see what they compute.

use pronghorn_graph::polynomial::PolyGraph;
use pronghorn_ring::{Word, random::Seed};

use super::{Client, Owner, RoleError, Service, Terms};

/// A model owner, a cloud and a client with keys of their own. Every message is made and read as
/// between machines. Protects nothing: all secrets are in one place.
pub struct Local<W: Word> {
    owner: Owner<W>,
    service: Service<W>,
    client: Client<W>,
}

impl<W: Word> Local<W> {
    /// Makes keys and encrypts the model.
    ///
    /// # Errors
    /// When `graph` is not the network of the terms, or the system has no randomness.
    pub fn new(terms: &Terms<W>, graph: &PolyGraph) -> Result<Self, RoleError> {
        let mut owner = Owner::new(terms, &Seed::from_os()?)?;
        let mut service = Service::new(&owner.publish(graph)?)?;
        let client = Client::new(&service.offer()?, owner.party(), &Seed::from_os()?)?;
        owner.admit([client.party()]);
        let party = owner.introduce(&client.introduction())?;
        service.join(&client.join()?, &owner.pair(party)?)?;
        Ok(Self {
            owner,
            service,
            client,
        })
    }

    /// The result of an image.
    ///
    /// # Errors
    /// When the image is out of range, or the key has decrypted all results that it may.
    pub fn predict(&mut self, image: &[f64]) -> Result<Vec<f64>, RoleError> {
        let request = self.client.request(image)?;
        let outcome = self.service.evaluate(self.client.party(), &request)?;
        let answer = self.owner.answer(&outcome, |_| Ok(()))?;
        self.client.finish(&outcome, &answer)
    }
}
