//! The names of the model's file. A plan has none of them: they stay with its owner.

use serde::{Deserialize, Serialize};

/// The names of a model and of its nodes, for its owner alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Of the model.
    pub model: String,
    /// Of the node that each step of the plan comes from, by step.
    pub steps: Vec<String>,
}

impl Names {
    /// The node that step `index` comes from, if there is such a step.
    pub fn step(&self, index: usize) -> Option<&str> {
        self.steps.get(index).map(String::as_str)
    }
}
