//! A small CA of the server's owner: certificates for its server and clients, and tokens.
//!
//! ```text
//! DIR/ca.pem, ca.key       the CA; the key makes further certificates and belongs off the server
//! DIR/hosts                the names in the server's certificate, one a line
//! DIR/server/              for the server: server.pem, server.key, ca.pem, tokens
//! DIR/clients/NAME/        for a client: ca.pem, and client.pem with client.key, or token
//! ```
//!
//! Keys are ECDSA on P-256. Directories have mode 0700, and files with secrets 0600. A file is
//! replaced as a whole, so that a server that reads it meanwhile finds the old or the new one.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use pronghorn_ring::random::Seed;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};
use zeroize::Zeroizing;

use super::{
    error::ChannelError,
    files::{content, failed, secret},
    token::Token,
};
use crate::text::hex;

/// How long the CA is valid.
const CA_DAYS: i64 = 3650;

/// Names under which a server reaches itself, which every certificate has.
const OWN: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What is to be made beside the CA.
#[derive(Clone, Debug)]
pub struct KeyRequest {
    /// Names and addresses of the server, beside those that it has. Where none is given the server
    /// gets a certificate for this machine alone, unless it has one.
    pub hosts: Vec<String>,
    /// Clients that get a certificate.
    pub clients: Vec<String>,
    /// Clients that get a token.
    pub tokens: Vec<String>,
    /// Days that certificates are valid.
    pub days: i64,
}

/// Makes what `request` asks for under `directory`, with the CA that is there or a new one. A
/// server or client that has a certificate or token gets a new one. Returns the directories for the
/// server and each client.
///
/// # Errors
/// When a name is refused, or the file system refuses.
pub fn make_keys(directory: &Path, request: &KeyRequest) -> Result<Vec<PathBuf>, ChannelError> {
    for name in request.clients.iter().chain(&request.tokens) {
        check_name(directory, name)?;
    }
    private_directory(directory)?;
    let authority = Authority::open(directory)?;
    let mut made = Vec::new();
    let server = directory.join("server");
    if !request.hosts.is_empty() || !server.join("server.pem").exists() {
        authority.serve(directory, &server, request)?;
        made.push(server.clone());
    }
    for name in &request.clients {
        made.push(authority.certify(directory, name, request.days)?);
    }
    for name in &request.tokens {
        let client = authority.client(directory, name)?;
        give_token(&server, &client, name)?;
        if !made.contains(&client) {
            made.push(client);
        }
    }
    Ok(made)
}

/// Names go into certificates, tokens and paths.
fn check_name(directory: &Path, name: &str) -> Result<(), ChannelError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_sound = (1..=63).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with('-')
        && !name.ends_with('-');
    match is_sound {
        true => Ok(()),
        false => Err(content(
            directory,
            format!(
                "gets no client {name:?}: a name has up to 63 lower-case letters, digits and hyphens within"
            ),
        )),
    }
}

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The CA of a directory, made where there is none.
    fn open(directory: &Path) -> Result<Self, ChannelError> {
        let (key_file, certificate) = (directory.join("ca.key"), directory.join("ca.pem"));
        let wrong = |error: rcgen::Error| content(&key_file, format!("is no CA's key: {error}"));
        if !key_file.exists() {
            let key = KeyPair::generate().map_err(wrong)?;
            write_secret(&key_file, Zeroizing::new(key.serialize_pem()).as_bytes())?;
            let params = authority(&key);
            let pem = params.self_signed(&key).map_err(wrong)?.pem();
            write(&certificate, pem.as_bytes())?;
        }
        let bytes = secret(&key_file)?;
        let key = KeyPair::from_pem(str::from_utf8(&bytes).unwrap_or_default()).map_err(wrong)?;
        let pem = fs::read_to_string(&certificate).map_err(|error| failed(&certificate, error))?;
        let issuer = Issuer::new(authority(&key), key);
        Ok(Self { pem, issuer })
    }

    /// The server's directory, with a new certificate.
    fn serve(
        &self,
        directory: &Path,
        server: &Path,
        request: &KeyRequest,
    ) -> Result<(), ChannelError> {
        private_directory(server)?;
        let kept = directory.join("hosts");
        let names = names(
            &request.hosts,
            &fs::read_to_string(&kept).unwrap_or_default(),
        );
        let listed = names.join("\n") + "\n";
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        let (certificate, key) = self.issue(server, names, usage, request.days)?;
        write_secret(&server.join("server.key"), key.as_bytes())?;
        write(&server.join("server.pem"), certificate.as_bytes())?;
        write(&server.join("ca.pem"), self.pem.as_bytes())?;
        write(&kept, listed.as_bytes())?;
        let tokens = server.join("tokens");
        match tokens.exists() {
            true => Ok(()),
            false => write_secret(&tokens, b""),
        }
    }

    /// A client's directory, with the CA.
    fn client(&self, directory: &Path, name: &str) -> Result<PathBuf, ChannelError> {
        let clients = directory.join("clients");
        private_directory(&clients)?;
        let client = clients.join(name);
        private_directory(&client)?;
        write(&client.join("ca.pem"), self.pem.as_bytes())?;
        Ok(client)
    }

    /// A client's directory, with a new certificate.
    fn certify(&self, directory: &Path, name: &str, days: i64) -> Result<PathBuf, ChannelError> {
        let client = self.client(directory, name)?;
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let (certificate, key) = self.issue(&client, vec![name.to_owned()], usage, days)?;
        write_secret(&client.join("client.key"), key.as_bytes())?;
        write(&client.join("client.pem"), certificate.as_bytes())?;
        Ok(client)
    }

    /// A new key and its certificate, as PEM.
    fn issue(
        &self,
        directory: &Path,
        names: Vec<String>,
        usage: ExtendedKeyUsagePurpose,
        days: i64,
    ) -> Result<(String, Zeroizing<String>), ChannelError> {
        let wrong = |error: rcgen::Error| {
            let problem = format!("gets no certificate for {}: {error}", names.join(", "));
            content(directory, problem)
        };
        let key = KeyPair::generate().map_err(wrong)?;
        let mut params = CertificateParams::new(names.clone()).map_err(wrong)?;
        params.distinguished_name.remove(DnType::CommonName);
        params
            .distinguished_name
            .push(DnType::CommonName, names[0].as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = validity(days);
        let certificate = params.signed_by(&key, &self.issuer).map_err(wrong)?;
        Ok((certificate.pem(), Zeroizing::new(key.serialize_pem())))
    }
}

