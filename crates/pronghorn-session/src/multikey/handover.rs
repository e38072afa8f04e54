//! The key of a model owner on its way to a delegate, and back.
//!
//! A delegate is trusted with the key while it has it. What it gives back is believed as little as
//! possible: an owner's directory keeps its own terms and list of clients, and its ledger only
//! grows.

use std::path::Path;

use pronghorn_ring::random::Seed;

use super::{
    error::CloudError,
    files::Directory,
    owner::{
        CLIENTS, DELEGATED, HANDED_OVER, LEAVING, LEDGER, NAME, OwnerKeys, PUBLISHED, SEED, TERMS,
        handed_over, put, resumed,
    },
};

/// A delegate's list of clients, after it gave the key back.
const CLIENTS_OF_DELEGATE: &str = "clients.delegate";
/// A random number in both directories, while a key is on its way.
const TRANSFER: &str = "transfer";

impl OwnerKeys {
    /// Moves a key with its ledger and its clients to another directory, for a
    /// [delegate](Self::delegate). Afterwards one directory has the key, so each result is
    /// decrypted once still. After a failure the same call goes on, as long as the other directory
    /// stays where it is.
    ///
    /// A directory that has handed the key over takes it back with its own terms and clients. The
    /// delegate's list becomes `clients.delegate`. The ledger is that of both.
    ///
    /// # Errors
    /// When a process uses one of the directories, the other one has a key or is another than the
    /// one where the copy was begun, what comes back is another key or its ledger does not fit, or
    /// the file system refuses.
    pub fn hand_over(from: &Path, to: &Path) -> Result<(), CloudError> {
        let from = Directory::open(from)?;
        let _lock = from.lock()?;
        let to = Directory::open(to)?;
        let _other = to.lock()?;
        let target = to.path().display().to_string();
        // A copy that was begun goes to one place alone.
        let begun = from
            .read(HANDED_OVER)?
            .filter(|path| path != target.as_bytes());
        if begun.is_some() {
            return Err(handed_over(&from)?);
        }
        if from.read(LEAVING)?.is_none() {
            begin(&from, &to)?;
        }
        let number = from.read(TRANSFER)?;
        if number.is_none() || to.read(TRANSFER)? != number {
            let path = from.file(LEAVING).display().to_string();
            return Err(CloudError::Moved { path, to: target });
        }
        let Some(leaving) = from.seed(LEAVING)? else {
            return Ok(());
        };
        match to.seed(SEED)? {
            None => copy(&from, &to, &leaving)?,
            // The copy was complete: the other directory may have decrypted since, so that its
            // ledger is ahead of this one. Hashes compare in constant time.
            Some(there) if blake3::hash(leaving.as_bytes()) == blake3::hash(there.as_bytes()) => {}
            Some(_) => return Err(other_owner(&to)),
        }
        // The key is there, whether or not it was away.
        remove(&to, HANDED_OVER)?;
        remove(&from, LEAVING)?;
        // Crumbs: another transfer has another number.
        remove(&from, TRANSFER)?;
        remove(&to, TRANSFER)
    }
}

/// Begins a transfer. Until the seed has its other name, this may be done again.
fn begin(from: &Directory, to: &Directory) -> Result<(), CloudError> {
    if from.read(SEED)?.is_none() {
        let path = from.path().display().to_string();
        return Err(CloudError::NoKey { path });
    }
    if to.read(SEED)?.is_some() || to.read(LEAVING)?.is_some() {
        return Err(other_owner(to));
    }
    let number = Seed::from_os()?;
    for directory in [to, from] {
        put(directory, TRANSFER, number.as_bytes())?;
    }
    put(
        from,
        HANDED_OVER,
        to.path().display().to_string().as_bytes(),
    )?;
    from.rename(SEED, LEAVING)
        .map_err(CloudError::file(&from.file(SEED)))
}

/// Copies everything, the seed last.
fn copy(from: &Directory, to: &Directory, seed: &Seed) -> Result<(), CloudError> {
    // An owner's directory takes its key back. Any other is a delegate's, however often it was one.
    let is_owners = to.read(HANDED_OVER)?.is_some() && to.read(DELEGATED)?.is_none();
    match is_owners {
        true => take_back(from, to, seed)?,
        false => {
            put(to, DELEGATED, &[])?;
            for name in [TERMS, LEDGER, CLIENTS] {
                if let Some(bytes) = from.read(name)? {
                    put(to, name, &bytes)?;
                }
            }
            // The name alone: the hash beside it tells whether weights are a guess.
            if let Some(bytes) = from.read(PUBLISHED)? {
                put(to, PUBLISHED, &bytes[..NAME.min(bytes.len())])?;
            }
        }
    }
    put(to, SEED, seed.as_bytes())
}

/// What a directory takes from a delegate that gives its key back: results that were decrypted, and
/// the list of clients for its owner to look at.
fn take_back(from: &Directory, to: &Directory, seed: &Seed) -> Result<(), CloudError> {
    // The own ledger has the name of the own key.
    let (_, mut owner) = resumed(to, seed)?;
    let path = || from.path().display().to_string();
    let theirs = from.read(LEDGER)?;
    owner.absorb(&theirs.ok_or_else(|| CloudError::NoLedger { path: path() })?)?;
    put(to, LEDGER, &owner.ledger())?;
    let clients = from.read(CLIENTS)?.unwrap_or_default();
    put(to, CLIENTS_OF_DELEGATE, &clients)
}

fn other_owner(directory: &Directory) -> CloudError {
    CloudError::OtherKeys {
        path: directory.path().display().to_string(),
        of: "another owner",
    }
}

fn remove(directory: &Directory, name: &str) -> Result<(), CloudError> {
    let removed = directory.remove(name);
    removed.map_err(CloudError::file(&directory.file(name)))
}
