//! A client's channel.

use std::{
    io::Read,
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    CertificateError, ClientConfig, Error, RootCertStore,
    client::{
        Resumption, UnbufferedClientConnection, WebPkiServerVerifier, danger::ServerCertVerifier,
    },
    pki_types::ServerName,
    version::TLS13,
};

use super::{
    Secured,
    error::ChannelError,
    exporter::Exporter,
    files::{self, content},
    handshake::{Failure, complete, timed},
    pinned::{Mismatch, Pinned},
    provider,
    stream::TlsStream,
    token::Token,
};
use crate::{
    error::{ErrorCode, SessionError},
    frame,
    message::ErrorMessage,
    transport::{Ends, Timed},
};

/// How a client's connection is protected.
#[derive(Clone, Debug, Default)]
pub enum ClientChannel {
    /// Plain TCP to this machine itself, and TLS with the system's CAs to any other.
    #[default]
    Default,
    /// TLS 1.3 to any address.
    Tls(ClientTls),
    /// Plain TCP to any address: whoever is on the network can change results, read inputs bit by
    /// bit and pose as the server.
    InsecurePlainTcp,
}

/// How a client knows its server, and shows who it is.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// Whose word it takes for the server.
    pub trusted: Trusted,
    /// The server's name in its certificate; where none is given, the host of the address.
    pub name: Option<String>,
    /// The client's certificate chain and its private key, PEM files. Read for each connection.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The client's token.
    pub token: Option<Token>,
}

/// Whose word a client takes for a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trusted {
    /// The system's CAs.
    #[default]
    System,
    /// The CAs of a PEM file.
    Authority(PathBuf),
    /// One certificate, by the SHA-256 of its DER bytes. Its names, dates and issuer do not count.
    Fingerprint([u8; 32]),
}

impl ClientTls {
    /// What `pronghorn keys` has made for a client: `ca.pem`, and `client.pem` with `client.key`, or
    /// `token`.
    ///
    /// # Errors
    /// When there is no `ca.pem`, or a file cannot be read.
    pub fn directory(path: &Path) -> Result<Self, ChannelError> {
        let [authority, certificate, key, token] =
            ["ca.pem", "client.pem", "client.key", "token"].map(|name| path.join(name));
        if !files::is_there(&authority)? {
            let problem = "has no ca.pem: give a directory of `pronghorn keys`, DIR/clients/NAME";
            return Err(content(path, problem));
        }
        Ok(Self {
            trusted: Trusted::Authority(authority),
            name: None,
            certificate: files::is_there(&certificate)?.then_some((certificate, key)),
            token: match files::is_there(&token)? {
                true => Some(Token::read(&token)?),
                false => None,
            },
        })
    }

    fn config(&self) -> Result<ClientConfig, ChannelError> {
        let provider = provider();
        let roots = match &self.trusted {
            Trusted::System => system_roots()?,
            Trusted::Authority(path) => files::authorities(path)?,
            &Trusted::Fingerprint(fingerprint) => {
                let provider = provider.clone();
                return self.with_verifier(Arc::new(Pinned {
                    fingerprint,
                    provider,
                }));
            }
        };
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
        let wrong = |error| ChannelError::Tls(Error::General(format!("{error}")));
        self.with_verifier(verifier.map_err(wrong)?)
    }

    fn with_verifier(
        &self,
        verifier: Arc<dyn ServerCertVerifier>,
    ) -> Result<ClientConfig, ChannelError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(ChannelError::Tls)?
            // The verifiers are rustls's own, and one that compares a fingerprint.
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = files::certificates(certificate)?;
                let private = files::private_key(key)?;
                let other = |error| files::other_key(key, certificate, error);
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(other)?
            }
        };
        config.resumption = Resumption::disabled();
        // The records are ours (`record.rs`).
        config.enable_secret_extraction = true;
        Ok(config)
    }
}

