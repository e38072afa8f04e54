//! Correlated OTs against `q = t + r Delta`.

use pronghorn_mpc::Block;
use pronghorn_mpc::ot::{
    CotReceiver, CotSender, OtError,
    extension::{MOST_OF_BATCH, message_bytes},
};
use proptest::prelude::*;

use super::{choice, pair, random_bytes};

/// Makes `count` OTs and checks them; the blocks of both parties.
fn extend(
    sender: &mut CotSender,
    receiver: &mut CotReceiver,
    choices: &[u8],
    count: usize,
) -> (Vec<Block>, Vec<Block>) {
    let (mut q, mut t) = (vec![Block::ZERO; count], vec![Block::ZERO; count]);
    let mut message = b"kept".to_vec();
    let first = receiver.extend(choices, &mut t, &mut message).unwrap();
    assert_eq!(&message[..4], b"kept");
    assert_eq!(message.len() - 4, sender.message_bytes(count));
    assert_eq!(sender.extend(&message[4..], &mut q).unwrap(), first);
    let delta = sender.delta();
    for j in 0..count {
        assert!(q[j] == t[j] ^ delta.masked(choice(choices, j)), "OT {j}");
    }
    (q, t)
}

#[test]
fn blocks_differ_by_delta_where_the_choice_is_one() {
    for width in 1..=8 {
        let (mut sender, mut receiver) = pair(width);
        for (i, count) in [0usize, 1, 7, 127, 128, 129, 8191, 8192, 8193]
            .into_iter()
            .enumerate()
        {
            let bytes = count.div_ceil(8);
            let choices = match i % 3 {
                0 => random_bytes(i as u64, bytes),
                1 => vec![0xff; bytes],
                _ => vec![0; bytes],
            };
            extend(&mut sender, &mut receiver, &choices, count);
        }
    }
}

#[test]
fn messages_of_several_batches() {
    for width in [4, 7] {
        let (mut sender, mut receiver) = pair(width);
        for count in [
            MOST_OF_BATCH - 1,
            MOST_OF_BATCH,
            MOST_OF_BATCH + 1,
            2 * MOST_OF_BATCH + 300,
        ] {
            let choices = random_bytes(count as u64, count.div_ceil(8));
            extend(&mut sender, &mut receiver, &choices, count);
        }
    }
}

#[test]
fn blocks_look_random_and_never_repeat() {
    let (mut sender, mut receiver) = pair(4);
    let mut all = Vec::new();
    for count in [1000, 1, 128, 70_000] {
        let choices = vec![0; usize::div_ceil(count, 8)];
        let (_, t) = extend(&mut sender, &mut receiver, &choices, count);
        all.extend(t.into_iter().map(Block::to_u128));
    }
    for bit in 0..128 {
        let ones = all.iter().filter(|&t| t >> bit & 1 == 1).count();
        let deviation = ones.abs_diff(all.len() / 2);
        // Six standard deviations.
        assert!(deviation < 3 * all.len().isqrt(), "bit {bit}: {ones}");
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn bits_behind_the_last_choice_do_not_matter() {
    let (mut sender, mut receiver) = pair(2);
    extend(&mut sender, &mut receiver, &[0b1111_1101], 3);
}

#[test]
fn traffic_is_128_bits_through_the_width() {
    for (width, most) in [(1, 16.2), (2, 8.15), (4, 4.1), (8, 2.1)] {
        let bytes = message_bytes(1 << 20, width) as f64 / f64::from(1 << 20);
        assert!(bytes < most, "{width}: {bytes}");
    }
    assert_eq!(message_bytes(usize::MAX, 1), usize::MAX);
}

#[test]
fn a_lost_or_repeated_message_is_noticed_and_changes_nothing() {
    let (mut sender, mut receiver) = pair(4);
    let (mut t, mut q) = ([Block::ZERO; 40], [Block::ZERO; 40]);
    let mut messages = [Vec::new(), Vec::new()];
    for message in &mut messages {
        receiver.extend(&[0x99; 5], &mut t, message).unwrap();
    }
    let lost = sender.extend(&messages[1], &mut q);
    assert!(matches!(lost, Err(OtError::Position { .. })));
    sender.extend(&messages[0], &mut q).unwrap();
    let repeated = sender.extend(&messages[0], &mut q);
    assert!(matches!(repeated, Err(OtError::Position { .. })));
    assert_eq!(sender.made(), 40);
    sender.extend(&messages[1], &mut q).unwrap();
    let delta = sender.delta();
    assert!((0..40).all(|j| q[j] == t[j] ^ delta.masked(choice(&[0x99; 5], j))));
}

#[test]
fn wrong_lengths_are_refused_and_change_nothing() {
    let (mut sender, mut receiver) = pair(4);
    let (mut t, mut q) = ([Block::ZERO; 40], [Block::ZERO; 40]);
    let mut message = Vec::new();
    receiver.extend(&[0; 5], &mut t, &mut message).unwrap();
    for wrong in [
        &message[..message.len() - 1],
        &[&message[..], &[0]].concat(),
        &[],
    ] {
        let result = sender.extend(wrong, &mut q);
        assert!(matches!(result, Err(OtError::Length { .. })));
    }
    // For another count of OTs the length differs too, once it needs another block.
    let result = sender.extend(&message, &mut [Block::ZERO; 129]);
    assert!(matches!(result, Err(OtError::Length { .. })));
    for choices in [&[0; 4][..], &[0; 6], &[]] {
        let result = receiver.extend(choices, &mut t, &mut Vec::new());
        assert!(matches!(result, Err(OtError::Count { .. })));
    }
    sender.extend(&message, &mut q).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_sequence_of_messages(
        width in 1u8..=8,
        batches in prop::collection::vec((any::<u64>(), 0usize..2000), 1..4),
    ) {
        let (mut sender, mut receiver) = pair(width);
        for (seed, count) in batches {
            let choices = random_bytes(seed, count.div_ceil(8));
            extend(&mut sender, &mut receiver, &choices, count);
        }
    }

    #[test]
    fn a_changed_message_never_passes(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (mut sender, mut receiver) = pair(4);
        let (mut t, mut q) = ([Block::ZERO; 300], [Block::ZERO; 300]);
        let mut message = Vec::new();
        receiver.extend(&random_bytes(1, 38), &mut t, &mut message).unwrap();
        let at = at.index(message.len());
        message[at] ^= 1 << bit;
        prop_assert!(sender.extend(&message, &mut q).is_err());
    }
}
