//! A relay between two TLS channels, with a certificate that the client accepts: the server's own.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::common::{
    tls::{Keys, client_config, serve, serve_model, with_tls},
    *,
};
use pronghorn_engine::ServerModel;
use pronghorn_plan::TrustLevel;
use pronghorn_session::{Client, ClientTls, ConnectOptions, ErrorCode, ServerTls, SessionError};
use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

/// What the relay knows of its two channels: towards the client, towards the server.
type Bindings = [[u8; 32]; 2];

/// Changes a frame from the client on its way.
type Change = dyn Fn(u8, &mut Vec<u8>, &Bindings) + Send + Sync;

struct Splice {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
}

impl Splice {
    fn new(
        keys: &Keys,
        server: SocketAddr,
        change: impl Fn(u8, &mut Vec<u8>, &Bindings) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let stopping = Arc::<AtomicBool>::default();
        let (towards_client, towards_server) = configs(keys);
        thread::spawn({
            let stopping = stopping.clone();
            let change: Arc<Change> = Arc::new(change);
            move || {
                for client in listener.incoming().map_while(Result::ok) {
                    let server = TcpStream::connect(server).expect("it listens");
                    let name = ServerName::try_from("localhost").expect("it is a name");
                    let near = ServerConnection::new(towards_client.clone()).expect("it is valid");
                    let far = ClientConnection::new(towards_server.clone(), name);
                    let near = Side::new(client, near.into());
                    let far = Side::new(server, far.expect("it is valid").into());
                    let (change, stopping) = (change.clone(), stopping.clone());
                    thread::spawn(move || relay(near, far, &*change, &stopping));
                }
            }
        });
        Self { address, stopping }
    }
}

impl Drop for Splice {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
    }
}

fn configs(keys: &Keys) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let file = |name: &str| std::fs::read(keys.path(name)).expect("it is there");
    let certificate = |name| CertificateDer::from_pem_slice(&file(name)).expect("it has one");
    let key = PrivateKeyDer::from_pem_slice(&file("server/server.key")).expect("it has one");
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("it has versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate("server/server.pem")], key)
        .expect("they fit");
    (Arc::new(server), client_config(keys))
}

/// One channel of the relay.
struct Side {
    socket: TcpStream,
    tls: Connection,
    plain: Vec<u8>,
}

impl Side {
    fn new(socket: TcpStream, tls: Connection) -> Self {
        socket.set_nonblocking(true).expect("it is connected");
        let plain = Vec::new();
        Self { socket, tls, plain }
    }

    fn binding(&self) -> Option<[u8; 32]> {
        let label = b"EXPORTER-Pronghorn-session-1";
        self.tls.export_keying_material([0; 32], label, None).ok()
    }

    /// Reads and writes what the line has and takes; false once it has ended.
    fn pump(&mut self) -> bool {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        match self.tls.read_tls(&mut self.socket) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
        if self.tls.process_new_packets().is_err() {
            return false;
        }
        let mut buffer = [0; 1 << 14];
        while let Ok(read @ 1..) = self.tls.reader().read(&mut buffer) {
            self.plain.extend_from_slice(&buffer[..read]);
        }
        true
    }

    /// A whole frame that has come.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let header = self.plain.first_chunk::<5>()?;
        let length = u32::from_le_bytes(*header.first_chunk().expect("it has five")) as usize;
        (self.plain.len() >= 5 + length).then(|| self.plain.drain(..5 + length).collect())
    }
}

