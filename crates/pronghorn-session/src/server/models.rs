//! The models of a server, and for whom each is.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use pronghorn_engine::{Connections, ServerModel, ServerPrepared, slots::keep_keys};
use pronghorn_plan::CheckedPlan;

use super::service::{ModelService, Service};
use crate::{
    error::SessionError,
    limits::{self, Limits, within_limits},
    message::{Listed, Listing},
    metrics::{Counters, ModelMetrics},
    model::{ModelId, ModelRef},
    quota::Identity,
    store::{
        Store,
        kept::{SERVER_SECRET, secret},
    },
};

/// Most models of a server: a listing of them fits its frame.
const MOST: usize = 256;

/// A model as its owner offers it.
pub struct Offer {
    id: ModelId,
    service: Box<dyn Service>,
    /// The names of the clients that it is for; none: anybody whom the server knows.
    clients: Option<BTreeSet<String>>,
    /// What was offered, to know it again.
    origin: Option<Arc<ServerModel>>,
}

impl Offer {
    /// A model for all clients.
    pub fn new(id: ModelId, model: Arc<ServerModel>) -> Self {
        Self {
            origin: Some(model.clone()),
            ..Self::of_service(id, Box::new(ModelService(model)))
        }
    }

    /// The same of any [`Service`].
    pub fn of_service(id: ModelId, service: Box<dyn Service>) -> Self {
        Self {
            id,
            service,
            clients: None,
            origin: None,
        }
    }

    /// The same for clients of these names alone, in their certificates or tokens.
    #[must_use]
    pub fn for_clients(self, names: impl IntoIterator<Item = String>) -> Self {
        Self {
            clients: Some(names.into_iter().collect()),
            ..self
        }
    }
}

/// A model under its plan's name.
impl From<Arc<ServerModel>> for Offer {
    fn from(model: Arc<ServerModel>) -> Self {
        Self::new(ModelId::of_plan(&model.plan().model), model)
    }
}

/// The same of any [`Service`].
impl From<Box<dyn Service>> for Offer {
    fn from(service: Box<dyn Service>) -> Self {
        Self::of_service(ModelId::of_plan(&service.plan().model), service)
    }
}

/// A model that is served, and what its clients share.
pub(super) struct Served {
    pub id: ModelId,
    pub service: Box<dyn Service>,
    pub plan_bytes: Vec<u8>,
    pub plan_hash: [u8; 32],
    pub max_batch: usize,
    pub store: Store<ServerPrepared>,
    pub connections: Connections,
    pub counters: Counters,
    origin: Option<Arc<ServerModel>>,
}

impl Served {
    fn new(offer: Offer, batch: usize, bounds: &limits::Bounds) -> Result<Self, SessionError> {
        let plan = offer.service.plan();
        let plan_hash = plan.hash();
        Ok(Self {
            plan_bytes: plan.to_bytes(),
            plan_hash,
            max_batch: batch,
            store: Store::in_memory(plan_hash, bounds.prepared)?,
            connections: Connections::default(),
            counters: Counters::default(),
            id: offer.id,
            service: offer.service,
            origin: offer.origin,
        })
    }

    /// Keeps what outlives the process in a directory.
    fn keep_in(&mut self, directory: &Path) -> Result<(), SessionError> {
        self.store = Store::open(directory, self.plan_hash, self.store.bounds())?;
        Ok(self
            .service
            .keep_secret(&secret(directory, SERVER_SECRET)?)?)
    }

    pub fn plan(&self) -> &CheckedPlan {
        self.service.plan()
    }

    /// What is counted of it.
    pub fn metrics(&self) -> ModelMetrics {
        self.counters.read(self.id.clone(), self.store.stock())
    }

    /// The images of a batch that may begin.
    pub fn checked(&self, batch: u32) -> Result<usize, SessionError> {
        let (found, most) = (batch as usize, self.max_batch);
        match (1..=most).contains(&found) {
            true => Ok(found),
            false => Err(SessionError::Batch { found, most }),
        }
    }
}

/// All of them, in the order of their owner's list.
pub(super) struct Models {
    entries: Vec<Entry>,
    /// Bytes of all batches that run at once.
    pub memory: u64,
}

struct Entry {
    served: Arc<Served>,
    clients: Option<BTreeSet<String>>,
}

