//! Random OTs of tiles, from those of the connection: by the extension, or silent.
//!
//! The extension makes those of a part by a message of their receiver. Silent OTs are there
//! already, or a round makes more: corrections, a challenge, an answer. Both parties count them, so
//! both know how many rounds a step takes before it begins.

use pronghorn_mpc::{
    Block,
    lean::{CascadeReceived, CascadeSent, Party},
    ot::{
        OtError,
        silent::{self, ANSWER_BYTES, CHALLENGE_BYTES, Chain, SilentReceiver, SilentSender},
        transfer::{CorrelatedReceiver, CorrelatedSender},
    },
};
use pronghorn_plan::steps::activation::{lean::Transfers, programs::PART};
use pronghorn_ring::random::{Prg, Seed, Stream};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::work::{Tile, Work};
use crate::{
    connection::Connection,
    error::EngineError,
    exchange::{self, Message, Turn},
    garbled::prepared::Name,
    ots::{Lean, ReceiverOts, SenderOts, SilentReceives, SilentSends},
};

pub(super) const SERVER_OTS: &str = "the server's oblivious transfers";
const CLIENT_OTS: &str = "the client's oblivious transfers";
const SERVER_CORRECTIONS: &str = "the server's corrections of silent transfers";
const CLIENT_CORRECTIONS: &str = "the client's corrections of silent transfers";
const SERVER_CHALLENGE: &str = "the server's challenge of silent transfers";
const CLIENT_CHALLENGE: &str = "the client's challenge of silent transfers";
const SERVER_ANSWER: &str = "the server's answer on silent transfers";
const CLIENT_ANSWER: &str = "the client's answer on silent transfers";

/// The OTs of a party, in both directions: those that it sends, and those that it receives.
#[derive(Clone)]
pub enum Ots {
    /// By the extension.
    Extension(SenderOts, ReceiverOts),
    /// Silent.
    Silent(SilentSends, SilentReceives),
}

impl Ots {
    /// Those of a connection.
    pub fn of(connection: &Connection, transfers: Transfers) -> Self {
        match transfers {
            Transfers::Extension => Self::Extension(
                connection.kept::<Lean<SenderOts>>().0,
                connection.kept::<Lean<ReceiverOts>>().0,
            ),
            Transfers::Silent | Transfers::SilentLarge => {
                Self::Silent(connection.kept(), connection.kept())
            }
        }
    }
}

/// The OTs of a tile, as far as they are made.
#[derive(Default)]
pub(super) struct Randoms {
    pub sent: Option<CascadeSent>,
    pub received: Option<CascadeReceived>,
}

impl Randoms {
    /// Those of each tile of a step: to be made, or none where there are no products.
    pub fn of(work: &Work) -> Vec<Self> {
        let programs = &work.layout.programs;
        let tile = |tile: &Tile| match programs.turns() {
            0 => Self {
                sent: None,
                received: Some(CascadeReceived::nothing(programs.program(tile))),
            },
            _ => Self::default(),
        };
        work.tiles.iter().map(tile).collect()
    }

    /// Whether those that the party receives are not made yet.
    pub fn waits(&self) -> bool {
        self.received.is_none()
    }
}

/// The messages that make the OTs of a step.
#[derive(Default)]
pub(super) struct OtMessages {
    /// Before the first turn of the levels.
    pub before: Vec<Message>,
    /// Right after it.
    pub after: Vec<Message>,
}

/// One party's making of random OTs.
pub(super) struct Supply {
    ots: Ots,
    party: Party,
    /// The choices of the extension's OTs.
    choices: Stream,
    /// Of silent OTs: those that the party sends, and those that it receives.
    filled: [Filled; 2],
    /// The answer to the peer's challenge, until its turn.
    answer: Vec<u8>,
}

/// How far silent OTs are handed to tiles: some tiles at a time, on all threads.
#[derive(Default)]
struct Filled {
    /// The next tile, and the end of those that are filled with it.
    tile: usize,
    end: usize,
    /// OTs for it and further ones, as far as they are made, and the number of the first.
    blocks: Zeroizing<Vec<Block>>,
    have: usize,
    first: u64,
}

/// OTs that are handed out at a time for each thread: their blocks stay in its cache.
const AT_A_TIME: usize = 1 << 15;

/// The party that a list of messages names.
pub(super) fn named(party: Party) -> exchange::Party {
    match party {
        Party::Server => exchange::Party::Server,
        Party::Client => exchange::Party::Client,
    }
}

