//! The roles of `multi-key` over connections: [`CloudServer`] listens, a model owner
//! ([`OwnerKeys::attend`]) and clients ([`CloudClient`]) connect to it.
//!
//! The state machines and their messages are in [`pronghorn_multikey::roles`]. Here they get
//! channels, time limits, bounds and files. The channel protects the way to the cloud. The cloud
//! itself is not trusted: what protects inputs and weights from it is encryption alone.
//!
//! # Messages
//!
//! A message is a frame `Role`, and its body in frames `Data` of at most 1 MiB. `Role` has
//! (little-endian)
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind |
//! | 8 | length of the body |
//! | 32 | BLAKE3 of the body, which finds accidents of the line |
//!
//! | kind | name | from, to | body | at most |
//! |---|---|---|---|---|
//! | 1 | `Hello` | owner or client, cloud | `"PRONGHRN"`, version `u16`, role (1 owner, 2 client), the owner's name (32), of an owner the name of its publication (16) | 64 KiB |
//! | 2 | `Wanted` | cloud, both | whether the publication, or the public keys, are to be sent (1), and their most bytes (8) | 9 |
//! | 3 | `Publication` | owner, cloud | the publication | the cloud's limit |
//! | 4 | `Keys` | client, cloud | public keys | by the description, and the cloud's limit |
//! | 5 | `Ready` | cloud, both | empty: the owner is attended, the client may ask | 0 |
//! | 6 | `Offer` | cloud, client | the offer | 64 MiB |
//! | 7 | `Introduction` | client, cloud, owner | the client's encryption key | by the description |
//! | 8 | `Request` | client, cloud | the encrypted image | by the description |
//! | 9 | `Outcome` | cloud, both | the result under both keys | by the description |
//! | 10 | `Answer` | owner, cloud, client | the owner's contribution and partial decryption | by the description |
//! | 11 | `Alive` | cloud, owner, cloud | empty | 0 |
//! | 12 | `Refused` | any | a category ([`Refusal`], 1), text | 4 KiB |
//! | 13 | `Bye` | client, cloud | empty | 0 |
//! | 14 | `Pair` | cloud, owner | the name of an introduced client | 32 |
//! | 15 | `PairKey` | owner, cloud | the key of the owner and that client | by the description |
//!
//! ```text
//! owner: Hello, <- Wanted, (Publication,) <- Ready;
//!        then any of <- Introduction, Alive | <- Pair, PairKey | <- Outcome, Answer | <- Alive, Alive;
//!        Refused in place of an answer
//! client: Hello, <- Offer, Introduction, <- Wanted, (Keys,) <- Ready;
//!        then for each image Request, <- Outcome, <- Answer, or <- Refused in place of what the
//!        cloud sends; Bye
//! ```
//!
//! The cloud asks the owner one thing at a time. Keys are sent once: the cloud keeps them in its
//! directory, and asks the owner about a client before it takes them. The owner makes the key of
//! the pair: a client's own keys may be false ([`PairKey`](pronghorn_he::multikey::PairKey)).

mod attended;
mod client;
mod cloud;
mod error;
mod files;
mod handover;
mod joining;
mod limits;
pub mod message;
mod owner;
mod peer;
mod sessions;

pub use client::CloudClient;
pub use cloud::{CloudOptions, CloudServer};
pub use error::{CloudError, Refusal};
pub use files::client_seed;
pub use limits::CloudLimits;
pub use owner::OwnerKeys;
