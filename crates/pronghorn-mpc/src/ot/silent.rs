//! Silent OT.

mod check;
mod code;
mod parameters;
mod receiver;
pub mod security;
mod sender;
mod simd;
mod stream;
mod tree;

pub use check::{ANSWER_BYTES, CHALLENGE_BYTES};
pub use parameters::{Chain, LpnParameters};
pub use receiver::SilentReceiver;
pub use sender::SilentSender;

use super::OtError;

const CORRECTIONS: &str = "the corrections of silent OT";
const CHALLENGE: &str = "the challenge of silent OT";
const ANSWER: &str = "the answer to the challenge of silent OT";

const ROUND_TURN: OtError = OtError::OutOfTurn {
    state: "a round of silent OT starts when all OTs of the round before have been taken",
};
const ANSWER_TURN: OtError = OtError::OutOfTurn {
    state: "an answer of silent OT follows a round's challenge, once",
};
const TAKE_TURN: OtError = OtError::OutOfTurn {
    state: "silent OT gives OTs after the check of a round",
};

#[cfg(test)]
mod tests;
