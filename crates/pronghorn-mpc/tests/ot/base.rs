//! Base OTs: the receiver's key is the sender's of its choice.

use pronghorn_mpc::Block;
use pronghorn_mpc::ot::{
    BaseOt, OtError,
    base::{self, BaseReceiver, COUNT, Key},
};

use super::stream;

const SESSION: [u8; 32] = [4; 32];
const KINDS: [BaseOt; 2] = [BaseOt::MlKem, BaseOt::Ristretto];

/// What the receiver sends and keeps.
fn start(kind: BaseOt, choices: Block) -> (BaseReceiver, Vec<u8>) {
    let mut message = Vec::new();
    let receiver = BaseReceiver::start(kind, &SESSION, choices, &mut stream(1), &mut message);
    (receiver, message)
}

/// The sender's keys, and its message.
fn respond(
    kind: BaseOt,
    session: &[u8; 32],
    message: &[u8],
) -> Result<(Vec<[Key; 2]>, Vec<u8>), OtError> {
    let mut answer = Vec::new();
    let keys = base::respond(kind, session, message, &mut stream(2), &mut answer)?;
    Ok((keys.to_vec(), answer))
}

#[test]
fn the_receiver_has_the_key_of_its_choice_and_no_other() {
    for kind in KINDS {
        for choices in [0, u128::MAX, 0x0123_4567_89ab_cdef << 60 | 0xf00d] {
            let (receiver, message) = start(kind, Block::from_u128(choices));
            assert_eq!(message.len(), kind.receiver_bytes());
            let (pairs, answer) = respond(kind, &SESSION, &message).unwrap();
            assert_eq!(answer.len(), kind.sender_bytes());
            let keys = receiver.finish(&answer).unwrap();
            assert_eq!((pairs.len(), keys.len()), (COUNT, COUNT));
            for (index, (pair, key)) in pairs.iter().zip(keys.iter()).enumerate() {
                let choice = (choices >> index & 1) as usize;
                assert!(pair[choice] == *key && pair[1 - choice] != *key);
            }
            let mut all = pairs.concat();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 2 * COUNT);
        }
    }
}

#[test]
fn messages_do_not_repeat_and_fill_their_range() {
    for kind in KINDS {
        let (_, zero) = start(kind, Block::ZERO);
        let (_, one) = start(kind, Block::ONES);
        // With the same randomness, the same two elements in the other order do not give the same
        // key twice.
        assert!(zero != one);
        let ones: u32 = zero.iter().map(|byte| byte.count_ones()).sum();
        let share = f64::from(ones) / (8 * zero.len()) as f64;
        // 12-bit residues below 3329 have fewer ones than random bits.
        assert!((0.42..0.54).contains(&share), "{kind:?} {share}");
    }
}

/// What goes over the wire, and the keys, for one seed and session: a change breaks peers and
/// stored set-ups.
#[test]
fn messages_and_keys_stay_what_they_were() {
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..16].to_string();
    for (kind, expected) in KINDS.into_iter().zip(KNOWN) {
        let (_, message) = start(kind, Block::from_u128(0x77 << 64));
        let (pairs, answer) = respond(kind, &SESSION, &message).unwrap();
        let keys = pairs.as_flattened().as_flattened();
        assert_eq!(
            [&message[..], &answer, keys].map(hash),
            expected,
            "{kind:?}"
        );
    }
}

/// The receiver's message, the sender's, and the sender's keys, hashed.
const KNOWN: [[&str; 3]; 2] = [
    ["4a2c8428e4095517", "8da8c3fd600272d8", "ca07b45bb739db69"],
    ["0ee5b3d684159282", "743e95ef7c33b464", "247a3250342c445c"],
];

#[test]
fn another_session_gives_other_keys() {
    for kind in KINDS {
        let (receiver, message) = start(kind, Block::from_u128(0x77));
        let (pairs, answer) = respond(kind, &[9; 32], &message).unwrap();
        let keys = receiver.finish(&answer).unwrap();
        for (pair, key) in pairs.iter().zip(keys.iter()) {
            assert!(!pair.contains(key));
        }
    }
}

#[test]
fn an_answer_garbled_for_one_choice_spoils_only_that_choice() {
    let (receiver, message) = start(BaseOt::MlKem, Block::from_u128(0b10));
    let (pairs, mut answer) = respond(BaseOt::MlKem, &SESSION, &message).unwrap();
    let one = BaseOt::MlKem.sender_bytes() / COUNT;
    answer[0] ^= 1; // choice 0 of OT 0, which the receiver chose
    answer[one] ^= 1; // choice 0 of OT 1, which it did not
    let keys = receiver.finish(&answer).unwrap();
    assert!(!pairs[0].contains(&keys[0]));
    assert!(pairs[1][1] == keys[1]);
}

#[test]
fn wrong_lengths_are_refused() {
    for kind in KINDS {
        let (receiver, message) = start(kind, Block::ZERO);
        let (_, answer) = respond(kind, &SESSION, &message).unwrap();
        for wrong in [&message[1..], &[&message[..], &[0]].concat(), &[]] {
            let result = respond(kind, &SESSION, wrong);
            assert!(matches!(result, Err(OtError::Length { .. })));
        }
        let result = receiver.finish(&answer[1..]);
        assert!(matches!(result, Err(OtError::Length { .. })));
    }
}

#[test]
fn coefficients_above_the_modulus_are_refused() {
    let (_, message) = start(BaseOt::MlKem, Block::ZERO);
    let one = message.len() / COUNT;
    for at in [32, 32 + 768, one - 3] {
        let mut message = message.clone();
        // Residue 3329 in 12 bits.
        message[5 * one + at] = 0x01;
        message[5 * one + at + 1] = message[5 * one + at + 1] & 0xf0 | 0x0d;
        let result = respond(BaseOt::MlKem, &SESSION, &message);
        assert!(matches!(result, Err(OtError::Coefficient { index: 5 })));
    }
}

#[test]
fn what_is_no_point_is_refused() {
    let (_, message) = start(BaseOt::Ristretto, Block::ZERO);
    // Zero, a negative field element, one that is not reduced, all ones.
    let mut negative = [0; 32];
    negative[0] = 1;
    let mut unreduced = [0xff; 32];
    (unreduced[0], unreduced[31]) = (0xed, 0x7f);
    for bad in [[0; 32], negative, unreduced, [0xff; 32]] {
        for (index, half) in [(0, 0), (17, 1), (COUNT - 1, 1)] {
            let mut message = message.clone();
            message[64 * index + 32 * half..][..32].copy_from_slice(&bad);
            match respond(BaseOt::Ristretto, &SESSION, &message) {
                Err(OtError::Point { index: found, .. }) => assert_eq!(found, index),
                _ => panic!("it is no point"),
            }
        }
        let (receiver, _) = start(BaseOt::Ristretto, Block::ZERO);
        assert!(matches!(receiver.finish(&bad), Err(OtError::Point { .. })));
    }
}
