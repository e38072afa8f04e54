//! Channels, by the names that users give their parts.

use std::path::PathBuf;

use pronghorn_session::{
    self as session, ChannelError, ClientChannel, KeyRequest, ServerChannel, Token, Trusted,
};
use pyo3::prelude::*;

use crate::{coded, network};

/// Python's `ServerTls`, or a directory of keys.
#[derive(FromPyObject)]
pub enum ServerTls {
    Files(ServerFiles),
    Directory(PathBuf),
}

/// The fields of Python's `ServerTls`, which documents them.
#[derive(FromPyObject)]
pub struct ServerFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    tokens: Option<PathBuf>,
}

/// Python's `ClientTls`, or a directory of keys.
#[derive(FromPyObject)]
pub enum ClientTls {
    Files(ClientFiles),
    Directory(PathBuf),
}

/// The fields of Python's `ClientTls`, which documents them.
#[derive(FromPyObject)]
pub struct ClientFiles {
    directory: Option<PathBuf>,
    ca: Option<PathBuf>,
    fingerprint: Option<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    name: Option<String>,
}

/// A token, or the file that holds it.
#[derive(FromPyObject)]
pub enum TokenSource {
    Text(String),
    File(PathBuf),
}

/// A server's channel. `insecure` is plain TCP beyond loopback.
pub fn server_channel(tls: Option<ServerTls>, insecure: bool) -> PyResult<ServerChannel> {
    Ok(match (tls, insecure) {
        (Some(ServerTls::Directory(path)), _) => {
            ServerChannel::Tls(session::ServerTls::directory(&path).map_err(refused)?)
        }
        (Some(ServerTls::Files(files)), _) => ServerChannel::Tls(session::ServerTls {
            certificate: files.certificate,
            key: files.key,
            authority: files.client_ca,
            tokens: files.tokens,
        }),
        (None, true) => ServerChannel::InsecurePlainTcp,
        (None, false) => ServerChannel::Loopback,
    })
}

/// A client's channel. A token alone means TLS with the system's CAs.
pub fn client_channel(
    tls: Option<ClientTls>,
    token: Option<TokenSource>,
    insecure: bool,
) -> PyResult<ClientChannel> {
    let named = tls.map(client_files).transpose()?;
    let token = token.map(read_token).transpose()?;
    Ok(match (named, token) {
        (None, None) if insecure => ClientChannel::InsecurePlainTcp,
        (None, None) => ClientChannel::Default,
        (named, token) => {
            let named = named.unwrap_or_default();
            let token = token.or(named.token.clone());
            ClientChannel::Tls(session::ClientTls { token, ..named })
        }
    })
}

fn client_files(tls: ClientTls) -> PyResult<session::ClientTls> {
    let files = match tls {
        ClientTls::Directory(path) => {
            return session::ClientTls::directory(&path).map_err(refused);
        }
        ClientTls::Files(files) => files,
    };
    if let Some(path) = files.directory {
        let made = session::ClientTls::directory(&path).map_err(refused)?;
        return Ok(session::ClientTls {
            name: files.name,
            ..made
        });
    }
    let trusted = match (files.fingerprint, files.ca) {
        (Some(digits), _) => Trusted::Fingerprint(network::parse_hex("a fingerprint", &digits)?),
        (None, Some(path)) => Trusted::Authority(path),
        (None, None) => Trusted::System,
    };
    Ok(session::ClientTls {
        trusted,
        name: files.name,
        certificate: files.certificate.zip(files.key),
        token: None,
    })
}

fn read_token(source: TokenSource) -> PyResult<Token> {
    match source {
        TokenSource::File(path) => Token::read(&path).map_err(refused),
        TokenSource::Text(text) => {
            let wrong = || coded("the token is not NAME.SECRET".to_owned(), "option", false);
            Token::parse(&text).ok_or_else(wrong)
        }
    }
}

/// Reads a server's files; the SHA-256 of its certificate.
#[pyfunction]
pub fn check_server_tls(tls: ServerTls) -> PyResult<String> {
    match server_channel(Some(tls), false)? {
        ServerChannel::Tls(files) => session::check_files(&files).map_err(refused),
        _ => Ok(String::new()),
    }
}

/// Makes a CA, certificates and tokens; the directories for the server and each client.
#[pyfunction]
pub fn make_keys(
    directory: PathBuf,
    hosts: Vec<String>,
    clients: Vec<String>,
    tokens: Vec<String>,
    days: i64,
) -> PyResult<Vec<PathBuf>> {
    let request = KeyRequest {
        hosts,
        clients,
        tokens,
        days,
    };
    session::make_keys(&directory, &request).map_err(refused)
}

fn refused(error: ChannelError) -> PyErr {
    network::advised(error.into())
}
