//! Parties that deviate.

use super::{twin::Public, *};
use crate::ot::silent::{
    check::{Challenge, Coefficients, answer},
    parameters::HEADER,
    stream::Trees,
    tree::{Root, Scratch},
};

/// A run whose receiver has taken changed corrections and sent its challenge.
struct Cheated {
    run: Run,
    challenge: Vec<u8>,
    coefficients: Coefficients,
}

/// Runs to the challenge of the first round with one byte of the corrections changed.
fn cheat(chain: Chain, at: usize, change: u8) -> Cheated {
    let mut run = Run::begin(chain);
    let (mut corrections, mut challenge) = (Vec::new(), Vec::new());
    run.sender.round(&mut corrections).unwrap();
    corrections[HEADER + at] ^= change;
    run.receiver.take_round(&corrections).unwrap();
    run.receiver.challenge(&mut challenge).unwrap();
    let seed = Challenge::read(&challenge).seed;
    let context = &run.sender.stream.context;
    let coefficients = Coefficients::new(SimdLevel::detect(), context, 0, &seed, chain.set(0));
    Cheated {
        run,
        challenge,
        coefficients,
    }
}

/// An honest answer fails for every false correction, and ends the run for good.
#[test]
fn every_false_correction_is_caught() {
    let chain = Chain::new(const { &[TINY] });
    let count = TINY.trees() * TINY.depth();
    for index in 0..count {
        let (bit, byte) = (1 << (index % 8), index % 16);
        // Bit 0 of a tree's last correction makes no difference: it is cleared.
        if index % TINY.depth() == TINY.depth() - 1 && (byte, bit) == (0, 1) {
            continue;
        }
        let mut cheated = cheat(chain, 16 * index + byte, bit);
        let mut answer = Vec::new();
        cheated
            .run
            .sender
            .answer(&cheated.challenge, &mut answer)
            .unwrap();
        let result = cheated.run.receiver.verify(&answer);
        assert!(matches!(result, Err(OtError::FalseCorrections)), "{index}");
        if index < 2 {
            is_dead(cheated.run.receiver, &answer);
        }
    }
}

fn is_dead(mut receiver: SilentReceiver, answer: &[u8]) {
    let mut out = Vec::new();
    let results = [
        receiver.verify(answer),
        receiver.challenge(&mut out),
        receiver.take_round(&[]),
        receiver.take(&mut []).map(drop),
    ];
    for result in results {
        assert!(matches!(result, Err(OtError::FalseCorrections)));
    }
    assert!(receiver.stream.base.is_empty() && receiver.left() == 0);
    assert!(receiver.trees.sums.is_empty() && receiver.trees.alphas.is_empty());
}

#[test]
fn bit_0_of_a_last_correction_makes_no_difference() {
    let mut cheated = cheat(TOYS, 16 * (TOY.depth() - 1), 1);
    let mut answer = Vec::new();
    cheated
        .run
        .sender
        .answer(&cheated.challenge, &mut answer)
        .unwrap();
    cheated.run.receiver.verify(&answer).unwrap();
    cheated.run.take_all();
}

/// What the sender would have to have in a tree for the receiver's leaves, if it guesses `alpha`.
fn sum_for(cheated: &Cheated, tree: usize, corrections: &[Block], guess: u32) -> Block {
    let Run { sender, .. } = &cheated.run;
    let base = &sender.stream.of_trees()[tree * TOY.depth()..][..TOY.depth()];
    let sums: Vec<Block> = base
        .iter()
        .zip(corrections)
        .enumerate()
        .map(|(l, (q, correction))| *correction ^ *q ^ DELTA.masked(guess >> l & 1 == 0))
        .collect();
    let mut leaves = vec![Block::ZERO; TOY.leaves()];
    let scratch = &mut Scratch::new();
    sender
        .stream
        .tree(tree)
        .punctured_leaves(guess, &sums, &mut leaves, scratch);
    leaves[guess as usize] ^= DELTA;
    cheated.coefficients.of_tree(&leaves)
}