impl Entry {
    fn is_for(&self, client: &Identity) -> bool {
        match (&self.clients, client) {
            (None, _) => true,
            (Some(names), Identity::Named(name)) => names.contains(name),
            (Some(_), Identity::Network(_)) => false,
        }
    }
}

impl Models {
    /// Those of the offers. What `before` serves of them goes on, with its keys and prepared batches.
    ///
    /// # Errors
    /// None or too many are offered, two are alike, the limits let nothing through, or the store
    /// refuses.
    pub fn new(
        offers: Vec<Offer>,
        limits: &Limits,
        directory: Option<&Path>,
        before: Option<&Self>,
    ) -> Result<Self, SessionError> {
        check(&offers)?;
        let plans: Vec<&CheckedPlan> = offers.iter().map(|offer| offer.service.plan()).collect();
        let bounds = within_limits(&plans, limits)?;
        let mut entries = Vec::new();
        for (mut offer, &batch) in offers.into_iter().zip(&bounds.batches) {
            let clients = offer.clients.take();
            let served = match before.and_then(|before| before.known(&offer)) {
                Some(served) => served,
                None => {
                    let mut served = Served::new(offer, batch, &bounds)?;
                    if let Some(directory) = directory {
                        served.keep_in(directory)?;
                    }
                    Arc::new(served)
                }
            };
            // They are counted as they come.
            keep_keys(&served.connections, bounds.keys / 2);
            entries.push(Entry { served, clients });
        }
        Ok(Self {
            entries,
            memory: bounds.memory,
        })
    }

    /// The model that is served already, where it is offered again.
    fn known(&self, offer: &Offer) -> Option<Arc<Served>> {
        let origin = offer.origin.as_ref()?;
        let same = |served: &&Arc<Served>| {
            let known = served.origin.as_ref();
            served.id == offer.id && known.is_some_and(|known| Arc::ptr_eq(known, origin))
        };
        self.served().find(same).cloned()
    }

    /// Keeps what outlives the process in a directory. Nobody is served yet.
    pub fn keep_in(&mut self, directory: &Path) -> Result<(), SessionError> {
        for entry in &mut self.entries {
            let served = Arc::get_mut(&mut entry.served).ok_or(SessionError::Bug)?;
            served.keep_in(directory)?;
        }
        Ok(())
    }

    pub fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.entries.iter().map(|entry| &entry.served)
    }

    fn for_client(&self, client: &Identity) -> impl Iterator<Item = &Arc<Served>> {
        let visible = self.entries.iter().filter(|entry| entry.is_for(client));
        visible.map(|entry| &entry.served)
    }

    /// The model that a client asks for.
    ///
    /// # Errors
    /// There is none for it. Whether there is one for others makes no difference.
    pub fn find(
        &self,
        asked: Option<&ModelRef>,
        client: &Identity,
    ) -> Result<Arc<Served>, SessionError> {
        let Some(asked) = asked else {
            let names: BTreeSet<_> = self
                .for_client(client)
                .map(|served| &served.id.name)
                .collect();
            let count = names.len();
            let only = self.for_client(client).last().filter(|_| count == 1);
            return only.cloned().ok_or(SessionError::Unnamed { count });
        };
        let found = self
            .for_client(client)
            .filter(|served| asked.is(&served.id));
        let none = || SessionError::NoModel {
            asked: asked.clone(),
        };
        found.last().cloned().ok_or_else(none)
    }

    /// What a client is told of them.
    pub fn listing(&self, client: &Identity) -> Listing {
        let listed = |served: &Arc<Served>| Listed {
            model: served.id.clone(),
            trust: served.plan().trust,
            plan_hash: served.plan_hash,
        };
        Listing {
            models: self.for_client(client).map(listed).collect(),
        }
    }
}

fn check(offers: &[Offer]) -> Result<(), SessionError> {
    let refused = |reason| Err(SessionError::Models { reason });
    if !(1..=MOST).contains(&offers.len()) {
        return refused(format!("there are {}: give 1 to {MOST}", offers.len()));
    }
    for (index, offer) in offers.iter().enumerate() {
        for other in &offers[..index] {
            if other.id == offer.id {
                return refused(format!("{} is there twice: give versions", offer.id));
            }
            // What is prepared under one must not be used under the other.
            if other.service.plan().hash() == offer.service.plan().hash() {
                return refused(format!(
                    "{} and {} have one plan: give their plans names of their own (name=)",
                    other.id, offer.id
                ));
            }
        }
    }
    Ok(())
}
