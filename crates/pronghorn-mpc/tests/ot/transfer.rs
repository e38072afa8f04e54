//! Random strings, chosen strings and products, against what they should be.

use pronghorn_mpc::Block;
use pronghorn_mpc::ot::{CotReceiver, CotSender, OtError, transfer};
use pronghorn_ring::{Modulus, PowerOfTwo, Prime};
use proptest::prelude::*;

use super::{choice, pair, random_bytes};

/// OTs of both parties.
struct Ots {
    sender: CotSender,
    receiver: CotReceiver,
    first: u64,
    choices: Vec<u8>,
    q: Vec<Block>,
    t: Vec<Block>,
}

fn ots(count: usize) -> Ots {
    let (mut sender, mut receiver) = pair(4);
    // Not at the beginning, so that numbers matter.
    let (mut q, mut t, mut message) = (vec![Block::ZERO; 700], vec![Block::ZERO; 700], Vec::new());
    receiver.extend(&[0; 88], &mut t, &mut message).unwrap();
    sender.extend(&message, &mut q).unwrap();

    let choices = random_bytes(count as u64, count.div_ceil(8));
    (q, t, message) = (
        vec![Block::ZERO; count],
        vec![Block::ZERO; count],
        Vec::new(),
    );
    receiver.extend(&choices, &mut t, &mut message).unwrap();
    let first = sender.extend(&message, &mut q).unwrap();
    assert_eq!(first, 700);
    Ots {
        sender,
        receiver,
        first,
        choices,
        q,
        t,
    }
}

fn words(index: u64, count: usize) -> Vec<u64> {
    let bytes = random_bytes(index, 8 * count);
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| u64::from_le_bytes(word)).collect()
}

#[test]
fn random_strings_agree_for_the_choice_alone() {
    let mut ots = ots(1500);
    let mut ones = vec![Block::ZERO; 1500];
    let (correlated, delta) = (ots.q.clone(), ots.sender.delta());
    let wrong = transfer::send_random(&ots.sender, ots.first, &mut ots.q, &mut ones[1..]);
    assert!(matches!(wrong, Err(OtError::Count { .. })));
    transfer::send_random(&ots.sender, ots.first, &mut ots.q, &mut ones).unwrap();
    transfer::receive_random(&ots.receiver, ots.first, &mut ots.t);
    for j in 0..1500 {
        let pair = [ots.q[j], ones[j]];
        let chosen = usize::from(choice(&ots.choices, j));
        assert!(pair[chosen] == ots.t[j] && pair[1 - chosen] != ots.t[j]);
        assert!(pair[0] != correlated[j] && pair[0] ^ pair[1] != delta);
    }
}

#[test]
fn chosen_strings_arrive() {
    for (width, count) in [(1, 1), (1, 513), (8, 64), (13, 1030), (64, 700), (20, 0)] {
        let ots = ots(count);
        let mask = u64::MAX >> (64 - width);
        let strings =
            |index| -> Vec<u64> { words(index, count).iter().map(|word| word & mask).collect() };
        let (zeros, ones) = (strings(1), strings(2));
        let mut message = Vec::new();
        transfer::send_chosen(
            &ots.sender,
            ots.first,
            &ots.q,
            &zeros,
            &ones,
            width,
            &mut message,
        )
        .unwrap();
        assert_eq!(message.len(), transfer::chosen_bytes(count, width));
        let mut out = vec![0; count];
        let receive = |message: &[u8], out: &mut [u64]| {
            let Ots {
                receiver,
                first,
                t,
                choices,
                ..
            } = &ots;
            transfer::receive_chosen(receiver, *first, t, choices, width, message, out)
        };
        receive(&message, &mut out).unwrap();
        for j in 0..count {
            let expected = if choice(&ots.choices, j) {
                ones[j]
            } else {
                zeros[j]
            };
            assert_eq!(out[j], expected, "{width} {j}");
        }
        message.push(0);
        let result = receive(&message, &mut out);
        assert!(matches!(result, Err(OtError::Length { .. })));
    }
}

/// Bits above the width would end up in the packed neighbours, which no pad covers.
#[test]
fn strings_wider_than_the_width_are_cut() {
    let ots = ots(9);
    let message = |strings: &[u64]| {
        let mut message = Vec::new();
        transfer::send_chosen(
            &ots.sender,
            ots.first,
            &ots.q,
            strings,
            strings,
            5,
            &mut message,
        )
        .unwrap();
        message
    };
    assert_eq!(message(&[u64::MAX - 7; 9]), message(&[0b11000; 9]));
}

