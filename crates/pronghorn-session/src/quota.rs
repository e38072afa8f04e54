//! What clients share: places, memory, and what each has used.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    error::SessionError,
    lock::lock,
    store::{Owner, spent::Spent},
};

/// Clients whose images are counted in memory; further ones are refused.
const MAX_CLIENTS: usize = 1 << 16;

/// An amount that sessions take from and give back to.
pub(crate) struct Pool {
    total: u64,
    left: Mutex<u64>,
    changed: Condvar,
}

/// What was taken; given back on drop.
pub(crate) struct Taken<'a> {
    pool: &'a Pool,
    amount: u64,
}

impl Pool {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            left: Mutex::new(total),
            changed: Condvar::new(),
        }
    }

    /// Takes `amount`, waiting for it as long as `patience`; none when it does not come.
    pub(crate) fn take(&self, amount: u64, patience: Duration) -> Option<Taken<'_>> {
        if amount > self.total {
            return None;
        }
        let enough = |left: &mut u64| *left < amount;
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.left), patience, enough);
        let (mut left, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *left < amount {
            return None;
        }
        *left -= amount;
        Some(Taken { pool: self, amount })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *lock(&self.pool.left) += self.amount;
        self.pool.changed.notify_all();
    }
}

/// What all clients share: places, or bytes of memory. Of those who wait the client that holds least
/// comes first, then who came first, and nobody passes it: so one client does not keep others out,
/// nor small batches a large one.
pub(crate) struct Fair {
    state: Mutex<FairState>,
    changed: Condvar,
    /// How many wait, for those who hold what these wait for.
    waiting: Arc<AtomicUsize>,
}

struct FairState {
    total: u64,
    left: u64,
    closed: bool,
    held: HashMap<Owner, u64>,
    /// Tickets, and whose they are.
    queue: Vec<(u64, Owner)>,
    next: u64,
}

/// A part of it; given back on drop.
pub(crate) struct Share<'a> {
    pool: &'a Fair,
    client: Owner,
    amount: u64,
}

impl FairState {
    /// Whose turn it is.
    fn first(&self) -> Option<u64> {
        let held = |client: &Owner| self.held.get(client).copied().unwrap_or(0);
        let turn = |&&(ticket, client): &&(u64, Owner)| (held(&client), ticket);
        self.queue
            .iter()
            .min_by_key(turn)
            .map(|&(ticket, _)| ticket)
    }
}

impl Fair {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            state: Mutex::new(FairState {
                total,
                left: total,
                closed: false,
                held: HashMap::new(),
                queue: Vec::new(),
                next: 0,
            }),
            changed: Condvar::new(),
            waiting: Arc::default(),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        lock(&self.state).total
    }

    /// How much of it clients hold.
    pub(crate) fn used(&self) -> u64 {
        let state = lock(&self.state);
        state.total - state.left
    }

    /// Has at least so much from now on.
    pub(crate) fn grow(&self, total: u64) {
        let mut state = lock(&self.state);
        let more = total.saturating_sub(state.total);
        state.total += more;
        state.left += more;
        drop(state);
        self.changed.notify_all();
    }

    /// How many wait, now and later.
    pub(crate) fn waiting(&self) -> Arc<AtomicUsize> {
        self.waiting.clone()
    }

    /// Takes `amount`, waiting for it as long as `patience`, where fewer than `most` wait; none when
    /// it does not come, or the pool is closed.
    pub(crate) fn take(
        &self,
        client: Owner,
        amount: u64,
        patience: Duration,
        most: usize,
    ) -> Option<Share<'_>> {
        let started = Instant::now();
        let mut state = lock(&self.state);
        let at_once = state.queue.is_empty() && state.left >= amount;
        if amount > state.total || (state.queue.len() >= most && !at_once) {
            return None;
        }
        let ticket = state.next;
        state.next += 1;
        state.queue.push((ticket, client));
        let granted = loop {
            if state.closed {
                break false;
            }
            if state.left >= amount && state.first() == Some(ticket) {
                break true;
            }
            let left = patience.saturating_sub(started.elapsed());
            if left.is_zero() {
                break false;
            }
            self.waiting.store(state.queue.len(), Ordering::SeqCst);
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.queue.retain(|(other, _)| *other != ticket);
        self.waiting.store(state.queue.len(), Ordering::SeqCst);
        // It is another's turn now.
        self.changed.notify_all();
        granted.then(|| {
            state.left -= amount;
            *state.held.entry(client).or_default() += amount;
            Share {
                pool: self,
                client,
                amount,
            }
        })
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.pool.state);
        state.left += self.amount;
        if let Some(held) = state.held.get_mut(&self.client) {
            *held -= self.amount;
            if *held == 0 {
                state.held.remove(&self.client);
            }
        }
        drop(state);
        self.pool.changed.notify_all();
    }
}

