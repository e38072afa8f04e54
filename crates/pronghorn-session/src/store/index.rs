//! What a store knows of the files and values that it has.

use std::collections::HashSet;

use super::{
    file::Header,
    name::{Name, Owner},
};

/// What a store knows of what it has.
pub(super) struct Index<H> {
    /// The oldest first.
    pub(super) entries: Vec<Entry<H>>,
    /// Names that were handed out from this directory, and bytes of the record that were read.
    pub(super) used: HashSet<Name>,
    pub(super) read: u64,
    /// Set-ups that failed a check: what was made with them is never handed out, whether or not its
    /// files could be removed.
    pub(super) burnt: HashSet<[u8; 32]>,
}

pub(super) struct Entry<H> {
    pub(super) header: Header,
    pub(super) bytes: u64,
    pub(super) kept: Kept<H>,
}

pub(super) enum Kept<H> {
    /// Being written: counted, but not handed out.
    Coming,
    OnDisk,
    InMemory(H),
}

impl<H> Index<H> {
    pub(super) fn remove(&mut self, name: &Name) -> Option<Kept<H>> {
        let ready =
            |entry: &Entry<H>| entry.header.name == *name && !matches!(entry.kept, Kept::Coming);
        let place = self.entries.iter().position(ready)?;
        Some(self.entries.remove(place).kept)
    }

    /// Bytes of all.
    pub(super) fn total(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    pub(super) fn ready(&self, owner: &Owner, batch: usize) -> impl Iterator<Item = &Entry<H>> {
        self.entries.iter().filter(move |entry| {
            entry.header.owner == *owner
                && entry.header.batch as usize == batch
                && !matches!(entry.kept, Kept::Coming)
        })
    }
}
