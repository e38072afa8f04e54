//! The protocols of steps, a folder or a file each.

pub mod activation;
pub mod encrypted;
pub mod input;
pub mod linear;
pub mod local;
pub mod open;
pub mod toy;
