//! What can go wrong with a channel, in words that say what to do.

use std::{io, net::IpAddr};

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use thiserror::Error;

use crate::text::hex;

/// Why a channel is not made, or ends.
#[derive(Debug, Error)]
pub enum ChannelError {
    /// A server was asked to listen beyond this machine without TLS.
    #[error(
        "{address} is beyond loopback, and plain TCP lets whoever is on the network change results, read inputs bit by \
         bit and pose as either party: give a certificate (`pronghorn keys DIR`, then --tls DIR/server), or \
         --insecure-plain-tcp where a tunnel protects the line"
    )]
    PlainListen {
        /// Where.
        address: String,
    },
    /// The server speaks plain TCP.
    #[error(
        "the server does not speak TLS: check host and port; where a tunnel protects the line and the server was \
         started with --insecure-plain-tcp, give that flag here too"
    )]
    NotTls,
    /// The client speaks plain TCP.
    #[error(
        "this server speaks TLS: connect with the directory that its owner gave you (--tls DIR), its CA (--tls-ca FILE) \
         or its fingerprint (--tls-fingerprint HEX)"
    )]
    PlainClient,
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} {problem}")]
    Content {
        /// Which.
        path: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A secret that others on this machine can read.
    #[error("{path} is a secret, and its mode {mode:o} lets others use it: chmod 600 {path}")]
    Mode {
        /// Which file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// The server's certificate is of another CA.
    #[error(
        "the server's certificate is not of a CA that this client trusts: give its owner's ca.pem (--tls-ca FILE, or \
         --tls DIR), or its fingerprint (--tls-fingerprint HEX); if you gave it, this may be another server"
    )]
    UnknownIssuer,
    /// The server's certificate was valid once.
    #[error(
        "the server's certificate has expired, or this machine's clock is wrong: its owner makes a new one with \
         `pronghorn keys` and need not restart the server"
    )]
    Expired,
    /// The server's certificate will be valid.
    #[error("the server's certificate is not valid yet: look at the clocks of both machines")]
    NotYetValid,
    /// The server's certificate is of another host.
    #[error(
        "the server's certificate is not for {name}{}: connect by that name, give it (--tls-name NAME), or have a \
         certificate made for this one (`pronghorn keys DIR --host {name}`)", presented(.names)
    )]
    WrongName {
        /// What the client asked for.
        name: String,
        /// What the certificate names.
        names: Vec<String>,
    },
    /// The server's certificate is another than the pinned one.
    #[error(
        "the server's certificate has the fingerprint {}, and {} is pinned: it has a new certificate, or it is another \
         server; ask its owner before you change the pin",
        hex(found),
        hex(expected)
    )]
    Fingerprint {
        /// What the user gave.
        expected: [u8; 32],
        /// What came.
        found: [u8; 32],
    },
    /// The server wants a certificate.
    #[error(
        "this server wants a certificate of its clients: ask its owner for one (`pronghorn keys DIR --client NAME`), \
         and give it (--tls DIR, or --tls-cert and --tls-key)"
    )]
    CertificateWanted,
    /// The server does not take the client's certificate.
    #[error(
        "the server refuses this client's certificate ({reason}): ask its owner for a new one (`pronghorn keys DIR \
         --client NAME`)"
    )]
    CertificateRefused {
        /// The alert.
        reason: String,
    },
    /// The client does not take the server's certificate.
    #[error("the client does not accept this server's certificate ({reason})")]
    ServerRefused {
        /// The alert.
        reason: String,
    },
    /// The server does not take the client's certificate: at the server.
    #[error("the client's certificate is refused: {reason}")]
    ClientCertificate {
        /// Why.
        reason: String,
    },
    /// The server wants to know its clients, and the client has said nothing.
    #[error(
        "this server wants a token or a certificate: ask its owner for one, and give it (--token FILE, or --tls DIR)"
    )]
    TokenWanted,
    /// The server does not know the token.
    #[error(
        "the server refuses this token: ask its owner whether it still holds, and give the whole of it"
    )]
    TokenRefused,
    /// The two parties do not share one channel.
    #[error(
        "the two parties are on two TLS channels, so something between them opens one and makes the other: connect \
         without that proxy"
    )]
    Spliced,
    /// TLS failed for another reason.
    #[error("TLS failed: {0}")]
    Tls(Error),
}

fn presented(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(", but for {}", names.join(", ")),
    }
}

impl ChannelError {
    /// Whether it is about who the client is.
    pub(crate) fn is_about_client(&self) -> bool {
        matches!(
            self,
            Self::CertificateWanted
                | Self::CertificateRefused { .. }
                | Self::ClientCertificate { .. }
                | Self::TokenWanted
                | Self::TokenRefused
        )
    }

    /// Whether it is about the options and files that this side's user gave, and not about a peer.
    pub(crate) fn is_about_options(&self) -> bool {
        matches!(
            self,
            Self::PlainListen { .. } | Self::File { .. } | Self::Content { .. } | Self::Mode { .. }
        )
    }

    /// Whether the peer can still be told, over the channel or beside it.
    pub(crate) fn is_worth_telling(&self) -> bool {
        matches!(
            self,
            Self::TokenWanted | Self::TokenRefused | Self::Spliced | Self::PlainClient
        )
    }

    /// A client's reading of what TLS says.
    pub(super) fn of_client(error: Error, name: &str) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::of_certificate(error, name),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            Error::AlertReceived(AlertDescription::CertificateRequired) => Self::CertificateWanted,
            Error::AlertReceived(alert) if is_about_certificate(alert) => {
                let reason = format!("{alert:?}");
                Self::CertificateRefused { reason }
            }
            other => Self::Tls(other),
        }
    }

    /// A server's reading.
    pub(super) fn of_server(error: Error) -> Self {
        match error {
            Error::NoCertificatesPresented => Self::ClientCertificate {
                reason: "it has none".into(),
            },
            Error::InvalidCertificate(error) => Self::ClientCertificate {
                reason: error.to_string(),
            },
            Error::AlertReceived(alert) if is_about_certificate(alert) => {
                let reason = format!("{alert:?}");
                Self::ServerRefused { reason }
            }
            other => Self::Tls(other),
        }
    }

    fn of_certificate(error: CertificateError, name: &str) -> Self {
        let name = name.to_owned();
        match error {
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::NotValidForName => Self::WrongName {
                name,
                names: Vec::new(),
            },
            CertificateError::NotValidForNameContext { presented, .. } => Self::WrongName {
                name,
                names: presented.iter().map(|name| bare(name)).collect(),
            },
            other => Self::Tls(Error::InvalidCertificate(other)),
        }
    }
}

/// A name as the certificate's reader prints it, such as `DnsName("localhost")` or
/// `IpAddress(127.0.0.1)`, without the kind around it.
fn bare(name: &str) -> String {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    let bare = inner.unwrap_or(name).trim_matches('"');
    // Addresses in their usual form: the reader writes `0::1`.
    let address = bare.parse::<IpAddr>();
    address.map_or_else(|_| bare.to_owned(), |address| address.to_string())
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn names_are_bare() {
        for (found, wanted) in [
            ("DnsName(\"localhost\")", "localhost"),
            ("IpAddress(127.0.0.1)", "127.0.0.1"),
            ("IpAddress(0::1)", "::1"),
            ("IpAddress(2001:db8:0:0:0:0:0:1)", "2001:db8::1"),
            ("odd", "odd"),
        ] {
            assert_eq!(bare(found), wanted);
        }
    }
}
