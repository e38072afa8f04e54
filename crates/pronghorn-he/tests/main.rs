//! Encryption as its callers see it: BFV, CKKS, multi-key, shares, and bytes of each.

mod bfv;
mod bfv_wire;
mod ckks;
mod ckks_wire;
mod multikey;
mod rlwe;
mod shares;
