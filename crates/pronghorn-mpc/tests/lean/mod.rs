//! Programs on shared bits: equal to the oracle, uniform views, counts.

mod activations;
mod argmax;
mod common;
mod counts;
mod hostile;
mod tables;
mod views;
