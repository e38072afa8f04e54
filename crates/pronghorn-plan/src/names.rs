//! The names of the model's file. A plan has none of its nodes: they stay with its owner.

use serde::{Deserialize, Serialize};

/// The names of a model and of its nodes, for its owner alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Of the model.
    pub model: String,
    /// Of the node that each step of the plan comes from, by step.
    pub steps: Vec<String>,
}

/// One of several outputs of a model, as clients get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedOutput {
    /// Its name.
    pub name: String,
    /// Its shape, without the batch.
    pub shape: Vec<usize>,
}

impl Names {
    /// The node that step `index` comes from, if there is such a step.
    pub fn step(&self, index: usize) -> Option<&str> {
        self.steps.get(index).map(String::as_str)
    }
}
