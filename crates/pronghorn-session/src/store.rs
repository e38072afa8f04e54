//! Prepared batches, in memory or on a disk, each handed out once.
//!
//! # Once
//!
//! A second use of a preparation with another input tells the client `Delta`, or the server how the
//! client's shares differ. In memory a preparation is moved out of the store. On a disk
//! [`Store::take`] and [`Store::take_newest`]
//!
//! 1. rename its file, which succeeds for one of any number of threads and processes;
//! 2. wait until the new name is on the disk (`fsync` of the directory), after which no crash
//!    brings the old one back;
//! 3. refuse it if the record of used names has its name, and else append that and wait until it is
//!    on the disk;
//! 4. read the file, remove it, check its hash, and only then hand it out.
//!
//! Whatever fails or crashes on the way loses the preparation. Nothing makes a file ready but
//! [`Store::put`], which is given each half once, by value. Files that a crash left between two
//! names are removed when a store is opened that nobody else has open.
//!
//! A copy that somebody puts back is what remains: of one file it is refused by the record; of a
//! whole directory it has other inodes than its files say, on most file systems, and is refused by
//! these. A snapshot of a whole disk keeps both.
//!
//! # Bounds
//!
//! A store keeps so many batches for each owner (a client's network, for a server; a server's
//! store, for a client) and so many bytes in all; what is put into a full one takes the place of
//! the oldest.

pub(crate) mod barred;
mod directory;
pub(crate) mod disk;
mod error;
pub mod file;
mod half;
mod index;
pub(crate) mod kept;
mod name;
#[cfg(test)]
mod tests;
pub(crate) mod used;

use std::{
    collections::HashSet,
    io,
    path::Path,
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

use self::{
    directory::{CLAIMED, Directory, LOCK, READY, file_of, id, name_of, sweep},
    disk::{Disk, Real, check_private},
    file::{Expected, FileError, HEADER_BYTES, Header, Party},
    index::{Entry, Index, Kept},
};
pub use self::{
    error::StoreError,
    half::{Half, Read},
    name::{Name, Owner},
};
use crate::{lock::lock, text::hex};

/// How much a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Batches for each owner.
    pub batches: usize,
    /// Bytes of all.
    pub bytes: u64,
}

/// One party's halves of prepared batches of one plan. Secret: no Debug.
pub struct Store<H> {
    plan_hash: [u8; 32],
    id: Owner,
    bounds: Bounds,
    directory: Option<Directory>,
    index: Mutex<Index<H>>,
}

