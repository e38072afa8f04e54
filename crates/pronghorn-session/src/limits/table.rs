//! The limits on what clients use: one table, from which documents, options and refusals are made.

use std::{fmt, net::IpAddr};

use thiserror::Error;

/// Something that clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Open connections, those without a hello included.
    Connections,
    /// Connections that have a place.
    Sessions,
    /// Percent of the memory that all batches share.
    Memory,
    /// Hellos, batches and preparations.
    Requests,
    /// Connections that make keys or oblivious transfers anew.
    Setups,
    /// Images as the plan charges them, each day.
    DailyImages,
    /// Images as the plan charges them, without end.
    Images,
    /// Bytes of sessions, both ways.
    Bytes,
}

/// Whose use is counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A client: the name in its certificate or token, else its address.
    Client,
    /// An IPv4 address or an IPv6 /64 network.
    Address,
    /// All clients together.
    All,
}

/// The time over which use adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// At once.
    Now,
    /// A minute.
    Minute,
    /// A day, which begins at midnight UTC.
    Day,
    /// For ever.
    Ever,
}

/// A limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name: the key in a server's file, the flag with two hyphens before it, and the variable
    /// of the environment in capitals after `PRONGHORN_SERVE_`, with underscores.
    pub name: &'static str,
    /// What is limited.
    pub resource: Resource,
    /// For whom.
    pub key: Key,
    /// The value where none is given; none: no limit.
    pub default: Option<u64>,
    /// What it limits, in words.
    pub help: &'static str,
}

const fn limit(
    name: &'static str,
    resource: Resource,
    key: Key,
    default: Option<u64>,
    help: &'static str,
) -> Limit {
    Limit {
        name,
        resource,
        key,
        default,
        help,
    }
}

/// All of them.
#[rustfmt::skip]
pub static LIMITS: [Limit; COUNT] = {
    use Key::{Address, All, Client};
    use Resource::{Bytes, Connections, DailyImages, Images, Memory, Requests, Sessions, Setups};
    [
        limit("max-clients", Sessions, All, Some(16), "Most sessions at once; others wait for a place"),
        limit("max-sessions-per-client", Sessions, Client, None, "Most sessions of one client at once"),
        limit("max-sessions-per-address", Sessions, Address, None, "Most sessions of one address at once"),
        limit("max-connections-in-all", Connections, All, None, "Most open connections (default: what the open files of the process allow)"),
        limit("max-connections-per-client", Connections, Client, None, "Most connections of one client (default: half of --max-clients, at least 2; no limit on loopback)"),
        limit("max-connections", Connections, Address, None, "Most connections of one address (default: half of --max-clients, at least 2; no limit on loopback)"),
        limit("max-memory-share-per-client", Memory, Client, None, "Percent of the batches' memory that one client's batches take, where it has more than one (default: 50; no limit on loopback)"),
        limit("max-memory-share-per-address", Memory, Address, None, "Percent of the batches' memory that batches of one address take, where it has more than one"),
        limit("max-requests-per-client", Requests, Client, Some(60_000), "Most hellos, batches and preparations a minute of one client"),
        limit("max-requests-per-address", Requests, Address, None, "Most hellos, batches and preparations a minute of one address"),
        limit("max-requests-in-all", Requests, All, None, "Most hellos, batches and preparations a minute"),
        limit("max-setups-per-client", Setups, Client, None, "Most set-ups of keys a day of one client"),
        limit("max-setups-per-address", Setups, Address, None, "Most set-ups of keys a day of one address"),
        limit("max-setups-in-all", Setups, All, None, "Most set-ups of keys a day"),
        limit("max-images", Images, Client, None, "Most images one client may ask for; under encrypted each batch counts as all of its slots"),
        limit("max-daily-images-per-client", DailyImages, Client, None, "Most images a day of one client"),
        limit("max-daily-images-per-address", DailyImages, Address, None, "Most images a day of one address"),
        limit("max-daily-images-in-all", DailyImages, All, None, "Most images a day"),
        limit("max-daily-bytes-per-client", Bytes, Client, None, "Most bytes a day of one client; a batch that runs is not cut"),
        limit("max-daily-bytes-per-address", Bytes, Address, None, "Most bytes a day of one address; a batch that runs is not cut"),
        limit("max-daily-bytes-in-all", Bytes, All, None, "Most bytes a day; a batch that runs is not cut"),
    ]
};

