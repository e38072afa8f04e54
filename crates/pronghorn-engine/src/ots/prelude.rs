//! The set-ups of OTs before the first step.

use pronghorn_mpc::ot::OtParameters;
use pronghorn_plan::{CheckedPlan, StepKind};

use super::{
    Lean, LeanSetupClient, LeanSetupServer, ReceiverOts, SenderOts, SetupClient, SetupServer,
};
use crate::{
    connection::Connection,
    error::EngineError,
    machine::Exchanging,
    protocol::{Prelude, PreludeKind},
};

/// The machine of a set-up on a connection that lacks one.
type Start = fn(&Connection) -> Option<Exchanging>;

/// A set-up of OTs.
struct OtSetup(PreludeKind, Start);

impl Prelude for OtSetup {
    fn kind(&self) -> PreludeKind {
        self.0
    }

    fn start(
        &self,
        connection: &Connection,
        _batch: usize,
    ) -> Result<Option<Exchanging>, EngineError> {
        Ok((self.1)(connection))
    }

    fn is_offline(&self) -> bool {
        true
    }
}

type Preludes = [Option<Box<dyn Prelude>>; 2];

fn preludes(plan: &CheckedPlan, [forward, lean]: [Start; 2]) -> Preludes {
    let is_lean = plan
        .steps
        .iter()
        .any(|step| matches!(step.kind, StepKind::Lean(_)));
    let prelude = |kind, start| Box::new(OtSetup(kind, start)) as _;
    [
        (plan.trust.shares()).then(|| prelude(PreludeKind::OtSetup, forward)),
        is_lean.then(|| prelude(PreludeKind::LeanOtSetup, lean)),
    ]
}

/// The client's set-ups, for plans on shares.
pub(crate) fn client_preludes(plan: &CheckedPlan) -> Preludes {
    let forward: Start = |connection| {
        let ots: ReceiverOts = connection.kept();
        let machine = || Box::new(SetupClient::new(OtParameters::default(), ots.clone())) as _;
        (!ots.is_ready()).then(machine)
    };
    let lean: Start = |connection| {
        let (ots, sends, receives): (ReceiverOts, Lean<SenderOts>, Lean<ReceiverOts>) =
            (connection.kept(), connection.kept(), connection.kept());
        let is_ready = sends.0.is_ready() && receives.0.is_ready();
        (!is_ready).then(|| Box::new(LeanSetupClient::new(ots, sends, receives)) as _)
    };
    preludes(plan, [forward, lean])
}

/// The server's.
pub(crate) fn server_preludes(plan: &CheckedPlan) -> Preludes {
    let forward: Start = |connection| {
        let ots: SenderOts = connection.kept();
        let machine = || Box::new(SetupServer::new(OtParameters::default(), ots.clone())) as _;
        (!ots.is_ready()).then(machine)
    };
    let lean: Start = |connection| {
        let (ots, sends, receives): (SenderOts, Lean<SenderOts>, Lean<ReceiverOts>) =
            (connection.kept(), connection.kept(), connection.kept());
        let is_ready = sends.0.is_ready() && receives.0.is_ready();
        (!is_ready).then(|| Box::new(LeanSetupServer::new(ots, sends, receives)) as _)
    };
    preludes(plan, [forward, lean])
}