/// The OTs made before a failed check have the delta that is at stake, or none any more: with equal
/// pads both strings would go to the receiver.
#[test]
fn nothing_is_sent_after_a_failed_check() {
    let Ots {
        mut sender,
        mut receiver,
        first,
        mut q,
        mut t,
        ..
    } = ots(16);
    let mut bad = Vec::new();
    receiver.extend(&[0; 2], &mut t, &mut bad).unwrap();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    let result = sender.extend(&bad, &mut [Block::ZERO; 16]);
    assert!(matches!(result, Err(OtError::Inconsistent)));

    let before = q.clone();
    let (mut ones, mut share, mut out) = (vec![Block::ZERO; 16], [0; 16], Vec::new());
    let strings = [0; 16];
    let modulus = PowerOfTwo::<u64>::new(8).unwrap();
    for result in [
        transfer::send_random(&sender, first, &mut q, &mut ones),
        transfer::send_chosen(&sender, first, &q, &strings, &strings, 8, &mut out),
        transfer::send_products(&sender, first, &q, &strings, modulus, &mut share, &mut out),
        transfer::apply_corrections(&sender, &[0xff; 2], &mut q),
        sender.extend(&[], &mut []).map(|_| ()),
        sender.check_usable(),
    ] {
        assert!(matches!(result, Err(OtError::Burnt)));
    }
    assert!(out.is_empty() && q == before);
}

#[test]
fn strings_the_receiver_did_not_choose_stay_masked() {
    let ots = ots(2000);
    let nothing = vec![0; 2000];
    let mut message = Vec::new();
    transfer::send_chosen(
        &ots.sender,
        ots.first,
        &ots.q,
        &nothing,
        &nothing,
        64,
        &mut message,
    )
    .unwrap();
    let ones: u32 = message.iter().map(|byte| byte.count_ones()).sum();
    assert!((127_000..129_000).contains(&ones), "{ones}");
}

fn products_are_shared<M: Modulus<u64>>(modulus: M, count: usize, run: usize) {
    let ots = ots(count);
    let all = count * run;
    let factors: Vec<u64> = words(3, all)
        .iter()
        .enumerate()
        .map(|(j, &word)| match j {
            0 => 0,
            1 => modulus.neg(1),
            _ => modulus.from_i64((word >> 1) as i64),
        })
        .collect();
    let (mut ours, mut theirs, mut message) = (vec![0; all], vec![0; all], Vec::new());
    let Ots {
        sender,
        receiver,
        first,
        choices,
        q,
        t,
    } = &ots;
    transfer::send_products(
        sender,
        *first,
        q,
        &factors,
        modulus,
        &mut ours,
        &mut message,
    )
    .unwrap();
    assert_eq!(message.len(), transfer::product_bytes(all, modulus));
    transfer::receive_products(receiver, *first, t, choices, modulus, &message, &mut theirs)
        .unwrap();
    for j in 0..all {
        let expected = if choice(choices, j / run) {
            factors[j]
        } else {
            0
        };
        assert_eq!(modulus.add(ours[j], theirs[j]), expected, "factor {j}");
    }
}

#[test]
fn products_modulo_powers_of_two_and_primes() {
    for bits in [1, 2, 20, 31, 32, 63, 64] {
        products_are_shared(PowerOfTwo::<u64>::new(bits).unwrap(), 600, 1);
    }
    for prime in [3, 65537, (1 << 31) - 1, (1 << 61) - 1] {
        products_are_shared(Prime::<u64>::new(prime).unwrap(), 600, 1);
    }
}

#[test]
fn products_with_vectors() {
    for (count, run) in [(0, 1), (1, 2), (1, 1000), (600, 2), (9, 65)] {
        products_are_shared(PowerOfTwo::<u64>::new(20).unwrap(), count, run);
        products_are_shared(Prime::<u64>::new(65537).unwrap(), count, run);
    }
}

/// The corrections of a vector of zeros are differences of strings: all of them differ.
#[test]
fn strings_of_a_vector_differ() {
    let ots = ots(2);
    let Ots {
        sender, first, q, ..
    } = &ots;
    let (mut share, mut message) = (vec![0; 2000], Vec::new());
    let modulus = PowerOfTwo::<u64>::new(64).unwrap();
    let zeros = vec![0; 2000];
    transfer::send_products(sender, *first, q, &zeros, modulus, &mut share, &mut message).unwrap();
    let (corrections, _) = message.as_chunks::<8>();
    let distinct: std::collections::BTreeSet<_> = corrections.iter().collect();
    assert_eq!((corrections.len(), distinct.len()), (2000, 2000));
    let distinct: std::collections::BTreeSet<_> = share.iter().collect();
    assert_eq!(distinct.len(), 2000);
}

