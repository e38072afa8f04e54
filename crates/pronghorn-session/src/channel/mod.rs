//! Channels: plain TCP on this machine, TLS 1.3 beyond it.
//!
//! # What a channel gives a session
//!
//! * A [`Transport`]. Under TLS whoever is on the line can cut it, and sees times and lengths.
//! * A binding: the TLS exporter. It is hashed into the names of the plan, the nonces of oblivious
//!   transfers and the transcript, so that a relay between two channels cannot splice them.
//! * The client's name, from its certificate or token.
//!
//! # Identities
//!
//! A server shows a certificate. A client knows it by a CA, by the system's CAs, or by a
//! fingerprint. A client shows a certificate of the server's own CA, or the proof of a token
//! ([`token`]).
//!
//! # TLS
//!
//! rustls with ring: TLS 1.3 alone, no resumption, no early data. rustls makes the handshake, the
//! keys and the ciphers. The records are ours ([`record`]), for their speed. The key exchange is
//! X25519 or a NIST curve, without a post-quantum part: who records the line and has a quantum
//! computer later reads what plain TCP would have shown.

mod binding;
mod client;
mod error;
mod exporter;
mod files;
#[cfg(any(test, feature = "fixed-keys"))]
mod fixed;
mod handshake;
mod keys;
mod pinned;
mod record;
mod server;
mod stream;
mod token;

use std::{net::TcpStream, sync::Arc};

use rustls::crypto::{
    CryptoProvider,
    ring::{
        self,
        cipher_suite::{
            TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
        },
    },
};

#[cfg(any(test, feature = "fixed-keys"))]
pub use self::fixed::{Opened, Peers};
use self::token::Tokens;
pub(crate) use self::{
    binding::{Binding, bound_plan},
    server::Acceptor,
    token::PROOF_BYTES,
};
pub use self::{
    client::{ClientChannel, ClientTls, Trusted},
    error::ChannelError,
    keys::{KeyRequest, make_keys},
    pinned::fingerprint,
    server::{ServerChannel, ServerTls, check_files},
    token::Token,
};
use crate::transport::Transport;

/// ring's, with AES-128 first: it has the 128 bits that all else here has, and takes the least time.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        TLS13_AES_128_GCM_SHA256,
        TLS13_AES_256_GCM_SHA384,
        TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider {
        cipher_suites,
        ..ring::default_provider()
    })
}

/// A channel that is made. Secret: no Debug.
pub(crate) struct Secured {
    pub transport: Box<dyn Transport>,
    /// None on plain TCP.
    pub binding: Option<Binding>,
    /// The client's proof of its token, at the client.
    pub proof: Option<[u8; PROOF_BYTES]>,
    /// The client's name by its certificate, at the server.
    pub name: Option<String>,
    /// The tokens that would do for one, at the server.
    tokens: Option<Tokens>,
}

impl Secured {
    pub(crate) fn plain(socket: TcpStream) -> Self {
        Self::over(Box::new(socket))
    }

    /// Without protection.
    pub(crate) fn over(transport: Box<dyn Transport>) -> Self {
        Self {
            transport,
            binding: None,
            proof: None,
            name: None,
            tokens: None,
        }
    }
}

/// What a server asks of a client's hello.
pub(crate) struct Admission {
    binding: Option<Binding>,
    tokens: Option<Tokens>,
    name: Option<String>,
}

impl Admission {
    /// Of a channel, whose transport goes to a link.
    pub(crate) fn split(secured: Secured) -> (Box<dyn Transport>, Self) {
        let admission = Self {
            binding: secured.binding,
            tokens: secured.tokens,
            name: secured.name,
        };
        (secured.transport, admission)
    }

    pub(crate) fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    /// The client's name, once it has sent the proof of a token or none.
    ///
    /// # Errors
    /// When it has to have one.
    pub(crate) fn client(&self, proof: Option<&[u8]>) -> Result<Option<String>, ChannelError> {
        let (Some(tokens), Some(binding)) = (&self.tokens, &self.binding) else {
            return Ok(self.name.clone());
        };
        match (proof, &self.name) {
            (Some(proof), _) => match tokens.named(binding, proof) {
                Some(name) => Ok(Some(name)),
                None => Err(ChannelError::TokenRefused),
            },
            (None, Some(name)) => Ok(Some(name.clone())),
            (None, None) => Err(ChannelError::TokenWanted),
        }
    }
}
