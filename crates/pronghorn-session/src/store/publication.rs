//! What is published to a client, kept by both parties in the directory of a store: by the client so that it comes once, by the server the secret
//! that it is made with, so that it stays good.
//!
//! The client's file is named after the plan, and holds (little-endian)
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `"PRONGPUB"` |
//! | 2 | version |
//! | 32 | hash of the plan |
//! | 32 | epoch of the server's secret |
//! | 32 | seed of all `a` |
//! | rest | polynomials, as they came, and the server's receipt for them |
//! | 32 | BLAKE3 of all before |
//!
//! The receipt names epoch and seed: polynomials that were published for another seed, whose results would be wrong, are none. Files of version 1 have no
//! receipt, and what they hold is published anew.
//!
//! A file beside it, which has part of the seed in its name, counts the images it serves: four bytes are appended, and on the disk, before a connection may use
//! [`PUBLICATION_GRANT`] of them, and only the length of the file counts. The server's file, 32 bytes, is a secret.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use pronghorn_engine::{ClientPublication, PublicationClient};
use pronghorn_plan::{
    Plan,
    cost::{PUBLICATION_GRANT, PUBLICATION_IMAGES},
};
use pronghorn_ring::random::Seed;

use super::{
    Name, StoreError,
    disk::{Disk, Real},
};
use crate::text::hex;

const MAGIC: [u8; 8] = *b"PRONGPUB";
const VERSION: u16 = 2;
const CONTEXT: &str = "pronghorn publication's file";
const CHECK: usize = 32;
const HEADER: usize = 8 + 2 + 3 * 32;
/// The server's file.
pub(crate) const SERVER_SECRET: &str = "publication.secret";
/// Longest file that is read.
const MOST_BYTES: u64 = 8 << 30;

/// A client's file of one plan.
pub(crate) struct PublicationFile {
    directory: PathBuf,
    name: String,
    /// The seed of what the file has, where that is known.
    seed: Option<[u8; 32]>,
}

impl PublicationFile {
    /// The file of a plan in a store's directory, which exists.
    pub fn new(directory: &Path, plan_hash: &[u8; 32]) -> Self {
        Self {
            directory: directory.to_owned(),
            name: format!("publication-{}", hex(plan_hash)),
            seed: None,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The file that counts images of a seed.
    fn counts(&self, seed: &[u8; 32]) -> PathBuf {
        let name = format!("{}.{}.images", self.name, hex(&seed[..8]));
        self.directory.join(name)
    }

    /// What is there, and how many images of it were set aside for this connection. A file that is damaged or used up is none.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn take(&mut self, plan: &Plan) -> Result<Option<(ClientPublication, usize)>, StoreError> {
        let refused = |source| disk_error(&self.path(), source);
        let bytes = match Real.read(&self.path(), 0, MOST_BYTES) {
            Ok((bytes, _)) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refused(error)),
        };
        let Some(publication) = read(plan, &bytes) else {
            return Ok(None);
        };
        // Counted before it is looked at, so that processes that come together see each other.
        self.count(&publication.seed).map_err(refused)?;
        if self.counted(&publication.seed).map_err(refused)? > PUBLICATION_IMAGES {
            return Ok(None);
        }
        self.seed = Some(publication.seed);
        Ok(Some((publication, PUBLICATION_GRANT)))
    }

    /// Keeps what came on this connection, unless it was there before.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn keep(&mut self, plan: &Plan, publication: &ClientPublication) -> Result<(), StoreError> {
        if self.seed == Some(publication.seed) {
            return Ok(());
        }
        let refused = |source| disk_error(&self.path(), source);
        let new = format!("{}.{}", self.name, Name::random()?);
        let new = self.directory.join(new);
        let replace = || {
            Real.write_new(&new, &mut |_, file| {
                let mut check = blake3::Hasher::new_derive_key(CONTEXT);
                for part in [header(plan, publication).as_slice(), &publication.bytes] {
                    check.update(part);
                    file.write_all(part)?;
                }
                file.write_all(check.finalize().as_bytes())
            })?;
            self.count(&publication.seed)?;
            Real.rename(&new, &self.path())?;
            Real.sync_directory(&self.directory)
        };
        replace().map_err(|error| {
            // What is left of it is of no use.
            let _ = fs::remove_file(&new);
            refused(error)
        })?;
        self.seed = Some(publication.seed);
        self.forget_others(&publication.seed);
        Ok(())
    }

    /// Removes what counted images of earlier publications, which are of no use.
    fn forget_others(&self, seed: &[u8; 32]) {
        let (own, start) = (self.counts(seed), format!("{}.", self.name));
        let Ok(files) = Real.list(&self.directory) else {
            return;
        };
        for (name, _) in files {
            let path = self.directory.join(&name);
            if name.starts_with(&start) && name.ends_with(".images") && path != own {
                // Another process may have been faster.
                let _ = Real.remove(&path);
            }
        }
    }

    /// Images set aside so far. A count that was cut short counts.
    fn counted(&self, seed: &[u8; 32]) -> io::Result<usize> {
        let (bytes, _) = Real.read(&self.counts(seed), 0, 1 << 20)?;
        Ok(bytes.len().div_ceil(COUNT.len()) * PUBLICATION_GRANT)
    }

    fn count(&self, seed: &[u8; 32]) -> io::Result<()> {
        Real.append(&self.counts(seed), &COUNT)
    }
}

