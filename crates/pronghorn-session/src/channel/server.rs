//! A server's channel.

use std::{
    net::TcpStream,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::{
    Error, ServerConfig,
    pki_types::{CertificateDer, UnixTime},
    server::{
        NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier,
        danger::ClientCertVerifier,
    },
    version::TLS13,
};
use webpki::{EndEntityCert, KeyUsage};

use super::{
    Secured,
    error::ChannelError,
    exporter::Exporter,
    files::{self, Stamp, content},
    handshake::{Failure, HANDSHAKE, complete, first_byte, timed},
    pinned::fingerprint,
    provider,
    stream::TlsStream,
    token::Tokens,
};
use crate::{error::SessionError, lock::lock, log::Level, text::hex, transport::Ends};

/// How a server's connections are protected.
#[derive(Clone, Debug, Default)]
pub enum ServerChannel {
    /// Plain TCP, for clients of this machine alone.
    #[default]
    Loopback,
    /// TLS 1.3.
    Tls(ServerTls),
    /// Plain TCP to any address: whoever is on the network can change results, read inputs bit by
    /// bit and pose as either party.
    InsecurePlainTcp,
}

/// How a server shows who it is, and knows its clients. All are files, which are read again when
/// they change. Where both `authority` and `tokens` are given, a client needs one of the two; where
/// neither is, any client is served.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Its certificate chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
    /// The CAs of its clients' certificates, PEM.
    pub authority: Option<PathBuf>,
    /// The tokens of its clients, one a line.
    pub tokens: Option<PathBuf>,
}

impl ServerTls {
    /// What `pronghorn keys` has made for a server.
    ///
    /// # Errors
    /// When a file of it is missing, or cannot be looked at.
    pub fn directory(path: &Path) -> Result<Self, ChannelError> {
        let [certificate, key, authority, tokens] =
            ["server.pem", "server.key", "ca.pem", "tokens"].map(|name| path.join(name));
        for file in [&certificate, &key, &authority, &tokens] {
            if !files::is_there(file)? {
                let name = file.file_name().unwrap_or_default().display();
                let problem =
                    format!("has no {name}: give a directory of `pronghorn keys`, DIR/server");
                return Err(content(path, problem));
            }
        }
        Ok(Self {
            certificate,
            key,
            authority: Some(authority),
            tokens: Some(tokens),
        })
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        let kept = [self.authority.as_deref(), self.tokens.as_deref()];
        [self.certificate.as_path(), &self.key]
            .into_iter()
            .chain(kept.into_iter().flatten())
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        self.files().map(Stamp::of).collect()
    }

    /// Whether clients say who they are.
    pub fn knows_clients(&self) -> bool {
        self.authority.is_some() || self.tokens.is_some()
    }
}

/// Reads a server's files as it does when it starts; the SHA-256 of its certificate, in hexadecimal.
///
/// # Errors
/// They cannot be used.
pub fn check_files(files: &ServerTls) -> Result<String, ChannelError> {
    Ok(hex(&Loaded::read(files)?.fingerprint))
}

/// What the files said when they were last read.
#[derive(Clone)]
pub(super) struct Loaded {
    config: Arc<ServerConfig>,
    tokens: Option<Tokens>,
    fingerprint: [u8; 32],
    /// The end of the certificate's time.
    expiry: Option<UnixTime>,
}

impl Loaded {
    pub(super) fn read(files: &ServerTls) -> Result<Self, ChannelError> {
        let chain = files::certificates(&files.certificate)?;
        let private = files::private_key(&files.key)?;
        let (fingerprint, expiry) = (fingerprint(&chain[0]), expiry(&chain[0]));
        let other = |error| files::other_key(&files.key, &files.certificate, error);
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(ChannelError::Tls)?
            .with_client_cert_verifier(verifier(files)?)
            .with_single_cert(chain, private)
            .map_err(other)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        // The records are ours (`record.rs`).
        config.enable_secret_extraction = true;
        Ok(Self {
            config: Arc::new(config),
            tokens: files.tokens.as_deref().map(Tokens::read).transpose()?,
            fingerprint,
            expiry,
        })
    }

    /// What the owner should know of the certificate, at a time.
    pub(super) fn warning(&self, now: UnixTime) -> Option<String> {
        let left = |expiry: UnixTime| expiry.as_secs() as i64 - now.as_secs() as i64;
        let renew = "make a new one (`pronghorn keys DIR --host NAME`): no restart is needed";
        match self.expiry.map(left)? {
            left if left < 0 => Some(format!(
                "the server's certificate has expired, and clients refuse it: {renew}"
            )),
            left if left < WARNED => Some(format!(
                "the server's certificate expires in {} days: {renew}",
                left / DAY
            )),
            _ => None,
        }
    }
}

/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

/// Seconds before its end in which a certificate is warned of.
const WARNED: i64 = 30 * DAY;

