//! Two-party protocols: circuits, garbling, lean steps and oblivious transfer.

mod circuit;
mod garble;
mod lean;
mod ot;
