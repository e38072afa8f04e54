//! A disk that crashes between any two of its steps: nothing is handed out twice.

use super::*;

/// A change of a directory that is not on the disk yet.
#[derive(Clone)]
enum Change {
    Made(String, u64),
    Renamed(String, String),
    Removed(String),
}

/// Directories are forgotten: a store has one.
#[derive(Clone, Default)]
struct Model {
    /// As processes see it, and as it is on the disk.
    names: [BTreeMap<String, u64>; 2],
    contents: [HashMap<u64, Vec<u8>>; 2],
    unsynced: Vec<Change>,
    next_inode: u64,
    operations: usize,
    /// The operation in which the machine stops.
    crash: usize,
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Made(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Renamed(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Removed(name) => {
                names.remove(name);
            }
        }
    }
}

impl Model {
    /// What a restart may find: of the changes that nobody waited for any may have reached the
    /// disk.
    fn after_crash(&self, reached: usize) -> Self {
        let mut names = self.names[1].clone();
        let reached = |place: usize| reached >> place & 1 == 1;
        for (place, change) in self.unsynced.iter().enumerate() {
            if reached(place) {
                change.apply(&mut names);
            }
        }
        Self {
            names: [names.clone(), names],
            contents: [self.contents[1].clone(), self.contents[1].clone()],
            next_inode: self.next_inode,
            crash: usize::MAX,
            ..Self::default()
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names[0]);
        self.unsynced.push(change);
    }

    /// Counts an operation; whether it is the one in which the machine stops, which may do a part
    /// of it.
    fn step(&mut self) -> io::Result<bool> {
        self.operations += 1;
        match self.operations {
            now if now > self.crash => Err(io::Error::other("the machine has stopped")),
            now => Ok(now == self.crash),
        }
    }

    fn inode(&self, path: &Path) -> io::Result<u64> {
        let inode = self.names[0].get(&file_name(path));
        inode.copied().ok_or(io::ErrorKind::NotFound.into())
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().expect("a file has a name");
    name.to_str().expect("it is text").to_owned()
}

#[derive(Clone, Default)]
struct Crashing(Arc<Mutex<Model>>);

struct NoLock;

impl Held for NoLock {}

fn stopped<T>() -> io::Result<T> {
    Err(io::Error::other("the machine stops"))
}

impl Disk for Crashing {
    fn make_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<(String, u64)>> {
        let model = lock(&self.0);
        let length = |inode: &u64| model.contents[0].get(inode).map_or(0, Vec::len) as u64;
        let files = model.names[0].iter();
        Ok(files
            .map(|(name, inode)| (name.clone(), length(inode)))
            .collect())
    }

    fn write_new(&self, path: &Path, write: Writing<'_>) -> io::Result<()> {
        let mut model = lock(&self.0);
        let stops = model.step()?;
        model.next_inode += 1;
        let inode = model.next_inode;
        let mut content = Vec::new();
        write(inode, &mut content)?;
        model.change(Change::Made(file_name(path), inode));
        if stops {
            let half = content[..content.len() / 2].to_vec();
            model.contents[1].insert(inode, half);
            return stopped();
        }
        for contents in &mut model.contents {
            contents.insert(inode, content.clone());
        }
        Ok(())
    }

