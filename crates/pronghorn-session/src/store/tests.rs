mod crash;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use pronghorn_engine::EngineError;
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::{
    directory::{COMING, ID, USED},
    disk::{Held, Writing},
    *,
};

/// A half that is a number.
#[derive(Debug, PartialEq)]
struct Number(u64);

impl Half for Number {
    const PARTY: Party = Party::Server;

    fn batch(&self) -> usize {
        3
    }

    fn setup(&self) -> [u8; 32] {
        [(self.0 % 2) as u8; 32]
    }

    fn write(&self, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        sink(&self.0.to_le_bytes())
    }
}

fn read(_: usize, _: [u8; 32], bytes: &[u8]) -> Result<Number, EngineError> {
    let number = bytes.try_into().map_err(|_| EngineError::OutOfTurn {
        state: "is no number",
    })?;
    Ok(Number(u64::from_le_bytes(number)))
}

/// The hash of a plan.
fn plan(model: &str) -> [u8; 32] {
    blake3::derive_key("pronghorn tests: plans", model.as_bytes())
}

const WIDE: Bounds = Bounds {
    batches: 100,
    bytes: 1 << 20,
};
const OWNER: Owner = [7; 16];

fn name(index: u8) -> Name {
    Name([index; 16])
}

fn put(store: &Store<Number>, index: u8) -> Result<(), StoreError> {
    store.put(name(index), OWNER, 100, 8, Number(index.into()))
}

fn take(store: &Store<Number>, index: u8) -> Option<u64> {
    store
        .take(&name(index), 3, &read)
        .expect("the disk works")
        .map(|number| number.0)
}

