//! Values of a connection that a client keeps for later connections, as bytes for a store.
//!
//! A session keeps them without knowing their protocols: it asks the model for its [`Persistent`]
//! values, offers each connection the bytes of an earlier one, and saves the bytes of this one.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::{connection::Connection, error::EngineError};

/// A value that outlives its connection.
pub trait Persistent: Send + Sync {
    /// The start of its file's name.
    fn name(&self) -> &'static str;

    /// How often a value may be used; `None` for a secret of 32 bytes. A secret is out of the store
    /// while it is used, and comes back when the prediction has come to its end.
    fn uses(&self) -> Option<Uses>;

    /// Offers the bytes of an earlier connection to this one, for so many uses.
    ///
    /// # Errors
    /// The bytes are not of this plan.
    fn offer(&self, connection: &Connection, bytes: &[u8], uses: usize) -> Result<(), EngineError>;

    /// Uses that this connection has left: images, and of a secret batches.
    fn left(&self, _connection: &Connection) -> usize {
        0
    }

    /// Leaves a secret of this connection so many uses at most, where other connections had some.
    fn limit(&self, _connection: &Connection, _uses: usize) {}

    /// The bytes of this connection; `None` before there are any.
    fn saved(&self, _connection: &Connection) -> Option<Saved> {
        None
    }
}

/// How often a value may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// In all.
    pub most: usize,
    /// By one connection, before it asks again.
    pub grant: usize,
}

/// The bytes of a value.
#[derive(Clone)]
pub struct Saved {
    /// Names the value: uses are counted by it.
    pub id: [u8; 32],
    /// Bytes before the body; all of a secret.
    pub head: Zeroizing<Vec<u8>>,
    /// The rest.
    pub body: Arc<Vec<u8>>,
}