/// A sender that falsifies one correction of a tree and answers for a guess at the missing leaf
/// passes if the guess is right: with probability `2^-(depth - 1)`. One false correction shifts the
/// siblings of all later levels, so no smaller part of the guess is enough. The last level's branch
/// does not matter: both leaves are shifted by the error.
#[test]
fn a_guess_passes_where_it_is_right() {
    for level in 0..TOY.depth() {
        for tree in 0..3 {
            let cheated = cheat(TOYS, 16 * (tree * TOY.depth() + level) + 5, 0x40);
            let Run {
                sender, receiver, ..
            } = &cheated.run;
            let alpha = receiver.trees.alphas[tree];
            let corrections = corrections_of(receiver, tree);
            let own = own_sum(&cheated, tree);
            let honest = sender.total(&Challenge::read(&cheated.challenge));
            let expected = receiver.total(&cheated.coefficients);
            for guess in 0..TOY.leaves() as u32 {
                let change = own ^ sum_for(&cheated, tree, &corrections, guess);
                let total = honest ^ cheated.coefficients.of_tree_in_total(tree, change);
                let right = (guess ^ alpha) % (1 << (TOY.depth() - 1)) == 0;
                assert_eq!(total == expected, right, "{level} {guess}");
            }
        }
    }
}

/// A sender that shifts the children of node `guess` of level `level` and makes the later
/// corrections fit, for a tree of a round.
struct Shifted {
    corrections: Vec<Block>,
    leaves: Vec<Block>,
}

impl Shifted {
    fn new(public: &Public, sender: &SilentSender, tree: usize, level: usize, guess: u32) -> Self {
        let root = sender.trees.roots[tree];
        let (mut nodes, mut lefts) = (vec![root, root ^ DELTA], vec![root]);
        for l in 1..TOY.depth() {
            let hash = |(j, node): (u32, &Block)| {
                let shift = Block::from_u128(0x99 << 50).masked(l == level && j == guess);
                let left = public.hash(0, tree, *node) ^ shift;
                (left, left ^ *node)
            };
            let (left, right): (Vec<_>, Vec<_>) = (0..).zip(&nodes).map(hash).unzip();
            lefts.push(left.iter().fold(Block::ZERO, |sum, node| sum ^ *node));
            nodes = [left, right].concat();
        }
        let base = &sender.stream.of_trees()[tree * TOY.depth()..];
        let clear = |leaf: Block| Block::from_u128(leaf.to_u128() & !1);
        Self {
            corrections: lefts.iter().zip(base).map(|(left, q)| *left ^ *q).collect(),
            leaves: nodes.into_iter().map(clear).collect(),
        }
    }
}

/// The selective failure that the paper's functionality allows: a sender that falsifies the
/// corrections from level `l` on passes if it has guessed the first `l` choices of the tree, with
/// probability `2^-l`.
#[test]
fn a_guess_at_the_first_choices_passes_where_it_is_right() {
    let mut connection = pair(DELTA, WIDTH);
    let public = Public::new(connection.0.connection(), 0);
    let mut run = Run::begin_with(TOYS, [SimdLevel::detect(); 2], &mut connection);
    let mut honest = Vec::new();
    run.sender.round(&mut honest).unwrap();
    for level in 1..TOY.depth() {
        let mut passed = 0;
        for tree in 0..8 {
            for guess in 0..1 << level {
                let shifted = Shifted::new(&public, &run.sender, tree, level, guess);
                let (passes, alpha) = passes(&mut run, &honest, tree, &shifted);
                assert_eq!(passes, alpha % (1 << level) == guess, "{level} {tree}");
                passed += usize::from(passes);
            }
        }
        assert_eq!(passed, 8);
    }
}

/// Whether the receiver would accept the sender's answer for the tree's leaves, and `alpha`.
fn passes(run: &mut Run, honest: &[u8], tree: usize, shifted: &Shifted) -> (bool, u32) {
    let mut corrections = honest.to_vec();
    let at = HEADER + tree * TOY.depth() * Block::BYTES;
    let bytes: &[u8] = bytemuck::cast_slice(&shifted.corrections);
    corrections[at..at + bytes.len()].copy_from_slice(bytes);
    // The receiver's trees, without its turns.
    run.receiver.trees = run.receiver.correct(&corrections[HEADER..]);
    let (level, context) = (SimdLevel::detect(), run.sender.stream.context);
    let coefficients = Coefficients::new(level, &context, 0, &[5; 32], TOYS.set(0));
    let alphas = run.receiver.trees.alphas.iter();
    let missing: Vec<Block> = alphas.map(|&alpha| coefficients.of_leaf(alpha)).collect();
    let masks = run.receiver.stream.of_check().iter();
    let masks: Vec<Block> = masks.map(|t| *t & Block::from_u128(1)).collect();
    let challenge = Challenge {
        seed: [5; 32],
        sum: coefficients.total(&missing, &masks),
    };
    let mut own = vec![Block::ZERO; TOY.leaves()];
    let number = run.sender.stream.tree(tree);
    run.sender
        .trees
        .leaves(&number, tree, &mut own, &mut Scratch::new());
    let change = coefficients.of_tree(&own) ^ coefficients.of_tree(&shifted.leaves);
    let total = run.sender.total(&challenge) ^ coefficients.of_tree_in_total(tree, change);
    let alpha = run.receiver.trees.alphas[tree];
    (total == run.receiver.total(&coefficients), alpha)
}

