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

use crate::{limits::table::Key, lock::lock, store::Owner};

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
/// nor small batches a large one. Who may hold no more by a limit of its own keeps nobody waiting.
pub(crate) struct Fair {
    state: Mutex<FairState>,
    changed: Condvar,
    /// How many wait, for those who hold what these wait for.
    waiting: Arc<AtomicUsize>,
}

/// Who takes, and how much its client and its address may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub client: Owner,
    pub address: Owner,
    /// In the unit of the pool; none: no limit. Who holds nothing may always take one part.
    pub most: [Option<u64>; 2],
}

/// Why nothing was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It did not come in time, too many wait, or it is closed.
    Busy,
    /// The client, or its address, holds as much as it may.
    Over(Key),
}

struct FairState {
    total: u64,
    left: u64,
    closed: bool,
    clients: HashMap<Owner, u64>,
    addresses: HashMap<Owner, u64>,
    queue: Vec<Waiting>,
    next: u64,
}

struct Waiting {
    ticket: u64,
    claim: Claim,
    amount: u64,
}

/// A part of it; given back on drop.
pub(crate) struct Share<'a> {
    pool: &'a Fair,
    claim: Claim,
    amount: u64,
}

impl FairState {
    /// The limit of its own that a claim is at.
    fn over(&self, claim: &Claim, amount: u64) -> Option<Key> {
        let held = [
            self.clients.get(&claim.client),
            self.addresses.get(&claim.address),
        ];
        let keys = [Key::Client, Key::Address];
        let mut all = keys.into_iter().zip(held).zip(claim.most);
        let is_over = |(held, most): (Option<&u64>, Option<u64>)| {
            held.zip(most)
                .is_some_and(|(held, most)| held + amount > most)
        };
        all.find(|((_, held), most)| is_over((*held, *most)))
            .map(|((key, _), _)| key)
    }

    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        let may = |waiting: &&Waiting| self.over(&waiting.claim, waiting.amount).is_none();
        self.queue.iter().filter(may)
    }

    /// Whose turn it is.
    fn first(&self) -> Option<u64> {
        let held = |client: &Owner| self.clients.get(client).copied().unwrap_or(0);
        self.waiting()
            .min_by_key(|waiting| (held(&waiting.claim.client), waiting.ticket))
            .map(|waiting| waiting.ticket)
    }

    fn take(&mut self, claim: &Claim, amount: u64) {
        self.left -= amount;
        *self.clients.entry(claim.client).or_default() += amount;
        *self.addresses.entry(claim.address).or_default() += amount;
    }

    fn give_back(&mut self, claim: &Claim, amount: u64) {
        self.left += amount;
        subtract(&mut self.clients, &claim.client, amount);
        subtract(&mut self.addresses, &claim.address, amount);
    }
}

/// Counts less; who has nothing is forgotten.
pub(crate) fn subtract(held: &mut HashMap<Owner, u64>, owner: &Owner, amount: u64) {
    if let Some(own) = held.get_mut(owner) {
        *own -= amount;
        if *own == 0 {
            held.remove(owner);
        }
    }
}

