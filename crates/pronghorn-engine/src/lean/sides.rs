//! Both parties' sides of lean steps: activations, and the index of the largest value.

use pronghorn_mpc::lean::Party;
use pronghorn_plan::{
    Weights,
    step::Compiled,
    steps::{
        activation::lean::{Lean, Transfers},
        argmax::ArgMax,
    },
};

use super::{
    LeanClient, LeanServer, PrepareLeanClient, PrepareLeanServer, PreparedLean, ots::Ots,
    work::Layout,
};
use crate::{
    connection::Shelf,
    error::EngineError,
    machine::{Prepared, prepared_as},
    protocol::{At, Compile, Next, Side, first, unsupported},
    share::Share,
};

macro_rules! compile {
    ($step:ty) => {
        impl Compile for $step {
            fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
                let side = LeanSide::new(step, Party::Client, self.transfers)?;
                Ok(Box::new(side))
            }

            fn server(
                &self,
                step: &Compiled<'_>,
                _weights: &Weights,
                _shelf: &Shelf,
            ) -> Result<Box<dyn Side>, EngineError> {
                let side = LeanSide::new(step, Party::Server, self.transfers)?;
                Ok(Box::new(side))
            }
        }
    };
}

compile!(Lean);
compile!(ArgMax);

/// A party's side of a lean step.
struct LeanSide {
    party: Party,
    transfers: Transfers,
    /// Of one image.
    layout: Layout,
}

impl LeanSide {
    fn new(step: &Compiled<'_>, party: Party, transfers: Transfers) -> Result<Self, EngineError> {
        let place = &step.place;
        let Some(programs) = step.derived.lean() else {
            return Err(unsupported(&place.name(), "it has no program"));
        };
        let layout = Layout {
            step: place.name(),
            inputs: place.input().len(),
            outputs: place.value().len(),
            images: 1,
            programs: programs.clone(),
        };
        Ok(Self {
            party,
            transfers,
            layout,
        })
    }

    fn layout(&self, images: usize) -> Layout {
        Layout {
            images,
            ..self.layout.clone()
        }
    }
}

impl Side for LeanSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.layout.outputs as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let share = first(inputs);
        let prepared = prepared_as::<PreparedLean>(prepared);
        let (layout, ots) = (
            self.layout(at.batch),
            Ots::of(at.connection, self.transfers),
        );
        Ok(Next::Machine(match (self.party, prepared) {
            (Party::Client, Some(prepared)) => Box::new(LeanClient::online(prepared, share)?),
            (Party::Server, Some(prepared)) => Box::new(LeanServer::online(prepared, share)?),
            (Party::Client, None) => Box::new(LeanClient::new(layout, share, ots)?),
            (Party::Server, None) => Box::new(LeanServer::new(layout, share, ots)?),
        }))
    }

    fn offline(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        let (layout, ots) = (
            self.layout(at.batch),
            Ots::of(at.connection, self.transfers),
        );
        Ok(Next::Machine(match self.party {
            Party::Client => Box::new(PrepareLeanClient::new(layout, ots)?),
            Party::Server => Box::new(PrepareLeanServer::new(layout, ots)?),
        }))
    }

    fn has_offline(&self) -> bool {
        true
    }

    fn read_prepared(&self, batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        let prepared = PreparedLean::from_bytes(self.layout(batch), self.party, bytes)?;
        Ok(Some(Box::new(prepared)))
    }
}