/// The sender's sum of a tree.
fn own_sum(cheated: &Cheated, tree: usize) -> Block {
    let Run { sender, .. } = &cheated.run;
    let mut leaves = vec![Block::ZERO; TOY.leaves()];
    let scratch = &mut Scratch::new();
    sender
        .trees
        .leaves(&sender.stream.tree(tree), tree, &mut leaves, scratch);
    cheated.coefficients.of_tree(&leaves)
}

/// The corrections that the receiver took.
fn corrections_of(receiver: &SilentReceiver, tree: usize) -> Vec<Block> {
    let base = &receiver.stream.of_trees()[tree * TOY.depth()..];
    let sums = &receiver.trees.sums[tree * TOY.depth()..];
    (0..TOY.depth()).map(|l| base[l] ^ sums[l]).collect()
}

/// A tree with another correlation passes only where the receiver took no node that has it.
#[test]
fn another_delta_is_caught() {
    let mut run = Run::begin(TOYS);
    let (mut corrections, mut challenge, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    run.sender.round(&mut corrections).unwrap();
    let other = DELTA ^ Block::from_u128(6 << 40);
    // The corrections of tree 3 for that.
    let base = run.sender.stream.of_trees()[3 * TOY.depth()..].to_vec();
    let mut false_ones = Vec::new();
    let mut leaves = vec![Block::ZERO; TOY.leaves()];
    let root = Root {
        first: run.sender.trees.roots[3],
        delta: other,
    };
    let scratch = &mut Scratch::new();
    let tree = run.sender.stream.tree(3);
    tree.left_sums(root, &mut leaves, scratch, |l, sum| {
        false_ones.extend((sum ^ base[l]).to_bytes());
    });
    let at = HEADER + 3 * TOY.depth() * 16;
    corrections[at..at + false_ones.len()].copy_from_slice(&false_ones);
    run.receiver.take_round(&corrections).unwrap();
    run.receiver.challenge(&mut challenge).unwrap();
    run.sender.answer(&challenge, &mut answer).unwrap();
    let result = run.receiver.verify(&answer);
    assert!(matches!(result, Err(OtError::FalseCorrections)));
}

/// A receiver's false challenge gets a hash of the total and a multiple of `Delta`.
#[test]
fn false_challenges_get_an_answer_that_tells_nothing_new() {
    for change in [1u128, 1 << 127, u128::MAX] {
        let mut run = Run::begin(TOYS);
        let (mut corrections, mut challenge, mut found) = (Vec::new(), Vec::new(), Vec::new());
        run.sender.round(&mut corrections).unwrap();
        run.receiver.take_round(&corrections).unwrap();
        run.receiver.challenge(&mut challenge).unwrap();
        let mut read = Challenge::read(&challenge);
        read.sum ^= Block::from_u128(change);
        challenge.clear();
        read.write(&mut challenge);
        run.sender.answer(&challenge, &mut found).unwrap();
        let context = run.sender.stream.context;
        let coefficients =
            Coefficients::new(SimdLevel::detect(), &context, 0, &read.seed, TOYS.set(0));
        let total = run.receiver.total(&coefficients);
        let shifted = total ^ coefficients.product(DELTA, Block::from_u128(change));
        assert_eq!(answer(&context, 0, shifted).as_bytes(), &found[..]);
        let result = run.receiver.verify(&found);
        assert!(matches!(result, Err(OtError::FalseCorrections)));
    }
}

#[test]
fn any_challenge_and_any_answer_are_taken_without_a_panic() {
    for byte in [0, 0xff] {
        let mut run = Run::begin(TOYS);
        let (mut corrections, mut challenge, mut answer) = (Vec::new(), Vec::new(), Vec::new());
        run.sender.round(&mut corrections).unwrap();
        corrections[HEADER..].fill(byte);
        run.receiver.take_round(&corrections).unwrap();
        run.receiver.challenge(&mut challenge).unwrap();
        run.sender.answer(&[byte; 48], &mut answer).unwrap();
        let result = run.receiver.verify(&[byte; 32]);
        assert!(matches!(result, Err(OtError::FalseCorrections)));
    }
}
