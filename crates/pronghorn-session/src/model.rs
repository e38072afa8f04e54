//! Names of the models of a server.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most bytes of a [`Label`].
const MOST: usize = 64;

/// The version of a model whose owner names none.
const FIRST: &str = "1";

/// The name of a model, or its version: 1 to 64 ASCII letters, digits, points, hyphens or
/// underscores.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

/// Text that names no model.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{text:?} names no model: give NAME or NAME@VERSION, each of 1 to {MOST} letters, digits, points, hyphens or \
     underscores"
)]
pub struct LabelError {
    /// What was given.
    pub text: String,
}

/// A model of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelId {
    /// Its name.
    pub name: Label,
    /// Its version.
    pub version: Label,
}

/// A model as a client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelRef {
    /// Its name.
    pub name: Label,
    /// Its version; none: the last one that the server's owner lists.
    pub version: Option<Label>,
}

impl TryFrom<String> for Label {
    type Error = LabelError;

    fn try_from(text: String) -> Result<Self, LabelError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        match (1..=MOST).contains(&text.len()) && text.bytes().all(fits) {
            true => Ok(Self(text)),
            false => Err(LabelError { text }),
        }
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ModelRef {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let label = |part: &str| {
            let text = text.to_owned();
            Label::try_from(part.to_owned()).map_err(|_| LabelError { text })
        };
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(label(version)?)),
            None => (text, None),
        };
        Ok(Self {
            name: label(name)?,
            version,
        })
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => self.name.fmt(f),
        }
    }
}

impl From<ModelRef> for ModelId {
    /// Without a version it is the first.
    fn from(asked: ModelRef) -> Self {
        Self {
            name: asked.name,
            version: asked.version.unwrap_or_else(|| Label(FIRST.into())),
        }
    }
}

impl From<ModelId> for ModelRef {
    fn from(id: ModelId) -> Self {
        Self {
            name: id.name,
            version: Some(id.version),
        }
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

impl ModelId {
    /// That of a plan's name, where it can be one; `model` otherwise.
    pub fn of_plan(name: &str) -> Self {
        let asked = name.parse().unwrap_or_else(|_| ModelRef {
            name: Label(pronghorn_plan::plan::MODEL.into()),
            version: None,
        });
        asked.into()
    }
}

impl ModelRef {
    /// Whether this names it.
    pub fn is(&self, id: &ModelId) -> bool {
        self.name == id.name
            && self
                .version
                .as_ref()
                .is_none_or(|asked| *asked == id.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models() {
        for text in ["a", "Triage_2.onnx", "triage@3", "a-b@2024.1"] {
            assert_eq!(text.parse::<ModelRef>().expect(text).to_string(), text);
        }
        let long = "x".repeat(MOST + 1);
        for text in [
            "", "@1", "a@", "a@1@2", "a b", "a/b", "\u{e9}", "a\n", &long,
        ] {
            let error = text.parse::<ModelRef>().expect_err(text);
            assert_eq!(error.text, text);
        }
    }

    #[test]
    fn a_name_without_a_version_is_of_any() {
        let id = ModelId::of_plan("triage@3");
        let asked = |text: &str| text.parse::<ModelRef>().expect(text).is(&id);
        assert!(asked("triage") && asked("triage@3"));
        assert!(!asked("triage@4") && !asked("other") && !asked("other@3"));
    }

    #[test]
    fn plans_of_any_name_have_a_model() {
        assert_eq!(ModelId::of_plan("triage").to_string(), "triage@1");
        assert_eq!(ModelId::of_plan("two words").to_string(), "model@1");
    }
}
