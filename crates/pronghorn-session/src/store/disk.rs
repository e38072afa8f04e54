//! What a store asks of a file system, so that tests can crash it between any two operations.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

use zeroize::Zeroizing;

use super::error::StoreError;

/// Writes a file's bytes; it is told the file's inode.
pub(crate) type Writing<'a> = &'a mut dyn FnMut(u64, &mut dyn Write) -> io::Result<()>;

/// A lock that is held until this is dropped.
pub(crate) trait Held: Send + Sync {}

/// Operations on directories that only this user may enter, and files that only it may read.
pub(crate) trait Disk: Send + Sync {
    /// Makes a directory and those above it, if they are missing, for good.
    fn make_directory(&self, path: &Path) -> io::Result<()>;

    /// Names and lengths of the files of a directory; others are left out.
    fn list(&self, directory: &Path) -> io::Result<Vec<(String, u64)>>;

    /// Writes a file that does not exist yet. Its bytes are on the disk afterwards; its name only
    /// after [`Disk::sync_directory`].
    fn write_new(&self, path: &Path, write: Writing<'_>) -> io::Result<()>;

    /// Bytes of a file from `from` on, at most so many, and its inode (0 where there are none).
    fn read(&self, path: &Path, from: u64, most: u64) -> io::Result<(Zeroizing<Vec<u8>>, u64)>;

    /// Appends to a file, which is made where it is missing. The bytes are on the disk afterwards.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Gives a file another name in the same directory: of several who try, one succeeds, and the
    /// others find nothing. For good after [`Disk::sync_directory`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Waits until the names in a directory are on the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Shares a lock with the others who use a store. Runs `alone` first where there is nobody
    /// else.
    fn lock(
        &self,
        path: &Path,
        alone: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Box<dyn Held>>;
}

/// Keeps the name of a file that may be new, by its directory.
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |directory| Real.sync_directory(directory))
}

/// The operating system's file system.
pub(crate) struct Real;

impl Held for File {}

impl Real {
    /// Appends to a file that exists. The bytes are on the disk afterwards.
    pub(crate) fn append_to(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        append(private().append(true).open(path)?, bytes)
    }
}

fn append(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

impl Disk for Real {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
        builder.create(path)?;
        for made in missing {
            if let Some(above) = made.parent().filter(|above| !above.as_os_str().is_empty()) {
                self.sync_directory(above)?;
            }
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // A file that another process has just removed has no length; a name that is no text is
            // none of the store's.
            if let (Ok(metadata), Ok(name)) = (entry.metadata(), entry.file_name().into_string())
                && metadata.is_file()
            {
                files.push((name, metadata.len()));
            }
        }
        Ok(files)
    }

    fn write_new(&self, path: &Path, write: Writing<'_>) -> io::Result<()> {
        let mut file = private().write(true).create_new(true).open(path)?;
        let inode = inode(&file)?;
        write(inode, &mut file)?;
        file.sync_all()
    }

    fn read(&self, path: &Path, from: u64, most: u64) -> io::Result<(Zeroizing<Vec<u8>>, u64)> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len().saturating_sub(from).min(most);
        let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize));
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(&mut file)
            .take(length)
            .read_to_end(&mut bytes)?;
        Ok((bytes, inode(&file)?))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        append(private().append(true).create(true).open(path)?, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        if cfg!(unix) {
            File::open(path)?.sync_all()
        } else {
            // Other systems open no directories; a rename is in their file system's journal.
            Ok(())
        }
    }

    fn lock(
        &self,
        path: &Path,
        alone: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Box<dyn Held>> {
        let file = private().append(true).create(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                alone()?;
                file.unlock()?;
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.lock_shared()?;
        Ok(Box::new(file))
    }
}

/// Refuses a directory that its group or others may read, write or enter.
#[cfg(unix)]
pub(crate) fn check_private(directory: &Path) -> Result<(), StoreError> {
    let path = directory.display().to_string();
    let mode = match fs::metadata(directory) {
        Ok(metadata) => std::os::unix::fs::MetadataExt::mode(&metadata) & 0o777,
        Err(source) => return Err(StoreError::Disk { path, source }),
    };
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(StoreError::Open { path, mode }),
    }
}

/// Other systems have no such modes.
#[cfg(not(unix))]
pub(crate) fn check_private(_: &Path) -> Result<(), StoreError> {
    Ok(())
}

/// For files that only this user may read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// What a copy of the file has not: a digest of its inode and of when it was made. Freed inodes are
/// handed out again, in order, so that a directory that is removed and restored may get the same
/// ones; the time of making (where the system knows it) nothing sets back.
#[cfg(unix)]
fn inode(file: &File) -> io::Result<u64> {
    let metadata = file.metadata()?;
    let made = metadata.created().ok();
    let made = made.and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
    let mut digest = blake3::Hasher::new_derive_key("pronghorn identity of a preparation's file");
    digest.update(&std::os::unix::fs::MetadataExt::ino(&metadata).to_le_bytes());
    digest.update(&made.map_or(0, |made| made.as_nanos()).to_le_bytes());
    let digest = digest.finalize();
    let first = digest.as_bytes().first_chunk();
    Ok(u64::from_le_bytes(*first.expect("a digest has 32 bytes")))
}

#[cfg(not(unix))]
fn inode(_: &File) -> io::Result<u64> {
    Ok(0)
}
