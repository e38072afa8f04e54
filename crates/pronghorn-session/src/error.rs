//! What can go wrong in a session, in words for users, and in codes for the wire.

use std::io;

use pronghorn_engine::EngineError;
use pronghorn_plan::{PlanError, TrustLevel, trust::TrustError};
use thiserror::Error;

use crate::{
    channel::ChannelError,
    frame::{FrameError, Kind},
    limits::table::OverLimit,
    model::{ModelId, ModelRef},
    proxy::ProxyError,
    store::StoreError,
    text::hex,
    ticket::TicketError,
};

/// Why a session, or the attempt at one, ended.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No trust level was named, or one that this version lacks.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The address makes no sense.
    #[error(
        "{address:?} is no address to connect to or listen on ({source}): give HOST:PORT, such as localhost:7700"
    )]
    Address {
        /// What was given.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// Nobody answered.
    #[error("cannot connect to {address} ({source}): {}", connect_hint(source))]
    Connect {
        /// Where.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The server cannot listen.
    #[error("cannot listen on {address} ({source}): is another server running there?")]
    Bind {
        /// Where.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The peer speaks something else.
    #[error(
        "the peer does not speak Pronghorn's protocol: check host and port, and that no proxy is in between"
    )]
    NotPronghorn,
    /// The peer speaks another version.
    #[error(
        "this side speaks version {ours} of the protocol, the peer version {theirs}: use the same version of pronghorn on both sides"
    )]
    Version {
        /// Of this crate.
        ours: u16,
        /// Of the peer.
        theirs: u16,
    },
    /// The plan is served under another trust level than the user asked for.
    #[error(
        "the client asked for trust level {asked}, and the server's model is served as {offered}; ask for {offered} only if what it reveals is acceptable:\n{}",
        TrustLevel::table()
    )]
    TrustMismatch {
        /// By the client's user.
        asked: TrustLevel,
        /// By the server.
        offered: TrustLevel,
    },
    /// The plan is another than expected.
    #[error(
        "the plan is {}, expected was {}: the model or its plan has changed; check with the server's owner",
        hex(found),
        hex(expected)
    )]
    PlanHash {
        /// What the user, or the handshake, named.
        expected: [u8; 32],
        /// What there is.
        found: [u8; 32],
    },
    /// The parties count the OTs of a connection differently: results would be wrong.
    #[error(
        "the client has begun {found} batches and preparations on this connection, and the server \
         counts {expected}: what both keep for it does not fit together. A new connection begins both \
         counts anew"
    )]
    OutOfStep {
        /// The client's.
        found: u64,
        /// The server's.
        expected: u64,
    },
    /// The server has no such model for this client.
    #[error(
        "the server has no model {asked} for this client: `pronghorn models` lists those that it may ask for"
    )]
    NoModel {
        /// What it asked for.
        asked: ModelRef,
    },
    /// The server has several models for this client, or none, and it named none.
    #[error(
        "the client named no model, and the server has {count} for it: name one of those that `pronghorn models` \
         lists (--model NAME, model=NAME)"
    )]
    Unnamed {
        /// Models that it may ask for.
        count: usize,
    },
    /// The server answers with another model.
    #[error("the client asked for model {asked}, and the server answers with {offered}")]
    AnotherModel {
        /// By the client.
        asked: ModelRef,
        /// By the server.
        offered: ModelId,
    },
    /// The models cannot be served together.
    #[error("the server's models are refused: {reason}")]
    Models {
        /// What is wrong.
        reason: String,
    },
    /// The server's plan is not one to follow.
    #[error("the server's plan is refused: {0}")]
    Plan(#[from] PlanError),
    /// A message that does not decode.
    #[error("the peer's {kind:?} message is malformed: {reason}")]
    Message {
        /// Which message.
        kind: Kind,
        /// What is wrong.
        reason: String,
    },
    /// The server promises what no honest server does.
    #[error("the server's {field} is {found}, {expected}")]
    Handshake {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
        /// What it may be.
        expected: String,
    },
    /// The two parties' hashes of what they have sent differ.
    #[error("the connection damaged the data on the way: nothing of this batch is used or kept")]
    Damaged,
    /// A frame could not be read or written.
    #[error(transparent)]
    Frame(FrameError),
    /// The channel is not made, or ends.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// No images, or more than the server takes at once.
    #[error("a batch of {found} images was asked for; this server takes 1 to {most} at once")]
    Batch {
        /// Images asked for.
        found: usize,
        /// Most the server takes.
        most: usize,
    },
    /// The server's plan asks this client for more memory than its user allows.
    #[error(
        "this plan needs {needed} bytes of the client's memory, and {allowed} are allowed: predict fewer images at a \
         time, or raise the limit if you trust the server"
    )]
    ClientMemory {
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// The inputs are not a whole number of images.
    #[error("{found} input values given; {images} images of {elements} values need {}", images.saturating_mul(*elements))]
    Inputs {
        /// Values given.
        found: usize,
        /// Images.
        images: usize,
        /// Values an image.
        elements: usize,
    },
    /// The client has used up its images.
    #[error(
        "{asked} images were asked for, and this client has {left} left: ask the server's owner for more"
    )]
    Quota {
        /// Images asked for.
        asked: u64,
        /// Images left.
        left: u64,
    },
    /// The server has as many clients as it takes.
    #[error(
        "the server is busy: it serves at most {most} clients at once, and others wait; try again later"
    )]
    TooManyClients {
        /// Most clients at once.
        most: u64,
    },
    /// A limit on what clients use is reached.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// A load balancer did not say who connects.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The client has no ticket that serves.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// An admission service gave no ticket for a connection.
    #[error("{text}")]
    NoTicket {
        /// Its words.
        text: String,
        /// Whether to ask again later.
        is_passing: bool,
    },
    /// Other batches use the server's memory.
    #[error(
        "the server is busy: the batch needs {needed} bytes of the {allowed} that all batches share; try again later, or with fewer images"
    )]
    Memory {
        /// By this batch.
        needed: u64,
        /// To all batches.
        allowed: u64,
    },
    /// The server's own limits contradict each other or its plan.
    #[error("the server's limit {field} is refused: {reason}")]
    Limits {
        /// The field of `Limits`.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// More prepared batches than the server keeps.
    #[error("{found} prepared batches were asked for; the server keeps {most} for each client")]
    Prepared {
        /// Asked for.
        found: usize,
        /// Most it keeps.
        most: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The client has no address to connect to again.
    #[error("batches are prepared in the background over a second connection: connect by address")]
    NoAddress,
    /// The second connection met another server, or one that was started anew without its store.
    #[error("the server is another than before: connect again")]
    AnotherServer,
    /// The client's keys were false before.
    #[error(
        "{name} is served no more: its keys were false before; the server's owner can remove the name from \
         the list of barred clients"
    )]
    Barred {
        /// The name in the client's certificate or token.
        name: String,
    },
    /// The client had nothing to ask for longer than the server keeps a connection.
    #[error("the connection rested for longer than the server keeps one open")]
    Idle,
    /// Others wait for the client's place.
    #[error("the client's turn is over: others wait for its place; connect again")]
    Turn,
    /// The server's owner stopped it.
    #[error("the server is being stopped")]
    Stopping,
    /// The machine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The machines do not agree on whose turn it is.
    #[error(
        "the two parties' machines wait for each other: this is a bug in pronghorn; please report it"
    )]
    Stuck,
    /// The peer gave up and said why.
    #[error("the peer ended the session: {text}")]
    Peer {
        /// Its category.
        code: ErrorCode,
        /// Its words, with control characters escaped.
        text: String,
    },
    /// This side's user ended the work.
    #[error("cancelled: connect again to go on")]
    Cancelled,
    /// An earlier error ended this client's session.
    #[error("the session is over since an earlier error: connect again")]
    Over,
    /// The operating system gave no thread or no handle.
    #[error("the operating system refused {what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A thread panicked.
    #[error("the session met a bug in pronghorn and was ended; please report it")]
    Bug,
}

