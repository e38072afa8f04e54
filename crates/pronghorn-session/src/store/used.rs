//! What clients have used, in an embedded database: each day's, and the images without end.
//!
//! A transaction is on the disk before what it counts begins, so a process that is killed has counted
//! at least what it has served. Several servers may share the file: each has it open for a quarter of
//! a second at a time, behind a lock. Without a directory the database is in memory.
//!
//! Days are those of the system's clock, in UTC. A clock that jumps forward begins a new day, and one
//! that jumps back finds the use of the day that it comes to.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use redb::{
    Builder, Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    backends::{FileBackend, InMemoryBackend},
};

use super::{
    Owner, StoreError,
    disk::{Disk, Real, check_private, private, sync_name},
};
use crate::{
    error::SessionError,
    limits::table::{Key, Resource},
    lock::lock,
};

const FILE: &str = "used";
const LOCK: &str = "used.lock";
/// The record of earlier versions.
const BEFORE: &str = "spent";

/// Rows at most, some 60 bytes each; clients beyond them have nothing left.
const MOST_ROWS: u64 = 1 << 17;

/// Days that are kept.
const DAYS: usize = 8;

/// Memory of a database's cache.
const CACHE: usize = 1 << 20;

type Row = [u8; 26];
const TABLE: TableDefinition<'_, Row, u64> = TableDefinition::new("used");

/// The place of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Days since 1970; none: for ever.
    pub day: Option<u64>,
    pub resource: Resource,
    pub key: Key,
    pub owner: Owner,
    /// Whether it is one of few: of a name, or of all. Only others are counted against the rows.
    pub is_known: bool,
}

impl Place {
    fn row(&self) -> Row {
        let mut row = [0; 26];
        // What has no day comes first.
        let day = self.day.map_or(0, |day| day.saturating_add(1));
        row[..8].copy_from_slice(&day.to_be_bytes());
        row[8] = match self.resource {
            Resource::Images => 0,
            Resource::DailyImages => 1,
            Resource::Setups => 2,
            Resource::Bytes => 3,
            Resource::Connections => 4,
            Resource::Sessions => 5,
            Resource::Memory => 6,
            Resource::Requests => 7,
        };
        row[9] = match self.key {
            Key::Client => 0,
            Key::Address => 1,
            Key::All => 2,
        };
        row[10..].copy_from_slice(&self.owner);
        row
    }
}

/// The database.
pub(crate) struct Used(Home);

enum Home {
    Memory(Box<Mutex<Database>>),
    /// A directory, and what is open there.
    Disk(PathBuf, Arc<Mutex<Option<Opened>>>),
}

/// An open file, which other processes wait for.
struct Opened {
    database: Database,
    /// Whether a thread will close it.
    is_timed: bool,
    /// Let go of after the database.
    _lock: File,
}

/// How long a file stays open, so that the transactions of a busy server share its opening.
const OPEN: Duration = Duration::from_millis(250);