/// A directory of a test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("pronghorn-store-{}-{own}", process::id()));
        Real.make_directory(&path).expect("there is room");
        Self(path)
    }

    fn open(&self, bounds: Bounds) -> Store<Number> {
        Store::open(&self.0, plan("model"), bounds).expect("it opens")
    }

    /// Where the store has its files.
    fn files(&self) -> PathBuf {
        self.0.join("server").join(hex(&plan("model")))
    }

    fn file(&self, index: u8) -> PathBuf {
        self.files().join(file_of(&name(index), READY))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn each_is_handed_out_once() {
    let scratch = Scratch::new();
    for store in [
        scratch.open(WIDE),
        Store::in_memory(plan("model"), WIDE).expect("randomness"),
    ] {
        for index in 1..4 {
            put(&store, index).expect("there is room");
        }
        assert!(matches!(put(&store, 1), Err(StoreError::Known { .. })));
        assert_eq!(store.count(&OWNER, 3).expect("it can be read"), 3);
        assert_eq!(store.count(&OWNER, 4).expect("it can be read"), 0);
        assert_eq!(store.count(&[8; 16], 3).expect("it can be read"), 0);
        assert_eq!([take(&store, 2), take(&store, 2)], [Some(2), None]);
        assert_eq!(take(&store, 9), None);
        let newest = || store.take_newest(&OWNER, 3, &read).expect("the disk works");
        assert_eq!(newest(), (Some((name(3), Number(3))), 0));
        assert_eq!(newest(), (Some((name(1), Number(1))), 0));
        assert_eq!(newest(), (None, 0));
    }
    let files = fs::read_dir(scratch.files()).expect("it is there");
    let mut left: Vec<_> = files
        .map(|file| file.expect("it is there").file_name())
        .collect();
    left.sort();
    assert_eq!(left, [ID, LOCK, USED]);
    assert!(matches!(
        put(&scratch.open(WIDE), 2),
        Err(StoreError::Known { .. })
    ));
}

/// What is there stays there, for whoever opens the directory, and it keeps its name.
#[test]
fn stores_outlive_their_processes() {
    let scratch = Scratch::new();
    let first = scratch.open(WIDE);
    put(&first, 1).expect("there is room");
    put(&first, 2).expect("there is room");
    let second = scratch.open(WIDE);
    assert_eq!(first.id(), second.id());
    assert_eq!(take(&second, 1), Some(1));
    assert_eq!(take(&first, 1), None);
    assert_eq!(first.count(&OWNER, 3).expect("it can be read"), 1);
    drop((first, second));
    assert_eq!(take(&scratch.open(WIDE), 2), Some(2));
    let other = Store::<Number>::open(&scratch.0, plan("other"), WIDE).expect("it opens");
    assert_eq!(other.count(&OWNER, 3).expect("it can be read"), 0);
}

/// Threads of one process and of others, as far as a store knows.
#[test]
fn of_many_who_want_one_a_single_one_gets_it() {
    let scratch = Scratch::new();
    let stores = [scratch.open(WIDE), scratch.open(WIDE)];
    for index in 0..40 {
        put(&stores[usize::from(index % 2)], index).expect("there is room");
    }
    let taken: Vec<AtomicUsize> = (0..40).map(|_| AtomicUsize::new(0)).collect();
    let count = |number: u64| taken[number as usize].fetch_add(1, Ordering::SeqCst);
    thread::scope(|scope| {
        for store in [&stores[0], &stores[1], &stores[0], &stores[1]] {
            scope.spawn(|| {
                for index in (0..40).step_by(2) {
                    take(store, index).map(&count);
                }
                while let (Some((_, number)), _) =
                    store.take_newest(&OWNER, 3, &read).expect("the disk works")
                {
                    count(number.0);
                }
            });
        }
    });
    for (index, taken) in taken.iter().enumerate() {
        assert_eq!(taken.load(Ordering::SeqCst), 1, "{index}");
    }
}

#[test]
fn a_full_store_destroys_the_oldest() {
    let scratch = Scratch::new();
    for disk in [false, true] {
        // On a disk files are counted with all they have.
        let bytes = if disk {
            HEADER_BYTES as u64 + 8 + 32
        } else {
            8
        };
        let bounds = Bounds {
            batches: 3,
            bytes: 5 * bytes,
        };
        let store = match disk {
            true => scratch.open(bounds),
            false => Store::in_memory(plan("model"), bounds).expect("randomness"),
        };
        let put = |index: u8, owner: u8, most: usize| {
            store
                .put(name(index), [owner; 16], most, bytes, Number(0))
                .expect("there is room");
        };
        let counts = |owners: [u8; 3]| {
            owners.map(|owner| store.count(&[owner; 16], 3).expect("it can be read"))
        };
        (0..5).for_each(|index| put(index, 1, 100));
        assert_eq!(counts([1, 2, 3]), [3, 0, 0]);
        put(5, 1, 2);
        assert_eq!(counts([1, 2, 3]), [2, 0, 0]);
        (6..9).for_each(|index| put(index, 2, 100));
        assert_eq!(counts([1, 2, 3]), [2, 3, 0]);
        // All are full: the oldest of anybody goes.
        put(9, 3, 100);
        assert_eq!(counts([1, 2, 3]), [1, 3, 1]);
        assert_eq!(take(&store, 4), None);
        assert!(take(&store, 5).is_some());
        let large = store.put(name(20), OWNER, 1, bounds.bytes + 1, Number(0));
        assert!(matches!(large, Err(StoreError::TooLarge { .. })));
        assert!(store.check_room(bounds.bytes).is_err() && store.check_room(1).is_ok());
        assert!(store.check(&name(9), 1).is_err() && store.check(&name(21), 1).is_ok());
    }
}

/// A failed check of OTs destroys what was made with them, and nothing else.
#[test]
fn what_was_made_with_burnt_transfers_is_destroyed() {
    let scratch = Scratch::new();
    for store in [
        scratch.open(WIDE),
        Store::in_memory(plan("model"), WIDE).expect("randomness"),
    ] {
        (0..6).for_each(|index| put(&store, index).expect("there is room"));
        store.destroy(&[1; 32]).expect("the disk works");
        let left: Vec<_> = (0..6).filter_map(|index| take(&store, index)).collect();
        assert_eq!(left, [0, 2, 4]);
    }
    assert_eq!(take(&scratch.open(WIDE), 1), None);
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let store = scratch.open(WIDE);
    put(&store, 1).expect("there is room");
    put(&store, 2).expect("there is room");
    take(&store, 2);
    let mode = |path: &Path| {
        let metadata = fs::metadata(path).expect("it is there");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(&scratch.0.join("server")), 0o700);
    assert_eq!(mode(&scratch.files()), 0o700);
    for file in fs::read_dir(scratch.files()).expect("it is there") {
        let path = file.expect("it is there").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// Each change of a file, before the store looks at it and after, makes it useless, and it is
/// removed.
#[test]
fn damaged_files_are_removed() {
    let write = |store: &Store<Number>| put(store, 1).expect("there is room");
    let length = {
        let scratch = Scratch::new();
        write(&scratch.open(WIDE));
        fs::metadata(scratch.file(1)).expect("it is there").len() as usize
    };
    assert_eq!(length, HEADER_BYTES + 8 + 32);
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let flip = |place: usize| -> Change { Box::new(move |bytes| bytes[place] ^= 0x10) };
    let cut = |length: usize| -> Change { Box::new(move |bytes| bytes.truncate(length)) };
    let mut changes: Vec<Change> = (0..length).step_by(7).map(flip).collect();
    changes.extend([0, 1, HEADER_BYTES - 1, HEADER_BYTES, length - 1].map(cut));
    changes.push(Box::new(|bytes| bytes.push(0)));
    changes.push(Box::new(|bytes| {
        *bytes = b"something else entirely".repeat(20)
    }));
    for (index, change) in changes.into_iter().enumerate() {
        let scratch = Scratch::new();
        let store = scratch.open(WIDE);
        write(&store);
        let mut bytes = fs::read(scratch.file(1)).expect("it is there");
        change(&mut bytes);
        fs::write(scratch.file(1), &bytes).expect("there is room");
        if index % 2 == 0 {
            // By name, as a server does: an error, and it is gone.
            let error = store.take(&name(1), 3, &read).expect_err("it is damaged");
            assert!(matches!(error, StoreError::File { .. }), "{error}");
        } else {
            // In order, as a client does: it is passed over.
            let again = scratch.open(WIDE);
            let (found, _) = again.take_newest(&OWNER, 3, &read).expect("the disk works");
            assert_eq!(found, None);
        }
        assert!(!scratch.file(1).exists());
        assert_eq!(take(&store, 1), None);
        // The store goes on.
        put(&store, 2).expect("there is room");
        assert_eq!(take(&store, 2), Some(2));
    }
}

/// A file of another plan, party or name is none of this store's, whatever it is called.
#[test]
fn files_of_other_places_are_removed() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let other = Store::<Number>::open(&from.0, plan("other"), WIDE).expect("it opens");
    put(&other, 1).expect("there is room");
    let theirs = from
        .0
        .join("server")
        .join(hex(&plan("other")))
        .join(file_of(&name(1), READY));
    let store = to.open(WIDE);
    // Moved, so that the inode stays.
    fs::rename(&theirs, to.file(1)).expect("one file system");
    assert!(matches!(
        store.take(&name(1), 3, &read),
        Err(StoreError::File {
            source: FileError::Other { field: "plan" },
            ..
        })
    ));
    put(&store, 2).expect("there is room");
    fs::rename(to.file(2), to.file(3)).expect("one file system");
    assert!(matches!(
        store.take(&name(3), 3, &read),
        Err(StoreError::File {
            source: FileError::Other { field: "name" },
            ..
        })
    ));
    // Files of other names are not the store's to touch.
    let stranger = to.files().join("notes.prepared");
    fs::write(&stranger, "mine").expect("there is room");
    assert_eq!(to.open(WIDE).count(&OWNER, 3).expect("it can be read"), 0);
    assert!(stranger.exists());
}

/// One file put back is refused by the record; the whole directory, copied, by inodes.
#[test]
fn copies_are_refused() {
    let scratch = Scratch::new();
    let store = scratch.open(WIDE);
    put(&store, 1).expect("there is room");
    put(&store, 2).expect("there is room");
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to).expect("there is room");
        for file in fs::read_dir(from).expect("it is there") {
            let file = file.expect("it is there");
            fs::copy(file.path(), to.join(file.file_name())).expect("there is room");
        }
    };
    let backup = Scratch::new();
    copy(&scratch.files(), &backup.0);
    // A second name of a file keeps the inode: the record alone refuses it.
    let kept = scratch.0.join("kept");
    fs::hard_link(scratch.file(2), &kept).expect("one file system");
    assert_eq!(take(&store, 2), Some(2));
    fs::rename(&kept, scratch.file(2)).expect("one file system");
    assert!(matches!(
        store.take(&name(2), 3, &read),
        Err(StoreError::File {
            source: FileError::Other { .. },
            ..
        })
    ));
    assert!(!scratch.file(2).exists());
    assert_eq!(take(&store, 1), Some(1));
    fs::copy(backup.0.join(file_of(&name(1), READY)), scratch.file(1)).expect("there is room");
    assert!(matches!(
        store.take(&name(1), 3, &read),
        Err(StoreError::File {
            source: FileError::Other { .. },
            ..
        })
    ));
    assert_eq!(take(&scratch.open(WIDE), 1), None);
    // All of it, the record too.
    drop(store);
    if cfg!(unix) {
        let whole = Scratch::new();
        copy(&backup.0, &whole.files());
        let store = whole.open(WIDE);
        assert_eq!(store.count(&OWNER, 3).expect("it can be read"), 0);
        assert_eq!([take(&store, 1), take(&store, 2)], [None, None]);
    }
}

