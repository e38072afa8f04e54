//! Values that a client keeps over connections, and secrets of either party, in a store's
//! directory.
//!
//! The engine says what is kept ([`Persistent`]). A client's file of a value is named after the
//! kind and the plan, and holds (little-endian)
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `"PRONGPUB"` |
//! | 2 | version |
//! | 32 | hash of the plan |
//! | 32 | name of the value |
//! | rest | the value |
//! | 32 | BLAKE3 of all before |
//!
//! A file beside it, which has part of the value's name in its own, counts uses. Four bytes are
//! appended, and on the disk, before a connection may make one grant of uses. Only the length of
//! the file counts. A value whose count is missing is used up.
//!
//! A client's secret is in its file with the batches that it may still serve (4 bytes), and out of
//! the store while it is used: [`KeptFile::offer`] removes the file before the first batch of a
//! prediction, and [`KeptFile::keep`] writes it at its end. So a prediction that breaks off, is
//! cancelled or crashes ends the secret. A failed check of what came out does not: it must not show.
//! The server's secret is a file of 32 random bytes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use pronghorn_engine::{
    Connection,
    persistent::{Persistent, Saved, Uses},
};
use pronghorn_ring::random::Seed;
use zeroize::{Zeroize, Zeroizing};

use super::{
    Name, StoreError,
    disk::{Disk, Real},
};
use crate::text::hex;

const MAGIC: [u8; 8] = *b"PRONGPUB";
const VERSION: u16 = 4;
const CONTEXT: &str = "pronghorn publication's file";
const CHECK: usize = 32;
/// The server's file.
pub(crate) const SERVER_SECRET: &str = "publication.secret";
/// Longest file that is read.
const MOST_BYTES: u64 = 8 << 30;
/// Longest file of a secret that is read.
const MOST_SECRET: u64 = 1 << 10;
/// Stands for one grant.
const COUNT: [u8; 4] = [1, 0, 0, 0];

/// A secret under its name.
type Secret = ([u8; 32], Zeroizing<Vec<u8>>);
/// A value under its name.
type Named = ([u8; 32], Vec<u8>);

/// A client's file of one value of one plan.
pub(crate) struct KeptFile {
    directory: PathBuf,
    name: String,
    plan_hash: [u8; 32],
    /// The name of the value in the file, where that is known.
    id: Option<[u8; 32]>,
    /// Whether a prediction is under way, whose secret is out of the file.
    is_out: bool,
}

impl KeptFile {
    /// The file of a plan in a store's directory, which exists.
    pub fn new(directory: &Path, kind: &str, plan_hash: &[u8; 32]) -> Self {
        Self {
            directory: directory.to_owned(),
            name: format!("{kind}-{}", hex(plan_hash)),
            plan_hash: *plan_hash,
            id: None,
            is_out: false,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    fn refused(&self) -> impl Fn(io::Error) -> StoreError {
        let path = self.path();
        move |source| disk_error(&path, source)
    }

    /// Offers the file's value to a connection that has too few uses left for a batch of `images`,
    /// with the uses that were set aside for it. A file that is damaged or used up offers nothing.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn offer(
        &mut self,
        value: &dyn Persistent,
        connection: &Connection,
        images: usize,
    ) -> Result<(), StoreError> {
        let Some(uses) = value.uses() else {
            return self.offer_secret(value, connection);
        };
        if value.left(connection) >= images {
            return Ok(());
        }
        let Some((id, bytes)) = self.take(uses)? else {
            return Ok(());
        };
        // What a newer version does not read is asked for anew.
        if value.offer(connection, &bytes, uses.grant).is_ok() {
            self.id = Some(id);
        }
        Ok(())
    }

    /// Whether the secret of a connection that rests is its own no more: another connection has
    /// taken it out of the file, and may have shown what its end is due to.
    pub fn is_lost(&self, value: &dyn Persistent, connection: &Connection) -> bool {
        let own = value
            .uses()
            .is_none()
            .then(|| value.saved(connection))
            .flatten();
        own.is_some_and(|own| self.id_on_disk() != Some(own.id))
    }

    /// Takes the file's secret for a connection that has none, or its own. Once for all batches of a
    /// prediction.
    fn offer_secret(
        &mut self,
        value: &dyn Persistent,
        connection: &Connection,
    ) -> Result<(), StoreError> {
        if self.is_out {
            return Ok(());
        }
        self.sweep(now());
        let own = value.saved(connection).map(|saved| saved.id);
        if own.is_some() && self.id_on_disk() != own {
            return Err(self.lost());
        }
        let found = self.take_out()?;
        let found = found.as_ref().and_then(|(id, bytes)| {
            let (secret, left) = bytes.split_last_chunk()?;
            Some((*id, secret, u32::from_le_bytes(*left) as usize))
        });
        match (own, found) {
            // Other connections may have had some of its uses.
            (Some(own), Some((id, _, left))) if id == own => value.limit(connection, left),
            // Another process was faster. If it has kept another secret meanwhile, that is lost too.
            (Some(_), _) => return Err(self.lost()),
            // What a newer version does not read is made anew.
            (None, Some((_, secret, left))) => drop(value.offer(connection, secret, left)),
            (None, None) => {}
        }
        self.is_out = true;
        Ok(())
    }

    /// The file's secret, which is in the file no more. Of several processes one has it.
    fn take_out(&self) -> Result<Option<Secret>, StoreError> {
        let claimed = format!("{}.{}", self.name, Name::random()?);
        let claimed = self.directory.join(claimed);
        let take = || {
            match Real.rename(&self.path(), &claimed) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                renamed => renamed?,
            }
            let read = Real.read(&claimed, 0, MOST_SECRET);
            Real.remove(&claimed)?;
            Real.sync_directory(&self.directory)?;
            Ok(Some(read?.0))
        };
        let bytes = take().map_err(self.refused())?;
        let found = bytes
            .as_deref()
            .and_then(|bytes| read(&self.plan_hash, bytes));
        Ok(found.map(|(id, value)| (id, Zeroizing::new(value.to_vec()))))
    }

