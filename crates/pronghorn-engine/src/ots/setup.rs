//! The oblivious transfers of a connection, set up.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the client's nonce | client | 16 |
//! | the server's keys, behind its nonce | server | 16 + [`OtParameters::sender_bytes`] |
//! | the client's keys | client | [`OtParameters::receiver_bytes`] |
//! | the server's part of the connection | server | 64 |
//! | the client's part of the connection | client | 64 |
//!
//! A set-up that is resumed takes the last two. The base OTs are bound to both nonces, so no party
//! can repeat an earlier session by itself ([`pronghorn_mpc::ot::setup`]). On a protected channel
//! they are bound to that too, so that a relay between two channels makes OTs that do not fit.

use std::sync::Arc;

use pronghorn_mpc::{
    machine::Machine as _,
    ot::{
        ConnectSender, CotReceiver, OtError, OtParameters, ReceiverSetup, SenderSetup,
        SetupReceiver, SetupSender,
    },
};
use pronghorn_ring::random::Seed;

use super::{ReceiverOts, SenderOts};
use crate::{
    error::EngineError,
    exchange::{Exchange, Message, Messages, Party, Protocol, Turn},
};

/// Stands for the step in errors.
const STEP: &str = "the set-up of oblivious transfers";
/// Bytes of a party's part of the session's name.
const NONCE_BYTES: usize = 16;
/// Bytes of a message that connects.
const CONNECT_BYTES: usize = 64;

const NONCE: &str = "the client's nonce";
const SERVER_KEYS: &str = "the server's keys";
const CLIENT_KEYS: &str = "the client's keys";
const SERVER_CONNECTS: &str = "the server's part of the connection";
const CLIENT_CONNECTS: &str = "the client's part of the connection";

/// The messages of a new set-up.
fn new_setup(parameters: &OtParameters) -> Messages {
    let keys = [
        NONCE_BYTES + parameters.sender_bytes(),
        parameters.receiver_bytes(),
    ];
    Messages::new(STEP)
        .with(Message::client(NONCE, NONCE_BYTES).rows(1))
        .with(Message::server(SERVER_KEYS, keys[0]).rows(1))
        .with(Message::client(CLIENT_KEYS, keys[1]).rows(1))
        .with_all(CONNECTION)
}

/// The messages of one that is resumed, and the last of a new one.
const CONNECTION: [Message; 2] = [
    Message::server(SERVER_CONNECTS, CONNECT_BYTES).rows(1),
    Message::client(CLIENT_CONNECTS, CONNECT_BYTES).rows(1),
];

type Nonce = [u8; NONCE_BYTES];

/// What only the two ends of a protected channel have.
type Binding = Option<[u8; 32]>;

fn nonce() -> Result<Nonce, EngineError> {
    let seed = Seed::from_os()?;
    Ok(*seed
        .as_bytes()
        .first_chunk()
        .expect("a seed has more bytes"))
}

const BOUND: &str = "pronghorn 2026 session of oblivious transfers on a channel";

/// The session's name: both nonces, and what binds them to their channel where it is protected.
fn session(binding: Binding, client: &Nonce, server: &Nonce) -> [u8; 32] {
    let mut session = [0; 32];
    session[..NONCE_BYTES].copy_from_slice(client);
    session[NONCE_BYTES..].copy_from_slice(server);
    let Some(binding) = binding else {
        return session;
    };
    let mut hasher = blake3::Hasher::new_derive_key(BOUND);
    hasher.update(&binding).update(&session);
    *hasher.finalize().as_bytes()
}

pub(super) fn ot(source: OtError) -> EngineError {
    EngineError::Ot {
        step: STEP.to_owned(),
        source,
    }
}

/// What the message before left; a refused message leaves nothing.
pub(super) fn left<T>(place: &mut Option<T>) -> Result<T, EngineError> {
    place.take().ok_or(EngineError::OutOfTurn {
        state: "has failed at the set-up of oblivious transfers",
    })
}

/// The client's half: the receiver of OTs. A new set-up with ML-KEM takes 205 KB up, 201 KB down,
/// and some milliseconds of each party's work; to resume one takes 128 bytes.
pub struct SetupClient {
    parameters: OtParameters,
    ots: ReceiverOts,
    binding: Binding,
    nonce: Nonce,
    receiver: Option<SetupReceiver>,
    setup: Option<Arc<ReceiverSetup>>,
    /// The answer that connects, and what it makes.
    connected: Option<(Vec<u8>, Arc<ReceiverSetup>, CotReceiver)>,
}

impl SetupClient {
    /// Makes a new set-up; the server must do the same, with the same parameters. Fills `ots`.
    pub fn new(parameters: OtParameters, ots: ReceiverOts) -> Exchange<Self> {
        Self::bound(parameters, ots, None)
    }

    /// The same on a channel whose ends alone have `binding`: with another at the server the OTs do
    /// not fit.
    pub fn bound(
        parameters: OtParameters,
        ots: ReceiverOts,
        binding: Option<[u8; 32]>,
    ) -> Exchange<Self> {
        let client = Self {
            binding,
            ..Self::with(parameters, None, ots)
        };
        Exchange::new(new_setup(&parameters), client)
    }

