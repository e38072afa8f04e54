//! Random OTs of tiles, from those of the connection.

use pronghorn_mpc::{
    Block,
    lean::{Party, Received, Sent},
    ot::transfer::{receive_random, send_random},
};
use pronghorn_ring::random::{Prg, Seed, Stream};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::work::{Tile, Work};
use crate::{
    connection::Connection,
    error::EngineError,
    ots::{Lean, ReceiverOts, SenderOts},
};

/// The OTs of a party, in both directions.
#[derive(Clone)]
pub struct Ots {
    /// Those that it sends.
    pub sends: SenderOts,
    /// Those that it receives.
    pub receives: ReceiverOts,
}

impl Ots {
    /// Those of a connection.
    pub fn of(connection: &Connection) -> Self {
        Self {
            sends: connection.kept::<Lean<SenderOts>>().0,
            receives: connection.kept::<Lean<ReceiverOts>>().0,
        }
    }
}

/// The OTs of a tile, as far as they are made.
#[derive(Default)]
pub(super) struct Randoms {
    pub sent: Option<Sent>,
    pub received: Option<Received>,
}

impl Randoms {
    /// Whether those that the party receives are not made yet.
    pub fn waits(&self) -> bool {
        self.received.is_none()
    }
}

/// One party's making of random OTs, part after part.
pub(super) struct Maker {
    ots: Ots,
    party: Party,
    choices: Stream,
}

impl Maker {
    /// # Errors
    /// The system gives no randomness.
    pub fn new(ots: Ots, party: Party) -> Result<Self, EngineError> {
        let seed = Seed::from_os()?;
        Ok(Self {
            ots,
            party,
            choices: Prg::new(&seed, "pronghorn engine lean choices").stream(0),
        })
    }

    /// Most bytes of the message of a receiver for so many OTs that `sender` sends.
    pub fn message_bytes(&self, sender: Party, count: usize) -> usize {
        match sender == self.party {
            true => self.ots.sends.message_bytes(count),
            false => self.ots.receives.message_bytes(count),
        }
    }

    /// As the receiver: random OTs of these tiles; appends the message to the sender.
    pub fn receive(
        &mut self,
        work: &Work,
        tiles: &[Tile],
        randoms: &mut [Randoms],
        out: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        let (programs, sender) = (&work.layout.programs, self.party.peer());
        let count = programs.ots(tiles, sender);
        let mut choices = Zeroizing::new(vec![0; count / 8]);
        self.choices.fill(&mut choices);
        let step = &work.layout.step;
        let (first, mut blocks) = self.ots.receives.send(step, &choices, out)?;
        self.ots.receives.with(step, |ots| {
            let pieces = pieces(work, tiles, sender, &mut blocks);
            let mut rest = choices.as_slice();
            let choices: Vec<&[u8]> = (pieces.iter())
                .map(|(_, blocks)| {
                    let (piece, after) = rest.split_at(blocks.len() / 8);
                    rest = after;
                    piece
                })
                .collect();
            (pieces.into_par_iter())
                .zip(choices)
                .zip(tiles)
                .zip(randoms)
                .for_each(|((((at, blocks), choices), tile), randoms)| {
                    receive_random(ots, first + at as u64, blocks);
                    let (program, count) = (programs.program(tile), tile.instances.len());
                    let received = Received::from_blocks(program, sender, count, choices, blocks);
                    randoms.received = Some(received);
                });
            Ok(())
        })
    }

    /// As the sender: random OTs of these tiles, by the receiver's message.
    ///
    /// # Errors
    /// The message is refused: one that fails the check destroys the OTs of both directions.
    pub fn send(
        &mut self,
        work: &Work,
        tiles: &[Tile],
        randoms: &mut [Randoms],
        message: &[u8],
    ) -> Result<(), EngineError> {
        let (programs, sender) = (&work.layout.programs, self.party);
        let count = programs.ots(tiles, sender);
        let step = &work.layout.step;
        let received = self.ots.sends.receive(step, message, count);
        let (first, mut zeros) = received.inspect_err(|_| {
            if !self.ots.sends.is_ready() {
                self.ots.receives.forget();
            }
        })?;
        self.ots.sends.with(step, |ots| {
            let pieces = pieces(work, tiles, sender, &mut zeros);
            (pieces.into_par_iter())
                .zip(tiles)
                .zip(randoms)
                .try_for_each(|(((at, zeros), tile), randoms)| {
                    let mut ones = Zeroizing::new(vec![Block::ZERO; zeros.len()]);
                    send_random(ots, first + at as u64, zeros, &mut ones)?;
                    let (program, count) = (programs.program(tile), tile.instances.len());
                    randoms.sent = Some(Sent::from_blocks(program, sender, count, [zeros, &ones]));
                    Ok(())
                })
        })
    }
}

/// The blocks of each tile, with the number of blocks before them.
fn pieces<'a>(
    work: &Work,
    tiles: &[Tile],
    sender: Party,
    blocks: &'a mut [Block],
) -> Vec<(usize, &'a mut [Block])> {
    let (mut rest, mut at) = (blocks, 0);
    let piece = |tile: &Tile| {
        let count = work.layout.programs.ots(std::slice::from_ref(tile), sender);
        let (piece, after) = std::mem::take(&mut rest).split_at_mut(count);
        rest = after;
        at += count;
        (at - count, piece)
    };
    tiles.iter().map(piece).collect()
}
