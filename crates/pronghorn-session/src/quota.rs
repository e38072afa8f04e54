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

use crate::{error::SessionError, lock::lock};

/// Addresses whose images are counted; further ones are refused.
const MAX_ADDRESSES: usize = 1 << 16;

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

    pub(crate) fn total(&self) -> u64 {
        self.total
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

/// Bytes that the batches of all clients share. Of those who wait the address that holds least
/// comes first, and nobody passes it: so one address does not keep others out, nor small batches a
/// large one.
pub(crate) struct Memory {
    total: u64,
    state: Mutex<MemoryState>,
    changed: Condvar,
    /// Batches that wait, for those who hold what these wait for.
    waiting: Arc<AtomicUsize>,
}

struct MemoryState {
    left: u64,
    closed: bool,
    held: HashMap<IpAddr, u64>,
    /// Tickets, and whose they are.
    queue: Vec<(u64, IpAddr)>,
    next: u64,
}

/// Bytes of it; given back on drop.
pub(crate) struct Share<'a> {
    memory: &'a Memory,
    client: IpAddr,
    amount: u64,
}

impl MemoryState {
    /// Whose turn it is.
    fn first(&self) -> Option<u64> {
        let held = |client: &IpAddr| self.held.get(client).copied().unwrap_or(0);
        let turn = |&&(ticket, client): &&(u64, IpAddr)| (held(&client), ticket);
        self.queue
            .iter()
            .min_by_key(turn)
            .map(|&(ticket, _)| ticket)
    }
}

impl Memory {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            state: Mutex::new(MemoryState {
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
        self.total
    }

    /// How many batches wait, now and later.
    pub(crate) fn waiting(&self) -> Arc<AtomicUsize> {
        self.waiting.clone()
    }

    /// Takes `amount`, waiting for it as long as `patience`; none when it does not come, or the
    /// memory is closed.
    pub(crate) fn take(
        &self,
        client: IpAddr,
        amount: u64,
        patience: Duration,
    ) -> Option<Share<'_>> {
        if amount > self.total {
            return None;
        }
        let client = network(client);
        let started = Instant::now();
        let mut state = lock(&self.state);
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
                memory: self,
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
        let mut state = lock(&self.memory.state);
        state.left += self.amount;
        if let Some(held) = state.held.get_mut(&self.client) {
            *held -= self.amount;
            if *held == 0 {
                state.held.remove(&self.client);
            }
        }
        drop(state);
        self.memory.changed.notify_all();
    }
}

/// Images each client has asked for.
pub(crate) struct ImageQuota {
    most: Option<u64>,
    used: Mutex<HashMap<IpAddr, u64>>,
}

impl ImageQuota {
    pub(crate) fn new(most: Option<u64>) -> Self {
        Self {
            most,
            used: Mutex::default(),
        }
    }

    /// Images the client has left, where they are limited.
    pub(crate) fn left(&self, client: IpAddr) -> Option<u64> {
        let most = self.most?;
        let used = lock(&self.used);
        match used.get(&network(client)) {
            Some(&images) => Some(most - images),
            None if used.len() < MAX_ADDRESSES => Some(most),
            None => Some(0),
        }
    }

    /// Counts a batch, if the client has as many images left.
    pub(crate) fn spend(&self, client: IpAddr, asked: u64) -> Result<(), SessionError> {
        let Some(most) = self.most else { return Ok(()) };
        let mut used = lock(&self.used);
        let network = network(client);
        let full = used.len() >= MAX_ADDRESSES && !used.contains_key(&network);
        let before = used.get(&network).copied().unwrap_or(0);
        let left = if full { 0 } else { most - before };
        if asked > left {
            return Err(SessionError::Quota { asked, left });
        }
        used.insert(network, before + asked);
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
    fn closed_memory_ends_waiting() {
        let memory = Memory::new(1);
        let client = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let _one = memory.take(client, 1, NONE);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| memory.take(client, 1, Duration::MAX).is_none());
            memory.close();
            assert!(waiting.join().expect("no panic"));
        });
    }

    /// A client that asks for more and more does not go before one that has nothing, though it came
    /// first.
    #[test]
    fn who_holds_least_gets_memory_first() {
        let memory = Memory::new(11);
        let [greedy, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|a| a.parse().unwrap());
        let six = memory.take(greedy, 6, NONE).expect("eleven are there");
        let four = memory.take(greedy, 4, NONE).expect("five are left");
        let _one = memory.take(greedy, 1, NONE).expect("one is left");
        assert!(memory.take(other, 1, NONE).is_none() && memory.take(other, 12, NONE).is_none());
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
                    let share = memory.take(client, amount, Duration::MAX);
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
    fn images_count_by_network() {
        let quota = ImageQuota::new(Some(5));
        let [v4, same, other]: [IpAddr; 3] =
            ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"].map(|a| a.parse().unwrap());
        quota.spend(v4, 3).expect("five left");
        assert!(matches!(
            quota.spend(same, 3),
            Err(SessionError::Quota { asked: 3, left: 2 })
        ));
        assert_eq!((quota.left(same), quota.left(other)), (Some(2), Some(5)));
        let [a, b]: [IpAddr; 2] = ["2001:db8::1", "2001:db8::ffff:2"].map(|a| a.parse().unwrap());
        quota.spend(a, 5).expect("five left");
        assert_eq!(quota.left(b), Some(0));
        assert_eq!(ImageQuota::new(None).left(a), None);
    }
}
