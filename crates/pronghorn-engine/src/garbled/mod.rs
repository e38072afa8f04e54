//! Steps on additive shares that are no linear maps: activations in garbled circuits, products by
//! oblivious transfer, and the opening of a result.
//!
//! The server garbles and is the sender of the oblivious transfers (OTs), the client evaluates: the
//! roles of Gazelle (section VII). A connection begins with their set-up ([`crate::ots`]). Then a
//! step is run by a pair of machines:
//!
//! | machines | shares in | shares out |
//! |---|---|---|
//! | [`GarbledClient`], [`GarbledServer`] | of the inputs of circuits, modulo `2^k` | of their outputs; or the client learns them |
//! | [`ProductClient`], [`ProductServer`] | of `x`, or of `x` and `y`, modulo `2^k` | of `x^2`, or of `x y`, modulo `2^k` |
//! | [`OpenClient`], [`OpenServer`] | of `x` modulo `2^k` | the client learns `x` |
//!
//! or, as the server's shares never depend on what the client has, in two phases: [`PrepareClient`]
//! and [`PrepareServer`] make garblings ahead, [`OnlineClient`] and [`OnlineServer`] use each of
//! them once; for products [`PrepareProductClient`], [`OnlineProductClient`] and their servers do.
//!
//! Shares modulo `2^k` are the low `k` bits of the words of [`Batch`](crate::share::Batch); bits
//! above them are arbitrary, both coming in and going out, but for values that the client learns.
//!
//! # What is revealed
//!
//! To the server nothing: it receives OT corrections, which are pseudorandom, and flips of random
//! choices. To the client nothing but outputs that are meant for it: its shares are uniform, its
//! labels say nothing about values, and of circuits it knows the shape anyway. This is against
//! semi-honest parties. A malicious client can only choose other inputs and guess at delta, and is
//! caught at that (the OTs' consistency check); a malicious server can garble another circuit.
//!
//! # Delta
//!
//! The sender's `Delta` of a connection is the offset of its labels in all its garblings, since
//! labels of inputs come straight from correlated OTs. Garblings differ in their start, which is
//! random (see [`pronghorn_mpc::garble`] on how bounds add up). Blocks of one extension are used as
//! labels or hashed to strings, never both.
//!
//! # Memory and messages
//!
//! The instances of a step are cut into *pieces*, garbled side by side on the cores there are;
//! pieces into *chunks*, one message each way; and chunks into *windows*, so that a round trip is
//! paid once a window of 16 MiB of labels. All lengths follow from the [`Layout`]: neither party
//! allocates what the other asks for. The messages of a garbled step, at once or ahead, are for
//! each window:
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the oblivious transfers of each chunk of the window | client | 26 an OT at width 5 |
//! | the garbled tables of each chunk of the window | server | those of its circuits |
//!
//! The modules `online`, `open`, `product` and `product_ahead` list the messages of the
//! other machines.

mod client;
mod factors;
mod layout;
mod online;
mod open;
mod prepare;
pub(crate) mod prepared;
mod product;
mod product_ahead;
mod schedule;
mod server;
pub(crate) mod sides;
mod work;

pub use client::GarbledClient;
pub use factors::{Factor, Factors, Products};
pub(crate) use layout::check_shape;
pub use layout::{Circuits, Group, Indices, Layout, Output};
pub use online::{OnlineClient, OnlineServer};
pub use open::{OpenClient, OpenServer, Opened};
pub use prepare::{PrepareClient, PrepareServer};
pub use prepared::{PreparedClient, PreparedServer};
pub use product::{ProductClient, ProductServer};
pub use product_ahead::{
    OnlineProductClient, OnlineProductServer, PrepareProductClient, PrepareProductServer,
    PreparedProductClient, PreparedProductServer,
};
pub use server::GarbledServer;

#[cfg(test)]
pub(crate) mod tests;
