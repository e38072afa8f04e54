//! What each client, each address and all of them use, against the limits.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::Path,
    sync::Mutex,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    error::SessionError,
    limits::table::{Cap, Caps, Key, OverLimit, Resource},
    lock::lock,
    quota::{Claim, Counted, Identity, Open, network},
    store::{
        Owner, StoreError,
        used::{Place, Used},
    },
};

/// Clients and addresses whose requests are counted at once; further ones are refused.
const MOST_RATES: usize = 1 << 16;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A client, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Whose {
    pub identity: Identity,
    pub ip: IpAddr,
    address: Owner,
}

impl Whose {
    pub fn new(address: IpAddr, name: Option<String>) -> Self {
        Self {
            identity: Identity::new(address, name),
            ip: address,
            address: address_owner(address),
        }
    }

    fn owner(&self, key: Key) -> Owner {
        match key {
            Key::Client => self.identity.owner(),
            Key::Address => self.address,
            Key::All => ALL,
        }
    }

    fn is_named(&self) -> bool {
        matches!(self.identity, Identity::Named(_))
    }

    /// To a part of what all share, of which it may have so much, and its address so much.
    pub fn claim(&self, most: impl Fn(Key) -> Option<u64>) -> Claim {
        Claim {
            client: self.identity.owner(),
            address: self.address,
            most: [Key::Client, Key::Address].map(most),
        }
    }
}

fn address_owner(address: IpAddr) -> Owner {
    Identity::Network(network(address)).owner()
}

/// All clients together.
const ALL: Owner = [0; 16];

/// Counts of one server.
pub(crate) struct Usage {
    caps: Caps,
    open: Open,
    rates: Mutex<HashMap<(Key, Owner), Rate>>,
    /// What ends with the process.
    passing: Used,
    /// What outlives it.
    lasting: Option<Used>,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
}

/// Requests of late: each minute takes as many away as are allowed in one.
struct Rate {
    level: f64,
    seen: Instant,
}

impl Usage {
    /// Nothing was used yet.
    ///
    /// # Errors
    /// There is no memory for the counts.
    pub fn new(caps: Caps) -> Result<Self, StoreError> {
        Ok(Self {
            caps,
            open: Open::default(),
            rates: Mutex::default(),
            passing: Used::in_memory()?,
            lasting: None,
            clock: Box::new(SystemTime::now),
        })
    }

