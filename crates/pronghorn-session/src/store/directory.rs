//! A store's directory: names of files, what is claimed, the record of used names.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{
    disk::{Disk, Held},
    error::StoreError,
    file::{Check, Header},
    half::Half,
    index::Index,
    name::{Name, Owner},
};

/// A directory that this process and others use.
pub(super) struct Directory {
    pub(super) disk: Box<dyn Disk>,
    pub(super) path: PathBuf,
    pub(super) _lock: Box<dyn Held>,
}

pub(super) const READY: &str = ".prepared";
pub(super) const COMING: &str = ".new";
pub(super) const CLAIMED: &str = ".claimed";
pub(super) const LOCK: &str = "lock";
pub(super) const ID: &str = "id";
pub(super) const USED: &str = "used";

impl Directory {
    /// Something done with a file, or with the directory itself.
    pub(super) fn at<T>(
        &self,
        file: &str,
        act: impl FnOnce(&dyn Disk, &Path) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let path = match file {
            "" => self.path.clone(),
            file => self.path.join(file),
        };
        act(self.disk.as_ref(), &path).map_err(|source| StoreError::Disk {
            path: path.display().to_string(),
            source,
        })
    }

    pub(super) fn sync(&self) -> Result<(), StoreError> {
        self.at("", |disk, path| disk.sync_directory(path))
    }

    /// Removes a file, which another process may have done already.
    pub(super) fn remove(&self, file: &str) -> Result<(), StoreError> {
        self.at(file, |disk, path| {
            unless_missing(disk.remove(path)).map(drop)
        })
    }

    /// Writes a half; the file gets its name when all of it is on the disk.
    pub(super) fn write<H: Half>(&self, header: &Header, half: &H) -> Result<(), StoreError> {
        let coming = file_of(&header.name, COMING);
        let written = self.at(&coming, |disk, path| {
            disk.write_new(path, &mut |inode, out| {
                let mut check = Check::new();
                let mut put = |bytes: &[u8]| {
                    check.update(bytes);
                    out.write_all(bytes)
                };
                put(&Header { inode, ..*header }.to_bytes())?;
                half.write(&mut put)?;
                out.write_all(&check.finish())
            })
        });
        let ready = file_of(&header.name, READY);
        let named = written
            .and_then(|()| {
                self.at(&coming, |disk, path| {
                    disk.rename(path, &self.path.join(&ready))
                })
            })
            .and_then(|()| self.sync());
        if named.is_err() {
            // What went wrong is told already; what cannot be removed either goes when the store is
            // opened again.
            let _ = self.remove(&coming);
            let _ = self.remove(&ready);
        }
        named
    }

    /// Whether the file was there and is this caller's now, for good.
    pub(super) fn claim(&self, ready: &str, claimed: &str) -> Result<bool, StoreError> {
        let claimed = self.path.join(claimed);
        let renamed = self.at(ready, |disk, path| {
            unless_missing(disk.rename(path, &claimed))
        })?;
        if renamed {
            self.sync()?;
        }
        Ok(renamed)
    }

    /// Reads what was appended to the record of used names since it was last read.
    pub(super) fn read_used<H>(&self, index: &mut Index<H>) -> Result<(), StoreError> {
        let read = self.at(USED, |disk, path| {
            match disk.read(path, index.read, u64::MAX) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                read => read.map(Some),
            }
        })?;
        let Some((bytes, _)) = read else {
            return Ok(());
        };
        let (names, rest) = bytes.as_chunks();
        index.used.extend(names.iter().copied().map(Name));
        index.read += (bytes.len() - rest.len()) as u64;
        Ok(())
    }

    pub(super) fn append_used(&self, name: &Name) -> Result<(), StoreError> {
        self.at(USED, |disk, path| disk.append(path, &name.0))?;
        self.sync()
    }
}

/// Whether something was there to act on.
fn unless_missing(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes what a crash left, and makes the record whole again, where nobody else uses the
/// directory.
pub(super) fn sweep(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    for (file, length) in disk.list(path)? {
        if file.ends_with(COMING) || file.ends_with(CLAIMED) {
            disk.remove(&path.join(&file))?;
        }
        // A name that was cut short while it was appended was not used yet: its preparation is lost
        // with the claimed file.
        let cut = length % size_of::<Name>() as u64;
        if file == USED && cut != 0 {
            let filler = vec![0; size_of::<Name>() - cut as usize];
            disk.append(&path.join(&file), &filler)?;
        }
    }
    disk.sync_directory(path)
}

/// The name of the store in a directory; made at the first opening. Of several processes that make
/// one the first succeeds.
pub(super) fn id(disk: &dyn Disk, path: &Path) -> Result<Owner, StoreError> {
    let failed = |source| StoreError::Disk {
        path: path.join(ID).display().to_string(),
        source,
    };
    let read = || match disk.read(&path.join(ID), 0, size_of::<Owner>() as u64) {
        Ok((bytes, _)) => Ok(Owner::try_from(bytes.as_slice()).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    if let Some(id) = read().map_err(failed)? {
        return Ok(id);
    }
    let id = Name::random()?;
    let coming = path.join(format!("{id}{COMING}"));
    disk.write_new(&coming, &mut |_, out| out.write_all(&id.0))
        .and_then(|()| disk.rename(&coming, &path.join(ID)))
        .and_then(|()| disk.sync_directory(path))
        .map_err(failed)?;
    // Another process may have put its own in place of this one since.
    Ok(read().map_err(failed)?.unwrap_or(id.0))
}

pub(super) fn file_of(name: &Name, ending: &str) -> String {
    format!("{name}{ending}")
}

/// The name of a preparation in that of its file; other files are none of the store's.
pub(super) fn name_of(file: &str) -> Option<Name> {
    let digits = file.strip_suffix(READY)?;
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut name = [0; 16];
    for (byte, digits) in name.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let digits = str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    (file == file_of(&Name(name), READY)).then_some(Name(name))
}