/// Stands for one grant.
const COUNT: [u8; 4] = (PUBLICATION_GRANT as u32).to_le_bytes();

fn disk_error(path: &Path, source: io::Error) -> StoreError {
    let path = path.display().to_string();
    StoreError::Disk { path, source }
}

fn header(plan: &Plan, publication: &ClientPublication) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(plan.hash());
    bytes.extend(publication.epoch);
    bytes.extend(publication.seed);
    bytes
}

/// The publication in a file's bytes, if they are undamaged and of this plan.
fn read(plan: &Plan, bytes: &[u8]) -> Option<ClientPublication> {
    let (before, check) = bytes.split_last_chunk::<CHECK>()?;
    let (header, polynomials) = before.split_at_checked(HEADER)?;
    let (start, names) = header.split_at(10);
    let (hash, names) = names.split_first_chunk::<32>()?;
    let (epoch, seed) = names.split_first_chunk::<32>()?;
    let fits = start[..8] == MAGIC && start[8..] == VERSION.to_le_bytes() && *hash == plan.hash();
    if !fits || blake3::derive_key(CONTEXT, before) != *check {
        return None;
    }
    let names = (*epoch, seed.try_into().ok()?);
    PublicationClient::read(plan, names, polynomials).ok()
}

/// A secret from a store's directory; made where it is missing. That which a server makes publications with, or which a client makes keys from.
///
/// # Errors
/// When the file system refuses, or the file is none.
pub(crate) fn secret(directory: &Path, name: &str) -> Result<Seed, StoreError> {
    let path = directory.join(name);
    let refused = |source| disk_error(&path, source);
    let made = Seed::from_os().map_err(pronghorn_engine::EngineError::from)?;
    let new = directory.join(format!("{name}.{}", Name::random()?));
    let write = || {
        Real.write_new(&new, &mut |_, file| file.write_all(made.as_bytes()))?;
        // Of several servers who begin at once, one makes it.
        match fs::hard_link(&new, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Real.sync_directory(directory),
        }
    };
    if !path.exists() {
        let written = write();
        let _ = fs::remove_file(&new);
        written.map_err(refused)?;
    }
    let (bytes, _) = Real.read(&path, 0, 33).map_err(refused)?;
    let seed = bytes.as_slice().try_into().map_err(|_| {
        let damaged =
            "it is no secret of a server: remove it, and clients fetch what is published anew";
        refused(io::Error::new(io::ErrorKind::InvalidData, damaged))
    })?;
    Ok(Seed::from_bytes(seed))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// One of which nothing is published.
    fn plan() -> Arc<Plan> {
        super::super::tests::plan("published")
    }

    fn publication(seed: u8) -> ClientPublication {
        ClientPublication {
            epoch: [7; 32],
            seed: [seed; 32],
            steps: vec![None; plan().steps.len()],
            bytes: Arc::default(),
        }
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pronghorn-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Real.make_directory(&path).unwrap();
        path
    }

    #[test]
    fn serves_so_many_images_once() {
        let (directory, plan) = (directory("publications"), plan());
        let file = || PublicationFile::new(&directory, &plan.hash());
        assert!(file().take(&plan).unwrap().is_none());
        file().keep(&plan, &publication(1)).unwrap();
        let mut granted = PUBLICATION_GRANT;
        while let Some((found, images)) = file().take(&plan).unwrap() {
            assert_eq!((found.seed, found.epoch), ([1; 32], [7; 32]));
            granted += images;
        }
        assert_eq!(granted, PUBLICATION_IMAGES);
        file().keep(&plan, &publication(2)).unwrap();
        assert_eq!(file().take(&plan).unwrap().unwrap().0.seed, [2; 32]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn damaged_files_are_none() {
        let (directory, plan) = (directory("damaged-publications"), plan());
        let mut file = PublicationFile::new(&directory, &plan.hash());
        file.keep(&plan, &publication(1)).unwrap();
        let good = fs::read(file.path()).unwrap();
        for place in 0..good.len() {
            let mut bytes = good.clone();
            bytes[place] ^= 1;
            assert!(read(&plan, &bytes).is_none() && read(&plan, &good[..place]).is_none());
        }
        assert!(read(&plan, &good).is_some());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn secrets_are_kept() {
        let directory = directory("secrets");
        let first = secret(&directory, SERVER_SECRET).unwrap();
        let again = secret(&directory, SERVER_SECRET).unwrap();
        assert!(first.as_bytes() == again.as_bytes());
        fs::write(directory.join(SERVER_SECRET), b"short").unwrap();
        assert!(secret(&directory, SERVER_SECRET).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
