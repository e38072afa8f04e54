//! Clients whose keys are on their way.

use std::{collections::BTreeSet, sync::Mutex};

use pronghorn_he::multikey::Party;

use super::error::{CloudError, Refusal};
use crate::lock::lock;

/// A client whose keys are on their way: on one connection at a time, since they come into one file.
pub(super) struct Joining<'a> {
    all: &'a Mutex<BTreeSet<Party>>,
    client: Party,
}

impl<'a> Joining<'a> {
    pub fn begin(all: &'a Mutex<BTreeSet<Party>>, client: Party) -> Result<Self, CloudError> {
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
