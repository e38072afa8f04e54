//! What a network computes: operators and shapes in floating point ([`graph`]), the same in
//! fixed point ([`fixed`]), the passes that lead from one to the other, and the plain
//! fixed-point evaluator every secure engine is tested against (the oracle).

pub mod fixed;
pub mod geometry;
pub mod graph;