/// A channel's error comes out of the stream as one of its operations'.
impl From<FrameError> for SessionError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Io(error) => match error.downcast::<ChannelError>() {
                Ok(error) => Self::Channel(error),
                Err(error) => Self::Frame(FrameError::Io(error)),
            },
            other => Self::Frame(other),
        }
    }
}

/// What to do about a peer whose messages make no sense.
const SAME_VERSION: &str = "use the same version of pronghorn on both sides; where that is so already, tell the server's owner";

/// What to do about a line that changes what it carries.
const TRY_AGAIN: &str = "connect and predict again; if it happens again, check the network, its proxies and this machine's memory";

fn connect_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "is `pronghorn serve` (or `multikey cloud`) running there, on that port?"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            "is the host up, and does a firewall let the port through?"
        }
        _ => "check the address and the network",
    }
}

/// Categories of errors on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// 1: malformed, oversized, out of turn.
    Protocol,
    /// 2: another version.
    Version,
    /// 3: another trust level.
    Trust,
    /// 4: another plan, or one that is refused.
    Plan,
    /// 5: too large a batch, or no images left.
    Limit,
    /// 6: try again later.
    Busy,
    /// 7: the peer was too slow.
    Timeout,
    /// 8: the protocol's machine refused a message.
    Engine,
    /// 9: a bug, or the operating system failed.
    Internal,
    /// 10: the server is being stopped.
    Stopping,
    /// 11: the client's user ended the work.
    Cancelled,
    /// 12: the line changed what was sent.
    Damaged,
    /// 13: the client rested for too long between two batches.
    Idle,
    /// 14: the parties have no protected channel, or not one.
    Channel,
    /// 15: the client has not shown who it is.
    Unauthorised,
    /// 16: the client's keys are false, now or before.
    FalseKeys,
    /// 17: the server has no such model for the client.
    Model,
    /// 18: others wait for the client's place; it may connect again at once.
    Turn,
    /// Any other, of a later version.
    Other(u16),
}