impl Used {
    /// In memory.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn in_memory() -> Result<Self, StoreError> {
        let made = Builder::new()
            .set_cache_size(CACHE)
            .create_with_backend(InMemoryBackend::new());
        let made = made.map_err(|error| failed(Path::new("memory"), error))?;
        Ok(Self(Home::Memory(Box::new(Mutex::new(made)))))
    }

    /// In a store's directory, which is made where it is missing. What earlier versions have counted
    /// there is taken over.
    ///
    /// # Errors
    /// The file system refuses, others may enter the directory, or the file is no such database.
    pub(crate) fn open(directory: &Path) -> Result<Self, StoreError> {
        let server = directory.join("server");
        Real.make_directory(&server)
            .map_err(|error| failed(&server, error))?;
        check_private(directory)?;
        let used = Self(Home::Disk(server.clone(), Arc::default()));
        let before = server.join(BEFORE);
        let counted = match fs::read(&before) {
            Ok(bytes) => entries(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(&before, error)),
        };
        used.add(&counted, |_| Ok(()))
            .map_err(|error| match error {
                SessionError::Store(error) => error,
                other => failed(&server, other),
            })?;
        match fs::remove_file(&before) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&before, error)),
            _ => Ok(used),
        }
    }

    /// What was counted at some places.
    pub(crate) fn read(&self, places: &[Place]) -> Result<Vec<u64>, StoreError> {
        let read = |database: &Database| {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(TABLE) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(vec![0; places.len()]),
                Err(error) => return Err(error.into()),
            };
            let is_full = table.len()? >= MOST_ROWS;
            counts(&table, places, is_full)
        };
        self.with(read)
    }

    /// Counts more at some places, where `check` allows it with what was there before.
    pub(crate) fn add(
        &self,
        more: &[(Place, u64)],
        check: impl FnOnce(&[u64]) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let places: Vec<Place> = more.iter().map(|(place, _)| *place).collect();
        let count = |database: &Database| {
            let transaction = database.begin_write()?;
            let checked = {
                let mut table = transaction.open_table(TABLE)?;
                if begins_day(&table, &places)? {
                    forget(&mut table)?;
                }
                let is_full = table.len()? >= MOST_ROWS;
                let before = counts(&table, &places, is_full)?;
                let checked = check(&before);
                if checked.is_ok() {
                    let counted = more.iter().zip(before).filter(|((_, more), _)| *more > 0);
                    for ((place, more), before) in counted {
                        table.insert(place.row(), before.saturating_add(*more))?;
                    }
                }
                checked
            };
            transaction.commit()?;
            Ok(checked)
        };
        self.with(count)?
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        match &self.0 {
            Home::Memory(database) => {
                act(&lock(database)).map_err(|error| failed(Path::new("memory"), error))
            }
            Home::Disk(server, shared) => {
                let path = server.join(FILE);
                let mut opened = lock(shared);
                if opened.is_none() {
                    *opened = Some(open(server).map_err(|error| failed(&path, error))?);
                }
                let Some(used) = opened.as_mut() else {
                    return Err(failed(&path, io::Error::other("it is closed")));
                };
                used.is_timed = used.is_timed || close_later(shared.clone());
                let done = act(&used.database).map_err(|error| failed(&path, error));
                // A database that has failed to write is of no further use.
                if done.is_err() || !used.is_timed {
                    opened.take();
                }
                done
            }
        }
    }
}

/// Closes a file after a while, unless there is no thread for that.
fn close_later(shared: Arc<Mutex<Option<Opened>>>) -> bool {
    let close = move || {
        thread::sleep(OPEN);
        drop(lock(&shared).take());
    };
    let thread = thread::Builder::new().name("pronghorn use".into());
    thread.spawn(close).is_ok()
}

