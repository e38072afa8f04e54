//! Blocks against their definition, false leaves and choices, and the ends of a connection.

use super::*;
use crate::aes::Aes128;
use pronghorn_ring::random::{Prg, Seed};

const CONNECTION: [u8; 32] = [3; 32];

fn seeds() -> Prg {
    Prg::new(&Seed::from_bytes([8; 32]), "pronghorn test")
}

/// The leaf seeds of every strip, in the receiver's order.
fn leaves(width: usize) -> Vec<Vec<Key>> {
    let mut stream = seeds().stream(0);
    let strips = strips(width).map(|strip| {
        let mut leaves = vec![[0; 32]; 1 << strip.len()];
        stream.fill(leaves.as_flattened_mut());
        leaves
    });
    strips.collect()
}

fn alpha(delta: Block, strip: &std::ops::Range<usize>) -> usize {
    (delta.to_u128() >> strip.start) as usize & ((1 << strip.len()) - 1)
}

fn sender(delta: Block, width: usize, leaves: &[Vec<Key>]) -> CotSender {
    let permuted = strips(width).zip(leaves).map(|(strip, leaves)| {
        let alpha = alpha(delta, &strip);
        let mut permuted: Vec<Key> = (0..leaves.len()).map(|y| leaves[y ^ alpha]).collect();
        permuted[0] = [0; 32];
        Zeroizing::new(permuted)
    });
    CotSender::new(delta, width, permuted, CONNECTION, Burnt::default())
}

fn receiver(width: usize, leaves: &[Vec<Key>]) -> CotReceiver {
    let leaves = leaves.iter().map(|leaves| Zeroizing::new(leaves.clone()));
    CotReceiver::new(width, leaves, CONNECTION, seeds().stream(1))
}

/// Both parties of a connection, the same every time.
pub(crate) fn pair(delta: Block, width: usize) -> (CotSender, CotReceiver) {
    let leaves = leaves(width);
    (sender(delta, width, &leaves), receiver(width, &leaves))
}

/// The columns by the formula, one bit at a time.
#[test]
fn blocks_are_those_of_the_definition() {
    let (width, count) = (3, 300);
    let leaves = leaves(width);
    let choices: Vec<u8> = (0..38u8).map(|i| i.wrapping_mul(37)).collect();
    let mut t = vec![Block::ZERO; count];
    receiver(width, &leaves)
        .extend(&choices, &mut t, &mut Vec::new())
        .unwrap();
    let nonce = blake3::derive_key("pronghorn ot nonce of the counters", &CONNECTION);
    let nonce = Block::from_bytes(*nonce.first_chunk().unwrap());
    let bit = |leaf: &Key, j: usize| {
        let key = blake3::keyed_hash(leaf, &CONNECTION).as_bytes()[..16].to_vec();
        let mut block = [nonce ^ Block::from_u128(j as u128 / 128)];
        Aes128::new(Block::from_bytes(key.try_into().unwrap())).encrypt(&mut block);
        block[0].to_u128() >> (j % 128) & 1
    };
    for (strip, leaves) in strips(width).zip(&leaves) {
        for (b, column) in strip.enumerate() {
            for j in [0, 1, 127, 128, 299] {
                let with_bit = (0..leaves.len()).filter(|x| x >> b & 1 == 1);
                let v = with_bit.fold(0, |sum, x| sum ^ bit(&leaves[x], j));
                assert_eq!(t[j].to_u128() >> column & 1, v);
            }
        }
    }
}

/// A receiver who set one leaf up falsely is caught unless it is the one that the sender misses;
/// then the OTs are right. That is the guess at `alpha` which the bound accounts for.
#[test]
fn a_false_leaf_is_caught_unless_the_sender_misses_it() {
    let (width, count) = (2, 200);
    let delta = Block::from_u128(0x1b_1b1b_1b1b_1b1b).with_lsb();
    let honest = leaves(width);
    for (index, strip) in strips(width).enumerate().take(6) {
        for x in 0..4 {
            let mut false_leaves = honest.clone();
            false_leaves[index][x] = [0xee; 32];
            let mut receiver = receiver(width, &false_leaves);
            let mut sender = sender(delta, width, &honest);
            let (mut q, mut t) = (vec![Block::ZERO; count], vec![Block::ZERO; count]);
            let (choices, mut message) = (vec![0xc5; 25], Vec::new());
            receiver.extend(&choices, &mut t, &mut message).unwrap();
            let result = sender.extend(&message, &mut q);
            if x == alpha(delta, &strip) {
                result.unwrap();
                for j in 0..count {
                    let choice = choices[j / 8] >> (j % 8) & 1 == 1;
                    assert!(q[j] == t[j] ^ delta.masked(choice));
                }
            } else {
                assert!(matches!(result, Err(OtError::Inconsistent)));
                assert!(q.iter().all(|&q| q == Block::ZERO));
                assert!(sender.delta() == Block::ZERO);
                let again = sender.extend(&message, &mut q);
                assert!(matches!(again, Err(OtError::Burnt)));
                assert!(sender.common.columns.iter().all(|&x| x == Block::ZERO));
            }
        }
    }
}

