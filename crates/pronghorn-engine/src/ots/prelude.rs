//! The set-ups of OTs before the first step.

use pronghorn_mpc::ot::{OtParameters, silent::Chain};
use pronghorn_plan::CheckedPlan;

use super::{
    Lean, LeanSetupClient, LeanSetupServer, ReceiverOts, SenderOts, SetupClient, SetupServer,
    SilentReceives, SilentSends, SilentSetupClient, SilentSetupServer,
};
use crate::{
    connection::Connection,
    error::EngineError,
    machine::Exchanging,
    protocol::{Prelude, PreludeKind},
};

/// The machine of a set-up on a connection that lacks one.
type Start = Box<dyn Fn(&Connection) -> Option<Exchanging> + Send + Sync>;

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

type Preludes = [Option<Box<dyn Prelude>>; 3];

/// The set-ups that a plan needs, each of which rests on the one before it.
fn preludes(
    plan: &CheckedPlan,
    forward: Start,
    lean: Start,
    silent: impl Fn(Chain) -> Start,
) -> Preludes {
    let prelude = |kind, start| Box::new(OtSetup(kind, start)) as _;
    [
        plan.trust
            .shares()
            .then(|| prelude(PreludeKind::OtSetup, forward)),
        plan.is_lean()
            .then(|| prelude(PreludeKind::LeanOtSetup, lean)),
        plan.silent()
            .map(|chain| prelude(PreludeKind::SilentOtSetup, silent(chain))),
    ]
}

/// The client's set-ups, for plans on shares.
pub(crate) fn client_preludes(plan: &CheckedPlan) -> Preludes {
    let forward = |connection: &Connection| -> Option<Exchanging> {
        let ots: ReceiverOts = connection.kept();
        let binding = connection.binding();
        let setup = || SetupClient::bound(OtParameters::default(), ots.clone(), binding);
        (!ots.is_ready()).then(|| Box::new(setup()) as _)
    };
    let lean = |connection: &Connection| -> Option<Exchanging> {
        let (ots, (sends, receives)) = (connection.kept(), base(connection));
        let is_ready = sends.0.is_ready() && receives.0.is_ready();
        (!is_ready).then(|| Box::new(LeanSetupClient::new(ots, sends, receives)) as _)
    };
    let silent = |chain: Chain| -> Start {
        Box::new(move |connection| {
            let (sends, receives) = silent_ots(connection)?;
            let machine = SilentSetupClient::new(chain, base(connection), sends, receives);
            Some(Box::new(machine))
        })
    };
    preludes(plan, Box::new(forward), Box::new(lean), silent)
}

/// The server's.
pub(crate) fn server_preludes(plan: &CheckedPlan) -> Preludes {
    let forward = |connection: &Connection| -> Option<Exchanging> {
        let ots: SenderOts = connection.kept();
        let binding = connection.binding();
        let setup = || SetupServer::bound(OtParameters::default(), ots.clone(), binding);
        (!ots.is_ready()).then(|| Box::new(setup()) as _)
    };
    let lean = |connection: &Connection| -> Option<Exchanging> {
        let (ots, (sends, receives)) = (connection.kept(), base(connection));
        let is_ready = sends.0.is_ready() && receives.0.is_ready();
        (!is_ready).then(|| Box::new(LeanSetupServer::new(ots, sends, receives)) as _)
    };
    let silent = |chain: Chain| -> Start {
        Box::new(move |connection| {
            let (sends, receives) = silent_ots(connection)?;
            let machine = SilentSetupServer::new(chain, base(connection), sends, receives);
            Some(Box::new(machine))
        })
    };
    preludes(plan, Box::new(forward), Box::new(lean), silent)
}

/// The OTs of lean steps.
fn base(connection: &Connection) -> (Lean<SenderOts>, Lean<ReceiverOts>) {
    (connection.kept(), connection.kept())
}

/// The silent OTs of a connection that lacks some.
fn silent_ots(connection: &Connection) -> Option<(SilentSends, SilentReceives)> {
    let (sends, receives): (SilentSends, SilentReceives) = (connection.kept(), connection.kept());
    let is_ready = sends.is_ready() && receives.is_ready();
    (!is_ready).then_some((sends, receives))
}
