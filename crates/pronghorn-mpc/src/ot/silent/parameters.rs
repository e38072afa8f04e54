//! The sets of parameters, and the chains in which they follow each other.

use super::check;
use crate::{Block, ot::extension};

/// Parameters of regular LPN: `K` secrets, `t` trees of `2^depth` leaves.
///
/// Both parties must use the same. They are constants of the protocol, with the costs of the known
/// attacks in [`security`](super::security). A constructor refuses, while the crate is compiled,
/// what has fewer than 128 secrets for each of a tree's leaves: that ratio is what the attacks on
/// dense sub-instances of the code depend on, far more than the number of trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LpnParameters {
    log_secrets: u32,
    trees: usize,
    depth: u32,
}

impl LpnParameters {
    /// `(2^16, 700, 9)`: a round makes 286,208 OTs and refills itself, with 101 kB.
    pub const SMALL: Self = Self::new(16, 700, 9);
    /// `(2^17, 900, 10)`: 781,312 OTs with 144 kB.
    pub const MEDIUM: Self = Self::new(17, 900, 10);
    /// `(2^19, 1500, 12)`: 5,599,232 OTs with 288 kB, 0.41 bits an OT.
    pub const LARGE: Self = Self::new(19, 1500, 12);

    /// `2^log_secrets` secrets and `trees` trees of `2^depth` leaves.
    ///
    /// # Panics
    /// Where a ratio or a size is out of range, at compile time for a constant.
    pub(super) const fn new(log_secrets: u32, trees: usize, depth: u32) -> Self {
        assert!(log_secrets >= depth + 7, "K / 2^depth must be at least 128");
        assert!(depth >= 2 && log_secrets < 32 && trees <= 1 << 16);
        let new = Self {
            log_secrets,
            trees,
            depth,
        };
        assert!(new.reserved(&new) < trees, "a round must refill itself");
        new
    }

    /// Secrets of the LPN instance, `K`.
    pub const fn secrets(&self) -> usize {
        1 << self.log_secrets
    }

    /// Trees of a round, `t`: the weight of the noise.
    pub const fn trees(&self) -> usize {
        self.trees
    }

    /// Levels of a tree.
    pub const fn depth(&self) -> usize {
        self.depth as usize
    }

    /// Leaves of a tree.
    pub const fn leaves(&self) -> usize {
        1 << self.depth
    }

    /// OTs that a round makes, those of the next round's base included.
    pub const fn outputs(&self) -> usize {
        self.trees << self.depth
    }

    /// OTs that a round uses up: the secrets, one for each level of each tree, and the check's.
    pub const fn base(&self) -> usize {
        self.secrets() + self.trees * self.depth() + check::MASKS
    }

    /// Bytes of the sender's first message of a round.
    pub const fn correction_bytes(&self) -> usize {
        HEADER + self.trees * self.depth() * Block::BYTES
    }

    /// Bytes of all three messages of a round.
    pub const fn round_bytes(&self) -> usize {
        self.correction_bytes() + check::CHALLENGE_BYTES + check::ANSWER_BYTES
    }

    /// Trees whose OTs are the base of a round with the parameters `next`.
    const fn reserved(&self, next: &Self) -> usize {
        next.base().div_ceil(self.leaves())
    }
}

/// Bytes before the corrections: the number of the round.
pub(super) const HEADER: usize = 8;

/// Sets of parameters in the order of their rounds. The last one goes on for ever.
///
/// A round's OTs come from the round before it, those of the first from the extension. A chain of
/// small sets first keeps that part small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    sets: &'static [LpnParameters],
}

impl Chain {
    /// All chains of the shipped sets.
    pub const ALL: [Self; 6] = {
        const SMALL: LpnParameters = LpnParameters::SMALL;
        const MEDIUM: LpnParameters = LpnParameters::MEDIUM;
        const LARGE: LpnParameters = LpnParameters::LARGE;
        [
            Self::new(&[SMALL]),
            Self::new(&[SMALL, MEDIUM]),
            Self::new(&[SMALL, MEDIUM, LARGE]),
            Self::new(&[MEDIUM]),
            Self::new(&[MEDIUM, LARGE]),
            Self::new(&[LARGE]),
        ]
    };

    /// By [`LpnParameters::MEDIUM`]: tables of 2 MiB.
    pub const MEDIUM: Self = Self::ALL[1];
    /// By [`LpnParameters::LARGE`]: tables of 8 MiB, and the least traffic for many OTs.
    pub const LARGE: Self = Self::ALL[2];

    /// # Panics
    /// Where a set does not make the base of the next one, at compile time for a constant.
    pub(super) const fn new(sets: &'static [LpnParameters]) -> Self {
        assert!(!sets.is_empty());
        let mut i = 1;
        while i < sets.len() {
            let before = &sets[i - 1];
            assert!(before.reserved(&sets[i]) < before.trees());
            i += 1;
        }
        Self { sets }
    }

