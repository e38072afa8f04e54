//! Graphs as their callers see them: floats, fixed point and the passes between.

mod common;
mod fixed_point;
mod float;
mod functions;
mod normalisations;
mod oracle;
mod passes;
mod polynomial;
mod products;
