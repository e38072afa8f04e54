//! Sessions with short limits of time: apart from tests that compute much.

mod common;
mod damage;
mod hostile_clients;
mod hostile_servers;
mod limits;
mod strangers;
