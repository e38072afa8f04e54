//! Keys, servers and clients over TLS, and a relay that opens it.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use pronghorn_engine::ServerModel;
use pronghorn_session::{
    Client, ClientChannel, ClientTls, ConnectOptions, KeyRequest, Limits, Server, ServerChannel,
    ServerTls, SessionError, Token, Trusted, make_keys,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::{Running, model, options};

/// A directory of keys; removed when dropped.
pub struct Keys(pub PathBuf);

impl Keys {
    /// For a server on this machine, a client `alice` with a certificate and a client `bob` with a
    /// token.
    pub fn new() -> Self {
        Self::valid_for(30)
    }

    pub fn valid_for(days: i64) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = env::temp_dir().join(format!("pronghorn-tls-{}-{own}", process::id()));
        let _ = fs::remove_dir_all(&path);
        let keys = Self(path);
        keys.make(&[], &["alice"], &["bob"], days);
        keys
    }

    pub fn make(&self, hosts: &[&str], clients: &[&str], tokens: &[&str], days: i64) {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let request = KeyRequest {
            hosts: owned(hosts),
            clients: owned(clients),
            tokens: owned(tokens),
            days,
        };
        make_keys(&self.0, &request).expect("keys are made");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn server(&self) -> ServerTls {
        ServerTls::directory(&self.path("server")).expect("it is whole")
    }

    pub fn client(&self, name: &str) -> ClientTls {
        ClientTls::directory(&self.path("clients").join(name)).expect("it is whole")
    }

    /// A client that trusts the CA and has nothing to show.
    pub fn stranger(&self) -> ClientTls {
        ClientTls {
            trusted: Trusted::Authority(self.path("ca.pem")),
            ..ClientTls::default()
        }
    }

    pub fn token(&self, name: &str) -> Token {
        Token::read(&self.path("clients").join(name).join("token")).expect("it is there")
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn serve(files: ServerTls, limits: Limits) -> Running {
    serve_model(model(), files, limits)
}

pub fn serve_model(model: Arc<ServerModel>, files: ServerTls, limits: Limits) -> Running {
    let channel = ServerChannel::Tls(files);
    let server = Server::bind_over("127.0.0.1:0", vec![model.into()], limits, channel);
    Running::start(server.expect("a port is free"))
}

pub fn with_tls(tls: ClientTls) -> ConnectOptions {
    ConnectOptions {
        channel: ClientChannel::Tls(tls),
        ..options()
    }
}

pub fn connect(address: SocketAddr, tls: ClientTls) -> Result<Client, SessionError> {
    Client::connect(&address.to_string(), with_tls(tls))
}

/// The TLS of a client that trusts the CA and has no certificate, without what this crate adds.
pub fn client_config(keys: &Keys) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authority = fs::read(keys.path("ca.pem")).expect("it is there");
    let authority = CertificateDer::from_pem_slice(&authority).expect("it has one");
    let mut roots = RootCertStore::empty();
    roots.add(authority).expect("it is a CA's");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("it has versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(client)
}

/// Puts other bytes in place of a file's.
pub fn replace(path: &Path, bytes: &[u8]) {
    let coming = path.with_extension("coming");
    fs::copy(path, &coming).expect("it is there");
    fs::write(&coming, bytes).expect("it is ours");
    fs::rename(&coming, path).expect("it is ours");
}
