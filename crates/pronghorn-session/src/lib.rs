//! Sessions: handshake, framing, limits, client and server.
//!
//! Protocol code lives in `pronghorn-engine` as state machines without I/O; this crate moves their
//! messages over a [`Transport`] (plain TCP on this machine, TLS 1.3 beyond it), bounds everything a
//! peer sends before allocating for it, and turns every failure into a [`SessionError`] that ends
//! one session only.
//!
//! # The protocol, version 2
//!
//! A connection carries frames, the same both ways: the length of a payload (`u32`), its kind
//! ([`frame::Kind`]), and the payload. `docs/wire.md` has each message with its fields, bounds and
//! golden bytes, and the order of a session. `Data` is a message of the machines, at most
//! [`Machine::max_incoming`] bytes. Roles of `multi-key` have messages of their own ([`multikey`]).
//!
//! A client that sends `ListingRequest` in place of `ClientHello` is answered by `Listing`, and the
//! connection ends.
//!
//! A preparation that `Begin` names the client has taken from its store by then. The server takes
//! its half from its own, and the batch runs without preparation where it has none of that name
//! (any more); the client's half is then destroyed.
//!
//! The client ends a preparation with `Done`, too. The server keeps its half once it has compared
//! the client's digest with its own, the client once it has compared the server's. A prediction
//! leaves nothing with the server, so there the client alone compares, before it returns outputs or
//! keeps what the server published, and no message is added.
//!
//! `Begin` and `Prepare` say how many of both the client has begun on the connection. Each takes
//! oblivious transfers that both parties count. Where the server counts otherwise the session ends:
//! results would be wrong.
//!
//! # The channel
//!
//! On TLS both parties derive 32 bytes from the connection ([`ClientChannel`], [`ServerChannel`]),
//! which only its two ends have. They are hashed into the plan hash of `Begin` and `Prepare`, the
//! nonces of oblivious transfers and the transcript. A relay that opens one channel and makes
//! another is noticed at `Begin`. One that forges the plan's name and the transcript, which have no
//! secret, makes oblivious transfers that do not fit. The frames are those of plain TCP otherwise.
//!
//! # Models
//!
//! A server has any number of models, each with a name and versions, and maybe the names of the
//! clients that it is for ([`Offer`]). A client that names no version gets the last one that the
//! owner lists; one that names no model gets the only one there is for it. A client is told of
//! models only once it has shown who it is, where the server asks for that. A model that is not for
//! it and one that does not exist give the same answer. Batches of all models share places, memory
//! and the count of images.
//!
//! # Damage on the way
//!
//! Both parties hash all frames of a connection but `Error`, both ways, each with its place, kind
//! and length ([`transcript`]). They do so while a frame is on its way or before they wait, so that
//! it adds little to a prediction's time. `Done` ends with the digest of all frames up to itself,
//! its own fields included. Where the two differ the line or a proxy changed something: the batch
//! ends with [`SessionError::Damaged`], nothing of it is used or kept, and a new connection may try
//! again.
//!
//! # Rest
//!
//! Between batches a client may be silent for as long as the server keeps connections
//! ([`Limits::keep_alive`]). The server then sends `Error` of code 13 ([`ErrorCode::Idle`]) and
//! closes. Whatever crosses that on the line was not read. A client that was connected by its
//! address connects again and begins once more; halves of a preparation that it has named are lost.
//!
//! So it is where others wait for the client's place, after a batch that ends its turn or where it has
//! nothing to ask for ([`Limits::turn`]): the code is 18 ([`ErrorCode::Turn`]). `Done` says so of the
//! last batch, so that a client takes no preparation for the next one on this connection.
//!
//! # Errors and bounds
//!
//! Either side sends `Error` at any time and closes. The server refuses another version, another
//! trust level than its plan's and another plan than the client expects; the client checks all
//! three again, recomputes the hash from the plan it decoded, and validates the plan. A frame of an
//! unknown kind, out of turn, longer than its bound or cut short ends the session.
//!
//! # What is revealed
//!
//! To the server: the client's address and its name, the number of images, timing; a preparation
//! that is used on another connection than it was made on tells that both are the same client's. To
//! who listens on the line: on plain TCP also the plan, on TLS lengths, times and addresses. Errors a client sends name only a category, never what its machine met,
//! because that may depend on decrypted values; that it failed, was cancelled or wanted too many
//! images is visible. What the messages themselves reveal is the engine's matter.
//!
//! # Threads and memory
//!
//! A session has one thread and a writer thread behind a channel of two messages, so that the next
//! message is computed while the last is sent. Reading ahead is left to the kernel's socket
//! buffers. A server bounds its sessions, the connections of an address, and the memory of the
//! batches that run at once ([`Limits`]). A connection takes a place once its hello is read, and waits
//! for one in turn; every refusal is an `Error` frame.
//!
//! [`Machine::max_incoming`]: pronghorn_engine::Machine::max_incoming

mod channel;
mod client;
mod drive;
mod error;
pub mod frame;
mod in_process;
pub mod limits;
mod link;
mod lock;
mod log;
pub mod message;
mod metrics;
mod model;
pub mod multikey;
mod partings;
pub mod proxy;
mod quota;
mod reason;
mod refill;
mod server;
pub mod store;
mod text;
pub mod ticket;
pub mod transcript;
mod transport;
mod usage;
mod writer;

pub use channel::{
    ChannelError, ClientChannel, ClientTls, KeyRequest, ServerChannel, ServerTls, Token, Trusted,
    check_files, fingerprint, make_keys,
};
#[cfg(any(test, feature = "fixed-keys"))]
pub use channel::{Opened, Peers};
pub use client::{
    Client, ConnectOptions, ImagesDone, Inputs, Prediction, Stats, TicketSource, list_models,
};
pub use error::{ErrorCode, SessionError};
pub use frame::FrameError;
pub use in_process::{InProcess, in_process, in_process_dithered, in_process_watched};
pub use limits::{Limits, table::LimitError};
pub use log::{Entry, Level, Value};
pub use metrics::{Metrics, ModelMetrics, Phase};
pub use model::{Label, LabelError, ModelId, ModelRef};
pub use refill::Refill;
pub use server::{Offer, Preparing, Server, Service};
pub use transport::Transport;