const COUNT: usize = 21;

/// Percent of the memory of batches that a client takes where the owner does not say.
const MEMORY_SHARE: u64 = 50;

impl Resource {
    /// Its unit, as a plural.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Sessions => "sessions",
            Self::Memory => "percent",
            Self::Requests => "requests",
            Self::Setups => "set-ups",
            Self::DailyImages | Self::Images => "images",
            Self::Bytes => "bytes",
        }
    }

    /// The time over which it adds up.
    pub fn period(self) -> Period {
        match self {
            Self::Connections | Self::Sessions | Self::Memory => Period::Now,
            Self::Requests => Period::Minute,
            Self::Setups | Self::DailyImages | Self::Bytes => Period::Day,
            Self::Images => Period::Ever,
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now => "at once",
            Self::Minute => "a minute",
            Self::Day => "a day",
            Self::Ever => "in all",
        })
    }
}

impl Key {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Client, Self::Address, Self::All];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Address => "address",
            Self::All => "all",
        }
    }
}

impl Limit {
    /// The code of the refusal, for programs.
    pub fn code(&self) -> &'static str {
        if self.is_retryable() { "busy" } else { "limit" }
    }

    /// Whether a client that is refused may try again soon.
    pub fn is_retryable(&self) -> bool {
        matches!(self.resource.period(), Period::Now | Period::Minute)
    }
}

/// The value of each limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps([Option<u64>; COUNT]);

impl Default for Caps {
    fn default() -> Self {
        let mut values = [None; COUNT];
        for (value, limit) in values.iter_mut().zip(&LIMITS) {
            *value = limit.default;
        }
        Self(values)
    }
}

impl Caps {
    /// The same with another value of a limit; none: no limit.
    ///
    /// # Errors
    /// There is no limit of this name, or it is 0, which lets nothing through.
    pub fn with(mut self, name: &str, value: Option<u64>) -> Result<Self, LimitError> {
        let place = LIMITS.iter().position(|limit| limit.name == name);
        let place = place.ok_or_else(|| LimitError::Unknown { name: name.into() })?;
        let name = LIMITS[place].name;
        match value {
            Some(0) => Err(LimitError::Zero { name }),
            Some(found) if LIMITS[place].resource == Resource::Memory && found > 100 => {
                Err(LimitError::Percent { name, found })
            }
            value => {
                self.0[place] = value;
                Ok(self)
            }
        }
    }

    /// The limit on a resource for a key, and its value, where there is one.
    pub fn of(&self, resource: Resource, key: Key) -> Option<Cap> {
        let mut all = LIMITS.iter().zip(&self.0);
        let (limit, value) =
            all.find(|(limit, _)| (limit.resource, limit.key) == (resource, key))?;
        value.map(|most| Cap { limit, most })
    }

    /// The value of a limit that always has one.
    pub(crate) fn places(&self) -> u64 {
        let cap = self.of(Resource::Sessions, Key::All);
        cap.map_or(u64::from(u32::MAX), |cap| cap.most)
    }

    /// Most connections of a client at an address, or of the address. A proxy on this machine gives
    /// all its clients one.
    pub(crate) fn connections_of(&self, key: Key, address: IpAddr) -> u64 {
        match self.of(Resource::Connections, key) {
            Some(cap) => cap.most,
            None if address.to_canonical().is_loopback() => u64::MAX,
            None => (self.places() / 2).max(2),
        }
    }

    /// Percent of the memory of batches that a client at an address takes, or the address; none: no
    /// limit.
    pub(crate) fn memory_share_of(&self, key: Key, address: IpAddr) -> Option<u64> {
        let given = self.of(Resource::Memory, key).map(|cap| cap.most);
        let is_usual = key == Key::Client && !address.to_canonical().is_loopback();
        given.or(is_usual.then_some(MEMORY_SHARE))
    }

    /// All limits on a resource.
    pub(crate) fn on(&self, resource: Resource) -> impl Iterator<Item = Cap> {
        Key::ALL
            .into_iter()
            .filter_map(move |key| self.of(resource, key))
    }
}

/// A limit that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Which.
    pub limit: &'static Limit,
    /// Its value.
    pub most: u64,
}