    /// Resumes from one that was made with the same server ([`ReceiverOts::setup`]); the server
    /// must do the same.
    pub fn resume(setup: Arc<ReceiverSetup>, ots: ReceiverOts) -> Exchange<Self> {
        let client = Self::with(OtParameters::default(), Some(setup), ots);
        Exchange::new(Messages::new(STEP).with_all(CONNECTION), client)
    }

    fn with(parameters: OtParameters, setup: Option<Arc<ReceiverSetup>>, ots: ReceiverOts) -> Self {
        Self {
            parameters,
            ots,
            binding: None,
            nonce: Nonce::default(),
            receiver: None,
            setup,
            connected: None,
        }
    }

    fn take_keys(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let (peer, keys) = message.split_first_chunk().expect("the length was checked");
        let (session, seed) = (session(self.binding, &self.nonce, peer), Seed::from_os()?);
        let mut receiver = SetupReceiver::new(self.parameters, session, &seed);
        receiver.receive(keys).map_err(ot)?;
        self.receiver = Some(receiver);
        Ok(())
    }

    fn connect(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let setup = left(&mut self.setup)?;
        let mut connect = setup.connect().map_err(ot)?;
        connect.receive(message).map_err(ot)?;
        let mut answer = Vec::new();
        connect.send(&mut answer).map_err(ot)?;
        let receiver = connect.into_receiver().map_err(ot)?;
        self.connected = Some((answer, setup, receiver));
        Ok(())
    }
}

impl Protocol for SetupClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            NONCE => {
                self.nonce = nonce()?;
                out.extend_from_slice(&self.nonce);
            }
            CLIENT_KEYS => {
                let mut receiver = left(&mut self.receiver)?;
                receiver.send(out).map_err(ot)?;
                self.setup = Some(Arc::new(receiver.into_setup().map_err(ot)?));
            }
            CLIENT_CONNECTS => {
                let (answer, setup, receiver) = left(&mut self.connected)?;
                out.extend_from_slice(&answer);
                self.ots.fill(setup, receiver);
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            SERVER_KEYS => self.take_keys(message),
            SERVER_CONNECTS => self.connect(message),
            _ => Err(turn.unknown()),
        }
    }
}

/// The server's half: the sender of OTs, whose `Delta` is drawn here.
pub struct SetupServer {
    parameters: OtParameters,
    ots: SenderOts,
    binding: Binding,
    nonce: Nonce,
    sender: Option<SetupSender>,
    setup: Option<Arc<SenderSetup>>,
    connecting: Option<(Arc<SenderSetup>, ConnectSender)>,
}

impl SetupServer {
    /// Makes a new set-up; see [`SetupClient::new`].
    pub fn new(parameters: OtParameters, ots: SenderOts) -> Exchange<Self> {
        Self::bound(parameters, ots, None)
    }

    /// The same on a channel; see [`SetupClient::bound`].
    pub fn bound(
        parameters: OtParameters,
        ots: SenderOts,
        binding: Option<[u8; 32]>,
    ) -> Exchange<Self> {
        let server = Self {
            binding,
            ..Self::with(parameters, None, ots)
        };
        Exchange::new(new_setup(&parameters), server)
    }

    /// Resumes from one that was made with the same client ([`SenderOts::setup`]). One value should
    /// serve all connections with that client, so that a failed check on one of them ends all.
    pub fn resume(setup: Arc<SenderSetup>, ots: SenderOts) -> Exchange<Self> {
        let server = Self::with(OtParameters::default(), Some(setup), ots);
        Exchange::new(Messages::new(STEP).with_all(CONNECTION), server)
    }

    fn with(parameters: OtParameters, setup: Option<Arc<SenderSetup>>, ots: SenderOts) -> Self {
        Self {
            parameters,
            ots,
            binding: None,
            nonce: Nonce::default(),
            sender: None,
            setup,
            connecting: None,
        }
    }

    fn send_keys(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let own = nonce()?;
        out.extend_from_slice(&own);
        let (session, seed) = (session(self.binding, &self.nonce, &own), Seed::from_os()?);
        let mut sender = SetupSender::new(self.parameters, session, &seed);
        sender.send(out).map_err(ot)?;
        self.sender = Some(sender);
        Ok(())
    }
}

impl Protocol for SetupServer {
    const PARTY: Party = Party::Server;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            SERVER_KEYS => self.send_keys(out)?,
            SERVER_CONNECTS => {
                let setup = left(&mut self.setup)?;
                let mut connect = setup.connect().map_err(ot)?;
                connect.send(out).map_err(ot)?;
                self.connecting = Some((setup, connect));
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            NONCE => self.nonce.copy_from_slice(message),
            CLIENT_KEYS => {
                let mut sender = left(&mut self.sender)?;
                sender.receive(message).map_err(ot)?;
                self.setup = Some(Arc::new(sender.into_setup().map_err(ot)?));
            }
            CLIENT_CONNECTS => {
                let (setup, mut connect) = left(&mut self.connecting)?;
                connect.receive(message).map_err(ot)?;
                self.ots.fill(setup, connect.into_sender().map_err(ot)?);
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }
}