/// A lock that other processes wait for, until it is dropped.
fn locked(path: &Path) -> io::Result<File> {
    let file = private().write(true).create(true).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Waits for other processes, and opens the file.
fn open(server: &Path) -> Result<Opened, redb::Error> {
    let lock = locked(&server.join(LOCK))?;
    let path = server.join(FILE);
    let is_new = !path.exists();
    let mut options = private();
    let file = options.read(true).write(true).create(true).open(&path)?;
    let backend = FileBackend::new(file)?;
    let database = Builder::new()
        .set_cache_size(CACHE)
        .create_with_backend(backend)?;
    if is_new {
        sync_name(&path)?;
    }
    Ok(Opened {
        database,
        is_timed: false,
        _lock: lock,
    })
}

fn failed(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Disk {
        path: path.display().to_string(),
        source: io::Error::other(error),
    }
}

/// The counts at some places; of clients that are new to a full table there is no end.
fn counts(
    table: &impl ReadableTable<Row, u64>,
    places: &[Place],
    is_full: bool,
) -> Result<Vec<u64>, redb::Error> {
    let mut found = Vec::with_capacity(places.len());
    for place in places {
        let none = if is_full && !place.is_known {
            u64::MAX
        } else {
            0
        };
        let count = table.get(place.row())?;
        found.push(count.map_or(none, |count| count.value()));
    }
    Ok(found)
}

/// Whether nothing was counted yet on a day of these places. Rows are looked through once a day: whoever
/// fills the table makes no count slow.
fn begins_day(table: &impl ReadableTable<Row, u64>, places: &[Place]) -> Result<bool, redb::Error> {
    for place in places.iter().filter(|place| place.day.is_some()) {
        let (mut first, mut last) = (place.row(), place.row());
        first[8..].fill(0);
        last[8..].fill(u8::MAX);
        if table.range(first..=last)?.next().is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Forgets all days but the last few that are there, whatever the clock says.
fn forget(table: &mut redb::Table<'_, Row, u64>) -> Result<(), redb::Error> {
    let day = |row: &Row| u64::from_be_bytes(*row.first_chunk().expect("a row is longer"));
    let mut days = BTreeSet::new();
    for entry in table.iter()? {
        days.insert(day(&entry?.0.value()));
    }
    days.remove(&0);
    let kept: BTreeSet<u64> = days.into_iter().rev().take(DAYS).collect();
    let Some(&first) = kept.first() else {
        return Ok(());
    };
    table.retain(|row, _| day(&row) == 0 || day(&row) >= first)?;
    Ok(())
}

/// Entries of the record of earlier versions: images of named clients.
fn entries(bytes: &[u8]) -> Vec<(Place, u64)> {
    let mut images = std::collections::BTreeMap::<Owner, u64>::new();
    for entry in bytes.chunks_exact(24) {
        if let (Some(owner), Some(count)) = (entry.first_chunk(), entry.last_chunk()) {
            let spent = images.entry(*owner).or_default();
            *spent = spent.saturating_add(u64::from_le_bytes(*count));
        }
    }
    let place = |owner| Place {
        day: None,
        resource: Resource::Images,
        key: Key::Client,
        owner,
        is_known: true,
    };
    images
        .into_iter()
        .map(|(owner, count)| (place(owner), count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(day: u64, owner: u8) -> Place {
        Place {
            day: Some(day),
            resource: Resource::DailyImages,
            key: Key::Client,
            owner: [owner; 16],
            is_known: false,
        }
    }

    #[test]
    fn earlier_records_are_taken_over_once() {
        let path = std::env::temp_dir().join(format!("pronghorn-used-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        drop(Used::open(&path).expect("it is ours"));
        let mut record = Vec::new();
        for (owner, images) in [(1, 4_u64), (2, 5), (1, 6)] {
            record.extend([owner; 16]);
            record.extend(images.to_le_bytes());
        }
        // The last entry was cut.
        record.extend([3; 7]);
        fs::write(path.join("server").join(BEFORE), record).expect("it is ours");
        for _ in 0..2 {
            let used = Used::open(&path).expect("it is ours");
            let ever = |owner| Place {
                day: None,
                resource: Resource::Images,
                ..place(0, owner)
            };
            let found = used.read(&[ever(1), ever(2), ever(3)]);
            assert_eq!(found.expect("it is ours"), [10, 5, 0]);
        }
        // It is open no more.
        drop(locked(&path.join("server").join(LOCK)).expect("it is ours"));
        fs::write(path.join("server").join(FILE), b"no database").expect("it is ours");
        assert!(Used::open(&path).is_err());
        fs::remove_dir_all(path).expect("it is ours");
    }

    #[test]
    fn few_days_stay_whatever_the_clock_says() {
        let used = Used::in_memory().expect("there is room");
        let rows: Vec<_> = (0..MOST_ROWS / 2)
            .map(|index| {
                let mut place = place(1 + index % 20, 0);
                place.owner[..8].copy_from_slice(&index.to_le_bytes());
                (place, 1)
            })
            .collect();
        used.add(&rows, |_| Ok(())).expect("there is room");
        used.add(&[(place(1000, 9), 7)], |before| {
            assert_eq!(before, [0]);
            Ok(())
        })
        .expect("there is room");
        let seen = |index: usize| used.read(&[rows[index].0]).expect("it is there");
        assert_eq!(
            (seen(0), seen(12), seen(13), seen(19)),
            (vec![0], vec![1], vec![1], vec![1])
        );
        assert_eq!(used.read(&[place(1000, 9)]).expect("it is there"), [7]);
    }
}