/// The rounds until so many OTs may be taken, where the next one is `next` and `left` are there.
fn rounds(chain: Chain, next: u64, left: usize, count: usize) -> u64 {
    let (mut left, mut rounds) = (left, 0);
    while left < count {
        left = left.saturating_add(chain.usable(next + rounds));
        rounds += 1;
    }
    rounds
}

impl Supply {
    /// # Errors
    /// The system gives no randomness.
    pub fn new(ots: Ots, party: Party) -> Result<Self, EngineError> {
        let seed = Seed::from_os()?;
        Ok(Self {
            ots,
            party,
            choices: Prg::new(&seed, "pronghorn engine lean choices").stream(0),
            filled: Default::default(),
            answer: Vec::new(),
        })
    }

    /// The messages for all tiles of a step.
    ///
    /// # Errors
    /// The connection has no OTs.
    pub fn messages(&self, work: &Work) -> Result<OtMessages, EngineError> {
        match &self.ots {
            Ots::Extension(sends, receives) => {
                let of = |receiver: Party, name| {
                    let bytes = |count| match receiver == self.party {
                        true => receives.message_bytes(count),
                        false => sends.message_bytes(count),
                    };
                    let counts = work.parts.iter().map(|part| {
                        work.layout
                            .programs
                            .ots(&work.tiles[part.clone()], receiver.peer())
                    });
                    let message = |count| {
                        Message::new(named(receiver), name, bytes(count))
                            .open()
                            .rows(1)
                    };
                    counts.map(message).collect()
                };
                Ok(OtMessages {
                    before: of(Party::Server, SERVER_OTS),
                    after: of(Party::Client, CLIENT_OTS),
                })
            }
            Ots::Silent(sends, receives) => {
                let step = &work.layout.step;
                let sent =
                    sends.with(step, |ots| Ok((ots.chain(), ots.next_round(), ots.left())))?;
                let received =
                    receives.with(step, |ots| Ok((ots.chain(), ots.next_round(), ots.left())))?;
                let plan = |sender: Party| {
                    let (chain, next, left) = match sender == self.party {
                        true => sent,
                        false => received,
                    };
                    let count = work.layout.programs.ots(&work.tiles, sender);
                    let rounds = rounds(chain, next, left, count);
                    (0..rounds)
                        .map(|round| chain.set(next + round).correction_bytes())
                        .collect()
                };
                Ok(OtMessages {
                    before: rounds_of(plan(Party::Server), plan(Party::Client)),
                    after: Vec::new(),
                })
            }
        }
    }

    /// What both parties call the next OTs: no others of any connection have the name.
    ///
    /// # Errors
    /// The connection has no OTs.
    pub fn name(&self, work: &Work) -> Result<Name, EngineError> {
        let step = &work.layout.step;
        let [sent, received] = match &self.ots {
            Ots::Extension(sends, receives) => [
                sends.with(step, |ots| Ok((*ots.connection(), ots.made())))?,
                receives.with(step, |ots| Ok((*ots.connection(), ots.made())))?,
            ],
            Ots::Silent(sends, receives) => [
                sends.with(step, |ots| Ok((*ots.run(), ots.made())))?,
                receives.with(step, |ots| Ok((*ots.run(), ots.made())))?,
            ],
        };
        let directions = match self.party {
            Party::Server => [sent, received],
            Party::Client => [received, sent],
        };
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn engine name of lean OTs");
        for (name, number) in directions {
            hasher.update(&name);
            hasher.update(&number.to_le_bytes());
        }
        let mut name = Name::default();
        hasher.finalize_xof().fill(&mut name);
        Ok(name)
    }

    /// Writes one of the messages.
    pub fn make(
        &mut self,
        work: &Work,
        randoms: &mut [Randoms],
        turn: Turn,
        out: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        if is_corrections(turn) {
            self.hand_out(work, randoms)?;
        }
        let step = &work.layout.step;
        match (&self.ots, turn.name) {
            (Ots::Extension(..), SERVER_OTS | CLIENT_OTS) => self.receive(work, randoms, turn, out),
            (Ots::Silent(sends, _), SERVER_CORRECTIONS | CLIENT_CORRECTIONS) => {
                sends.with(step, |ots| ots.round(out))
            }
            (Ots::Silent(_, receives), SERVER_CHALLENGE | CLIENT_CHALLENGE) => {
                receives.with(step, |ots| ots.challenge(out))
            }
            (Ots::Silent(..), SERVER_ANSWER | CLIENT_ANSWER) => {
                out.append(&mut self.answer);
                Ok(())
            }
            _ => Err(turn.unknown()),
        }
    }