/// The end of a certificate's time. Its check looks at the time first, and names the end where
/// that is over. So it is asked about a time after all ends, and trusts nobody.
fn expiry(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let provider = provider();
    let checked = EndEntityCert::try_from(certificate)
        .ok()?
        .verify_for_usage(
            provider.signature_verification_algorithms.all,
            &[],
            &[],
            UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX)),
            KeyUsage::server_auth(),
            None,
            None,
        )
        .map(drop);
    match checked {
        Err(webpki::Error::CertExpired { not_after, .. }) => Some(not_after),
        _ => None,
    }
}

/// The check of clients' certificates: they must have one where they cannot have a token.
fn verifier(files: &ServerTls) -> Result<Arc<dyn ClientCertVerifier>, ChannelError> {
    let Some(path) = &files.authority else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let roots = files::authorities(path)?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    if files.tokens.is_some() {
        builder = builder.allow_unauthenticated();
    }
    let wrong = |error| content(path, format!("cannot check clients: {error}"));
    builder.build().map_err(wrong)
}

/// A server's TLS, with what its files said last.
pub(crate) struct Acceptor {
    files: ServerTls,
    loaded: Mutex<(Vec<Option<Stamp>>, Loaded)>,
}

impl Acceptor {
    pub(crate) fn new(files: ServerTls) -> Result<Self, ChannelError> {
        let stamps = files.stamps();
        let loaded = Mutex::new((stamps, Loaded::read(&files)?));
        Ok(Self { files, loaded })
    }

    /// The SHA-256 of the certificate, in hexadecimal.
    pub(crate) fn fingerprint(&self) -> String {
        hex(&lock(&self.loaded).1.fingerprint)
    }

    /// What the owner should know of the certificate.
    pub(crate) fn warning(&self) -> Option<String> {
        lock(&self.loaded).1.warning(UnixTime::now())
    }

    pub(crate) fn knows_clients(&self) -> bool {
        self.files.knows_clients()
    }

    /// What the files say now. Where they cannot be read any more, what they said before serves on,
    /// and `log` hears of it once for each change.
    fn current(&self, log: &dyn Fn(Level, &str)) -> Loaded {
        let mut loaded = lock(&self.loaded);
        let stamps = self.files.stamps();
        if stamps != loaded.0 {
            // Looked at before it is read: a change in between is found at the next connection.
            loaded.0 = stamps;
            match Loaded::read(&self.files) {
                Ok(read) => {
                    let certificate = hex(&read.fingerprint);
                    log(
                        Level::Info,
                        &format!("read the TLS files again: certificate {certificate}"),
                    );
                    if let Some(warning) = read.warning(UnixTime::now()) {
                        log(Level::Warning, &format!("warning: {warning}"));
                    }
                    loaded.1 = read;
                }
                Err(error) => log(
                    Level::Error,
                    &format!(
                        "the TLS files have changed and are refused, those of before serve on: {error}"
                    ),
                ),
            }
        }
        loaded.1.clone()
    }

    /// Makes the channel with a client within a limit.
    pub(crate) fn secure(
        &self,
        socket: TcpStream,
        ends: &Ends,
        limit: Duration,
        log: &dyn Fn(Level, &str),
    ) -> Result<Secured, SessionError> {
        let mut line = timed(&socket, ends, limit)?;
        let first = first_byte(&mut line)?;
        if first != [HANDSHAKE] {
            return Err(ChannelError::PlainClient.into());
        }
        let loaded = self.current(log);
        let exporter = Exporter::default();
        let mut config = (*loaded.config).clone();
        config.key_log = Arc::new(exporter.clone());
        let connection = UnbufferedServerConnection::new(Arc::new(config));
        let connection = connection.map_err(ChannelError::of_server)?;
        let established = complete(connection, &exporter, &first, &mut line).map_err(
            |failure| match failure {
                Failure::Line(error) => SessionError::from(error),
                Failure::Tls(error) | Failure::Plain(_, error) => {
                    ChannelError::of_server(error).into()
                }
            },
        )?;
        let name = established.certificates.first().map(client_name);
        let (sealer, opener) = (established.sealer, established.opener);
        Ok(Secured {
            name: name.transpose()?,
            transport: Box::new(TlsStream::new(
                socket,
                sealer,
                opener,
                ChannelError::of_server,
            )),
            binding: Some(established.binding),
            tokens: loaded.tokens,
            proof: None,
        })
    }
}

/// A client's name: the first DNS name of its certificate, or its public key's hash where it has
/// none. So a new certificate of the same name, or key, is the same client.
fn client_name(certificate: &CertificateDer<'_>) -> Result<String, ChannelError> {
    let certificate = EndEntityCert::try_from(certificate)
        .map_err(|error| ChannelError::Tls(Error::General(error.to_string())))?;
    let named = certificate.valid_dns_names().next();
    let by_key = || {
        let key = certificate.subject_public_key_info();
        format!("key-{}", hex(&blake3::hash(key.as_ref()).as_bytes()[..16]))
    };
    Ok(named.map_or_else(by_key, |name| name.to_ascii_lowercase()))
}
