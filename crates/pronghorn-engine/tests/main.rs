//! The engine as its callers see it: protocols against the oracle, and golden transcripts.

mod argmax;
mod bands;
mod common;
mod costs;
mod encrypted;
mod features;
mod functions;
mod oracle;
mod toy;
mod transcripts;
mod two_party;