/// A value that makes no sense.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LimitError {
    /// No such limit.
    #[error("there is no limit {name:?}: `pronghorn serve --help` lists them")]
    Unknown {
        /// What was given.
        name: String,
    },
    /// It lets nothing through.
    #[error("{name} is 0, which lets nothing through: give at least 1, or leave it out")]
    Zero {
        /// Which.
        name: &'static str,
    },
    /// More than all of it.
    #[error("{name} is {found} percent: give 1 to 100")]
    Percent {
        /// Which.
        name: &'static str,
        /// What was given.
        found: u64,
    },
}

/// A client wanted more than a limit allows.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{}", self.words())]
pub struct OverLimit {
    /// The limit.
    pub cap: Cap,
    /// What is left of it.
    pub left: u64,
}

impl OverLimit {
    /// Of a limit on a resource, with the value that held.
    pub(crate) fn of(resource: Resource, key: Key, most: u64) -> Option<Self> {
        let limit = LIMITS
            .iter()
            .find(|limit| (limit.resource, limit.key) == (resource, key))?;
        let cap = Cap { limit, most };
        Some(Self { cap, left: 0 })
    }

    fn words(&self) -> String {
        let Cap { limit, most } = self.cap;
        let (unit, period) = (limit.resource.unit(), limit.resource.period());
        let whose = match limit.key {
            Key::Client => " of one client",
            Key::Address => " of one address",
            Key::All => "",
        };
        let name = limit.name;
        match period {
            Period::Now => format!(
                "the server is busy: it takes at most {most} {unit}{whose} {period} ({name}); close others, or try \
                 again later"
            ),
            Period::Minute => format!(
                "the server is busy: it takes at most {most} {unit}{whose} {period} ({name}); try again in a minute"
            ),
            Period::Day | Period::Ever => format!(
                "the server takes at most {most} {unit}{whose} {period} ({name}), of which {} are left",
                self.left
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_limit_is_there_once() {
        let names: HashSet<_> = LIMITS.iter().map(|limit| limit.name).collect();
        let cells: HashSet<_> = LIMITS
            .iter()
            .map(|limit| (limit.resource, limit.key))
            .collect();
        assert_eq!((names.len(), cells.len()), (COUNT, COUNT));
    }

    #[test]
    fn values_that_let_nothing_through_are_refused() {
        let caps = Caps::default();
        assert_eq!(caps.places(), 16);
        let four = caps
            .clone()
            .with("max-clients", Some(4))
            .expect("it is one");
        assert_eq!(four.places(), 4);
        let zero = four.clone().with("max-clients", Some(0));
        assert!(matches!(
            zero,
            Err(LimitError::Zero {
                name: "max-clients"
            })
        ));
        assert!(matches!(
            four.with("max-guests", Some(1)),
            Err(LimitError::Unknown { .. })
        ));
        let much = caps.with("max-memory-share-per-client", Some(101));
        assert!(matches!(much, Err(LimitError::Percent { found: 101, .. })));
    }

    /// Who sets nothing has bounds for all but this machine.
    #[test]
    fn nobody_takes_all_by_default() {
        let caps = Caps::default();
        let [far, near] = ["10.0.0.1", "::ffff:127.0.0.1"].map(|text| {
            let address: IpAddr = text.parse().expect("it is an address");
            address
        });
        for key in [Key::Client, Key::Address] {
            assert_eq!(caps.connections_of(key, far), 8);
            assert_eq!(caps.connections_of(key, near), u64::MAX);
        }
        let share = |caps: &Caps, key, address| caps.memory_share_of(key, address);
        assert_eq!(share(&caps, Key::Client, far), Some(MEMORY_SHARE));
        assert_eq!(share(&caps, Key::Client, near), None);
        assert_eq!(share(&caps, Key::Address, far), None);
        let given = caps.with("max-memory-share-per-client", Some(70));
        let given = given.expect("it is a limit");
        assert_eq!(share(&given, Key::Client, far), Some(70));
        assert_eq!(share(&given, Key::Client, near), Some(70));
    }

    #[test]
    fn refusals_name_the_limit() {
        let caps = Caps::default().with("max-daily-images-per-client", Some(9));
        let cap = caps
            .expect("it is one")
            .of(Resource::DailyImages, Key::Client);
        let over = OverLimit {
            cap: cap.expect("it is set"),
            left: 2,
        };
        assert!(!over.cap.limit.is_retryable());
        assert_eq!(
            over.to_string(),
            "the server takes at most 9 images of one client a day (max-daily-images-per-client), of which 2 are left"
        );
    }
}
