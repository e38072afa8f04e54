//! Work cut into chunks, and their messages.

use std::ops::Range;

use crate::exchange::{Message, Messages};

/// Bytes that bound memory and messages. Both parties must have the same.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Of tables, and of labels, of a piece: what one core garbles in one go.
    pub piece: usize,
    /// Of tables of a chunk.
    pub tables: usize,
    /// Of labels of a chunk.
    pub labels: usize,
    /// Of labels of a window.
    pub window: usize,
    /// Of flips, where garblings made ahead are used, in a message.
    pub flips: usize,
    /// Not bytes but words, where they are sent as they are, in a message.
    pub words: usize,
}

impl Limits {
    /// Pieces stay in the second-level cache; a chunk has enough of them for sixteen cores.
    pub const DEFAULT: Self = Self {
        piece: 1 << 17,
        tables: 1 << 21,
        labels: 1 << 22,
        window: 1 << 24,
        flips: 1 << 20,
        words: 1 << 20,
    };
}

/// One message of OTs from the client, one answer from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// What it covers: pieces of a garbled step, words of squares.
    pub range: Range<usize>,
    /// OTs.
    pub ots: usize,
    /// Bytes of the answer.
    pub answer: usize,
}

/// The client's message for a chunk.
pub(super) const OTS: &str = "the oblivious transfers";

/// The messages of a step: the client sends those for all chunks of a window, then the server
/// answers for all of them. Windows have as many chunks as have at most `window` OTs, at least one
/// each. The server's answers are `answer`s; a message of `n` OTs has `bytes(n)` bytes, which its
/// reader checks.
pub(super) fn messages(
    (step, rows): (&str, usize),
    chunks: &[Chunk],
    window: usize,
    answer: &'static str,
    bytes: impl Fn(usize) -> usize,
) -> Messages {
    let mut messages = Messages::new(step).in_rows(rows);
    let mut rest = chunks;
    while !rest.is_empty() {
        let (chunks, after) = rest.split_at(chunks_of_window(rest, window));
        let ots = |chunk: &Chunk| Message::client(OTS, bytes(chunk.ots)).open().rows(1);
        let answer = |chunk: &Chunk| Message::server(answer, chunk.answer).rows(1);
        messages = messages
            .with_all(chunks.iter().map(ots))
            .with_all(chunks.iter().map(answer));
        rest = after;
    }
    messages
}

/// How many chunks from the first on are a window.
fn chunks_of_window(chunks: &[Chunk], window: usize) -> usize {
    let held = chunks.iter().scan(0usize, |held, chunk| {
        *held = held.saturating_add(chunk.ots);
        Some(*held)
    });
    held.take_while(|&held| held <= window).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_what_they_may_and_at_least_a_chunk() {
        let chunk = |ots| Chunk {
            range: 0..1,
            ots,
            answer: 100 + ots,
        };
        let chunks = [5, 5, 1, 20, 3, 7].map(chunk);
        let messages = |chunks: &[Chunk]| {
            let bytes = |ots| 1000 + ots;
            messages(("relu", 12), chunks, 10, "the tables", bytes).to_string()
        };
        let expected = "\
client  2 x the oblivious transfers, at most 1005 bytes
server  2 x the tables, 105 bytes
client  1 x the oblivious transfers, at most 1001 bytes
server  1 x the tables, 101 bytes
client  1 x the oblivious transfers, at most 1020 bytes
server  1 x the tables, 120 bytes
client  1 x the oblivious transfers, at most 1003 bytes
client  1 x the oblivious transfers, at most 1007 bytes
server  1 x the tables, 103 bytes
server  1 x the tables, 107 bytes
";
        assert_eq!(messages(&chunks), expected);
        assert_eq!(messages(&[]), "");
    }
}