impl<H: Half> Store<H> {
    /// In memory.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn in_memory(plan_hash: [u8; 32], bounds: Bounds) -> Result<Self, StoreError> {
        Ok(Self::new(plan_hash, Name::random()?.0, bounds, None))
    }

    /// In a directory for this party and plan under `directory`, which is made where it is missing.
    /// Several processes may have it open.
    ///
    /// # Errors
    /// When the file system refuses, or others may enter the directory.
    pub fn open(directory: &Path, plan_hash: [u8; 32], bounds: Bounds) -> Result<Self, StoreError> {
        let store = Self::open_on(Box::new(Real), directory, plan_hash, bounds)?;
        check_private(directory)?;
        Ok(store)
    }

    fn open_on(
        disk: Box<dyn Disk>,
        directory: &Path,
        plan_hash: [u8; 32],
        bounds: Bounds,
    ) -> Result<Self, StoreError> {
        let party = match H::PARTY {
            Party::Client => "client",
            Party::Server => "server",
        };
        let path = directory.join(party).join(hex(&plan_hash));
        let failed = |source| StoreError::Disk {
            path: path.display().to_string(),
            source,
        };
        disk.make_directory(&path).map_err(failed)?;
        let sweep = &mut || sweep(disk.as_ref(), &path);
        let held = disk.lock(&path.join(LOCK), sweep).map_err(failed)?;
        let id = id(disk.as_ref(), &path)?;
        let directory = Directory {
            disk,
            path,
            _lock: held,
        };
        let store = Self::new(plan_hash, id, bounds, Some(directory));
        store.refresh(&mut lock(&store.index))?;
        Ok(store)
    }

    fn new(plan_hash: [u8; 32], id: Owner, bounds: Bounds, directory: Option<Directory>) -> Self {
        Self {
            plan_hash,
            id,
            bounds,
            directory,
            index: Mutex::new(Index {
                entries: Vec::new(),
                used: HashSet::new(),
                read: 0,
                burnt: HashSet::new(),
            }),
        }
    }

    /// What the store is called: the same as long as its directory is there, or as it is in memory.
    pub fn id(&self) -> Owner {
        self.id
    }

    /// Whether what it has is gone with it.
    pub fn is_in_memory(&self) -> bool {
        self.directory.is_none()
    }

    /// How much it keeps.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Batches of so many images that can be handed out for `owner`.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn count(&self, owner: &Owner, batch: usize) -> Result<usize, StoreError> {
        let mut index = lock(&self.index);
        self.refresh(&mut index)?;
        Ok(index.ready(owner, batch).count())
    }

    /// A size of which fewer batches can be handed out for `owner` than `batches` has.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn missing(&self, owner: &Owner, batches: &[usize]) -> Result<Option<usize>, StoreError> {
        let mut sizes = batches.to_vec();
        sizes.sort_unstable();
        for same in sizes.chunk_by(|a, b| a == b) {
            if self.count(owner, same[0])? < same.len() {
                return Ok(Some(same[0]));
            }
        }
        Ok(None)
    }

    /// Prepared batches that it knows of, and their bytes.
    pub fn stock(&self) -> (u64, u64) {
        let index = lock(&self.index);
        (index.entries.len() as u64, index.total())
    }

    /// Checks that so many bytes fit beside what is there.
    ///
    /// # Errors
    /// When something would have to make room, or the directory cannot be read.
    pub fn check_room(&self, bytes: u64) -> Result<(), StoreError> {
        let mut index = lock(&self.index);
        self.refresh(&mut index)?;
        let (needed, allowed) = (index.total().saturating_add(bytes), self.bounds.bytes);
        match needed <= allowed {
            true => Ok(()),
            false => Err(StoreError::TooLarge { needed, allowed }),
        }
    }

    /// Checks that a preparation of this name, which takes so many bytes, can be made.
    ///
    /// # Errors
    /// When there is or was one of this name, or it is too large.
    pub fn check(&self, name: &Name, bytes: u64) -> Result<(), StoreError> {
        let mut index = lock(&self.index);
        self.refresh(&mut index)?;
        self.check_in(&index, name, bytes)
    }

    fn check_in(&self, index: &Index<H>, name: &Name, needed: u64) -> Result<(), StoreError> {
        let allowed = self.bounds.bytes;
        if needed > allowed {
            return Err(StoreError::TooLarge { needed, allowed });
        }
        if index.used.contains(name) || index.entries.iter().any(|entry| entry.header.name == *name)
        {
            return Err(StoreError::Known { name: *name });
        }
        Ok(())
    }

    /// Keeps a half that takes about `bytes`; `most` batches for its owner, where that is less than
    /// the bounds say.
    ///
    /// # Errors
    /// When its name is known, it is too large, or the file system refuses; it is then destroyed.
    pub fn put(
        &self,
        name: Name,
        owner: Owner,
        most: usize,
        bytes: u64,
        half: H,
    ) -> Result<(), StoreError> {
        let header = Header {
            party: H::PARTY,
            plan_hash: self.plan_hash,
            setup: half.setup(),
            name,
            owner,
            batch: half.batch().try_into().unwrap_or(u32::MAX),
            made: now(),
            inode: 0,
        };
        let mut index = lock(&self.index);
        self.refresh(&mut index)?;
        self.check_in(&index, &name, bytes)?;
        self.make_room(&mut index, &owner, most.min(self.bounds.batches), bytes)?;
        let Some(directory) = &self.directory else {
            let kept = Kept::InMemory(half);
            index.entries.push(Entry {
                header,
                bytes,
                kept,
            });
            return Ok(());
        };
        index.entries.push(Entry {
            header,
            bytes,
            kept: Kept::Coming,
        });
        drop(index);
        let written = directory.write(&header, &half);
        let mut index = lock(&self.index);
        if written.is_ok() {
            if let Some(entry) = index.entries.iter_mut().find(|e| e.header.name == name) {
                entry.kept = Kept::OnDisk;
            }
        } else {
            index.entries.retain(|entry| entry.header.name != name);
        }
        written
    }

    /// Destroys the oldest until one more fits.
    fn make_room(
        &self,
        index: &mut Index<H>,
        owner: &Owner,
        most: usize,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let own = |entry: &Entry<H>| entry.header.owner == *owner;
        while index.entries.iter().filter(|entry| own(entry)).count() >= most.max(1) {
            if !self.destroy_oldest(index, own)? {
                break;
            }
        }
        let needed = |index: &Index<H>| index.total().saturating_add(bytes);
        while needed(index) > self.bounds.bytes {
            if !self.destroy_oldest(index, |_| true)? {
                // What is left is being written.
                let (needed, allowed) = (needed(index), self.bounds.bytes);
                return Err(StoreError::TooLarge { needed, allowed });
            }
        }
        Ok(())
    }

    fn destroy_oldest(
        &self,
        index: &mut Index<H>,
        which: impl Fn(&Entry<H>) -> bool,
    ) -> Result<bool, StoreError> {
        let ready = |entry: &Entry<H>| !matches!(entry.kept, Kept::Coming) && which(entry);
        let Some(place) = index.entries.iter().position(ready) else {
            return Ok(false);
        };
        let entry = index.entries.remove(place);
        if let Some(directory) = &self.directory {
            directory.remove(&file_of(&entry.header.name, READY))?;
        }
        Ok(true)
    }

    /// Hands out the preparation of this name, for good. None where there is none of it, or no
    /// more, or it is for another number of images than `batch`: then it is destroyed unread, since
    /// memory was counted for `batch`.
    ///
    /// # Errors
    /// When the file system refuses or the file is damaged; the preparation is then lost.
    pub fn take(
        &self,
        name: &Name,
        batch: usize,
        half: Read<'_, H>,
    ) -> Result<Option<H>, StoreError> {
        let Some(directory) = &self.directory else {
            let mut index = lock(&self.index);
            let kept = index.remove(name);
            return Ok(kept.and_then(|kept| match kept {
                Kept::InMemory(half) => Some(half).filter(|half| half.batch() == batch),
                Kept::Coming | Kept::OnDisk => None,
            }));
        };
        let ready = file_of(name, READY);
        let claimed = format!("{name}.{}{CLAIMED}", Name::random()?);
        if !directory.claim(&ready, &claimed)? {
            return Ok(None);
        }
        {
            let mut index = lock(&self.index);
            index.remove(name);
            directory.read_used(&mut index)?;
            if !index.used.insert(*name) {
                directory.remove(&claimed)?;
                let field = "use (it was used before)";
                let source = FileError::Other { field };
                return Err(StoreError::File {
                    name: *name,
                    source,
                });
            }
            directory.append_used(name)?;
        }
        let read = |most| directory.at(&claimed, |disk, path| disk.read(path, 0, most));
        let (start, _) = read(HEADER_BYTES as u64)?;
        let header = Header::from_bytes(&start).ok();
        if header.is_some_and(|header| header.batch as usize != batch) {
            directory.remove(&claimed)?;
            return Ok(None);
        }
        let (bytes, inode) = read(u64::MAX)?;
        directory.remove(&claimed)?;
        self.half(name, inode, &bytes, half).map(Some)
    }

    /// The half in a file's bytes.
    fn half(
        &self,
        name: &Name,
        inode: u64,
        bytes: &[u8],
        read: Read<'_, H>,
    ) -> Result<H, StoreError> {
        let damaged = |source| StoreError::File {
            name: *name,
            source,
        };
        let (header, half) = file::read(bytes).map_err(damaged)?;
        self.check_header(&lock(&self.index), &header, *name, inode)?;
        Ok(read(header.batch as usize, header.setup, half)?)
    }

    /// Checks that a file's header is that of the place where it lies, and made with OTs that
    /// nothing is known of.
    fn check_header(
        &self,
        index: &Index<H>,
        header: &Header,
        name: Name,
        inode: u64,
    ) -> Result<(), StoreError> {
        let expected = Expected {
            party: H::PARTY,
            plan_hash: self.plan_hash,
            name,
            inode,
        };
        let checked = header.check(&expected).and_then(|()| {
            let field = "set-up of OTs (it failed a check)";
            match index.burnt.contains(&header.setup) {
                true => Err(FileError::Other { field }),
                false => Ok(()),
            }
        });
        checked.map_err(|source| StoreError::File { name, source })
    }

    /// Hands out the newest preparation of so many images for `owner`, for good, and its name:
    /// where the peer had to make room, its half of the oldest is gone. Damaged ones on the way are
    /// lost, and counted.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn take_newest(
        &self,
        owner: &Owner,
        batch: usize,
        half: Read<'_, H>,
    ) -> Result<(Option<(Name, H)>, u64), StoreError> {
        let mut lost = 0;
        loop {
            let newest = {
                let mut index = lock(&self.index);
                self.refresh(&mut index)?;
                index
                    .ready(owner, batch)
                    .last()
                    .map(|entry| entry.header.name)
            };
            let Some(name) = newest else {
                return Ok((None, lost));
            };
            match self.take(&name, batch, half) {
                Ok(Some(half)) => return Ok((Some((name, half)), lost)),
                // Another process has it.
                Ok(None) => lock(&self.index).remove(&name).map_or((), drop),
                // Claimed, and of no use.
                Err(StoreError::File { .. } | StoreError::Engine(_)) => lost += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Destroys all that was made with a set-up of OTs, which has failed a check.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn destroy(&self, setup: &[u8; 32]) -> Result<(), StoreError> {
        let mut index = lock(&self.index);
        index.burnt.insert(*setup);
        let mut result = self.refresh(&mut index);
        // Errors keep none of the others.
        loop {
            match self.destroy_oldest(&mut index, |entry| entry.header.setup == *setup) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => result = result.and(Err(error)),
            }
        }
        let synced = self.directory.as_ref().map_or(Ok(()), Directory::sync);
        result.and(synced)
    }

    /// Brings the index up to what is on the disk; removes files that nobody can use.
    fn refresh(&self, index: &mut Index<H>) -> Result<(), StoreError> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        directory.read_used(index)?;
        let files = directory.at("", |disk, path| disk.list(path))?;
        let ready: Vec<(Name, u64)> = files
            .iter()
            .filter_map(|(file, length)| Some((name_of(file)?, *length)))
            .collect();
        let there: HashSet<Name> = ready.iter().map(|(name, _)| *name).collect();
        index.entries.retain(|entry| {
            matches!(entry.kept, Kept::Coming) || there.contains(&entry.header.name)
        });
        for (name, length) in ready {
            let known = |entry: &Entry<H>| entry.header.name == name;
            if index.entries.iter().any(known) {
                continue;
            }
            match self.look(directory, index, name) {
                Ok(header) => index.entries.push(Entry {
                    header,
                    bytes: length,
                    kept: Kept::OnDisk,
                }),
                // Another process has taken it since.
                Err(StoreError::Disk { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(error @ StoreError::Disk { .. }) => return Err(error),
                Err(_) => directory.remove(&file_of(&name, READY))?,
            }
        }
        index.entries.sort_by_key(|entry| entry.header.made);
        Ok(())
    }

    /// The header of a file that is new to the index.
    fn look(
        &self,
        directory: &Directory,
        index: &Index<H>,
        name: Name,
    ) -> Result<Header, StoreError> {
        let damaged = |source| StoreError::File { name, source };
        let (bytes, inode) = directory.at(&file_of(&name, READY), |disk, path| {
            disk.read(path, 0, HEADER_BYTES as u64)
        })?;
        if index.used.contains(&name) {
            return Err(StoreError::Known { name });
        }
        let header = Header::from_bytes(&bytes).map_err(damaged)?;
        self.check_header(index, &header, name, inode)?;
        Ok(header)
    }
}

/// Microseconds since 1970: what is older goes first, and nothing else depends on it.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}
