//! Limits of a cloud. What its clients use is limited by the table of servers
//! ([`LIMITS`](crate::limits::table::LIMITS)), and counted in its directory.
//!
//! | resource | at a cloud |
//! |---|---|
//! | sessions | connections of clients after their hello |
//! | memory | evaluations at once |
//! | requests | hellos and images |
//! | set-ups | public keys that are sent |
//! | images | images that are evaluated |
//! | bytes | those of clients' connections, keys included |

use std::{net::IpAddr, thread, time::Duration};

use super::{
    cloud::CloudServer,
    error::{CloudError, Refusal},
};
use crate::{
    error::{ErrorCode, SessionError},
    limits::table::{Caps, Key, Resource},
    quota::{Counted, Denied, Fair, Share},
    usage::{Whose, over},
};

/// Most connections in all where the table has no value.
const CONNECTIONS: u64 = 64;

/// Limits of a cloud.
#[derive(Clone, Debug)]
pub struct CloudLimits {
    /// What clients may use. Most connections in all are 64 where no value is given, that of the
    /// owner included.
    pub caps: Caps,
    /// Most clients whose public keys are in memory. Those of others are read from the disk when
    /// they ask.
    pub clients: usize,
    /// Most clients whose public keys are on the disk.
    pub kept: usize,
    /// Most bytes of a publication, and of a party's public keys. Keys take about twice their bytes
    /// in memory.
    pub upload: u64,
    /// Images that are evaluated at once.
    pub evaluations: u64,
    /// How long a client waits for a place, and a request for its evaluation.
    pub queue: Duration,
    /// How long a peer may be silent within an exchange.
    pub idle: Duration,
    /// How long a client may rest between two images.
    pub rest: Duration,
    /// How long a new connection has to introduce itself.
    pub hello: Duration,
}

impl Default for CloudLimits {
    fn default() -> Self {
        Self {
            caps: Caps::default(),
            clients: 4,
            kept: 64,
            upload: 2 << 30,
            evaluations: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            queue: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            rest: Duration::from_secs(600),
            hello: Duration::from_secs(5),
        }
    }
}

/// A client, and bytes of its connection that were counted.
pub(super) struct Guest {
    pub whose: Whose,
    counted: u64,
}

impl Guest {
    pub fn new(whose: Whose) -> Self {
        Self { whose, counted: 0 }
    }
}

impl CloudServer {
    fn caps(&self) -> &Caps {
        &self.options.limits.caps
    }

    /// Counts a connection in all, and of its address.
    pub(super) fn count_connection(
        &self,
        address: IpAddr,
    ) -> Result<[Counted<'_>; 2], SessionError> {
        let most = self.caps().of(Resource::Connections, Key::All);
        let all = self
            .usage
            .connect(most.map_or(CONNECTIONS, |cap| cap.most))?;
        let most = self.caps().connections_of(Key::Address, address);
        Ok([all, self.usage.connect_from(address, most)?])
    }

    /// Counts a hello, and a connection of whoever has sent it.
    pub(super) fn count_hello(&self, whose: &Whose) -> Result<Counted<'_>, CloudError> {
        self.usage.request(whose).map_err(limited)?;
        let most = self.caps().connections_of(Key::Client, whose.ip);
        self.usage.connect_client(whose, most).map_err(limited)
    }

    /// A client's place, for which it waits.
    pub(super) fn place_for(&self, whose: &Whose) -> Result<Share<'_>, CloudError> {
        let most = |key| Some(self.caps().of(Resource::Sessions, key)?.most);
        self.share_of(&self.places, Resource::Sessions, whose, most, most)
    }

    /// A turn to evaluate, for which a request waits.
    pub(super) fn turn_for(&self, whose: &Whose) -> Result<Share<'_>, CloudError> {
        let percent = |key| self.caps().memory_share_of(key, whose.ip);
        let most = |key| Some(self.turns.total() * percent(key)? / 100);
        self.share_of(&self.turns, Resource::Memory, whose, most, percent)
    }

    /// One part of what clients share. A client and its address have `most` parts, by limits of
    /// these values.
    fn share_of<'a>(
        &self,
        shared: &'a Fair,
        resource: Resource,
        whose: &Whose,
        most: impl Fn(Key) -> Option<u64>,
        value: impl Fn(Key) -> Option<u64>,
    ) -> Result<Share<'a>, CloudError> {
        let patience = self.options.limits.queue;
        let share = shared.take(whose.claim(most), 1, patience, usize::MAX);
        share.map_err(|denied| match denied {
            _ if self.is_stopping() => SessionError::Stopping.into(),
            Denied::Over(key) => limited(over(resource, key, value(key))),
            Denied::Busy => CloudError::Refused {
                refusal: Refusal::Busy,
                text: "the cloud is busy: try again later".into(),
            },
        })
    }

    /// Counts public keys that are to come.
    pub(super) fn count_keys(&self, whose: &Whose) -> Result<(), CloudError> {
        let more = [(Resource::Setups, 1), (Resource::Bytes, 0)];
        self.usage.begin(whose, &more).map_err(limited)
    }

    /// Counts an image that was asked for.
    pub(super) fn count_request(&self, whose: &Whose) -> Result<(), CloudError> {
        self.usage.request(whose).map_err(limited)
    }

    /// Counts an image that is to be evaluated.
    pub(super) fn count_image(&self, whose: &Whose) -> Result<(), CloudError> {
        let images = [Resource::Images, Resource::DailyImages].map(|resource| (resource, 1));
        let more = [&images[..], &[(Resource::Bytes, 0)]].concat();
        self.usage.begin(whose, &more).map_err(limited)
    }

    /// Counts the bytes of a client's connection, of which there are so many.
    pub(super) fn count_bytes(&self, guest: &mut Guest, bytes: [u64; 2]) -> Result<(), CloudError> {
        let all = bytes.iter().sum();
        let more = all - guest.counted;
        guest.counted = all;
        Ok(self.usage.add_bytes(&guest.whose, more)?)
    }
}

/// A limit in the words of roles, after which the client may ask on.
fn limited(error: SessionError) -> CloudError {
    let refusal = match error.code() {
        ErrorCode::Busy => Refusal::Busy,
        ErrorCode::Limit => Refusal::Limit,
        _ => return error.into(),
    };
    let text = error.to_string();
    CloudError::Refused { refusal, text }
}
