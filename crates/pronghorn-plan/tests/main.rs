//! Plans as their callers see them: costs, texts, layouts and refusals.

mod bands;
mod common;
mod costs;
mod features;
mod garbled;
mod kept;
mod layouts;
mod names;
mod outputs;
mod planner;
mod refusals;
mod shares;
mod tables;
mod text;