/// Whom a server counts images and prepared batches for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// A client that nobody vouches for: an IPv4 address or an IPv6 /64.
    Network(IpAddr),
    /// The name in a client's certificate or token.
    Named(String),
}

const NAME: &str = "pronghorn 2026 name of a client";

impl Identity {
    /// Of a client at an address, with its name where it has shown one.
    pub(crate) fn new(client: IpAddr, name: Option<String>) -> Self {
        name.map_or_else(|| Self::Network(network(client)), Self::Named)
    }

    /// What stands for it in stores and queues. Names and addresses do not meet: a name's is a hash.
    pub(crate) fn owner(&self) -> Owner {
        match self {
            Self::Network(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
            Self::Network(IpAddr::V6(address)) => address.octets(),
            Self::Named(name) => {
                let hash = blake3::derive_key(NAME, name.as_bytes());
                *hash.first_chunk().expect("a hash has more bytes")
            }
        }
    }
}

/// Images each client has asked for.
pub(crate) struct ImageQuota {
    most: Option<u64>,
    used: Mutex<HashMap<Owner, u64>>,
    /// Where those of named clients outlive the process.
    record: Option<Spent>,
}

impl ImageQuota {
    pub(crate) fn new(most: Option<u64>) -> Self {
        Self {
            most,
            used: Mutex::default(),
            record: None,
        }
    }

    /// Keeps those of named clients in a record.
    pub(crate) fn with_record(self, record: Spent) -> Self {
        let record = Some(record);
        Self { record, ..self }
    }

    /// Where images of this client are counted over restarts.
    fn record_of(&self, client: &Identity) -> Option<&Spent> {
        let is_named = matches!(client, Identity::Named(_));
        self.record.as_ref().filter(|_| is_named)
    }

    /// Images the client has left, where they are limited.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn left(&self, client: &Identity) -> Result<Option<u64>, SessionError> {
        let Some(most) = self.most else {
            return Ok(None);
        };
        let owner = client.owner();
        if let Some(record) = self.record_of(client) {
            return Ok(Some(most.saturating_sub(record.of(&owner)?)));
        }
        let used = lock(&self.used);
        Ok(Some(match used.get(&owner) {
            Some(&images) => most.saturating_sub(images),
            None if used.len() < MAX_CLIENTS => most,
            None => 0,
        }))
    }

    /// Counts a batch, if the client has as many images left.
    pub(crate) fn spend(&self, client: &Identity, asked: u64) -> Result<(), SessionError> {
        let Some(most) = self.most else { return Ok(()) };
        let owner = client.owner();
        let check = |before: u64| {
            let left = most.saturating_sub(before);
            match asked <= left {
                true => Ok(()),
                false => Err(SessionError::Quota { asked, left }),
            }
        };
        if let Some(record) = self.record_of(client) {
            return record.spend(&owner, asked, check);
        }
        let mut used = lock(&self.used);
        let is_full = used.len() >= MAX_CLIENTS && !used.contains_key(&owner);
        let before = match is_full {
            true => most,
            false => used.get(&owner).copied().unwrap_or(0),
        };
        check(before)?;
        used.insert(owner, before + asked);
        Ok(())
    }
}

