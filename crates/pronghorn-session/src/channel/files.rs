//! The files of a channel: certificates, keys, tokens.

use std::{
    fs::{self, Metadata},
    io,
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use zeroize::Zeroizing;

use super::error::ChannelError;

/// Largest file that is read, in bytes.
const MOST: u64 = 4 << 20;

/// Bits of a secret's mode that nobody else may have: a group may read, as a container's does.
const OTHERS: u32 = 0o037;

pub(super) fn failed(path: &Path, source: io::Error) -> ChannelError {
    ChannelError::File {
        path: path.display().to_string(),
        source,
    }
}

pub(super) fn content(path: &Path, problem: impl Into<String>) -> ChannelError {
    ChannelError::Content {
        path: path.display().to_string(),
        problem: problem.into(),
    }
}

/// A private key that is of another certificate, or cannot be used.
pub(super) fn other_key(key: &Path, certificate: &Path, error: rustls::Error) -> ChannelError {
    let certificate = certificate.display();
    let problem = match error {
        rustls::Error::InconsistentKeys(_) => {
            format!(
                "is the key of another certificate than {certificate}: give the two that go together"
            )
        }
        error => format!("is no key of {certificate}: {error}"),
    };
    content(key, problem)
}

/// Whether there is such a file.
///
/// # Errors
/// It cannot be looked at, for want of permission for example.
pub(super) fn is_there(path: &Path) -> Result<bool, ChannelError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_file()),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(failed(path, error)),
    }
}

fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, Metadata), ChannelError> {
    let metadata = fs::metadata(path).map_err(|error| failed(path, error))?;
    if metadata.len() > MOST {
        return Err(content(
            path,
            "is too large to be a certificate, key or token",
        ));
    }
    let bytes = fs::read(path).map_err(|error| failed(path, error))?;
    Ok((Zeroizing::new(bytes), metadata))
}

/// A file that others must not read.
pub(super) fn secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, ChannelError> {
    let (bytes, metadata) = read(path)?;
    check_mode(path, &metadata)?;
    Ok(bytes)
}

#[cfg(unix)]
fn check_mode(path: &Path, metadata: &Metadata) -> Result<(), ChannelError> {
    let mode = std::os::unix::fs::MetadataExt::mode(metadata) & 0o777;
    match mode & OTHERS {
        0 => Ok(()),
        _ => Err(ChannelError::Mode {
            path: path.display().to_string(),
            mode,
        }),
    }
}

#[cfg(not(unix))]
fn check_mode(_: &Path, _: &Metadata) -> Result<(), ChannelError> {
    Ok(())
}

/// The certificates of a PEM file, at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ChannelError> {
    let (bytes, _) = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(content(
            path,
            "has no certificate: give a PEM file with BEGIN CERTIFICATE",
        )),
    }
}

/// The private key of a PEM file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ChannelError> {
    let bytes = secret(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        content(
            path,
            "has no private key: give a PEM file with BEGIN PRIVATE KEY",
        )
    })
}

/// The CAs of a PEM file.
pub(super) fn authorities(path: &Path) -> Result<Arc<RootCertStore>, ChannelError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let wrong = |error| {
            content(
                path,
                format!("holds a certificate that is no CA's: {error}"),
            )
        };
        roots.add(certificate).map_err(wrong)?;
    }
    Ok(Arc::new(roots))
}

/// What tells that a file has changed: a file that is put in its place has another time, length or
/// inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl Stamp {
    /// None where the file cannot be looked at.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Self {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            inode,
        })
    }
}
