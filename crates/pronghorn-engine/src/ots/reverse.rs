//! OTs of both directions for lean steps, from those that there are.
//!
//! First the client becomes a sender, by OTs that it receives. Then the server does, by these. Both
//! have the width of least traffic.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the client's base transfers | client | 3,320 |
//! | the server's trees | server | 8,192 |
//! | the client's part of the first connection | client | 64 |
//! | the server's part of the first connection | server | 64 |
//! | the server's base transfers | server | 2,840 |
//! | the client's trees | client | 8,192 |
//! | the server's part of the second connection | server | 64 |
//! | the client's part of the second connection | client | 64 |
//!
//! The messages reveal nothing ([`pronghorn_mpc::ot::setup`]).

use std::sync::Arc;

use pronghorn_mpc::{
    machine::Machine as _,
    ot::{
        ConnectSender, CotReceiver, CotSender, OtParameters, ReceiverSetup, SenderSetup, extension,
        setup::{BaseSender, reversed},
    },
};
use pronghorn_ring::random::Seed;

use super::{
    Lean, ReceiverOts, SenderOts,
    setup::{left, ot},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Message, Messages, Party, Protocol, Turn},
};

/// Stands for the step in errors.
const STEP: &str = "the set-up of oblivious transfers for lean steps";

const CLIENT_BASE: &str = "the client's base transfers";
const SERVER_TREES: &str = "the server's trees";
const CLIENT_CONNECTS_FIRST: &str = "the client's part of the first connection";
const SERVER_CONNECTS_FIRST: &str = "the server's part of the first connection";
const SERVER_BASE: &str = "the server's base transfers";
const CLIENT_TREES: &str = "the client's trees";
const SERVER_CONNECTS_SECOND: &str = "the server's part of the second connection";
const CLIENT_CONNECTS_SECOND: &str = "the client's part of the second connection";

/// Bytes of a message that connects.
const CONNECT_BYTES: usize = 64;

const PARAMETERS: OtParameters = OtParameters::LEAST_TRAFFIC;

/// The messages. The OTs that they take may not be set up yet.
fn messages() -> Messages {
    let base =
        |parameters: OtParameters| extension::message_bytes(reversed::OTS, parameters.width());
    let client = |name, bytes| Message::client(name, bytes).rows(1);
    let server = |name, bytes| Message::server(name, bytes).rows(1);
    Messages::new(STEP)
        .with(client(CLIENT_BASE, base(OtParameters::default())))
        .with(server(SERVER_TREES, reversed::TREES_BYTES))
        .with(client(CLIENT_CONNECTS_FIRST, CONNECT_BYTES))
        .with(server(SERVER_CONNECTS_FIRST, CONNECT_BYTES))
        .with(server(SERVER_BASE, base(PARAMETERS)))
        .with(client(CLIENT_TREES, reversed::TREES_BYTES))
        .with(server(SERVER_CONNECTS_SECOND, CONNECT_BYTES))
        .with(client(CLIENT_CONNECTS_SECOND, CONNECT_BYTES))
}

/// A party on the way to send OTs, by OTs that it receives.
#[derive(Default)]
struct ToSender {
    base: Option<BaseSender>,
    setup: Option<Arc<SenderSetup>>,
    connecting: Option<(Arc<SenderSetup>, ConnectSender)>,
}

impl ToSender {
    fn base(&mut self, ots: &ReceiverOts, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let seed = Seed::from_os()?;
        let start = |ots: &mut CotReceiver| BaseSender::start(PARAMETERS, ots, &seed, out);
        self.base = Some(ots.with(STEP, start)?);
        Ok(())
    }

    fn trees(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let base = left(&mut self.base)?;
        self.setup = Some(Arc::new(base.finish(message).map_err(ot)?));
        Ok(())
    }

    fn connect(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let setup = left(&mut self.setup)?;
        let mut connect = setup.connect().map_err(ot)?;
        connect.send(out).map_err(ot)?;
        self.connecting = Some((setup, connect));
        Ok(())
    }

    fn connected(&mut self, message: &[u8], ots: &SenderOts) -> Result<(), EngineError> {
        let (setup, mut connect) = left(&mut self.connecting)?;
        connect.receive(message).map_err(ot)?;
        ots.fill(setup, connect.into_sender().map_err(ot)?);
        Ok(())
    }
}

/// A party on the way to receive OTs, by OTs that it sends.
#[derive(Default)]
struct ToReceiver {
    setup: Option<(Arc<ReceiverSetup>, Vec<u8>)>,
    connected: Option<(Vec<u8>, Arc<ReceiverSetup>, CotReceiver)>,
}

