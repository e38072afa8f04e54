//! Names of clients whose keys were false, which a server serves no more.
//!
//! In a store's directory they are lines of a text file. Several servers may share it. Who is to be
//! served again is removed from it by the server's owner. Without a store they are in memory.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Mutex,
};

use super::{
    StoreError,
    disk::{private, sync_name},
};
use crate::{lock::lock, text::printable};

const FILE: &str = "barred";

/// The names.
#[derive(Default)]
pub(crate) struct Barred {
    file: Option<PathBuf>,
    /// Without a file, and those that could not be written.
    names: Mutex<BTreeSet<String>>,
}

impl Barred {
    /// Those of a store's directory, in which there is one for the server.
    pub(crate) fn in_store(directory: &Path) -> Self {
        Self {
            file: Some(directory.join("server").join(FILE)),
            ..Self::default()
        }
    }

    /// Whether a name is among them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn has(&self, name: &str) -> Result<bool, StoreError> {
        let name = line(name);
        if lock(&self.names).contains(&name) {
            return Ok(true);
        }
        let Some(path) = &self.file else {
            return Ok(false);
        };
        match fs::read_to_string(path) {
            Ok(names) => Ok(!name.is_empty() && names.lines().any(|other| other == name)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(refused(path, source)),
        }
    }

    /// Adds a name, for good.
    ///
    /// # Errors
    /// The file cannot be written. The name is then barred until the server ends.
    pub(crate) fn add(&self, name: &str) -> Result<(), StoreError> {
        let Some(path) = &self.file else {
            lock(&self.names).insert(line(name));
            return Ok(());
        };
        let append = || {
            let mut file = private().append(true).create(true).open(path)?;
            // A crash may have left a line without its end.
            file.write_all(format!("\n{}\n", line(name)).as_bytes())?;
            file.sync_all()?;
            sync_name(path)
        };
        append().map_err(|source| {
            lock(&self.names).insert(line(name));
            refused(path, source)
        })
    }
}

/// A name as it stands in the file.
fn line(name: &str) -> String {
    printable(name, " ")
}

fn refused(path: &Path, source: io::Error) -> StoreError {
    let path = path.display().to_string();
    StoreError::Disk { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_barred_until_the_owner_removes_them() {
        let path = std::env::temp_dir().join(format!("pronghorn-barred-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("server")).expect("it is ours");
        let barred = Barred::default();
        assert!(!barred.has("alice").expect("memory"));
        barred.add("alice").expect("memory");
        assert!(barred.has("alice").expect("memory") && !barred.has("ali").expect("memory"));
        let open = || Barred::in_store(&path);
        assert!(!open().has("alice").expect("it is ours"));
        open().add("alice").expect("it is ours");
        open().add("bob\nalice2").expect("it is ours");
        let has = |name: &str| open().has(name).expect("it is ours");
        assert!(has("alice") && has("bob\nalice2") && !has("alice2") && !has("carol"));
        let file = path.join("server").join(FILE);
        fs::write(&file, "alice\nbob alice2\ncar").expect("it is ours");
        open().add("dora").expect("it is ours");
        assert!(has("dora") && !has("carol"));
        let kept = fs::read_to_string(&file)
            .expect("it is there")
            .replace("alice\n", "");
        fs::write(&file, kept).expect("it is ours");
        assert!(!has("alice") && has("bob\nalice2"));
        fs::remove_dir_all(path).expect("it is ours");
    }
}
