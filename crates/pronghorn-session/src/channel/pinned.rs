//! A server that is known by its certificate's fingerprint.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use subtle::ConstantTimeEq;
use thiserror::Error as ThisError;

/// The SHA-256 of a certificate's DER bytes, as `openssl x509 -fingerprint -sha256` prints it.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let digest = digest(&SHA256, certificate);
    *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Takes one certificate, whatever its names, dates and issuer. The server must still sign with its
/// key.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) fingerprint: [u8; 32],
    pub(super) provider: Arc<CryptoProvider>,
}

/// Another certificate than the pinned one.
#[derive(Debug, ThisError)]
#[error("the certificate is not the pinned one")]
pub(super) struct Mismatch {
    pub(super) found: [u8; 32],
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = fingerprint(certificate);
        if bool::from(found[..].ct_eq(&self.fingerprint[..])) {
            return Ok(ServerCertVerified::assertion());
        }
        let mismatch = OtherError(Arc::new(Mismatch { found }));
        Err(CertificateError::Other(mismatch).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}