    /// The chain with the least traffic for `count` OTs, where the extension has the width `width`
    /// ([`OtParameters`](crate::ot::OtParameters)). Compare its [`Chain::bytes`] with
    /// [`extension::message_bytes`]: below some 120,000 OTs the extension alone is less.
    ///
    /// Both parties must find the same chain, so `count` must be public and agreed.
    pub fn cheapest(count: u64, width: usize) -> Self {
        let bytes = |chain: &Self| chain.bytes(count, width);
        let cheapest = Self::ALL.into_iter().min_by_key(bytes);
        cheapest.expect("there are several")
    }

    /// The sets.
    pub fn sets(&self) -> &'static [LpnParameters] {
        self.sets
    }

    /// The set of a round, 0 being the first.
    pub fn set(&self, round: u64) -> &'static LpnParameters {
        let last = self.sets.len() - 1;
        let index = usize::try_from(round).map_or(last, |round| round.min(last));
        &self.sets[index]
    }

    /// Trees of a round that are for the next one; OTs at their end are dropped.
    pub(super) fn reserved(&self, round: u64) -> usize {
        self.set(round).reserved(self.set(round.saturating_add(1)))
    }

    /// OTs that a round gives its user.
    pub fn usable(&self, round: u64) -> usize {
        let set = self.set(round);
        set.outputs() - self.reserved(round) * set.leaves()
    }

    /// Rounds for `count` OTs.
    pub fn rounds(&self, count: u64) -> u64 {
        let mut left = count;
        let mut rounds = 0;
        while left > 0 && (rounds as usize) < self.sets.len() {
            left = left.saturating_sub(self.usable(rounds) as u64);
            rounds += 1;
        }
        rounds + left.div_ceil(self.usable(rounds) as u64)
    }

    /// Bytes of the extension's message that begins the chain, with strips of `width` columns.
    pub fn begin_bytes(&self, width: usize) -> usize {
        extension::message_bytes(self.set(0).base(), width)
    }

    /// Bytes of all messages for `count` OTs, in both directions.
    pub fn bytes(&self, count: u64, width: usize) -> u64 {
        let rounds = self.rounds(count);
        let once = rounds.min(self.sets.len() as u64);
        let bytes = |round| self.set(round).round_bytes() as u64;
        let sum: u64 = (0..once).map(bytes).sum();
        let repeated = (rounds - once).saturating_mul(bytes(rounds));
        sum.saturating_add(repeated)
            .saturating_add(self.begin_bytes(width) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGA: u64 = 1_000_000;

    #[test]
    fn sizes_are_those_of_the_design() {
        let sets = [
            (LpnParameters::SMALL, 71_964, 286_208, 100_888),
            (LpnParameters::MEDIUM, 140_200, 781_312, 144_088),
            (LpnParameters::LARGE, 542_416, 5_599_232, 288_088),
        ];
        for (set, base, usable, bytes) in sets {
            assert_eq!((set.base(), set.round_bytes()), (base, bytes));
            let itself: Vec<Chain> = Chain::ALL.into_iter().filter(|c| c.sets == [set]).collect();
            assert_eq!(itself[0].usable(0), usable);
        }
        // Through both smaller sets, with the extension's least traffic.
        let chain = Chain::ALL[2];
        let begin = chain.begin_bytes(8) + chain.set(0).round_bytes() + chain.set(1).round_bytes();
        assert!((385_000..400_000).contains(&begin), "{begin}");
    }

    #[test]
    #[should_panic(expected = "K / 2^depth must be at least 128")]
    fn sets_with_too_few_secrets_are_refused() {
        LpnParameters::new(19, 1000, 13);
    }

    #[test]
    #[should_panic(expected = "a round must refill itself")]
    fn sets_that_cannot_refill_themselves_are_refused() {
        LpnParameters::new(19, 128, 12);
    }

    #[test]
    fn rounds_are_counted_one_by_one() {
        for chain in Chain::ALL {
            for count in [0, 1, 200_000, 300_000, MEGA, 20 * MEGA] {
                let (mut made, mut rounds, mut bytes) = (0, 0, chain.begin_bytes(8) as u64);
                while made < count {
                    made += chain.usable(rounds) as u64;
                    bytes += chain.set(rounds).round_bytes() as u64;
                    rounds += 1;
                }
                assert_eq!(
                    (chain.rounds(count), chain.bytes(count, 8)),
                    (rounds, bytes)
                );
            }
            assert_eq!(
                chain.bytes(u64::MAX, 1) >> 40,
                chain.bytes(u64::MAX, 8) >> 40
            );
        }
    }

    #[test]
    fn the_cheapest_chain_depends_on_the_demand() {
        let sets = |count| Chain::cheapest(count, 8).sets().to_vec();
        let (small, medium, large) = (
            LpnParameters::SMALL,
            LpnParameters::MEDIUM,
            LpnParameters::LARGE,
        );
        assert_eq!(sets(200_000), [small]);
        assert_eq!(sets(MEGA), [small, medium]);
        assert_eq!(sets(6 * MEGA), [small, medium, large]);
        // Less than the extension, but not for few.
        let bytes = |count| Chain::cheapest(count, 8).bytes(count, 8);
        let extension = |count| extension::message_bytes(count as usize, 8) as u64;
        assert!(bytes(200_000) < extension(200_000));
        assert!(bytes(100_000) > extension(100_000));
        assert!(bytes(100 * MEGA) * 8 < 45 * MEGA, "0.45 bits an OT");
    }
}