    /// Whether one of the messages can be made, if those of this party before it are.
    pub fn is_ready(&self, work: &Work, turn: Turn) -> bool {
        let step = &work.layout.step;
        let ready = match (&self.ots, turn.name) {
            (Ots::Extension(..), SERVER_OTS | CLIENT_OTS) => Ok(true),
            (Ots::Silent(sends, _), SERVER_CORRECTIONS | CLIENT_CORRECTIONS) => {
                sends.with(step, |ots| Ok(ots.is_spent()))
            }
            (Ots::Silent(_, receives), SERVER_CHALLENGE | CLIENT_CHALLENGE) => {
                receives.with(step, |ots| Ok(ots.has_corrections()))
            }
            (Ots::Silent(..), SERVER_ANSWER | CLIENT_ANSWER) => Ok(!self.answer.is_empty()),
            _ => Ok(false),
        };
        ready.unwrap_or(false)
    }

    /// Takes one of the peer's.
    ///
    /// # Errors
    /// The message is refused: one that fails a check destroys the OTs of its direction, and the
    /// run those of the connection.
    pub fn take(
        &mut self,
        work: &Work,
        randoms: &mut [Randoms],
        turn: Turn,
        message: &[u8],
    ) -> Result<(), EngineError> {
        if is_corrections(turn) {
            self.hand_out(work, randoms)?;
        }
        let step = &work.layout.step;
        match (&self.ots, turn.name) {
            (Ots::Extension(..), SERVER_OTS | CLIENT_OTS) => {
                self.send(work, randoms, turn, message)
            }
            (Ots::Silent(_, receives), SERVER_CORRECTIONS | CLIENT_CORRECTIONS) => {
                receives.with(step, |ots| ots.take_round(message))
            }
            (Ots::Silent(sends, _), SERVER_CHALLENGE | CLIENT_CHALLENGE) => {
                let mut answer = Vec::with_capacity(ANSWER_BYTES);
                let done = sends.with(step, |ots| ots.answer(message, &mut answer));
                self.answer = answer;
                done
            }
            (Ots::Silent(_, receives), SERVER_ANSWER | CLIENT_ANSWER) => {
                receives.with(step, |ots| ots.verify(message))
            }
            _ => Err(turn.unknown()),
        }
    }

    /// As the receiver of the extension: random OTs of a part, and the message to their sender.
    fn receive(
        &mut self,
        work: &Work,
        randoms: &mut [Randoms],
        turn: Turn,
        out: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        let Ots::Extension(_, receives) = &self.ots else {
            return Err(turn.unknown());
        };
        let part = work.parts[turn.index].clone();
        let (tiles, sender) = (&work.tiles[part.clone()], self.party.peer());
        let count = work.layout.programs.ots(tiles, sender);
        let mut choices = Zeroizing::new(vec![0; count / 8]);
        self.choices.fill(&mut choices);
        let step = &work.layout.step;
        let (first, blocks) = receives.send(step, &choices, out)?;
        receives.with(step, |ots| {
            let made = received(work, tiles, sender, ots, &choices, (first, &blocks));
            for (randoms, made) in randoms[part].iter_mut().zip(made) {
                randoms.received = Some(made);
            }
            Ok(())
        })
    }

    /// As the sender of the extension: random OTs of a part, by their receiver's message.
    fn send(
        &self,
        work: &Work,
        randoms: &mut [Randoms],
        turn: Turn,
        message: &[u8],
    ) -> Result<(), EngineError> {
        let Ots::Extension(sends, _) = &self.ots else {
            return Err(turn.unknown());
        };
        let part = work.parts[turn.index].clone();
        let tiles = &work.tiles[part.clone()];
        let count = work.layout.programs.ots(tiles, self.party);
        let step = &work.layout.step;
        let (first, blocks) = sends.receive(step, message, count)?;
        sends.with(step, |ots| {
            let made = sent(work, tiles, self.party, ots, (first, &blocks))?;
            for (randoms, made) in randoms[part].iter_mut().zip(made) {
                randoms.sent = Some(made);
            }
            Ok(())
        })
    }

