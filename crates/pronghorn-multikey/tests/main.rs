//! Multi-key protocols without sockets: packings, networks, roles, and golden bytes.

mod network;
mod packing;
mod roles;
mod transcripts;