/// The names of a server: new ones, those of the certificate before, and its own, each once.
fn names(new: &[String], before: &str) -> Vec<String> {
    let before = before
        .lines()
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let mut names: Vec<String> = Vec::new();
    for name in new.iter().map(String::as_str).chain(before).chain(OWN) {
        if names.iter().all(|known| known != name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The CA's own certificate, but for its dates a function of the key.
fn authority(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let digest = blake3::hash(key.public_key_raw());
    let name = format!("Pronghorn CA {}", hex(&digest.as_bytes()[..4]));
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = validity(CA_DAYS);
    params
}

/// From an hour ago, so that clocks may differ.
fn validity(days: i64) -> (OffsetDateTime, OffsetDateTime) {
    let now = OffsetDateTime::now_utc();
    let end = now.saturating_add(Duration::days(days));
    (now.min(end) - Duration::hours(1), end)
}

/// Makes a client's token, and tells the server of it in place of an earlier one.
fn give_token(server: &Path, client: &Path, name: &str) -> Result<(), ChannelError> {
    let seed = Seed::from_os().map_err(|error| content(client, error.to_string()))?;
    let line = Zeroizing::new(format!("{name}.{}", hex(seed.as_bytes())));
    let tokens = server.join("tokens");
    let bytes = secret(&tokens)?;
    let old = str::from_utf8(&bytes).unwrap_or_default().lines();
    let is_other = |line: &&str| Token::parse(line).is_none_or(|token| token.name() != name);
    let mut kept = Zeroizing::new(String::new());
    for line in old.filter(is_other).chain([line.as_str()]) {
        kept.push_str(line);
        kept.push('\n');
    }
    write_secret(&client.join("token"), format!("{}\n", *line).as_bytes())?;
    write_secret(&tokens, kept.as_bytes())
}

/// A directory that only this user may enter; one that exists keeps its mode.
fn private_directory(path: &Path) -> Result<(), ChannelError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|error| failed(path, error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ChannelError> {
    replace(path, bytes, 0o644)
}

fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), ChannelError> {
    replace(path, bytes, 0o600)
}

/// Puts a file in place of another, or of none.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), ChannelError> {
    let coming = path.with_added_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    // A leftover of a run that was cut.
    let _ = fs::remove_file(&coming);
    let written = options.open(&coming).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&coming, path)
    });
    written.map_err(|error| failed(path, error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;
    use crate::channel::{ClientTls, ServerTls, server::Loaded};

    /// A path where nothing is.
    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pronghorn-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn request() -> KeyRequest {
        KeyRequest {
            hosts: vec!["server.example".into()],
            clients: vec!["alice".into()],
            tokens: vec!["bob".into()],
            days: 30,
        }
    }

    #[cfg(unix)]
    #[test]
    fn secrets_have_safe_modes() {
        use std::os::unix::fs::PermissionsExt;
        let directory = scratch("keys-modes");
        make_keys(&directory, &request()).expect("they are made");
        let mode = |name: &str| {
            let metadata = fs::metadata(directory.join(name)).expect("it is there");
            metadata.permissions().mode() & 0o777
        };
        for secret in [
            "ca.key",
            "server/server.key",
            "server/tokens",
            "clients/alice/client.key",
            "clients/bob/token",
        ] {
            assert_eq!(mode(secret), 0o600, "{secret}");
        }
        for entered in ["", "server", "clients", "clients/alice", "clients/bob"] {
            assert_eq!(mode(entered), 0o700, "{entered}");
        }
        let key = directory.join("server/server.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let refused = ServerTls::directory(&directory.join("server"))
            .and_then(super::super::server::Acceptor::new)
            .err()
            .expect("others can read the key");
        assert!(
            matches!(refused, ChannelError::Mode { mode: 0o644, .. }),
            "{refused}"
        );
        fs::remove_dir_all(directory).expect("it is ours");
    }

    #[test]
    fn a_second_run_keeps_the_ca_and_replaces_tokens() {
        let directory = scratch("keys-again");
        make_keys(&directory, &request()).expect("they are made");
        let read = |name: &str| fs::read_to_string(directory.join(name)).expect("it is there");
        let (ca, server) = (read("ca.pem"), read("server/server.pem"));
        let old = read("clients/bob/token");
        let more = KeyRequest {
            hosts: vec![],
            clients: vec![],
            tokens: vec!["bob".into(), "carol".into()],
            days: 30,
        };
        let made = make_keys(&directory, &more).expect("they are made");
        assert_eq!(
            made,
            ["bob", "carol"].map(|name| directory.join("clients").join(name))
        );
        assert_eq!((read("ca.pem"), read("server/server.pem")), (ca, server));
        let tokens = read("server/tokens");
        assert!(!tokens.contains(old.trim()) && tokens.lines().count() == 2);
        assert!(tokens.contains(read("clients/bob/token").trim()));
        let bob = ClientTls::directory(&directory.join("clients/bob")).expect("it is whole");
        assert!(bob.certificate.is_none() && bob.token.expect("he has one").name() == "bob");
        fs::remove_dir_all(directory).expect("it is ours");
    }

    #[test]
    fn a_new_certificate_has_the_names_before() {
        let directory = scratch("keys-hosts");
        for (host, wanted) in [
            ("server.example", "server.example localhost 127.0.0.1 ::1"),
            (
                "10.0.0.7",
                "10.0.0.7 server.example localhost 127.0.0.1 ::1",
            ),
            (
                "server.example",
                "server.example 10.0.0.7 localhost 127.0.0.1 ::1",
            ),
        ] {
            let request = KeyRequest {
                hosts: vec![host.into()],
                ..request()
            };
            make_keys(&directory, &request).expect("they are made");
            let listed = fs::read_to_string(directory.join("hosts")).expect("it is there");
            assert_eq!(listed.lines().collect::<Vec<_>>().join(" "), wanted);
            let path = directory.join("server/server.pem");
            let certificate = &crate::channel::files::certificates(&path).expect("it has one")[0];
            let certificate = webpki::EndEntityCert::try_from(certificate).expect("it is one");
            let found: Vec<&str> = certificate.valid_dns_names().collect();
            assert_eq!(found, ["server.example", "localhost"]);
        }
        fs::remove_dir_all(directory).expect("it is ours");
    }

    #[test]
    fn an_owner_hears_of_the_certificates_end() {
        let directory = scratch("keys-end");
        make_keys(
            &directory,
            &KeyRequest {
                days: 90,
                ..request()
            },
        )
        .expect("they are made");
        let files = ServerTls::directory(&directory.join("server")).expect("it is whole");
        let loaded = Loaded::read(&files).expect("they can be used");
        let on_day = |day: u64| {
            let since = UnixTime::now().as_secs() + day * 24 * 60 * 60 + 12 * 60 * 60;
            loaded.warning(UnixTime::since_unix_epoch(Duration::from_secs(since)))
        };
        assert_eq!(on_day(0), None);
        assert_eq!(on_day(58), None);
        assert!(on_day(85).is_some_and(|said| said.contains("expires in 4 days")));
        assert!(on_day(91).is_some_and(|said| said.contains("has expired")));
        fs::remove_dir_all(directory).expect("it is ours");
    }

    #[test]
    fn names_that_are_paths_are_refused() {
        let directory = scratch("keys-names");
        for name in ["", "../x", "A", "a.b", "-a", "a/", &"a".repeat(64)] {
            let request = KeyRequest {
                clients: vec![name.into()],
                ..request()
            };
            assert!(make_keys(&directory, &request).is_err(), "{name}");
        }
        assert!(!directory.exists());
    }
}
