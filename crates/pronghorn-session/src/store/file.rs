//! The file of a prepared batch.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `"PRONGPRE"` |
//! | 2 | version, little-endian as all that follow |
//! | 1 | whose half: 1 the client's, 2 the server's |
//! | 32 | hash of the plan |
//! | 32 | name of the set-up of OTs it was made with |
//! | 16 | name of the preparation |
//! | 16 | owner |
//! | 4 | images |
//! | 8 | when it was made, microseconds since 1970 |
//! | 8 | digest of the inode of the file and the time it was made |
//! | 32 | BLAKE3 of all before |
//! | rest | the half |
//! | 32 | BLAKE3 of all before |
//!
//! The hashes are without a key: they find what a disk or a crash damaged. Who can write to the
//! store could as well read the secrets in it.

use thiserror::Error;

use super::name::{Name, Owner};

const MAGIC: [u8; 8] = *b"PRONGPRE";
const VERSION: u16 = 2;
const HEADER_CONTEXT: &str = "pronghorn header of a preparation's file";
const FILE_CONTEXT: &str = "pronghorn preparation's file";
/// Bytes of a hash.
const CHECK: usize = 32;
const FIELDS: usize = 8 + 2 + 1 + 32 + 32 + 16 + 16 + 4 + 8 + 8;

/// Bytes before the half.
pub const HEADER_BYTES: usize = FIELDS + CHECK;

/// Whose half it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Party {
    /// Tables, and labels for random choices.
    Client = 1,
    /// Labels and `Delta`.
    Server = 2,
}

impl Party {
    /// The other one.
    pub fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What a file says of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whose half it is.
    pub party: Party,
    /// The hash of the plan.
    pub plan_hash: [u8; 32],
    /// The set-up of OTs it was made with.
    pub setup: [u8; 32],
    /// What both parties call it.
    pub name: Name,
    /// Whom it was made for or with.
    pub owner: Owner,
    /// Images.
    pub batch: u32,
    /// When it was made, in microseconds since 1970.
    pub made: u64,
    /// What a copy of the file has not: a digest of its inode and the time it was made; 0 where
    /// there are none.
    pub inode: u64,
}

/// Why bytes are no file of a prepared batch.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FileError {
    /// Fewer bytes than any has.
    #[error("it is cut short")]
    Short,
    /// Another kind of file.
    #[error("it is no prepared batch")]
    Foreign,
    /// Written by another version.
    #[error("it is of version {found}")]
    Version {
        /// That version.
        found: u16,
    },
    /// Not the bytes that were written.
    #[error("its {part} is damaged")]
    Damaged {
        /// Which part.
        part: &'static str,
    },
    /// Of another plan, party, name or place.
    #[error("its {field} is another")]
    Other {
        /// What is.
        field: &'static str,
    },
}

impl Header {
    /// The bytes before the half.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.push(self.party as u8);
        bytes.extend(self.plan_hash);
        bytes.extend(self.setup);
        bytes.extend(self.name.0);
        bytes.extend(self.owner);
        bytes.extend(self.batch.to_le_bytes());
        bytes.extend(self.made.to_le_bytes());
        bytes.extend(self.inode.to_le_bytes());
        bytes.extend(blake3::derive_key(HEADER_CONTEXT, &bytes));
        bytes
    }

    /// Reads the first bytes of a file, of which there may be more.
    ///
    /// # Errors
    /// When they are no undamaged header.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FileError> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(FileError::Short)?;
        let (fields, check) = bytes.split_at(FIELDS);
        let mut reader = Reader(fields);
        if reader.take() != MAGIC {
            return Err(FileError::Foreign);
        }
        let found = u16::from_le_bytes(reader.take());
        if found != VERSION {
            return Err(FileError::Version { found });
        }
        if blake3::derive_key(HEADER_CONTEXT, fields) != *check {
            return Err(FileError::Damaged { part: "header" });
        }
        let party = match reader.take() {
            [1] => Party::Client,
            [2] => Party::Server,
            [_] => return Err(FileError::Foreign),
        };
        Ok(Self {
            party,
            plan_hash: reader.take(),
            setup: reader.take(),
            name: Name(reader.take()),
            owner: reader.take(),
            batch: u32::from_le_bytes(reader.take()),
            made: u64::from_le_bytes(reader.take()),
            inode: u64::from_le_bytes(reader.take()),
        })
    }

    /// Checks that this is the header of the file where `expected` should be.
    pub(super) fn check(&self, expected: &Expected) -> Result<(), FileError> {
        let other = |field| Err(FileError::Other { field });
        match () {
            () if self.party != expected.party => other("party"),
            () if self.plan_hash != expected.plan_hash => other("plan"),
            () if self.name != expected.name => other("name"),
            () if self.inode != expected.inode => other("place on the disk (it is a copy)"),
            () => Ok(()),
        }
    }
}

/// What a file's place says of it.
pub(super) struct Expected {
    pub party: Party,
    pub plan_hash: [u8; 32],
    pub name: Name,
    pub inode: u64,
}

/// The fields of a header, whose length was checked.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self
            .0
            .split_first_chunk()
            .expect("a header has all its fields");
        self.0 = rest;
        *field
    }
}

/// The header and the half in a file's bytes.
///
/// # Errors
/// When the bytes are not what was written.
pub fn read(bytes: &[u8]) -> Result<(Header, &[u8]), FileError> {
    let header = Header::from_bytes(bytes)?;
    let (before, check) = bytes
        .split_last_chunk::<CHECK>()
        .filter(|(before, _)| before.len() >= HEADER_BYTES)
        .ok_or(FileError::Short)?;
    if blake3::derive_key(FILE_CONTEXT, before) != *check {
        return Err(FileError::Damaged { part: "content" });
    }
    Ok((header, &before[HEADER_BYTES..]))
}

/// Hashes what is written, for the end of the file.
pub(super) struct Check(blake3::Hasher);

impl Check {
    pub fn new() -> Self {
        Self(blake3::Hasher::new_derive_key(FILE_CONTEXT))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> [u8; CHECK] {
        *self.0.finalize().as_bytes()
    }
}