impl ToReceiver {
    fn base(&mut self, ots: &SenderOts, message: &[u8]) -> Result<(), EngineError> {
        let (seed, mut trees) = (Seed::from_os()?, Vec::new());
        let respond =
            |ots: &mut CotSender| reversed::respond(PARAMETERS, ots, message, &seed, &mut trees);
        let setup = ots.with(STEP, respond)?;
        self.setup = Some((Arc::new(setup), trees));
        Ok(())
    }

    fn trees(&self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let (_, trees) = self.setup.as_ref().ok_or_else(|| turn.unknown())?;
        out.extend_from_slice(trees);
        Ok(())
    }

    fn connect(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let (setup, _) = left(&mut self.setup)?;
        let mut connect = setup.connect().map_err(ot)?;
        connect.receive(message).map_err(ot)?;
        let mut answer = Vec::new();
        connect.send(&mut answer).map_err(ot)?;
        let receiver = connect.into_receiver().map_err(ot)?;
        self.connected = Some((answer, setup, receiver));
        Ok(())
    }

    fn connected(&mut self, ots: &ReceiverOts, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let (answer, setup, receiver) = left(&mut self.connected)?;
        out.extend_from_slice(&answer);
        ots.fill(setup, receiver);
        Ok(())
    }
}

/// The client's half.
pub struct LeanSetupClient {
    ots: ReceiverOts,
    sends: Lean<SenderOts>,
    receives: Lean<ReceiverOts>,
    to_sender: ToSender,
    to_receiver: ToReceiver,
}

impl LeanSetupClient {
    /// Fills both handles by these OTs, which must be set up by then.
    pub fn new(
        ots: ReceiverOts,
        sends: Lean<SenderOts>,
        receives: Lean<ReceiverOts>,
    ) -> Exchange<Self> {
        let client = Self {
            ots,
            sends,
            receives,
            to_sender: ToSender::default(),
            to_receiver: ToReceiver::default(),
        };
        Exchange::new(messages(), client)
    }
}

impl Protocol for LeanSetupClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            CLIENT_BASE => self.to_sender.base(&self.ots, out),
            CLIENT_CONNECTS_FIRST => self.to_sender.connect(out),
            CLIENT_TREES => self.to_receiver.trees(turn, out),
            CLIENT_CONNECTS_SECOND => self.to_receiver.connected(&self.receives.0, out),
            _ => Err(turn.unknown()),
        }
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            SERVER_TREES => self.to_sender.trees(message),
            SERVER_CONNECTS_FIRST => self.to_sender.connected(message, &self.sends.0),
            SERVER_BASE => self.to_receiver.base(&self.sends.0, message),
            SERVER_CONNECTS_SECOND => self.to_receiver.connect(message),
            _ => Err(turn.unknown()),
        }
    }
}

/// The server's half.
pub struct LeanSetupServer {
    ots: SenderOts,
    sends: Lean<SenderOts>,
    receives: Lean<ReceiverOts>,
    to_sender: ToSender,
    to_receiver: ToReceiver,
}

impl LeanSetupServer {
    /// Fills both handles by these OTs, which must be set up by then.
    pub fn new(
        ots: SenderOts,
        sends: Lean<SenderOts>,
        receives: Lean<ReceiverOts>,
    ) -> Exchange<Self> {
        let server = Self {
            ots,
            sends,
            receives,
            to_sender: ToSender::default(),
            to_receiver: ToReceiver::default(),
        };
        Exchange::new(messages(), server)
    }
}

impl Protocol for LeanSetupServer {
    const PARTY: Party = Party::Server;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            SERVER_TREES => self.to_receiver.trees(turn, out),
            SERVER_CONNECTS_FIRST => self.to_receiver.connected(&self.receives.0, out),
            SERVER_BASE => self.to_sender.base(&self.receives.0, out),
            SERVER_CONNECTS_SECOND => self.to_sender.connect(out),
            _ => Err(turn.unknown()),
        }
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            CLIENT_BASE => self.to_receiver.base(&self.ots, message),
            CLIENT_CONNECTS_FIRST => self.to_receiver.connect(message),
            CLIENT_TREES => self.to_sender.trees(message),
            CLIENT_CONNECTS_SECOND => self.to_sender.connected(message, &self.sends.0),
            _ => Err(turn.unknown()),
        }
    }
}
