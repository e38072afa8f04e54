//! What ties a session to its TLS channel.

/// The channel's exporter (RFC 8446, section 7.5; as the tls-exporter binding of RFC 9266): both
/// ends of one TLS connection have it, and no other connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding([u8; 32]);

/// The label of the exporter.
pub(super) const LABEL: &[u8] = b"EXPORTER-Pronghorn-session-1";

const PLAN: &str = "pronghorn 2026 plan on a channel";

impl Binding {
    pub(crate) fn new(exporter: [u8; 32]) -> Self {
        Self(exporter)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A plan's hash as the parties of a channel name it: alone on plain TCP, with the binding on TLS.
pub(crate) fn bound_plan(binding: Option<&Binding>, plan_hash: &[u8; 32]) -> [u8; 32] {
    let Some(binding) = binding else {
        return *plan_hash;
    };
    let mut hasher = blake3::Hasher::new_derive_key(PLAN);
    hasher.update(binding.as_bytes());
    hasher.update(plan_hash);
    *hasher.finalize().as_bytes()
}
