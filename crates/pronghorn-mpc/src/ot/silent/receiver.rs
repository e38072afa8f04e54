//! The party with the choices.

use pronghorn_ring::{
    SimdLevel,
    random::{Prg, Seed},
};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{
    ANSWER, ANSWER_TURN, CORRECTIONS, ROUND_TURN, TAKE_TURN,
    check::{ANSWER_BYTES, Challenge, Coefficients, answer},
    parameters::{Chain, HEADER, LpnParameters},
    stream::{Stream, Trees},
    tree::{Scratch, Tree},
};
use crate::{
    Block,
    ot::{CotReceiver, OtError, OtHash, error::check_length},
};

/// The party with the choices, which are random and bit 0 of its blocks. Its secrets are wiped on
/// drop.
pub struct SilentReceiver {
    pub(super) stream: Stream,
    pub(super) trees: Punctured,
    challenges: Prg,
    turn: Turn,
}

enum Turn {
    Round,
    Challenge,
    Answer(Coefficients),
    Take,
    Failed,
}

/// What the receiver knows of a round's trees.
#[derive(Default)]
pub(super) struct Punctured {
    depth: usize,
    /// The sum of the nodes of a level that it may know, tree after tree.
    pub sums: Zeroizing<Vec<Block>>,
    /// The leaves that it misses.
    pub alphas: Zeroizing<Vec<u32>>,
}

impl Trees for Punctured {
    fn leaves(&self, tree: &Tree, number: usize, leaves: &mut [Block], scratch: &mut Scratch) {
        let sums = &self.sums[number * self.depth..];
        tree.punctured_leaves(self.alphas[number], sums, leaves, scratch);
    }
}

impl SilentReceiver {
    /// Begins a run: makes the OTs that it starts from with `ot`, with random choices, and appends
    /// the message to `out`, `chain.begin_bytes` of the extension's width. `seed` is fresh and this
    /// party's own; its choices come from it.
    ///
    /// # Errors
    /// As [`CotReceiver::extend`].
    pub fn begin(
        chain: Chain,
        ot: &mut CotReceiver,
        seed: &Seed,
        out: &mut Vec<u8>,
    ) -> Result<Self, OtError> {
        Self::begin_at(SimdLevel::detect(), chain, ot, seed, out)
    }

    pub(super) fn begin_at(
        level: SimdLevel,
        chain: Chain,
        ot: &mut CotReceiver,
        seed: &Seed,
        out: &mut Vec<u8>,
    ) -> Result<Self, OtError> {
        let count = chain.set(0).base();
        let mut choices = Zeroizing::new(vec![0; count.div_ceil(8)]);
        let mut drawn = Prg::new(seed, "pronghorn silent ot choices").stream(0);
        drawn.fill(&mut choices);
        let mut t = Zeroizing::new(vec![Block::ZERO; count]);
        let first = ot.extend(&choices, &mut t, out)?;
        for (j, t) in t.iter_mut().enumerate() {
            let choice = choices[j / 8] >> (j % 8) & 1;
            *t = *t & Block::from_u128(!1) ^ Block::from_u128(choice.into());
        }
        Ok(Self {
            stream: Stream::new(chain, ot.connection(), first, t, level),
            trees: Punctured::default(),
            challenges: Prg::new(seed, "pronghorn silent ot challenges"),
            turn: Turn::Round,
        })
    }

    /// The hash that makes random strings of the blocks of this run, as the sender's.
    pub fn hash(&self) -> &OtHash {
        self.stream.hash()
    }

    /// The chain of sets.
    pub fn chain(&self) -> Chain {
        self.stream.chain()
    }