/// Whatever a crash left goes when the store is opened by nobody else, and stays while somebody has
/// it open.
#[test]
fn leftovers_are_swept() {
    let scratch = Scratch::new();
    drop(scratch.open(WIDE));
    let leftovers = [
        format!("{}{COMING}", name(1)),
        format!("{}.{}{CLAIMED}", name(2), name(3)),
    ];
    for file in &leftovers {
        fs::write(scratch.files().join(file), "half a file").expect("there is room");
    }
    fs::write(scratch.files().join(USED), [9; 21]).expect("there is room");
    let there = || {
        leftovers
            .iter()
            .filter(|file| scratch.files().join(file).exists())
            .count()
    };
    let first = scratch.open(WIDE);
    assert_eq!(there(), 0);
    assert_eq!(
        fs::metadata(scratch.files().join(USED))
            .expect("it is there")
            .len(),
        32
    );
    for file in &leftovers {
        fs::write(scratch.files().join(file), "half a file").expect("there is room");
    }
    let _second = scratch.open(WIDE);
    assert_eq!(there(), 2);
    drop(first);
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error() {
    let scratch = Scratch::new();
    let file = scratch.0.join("file");
    fs::write(&file, "").expect("there is room");
    let error = Store::<Number>::open(&file, plan("model"), WIDE).err();
    assert!(matches!(error, Some(StoreError::Disk { .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(file::read(&bytes).is_err());
        prop_assert!(Header::from_bytes(&bytes).is_err());
    }

    #[test]
    fn headers_round_trip(
        client: bool, plan_hash: [u8; 32], setup: [u8; 32], called: [u8; 16], owner: [u8; 16], batch: u32, made: u64, inode: u64
    ) {
        let party = if client { Party::Client } else { Party::Server };
        let header = Header { party, plan_hash, setup, name: Name(called), owner, batch, made, inode };
        let bytes = header.to_bytes();
        prop_assert_eq!(bytes.len(), HEADER_BYTES);
        prop_assert_eq!(Header::from_bytes(&bytes), Ok(header));
        prop_assert_eq!(Header::from_bytes(&bytes[1..]), Err(FileError::Short));
    }
}

// A file system that crashes.