impl ErrorCode {
    const KNOWN: [Self; 18] = [
        Self::Protocol,
        Self::Version,
        Self::Trust,
        Self::Plan,
        Self::Limit,
        Self::Busy,
        Self::Timeout,
        Self::Engine,
        Self::Internal,
        Self::Stopping,
        Self::Cancelled,
        Self::Damaged,
        Self::Idle,
        Self::Channel,
        Self::Unauthorised,
        Self::FalseKeys,
        Self::Model,
        Self::Turn,
    ];

    /// The number on the wire.
    pub fn to_wire(self) -> u16 {
        match self {
            Self::Protocol => 1,
            Self::Version => 2,
            Self::Trust => 3,
            Self::Plan => 4,
            Self::Limit => 5,
            Self::Busy => 6,
            Self::Timeout => 7,
            Self::Engine => 8,
            Self::Internal => 9,
            Self::Stopping => 10,
            Self::Cancelled => 11,
            Self::Damaged => 12,
            Self::Idle => 13,
            Self::Channel => 14,
            Self::Unauthorised => 15,
            Self::FalseKeys => 16,
            Self::Model => 17,
            Self::Turn => 18,
            Self::Other(code) => code,
        }
    }

    /// The category of a number.
    pub fn from_wire(code: u16) -> Self {
        Self::KNOWN
            .into_iter()
            .find(|known| known.to_wire() == code)
            .unwrap_or(Self::Other(code))
    }

    /// What a client's user can do when the server says this.
    fn advice(self) -> Option<&'static str> {
        match self {
            Self::Timeout => Some(
                "this side or the network was slower than the server allows: send fewer images at once, or ask its \
                 owner for a longer --idle-timeout",
            ),
            Self::Stopping => Some("connect again once it runs again"),
            Self::Damaged => Some(TRY_AGAIN),
            Self::Idle | Self::Turn => Some("connect again"),
            Self::Protocol | Self::Engine => Some(SAME_VERSION),
            Self::Internal => Some("the server's log says more: ask its owner, then try again"),
            _ => None,
        }
    }

    /// What a client says of its own failure: the category in words, nothing that depends on its
    /// data.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Protocol => "the client could not read the server's message",
            Self::Version => "the client speaks another version",
            Self::Trust => "the client refuses the server's trust level",
            Self::Plan => "the client refuses the server's plan",
            Self::Limit => {
                "the client wants more images than it is granted, or than its own memory holds"
            }
            Self::Busy => "the client is busy",
            Self::Timeout => "the server was too slow for the client's time limit",
            Self::Engine => "the client's side of the computation failed",
            Self::Cancelled => "the client's user cancelled",
            Self::Damaged => "the connection damaged what the server sent",
            Self::Channel => "the client and the server have no common channel",
            Self::Internal
            | Self::Stopping
            | Self::Idle
            | Self::Unauthorised
            | Self::FalseKeys
            | Self::Model
            | Self::Turn
            | Self::Other(_) => "the client failed",
        }
    }
}

