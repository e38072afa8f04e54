//! Refusals of multi-key operations.

use std::io;

use pronghorn_ring::random::RandomError;
use thiserror::Error;

use super::{MAX_PARTIES, Party};
use crate::{
    bfv::BfvError,
    ckks::CkksError,
    rns::{ParameterError, RingError},
};

/// Why an operation is refused; nothing was computed.
#[derive(Debug, Error)]
pub enum MultiKeyError {
    /// Objects of different common reference strings.
    #[error("the operands belong to different common reference strings; make both with one seed")]
    Common,
    /// No keys of a party.
    #[error("there are no keys of party {party}; ask it for its public keys")]
    NoKeys {
        /// The party.
        party: Party,
    },
    /// No keys for products with another party's secret, and no key of the pair.
    #[error(
        "there is no key for products of party {party} and another; ask the other one for the key of the pair"
    )]
    NoPairKeys {
        /// The party.
        party: Party,
    },
    /// No keys for the linear relinearisation.
    #[error(
        "party {party} gave no keys for the linear relinearisation; generate them, or take the quadratic one"
    )]
    NoLinearKeys {
        /// The party.
        party: Party,
    },
    /// Too many parties, or none.
    #[error("{parties} parties; take 1 to {MAX_PARTIES}")]
    Parties {
        /// The number of parties.
        parties: usize,
    },
    /// The words are not one polynomial more than there are parties.
    #[error("{words} words are not {expected}: a polynomial for each party and one more")]
    Components {
        /// Words given.
        words: usize,
        /// Words wanted.
        expected: usize,
    },
    /// A sum of no products.
    #[error("there are no products to add; give one at least")]
    NoProducts,
    /// Factors of a sum of products that differ in their parties.
    #[error(
        "the left factors of a sum of products have one list of parties, and the right ones have one"
    )]
    Factors,
    /// The same party twice, or not in order.
    #[error("the parties are not in ascending order; the object is damaged")]
    Order,
    /// A rule of decryption whose noise does not fit.
    #[error(
        "{parties} floods of 2^{log_flood} beside a message of 2^{log_message:.1} do not fit half of a modulus of \
         2^{log_modulus:.1}; decrypt at more limbs, or allow fewer results"
    )]
    NoRoom {
        /// The number of parties.
        parties: usize,
        /// Bits of each flood.
        log_flood: u32,
        /// Bits of the message.
        log_message: f64,
        /// Bits of the modulus.
        log_modulus: f64,
    },
    /// A number of the rule that has no meaning.
    #[error("{field} of a rule of decryption is {found}; it must be finite and not negative")]
    Rule {
        /// The number.
        field: &'static str,
        /// Its value.
        found: f64,
    },
    /// A result that does not go with the rule.
    #[error("a result has {found} {field}, the rule of decryption says {expected}")]
    Result {
        /// What differs.
        field: &'static str,
        /// Its number.
        found: usize,
        /// The number in the rule.
        expected: usize,
    },
    /// A result of other parties.
    #[error("party {party} has no part in this result")]
    NotAParty {
        /// The party.
        party: Party,
    },
    /// A second request.
    #[error("this result was decrypted before; a partial decryption is given once")]
    Given,
    /// A request without a contribution before.
    #[error("this party re-randomised no such result; ask for its contribution first")]
    NotOffered,
    /// A request without the contribution of this party.
    #[error("the contribution of party {party} is missing or another; send each party's latest")]
    Contribution {
        /// The party.
        party: Party,
    },
    /// All results of this key were given.
    #[error("all {results} results of this key were given; make new keys")]
    Budget {
        /// Results there were.
        results: u64,
    },
    /// The ledger belongs to another key or rule.
    #[error("the ledger belongs to another key or another rule of decryption")]
    Ledger,
    /// The ledger was not written.
    #[error(
        "the ledger could not be written ({0}); nothing was decrypted, and this result is given up"
    )]
    Persist(#[source] io::Error),
    /// A partial decryption of another result.
    #[error(
        "the partial decryption of party {party} is missing, given twice, or of another result"
    )]
    Partial {
        /// The party.
        party: Party,
    },
    /// No such parameters.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// Refused by the ring: other parameters or limbs, or a key that is not there.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Refused by CKKS: scales or values.
    #[error(transparent)]
    Ckks(#[from] CkksError),
    /// Refused by BFV.
    #[error(transparent)]
    Bfv(#[from] BfvError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}