    fn read(&self, path: &Path, from: u64, most: u64) -> io::Result<(Zeroizing<Vec<u8>>, u64)> {
        let model = lock(&self.0);
        let inode = model.inode(path)?;
        let content = model.contents[0].get(&inode).cloned().unwrap_or_default();
        let bytes = content.into_iter().skip(from as usize);
        let bytes = bytes.take(usize::try_from(most).unwrap_or(usize::MAX));
        Ok((Zeroizing::new(bytes.collect()), inode))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut model = lock(&self.0);
        let stops = model.step()?;
        let inode = match model.inode(path) {
            Ok(inode) => inode,
            Err(_) => {
                model.next_inode += 1;
                let inode = model.next_inode;
                model.change(Change::Made(file_name(path), inode));
                inode
            }
        };
        let bytes = if stops {
            &bytes[..bytes.len() / 2]
        } else {
            bytes
        };
        for contents in &mut model.contents {
            contents.entry(inode).or_default().extend(bytes);
        }
        if stops { stopped() } else { Ok(()) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut model = lock(&self.0);
        let stops = model.step()?;
        model.inode(from)?;
        model.change(Change::Renamed(file_name(from), file_name(to)));
        if stops { stopped() } else { Ok(()) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut model = lock(&self.0);
        let stops = model.step()?;
        model.inode(path)?;
        model.change(Change::Removed(file_name(path)));
        if stops { stopped() } else { Ok(()) }
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        let mut model = lock(&self.0);
        // Stopped before it began.
        if model.step()? {
            return stopped();
        }
        model.names[1] = model.names[0].clone();
        model.unsynced.clear();
        Ok(())
    }

    fn lock(
        &self,
        _: &Path,
        alone: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<Box<dyn Held>> {
        alone()?;
        Ok(Box::new(NoLock))
    }
}

/// What happened to each of the preparations before the crash.
#[derive(Default)]
struct Before {
    kept: HashSet<u8>,
    wanted: HashSet<u8>,
    used: HashMap<u8, usize>,
}

fn open_on(disk: &Crashing) -> Result<Store<Number>, StoreError> {
    Store::open_on(
        Box::new(disk.clone()),
        Path::new("anywhere"),
        plan("model"),
        WIDE,
    )
}

/// A life of a store, until it is over or the machine stops.
fn live(disk: &Crashing, before: &mut Before) -> Result<(), StoreError> {
    let store = open_on(disk)?;
    for index in 0..4 {
        put(&store, index)?;
        before.kept.insert(index);
    }
    for index in [2, 0] {
        before.wanted.insert(index);
        if store.take(&name(index), 3, &read)?.is_some() {
            *before.used.entry(index).or_default() += 1;
        }
    }
    let store = open_on(disk)?;
    // Any of those that are left.
    before.wanted.extend([1, 3]);
    if let (Some((_, number)), _) = store.take_newest(&OWNER, 3, &read)? {
        *before.used.entry(number.0 as u8).or_default() += 1;
    }
    store.destroy(&[1; 32])
}

/// The machine stops in every operation, and whatever of the directory's last changes has reached
/// the disk: nothing is handed out a second time, and nothing is lost that nobody had asked for.
#[test]
fn no_crash_hands_anything_out_twice() {
    let all = Crashing::default();
    lock(&all.0).crash = usize::MAX;
    live(&all, &mut Before::default()).expect("nothing stops it");
    let operations = lock(&all.0).operations;
    assert!(operations > 30, "{operations}");
    for crash in 1..=operations {
        let disk = Crashing::default();
        lock(&disk.0).crash = crash;
        let mut before = Before::default();
        live(&disk, &mut before).expect_err("it stops");
        let model = lock(&disk.0).clone();
        for reached in 0..1 << model.unsynced.len() {
            let disk = Crashing(Arc::new(Mutex::new(model.after_crash(reached))));
            let mut used = before.used.clone();
            // Two more lives.
            for _ in 0..2 {
                let store = open_on(&disk).expect("nothing stops it");
                for index in 0..4 {
                    // A file that was cut is an error.
                    if let Ok(Some(number)) = store.take(&name(index), 3, &read) {
                        assert_eq!(number, Number(index.into()));
                        *used.entry(index).or_default() += 1;
                    }
                }
            }
            for index in 0..4 {
                let times = used.get(&index).copied().unwrap_or(0);
                assert!(times <= 1, "{index} is used {times} times, crash {crash}");
                let lost = before.kept.contains(&index) && !before.wanted.contains(&index);
                assert!(!lost || times == 1, "{index} is lost, crash {crash}");
            }
        }
    }
}