    /// Another connection has had the secret since this prediction began.
    fn lost(&self) -> StoreError {
        StoreError::Lost {
            path: self.path().display().to_string(),
        }
    }

    /// Removes the secrets that a crash left between two names, an hour old: this takes and writes
    /// them within seconds.
    fn sweep(&self, now: i64) {
        let start = format!("{}.", self.name);
        for (name, _) in Real.list(&self.directory).unwrap_or_default() {
            let path = self.directory.join(&name);
            if name.starts_with(&start) && !name.ends_with(".images") && has_rested(&path, now) {
                // Another process may have been faster.
                let _ = Real.remove(&path);
            }
        }
    }

    /// The file's value, after a grant of uses was set aside.
    fn take(&self, uses: Uses) -> Result<Option<Named>, StoreError> {
        let refused = self.refused();
        let bytes = match Real.read(&self.path(), 0, MOST_BYTES) {
            Ok((bytes, _)) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refused(error)),
        };
        let Some((id, value)) = read(&self.plan_hash, &bytes) else {
            return Ok(None);
        };
        // Counted before it is looked at, so that processes that come together see each other. What
        // cannot be counted, on a full disk or since another process has cleared up, is not used.
        let counted = Real.append_to(&self.counts(&id), &COUNT);
        let Ok(grants) = counted.and_then(|()| self.counted(&id)) else {
            return Ok(None);
        };
        let fits = grants.saturating_mul(uses.grant) <= uses.most;
        Ok(fits.then(|| (id, value.to_vec())))
    }

    /// Keeps the value of a connection, unless it was there before. A secret that is used up is not
    /// kept.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn keep(
        &mut self,
        value: &dyn Persistent,
        connection: &Connection,
    ) -> Result<(), StoreError> {
        let saved = value.saved(connection);
        match (saved, value.uses()) {
            (Some(saved), Some(_)) if self.id != Some(saved.id) => self.write(&saved),
            (Some(saved), None) => {
                self.is_out = false;
                match value.left(connection) {
                    0 => Ok(()),
                    left => self.replace(&saved, &(left as u32).to_le_bytes(), || Ok(())),
                }
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, saved: &Saved) -> Result<(), StoreError> {
        let counts = self.counts(&saved.id);
        self.replace(saved, &[], || Real.append(&counts, &COUNT))?;
        self.id = Some(saved.id);
        self.forget_others();
        Ok(())
    }

    /// Writes the file anew, with `tail` after the value; `first` comes before it has its name.
    fn replace(
        &self,
        saved: &Saved,
        tail: &[u8],
        first: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let new = format!("{}.{}", self.name, Name::random()?);
        let new = self.directory.join(new);
        let replace = || {
            Real.write_new(&new, &mut |_, file| {
                let mut check = blake3::Hasher::new_derive_key(CONTEXT);
                let header = header(&self.plan_hash, &saved.id);
                for part in [header.as_slice(), &saved.head, &saved.body, tail] {
                    check.update(part);
                    file.write_all(part)?;
                }
                let hash = check.finalize();
                check.zeroize();
                file.write_all(hash.as_bytes())
            })?;
            first()?;
            Real.rename(&new, &self.path())?;
            Real.sync_directory(&self.directory)
        };
        replace().map_err(|error| {
            // What is left of it is of no use.
            let _ = fs::remove_file(&new);
            self.refused()(error)
        })
    }

    /// The file that counts uses of a value.
    fn counts(&self, id: &[u8; 32]) -> PathBuf {
        let name = format!("{}.{}.images", self.name, hex(&id[..8]));
        self.directory.join(name)
    }

    /// Removes what counted uses of earlier values. Another process may write a value meanwhile: if
    /// its count is removed here, [`KeptFile::take`] does not offer that value.
    fn forget_others(&self) {
        let Ok(files) = Real.list(&self.directory) else {
            return;
        };
        // Not always the own: another process may have replaced it.
        let Some(id) = self.id_on_disk() else {
            return;
        };
        let (live, start) = (self.counts(&id), format!("{}.", self.name));
        for (name, _) in files {
            let path = self.directory.join(&name);
            if name.starts_with(&start) && name.ends_with(".images") && path != live {
                // Another process may have been faster.
                let _ = Real.remove(&path);
            }
        }
    }

    /// The name of the value that the file has now.
    fn id_on_disk(&self) -> Option<[u8; 32]> {
        let from = header(&self.plan_hash, &[]).len() as u64;
        let (id, _) = Real.read(&self.path(), from, 32).ok()?;
        id.as_slice().try_into().ok()
    }

    /// Grants so far. A count that was cut short counts.
    fn counted(&self, id: &[u8; 32]) -> io::Result<usize> {
        let (bytes, _) = Real.read(&self.counts(id), 0, 1 << 20)?;
        Ok(bytes.len().div_ceil(COUNT.len()))
    }
}

/// Whether a file has had its name for an hour. Where that is not known, it has not.
fn has_rested(path: &Path, now: i64) -> bool {
    #[cfg(unix)]
    let named = fs::metadata(path).map(|found| std::os::unix::fs::MetadataExt::ctime(&found));
    #[cfg(not(unix))]
    let named = fs::metadata(path).map(|_| i64::MAX);
    named.is_ok_and(|named| now.saturating_sub(named) > RESTED)
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// Seconds after which a file between two names is a crash's.
const RESTED: i64 = 60 * 60;

fn disk_error(path: &Path, source: io::Error) -> StoreError {
    let path = path.display().to_string();
    StoreError::Disk { path, source }
}

fn header(plan_hash: &[u8; 32], id: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes(), plan_hash, id].concat()
}

/// The value in a file's bytes and its name, if they are undamaged and of this plan.
fn read<'a>(plan_hash: &[u8; 32], bytes: &'a [u8]) -> Option<([u8; 32], &'a [u8])> {
    let (before, check) = bytes.split_last_chunk::<CHECK>()?;
    let (start, rest) = before.split_first_chunk::<10>()?;
    let (hash, rest) = rest.split_first_chunk::<32>()?;
    let (id, value) = rest.split_first_chunk::<32>()?;
    let fits = start[..8] == MAGIC && start[8..] == VERSION.to_le_bytes() && hash == plan_hash;
    let fits = fits && blake3::derive_key(CONTEXT, before) == *check;
    fits.then_some((*id, value))
}

