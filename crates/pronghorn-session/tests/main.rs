//! Sessions over real sockets: good and hostile peers, stores, and golden bytes.

mod common;
mod damage;
mod hostile_clients;
mod hostile_servers;
mod kept;
mod limits;
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
mod strangers;
mod tls;
mod transcripts;
mod wire;
