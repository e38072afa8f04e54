//! Where a client has its tickets from.

use std::{fmt, sync::Arc};

use crate::error::SessionError;

/// Where a client has its tickets from: each connection needs one of its own.
#[derive(Clone)]
pub struct TicketSource(Arc<dyn Fn() -> Result<Vec<u8>, SessionError> + Send + Sync>);

impl TicketSource {
    /// Asks for one at each connection.
    pub fn new(ask: impl Fn() -> Result<Vec<u8>, SessionError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    pub(crate) fn ticket(&self) -> Result<Vec<u8>, SessionError> {
        (self.0)()
    }
}

/// One ticket, which serves for one connection.
impl From<Vec<u8>> for TicketSource {
    fn from(ticket: Vec<u8>) -> Self {
        Self::new(move || Ok(ticket.clone()))
    }
}

impl fmt::Debug for TicketSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSource")
    }
}