impl Fair {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            state: Mutex::new(FairState {
                total,
                left: total,
                closed: false,
                clients: HashMap::new(),
                addresses: HashMap::new(),
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

    /// How many wait for others, now and later.
    pub(crate) fn waiting(&self) -> Arc<AtomicUsize> {
        self.waiting.clone()
    }

    /// Takes `amount`, waiting for it as long as `patience`, where fewer than `most` wait.
    pub(crate) fn take(
        &self,
        claim: Claim,
        amount: u64,
        patience: Duration,
        most: usize,
    ) -> Result<Share<'_>, Denied> {
        let started = Instant::now();
        let mut state = lock(&self.state);
        let over = state.over(&claim, amount);
        let at_once = state.waiting().next().is_none() && state.left >= amount && over.is_none();
        if amount > state.total || (state.queue.len() >= most && !at_once) {
            return Err(over.map_or(Denied::Busy, Denied::Over));
        }
        let ticket = state.next;
        state.next += 1;
        state.queue.push(Waiting {
            ticket,
            claim,
            amount,
        });
        let denied = loop {
            if state.closed {
                break Some(Denied::Busy);
            }
            if state.left >= amount && state.first() == Some(ticket) {
                break None;
            }
            let left = patience.saturating_sub(started.elapsed());
            if left.is_zero() {
                let over = state.over(&claim, amount);
                break Some(over.map_or(Denied::Busy, Denied::Over));
            }
            self.count(&state);
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.queue.retain(|waiting| waiting.ticket != ticket);
        if denied.is_none() {
            state.take(&claim, amount);
        }
        self.count(&state);
        // It is another's turn now.
        self.changed.notify_all();
        match denied {
            Some(denied) => Err(denied),
            None => Ok(Share {
                pool: self,
                claim,
                amount,
            }),
        }
    }

    fn count(&self, state: &FairState) {
        self.waiting
            .store(state.waiting().count(), Ordering::SeqCst);
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
        state.give_back(&self.claim, self.amount);
        self.pool.count(&state);
        drop(state);
        self.pool.changed.notify_all();
    }
}

/// What is open of each client, each address and in all.
#[derive(Default)]
pub(crate) struct Open(Mutex<HashMap<(Key, Owner), u64>>);

/// One that is counted; given back on drop.
pub(crate) struct Counted<'a> {
    open: &'a Open,
    owner: (Key, Owner),
}

impl Open {
    /// Counts one more, where fewer than `most` are open.
    pub(crate) fn enter(&self, key: Key, owner: Owner, most: u64) -> Option<Counted<'_>> {
        let owner = (key, owner);
        let mut open = lock(&self.0);
        let own = open.get(&owner).copied().unwrap_or(0);
        if own >= most {
            return None;
        }
        open.insert(owner, own + 1);
        Some(Counted { open: self, owner })
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut open = lock(&self.open.0);
        if let Some(own) = open.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.owner);
            }
        }
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

    fn claim(client: u8) -> Claim {
        Claim {
            client: [client; 16],
            address: [client; 16],
            most: [None; 2],
        }
    }

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
        let client = claim(1);
        let _one = memory.take(client, 1, NONE, 9);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| memory.take(client, 1, Duration::MAX, 9).is_err());
            memory.close();
            assert!(waiting.join().expect("no panic"));
        });
    }

    /// A client that asks for more and more does not go before one that has nothing, though it came
    /// first.
    #[test]
    fn who_holds_least_gets_memory_first() {
        let memory = Fair::new(11);
        let [greedy, other] = [1, 2].map(claim);
        let six = memory.take(greedy, 6, NONE, 9).expect("eleven are there");
        let four = memory.take(greedy, 4, NONE, 9).expect("five are left");
        let _one = memory.take(greedy, 1, NONE, 9).expect("one is left");
        assert!(
            memory.take(other, 1, NONE, 9).is_err() && memory.take(other, 12, NONE, 9).is_err()
        );
        let waiting = |count| {
            while memory.waiting().load(Ordering::SeqCst) != count {
                thread::sleep(Duration::from_millis(1));
            }
        };
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let take = |client: Claim, amount| {
                let (memory, order) = (&memory, &order);
                scope.spawn(move || {
                    let share = memory.take(client, amount, Duration::MAX, 9);
                    lock(order).push((client.client, amount));
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
        assert_eq!(*lock(&order), [(other.client, 7), (greedy.client, 4)]);
    }

    #[test]
    fn few_may_wait() {
        let pool = Fair::new(1);
        let first = pool.take(claim(1), 1, NONE, 0).expect("nobody waits");
        assert!(pool.take(claim(2), 1, Duration::MAX, 0).is_err());
        assert_eq!(pool.used(), 1);
        pool.grow(2);
        assert!(pool.take(claim(2), 1, NONE, 0).is_ok());
        drop(first);
        assert_eq!((pool.used(), pool.total()), (0, 2));
    }

    /// Who holds as much as it may waits for itself alone: others pass, and none is asked to leave.
    #[test]
    fn who_is_at_a_limit_of_its_own_keeps_nobody_waiting() {
        let pool = Fair::new(10);
        let limited = Claim {
            most: [Some(4), None],
            ..claim(1)
        };
        let neighbour = Claim {
            client: [3; 16],
            most: [None, Some(5)],
            ..limited
        };
        // More than its limit, as it holds nothing.
        let six = pool.take(limited, 6, NONE, 9).expect("ten are there");
        let refused = |claim, amount, most| pool.take(claim, amount, NONE, most).err();
        assert_eq!(refused(limited, 1, 0), Some(Denied::Over(Key::Client)));
        assert_eq!(refused(neighbour, 1, 9), Some(Denied::Over(Key::Address)));
        assert_eq!(refused(claim(2), 5, 9), Some(Denied::Busy));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(limited, 1, Duration::MAX, 9).is_ok());
            while lock(&pool.state).queue.is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(pool.waiting().load(Ordering::SeqCst), 0);
            assert!(pool.take(claim(2), 4, NONE, 9).is_ok());
            drop(six);
            assert!(waiting.join().expect("no panic"));
        });
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn what_is_open_is_counted_for_each() {
        let open = Open::default();
        let first = open.enter(Key::Client, [1; 16], 2).expect("none is open");
        let _second = open.enter(Key::Client, [1; 16], 2).expect("one is open");
        assert!(open.enter(Key::Client, [1; 16], 2).is_none());
        assert!(open.enter(Key::Address, [1; 16], 2).is_some());
        drop(first);
        assert!(open.enter(Key::Client, [1; 16], 2).is_some());
    }
}
