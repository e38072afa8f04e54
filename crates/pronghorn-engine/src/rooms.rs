//! What threads need for a row, used again for the next.
//!
//! Rayon makes the state of `for_each_init` anew for each piece that it cuts, and behind a
//! `flat_map` for each row. Clearing and wiping so much memory took a tenth of a client's time.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Rooms that no thread uses. They are dropped with it, and wipe themselves if they are secret.
pub(crate) struct Rooms<T>(Mutex<Vec<T>>);

impl<T> Default for Rooms<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Rooms<T> {
    /// A room with what its last user left in it. Where all are in use, a new one.
    pub fn borrow(&self, new: impl FnOnce() -> T) -> Borrowed<'_, T> {
        let found = self.lock().pop();
        Borrowed {
            rooms: self,
            room: Some(found.unwrap_or_else(new)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A room in use, which goes back on drop.
pub(crate) struct Borrowed<'a, T> {
    rooms: &'a Rooms<T>,
    /// There until the drop.
    room: Option<T>,
}

impl<T> Drop for Borrowed<'_, T> {
    fn drop(&mut self) {
        self.rooms.lock().extend(self.room.take());
    }
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.room.as_ref().expect("it is there until the drop")
    }
}

impl<T> DerefMut for Borrowed<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.room.as_mut().expect("it is there until the drop")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_used_again() {
        let rooms = Rooms::default();
        {
            let [mut first, second] = [1, 2].map(|content| rooms.borrow(|| content));
            *first = 3;
            assert_eq!((*first, *second), (3, 2));
        }
        let contents =
            [rooms.borrow(|| 4), rooms.borrow(|| 4), rooms.borrow(|| 4)].map(|room| *room);
        assert_eq!(contents.iter().sum::<i32>(), 3 + 2 + 4);
        assert_eq!(rooms.lock().len(), 3);
    }
}
