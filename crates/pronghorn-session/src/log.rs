//! What a server writes down: a line for people, and its parts for programs. No secrets.

use std::fmt;

use crate::text::printable;

/// How much an entry matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever looks for an error: connections that said nothing, such as health probes.
    Debug,
    /// What happens all day.
    Info,
    /// What its owner should know: refusals, clients that failed.
    Warning,
    /// What its owner should act on.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// A part of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Number(u64),
    /// A time in seconds.
    Seconds(f64),
    /// A name, an address, a reason; printable.
    Text(String),
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// How much it matters.
    pub level: Level,
    /// What happened, in a word.
    pub event: &'static str,
    /// All of it as a line of printable text; what a peer wrote is escaped.
    pub text: String,
    /// Its parts.
    pub fields: Vec<(&'static str, Value)>,
}

impl Entry {
    pub(crate) fn new(level: Level, event: &'static str, text: &str) -> Self {
        Self {
            level,
            event,
            text: printable(text, "; "),
            fields: Vec::new(),
        }
    }

    /// With a name, an address or a reason.
    pub(crate) fn text(mut self, name: &'static str, text: impl fmt::Display) -> Self {
        let text = Value::Text(printable(&text.to_string(), "; "));
        self.fields.push((name, text));
        self
    }

    /// With a count.
    pub(crate) fn number(mut self, name: &'static str, number: u64) -> Self {
        self.fields.push((name, Value::Number(number)));
        self
    }

    /// With a time.
    pub(crate) fn seconds(mut self, name: &'static str, seconds: f64) -> Self {
        self.fields.push((name, Value::Seconds(seconds)));
        self
    }
}