#[test]
fn shares_are_uniform() {
    let modulus = Prime::<u64>::new(3).unwrap();
    let ots = ots(30_000);
    let (mut share, mut message) = (vec![0; 30_000], Vec::new());
    let factors = vec![1; 30_000];
    let Ots {
        sender, first, q, ..
    } = &ots;
    transfer::send_products(
        sender,
        *first,
        q,
        &factors,
        modulus,
        &mut share,
        &mut message,
    )
    .unwrap();
    for residue in 0..3 {
        let count = share.iter().filter(|&&share| share == residue).count();
        assert!(count.abs_diff(10_000) < 500, "{residue}: {count}");
    }
}

#[test]
fn ots_made_ahead_serve_choices_that_come_later() {
    let mut ots = ots(1001);
    let wanted = random_bytes(77, 126);
    let mut message = Vec::new();
    transfer::correct_choices(&ots.choices, &wanted, &mut message).unwrap();
    assert_eq!(message.len(), 126);
    transfer::apply_corrections(&ots.sender, &message, &mut ots.q).unwrap();
    let delta = ots.sender.delta();
    assert!((0..1001).all(|j| ots.q[j] == ots.t[j] ^ delta.masked(choice(&wanted, j))));

    let result = transfer::apply_corrections(&ots.sender, &message[1..], &mut ots.q);
    assert!(matches!(result, Err(OtError::Length { .. })));
    let result = transfer::correct_choices(&ots.choices, &wanted[1..], &mut message);
    assert!(matches!(result, Err(OtError::Count { .. })));
}

#[test]
fn a_slice_may_be_used_in_pieces() {
    let whole = ots(1200);
    let mut all = whole.t.clone();
    transfer::receive_random(&whole.receiver, whole.first, &mut all);
    let mut pieces = whole.t.clone();
    let (start, end) = pieces.split_at_mut(301);
    transfer::receive_random(&whole.receiver, whole.first, start);
    transfer::receive_random(&whole.receiver, whole.first + 301, end);
    assert!(all == pieces);
}

#[test]
fn malformed_messages_and_arguments_are_refused() {
    let ots = ots(10);
    let Ots {
        sender,
        receiver,
        first,
        choices,
        q,
        t,
    } = &ots;
    let (mut out, strings) = ([0; 10], [0; 10]);
    for width in [0, 65] {
        let sent = transfer::send_chosen(
            sender,
            *first,
            q,
            &strings,
            &strings,
            width,
            &mut Vec::new(),
        );
        assert!(matches!(sent, Err(OtError::Range { .. })));
        let got = transfer::receive_chosen(receiver, *first, t, choices, width, &[], &mut out);
        assert!(matches!(got, Err(OtError::Range { .. })));
    }
    let sent = transfer::send_chosen(
        sender,
        *first,
        q,
        &strings[1..],
        &strings,
        8,
        &mut Vec::new(),
    );
    assert!(matches!(sent, Err(OtError::Count { .. })));
    let got = transfer::receive_chosen(receiver, *first, t, &choices[1..], 8, &[0; 20], &mut out);
    assert!(matches!(got, Err(OtError::Count { .. })));
    let got = transfer::receive_chosen(receiver, *first, t, choices, 8, &[0; 20], &mut out[1..]);
    assert!(matches!(got, Err(OtError::Count { .. })));
    // 10 strings of 3 bits leave 2 bits of padding in each half.
    let got = transfer::receive_chosen(receiver, *first, t, choices, 3, &[0xff; 8], &mut out);
    assert!(matches!(got, Err(OtError::Packing { .. })));

    let five = Prime::<u64>::new(5).unwrap();
    let mut share = [0; 10];
    let products = |message: &[u8], share: &mut [u64]| {
        transfer::receive_products(receiver, *first, t, choices, five, message, share)
    };
    // 3 bits a residue: the third is 5.
    let got = products(&[0b0100_0000, 0b1, 0, 0], &mut share);
    assert!(matches!(got, Err(OtError::Residue { index: 2, .. })));
    assert!(matches!(
        products(&[0; 5], &mut share),
        Err(OtError::Packing { .. })
    ));
    assert!(matches!(
        products(&[0; 4], &mut share[1..]),
        Err(OtError::Count { .. })
    ));
    let sent = transfer::send_products(
        sender,
        *first,
        q,
        &strings[1..],
        five,
        &mut share,
        &mut Vec::new(),
    );
    assert!(matches!(sent, Err(OtError::Count { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn garbage_gives_strings_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let ots = ots(16);
        let Ots { receiver, first, choices, t, .. } = &ots;
        let mut out = [0; 16];
        let chosen = transfer::receive_chosen(receiver, *first, t, choices, 9, &bytes, &mut out);
        prop_assert_eq!(chosen.is_ok(), bytes.len() == transfer::chosen_bytes(16, 9));
        let modulus = Prime::<u64>::new(509).unwrap();
        let products = transfer::receive_products(receiver, *first, t, choices, modulus, &bytes, &mut out);
        prop_assert!(bytes.len() == 18 || products.is_err());
    }
}
