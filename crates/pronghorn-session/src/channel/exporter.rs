//! The exporter of a TLS connection whose records are ours (RFC 8446, section 7.5).
//!
//! rustls exports from connections that it runs to their end. Of one that it hands over, it shows
//! the exporter's secret to a log of keys alone. The log here keeps that one secret, in memory.

use std::sync::{Arc, Mutex};

use rustls::{KeyLog, Tls13CipherSuite, crypto::tls13::OkmBlock};
use zeroize::{Zeroize, Zeroizing};

use crate::lock::lock;

/// The secret's name among logged keys.
const SECRET: &str = "EXPORTER_SECRET";

/// The exporter's secret of one connection, once its handshake is over. Its Debug shows nothing.
#[derive(Clone, Default)]
pub(super) struct Exporter {
    secret: Arc<Mutex<Zeroizing<Vec<u8>>>>,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Exporter")
    }
}

impl KeyLog for Exporter {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if label == SECRET {
            *lock(&self.secret) = Zeroizing::new(secret.to_vec());
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == SECRET
    }
}

impl Exporter {
    /// 32 bytes for a label, without a context. Once: the secret goes with that.
    ///
    /// # Errors
    /// When the handshake is not over.
    pub(super) fn export(
        &self,
        suite: &Tls13CipherSuite,
        label: &[u8],
    ) -> Result<[u8; 32], rustls::Error> {
        let secret = std::mem::take(&mut *lock(&self.secret));
        if secret.is_empty() {
            return Err(rustls::Error::HandshakeNotComplete);
        }
        let nothing = suite.common.hash_provider.hash(&[]);
        let hkdf = suite.hkdf_provider;
        let master = hkdf.expander_for_okm(&OkmBlock::new(&secret));
        let mut derived = Zeroizing::new(vec![0; master.hash_len()]);
        expand_label(&*master, label, nothing.as_ref(), &mut derived)?;
        let mut exported = [0; 32];
        let expander = hkdf.expander_for_okm(&OkmBlock::new(&derived));
        derived.zeroize();
        expand_label(&*expander, b"exporter", nothing.as_ref(), &mut exported)?;
        Ok(exported)
    }
}

/// HKDF-Expand-Label (RFC 8446, section 7.1).
fn expand_label(
    expander: &dyn rustls::crypto::tls13::HkdfExpander,
    label: &[u8],
    context: &[u8],
    output: &mut [u8],
) -> Result<(), rustls::Error> {
    const PREFIX: &[u8] = b"tls13 ";
    let too_long = || rustls::Error::General("an exporter's label is too long".into());
    let length = u16::try_from(output.len()).map_err(|_| too_long())?;
    let named = u8::try_from(PREFIX.len() + label.len()).map_err(|_| too_long())?;
    let bound = u8::try_from(context.len()).map_err(|_| too_long())?;
    let info: [&[u8]; 6] = [
        &length.to_be_bytes(),
        &[named],
        PREFIX,
        label,
        &[bound],
        context,
    ];
    expander.expand_slice(&info, output).map_err(|_| too_long())
}