/// A secret from a store's directory; made where it is missing.
///
/// # Errors
/// The file system refuses, or the file has another length.
pub(crate) fn secret(directory: &Path, name: &str) -> Result<Seed, StoreError> {
    let path = directory.join(name);
    let refused = |source| disk_error(&path, source);
    let made = Seed::from_os().map_err(pronghorn_engine::EngineError::from)?;
    let new = directory.join(format!("{name}.{}", Name::random()?));
    let write = || {
        Real.write_new(&new, &mut |_, file| file.write_all(made.as_bytes()))?;
        // Of several processes that begin at once, one makes it.
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
        let damaged = "this file is not a secret: remove it, and clients fetch publications anew";
        refused(io::Error::new(io::ErrorKind::InvalidData, damaged))
    })?;
    Ok(Seed::from_bytes(seed))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use pronghorn_engine::EngineError;

    use super::*;

    const PLAN: [u8; 32] = [3; 32];
    const USES: Uses = Uses {
        most: 640,
        grant: 10,
    };

    fn value(id: u8) -> Saved {
        Saved {
            id: [id; 32],
            head: vec![7; 32].into(),
            body: Arc::new(vec![id; 100]),
        }
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pronghorn-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Real.make_directory(&path).unwrap();
        path
    }

    #[test]
    fn serves_so_many_uses() {
        let directory = directory("kept-values");
        let file = || KeptFile::new(&directory, "value", &PLAN);
        assert!(file().take(USES).unwrap().is_none());
        file().write(&value(1)).unwrap();
        let mut granted = USES.grant;
        while let Some((id, bytes)) = file().take(USES).unwrap() {
            assert_eq!((id, bytes.len(), bytes[0]), ([1; 32], 132, 7));
            granted += USES.grant;
        }
        assert_eq!(granted, USES.most);
        file().write(&value(2)).unwrap();
        assert_eq!(file().take(USES).unwrap().unwrap().0, [2; 32]);
        fs::remove_dir_all(directory).unwrap();
    }

    /// Two processes fetch at the same time. The slower to clear up leaves the other's count.
    #[test]
    fn counts_of_another_process_stay() {
        let directory = directory("counts-of-two");
        let file = || KeptFile::new(&directory, "value", &PLAN);
        file().write(&value(1)).unwrap();
        file().write(&value(2)).unwrap();
        file().forget_others();
        assert_eq!(file().counted(&[2; 32]).unwrap(), 1);
        assert!(file().counted(&[1; 32]).is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn values_without_a_count_are_used_up() {
        let directory = directory("lost-counts");
        let mut file = KeptFile::new(&directory, "value", &PLAN);
        file.write(&value(1)).unwrap();
        fs::remove_file(file.counts(&[1; 32])).unwrap();
        assert!(file.take(USES).unwrap().is_none());
        assert!(!file.counts(&[1; 32]).exists());
        file.write(&value(1)).unwrap();
        assert!(file.take(USES).unwrap().is_some());
        fs::remove_dir_all(directory).unwrap();
    }

    /// What a crash left is removed an hour later, and nothing else.
    #[test]
    fn leftovers_are_removed() {
        let directory = directory("leftovers");
        let mut file = KeptFile::new(&directory, "slots", &PLAN);
        file.write(&value(1)).unwrap();
        let claimed = directory.join(format!("{}.{}", file.name, Name::random().unwrap()));
        let other = directory.join(format!("slots-{}.x", hex(&[9; 32])));
        for path in [&claimed, &other] {
            fs::write(path, b"a seed").unwrap();
        }
        file.sweep(now());
        assert!(claimed.exists());
        file.sweep(now() + 2 * RESTED);
        assert!(!claimed.exists() && other.exists());
        assert!(file.take(USES).unwrap().is_some());
        fs::remove_dir_all(directory).unwrap();
    }

    /// A value whose uses a test sets.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Persistent for Counted {
        fn name(&self) -> &'static str {
            "value"
        }

        fn uses(&self) -> Option<Uses> {
            Some(USES)
        }

        fn offer(&self, _: &Connection, bytes: &[u8], uses: usize) -> Result<(), EngineError> {
            assert_eq!(bytes.len(), 132);
            self.0.store(uses, Ordering::Relaxed);
            Ok(())
        }

        fn left(&self, _connection: &Connection) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// A connection that has spent a grant gets the next from the file.
    #[test]
    fn grants_are_renewed() {
        let directory = directory("renewed-grants");
        let mut file = KeptFile::new(&directory, "value", &PLAN);
        file.write(&value(1)).unwrap();
        let (counted, connection) = (Counted::default(), Connection::default());
        for (left, images, after) in [(0, 3, 10), (4, 4, 4), (4, 5, 10), (10, 10, 10)] {
            counted.0.store(left, Ordering::Relaxed);
            file.offer(&counted, &connection, images).unwrap();
            assert_eq!(counted.left(&connection), after);
        }
        assert_eq!(file.counted(&[1; 32]).unwrap(), 3);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn damaged_files_are_not_read() {
        let directory = directory("damaged-values");
        let mut file = KeptFile::new(&directory, "value", &PLAN);
        file.write(&value(1)).unwrap();
        let good = fs::read(file.path()).unwrap();
        for place in 0..good.len() {
            let mut bytes = good.clone();
            bytes[place] ^= 1;
            assert!(read(&PLAN, &bytes).is_none() && read(&PLAN, &good[..place]).is_none());
        }
        assert!(read(&PLAN, &good).is_some() && read(&[4; 32], &good).is_none());
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

    /// A secret whose batches a test sets.
    #[derive(Default)]
    struct Kept {
        bytes: std::sync::Mutex<Vec<u8>>,
        left: AtomicUsize,
    }

    impl Persistent for Kept {
        fn name(&self) -> &'static str {
            "secret"
        }

        fn uses(&self) -> Option<Uses> {
            None
        }

        fn offer(&self, _: &Connection, bytes: &[u8], uses: usize) -> Result<(), EngineError> {
            *self.bytes.lock().unwrap() = bytes.to_vec();
            self.left.store(uses, Ordering::Relaxed);
            Ok(())
        }

        fn left(&self, _connection: &Connection) -> usize {
            self.left.load(Ordering::Relaxed)
        }

        fn limit(&self, _connection: &Connection, uses: usize) {
            self.left.fetch_min(uses, Ordering::Relaxed);
        }

        fn saved(&self, _connection: &Connection) -> Option<Saved> {
            let bytes = self.bytes.lock().unwrap().clone();
            (!bytes.is_empty()).then(|| Saved {
                id: [bytes[0]; 32],
                head: bytes.into(),
                body: Arc::default(),
            })
        }
    }

    /// A secret is in its file between predictions alone, with the batches that it has left.
    #[test]
    fn secrets_are_out_of_the_store_while_they_are_used() {
        let directory = directory("used-secrets");
        let file = || KeptFile::new(&directory, "secret", &PLAN);
        let (connection, made) = (Connection::default(), Kept::default());
        let files = || fs::read_dir(&directory).unwrap().count();
        file().offer(&made, &connection, 1).unwrap();
        assert_eq!(made.left(&connection), 0);
        made.offer(&connection, &[7; 32], 9).unwrap();
        file().keep(&made, &connection).unwrap();
        assert_eq!(files(), 1);
        // Another connection takes it. The first one has lost it then, whatever the other keeps.
        let other = Kept::default();
        let mut taken = file();
        taken.offer(&other, &connection, 1).unwrap();
        assert_eq!((other.left(&connection), files()), (9, 0));
        assert_eq!(*other.bytes.lock().unwrap(), [7; 32]);
        let lost =
            |offered: Result<(), StoreError>| matches!(offered, Err(StoreError::Lost { .. }));
        assert!(lost(file().offer(&made, &connection, 1)));
        // A later batch of the prediction that has taken it.
        taken.offer(&other, &connection, 1).unwrap();
        other.offer(&connection, &[8; 32], 5).unwrap();
        taken.keep(&other, &connection).unwrap();
        assert!(lost(file().offer(&made, &connection, 1)));
        assert_eq!((made.left(&connection), files()), (9, 1));
        let mut taken = file();
        taken.offer(&other, &connection, 1).unwrap();
        assert_eq!((other.left(&connection), files()), (5, 0));
        // One that is used up ends.
        other.left.store(0, Ordering::Relaxed);
        taken.keep(&other, &connection).unwrap();
        assert_eq!(files(), 0);
        fs::remove_dir_all(directory).unwrap();
    }

    /// Two connections with one secret, in turn: what both have used counts.
    #[test]
    fn uses_of_a_secret_add_up_over_connections() {
        let directory = directory("shared-secrets");
        let connection = Connection::default();
        let both = [Kept::default(), Kept::default()];
        let mut files = [(); 2].map(|()| KeptFile::new(&directory, "secret", &PLAN));
        both[0].offer(&connection, &[7; 32], 9).unwrap();
        files[0].keep(&both[0], &connection).unwrap();
        for (turn, left) in (0..9).zip([8, 7, 6, 5, 4, 3, 2, 1, 0]) {
            let (value, file) = (&both[turn % 2], &mut files[turn % 2]);
            file.offer(value, &connection, 1).unwrap();
            value.left.fetch_sub(1, Ordering::Relaxed);
            file.keep(value, &connection).unwrap();
            let stored = fs::read(file.path()).ok().map(|bytes| {
                let place = bytes.len() - CHECK - 4;
                u32::from_le_bytes(*bytes[place..].first_chunk().unwrap())
            });
            assert_eq!(stored.unwrap_or(0), left, "turn {turn}");
        }
        assert!(both[1].left(&connection) > 0);
        assert!(files[1].offer(&both[1], &connection, 1).is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
