//! Files of the roles, for their user alone.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use pronghorn_ring::random::Seed;

use super::error::CloudError;
use crate::store::disk::{Disk, Real, check_private, private, sync_name};

/// The client's secret.
const CLIENT_SEED: &str = "client.seed";

/// A directory of one role.
pub(super) struct Directory(PathBuf);

impl Directory {
    /// The directory, made where it is missing.
    pub fn open(path: &Path) -> Result<Self, CloudError> {
        Real.make_directory(path).map_err(CloudError::file(path))?;
        check_private(path)?;
        Ok(Self(path.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file's bytes; none where there is no such file.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, CloudError> {
        let path = self.file(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CloudError::file(&path)(error)),
        }
    }

    /// Puts bytes in place of a file's. They are on the disk afterwards: a crash leaves the one or
    /// the other.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.part(name)?;
        file.write_all(bytes)?;
        self.complete(name, file)
    }

    /// A file that becomes `name` by [`complete`](Self::complete).
    pub fn part(&self, name: &str) -> io::Result<File> {
        let path = self.part_path(name);
        private().write(true).create(true).truncate(true).open(path)
    }

    fn part_path(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}.part"))
    }

    /// The bytes of a part that is not complete yet.
    pub fn read_part(&self, name: &str) -> Result<Vec<u8>, CloudError> {
        let path = self.part_path(name);
        fs::read(&path).map_err(CloudError::file(&path))
    }

    /// Puts a part into its place.
    pub fn complete(&self, name: &str, file: File) -> io::Result<()> {
        file.sync_all()?;
        let path = self.file(name);
        fs::rename(self.part_path(name), &path)?;
        sync_name(&path)
    }

    /// Gives a file another name.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let path = self.file(to);
        fs::rename(self.file(from), &path)?;
        sync_name(&path)
    }

    /// Removes a file, if there is one.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync_name(&path),
        }
    }

    /// Removes a part, if there is one.
    pub fn remove_part(&self, name: &str) {
        // What is left is overwritten by the next.
        let _ = fs::remove_file(self.part_path(name));
    }

    /// The seed of a file; none where there is no such file.
    pub fn seed(&self, name: &str) -> Result<Option<Seed>, CloudError> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        let bytes = zeroize::Zeroizing::new(bytes);
        let seed: Result<[u8; 32], _> = bytes.as_slice().try_into();
        let damaged = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no seed of 32 bytes");
        let seed = seed.map_err(damaged);
        let seed = seed.map_err(CloudError::file(&self.file(name)))?;
        Ok(Some(Seed::from_bytes(seed)))
    }

    /// Makes a seed and keeps it.
    pub fn make_seed(&self, name: &str) -> Result<Seed, CloudError> {
        let seed = Seed::from_os()?;
        let path = self.file(name);
        let kept = self.replace(name, seed.as_bytes());
        kept.map_err(CloudError::file(&path))?;
        Ok(seed)
    }

    /// A lock that no two processes hold.
    pub fn lock(&self) -> Result<File, CloudError> {
        let path = self.file("lock");
        let file = private().append(true).create(true).open(&path);
        let file = file.map_err(CloudError::file(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => Err(CloudError::InUse {
                path: self.0.display().to_string(),
            }),
            Err(fs::TryLockError::Error(error)) => Err(CloudError::file(&path)(error)),
        }
    }
}

/// The seed of a client's keys, from its directory; made where there is none.
///
/// # Errors
/// When the file system refuses, or others may enter the directory.
pub fn client_seed(directory: &Path) -> Result<Seed, CloudError> {
    let directory = Directory::open(directory)?;
    match directory.seed(CLIENT_SEED)? {
        Some(seed) => Ok(seed),
        None => directory.make_seed(CLIENT_SEED),
    }
}