fn relay(mut near: Side, mut far: Side, change: &Change, stopping: &AtomicBool) {
    while !stopping.load(Ordering::SeqCst) {
        let alive = near.pump() & far.pump();
        if let (Some(here), Some(there)) = (near.binding(), far.binding()) {
            while let Some(mut frame) = near.frame() {
                let (kind, mut payload) = (frame[4], frame.split_off(5));
                change(kind, &mut payload, &[here, there]);
                frame.extend(payload);
                far.tls.writer().write_all(&frame).expect("memory takes it");
            }
            while let Some(frame) = far.frame() {
                near.tls
                    .writer()
                    .write_all(&frame)
                    .expect("memory takes it");
            }
        }
        if !alive {
            // What has come goes on.
            for side in [&mut near, &mut far] {
                let _ = side.socket.set_nonblocking(false);
                while side.tls.wants_write() && side.tls.write_tls(&mut side.socket).is_ok() {}
            }
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A plan's hash on a channel, which the relay can compute too.
fn bound_plan(binding: &[u8; 32], plan_hash: &[u8; 32]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 plan on a channel");
    hasher.update(binding).update(plan_hash);
    *hasher.finalize().as_bytes()
}

fn open_server(keys: &Keys) -> ServerTls {
    ServerTls {
        authority: None,
        tokens: None,
        ..keys.server()
    }
}

fn options_for(tls: ClientTls, trust: TrustLevel) -> ConnectOptions {
    ConnectOptions {
        trust: Some(trust),
        timeout: Duration::from_secs(60),
        ..with_tls(tls)
    }
}

const BEGIN: u8 = 5;

#[test]
fn two_channels_are_not_one() {
    let keys = Keys::new();
    let running = serve(open_server(&keys), patient());
    let splice = Splice::new(&keys, running.address(), |_, _, _| {});
    let options = options_for(keys.stranger(), TrustLevel::ClientAided);
    let mut client = Client::connect(&splice.address.to_string(), options).expect("hellos pass");
    let error = client
        .predict(&numbers(INPUTS), 1, &mut |_| {})
        .expect_err("it is spliced");
    match error {
        SessionError::Peer {
            code: ErrorCode::Channel,
            text,
        } => assert!(text.contains("two TLS channels"), "{text}"),
        other => panic!("{other:?}"),
    }
    running.wait_for_log("two TLS channels");
}

#[test]
fn a_proof_of_a_token_is_of_one_channel() {
    let keys = Keys::new();
    let running = serve(keys.server(), patient());
    let splice = Splice::new(&keys, running.address(), |_, _, _| {});
    let options = options_for(keys.client("bob"), TrustLevel::ClientAided);
    let error = Client::connect(&splice.address.to_string(), options).err();
    match error.expect("the proof is for the relay's channel") {
        SessionError::Peer {
            code: ErrorCode::Unauthorised,
            text,
        } => assert!(text.contains("refuses this token"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// The plan is public, so a relay can name it on either channel. The oblivious transfers of the two
/// channels do not fit.
#[test]
fn a_relay_that_forges_the_plans_name_breaks_oblivious_transfers() {
    let keys = Keys::new();
    let built = built_for(TrustLevel::TwoParty, "relu");
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let running = serve_model(model.clone(), open_server(&keys), patient());
    let hash = model.plan().hash();
    let forged = Arc::new(AtomicBool::new(false));
    let splice = Splice::new(&keys, running.address(), {
        let forged = forged.clone();
        move |kind, payload, [here, there]| {
            if kind == BEGIN {
                assert_eq!(payload[..32], bound_plan(here, &hash));
                payload[..32].copy_from_slice(&bound_plan(there, &hash));
                forged.store(true, Ordering::SeqCst);
            }
        }
    });
    let options = options_for(keys.stranger(), TrustLevel::TwoParty);
    let mut client = Client::connect(&splice.address.to_string(), options).expect("hellos pass");
    let error = client
        .predict(&numbers(INPUTS), 1, &mut |_| {})
        .expect_err("it is spliced");
    assert!(forged.load(Ordering::SeqCst));
    assert!(
        matches!(
            error.code(),
            ErrorCode::Engine | ErrorCode::Damaged | ErrorCode::Protocol
        ),
        "{error:?}"
    );
    running.wait_for_log("ended by an error");
    // Without the relay the same client and server agree.
    let options = options_for(keys.stranger(), TrustLevel::TwoParty);
    let client = Client::connect(&running.address().to_string(), options);
    let found = client.and_then(|mut client| client.predict(&numbers(INPUTS), 1, &mut |_| {}));
    found.expect("one channel is well");
}