    /// Counts in a store's directory, over restarts.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn keep_in(&mut self, directory: &Path) -> Result<(), StoreError> {
        self.lasting = Some(Used::open(directory)?);
        Ok(())
    }

    /// Counts a connection in all.
    pub fn connect(&self, most: u64) -> Result<Counted<'_>, SessionError> {
        self.enter(Key::All, ALL, most)
    }

    /// Counts a connection of an address.
    pub fn connect_from(&self, address: IpAddr, most: u64) -> Result<Counted<'_>, SessionError> {
        self.enter(Key::Address, address_owner(address), most)
    }

    /// Counts a connection of a client that has said who it is.
    pub fn connect_client(&self, whose: &Whose, most: u64) -> Result<Counted<'_>, SessionError> {
        self.enter(Key::Client, whose.owner(Key::Client), most)
    }

    fn enter(&self, key: Key, owner: Owner, most: u64) -> Result<Counted<'_>, SessionError> {
        let entered = self.open.enter(key, owner, most);
        entered.ok_or_else(|| over(Resource::Connections, key, Some(most)))
    }

    /// Counts a hello, a batch or a preparation, where there were not too many of late.
    ///
    /// # Errors
    /// There were.
    pub fn request(&self, whose: &Whose) -> Result<(), SessionError> {
        let caps: Vec<Cap> = self.caps.on(Resource::Requests).collect();
        if caps.is_empty() {
            return Ok(());
        }
        let mut rates = lock(&self.rates);
        if rates.len() >= MOST_RATES {
            rates.retain(|_, rate| rate.seen.elapsed() < MINUTE);
        }
        let now = Instant::now();
        let mut levels = Vec::new();
        for cap in caps {
            let place = (cap.limit.key, whose.owner(cap.limit.key));
            let level = match rates.get(&place) {
                Some(rate) => rate.level_at(now, cap.most),
                None if rates.len() < MOST_RATES => 0.0,
                None => f64::INFINITY,
            };
            if level + 1.0 > cap.most as f64 {
                return Err(OverLimit { cap, left: 0 }.into());
            }
            levels.push((place, level + 1.0));
        }
        for (place, level) in levels {
            rates.insert(place, Rate { level, seen: now });
        }
        Ok(())
    }

    /// Counts what begins, where all of it is left. Of bytes, which are known at the end alone, 0 asks
    /// whether any are left.
    ///
    /// # Errors
    /// A limit is reached, and nothing is counted; or the store refuses.
    pub fn begin(&self, whose: &Whose, more: &[(Resource, u64)]) -> Result<(), SessionError> {
        let entries: Vec<(Cap, u64)> = more
            .iter()
            .flat_map(|&(resource, more)| self.caps.on(resource).map(move |cap| (cap, more)))
            .collect();
        // Should the second refuse, the first has counted what does not begin: not less than is used.
        self.count(whose, &entries, true)?;
        self.count(whose, &entries, false)
    }

    fn count(
        &self,
        whose: &Whose,
        entries: &[(Cap, u64)],
        lasting: bool,
    ) -> Result<(), SessionError> {
        let here = |entry: &&(Cap, u64)| self.is_lasting(whose, entry.0) == lasting;
        let entries: Vec<(Cap, u64)> = entries.iter().filter(here).copied().collect();
        let Some(home) = self.home(lasting).filter(|_| !entries.is_empty()) else {
            return Ok(());
        };
        let places: Vec<_> = entries
            .iter()
            .map(|&(cap, more)| (self.place(whose, cap), more))
            .collect();
        home.add(&places, |before| {
            for (&(cap, more), before) in entries.iter().zip(before) {
                let left = cap.most.saturating_sub(*before);
                if more.max(1) > left {
                    return Err(match cap.limit.resource {
                        Resource::Images => SessionError::Quota { asked: more, left },
                        _ => OverLimit { cap, left }.into(),
                    });
                }
            }
            Ok(())
        })
    }

    /// Counts bytes that went, whatever the limits.
    ///
    /// # Errors
    /// The store refuses.
    pub fn add_bytes(&self, whose: &Whose, bytes: u64) -> Result<(), SessionError> {
        let places: Vec<_> = self
            .caps
            .on(Resource::Bytes)
            .map(|cap| (self.place(whose, cap), bytes))
            .collect();
        match self.home(true).or(Some(&self.passing)) {
            Some(home) if !places.is_empty() => home.add(&places, |_| Ok(())),
            _ => Ok(()),
        }
    }

    /// Images that a client has left, where they are limited.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn images_left(&self, whose: &Whose) -> Result<Option<u64>, SessionError> {
        let caps = self.caps.on(Resource::Images);
        let mut least = None;
        for cap in caps.chain(self.caps.on(Resource::DailyImages)) {
            let home = self.home(self.is_lasting(whose, cap));
            let found = match home {
                Some(home) => home.read(&[self.place(whose, cap)])?,
                None => Vec::new(),
            };
            let left = cap.most.saturating_sub(found.first().copied().unwrap_or(0));
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        Ok(least)
    }

    /// Whether a count outlives the process: an address may be another client's tomorrow, so its
    /// images without end are not kept.
    fn is_lasting(&self, whose: &Whose, cap: Cap) -> bool {
        let is_kept = cap.limit.resource != Resource::Images || whose.is_named();
        self.lasting.is_some() && is_kept
    }

    fn home(&self, lasting: bool) -> Option<&Used> {
        match lasting {
            true => self.lasting.as_ref(),
            false => Some(&self.passing),
        }
    }

    fn place(&self, whose: &Whose, cap: Cap) -> Place {
        let (resource, key) = (cap.limit.resource, cap.limit.key);
        let day = (resource != Resource::Images).then(|| self.today());
        Place {
            day,
            resource,
            key,
            owner: whose.owner(key),
            is_known: key == Key::All || (key == Key::Client && whose.is_named()),
        }
    }

    fn today(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs() / DAY.as_secs())
    }
}

impl Rate {
    fn level_at(&self, now: Instant, most: u64) -> f64 {
        let gone = now.saturating_duration_since(self.seen).as_secs_f64() / MINUTE.as_secs_f64();
        (self.level - gone * most as f64).max(0.0)
    }
}