    /// Hands silent OTs to the tiles in order, as far as there are any.
    ///
    /// All threads work while the connection's OTs are locked. So two steps of one connection must
    /// not do this at once: each could wait for what the other has.
    pub fn hand_out(&mut self, work: &Work, randoms: &mut [Randoms]) -> Result<(), EngineError> {
        let Ots::Silent(sends, receives) = &self.ots else {
            return Ok(());
        };
        let (step, party) = (&work.layout.step, self.party);
        let [of_sent, of_received] = &mut self.filled;
        let (mut made_sent, mut made_received) = (Vec::new(), Vec::new());
        let firsts = (of_sent.tile, of_received.tile);
        let (done_sent, done_received) = rayon::join(
            || sends.with(step, |ots| of_sent.send(work, party, ots, &mut made_sent)),
            || {
                receives.with(step, |ots| {
                    of_received.receive(work, party.peer(), ots, &mut made_received)
                })
            },
        );
        for (randoms, sent) in randoms[firsts.0..].iter_mut().zip(made_sent) {
            randoms.sent = Some(sent);
        }
        for (randoms, received) in randoms[firsts.1..].iter_mut().zip(made_received) {
            randoms.received = Some(received);
        }
        done_sent.and(done_received)
    }
}

/// Whether a message begins a round, for which all OTs of the round before must be taken.
fn is_corrections(turn: Turn) -> bool {
    [SERVER_CORRECTIONS, CLIENT_CORRECTIONS].contains(&turn.name)
}

/// The rounds of both directions side by side, with the bytes of their corrections: by the server
/// and by the client as the OTs' sender.
fn rounds_of(server: Vec<usize>, client: Vec<usize>) -> Vec<Message> {
    let mut messages = Vec::new();
    for round in 0..server.len().max(client.len()) {
        let (server, client) = (server.get(round), client.get(round));
        let down = |name, bytes| Message::server(name, bytes).rows(1);
        let up = |name, bytes| Message::client(name, bytes).rows(1);
        messages.extend(server.map(|&bytes| down(SERVER_CORRECTIONS, bytes)));
        messages.extend(client.map(|&bytes| up(CLIENT_CORRECTIONS, bytes)));
        messages.extend(server.map(|_| up(CLIENT_CHALLENGE, CHALLENGE_BYTES)));
        messages.extend(client.map(|_| down(SERVER_CHALLENGE, CHALLENGE_BYTES)));
        messages.extend(server.map(|_| down(SERVER_ANSWER, ANSWER_BYTES)));
        messages.extend(client.map(|_| up(CLIENT_ANSWER, ANSWER_BYTES)));
    }
    messages
}

impl Filled {
    /// Takes what there is for the next tiles; these, where that is all of it. The number of tiles
    /// is this party's alone to choose.
    fn fill<'a>(
        &mut self,
        work: &'a Work,
        sender: Party,
        (made, left): (u64, usize),
        take: impl FnOnce(&mut [Block]) -> Result<u64, OtError>,
    ) -> Result<&'a [Tile], OtError> {
        if self.have == 0 {
            (self.first, self.end) = (made, work.end_of_tiles(self.tile, sender));
        }
        let tiles = &work.tiles[self.tile..self.end];
        let count = work.layout.programs.ots(tiles, sender);
        make_room(&mut self.blocks, self.have, count);
        let more = left.min(count - self.have);
        if more > 0 {
            take(&mut self.blocks[self.have..][..more])?;
            self.have += more;
        }
        Ok(match self.have == count {
            true => tiles,
            false => &[],
        })
    }

    /// The OTs of the tiles that were filled, and the number of the first.
    fn made(&self) -> (u64, &[Block]) {
        (self.first, &self.blocks[..self.have])
    }

    fn advance(&mut self, tiles: &[Tile]) {
        self.tile += tiles.len();
        self.have = 0;
    }

    fn send(
        &mut self,
        work: &Work,
        sender: Party,
        ots: &mut SilentSender,
        made: &mut Vec<CascadeSent>,
    ) -> Result<(), OtError> {
        loop {
            let tiles = self.fill(work, sender, (ots.made(), ots.left()), |q| ots.take(q))?;
            if tiles.is_empty() {
                return Ok(());
            }
            made.extend(sent(work, tiles, sender, ots, self.made())?);
            self.advance(tiles);
        }
    }

    fn receive(
        &mut self,
        work: &Work,
        sender: Party,
        ots: &mut SilentReceiver,
        made: &mut Vec<CascadeReceived>,
    ) -> Result<(), OtError> {
        loop {
            let tiles = self.fill(work, sender, (ots.made(), ots.left()), |t| ots.take(t))?;
            if tiles.is_empty() {
                return Ok(());
            }
            let (first, blocks) = self.made();
            let mut choices = Zeroizing::new(Vec::with_capacity(blocks.len() / 8));
            silent::choices(blocks, &mut choices);
            made.extend(received(
                work,
                tiles,
                sender,
                ots,
                &choices,
                (first, blocks),
            ));
            self.advance(tiles);
        }
    }
}

