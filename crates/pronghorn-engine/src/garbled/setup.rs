//! The oblivious transfers of a connection, set up.
//!
//! A new set-up takes five messages: the client's nonce; the server's, and its keys of the base OTs; the
//! client's answer; and one from each side that connects ([`pronghorn_mpc::ot::setup`]). One that is resumed takes the
//! last two. The base OTs are bound to both nonces, so no party can repeat an earlier session by itself.

use std::sync::Arc;

use pronghorn_mpc::{
    machine::Machine as _,
    ot::{
        ConnectSender, CotReceiver, OtError, OtParameters, ReceiverSetup, SenderSetup,
        SetupReceiver, SetupSender,
    },
};
use pronghorn_ring::random::Seed;

use super::{ClientOts, ServerOts, check_length};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, Want},
};

/// Stands for the step in errors.
const STEP: &str = "the set-up of oblivious transfers";
/// Bytes of a party's part of the session's name.
const NONCE: usize = 16;
/// Bytes of a message that connects.
const CONNECT: usize = 64;

type Nonce = [u8; NONCE];

fn nonce() -> Result<Nonce, EngineError> {
    let seed = Seed::from_os()?;
    Ok(*seed
        .as_bytes()
        .first_chunk()
        .expect("a seed has more bytes"))
}

fn session(client: &Nonce, server: &Nonce) -> [u8; 32] {
    let mut session = [0; 32];
    session[..NONCE].copy_from_slice(client);
    session[NONCE..].copy_from_slice(server);
    session
}

fn ot(source: OtError) -> EngineError {
    EngineError::Ot {
        step: STEP.to_owned(),
        source,
    }
}

const NOT_OURS: EngineError = EngineError::OutOfTurn {
    state: "waits for the peer's part of the set-up of oblivious transfers",
};
const NOT_THEIRS: EngineError = EngineError::OutOfTurn {
    state: "is at this party's turn in the set-up of oblivious transfers",
};

/// The client's half: the receiver of OTs. A new set-up with ML-KEM takes 205 KB up, 201 KB down, and some milliseconds of
/// each party's work; to resume one takes 128 bytes.
pub struct SetupClient {
    parameters: OtParameters,
    ots: ClientOts,
    state: ClientState,
    messages: u64,
    total: u64,
}

enum ClientState {
    SendNonce,
    ReceiveKeys(Nonce),
    SendKeys(Box<SetupReceiver>),
    ReceiveConnect(Arc<ReceiverSetup>),
    SendConnect(Vec<u8>, Box<(Arc<ReceiverSetup>, CotReceiver)>),
    Done,
    Failed,
}

impl SetupClient {
    /// Makes a new set-up; the server must do the same, with the same parameters. Fills `ots`.
    pub fn new(parameters: OtParameters, ots: ClientOts) -> Self {
        Self {
            parameters,
            ots,
            state: ClientState::SendNonce,
            messages: 0,
            total: 5,
        }
    }

    /// Resumes from one that was made with the same server ([`ClientOts::setup`]); the server must do the same.
    pub fn resume(setup: Arc<ReceiverSetup>, ots: ClientOts) -> Self {
        Self {
            parameters: OtParameters::default(),
            ots,
            state: ClientState::ReceiveConnect(setup),
            messages: 0,
            total: 2,
        }
    }

    fn answer_keys(&self, own: &Nonce, message: &[u8]) -> Result<ClientState, EngineError> {
        let expected = NONCE + keys_bytes(&self.parameters);
        check_length(STEP, "the server's keys", message.len(), expected)?;
        let (peer, keys) = message.split_first_chunk().expect("the length was checked");
        let (session, seed) = (session(own, peer), Seed::from_os()?);
        let mut receiver = SetupReceiver::new(self.parameters, session, &seed);
        receiver.receive(keys).map_err(ot)?;
        Ok(ClientState::SendKeys(Box::new(receiver)))
    }

    fn answer_connect(
        setup: Arc<ReceiverSetup>,
        message: &[u8],
    ) -> Result<ClientState, EngineError> {
        let mut connect = setup.connect().map_err(ot)?;
        connect.receive(message).map_err(ot)?;
        let mut answer = Vec::new();
        connect.send(&mut answer).map_err(ot)?;
        let receiver = connect.into_receiver().map_err(ot)?;
        Ok(ClientState::SendConnect(
            answer,
            Box::new((setup, receiver)),
        ))
    }
}

/// Bytes of the server's keys of the base OTs.
fn keys_bytes(parameters: &OtParameters) -> usize {
    SetupReceiver::new(*parameters, [0; 32], &Seed::from_bytes([0; 32])).max_incoming()
}

