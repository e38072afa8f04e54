//! Work cut into chunks, and whose turn it is.

use std::ops::Range;

use crate::machine::{Progress, Want};

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

/// Whose turn it is, on what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The client sends the OTs of a chunk.
    Ots(usize),
    /// The server answers for a chunk.
    Answer(usize),
    /// Nobody's.
    Over,
}

/// The chunks of a step and how far it is: the client sends its messages for all chunks of a window, then the server sends its.
pub(super) struct Schedule {
    chunks: Vec<Chunk>,
    /// The first chunk of each window, and the number of chunks.
    windows: Vec<usize>,
    window: usize,
    turn: Turn,
}

impl Schedule {
    /// Windows of as many chunks as have at most `window` OTs, at least one each.
    pub fn new(chunks: Vec<Chunk>, window: usize) -> Self {
        let (mut windows, mut held) = (vec![0], 0usize);
        for (index, chunk) in chunks.iter().enumerate() {
            held = held.saturating_add(chunk.ots);
            if held > window && windows.last() != Some(&index) {
                windows.push(index);
                held = chunk.ots;
            }
        }
        let turn = if chunks.is_empty() {
            Turn::Over
        } else {
            windows.push(chunks.len());
            Turn::Ots(0)
        };
        Self {
            chunks,
            windows,
            window: 0,
            turn,
        }
    }

    /// Whose turn it is.
    pub fn turn(&self) -> Turn {
        self.turn
    }

    /// Goes on to the next message.
    pub fn advance(&mut self) {
        let in_window = |chunk| chunk < self.windows[self.window + 1];
        self.turn = match self.turn {
            Turn::Ots(chunk) if in_window(chunk + 1) => Turn::Ots(chunk + 1),
            Turn::Ots(_) => Turn::Answer(self.windows[self.window]),
            Turn::Answer(chunk) if in_window(chunk + 1) => Turn::Answer(chunk + 1),
            Turn::Answer(chunk) if chunk + 1 < self.chunks.len() => {
                self.window += 1;
                Turn::Ots(chunk + 1)
            }
            Turn::Answer(_) | Turn::Over => Turn::Over,
        };
    }

    /// A chunk.
    pub fn chunk(&self, index: usize) -> &Chunk {
        &self.chunks[index]
    }

    /// All of them.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// What the client waits for.
    pub fn client_wants(&self) -> Want {
        match self.turn {
            Turn::Ots(_) => Want::Send,
            Turn::Answer(_) => Want::Receive,
            Turn::Over => Want::Done,
        }
    }

    /// What the server waits for.
    pub fn server_wants(&self) -> Want {
        match self.turn {
            Turn::Ots(_) => Want::Receive,
            Turn::Answer(_) => Want::Send,
            Turn::Over => Want::Done,
        }
    }

    /// How far it is, in `rows` of the step.
    pub fn progress(&self, rows: usize) -> Progress {
        let total = self.chunks.len();
        // Half of a chunk's work each for its OTs and its answer.
        let halves = match self.turn {
            Turn::Ots(chunk) => self.windows[self.window] + chunk,
            Turn::Answer(chunk) => self.windows[self.window + 1] + chunk,
            Turn::Over => 2 * total,
        };
        let done = rows as u128 * halves as u128 / (2 * total).max(1) as u128;
        Progress {
            done: if total == 0 { rows as u64 } else { done as u64 },
            total: rows as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_what_they_may_and_at_least_a_chunk() {
        let chunk = |index: usize, ots| Chunk {
            range: index..index + 1,
            ots,
            answer: 0,
        };
        let ots = [5, 5, 1, 20, 3, 7];
        let chunks = ots
            .iter()
            .enumerate()
            .map(|(index, &ots)| chunk(index, ots));
        let mut schedule = Schedule::new(chunks.collect(), 10);
        let mut turns = Vec::new();
        let mut done = Vec::new();
        while schedule.turn() != Turn::Over {
            turns.push(schedule.turn());
            done.push(schedule.progress(12).done);
            schedule.advance();
        }
        use Turn::{Answer, Ots};
        let expected = [
            &[Ots(0), Ots(1), Answer(0), Answer(1)][..],
            &[Ots(2), Answer(2), Ots(3), Answer(3)],
            &[Ots(4), Ots(5), Answer(4), Answer(5)],
        ];
        assert_eq!(turns, expected.concat());
        assert_eq!(done, (0..12).collect::<Vec<_>>());
        assert_eq!(schedule.progress(12).done, 12);
        schedule.advance();
        assert_eq!(schedule.turn(), Turn::Over);
        assert_eq!(Schedule::new(Vec::new(), 10).turn(), Turn::Over);
    }
}