impl SessionError {
    /// The category that the peer is told.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Version { .. } => ErrorCode::Version,
            Self::Trust(_) | Self::TrustMismatch { .. } => ErrorCode::Trust,
            Self::PlanHash { .. }
            | Self::Plan(_)
            | Self::AnotherModel { .. }
            | Self::Handshake { .. } => ErrorCode::Plan,
            Self::NoModel { .. } | Self::Unnamed { .. } => ErrorCode::Model,
            Self::Batch { .. }
            | Self::Inputs { .. }
            | Self::ClientMemory { .. }
            | Self::Prepared { .. }
            | Self::Store(StoreError::TooLarge { .. })
            | Self::Quota { .. } => ErrorCode::Limit,
            Self::Ticket(error) if !error.is_passing() => ErrorCode::Unauthorised,
            Self::NoTicket {
                is_passing: false, ..
            } => ErrorCode::Unauthorised,
            Self::Ticket(_) | Self::NoTicket { .. } => ErrorCode::Busy,
            Self::OverLimit(over) if !over.cap.limit.is_retryable() => ErrorCode::Limit,
            Self::OverLimit(_) | Self::TooManyClients { .. } | Self::Memory { .. } => {
                ErrorCode::Busy
            }
            Self::Frame(FrameError::Timeout) => ErrorCode::Timeout,
            Self::Store(StoreError::Known { .. }) => ErrorCode::Protocol,
            Self::NotPronghorn
            | Self::Message { .. }
            | Self::OutOfStep { .. }
            | Self::Proxy(_)
            | Self::Frame(_) => ErrorCode::Protocol,
            Self::Damaged | Self::Engine(EngineError::Damaged { .. }) => ErrorCode::Damaged,
            Self::Barred { .. } | Self::Engine(EngineError::FalseKeys) => ErrorCode::FalseKeys,
            Self::Engine(_) => ErrorCode::Engine,
            Self::Stopping => ErrorCode::Stopping,
            Self::Idle => ErrorCode::Idle,
            Self::Turn => ErrorCode::Turn,
            Self::Channel(error) if error.is_about_client() => ErrorCode::Unauthorised,
            Self::Channel(_) => ErrorCode::Channel,
            Self::Cancelled => ErrorCode::Cancelled,
            Self::Peer { code, .. } => *code,
            Self::Address { .. }
            | Self::Connect { .. }
            | Self::Bind { .. }
            | Self::Limits { .. }
            | Self::Models { .. }
            | Self::Stuck
            | Self::Over
            | Self::Store(_)
            | Self::NoAddress
            | Self::AnotherServer
            | Self::System { .. }
            | Self::Bug => ErrorCode::Internal,
        }
    }

    /// What a client's user can do about it, where the message itself does not say.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Frame(FrameError::Timeout) => Some(
                "the server computes between two messages: give it more time (--timeout SECONDS, timeout=SECONDS) or \
                 fewer images at once; if it should be quick, look whether it is still running and reachable",
            ),
            Self::Frame(FrameError::Closed | FrameError::Truncated { .. } | FrameError::Io(_)) => {
                Some(
                    "the server or the network in between has ended the connection: connect again once the server runs",
                )
            }
            Self::Frame(_) | Self::Message { .. } | Self::Handshake { .. } | Self::Plan(_) => {
                Some(SAME_VERSION)
            }
            Self::Damaged | Self::Engine(EngineError::Damaged { .. }) => Some(TRY_AGAIN),
            Self::Peer { code, .. } => code.advice(),
            Self::System { .. } => Some(
                "this machine is short of memory, threads or open files: close what needs them",
            ),
            _ => None,
        }
    }

    /// Whether the peer is still there to be told.
    pub(crate) fn is_worth_telling(&self) -> bool {
        if let Self::Channel(error) = self {
            return error.is_worth_telling();
        }
        !matches!(
            self,
            Self::Peer { .. }
                | Self::Over
                | Self::Frame(
                    FrameError::Closed | FrameError::Truncated { .. } | FrameError::Io(_)
                )
        )
    }
}

/// A first frame that is none means that the peer speaks another protocol.
pub(crate) fn foreign_peer(error: SessionError) -> SessionError {
    match error {
        SessionError::Frame(
            FrameError::UnknownKind { .. }
            | FrameError::Unexpected { .. }
            | FrameError::TooLong { .. }
            | FrameError::Truncated { .. },
        ) => SessionError::NotPronghorn,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for code in 0..100 {
            assert_eq!(ErrorCode::from_wire(code).to_wire(), code);
        }
        assert_eq!(ErrorCode::from_wire(99), ErrorCode::Other(99));
    }

    #[test]
    fn errors_say_what_to_do() {
        let source = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = SessionError::Connect {
            address: "localhost:1".into(),
            source,
        };
        assert!(
            error
                .to_string()
                .contains("is `pronghorn serve` (or `multikey cloud`) running")
        );
        let error = SessionError::TrustMismatch {
            asked: TrustLevel::TwoParty,
            offered: TrustLevel::ClientAided,
        };
        assert!(error.to_string().contains("EVERY WEIGHT"));
        assert!(
            SessionError::Version { ours: 1, theirs: 7 }
                .to_string()
                .contains("version 7")
        );
    }
}