/// A limit of so much that a client, or its address, is at.
pub(crate) fn over(resource: Resource, key: Key, most: Option<u64>) -> SessionError {
    let over = most.and_then(|most| OverLimit::of(resource, key, most));
    over.map_or(SessionError::Bug, Into::into)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::PathBuf,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
    };

    use super::*;

    fn caps(limits: &[(&str, u64)]) -> Caps {
        limits.iter().fold(Caps::default(), |caps, (name, most)| {
            caps.with(name, Some(*most)).expect("it is a limit")
        })
    }

    fn usage(limits: &[(&str, u64)]) -> Usage {
        Usage::new(caps(limits)).expect("there is room")
    }

    fn at(address: &str) -> Whose {
        Whose::new(address.parse().expect("it is an address"), None)
    }

    fn named(name: &str, address: &str) -> Whose {
        Whose::new(
            address.parse().expect("it is an address"),
            Some(name.into()),
        )
    }

    fn left(usage: &Usage, whose: &Whose) -> u64 {
        let left = usage.images_left(whose).expect("the store is ours");
        left.expect("it is limited")
    }

    fn over(outcome: Result<(), SessionError>) -> &'static str {
        match outcome {
            Err(SessionError::OverLimit(over)) => over.cap.limit.name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn images_count_by_network() {
        let usage = usage(&[("max-images", 5)]);
        let [v4, same, other] = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"].map(at);
        let spend = |whose, images| usage.begin(whose, &[(Resource::Images, images)]);
        spend(&v4, 3).expect("five left");
        assert!(matches!(
            spend(&same, 3),
            Err(SessionError::Quota { asked: 3, left: 2 })
        ));
        assert_eq!((left(&usage, &same), left(&usage, &other)), (2, 5));
        let [a, b] = ["2001:db8::1", "2001:db8::ffff:2"].map(at);
        spend(&a, 5).expect("five left");
        assert_eq!(left(&usage, &b), 0);
        let unlimited = Usage::new(Caps::default()).expect("there is room");
        assert_eq!(unlimited.images_left(&at("10.0.0.1")).expect("it is"), None);
    }

    /// A directory, and a clock that says so many days.
    fn kept(limits: &[(&str, u64)], path: &Path, days: &Arc<AtomicU64>) -> Usage {
        let mut usage = usage(limits);
        usage.keep_in(path).expect("it is ours");
        let days = days.clone();
        usage.clock = Box::new(move || UNIX_EPOCH + DAY * days.load(Ordering::SeqCst) as u32);
        usage
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pronghorn-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn images_of_names_count_over_restarts_and_addresses() {
        let (path, days) = (directory("usage"), Arc::new(AtomicU64::new(9)));
        let open = |most| kept(&[("max-images", most)], &path, &days);
        let [alice, bob] = ["alice", "bob"].map(|name| named(name, "10.0.0.1"));
        let spend = |usage: &Usage, whose: &Whose, images| {
            usage.begin(whose, &[(Resource::Images, images)])
        };
        let first = open(10);
        spend(&first, &alice, 4).expect("ten left");
        spend(&first, &at("10.0.0.1"), 9).expect("ten left");
        // Another process at the same time.
        let second = open(10);
        spend(&second, &named("alice", "10.0.0.9"), 4).expect("six left");
        spend(&second, &bob, 1).expect("ten left");
        assert!(matches!(
            spend(&first, &alice, 3),
            Err(SessionError::Quota { asked: 3, left: 2 })
        ));
        // It ends without a word.
        std::mem::forget((first, second));
        let third = open(10);
        assert_eq!((left(&third, &alice), left(&third, &bob)), (2, 9));
        assert_eq!(left(&third, &at("10.0.0.1")), 10);
        // A limit below what was spent leaves nothing.
        assert_eq!(left(&open(5), &alice), 0);
        fs::remove_dir_all(path).expect("it is ours");
    }

    /// Forward there is a new day, and back again the old one is as it was.
    #[test]
    fn days_begin_anew_and_a_clock_that_jumps_back_finds_its_day() {
        let (path, days) = (directory("days"), Arc::new(AtomicU64::new(20_000)));
        let limits = [
            ("max-daily-images-per-client", 10),
            ("max-daily-images-per-address", 12),
            ("max-setups-in-all", 2),
            ("max-daily-bytes-per-client", 1000),
        ];
        let usage = kept(&limits, &path, &days);
        let (alice, bob) = (named("alice", "10.0.0.1"), named("bob", "10.0.0.1"));
        let batch = |whose, images| {
            usage.begin(
                whose,
                &[(Resource::DailyImages, images), (Resource::Bytes, 0)],
            )
        };
        let setup = |whose| usage.begin(whose, &[(Resource::Setups, 1)]);
        batch(&alice, 8).expect("ten are left");
        assert_eq!(over(batch(&alice, 3)), "max-daily-images-per-client");
        assert_eq!(over(batch(&bob, 5)), "max-daily-images-per-address");
        assert_eq!((left(&usage, &alice), left(&usage, &bob)), (2, 4));
        setup(&alice).expect("two are left");
        setup(&bob).expect("one is left");
        assert_eq!(over(setup(&bob)), "max-setups-in-all");
        usage.add_bytes(&alice, 999).expect("it is ours");
        batch(&alice, 1).expect("a byte is left");
        usage.add_bytes(&alice, 5000).expect("it is ours");
        assert_eq!(over(batch(&alice, 1)), "max-daily-bytes-per-client");
        days.store(20_365, Ordering::SeqCst);
        batch(&alice, 9).expect("it is another day");
        setup(&bob).expect("it is another day");
        days.store(20_000, Ordering::SeqCst);
        assert_eq!(left(&usage, &alice), 1);
        assert_eq!(over(setup(&bob)), "max-setups-in-all");
        fs::remove_dir_all(path).expect("it is ours");
    }

    #[test]
    fn requests_have_a_rate() {
        let usage = usage(&[("max-requests-per-client", 3), ("max-requests-in-all", 5)]);
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(at);
        for _ in 0..3 {
            usage.request(&one).expect("three are allowed");
        }
        assert_eq!(over(usage.request(&one)), "max-requests-per-client");
        usage.request(&two).expect("it is another client");
        usage.request(&two).expect("it is another client");
        assert_eq!(over(usage.request(&two)), "max-requests-in-all");
        let rate = Rate {
            level: 3.0,
            seen: Instant::now(),
        };
        // A third of a minute later one is allowed again.
        let level = rate.level_at(rate.seen + MINUTE / 3, 3);
        assert!((level - 2.0).abs() < 1e-9, "{level}");
    }
}