impl Machine for SetupClient {
    fn want(&self) -> Want {
        match self.state {
            ClientState::SendNonce | ClientState::SendKeys(_) | ClientState::SendConnect(..) => {
                Want::Send
            }
            ClientState::ReceiveKeys(_) | ClientState::ReceiveConnect(_) => Want::Receive,
            ClientState::Done | ClientState::Failed => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if self.want() != Want::Send {
            return Err(NOT_OURS);
        }
        self.state = match std::mem::replace(&mut self.state, ClientState::Failed) {
            ClientState::SendNonce => {
                let nonce = nonce()?;
                out.extend_from_slice(&nonce);
                ClientState::ReceiveKeys(nonce)
            }
            ClientState::SendKeys(mut receiver) => {
                receiver.send(out).map_err(ot)?;
                ClientState::ReceiveConnect(Arc::new(receiver.into_setup().map_err(ot)?))
            }
            ClientState::SendConnect(answer, made) => {
                out.extend_from_slice(&answer);
                let (setup, receiver) = *made;
                self.ots.fill(setup, receiver);
                ClientState::Done
            }
            _ => return Err(NOT_OURS),
        };
        self.messages += 1;
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        if self.want() != Want::Receive {
            return Err(NOT_THEIRS);
        }
        self.state = match std::mem::replace(&mut self.state, ClientState::Failed) {
            ClientState::ReceiveKeys(own) => self.answer_keys(&own, message)?,
            ClientState::ReceiveConnect(setup) => Self::answer_connect(setup, message)?,
            _ => return Err(NOT_THEIRS),
        };
        self.messages += 1;
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.state {
            ClientState::ReceiveKeys(_) => NONCE + keys_bytes(&self.parameters),
            ClientState::ReceiveConnect(_) => CONNECT,
            _ => 0,
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            done: self.messages,
            total: self.total,
        }
    }
}

/// The server's half: the sender of OTs, whose `Delta` is drawn here.
pub struct SetupServer {
    parameters: OtParameters,
    ots: ServerOts,
    state: ServerState,
    messages: u64,
    total: u64,
}

enum ServerState {
    ReceiveNonce,
    SendKeys(Nonce),
    ReceiveKeys(Box<SetupSender>),
    SendConnect(Arc<SenderSetup>),
    ReceiveConnect(Box<(Arc<SenderSetup>, ConnectSender)>),
    Done,
    Failed,
}

impl SetupServer {
    /// Makes a new set-up; see [`SetupClient::new`].
    pub fn new(parameters: OtParameters, ots: ServerOts) -> Self {
        Self {
            parameters,
            ots,
            state: ServerState::ReceiveNonce,
            messages: 0,
            total: 5,
        }
    }

    /// Resumes from one that was made with the same client ([`ServerOts::setup`]). One value should serve all
    /// connections with that client, so that a failed check on one of them ends all.
    pub fn resume(setup: Arc<SenderSetup>, ots: ServerOts) -> Self {
        Self {
            parameters: OtParameters::default(),
            ots,
            state: ServerState::SendConnect(setup),
            messages: 0,
            total: 2,
        }
    }

    fn send_keys(&self, peer: &Nonce, out: &mut Vec<u8>) -> Result<ServerState, EngineError> {
        let own = nonce()?;
        out.extend_from_slice(&own);
        let (session, seed) = (session(peer, &own), Seed::from_os()?);
        let mut sender = SetupSender::new(self.parameters, session, &seed);
        sender.send(out).map_err(ot)?;
        Ok(ServerState::ReceiveKeys(Box::new(sender)))
    }
}

impl Machine for SetupServer {
    fn want(&self) -> Want {
        match self.state {
            ServerState::SendKeys(_) | ServerState::SendConnect(_) => Want::Send,
            ServerState::ReceiveNonce
            | ServerState::ReceiveKeys(_)
            | ServerState::ReceiveConnect(_) => Want::Receive,
            ServerState::Done | ServerState::Failed => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if self.want() != Want::Send {
            return Err(NOT_OURS);
        }
        self.state = match std::mem::replace(&mut self.state, ServerState::Failed) {
            ServerState::SendKeys(peer) => self.send_keys(&peer, out)?,
            ServerState::SendConnect(setup) => {
                let mut connect = setup.connect().map_err(ot)?;
                connect.send(out).map_err(ot)?;
                ServerState::ReceiveConnect(Box::new((setup, connect)))
            }
            _ => return Err(NOT_OURS),
        };
        self.messages += 1;
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        if self.want() != Want::Receive {
            return Err(NOT_THEIRS);
        }
        self.state = match std::mem::replace(&mut self.state, ServerState::Failed) {
            ServerState::ReceiveNonce => {
                check_length(STEP, "the client's nonce", message.len(), NONCE)?;
                ServerState::SendKeys(message.try_into().expect("the length was checked"))
            }
            ServerState::ReceiveKeys(mut sender) => {
                sender.receive(message).map_err(ot)?;
                ServerState::SendConnect(Arc::new(sender.into_setup().map_err(ot)?))
            }
            ServerState::ReceiveConnect(connecting) => {
                let (setup, mut connect) = *connecting;
                connect.receive(message).map_err(ot)?;
                self.ots.fill(setup, connect.into_sender().map_err(ot)?);
                ServerState::Done
            }
            _ => return Err(NOT_THEIRS),
        };
        self.messages += 1;
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match &self.state {
            ServerState::ReceiveNonce => NONCE,
            ServerState::ReceiveKeys(sender) => sender.max_incoming(),
            ServerState::ReceiveConnect(_) => CONNECT,
            _ => 0,
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            done: self.messages,
            total: self.total,
        }
    }
}
