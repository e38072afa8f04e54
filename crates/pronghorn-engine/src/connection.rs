//! What a connection keeps between batches, and a server between connections.
//!
//! Each protocol keeps values of its own types: oblivious transfers, publications, keys. A
//! [`Connection`] finds them by type, so it names no protocol. `Kept` is the cell of all of them.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Values by their type and step.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Mutex<Values>>);

type Values = HashMap<(TypeId, usize), Box<dyn Any + Send>>;

impl Shelf {
    /// The handle of type `T` at a step, made where there is none. Its clones share one value.
    pub fn at<T: Clone + Default + Send + 'static>(&self, step: usize) -> T {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values
            .entry((TypeId::of::<T>(), step))
            .or_insert_with(|| Box::new(T::default()));
        value.downcast_ref::<T>().cloned().unwrap_or_default()
    }
}

/// One party's state of a connection: its batches, in turn, share it. Clones are the same
/// connection. Secret: no Debug.
#[derive(Clone, Default)]
pub struct Connection {
    own: Shelf,
    /// A server's state of all its connections.
    shared: Shelf,
    /// What only the two ends of its channel have.
    binding: Option<[u8; 32]>,
    /// Whose a server's connection is, as far as it counts what clients take.
    owner: [u8; 16],
    /// Runs that were made on it.
    runs: Arc<AtomicU64>,
}

/// A server's state of all its connections. Clones are the same. Secret: no Debug.
#[derive(Clone, Default)]
pub struct Connections(Shelf);

impl Connections {
    /// A new connection among these.
    pub fn connect(&self) -> Connection {
        Connection {
            own: Shelf::default(),
            shared: self.0.clone(),
            binding: None,
            owner: [0; 16],
            runs: Arc::default(),
        }
    }
}

impl Connection {
    /// The same of a client, whose keys make room for its own before others'.
    #[must_use]
    pub fn of_owner(self, owner: [u8; 16]) -> Self {
        Self { owner, ..self }
    }

    /// Batches and preparations that were begun on it. Each takes OTs that both parties count, so
    /// both must have begun as many: else results would be wrong.
    pub fn runs(&self) -> u64 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Counts a run.
    pub(crate) fn begin_run(&self) {
        self.runs.fetch_add(1, Ordering::SeqCst);
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> [u8; 16] {
        self.owner
    }

    /// The same over a channel that both ends name so and no other channel shares, such as a TLS
    /// exporter. It goes into the nonces of oblivious transfers: those of two channels do not fit.
    #[must_use]
    pub fn bound_to(self, binding: Option<[u8; 32]>) -> Self {
        Self { binding, ..self }
    }

    /// What only the two ends of its channel have; none without protection.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        self.binding
    }

    /// The connection's value of type `T`.
    pub(crate) fn kept<T: Clone + Default + Send + 'static>(&self) -> T {
        self.own.at(0)
    }

    /// The connection's value of type `T` for one step.
    pub(crate) fn kept_at<T: Clone + Default + Send + 'static>(&self, step: usize) -> T {
        self.own.at(step)
    }

    /// The value of type `T` of all connections.
    pub(crate) fn shared<T: Clone + Default + Send + 'static>(&self) -> T {
        self.shared.at(0)
    }
}

/// A cell of a connection. Clones are the same cell.
pub(crate) struct Kept<T>(Arc<Mutex<Option<Uses<T>>>>);

/// A value, and how often it may still be used.
struct Uses<T> {
    value: T,
    left: usize,
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Kept<T> {
    /// Values are whole between operations, so a panic elsewhere leaves them usable.
    fn lock(&self) -> MutexGuard<'_, Option<Uses<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a value for any number of uses.
    pub fn put(&self, value: T) {
        self.put_for(value, usize::MAX);
    }

    /// Keeps a value for so many uses.
    pub fn put_for(&self, value: T, uses: usize) {
        *self.lock() = Some(Uses { value, left: uses });
    }

    /// Takes the value out, with the uses that are left.
    pub fn take(&self) -> Option<(T, usize)> {
        self.lock().take().map(|kept| (kept.value, kept.left))
    }

    /// Whether there is a value.
    pub fn is_some(&self) -> bool {
        self.lock().is_some()
    }

    /// Uses that are left; 0 without a value.
    pub fn left(&self) -> usize {
        self.lock().as_ref().map_or(0, |kept| kept.left)
    }

    /// Leaves the value so many uses at most.
    pub fn limit(&self, uses: usize) {
        if let Some(kept) = self.lock().as_mut() {
            kept.left = kept.left.min(uses);
        }
    }

    /// Works on the value, if there is one.
    pub fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> Option<U> {
        self.lock().as_mut().map(|kept| work(&mut kept.value))
    }
}

impl<T: Clone> Kept<T> {
    /// The value, without a use.
    pub fn get(&self) -> Option<T> {
        self.lock().as_ref().map(|kept| kept.value.clone())
    }

    /// The value, for so many uses. Where fewer are left it is forgotten: a new one is due.
    pub fn spend(&self, uses: usize) -> Option<T> {
        let mut cell = self.lock();
        let left = cell.as_ref().and_then(|kept| kept.left.checked_sub(uses));
        match (cell.as_mut(), left) {
            (Some(kept), Some(left)) => {
                kept.left = left;
                Some(kept.value.clone())
            }
            _ => {
                *cell = None;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_serves_so_many_uses() {
        let cell = Kept::default();
        assert!(cell.spend(1).is_none());
        cell.put_for("rows", 10);
        assert_eq!(cell.spend(4), Some("rows"));
        assert_eq!(cell.left(), 6);
        cell.limit(9);
        assert_eq!(cell.left(), 6);
        assert_eq!(cell.get(), Some("rows"));
        assert_eq!(cell.spend(6), Some("rows"));
        assert!(cell.spend(1).is_none() && cell.get().is_none());
        cell.put("others");
        cell.limit(1);
        assert!(cell.spend(1).is_some() && cell.spend(1).is_none());
    }

    #[test]
    fn values_are_found_by_type_and_step() {
        let connection = Connection::default();
        connection.kept::<Kept<u8>>().put(1);
        connection.kept_at::<Kept<u8>>(3).put(3);
        assert_eq!(connection.clone().kept::<Kept<u8>>().get(), Some(1));
        assert_eq!(connection.kept_at::<Kept<u8>>(3).get(), Some(3));
        assert!(connection.kept::<Kept<u16>>().get().is_none());
        let server = Connections::default();
        server.connect().shared::<Kept<u8>>().put(5);
        let other = server.connect();
        assert_eq!(other.shared::<Kept<u8>>().get(), Some(5));
        assert!(other.kept::<Kept<u8>>().get().is_none());
    }
}
