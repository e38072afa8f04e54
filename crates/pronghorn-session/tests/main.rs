//! Sessions over real sockets: good and hostile peers, stores, and golden bytes.

mod common;
mod kept;
mod models;
mod multikey;
mod multikey_hostile;
mod multikey_limits;
mod multikey_names;
mod multikey_wire;
mod names;
mod operation;
mod prepared;
mod roles;
mod sessions;
mod silent_errors;
mod splice;
mod tls;
mod transcripts;
mod wire;
