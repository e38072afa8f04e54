//! Which protocol an activation or an opening under `two-party` runs, for each party.

use std::sync::Arc;

use pronghorn_mpc::ot::OtParameters;
use pronghorn_plan::{
    Plan, Protocol, StepKind, TrustLevel,
    garbled::{self as circuits, Stage},
};

use super::{
    At,
    ahead::{ClientStep, ServerStep},
};
use crate::{
    error::EngineError,
    garbled::{
        ClientOts, GarbledClient, GarbledServer, Group, Layout, OnlineClient, OnlineServer,
        OnlineSquareClient, OnlineSquareServer, OpenClient, OpenServer, Opened, Output, ServerOts,
        SetupClient, SetupServer, SquareClient, SquareServer, Squares,
    },
    machine::{Machine, StepMachine},
    share::Share,
};

/// The machine that sets oblivious transfer up, where the connection has none yet.
pub(super) fn client_prelude(
    plan: &Plan,
    ots: &ClientOts,
) -> Option<Box<dyn Machine<Error = EngineError> + Send>> {
    let missing = plan.trust == TrustLevel::TwoParty && !ots.is_ready();
    missing.then(|| Box::new(SetupClient::new(OtParameters::default(), ots.clone())) as _)
}

/// The server's side of it.
pub(super) fn server_prelude(
    plan: &Plan,
    ots: &ServerOts,
) -> Option<Box<dyn Machine<Error = EngineError> + Send>> {
    let missing = plan.trust == TrustLevel::TwoParty && !ots.is_ready();
    missing.then(|| Box::new(SetupServer::new(OtParameters::default(), ots.clone())) as _)
}

/// Rows of progress of step `index`, where it is an activation or an opening on shares.
pub(super) fn rows(plan: &Plan, index: usize) -> Option<u64> {
    let step = &plan.steps[index];
    let runs = plan.trust == TrustLevel::TwoParty
        && matches!(step.kind, StepKind::Activation(_) | StepKind::Open);
    runs.then_some(step.value.len() as u64)
}

/// Rows of progress of step `index` in a preparation.
pub(super) fn prepared_rows(plan: &Plan, index: usize) -> Option<u64> {
    let opened = plan.steps[index].kind == StepKind::Open;
    rows(plan, index).filter(|_| !opened)
}

/// What of a step can be prepared: activations, not the opening of the result.
pub(super) fn ahead(at: &At<'_>) -> Result<Option<How>, EngineError> {
    match at.step().kind {
        StepKind::Activation(_) => at.how().map(Some),
        _ => Ok(None),
    }
}

/// What a step does with its input.
pub(super) enum How {
    Garbled(Layout),
    Open(Opened),
    Square(Squares),
}

impl At<'_> {
    fn how(&self) -> Result<How, EngineError> {
        let step = self.step();
        let input = step.inputs[0];
        let bits = self.held[self.index].bits;
        let stage = match &step.kind {
            StepKind::Activation(activation) if activation.protocol == Protocol::Product => {
                return Ok(How::Square(Squares {
                    step: step.name.clone(),
                    elements: step.value.len(),
                    images: self.batch,
                    bits,
                }));
            }
            StepKind::Activation(activation) => Stage::of(&activation.ops),
            _ if !circuits::opens(&self.held[input]) => {
                return Ok(How::Open(Opened {
                    step: step.name.clone(),
                    elements: step.value.len(),
                    images: self.batch,
                    bits,
                    low: step.value.low,
                    high: step.value.high,
                }));
            }
            _ => None,
        };
        let groups = circuits::circuits(self.plan, self.index, self.held).map_err(|reason| {
            EngineError::Circuit {
                step: step.name.clone(),
                reason,
            }
        })?;
        let group = |(group, circuit): (circuits::Group, _)| Group {
            circuit: Arc::new(circuit),
            elements: group.elements,
            sources: group.sources,
        };
        let (spec, held) = (&self.plan.steps[input].value, &self.held[input]);
        let output = match step.kind {
            StepKind::Open => Output::Signed {
                bits: circuits::open_bits(spec, held),
            },
            _ => Output::Shares,
        };
        Ok(How::Garbled(Layout {
            step: step.name.clone(),
            inputs: spec.len(),
            outputs: step.value.len(),
            images: self.batch,
            groups: groups.into_iter().map(group).collect(),
            offset: stage.map_or(0, |stage| stage.offset(held)),
            output,
        }))
    }
}

/// The client's half of an activation or an opening.
pub(super) fn client(
    at: &At<'_>,
    share: Share,
    ots: &ClientOts,
    prepared: Option<ClientStep>,
) -> Result<Box<dyn StepMachine>, EngineError> {
    match prepared {
        Some(ClientStep::Garbled(prepared)) => {
            return Ok(Box::new(OnlineClient::new(prepared, share)?));
        }
        Some(ClientStep::Square(prepared)) => {
            return Ok(Box::new(OnlineSquareClient::new(prepared, share)?));
        }
        None => {}
    }
    Ok(match at.how()? {
        How::Garbled(layout) => Box::new(GarbledClient::new(layout, share, ots.clone())?),
        How::Open(opened) => Box::new(OpenClient::new(opened, share)?),
        How::Square(squares) => Box::new(SquareClient::new(squares, share, ots.clone())?),
    })
}

/// The server's half.
pub(super) fn server(
    at: &At<'_>,
    share: Share,
    ots: &ServerOts,
    prepared: Option<ServerStep>,
) -> Result<Box<dyn StepMachine>, EngineError> {
    match prepared {
        Some(ServerStep::Garbled(prepared)) => return Ok(Box::new(OnlineServer::new(*prepared))),
        Some(ServerStep::Square(prepared)) => {
            return Ok(Box::new(OnlineSquareServer::new(prepared)));
        }
        Some(ServerStep::Linear(_)) | None => {}
    }
    Ok(match at.how()? {
        How::Garbled(layout) => Box::new(GarbledServer::new(layout, share, ots.clone())?),
        How::Open(opened) => Box::new(OpenServer::new(opened, share)?),
        How::Square(squares) => Box::new(SquareServer::new(squares, share, ots.clone())?),
    })
}
