//! The party with `Delta`.

use pronghorn_ring::{
    SimdLevel,
    random::{Prg, Seed},
};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{
    ANSWER_TURN, CHALLENGE, ROUND_TURN, TAKE_TURN,
    check::{CHALLENGE_BYTES, Challenge, Coefficients, answer},
    parameters::{Chain, LpnParameters},
    stream::{Stream, Trees},
    tree::{Root, Scratch, Tree},
};
use crate::{
    Block,
    ot::{CotSender, OtError, OtHash, error::check_length, extension::Burnt},
};

/// The party with `Delta`. Its secrets are wiped on drop.
pub struct SilentSender {
    pub(super) stream: Stream,
    pub(super) trees: Roots,
    roots: Prg,
    burnt: Burnt,
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Round,
    Challenge,
    Take,
}

/// The roots of a round's trees.
pub(super) struct Roots {
    delta: Zeroizing<Block>,
    pub roots: Zeroizing<Vec<Block>>,
}

impl Roots {
    fn root(&self, number: usize) -> Root {
        Root {
            first: self.roots[number],
            delta: *self.delta,
        }
    }
}

impl Trees for Roots {
    fn leaves(&self, tree: &Tree, number: usize, leaves: &mut [Block], scratch: &mut Scratch) {
        tree.leaves(self.root(number), leaves, scratch);
    }
}

impl SilentSender {
    /// Begins a run with the receiver's message from [`SilentReceiver::begin`], which `ot` takes
    /// for `chain.set(0).base()` OTs. `seed` is fresh and this party's own.
    ///
    /// # Errors
    /// As [`CotSender::extend`].
    ///
    /// [`SilentReceiver::begin`]: super::SilentReceiver::begin
    pub fn begin(
        chain: Chain,
        ot: &mut CotSender,
        seed: &Seed,
        message: &[u8],
    ) -> Result<Self, OtError> {
        Self::begin_at(SimdLevel::detect(), chain, ot, seed, message)
    }

    pub(super) fn begin_at(
        level: SimdLevel,
        chain: Chain,
        ot: &mut CotSender,
        seed: &Seed,
        message: &[u8],
    ) -> Result<Self, OtError> {
        let mut q = Zeroizing::new(vec![Block::ZERO; chain.set(0).base()]);
        let first = ot.extend(message, &mut q)?;
        for q in q.iter_mut() {
            *q = *q & Block::from_u128(!1);
        }
        Ok(Self {
            stream: Stream::new(chain, ot.connection(), first, q, level),
            trees: Roots {
                delta: Zeroizing::new(ot.delta()),
                roots: Zeroizing::default(),
            },
            roots: Prg::new(seed, "pronghorn silent ot roots of the trees"),
            burnt: ot.burnt().clone(),
            turn: Turn::Round,
        })
    }

    /// Checks that no check of the extension has failed on the set-up: no OT is to be used then.
    ///
    /// # Errors
    /// [`OtError::Burnt`] otherwise.
    pub fn check_usable(&self) -> Result<(), OtError> {
        self.burnt.check()
    }

    /// The correlation; bit 0 is set.
    pub fn delta(&self) -> Block {
        *self.trees.delta
    }

    /// The hash that makes random strings of the blocks of this run. No other run and no extension
    /// has its key, so the numbers of OTs are its tweaks.
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

    /// Bytes of the message of the next [`SilentSender::round`].
    pub fn round_bytes(&self) -> usize {
        self.chain().set(self.next_round()).correction_bytes()
    }

    /// The number of the next round.
    pub fn next_round(&self) -> u64 {
        self.stream.round() + u64::from(self.turn == Turn::Take)
    }

    /// Whether a round can start: the OTs of the one before are taken.
    pub fn is_spent(&self) -> bool {
        self.turn != Turn::Challenge && self.left() == 0
    }

    /// Starts a round: appends its corrections to `out`, [`SilentSender::round_bytes`]. The OTs of
    /// the round before must all have been taken.
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`] while a round waits for the receiver's challenge or has OTs left,
    /// [`OtError::Burnt`], [`OtError::Exhausted`].
    pub fn round(&mut self, out: &mut Vec<u8>) -> Result<(), OtError> {
        self.check_usable()?;
        if !self.is_spent() {
            return Err(ROUND_TURN);
        }
        self.stream.refill(&self.trees)?;
        let set = self.stream.set();
        self.trees.roots = Zeroizing::new(vec![Block::ZERO; set.trees()]);
        let roots = bytemuck::cast_slice_mut(&mut self.trees.roots);
        self.roots.stream(self.stream.round()).fill(roots);

        out.extend_from_slice(&self.stream.round().to_le_bytes());
        let (stream, trees) = (&self.stream, &self.trees);
        let corrections = stream.for_trees(|tree, number, nodes, scratch| {
            let base = &stream.of_trees()[number * set.depth()..];
            let mut corrections = Vec::with_capacity(set.depth());
            tree.left_sums(trees.root(number), nodes, scratch, |l, sum| {
                corrections.push((sum ^ base[l]).to_bytes());
            });
            corrections
        });
        out.reserve(set.trees() * set.depth() * Block::BYTES);
        for corrections in corrections {
            out.extend_from_slice(corrections.as_flattened());
        }
        self.turn = Turn::Challenge;
        Ok(())
    }

    /// Answers the receiver's challenge: appends 32 bytes to `out`. The OTs may be taken then.
    ///
    /// # Errors
    /// When the challenge has the wrong length or comes out of turn (nothing has changed then), or
    /// the set-up is [`OtError::Burnt`].
    pub fn answer(&mut self, challenge: &[u8], out: &mut Vec<u8>) -> Result<(), OtError> {
        self.check_usable()?;
        if self.turn != Turn::Challenge {
            return Err(ANSWER_TURN);
        }
        check_length(CHALLENGE, challenge, CHALLENGE_BYTES)?;
        let total = self.total(&Challenge::read(challenge));
        let answer = answer(&self.stream.context, self.stream.round(), total);
        out.extend_from_slice(answer.as_bytes());
        self.stream.open();
        self.turn = Turn::Take;
        Ok(())
    }

    /// What an honest receiver has as its total too.
    pub(super) fn total(&self, challenge: &Challenge) -> Block {
        let Stream { level, context, .. } = self.stream;
        let (round, set) = (self.stream.round(), self.stream.set());
        let coefficients = Coefficients::new(level, &context, round, &challenge.seed, set);
        let sums = self.stream.for_trees(|tree, number, leaves, scratch| {
            self.trees.leaves(tree, number, leaves, scratch);
            coefficients.of_tree(leaves)
        });
        let sums = Zeroizing::new(sums);
        coefficients.total(&sums, self.stream.of_check())
            ^ coefficients.product(*self.trees.delta, challenge.sum)
    }

    /// Fills `q` with the next OTs; the number of the first. Bit 0 of each is 0.
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`] before the first round is complete. [`OtError::RoundSpent`] when it
    /// has fewer left: nothing is taken then. [`OtError::Burnt`].
    pub fn take(&mut self, q: &mut [Block]) -> Result<u64, OtError> {
        self.check_usable()?;
        match self.turn {
            Turn::Take => self.stream.take(&self.trees, q),
            _ => Err(TAKE_TURN),
        }
    }
}

/// Its fields wipe themselves.
impl ZeroizeOnDrop for SilentSender {}
