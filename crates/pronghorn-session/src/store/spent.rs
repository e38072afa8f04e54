//! The images that named clients have asked for, in a store's directory.
//!
//! A file of entries, 24 bytes each: the client ([`Owner`]) and a number of images, little-endian.
//! An entry is on the disk before its batch begins. Several servers may share the file: they lock it
//! while they read and append. Entries are never removed, so that a limit holds until the owner
//! removes the file.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Mutex,
};

use super::{
    Owner, StoreError,
    disk::{Disk, Real, check_private, private, sync_name},
};
use crate::{error::SessionError, lock::lock};

const FILE: &str = "spent";

/// Bytes of an entry.
const ENTRY: usize = 24;

/// The record of a store.
pub(crate) struct Spent {
    path: PathBuf,
    known: Mutex<Known>,
}

/// What was read of the file.
#[derive(Default)]
struct Known {
    images: HashMap<Owner, u64>,
    read: u64,
}

impl Spent {
    /// The record in a store's directory, which is made where it is missing.
    ///
    /// # Errors
    /// The file system refuses, or others may enter the directory.
    pub(crate) fn open(directory: &Path) -> Result<Self, StoreError> {
        let server = directory.join("server");
        let failed = |source| StoreError::Disk {
            path: server.display().to_string(),
            source,
        };
        Real.make_directory(&server).map_err(failed)?;
        check_private(directory)?;
        let record = Self {
            path: server.join(FILE),
            known: Mutex::default(),
        };
        record.locked(|_, _| Ok(()))?;
        Ok(record)
    }

    /// Images of a client.
    pub(crate) fn of(&self, client: &Owner) -> Result<u64, StoreError> {
        self.locked(|_, known| Ok(known.images.get(client).copied().unwrap_or(0)))
    }

    /// Counts images of a client, if `check` lets it with those of before.
    pub(crate) fn spend(
        &self,
        client: &Owner,
        images: u64,
        check: impl FnOnce(u64) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let spent = self.locked(|file, known| {
            let before = known.images.get(client).copied().unwrap_or(0);
            let checked = check(before);
            if checked.is_ok() {
                let mut entry = client.to_vec();
                entry.extend(images.to_le_bytes());
                file.write_all(&entry)?;
                file.sync_all()?;
                known.add(&entry);
            }
            Ok(checked)
        });
        spent?
    }

    /// Something done with the file, all of which is known, while nobody else writes.
    fn locked<T>(
        &self,
        act: impl FnOnce(&mut File, &mut Known) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let mut known = lock(&self.known);
        let open = || {
            let is_new = !self.path.exists();
            let mut file = private()
                .read(true)
                .append(true)
                .create(true)
                .open(&self.path)?;
            if is_new {
                sync_name(&self.path)?;
            }
            file.lock()?;
            known.catch_up(&mut file)?;
            act(&mut file, &mut known)
        };
        open().map_err(|source| StoreError::Disk {
            path: self.path.display().to_string(),
            source,
        })
    }
}

impl Known {
    /// Reads what was appended. An entry that a crash cut short, whose batch never began, is filled.
    fn catch_up(&mut self, file: &mut File) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let cut = bytes.len() % ENTRY;
        if cut != 0 {
            let filler = vec![0; ENTRY - cut];
            file.write_all(&filler)?;
            bytes.extend(filler);
        }
        bytes.chunks_exact(ENTRY).for_each(|entry| self.add(entry));
        Ok(())
    }

    fn add(&mut self, entry: &[u8]) {
        let (Some(client), Some(images)) = (entry.first_chunk(), entry.last_chunk()) else {
            return;
        };
        let spent = self.images.entry(*client).or_default();
        *spent = spent.saturating_add(u64::from_le_bytes(*images));
        self.read += ENTRY as u64;
    }
}