/// What counts as one client: an IPv4 address, an IPv6 /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const NONE: Duration = Duration::ZERO;

    #[test]
    fn a_pool_gives_what_it_has_and_takes_it_back() {
        let pool = Pool::new(10);
        assert!(pool.take(11, Duration::MAX).is_none());
        let six = pool.take(6, NONE).expect("ten are there");
        assert!(pool.take(5, NONE).is_none());
        let four = pool.take(4, NONE).expect("four are left");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(6, Duration::MAX).is_some());
            drop(six);
            assert!(waiting.join().expect("no panic"));
        });
        drop(four);
        assert!(pool.take(10, NONE).is_some());
    }

    #[test]
    fn closed_pools_end_waiting() {
        let memory = Fair::new(1);
        let client = [1; 16];
        let _one = memory.take(client, 1, NONE, 9);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| memory.take(client, 1, Duration::MAX, 9).is_none());
            memory.close();
            assert!(waiting.join().expect("no panic"));
        });
    }

    /// A client that asks for more and more does not go before one that has nothing, though it came
    /// first.
    #[test]
    fn who_holds_least_gets_memory_first() {
        let memory = Fair::new(11);
        let [greedy, other] = [[1; 16], [2; 16]];
        let six = memory.take(greedy, 6, NONE, 9).expect("eleven are there");
        let four = memory.take(greedy, 4, NONE, 9).expect("five are left");
        let _one = memory.take(greedy, 1, NONE, 9).expect("one is left");
        assert!(
            memory.take(other, 1, NONE, 9).is_none() && memory.take(other, 12, NONE, 9).is_none()
        );
        let waiting = |count| {
            while memory.waiting().load(Ordering::SeqCst) != count {
                thread::sleep(Duration::from_millis(1));
            }
        };
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let take = |client, amount| {
                let (memory, order) = (&memory, &order);
                scope.spawn(move || {
                    let share = memory.take(client, amount, Duration::MAX, 9);
                    lock(order).push((client, amount));
                    drop(share);
                })
            };
            take(greedy, 4);
            waiting(1);
            take(other, 7);
            waiting(2);
            // Enough for the first who came, and not for the one whose turn it is.
            drop(four);
            thread::sleep(Duration::from_millis(20));
            assert!(lock(&order).is_empty());
            drop(six);
        });
        assert_eq!(*lock(&order), [(other, 7), (greedy, 4)]);
    }

    #[test]
    fn few_may_wait() {
        let pool = Fair::new(1);
        let first = pool.take([1; 16], 1, NONE, 0).expect("nobody waits");
        assert!(pool.take([2; 16], 1, Duration::MAX, 0).is_none());
        assert_eq!(pool.used(), 1);
        pool.grow(2);
        assert!(pool.take([2; 16], 1, NONE, 0).is_some());
        drop(first);
        assert_eq!((pool.used(), pool.total()), (0, 2));
    }

    fn at(address: &str) -> Identity {
        Identity::new(address.parse().expect("it is an address"), None)
    }

    fn named(name: &str) -> Identity {
        Identity::Named(name.into())
    }

    #[test]
    fn images_count_by_network() {
        let quota = ImageQuota::new(Some(5));
        let [v4, same, other] = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"].map(at);
        quota.spend(&v4, 3).expect("five left");
        assert!(matches!(
            quota.spend(&same, 3),
            Err(SessionError::Quota { asked: 3, left: 2 })
        ));
        let left = |client| quota.left(client).expect("nothing is read");
        assert_eq!((left(&same), left(&other)), (Some(2), Some(5)));
        let [a, b] = ["2001:db8::1", "2001:db8::ffff:2"].map(at);
        quota.spend(&a, 5).expect("five left");
        assert_eq!(left(&b), Some(0));
        let unlimited = ImageQuota::new(None);
        assert_eq!(unlimited.left(&a).expect("nothing is read"), None);
    }

    #[test]
    fn images_of_names_count_over_restarts_and_addresses() {
        let path = std::env::temp_dir().join(format!("pronghorn-spent-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let open = |most| {
            let record = Spent::open(&path).expect("it is ours");
            ImageQuota::new(Some(most)).with_record(record)
        };
        fn left(quota: &ImageQuota, client: &Identity) -> u64 {
            quota
                .left(client)
                .expect("it is ours")
                .expect("it is limited")
        }
        let first = open(10);
        first.spend(&named("alice"), 4).expect("ten left");
        first.spend(&at("10.0.0.1"), 9).expect("ten left");
        // Another process at the same time.
        let second = open(10);
        second.spend(&named("alice"), 4).expect("six left");
        second.spend(&named("bob"), 1).expect("ten left");
        assert!(matches!(
            first.spend(&named("alice"), 3),
            Err(SessionError::Quota { asked: 3, left: 2 })
        ));
        drop((first, second));
        // A record that was cut within its last entry.
        let file = path.join("server").join("spent");
        let length = std::fs::metadata(&file).expect("it is there").len();
        let cut = std::fs::OpenOptions::new().write(true).open(&file);
        cut.and_then(|file| file.set_len(length - 5))
            .expect("it is ours");
        let third = open(10);
        assert_eq!(left(&third, &named("alice")), 2);
        third.spend(&named("bob"), 2).expect("some are left");
        third.spend(&named("carol"), 3).expect("ten left");
        let fourth = open(10);
        assert_eq!(left(&fourth, &named("carol")), 7);
        assert_eq!(left(&fourth, &at("10.0.0.1")), 10);
        // A limit below what was spent leaves nothing.
        assert_eq!(left(&open(5), &named("alice")), 0);
        std::fs::remove_dir_all(path).expect("it is ours");
    }
}