/// A receiver who uses other choices for one strip than for the rest is caught, for every strip.
#[test]
fn other_choices_for_one_strip_are_caught() {
    let (width, count) = (4, 100);
    let leaves = leaves(width);
    // No strip of delta is zero, for which other choices would change nothing.
    let delta = Block::from_u128(u128::MAX / 15);
    for index in 0..32 {
        let (mut receiver, mut sender) = (receiver(width, &leaves), sender(delta, width, &leaves));
        let common = &mut receiver.common;
        let blocks = blocks_of(count);
        receiver.choices = Zeroizing::new(vec![Block::ONES; blocks]);
        let stride = common.start(blocks);
        let mut message = common.position.to_le_bytes().to_vec();
        let mut corrections = vec![0; 32 * blocks * Block::BYTES];
        let level = SimdLevel::detect();
        common.expand(level, stride, Block::ZERO, |strip, _, total| {
            let flipped = Block::from_u128(u128::from(strip == index) << 5);
            for at in 0..blocks {
                let d = total[at] ^ Block::ONES ^ flipped;
                corrections[(strip * blocks + at) * 16..][..16].copy_from_slice(&d.to_bytes());
            }
        });
        let check = common.check(&corrections, blocks);
        let hashed = check.hash(level, &receiver.choices, &common.columns, stride);
        message.extend_from_slice(&corrections);
        message.extend_from_slice(&hashed.bytes());
        let result = sender.extend(&message, &mut vec![Block::ZERO; count]);
        assert!(matches!(result, Err(OtError::Inconsistent)));
    }
}

#[test]
fn a_connection_ends() {
    let leaves = leaves(1);
    let (mut receiver, mut sender) = (
        receiver(1, &leaves),
        sender(Block::from_u128(1), 1, &leaves),
    );
    receiver.common.made = MOST_OF_CONNECTION - 1;
    sender.common.made = MOST_OF_CONNECTION - 1;
    let mut two = [Block::ZERO; 2];
    let refused = receiver.extend(&[0], &mut two, &mut Vec::new());
    assert!(matches!(refused, Err(OtError::Exhausted)));
    let refused = sender.extend(&[], &mut two);
    assert!(matches!(refused, Err(OtError::Exhausted)));
    let mut message = Vec::new();
    receiver.extend(&[0], &mut two[..1], &mut message).unwrap();
    assert_eq!(
        sender.extend(&message, &mut two[1..]).unwrap(),
        MOST_OF_CONNECTION - 1
    );
}

/// A batch of one OT takes two blocks of every column, not a 128th of one.
#[test]
fn a_connection_of_small_batches_ends_with_its_blocks() {
    let leaves = leaves(1);
    let (mut receiver, mut sender) = (
        receiver(1, &leaves),
        sender(Block::from_u128(1), 1, &leaves),
    );
    receiver.common.position = MOST_BLOCKS - 3;
    sender.common.position = MOST_BLOCKS - 3;
    let (mut one, mut message) = ([Block::ZERO], Vec::new());
    receiver.extend(&[0], &mut one, &mut message).unwrap();
    sender.extend(&message, &mut one).unwrap();
    let refused = receiver.extend(&[0], &mut one, &mut Vec::new());
    assert!(matches!(refused, Err(OtError::Exhausted)));
    assert!(matches!(
        sender.extend(&[], &mut one),
        Err(OtError::Exhausted)
    ));
    // All OTs of a connection in full batches fit.
    let full = MOST_OF_CONNECTION.div_ceil(MOST_OF_BATCH as u64) * 256;
    assert!(full <= MOST_BLOCKS);
    for count in [0, 1, 128, 129, MOST_OF_BATCH, MOST_OF_BATCH + 1] {
        let batches = vec![(); count];
        let blocks = batches.chunks(MOST_OF_BATCH).map(|b| blocks_of(b.len()));
        assert_eq!(blocks_of_message(count), blocks.sum::<usize>() as u64);
    }
}

/// Columns of equal keys: what is encrypted is another connection's nowhere.
#[test]
fn connections_encrypt_different_counters() {
    let counters = |connection| {
        let mut common = Common::new(1, Vec::new(), connection);
        common.start(200);
        common.counters
    };
    let (one, other) = (counters([1; 32]), counters([2; 32]));
    assert!(one.iter().all(|x| !other.contains(x)));
    assert!((1..one.len()).all(|i| !one[..i].contains(&one[i])));
}
