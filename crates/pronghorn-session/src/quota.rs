//! What clients share: places, memory, and what each has used.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::error::SessionError;

/// Addresses whose images are counted; further ones are refused.
const MAX_ADDRESSES: usize = 1 << 16;

/// Locks; what these mutexes guard is consistent after every statement, a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An amount that sessions take from and give back to.
pub(crate) struct Pool {
    total: u64,
    state: Mutex<PoolState>,
    changed: Condvar,
}

struct PoolState {
    left: u64,
    closed: bool,
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
            state: Mutex::new(PoolState {
                left: total,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Takes `amount`, waiting for it as long as `patience`; none when it does not come, or the pool is closed.
    pub(crate) fn take(&self, amount: u64, patience: Duration) -> Option<Taken<'_>> {
        if amount > self.total {
            return None;
        }
        let deadline = Instant::now().checked_add(patience);
        let mut state = lock(&self.state);
        while !state.closed && state.left < amount {
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return None;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if state.closed {
            return None;
        }
        state.left -= amount;
        Some(Taken { pool: self, amount })
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        lock(&self.pool.state).left += self.amount;
        self.pool.changed.notify_all();
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
    fn a_closed_pool_ends_waiting() {
        let pool = Pool::new(1);
        let _one = pool.take(1, NONE);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.take(1, Duration::MAX).is_none());
            pool.close();
            assert!(waiting.join().expect("no panic"));
        });
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
