//! The words of a step, which [`text`](crate::text) puts into a table.

use crate::rlwe::Rlwe;

/// A step in words and numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// What happens, in a few words.
    pub what: String,
    /// Degree and modulus; empty for a step without ciphertexts.
    pub ring: String,
    /// All parameters; empty for a step without any.
    pub parameters: String,
}

impl Description {
    /// Of a step without parameters.
    pub fn of(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            ..Self::default()
        }
    }

    /// Of a step with these ring and parameters.
    pub(crate) fn with_ring(rlwe: &Rlwe, parameters: String) -> Self {
        Self {
            what: String::new(),
            ring: format!("N {}, {} bits", rlwe.degree, rlwe.modulus_bits()),
            parameters,
        }
    }
}

/// Cut to so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most - 1).collect();
    kept + "…"
}