impl Work {
    /// The end of the tiles from `first` on whose OTs are made at a time: no more than a part of a
    /// step, which plans count in their memory.
    fn end_of_tiles(&self, first: usize, sender: Party) -> usize {
        let most = (AT_A_TIME * rayon::current_num_threads()).min(PART);
        let (mut end, mut count) = (first, 0);
        for tile in &self.tiles[first..] {
            count += self.layout.programs.ots(std::slice::from_ref(tile), sender);
            if end > first && count > most {
                break;
            }
            end += 1;
        }
        end
    }
}

/// Makes a buffer at least so long. One that grew in place would leave a copy behind.
fn make_room(buffer: &mut Zeroizing<Vec<Block>>, have: usize, count: usize) {
    if buffer.len() < count {
        let mut larger = Zeroizing::new(vec![Block::ZERO; count]);
        larger[..have].copy_from_slice(&buffer[..have]);
        *buffer = larger;
    }
}

/// The strings of a tile at the sender, from blocks whose first has this number.
fn sent_of(
    work: &Work,
    tile: &Tile,
    sender: Party,
    ots: &impl CorrelatedSender,
    blocks: (u64, &[Block]),
) -> Result<CascadeSent, OtError> {
    let (program, count) = (work.layout.programs.program(tile), tile.instances.len());
    CascadeSent::of(program, sender, count, ots, blocks)
}

/// The strings of a tile at the receiver, from choices and blocks whose first has this number.
fn received_of(
    work: &Work,
    tile: &Tile,
    sender: Party,
    ots: &impl CorrelatedReceiver,
    blocks: (u64, &[u8], &[Block]),
) -> CascadeReceived {
    let (program, count) = (work.layout.programs.program(tile), tile.instances.len());
    CascadeReceived::of(program, sender, count, ots, blocks)
}

/// The strings of tiles at the sender, from blocks whose first has this number.
fn sent(
    work: &Work,
    tiles: &[Tile],
    sender: Party,
    ots: &(impl CorrelatedSender + Sync),
    (first, blocks): (u64, &[Block]),
) -> Result<Vec<CascadeSent>, OtError> {
    let pieces = pieces(work, tiles, sender, blocks);
    let strings = pieces
        .into_par_iter()
        .zip(tiles)
        .map(|((at, blocks), tile)| sent_of(work, tile, sender, ots, (first + at as u64, blocks)));
    strings.collect()
}

/// The strings of tiles at the receiver.
fn received(
    work: &Work,
    tiles: &[Tile],
    sender: Party,
    ots: &(impl CorrelatedReceiver + Sync),
    choices: &[u8],
    (first, blocks): (u64, &[Block]),
) -> Vec<CascadeReceived> {
    let pieces = pieces(work, tiles, sender, blocks);
    let strings = pieces
        .into_par_iter()
        .zip(tiles)
        .map(|((at, blocks), tile)| {
            let choices = &choices[at / 8..][..blocks.len() / 8];
            received_of(
                work,
                tile,
                sender,
                ots,
                (first + at as u64, choices, blocks),
            )
        });
    strings.collect()
}

/// The blocks of each tile, with the number of blocks before them.
fn pieces<'a>(
    work: &Work,
    tiles: &[Tile],
    sender: Party,
    blocks: &'a [Block],
) -> Vec<(usize, &'a [Block])> {
    let (mut rest, mut at) = (blocks, 0);
    let piece = |tile: &Tile| {
        let count = work.layout.programs.ots(std::slice::from_ref(tile), sender);
        let (piece, after) = rest.split_at(count);
        rest = after;
        at += count;
        (at - count, piece)
    };
    tiles.iter().map(piece).collect()
}
