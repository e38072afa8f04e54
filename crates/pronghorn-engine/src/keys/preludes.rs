//! Both parties' preludes, for plans that need keys.

use std::sync::Arc;

use super::{KeySets, client::ClientKeys, server::ServerKeys};
use crate::protocol::Prelude;

/// The client's.
pub(crate) fn client<S: KeySets>(sets: Option<Arc<S>>) -> Option<Box<dyn Prelude>> {
    sets.map(|sets| Box::new(ClientKeys(sets)) as _)
}

/// The server's.
pub(crate) fn server<S: KeySets>(sets: Option<Arc<S>>) -> Option<Box<dyn Prelude>> {
    sets.map(|sets| Box::new(ServerKeys(sets)) as _)
}