fn system_roots() -> Result<Arc<RootCertStore>, ChannelError> {
    let mut roots = RootCertStore::empty();
    // A system's store may hold certificates that rustls does not read; the others serve.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let problem = "has no CA that could be read: give the server's own (--tls-ca FILE)";
        return Err(content(
            Path::new("the system's certificate store"),
            problem,
        ));
    }
    Ok(Arc::new(roots))
}

impl ClientChannel {
    /// How a connection to `peer` is made; none: plainly.
    fn for_peer(&self, peer: SocketAddr) -> Option<ClientTls> {
        match self {
            Self::Tls(tls) => Some(tls.clone()),
            Self::Default if !peer.ip().to_canonical().is_loopback() => Some(ClientTls::default()),
            Self::Default | Self::InsecurePlainTcp => None,
        }
    }

    /// Makes the channel over a connected socket, to the server that `address` names, within a
    /// limit.
    pub(crate) fn secure(
        &self,
        socket: TcpStream,
        address: &str,
        ends: &Ends,
        limit: Duration,
    ) -> Result<Secured, SessionError> {
        let what = "the peer's address";
        let peer = socket.peer_addr();
        let peer = peer.map_err(|source| SessionError::System { what, source })?;
        let Some(tls) = self.for_peer(peer) else {
            return Ok(Secured::plain(socket));
        };
        let name = tls.name.clone().unwrap_or_else(|| host(address).to_owned());
        let mut config = tls.config()?;
        let exporter = Exporter::default();
        config.key_log = Arc::new(exporter.clone());
        let wrong_name = |_| ChannelError::WrongName {
            name: name.clone(),
            names: Vec::new(),
        };
        let server = ServerName::try_from(name.clone()).map_err(wrong_name)?;
        let read = reader(name.clone(), tls.trusted.clone());
        let connection =
            UnbufferedClientConnection::new(Arc::new(config), server).map_err(&read)?;
        let mut line = timed(&socket, ends, limit)?;
        let established =
            complete(connection, &exporter, &[], &mut line).map_err(|failure| match failure {
                Failure::Line(error) => SessionError::from(error),
                Failure::Tls(error) => read(error).into(),
                Failure::Plain(first, error) => {
                    refused(&first, &mut line).unwrap_or_else(|| read(error).into())
                }
            })?;
        let (sealer, opener) = (established.sealer, established.opener);
        let binding = established.binding;
        Ok(Secured {
            proof: tls.token.as_ref().map(|token| token.proof(&binding)),
            transport: Box::new(TlsStream::new(socket, sealer, opener, read)),
            binding: Some(binding),
            tokens: None,
            name: None,
        })
    }
}

/// That the server has no place for now, which it says before TLS where it has no thread for that.
/// Whoever is on the line could say so, too. So it is believed of refusals that pass, and their text
/// is the client's own.
fn refused(first: &[u8], line: &mut Timed) -> Option<SessionError> {
    let mut payload = Vec::new();
    frame::read_frame(&mut first.chain(line), &[], &mut payload).ok()?;
    let ErrorMessage { code, .. } = ErrorMessage::decode(&payload).ok()?;
    let passes = matches!(
        code,
        ErrorCode::Busy | ErrorCode::Stopping | ErrorCode::Limit
    );
    passes.then(|| SessionError::Peer {
        code,
        text: "it takes no further connection for now (said before TLS)".into(),
    })
}

/// What the client makes of TLS's errors.
fn reader(
    name: String,
    trusted: Trusted,
) -> impl Fn(Error) -> ChannelError + Send + Sync + 'static {
    move |error| {
        if let Error::InvalidCertificate(CertificateError::Other(other)) = &error
            && let Some(&Mismatch { found }) = other.0.downcast_ref()
            && let Trusted::Fingerprint(expected) = trusted
        {
            return ChannelError::Fingerprint { expected, found };
        }
        ChannelError::of_client(error, &name)
    }
}

/// The host of HOST:PORT.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