    /// The parameters of the round whose OTs are made or taken.
    pub fn set(&self) -> &'static LpnParameters {
        self.stream.set()
    }

    /// The name of the run, which both parties have and no other run shares.
    pub fn run(&self) -> &[u8; 32] {
        &self.stream.context
    }

    /// OTs taken from all rounds: the number of the next one.
    pub fn made(&self) -> u64 {
        self.stream.made()
    }

    /// OTs that may be taken before the next round.
    pub fn left(&self) -> usize {
        self.stream.left()
    }

    /// Bytes of the sender's corrections of the next round.
    pub fn round_bytes(&self) -> usize {
        self.chain().set(self.next_round()).correction_bytes()
    }

    /// The number of the next round.
    pub fn next_round(&self) -> u64 {
        self.stream.round() + u64::from(matches!(self.turn, Turn::Take))
    }

    /// Takes the sender's corrections of a round. The OTs of the round before must all have been
    /// taken.
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`], a wrong length or number of the round (nothing has changed then),
    /// [`OtError::Exhausted`], [`OtError::FalseCorrections`] after a failed check.
    pub fn take_round(&mut self, message: &[u8]) -> Result<(), OtError> {
        match self.turn {
            Turn::Round => {}
            Turn::Take if self.left() == 0 => {}
            Turn::Failed => return Err(OtError::FalseCorrections),
            _ => return Err(ROUND_TURN),
        }
        check_length(CORRECTIONS, message, self.round_bytes())?;
        let (header, corrections) = message.split_at(HEADER);
        let found = u64::from_le_bytes(header.try_into().expect("8 bytes"));
        let expected = self.next_round();
        if found != expected {
            return Err(OtError::Position {
                message: CORRECTIONS,
                found,
                expected,
            });
        }
        self.stream.refill(&self.trees)?;
        self.trees = self.correct(corrections);
        self.turn = Turn::Challenge;
        Ok(())
    }

    /// The trees of a round with these corrections.
    pub(super) fn correct(&self, corrections: &[u8]) -> Punctured {
        let base = self.stream.of_trees();
        let depth = self.stream.set().depth();
        let (corrections, _) = corrections.as_chunks();
        let sums = base.iter().zip(corrections);
        let sums = sums.map(|(base, correction)| *base ^ Block::from_bytes(*correction));
        // The choice of a level is the side whose sum it learns, and alpha branches the other way.
        let alpha = |levels: &[Block]| {
            let bits = levels.iter().enumerate();
            bits.fold(0, |alpha, (l, base)| alpha | u32::from(!base.lsb()) << l)
        };
        let mut alphas = Zeroizing::new(Vec::with_capacity(base.len() / depth));
        alphas.extend(base.chunks(depth).map(alpha));
        let mut all = Zeroizing::new(Vec::with_capacity(base.len()));
        all.extend(sums);
        Punctured {
            depth,
            sums: all,
            alphas,
        }
    }

    /// Whether a round's corrections have come, which a challenge follows.
    pub fn has_corrections(&self) -> bool {
        matches!(self.turn, Turn::Challenge)
    }

    /// Appends the challenge of the round's check to `out`: 48 bytes.
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`], [`OtError::FalseCorrections`] after a failed check.
    pub fn challenge(&mut self, out: &mut Vec<u8>) -> Result<(), OtError> {
        match self.turn {
            Turn::Challenge => {}
            Turn::Failed => return Err(OtError::FalseCorrections),
            _ => return Err(CHALLENGE_TURN),
        }
        let Stream { level, context, .. } = self.stream;
        let (round, set) = (self.stream.round(), self.stream.set());
        let mut seed = [0; 32];
        self.challenges.stream(round).fill(&mut seed);
        let coefficients = Coefficients::new(level, &context, round, &seed, set);
        let alphas = self.trees.alphas.iter();
        let mut missing = Zeroizing::new(Vec::with_capacity(set.trees()));
        missing.extend(alphas.map(|&alpha| coefficients.of_leaf(alpha)));
        let one = Block::from_u128(1);
        let masks = self.stream.of_check().iter().map(|t| *t & one);
        let masks: Zeroizing<Vec<Block>> = Zeroizing::new(masks.collect());
        let sum = coefficients.total(&missing, &masks);
        Challenge { seed, sum }.write(out);
        self.turn = Turn::Answer(coefficients);
        Ok(())
    }

    /// Checks the sender's answer. The OTs may be taken then.
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`] or a wrong length (nothing has changed then);
    /// [`OtError::FalseCorrections`] for a wrong answer: the state is wiped, and every call returns
    /// this error from then on. Nothing of this direction may be used after that, OTs of the
    /// connection's extension included.
    pub fn verify(&mut self, message: &[u8]) -> Result<(), OtError> {
        let coefficients = match std::mem::replace(&mut self.turn, Turn::Failed) {
            Turn::Answer(coefficients) if message.len() == ANSWER_BYTES => coefficients,
            Turn::Failed => return Err(OtError::FalseCorrections),
            turn => {
                let waiting = matches!(turn, Turn::Answer(_));
                self.turn = turn;
                return match waiting {
                    true => check_length(ANSWER, message, ANSWER_BYTES),
                    false => Err(ANSWER_TURN),
                };
            }
        };
        let answer = answer(
            &self.stream.context,
            self.stream.round(),
            self.total(&coefficients),
        );
        // Equality of hashes takes constant time.
        if answer == *message {
            self.stream.open();
            self.turn = Turn::Take;
            return Ok(());
        }
        self.trees = Punctured::default();
        self.stream.wipe();
        Err(OtError::FalseCorrections)
    }

    pub(super) fn total(&self, coefficients: &Coefficients) -> Block {
        let sums = self.stream.for_trees(|tree, number, leaves, scratch| {
            self.trees.leaves(tree, number, leaves, scratch);
            coefficients.of_tree(leaves)
        });
        let sums = Zeroizing::new(sums);
        coefficients.total(&sums, self.stream.of_check())
    }

    /// Fills `t` with the next OTs; the number of the first. Bit 0 of each is its choice.
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`] before the first round is complete. [`OtError::RoundSpent`] when it
    /// has fewer left: nothing is taken then. [`OtError::FalseCorrections`] after a failed check.
    pub fn take(&mut self, t: &mut [Block]) -> Result<u64, OtError> {
        match self.turn {
            Turn::Take => self.stream.take(&self.trees, t),
            Turn::Failed => Err(OtError::FalseCorrections),
            _ => Err(TAKE_TURN),
        }
    }
}

const CHALLENGE_TURN: OtError = OtError::OutOfTurn {
    state: "a challenge of silent OT follows a round's corrections, once",
};

/// Its fields wipe themselves.
impl ZeroizeOnDrop for SilentReceiver {}
